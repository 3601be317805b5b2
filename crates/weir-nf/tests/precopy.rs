//! A table that is copied while packets change it, and the copy that goes on in its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

mod common;

use common::{IDLE, Notes, SECOND, udp};
use proptest::prelude::*;
use std::net::Ipv6Addr;
use weir_nf::wire::Frame;
use weir_nf::{Changed, CopyProgress, FlowTable, RestoreError, Walk, WhenFull};
use weir_packet::{Depth, parse};

type Table = FlowTable<Notes>;

const CAPACITY: u32 = 12;

/// A table; `every`: of which packets of a flow a replica knows, if there is one (0: none), which must not get in the way.
struct Known {
    table: Table,
}

impl Known {
    fn new(every: u16) -> Self {
        let mut table = Table::new(CAPACITY, IDLE);
        table.follow(every, every > 1);
        Known { table }
    }

    /// Its flows as records, whatever their numbers.
    fn flows(&self, now: u64) -> Vec<Vec<u8>> {
        let (mut saved, mut all, mut flows) = (Vec::new(), Known::new(1), Vec::new());
        self.table.save(&mut saved).unwrap();
        all.table.restore(now, &saved).unwrap();
        all.table.take_changed(|changed| match changed {
            Changed::Flow(_, record, _) => flows.push(record.to_vec()),
            Changed::Ended(flow) => panic!("{flow} has no form"),
            Changed::Soon(_) | Changed::Next(_) => {}
        });
        flows.sort();
        flows
    }

    /// Keys and times of those that have not ended, whether that has been noticed or not: it is a little later than they end.
    fn alive(&self, now: u64) -> Vec<(Vec<[u8; 48]>, u64, u64)> {
        let mut alive = Vec::new();
        self.table.look_at(&mut Walk::default(), usize::MAX, now, &mut |flow| {
            let keys = flow.keys.iter().map(|key| key.to_bytes()).collect();
            alive.push((keys, flow.born_ns, flow.last_ns));
        });
        alive.sort();
        alive
    }

    fn lapse(&mut self, now: u64) {
        // As often as it takes: some are looked at each time.
        for _ in 0..CAPACITY {
            self.table.expire(now);
        }
        self.table.take_ended().for_each(drop);
    }

    /// All that there is to copy.
    fn copy_to(&mut self, copy: &mut Known, now: u64) {
        let mut out = Vec::new();
        self.table.precopy(10_000, &mut out).unwrap();
        copy.table.take_precopied(now, &out).unwrap();
    }

