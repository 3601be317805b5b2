//! What charts show.

use super::*;

fn chart(log: bool, points: Vec<Point>) -> Chart {
    let axis = |label: &str| Axis { label: label.to_owned(), log, names: Vec::new() };
    let series = vec![Series { name: "a < b".to_owned(), points, below: Vec::new() }];
    let notes = vec!["word ".repeat(40), "last".to_owned()];
    let (title, below) = ("T & U".to_owned(), "held".to_owned());
    Chart {
        title,
        notes,
        small: vec!["small".to_owned()],
        x: axis("length"),
        y: axis("Mpps"),
        series,
        below,
        levels: Vec::new(),
    }
}

#[test]
fn a_value_to_compare_with_has_its_line_and_name_and_a_place_on_the_axis() {
    let mut chart = chart(true, vec![point(1.0, 90.0), point(2.0, 100.0)]);
    let level = |at: f64| Level { at, name: "the paper: 1000".to_owned() };
    chart.levels = vec![level(1000.0)];
    let svg = chart.to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let mut texts = document.descendants().filter_map(|n| n.text()).map(str::trim);
    assert!(texts.clone().any(|text| text == "the paper: 1000"));
    assert!(texts.any(|text| text == "1000" || text == "500"), "the axis reaches so far");
    for wrong in [0.0, f64::NAN] {
        chart.levels = vec![level(wrong)];
        assert!(chart.to_svg().is_err(), "{wrong}");
    }
}

#[test]
fn the_name_of_a_value_to_compare_with_stands_where_no_line_is() {
    let name_at = |middles: [f64; 2]| -> f64 {
        let mut chart = chart(false, vec![point(1.0, middles[0]), point(2.0, middles[1])]);
        chart.levels = vec![Level { at: 100.0, name: "the paper".to_owned() }];
        let svg = chart.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts = document.descendants().filter(|n| n.has_tag_name("text"));
        let mut name = texts.filter(|n| n.text().is_some_and(|text| text.trim() == "the paper"));
        name.next().unwrap().attribute("x").unwrap().parse().unwrap()
    };
    let middle = f64::from(SIZE.0 - LEGEND) / 2.0;
    assert!(name_at([20.0, 20.0]) > middle, "at the right, where nothing else is");
    assert!(name_at([20.0, 102.0]) < middle, "a line and its bar end at the right");
}

#[test]
fn what_no_measurement_gives_has_no_chart_and_what_is_just_possible_has_one() {
    for (value, is_drawn) in [(5e29, true), (5e-30, true), (1e308, false), (5e-324, false)] {
        for log in [true, false] {
            let mut chart = chart(log, vec![point(1.0, value), point(2.0, value)]);
            assert_eq!(chart.to_svg().is_ok(), is_drawn, "{value} {log}");
            chart.series[0].points = vec![point(1.0, 100.0)];
            chart.levels = vec![Level { at: value, name: "aim".to_owned() }];
            assert_eq!(chart.to_svg().is_ok(), is_drawn, "{value} {log}");
        }
    }
}

#[test]
fn what_goes_with_a_line_has_marks_of_its_colour_and_a_name_beside_the_chart() {
    let marks = |below: Vec<Point>| {
        let mut chart = chart(true, vec![point(1.0, 90.0), point(2.0, 100.0)]);
        chart.series[0].below = below;
        let svg = chart.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let all = document.descendants();
        let triangles = all.clone().filter(|n| n.has_tag_name("polygon")).count();
        let named = all.filter_map(|n| n.text()).any(|text| text.trim() == "held");
        (triangles, named)
    };
    assert_eq!(marks(Vec::new()), (0, false));
    // Of both points, and the name's.
    let marked = marks(vec![point(1.0, 40.0), point(2.0, 50.0)]);
    assert_eq!(marked, (3, true));
    let mut wrong = chart(true, vec![point(1.0, 90.0)]);
    wrong.series[0].below = vec![point(1.0, 0.0)];
    assert_eq!(wrong.to_svg(), Err(ChartError::Value("a < b".to_owned())));
}

fn point(x: f64, middle: f64) -> Point {
    Point { x, low: middle * 0.9, middle, high: middle * 1.1, bound: false }
}

