//! Charts of measurements: lines with error bars over one axis.

mod scale;

use crate::svg::plain;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use scale::{labelled, reach, short, ticks};

/// Size of a chart, in pixels, without its notes.
const SIZE: (u32, u32) = (910, 460);
/// Height of a line of notes, of one of the small print, and how many characters each has at most.
const NOTE: i32 = 17;
const SMALL: i32 = 15;
const NOTE_LENGTH: usize = 150;
/// How far points of several lines at one place stand apart, in pixels, so that no bar hides another: between kinds, and along lines.
const ASIDE: [i32; 2] = [10, 4];
/// The same where all lines have one place alone: there is nothing beside it.
const ALONE: i32 = 60;
/// Width of a letter of the names of values to compare with, about.
const LETTER: i32 = 6;
/// Height of such a name.
const LEVEL_HEIGHT: i32 = 13;
/// Radius of a point.
const MARK: i32 = 4;
/// Half of an error bar's end.
const CAP: i32 = 3;
/// Width of what stands beside the plot: the names of the lines, of 40 characters at most in the widest of usual fonts.
const LEGEND: u32 = 280;
/// Height of a line of text there.
const LINE: i32 = 20;
/// The most lines in one chart: so many colours can be told apart.
pub const MOST_SERIES: usize = 8;
/// Okabe and Ito's colours, which those who see few colours can tell apart; a dark brown in the place of their yellow, which is hard to
/// see on white.
const COLOURS: [RGBColor; MOST_SERIES] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(70, 70, 70),
    RGBColor(101, 55, 20),
];
const SOFT: RGBColor = RGBColor(226, 232, 238);
const TEXT: RGBColor = RGBColor(27, 39, 51);

/// What is on an axis.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Equal distances are equal factors. Values have to be above 0.
    pub log: bool,
    /// Of a horizontal axis of kinds, which have no order: what is at 0, 1, 2 and so on. No lines join them.
    #[serde(default)]
    pub names: Vec<String>,
}

/// One value, and between which it lay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// The least that was seen.
    pub low: f64,
    /// What counts: a median.
    pub middle: f64,
    /// The most that was seen.
    pub high: f64,
    /// What counts is not known, but that it is not beyond the middle, or not below it: the point is hollow.
    pub bound: bool,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, as it stands beside the chart.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
    /// What goes with it and is no line of its own: points from left to right that a dotted line of its colour joins.
    pub below: Vec<Point>,
}

impl Series {
    fn all(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().chain(&self.below)
    }
}

/// A value of the vertical axis that measured ones are to be seen beside: a dashed line across the plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Where it is.
    pub at: f64,
    /// What it is, in a few words.
    pub name: String,
}

/// A chart: what it shows, and its lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What is to be known of it, in words: stands below the title.
    pub notes: Vec<String>,
    /// How it is to be read, and of what it is: small print below the plot.
    pub small: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis; it begins at 0 unless it is logarithmic.
    pub y: Axis,
    /// At most [`MOST_SERIES`] lines.
    pub series: Vec<Series>,
    /// What stands beside the chart for what goes with lines ([`Series::below`]).
    pub below: String,
    /// Values to compare with.
    pub levels: Vec<Level>,
}

/// Why there is no chart.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartError {
    /// Nothing to be seen.
    #[error("no values")]
    Empty,
    /// More lines than colours.
    #[error("{0} lines; {MOST_SERIES} can be told apart")]
    Series(usize),
    /// Not a number, or not above 0 on a logarithmic axis.
    #[error("'{0}' has a value that has no place on its axis")]
    Value(String),
    /// The drawing library failed.
    #[error("cannot draw: {0}")]
    Draw(String),
}

impl Chart {
    /// Draws it, without script, on white.
    ///
    /// # Errors
    /// There is nothing that can be drawn.
    pub fn to_svg(&self) -> Result<String, ChartError> {
        self.plain().drawn()
    }