    fn packet(&mut self, flow: u32, now: u64, text: String) {
        let (key, direction) = udp(flow);
        if let Some(found) = self.table.find(key, direction, now) {
            found.state.text = text;
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Packet(u32),
    /// Its state is changed without looking it up anew, perhaps after it was copied.
    Again(u32, bool),
    Known(u32),
    Ends(u32),
    Alias(u32, u32),
    Keep(u32, u64),
    KeepOn(u32, bool),
    /// Away, and perhaps back.
    Moves(u32, bool),
    Later(u64),
    /// So many bytes are copied, a flow at least.
    Copies(usize),
    /// The change fails after all is said, and the table goes on.
    Fails,
    /// It is given up; another copy begins.
    Anew,
}

fn step() -> impl Strategy<Value = Step> {
    let flow = || 0u32..20;
    prop_oneof![
        8 => flow().prop_map(Step::Packet),
        2 => (flow(), any::<bool>()).prop_map(|(flow, copies)| Step::Again(flow, copies)),
        2 => flow().prop_map(Step::Known),
        3 => flow().prop_map(Step::Ends),
        // More than have room.
        6 => (flow(), 20u32..60).prop_map(|(flow, key)| Step::Alias(flow, key)),
        1 => (flow(), 1u64..300).prop_map(|(flow, s)| Step::Keep(flow, s)),
        1 => (flow(), any::<bool>()).prop_map(|(flow, copies)| Step::KeepOn(flow, copies)),
        1 => (flow(), any::<bool>()).prop_map(|(flow, back)| Step::Moves(flow, back)),
        2 => (1u64..60).prop_map(Step::Later),
        5 => (1usize..500).prop_map(Step::Copies),
        1 => Just(Step::Fails),
        1 => Just(Step::Anew),
    ]
}

proptest! {
    #[test]
    fn a_copy_is_the_table_whatever_happened_while_it_was_made(
        every in 0u16..4,
        gives_way in any::<bool>(),
        before in proptest::collection::vec(step(), 0..40),
        steps in proptest::collection::vec(step(), 1..150)
    ) {
        let (mut live, mut copy, mut now) = (Known::new(every), Known::new(every), SECOND);
        if gives_way {
            live.table = live.table.with_answer(WhenFull::GiveWay);
        }
        let (begins, mut id) = (before.len(), 0);
        for (i, step) in before.into_iter().chain(steps).enumerate() {
            if i == begins {
                live.table.begin_precopy(id);
            }
            let (text, copies) = (format!("step {i}"), live.table.is_precopied());
            let table = &mut live.table;
            match step {
                Step::Packet(flow) => live.packet(flow, now, text),
                Step::Again(flow, between) => {
                    live.packet(flow, now, String::new());
                    if between && copies {
                        live.copy_to(&mut copy, now);
                    }
                    live.table.looked_up().into_iter().for_each(|state| state.text.clone_from(&text));
                }
                Step::Known(flow) => {
                    let (key, direction) = udp(flow);
                    if let Some(found) = table.known(key, direction, now) {
                        found.state.list.push(i as u32);
                    }
                }
                Step::Ends(flow) => {
                    let (key, direction) = udp(flow);
                    if table.known(key, direction, now).is_some() {
                        table.end_current();
                    }
                }
                Step::Alias(flow, other) => {
                    let ((key, direction), (other, to)) = (udp(flow), udp(other));
                    if table.find(key, direction, now).is_some() {
                        let _ = table.alias(other, to, now);
                    }
                }
                Step::Keep(flow, seconds) => {
                    let (key, direction) = udp(flow);
                    if table.find(key, direction, now).is_some() {
                        table.keep(seconds * SECOND, now);
                    }
                }
                Step::KeepOn(flow, between) => {
                    let (key, direction) = udp(flow);
                    if table.known(key, direction, now).is_some() {
                        if between && copies {
                            live.copy_to(&mut copy, now);
                        }
                        live.table.keep_on(now);
                    }
                }
                Step::Moves(flow, back) => {
                    let mut record = Vec::new();
                    if table.take_one(&udp(flow).0, &mut record).unwrap() && back {
                        table.put(now, &record).unwrap();
                    }
                }
                Step::Later(seconds) => {
                    now += seconds * SECOND;
                    live.lapse(now);
                }
                Step::Copies(most) if copies => {
                    let mut out = Vec::new();
                    table.precopy(most, &mut out).unwrap();
                    copy.table.take_precopied(now, &out).unwrap();
                }
                Step::Fails if copies => table.save_rest(&mut Vec::new()).unwrap(),
                Step::Anew if copies => {
                    id += 1;
                    table.end_precopy();
                    table.begin_precopy(id);
                    let mut none = Vec::new();
                    table.precopy(0, &mut none).unwrap();
                    copy.table.take_precopied(now, &none).unwrap();
                    prop_assert!(copy.table.is_empty());
                }
                Step::Copies(_) | Step::Fails | Step::Anew => {}
            }
        }
        if !live.table.is_precopied() {
            live.table.begin_precopy(id);
        }
        // A copy has begun.
        let (mut last, mut rest) = (Vec::new(), Vec::new());
        live.table.precopy(0, &mut last).unwrap();
        copy.table.take_precopied(now, &last).unwrap();
        live.table.save_rest(&mut rest).unwrap();
        copy.table.take_rest(now, &rest).unwrap();
        prop_assert_eq!(live.flows(now), copy.flows(now));
        prop_assert_eq!(live.table.len(), copy.table.len());
        // It goes on as the table would: who ends when.
        for _ in 0..30 {
            now += 15 * SECOND;
            live.lapse(now);
            copy.lapse(now);
            prop_assert_eq!(live.alive(now), copy.alive(now));
        }
        now += 100_000 * SECOND;
        live.lapse(now);
        copy.lapse(now);
        prop_assert_eq!((live.table.len(), copy.table.len()), (0, 0));
    }

    /// Whatever stands there: an error, and the table is empty again; or a table that can be used.
    #[test]
    fn what_is_damaged_is_refused_or_does_no_harm(
        flows in 1u32..12, at in 0usize..400, to in 0u8..=255, cut in proptest::option::of(0usize..400)
    ) {
        let mut live = Known::new(0);
        for flow in 0..flows {
            let (key, direction) = udp(flow);
            live.table.find(key, direction, SECOND).unwrap().state.text = format!("{flow}");
        }
        live.table.begin_precopy(7);
        let mut out = Vec::new();
        live.table.precopy(2_000, &mut out).unwrap();
        if let Some(byte) = out.get_mut(at) {
            *byte = to;
        }
        out.truncate(cut.unwrap_or(usize::MAX));
        let mut copy = Known::new(0);
        let _ = copy.table.take_precopied(SECOND, &out);
        copy.lapse(1_000 * SECOND);
        copy.table.forget_precopied();
        prop_assert!(copy.table.is_empty());
    }
}

/// More than are looked at ahead: in a letter are changes of flows, new ones, and numbers of such as have ended, in any order.
#[test]
fn many_flows_change_begin_and_end_at_once_and_what_is_damaged_of_them_does_no_harm() {
    const MANY: u32 = 200;
    let table = || Table::new(2 * MANY, IDLE);
    let put = |table: &mut Table, flow: u32, text: &str| {
        let (key, direction) = udp(flow);
        table.find(key, direction, SECOND).unwrap().state.text = format!("{text} {flow}");
    };
    let mut live = table();
    (0..MANY).for_each(|flow| put(&mut live, flow, "old"));
    live.begin_precopy(7);
    let letter = |live: &mut Table| {
        let mut out = Vec::new();
        live.precopy(usize::MAX, &mut out).unwrap();
        out
    };
    let first = letter(&mut live);
    for flow in 0..MANY {
        match flow % 5 {
            0 => {
                let (key, direction) = udp(flow);
                live.known(key, direction, SECOND).unwrap();
                live.end_current();
            }
            1 => put(&mut live, MANY + flow, "new"),
            2 => put(&mut live, flow, "changed"),
            _ => {}
        }
    }
    let second = letter(&mut live);
    (0..MANY).filter(|flow| flow % 5 > 2).for_each(|flow| put(&mut live, flow, "late"));
    let mut rest = Vec::new();
    live.save_rest(&mut rest).unwrap();
    for at in (0..second.len()).step_by(3) {
        let mut copy = table();
        copy.take_precopied(SECOND, &first).unwrap();
        let mut damaged = second.clone();
        damaged[at] = !damaged[at];
        let _ = copy.take_precopied(SECOND, &damaged);
        let _ = copy.take_precopied(SECOND, &second[..at]);
        copy.forget_precopied();
        assert!(copy.is_empty(), "{at}");
    }
    let mut copy = table();
    copy.take_precopied(SECOND, &first).unwrap();
    copy.take_precopied(SECOND, &second).unwrap();
    copy.take_rest(SECOND, &rest).unwrap();
    assert_eq!(copy.len(), live.len());
    for flow in 0..2 * MANY {
        let key = udp(flow).0;
        let text = |table: &mut Table| table.peek(&key, SECOND).map(|state| state.text.clone());
        assert_eq!(text(&mut copy), text(&mut live), "{flow}");
    }
}

#[test]
fn a_flow_that_has_begun_anew_under_the_key_of_one_that_has_ended_takes_its_place_in_the_copy() {
    let (mut live, mut copy) = (Known::new(0), Known::new(0));
    live.packet(1, SECOND, "one".to_owned());
    live.packet(2, SECOND, "two".to_owned());
    live.table.begin_precopy(7);
    let mut all = Vec::new();
    assert_eq!(
        live.table.precopy(1_000, &mut all).unwrap(),
        CopyProgress { copied: 2, left: 0, walks: false }
    );
    copy.table.take_precopied(SECOND, &all).unwrap();
    // Both end; the second's key gets the first's number.
    for flow in [2, 1] {
        let (key, direction) = udp(flow);
        live.table.known(key, direction, SECOND).unwrap();
        live.table.end_current();
    }
    live.packet(2, SECOND, "anew".to_owned());
    let mut some = Vec::new();
    assert_eq!(
        live.table.precopy(1_000, &mut some).unwrap(),
        CopyProgress { copied: 1, left: 0, walks: false }
    );
    copy.table.take_precopied(SECOND, &some).unwrap();
    let mut rest = Vec::new();
    live.table.save_rest(&mut rest).unwrap();
    assert_eq!(copy.table.take_rest(SECOND, &rest).unwrap(), 0);
    assert_eq!(live.flows(SECOND), copy.flows(SECOND));
    assert_eq!(copy.table.peek(&udp(2).0, SECOND).unwrap().text, "anew");
}

/// Of two instances flows have the same numbers, and of a letter that was lost nobody knows what was in it.
#[test]
fn what_is_of_another_copy_or_comes_out_of_turn_is_refused() {
    let letters = |id: u64| {
        let mut live = Known::new(0);
        live.packet(1, SECOND, format!("of {id}"));
        live.packet(2, SECOND, format!("of {id}"));
        live.table.begin_precopy(id);
        let (mut first, mut second, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        live.table.precopy(1, &mut first).unwrap();
        live.table.precopy(1, &mut second).unwrap();
        live.packet(1, SECOND, format!("again of {id}"));
        live.table.save_rest(&mut rest).unwrap();
        [first, second, rest]
    };
    let ([first, second, rest], [_, others, others_rest]) = (letters(7), letters(8));
    let mut copy = Known::new(0);
    assert!(copy.table.take_precopied(SECOND, &second).is_err());
    copy.table.take_precopied(SECOND, &first).unwrap();
    for wrong in [&others, &rest] {
        assert!(copy.table.take_precopied(SECOND, wrong).is_err());
    }
    assert!(copy.table.take_rest(SECOND, &rest).is_err(), "the second is missing");
    copy.table.take_precopied(SECOND, &second).unwrap();
    assert!(copy.table.take_precopied(SECOND, &second).is_err(), "twice");
    assert!(copy.table.take_rest(SECOND, &others_rest).is_err());
    assert_eq!(copy.table.take_rest(SECOND, &rest).unwrap(), 1);
    assert_eq!(copy.table.peek(&udp(1).0, SECOND).unwrap().text, "again of 7");
}

/// A table that had very many flows once.
#[test]
fn a_step_looks_at_no_more_numbers_than_it_may_however_few_have_flows() {
    let mut live = Table::new(100_000, IDLE);
    for flow in 0..100_000 {
        let (key, direction) = udp(flow);
        live.find(key, direction, SECOND).unwrap();
    }
    for flow in 0..99_999 {
        let (key, direction) = udp(flow);
        live.known(key, direction, SECOND).unwrap();
        live.end_current();
    }
    live.take_ended().for_each(drop);
    live.begin_precopy(7);
    let first = live.precopy(1_000, &mut Vec::new()).unwrap();
    assert_eq!((first.copied, first.walks), (0, true));
    let mut steps = 1;
    while live.precopy(1_000, &mut Vec::new()).unwrap().copied == 0 {
        steps += 1;
    }
    assert_eq!(steps, 100_000 / (1 << 14));
}

#[test]
fn a_copy_does_not_take_the_place_of_flows_that_are_no_copies() {
    let (mut live, mut other) = (Known::new(0), Known::new(0));
    let (key, direction) = udp(1);
    live.table.find(key, direction, SECOND).unwrap();
    other.table.find(key, direction, SECOND).unwrap().state.text = "its own".to_owned();
    live.table.begin_precopy(7);
    let mut all = Vec::new();
    live.table.precopy(1_000, &mut all).unwrap();
    let refused = other.table.take_precopied(SECOND, &all);
    assert!(matches!(refused, Err(RestoreError::Exists(_))), "{refused:?}");
    assert_eq!(other.table.peek(&key, SECOND).unwrap().text, "its own");
}

/// What of a table changes all the time is written short: without keys.
#[test]
fn a_flow_that_has_only_changed_is_written_shorter_than_a_new_one() {
    let mut live = Known::new(0);
    let (key, direction) = udp(1);
    live.table.find(key, direction, SECOND).unwrap();
    live.table.begin_precopy(7);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    live.table.precopy(1_000, &mut first).unwrap();
    live.table.find(key, direction, 2 * SECOND).unwrap();
    live.table.precopy(1_000, &mut again).unwrap();
    assert!(again.len() + key.to_bytes().len() <= first.len(), "{} {}", first.len(), again.len());
}

/// Of IPv4 and of IPv6: of a datagram the first fragment came before, and a later one comes to the copy. The copy's replica knows of it too.
#[test]
fn a_later_fragment_finds_its_flow_in_the_copy_and_in_its_replica() {
    let v6 = |last: u8| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into());
    let frames = [
        Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(9, 53).payload(&[0; 90]),
        Frame::ipv6(v6(1), v6(2)).udp(9, 53).payload(&[0; 90]),
    ];
    let (mut live, mut copy, mut replica) = (Known::new(0), Known::new(1), Known::new(1));
    live.table.begin_precopy(7);
    let (mut pieces, mut keys) = (Vec::new(), Vec::new());
    let ask = |table: &mut Table, piece: &[u8]| table.key(piece, &parse(piece, Depth::L4), SECOND);
    for frame in frames {
        let both = frame.fragments(48);
        let (key, direction) = common::key(&frame.build());
        live.table.find(key, direction, SECOND).unwrap();
        keys.push(key);
        pieces.push(both);
    }
    // The flows are copied, and replicated, before any fragment comes.
    let mut all = Vec::new();
    live.table.precopy(10_000, &mut all).unwrap();
    copy.table.take_precopied(SECOND, &all).unwrap();
    copy.table.take_changed(|_| {});
    for (both, key) in pieces.iter().zip(&keys) {
        assert_eq!(ask(&mut live.table, &both[0]).unwrap().0, *key);
        assert!(ask(&mut copy.table, &both[1]).is_none_or(|(found, _)| found != *key));
    }
    let mut rest = Vec::new();
    live.table.save_rest(&mut rest).unwrap();
    copy.table.take_rest(SECOND, &rest).unwrap();
    copy.table.take_changed(|changed| match changed {
        Changed::Flow(number, record, _) => replica.table.recover(number, SECOND, record).unwrap(),
        Changed::Ended(number) => panic!("{number} has ended"),
        Changed::Soon(_) | Changed::Next(_) => {}
    });
    for (both, key) in pieces.iter().zip(&keys) {
        assert_eq!(ask(&mut copy.table, &both[1]).unwrap().0, *key);
        assert_eq!(ask(&mut replica.table, &both[1]).unwrap().0, *key);
    }
}
