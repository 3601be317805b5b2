//! Places in the stream that packets cannot have.
//!
//! A merge takes a packet when its other lanes have promised that nothing before it follows. A packet with a place
//! that its producer has not come to would wait for promises that cannot be made: they need room, and the
//! room needs that packet to be taken. What a sound worker gives away has a place that all its own lanes have
//! come to, whatever it does between; from that follows who is not sound, and what place is right instead.

use crate::memory::Memory;
use crate::setup::{LaneCarries, LaneSetup, Setup};
use weir_mem::{Entry, Marker, RingInspector, Seq, StreamEnd};
use weir_port::UNSAID;
use weir_runtime::spec::EndSpec;

/// Puts right the places of what lies in lanes of domain `d`, and their producers' promises. All its workers
/// must rest at a batch boundary (`rests`), or be dead. Says how many packets got another place.
pub(crate) fn mend(setup: &Setup, memory: &Memory, d: usize, rests: impl Fn(usize) -> bool) -> u64 {
    let mut mended = 0;
    // What one worker has passed on, others may have believed and passed on, too: along the longest path
    // that there can be.
    for _ in 0..setup.workers.len() {
        let before = mended;
        for (l, (lane, ring)) in setup.lanes.iter().zip(&memory.lanes).enumerate() {
            let producer = &setup.workers[lane.from];
            if setup.lane_domain(lane) != d || !is_judged(setup, lane) {
                continue;
            }
            let Some(reached) = reached(setup, memory, lane.from, lane.source) else { continue };
            let ring = &ring.inspector;
            let places = within(&ring.unclaimed(), reached);
            mended += places.iter().flatten().count() as u64;
            let mut places = places.into_iter();
            ring.rewrite(|entry| match places.next().flatten() {
                Some(place) => entry.with_seq(place),
                None => entry,
            });
            let keeps_some = producer.creates || producer.holders > 0;
            let late = !keeps_some && ring.watermark().before(reached);
            if late || !rests(lane.from) {
                // A successor says the same at once: all that it has not given away is still before it.
                promise(memory, l, reached);
            }
        }
        if mended == before {
            break;
        }
    }
    mended
}

/// Promises by lane `l` in the stead of its producer, which rests or is dead.
fn promise(memory: &Memory, l: usize, seq: Seq) {
    // Where memory cannot be mapped, nobody can be started again either.
    if let Some(mut producer) = memory.lanes.get(l).and_then(|ring| ring.produce().ok()) {
        producer.set_watermark(seq);
    }
}

/// Entries that were claimed and, where their producer is sound, not written over since.
pub(crate) fn claimed(ring: &RingInspector<Entry>) -> Vec<Entry> {
    let (tail, capacity, left) = (ring.tail(), ring.capacity(), ring.len());
    let slots: Vec<Entry> = ring.slots().collect();
    let there = tail.min(capacity - left);
    let at = |back: u64| slots.get((tail.wrapping_sub(back) % capacity) as usize).copied();
    (1..=there).filter_map(at).collect()
}

/// Whether it matters which places a lane's packets have, and can be told from outside.
pub(crate) fn is_judged(setup: &Setup, lane: &LaneSetup) -> bool {
    let plain = lane.ordered && !lane.closes && !lane.back && lane.has_packets();
    plain && setup.workers.get(lane.from).is_some_and(|worker| worker.runs_nfs())
}

/// The lanes by which worker `w` takes new packets of `source`.
pub(crate) fn lanes_in<'a>(
    setup: &'a Setup,
    memory: &'a Memory,
    w: usize,
    source: u16,
) -> impl Iterator<Item = (&'a LaneSetup, &'a RingInspector<Entry>)> {
    let lanes = setup.lanes.iter().zip(&memory.lanes);
    let brings = move |lane: &LaneSetup| {
        lane.brings(w, source) && !matches!(lane.carries, LaneCarries::Answers { .. })
    };
    lanes.filter(move |(lane, _)| brings(lane)).map(|(lane, ring)| (lane, &ring.inspector))
}

