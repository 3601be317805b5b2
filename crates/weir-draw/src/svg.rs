//! Writing SVG 1.1.

use crate::diagram::{Arrow, Diagram, Line, Look, Shape};
use crate::place::{Area, LINE, Placed, TEXT_SIZE, TITLE_SIZE, Way, shown, width};
use std::fmt::Write;

/// Height of the drawing's title.
const HEAD: f64 = 30.0;

const STYLE: &str = "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1b2733}\
.t{font-size:13px;font-weight:600}.u{font-size:11px;fill:#52606d}.n{font-size:11px;fill:#8a5a00}\
.h{font-size:13px;font-weight:600;fill:#33475b}.g{fill:#f5f8fb;stroke:#b8c7d6;stroke-dasharray:none}\
.gt{font-size:11px;fill:#52708c}.a{fill:none;stroke:#4a6076;stroke-width:1.4}.d{stroke-dasharray:6 4}\
.p{stroke:#b9c2cb;stroke-dasharray:2 4}.l{font-size:11px;fill:#24425c}.lb{fill:#fff;fill-opacity:.88}";

pub(crate) fn write(diagram: &Diagram, placed: &Placed) -> String {
    let mut out = String::new();
    let (w, h) = (placed.width.ceil(), (placed.height + HEAD).ceil());
    // Writing to a string cannot fail: here and below.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 1 9 5 0 9z\" fill=\"#4a6076\"/></marker></defs>\n\
         <rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n\
         <text class=\"h\" x=\"16\" y=\"22\">{}</text>\n<g transform=\"translate(0 {HEAD})\">\n",
        escaped(&diagram.title),
        escaped(&shown(&diagram.title)),
    );
    for (title, area) in diagram.groups.iter().zip(&placed.groups) {
        if let Some(area) = area {
            group(&mut out, title, area);
        }
    }
    for (arrow, way) in diagram.arrows.iter().zip(&placed.ways) {
        line(&mut out, arrow, way);
    }
    for (shape, area) in diagram.shapes.iter().zip(&placed.shapes) {
        one(&mut out, shape, area);
    }
    // Labels last: nothing may cover them.
    for (arrow, way) in diagram.arrows.iter().zip(&placed.ways) {
        label(&mut out, arrow, way);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn group(out: &mut String, title: &str, area: &Area) {
    let (x, y) = (area.x - area.width / 2.0, area.y - area.height / 2.0);
    let _ = writeln!(
        out,
        "<rect class=\"g\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"8\"/>\
         <text class=\"gt\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        area.width,
        area.height,
        x + 8.0,
        y + 13.0,
        escaped(&shown(title)),
    );
}

/// Fill, stroke and corner radius (as a part of the height).
fn look(look: Look) -> (&'static str, &'static str, f64) {
    match look {
        Look::Port => ("#e3f1e8", "#3f8f5f", 0.5),
        Look::Work => ("#e8f0fa", "#3d6fa8", 0.14),
        Look::Merged => ("#fff3d9", "#b07a12", 0.14),
        Look::Removed => ("#f7f7f7", "#b9c2cb", 0.14),
        Look::Drop => ("#fbe6e4", "#b3473c", 0.5),
        Look::Copy => ("#efe8f8", "#7552a8", 0.14),
    }
}

fn one(out: &mut String, shape: &Shape, area: &Area) {
    let (x, y) = (area.x - area.width / 2.0, area.y - area.height / 2.0);
    let (fill, stroke, corner) = look(shape.look);
    let dash = if shape.look == Look::Removed { " stroke-dasharray=\"4 3\"" } else { "" };
    let mut hover = format!("{}\n{}", shape.title, shape.under);
    for more in shape.notes.iter().chain([&shape.hover]).filter(|t| !t.is_empty()) {
        let _ = write!(hover, "\n{more}");
    }
    let _ = write!(
        out,
        "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{:.1}\" \
         fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.3\"{dash}/>",
        escaped(&hover),
        area.width,
        area.height,
        (area.height * corner).min(20.0),
    );
    let mut at = y + 7.0 + LINE - 4.0;
    let mut text = |class: &str, text: &str| {
        let _ = write!(
            out,
            "<text class=\"{class}\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{at:.1}\">{}</text>",
            area.x,
            escaped(&shown(text)),
        );
        at += LINE;
    };
    text("t", &shape.title);
    if !shape.under.is_empty() {
        text("u", &shape.under);
    }
    shape.notes.iter().for_each(|note| text("n", note));
    out.push_str("</g>\n");
}

/// A smooth way through the points: quadratic pieces between the middles of the straight ones.
fn line(out: &mut String, arrow: &Arrow, way: &Way) {
    let [first, between @ .., last] = way.points.as_slice() else {
        return;
    };
    let mut d = format!("M{:.1} {:.1}", first.0, first.1);
    for (at, point) in between.iter().enumerate() {
        let next = between.get(at.saturating_add(1)).unwrap_or(last);
        let middle = ((point.0 + next.0) / 2.0, (point.1 + next.1) / 2.0);
        let end = if at.saturating_add(1) == between.len() { *last } else { middle };
        let _ = write!(d, "Q{:.1} {:.1} {:.1} {:.1}", point.0, point.1, end.0, end.1);
    }
    if between.is_empty() {
        let _ = write!(d, "L{:.1} {:.1}", last.0, last.1);
    }
    let class = match arrow.line {
        Line::Solid => "a",
        Line::Dashed => "a d",
        Line::Pale => "a p",
    };
    let _ = writeln!(out, "<path class=\"{class}\" marker-end=\"url(#tip)\" d=\"{d}\"/>");
}

fn label(out: &mut String, arrow: &Arrow, way: &Way) {
    let Some((x, y)) = way.label.filter(|_| !arrow.label.is_empty()) else {
        return;
    };
    let w = width(&arrow.label, TEXT_SIZE) + 6.0;
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect class=\"lb\" x=\"{:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{LINE}\" rx=\"3\"/>\
         <text class=\"l\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
        escaped(&arrow.label),
        x - w / 2.0,
        y - LINE / 2.0,
        y + TITLE_SIZE / 3.0,
        escaped(&shown(&arrow.label)),
    );
}

/// Text as XML 1.0 may hold it: markup escaped, control characters shown as a replacement.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(in_xml(c)),
        }
    }
    out
}

/// Text whose control characters, and what else no XML 1.0 has, are shown as a replacement.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(in_xml).collect()
}

fn in_xml(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
        c => c,
    }
}
