//! A graph whose NFs remember many flows is changed while packets of all of them come: flows are copied ahead, whoever
//! dies of it, and none begins anew.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_relink::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Flows: of so many a worker copies some at a time.
const MANY: u16 = 20_000;

/// The first packet of each flow leaves by a port of its own: the monitor counts them, and who has forgotten a flow begins with one.
const MONITOR: &str = "
Port<0> lan;  Port<1> wan;  Port<2> first;
MacSwap head;  FlowMonitor mon;  ConnTrack fw { default: \"pass\" };  Busy slow { cycles: 160000 };
pipelet { lan -> head -> fw -> mon -> slow;  slow [mon.packets == 1] -> first;  slow [!(mon.packets == 1)] -> wan; }";

/// All begin, and then go on in any order.
fn flow_of_many(number: u64) -> u16 {
    match number < MANY.into() {
        true => number as u16,
        false => Choices(number).below(MANY.into()) as u16,
    }
}

struct Many {
    graph: Changing,
    first: std::path::PathBuf,
}

impl Many {
    fn start(name: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("relink-flows-{name}"));
        let frames = (0..PACKETS).map(|number| frame(number, flow_of_many(number)));
        write_frames(&scratch.file("in.pcap"), frames);
        let rx = format!("pcap:rx={}", scratch.file("in.pcap").display());
        let first = scratch.file("first.pcap");
        let other = format!("2=pcap:tx={}", first.display());
        let args = [&["--bind", other.as_str()], args].concat();
        let graph = Changing::start_on(scratch, Command::new("env"), &rx, MONITOR, &args);
        graph.wait_for_traffic();
        // A disk that is busy may keep the test waiting for seconds, so packets are slow and the capture lasts for half a minute.
        wait_until("all flows to begin", PATIENCE, || written(&first) > u64::from(MANY) * RECORD);
        Many { graph, first }
    }

    /// Changes it; what was said of it.
    fn becomes(&mut self, isolate: &str) -> String {
        self.graph.isolate(isolate);
        let said = self.graph.reload();
        self.graph.wait_for_traffic();
        said
    }

    /// Changes it, which goes through.
    fn changes_to(&mut self, isolate: &str) {
        let said = self.becomes(isolate);
        assert!(said.contains(": relinked in "), "{isolate}: {said}");
    }

    /// Kills the worker that has both instances of the monitor, and waits for its successor; its name.
    fn kill_both(&mut self) -> String {
        let mut workers = self.graph.run.workers().into_iter();
        let (name, pid) = workers.find(|(name, _)| name.contains("mon#1+mon#2")).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let again = format!("worker {name} runs again");
        self.graph.run.wait_for_line("the successor", |line| line.contains(&again));
        self.graph.wait_for_traffic();
        name
    }

    /// Ends it. Nothing is missing that was not counted, flows are in order; by flow, which of its packets were taken for its first.
    fn finish(self) -> (Finished, BTreeMap<u16, Vec<u64>>, BTreeMap<u16, u64>) {
        let (first, graph) = (self.first, self.graph);
        graph.run.signal(Signal::INT);
        let (out, finished) = (graph.out(), graph.run.finish());
        finished.assert_sound("many flows");
        let read = |bytes: &[u8]| {
            let number = u64::from_be_bytes(bytes[42..50].try_into().unwrap());
            let flow = flow_of_many(number);
            // Ethernet addresses aside, which are swapped.
            assert_eq!(bytes[12..], frame(number, flow)[12..], "packet {number}");
            (flow, number)
        };
        let (mut firsts, mut least) = (BTreeMap::<u16, Vec<u64>>::new(), BTreeMap::new());
        let (first, rest) = (read_capture(&first, read), read_capture(&out, read));
        let numbers: Vec<_> = rest.iter().map(|(_, number)| *number).collect();
        assert_in_order(&numbers, "output");
        for (flow, number) in first.iter().chain(&rest) {
            let least = least.entry(*flow).or_insert(*number);
            *least = (*least).min(*number);
        }
        for (flow, number) in &first {
            firsts.entry(*flow).or_default().push(*number);
        }
        let n = |key: &str| finished.number(&format!("/balance/{key}"));
        assert_eq!((first.len() + rest.len()) as u64 + n("lost"), n("in"), "some are missing");
        drop(graph.scratch);
        (finished, firsts, least)
    }

    /// The same; and no flow began anew.
    fn finish_remembered(self) -> Finished {
        let (finished, firsts, least) = self.finish();
        let anew = firsts.iter().filter(|(flow, first)| **first != [least[*flow]]);
        let anew: Vec<_> = anew.take(5).collect();
        assert!(anew.is_empty(), "began anew: {anew:?} ...");
        assert_eq!(firsts.len(), least.len());
        finished
    }
}

