//! Fan-in: packets of one source that took several lanes come out in sequence.
#![allow(clippy::unwrap_used)] // set-up of tests

use proptest::prelude::*;
use std::rc::Rc;
use weir_mem::{
    Arena, ArenaShape, Consumer, Entry, Marker, Owner, Packet, Producer, Region, RingShape, Seq,
    StreamEnd,
};
use weir_port::{Doorbell, Egress, Ingress, LaneIn, LaneOut, Pull, UNSAID};

struct Bench {
    arena: Arena,
    ingress: Ingress,
    lanes: Vec<Producer<Entry>>,
}

/// `sources[i]` is the source of lane `i`.
fn bench(sources: &[usize]) -> Bench {
    let arena = Arena::private(ArenaShape::new(4096, 64)).unwrap();
    let (mut lanes, mut ins) = (Vec::new(), Vec::new());
    for &source in sources {
        let shape = RingShape::at_least(1024);
        let (p, c) = shape.create("weir-test").unwrap();
        lanes.push(Producer::attach(shape, &p, &c).unwrap());
        let bell = Rc::new(Doorbell::new().unwrap());
        let ring = Consumer::attach(shape, &p, &c).unwrap();
        ins.push(LaneIn::new(ring, source, 0, 0, bell));
    }
    let count = sources.iter().max().unwrap() + 1;
    Bench { arena, ingress: Ingress::new(ins, count, Owner(9)), lanes }
}

impl Bench {
    fn pull(&mut self) -> Option<Vec<u64>> {
        let mut out: Vec<Packet> = Vec::new();
        match self.ingress.pull(&self.arena, &mut out, |_| 64) {
            Pull::Some(_) => Some(out.iter().map(|p| p.entry().seq().get()).collect()),
            Pull::Blocked | Pull::None => None,
        }
    }

    fn send(&mut self, lane: usize, seq: u64) {
        let entry = Entry::packet((seq % 4096) as u32, 0, 60, Seq::new(seq), 0);
        assert!(self.lanes[lane].stage(entry));
        self.lanes[lane].publish();
    }
}

#[test]
fn a_lane_that_may_still_bring_an_earlier_packet_holds_the_others_back() {
    let mut b = bench(&[0, 0]);
    b.send(0, 5);
    assert_eq!(b.pull(), None);
    b.lanes[1].set_watermark(Seq::new(5));
    assert_eq!(b.pull(), Some(vec![5]));
}

/// What is behind a marker of a migration was sent before what is promised now.
#[test]
fn nothing_is_promised_beyond_packets_that_wait_behind_a_marker() {
    let mut b = bench(&[0, 0]);
    b.ingress.take_marks(0);
    for number in 0..2 {
        b.lanes[0].stage(Entry::moved(1, number));
        b.lanes[0].publish();
    }
    b.lanes[0].set_watermark(Seq::new(5));
    b.lanes[1].set_watermark(Seq::new(9));
    assert_eq!(b.ingress.frontier(0), Some(Seq::new(5)));
    b.send(0, 6);
    b.send(0, 7);
    b.lanes[0].set_watermark(Seq::new(8));
    b.send(1, 9);
    assert_eq!((b.pull(), b.ingress.frontier(0)), (None, Some(Seq::new(6))));
    b.ingress.pass_mark(0);
    assert_eq!((b.pull(), b.ingress.frontier(0)), (None, Some(Seq::new(6))));
    b.ingress.pass_mark(0);
    assert_eq!((b.pull(), b.pull()), (Some(vec![6, 7]), None));
}

#[test]
fn a_lane_that_has_ended_holds_nobody_back() {
    let mut b = bench(&[0, 0]);
    b.send(0, 7);
    b.lanes[1].stage(Entry::marker(Marker::EndOfStream, Seq::new(0)));
    b.lanes[1].publish();
    assert_eq!(b.pull(), Some(vec![7]));
    assert!(!b.ingress.source_ended(0));
}

impl Bench {
    fn end(&mut self, lane: usize) {
        self.lanes[lane].stage(Entry::marker(Marker::EndOfStream, Seq::new(0)));
        self.lanes[lane].publish();
    }
}

/// Left there, it would hold up its producer, and whoever gives to that one: perhaps the same that this merge waits for.
#[test]
fn what_follows_an_end_that_was_none_is_taken_and_the_end_is_nonsense() {
    for seen_first in [false, true] {
        let mut b = bench(&[0, 0]);
        b.end(0);
        if seen_first {
            assert_eq!(b.pull(), None);
            assert!(!b.ingress.source_ended(0));
        }
        b.send(0, 7);
        b.lanes[1].set_watermark(Seq::new(9));
        assert_eq!(b.pull(), Some(vec![7]));
        assert_eq!(b.ingress.lanes()[0].nonsense(), 1);
        b.end(0);
        assert!(!b.ingress.source_ended(0));
        b.end(1);
        assert!(b.ingress.source_ended(0));
        b.ingress.finish(0);
        // After that it is late, and taken by others.
        b.send(0, 8);
        assert!(b.ingress.source_ended(0) && b.ingress.lanes()[0].ended());
    }
}

