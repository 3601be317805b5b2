//! Of each replicated worker a process waits that is to be its successor, so that nobody waits until one has started.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Pid, Signal, kill_process};

const POLICY: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon;  Null e;
pipelet { lan -> mon -> e -> wan; }";

const FLOWS: u64 = 50;
/// Buffers that a worker has had in its hands when it dies: to take that much memory from it takes the kernel some milliseconds.
const MANY: &str = "262144";
/// Deaths of which one at least is to be seen.
const DEATHS: usize = 20;

/// The process in reserve of `mon`, when it waits in its sandbox and is another than `not`.
fn waiting(run: &Run, not: Option<Pid>) -> Pid {
    let is_there = || {
        let pid = run.in_reserve().get("mon").copied().filter(|pid| Some(*pid) != not)?;
        let named = std::fs::read_to_string(proc(pid, "comm")).ok()?;
        (named.trim_end() == "weir-reserve").then_some(pid)
    };
    wait_for(PATIENCE, is_there, || format!("a process in reserve; {:?}", run.workers()))
}

#[test]
fn a_replicated_workers_successor_waits_already_and_is_replaced_when_it_takes_over_or_is_killed() {
    let scratch = Scratch::new("reserve");
    let policy = scratch.policy(POLICY);
    let source = format!("0=gen:flows={FLOWS},rate=20000");
    let args = ["--bind", &source, "--bind", "1=null", "--isolate", "each"];
    let run = Run::start(&policy, &[&args[..], &["--replicate", "mon=batch"]].concat());
    let first = waiting(&run, None);
    // Who forgets nothing when it dies has one, and nobody else.
    assert_eq!(run.in_reserve().into_keys().collect::<Vec<_>>(), ["mon"]);
    // It is where its worker will be, and has nothing of the graph.
    assert_eq!(status(first, "Seccomp"), "2", "no system-call filter");
    assert_eq!(status(first, "NoNewPrivs"), "1");
    assert_eq!(status(first, "CapEff").trim_matches('0'), "");
    // That is for root to see: it hides.
    match std::fs::read_to_string(proc(first, "maps")) {
        Ok(maps) => assert!(!maps.contains("memfd:weir/"), "it has memory of the graph: {maps}"),
        Err(e) => println!("skipped: what memory a process in reserve has: {e}"),
    }
    match std::fs::read_dir(proc(first, "fd")) {
        Ok(fds) => assert_eq!(fds.count(), 3, "it has more than its standard descriptors"),
        Err(e) => println!("skipped: what a process in reserve has open: {e}"),
    }

    kill_process(run.workers()["mon"], Signal::KILL).unwrap();
    wait_until("who waited to take over", PATIENCE, || run.workers().get("mon") == Some(&first));
    // Killed itself, it is nobody's death.
    let second = waiting(&run, Some(first));
    kill_process(second, Signal::KILL).unwrap();
    let third = waiting(&run, Some(second));
    assert_eq!(run.workers()["mon"], first);
    // Stopped, it goes on when it is needed.
    kill_process(third, Signal::STOP).unwrap();
    kill_process(first, Signal::KILL).unwrap();
    wait_until("the next to take over", PATIENCE, || run.workers().get("mon") == Some(&third));
    let last = waiting(&run, Some(third));

    assert_eq!(run.in_reserve().into_keys().collect::<Vec<_>>(), ["mon"]);

    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("reserve");
    assert_eq!(finished.restarts()["mon"], 2);
    let nodes = finished.report["nodes"].as_array().unwrap();
    let monitor = nodes.iter().find(|n| n["name"] == "mon").unwrap();
    assert_eq!(monitor["report"]["flows"], FLOWS, "flows began anew: {monitor:#}");
    let workers = finished.report["workers"].as_array().unwrap();
    let worker = workers.iter().find(|w| w["name"] == "mon").unwrap();
    assert_eq!(worker["recovered"]["times"], 2);
    assert_eq!(worker["recovered"]["flows"].as_u64(), Some(2 * FLOWS), "{worker:#}");
    wait_until("the last one to leave", PATIENCE, || state_of(last).is_none());
}

#[test]
fn its_successor_is_told_its_work_while_the_kernel_still_takes_it_apart() {
    // How a process ends the kernel tells others of the same user only when it has.
    if !rustix::process::getuid().is_root() {
        return println!(
            "skipped: its_successor_is_told_its_work_while_the_kernel_still_takes_it_apart: not root"
        );
    }
    let scratch = Scratch::new("reserve-early");
    let policy = scratch.policy(POLICY);
    let source = format!("0=gen:flows={FLOWS}");
    let args = ["--bind", &source, "--bind", "1=null", "--isolate", "each", "--pool", MANY];
    let more = ["--replicate", "mon=batch", "--restart-delay", "0"];
    let run = Run::start(&policy, &[&args[..], &more].concat());
    let is_there = |pid: Pid| state_of(pid).is_some_and(|state| state != 'Z');
    let is_told = |pid: Pid| {
        std::fs::read_to_string(proc(pid, "comm")).is_ok_and(|name| name.trim() == "mon")
    };
    let (mut last, mut seen, mut deaths) = (None, false, 0);
    while !seen && deaths < DEATHS {
        let (successor, victim) = (waiting(&run, last), run.workers()["mon"]);
        kill_process(victim, Signal::KILL).unwrap();
        deaths += 1;
        while is_there(victim) && !seen {
            // In this order: who is there after that was there before.
            seen = is_told(successor) && is_there(victim);
        }
        last = Some(successor);
        wait_until("who waited to take over", PATIENCE, || {
            run.workers().get("mon") == last.as_ref()
        });
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("early");
    assert_eq!(finished.restarts()["mon"], deaths as u64);
    assert!(seen, "of {deaths} deaths each was told when the process had gone");
}
