//! Flows that are written down, read back, and moved.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

mod common;

use common::{Count, IDLE, Notes, SECOND, count, key, tcp, udp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_nf::wire::Frame;
use weir_nf::{FlowState, FlowTable, RestoreError, TcpTimes, Walk};
use weir_packet::{Depth, Direction, FlowKey, parse};

type Table = FlowTable<Notes>;

/// A table with `flows` flows, each with a text and a list.
fn filled(flows: u32, capacity: u32) -> Table {
    let mut table = Table::new(capacity, IDLE);
    for flow in 0..flows {
        let (key, direction) = udp(flow);
        let found = table.find(key, direction, SECOND + u64::from(flow)).unwrap();
        *found.state = Notes { text: format!("flow {flow}"), list: vec![flow; 3] };
    }
    table
}

/// The flow of a frame, as the table sees it.
fn of(table: &mut Table, frame: &[u8]) -> (FlowKey, Direction) {
    table.key(frame, &parse(frame, Depth::L4), SECOND).unwrap()
}

fn saved<F: FlowState>(table: &FlowTable<F>) -> Vec<u8> {
    let mut out = Vec::new();
    table.save(&mut out).unwrap();
    out
}

/// Takes all flows for which `chosen` is true, by looking at `look` at a time.
fn take(table: &mut Table, look: usize, chosen: impl Fn(&FlowKey) -> bool) -> Vec<Vec<u8>> {
    let (mut walk, mut records) = (Walk::default(), Vec::new());
    loop {
        let before = records.len();
        let more = table.take(
            &mut walk,
            (look, 5),
            |key, _| chosen(key),
            |_, record| {
                records.push(record.to_vec());
            },
        );
        assert!(records.len() - before <= look.min(5), "more than asked for");
        if !more.unwrap() {
            return records;
        }
    }
}

#[test]
fn what_is_read_back_is_what_was_written_down() {
    let mut old = filled(100, 1000);
    let first = Frame::ipv4([10, 9, 9, 9], [10, 0, 0, 2]).udp(9, 53).id(77).payload(&[0; 300]);
    let pieces: Vec<Vec<u8>> = first.fragments(80);
    let (key, direction) = of(&mut old, &pieces[0]);
    old.find(key, direction, SECOND).unwrap().state.text = "fragments".into();
    let bytes = saved(&old);
    let mut new = Table::new(1000, IDLE);
    assert_eq!(new.restore(SECOND, &bytes).unwrap(), 101);
    assert_eq!(saved(&new), bytes, "and written down again it is the same");
    // The later fragment finds its flow, from its starter.
    let (key, direction) = of(&mut new, &pieces[1]);
    let found = new.find(key, direction, SECOND).unwrap();
    assert_eq!(
        (found.state.text.as_str(), found.from_starter, found.is_new),
        ("fragments", true, false)
    );
    for flow in 0..100 {
        let (key, direction) = udp(flow);
        let found = new.find(key, direction.reverse(), 2 * SECOND).unwrap();
        assert_eq!(found.state.list, [flow; 3]);
        assert!(!found.from_starter && !found.is_new);
    }
}

#[test]
fn flows_that_were_read_back_end_when_they_would_have() {
    let mut new = Table::new(1000, IDLE);
    new.restore(SECOND, &saved(&filled(100, 1000))).unwrap();
    for second in 0..240 {
        new.expire(second * SECOND);
        assert!(second > 120 || new.len() == 100, "ended after {second} s");
    }
    assert!(new.is_empty());
}

#[test]
fn a_flow_that_is_moved_to_where_it_is_already_is_refused_and_named_and_nothing_is_added() {
    let mut new = filled(1, 1000);
    let before = saved(&new);
    let mut record = Vec::new();
    assert!(filled(1, 1000).take_one(&udp(0).0, &mut record).unwrap());
    let error = new.put(SECOND, &record).unwrap_err();
    assert!(matches!(&error, RestoreError::Exists(key) if *key == udp(0).0));
    let text = "there is a flow proto 17 10.0.0.0:7-192.0.2.1:53 already; it must end, or be moved away, first";
    assert_eq!(error.to_string(), text);
    assert_eq!(saved(&new), before);
}

#[test]
fn more_flows_than_there_is_room_for_are_refused_and_nothing_is_added() {
    let mut new = Table::new(99, IDLE);
    assert!(matches!(new.restore(1, &saved(&filled(100, 1000))), Err(RestoreError::Full(99))));
    assert!(new.is_empty());
    new.restore(1, &saved(&filled(99, 1000))).unwrap();
    assert_eq!(new.len(), 99);
}

#[test]
fn bytes_that_are_cut_off_anywhere_or_go_on_are_refused_and_nothing_is_added() {
    let mut old = filled(3, 10);
    let pieces = Frame::ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).payload(&[0; 300]).fragments(80);
    of(&mut old, &pieces[0]);
    let bytes = saved(&old);
    let mut new = Table::new(10, IDLE);
    for len in 0..bytes.len() {
        assert!(new.restore(SECOND, &bytes[..len]).is_err(), "{len} bytes");
        assert!(new.is_empty());
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(new.restore(SECOND, &longer), Err(RestoreError::Damaged(_))));
    assert!(new.is_empty());
    let mut other = FlowTable::<Count>::new(10, IDLE);
    let error = other.restore(SECOND, &bytes).unwrap_err();
    assert!(matches!(error, RestoreError::Version { found: 3, wanted: 1 }), "{error}");
}