    /// The same without characters that no XML has.
    fn plain(&self) -> Chart {
        let axis = |axis: &Axis| Axis {
            label: plain(&axis.label),
            names: axis.names.iter().map(|name| plain(name)).collect(),
            ..axis.clone()
        };
        let all = |texts: &[String]| texts.iter().map(|text| plain(text)).collect();
        let series = self.series.iter();
        let levels = self.levels.iter();
        Chart {
            title: plain(&self.title),
            notes: all(&self.notes),
            small: all(&self.small),
            x: axis(&self.x),
            y: axis(&self.y),
            series: series.map(|s| Series { name: plain(&s.name), ..s.clone() }).collect(),
            below: plain(&self.below),
            levels: levels.map(|l| Level { name: plain(&l.name), ..l.clone() }).collect(),
        }
    }

    fn drawn(&self) -> Result<String, ChartError> {
        if self.series.len() > MOST_SERIES {
            return Err(ChartError::Series(self.series.len()));
        }
        let fits = |value: f64, axis: &Axis| scale::fits(value, axis.log);
        for series in &self.series {
            let sound = |p: &Point| {
                fits(p.x, &self.x) && [p.low, p.middle, p.high].iter().all(|v| fits(*v, &self.y))
            };
            if !series.all().all(sound) {
                return Err(ChartError::Value(series.name.clone()));
            }
        }
        let points = || self.series.iter().flat_map(Series::all);
        let across = reach(points().map(|p| p.x), self.x.log).ok_or(ChartError::Empty)?;
        if let Some(level) = self.levels.iter().find(|level| !fits(level.at, &self.y)) {
            return Err(ChartError::Value(level.name.clone()));
        }
        let levels = self.levels.iter().map(|level| level.at);
        let up = reach(points().flat_map(|p| [p.low, p.high]).chain(levels), self.y.log);
        let mut up = up.ok_or(ChartError::Empty)?;
        if !self.y.log {
            let is_below = points().any(|p| p.low < 0.0);
            up.start = if is_below { up.start } else { 0.0 };
        }
        let mut svg = String::new();
        let drawn = {
            let [notes, small] = [&self.notes, &self.small]
                .map(|all| all.iter().flat_map(|note| wrapped(note)).collect::<Vec<String>>());
            let below = notes.len() as i32 * NOTE;
            let plot = SIZE.1.cast_signed();
            let foot = if small.is_empty() { 0 } else { small.len() as i32 * SMALL + SMALL };
            let size = (SIZE.0, (below + plot + foot).unsigned_abs());
            let whole = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let failed = |e: &dyn std::fmt::Display| ChartError::Draw(e.to_string());
            whole.fill(&WHITE).map_err(|e| failed(&e))?;
            for (i, note) in notes.iter().enumerate() {
                let at = (16, 36 + i as i32 * NOTE);
                let drawn = whole.draw(&Text::new(note.clone(), at, text(12)));
                drawn.map_err(|e| failed(&e))?;
            }
            for (i, line) in small.iter().enumerate() {
                let at = (16, below + plot + i as i32 * SMALL);
                let drawn = whole.draw(&Text::new(line.clone(), at, text(11)));
                drawn.map_err(|e| failed(&e))?;
            }
            let title = Text::new(self.title.clone(), (16, 14), text(17));
            whole.draw(&title).map_err(|e| failed(&e))?;
            let (_, root) = whole.split_vertically(below);
            let (root, _) = root.split_vertically(plot);
            let marks = ticks(&up, self.y.log);
            match (self.x.log, self.y.log) {
                (false, false) => self.draw(&root, across, up, &marks),
                (true, false) => self.draw(&root, across.log_scale(), up, &marks),
                (false, true) => self.draw(&root, across, up.log_scale(), &marks),
                (true, true) => self.draw(&root, across.log_scale(), up.log_scale(), &marks),
            }
        };
        drawn.map_err(|e| ChartError::Draw(e.to_string()))?;
        Ok(svg)
    }

