//! A worker kills itself at each step of the claim/publish protocol: whatever the step, nothing is
//! leaked, doubled or reordered, and what is lost is at most the batch in its hands.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Every kind of worker: Rx; `fw`, which drops some packets and sends the others two ways; the
/// plain `left` and `right`; `join`, a fan-in; Tx.
const POLICY: &str = "
Port<0> lan;  Port<1> wan;
L3L4Filter fw { default: 'pass', rules: [ { action: 'drop', dst_port: 6003 } ] };
MacSwap left;  MacSwap right;  MacSwap join;
pipelet {
  lan -> fw;
  fw [udp dst portrange 6000-6002] -> left;  fw [!(udp dst portrange 6000-6002)] -> right;
  left -> join;  right -> join;  join -> wan;
}";
/// The flow that `fw` drops.
const DROPPED: u16 = 3;
const ISOLATED: [&str; 6] = ["rx:lan", "fw", "left", "right", "join", "tx:wan"];
const FUSED: [&str; 3] = ["rx:lan", "fw+left+right+join", "tx:wan"];

const STEPS: std::ops::RangeInclusive<u32> = 1..=12;
/// Steps behind the claim and before the commit: who dies there loses its batch.
const LOSING: std::ops::RangeInclusive<u32> = 4..=8;
/// The ledger's commit and what follows it up to the rings' publication.
const STAGED: u32 = 7;
const COMMITTED: u32 = 9;
const PUBLISHED: u32 = 11;

struct Bench {
    scratch: Scratch,
    policy: PathBuf,
    input: PathBuf,
    packets: u64,
}

impl Bench {
    fn new(name: &str, packets: u64) -> Self {
        let scratch = Scratch::new(name);
        let policy = scratch.policy(POLICY);
        let input = scratch.file("in.pcap");
        write_capture(&input, packets);
        Bench { scratch, policy, input, packets }
    }

    fn run(&self, isolate: &str, faults: &[String], more: &[&str]) -> (Finished, Vec<u64>) {
        let out = self.scratch.file("out.pcap");
        let rx = format!("0=pcap:rx={}", self.input.display());
        let tx = format!("1=pcap:tx={}", out.display());
        let mut args = vec!["--bind", &rx, "--bind", &tx, "--isolate", isolate];
        // Few buffers: they go round often, and taking them back is part of the protocol.
        args.extend(["--pool", "1024", "--restart-delay", "0"]);
        args.extend(more);
        for fault in faults {
            args.extend(["--fault", fault]);
        }
        let finished = Run::start(&self.policy, &args).finish();
        let numbers = read_capture(&out, number);
        (finished, numbers)
    }

    /// Checks everything that must hold whoever died where; gives the packets lost.
    fn check(&self, finished: &Finished, numbers: &[u64], what: &str) -> u64 {
        finished.assert_sound(what);
        assert_in_order(numbers, what);
        let n = |key: &str| finished.number(&format!("/balance/{key}"));
        assert_eq!(n("in"), self.packets, "{what}");
        assert_eq!(n("out"), numbers.len() as u64, "{what}");
        let arrived: BTreeSet<u64> = numbers.iter().copied().collect();
        let (mut missing, mut dropped) = (0, 0);
        for number in 0..self.packets {
            let drops = flow_of(number) == DROPPED;
            dropped += u64::from(drops);
            missing += u64::from(!drops && !arrived.contains(&number));
            assert!(!(drops && arrived.contains(&number)), "{what}: {number} was not dropped");
        }
        // Lost are exactly the packets that are missing, the later dropped among them.
        assert_eq!(n("lost"), missing + (dropped - n("dropped")), "{what}");
        n("lost")
    }

