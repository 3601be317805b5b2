//! Parallel stages: what they do is what the chain does, whoever is killed, and in order.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The flow that `fw` drops.
const DROPPED: u16 = 3;

/// `a` gives to a stage of `branches` µNFs, of which the last drops a flow, and `d` takes from it.
fn policy(branches: usize) -> String {
    let (mut nfs, mut chain) = (String::new(), "lan -> a -> h".to_owned());
    for i in 2..branches {
        writeln!(nfs, "CountSubnet c{i} {{ prefixes: ['10.0.0.0/1{i}'] }};").unwrap();
        write!(chain, " -> c{i}").unwrap();
    }
    format!(
        "Port<0> lan;  Port<1> wan;
MacSwap a;  PacketSizeHistogram h;  {nfs}
L3L4Filter fw {{ default: 'pass', rules: [ {{ action: 'drop', dst_port: 600{DROPPED} }} ] }};
MacSwap d;
pipelet {{ {chain} -> fw -> d -> wan; }}"
    )
}

struct Bench {
    scratch: Scratch,
    policy: PathBuf,
    input: PathBuf,
    packets: u64,
}

impl Bench {
    fn new(name: &str, policy: &str, packets: u64) -> Self {
        let scratch = Scratch::new(name);
        let policy = scratch.policy(policy);
        let input = scratch.file("in.pcap");
        write_capture(&input, packets);
        Bench { scratch, policy, input, packets }
    }

    fn start(&self, more: &[&str]) -> Run {
        self.start_patiently(&[&["--restart-delay", "0"], more].concat())
    }

    /// With the usual delay before a worker that keeps dying is restarted.
    fn start_patiently(&self, more: &[&str]) -> Run {
        let rx = format!("0=pcap:rx={}", self.input.display());
        let tx = format!("1=pcap:tx={}", self.out().display());
        let mut args = vec!["--bind", &rx, "--bind", &tx, "--isolate", "each"];
        args.extend(["--pool", "1024", "--consolidate", "off"]);
        args.extend(more);
        Run::start(&self.policy, &args)
    }