    fn draw<'s, X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'s>, plotters::coord::Shift>,
        across: X,
        up: Y,
        ticks: &[f64],
    ) -> Result<(), Box<dyn std::error::Error + 's>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        let mut chart = ChartBuilder::on(&plot)
            .margin(14)
            .margin_top(40)
            .x_label_area_size(if self.x.names.is_empty() { 44 } else { 58 })
            .y_label_area_size(62)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .x_desc(self.x.described())
            .y_desc(self.y.described())
            .axis_desc_style(text(14))
            .label_style(text(12))
            .disable_mesh()
            .set_all_tick_mark_size(0)
            .x_label_formatter(&|_| String::new())
            .y_label_formatter(&|_| String::new())
            .draw()?;
        let (left, top) = root.get_base_pixel();
        let (across, up) = chart.plotting_area().get_pixel_range();
        let bottom = up.end - top;
        let (start, end) = (across.start - left, across.end - left);
        let some_x = self.series.iter().flat_map(|s| &s.points).map(|p| p.x).next().unwrap_or(1.0);
        let pixel = |x: f64, y: f64| {
            let (x, y) = chart.backend_coord(&(x, y));
            (x - left, y - top)
        };
        for &tick in ticks {
            let (_, at) = pixel(some_x, tick);
            root.draw(&PathElement::new([(start, at), (end, at)], SOFT))?;
            root.draw(&PathElement::new([(start - 5, at), (start, at)], TEXT))?;
            let beside = Pos::new(HPos::Right, VPos::Center);
            root.draw(&Text::new(short(tick), (start - 9, at), text(12).pos(beside)))?;
        }
        for level in &self.levels {
            let (_, at) = pixel(some_x, level.at);
            let style = TEXT.mix(0.6).stroke_width(1);
            root.draw(&DashedPathElement::new([(start, at), (end, at)], 7, 4, style))?;
        }
        // What was measured is what is written below: between there is nothing but lines.
        let places = self.series.iter().flat_map(|s| &s.points);
        let places = places.map(|p| (p.x, pixel(p.x, p.middle).0));
        for (i, (x, at)) in labelled(places.collect()).into_iter().enumerate() {
            root.draw(&PathElement::new([(at, bottom), (at, bottom + 5)], TEXT))?;
            let centred = Pos::new(HPos::Center, VPos::Top);
            // Names are longer than numbers: every second one stands below its neighbours.
            let lower = if self.x.names.is_empty() { 0 } else { i32::from(i % 2 == 1) * 14 };
            let label = self.x.names.get(x as usize).cloned().unwrap_or_else(|| short(x));
            root.draw(&Text::new(label, (at, bottom + 8 + lower), text(12).pos(centred)))?;
        }
        let [kinds, lines] = ASIDE;
        let count = i32::try_from(self.series.len()).unwrap_or(0);
        let is_alone = self.series.iter().flat_map(Series::all).all(|p| p.x == some_x);
        let step = match (self.x.names.is_empty(), is_alone) {
            (true, true) => ALONE.min((end - start) / (count + 1)),
            (true, false) => lines,
            (false, _) => kinds,
        };
        // Where lines and bars are.
        let mut taken: Vec<(i32, i32)> = Vec::new();
        for ((i, series), colour) in (0..).zip(&self.series).zip(COLOURS) {
            let aside = (2 * i - (count - 1)) * step / 2;
            let at = |p: &Point, value: f64| {
                let (x, y) = pixel(p.x, value);
                (x + aside, y)
            };
            // Kinds have no order that a line could follow.
            if self.x.names.is_empty() {
                let line: Vec<_> = series.points.iter().map(|p| at(p, p.middle)).collect();
                taken.extend(along(&line));
                root.draw(&PathElement::new(line, colour.stroke_width(2)))?;
            }
            // Beside its line's bars.
            let dots = series.below.iter().map(|p| at(p, p.middle)).map(|(x, y)| (x + 2, y));
            let dots: Vec<_> = dots.collect();
            taken.extend(along(&dots));
            if self.x.names.is_empty() {
                let style = colour.stroke_width(1);
                root.draw(&DashedPathElement::new(dots.clone(), 2, 3, style))?;
            }
            for (p, (x, y)) in series.below.iter().zip(&dots) {
                let ends = [at(p, p.low).1, at(p, p.high).1];
                taken.extend(along(&ends.map(|end| (*x, end))));
                root.draw(&PathElement::new(ends.map(|end| (*x, end)), colour))?;
                let inside = if p.bound { WHITE.filled() } else { colour.filled() };
                let around = triangle((*x, *y));
                root.draw(&Polygon::new(around, inside))?;
                root.draw(&PathElement::new(around, colour.stroke_width(1)))?;
            }
            for p in &series.points {
                let ends = [at(p, p.low), at(p, p.high)];
                taken.extend(along(&ends));
                root.draw(&PathElement::new(ends, colour))?;
                for (x, y) in ends {
                    root.draw(&PathElement::new([(x - CAP, y), (x + CAP, y)], colour))?;
                }
                if p.bound {
                    root.draw(&Circle::new(at(p, p.middle), MARK, WHITE.filled()))?;
                    root.draw(&Circle::new(at(p, p.middle), MARK, colour.stroke_width(2)))?;
                } else {
                    root.draw(&Circle::new(at(p, p.middle), MARK, colour.filled()))?;
                }
            }
            let y = 48 + LINE * i;
            legend.draw(&PathElement::new([(4, y), (28, y)], colour.stroke_width(2)))?;
            legend.draw(&Circle::new((16, y), MARK, colour.filled()))?;
            legend.draw(&Text::new(series.name.clone(), (36, y - 7), text(13)))?;
        }
        for level in &self.levels {
            let (_, at) = pixel(some_x, level.at);
            let long = i32::try_from(level.name.chars().count()).unwrap_or(0) * LETTER;
            let lefts = [end - 2 - long, start + 4, i32::midpoint(start, end - long)];
            let places = lefts.map(|left| [(left, at - 15), (left, at + 3)]);
            // Where the fewest lines and bars are: it neither hides them nor is struck through.
            let crossed = |(left, top): &(i32, i32)| {
                let inside = |(x, y): &&(i32, i32)| {
                    (*left..left + long).contains(x) && (*top..top + LEVEL_HEIGHT).contains(y)
                };
                taken.iter().filter(inside).count()
            };
            if let Some(place) = places.into_iter().flatten().min_by_key(crossed) {
                root.draw(&Text::new(level.name.clone(), place, text(11)))?;
            }
        }
        if self.series.iter().any(|series| !series.below.is_empty()) {
            let y = 48 + LINE * count;
            legend.draw(&DashedPathElement::new([(4, y), (28, y)], 2, 3, TEXT.stroke_width(1)))?;
            legend.draw(&Polygon::new(triangle((16, y)), TEXT.filled()))?;
            legend.draw(&Text::new(self.below.clone(), (36, y - 7), text(13)))?;
        }
        root.present()?;
        Ok(())
    }
}

impl Axis {
    /// What stands beside it.
    fn described(&self) -> String {
        if self.log { format!("{} (log scale)", self.label) } else { self.label.clone() }
    }
}

/// Pixels along a line, four apart at most: less than a name is high.
fn along(line: &[(i32, i32)]) -> impl Iterator<Item = (i32, i32)> {
    let parts = line.iter().zip(line.iter().skip(1));
    parts.flat_map(|(&(x, y), &(to_x, to_y))| {
        let steps = ((to_x - x).abs().max((to_y - y).abs()) / 4).max(1);
        (0..=steps).map(move |n| (x + (to_x - x) * n / steps, y + (to_y - y) * n / steps))
    })
}

/// Around a triangle, and back to where it begins. (The library's own is filled whatever its style says, and bounds are hollow.)
fn triangle((x, y): (i32, i32)) -> [(i32, i32); 4] {
    let top = (x, y - MARK);
    [top, (x + MARK, y + MARK - 1), (x - MARK, y + MARK - 1), top]
}

fn text(size: i32) -> plotters::style::TextStyle<'static> {
    ("sans-serif", size).into_font().color(&TEXT)
}

/// A text in lines of at most [`NOTE_LENGTH`] characters, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= NOTE_LENGTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests;