#[test]
fn an_end_that_is_said_twice_is_nobodys_nonsense() {
    let mut b = bench(&[0, 0]);
    (0..2).for_each(|_| b.end(0));
    b.end(1);
    assert!(b.ingress.source_ended(0));
    assert_eq!(b.ingress.lanes().iter().map(LaneIn::nonsense).sum::<u64>(), 0);
}

#[test]
fn ends_that_a_dead_consumer_had_taken_in_part_are_nobodys_nonsense() {
    let shape = RingShape::at_least(64);
    let memories: Vec<_> = (0..3).map(|_| shape.create("weir-test").unwrap()).collect();
    let ingress = || {
        let lane = |(p, c): &(_, _)| {
            let bell = Rc::new(Doorbell::new().unwrap());
            LaneIn::new(Consumer::attach(shape, p, c).unwrap(), 0, 0, 0, bell)
        };
        Ingress::new(memories.iter().map(lane).collect(), 1, Owner(9))
    };
    for (p, c) in &memories {
        let mut producer: Producer<Entry> = Producer::attach(shape, p, c).unwrap();
        producer.stage(Entry::marker(Marker::EndOfStream, Seq::new(0)));
        producer.publish();
    }
    // It dies when it has taken the first marker and not the others.
    let (p, c) = &memories[0];
    let mut first: Consumer<Entry> = Consumer::attach(shape, p, c).unwrap();
    assert_eq!(first.available(1), 1);
    first.claim(1);
    let (mut successor, arena) = (ingress(), Arena::private(ArenaShape::new(64, 64)).unwrap());
    successor.finish(0);
    let mut late = Vec::new();
    assert!(!successor.take_late(0, &arena, &mut late) && late.is_empty());
    assert!(successor.source_ended(0));
    assert!(successor.lanes().iter().all(|lane| lane.nonsense() == 0 && lane.ring.claimed() == 1));
}

#[test]
fn sources_do_not_wait_for_each_other() {
    let mut b = bench(&[0, 0, 1]);
    b.send(0, 5); // waits for lane 1
    b.send(2, 900);
    assert_eq!(b.pull(), Some(vec![900]));
    assert_eq!(b.pull(), None);
}

#[test]
fn nonsense_in_a_lane_is_counted_and_passed_over() {
    let mut b = bench(&[0]);
    let foreign = Entry::packet(5000, 0, 60, Seq::new(0), 0); // no such buffer
    b.lanes[0].stage(foreign);
    b.send(0, 1);
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(b.pull().unwrap_or_default());
    }
    assert_eq!(got, [1]);
    assert_eq!(b.ingress.lanes()[0].rejected(), 1);
}

proptest! {
    /// Packets spread over lanes, some dropped on the way, looked for at any time: what comes out
    /// is what went in, in sequence; nothing is held back once every lane has caught up.
    #[test]
    fn merging_restores_the_sequence(
        path in prop::collection::vec((0usize..4, prop::bool::ANY, prop::bool::ANY), 1..300),
        start in prop_oneof![Just(0u64), Just((1 << 48) - 100)],
    ) {
        let mut b = bench(&[0, 0, 0]);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for (i, (lane, lagging, look)) in path.iter().enumerate() {
            let seq = Seq::new(start.wrapping_add(i as u64));
            // Lane 3 is a drop: only watermarks tell of it.
            if *lane < 3 {
                b.send(*lane, seq.get());
                sent.push(seq.get());
            }
            for (l, producer) in b.lanes.iter_mut().enumerate() {
                // Every lane's promise is honest; some are late with it.
                if !(*lagging && l == i % 3) {
                    producer.set_watermark(seq.plus(1));
                }
            }
            if *look {
                while let Some(batch) = b.pull() {
                    got.extend(batch);
                }
            }
        }
        for producer in &mut b.lanes {
            producer.set_watermark(Seq::new(start.wrapping_add(path.len() as u64)));
        }
        while let Some(batch) = b.pull() {
            got.extend(batch);
        }
        prop_assert_eq!(got, sent);
    }
}

/// As [`bench`], with the word of the sources' services.
fn bench_with_ends(sources: &[usize]) -> (Bench, StreamEnd) {
    let mut bench = bench(sources);
    let region = Region::create("weir-test", StreamEnd::LEN).unwrap();
    bench.ingress.set_ends(vec![StreamEnd::attach(&region, false).unwrap()]);
    (bench, StreamEnd::attach(&region, true).unwrap())
}