    /// One worker dies at one step.
    fn die(&self, isolate: &str, worker: &str, step: u32, nth: u32) {
        let what = format!("--isolate {isolate} --fault {worker}:{step}:{nth}");
        let fault = format!("{worker}:{step}:{nth}");
        let (finished, numbers) = self.run(isolate, &[fault], &[]);
        for (name, restarts) in finished.restarts() {
            assert_eq!(restarts, u64::from(name == worker), "{what}: restarts of {name}");
        }
        let lost = self.check(&finished, &numbers, &what);
        if worker.starts_with("rx:") || !LOSING.contains(&step) {
            assert_eq!(lost, 0, "{what}");
        } else {
            assert!((1..=BATCH).contains(&lost), "{what}: {lost} lost");
        }
    }
}

/// Every worker passes every step: Rx claims the buffers that come back to it, and publishes
/// packets; Tx claims packets and publishes the buffers that it gives back.
fn every_step(name: &str, isolate: &str, workers: &[&str]) {
    let bench = Bench::new(name, 8_000);
    for worker in workers {
        for step in STEPS {
            for nth in [1, 2, 7] {
                bench.die(isolate, worker, step, nth);
            }
        }
    }
}

#[test]
fn isolated_workers_die_at_every_step_and_lose_at_most_the_batch_they_hold() {
    every_step("steps-each", "each", &ISOLATED);
}

#[test]
fn fused_workers_die_at_every_step_and_lose_at_most_the_batch_they_hold() {
    every_step("steps-none", "none", &FUSED);
}

/// `left` in a domain of its own: what goes there, and what comes back, is copied by a gate.
#[test]
fn gates_die_at_every_step_and_lose_at_most_the_batch_they_hold() {
    let bench = Bench::new("steps-gates", 8_000);
    let mut losers = 0;
    for gate in ["gate:fw -> left", "gate:left -> join"] {
        for step in STEPS {
            for nth in [1, 7] {
                let fault = format!("{gate}:{step}:{nth}");
                let (finished, numbers) =
                    bench.run("each", std::slice::from_ref(&fault), &["--domain", "left=theirs"]);
                for (name, restarts) in finished.restarts() {
                    assert_eq!(restarts, u64::from(name == gate), "{fault}: restarts of {name}");
                }
                let lost = bench.check(&finished, &numbers, &fault);
                // What it claims are buffers to copy into, too.
                let most = if LOSING.contains(&step) { BATCH } else { 0 };
                assert!(lost <= most, "{fault}: {lost} lost");
                losers += u32::from(lost > 0);
            }
        }
    }
    assert!(losers >= 5, "only {losers} died with packets in their hands");
}

#[test]
fn neighbours_that_die_together_lose_at_most_a_batch_each() {
    let bench = Bench::new("steps-two", 8_000);
    for pair in
        [["rx:lan", "fw"], ["fw", "left"], ["left", "join"], ["left", "right"], ["join", "tx:wan"]]
    {
        for (a, b) in [(4, 4), (6, 2), (9, 3), (9, 8), (10, 9), (11, 1), (11, 11)] {
            let faults = [format!("{}:{a}:2", pair[0]), format!("{}:{b}:2", pair[1])];
            let what = format!("{faults:?}");
            let (finished, numbers) = bench.run("each", &faults, &[]);
            let lost = bench.check(&finished, &numbers, &what);
            let losing = [(pair[0], a), (pair[1], b)];
            let losing = losing.iter().filter(|(w, s)| !w.starts_with("rx:") && LOSING.contains(s));
            assert!(lost <= BATCH * losing.count() as u64, "{what}: {lost} lost");
            for (name, restarts) in finished.restarts() {
                assert_eq!(restarts, u64::from(pair.contains(&&*name)), "{what}: {name}");
            }
        }
    }
}

#[test]
fn all_workers_that_die_at_the_same_step_lose_at_most_a_batch_each() {
    let bench = Bench::new("steps-all", 8_000);
    for step in STEPS {
        let faults: Vec<_> = ISOLATED.iter().map(|w| format!("{w}:{step}:3")).collect();
        let what = format!("{faults:?}");
        let (finished, numbers) = bench.run("each", &faults, &[]);
        let lost = bench.check(&finished, &numbers, &what);
        let losers = if LOSING.contains(&step) { ISOLATED.len() as u64 - 1 } else { 0 };
        assert!(lost <= BATCH * losers, "{what}: {lost} lost");
        assert!(finished.restarts().values().all(|&r| r == 1), "{what}: {:?}", finished.restarts());
    }
}

