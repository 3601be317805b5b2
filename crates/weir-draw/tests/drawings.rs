//! Drawings are well-formed, complete, and nothing in them lies on something else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use roxmltree::{Document, Node};
use weir_draw::{Arrow, Diagram, DrawError, Line, Look, MOST, Shape};

/// Left, top, right, bottom.
type Box4 = [f64; 4];

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn area(node: Node<'_, '_>) -> Box4 {
    let (x, y) = (number(node, "x"), number(node, "y"));
    [x, y, x + number(node, "width"), y + number(node, "height")]
}

/// The rectangles of shapes, by title.
fn shapes(svg: &str) -> Vec<(String, Box4)> {
    let document = Document::parse(svg).unwrap();
    let found =
        document.descendants().filter(|n| n.has_tag_name("rect") && n.has_attribute("stroke"));
    found
        .map(|rect| {
            let texts = rect.parent().unwrap();
            let title = texts.children().find(|n| n.has_tag_name("text")).unwrap();
            (title.text().unwrap().to_owned(), area(rect))
        })
        .collect()
}

fn overlap(a: Box4, b: Box4) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

#[test]
fn a_chain_is_drawn_from_left_to_right() {
    let mut diagram = Diagram::new("chain");
    let names = ["lan", "check", "filter", "wan"];
    let ids = names.map(|name| diagram.shape(Shape::new(name, "type", Look::Work)));
    for pair in ids.windows(2) {
        diagram.arrow(Arrow::new(pair[0], pair[1]));
    }
    let svg = diagram.to_svg().unwrap();
    let drawn = shapes(&svg);
    assert_eq!(drawn.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), names);
    assert!(drawn.windows(2).all(|pair| pair[0].1[2] < pair[1].1[0]), "{drawn:?}");
    assert_eq!(svg.matches("marker-end").count(), 3);
}

#[test]
fn text_of_policies_cannot_become_markup() {
    let mut diagram = Diagram::new("<script>alert(1)</script>");
    let a = diagram
        .shape(Shape::new("a\"&<b>", "\u{0}\u{1b}[31m", Look::Port).note("]]>").hover("<i>"));
    diagram.arrow(Arrow::new(a, a).label("tcp[0] < 5 && ip"));
    let svg = diagram.to_svg().unwrap();
    let document = Document::parse(&svg).unwrap();
    assert!(document.descendants().all(|n| !n.has_tag_name("script") && !n.has_tag_name("i")));
    assert!(svg.contains("tcp[0] &lt; 5 &amp;&amp; ip"));
}

#[test]
fn long_texts_are_cut_and_whole_when_pointed_at() {
    let mut diagram = Diagram::new("");
    let long = "a".repeat(300);
    diagram.shape(Shape::new(&long, "", Look::Work));
    let svg = diagram.to_svg().unwrap();
    assert!(svg.contains(&long));
    let drawn = shapes(&svg);
    assert!(drawn[0].0.ends_with('…') && drawn[0].1[2] < 500.0, "{drawn:?}");
}

#[test]
fn shapes_of_a_group_lie_in_its_frame() {
    let mut diagram = Diagram::new("groups");
    let one = diagram.group("fw");
    let empty = diagram.group("empty");
    let a = diagram.shape(Shape::new("a", "", Look::Work).within(one));
    let b = diagram.shape(Shape::new("b", "", Look::Work).within(one));
    let c = diagram.shape(Shape::new("c", "", Look::Work));
    assert_ne!(one, empty);
    diagram.arrow(Arrow::new(a, b));
    diagram.arrow(Arrow::new(b, c).line(Line::Dashed));
    let svg = diagram.to_svg().unwrap();
    let document = Document::parse(&svg).unwrap();
    let frames: Vec<Box4> =
        document.descendants().filter(|n| n.attribute("class") == Some("g")).map(area).collect();
    let [frame] = frames.as_slice() else { panic!("one frame: {frames:?}") };
    let drawn = shapes(&svg);
    for (_, inner) in &drawn[..2] {
        assert!(frame[0] <= inner[0] && frame[1] <= inner[1], "{frame:?} {inner:?}");
        assert!(frame[2] >= inner[2] && frame[3] >= inner[3], "{frame:?} {inner:?}");
    }
    assert!(!overlap(*frame, drawn[2].1));
}

#[test]
fn what_nobody_could_read_is_refused() {
    let mut diagram = Diagram::new("");
    for i in 0..=MOST {
        diagram.shape(Shape::new(&i.to_string(), "", Look::Work));
    }
    assert_eq!(diagram.to_svg(), Err(DrawError::TooMuch { count: MOST + 1 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cycles, loops, several arrows between two shapes, frames: everything is drawn, apart.
    #[test]
    fn any_graph_is_drawn_whole(
        groups in prop::collection::vec(0..4_usize, 1..24),
        arrows in prop::collection::vec((0..24_usize, 0..24_usize, ".{0,60}"), 0..40),
    ) {
        let mut diagram = Diagram::new("any");
        let frames: Vec<_> = (0..3).map(|g| diagram.group(&format!("g{g}"))).collect();
        let ids: Vec<_> = groups.iter().enumerate().map(|(i, group)| {
            let shape = Shape::new(&format!("n{i}"), "x", Look::Work);
            diagram.shape(match frames.get(*group) {
                Some(frame) => shape.within(*frame),
                None => shape,
            })
        }).collect();
        let mut drawn = 0;
        for (from, to, label) in &arrows {
            if let (Some(from), Some(to)) = (ids.get(*from), ids.get(*to)) {
                diagram.arrow(Arrow::new(*from, *to).label(label));
                drawn += 1;
            }
        }
        let svg = diagram.to_svg().unwrap();
        prop_assert_eq!(svg.matches("marker-end").count(), drawn);
        let boxes = shapes(&svg);
        prop_assert_eq!(boxes.len(), groups.len());
        for (i, (name, a)) in boxes.iter().enumerate() {
            for (other, b) in &boxes[..i] {
                prop_assert!(!overlap(*a, *b), "{} on {}: {:?} {:?}", name, other, a, b);
            }
        }
    }
}
