//! A running NF is replaced by a newer version of its program: what it knows of flows goes over, converted where the
//! form is another, or the running version stays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_outside::{copy_program, hostile};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// More than in half a minute: the test says when it is enough.
const PACKETS: u64 = 600_000;

const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
Tally tally;  Busy slow { cycles: 160000 };
pipelet { lan -> tally -> slow -> wan; }";

/// A run with a program whose file can be replaced.
struct Updated {
    run: Run,
    scratch: Scratch,
}

impl Updated {
    fn start(name: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("update-{name}"));
        let policy = scratch.policy(CHAIN);
        write_capture(&scratch.file("in.pcap"), PACKETS);
        let program = install(1, &scratch);
        let rx = format!("0=pcap:rx={}", scratch.file("in.pcap").display());
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        let program = program.display().to_string();
        let own = ["--bind", &rx, "--bind", &tx, "--with", &program];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        let mut weir = std::process::Command::new("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let updated =
            Updated { run: Run::start_by(weir, &policy, &[&own, args].concat()), scratch };
        updated.wait_for_traffic();
        updated
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    fn wait_for_traffic(&self) {
        let before = written(&self.out());
        wait_until("packets to flow", PATIENCE, || written(&self.out()) > before + 64 * RECORD);
    }

    /// Replaces the program by that of a `version`.
    fn install(&self, version: u32) {
        install(version, &self.scratch);
    }

    /// What is said of the replacement.
    fn outcome(&mut self) -> String {
        let told = |l: &str| l.contains("relinked");
        let line = self.run.wait_for_line("a word on the relink", told).1;
        self.wait_for_traffic();
        line
    }

    /// Ends the input. Nothing is lost: all packets are there, in order. How many came, and what `Tally` has to say.
    fn finish_whole(self) -> (u64, Value) {
        self.run.signal(Signal::INT);
        let (out, finished) = (self.out(), self.run.finish());
        finished.assert_sound("updated");
        assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
        let numbers = read_capture(&out, number);
        assert_in_order(&numbers, "output");
        let came = finished.number("/balance/in");
        assert_eq!(numbers.len() as u64, came, "some are missing");
        drop(self.scratch);
        let nodes = finished.report["nodes"].as_array().unwrap();
        let tally = nodes.iter().find(|node| node["name"] == "tally").unwrap();
        (came, tally["report"].clone())
    }
}

/// Puts the program of a `version` where it is run from, as `mv` does: a file that runs cannot be written.
fn install(version: u32, scratch: &Scratch) -> PathBuf {
    let (new, program) = (scratch.file("tally.new"), scratch.file("tally"));
    copy_program(hostile(&format!("tally-{version}")), &new);
    std::fs::rename(&new, &program).unwrap();
    program
}

fn written(out: &Path) -> u64 {
    std::fs::metadata(out).map_or(0, |m| m.len())
}

#[test]
fn a_newer_version_goes_on_from_what_the_older_one_knew_at_full_load() {
    for isolate in ["each", "none"] {
        let mut graph = Updated::start(isolate, &["--isolate", isolate]);
        graph.install(2);
        graph.run.signal(Signal::HUP);
        let line = graph.outcome();
        assert!(line.contains(": relinked in "), "{line}");
        let (came, tally) = graph.finish_whole();
        assert_eq!(tally["version"], 2, "{tally}");
        assert_eq!(tally["flows"], FLOWS, "flows began anew: {tally}");
        let most = (tally["most"][0].as_u64().unwrap(), tally["most"][1].as_u64().unwrap());
        // By chance not all flows have as many packets; of one that began anew less than a share is counted.
        assert!(most.0 >= came / u64::from(FLOWS), "{tally}");
        // Bytes it counts since it is there.
        assert!(most.1 > 0, "{tally}");
    }
}

#[test]
fn flows_of_a_programs_nf_move_between_its_instances_and_outlive_them_and_its_version() {
    let scratch = Scratch::new("update-control");
    let socket = scratch.file("control");
    let path = socket.display().to_string();
    let args = ["--isolate", "each", "--instances", "tally=2", "--control", &path];
    let more = ["--replicate", "tally=batch", "--restart-delay", "0"];
    let mut graph = Updated::start("moves", &[&args[..], &more].concat());
    move_flows(&socket, "tally", &["--all"], 1);
    let all = move_flows(&socket, "tally", &["--all"], 2);
    assert_eq!(all, u64::from(FLOWS));
    let some = move_flows(&socket, "tally", &["udp dst port 6003"], 1);
    assert_eq!(some, 1);
    for instance in ["tally#2", "tally#1"] {
        rustix::process::kill_process(graph.run.workers()[instance], Signal::KILL).unwrap();
        let again = format!("worker {instance} runs again after ");
        graph.run.wait_for_line("the successor", |line| line.contains(&again));
        graph.wait_for_traffic();
    }
    assert_eq!(move_flows(&socket, "tally", &["--all"], 1), all - some);
    graph.install(2);
    graph.run.signal(Signal::HUP);
    let line = graph.outcome();
    assert!(line.contains(": relinked in "), "{line}");
    assert_eq!(move_flows(&socket, "tally", &["--all"], 2), all);
    graph.wait_for_traffic();
    graph.run.signal(Signal::INT);
    let (out, finished) = (graph.out(), graph.run.finish());
    finished.assert_sound("moved");
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "output");
    let nodes = finished.report["nodes"].as_array().unwrap();
    let tally = nodes.iter().find(|node| node["name"] == "tally").unwrap();
    // Of each instance what it says: weir has not the code that could make one of them.
    let reports = tally["report"].as_array().unwrap();
    let sum = |what: &str| reports.iter().map(|one| one[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((reports.len() as u64, sum("flows")), (2, all), "flows began anew: {tally:#}");
    let most = reports.iter().map(|one| one["most"][0].as_u64().unwrap()).max().unwrap();
    assert!(most >= numbers.len() as u64 / u64::from(FLOWS), "{tally:#}");
}

#[test]
fn a_version_that_cannot_read_what_is_known_is_refused_and_the_running_one_stays() {
    let mut graph = Updated::start("refused", &["--isolate", "each", "--watch"]);
    graph.install(3);
    let line = graph.outcome();
    let why = "the flows of tally: it is of version 1; this is version 3";
    assert!(line.contains("not relinked") && line.contains(why), "{line}");
    // One step after the other it can be.
    graph.install(2);
    let line = graph.outcome();
    assert!(line.contains(": relinked in "), "{line}");
    let (_, tally) = graph.finish_whole();
    assert_eq!((&tally["version"], &tally["flows"]), (&2.into(), &FLOWS.into()));
}

#[test]
fn a_program_that_is_none_is_refused_and_the_running_one_stays() {
    let mut graph = Updated::start("none", &["--isolate", "each"]);
    std::fs::remove_file(graph.scratch.file("tally")).unwrap();
    graph.run.signal(Signal::HUP);
    let line = graph.outcome();
    assert!(line.contains("not relinked"), "{line}");
    let said = |run: &Run| run.said.iter().any(|line| line.contains("tally: "));
    assert!(said(&graph.run), "{:?}", graph.run.said);
    let (_, tally) = graph.finish_whole();
    assert_eq!((&tally["version"], &tally["flows"]), (&1.into(), &FLOWS.into()));
}
