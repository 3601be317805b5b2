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

/// Two sources, and so two that divide packets.
const TWO: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
FlowMonitor mon { top: 100 };
pipelet { lan -> mon;  wan -> mon;  mon -> out; }";

/// More than is read in fifteen seconds: the test says when it is enough.
const PACKETS: u64 = 250_000;

/// A run whose flows can be moved.
struct Moving {
    run: Run,
    scratch: Scratch,
    socket: PathBuf,
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
        Moving { run, scratch, socket }
    }

    /// On a capture of numbered packets, `input`.
    fn on_capture(name: &str, input: &Path, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("moves-{name}"));
        let rx = format!("0=pcap:rx={}", input.display());
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        let own = ["--bind", &rx, "--bind", &tx, "--instances", "mon=3"];
        let moving = Self::start_in(scratch, CHAIN, &[&own, args].concat());
        wait_until("the socket", PATIENCE, || moving.socket.exists());
        moving
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

    /// How many flows each instance has.
    fn counts(&self) -> Vec<u64> {
        let said = self.ask(&["get", "flows", "--nf", "mon"]);
        counted(&said).unwrap_or_else(|| panic!("not all answered: {said:?}"))
    }

    /// Waits until that `is` so; who cannot be asked just now is asked again.
    fn wait_for_counts(&self, what: &str, is: impl Fn(&[u64]) -> bool) {
        let mut last = None;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let said = self.ask(&["get", "flows", "--nf", "mon"]);
            if counted(&said).is_some_and(|counts| is(&counts)) {
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
    let nodes = finished.report["nodes"].as_array().unwrap();
    &nodes.iter().find(|node| node["name"] == "mon").unwrap()["report"]
}

#[test]
fn flows_of_a_capture_are_moved_under_load_and_none_is_lost_reordered_or_begun_anew() {
    let input = Scratch::new("moves-in");
    write_capture(&input.file("in.pcap"), PACKETS);
    let moving = Moving::on_capture("capture", &input.file("in.pcap"), &[]);
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
    assert_eq!(rows.len(), 1, "{listed}");
    assert_eq!(rows[0]["keys"][0][1], "10.0.0.2:6002");
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
    let input = Scratch::new("moves-in-changed");
    write_capture(&input.file("in.pcap"), PACKETS);
    let mut moving = Moving::on_capture("changed", &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let flows = u64::from(FLOWS);
    // Buckets, and flows by themselves.
    moving.moves(&["--all", "--to", "2"]);
    moving.moves(&["dst port 6001 or 6003", "--to", "3"]);
    for policy in [LONGER, CHAIN] {
        moving.relink(policy);
        moving.wait_for_traffic();
        assert_eq!(moving.counts(), [0, flows - 2, 2]);
    }
    // They can be moved on from where they are.
    moving.moves(&["dst port 6003", "--to", "2"]);
    moving.relink(LONGER);
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
fn killed_at_each_step(worker: &str, steps: &[Step]) {
    let input = Scratch::new(&format!("moves-in-{}", worker.replace([':', '#'], "")));
    write_capture(&input.file("in.pcap"), PACKETS);
    for step in steps {
        for nth in 1..=2 {
            let fault = format!("{worker}:{}:{nth}", *step as u32);
            let name = format!("{}-{}-{nth}", worker.replace([':', '#'], ""), *step as u32);
            let moving = Moving::on_capture(&name, &input.file("in.pcap"), &["--fault", &fault]);
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
                assert_eq!(monitor(&finished)["flows"], FLOWS, "{fault}");
            }
            let missing = finished.number("/balance/in") - numbers.len() as u64;
            assert_eq!(missing, finished.number("/balance/lost"), "{fault}");
        }
    }
}

#[test]
fn an_instance_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step("mon#1", &[Step::LetterTaken, Step::LetterSent, Step::MarkTaken]);
}

#[test]
fn a_director_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step("rx:lan", &[Step::LetterTaken, Step::LetterSent, Step::MarkSent]);
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

/// Flows of the first source come again and again; the second has two hundred new ones each second.
#[test]
fn flows_stay_where_they_are_when_instances_come_and_go_and_new_ones_divide_anew() {
    const OLD: u64 = 500;
    const NEW: u64 = 2000;
    let scratch = Scratch::new("moves-instances");
    let options = scratch.file("options");
    let file = options.display().to_string();
    let instances =
        |asked: &str| std::fs::write(&options, format!("--instances {asked}\n")).unwrap();
    instances("mon=2");
    let (first, second) = (
        format!("0=gen:size=64,flows={OLD},rate=5000,seed=1"),
        format!("1=gen:size=64,flows={NEW},rate=200,seed=2"),
    );
    let args = ["--bind", &first, "--bind", &second, "--bind", "2=null", "--options", &file];
    let mut moving = Moving::start_in(scratch, TWO, &args);
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("old flows to be there", |counts| counts.iter().sum::<u64>() > OLD + 50);
    let before = moving.counts();
    assert!(before.len() == 2 && before.iter().all(|n| *n > 200), "{before:?}");
    instances("mon=3");
    moving.relink(TWO);
    // Whatever flow there was is still there; the new instance has new ones only.
    let after = moving.counts();
    assert!(
        after[0] >= before[0] && after[1] >= before[1] && after[2] < 100,
        "{before:?} {after:?}"
    );
    moving.wait_for_counts("new flows at the new instance", |counts| counts[2] > 20);
    // One goes: what it has the last that is left has, and keeps.
    instances("mon=2");
    moving.relink(TWO);
    let left = moving.counts();
    assert_eq!(left.len(), 2, "{left:?}");
    instances("mon=1:3");
    moving.relink(TWO);
    let weighted = moving.counts();
    assert!(weighted[0] >= left[0] && weighted[1] >= left[1], "{left:?} {weighted:?}");
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("instances");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
    let stayed = |n: usize| finished.number(&format!("/relinks/{n}/stayed"));
    assert!(stayed(0) > 100 && stayed(1) > 0 && stayed(2) > 0, "{:#}", finished.report["relinks"]);
    let nodes = finished.report["nodes"].as_array().unwrap();
    let came =
        nodes.iter().find(|node| node["name"] == "rx:wan").unwrap()["packets"].as_u64().unwrap();
    assert_eq!(monitor(&finished)["flows"], OLD + came.min(NEW), "a flow began anew");
}
