//! Which NFs a segment's replicas have: those that packets are divided for, and those behind them whose packets come as they
//! were divided there.

use super::{Crew, Instance, Unmovable, edges_to, lanes_of};
use crate::setup::{LaneCarries, NfKind, Setup};
use std::collections::{BTreeMap, BTreeSet};
use weir_runtime::spec::{EndSpec, NodeSpec, TargetSpec};

/// A crew as a setup has it, whether its flows can move or not.
pub(super) struct Formed {
    pub(super) crew: Crew,
    /// Some instance is where its packets are divided.
    pub(super) fused: bool,
    /// Its NFs are not in the same workers one by one.
    pub(super) crossed: Option<Unmovable>,
}

/// All crews of a setup, each NF of several instances in one. Those that share NFs are one.
pub(super) fn formed(setup: &Setup) -> Vec<Formed> {
    let mut all: Vec<Vec<Part>> = Vec::new();
    for part in (0..setup.groups.len()).filter_map(|group| part(setup, group)) {
        let meets = |other: &Vec<Part>| other.iter().any(|o| !o.inside.is_disjoint(&part.inside));
        let mut own: Vec<Part> = all.extract_if(.., |parts| meets(parts)).flatten().collect();
        own.push(part);
        own.sort_by_key(|part| part.group);
        all.push(own);
    }
    all.sort_by_key(|parts| parts.first().map(|part| part.group));
    all.into_iter().flat_map(|parts| together(setup, parts)).collect()
}

/// What packets are divided for as one group.
struct Part {
    group: u16,
    name: String,
    /// By instance: its worker, and the node there.
    instances: Vec<(usize, u16)>,
    senders: BTreeSet<usize>,
    fused: bool,
    /// What its packets reach in the instances' workers without being divided anew.
    inside: BTreeSet<(usize, u16)>,
}

fn part(setup: &Setup, group: usize) -> Option<Part> {
    let mut instances: BTreeMap<usize, (usize, u16)> = BTreeMap::new();
    let (mut senders, mut fused) = (BTreeSet::new(), false);
    for worker in 0..setup.workers.len() {
        for (index, edge, is_lane) in edges_to(setup, worker, group) {
            fused |= !is_lane;
            senders.insert(worker);
            for (_, lane) in lanes_of(setup, worker, edge) {
                instances.insert(index, (lane.to, lane.node));
            }
        }
    }
    let instances: Vec<_> = instances.into_values().collect();
    let name = name_of(setup, *instances.first()?)?;
    let of = |(w, n): &(usize, u16)| {
        let w = *w;
        reached(setup, w, &[*n]).into_iter().map(move |n| (w, n))
    };
    let inside = instances.iter().flat_map(of).collect();
    let group = u16::try_from(group).ok()?;
    Some(Part { group, name, instances, senders, fused, inside })
}

/// Groups that share NFs, as one crew; as one each where they do not stand in the same workers one by one.
fn together(setup: &Setup, parts: Vec<Part>) -> Vec<Formed> {
    let workers = |part: &Part| part.instances.iter().map(|(w, _)| *w).collect::<Vec<_>>();
    let alike = parts.windows(2).all(|pair| match pair {
        [a, b] => workers(a) == workers(b),
        _ => true,
    });
    if alike {
        return crew_of(setup, &parts, None).into_iter().collect();
    }
    let alone = |part: &Part| {
        let other = parts.iter().find(|other| other.group != part.group)?;
        let crossed = Unmovable::Entered(part.name.clone(), other.name.clone());
        crew_of(setup, std::slice::from_ref(part), Some(crossed))
    };
    parts.iter().filter_map(alone).collect()
}

