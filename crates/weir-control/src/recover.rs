//! What is done when a worker has died: complete what it had committed, free what it held.

use crate::memory::Memory;
use crate::setup::Setup;
use weir_mem::sweep::InRings;
use weir_mem::{Entry, Marker, Owner, Owners, RingInspector, Seq};
use weir_runtime::spec::EndSpec;

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
    let worker = &memory.workers[w];
    let words = worker.ledger.read().unwrap_or_default();

    // 1. Publish what the last commit promised and the worker did not get round to.
    let mut targets = words.iter().copied();
    for (l, lane) in setup.lanes.iter().enumerate().filter(|(_, lane)| lane.from == w) {
        if let Some(target) = targets.next() {
            // What it wrote over its index, if it was hostile, must not outlive it.
            memory.lanes[l].inspector.repair_head(target);
            memory.lanes[l].inspector.roll_forward(target);
        }
        memory.lanes[l].inspector.forget_sleep(true);
        memory.workers[lane.to].bell.ring();
    }
    for back in &worker.returns {
        if let Some(target) = targets.next() {
            back.ring.inspector.repair_head(target);
            back.ring.inspector.roll_forward(target);
        }
        memory.workers[memory.pools[back.pool].worker].bell.ring();
    }

    // 2. What was claimed and not committed is lost.
    let (mut lost, mut ins) = (0, 0);
    for (l, lane) in setup.lanes.iter().enumerate().filter(|(_, lane)| lane.to == w) {
        let inspector = &memory.lanes[l].inspector;
        let committed = words.get(worker.layout.lanes_in + ins).copied().unwrap_or(0);
        // A successor that died before its first commit left its predecessor's record: what
        // was lost then is not lost again.
        let from = committed.max(memory.written_off[l]);
        inspector.repair_tail(from);
        inspector.forget_sleep(false);
        let tail = inspector.tail();
        // What was lent to it is not its to lose: the sync port counts what has no answer.
        if lane.has_packets() {
            lost += tail.saturating_sub(from).min(inspector.capacity());
        }
        memory.written_off[l] = tail;
        ins += 1;
        // Its producer may wait for room that nobody would tell it of.
        memory.workers[lane.from].bell.ring();
    }

    // 3. In each domain that it had memory of, what lies in no ring was in its hands.
    let (here, there) = (setup.workers[w].takes_from, setup.workers[w].domain);
    let mut swept = sweep(setup, memory, w, here);
    if there != here {
        swept += sweep(setup, memory, w, there);
    }
    // What its µNFs held, and what waited for room, it had claimed and committed long before: its
    // record says how many that were. Their buffers were swept with the rest.
    lost += memory.take_held(setup, w);
    if matches!(setup.workers[w].end, EndSpec::Dump(_)) {
        // Whoever dropped them has counted them.
        lost = 0;
    }
    Damage { lost, swept }
}

/// Gives back the buffers of domain `d` that carry the number of the dead worker `w` and lie in no
/// ring that it wrote or read; says how many.
fn sweep(setup: &Setup, memory: &mut Memory, w: usize, d: usize) -> u64 {
    let dead = Owner(w as u32 + 1);
    // What lies in rings is not the dead one's (any more, or yet).
    let mut in_rings = InRings::new(memory.domains[d].owners.len());
    for (l, lane) in setup.lanes.iter().enumerate() {
        let mine = lane.from == w || lane.to == w;
        if mine && lane.has_packets() && setup.lane_domain(lane) == d {
            in_rings.look_at(&memory.lanes[l].inspector);
        }
    }
    for p in (0..memory.pools.len()).filter(|&p| memory.pools[p].domain == d) {
        let home = memory.pools[p].worker == w;
        for (_, ring) in memory.returns_to(p).filter(|(giver, _)| home || *giver == w) {
            in_rings.look_at(&ring.inspector);
            if home {
                ring.inspector.forget_sleep(false);
                unname(&memory.domains[d].owners, &ring.inspector, dead);
            }
        }
        if home {
            let allocation = &memory.pools[p].allocation.inspector;
            in_rings.look_at(allocation);
            allocation.forget_sleep(false);
            unname(&memory.domains[d].owners, allocation, dead);
        }
    }
    let swept = in_rings.sweep(&memory.domains[d].owners, dead);
    for &buffer in &swept {
        if let Some(p) = memory.pool_of(d, buffer) {
            // Never full: the ring holds the whole pool, and each buffer is in one place.
            memory.pools[p].give.stage(buffer);
        }
    }
    for pool in memory.pools.iter_mut().filter(|p| p.domain == d) {
        pool.give.publish();
        memory.workers[pool.worker].bell.ring();
    }
    swept.len() as u64
}

/// What `dead` had named as its own and not claimed when it died is nobody's: its successor would
/// take it for a buffer that came back twice. (It was the ring's only consumer: no other process
/// writes these words meanwhile.)
fn unname(owners: &Owners, ring: &RingInspector<u32>, dead: Owner) {
    for buffer in ring.unclaimed().into_iter().filter(|&b| owners.get(b) == Some(dead)) {
        owners.set(buffer, Owner::AGENT);
    }
}

/// As [`recover`], for a worker whose memory is not to be believed: its rings are left as far as
/// they can be right, its record is written anew (`words` are the last that were), and what its
/// buffers are the audit finds out.
pub(crate) fn disown(setup: &Setup, memory: &mut Memory, w: usize, mut words: Vec<u64>) -> Damage {
    let layout = memory.workers[w].layout;
    words.resize(layout.len, 0);
    let (mut out, mut ins) = (0, 0);
    for (l, lane) in setup.lanes.iter().enumerate() {
        let inspector = &memory.lanes[l].inspector;
        if lane.from == w {
            // Behind what its consumer has claimed, or where that cannot be either, nothing.
            inspector.repair_head(words[out]);
            inspector.forget_sleep(true);
            words[out] = inspector.head();
            out += 1;
        }
        if lane.to == w {
            inspector.repair_tail(words[layout.lanes_in + ins]);
            inspector.forget_sleep(false);
            restore_end(setup, memory, l);
            words[layout.lanes_in + ins] = inspector.tail();
            memory.written_off[l] = inspector.tail();
            ins += 1;
        }
    }
    for back in &memory.workers[w].returns {
        back.ring.inspector.repair_head(words[out]);
        words[out] = back.ring.inspector.head();
        out += 1;
    }
    // Its successor has to pass on the ends anew; a second marker harms nobody.
    words[layout.ended] = 0;
    words[layout.free] = 0;
    words[layout.held] = 0;
    words[layout.doubled..layout.nodes].fill(0);
    memory.workers[w].ledger.reset(&words);
    Damage { lost: 0, swept: 0 }
}

/// A hostile consumer may have claimed the end of a stream that its successor has to know of.
fn restore_end(setup: &Setup, memory: &Memory, l: usize) {
    let lane = &setup.lanes[l];
    if lane.back {
        return; // It never has one.
    }
    let producer = &memory.workers[lane.from];
    let ended = producer.ledger.read().and_then(|words| words.get(producer.layout.ended).copied());
    let inspector = &memory.lanes[l].inspector;
    let end = |e: &Entry| e.as_marker() == Some(Marker::EndOfStream);
    if ended.is_some_and(|ended| ended & (1 << lane.source) != 0)
        && !inspector.unclaimed().iter().any(end)
    {
        inspector.put_back(Entry::marker(Marker::EndOfStream, Seq::new(0)));
    }
}
