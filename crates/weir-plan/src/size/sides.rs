//! A segment's replicas of which one NF translates ports or balances load. That NF's packets are divided by one of their ends, which
//! depends on the side that they come from; and what it writes keeps to that: both ends of a mapping are of one lease, whatever server is
//! chosen, the client stays. So the NFs before and behind it in the same worker have their packets together when those that come to any of them
//! are divided as they would be for it.

use std::collections::{BTreeMap, BTreeSet};

use super::divide::{Key, written};
use super::{NoReplicas, SizedNf};
use crate::describe::TUPLE;
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};
use crate::reach::Reach;

/// Of a set of NFs that has such an NF: which it is, and by what packets are divided.
fn divider(graph: &Graph, set: impl IntoIterator<Item = NodeId>) -> Option<(NodeId, Key)> {
    set.into_iter().find_map(|id| match graph.node(id).map(|node| &node.kind) {
        Some(NodeKind::Nf { info, .. }) => {
            let key = Key::of(info.work.affinity);
            matches!(key, Key::Ends | Key::Client).then_some((id, key))
        }
        _ => None,
    })
}

/// The NFs that one is a segment's replica with, itself among them; none for one that is by itself.
fn set_of<'n>(nfs: &'n [SizedNf], nf: &'n SizedNf) -> impl Iterator<Item = NodeId> + use<'n> {
    let set = nf.replica_of();
    let own = nfs.iter().filter(move |other| set.len() > 1 && set.contains(&other.name));
    own.map(|other| other.node)
}

/// By NF that is of a set with such an NF: by what its packets are divided, and the set.
pub(super) fn divided(graph: &Graph, nfs: &[SizedNf]) -> Vec<Option<(Key, Vec<NodeId>)>> {
    let of = |nf: &SizedNf| {
        let set: Vec<NodeId> = set_of(nfs, nf).collect();
        let (_, key) = divider(graph, set.iter().copied())?;
        Some((key, set))
    };
    nfs.iter().map(of).collect()
}

/// By edge into a set with such an NF: the input of that NF which its packets come to first.
pub(super) fn inputs(graph: &Graph, nfs: &[SizedNf]) -> BTreeMap<EdgeId, usize> {
    let mut inputs = BTreeMap::new();
    let mut done: BTreeSet<&[String]> = BTreeSet::new();
    for nf in nfs.iter().filter(|nf| done.insert(nf.replica_of())) {
        let set: Vec<NodeId> = set_of(nfs, nf).collect();
        // What is wrong with it, `check` says.
        if let Some((of, _)) = divider(graph, set.iter().copied()) {
            inputs.extend(walk(graph, &set, of).unwrap_or_default());
        }
    }
    inputs
}

/// Refuses a set of whose packets it does not follow which end counts.
pub(super) fn check(graph: &Graph, set: &[NodeId]) -> Result<(), (super::replicas::Why, NodeId)> {
    let Some((of, _)) = divider(graph, set.iter().copied()) else { return Ok(()) };
    let others = set.iter().copied().filter(|id| *id != of);
    if let Some((second, _)) = divider(graph, others.clone()) {
        return Err((NoReplicas::Parted, second));
    }
    if let Some(other) = others.into_iter().find(|id| !is_along(graph, *id)) {
        return Err((NoReplicas::Unlike, other));
    }
    // What it sends itself, such as from one inner host to another, would have to be divided anew.
    let reach = Reach::new(graph);
    let comes = reach.comes().iter().filter(|(_, edges)| {
        edges.iter().any(|id| graph.edge(*id).is_some_and(|edge| edge.to == of))
    });
    for (port, _) in comes {
        if !reached(graph, &reach, set, of, (of, *port)).inputs.is_empty() {
            return Err((NoReplicas::Parted, of));
        }
    }
    walk(graph, set, of).map(|_| ())
}

/// True for an NF whose packets may be divided by one of their ends: of which those have to meet that are of one flow, and which leaves them
/// the ends that they have.
fn is_along(graph: &Graph, id: NodeId) -> bool {
    let Some(NodeKind::Nf { info, .. }) = graph.node(id).map(|node| &node.kind) else {
        return false;
    };
    let meets = matches!(Key::of(info.work.affinity), Key::Any | Key::Tuple | Key::Flow);
    // A fragment that comes before its first is with nobody's flow.
    meets && info.holds == 0 && written(graph, id).and(TUPLE).is_empty()
}

fn walk(
    graph: &Graph,
    set: &[NodeId],
    of: NodeId,
) -> Result<BTreeMap<EdgeId, usize>, (super::replicas::Why, NodeId)> {
    let reach = Reach::new(graph);
    let mut inputs: BTreeMap<EdgeId, usize> = BTreeMap::new();
    for (port, comes) in reach.comes() {
        // Where packets of one port came from has to be the same for all of them.
        let mut side = None;
        for id in comes {
            let Some(edge) = graph.edge(*id) else { continue };
            if set.contains(&edge.from) || !set.contains(&edge.to) {
                continue;
            }
            let first = match edge.to == of {
                true => Reached { inputs: BTreeSet::from([edge.input]), leaves: None },
                false => reached(graph, &reach, set, of, (edge.to, *port)),
            };
            if let Some(at) = first.leaves {
                return Err((NoReplicas::Past, at));
            }
            for input in first.inputs {
                let is_first = input == 0;
                let same = inputs.insert(*id, input).is_none_or(|before| (before == 0) == is_first);
                if !same || side.is_some_and(|side| side != is_first) {
                    return Err((NoReplicas::BothSides, of));
                }
                side = Some(is_first);
            }
        }
    }
    Ok(inputs)
}

/// Where packets of a port go that are at an NF of the set.
#[derive(Default)]
struct Reached {
    /// The inputs of the NF `of` that they come to.
    inputs: BTreeSet<usize>,
    /// Who of the set lets some leave before that.
    leaves: Option<NodeId>,
}

fn reached(
    graph: &Graph,
    reach: &Reach<'_>,
    set: &[NodeId],
    of: NodeId,
    (from, port): (NodeId, u16),
) -> Reached {
    let (mut seen, mut ways) = (BTreeSet::from([from]), vec![from]);
    let mut reached = Reached::default();
    while let Some(at) = ways.pop() {
        for edge in reach.on(at, port).into_iter().filter_map(|id| graph.edge(id)) {
            if edge.to == of {
                reached.inputs.insert(edge.input);
            } else if !set.contains(&edge.to) {
                let is_drop = graph.node(edge.to).is_some_and(|node| node.kind == NodeKind::Drop);
                reached.leaves = reached.leaves.or((!is_drop).then_some(at));
            } else if seen.insert(edge.to) {
                ways.push(edge.to);
            }
        }
    }
    reached
}