/// Flows that were copied before the pauses.
fn copied(finished: &Finished) -> Vec<u64> {
    let relinks = finished.report["relinks"].as_array().unwrap();
    relinks.iter().map(|relink| relink["copied"].as_u64().unwrap()).collect()
}

#[test]
fn flows_go_over_while_their_packets_come_and_none_begins_anew() {
    let mut many = Many::start("plain", &[]);
    // Two NFs that remember, of one worker into two and back.
    for how in ["none", "each", "none", "each"] {
        many.changes_to(how);
    }
    let finished = many.finish_remembered();
    assert_eq!(finished.number("/balance/lost"), 0);
    let copied = copied(&finished);
    assert_eq!(copied.len(), 4);
    assert!(copied.iter().all(|copied| *copied >= 2 * u64::from(MANY)), "{copied:?}");
}

#[test]
fn what_several_instances_remember_is_copied_to_those_of_the_same_place() {
    let mut many = Many::start("instances", &[]);
    for how in ["each\n--instances mon=2", "each\n--instances mon=2:1", "each"] {
        many.changes_to(how);
    }
    let finished = many.finish_remembered();
    assert_eq!(finished.number("/balance/lost"), 0);
    let copied = copied(&finished);
    assert_eq!(copied.len(), 3);
    // Of two instances that become one, those of the first; and the firewall's.
    assert!(copied[1..].iter().all(|copied| *copied >= u64::from(MANY)), "{copied:?}");
}

#[test]
fn instances_that_share_a_worker_go_over_each_with_its_own() {
    let scratch = Scratch::new("relink-one-worker");
    let socket = scratch.file("control");
    let args = ["--instances", "mon=2", "--control", socket.to_str().unwrap()];
    let mut many = Many::start("one-worker", &args);
    for how in ["none", "none", "each", "none"] {
        many.changes_to(how);
        // Whoever asks is told of each by its number.
        let flows = ["get", "flows", "--nf", "mon"];
        for (ask, list) in [(&flows[..], "/flows/counts"), (&["get", "load", "mon"], "/load")] {
            let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
            weir.args(ask).args(["--json", "--control"]).arg(&socket);
            let said = weir.output().unwrap();
            let told: Value = serde_json::from_slice(&said.stdout).unwrap();
            let rows =
                told.pointer(list).and_then(Value::as_array).unwrap_or_else(|| panic!("{told:#}"));
            let numbers: Vec<_> = rows.iter().map(|row| row["instance"].as_u64()).collect();
            assert_eq!(numbers, [Some(1), Some(2)], "{how}: {told:#}");
        }
    }
    let finished = many.finish_remembered();
    assert_eq!(finished.number("/balance/lost"), 0);
    let copied = copied(&finished);
    assert_eq!(copied.len(), 4);
    assert!(copied.iter().all(|copied| *copied >= 2 * u64::from(MANY)), "{copied:?}");
}

/// What is not of flows is kept without replicas. Each has what it had, so none has counted more packets than have come to it.
#[test]
fn what_several_instances_in_one_worker_have_counted_is_kept_for_each() {
    let mut many = Many::start("one-worker-counts", &["--instances", "mon=2"]);
    many.changes_to("none");
    let name = many.kill_both();
    many.changes_to("none");
    let (finished, ..) = many.finish();
    let node = node(&finished, "mon");
    let rows = node["instances"].as_array().unwrap();
    let of_worker = rows.iter().filter(|row| row["worker"] == name.as_str());
    let numbers: Vec<_> = of_worker.map(|row| row["instance"].as_u64()).collect();
    assert_eq!(numbers, [Some(1), Some(2)], "{node:#}");
    for number in 1..=2 {
        let own = rows.iter().filter(|row| row["instance"] == number);
        let came: u64 = own.clone().map(|row| row["packets"].as_u64().unwrap()).sum();
        let counted: u64 = own.filter_map(|row| row["report"]["packets"].as_u64()).sum();
        assert!(counted > 0 && counted <= came, "{number}: {counted} of {came}: {node:#}");
    }
}

