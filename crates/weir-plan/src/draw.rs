//! Policies, graphs and plans as drawings.

use std::collections::HashMap;

use weir_draw::{Arrow, Diagram, GroupId, Line, Look, Shape, ShapeId};

use crate::ast::{Hop, Item, Pipelet, Policy, Statement};
use crate::explain::kind;
use crate::graph::{Edge, EdgeId, Graph, Node, NodeId, NodeKind};
use crate::plan::{Carries, EdgeKind, Lane, Plan, Segment, SegmentId, SegmentKind};

impl Policy {
    /// The pipelets as they are written, each in a frame of its own.
    #[must_use]
    pub fn to_diagram(&self, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        let looks = self.looks();
        let pipelets = self.items.iter().filter_map(|item| match item {
            Item::Pipelet(pipelet) => Some(pipelet),
            _ => None,
        });
        for (pipelet, number) in pipelets.zip(1_usize..) {
            let name = pipelet.name.as_ref().map(|name| name.value.clone());
            let group = diagram.group(&name.unwrap_or_else(|| format!("pipelet {number}")));
            pipelet.draw(&mut diagram, group, &looks);
        }
        diagram
    }

    /// What stands under each declared name, and how it looks.
    fn looks(&self) -> HashMap<&str, (String, Look)> {
        let declared = self.items.iter().filter_map(|item| match item {
            Item::Port(p) if p.first == p.last => {
                Some((p.name.value.as_str(), (format!("port {}", p.first), Look::Port)))
            }
            Item::Port(p) => {
                let numbers = format!("ports {}-{}", p.first, p.last);
                Some((p.name.value.as_str(), (numbers, Look::Port)))
            }
            Item::Instance(i) => {
                Some((i.name.value.as_str(), (i.type_name.value.clone(), Look::Work)))
            }
            Item::Address(_)
            | Item::Include(_)
            | Item::Pipelet(_)
            | Item::DefaultDrop
            | Item::FirstMatch => None,
        });
        declared.chain([("Drop", ("drops".to_owned(), Look::Drop))]).collect()
    }
}

impl Pipelet {
    fn draw(&self, diagram: &mut Diagram, group: GroupId, looks: &HashMap<&str, (String, Look)>) {
        let mut shapes: HashMap<String, ShapeId> = HashMap::new();
        let mut shape = |diagram: &mut Diagram, name: &str| {
            *shapes.entry(name.to_owned()).or_insert_with(|| {
                let (under, look) = looks.get(name).cloned().unwrap_or((String::new(), Look::Work));
                diagram.shape(Shape::new(name, &under, look).within(group))
            })
        };
        for statement in &self.statements {
            let Statement::Chain(chain) = statement else {
                continue;
            };
            let mut from = shape(diagram, &chain.from.value);
            for hop in &chain.hops {
                let to = shape(diagram, &hop.to.value);
                diagram.arrow(Arrow::new(from, to).label(&hop.label()));
                from = to;
            }
        }
    }
}

