//! A table whose flows come from a replica, and are read as they are needed, does what one does that read all of them first.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weir_nf::{Changed, FlowState, FlowTable, Records, RestoreError, Walk, WhenFull};
use weir_packet::flow::PortKind;
use weir_packet::{Direction, FlowKey};

/// Packets of a flow; and what can be damaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    packets: u8,
    sound: bool,
}

impl FlowState for Count {}

type Table = FlowTable<Count>;

const SECOND: u64 = 1_000_000_000;
const IDLE: u64 = 100 * SECOND;
/// More than are read at once for one new flow.
const CAPACITY: u32 = 40;

fn key(n: u8) -> (FlowKey, Direction) {
    let end = |last, port| ([10, 0, last, 1].into(), port);
    FlowKey::between(end(1, 4000 + u16::from(n)), end(2, 53), 17, PortKind::Ports, 0).unwrap()
}

/// What somebody does with a table.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A packet of flow `n` comes: is it new, and how many packets has it?
    Packet(u8),
    /// Somebody only looks.
    Known(u8),
    Peek(u8),
    /// The flow that was looked up last gets a further key.
    Alias(u8),
    End,
    /// Time passes.
    Wait(u8),
    /// Flows that have been idle for too long end.
    Expire,
    /// So many are read meanwhile.
    Read(u8),
    /// All states are looked at.
    Each,
    /// What has changed is written down.
    Changes,
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0_u8..60;
    prop_oneof![
        6 => n().prop_map(Step::Packet),
        2 => n().prop_map(Step::Known),
        1 => n().prop_map(Step::Peek),
        2 => n().prop_map(Step::Alias),
        1 => Just(Step::End),
        1 => (0_u8..60).prop_map(Step::Wait),
        1 => Just(Step::Expire),
        2 => (0_u8..9).prop_map(Step::Read),
        1 => Just(Step::Each),
        2 => Just(Step::Changes),
    ]
}

/// Does it; what there is to see of it.
fn act(table: &mut Table, step: Step, now: &mut u64) -> String {
    let of = |n: u8| key(n);
    match step {
        Step::Packet(n) => {
            let (key, direction) = of(n);
            let Some(flow) = table.find(key, direction, *now) else { return "full".to_owned() };
            *flow.state = Count { packets: flow.state.packets.wrapping_add(1), sound: true };
            format!("{:?} {} {}", flow.state, flow.is_new, flow.from_starter)
        }
        Step::Known(n) => {
            let (key, direction) = of(n);
            format!("{:?}", table.known(key, direction, *now).map(|f| (*f.state, f.from_starter)))
        }
        Step::Peek(n) => format!("{:?}", table.peek(&of(n).0, *now)),
        Step::Alias(n) => {
            let (key, direction) = of(n);
            format!("{:?}", table.alias(key, direction, *now))
        }
        Step::End => {
            table.end_current();
            String::new()
        }
        Step::Wait(seconds) => {
            *now += u64::from(seconds) * SECOND;
            String::new()
        }
        Step::Expire => {
            table.expire(*now);
            String::new()
        }
        Step::Each => {
            let mut all = Vec::new();
            table.each(*now, |state| all.push(state.packets));
            all.sort_unstable();
            format!("{all:?}")
        }
        Step::Read(_) | Step::Changes => String::new(),
    }
}

/// A record, and its tag.
type Tagged = (Vec<u8>, u64);

fn changes(table: &mut Table) -> BTreeMap<u32, Option<Tagged>> {
    let mut all = BTreeMap::new();
    table.take_changed(|changed| match changed {
        Changed::Flow(flow, record, tag) => drop(all.insert(flow, Some((record.to_vec(), tag)))),
        Changed::Ended(flow) => drop(all.insert(flow, None)),
        Changed::Soon(_) | Changed::Next(_) => {}
    });
    all
}

/// The records that are read later.
struct Kept(BTreeMap<u32, Tagged>);

impl Records for Kept {
    fn read(&self, number: u32, record: &mut Vec<u8>) -> bool {
        record.clear();
        record.extend_from_slice(&self.0[&number].0);
        // As if a checksum stood before it.
        !record.ends_with(b"damaged")
    }
}

/// A table that reads these records later; how many it has taken.
fn later(records: &BTreeMap<u32, Tagged>, now: u64) -> (Table, usize) {
    let mut table = table();
    table.recover_from(Box::new(Kept(records.clone())), records.len());
    let mut taken = 0;
    for (number, (record, tag)) in records {
        let read = match table.recover_later(*number, *tag) {
            Ok(true) => Ok(()),
            Ok(false) => table.recover(*number, now, record),
            Err(e) => Err(e),
        };
        taken += usize::from(read.is_ok());
    }
    (table, taken)
}