    /// Runs with the stage as such and as many workers as `auto` makes of these cores.
    fn run_auto(&self, cores: &str, more: &[&str]) -> (Finished, Vec<u64>) {
        let rx = format!("0=pcap:rx={}", self.input.display());
        let tx = format!("1=pcap:tx={}", self.out().display());
        let mut args = vec!["--bind", &rx, "--bind", &tx, "--isolate", "auto", "--cores", cores];
        args.extend(["--parallel", "always", "--consolidate", "off", "--restart-delay", "0"]);
        args.extend(more);
        let finished = Run::start(&self.policy, &args).finish();
        (finished, read_capture(&self.out(), number))
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    /// Runs with the stage as such; the report and what came out.
    fn run(&self, more: &[&str]) -> (Finished, Vec<u64>) {
        let finished = self.start(&[&["--parallel", "always"], more].concat()).finish();
        (finished, read_capture(&self.out(), number))
    }

    /// Checks everything that must hold whoever died where; gives the packets lost, and those dropped because a
    /// branch died with them.
    fn check(&self, finished: &Finished, numbers: &[u64], what: &str) -> (u64, u64) {
        finished.assert_sound(what);
        assert_in_order(numbers, what);
        let n = |key: &str| finished.number(&format!("/balance/{key}"));
        assert_eq!(n("in"), self.packets, "{what}");
        assert_eq!(n("out"), numbers.len() as u64, "{what}");
        let passed: Vec<_> = numbers.iter().filter(|n| flow_of(**n) == DROPPED).collect();
        assert!(passed.is_empty(), "{what}: {passed:?} were not dropped");
        let branch_lost = dropped(&finished.report, "fw", "branch-lost");
        let filtered = dropped(&finished.report, "fw", "filtered");
        assert_eq!(n("dropped"), branch_lost + filtered, "{what}");
        (n("lost"), branch_lost)
    }
}

fn dropped(report: &Value, nf: &str, reason: &str) -> u64 {
    let nodes = report["nodes"].as_array().unwrap();
    let row = nodes.iter().find(|row| row["name"] == nf).unwrap();
    row["drops"].get(reason).map_or(0, |n| n.as_u64().unwrap())
}

/// What a report says that does not depend on where µNFs ran, or for how long.
fn outcome(report: &Value) -> Value {
    let mut nodes: Vec<Value> = report["nodes"].as_array().unwrap().clone();
    for row in &mut nodes {
        row.as_object_mut().unwrap().remove("ns_per_packet");
    }
    serde_json::json!({ "nodes": nodes, "edges": report["edges"], "balance": report["balance"] })
}

/// The same, without who ran what.
fn wherever(mut outcome: Value) -> Value {
    for row in outcome["nodes"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("worker");
    }
    outcome
}

/// Writes down the same run in sequence.
fn in_sequence(bench: &Bench, more: &[&str]) -> (Value, Vec<u8>) {
    let finished = bench.start(&[&["--parallel", "never"], more].concat()).finish();
    finished.assert_sound("in sequence");
    (outcome(&finished.report), std::fs::read(bench.out()).unwrap())
}

#[test]
fn a_stage_of_any_width_does_and_counts_what_the_chain_does() {
    for branches in [2, 3, 5] {
        let bench = Bench::new(&format!("width-{branches}"), &policy(branches), 20_000);
        for more in
            [&["--ring", "64"][..], &["--cores", "0"], &["--spin", "0"], &["--prefetch", "3"]]
        {
            let what = format!("{branches} branches, {more:?}");
            let expected = in_sequence(&bench, more);
            let (finished, numbers) = bench.run(more);
            assert_eq!(bench.check(&finished, &numbers, &what), (0, 0));
            assert!(numbers.len() > 15_000, "{what}: {}", numbers.len());
            assert_eq!(outcome(&finished.report), expected.0, "{what}");
            assert!(std::fs::read(bench.out()).unwrap() == expected.1, "{what}: other packets");
        }
    }
}

/// A stage directly behind the Rx service and in front of the Tx service has its sync port in a worker of its
/// own; so has one whose last µNF sends to two workers, by its outputs and by filters.
#[test]
fn a_stage_may_stand_at_either_end_and_divide_its_packets_behind() {
    let ends = format!(
        "Port<0> lan;  Port<1> wan;  PacketSizeHistogram h;  CountSubnet c;
L3L4Filter fw {{ default: 'pass', rules: [ {{ action: 'drop', dst_port: 600{DROPPED} }} ] }};
pipelet {{ lan -> h -> c -> fw -> wan; }}"
    );
    let divides = format!(
        "Port<0> lan;  Port<1> wan;  CountSubnet c;  HttpClassifier k;  MacSwap x;  MacSwap y;  MacSwap z;
L3L4Filter fw {{ default: 'pass', rules: [ {{ action: 'drop', dst_port: 600{DROPPED} }} ] }};
pipelet {{ lan -> c -> k;  k [k.other && udp dst portrange 6000-6002] -> x;
  k [k.other && !(udp dst portrange 6000-6002)] -> y;  k [k.http] -> Drop;
  x -> z; y -> z; z -> fw; fw -> wan; }}"
    );
    for (name, policy) in [("ends", ends), ("divides", divides)] {
        let bench = Bench::new(name, &policy, 20_000);
        let expected = in_sequence(&bench, &[]);
        let (finished, numbers) = bench.run(&[]);
        assert_eq!(bench.check(&finished, &numbers, name), (0, 0));
        let workers = finished.report["workers"].as_array().unwrap();
        assert!(workers.iter().any(|w| w["name"].as_str().unwrap().starts_with("sync:")), "{name}");
        assert_eq!(outcome(&finished.report), expected.0, "{name}");
        assert!(std::fs::read(bench.out()).unwrap() == expected.1, "{name}: other packets");
    }
}

/// µNFs that share a worker are one branch, or stay in sequence with what is before or behind the stage.
#[test]
fn branches_may_be_of_several_nfs_and_some_may_share_a_worker_with_others() {
    let bench = Bench::new("fused", &policy(5), 20_000);
    let expected = in_sequence(&bench, &[]);
    for cores in ["0,0,0", "0,0,0,0", "0,0,0,0,0"] {
        let (finished, numbers) = bench.run_auto(cores, &[]);
        assert_eq!(bench.check(&finished, &numbers, cores), (0, 0));
        let (got, wanted) = (outcome(&finished.report), expected.0.clone());
        assert_eq!(wherever(got), wherever(wanted), "--cores {cores}");
        assert!(std::fs::read(bench.out()).unwrap() == expected.1, "{cores}: other packets");
    }
}

/// One branch of two µNFs, and three of one each: `v` and `u` cost as much as a worker of the others.
#[test]
fn isolated_and_fused_branches_stand_side_by_side_and_any_may_die() {
    let policy = format!(
        "Port<0> lan;  Port<1> wan;  CountUrl v;  PacketSizeHistogram h;  CountSubnet c2 {{ prefixes: ['10.0.0.0/12'] }};
CountUrl u;  L3L4Filter fw {{ default: 'pass', rules: [ {{ action: 'drop', dst_port: 600{DROPPED} }} ] }};
pipelet {{ lan -> v -> h -> c2 -> u -> fw -> wan; }}"
    );
    let bench = Bench::new("mixed", &policy, 8_000);
    let expected = in_sequence(&bench, &[]);
    let cores = "0,0,0,0,0";
    let (finished, numbers) = bench.run_auto(cores, &[]);
    let workers: BTreeSet<String> = finished.restarts().into_keys().collect();
    let mixed = ["rx:lan", "v+h", "c2", "u", "fw", "sync:fw", "tx:wan"];
    assert_eq!(workers, mixed.map(str::to_owned).into(), "the plan is another");
    assert_eq!(bench.check(&finished, &numbers, "mixed"), (0, 0));
    assert_eq!(wherever(outcome(&finished.report)), wherever(expected.0), "mixed");
    assert!(std::fs::read(bench.out()).unwrap() == expected.1, "other packets");
    for worker in ["v+h", "c2", "fw", "sync:fw"] {
        for step in STEPS {
            let fault = format!("{worker}:{step}:2");
            let (finished, numbers) = bench.run_auto(cores, &["--fault", &fault, "--ring", "64"]);
            assert_eq!(finished.restarts()[worker], 1, "{fault}");
            let (lost, branch_lost) = bench.check(&finished, &numbers, &fault);
            let loses = LOSING.contains(&step);
            assert_eq!(lost > 0, loses && worker == "sync:fw", "{fault}: {lost} lost");
            assert_eq!(branch_lost > 0, loses && worker == "fw", "{fault}: {branch_lost}");
            assert!(lost <= BATCH && branch_lost <= BATCH, "{fault}: {lost}, {branch_lost}");
        }
    }
}

#[test]
fn what_a_branch_drops_is_written_down_by_the_sync_port_as_the_branches() {
    let bench = Bench::new("dump", &policy(3), 5_000);
    let drops = bench.scratch.file("drops.pcapng");
    let (finished, numbers) = bench.run(&["--dump-drops", drops.to_str().unwrap()]);
    bench.check(&finished, &numbers, "dump");
    let dumped = read_capture(&drops, number);
    let expected: Vec<u64> = (0..bench.packets).filter(|n| flow_of(*n) == DROPPED).collect();
    assert_eq!(dumped, expected);
    let comments = comments(&drops);
    assert_eq!(comments, BTreeSet::from(["filtered by fw".to_owned()]));
}

fn comments(path: &Path) -> BTreeSet<String> {
    let mut reader = weir_capture::Reader::open(path).unwrap();
    let mut all = BTreeSet::new();
    while let Some(record) = reader.next().unwrap() {
        all.insert(String::from_utf8(record.comment.unwrap().to_vec()).unwrap());
    }
    all
}

/// Who gives to the stage, each branch, who takes from it, and the services.
const WORKERS: [&str; 7] = ["rx:lan", "a", "h", "c2", "fw", "d", "tx:wan"];
const STEPS: std::ops::RangeInclusive<u32> = 1..=12;
/// Steps behind the claim and before the commit.
const LOSING: std::ops::RangeInclusive<u32> = 4..=8;

#[test]
fn a_worker_of_a_stage_that_dies_at_any_step_costs_at_most_its_batch() {
    let bench = Bench::new("steps", &policy(3), 8_000);
    for worker in WORKERS {
        for step in STEPS {
            // In a small ring a batch is all that fits.
            for (nth, ring) in [(1, "1024"), (3, "64")] {
                let fault = format!("{worker}:{step}:{nth}");
                let (finished, numbers) = bench.run(&["--fault", &fault, "--ring", ring]);
                for (name, restarts) in finished.restarts() {
                    assert_eq!(restarts, u64::from(name == worker), "{fault}: {name} restarted");
                }
                let (lost, branch_lost) = bench.check(&finished, &numbers, &fault);
                let is_branch = ["h", "c2", "fw"].contains(&worker);
                let loses = LOSING.contains(&step) && worker != "rx:lan";
                // What a branch has in its hands is not its own: it passes the branch, or is dropped there.
                assert_eq!(lost > 0, loses && !is_branch, "{fault}: {lost} lost");
                assert_eq!(branch_lost > 0, loses && worker == "fw", "{fault}: {branch_lost}");
                assert!(lost <= BATCH && branch_lost <= BATCH, "{fault}: {lost}, {branch_lost}");
            }
        }
    }
}

#[test]
fn a_branch_dies_while_another_and_the_sync_port_do() {
    let bench = Bench::new("together", &policy(3), 20_000);
    let mut choices = Choices(20);
    for round in 0..12 {
        let mut faults = Vec::new();
        for worker in ["a", "h", "c2", "fw", "d"] {
            if choices.below(3) > 0 {
                let (step, nth) = (1 + choices.below(12), 1 + choices.below(9));
                faults.push(format!("{worker}:{step}:{nth}"));
            }
        }
        let args: Vec<&str> = faults.iter().flat_map(|f| ["--fault", f.as_str()]).collect();
        let (finished, numbers) = bench.run(&args);
        let (lost, branch_lost) =
            bench.check(&finished, &numbers, &format!("round {round}: {faults:?}"));
        assert!(lost <= 2 * BATCH && branch_lost <= BATCH, "{faults:?}: {lost}, {branch_lost}");
    }
}

#[test]
fn workers_of_a_stage_are_killed_at_random_and_nothing_is_leaked_doubled_or_reordered() {
    let bench = Bench::new("random", &policy(5), 400_000);
    let mut run = bench.start(&["--parallel", "always", "--spin", "20"]);
    let mut choices = Choices(5);
    let names = ["a", "h", "c2", "c3", "c4", "fw", "d"];
    run.wait_for_workers(names.len() + 2);
    for _ in 0..20 {
        let name = names[choices.below(names.len() as u64) as usize];
        let Some(pid) = run.workers().get(name).copied() else { continue };
        if kill_process(pid, Signal::KILL).is_ok() {
            let died = format!("worker {name} died");
            run.wait_for_line(&died, |line| line.contains(&died));
        }
    }
    let finished = run.finish();
    let numbers = read_capture(&bench.out(), number);
    bench.check(&finished, &numbers, "random kills");
    let killed: u64 = finished.restarts().values().sum();
    assert!(killed > 0, "nobody died: {:?}", finished.said);
}

#[test]
fn a_branch_that_stands_still_is_ended_and_the_stage_goes_on() {
    let bench = Bench::new("stopped", &policy(3), 400_000);
    let mut run = bench.start(&["--parallel", "always"]);
    let workers = run.wait_for_workers(WORKERS.len());
    kill_process(workers["c2"], Signal::STOP).unwrap();
    run.wait_for_line("the end of c2", |line| line.contains("worker c2 was stopped"));
    let finished = run.finish();
    let numbers = read_capture(&bench.out(), number);
    bench.check(&finished, &numbers, "stopped");
    let hung: Vec<_> = finished.said.iter().filter(|line| line.contains("killed")).collect();
    assert_eq!(hung.len(), 1, "nobody else is taken for one that hangs: {hung:?}");
}

/// Buffers of a pool: all that can be under way when a branch dies.
const POOL: u64 = 1024;

#[test]
fn a_stage_goes_on_while_a_branch_that_keeps_dying_waits_for_its_restart() {
    // Slow enough for the input to outlast all deaths, by far too fast for all that comes meanwhile to be under way.
    let slow = policy(3).replace("lan -> a", "lan -> slow -> a");
    let slow = format!("{slow}\nBusy slow {{ cycles: 30000 }};");
    for branch in ["c2", "fw"] {
        let bench = Bench::new(&format!("keeps-dying-{branch}"), &slow, 300_000);
        let mut run = bench.start_patiently(&["--parallel", "always"]);
        // With `slow` and the sync port of the stage that `slow` and `a` are.
        run.wait_for_workers(WORKERS.len() + 2);
        let (died, again) =
            (format!("worker {branch} died"), format!("worker {branch} runs again after "));
        // By now it is started again after the longest delay, half a second.
        for death in 1..=8 {
            kill_process(run.workers()[branch], Signal::KILL).unwrap();
            run.wait_for_line("the death", |line| line.contains(&died));
            if death < 8 {
                run.wait_for_line("the successor", |line| line.contains(&again));
            }
        }
        // What a branch that never drops has not seen passes it, and leaves.
        if branch == "c2" {
            let grown = || std::fs::metadata(bench.out()).map_or(0, |m| m.len());
            let more = grown() + 2 * POOL * RECORD;
            wait_until("packets to pass by the dead", PATIENCE, || grown() > more);
            assert!(!run.workers().contains_key(branch), "{branch} was started before that");
        }
        let finished = run.finish();
        let numbers = read_capture(&bench.out(), number);
        let (lost, branch_lost) = bench.check(&finished, &numbers, branch);
        assert_eq!(lost, 0, "{branch}: what is lent is not the branch's to lose");
        assert_eq!(finished.restarts()[branch], 8);
        // Who may drop is not passed by what it has not seen: more than it can have had in its hands at all deaths.
        assert_eq!(branch_lost > 8 * POOL, branch == "fw", "{branch}: {branch_lost}");
        let rest = (0..bench.packets).filter(|n| flow_of(*n) != DROPPED).count() as u64;
        assert_eq!(numbers.len() as u64 == rest, branch == "c2", "{branch}: {}", numbers.len());
    }
}
