//! Flows that were moved by name and have ended: nobody remembers them any more, and what begins with their keys goes where it would have.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;

/// Packets of one kind of flows before the others come.
const SPELL: u64 = 4096;
/// Between two spells, in microseconds: more than any NF remembers an idle flow.
const PAUSE: u64 = 400_000_000;

/// Flows 0 to 11 in the first spell, 12 to 23 in the next, and so on in turn.
fn flow(number: u64) -> u16 {
    (number / SPELL % 2) as u16 * FLOWS + flow_of(number)
}

/// Where flows are, by their key.
fn places(moving: &Moving, nf: &str) -> BTreeMap<String, u64> {
    let said = moving.ask(&["get", "flows", "--nf", nf]);
    let rows = said.out["flows"]["flows"].as_array().unwrap_or_else(|| panic!("{said:?}"));
    rows.iter().map(|row| (row["keys"][0].to_string(), row["instance"].as_u64().unwrap())).collect()
}

/// Keys that were moved by name, of all instances; nothing while not all have answered.
fn moved(moving: &Moving) -> Option<u64> {
    let said = moving.ask(&["get", "flows", "--nf", moving.nfs[0]]);
    let counts = said.out["flows"]["counts"].as_array()?;
    counts.iter().map(|count| count["moved"].as_u64()).sum()
}

#[test]
fn what_was_moved_is_forgotten_when_it_has_ended() {
    forgotten(&ALONE, "ended", None);
}

#[test]
fn what_was_moved_of_a_segments_replicas_is_forgotten_when_it_has_ended() {
    forgotten(&TOGETHER, "ended-fused", None);
}

#[test]
fn what_was_moved_is_forgotten_though_who_has_it_dies() {
    forgotten(&ALONE, "ended-killed", Some("mon#3"));
}

#[test]
fn what_was_moved_is_forgotten_though_who_divides_dies() {
    forgotten(&ALONE, "ended-director", Some("rx:lan"));
}

fn forgotten(kind: &Kind, name: &str, dies: Option<&str>) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    let at = |number: u64| number / SPELL * PAUSE + number;
    let frames = (0..PACKETS).map(|number| (at(number), frame(number, flow(number))));
    write_frames_at(&input.file("in.pcap"), frames);
    let moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    // Of two spells all flows have been somewhere by themselves.
    let mut homes = BTreeMap::new();
    wait_until("all flows to come", PATIENCE, || {
        homes.extend(places(&moving, "mon"));
        homes.len() == 2 * usize::from(FLOWS)
    });
    let there = moving.moves(&["--count", "100", "--from", "1", "--to", "3"])
        + moving.moves(&["--count", "100", "--from", "2", "--to", "3"]);
    assert!(there > 0, "nothing was moved");
    assert!(moved(&moving).is_some_and(|moved| moved > 0));
    if let Some(worker) = dies {
        kill_process(moving.run.workers()[worker], Signal::KILL).unwrap();
    }
    wait_until("all to be forgotten", PATIENCE, || moved(&moving) == Some(0));
    // Both kinds come once more, where they came at first.
    let mut again = BTreeMap::new();
    wait_until("all flows to come again", PATIENCE, || {
        again.extend(places(&moving, "mon"));
        again.len() == 2 * usize::from(FLOWS)
    });
    assert_eq!(again, homes);
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound(name);
    let numbers = read_capture(&out, |bytes| {
        let number = u64::from_be_bytes(bytes[42..50].try_into().unwrap());
        assert_eq!(bytes[12..], frame(number, flow(number))[12..], "packet {number}");
        number
    });
    assert_in_order(&numbers, "output");
    let lost = finished.number("/balance/lost");
    assert_eq!(numbers.len() as u64 + lost, finished.number("/balance/in"), "some are missing");
    assert!(dies.is_some() || lost == 0, "{lost} were lost");
}
