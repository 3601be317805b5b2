//! Graphs and plans as text and as DOT (the language of Graphviz).

use std::fmt::Write;

use crate::graph::{Edge, Graph, NodeKind};
use crate::parallel::Running;
use crate::plan::{Carries, EdgeKind, Plan, SegmentId, SegmentKind};
use crate::size::{Group, Key, Spread};

impl Graph {
    /// Nodes with their branches, one a line, in the order in which packets try them.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for node in &self.nodes {
            line(&mut out, 0, &format!("{} ({})", node.name, kind(&node.kind)));
            for output in &node.outputs {
                let indent = if node.outputs.len() > 1 { 2 } else { 1 };
                if indent == 2 {
                    line(&mut out, 1, &format!("{}:", output.name));
                }
                for branch in &output.branches {
                    let Some(edge) = self.edge(branch.edge) else {
                        continue;
                    };
                    let back = if edge.closes { " (closes a cycle)" } else { "" };
                    let order = match edge.order_in_words() {
                        order if order.is_empty() => order,
                        order => format!(" ({order})"),
                    };
                    let to = format!("{}{back}{order}", self.destination(edge));
                    match &branch.filter {
                        Some(filter) => line(&mut out, indent, &format!("[{filter}] -> {to}")),
                        None => line(&mut out, indent, &format!("-> {to}")),
                    }
                }
                // Without `default drop;` the branches are known to take everything.
                if output.default_drop
                    && output.branches.last().is_none_or(|last| last.filter.is_some())
                    && self.is_source(&node.kind, output)
                {
                    line(&mut out, indent, "else dropped (by policy)");
                }
            }
        }
        out
    }

    /// A port that is only a destination has an output that nothing ever uses.
    fn is_source(&self, kind: &NodeKind, output: &crate::graph::Output) -> bool {
        !matches!(kind, NodeKind::Port { .. }) || !output.branches.is_empty()
    }

    fn destination(&self, edge: &Edge) -> String {
        let Some(node) = self.node(edge.to) else {
            return String::new();
        };
        match &node.kind {
            NodeKind::Nf { info, .. } if info.inputs.len() > 1 => {
                format!(
                    "[{}] {}",
                    info.inputs.get(edge.input).map_or("", String::as_str),
                    node.name
                )
            }
            _ => match &edge.tag {
                Some(tag) => format!("[{tag}] {}", node.name),
                None => node.name.clone(),
            },
        }
    }

    /// The graph for Graphviz.
    #[must_use]
    pub fn to_dot(&self) -> String {
        self.to_diagram("").to_dot()
    }
}

