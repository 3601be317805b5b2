//! Which core each segment is pinned on.
//!
//! Where the machine has several NUMA nodes, a port's service is on a core of its NIC's node if one was given; NFs that follow each
//! other are on cores of one node as far as they can be; and the branches of a parallel stage all are ([`together`] says how many can).

use std::collections::{BTreeMap, HashSet};

use crate::graph::NodeId;
use crate::plan::{Options, Segment, SegmentKind};
use crate::topology::Topology;

/// NFs that are to be on cores of their own.
pub(crate) struct Apart {
    /// They.
    pub(crate) nodes: Vec<NodeId>,
    /// On cores of one NUMA node: they share packets.
    pub(crate) near: bool,
}

/// The cores that were given, by whom they are for.
struct Division<'o> {
    /// Of services whose NIC is at no node of which there is a core.
    first: usize,
    /// By NUMA node: the core of services whose NIC is there.
    services: BTreeMap<u32, usize>,
    /// Of NFs, those of a node together.
    nfs: Vec<usize>,
    topology: &'o Topology,
}

impl<'o> Division<'o> {
    /// `None` when no cores were given.
    fn of(options: &'o Options) -> Option<Self> {
        let cores = options.cores.as_deref().unwrap_or_default();
        let (topology, (&first, rest)) = (&options.topology, cores.split_first()?);
        let of_node = |node: u32| cores.iter().find(|core| topology.node_of(**core) == Some(node));
        let nics = topology.nics.values().filter(|_| topology.has_nodes());
        let mut services: BTreeMap<u32, usize> =
            nics.filter_map(|node| Some((*node, *of_node(*node)?))).collect();
        let is_free = |services: &BTreeMap<u32, usize>, core: usize| {
            services.values().all(|taken| *taken != core)
        };
        // One NF on a core of its own is worth more than a NIC near its service.
        if !rest.is_empty() && !rest.iter().any(|core| is_free(&services, *core)) {
            services.clear();
        }
        let mut nfs: Vec<usize> =
            rest.iter().copied().filter(|core| is_free(&services, *core)).collect();
        if nfs.is_empty() {
            nfs.push(first);
        }
        if topology.has_nodes() {
            // Neighbours in the chain near each other: nodes in the order in which the operator names their cores.
            let node = |core: usize| topology.node_of(core);
            let rank = |core: &usize| cores.iter().position(|other| node(*other) == node(*core));
            nfs.sort_by_key(rank);
        }
        Some(Division { first, services, nfs, topology })
    }

    fn service(&self, segment: &Segment) -> usize {
        let (SegmentKind::Rx { port, .. } | SegmentKind::Tx { port }) = segment.kind else {
            return self.first;
        };
        let node = self.topology.nics.get(&port);
        node.and_then(|node| self.services.get(node)).copied().unwrap_or(self.first)
    }

    /// The NFs' cores by NUMA node, the node with the most first; all together where there are no several nodes.
    fn near(&self) -> Vec<Vec<usize>> {
        if !self.topology.has_nodes() {
            return vec![self.nfs.clone()];
        }
        let mut all: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for core in &self.nfs {
            all.entry(self.topology.node_of(*core)).or_default().push(*core);
        }
        let mut all: Vec<Vec<usize>> = all.into_values().collect();
        all.sort_by_key(|cores| std::cmp::Reverse(cores.len()));
        all
    }
}

/// How many cores NF workers have: all but the services', or that one if it is the only one.
pub(crate) fn for_nfs(options: &Options) -> usize {
    match Division::of(options) {
        Some(division) => division.nfs.len(),
        None => options.online.saturating_sub(1).max(1),
    }
}

/// How many cores of one NUMA node NF workers have, at most. Where there are several nodes and no cores are given, none: the kernel
/// puts workers on any.
pub(crate) fn together(options: &Options) -> usize {
    match Division::of(options) {
        Some(division) => division.near().first().map_or(0, Vec::len),
        None if options.topology.has_nodes() => 0,
        None => for_nfs(options),
    }
}

