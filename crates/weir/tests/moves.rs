//! Flows that go from one instance of an NF to another while packets come: none lost, none reordered within its flow, none
//! begun anew, whoever dies at whatever step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;

use common_crash::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_mem::fault::Step;

/// A capture through an NF of several instances, slowly enough that flows can be moved meanwhile.
const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> slow -> wan; }";

/// The same with one NF more behind it.
const LONGER: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  MacSwap more;  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> more -> slow -> wan; }";

/// Three NFs that remember flows, fused: replicas of one segment.
const FUSED: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  ConnTrack fw { default: \"pass\", invalid: \"pass\", pickup: true };
FlowMonitor again { top: 100 };  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> fw -> again -> slow -> wan; }";

/// The same with one NF more behind them.
const FUSED_LONGER: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  ConnTrack fw { default: \"pass\", invalid: \"pass\", pickup: true };
FlowMonitor again { top: 100 };  MacSwap more;  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> fw -> again -> more -> slow -> wan; }";

/// Packets from two sources, which come to the segment's replicas by different NFs.
const TWO_ENTRIES: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
FlowMonitor mon { top: 100 };  FlowMonitor both { top: 100 };
pipelet { lan -> mon -> both;  wan -> both;  both -> out; }";

/// Two sources, and so two that divide packets.
const TWO: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
FlowMonitor mon { top: 100 };
pipelet { lan -> mon;  wan -> mon;  mon -> out; }";

/// More than is read in fifteen seconds: the test says when it is enough.
const PACKETS: u64 = 250_000;

/// What moves.
struct Kind {
    policy: &'static str,
    longer: &'static str,
    /// `--instances`.
    instances: &'static str,
    /// The worker of the first instance.
    first: &'static str,
    /// The NFs that remember flows; the first is a FlowMonitor.
    nfs: &'static [&'static str],
}

/// One NF.
const ALONE: Kind = Kind {
    policy: CHAIN,
    longer: LONGER,
    instances: "mon=3",
    first: "mon#1",
    nfs: &["mon"],
};

/// Three, replicas of a segment.
const TOGETHER: Kind = Kind {
    policy: FUSED,
    longer: FUSED_LONGER,
    instances: "mon+fw+again=3",
    first: "mon#1+fw#1+again#1",
    nfs: &["mon", "fw", "again"],
};

/// A run whose flows can be moved.
struct Moving {
    run: Run,
    scratch: Scratch,
    socket: PathBuf,
    nfs: &'static [&'static str],
}

/// What a command said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: Value,
    error: String,
}

impl Moving {
    fn start(name: &str, policy: &str, args: &[&str]) -> Self {
        Self::start_in(Scratch::new(&format!("moves-{name}")), policy, args)
    }

