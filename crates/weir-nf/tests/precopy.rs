//! A table that is copied while packets change it, and the copy that goes on in its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

mod common;

use common::{IDLE, Notes, SECOND, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_nf::{FlowTable, Progress, RestoreError, Walk};

type Table = FlowTable<Notes>;

const CAPACITY: u32 = 12;

/// A table, and all that is in it as far as it has been looked at: its flows' records, by number.
struct Known {
    table: Table,
    records: BTreeMap<u32, Vec<u8>>,
}

impl Known {
    fn new() -> Self {
        let mut table = Table::new(CAPACITY, IDLE);
        // Replicated besides: that gives each flow as a record, and must not get in the way.
        table.follow(1, false);
        Known { table, records: BTreeMap::new() }
    }

    /// Its flows, whatever their numbers.
    fn flows(&mut self) -> Vec<Vec<u8>> {
        let records = &mut self.records;
        self.table.take_changed(|flow, record| match record {
            Some(record) => drop(records.insert(flow, record.to_vec())),
            None => drop(records.remove(&flow)),
        });
        let mut flows: Vec<_> = self.records.values().cloned().collect();
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
}

#[derive(Debug, Clone)]
enum Step {
    Packet(u32),
    Ends(u32),
    Alias(u32, u32),
    Keep(u32, u64),
    Moves(u32),
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
        2 => flow().prop_map(Step::Ends),
        2 => (flow(), 20u32..30).prop_map(|(flow, key)| Step::Alias(flow, key)),
        1 => (flow(), 1u64..300).prop_map(|(flow, s)| Step::Keep(flow, s)),
        1 => flow().prop_map(Step::Moves),
        2 => (1u64..60).prop_map(Step::Later),
        5 => (1usize..500).prop_map(Step::Copies),
        1 => Just(Step::Fails),
        1 => Just(Step::Anew),
    ]
}

proptest! {
    #[test]
    fn a_copy_is_the_table_whatever_happened_while_it_was_made(
        before in proptest::collection::vec(step(), 0..40),
        steps in proptest::collection::vec(step(), 1..150)
    ) {
        let (mut live, mut copy, mut now) = (Known::new(), Known::new(), SECOND);
        let begins = before.len();
        for (i, step) in before.into_iter().chain(steps).enumerate() {
            if i == begins {
                live.table.begin_precopy();
            }
            match step {
                Step::Packet(flow) => {
                    let (key, direction) = udp(flow);
                    if let Some(found) = live.table.find(key, direction, now) {
                        found.state.text = format!("step {i}");
                    }
                }
                Step::Ends(flow) => {
                    let (key, direction) = udp(flow);
                    if live.table.known(key, direction, now).is_some() {
                        live.table.end_current();
                    }
                }
                Step::Alias(flow, other) => {
                    let ((key, direction), (other, to)) = (udp(flow), udp(other));
                    if live.table.find(key, direction, now).is_some() {
                        let _ = live.table.alias(other, to, now);
                    }
                }
                Step::Keep(flow, seconds) => {
                    let (key, direction) = udp(flow);
                    if live.table.find(key, direction, now).is_some() {
                        live.table.keep(seconds * SECOND, now);
                    }
                }
                Step::Moves(flow) => {
                    let _ = live.table.take_one(&udp(flow).0, &mut Vec::new());
                }
                Step::Later(seconds) => {
                    now += seconds * SECOND;
                    live.lapse(now);
                }
                Step::Copies(most) if live.table.is_precopied() => {
                    let mut out = Vec::new();
                    live.table.precopy(most, &mut out).unwrap();
                    prop_assert!(out.len() < most + 400);
                    copy.table.take_precopied(now, &out).unwrap();
                }
                Step::Fails if live.table.is_precopied() => {
                    live.table.save_rest(now, &mut Vec::new()).unwrap();
                }
                Step::Anew if live.table.is_precopied() => {
                    live.table.end_precopy();
                    live.table.begin_precopy();
                    copy.table.forget_precopied();
                    prop_assert!(copy.table.is_empty());
                }
                Step::Copies(_) | Step::Fails | Step::Anew => {}
            }
        }
        if !live.table.is_precopied() {
            live.table.begin_precopy();
        }
        let mut rest = Vec::new();
        live.table.save_rest(now, &mut rest).unwrap();
        copy.table.take_rest(now, &rest).unwrap();
        prop_assert_eq!(live.flows(), copy.flows());
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
        let mut live = Known::new();
        for flow in 0..flows {
            let (key, direction) = udp(flow);
            live.table.find(key, direction, SECOND).unwrap().state.text = format!("{flow}");
        }
        live.table.begin_precopy();
        let mut out = Vec::new();
        live.table.precopy(2_000, &mut out).unwrap();
        if let Some(byte) = out.get_mut(at) {
            *byte = to;
        }
        out.truncate(cut.unwrap_or(usize::MAX));
        let mut copy = Known::new();
        let _ = copy.table.take_precopied(SECOND, &out);
        copy.lapse(1_000 * SECOND);
        copy.table.forget_precopied();
        prop_assert!(copy.table.is_empty());
    }
}

/// The flows of the copy are all that a new worker has of its own before the rest comes.
#[test]
fn a_flow_that_has_begun_anew_under_the_key_of_one_that_has_ended_takes_its_place_in_the_copy() {
    let (mut live, mut copy) = (Known::new(), Known::new());
    let mut packet = |flow: u32, text: &str| {
        let (key, direction) = udp(flow);
        live.table.find(key, direction, SECOND).unwrap().state.text = text.to_owned();
    };
    packet(1, "one");
    packet(2, "two");
    live.table.begin_precopy();
    let mut all = Vec::new();
    assert_eq!(live.table.precopy(1_000, &mut all).unwrap(), Progress { copied: 2, left: 0 });
    copy.table.take_precopied(SECOND, &all).unwrap();
    // Both end; the second's key gets the first's number.
    for flow in [2, 1] {
        let (key, direction) = udp(flow);
        live.table.known(key, direction, SECOND).unwrap();
        live.table.end_current();
    }
    let (key, direction) = udp(2);
    live.table.find(key, direction, SECOND).unwrap().state.text = "anew".to_owned();
    // One at a time: between the two the copy is neither the old table nor the new one.
    for left in [1, 0] {
        let mut some = Vec::new();
        assert_eq!(live.table.precopy(1, &mut some).unwrap(), Progress { copied: 1, left });
        copy.table.take_precopied(SECOND, &some).unwrap();
    }
    let mut rest = Vec::new();
    live.table.save_rest(SECOND, &mut rest).unwrap();
    assert_eq!(copy.table.take_rest(SECOND, &rest).unwrap(), 0);
    assert_eq!(live.flows(), copy.flows());
    assert_eq!(copy.table.peek(&key, SECOND).unwrap().text, "anew");
}

#[test]
fn a_copy_does_not_take_the_place_of_flows_that_are_no_copies() {
    let (mut live, mut other) = (Known::new(), Known::new());
    let (key, direction) = udp(1);
    live.table.find(key, direction, SECOND).unwrap();
    other.table.find(key, direction, SECOND).unwrap().state.text = "its own".to_owned();
    live.table.begin_precopy();
    let mut all = Vec::new();
    live.table.precopy(1_000, &mut all).unwrap();
    let refused = other.table.take_precopied(SECOND, &all);
    assert!(matches!(refused, Err(RestoreError::Exists(_))), "{refused:?}");
    assert_eq!(other.table.peek(&key, SECOND).unwrap().text, "its own");
}

/// What of a table changes all the time is written short: without keys.
#[test]
fn a_flow_that_has_only_changed_is_written_shorter_than_a_new_one() {
    let mut live = Known::new();
    let (key, direction) = udp(1);
    live.table.find(key, direction, SECOND).unwrap();
    live.table.begin_precopy();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    live.table.precopy(1_000, &mut first).unwrap();
    live.table.find(key, direction, 2 * SECOND).unwrap();
    live.table.precopy(1_000, &mut again).unwrap();
    assert!(again.len() + key.to_bytes().len() <= first.len(), "{} {}", first.len(), again.len());
}