#[test]
fn a_bound_that_goes_with_a_line_is_hollow_too() {
    // How polygons are filled: the points' and the name's.
    let fills = |bound| -> Vec<String> {
        let mut chart = chart(false, vec![point(1.0, 90.0), point(2.0, 100.0)]);
        chart.series[0].below = vec![Point { bound, ..point(1.0, 50.0) }];
        let svg = chart.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let all = document.descendants().filter(|n| n.has_tag_name("polygon"));
        all.filter_map(|n| n.attribute("fill")).map(str::to_owned).collect()
    };
    let (value, bound) = (fills(false), fills(true));
    assert_eq!((value.len(), bound.len()), (2, 2), "{value:?} {bound:?}");
    assert!(!value.contains(&"#FFFFFF".to_owned()), "{value:?}");
    assert_eq!(bound.iter().filter(|fill| *fill == "#FFFFFF").count(), 1, "{bound:?}");
}

#[test]
fn a_bound_is_hollow_and_stands_where_a_value_would() {
    // Where circles are, and whether they are coloured inside.
    let circles = |bound| -> Vec<(String, bool)> {
        let mut points = vec![point(1.0, 90.0), point(2.0, 100.0)];
        points[1].bound = bound;
        let svg = chart(false, points).to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let circles = document.descendants().filter(|n| n.has_tag_name("circle"));
        let of = |n: roxmltree::Node<'_, '_>| {
            let [x, y, fill] = ["cx", "cy", "fill"].map(|name| n.attribute(name).unwrap());
            (format!("{x},{y}"), !["none", "#FFFFFF"].contains(&fill))
        };
        circles.map(of).collect()
    };
    let (values, with_bound) = (circles(false), circles(true));
    assert_eq!(values.len(), 3, "two points, and the name's: {values:?}");
    assert!(values.iter().all(|(_, coloured)| *coloured), "{values:?}");
    let at = |wanted: &str| -> Vec<bool> {
        let there = with_bound.iter().filter(|(at, _)| at == wanted);
        there.map(|(_, coloured)| *coloured).collect()
    };
    assert_eq!(at(&values[0].0), [true], "a value, as before");
    // White within a line that is the bound's own.
    assert_eq!(at(&values[1].0), [false, false]);
    assert_eq!(at(&values[2].0), [true], "the name's");
}

#[test]
fn a_chart_is_sound_svg_with_its_title_axes_and_names() {
    for log in [false, true] {
        let svg = chart(log, vec![point(1.0, 10.0), point(100.0, 2e7)]).to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<_> =
            document.descendants().filter_map(|n| n.text()).map(str::trim).collect();
        // Which axis is no even one is said beside it.
        let axes =
            if log { ["length (log scale)", "Mpps (log scale)"] } else { ["length", "Mpps"] };
        for wanted in ["T & U", "a < b", "last", "small"].into_iter().chain(axes) {
            assert!(texts.contains(&wanted), "{wanted}: {texts:?}");
        }
        // Each text is an element's and its text node's.
        let mut words: Vec<_> = texts.iter().filter(|text| text.starts_with("word word")).collect();
        words.dedup();
        let words = words.iter();
        assert_eq!(words.map(|text| text.split(' ').count()).collect::<Vec<_>>(), [30, 10]);
    }
}

#[test]
fn characters_that_no_xml_has_spoil_no_chart() {
    let mut odd = chart(false, vec![point(1.0, 90.0), point(2.0, 100.0)]);
    let text = "a\u{1b}[31m\0b\u{fffe}";
    odd.title = text.to_owned();
    odd.notes.push(text.to_owned());
    odd.small.push(text.to_owned());
    odd.series[0].name = text.to_owned();
    odd.y.label = text.to_owned();
    odd.levels = vec![Level { at: 95.0, name: text.to_owned() }];
    let svg = odd.to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts =
        document.descendants().filter(|n| n.is_text() && n.text().unwrap().contains("[31m"));
    assert_eq!(texts.count(), 6);
}

