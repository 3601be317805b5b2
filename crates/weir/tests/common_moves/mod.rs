//! What the tests of moving flows share: a run whose flows can be moved, and what moves.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use crate::common_crash::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A capture through an NF of several instances, slowly enough that flows can be moved meanwhile.
pub const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> slow -> wan; }";

/// The same with one NF more behind it.
pub const LONGER: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  MacSwap more;  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> more -> slow -> wan; }";

/// Three NFs that remember flows, fused: replicas of one segment.
pub const FUSED: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  ConnTrack fw { default: \"pass\", invalid: \"pass\", pickup: true };
FlowMonitor again { top: 100 };  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> fw -> again -> slow -> wan; }";

/// The same with one NF more behind them.
pub const FUSED_LONGER: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  ConnTrack fw { default: \"pass\", invalid: \"pass\", pickup: true };
FlowMonitor again { top: 100 };  MacSwap more;  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> fw -> again -> more -> slow -> wan; }";

/// More than is read in fifteen seconds: the test says when it is enough.
pub const PACKETS: u64 = 250_000;

/// What moves.
pub struct Kind {
    pub policy: &'static str,
    pub longer: &'static str,
    /// `--instances`.
    pub instances: &'static str,
    /// The worker of the first instance.
    pub first: &'static str,
    /// The NFs that remember flows; the first is a FlowMonitor.
    pub nfs: &'static [&'static str],
}

/// One NF.
pub const ALONE: Kind =
    Kind { policy: CHAIN, longer: LONGER, instances: "mon=3", first: "mon#1", nfs: &["mon"] };

/// Three, replicas of a segment.
pub const TOGETHER: Kind = Kind {
    policy: FUSED,
    longer: FUSED_LONGER,
    instances: "mon+fw+again=3",
    first: "mon#1+fw#1+again#1",
    nfs: &["mon", "fw", "again"],
};

/// A run whose flows can be moved.
pub struct Moving {
    pub run: Run,
    pub scratch: Scratch,
    pub socket: PathBuf,
    pub nfs: &'static [&'static str],
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: Value,
    pub error: String,
}

impl Moving {
    pub fn start(name: &str, policy: &str, args: &[&str]) -> Self {
        Self::start_in(Scratch::new(&format!("moves-{name}")), policy, args)
    }

    pub fn start_in(scratch: Scratch, policy: &str, args: &[&str]) -> Self {
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
    pub fn on_capture(kind: &Kind, name: &str, input: &Path, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("moves-{name}"));
        let rx = format!("0=pcap:rx={}", input.display());
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        // Every migration waits for a ring full of packets, and each takes its time here.
        let ring: &[&str] = if args.contains(&"--ring") { &[] } else { &["--ring", "128"] };
        let own = ["--bind", &rx, "--bind", &tx, "--instances", kind.instances];
        let own = [&own[..], ring].concat();
        let moving = Self::start_in(scratch, kind.policy, &[&own, args].concat());
        wait_until("the socket", PATIENCE, || moving.socket.exists());
        Moving { nfs: kind.nfs, ..moving }
    }

    pub fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    pub fn wait_for_traffic(&self) {
        let written = || std::fs::metadata(self.out()).map_or(0, |m| m.len());
        let before = written();
        wait_until("packets to flow", PATIENCE, || written() > before + 256 * RECORD);
    }

    /// Makes the running graph this one.
    pub fn relink(&mut self, policy: &str) {
        self.scratch.policy(policy);
        self.run.signal(Signal::HUP);
        let told = |line: &str| line.contains("relinked");
        let (_, line) = self.run.wait_for_line("a word on the relink", told);
        assert!(line.contains(": relinked in "), "{line}");
    }

    pub fn ask(&self, args: &[&str]) -> Said {
        weir(&self.socket, args)
    }

    /// Moves flows; how many.
    pub fn moves(&self, args: &[&str]) -> u64 {
        let said = self.ask(&[&["flow", "move", "mon"], args].concat());
        assert_eq!(said.code, Some(0), "{args:?}: {} {}", said.out, said.error);
        said.out["moved"]["flows"].as_u64().unwrap()
    }

    /// How many flows each instance has: of each NF as many.
    pub fn counts(&self) -> Vec<u64> {
        let of = |nf: &&str| {
            let said = self.ask(&["get", "flows", "--nf", nf]);
            counted(&said).unwrap_or_else(|| panic!("not all answered: {said:?}"))
        };
        let all: Vec<Vec<u64>> = self.nfs.iter().map(of).collect();
        assert!(all.iter().all(|counts| *counts == all[0]), "{:?}: {all:?}", self.nfs);
        all[0].clone()
    }

    /// Waits until that `is` so; who cannot be asked just now is asked again.
    pub fn wait_for_counts(&self, what: &str, is: impl Fn(&[u64]) -> bool) {
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
pub fn counted(said: &Said) -> Option<Vec<u64>> {
    let counts = said.out["flows"]["counts"].as_array().filter(|_| said.code == Some(0))?;
    counts.iter().map(|count| count["flows"].as_u64()).collect()
}

pub fn weir(socket: &Path, args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(args).arg("--json").arg("--control").arg(socket).output().unwrap();
    Said {
        code: output.status.code(),
        out: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn monitor(finished: &Finished) -> &Value {
    monitor_of(finished, "mon")
}

pub fn monitor_of<'f>(finished: &'f Finished, nf: &str) -> &'f Value {
    let nodes = finished.report["nodes"].as_array().unwrap();
    &nodes.iter().find(|node| node["name"] == nf).unwrap()["report"]
}

/// At which passings of its steps somebody dies: of every other step the first, of those between the second, as a run for each takes
/// seconds; both with `WEIR_ALL_STEPS` set.
pub fn passings(step: usize) -> std::ops::RangeInclusive<u32> {
    match std::env::var_os("WEIR_ALL_STEPS") {
        Some(_) => 1..=2,
        None if step.is_multiple_of(2) => 1..=1,
        None => 2..=2,
    }
}