#[test]
fn a_walk_takes_the_chosen_flows_in_pieces_and_they_can_be_put_elsewhere() {
    let (mut old, mut new) = (filled(300, 1000), Table::new(1000, IDLE));
    let odd = |key: &FlowKey| key.lower().0.to_string().ends_with(['1', '3', '5', '7', '9']);
    let records = take(&mut old, 7, odd);
    assert!(records.len() > 100 && old.len() + records.len() == 300);
    for record in &records {
        let key = new.put(SECOND, record).unwrap();
        assert!(odd(&key));
        assert!(matches!(new.put(SECOND, record), Err(RestoreError::Exists(_))));
    }
    for flow in 0..300 {
        let (key, direction) = udp(flow);
        let (here, there) = if odd(&key) { (&mut new, &mut old) } else { (&mut old, &mut new) };
        let found = here.find(key, direction, 2 * SECOND).unwrap();
        assert_eq!(found.state.text, format!("flow {flow}"));
        assert!(there.find(key, direction, 2 * SECOND).unwrap().is_new);
    }
    assert!(old.take_ended().next().is_none(), "what moves has not ended");
}

#[test]
fn one_flow_is_taken_by_any_of_its_keys_and_goes_with_all_of_them() {
    let (mut old, mut new) = (filled(10, 100), Table::new(100, IDLE));
    let (key, direction) = udp(4);
    let translated = udp(4000);
    old.find(key, direction, SECOND).unwrap();
    old.alias(translated.0, translated.1, SECOND).unwrap();
    let mut record = Vec::new();
    assert!(old.take_one(&translated.0, &mut record).unwrap());
    assert!(!old.take_one(&key, &mut record).unwrap());
    new.put(SECOND, &record).unwrap();
    for key in [(key, direction), translated] {
        assert_eq!(new.find(key.0, key.1, SECOND).unwrap().state.text, "flow 4");
        assert!(old.find(key.0, key.1, SECOND).unwrap().is_new);
    }
    // A record whose second key leads to another flow already is refused as a whole.
    let mut third = Table::new(100, IDLE);
    third.find(translated.0, translated.1, SECOND).unwrap();
    assert!(
        matches!(third.put(SECOND, &record), Err(RestoreError::Exists(k)) if k == translated.0)
    );
    assert_eq!(third.len(), 1);
}

