//! A µNF's flows, timers and time, handed to another instance of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{
    Affinity, Cause, ConfigError, Ctx, Descriptor, Effect, Env, FlowKey, FlowState, Held,
    LayerAccess, Merge, Nf, NoConfig, Packets, ReadOnly, RestoreError, SaveError, Take, Touch,
    Walk,
};

const SECOND: u64 = 1_000_000_000;

/// Holds a flow's first packet for ten seconds when it is longer than 100 bytes; counts the others.
struct Waits;

#[derive(Default, Serialize, Deserialize)]
struct Flow {
    packets: u32,
    waiting: Vec<Held>,
}
impl FlowState for Flow {}

#[derive(Default, Serialize, Deserialize)]
struct Seen {
    counts: Vec<u32>,
    rung: Vec<(u64, u64)>,
    #[serde(skip)]
    held: Vec<Held>,
}
impl Merge for Seen {
    fn merge(&mut self, mut other: Self) {
        self.counts.append(&mut other.counts);
        self.rung.append(&mut other.rung);
    }
}

impl Nf for Waits {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Waits",
        layers: LayerAccess { l3: Touch::Read, l4: Touch::Read, ..LayerAccess::NONE },
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        timers: true,
        holds: 4,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = Flow;
    type Shared = Seen;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Waits)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let cause = ctx.cause(&packet);
            let Some(flow) = ctx.flow_of(&packet) else { continue };
            flow.state.packets += 1;
            let (packets, is_new) = (flow.state.packets, flow.is_new);
            ctx.shared().counts.push(packets);
            if is_new {
                ctx.timer(10 * SECOND, u64::from(packets) + 40, &cause);
            }
            if is_new
                && packet.len() > 100
                && let Ok(held) = ctx.hold(packet)
            {
                ctx.shared().held.push(held);
            }
        }
    }

    fn on_timer(&self, token: u64, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let _ = cause;
        ctx.shared().rung.push((token, 1));
        for held in std::mem::take(&mut ctx.shared().held) {
            ctx.release(held, 0, cause);
        }
    }
}

fn bench() -> Bench {
    Bench::new::<Waits>(Value::Null).unwrap()
}

fn frame(flow: u8) -> Vec<u8> {
    Frame::ipv4([10, 0, 0, flow], [192, 0, 2, 1]).udp(7, 53).build()
}

fn run(bench: &mut Bench, frame: &[u8], second: u64) {
    bench.run_cut(&[(frame, frame.len(), second * SECOND)]);
}

fn saved(bench: &mut Bench) -> Vec<u8> {
    let mut out = Vec::new();
    bench.instance().save_flows(&mut out).unwrap();
    out
}

#[test]
fn flows_and_timers_go_on_where_they_were() {
    let (mut old, mut new) = (bench(), bench());
    run(&mut old, &frame(1), 100);
    run(&mut old, &frame(1), 103);
    let bytes = saved(&mut old);
    assert_eq!(new.instance().restore_flows(&bytes).unwrap(), 1);
    assert_eq!(saved(&mut new), bytes, "and written down again it is the same");
    run(&mut new, &frame(1), 109);
    assert_eq!(new.report(), json!({"counts": [3], "rung": []}));
    run(&mut new, &frame(1), 110);
    assert_eq!(new.report(), json!({"counts": [3, 4], "rung": [[41, 1]]}));
}

#[test]
fn timers_that_were_handed_over_go_by_the_wall_clock_though_no_packet_has_come_yet() {
    let (mut old, mut new) = (bench(), bench());
    run(&mut old, &frame(1), 100);
    let bytes = saved(&mut old);
    new.instance().restore_flows(&bytes).unwrap();
    new.tick(7 * SECOND);
    new.tick(16 * SECOND);
    assert_eq!(new.report()["rung"], json!([]));
    new.tick(17 * SECOND);
    assert_eq!(new.report()["rung"], json!([[41, 1]]));
}

