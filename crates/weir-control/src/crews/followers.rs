//! NFs whose packets come as they were divided for another.

use super::{Crew, lanes_of};
use crate::setup::{LaneCarries, Setup};
use std::collections::BTreeSet;
use weir_runtime::spec::{EndSpec, TargetSpec};

/// The first NF behind a crew's that remembers something of flows and has several instances, each of which gets what one of the
/// crew's gives: its state would stay behind when the crew's moves, and its packets would not.
pub(super) fn follower(setup: &Setup, crew: &Crew) -> Option<String> {
    let mut reached: BTreeSet<(usize, u16)> = BTreeSet::new();
    let mut ways: Vec<(usize, u16)> = crew.instances.clone();
    while let Some((w, n)) = ways.pop() {
        if !reached.insert((w, n)) {
            continue;
        }
        let Some(worker) = setup.workers.get(w) else { continue };
        if matches!(worker.end, EndSpec::Gate { .. }) {
            let lanes = setup.lanes.iter().filter(|lane| lane.from == w);
            let on = lanes.filter(|lane| lane.carries == LaneCarries::Packets);
            ways.extend(on.map(|lane| (lane.to, lane.node)));
            continue;
        }
        let Some(node) = worker.nodes.get(usize::from(n)) else { continue };
        if node.name != crew.name {
            if instances(setup, &node.name) < 2 {
                // All of it meets here again.
                continue;
            }
            let found = node.nf.as_ref().and_then(|(kind, _)| weir_nf::find(kind).ok());
            // Nobody knows of a foreign one what it remembers.
            if node.nf.is_some() && found.is_none_or(|nf| nf.follows) {
                return Some(node.name.clone());
            }
        }
        for branch in node.outputs.iter().flatten().filter(|branch| branch.share.is_none()) {
            match (&branch.target, branch.edge) {
                (TargetSpec::Node { node, .. }, _) => ways.push((w, *node)),
                (TargetSpec::Lane | TargetSpec::Back, Some(edge)) => {
                    let lanes = lanes_of(setup, w, edge.into());
                    ways.extend(lanes.map(|(_, lane)| (lane.to, lane.node)));
                }
                _ => {}
            }
        }
    }
    None
}

fn instances(setup: &Setup, name: &str) -> usize {
    let named = setup.workers.iter().flat_map(|worker| &worker.nodes);
    named.filter(|node| node.name == name && node.nf.is_some()).count()
}