#[test]
fn values_without_a_place_are_refused() {
    assert_eq!(chart(false, vec![]).to_svg(), Err(ChartError::Empty));
    let bad = |log, value| chart(log, vec![point(1.0, value)]).to_svg();
    assert_eq!(bad(true, 0.0), Err(ChartError::Value("a < b".to_owned())));
    assert_eq!(bad(false, f64::NAN), Err(ChartError::Value("a < b".to_owned())));
    assert!(bad(false, 0.0).is_ok());
    let mut many = chart(false, vec![point(1.0, 1.0)]);
    many.series = vec![many.series[0].clone(); MOST_SERIES + 1];
    assert_eq!(many.to_svg(), Err(ChartError::Series(MOST_SERIES + 1)));
}

#[test]
fn places_that_were_measured_are_labelled() {
    let svg = chart(true, vec![point(64.0, 1.0), point(1500.0, 2.0)]).to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<_> = document.descendants().filter_map(|n| n.text()).map(str::trim).collect();
    assert!(texts.contains(&"64") && texts.contains(&"1500"), "{texts:?}");
}

#[test]
fn kinds_have_their_names_and_no_line_between_them() {
    let mut kinds = chart(false, vec![point(0.0, 1.0), point(1.0, 2.0)]);
    let lines = |svg: &str| svg.matches("<polyline").count();
    let joined = lines(&kinds.to_svg().unwrap());
    kinds.x.names = ["FromDevice", "ToDevice"].map(str::to_owned).to_vec();
    let svg = kinds.to_svg().unwrap();
    assert!(svg.contains("FromDevice") && svg.contains("ToDevice"), "{svg}");
    assert_eq!(lines(&svg) + 1, joined, "the line of the values is all that is not there");
}

#[test]
fn small_print_stands_below_the_plot_within_the_chart() {
    let svg = chart(false, vec![point(1.0, 90.0), point(2.0, 100.0)]).to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let number =
        |n: roxmltree::Node<'_, '_>, name| -> f64 { n.attribute(name).unwrap().parse().unwrap() };
    let height = |of: &str| {
        let texts = document.descendants().filter(|n| n.has_tag_name("text"));
        let found = texts.filter(|n| n.text().is_some_and(|text| text.trim() == of));
        found.map(|n| number(n, "y")).next().unwrap()
    };
    assert!(height("last") < height("a < b") && height("a < b") < height("length"));
    assert!(height("length") < height("small"));
    assert!(height("small") + 11.0 < number(document.root_element(), "height"));
}

#[test]
fn lines_of_one_place_alone_stand_far_apart_within_the_plot() {
    let xs = |places: &[f64]| {
        let points: Vec<Point> = places.iter().map(|x| point(*x, 90.0)).collect();
        let mut all = chart(false, points);
        all.series = vec![all.series[0].clone(); MOST_SERIES];
        let svg = all.to_svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let circles = document.descendants().filter(|n| n.has_tag_name("circle"));
        let all: Vec<i32> = circles.map(|n| n.attribute("cx").unwrap().parse().unwrap()).collect();
        // Those of names stand beside the plot.
        let plot = (SIZE.0 - LEGEND).cast_signed();
        let mut all: Vec<i32> = all.into_iter().filter(|x| *x < plot).collect();
        all.sort_unstable();
        all
    };
    let alone = xs(&[1.0]);
    assert_eq!(alone.len(), MOST_SERIES, "within the plot: {alone:?}");
    assert!(alone.windows(2).all(|two| two[1] - two[0] >= 40), "{alone:?}");
    assert_eq!(xs(&[1.0, 2.0])[1] - xs(&[1.0, 2.0])[0], ASIDE[1]);
}

#[test]
fn an_even_axis_begins_at_zero_and_bars_of_two_lines_stand_apart() {
    let mut two = chart(false, vec![point(1.0, 90.0), point(2.0, 100.0)]);
    two.series.push(two.series[0].clone());
    let svg = two.to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<_> = document.descendants().filter_map(|n| n.text()).map(str::trim).collect();
    assert!(texts.contains(&"0") && !texts.iter().any(|t| t.starts_with('-')), "{texts:?}");
    let circles = document.descendants().filter(|n| n.has_tag_name("circle"));
    let at: std::collections::BTreeSet<_> =
        circles.filter_map(|n| Some((n.attribute("cx")?, n.attribute("cy")?))).collect();
    assert_eq!(at.len(), 6, "two lines of two points, and two names: {at:?}");
}