/// How far worker `w` has come with `source`: nothing that it has given away has a later place. `None` when that
/// cannot be told.
pub(crate) fn reached(setup: &Setup, memory: &Memory, w: usize, source: u16) -> Option<Seq> {
    let mut any = false;
    let fronts: Vec<_> = lanes_in(setup, memory, w, source)
        .map(|(_, ring)| {
            any = true;
            // The promise first: an empty ring then means that all before it has been seen.
            let promise = ring.watermark();
            front(&ring.unclaimed(), ring.last_published(), promise)
        })
        .collect();
    let least = match fronts.into_iter().flatten().reduce(Seq::min) {
        // All have ended: it may have come to the end.
        None if any => sent(setup, memory, source),
        least => least,
    };
    // What the lanes say may be made up, all of it.
    least.map(|least| match said(memory, source).filter(|end| !can_be(end, least)) {
        Some(end) => end.reached(),
        None => least,
    })
}

/// The word of the service of `source`.
fn said(memory: &Memory, source: u16) -> Option<&StreamEnd> {
    memory.said.get(usize::from(source))
}

/// Whether a source can have come to `seq`, which was read before.
fn can_be(end: &StreamEnd, seq: Seq) -> bool {
    !end.reached().plus(UNSAID).before(seq)
}

/// True when the producer of lane `l` promises what cannot be: nothing before a place that the source has not come to.
/// A sound one does not pass on such a promise.
pub(crate) fn promises_nonsense(setup: &Setup, memory: &Memory, l: usize) -> bool {
    let (Some(lane), Some(ring)) = (setup.lanes.get(l), memory.lanes.get(l)) else { return false };
    if !is_judged(setup, lane) {
        return false;
    }
    let promise = ring.inspector.watermark();
    said(memory, lane.source).is_some_and(|end| !can_be(end, promise))
}

/// How far `source` has come, as its service promises.
fn sent(setup: &Setup, memory: &Memory, source: u16) -> Option<Seq> {
    let is_service =
        |w: usize| matches!(setup.workers.get(w).map(|w| &w.end), Some(EndSpec::Rx { .. }));
    let lanes = setup.lanes.iter().zip(&memory.lanes);
    let its =
        lanes.filter(|(lane, _)| lane.source == source && lane.ordered && is_service(lane.from));
    its.map(|(_, ring)| ring.inspector.watermark()).reduce(|a, b| if a.before(b) { b } else { a })
}

/// The place in front of a lane; `None` when nothing follows.
fn front(entries: &[Entry], last: Option<Entry>, promise: Seq) -> Option<Seq> {
    let ended = last.and_then(|entry| entry.as_marker()) == Some(Marker::EndOfStream);
    match entries.iter().find(|entry| entry.is_packet()) {
        Some(packet) => Some(packet.seq()),
        None => (!ended).then_some(promise),
    }
}

/// By entry: another place, if it is a packet beyond what its producer has `reached`. That of the sound one
/// behind it, so that order is kept as far as it can be told.
fn within(entries: &[Entry], reached: Seq) -> Vec<Option<Seq>> {
    let mut next = reached;
    let mut places: Vec<Option<Seq>> = entries
        .iter()
        .rev()
        .map(|entry| {
            if !entry.is_packet() {
                return None;
            }
            if reached.before(entry.seq()) {
                return Some(next);
            }
            next = entry.seq();
            None
        })
        .collect();
    places.reverse();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(seq: u64) -> Entry {
        Entry::packet(1, 0, 60, Seq::new(seq), 0)
    }

    #[test]
    fn a_packet_beyond_what_its_producer_has_reached_gets_the_place_of_the_next() {
        let end = Entry::marker(Marker::EndOfStream, Seq::new(0));
        let void = Entry::marker(Marker::Void, Seq::new(1 << 40));
        let entries = [packet(90), packet(3), void, packet(1 << 40), packet(5), packet(11), end];
        let places = within(&entries, Seq::new(10));
        let seq = |n| Some(Seq::new(n));
        assert_eq!(places, [seq(3), None, None, seq(5), None, seq(10), None]);
        assert!(within(&entries, Seq::new(1 << 40)).iter().all(Option::is_none));
    }

    #[test]
    fn in_front_of_a_lane_is_its_first_packet_or_what_was_promised() {
        let seq = Seq::new;
        let end = Entry::marker(Marker::EndOfStream, seq(0));
        let void = Entry::marker(Marker::Void, seq(1));
        assert_eq!(front(&[], None, seq(7)), Some(seq(7)));
        assert_eq!(front(&[], Some(packet(6)), seq(7)), Some(seq(7)));
        assert_eq!(front(&[void, packet(4), end], Some(end), seq(7)), Some(seq(4)));
        assert_eq!(front(&[void, end], Some(end), seq(7)), None);
        assert_eq!(front(&[], Some(end), seq(7)), None);
    }
}
