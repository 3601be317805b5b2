//! An idle graph rests, and nothing of it stays when it ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a process has gone to sleep of its own will.
fn slept(pid: Pid) -> u64 {
    let text = std::fs::read_to_string(proc(pid, "status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Processor time that a process has had.
fn worked(pid: Pid) -> Duration {
    let text = std::fs::read_to_string(proc(pid, "schedstat")).unwrap();
    let ns = text.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(ns)
}

#[test]
fn an_idle_graph_takes_less_than_a_hundredth_of_a_core_and_leaves_nothing_behind() {
    rests(&[]);
}

/// Workers that share a core wake each other together; they must not keep each other awake.
#[test]
fn an_idle_graph_on_given_cores_rests_too() {
    let several = std::thread::available_parallelism().unwrap().get() > 1;
    rests(&["--cores", if several { "0,1" } else { "0" }]);
}

fn rests(cores: &[&str]) {
    const WINDOW: Duration = Duration::from_secs(2);
    let scratch = Scratch::new("idle");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  MacSwap a;  MacSwap b;  MacSwap c;  MacSwap d;
        pipelet { lan -> a;  a [udp] -> b;  a [!udp] -> c;  b -> d;  c -> d;  d -> wan; }",
    );
    let args = [&["--bind", "0=gen:rate=1", "--bind", "1=null"], cores].concat();
    let run = Run::start(&policy, &args);
    let workers = run.wait_for_workers(6);
    // The promise is for the time after the first second; what is measured is a length of time.
    std::thread::sleep(Duration::from_secs(1).saturating_sub(run.started.elapsed()));
    let all = || -> BTreeMap<&str, Duration> {
        let pids = workers.iter().map(|(n, p)| (n.as_str(), *p)).chain([("agent", run.agent())]);
        pids.map(|(name, pid)| (name, worked(pid))).collect()
    };
    let sleeps = || -> BTreeMap<&str, u64> {
        workers.iter().map(|(name, pid)| (name.as_str(), slept(*pid))).collect()
    };
    let (before, sleeps_before, start) = (all(), sleeps(), Instant::now());
    std::thread::sleep(WINDOW);
    let (after, sleeps, window) = (all(), sleeps(), start.elapsed());
    let took: BTreeMap<_, _> = after.iter().map(|(n, t)| (n, *t - before[n])).collect();
    let share = took.values().sum::<Duration>().as_secs_f64() / window.as_secs_f64();
    println!("{:.3} % of a core: {took:?}", share * 100.0);
    // Less than one percent on a machine that does nothing else; where others make caches cold it may be some. Who does not sleep takes a core.
    assert!(share < 0.1, "{:.3} % of a core: {took:?}", share * 100.0);
    // Processor time depends on the machine; how often somebody wakes does not. Who sleeps and is woken in vain again and again goes to sleep as often.
    for (name, times) in &sleeps {
        let a_second = (times - sleeps_before[name]) as f64 / window.as_secs_f64();
        assert!(a_second < 100.0, "{name} went to sleep {a_second:.0} times a second");
    }

    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("idle");
    // A packet a second went through while it rested.
    assert!(finished.number("/balance/out") >= 2, "{:#}", finished.report);
    let alive: Vec<_> = workers.iter().filter(|(_, p)| state_of(**p).is_some()).collect();
    assert!(alive.is_empty(), "still there: {alive:?}");
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left: Vec<_> = names.map(|f| f.file_name()).collect();
    let ours = left.iter().filter(|f| f.to_string_lossy().contains("weir"));
    assert_eq!(ours.count(), 0, "left in /dev/shm: {left:?}");
}