    fn start_in(scratch: Scratch, policy: &str, args: &[&str]) -> Self {
        let policy = scratch.policy(policy);
        let socket = scratch.file("control");
        let path = socket.display().to_string();
        let own = ["--control", &path, "--isolate", "each", "--restart-delay", "0"];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        let mut weir = Command::new("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let run = Run::start_by(weir, &policy, &[&own, args].concat());
        Moving { run, scratch, socket, nfs: ALONE.nfs }
    }

    /// On a capture of numbered packets, `input`.
    fn on_capture(kind: &Kind, name: &str, input: &Path, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("moves-{name}"));
        let rx = format!("0=pcap:rx={}", input.display());
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        let own = ["--bind", &rx, "--bind", &tx, "--instances", kind.instances];
        let moving = Self::start_in(scratch, kind.policy, &[&own, args].concat());
        wait_until("the socket", PATIENCE, || moving.socket.exists());
        Moving { nfs: kind.nfs, ..moving }
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    fn wait_for_traffic(&self) {
        let written = || std::fs::metadata(self.out()).map_or(0, |m| m.len());
        let before = written();
        wait_until("packets to flow", PATIENCE, || written() > before + 256 * RECORD);
    }

    /// Makes the running graph this one.
    fn relink(&mut self, policy: &str) {
        self.scratch.policy(policy);
        self.run.signal(Signal::HUP);
        let told = |line: &str| line.contains("relinked");
        let (_, line) = self.run.wait_for_line("a word on the relink", told);
        assert!(line.contains(": relinked in "), "{line}");
    }

    fn ask(&self, args: &[&str]) -> Said {
        weir(&self.socket, args)
    }

    /// Moves flows; how many.
    fn moves(&self, args: &[&str]) -> u64 {
        let said = self.ask(&[&["flow", "move", "mon"], args].concat());
        assert_eq!(said.code, Some(0), "{args:?}: {} {}", said.out, said.error);
        said.out["moved"]["flows"].as_u64().unwrap()
    }

    /// How many flows each instance has: of each NF as many.
    fn counts(&self) -> Vec<u64> {
        let of = |nf: &&str| {
            let said = self.ask(&["get", "flows", "--nf", nf]);
            counted(&said).unwrap_or_else(|| panic!("not all answered: {said:?}"))
        };
        let all: Vec<Vec<u64>> = self.nfs.iter().map(of).collect();
        assert!(all.iter().all(|counts| *counts == all[0]), "{:?}: {all:?}", self.nfs);
        all[0].clone()
    }

    /// Waits until that `is` so; who cannot be asked just now is asked again.
    fn wait_for_counts(&self, what: &str, is: impl Fn(&[u64]) -> bool) {
        let mut last = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let said: Vec<Said> =
                self.nfs.iter().map(|nf| self.ask(&["get", "flows", "--nf", nf])).collect();
            if said.iter().all(|said| counted(said).is_some_and(|counts| is(&counts))) {
                return;
            }
            last = Some(said);
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited in vain for {what}: {last:?}");
    }
}

/// The flows of each instance, of an answer that lacks none.
fn counted(said: &Said) -> Option<Vec<u64>> {
    let counts = said.out["flows"]["counts"].as_array().filter(|_| said.code == Some(0))?;
    counts.iter().map(|count| count["flows"].as_u64()).collect()
}

fn weir(socket: &Path, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(args).arg("--json").arg("--control").arg(socket).output().unwrap();
    Said {
        code: output.status.code(),
        out: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn monitor(finished: &Finished) -> &Value {
    monitor_of(finished, "mon")
}

fn monitor_of<'f>(finished: &'f Finished, nf: &str) -> &'f Value {
    let nodes = finished.report["nodes"].as_array().unwrap();
    &nodes.iter().find(|node| node["name"] == nf).unwrap()["report"]
}

#[test]
fn flows_of_a_capture_are_moved_under_load_and_none_is_lost_reordered_or_begun_anew() {
    moved_under_load(&ALONE, "capture");
}

#[test]
fn flows_of_a_segments_replicas_move_with_what_all_its_nfs_remember() {
    moved_under_load(&TOGETHER, "capture-fused");
}

fn moved_under_load(kind: &Kind, name: &str) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let flows = u64::from(FLOWS);
    // All to one, some back by a filter, a share, and all to another.
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [flows, 0, 0]);
    moving.wait_for_traffic();
    assert_eq!(moving.moves(&["dst port 6001 or 6003", "--to", "3"]), 2);
    assert_eq!(moving.counts(), [flows - 2, 0, 2]);
    moving.wait_for_traffic();
    assert_eq!(moving.moves(&["--all", "--to", "2"]), flows);
    assert_eq!(moving.counts(), [0, flows, 0]);
    moving.wait_for_traffic();
    for round in 0..8 {
        moving.moves(&["--share", "50", "--to", ["1", "2", "3"][round % 3]]);
    }
    moving.wait_for_traffic();
    assert_eq!(moving.counts().iter().sum::<u64>(), flows);
    let listed = moving.ask(&["get", "flows", "port 6002"]).out;
    let rows = listed["flows"]["flows"].as_array().unwrap();
    assert_eq!(rows.len(), kind.nfs.len(), "{listed}");
    for row in rows {
        assert_eq!(row["keys"][0][1], "10.0.0.2:6002");
        assert_eq!(row["instance"], rows[0]["instance"], "a flow is in two places: {listed}");
    }
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound("moved");
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "output");
    assert_eq!(numbers.len() as u64, finished.number("/balance/in"), "some are missing");
    let monitor = monitor(&finished);
    assert_eq!(monitor["packets"], numbers.len());
    assert_eq!(monitor["flows"], FLOWS, "a flow began anew: {monitor:#}");
}