#[test]
fn how_a_connection_stands_moves_with_its_flow() {
    let table = || FlowTable::<Count>::new(10, IDLE).with_tcp(Some(TcpTimes::RFC_5382));
    let (mut old, mut new) = (table(), table());
    for (there, flags) in [(true, 0x02), (false, 0x12), (true, 0x10)] {
        count(&mut old, &tcp(there, flags), SECOND);
    }
    let mut record = Vec::new();
    let (key, _) = key(&tcp(true, 2));
    assert!(old.take_one(&key, &mut record).unwrap());
    new.put(SECOND, &record).unwrap();
    // Established: for two hours and four minutes.
    assert_eq!(count(&mut new, &tcp(true, 0x10), 7_440 * SECOND), (4, true, false));
    assert_eq!(count(&mut new, &tcp(true, 0x10), 14_880 * SECOND), (1, true, true));
}

#[test]
fn a_flow_whose_time_is_over_makes_way_though_nobody_has_noticed() {
    let (key, direction) = udp(0);
    let (late, translated) = (SECOND + IDLE, udp(4000));
    let mut old = Table::new(10, IDLE);
    old.find(key, direction, late).unwrap().state.text = "new".into();
    old.alias(translated.0, translated.1, late).unwrap();
    let bytes = saved(&old);
    let mut record = Vec::new();
    assert!(old.take_one(&key, &mut record).unwrap());
    for put in [true, false] {
        // Two flows that have ended: one has the key, another the second one.
        let mut new = filled(1, 10);
        new.find(translated.0, translated.1, SECOND).unwrap();
        match put {
            true => assert_eq!(new.put(late, &record).unwrap(), key),
            false => assert_eq!(new.restore(late, &bytes).unwrap(), 1),
        }
        let ended: Vec<_> = new.take_ended().map(|(_, notes)| notes.text).collect();
        assert_eq!(ended, ["flow 0", ""]);
        assert_eq!(new.known(translated.0, translated.1, late).unwrap().state.text, "new");
        assert_eq!(new.len(), 1);
    }
}

#[test]
fn how_long_the_nf_keeps_a_flow_moves_with_it() {
    let (mut old, mut new) = (filled(1, 10), Table::new(10, IDLE));
    let (key, direction) = udp(0);
    old.find(key, direction, SECOND).unwrap();
    old.keep(1000 * SECOND, SECOND);
    new.restore(SECOND, &saved(&old)).unwrap();
    assert!(new.known(key, direction, 1000 * SECOND).is_some());
    assert!(new.known(key, direction, 1001 * SECOND).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    /// Damage is noticed, or harmless: what was added can be written down and read again.
    #[test]
    fn damaged_bytes_never_panic_and_leave_nothing_half_added(
        flows in 0u32..6, at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let mut bytes = saved(&filled(flows, 10));
        let at = at.index(bytes.len());
        bytes[at] = to;
        let mut new = Table::new(10, IDLE);
        match new.restore(SECOND, &bytes) {
            Ok(count) => {
                prop_assert_eq!(count, new.len());
                let again = saved(&new);
                prop_assert_eq!(Table::new(10, IDLE).restore(SECOND, &again).unwrap(), count);
            }
            Err(_) => prop_assert!(new.is_empty()),
        }
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut table = Table::new(10, IDLE);
        // Behind the right versions too.
        let versions = [&2_u32.to_le_bytes()[..], &3_u32.to_le_bytes()[..], &bytes].concat();
        for bytes in [&bytes, &versions] {
            if table.restore(SECOND, bytes).is_err() {
                prop_assert!(table.is_empty());
            }
            if table.put(SECOND, bytes).is_ok() {
                prop_assert_eq!(table.len(), 1);
            }
            take(&mut table, 3, |_| true);
        }
    }

    /// Wherever flows are moved, each is at one place, with what it counted.
    #[test]
    fn flows_that_are_moved_about_are_each_at_one_place(
        moves in prop::collection::vec((0usize..3, 0usize..3, any::<u32>(), 1usize..40), 1..40)
    ) {
        let mut tables: Vec<Table> = (0..3).map(|_| Table::new(100, IDLE)).collect();
        tables[0].restore(SECOND, &saved(&filled(60, 100))).unwrap();
        for (from, to, mask, look) in moves {
            let chosen = |key: &FlowKey| {
                let std::net::IpAddr::V4(address) = key.lower().0 else { return false };
                mask >> (address.to_bits() % 32) & 1 == 1
            };
            for record in take(&mut tables[from], look, chosen) {
                tables[to].put(SECOND, &record).unwrap();
            }
        }
        let mut all = BTreeMap::new();
        for table in &mut tables {
            for record in take(table, 1000, |_| true) {
                let mut one = Table::new(1, IDLE);
                let key = one.put(SECOND, &record).unwrap();
                prop_assert!(all.insert(key.to_bytes(), ()).is_none());
            }
        }
        prop_assert_eq!(all.len(), 60);
    }
}

/// What [`Notes`] became: it reads what those wrote, and nothing older.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Lengths(usize, usize);

impl FlowState for Lengths {
    const VERSION: u32 = 4;

    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        let notes: Notes = weir_nf::read_state(bytes).ok().filter(|_| version == 3)?;
        Some(Lengths(notes.text.len(), notes.list.len()))
    }
}