/// With so few packets each worker commits: its packets (at most three times), the end of the
/// stream, and its last accounts; some wait a moment between the last two.
#[test]
fn workers_that_die_while_the_end_of_the_stream_passes_lose_nothing_committed() {
    let bench = Bench::new("steps-end", 3);
    let mut ends = 0;
    for worker in ISOLATED {
        for step in STAGED..=PUBLISHED {
            for nth in 1..=5 {
                let fault = format!("{worker}:{step}:{nth}");
                let (finished, numbers) = bench.run("each", std::slice::from_ref(&fault), &[]);
                let lost = bench.check(&finished, &numbers, &fault);
                assert!(
                    lost == 0 || step < COMMITTED && worker != "rx:lan",
                    "{fault}: {lost} lost"
                );
                let died = finished.said.iter().any(|l| l.contains(" died "));
                ends += u32::from(died && lost == 0);
            }
        }
    }
    assert!(ends > 60, "only {ends} workers died without a packet in their hands");
}

#[test]
fn a_worker_that_dies_after_its_work_is_done_is_not_missed() {
    let scratch = Scratch::new("steps-done");
    let slow = "Port<0> lan; Port<1> wan; Busy slow { cycles: 4000000000 };
        pipelet { lan -> slow -> wan; }";
    let policy = scratch.policy(slow);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 3);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    // Packets, end, last accounts; the fourth commit comes while it waits to be dismissed.
    let fault = format!("rx:lan:{STAGED}:4");
    // A packet takes longer than the patience with workers that hang.
    let args = ["--bind", &rx, "--bind", &tx, "--fault", &fault, "--patience", "0"];
    let start = Instant::now();
    let finished = Run::start(&policy, &args).finish();
    assert!(start.elapsed() > Duration::from_secs(1), "too fast: the test must choose more cycles");
    finished.assert_sound(&fault);
    assert!(finished.said.iter().any(|l| l.contains("worker rx:lan died")), "{:?}", finished.said);
    assert_eq!(finished.restarts()["rx:lan"], 0);
    assert_eq!(read_capture(&out, number), [0, 1, 2]);
}

/// `join` waits until no earlier packet can come by the other way: a death between the publication
/// of a batch and its watermark must not make the batch wait for the packet after it.
#[test]
fn the_last_packets_before_a_death_need_not_wait_for_the_next_one() {
    for worker in ["rx:lan", "fw"] {
        let bench = Bench::new("steps-watermark", 0);
        let out = bench.scratch.file("out.pcap");
        let tx = format!("1=pcap:tx={}", out.display());
        let fault = format!("{worker}:{PUBLISHED}:1");
        let device = "0=gen:size=64,rate=2,packets=3";
        let args = ["--bind", device, "--bind", &tx, "--fault", &fault, "--patience", "0"];
        let mut run = Run::start(&bench.policy, &args);
        // Rx stands still until two packets are due, so that they come in one batch; the third
        // follows half a second later.
        let rx = run.wait_for_workers(ISOLATED.len())["rx:lan"];
        let attached = Instant::now();
        kill_process(rx, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(1_250).saturating_sub(attached.elapsed()));
        kill_process(rx, Signal::CONT).unwrap();
        let again = format!("worker {worker} runs again");
        let (at, _) = run.wait_for_line("its successor", |l| l.contains(&again));
        let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
        wait_until("both packets to leave", PATIENCE, || size() >= 24 + 2 * (16 + 64));
        let waited = at.elapsed();
        assert!(waited < Duration::from_millis(350), "{fault}: it took {waited:?}");
        let finished = run.finish();
        finished.assert_sound(&fault);
        assert_eq!(finished.number("/balance/out"), 3, "{fault}");
        assert_eq!(finished.restarts()[worker], 1, "{fault}");
    }
}
