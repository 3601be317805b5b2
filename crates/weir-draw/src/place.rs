//! Places for shapes and arrows.

use crate::diagram::{Diagram, Shape};
use crate::{DrawError, MOST};
use dagre::graph::{Graph, GraphOptions};
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, RankDir, Ranker, layout};

/// Width of a character of the fixed-width font, in parts of the font's size.
const CHARACTER: f64 = 0.602;
pub(crate) const TITLE_SIZE: f64 = 13.0;
pub(crate) const TEXT_SIZE: f64 = 11.0;
pub(crate) const LINE: f64 = 16.0;
/// Longer texts are cut; the whole is in the hover text.
pub(crate) const LONGEST: usize = 44;

/// More frames than this are left out: with hundreds of them the layout takes minutes and gigabytes.
const MOST_FRAMES: usize = 40;

/// A rectangle by its middle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// An arrow's way, and the middle of its label.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Way {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) label: Option<(f64, f64)>,
}

/// Everything with its place.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) shapes: Vec<Area>,
    pub(crate) groups: Vec<Option<Area>>,
    pub(crate) ways: Vec<Way>,
}

/// A text as it is shown.
pub(crate) fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut out: String = characters.by_ref().take(LONGEST).collect();
    if characters.next().is_some() {
        out.pop();
        out.push('…');
    }
    out
}

pub(crate) fn width(text: &str, size: f64) -> f64 {
    f64::from(u16::try_from(shown(text).chars().count()).unwrap_or(u16::MAX)) * size * CHARACTER
}

fn size(shape: &Shape) -> (f64, f64) {
    let small = shape.notes.iter().chain([&shape.under]);
    let widest =
        small.map(|text| width(text, TEXT_SIZE)).fold(width(&shape.title, TITLE_SIZE), f64::max);
    let lines = 1 + usize::from(!shape.under.is_empty()) + shape.notes.len();
    let lines = f64::from(u16::try_from(lines).unwrap_or(u16::MAX));
    (widest + 24.0, lines * LINE + 14.0)
}

pub(crate) fn place(diagram: &Diagram) -> Result<Placed, DrawError> {
    let count = diagram.shapes.len().saturating_add(diagram.arrows.len());
    if count > MOST {
        return Err(DrawError::TooMuch { count });
    }
    let mut graph: Graph<NodeLabel, EdgeLabel> =
        Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: true });
    for (i, shape) in diagram.shapes.iter().enumerate() {
        let (width, height) = size(shape);
        graph.set_node(format!("s{i}"), Some(NodeLabel { width, height, ..NodeLabel::default() }));
    }
    // A frame without shapes has no place.
    let framed = diagram.groups.len() <= MOST_FRAMES;
    let used =
        |g: usize| framed && diagram.shapes.iter().any(|s| s.group.is_some_and(|id| id.0 == g));
    for g in (0..diagram.groups.len()).filter(|g| used(*g)) {
        graph.set_node(format!("g{g}"), Some(NodeLabel::default()));
    }
    for (i, shape) in diagram.shapes.iter().enumerate() {
        if let Some(group) = shape.group.filter(|id| used(id.0)) {
            graph.set_parent(&format!("s{i}"), Some(&format!("g{}", group.0)));
        }
    }
    for (i, arrow) in diagram.arrows.iter().enumerate() {
        let mut label = EdgeLabel { label_offset: 6.0, ..EdgeLabel::default() };
        if !arrow.label.is_empty() {
            label.labelpos = dagre::layout::types::LabelPos::Center;
            label.width = width(&arrow.label, TEXT_SIZE) + 8.0;
            label.height = LINE;
        }
        let (from, to) = (format!("s{}", arrow.from.0), format!("s{}", arrow.to.0));
        graph.set_edge(from, to, Some(label), Some(&format!("a{i}")));
    }
    let options = LayoutOptions {
        rankdir: RankDir::LR,
        nodesep: 26.0,
        ranksep: 44.0,
        edgesep: 14.0,
        marginx: 16.0,
        marginy: 16.0,
        // The best ranks take seconds for hundreds of shapes.
        ranker: if count > 200 { Ranker::LongestPath } else { Ranker::NetworkSimplex },
        ..LayoutOptions::default()
    };
    layout(&mut graph, Some(options));
    collect(diagram, &graph)
}

fn collect(diagram: &Diagram, graph: &Graph<NodeLabel, EdgeLabel>) -> Result<Placed, DrawError> {
    let area = |name: String| {
        let node = graph.node(&name)?;
        Some(Area { x: node.x?, y: node.y?, width: node.width, height: node.height })
    };
    let mut placed = Placed::default();
    for (i, shape) in diagram.shapes.iter().enumerate() {
        let found = area(format!("s{i}")).ok_or_else(|| DrawError::NoPlace(shape.title.clone()))?;
        placed.shapes.push(found);
    }
    placed.groups = (0..diagram.groups.len()).map(|g| area(format!("g{g}"))).collect();
    for (i, arrow) in diagram.arrows.iter().enumerate() {
        let (from, to) = (format!("s{}", arrow.from.0), format!("s{}", arrow.to.0));
        let edge = graph.edge(&from, &to, Some(&format!("a{i}")));
        let edge = edge.ok_or_else(|| DrawError::NoPlace(format!("the arrow {}", arrow.label)))?;
        placed.ways.push(Way {
            points: edge.points.iter().map(|p| (p.x, p.y)).collect(),
            label: edge.x.zip(edge.y),
        });
    }
    let areas = || placed.shapes.iter().chain(placed.groups.iter().flatten());
    let points = || placed.ways.iter().flat_map(|w| &w.points);
    let right = areas().map(|a| a.x + a.width / 2.0).chain(points().map(|p| p.0));
    let low = areas().map(|a| a.y + a.height / 2.0).chain(points().map(|p| p.1));
    placed.width = right.fold(width(&diagram.title, TITLE_SIZE), f64::max) + 16.0;
    placed.height = low.fold(0.0, f64::max) + 16.0;
    Ok(placed)
}