fn crew_of(setup: &Setup, parts: &[Part], mut crossed: Option<Unmovable>) -> Option<Formed> {
    let mut instances: Vec<Instance> = Vec::new();
    // By replica: the names of its NFs, and of those that remember something of flows.
    let mut names: Vec<[Vec<String>; 2]> = Vec::new();
    for (at, (worker, _)) in parts.first()?.instances.iter().enumerate() {
        let entry = |part: &Part| part.instances.get(at).map(|(_, node)| *node);
        let mut entries: Vec<u16> = parts.iter().filter_map(entry).collect();
        entries.sort_unstable();
        entries.dedup();
        let inside: Vec<u16> = reached(setup, *worker, &entries).into_iter().collect();
        let remembers = |n: &&u16| {
            let own = node(setup, *worker, **n).filter(|node| !node.again);
            own.and_then(|node| kind(setup, &node.name)).is_some_and(|found| found.follows)
        };
        let nodes: Vec<u16> = inside.iter().filter(remembers).copied().collect();
        let is_again = |n: u16| node(setup, *worker, n).is_some_and(|node| node.again);
        let once = inside.iter().filter(|n| !is_again(**n));
        let all = once.filter_map(|n| name_of(setup, (*worker, *n))).collect();
        names.push([all, named(setup, *worker, &nodes)]);
        instances.push(Instance { worker: *worker, entries, nodes });
    }
    let [nfs, remember] = names.first()?.clone();
    let name = match remember.is_empty() {
        true => parts.first()?.name.clone(),
        false => remember.join("+"),
    };
    if let Some([other, _]) = names.iter().find(|[all, _]| *all != nfs) {
        let differs = other.iter().find(|name| !nfs.contains(name)).or(other.first())?;
        crossed = crossed.or(Some(Unmovable::Followed(name.clone(), differs.clone())));
    }
    let senders: BTreeSet<usize> = parts.iter().flat_map(|part| part.senders.clone()).collect();
    let crew = Crew {
        groups: parts.iter().map(|part| part.group).collect(),
        name,
        nfs,
        instances,
        senders: senders.into_iter().collect(),
    };
    Some(Formed { crew, fused: parts.iter().any(|part| part.fused), crossed })
}

/// Why what an aligned crew's replicas remember of a flow is not all that there is of it, or does not stand still when it goes.
pub(super) fn misses(setup: &Setup, crew: &Crew) -> Option<Unmovable> {
    let divided = crew.divided(setup);
    for (index, Instance { worker, entries, nodes }) in crew.instances.iter().enumerate() {
        let inside = reached(setup, *worker, entries);
        if let Some(behind) = follower(setup, *worker, &inside) {
            return Some(Unmovable::Followed(crew.name.clone(), behind));
        }
        let before = before(setup, *worker, nodes);
        let strange = setup.lanes.iter().find(|lane| {
            let comes = lane.to == *worker && before.contains(&lane.node) && lane.has_packets();
            comes && !divided.contains(&(lane.from, usize::from(lane.edge), index))
        });
        if let Some(lane) = strange {
            let from = setup.workers.get(lane.from).map_or("?", |worker| &worker.name);
            return Some(Unmovable::Entered(crew.name.clone(), from.to_owned()));
        }
        for n in &before {
            let Some(node) = node(setup, *worker, *n) else { continue };
            let Some(found) = kind(setup, &node.name) else { continue };
            if found.holds {
                return Some(Unmovable::Holds(crew.name.clone(), node.name.clone()));
            }
            let goes_on = next_in(node).any(|to| before.contains(&to));
            if goes_on && found.timers && found.creates {
                return Some(Unmovable::Late(crew.name.clone(), node.name.clone()));
            }
        }
    }
    None
}

/// The nodes of a worker that packets come to from `starts` within it as they were divided: where there is one instance all meet again.
fn reached(setup: &Setup, worker: usize, starts: &[u16]) -> BTreeSet<u16> {
    let mut reached: BTreeSet<u16> = starts.iter().copied().collect();
    let mut ways = starts.to_vec();
    while let Some(at) = ways.pop() {
        for to in node(setup, worker, at).into_iter().flat_map(next_in) {
            let several = node(setup, worker, to).is_some_and(|to| instances(setup, &to.name) > 1);
            if several && reached.insert(to) {
                ways.push(to);
            }
        }
    }
    reached
}

