//! Stages of planning as drawings: what consolidation took out, what stands side by side, instances.

use std::collections::{BTreeSet, HashMap};

use weir_draw::{Arrow, Diagram, Line, Look, Shape, ShapeId};

use crate::draw::{label, shape};
use crate::graph::{Edge, Graph, NodeId};
use crate::optimise::Done;
use crate::parallel::{Parallel, Stage, Verdict};
use crate::plan::Plan;
use crate::size::{Instances, Way, mpps};

/// The longest line of a note, in characters.
const LINE: usize = 38;

impl Plan {
    /// The consolidated graph with what it was made from: NFs that were left out, pale, and the
    /// ways past them; each changed NF with the reason. `units` is the graph before.
    #[must_use]
    pub fn consolidation_diagram(&self, units: &Graph, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        let mut shapes: HashMap<&str, ShapeId> = HashMap::new();
        for (at, node) in self.graph.node_ids() {
            let mut drawn = shape(node);
            if self.merged.iter().any(|list| list.contains(&at)) {
                drawn = drawn.looking(Look::Merged);
            }
            shapes.insert(&node.name, diagram.shape(self.noted(drawn, &node.name)));
        }
        let mut left_out = BTreeSet::new();
        for node in units.nodes().iter().filter(|node| self.graph.find(&node.name).is_none()) {
            let drawn = shape(node).looking(Look::Removed);
            shapes.insert(&node.name, diagram.shape(self.noted(drawn, &node.name)));
            left_out.insert(node.name.as_str());
        }
        let mut arrow = |from: &str, to: &str, text: &str, line| {
            if let Some((from, to)) = shapes.get(from).zip(shapes.get(to)) {
                diagram.arrow(Arrow::new(*from, *to).label(text).line(line));
            }
        };
        for edge in self.graph.edges() {
            let (from, to) = ends(&self.graph, edge);
            arrow(from, to, &label(edge), Line::Solid);
        }
        for edge in units.edges() {
            let (from, to) = ends(units, edge);
            if left_out.contains(from) || left_out.contains(to) {
                arrow(from, to, "", Line::Pale);
            }
        }
        diagram
    }

    /// With what was done to the NF of that name, and why.
    fn noted(&self, mut drawn: Shape, name: &str) -> Shape {
        for change in self.changes.iter().filter(|c| c.nodes.iter().any(|node| node == name)) {
            let others: Vec<&str> =
                change.nodes.iter().map(String::as_str).filter(|other| *other != name).collect();
            let reason = match &change.done {
                Done::Merged { .. } => format!("with {}: {}", others.join(", "), change.done),
                _ => change.done.to_string(),
            };
            for line in wrapped(&reason) {
                drawn = drawn.note(&line);
            }
        }
        drawn
    }
}

impl Parallel {
    /// The graph with its stages: a frame around each, branches and joins where it shall be parallel.
    #[must_use]
    pub fn to_diagram(&self, graph: &Graph, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        // A frame is as wide as its shapes: the verdict's words are at the first of them.
        let word = |verdict: &Verdict| match verdict {
            Verdict::Parallel { .. } | Verdict::Asked { .. } => "side by side",
            _ => "in sequence",
        };
        let frames: Vec<_> =
            self.stages.iter().map(|stage| diagram.group(word(&stage.verdict))).collect();
        // By node: its stage, if that shall be parallel.
        let mut side: HashMap<NodeId, &[NodeId]> = HashMap::new();
        for stage in &self.stages {
            if let Verdict::Parallel { .. } | Verdict::Asked { .. } = stage.verdict {
                side.extend(stage.nodes.iter().map(|node| (*node, stage.nodes.as_slice())));
            }
        }
        let mut shapes = Vec::new();
        for (id, node) in graph.node_ids() {
            let mut drawn = shape(node);
            let stage = self.stages.iter().position(|stage| stage.nodes.contains(&id));
            if let Some(frame) = stage.and_then(|at| frames.get(at)) {
                drawn = drawn.within(*frame);
            }
            let first = |stage: &&Stage| stage.nodes.first() == Some(&id);
            for stage in self.stages.iter().filter(first) {
                let lines = wrapped(&stage.verdict.to_string());
                drawn = lines.iter().fold(drawn, |drawn, line| drawn.note(line));
            }
            for apart in self.apart.iter().filter(|apart| apart.second == id) {
                let first = graph.node(apart.first).map_or("", |node| node.name.as_str());
                drawn = wrapped(&format!("not beside {first}: {}", apart.why))
                    .iter()
                    .fold(drawn, |drawn, line| drawn.note(line));
            }
            shapes.push(diagram.shape(drawn));
        }
        let alone = |id: NodeId| vec![id];
        for edge in graph.edges() {
            let (from, to) = (side.get(&edge.from), side.get(&edge.to));
            if from.is_some() && from == to {
                continue;
            }
            for a in from.map_or_else(|| alone(edge.from), |stage| stage.to_vec()) {
                for b in to.map_or_else(|| alone(edge.to), |stage| stage.to_vec()) {
                    let ends = shapes.get(a.index()).zip(shapes.get(b.index()));
                    if let Some((from, to)) = ends {
                        // The last in chain order decides where packets go.
                        let text = if a == edge.from { label(edge) } else { String::new() };
                        diagram.arrow(Arrow::new(*from, *to).label(&text));
                    }
                }
            }
        }
        diagram
    }
}