#[test]
fn of_a_flow_that_two_instances_had_that_with_the_later_packet_stays_and_it_is_counted() {
    let both = |first: u64, second: u64| {
        let (mut one, mut other) = (bench(), bench());
        run(&mut one, &frame(1), first);
        run(&mut one, &frame(1), first);
        run(&mut other, &frame(1), second);
        run(&mut other, &frame(2), second);
        let bytes = saved(&mut other);
        one.instance().restore_flows(&bytes).unwrap();
        assert_eq!((one.instance().flows().0, one.instance().flows_doubled()), (2, 1));
        // The count that it goes on from.
        run(&mut one, &frame(1), first.max(second));
        one.report()["counts"].as_array().unwrap().last().unwrap().clone()
    };
    assert_eq!(both(100, 103), json!(2));
    assert_eq!(both(103, 100), json!(3));
    assert_eq!(both(100, 100), json!(3), "as late as the other: the first stays");
}

#[test]
fn what_cannot_be_merged_whole_takes_no_flow_away() {
    let (mut one, mut other) = (bench(), bench());
    run(&mut one, &frame(1), 100);
    run(&mut other, &frame(1), 103);
    run(&mut other, &frame(2), 103);
    let (bytes, before) = (saved(&mut other), saved(&mut one));
    assert!(one.instance().restore_flows(&bytes[..bytes.len() - 1]).is_err());
    assert_eq!((saved(&mut one), one.instance().flows_doubled()), (before, 0));
}

#[test]
fn what_is_not_accepted_adds_neither_flows_nor_timers() {
    let (mut old, mut new) = (bench(), bench());
    run(&mut old, &frame(1), 100);
    run(&mut new, &frame(1), 200);
    let (bytes, before) = (saved(&mut old), saved(&mut new));
    for len in 1..bytes.len() {
        assert!(new.instance().restore_flows(&bytes[..len]).is_err(), "{len} bytes");
    }
    // More timers than there may be: their number stands behind time and last packet.
    let mut many = bytes.clone();
    many[37..41].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(new.instance().restore_flows(&many), Err(RestoreError::Timers)));
    assert_eq!(saved(&mut new), before);
    assert_eq!(new.instance().restore_flows(&[]).unwrap(), 0);
}

#[test]
fn flows_do_not_move_away_from_packets_that_are_held() {
    let mut old = bench();
    let long = Frame::ipv4([10, 0, 0, 9], [192, 0, 2, 1]).udp(7, 53).payload(&[0; 200]).build();
    run(&mut old, &long, 100);
    run(&mut old, &frame(1), 100);
    assert_eq!(old.held(), 1);
    let (mut walk, mut records) = (Walk::default(), 0);
    let mut take = |bench: &mut Bench| {
        let (mut chosen, mut to) = (|_: &FlowKey, _| true, |_: &FlowKey, _: &[u8]| records += 1);
        let take = Take { look: 100, take: 100, chosen: &mut chosen, to: &mut to };
        bench.instance().take_flows(&mut walk, take)
    };
    assert!(matches!(take(&mut old), Err(SaveError::Holds(1))));
    assert_eq!(old.flows().0, 2);
    run(&mut old, &frame(1), 120);
    assert!(!take(&mut old).unwrap());
    assert_eq!((old.flows().0, records), (0, 2));
}

#[test]
fn who_watches_is_told_of_flows_that_begin_or_come_and_finds_them_by_their_numbers() {
    let mut bench = bench();
    run(&mut bench, &frame(1), 100);
    assert!(bench.instance().new_flows().is_empty(), "nobody watches");
    bench.instance().watch_flows(true);
    run(&mut bench, &frame(1), 101);
    assert!(bench.instance().new_flows().is_empty(), "it was there");
    run(&mut bench, &frame(2), 102);
    let begun = bench.instance().new_flows();
    let [number] = begun[..] else { panic!("{begun:?}") };
    assert!(bench.instance().new_flows().is_empty(), "it was told");
    let mut records = Vec::new();
    let (mut chosen, mut to) =
        (|_: &FlowKey, _| true, |_: &FlowKey, record: &[u8]| records.push(record.to_vec()));
    let take = Take { look: 1, take: 1, chosen: &mut chosen, to: &mut to };
    bench.instance().take_flows(&mut Walk::at(number), take).unwrap();
    assert_eq!((bench.flows().0, records.len()), (1, 1));
    bench.instance().put_flow(&records[0]).unwrap();
    assert_eq!(bench.instance().new_flows().len(), 1, "it came");
    bench.instance().watch_flows(false);
    run(&mut bench, &frame(3), 103);
    assert!(bench.instance().new_flows().is_empty(), "nobody watches any more");
}

