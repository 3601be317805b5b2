//! The cost model: processor cycles per packet. Rough on purpose, and the only one: consolidation,
//! objectives, parallel stages, instances and segments all ask it.

use crate::graph::{Node, NodeKind};

/// Cycles per packet for a ring between two workers, both ends together. On one core a hand-off
/// was measured as 2.5 ns at 3.5 GHz, 9 cycles (docs/performance.md, "What limits the ratio"). Between cores
/// lines move as well: four entries share one, and a line took 29 to 333 ns there and back (docs/performance.md,
/// "Latency"), which is 25 to 290 cycles an entry. The model takes a figure in between, which
/// docs/architecture.md's 48 Mpps over four stages do not contradict.
pub const RING_CYCLES: u32 = 60;

/// Cycles per packet and branch of a parallel stage: putting the packet into the branch's ring beside
/// the others', and counting the branch done. Not measured apart here: it is what the µNF paper's Fig. 8 leaves room for. There two of four µNFs run side by side, which
/// saves under 10 % at 100 cycles and over 20 % at 700; with [`RING_CYCLES`] that holds for 49 to 75
/// cycles a branch.
pub const BRANCH_CYCLES: u32 = 60;

/// Cycles per packet of a node's work, its rings not counted.
pub(crate) fn cycles(node: &Node) -> u32 {
    match &node.kind {
        NodeKind::Nf { info, .. } => info.work.cost_cycles,
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => 0,
    }
}

/// The cycles until a packet is through stages one after the other, the µNFs of a stage working
/// side by side, each in a worker with a core of its own. Each stage is given by the cycles of its
/// µNFs.
#[must_use]
pub fn latency_cycles(stages: &[Vec<u32>]) -> u64 {
    let stage = |branches: &Vec<u32>| {
        let slowest = branches.iter().copied().max().map_or(0, u64::from);
        let more = if branches.len() > 1 { branches.len() as u64 } else { 0 };
        slowest
            .saturating_add(u64::from(RING_CYCLES))
            .saturating_add(more.saturating_mul(u64::from(BRANCH_CYCLES)))
    };
    stages.iter().map(stage).fold(0, u64::saturating_add)
}

/// By how many percent the second is less than the first; below zero when it is more.
#[must_use]
pub fn saved_percent(before: u64, after: u64) -> f64 {
    if before == 0 { 0.0 } else { (before as f64 - after as f64) / before as f64 * 100.0 }
}

/// How many cores hold these loads (1.0 is a whole core): first fit, the heaviest first.
pub(crate) fn bins(mut loads: Vec<f64>) -> u32 {
    loads.sort_by(|a, b| b.total_cmp(a));
    let mut cores: Vec<f64> = Vec::new();
    for load in loads {
        match cores.iter_mut().find(|core| **core + load <= 1.0) {
            Some(core) => *core += load,
            None => cores.push(load),
        }
    }
    u32::try_from(cores.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{latency_cycles, saved_percent};

    /// The gain of the paper's Fig. 8: four µNFs in a row, and the two in the middle side by side.
    fn fig_8(cycles: u32) -> f64 {
        let one = vec![cycles];
        let row = [one.clone(), one.clone(), one.clone(), one.clone()];
        let side = [one.clone(), vec![cycles; 2], one];
        saved_percent(latency_cycles(&row), latency_cycles(&side))
    }

    #[test]
    fn at_100_cycles_a_packet_two_of_four_side_by_side_gain_under_10_percent() {
        assert!((0.0..10.0).contains(&fig_8(100)), "{}", fig_8(100));
    }

    #[test]
    fn at_700_cycles_a_packet_they_gain_over_20_percent() {
        assert!((20.0..25.0).contains(&fig_8(700)), "{}", fig_8(700));
    }

    #[test]
    fn what_costs_next_to_nothing_is_slower_side_by_side() {
        assert!(fig_8(10) < 0.0, "{}", fig_8(10));
    }
}