/// The first NF in another worker that remembers something of flows, of which there are several instances, and whose packets come from
/// these nodes as they were divided.
fn follower(setup: &Setup, worker: usize, nodes: &BTreeSet<u16>) -> Option<String> {
    let mut reached: BTreeSet<(usize, u16)> = BTreeSet::new();
    let mut ways: Vec<(usize, u16)> = nodes.iter().map(|n| (worker, *n)).collect();
    while let Some((w, n)) = ways.pop() {
        if !reached.insert((w, n)) {
            continue;
        }
        let Some(of) = setup.workers.get(w) else { continue };
        if matches!(of.end, EndSpec::Gate { .. }) {
            let lanes = setup.lanes.iter().filter(|lane| lane.from == w);
            let on = lanes.filter(|lane| lane.carries == LaneCarries::Packets);
            ways.extend(on.map(|lane| (lane.to, lane.node)));
            continue;
        }
        let Some(node) = of.nodes.get(usize::from(n)) else { continue };
        if w != worker {
            if instances(setup, &node.name) < 2 {
                // All of it meets here again.
                continue;
            }
            if node.nf.is_some() && kind(setup, &node.name).is_none_or(|nf| nf.follows) {
                return Some(node.name.clone());
            }
            ways.extend(next_in(node).map(|to| (w, to)));
        }
        for branch in node.outputs.iter().flatten().filter(|branch| branch.share.is_none()) {
            if let (TargetSpec::Lane | TargetSpec::Back, Some(edge)) = (&branch.target, branch.edge)
            {
                let lanes = lanes_of(setup, w, edge.into());
                ways.extend(lanes.map(|(_, lane)| (lane.to, lane.node)));
            }
        }
    }
    None
}

/// The nodes of the same worker that a node's packets go on to as they were divided.
fn next_in(node: &NodeSpec) -> impl Iterator<Item = u16> {
    let branches = node.outputs.iter().flatten().filter(|branch| branch.share.is_none());
    branches.filter_map(|branch| match branch.target {
        TargetSpec::Node { node, .. } => Some(node),
        _ => None,
    })
}

/// The nodes of a worker that lead to some of these, and these.
fn before(setup: &Setup, worker: usize, nodes: &[u16]) -> BTreeSet<u16> {
    let mut before: BTreeSet<u16> = nodes.iter().copied().collect();
    let all = setup.workers.get(worker).map_or(&[][..], |worker| &worker.nodes);
    // Each node stands before those that it leads to.
    for (n, node) in all.iter().enumerate().rev() {
        if next_in(node).any(|to| before.contains(&to)) {
            before.insert(n as u16);
        }
    }
    before
}

fn node(setup: &Setup, worker: usize, node: u16) -> Option<&NodeSpec> {
    setup.workers.get(worker)?.nodes.get(usize::from(node))
}

/// The name of a node; of a gate's, that of what it leads to.
fn name_of(setup: &Setup, (worker, at): (usize, u16)) -> Option<String> {
    let is_gate = matches!(setup.workers.get(worker)?.end, EndSpec::Gate { .. });
    let mut lanes = setup.lanes.iter().filter(|lane| lane.from == worker);
    // A gate is no NF: where it leads to none there is none to name.
    let (worker, at) = match is_gate {
        true => lanes.find(|lane| lane.carries == LaneCarries::Packets).map(|l| (l.to, l.node))?,
        false => (worker, at),
    };
    Some(node(setup, worker, at)?.name.clone())
}

fn named(setup: &Setup, worker: usize, nodes: &[u16]) -> Vec<String> {
    nodes.iter().filter_map(|n| Some(node(setup, worker, *n)?.name.clone())).collect()
}

/// What there is to know of an NF; of an instance that was named too often by another one.
fn kind(setup: &Setup, name: &str) -> Option<NfKind> {
    let mut nodes = setup.workers.iter().flat_map(|worker| &worker.nodes);
    let (kind, _) = nodes.find(|node| node.name == name && node.nf.is_some())?.nf.as_ref()?;
    setup.kinds.get(kind).copied()
}

fn instances(setup: &Setup, name: &str) -> usize {
    let named = setup.workers.iter().flat_map(|worker| &worker.nodes);
    named.filter(|node| node.name == name && node.nf.is_some() && !node.again).count()
}
