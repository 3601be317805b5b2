//! Workers of one core take their turns in the order of the chain, also after one of them was started anew, or the graph was changed. The kernel's own record of
//! who ran after whom says so (tracefs, event `sched_switch`): figures of latency would only hint at it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;

use common_crash::*;
use rustix::process::{Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The workers in the order of the chain. The kernel knows them by these names, so they are nobody else's.
const CHAIN: [&str; 4] = ["in_line_1", "in_line_2", "in_line_3", "in_line_4"];

/// Switches to workers of the chain that tell enough of the order, and how many of a hundred must be to the next of the chain. What is missing
/// are musters, in which some are passed over.
const ENOUGH: usize = 200;
const MOSTLY: usize = 90;

/// A trace buffer of this test's own.
struct Trace(PathBuf);

impl Trace {
    /// None where there is no tracefs, or it is not ours to use.
    fn start() -> Option<Self> {
        let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new);
        // Whoever looks at the latter mounts it, if the kernel does so.
        let root = roots.into_iter().find(|root| root.join("instances").is_dir())?;
        let own = root.join(format!("instances/weir-{}", std::process::id()));
        std::fs::create_dir(&own).ok()?;
        let trace = Trace(own);
        let ours: Vec<String> = CHAIN.iter().map(|n| format!("next_comm == \"{n}\"")).collect();
        trace.write("events/sched/sched_switch/filter", &ours.join(" || "));
        trace.write("events/sched/sched_switch/enable", "1");
        Some(trace)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }

    /// By place in the chain: who ran after whom, in a while from now on.
    fn turns(&self) -> Vec<usize> {
        self.write("trace", "");
        self.write("tracing_on", "1");
        std::thread::sleep(Duration::from_millis(20));
        self.write("tracing_on", "0");
        let text = std::fs::read_to_string(self.0.join("trace")).unwrap();
        let next = |line: &str| {
            let name = line.split("next_comm=").nth(1)?.split(' ').next()?;
            CHAIN.iter().position(|worker| *worker == name)
        };
        let mut turns: Vec<usize> = text.lines().filter_map(next).collect();
        // Who was interrupted, and went on, still had its turn.
        turns.dedup();
        turns
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("events/sched/sched_switch/enable"), "0");
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// How many of a hundred turns were followed by that of the next of the chain.
fn in_order(turns: &[usize]) -> usize {
    let follows = turns.windows(2).filter(|pair| pair[1] == (pair[0] + 1) % CHAIN.len());
    follows.count() * 100 / turns.len().max(1)
}

fn wait_for_order(trace: &Trace, when: &str) {
    let begun = Instant::now();
    loop {
        let turns = trace.turns();
        if turns.len() >= ENOUGH && in_order(&turns) >= MOSTLY {
            return;
        }
        let some = turns.get(turns.len().saturating_sub(40)..).unwrap_or(&turns);
        let (n, late) = (turns.len(), begun.elapsed() > PATIENCE);
        assert!(!late, "{when}: {n} turns, not in the order of the chain; the last ones: {some:?}");
    }
}

fn skipped(why: &str) {
    println!(
        "skipped: turns_are_in_the_order_of_the_chain_again_after_any_worker_was_started_anew: {why}"
    );
}

#[test]
fn turns_are_in_the_order_of_the_chain_again_after_any_worker_was_started_anew() {
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let cores: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    if cores.len() < 2 {
        return skipped("one core");
    }
    // By a thread that ends with it.
    if std::thread::spawn(|| weir_mem::realtime::set_fifo(None, 1)).join().unwrap().is_err() {
        return skipped("the real-time class is not permitted");
    }
    let Some(trace) = Trace::start() else { return skipped("no trace of the kernel's to be had") };
    let scratch = Scratch::new("run-queue");
    let [a, b, c, d] = CHAIN;
    let policy = scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  MacSwap {a};  MacSwap {b};  MacSwap {c};  MacSwap {d};
        pipelet {{ lan -> {a} -> {b} -> {c} -> {d} -> wan; }}"
    ));
    // A packet now and then, and nobody sleeps between two: without the order being made nothing would make it.
    let both = cores[..2].join(",");
    let args = ["--bind", "0=gen:rate=20", "--bind", "1=null", "--cores", &both];
    let args = [&args[..], &["--isolate", "each", "--spin", "1000000"]].concat();
    let args = [&args[..], &["--restart-delay", "0"]].concat();
    // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
    let mut weir = Command::new("env");
    weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
    let mut run = Run::start_by(weir, &policy, &args);
    let workers = run.wait_for_workers(6);
    let real_time =
        || CHAIN.iter().all(|name| run.workers().get(*name).is_some_and(|p| is_real_time(*p)));
    wait_until("all to be in the real-time class", PATIENCE, real_time);
    let on_their_cores = |when: &str| {
        for (name, pid) in run.workers() {
            let core = if CHAIN.contains(&name.as_str()) { &cores[1] } else { &cores[0] };
            assert_eq!(status(pid, "Cpus_allowed_list"), *core, "{when}: {name}");
        }
    };
    on_their_cores("at the start");
    wait_for_order(&trace, "at the start");
    // The first is the one that puts the others in order.
    for name in [b, c, d, a] {
        kill_process(workers[name], Signal::KILL).unwrap();
        wait_until("it to be started anew", PATIENCE, || {
            run.workers().get(name).is_some_and(|pid| *pid != workers[name]) && real_time()
        });
        wait_for_order(&trace, &format!("after {name} was started anew"));
    }
    on_their_cores("after all were started anew");
    // All workers of µNFs are others then.
    let before = run.workers();
    run.signal(Signal::HUP);
    run.wait_for_line("a word on the relink", |line| line.contains(": relinked in "));
    let after = run.workers();
    assert!(CHAIN.iter().all(|name| before[*name] != after[*name]), "{before:?} {after:?}");
    let real_time = || CHAIN.iter().all(|name| after.get(*name).is_some_and(|p| is_real_time(*p)));
    wait_until("all to be in the real-time class", PATIENCE, real_time);
    wait_for_order(&trace, "after the graph was changed");
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("run queue");
    assert_eq!(finished.restarts().values().sum::<u64>(), 4, "{:#}", finished.report);
}
