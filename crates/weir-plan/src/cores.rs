//! Which core each segment is pinned on.

use std::collections::HashSet;

use crate::plan::{Options, Segment, SegmentKind};

/// How many cores NF workers have: all but the services', or that one if it is the only one.
pub(crate) fn for_nfs(options: &Options) -> usize {
    let cores = options.cores.as_ref().map_or(0, Vec::len);
    let cores = if cores == 0 { options.online } else { cores };
    cores.saturating_sub(1).max(1)
}

/// Pins the segments; says whether some core is sure to have no NF worker.
pub(crate) fn assign(segments: &mut [Segment], options: &Options) -> bool {
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