/// Pins the segments; those that have NFs of one of the lists `apart` each on a core of its own, as far as
/// there are such. Says whether some core is sure to have no NF worker.
pub(crate) fn assign(segments: &mut [Segment], options: &Options, apart: &[Apart]) -> bool {
    let is_nf = |segment: &Segment| segment.kind == SegmentKind::Nf;
    let workers = segments.iter().filter(|segment| is_nf(segment)).count();
    let Some(division) = Division::of(options) else {
        return workers < options.online;
    };
    let nf_cores = division.nfs.as_slice();
    // With fewer workers than cores each gets its own.
    let spread = nf_cores.len().min(workers);
    let mut place = 0_usize;
    for segment in &mut *segments {
        if is_nf(segment) {
            // Runs of neighbours, as even as can be.
            let run = place.saturating_mul(spread).checked_div(workers).unwrap_or(0);
            segment.core = nf_cores.get(run).copied();
            place = place.saturating_add(1);
        } else {
            segment.core = Some(division.service(segment));
        }
    }
    for group in apart {
        let cores = match group.near {
            true => near(segments, &group.nodes, &division),
            false => nf_cores.to_vec(),
        };
        part(segments, &group.nodes, apart, &cores);
    }
    let taken: HashSet<usize> = segments
        .iter()
        .filter(|segment| is_nf(segment))
        .filter_map(|segment| segment.core)
        .collect();
    // On a core of their own, that is: beside the services, real-time NFs would starve them.
    let services: HashSet<usize> =
        segments.iter().filter(|s| !is_nf(s)).filter_map(|s| s.core).collect();
    taken.len() < options.online && taken.is_disjoint(&services)
}

fn has(segment: &Segment, nodes: &[NodeId]) -> bool {
    segment.nodes.iter().any(|id| nodes.contains(id))
}

/// The cores of the NUMA node for workers that share packets: of those with cores enough the one that most of them are on
/// already. Where no node has enough, all cores.
fn near(segments: &[Segment], nodes: &[NodeId], division: &Division<'_>) -> Vec<usize> {
    let workers = || segments.iter().filter(|segment| has(segment, nodes));
    let count = workers().count();
    let all = division.near();
    let enough = all.iter().filter(|cores| cores.len() >= count);
    let elsewhere = |cores: &&Vec<usize>| {
        workers().filter(|s| s.core.is_none_or(|core| !cores.contains(&core))).count()
    };
    // Of equal ones the first, which has more cores.
    enough.min_by_key(elsewhere).unwrap_or(&division.nfs).clone()
}

/// Puts the instances of an NF, or the branches of a parallel stage, on cores of their own of these, as far as there are
/// such: two on one would do no more than one. Each that is in another's way, or on another core, changes places with the nearest worker, in
/// the order of the chain, of a core that has none of them; so cores keep as many workers as they had.
fn part(segments: &mut [Segment], nodes: &[NodeId], apart: &[Apart], cores: &[usize]) {
    let mut used: HashSet<usize> = HashSet::new();
    for at in 0..segments.len() {
        let Some(segment) = segments.get(at).filter(|segment| has(segment, nodes)) else {
            continue;
        };
        let Some(core) = segment.core else { continue };
        if cores.contains(&core) && used.insert(core) {
            continue;
        }
        let theirs = |core: usize| {
            segments.iter().any(|segment| segment.core == Some(core) && has(segment, nodes))
        };
        let free: Vec<usize> = cores.iter().copied().filter(|core| !theirs(*core)).collect();
        let movable = segments.iter().enumerate().filter(|(_, segment)| {
            segment.kind == SegmentKind::Nf
                && segment.core.is_some_and(|core| free.contains(&core))
                && !apart.iter().any(|group| has(segment, &group.nodes))
        });
        let other = movable.min_by_key(|(other, _)| other.abs_diff(at)).map(|(other, _)| other);
        let to = other.and_then(|other| segments.get(other)?.core).or(free.first().copied());
        let Some(to) = to else { return };
        if let Some(other) = other.and_then(|other| segments.get_mut(other)) {
            other.core = Some(core);
        }
        if let Some(own) = segments.get_mut(at) {
            own.core = Some(to);
        }
        used.insert(to);
    }
}
