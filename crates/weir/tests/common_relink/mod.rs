//! What the relink tests share: a run whose policy and options are changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use crate::common_crash::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packets of the captures that are read: more than in half a minute. The test says when it is enough.
pub const PACKETS: u64 = 600_000;

/// A chain that takes a while for them.
pub const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  PacketSizeHistogram sizes;  Busy slow { cycles: 160000 };
pipelet { lan -> head -> sizes -> slow -> wan; }";

/// The same with one NF more, and another configuration.
pub const LONGER: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  PacketSizeHistogram sizes;  MacSwap more;  Busy slow { cycles: 150000 };
pipelet { lan -> head -> sizes -> more -> slow -> wan; }";

/// A run on a numbered capture whose policy, or options, can be changed.
pub struct Changing {
    pub run: Run,
    pub scratch: Scratch,
    pub policy: PathBuf,
}

impl Changing {
    pub fn start(name: &str, args: &[&str]) -> Self {
        Self::start_with(name, PACKETS, CHAIN, args)
    }

    pub fn start_with(name: &str, packets: u64, policy: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("relink-{name}"));
        write_capture(&scratch.file("in.pcap"), packets);
        let rx = format!("pcap:rx={}", scratch.file("in.pcap").display());
        let changing = Self::start_on(scratch, Command::new("env"), &rx, policy, args);
        changing.wait_for_traffic();
        changing
    }

    /// On packets of `rx`, which need not come yet; `env` is that program, in whatever network.
    pub fn start_on(
        scratch: Scratch,
        mut env: Command,
        rx: &str,
        policy: &str,
        args: &[&str],
    ) -> Self {
        let policy = scratch.policy(policy);
        std::fs::write(scratch.file("options"), "--isolate each # as at first\n").unwrap();
        let rx = format!("0={rx}");
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        let options = scratch.file("options").display().to_string();
        let own = ["--bind", &rx, "--bind", &tx, "--options", &options];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        env.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let run = Run::start_by(env, &policy, &[&own, args].concat());
        Changing { run, scratch, policy }
    }

    pub fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    pub fn wait_for_traffic(&self) {
        let before = written(&self.out());
        wait_until("packets to flow", PATIENCE, || written(&self.out()) > before + 64 * RECORD);
    }

    pub fn isolate(&self, how: &str) {
        self.scratch.write("options", format!("--isolate {how}\n"));
    }

    /// Has the policy read again; what was said of it.
    pub fn reload(&mut self) -> String {
        self.run.signal(Signal::HUP);
        self.outcome()
    }

    pub fn outcome(&mut self) -> String {
        let told = |l: &str| l.contains("relinked");
        self.run.wait_for_line("a word on the relink", told).1
    }

    /// Ends the input. What there is in the output by `read`, in order, but for what is said to be lost; and how many packets came.
    pub fn finish<T>(
        self,
        read: impl Fn(&[u8]) -> T,
        number: impl Fn(&T) -> u64,
    ) -> (Finished, Vec<T>, u64) {
        self.run.signal(Signal::INT);
        let (out, finished) = (self.out(), self.run.finish());
        finished.assert_sound("relinked");
        let all = read_capture(&out, read);
        let numbers: Vec<u64> = all.iter().map(number).collect();
        assert_in_order(&numbers, "output");
        let came = finished.number("/balance/in");
        assert_eq!(
            numbers.len() as u64 + finished.number("/balance/lost"),
            came,
            "some are missing"
        );
        drop(self.scratch);
        (finished, all, came)
    }

    /// The same where nothing is lost.
    pub fn finish_whole(self) -> (Finished, u64) {
        let (finished, _, came) = self.finish(number, |number| *number);
        assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
        (finished, came)
    }
}

pub fn written(out: &Path) -> u64 {
    std::fs::metadata(out).map_or(0, |m| m.len())
}

pub fn node<'r>(finished: &'r Finished, name: &str) -> &'r Value {
    let nodes = finished.report["nodes"].as_array().unwrap();
    nodes.iter().find(|n| n["name"] == name).unwrap_or_else(|| panic!("no node {name}"))
}

pub fn relinks(finished: &Finished) -> usize {
    finished.report["relinks"].as_array().map_or(0, Vec::len)
}
