//! Writing DOT, the language of Graphviz.

use std::fmt::Write;

use crate::diagram::{Diagram, Line, Look, Shape};

pub(crate) fn write(diagram: &Diagram) -> String {
    let mut out = format!(
        "digraph weir {{\n  rankdir=LR;\n  label={};\n  labelloc=t;\n",
        quoted(&diagram.title)
    );
    // Writing to a string cannot fail: here and below.
    for (number, title) in diagram.groups.iter().enumerate() {
        let _ = writeln!(out, "  subgraph cluster_{number} {{\n    label={};", quoted(title));
        for (id, shape) in diagram.shapes.iter().enumerate() {
            if shape.group.is_some_and(|group| group.0 == number) {
                let _ = writeln!(out, "    {}", node(id, shape));
            }
        }
        out.push_str("  }\n");
    }
    for (id, shape) in diagram.shapes.iter().enumerate().filter(|(_, s)| s.group.is_none()) {
        let _ = writeln!(out, "  {}", node(id, shape));
    }
    for arrow in &diagram.arrows {
        let style = match arrow.line {
            Line::Solid => "",
            Line::Dashed => ", style=dashed",
            Line::Pale => ", style=dotted, color=gray",
        };
        let _ = writeln!(
            out,
            "  n{} -> n{} [label={}{style}];",
            arrow.from.0,
            arrow.to.0,
            quoted(&arrow.label)
        );
    }
    out.push_str("}\n");
    out
}

fn node(id: usize, shape: &Shape) -> String {
    let look = match shape.look {
        Look::Port | Look::Drop => "shape=ellipse",
        Look::Work => "shape=box",
        Look::Merged => "shape=box, peripheries=2",
        Look::Removed => "shape=box, style=dashed, color=gray",
        Look::Copy => "shape=diamond",
    };
    let lines = [&shape.title, &shape.under].into_iter().chain(&shape.notes);
    let label: Vec<&str> = lines.map(String::as_str).filter(|line| !line.is_empty()).collect();
    format!("n{id} [{look}, label={}];", quoted(&label.join("\n")))
}

/// A DOT string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use crate::{Arrow, Diagram, Line, Look, Shape};

    #[test]
    fn dot_has_every_shape_arrow_frame_and_note_and_its_quotes_are_escaped() {
        let mut diagram = Diagram::new("a \"title\"");
        let frame = diagram.group("frame");
        let a = diagram.shape(Shape::new("a", "T", Look::Work).within(frame));
        let b = diagram.shape(Shape::new("b", "T", Look::Removed).note("left out"));
        diagram.arrow(Arrow::new(a, b).label("tcp").line(Line::Pale));
        let dot = diagram.to_dot();
        for part in [
            "label=\"a \\\"title\\\"\"",
            "subgraph cluster_0 {\n    label=\"frame\";\n    n0 [shape=box, label=\"a\\nT\"];\n  }",
            "  n1 [shape=box, style=dashed, color=gray, label=\"b\\nT\\nleft out\"];",
            "  n0 -> n1 [label=\"tcp\", style=dotted, color=gray];",
        ] {
            assert!(dot.contains(part), "{part}\n{dot}");
        }
    }
}
