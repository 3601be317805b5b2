//! The agent itself dies, or workers are stopped for a while.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::Duration;

const CHAIN: &str = "Port<0> lan;  Port<1> wan;  MacSwap x;  Busy y { cycles: 3000 };
    pipelet { lan -> x;  x -> y;  y -> wan; }";

/// How long workers may outlive their agent.
const SOON: Duration = Duration::from_secs(2);

fn gone(pid: Pid) -> bool {
    state_of(pid).is_none()
}

/// Kills the agent of a run with `device` and `options`; `stopped` is a worker that stands still
/// meanwhile.
fn outlived(device: &str, options: &[&str], stopped: Option<&str>) {
    let scratch = Scratch::new("agent");
    let policy = scratch.policy(CHAIN);
    let rx = format!("0={device}");
    let mut args = vec!["--bind", &rx, "--bind", "1=null"];
    args.extend(options);
    let run = Run::start(&policy, &args);
    let workers = run.wait_for_workers(4);
    if let Some(name) = stopped {
        kill_process(workers[name], Signal::STOP).unwrap();
        wait_until("the worker to stop", PATIENCE, || state_of(workers[name]) == Some('T'));
    }
    run.signal(Signal::KILL);
    wait_until("all workers to follow their agent", SOON, || workers.values().all(|&p| gone(p)));
    // Shared memory has no name that could stay; were there one, it would be here.
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let left: Vec<_> = names.map(|f| f.file_name()).collect();
    let ours = left.iter().filter(|f| f.to_string_lossy().contains("weir"));
    assert_eq!(ours.count(), 0, "{device}: left in /dev/shm: {left:?}");
}

#[test]
fn busy_workers_follow_an_agent_that_was_killed() {
    outlived("gen:rate=max", &[], None);
    outlived("gen:rate=max", &["--isolate", "each", "--poll", "busy"], None);
}

#[test]
fn sleeping_workers_follow_an_agent_that_was_killed() {
    outlived("gen:rate=1", &[], None);
}

#[test]
fn a_stopped_worker_follows_an_agent_that_was_killed() {
    outlived("gen:rate=max", &[], Some("x"));
}

#[test]
fn a_worker_that_is_stopped_for_a_while_goes_on_where_it_was() {
    const PACKETS: u64 = 200_000;
    let scratch = Scratch::new("stopped");
    let policy = scratch.policy(CHAIN);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    // Without the patience that ends workers which show no sign of life.
    let run = Run::start(&policy, &["--bind", &rx, "--bind", &tx, "--patience", "0"]);
    let workers = run.wait_for_workers(4);
    let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
    for pid in workers.values() {
        let more = size() + RECORD;
        wait_until("packets to flow", PATIENCE, || size() >= more);
        kill_process(*pid, Signal::STOP).unwrap();
        wait_until("the worker to stop", PATIENCE, || state_of(*pid) == Some('T'));
        // The others run dry or full, and sleep: none of them dies or spins.
        let asleep = |p: &Pid| state_of(*p) == Some('S');
        let others = || workers.values().filter(|p| *p != pid);
        wait_until("the others to sleep", PATIENCE, || others().all(asleep));
        kill_process(*pid, Signal::CONT).unwrap();
    }
    assert_eq!(run.workers(), workers);
    let finished = run.finish();
    finished.assert_sound("stopped for a while");
    assert!(finished.restarts().values().all(|&r| r == 0), "{:?}", finished.restarts());
    let numbers = read_capture(&out, number);
    assert!(numbers.iter().copied().eq(0..PACKETS), "packets are missing or out of order");
}

#[test]
fn a_stopped_worker_can_be_killed_and_is_replaced() {
    const PACKETS: u64 = 100_000;
    let scratch = Scratch::new("stopped-killed");
    let policy = scratch.policy(CHAIN);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    let mut run = Run::start(&policy, &["--bind", &rx, "--bind", &tx, "--patience", "0"]);
    let workers = run.wait_for_workers(4);
    kill_process(workers["y"], Signal::STOP).unwrap();
    wait_until("the worker to stop", PATIENCE, || state_of(workers["y"]) == Some('T'));
    kill_process(workers["y"], Signal::KILL).unwrap();
    run.wait_for_line("its successor", |l| l.contains("worker y runs again"));
    let finished = run.finish();
    finished.assert_sound("stopped and killed");
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "stopped and killed");
    let lost = finished.number("/balance/lost");
    assert_eq!(numbers.len() as u64 + lost, PACKETS);
    assert!(lost <= BATCH, "{lost} lost");
}

/// Where this user's runs have their control sockets.
fn sockets() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) if !rustix::process::geteuid().is_root() => PathBuf::from(dir).join("weir"),
        _ => PathBuf::from("/run/weir"),
    }
}

#[test]
fn a_run_takes_away_the_control_sockets_of_runs_that_were_killed_and_no_others() {
    let scratch = Scratch::new("sockets");
    let policy = scratch.policy("Port<0> lan; Port<1> wan; pipelet { lan -> wan; }");
    let socket = |run: &Run| sockets().join(format!("{}.sock", run.agent().as_raw_nonzero()));
    let start = || {
        let run = Run::start(&policy, &["--bind", "0=gen:rate=100", "--bind", "1=null"]);
        wait_until("its socket", PATIENCE, || socket(&run).exists());
        run
    };
    let lives = start();
    let killed = start();
    let left = socket(&killed);
    assert!(socket(&lives).exists() && left.exists());
    // Waits for its end, too.
    drop(killed);
    let begins = start();
    assert!(!left.exists(), "{}", left.display());
    for run in [&lives, &begins] {
        assert!(std::os::unix::net::UnixStream::connect(socket(run)).is_ok());
    }
    for run in [lives, begins] {
        run.signal(Signal::INT);
        assert_eq!(run.finish().code, Some(0));
    }
}
