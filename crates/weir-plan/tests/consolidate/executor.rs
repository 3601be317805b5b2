//! What a graph does with packets, one after the other.

use std::collections::BTreeMap;

use weir_filter::naive_matches;
use weir_plan::{Graph, NodeId, NodeKind, Tally};

use crate::types::{Packet, Verdict, act};

/// A node's or an edge's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub bytes: u64,
    pub drops: BTreeMap<&'static str, u64>,
}

/// The end of a packet, or of a copy: where, why it was dropped if it was, and how it was then.
pub type End = (String, Option<&'static str>, Packet);

/// What a run gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For each packet, in the order of their arrival, its end and those of its copies.
    pub ends: Vec<Vec<End>>,
    pub nodes: BTreeMap<String, Counts>,
    pub edges: BTreeMap<String, Counts>,
    /// What each µNF that remembers was given, in order.
    pub remembered: BTreeMap<String, Vec<Packet>>,
}

impl Counts {
    fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += packet.frame().len() as u64;
    }
}

/// Lets packets come in by ports, as (name of the port, packet).
pub fn run(graph: &Graph, packets: &[(String, Packet)]) -> Outcome {
    let mut outcome = Outcome::default();
    for edge in graph.edges() {
        let unique = outcome.edges.insert(edge.name.clone(), Counts::default());
        assert!(unique.is_none(), "two edges are called {}", edge.name);
    }
    for node in graph.nodes().iter().filter(|node| node.is_nf()) {
        outcome.nodes.insert(node.name.clone(), Counts::default());
        if keeps(&node.kind) {
            outcome.remembered.insert(node.name.clone(), Vec::new());
        }
    }
    for (port, packet) in packets {
        outcome.ends.push(Vec::new());
        leave(graph, graph.find(port).unwrap(), 0, *packet, &mut outcome);
    }
    outcome
}

fn keeps(kind: &NodeKind) -> bool {
    matches!(kind, NodeKind::Nf { info, .. } if info.work.keeps)
}

fn end(at: &str, reason: Option<&'static str>, packet: Packet, outcome: &mut Outcome) {
    if let Some(reason) = reason {
        *outcome.nodes.entry(at.to_owned()).or_default().drops.entry(reason).or_default() += 1;
    }
    outcome.ends.last_mut().unwrap().push((at.to_owned(), reason, packet));
}

fn leave(graph: &Graph, from: NodeId, output: usize, packet: Packet, outcome: &mut Outcome) {
    let node = graph.node(from).unwrap();
    let output = &node.outputs[output];
    let frame = packet.frame();
    let takes = |filter: &Option<weir_filter::Expr>| {
        filter.as_ref().is_none_or(|filter| naive_matches(filter, frame.as_slice()))
    };
    let Some(branch) = output.branches.iter().find(|branch| takes(&branch.filter)) else {
        let reason = if output.default_drop { "policy" } else { "no-edge" };
        return end(&node.name, Some(reason), packet, outcome);
    };
    let edge = graph.edge(branch.edge).unwrap();
    assert_eq!(edge.from, from, "{}", edge.name);
    outcome.edges.get_mut(&edge.name).unwrap().add(&packet);
    let to = graph.node(edge.to).unwrap();
    match &to.kind {
        NodeKind::Vnf(_) | NodeKind::Drop => end(&node.name, Some("policy"), packet, outcome),
        NodeKind::Port { .. } => end(&to.name, None, packet, outcome),
        NodeKind::Nf { info, config } => {
            outcome.nodes.get_mut(&to.name).unwrap().add(&packet);
            if info.work.keeps {
                outcome.remembered.get_mut(&to.name).unwrap().push(packet);
            }
            let mut packet = packet;
            let (verdict, copy) = act(&info.name, config, edge.input, &mut packet);
            match verdict {
                Verdict::Drop(reason) => end(&to.name, Some(reason), packet, outcome),
                Verdict::Output(output) => leave(graph, edge.to, output, packet, outcome),
            }
            if let Some(copy) = copy {
                leave(graph, edge.to, 0, copy, outcome);
            }
        }
    }
}

/// A run's counters as those of the policy.
pub fn as_in_policy(mut outcome: Outcome, graph: &Graph, tally: &Tally) -> Outcome {
    let counted = std::mem::take(&mut outcome.edges);
    let sum = |edges: &[weir_plan::EdgeId]| {
        let mut sum = Counts::default();
        for edge in edges {
            let one = &counted[&graph.edge(*edge).unwrap().name];
            sum.packets += one.packets;
            sum.bytes += one.bytes;
        }
        sum
    };
    for edge in &tally.edges {
        outcome.edges.insert(edge.name.clone(), sum(&edge.sum));
    }
    for nf in &tally.nodes {
        let more = sum(&nf.sum);
        let is_there = outcome.nodes.contains_key(&nf.name);
        assert_eq!(is_there, !nf.left_out, "{}", nf.name);
        let counts = outcome.nodes.entry(nf.name.clone()).or_default();
        counts.packets += more.packets;
        counts.bytes += more.bytes;
    }
    outcome
}