#[test]
fn what_each_of_several_instances_in_one_worker_remembers_outlives_it() {
    let args = ["--instances", "mon=2", "--replicate", "mon=batch", "--replicate", "fw=batch"];
    let mut many = Many::start("one-worker-dies", &args);
    many.changes_to("none");
    many.kill_both();
    many.changes_to("each");
    let finished = many.finish_remembered();
    assert!(finished.number("/balance/lost") <= GROUP, "{:#}", finished.report);
}

#[test]
fn a_change_that_would_part_flows_from_their_packets_is_refused_with_a_way_out() {
    let mut many = Many::start("parted", &[]);
    let said = many.becomes("each\n--instances mon=2\n--instances fw=2");
    assert!(said.contains("not relinked: "), "{said}");
    assert!(said.contains(" would be parted from their packets"), "{said}");
    assert!(said.contains("--instances fw+mon=N"), "{said}");
    // Where they come as they were divided for another NF, which remembers nothing.
    let said =
        many.becomes("each\n--instances head=2,symmetric\n--instances fw=2\n--instances mon=2");
    assert!(said.contains("not relinked: "), "{said}");
    // All in one worker, where nothing leads to the instances but what is in it itself.
    let said = many.becomes("none\n--instances mon=2");
    assert!(said.contains("cannot move: instances of mon share a worker"), "{said}");
    many.changes_to("each\n--instances fw+mon=2");
    let finished = many.finish_remembered();
    assert_eq!(finished.number("/balance/lost"), 0);
}

#[test]
fn what_was_copied_ahead_is_replicated_before_the_first_packet() {
    let mut many = Many::start("replicated", &["--replicate", "mon=batch"]);
    for how in ["none", "each", "none"] {
        many.changes_to(how);
        let (_, mon) =
            many.graph.run.workers().into_iter().find(|(name, _)| name.contains("mon")).unwrap();
        kill_process(mon, Signal::KILL).unwrap();
        many.graph.run.wait_for_line("the death", |line| line.contains(" died"));
        many.graph.wait_for_traffic();
    }
    many.finish_remembered();
}

#[cfg(feature = "faults")]
mod deaths {
    use super::*;
    use weir_mem::fault::Step;

    #[test]
    fn who_dies_of_taking_copies_leaves_the_graph_as_it_was_and_the_next_change_copies_anew() {
        for nth in [1, 3] {
            let fault = format!("2:mon:{}:{nth}", Step::CopyTaken as u32);
            let mut many = Many::start("taken", &["--later-fault", &fault]);
            for _ in 0..2 {
                let said = many.becomes("each");
                assert!(
                    said.contains("not relinked") && said.contains("died before it began"),
                    "{said}"
                );
            }
            // Of this one nobody dies.
            let said = many.becomes("none");
            assert!(said.contains(": relinked in "), "{said}");
            let finished = many.finish_remembered();
            assert_eq!(finished.number("/balance/lost"), 0);
        }
    }

    #[test]
    fn who_dies_of_copying_is_mended_and_what_it_has_then_is_copied() {
        for nth in [1, 2, 4] {
            let fault = format!("mon:{}:{nth}", Step::Precopied as u32);
            let mut many = Many::start("copied", &["--fault", &fault]);
            let said = many.becomes("none");
            assert!(said.contains(": relinked in "), "{said}");
            let (finished, ..) = many.finish();
            assert_eq!((finished.restarts()["mon"], relinks(&finished)), (1, 1));
            assert!(finished.number("/balance/lost") <= GROUP, "{:#}", finished.report["balance"]);
        }
    }
}