#[test]
fn a_thousand_flows_from_two_sources_are_moved_back_and_forth() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon=3"];
    let moving = Moving::start("thousand", TWO, &[&sources[..], &args].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 1000);
    for to in ["1", "2", "3", "1"] {
        moving.moves(&["--all", "--to", to]);
        let mut wanted = vec![0; 3];
        wanted[to.parse::<usize>().unwrap() - 1] = 1000;
        assert_eq!(moving.counts(), wanted);
    }
    assert_eq!(moving.moves(&["udp", "--to", "2"]), 1000);
    moving.moves(&["--share", "30", "--to", "3"]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("moved");
    assert_eq!(finished.number("/balance/lost"), 0);
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"], 1000, "flows began anew");
    assert_eq!(monitor["packets"].as_u64(), Some(finished.number("/balance/in")));
}

#[test]
fn a_graph_is_changed_and_moved_flows_stay_where_they_are_and_go_on() {
    changed(&ALONE, "changed");
}

#[test]
fn a_graph_is_changed_and_moved_flows_of_a_segments_replicas_stay_together() {
    changed(&TOGETHER, "changed-fused");
}

fn changed(kind: &Kind, name: &str) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let mut moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let flows = u64::from(FLOWS);
    // Buckets, and flows by themselves.
    moving.moves(&["--all", "--to", "2"]);
    moving.moves(&["dst port 6001 or 6003", "--to", "3"]);
    for policy in [kind.longer, kind.policy] {
        moving.relink(policy);
        moving.wait_for_traffic();
        assert_eq!(moving.counts(), [0, flows - 2, 2]);
    }
    // They can be moved on from where they are.
    moving.moves(&["dst port 6003", "--to", "2"]);
    moving.relink(kind.longer);
    moving.wait_for_traffic();
    assert_eq!(moving.counts(), [0, flows - 1, 1]);
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [flows, 0, 0]);
    moving.wait_for_traffic();
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound("changed");
    assert_eq!(finished.number("/balance/lost"), 0);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "output");
    assert_eq!(numbers.len() as u64, finished.number("/balance/in"), "some are missing");
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"], FLOWS, "a flow began anew: {monitor:#}");
    assert_eq!(monitor["packets"], numbers.len());
}

/// Many more flows than are looked at between two batches, or go in one migration.
#[test]
fn many_flows_are_listed_and_moved_in_small_steps_and_none_is_passed_over() {
    const MANY: u64 = 20_000;
    let gen_a = format!("0=gen:size=64,flows={},seed=1,rate=200000", MANY / 2);
    let gen_b = format!("1=gen:size=64,flows={},seed=2,rate=200000", MANY / 2);
    let args = ["--bind", &gen_a, "--bind", &gen_b, "--bind", "2=null", "--instances", "mon=3"];
    let moving = Moving::start("many", TWO, &args);
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == MANY);
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [MANY, 0, 0]);
    assert_eq!(moving.moves(&["--all", "--to", "3"]), MANY);
    assert_eq!(moving.counts(), [0, 0, MANY]);
    assert_eq!(moving.moves(&["udp", "--to", "2"]), MANY);
    assert_eq!(moving.counts(), [0, MANY, 0]);
    assert_eq!(moving.moves(&["--all", "--to", "1"]), MANY, "whose buckets are elsewhere too");
    assert_eq!(moving.counts(), [MANY, 0, 0]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("many");
    assert_eq!(finished.number("/balance/lost"), 0);
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"].as_u64(), Some(MANY), "flows began anew");
    assert_eq!(monitor["packets"].as_u64(), Some(finished.number("/balance/in")));
}

