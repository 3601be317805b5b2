//! Later fragments go where the first of their datagram went, also when whoever sends them there has died in between, or the
//! graph was changed: each flow's fragments are counted as one flow's, as nobody else knows whose they are.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_relink;

use common_crash::*;
use common_relink::*;
use rustix::process::{Signal, kill_process};
use std::process::Command;
use weir_packet::wire::Frame;

/// Datagrams of a flow each, half of them of IPv4: their first fragments come first, the others at the end.
const DATAGRAMS: u16 = 100;
/// Whole packets in between.
const BETWEEN: u64 = 60_000;

/// One after another: Rx divides, or `head` when it is alone. The monitor's instances are told apart, `slow` gives time.
const GRAPH: &str = "
Port<0> lan;  Port<1> wan;  Port<2> first;
MacSwap head;  FlowMonitor mon;  Busy slow { cycles: 40000 };
pipelet { lan -> head -> mon -> slow;  slow [mon.packets == 1] -> first;  slow [!(mon.packets == 1)] -> wan; }";

/// What divides in the worker of the port itself.
const AT_PORT: &str = "
Port<0> lan;  Port<1> wan;  Port<2> first;
FlowMonitor mon;  Busy slow { cycles: 40000 };
pipelet { lan -> mon -> slow;  slow [mon.packets == 1] -> first;  slow [!(mon.packets == 1)] -> wan; }";

fn fragments(flow: u16) -> Vec<Vec<u8>> {
    let [high, low] = flow.to_be_bytes();
    let ports = (1_000 + flow, 53);
    let payload = [0; 96];
    let v4 = || Frame::ipv4([10, 9, high, low], [192, 0, 2, 1]);
    let v6 = || {
        let other = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
        Frame::ipv6([0x2001, 0xdb8, 9, 0, 0, 0, 0, flow], other)
    };
    let frame = if flow.is_multiple_of(2) { v4() } else { v6() };
    let all = frame.id(u32::from(flow) + 1).udp(ports.0, ports.1).payload(&payload).fragments(48);
    assert!(all.len() >= 3);
    all
}

fn frames() -> impl Iterator<Item = Vec<u8>> {
    let firsts = (0..DATAGRAMS).map(|flow| fragments(flow).remove(0));
    let between = (0..BETWEEN).map(|number| frame(number, flow_of(number)).to_vec());
    let later = (0..DATAGRAMS).flat_map(|flow| fragments(flow).split_off(1));
    firsts.chain(between).chain(later)
}

const THREE: &str = "--isolate each\n--instances mon=3\n";

fn start(name: &str, policy: &str) -> Changing {
    let scratch = Scratch::new(&format!("fragments-{name}"));
    write_frames(&scratch.file("in.pcap"), frames());
    let rx = format!("pcap:rx={}", scratch.file("in.pcap").display());
    let few = ["--ring", "64", "--restart-delay", "0"];
    let first = format!("2=pcap:tx={}", scratch.file("first.pcap").display());
    let args = [&few[..], &["--bind", &first]].concat();
    let graph = Changing::start_on(scratch, Command::new("env"), &rx, policy, &args);
    graph.wait_for_traffic();
    graph
}

/// Changes it to other options, with its packets under way.
fn becomes(graph: &mut Changing, options: &str) {
    std::fs::write(graph.scratch.file("options"), options).unwrap();
    let said = graph.reload();
    assert!(said.contains(": relinked in "), "{said}");
    graph.wait_for_traffic();
}

/// At its end. Each flow began once, and with the first packet that came of it: what does not is a fragment that somebody did not know.
fn finish(graph: Changing, name: &str) -> Finished {
    let first = graph.scratch.file("first.pcap");
    let finished = graph.run.finish();
    finished.assert_sound(name);
    let began = read_capture(&first, <[u8]>::to_vec);
    // Ethernet addresses aside, which are swapped.
    let later = |bytes: &Vec<u8>| {
        let is_later =
            |flow: u16| fragments(flow).iter().skip(1).any(|later| later[12..] == bytes[12..]);
        (0..DATAGRAMS).find(|flow| is_later(*flow))
    };
    let anew: Vec<u16> = began.iter().filter_map(later).collect();
    assert!(anew.is_empty(), "{name}: not known whose they are: {anew:?}");
    let seen = node(&finished, "mon")["report"]["flows"].as_u64().unwrap();
    assert_eq!((began.len() as u64, seen), (FLOWS_IN_ALL, FLOWS_IN_ALL), "{name}");
    drop(graph.scratch);
    finished
}

const FLOWS_IN_ALL: u64 = DATAGRAMS as u64 + FLOWS as u64;

#[test]
fn they_follow_their_first_over_the_death_of_who_divides_them() {
    for (name, policy, who) in [("port", AT_PORT, "rx:lan"), ("nf", GRAPH, "head")] {
        let mut graph = start(name, policy);
        becomes(&mut graph, THREE);
        let workers = graph.run.workers();
        let pid = *workers.get(who).unwrap_or_else(|| panic!("no {who} among {workers:?}"));
        kill_process(pid, Signal::KILL).unwrap();
        graph.run.wait_for_line("a successor", |l| l.contains(&format!("{who} runs again")));
        let finished = finish(graph, name);
        assert!(finished.number("/balance/lost") <= BATCH);
    }
}

#[test]
fn they_follow_their_first_through_changes_of_the_graph() {
    for (name, policy) in [("port-changed", AT_PORT), ("nf-changed", GRAPH)] {
        let mut graph = start(name, policy);
        // Who has to know whose they are was not there when their first came; or was another.
        for options in ["--isolate none\n", THREE, "--isolate each\n--instances mon=2\n"] {
            becomes(&mut graph, options);
        }
        let finished = finish(graph, name);
        assert_eq!(finished.number("/balance/lost"), 0);
    }
}
