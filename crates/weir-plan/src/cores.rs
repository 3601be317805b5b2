//! Which core each segment is pinned on.

use std::collections::HashSet;

use crate::graph::NodeId;
use crate::plan::{Options, Segment, SegmentKind};

/// How many cores NF workers have: all but the services', or that one if it is the only one.
pub(crate) fn for_nfs(options: &Options) -> usize {
    let cores = options.cores.as_ref().map_or(0, Vec::len);
    let cores = if cores == 0 { options.online } else { cores };
    cores.saturating_sub(1).max(1)
}

/// Pins the segments; those that have NFs of one of the lists `apart` each on a core of its own, as far as
/// there are such. Says whether some core is sure to have no NF worker.
pub(crate) fn assign(segments: &mut [Segment], options: &Options, apart: &[Vec<NodeId>]) -> bool {
    let cores = options.cores.as_deref().unwrap_or_default();
    let is_nf = |segment: &Segment| segment.kind == SegmentKind::Nf;
    let workers = segments.iter().filter(|segment| is_nf(segment)).count();
    let Some((service_core, rest)) = cores.split_first() else {
        return workers < options.online;
    };
    let nf_cores = if rest.is_empty() { std::slice::from_ref(service_core) } else { rest };
    // With fewer workers than cores each gets its own.
    let spread = nf_cores.len().min(workers);
    let mut place = 0_usize;
    for segment in &mut *segments {
        segment.core = Some(*service_core);
        if is_nf(segment) {
            // Runs of neighbours, as even as can be.
            let run = place.saturating_mul(spread).checked_div(workers).unwrap_or(0);
            segment.core = nf_cores.get(run).copied();
            place = place.saturating_add(1);
        }
    }
    apart.iter().for_each(|nodes| part(segments, nodes, apart, nf_cores));
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

/// Puts the instances of an NF, or the branches of a parallel stage, on cores of their own, as far as there are
/// such: two on one would do no more than one. Each that is in another's way changes places with the nearest worker, in the order of the chain, of
/// a core that has none of them; so cores keep as many workers as they had.
fn part(segments: &mut [Segment], nodes: &[NodeId], apart: &[Vec<NodeId>], cores: &[usize]) {
    let has =
        |segment: &Segment, nodes: &[NodeId]| segment.nodes.iter().any(|id| nodes.contains(id));
    let mut used: HashSet<usize> = HashSet::new();
    for at in 0..segments.len() {
        let Some(segment) = segments.get(at).filter(|segment| has(segment, nodes)) else {
            continue;
        };
        let Some(core) = segment.core else { continue };
        if used.insert(core) {
            continue;
        }
        let theirs = |core: usize| {
            segments.iter().any(|segment| segment.core == Some(core) && has(segment, nodes))
        };
        let free: Vec<usize> = cores.iter().copied().filter(|core| !theirs(*core)).collect();
        let movable = segments.iter().enumerate().filter(|(_, segment)| {
            segment.kind == SegmentKind::Nf
                && segment.core.is_some_and(|core| free.contains(&core))
                && !apart.iter().any(|nodes| has(segment, nodes))
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