/// A list of handles is as long as its bytes, so a length that lies is found out before memory is taken.
#[test]
fn a_length_that_lies_needs_no_memory() {
    let mut old = bench();
    run(&mut old, &frame(1), 100);
    let key = weir_nf::FlowKey::from_packet(
        frame(1).as_slice(),
        &weir_packet::parse(frame(1).as_slice(), weir_packet::Depth::L4),
    );
    let mut record = Vec::new();
    assert!(old.instance().take_flow(&key.unwrap().0, &mut record).unwrap());
    // The state is its packets, 1, and a list of 0 handles: now one of 2^35, as postcard writes that. Behind it, no fragments.
    assert!(record.ends_with(&[2, 0, 0, 0, 1, 0, 0, 0, 0, 0]));
    record.truncate(record.len() - 10);
    record.extend([7, 0, 0, 0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0, 0, 0]);
    assert!(matches!(old.instance().put_flow(&record), Err(RestoreError::Form(_))));
    assert_eq!(old.flows().0, 0);
}

/// A packet of a flow, at a tenth of a second.
fn at(bench: &mut Bench, flow: u8, tenth: u64) {
    let frame = Frame::ipv4([10, 0, 0, flow], [10, 0, 0, 200]).udp(1, 2).build();
    bench.run_cut(&[(&frame, frame.len(), tenth * SECOND / 10)]);
}

#[test]
fn flows_end_and_timers_ring_after_a_clock_was_set_back() {
    let mut bench = bench();
    at(&mut bench, 1, 100_000);
    at(&mut bench, 2, 64_000);
    at(&mut bench, 3, 64_110);
    assert_eq!(bench.report()["rung"], json!([[41, 1], [41, 1]]), "ten seconds have gone by");
    at(&mut bench, 1, 66_000);
    assert_eq!(bench.report()["counts"], json!([1, 1, 1, 1]), "the first flow has ended");
}

#[test]
fn a_packet_that_is_older_than_the_others_does_not_let_time_run() {
    let mut bench = bench();
    at(&mut bench, 1, 10_000);
    for i in 0..100 {
        at(&mut bench, 2, 9_950);
        at(&mut bench, 2, 10_001 + i);
    }
    at(&mut bench, 1, 10_102);
    let counts = bench.report()["counts"].as_array().unwrap().clone();
    assert_eq!(counts.last(), Some(&json!(2)), "it is the same flow");
}

#[test]
fn a_stamp_that_no_clock_gives_and_one_from_far_ahead_do_not_stop_time() {
    let mut bench = bench();
    let frame = Frame::ipv4([10, 0, 0, 9], [10, 0, 0, 200]).udp(1, 2).build();
    at(&mut bench, 1, 10_000);
    bench.run_cut(&[(&frame, frame.len(), u64::MAX), (&frame, frame.len(), u64::MAX / 4)]);
    at(&mut bench, 2, 10_001);
    at(&mut bench, 2, 10_001 + 1300);
    let counts = bench.report()["counts"].as_array().unwrap().clone();
    assert_eq!(counts.last(), Some(&json!(1)), "the flow was idle for 130 s");
}

#[test]
fn time_goes_on_after_a_hand_over_to_who_sees_earlier_stamps() {
    for seen in [false, true] {
        let (mut old, mut new) = (bench(), bench());
        at(&mut old, 1, 100_000);
        if seen {
            at(&mut new, 2, 63_990);
        }
        let mut saved = Vec::new();
        old.instance().save_flows(&mut saved).unwrap();
        new.instance().restore_flows(&saved).unwrap();
        at(&mut new, 1, 64_000);
        at(&mut new, 1, 64_000 + 1300);
        let counts = new.report()["counts"].as_array().unwrap().clone();
        assert_eq!(counts[usize::from(seen)..], [json!(2), json!(1)]);
        // Its time comes first.
        saved[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = bench().instance().restore_flows(&saved).unwrap_err();
        assert_eq!(error.to_string(), "it is damaged: its time is none that a clock has");
    }
}