fn table() -> Table {
    let mut table = Table::new(CAPACITY, IDLE);
    table.follow(1, false);
    table
}

/// What is in the replica once what has changed in a table is. The numbers are not compared: flows whose time is over at once end in any order.
fn write(table: &mut Table, replica: &mut BTreeMap<u32, Tagged>) -> Vec<Tagged> {
    for (flow, record) in changes(table) {
        match record {
            Some(record) => replica.insert(flow, record),
            None => replica.remove(&flow),
        };
    }
    let mut all: Vec<_> = replica.values().cloned().collect();
    all.sort();
    all
}

/// The keys of each flow that is alive.
fn flows(table: &Table, now: u64) -> BTreeSet<Vec<String>> {
    let (mut all, mut walk) = (BTreeSet::new(), Walk::default());
    let mut show = |keys: &[FlowKey]| {
        all.insert(keys.iter().map(ToString::to_string).collect());
    };
    while table.look_at(&mut walk, 100, now, &mut |seen| show(seen.keys)) {}
    all
}

/// The records of a table that has been in use, by number, and its time.
fn replica(steps: &[Step]) -> (BTreeMap<u32, Tagged>, u64) {
    let (mut old, mut records, mut now) = (table(), BTreeMap::new(), 1_000 * SECOND);
    for step in steps {
        act(&mut old, *step, &mut now);
        write(&mut old, &mut records);
    }
    (records, now)
}