/// Kills `worker` at each of the steps of the protocol that it passes while flows are moved.
fn killed_at_each_step(kind: &Kind, worker: &str, steps: &[Step]) {
    let called = format!("{}{}", worker.replace([':', '#', '+'], ""), kind.nfs.len());
    let input = Scratch::new(&format!("moves-in-{called}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    for step in steps {
        for nth in 1..=2 {
            let fault = format!("{worker}:{}:{nth}", *step as u32);
            let name = format!("{called}-{}-{nth}", *step as u32);
            let args = ["--fault", &fault];
            let moving = Moving::on_capture(kind, &name, &input.file("in.pcap"), &args);
            moving.wait_for_traffic();
            // To the first and away from it: `mon#1` is target, then source. What cannot be done as somebody has
            // just died is tried again.
            for to in ["1", "2"] {
                wait_until("flows to be moved", PATIENCE, || {
                    let said = moving.ask(&["flow", "move", "mon", "--all", "--to", to]);
                    said.code == Some(0)
                });
                moving.wait_for_traffic();
            }
            moving.wait_for_counts("all flows to be where they belong", |counts| {
                counts == [0, u64::from(FLOWS), 0]
            });
            moving.run.signal(Signal::INT);
            let (out, finished) = (moving.out(), moving.run.finish());
            finished.assert_sound(&fault);
            let numbers = read_capture(&out, number);
            assert_in_order(&numbers, &format!("{fault}: {:#?}", finished.said));
            assert_eq!(finished.restarts().get(worker), Some(&1), "{fault}: nobody died of it");
            if worker.starts_with("rx:") {
                // It has no flows, so none begins anew.
                for nf in kind.nfs.iter().filter(|nf| **nf != "fw") {
                    assert_eq!(monitor_of(&finished, nf)["flows"], FLOWS, "{fault}: {nf}");
                }
            }
            let missing = finished.number("/balance/in") - numbers.len() as u64;
            assert_eq!(missing, finished.number("/balance/lost"), "{fault}");
        }
    }
}

const OF_INSTANCE: [Step; 3] = [Step::LetterTaken, Step::LetterSent, Step::MarkTaken];
const OF_DIRECTOR: [Step; 3] = [Step::LetterTaken, Step::LetterSent, Step::MarkSent];

#[test]
fn an_instance_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step(&ALONE, ALONE.first, &OF_INSTANCE);
}

#[test]
fn a_director_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step(&ALONE, "rx:lan", &OF_DIRECTOR);
}

#[test]
fn a_segments_replica_that_dies_at_any_step_leaves_each_flow_at_one_place_with_all_its_nfs() {
    killed_at_each_step(&TOGETHER, TOGETHER.first, &OF_INSTANCE);
}

#[test]
fn a_director_of_a_segments_replicas_that_dies_at_any_step_leaves_each_flow_at_one_place() {
    killed_at_each_step(&TOGETHER, "rx:lan", &OF_DIRECTOR);
}

/// Each source's packets are divided for another NF of the replicas: both who divide are asked, and a flow moves with both.
#[test]
fn flows_move_among_replicas_that_packets_come_to_by_several_nfs() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon+both=3"];
    let moving = Moving::start("entries", TWO_ENTRIES, &[&sources[..], &args].concat());
    let counts = |nf: &str| counted(&moving.ask(&["get", "flows", "--nf", nf]));
    let sum = |nf: &str| counts(nf).map_or(0, |counts| counts.iter().sum::<u64>());
    wait_until("all flows to be there", PATIENCE, || (sum("mon"), sum("both")) == (500, 1000));
    for (at, nf) in [(0, "mon"), (1, "both"), (2, "mon+both"), (0, "both")] {
        let to = (at + 1).to_string();
        let said = moving.ask(&["flow", "move", nf, "--all", "--to", &to]);
        assert_eq!(said.code, Some(0), "{nf}: {} {}", said.out, said.error);
        let all = |flows: u64| (0..3).map(|i| if i == at { flows } else { 0 }).collect::<Vec<_>>();
        assert_eq!((counts("mon"), counts("both")), (Some(all(500)), Some(all(1000))), "{nf}");
    }
    let said = moving.ask(&["flow", "move", "mon", "udp", "--to", "2"]);
    assert_eq!((said.code, &said.out["moved"]["flows"]), (Some(0), &1000.into()), "{said:?}");
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("moved");
    assert_eq!(finished.number("/balance/lost"), 0);
    for (nf, flows) in [("mon", 500), ("both", 1000)] {
        assert_eq!(monitor_of(&finished, nf)["flows"], flows, "flows of {nf} began anew");
    }
}