#[test]
fn flows_of_an_earlier_version_are_read_as_what_they_would_be_now() {
    let mut old = filled(3, 10);
    let mut new = FlowTable::<Lengths>::new(10, IDLE);
    assert_eq!(new.restore(SECOND, &saved(&old)).unwrap(), 3);
    let (key, direction) = udp(2);
    let found = new.find(key, direction, SECOND).unwrap();
    assert_eq!((found.is_new, found.state), (false, &mut Lengths("flow 2".len(), 3)));
    // One by one as well.
    let mut one = FlowTable::<Lengths>::new(10, IDLE);
    for record in take(&mut old, 10, |_| true) {
        one.put(SECOND, &record).unwrap();
    }
    assert_eq!(one.len(), 3);
    // What a flow's state is followed by is not passed over.
    let longer = postcard::to_stdvec(&("text", [1u32; 0], 7u8)).unwrap();
    assert!(weir_nf::read_state::<(String, Vec<u32>)>(&longer).is_err());
}

#[test]
fn what_no_version_reads_is_refused_and_nothing_has_changed() {
    let (old, newest) = (filled(3, 10), saved(&FlowTable::<Lengths>::new(10, IDLE)));
    let mut other = FlowTable::<Count>::new(10, IDLE);
    let refused = other.restore(SECOND, &saved(&old));
    assert!(matches!(refused, Err(RestoreError::Version { found: 3, wanted: 1 })), "{refused:?}");
    assert_eq!(other.len(), 0);
    // Of a later version there is nothing to read yet, where it has no flows.
    assert_eq!(other.restore(SECOND, &newest).unwrap(), 0);
}

#[test]
fn later_fragments_find_their_flow_where_it_has_moved_to() {
    let mut old = filled(20, 100);
    let datagram = |id: u32| {
        let whole = Frame::ipv4([10, 9, 9, 9], [10, 0, 0, 2]).udp(9, 53).id(id);
        whole.payload(&[0; 300]).fragments(80)
    };
    // More than go with a flow: those that came first are forgotten.
    let datagrams: Vec<Vec<Vec<u8>>> = (0..20).map(datagram).collect();
    let mut key = udp(0).0;
    for pieces in &datagrams {
        let (own, direction) = of(&mut old, &pieces[0]);
        old.find(own, direction, SECOND).unwrap().state.text = "fragments".into();
        key = own;
    }
    let mut record = Vec::new();
    assert!(old.take_one(&key, &mut record).unwrap());
    for len in 0..record.len() {
        assert!(Table::new(100, IDLE).put(SECOND, &record[..len]).is_err(), "{len} bytes");
    }
    let mut new = Table::new(100, IDLE);
    assert_eq!(new.put(SECOND, &record).unwrap(), key);
    let known = |new: &mut Table, pieces: &[Vec<u8>]| of(new, &pieces[2]).0 == key;
    let known: Vec<bool> = datagrams.iter().map(|pieces| known(&mut new, pieces)).collect();
    assert_eq!(known, [[false; 4].as_slice(), &[true; 16]].concat());
    // Who has none takes none along.
    let mut other = Vec::new();
    assert!(old.take_one(&udp(3).0, &mut other).unwrap());
    assert_eq!(other[other.len() - 4..], [0; 4]);
}