#[test]
fn a_table_that_is_full_of_what_is_not_read_refuses_a_new_flow_or_has_one_give_way() {
    for when_full in [WhenFull::Refuse, WhenFull::GiveWay] {
        let steps: Vec<Step> = (0..CAPACITY as u8).map(Step::Packet).collect();
        let (records, now) = replica(&steps);
        let mut table = table().with_answer(when_full);
        table.recover_from(Box::new(Kept(records.clone())), records.len());
        for (number, (_, tag)) in &records {
            assert!(table.recover_later(*number, *tag).unwrap());
        }
        let gives_way = when_full == WhenFull::GiveWay;
        let (new, direction) = key(50);
        assert_eq!(table.find(new, direction, now).is_some(), gives_way);
        assert!(table.unread() > 0, "a packet has waited for all of them");
        assert_eq!(table.take_gave_way(), u64::from(gives_way));
        table.read_rest(now);
        assert_eq!(table.len(), CAPACITY as usize);
        // When they are over there is room.
        let (new, direction) = key(51);
        assert!(table.find(new, direction, now + IDLE).is_some_and(|flow| flow.is_new));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens meanwhile: each packet finds the same, and the same flows are written down.
    #[test]
    fn flows_that_are_read_later_are_as_if_they_had_been_read_at_first(
        before in prop::collection::vec(step(), 0..150),
        behind in prop::collection::vec(step(), 0..150),
    ) {
        let (records, now) = replica(&before);
        let mut eager = table();
        for (number, (record, _)) in &records {
            eager.recover(*number, now, record).unwrap();
        }
        let (mut later, taken) = later(&records, now);
        prop_assert_eq!((taken, later.len()), (records.len(), eager.len()));
        // What has several keys is read at once.
        let plain = |record: &&Tagged| record.0[28..32] == 1_u32.to_le_bytes();
        prop_assert_eq!(later.unread(), records.values().filter(plain).count());
        let (mut times, mut replicas) = ([now; 2], [records.clone(), records]);
        for step in behind {
            // Flows end when they are found to be over: of those that nobody looked for that may be later. And a full table does not read all for
            // a packet's sake.
            let is_full = later.len() == CAPACITY as usize;
            if is_full || matches!(step, Step::Wait(_) | Step::Expire | Step::Each) {
                later.read_rest(times[1]);
            }
            if let Step::Read(most) = step {
                let left = later.unread();
                let now_left = later.read_unread(most.into(), times[1]);
                prop_assert!(now_left <= left && now_left == later.unread());
            }
            let seen = [&mut eager, &mut later].into_iter().zip(&mut times);
            let seen: Vec<String> = seen.map(|(table, now)| act(table, step, now)).collect();
            prop_assert_eq!(&seen[0], &seen[1], "{:?}", step);
            prop_assert_eq!(eager.len(), later.len());
            if matches!(step, Step::Changes) {
                let [one, other] = &mut replicas;
                prop_assert_eq!(write(&mut eager, one), write(&mut later, other));
            }
        }
        later.read_rest(times[1]);
        prop_assert_eq!(later.unread(), 0);
        prop_assert!(later.take_unreadable().is_none());
        prop_assert_eq!(flows(&eager, times[0]), flows(&later, times[1]));
        let [one, other] = &mut replicas;
        prop_assert_eq!(write(&mut eager, one), write(&mut later, other));
        prop_assert_eq!((eager.refused(), eager.refused_keys()), (later.refused(), later.refused_keys()));
    }

    /// Whatever tags say, and however many say the same: what is found by them, or when all is read, is what the records say; and no
    /// look-up takes longer for it.
    #[test]
    fn tags_are_believed_only_as_far_as_records_bear_them_out(
        count in 1_u8..40,
        false_tags in prop::collection::vec((0_u8..40, 0_u64..3), 0..60),
        behind in prop::collection::vec(step(), 0..40),
    ) {
        let steps: Vec<Step> = (0..count).map(Step::Packet).collect();
        let (mut records, now) = replica(&steps);
        for (of, low) in false_tags {
            if let Some((_, tag)) = records.get_mut(&of.into()) {
                *tag = *tag >> 32 << 32 | low;
            }
        }
        let (mut later, taken) = later(&records, now);
        prop_assert_eq!(taken, records.len());
        let mut time = now;
        for step in behind {
            act(&mut later, step, &mut time);
            prop_assert!(later.len() <= CAPACITY as usize);
        }
        later.read_rest(time);
        // Each key leads to one flow, and all can be written down and read again.
        let (mut out, mut other) = (Vec::new(), table());
        later.save(&mut out).unwrap();
        prop_assert_eq!(other.restore(time, &out).unwrap(), later.len());
    }

    /// A record that cannot be read is told, its flow begins anew, and the replica is to forget it.
    #[test]
    fn what_cannot_be_read_is_told_and_ends(
        count in 1_u8..30,
        damaged in prop::collection::btree_set(0_u8..30, 0..10),
        looked_for in prop::collection::vec(0_u8..30, 0..30),
    ) {
        let steps: Vec<Step> = (0..count).map(Step::Packet).collect();
        let (mut records, now) = replica(&steps);
        let mut lost = 0;
        for (number, (record, _)) in &mut records {
            if damaged.contains(&(*number as u8)) {
                // The last byte of the state, which is no truth value: behind it is only how many fragments there are.
                let at = record.len() - 5;
                record[at] = 7;
                lost += 1;
            }
        }
        let (mut later, taken) = later(&records, now);
        prop_assert_eq!(taken, records.len());
        for n in looked_for.iter().filter(|n| **n < count) {
            let (key, direction) = key(*n);
            prop_assert_eq!(later.known(key, direction, now).is_some(), !damaged.contains(n));
        }
        later.read_rest(now);
        let unreadable = later.take_unreadable();
        prop_assert_eq!(unreadable.as_ref().map_or(0, |u| u.records), lost);
        prop_assert!(unreadable.is_none_or(|u| matches!(u.why, RestoreError::Form(_))));
        prop_assert_eq!(later.len() as u64, u64::from(count) - lost);
        let gone = changes(&mut later).into_iter().filter(|(_, record)| record.is_none());
        let gone: BTreeSet<u8> = gone.map(|(number, _)| number as u8).collect();
        prop_assert_eq!(gone, damaged.into_iter().filter(|n| *n < count).collect::<BTreeSet<_>>());
        // Their numbers are others' from here on.
        for n in 100..100 + lost as u8 {
            let (key, direction) = key(n);
            prop_assert!(later.find(key, direction, now).is_some_and(|flow| flow.is_new));
        }
        prop_assert!(changes(&mut later).keys().all(|number| *number < count.into()));
    }

    /// Whatever a record is, it is refused or read.
    #[test]
    fn a_record_that_is_anything_is_refused_or_read(
        count in 1_u8..20,
        scribbles in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>(), any::<u8>()), 0..20),
        damaged in prop::collection::btree_set(0_u8..20, 0..3),
        cuts in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>()), 0..4),
    ) {
        let steps: Vec<Step> = (0..count).map(Step::Packet).collect();
        let (mut records, now) = replica(&steps);
        for (of, at, byte) in scribbles {
            if let Some((record, _)) = records.get_mut(&u32::from(of % count)) {
                let at = at.index(record.len());
                record[at] = byte;
            }
        }
        for (of, at) in cuts {
            if let Some((record, _)) = records.get_mut(&u32::from(of % count)) {
                record.truncate(at.index(record.len()).max(1));
            }
        }
        for of in damaged {
            if let Some((record, _)) = records.get_mut(&of.into()) {
                let at = record.len().saturating_sub(7);
                record.truncate(at);
                record.extend(b"damaged");
            }
        }
        let (mut later, taken) = later(&records, now);
        prop_assert_eq!(later.len(), taken);
        for n in 0..count {
            let (key, direction) = key(n);
            later.known(key, direction, now);
        }
        later.read_rest(now);
        let lost = later.take_unreadable().map_or(0, |u| u.records as usize);
        prop_assert_eq!(later.len(), taken - lost);
        let mut out = Vec::new();
        later.save(&mut out).unwrap();
    }
}