impl Hop {
    /// Its filter, expected traffic and input, in one line.
    fn label(&self) -> String {
        let filter = self.filter_out.as_ref().map(|filter| filter.value.clone());
        let bandwidth = self.bandwidth.as_ref().map(|bandwidth| format!("({bandwidth})"));
        let input = self.filter_in.as_ref().map(|input| format!("[{}]", input.value));
        [filter, bandwidth, input].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl Graph {
    /// The graph: a shape for each node, an arrow for each edge.
    #[must_use]
    pub fn to_diagram(&self, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        let shapes: Vec<ShapeId> = self.nodes().iter().map(|n| diagram.shape(shape(n))).collect();
        for edge in self.edges() {
            let ends = shapes.get(edge.from.index()).zip(shapes.get(edge.to.index()));
            if let Some((from, to)) = ends {
                diagram.arrow(Arrow::new(*from, *to).label(&label(edge)));
            }
        }
        diagram
    }
}

pub(crate) fn shape(node: &Node) -> Shape {
    let look = match node.kind {
        NodeKind::Port { .. } => Look::Port,
        NodeKind::Nf { .. } | NodeKind::Vnf(_) => Look::Work,
        NodeKind::Drop => Look::Drop,
    };
    let shape = Shape::new(&node.name, &kind(&node.kind), look);
    match &node.kind {
        NodeKind::Nf { config, .. } => shape.hover(&config.to_string()),
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => shape,
    }
}

pub(crate) fn label(edge: &Edge) -> String {
    let filter = edge.filter.as_ref().map(ToString::to_string);
    let bandwidth = edge.bandwidth.as_ref().map(|bandwidth| format!("({bandwidth})"));
    let order = Some(edge.order_in_words()).filter(|order| !order.is_empty());
    [order, filter, bandwidth].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

impl Plan {
    /// The plan: a frame for each segment, calls as solid arrows, rings as dashed ones. The rings of
    /// an edge's sources between the same two segments are one arrow.
    #[must_use]
    pub fn to_diagram(&self, title: &str) -> Diagram {
        let mut diagram = Diagram::new(title);
        let mut places = Places::default();
        for (segment, id) in self.segments.iter().zip(0_u32..) {
            let id = SegmentId(id);
            let group = diagram.group(&frame(segment));
            if let SegmentKind::Gate { edge } = segment.kind {
                let name = self.graph.edge(edge).map_or("", |edge| edge.name.as_str());
                let gate = Shape::new("copies", "gate", Look::Copy).hover(name);
                places.gates.insert(id, diagram.shape(gate.within(group)));
            }
            if self.stages.iter().any(|stage| stage.sync == id) {
                let sync = Shape::new("comes together", "sync port", Look::Copy);
                places.syncs.insert(id, diagram.shape(sync.within(group)));
            }
            for node in segment.nodes.iter().filter_map(|n| Some((*n, self.graph.node(*n)?))) {
                let shape = diagram.shape(shape(node.1).within(group));
                places.nodes.insert((id, node.0), shape);
            }
        }
        self.draw_calls(&mut diagram, &mut places);
        self.draw_rings(&mut diagram, &places);
        diagram
    }

    fn draw_calls(&self, diagram: &mut Diagram, places: &mut Places) {
        let mut drop = None;
        for edge in &self.edges {
            let name = self.graph.edge(edge.id).map(label).unwrap_or_default();
            match edge.kind {
                EdgeKind::Direct { segment } => {
                    let from = places.nodes.get(&(segment, edge.from));
                    let from = from.or_else(|| places.syncs.get(&segment));
                    if let Some((from, to)) = from.zip(places.nodes.get(&(segment, edge.to))) {
                        diagram.arrow(Arrow::new(*from, *to).label(&name));
                    }
                }
                EdgeKind::Drop => {
                    let to = *drop
                        .get_or_insert_with(|| diagram.shape(Shape::new("Drop", "", Look::Drop)));
                    let from = places.nodes.iter().filter(|((segment, node), _)| {
                        let sends = self.segment(*segment).map(|s| s.kind);
                        *node == edge.from && !matches!(sends, Some(SegmentKind::Tx { .. }))
                    });
                    for (_, from) in from {
                        diagram.arrow(Arrow::new(*from, to).label(&name));
                    }
                }
                EdgeKind::Ring | EdgeKind::Stage => {}
            }
        }
    }

    fn draw_rings(&self, diagram: &mut Diagram, places: &Places) {
        // Lanes are by edge, so those that are one arrow follow each other but for their sources.
        let mut drawn: Vec<(EdgeId, SegmentId, SegmentId)> = Vec::new();
        for lane in &self.lanes {
            let key = (lane.edge, lane.from, lane.to);
            if drawn.iter().rev().take_while(|d| d.0 == lane.edge).any(|d| *d == key) {
                continue;
            }
            drawn.push(key);
            if self.draw_stage(diagram, places, lane) {
                continue;
            }
            let Some(edge) = self.graph.edge(lane.edge) else {
                continue;
            };
            let from = places.find(lane.from, edge.from);
            if let Some((from, to)) = from.zip(places.find(lane.to, edge.to)) {
                diagram.arrow(Arrow::new(from, to).label(&label(edge)).line(Line::Dashed));
            }
        }
    }
}

impl Plan {
    /// Draws a lane of a parallel stage, if it is one; true then.
    fn draw_stage(&self, diagram: &mut Diagram, places: &Places, lane: &Lane) -> bool {
        let nodes = |id| self.segment(id).map(|s| s.nodes.as_slice()).unwrap_or_default();
        let Some(edge) = self.graph.edge(lane.edge) else { return false };
        let (from, to) = match lane.carries {
            Carries::Packets => {
                // The packets' own way is drawn by the branches.
                return self.stages.iter().any(|stage| stage.entry == lane.edge);
            }
            Carries::Loans { .. } => {
                let first = nodes(lane.to).first();
                (places.find(lane.from, edge.from), first.and_then(|n| places.find(lane.to, *n)))
            }
            Carries::Answers { .. } => {
                let last = nodes(lane.from).last();
                let sync = places.syncs.get(&lane.to).copied();
                (last.and_then(|n| places.find(lane.from, *n)), sync)
            }
        };
        if let Some((from, to)) = from.zip(to) {
            diagram.arrow(Arrow::new(from, to).line(Line::Dashed));
        }
        true
    }
}

/// Where the shapes are.
#[derive(Default)]
struct Places {
    /// Ordered: drawings of one plan are the same.
    nodes: std::collections::BTreeMap<(SegmentId, NodeId), ShapeId>,
    gates: HashMap<SegmentId, ShapeId>,
    /// Sync ports.
    syncs: HashMap<SegmentId, ShapeId>,
}

impl Places {
    fn find(&self, segment: SegmentId, node: NodeId) -> Option<ShapeId> {
        let own = || self.nodes.get(&(segment, node)).or_else(|| self.syncs.get(&segment));
        self.gates.get(&segment).or_else(own).copied()
    }
}

fn frame(segment: &Segment) -> String {
    let core = segment.core.map(|core| format!("core {core}"));
    let domain = Some(&segment.domain).filter(|d| !d.is_empty()).map(|d| format!("domain {d}"));
    let all: Vec<String> =
        [Some(segment.name.clone()), core, domain].into_iter().flatten().collect();
    all.join(", ")
}
