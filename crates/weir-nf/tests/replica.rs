//! Flows as they change, and a table made of nothing but these records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

mod common;

use common::{IDLE, Notes, SECOND, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_nf::{Changed, FlowTable};

type Table = FlowTable<Notes>;

/// Records by number, as a replica has them.
type Records = BTreeMap<u32, Vec<u8>>;

const CAPACITY: u32 = 12;

fn table(every: u16) -> Table {
    let mut table = Table::new(CAPACITY, IDLE);
    table.follow(every, every > 1);
    table
}

fn take(table: &mut Table, records: &mut Records) -> usize {
    let mut given = 0;
    let mut said = Vec::new();
    table.take_changed(|changed| {
        match changed {
            Changed::Flow(flow, record, _) => drop(records.insert(flow, record.to_vec())),
            Changed::Ended(flow) => drop(records.remove(&flow)),
            Changed::Soon(flow) | Changed::Next(flow) => return said.push(flow),
        }
        let (Changed::Flow(flow, ..) | Changed::Ended(flow)) = changed else { return };
        given += 1;
        said.retain(|said| *said != flow);
    });
    assert_eq!(said, [0; 0], "what is said to come comes");
    given
}

fn rebuilt(records: &Records, now: u64) -> Table {
    let mut table = table(1);
    for (flow, record) in records {
        table.recover(*flow, now, record).unwrap();
    }
    table
}

fn saved(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    table.save(&mut out).unwrap();
    out
}

#[derive(Debug, Clone)]
enum Step {
    Packet(u32),
    Alias(u32, u32),
    Keep(u32, u64),
    Moves(u32),
    Later(u64),
    Commit,
    Dies,
}

fn step() -> impl Strategy<Value = Step> {
    let flow = || 0u32..20;
    prop_oneof![
        8 => flow().prop_map(Step::Packet),
        2 => (flow(), 20u32..30).prop_map(|(flow, key)| Step::Alias(flow, key)),
        1 => (flow(), 1u64..300).prop_map(|(flow, s)| Step::Keep(flow, s)),
        1 => flow().prop_map(Step::Moves),
        2 => (1u64..60).prop_map(Step::Later),
        3 => Just(Step::Commit),
        1 => Just(Step::Dies),
    ]
}

proptest! {
    #[test]
    fn a_table_made_of_the_records_is_the_table_whatever_happened(
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let (mut live, mut records, mut now) = (table(1), Records::new(), SECOND);
        // As of the last commit.
        let mut committed = saved(&live);
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Packet(flow) => {
                    let (key, direction) = udp(flow);
                    if let Some(found) = live.find(key, direction, now) {
                        found.state.text = format!("step {i}");
                    }
                }
                Step::Alias(flow, other) => {
                    let ((key, direction), (other, to)) = (udp(flow), udp(other));
                    if live.find(key, direction, now).is_some() {
                        let _ = live.alias(other, to, now);
                    }
                }
                Step::Keep(flow, seconds) => {
                    let (key, direction) = udp(flow);
                    if live.find(key, direction, now).is_some() {
                        live.keep(seconds * SECOND, now);
                    }
                }
                Step::Moves(flow) => {
                    let _ = live.take_one(&udp(flow).0, &mut Vec::new());
                }
                Step::Later(seconds) => {
                    now += seconds * SECOND;
                    live.expire(now);
                    live.take_ended().for_each(drop);
                }
                Step::Commit => {
                    let flows = live.len();
                    take(&mut live, &mut records);
                    prop_assert_eq!(records.len(), flows);
                    committed = saved(&live);
                    prop_assert_eq!(&saved(&rebuilt(&records, now)), &committed);
                }
                Step::Dies => {
                    live = rebuilt(&records, now);
                    prop_assert_eq!(&saved(&live), &committed);
                    prop_assert!(!live.has_changed(), "what is in the replica is not written again");
                }
            }
        }
    }
}

#[test]
fn a_flow_is_given_once_however_many_packets_it_had_and_not_again_until_it_changes() {
    let (mut table, mut records) = (table(1), Records::new());
    for _ in 0..100 {
        for flow in [1, 2] {
            let (key, direction) = udp(flow);
            table.find(key, direction, SECOND).unwrap();
        }
    }
    assert_eq!(take(&mut table, &mut records), 2);
    assert_eq!(take(&mut table, &mut records), 0);
    let (key, direction) = udp(2);
    table.known(key, direction, SECOND).unwrap();
    assert_eq!(take(&mut table, &mut records), 1);
}

#[test]
fn a_flow_that_is_followed_less_closely_is_given_when_it_begins_and_at_every_nth_packet() {
    let (mut table, mut records) = (table(10), Records::new());
    let (key, direction) = udp(1);
    let mut given = Vec::new();
    for packet in 0..=31 {
        table.find(key, direction, SECOND).unwrap();
        if take(&mut table, &mut records) > 0 {
            given.push(packet);
        }
    }
    assert_eq!(given, [0, 10, 20, 30]);
}

#[test]
fn a_slow_flow_that_is_followed_less_closely_is_not_recovered_as_one_that_has_ended() {
    let (mut live, mut records, mut now) = (table(10), Records::new(), SECOND);
    let (key, direction) = udp(1);
    // Its packets come at a fifth of the time that it may be idle for: nine of them are nearly twice that.
    for _ in 0..25 {
        live.find(key, direction, now).unwrap();
        take(&mut live, &mut records);
        let mut successor = rebuilt(&records, now);
        now += IDLE / 5;
        assert!(!successor.find(key, direction, now).unwrap().is_new, "at {now}");
    }
}

#[test]
fn a_flow_is_given_at_once_when_somebody_says_so() {
    let (mut table, mut records) = (table(10), Records::new());
    let (key, direction) = udp(1);
    for packet in 0..5 {
        table.find(key, direction, SECOND).unwrap();
        if packet == 3 {
            table.note();
        }
        assert_eq!(take(&mut table, &mut records), usize::from(packet == 0 || packet == 3));
    }
}

#[test]
fn records_by_numbers_that_do_not_ascend_or_are_out_of_bounds_are_refused() {
    let (mut live, mut records) = (table(1), Records::new());
    let (key, direction) = udp(1);
    live.find(key, direction, SECOND).unwrap();
    take(&mut live, &mut records);
    let record = &records[&0];
    let mut table = table(1);
    assert!(table.recover(CAPACITY, SECOND, record).is_err());
    table.recover(3, SECOND, record).unwrap();
    assert!(table.recover(3, SECOND, record).is_err());
    for cut in 0..record.len() {
        assert!(rebuilt(&Records::new(), SECOND).recover(0, SECOND, &record[..cut]).is_err());
    }
    // The numbers in between are used, and nobody's twice.
    for flow in 2..20 {
        let (key, direction) = udp(flow);
        table.find(key, direction, SECOND);
    }
    assert_eq!(table.len(), CAPACITY as usize);
}
