//! Flows that were moved by name and have ended: nobody remembers them any more, and what begins with their keys goes where it would have.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;
use weir_nf::wire::Frame;

/// Packets of one kind of flows before the others come.
const SPELL: u64 = 4096;
/// Between two spells, in microseconds: more than any NF remembers an idle flow.
const PAUSE: u64 = 400_000_000;

/// Balances by clients.
const BALANCED: &str = r#"
Port<0> lan;  Port<1> wan;  Busy slow { cycles: 160000 };
L4LoadBalancer mon { services: [ { address: "10.0.0.2", port: 80, proto: "udp", backends: [
    { address: "10.80.0.1" }, { address: "10.80.0.2", weight: 2 } ] } ] };
pipelet { lan -> [clients] mon;  mon [mon.servers] -> slow -> wan;  mon [mon.clients] -> slow;  mon [mon.unavailable] -> Drop; }"#;

/// Packet `number` of this flow, with its number at the end.
type Make = fn(u64, u16) -> Vec<u8>;

fn v4(number: u64, flow: u16) -> Vec<u8> {
    frame(number, flow).to_vec()
}

fn tagged_v6(number: u64, flow: u16) -> Vec<u8> {
    let to = Frame::ipv6([0xfd00, 0, 0, 0, 0, 0, 0, 1], [0xfd00, 0, 0, 0, 0, 0, 0, 2]).vlan(7);
    to.udp(5000 + flow, 53).payload(&number.to_be_bytes()).build()
}

fn of_client(number: u64, flow: u16) -> Vec<u8> {
    let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(5000 + flow, 80);
    frame.payload(&number.to_be_bytes()).build()
}

/// Flows 0 to 7 in the first spell, 8 to 15 in the next, and so on in turn.
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
    forgotten(&ALONE, "ended", v4, None);
}

#[test]
fn what_was_moved_of_a_segments_replicas_is_forgotten_when_it_has_ended() {
    forgotten(&TOGETHER, "ended-fused", v4, None);
}

#[test]
fn what_was_moved_is_forgotten_though_who_has_it_dies() {
    forgotten(&ALONE, "ended-killed", v4, Some("mon#3"));
}

#[test]
fn what_was_moved_is_forgotten_though_who_divides_dies() {
    forgotten(&ALONE, "ended-director", v4, Some("rx:lan"));
}

#[test]
fn what_was_moved_of_ipv6_with_a_tag_is_forgotten_when_it_has_ended() {
    forgotten(&ALONE, "ended-v6", tagged_v6, None);
}

#[test]
fn what_was_moved_of_a_balancers_clients_is_forgotten_when_it_has_ended() {
    let kind = Kind { policy: BALANCED, ..ALONE };
    forgotten(&kind, "ended-clients", of_client, None);
}

fn forgotten(kind: &Kind, name: &str, make: Make, dies: Option<&str>) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    let at = |number: u64| number / SPELL * PAUSE + number;
    let frames = (0..PACKETS).map(|number| (at(number), make(number, flow(number))));
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
        let number = u64::from_be_bytes(*bytes.last_chunk().unwrap());
        // A balancer writes addresses; else it is as it was sent, but for what the chain swaps.
        let sent = make(number, flow(number));
        assert!(kind.policy == BALANCED || bytes[12..] == sent[12..], "packet {number}");
        number
    });
    assert_in_order(&numbers, "output");
    let lost = finished.number("/balance/lost");
    assert_eq!(numbers.len() as u64 + lost, finished.number("/balance/in"), "some are missing");
    assert!(dies.is_some() || lost == 0, "{lost} were lost");
}