/// In workers of their own they would be at several places, and packets of one of them come undivided.
#[test]
fn nfs_behind_each_other_that_share_no_worker_are_refused_with_what_to_do() {
    let args = ["--bind", "0=gen:size=64,flows=4,rate=1000", "--bind", "1=gen:size=64,rate=1000"];
    let more = ["--bind", "2=null", "--instances", "mon=2", "--instances", "both=2"];
    let moving = Moving::start("apart", TWO_ENTRIES, &[&args[..], &more].concat());
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    for (nf, why) in [
        ("mon", "`--instances mon+both=N`"),
        ("both", "packets reach both from mon#1 besides"),
    ] {
        let said = moving.ask(&["flow", "move", nf, "--all", "--to", "1"]);
        assert_eq!(said.code, Some(2), "{nf}: {said:?}");
        assert!(said.error.contains(why), "{nf}: {}", said.error);
    }
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("apart");
}

/// Two who order at once: one after the other is done, the other is told so. Were both begun, instances would wait for each
/// other's flows.
#[test]
fn of_two_orders_at_once_one_waits_and_traffic_goes_on() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon=2"];
    let moving = Moving::start("opposite", TWO, &[&sources[..], &args].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 1000);
    let socket = &moving.socket;
    let order = |to: &str| {
        for share in ["50", "20", "70", "10", "90"] {
            wait_until("an order to be taken", PATIENCE, || {
                let said = weir(socket, &["flow", "move", "mon", "--share", share, "--to", to]);
                assert!(
                    said.code == Some(0) || said.error.contains("being moved already"),
                    "{} {}",
                    said.out,
                    said.error
                );
                said.code == Some(0)
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| order("1"));
        scope.spawn(|| order("2"));
    });
    assert_eq!(moving.counts().iter().sum::<u64>(), 1000);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("opposite");
    assert_eq!(finished.number("/balance/lost"), 0);
    assert_eq!(monitor(&finished)["flows"], 1000, "flows began anew");
}

/// The socket is there before the workers are: who asks then waits for them, and misses none.
#[test]
fn who_asks_as_soon_as_there_is_a_socket_is_answered_in_full() {
    for _ in 0..5 {
        let args =
            ["--bind", "0=gen:size=64,flows=4", "--bind", "1=gen:size=64", "--bind", "2=null"];
        let moving = Moving::start("soon", TWO, &[&args[..], &["--instances", "mon=3"]].concat());
        let begun = Instant::now();
        while !moving.socket.exists() && begun.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        assert_eq!(moving.counts().len(), 3);
        moving.run.signal(Signal::INT);
        moving.run.finish().assert_sound("soon");
    }
}

#[test]
fn what_cannot_be_moved_is_refused_with_why() {
    let policy = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon;  MacSwap swap;
pipelet { lan -> mon -> swap -> wan; }";
    let args = ["--bind", "0=gen:size=64,flows=4,rate=1000", "--bind", "1=null"];
    let more = ["--instances", "mon=2", "--instances", "swap=2"];
    let moving = Moving::start("refused", policy, &[&args[..], &more].concat());
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    for (args, why) in [
        (&["nobody", "udp", "--to", "1"][..], "there is no NF `nobody`"),
        (&["mon", "udp", "--to", "3"], "mon has no instance 3; it has 1 to 2"),
        (&["mon", "udp and", "--to", "1"], "filter `udp and`"),
        (&["mon", "ingress == 1", "--to", "1"], "no port that they came in by"),
        (&["swap", "--all", "--to", "1"], "swap"),
    ] {
        let said = moving.ask(&[&["flow", "move"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.error.contains(why), "{args:?}: {}", said.error);
    }
    let said = weir(&moving.scratch.file("none"), &["get", "flows"]);
    assert!(said.code == Some(1) && said.error.contains("does `weir run` run"), "{}", said.error);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("refused");
    assert!(!moving.socket.exists(), "the socket is left over");
}
