//! What is done when a worker has died: complete what it had committed, free what it held.

use crate::memory::Memory;
use crate::setup::Setup;
use weir_mem::Owner;
use weir_mem::sweep::InRings;

/// What a worker's death cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Packets that it had claimed and not passed on.
    pub(crate) lost: u64,
    /// Buffers that it held, free ones of its home pool among them.
    pub(crate) swept: u64,
}

/// Mends the graph after the death of worker `w`. Must run after the process has ended and before
/// its successor starts.
pub(crate) fn recover(setup: &Setup, memory: &mut Memory, w: usize) -> Damage {
    let dead = Owner(w as u32 + 1);
    let worker = &memory.workers[w];
    let words = worker.ledger.read().unwrap_or_default();
    let home = memory.pools.iter().position(|p| p.worker == w);

    // 1. Publish what the last commit promised and the worker did not get round to.
    let outs: Vec<usize> = (0..setup.lanes.len()).filter(|&l| setup.lanes[l].from == w).collect();
    let mut targets = words.iter().copied();
    for &lane in &outs {
        if let Some(target) = targets.next() {
            // What it wrote over its index, if it was hostile, must not outlive it.
            memory.lanes[lane].inspector.repair_head(target);
            memory.lanes[lane].inspector.roll_forward(target);
        }
        memory.lanes[lane].inspector.forget_sleep(true);
        memory.workers[setup.lanes[lane].to].bell.ring();
    }
    for (ring, pool) in worker.returns.iter().zip(&memory.pools) {
        if let Some(target) = targets.next() {
            ring.inspector.repair_head(target);
            ring.inspector.roll_forward(target);
        }
        memory.workers[pool.worker].bell.ring();
    }

    // 2. What lies in rings is not the dead one's (any more, or yet).
    let mut in_rings = InRings::new(memory.owners.len());
    let (mut lost, mut ins) = (0, 0);
    for (l, lane) in setup.lanes.iter().enumerate() {
        let inspector = &memory.lanes[l].inspector;
        if lane.from == w {
            in_rings.look_at(inspector);
        }
        if lane.to == w {
            let committed = words.get(worker.layout.lanes_in + ins).copied().unwrap_or(0);
            // A successor that died before its first commit left its predecessor's record: what
            // was lost then is not lost again.
            let from = committed.max(memory.written_off[l]);
            inspector.repair_tail(from);
            in_rings.look_at(inspector);
            inspector.forget_sleep(false);
            let tail = inspector.tail();
            lost += tail.saturating_sub(from).min(inspector.capacity());
            memory.written_off[l] = tail;
            ins += 1;
            // Its producer may wait for room that nobody would tell it of.
            memory.workers[lane.from].bell.ring();
        }
    }
    worker.returns.iter().for_each(|r| in_rings.look_at(&r.inspector));
    if let Some(p) = home {
        let allocation = &memory.pools[p].allocation.inspector;
        in_rings.look_at(allocation);
        allocation.forget_sleep(false);
        for other in &memory.workers {
            in_rings.look_at(&other.returns[p].inspector);
            other.returns[p].inspector.forget_sleep(false);
        }
    }

    // 3. The rest that carries its number was in its hands.
    let swept = in_rings.sweep(&memory.owners, dead);
    for &buffer in &swept {
        let p = memory.pool_of(buffer);
        if let Some(pool) = memory.pools.get_mut(p) {
            // Never full: the ring holds the whole pool, and each buffer is in one place.
            pool.give.stage(buffer);
        }
    }
    for pool in &mut memory.pools {
        pool.give.publish();
        memory.workers[pool.worker].bell.ring();
    }
    Damage { lost, swept: swept.len() as u64 }
}