#[test]
fn a_promise_that_its_source_has_not_come_to_is_neither_believed_nor_passed_on() {
    let (mut b, service) = bench_with_ends(&[0, 0]);
    service.progress(Seq::new(100));
    b.send(0, 50);
    for lie in [1 << 46, (1 << 47) + 5, 100 + UNSAID + 1] {
        b.lanes[1].set_watermark(Seq::new(lie));
        assert_eq!((b.pull(), b.ingress.frontier(0)), (None, Some(Seq::new(0))), "{lie}");
    }
    assert!(b.ingress.lanes()[1].nonsense() >= 3 && b.ingress.lanes()[0].nonsense() == 0);
    // One that can be is believed as ever.
    b.lanes[1].set_watermark(Seq::new(60));
    assert_eq!((b.pull(), b.ingress.frontier(0)), (Some(vec![50]), Some(Seq::new(0))));
    b.lanes[0].set_watermark(Seq::new(100 + UNSAID));
    assert_eq!(b.ingress.frontier(0), Some(Seq::new(60)));
    // No more than the source has sent is promised for packets with places that cannot be.
    b.send(0, 1 << 46);
    b.send(1, 1 << 45);
    assert_eq!(b.ingress.frontier(0), Some(Seq::new(100)));
}

/// A sound worker between one that is not and a service that is believed whatever it says of others.
struct Between {
    worker: Bench,
    lane: (Region, Region),
    egress: Option<Egress>,
    service: Ingress,
    reached: StreamEnd,
}

const LANE: u32 = 64;

impl Between {
    fn new() -> Self {
        let (worker, reached) = bench_with_ends(&[0, 0]);
        let shape = RingShape::at_least(LANE);
        let (lane, other) =
            (shape.create("weir-test").unwrap(), shape.create("weir-test").unwrap());
        let lanes = [&lane, &other].map(|(p, c)| {
            let ring = Consumer::attach(shape, p, c).unwrap();
            LaneIn::new(ring, 0, 0, 0, Rc::new(Doorbell::new().unwrap()))
        });
        let service = Ingress::new(lanes.into(), 1, Owner(8));
        let mut between = Between { worker, lane, egress: None, service, reached };
        between.restart();
        between
    }

    fn restart(&mut self) {
        let shape = RingShape::at_least(LANE);
        let ring = Producer::attach(shape, &self.lane.0, &self.lane.1).unwrap();
        let bell = Rc::new(Doorbell::new().unwrap());
        let lane = LaneOut { ring, source: 0, ordered: true, closes: false, back: false, bell };
        self.egress = Some(Egress::new(vec![lane], &[0], Vec::new(), 12, 1));
    }

    fn work(&mut self) {
        let Some(egress) = &mut self.egress else { return };
        let mut packets = Vec::new();
        let room = egress.room(0, 16);
        let _ = self.worker.ingress.pull(&self.worker.arena, &mut packets, |_| room);
        egress.send_all(0, &mut packets);
        egress.publish();
        if let Some(seq) = self.worker.ingress.frontier(0) {
            egress.set_watermark(0, seq);
        }
    }
}

/// Places and promises that somebody may make up.
fn lie() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..400u64, Just(u64::MAX), (0..64u32).prop_map(|bit| 1 << bit)]
}

#[derive(Debug, Clone)]
enum Deed {
    Promise(usize, u64),
    Send(usize, u64),
    Progress(u64),
    Work,
    Look,
    Restart,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0..2usize, lie()).prop_map(|(lane, seq)| Deed::Promise(lane, seq)),
        2 => (0..2usize, lie()).prop_map(|(lane, seq)| Deed::Send(lane, seq)),
        1 => (0..200u64).prop_map(Deed::Progress),
        4 => Just(Deed::Work),
        1 => Just(Deed::Look),
        1 => Just(Deed::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_places_and_promises_a_worker_is_given_it_is_not_taken_for_who_made_them_up(
        deeds in prop::collection::vec(deed(), 1..200),
    ) {
        let mut b = Between::new();
        let mut sent = 0;
        for deed in deeds {
            match deed {
                Deed::Promise(lane, seq) => drop(b.worker.lanes[lane].set_watermark(Seq::new(seq))),
                Deed::Send(lane, seq) if b.worker.lanes[lane].room(1) > 0 => b.worker.send(lane, seq),
                Deed::Send(..) => {}
                Deed::Progress(more) => {
                    sent += more;
                    b.reached.progress(Seq::new(sent));
                }
                Deed::Work => b.work(),
                Deed::Look => {
                    let mut taken = Vec::new();
                    let _ = b.service.pull(&b.worker.arena, &mut taken, |_| 64);
                    b.service.frontier(0);
                }
                Deed::Restart => b.restart(),
            }
            prop_assert_eq!(b.service.lanes()[0].nonsense(), 0);
        }
    }
}