impl Plan {
    /// Segments with their cores, edges, and rings.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::from("segments\n");
        let name = |id: SegmentId| self.segment(id).map_or("", |segment| segment.name.as_str());
        for segment in &self.segments {
            let core = segment.core.map_or_else(String::new, |core| {
                format!(", core {core}{}", self.topology.behind(core))
            });
            let access = if segment.writes_packets { ", writes packets" } else { "" };
            let domain = match (&segment.kind, segment.domain.as_str()) {
                (SegmentKind::Gate { .. }, "") => ", copies into the graph's own domain".to_owned(),
                (SegmentKind::Gate { .. }, name) => format!(", copies into domain {name}"),
                (_, "") => String::new(),
                (_, name) => format!(", domain {name}"),
            };
            let mut again: Vec<&str> = segment
                .again
                .iter()
                .filter_map(|(id, _)| self.graph.node(*id))
                .map(|node| node.name.as_str())
                .collect();
            again.dedup();
            let again = match again.is_empty() {
                true => String::new(),
                false => format!(", once more behind: {}", again.join(", ")),
            };
            line(&mut out, 1, &format!("{}{core}{access}{domain}{again}", segment.name));
        }
        for (i, group) in self.groups.iter().enumerate() {
            if i == 0 {
                line(&mut out, 0, "instances");
            }
            line(&mut out, 1, &self.group_to_text(group));
        }
        for (i, stage) in self.stages.iter().enumerate() {
            if i == 0 {
                line(&mut out, 0, "side by side");
            }
            let names: Vec<&str> = stage.branches.iter().map(|id| name(*id)).collect();
            let (sync, near) = (name(stage.sync), self.nodes_of(stage));
            line(&mut out, 1, &format!("{}: come together in {sync}{near}", names.join(" | ")));
        }
        out.push_str(&self.near_nics_to_text());
        out.push_str("edges\n");
        for edge in &self.edges {
            let how = match edge.kind {
                EdgeKind::Direct { segment } => format!("direct in {}", name(segment)),
                EdgeKind::Ring => "ring".to_owned(),
                EdgeKind::Stage => "side by side".to_owned(),
                EdgeKind::Drop => "drop".to_owned(),
            };
            let order = self.graph.edge(edge.id).map_or_else(String::new, Edge::order_in_words);
            let comma = if order.is_empty() { "" } else { ", " };
            line(&mut out, 1, &format!("{}: {how}{comma}{order}", edge.name));
        }
        out.push_str("rings\n");
        for lane in &self.lanes {
            let edge = self.graph.edge(lane.edge).map_or("", |edge| edge.name.as_str());
            let source = self.sources.get(usize::try_from(lane.source.0).unwrap_or(usize::MAX));
            let source = source.map_or("", |source| source.name.as_str());
            let order = match (lane.closes, lane.back, lane.ordered) {
                (true, _, _) => ", which drops when it is full",
                (false, true, _) => ", around a cycle",
                (false, false, true) => ", with watermarks",
                (false, false, false) => "",
            };
            let (from, to) = (name(lane.from), name(lane.to));
            let what = match lane.carries {
                Carries::Packets => "packets",
                Carries::Loans { .. } => "packets lent",
                Carries::Answers { .. } => "answers on packets",
            };
            line(&mut out, 1, &format!("{from} => {to}: {edge}, {what} of {source}{order}"));
        }
        out.push_str(&self.changes_to_text());
        out
    }

    /// Which NUMA node the branches of a stage are on, where there are several nodes.
    fn nodes_of(&self, stage: &Running) -> String {
        if !self.topology.has_nodes() {
            return String::new();
        }
        let cores = stage.branches.iter().filter_map(|id| self.segment(*id)?.core);
        let mut nodes: Vec<Option<u32>> = cores.map(|core| self.topology.node_of(core)).collect();
        nodes.dedup();
        match nodes.as_slice() {
            [Some(node)] => format!(", all on node {node}"),
            [] => ", on no node in particular".to_owned(),
            _ => ", on several nodes: packets go from one to the other".to_owned(),
        }
    }

    /// Which services are near their NICs, and which are not, where there are several NUMA nodes.
    fn near_nics_to_text(&self) -> String {
        let mut out = String::new();
        if !self.topology.has_nodes() {
            return out;
        }
        line(&mut out, 0, "NUMA");
        if self.segments.iter().all(|segment| segment.core.is_none()) {
            line(
                &mut out,
                1,
                "no cores are given (--cores), so workers are on no node in particular",
            );
        }
        for segment in &self.segments {
            let (SegmentKind::Rx { port, .. } | SegmentKind::Tx { port }) = segment.kind else {
                continue;
            };
            let (Some(nic), Some(core)) = (self.topology.nics.get(&port), segment.core) else {
                continue;
            };
            let why = match self.topology.node_of(core) == Some(*nic) {
                true => format!("on core {core}, as its NIC is at node {nic}"),
                false => format!(
                    "on core {core}, although its NIC is at node {nic}: no core of that is left for services"
                ),
            };
            line(&mut out, 1, &format!("{}: {why}", segment.name));
        }
        out
    }

    fn group_to_text(&self, group: &Group) -> String {
        let count = group.nodes.len();
        let weights = weights_to_text(&group.weights);
        format!("{}: {count}, packets divided {}{weights}", group.name, self.division(group))
    }

    /// How packets are divided over an NF's instances, in words.
    pub(crate) fn division(&self, group: &Group) -> String {
        let hashed = self.graph.edges().iter().any(|edge| {
            edge.share.and_then(|share| self.groups.get(usize::try_from(share.group).ok()?))
                == Some(group)
        });
        match group.spread {
            // Who comes to them was divided before.
            _ if !hashed => "as divided before".to_owned(),
            Spread::InTurn => Key::Any.to_string(),
            Spread::LeastLoaded => "to the least loaded".to_owned(),
            Spread::By(key) => key.to_string(),
        }
    }

    /// The parallel stages that run in sequence, and why; empty when there are none.
    #[must_use]
    pub fn in_sequence_to_text(&self) -> String {
        let mut out = String::new();
        for (i, stage) in self.in_sequence.iter().enumerate() {
            if i == 0 {
                line(&mut out, 0, "could be side by side");
            }
            let name = |id| self.graph.node(id).map_or("", |node| node.name.as_str());
            let names: Vec<&str> = stage.nodes.iter().map(|id| name(*id)).collect();
            line(&mut out, 1, &format!("{}: {}", names.join(" | "), stage.why));
        }
        out
    }

    /// What consolidation did and why, one a line under a heading; empty when it did nothing.
    #[must_use]
    pub fn changes_to_text(&self) -> String {
        let mut out = String::new();
        for (i, change) in self.changes.iter().enumerate() {
            if i == 0 {
                line(&mut out, 0, "consolidated");
            }
            line(&mut out, 1, &change.to_string());
        }
        out
    }

    /// The plan for Graphviz: segments as boxes around their nodes, rings dashed.
    #[must_use]
    pub fn to_dot(&self) -> String {
        self.to_diagram("").to_dot()
    }
}

fn line(out: &mut String, indent: usize, text: &str) {
    let blanks = indent.saturating_mul(2);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:blanks$}{text}", "");
}

pub(crate) fn kind(kind: &NodeKind) -> String {
    match kind {
        NodeKind::Port { first, last } if first == last => format!("port {first}"),
        NodeKind::Port { first, last } => format!("ports {first}-{last}"),
        NodeKind::Nf { info, .. } => info.name.clone(),
        NodeKind::Vnf(vnf) => vnf.info.name.clone(),
        NodeKind::Drop => "drops".to_owned(),
    }
}

/// Weights of instances that are not all alike: `, weights 2:1`.
pub(crate) fn weights_to_text(weights: &[u32]) -> String {
    if weights.iter().all(|weight| Some(weight) == weights.first()) {
        return String::new();
    }
    let weights: Vec<_> = weights.iter().map(u32::to_string).collect();
    format!(", weights {}", weights.join(":"))
}