impl Instances {
    /// The instance graph: a frame around the instances of each NF that has several.
    #[must_use]
    pub fn to_diagram(&self, graph: &Graph, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        let mut shapes: Vec<Vec<ShapeId>> = Vec::new();
        for (id, node) in graph.node_ids() {
            let sized = self.nfs.iter().find(|nf| nf.node == id);
            let count = sized.map_or(1, |nf| nf.count);
            let frame = (count > 1).then(|| diagram.group(&format!("{} x {count}", node.name)));
            let one = |number: u32| {
                let mut drawn = shape(node);
                if count > 1 {
                    drawn = drawn.titled(&format!("{}.{number}", node.name));
                }
                if let Some(nf) = sized {
                    let each = nf.pps.map(|pps| pps / f64::from(count.max(1)));
                    let load = each.map_or("traffic not stated".to_owned(), mpps);
                    drawn = drawn.note(&format!("{load} of {}", mpps(nf.core_pps)));
                    if let Some(over) = &nf.over {
                        drawn = wrapped(&over.to_string())
                            .iter()
                            .fold(drawn.looking(Look::Drop), |drawn, line| drawn.note(line));
                    }
                }
                frame.iter().fold(drawn, |drawn, frame| drawn.within(*frame))
            };
            let all: Vec<Shape> = (0..count).map(one).collect();
            shapes.push(all.into_iter().map(|drawn| diagram.shape(drawn)).collect());
        }
        for (at, (edge, sized)) in graph.edges().iter().zip(&self.edges).enumerate() {
            let ends = |node: NodeId| shapes.get(node.index()).map(Vec::as_slice);
            let (from, to) =
                (ends(edge.from).unwrap_or_default(), ends(edge.to).unwrap_or_default());
            let way = match sized.way {
                Way::Single => String::new(),
                Way::Hashed(key) => format!("divided {key}"),
                Way::Direct(_) => "straight on".to_owned(),
            };
            for (number, (a, b)) in self.links(at).into_iter().enumerate() {
                let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
                if let Some((from, to)) = from.get(index(a)).zip(to.get(index(b))) {
                    // Once for all of an edge's links: they say the same.
                    let words = [label(edge), way.clone()];
                    let words = words.iter().filter(|text| number == 0 && !text.is_empty());
                    let text = words.cloned().collect::<Vec<_>>().join(", ");
                    diagram.arrow(Arrow::new(*from, *to).label(&text));
                }
            }
        }
        diagram
    }
}

fn ends<'g>(graph: &'g Graph, edge: &Edge) -> (&'g str, &'g str) {
    let name = |id| graph.node(id).map_or("", |node: &crate::graph::Node| node.name.as_str());
    (name(edge.from), name(edge.to))
}

/// A text in lines of at most [`LINE`] characters, if its words allow.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count().saturating_add(word.chars().count()) < LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
