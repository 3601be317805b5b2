//! Workers that never become ready or want to hear of nobody any more, and graphs that stand still.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is not waited for by anybody takes less, on a busy machine too.
const AT_ONCE: Duration = Duration::from_secs(1);

fn attacker(scratch: &Scratch, what: &str, when: &str) -> std::path::PathBuf {
    scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  Attack a {{ what: \"{what}\", when: \"{when}\" }};
         pipelet {{ lan -> a;  a -> wan; }}"
    ))
}

fn start(policy: &Path, rate: &str, more: &[&str]) -> Run {
    let program = crate::common_outside::hostile("hostile-nf");
    let rx = format!("0=gen:{rate}");
    let args = ["--bind", &rx, "--bind", "1=null", "--with", program.to_str().unwrap()];
    Run::start(policy, &[&args[..], more].concat())
}

#[test]
fn a_worker_that_hangs_before_it_is_ready_is_ended_and_given_up_in_the_end() {
    let scratch = Scratch::new("stuck-build");
    let policy = attacker(&scratch, "honest", "build");
    let mut run = start(&policy, "rate=1000", &["--start-patience", "1.5"]);
    let named = "worker a was not ready in time: killed";
    run.wait_for_line("the naming", |line| line.contains(named));
    run.wait_for_line("its death", |line| line.contains("worker a died"));
    run.wait_for_line("a second one", |line| line.contains(named));
    // It counts as a death before it was ready: such are not repeated for ever.
    run.wait_for_line("the end", |line| {
        line.contains("weir: a: it dies before it is ready, again and again")
    });
}

#[test]
fn a_successor_that_hangs_before_it_is_ready_has_as_long_as_the_first_start_lets_expect() {
    let scratch = Scratch::new("stuck-rebuild");
    let hangs = scratch.file("hangs");
    let policy = scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  Attack a {{ what: \"honest\", when: \"build\", path: \"{}\" }};
         pipelet {{ lan -> a;  a -> wan; }}",
        hangs.display()
    ));
    let out = scratch.file("out.pcap");
    let wan = format!("1=pcap:tx={}", out.display());
    let program = crate::common_outside::hostile("hostile-nf");
    let with = program.to_str().unwrap();
    // A worker in its sandbox does not find the file by which it is told to hang.
    let args = ["--bind", "0=gen:rate=1000", "--bind", &wan, "--with", with, "--sandbox", "off"];
    let mut run = Run::start(&policy, &args);
    let some = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 1_000);
    wait_until("the first packets", PATIENCE, some);
    let first = run.started.elapsed();
    std::fs::write(&hangs, "").unwrap();
    kill_process(run.workers()["a"], Signal::KILL).unwrap();
    let (died, _) = run.wait_for_line("its death", |line| line.contains("worker a died"));
    let named = "worker a was not ready in time: killed";
    let (named, _) = run.wait_for_line("the naming", |line| line.contains(named));
    // A second and four times the first start, which was over when the first packets had come; not the 20 s that a
    // first start has.
    let took = named - died;
    let most = AT_ONCE + 4 * first + AT_ONCE;
    assert!(took > AT_ONCE / 2 && took < most, "named after {took:?} instead of {most:?}");
    std::fs::remove_file(&hangs).unwrap();
    run.wait_for_line("a sound one", |line| line.contains("worker a runs again after"));
    run.signal(Signal::INT);
    run.finish().assert_sound("one that hung before it was ready");
}

#[test]
fn a_worker_that_is_stopped_before_it_is_ready_is_not_waited_for_as_one_that_builds() {
    let scratch = Scratch::new("stuck-stopped");
    let policy = attacker(&scratch, "honest", "build");
    // It never becomes ready, and might take ten minutes for it: only that it is stopped can be why it ends.
    let mut run = start(&policy, "rate=1000", &["--start-patience", "600"]);
    for _ in 0..2 {
        let worker = || run.workers().get("a").copied();
        let mut pid = None;
        wait_until("the worker", PATIENCE, || {
            pid = worker();
            pid.is_some()
        });
        kill_process(pid.unwrap(), Signal::STOP).unwrap();
        run.wait_for_line("the naming", |line| line.contains("worker a was stopped: killed"));
        run.wait_for_line("its death", |line| line.contains("worker a died"));
    }
}

/// Kills worker `name` and waits for its successor, which must not have been kept waiting by another domain's.
fn assert_back_at_once(run: &mut Run, name: &str) {
    let killed = run.workers()[name];
    let at = Instant::now();
    kill_process(killed, Signal::KILL).unwrap();
    let died = format!("worker {name} died");
    let (noticed, _) = run.wait_for_line("the death", |line| line.contains(&died));
    let again = format!("worker {name} runs again after ");
    let (back, line) = run.wait_for_line("the successor", |line| line.contains(&again));
    // A second, and not the ten that two patiences make: what else runs on the machine may take its part.
    let late = (noticed - at).max(back - noticed);
    assert!(late < AT_ONCE, "noticed after {:?}: {line}", noticed - at);
}

#[test]
fn a_successor_that_does_not_read_what_it_is_told_keeps_nobody_waiting() {
    let scratch = Scratch::new("stuck-deaf-successor");
    // More than its control socket holds.
    let much = "x".repeat(400_000);
    let policy = scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  Port<2> lan2;  Port<3> wan2;
         MacSwap good;  Attack deaf {{ path: \"{much}\" }};
         pipelet {{ lan -> good;  good -> wan;  lan2 -> deaf;  deaf -> wan2; }}"
    ));
    let out = scratch.file("out.pcap");
    let wan = format!("1=pcap:tx={}", out.display());
    let more = ["--bind", "2=gen:rate=1000", "--bind", "3=null", "--domain", "deaf=other"];
    let program = crate::common_outside::hostile("hostile-nf");
    let given = ["--bind", "0=gen:rate=20000", "--bind", &wan, "--with", program.to_str().unwrap()];
    let mut run = Run::start(&policy, &[&given[..], &more].concat());
    let some = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 1_000);
    wait_until("the first packets", PATIENCE, some);
    for _ in 0..2 {
        // It had not read it either; its successor will not.
        kill_process(run.workers()["deaf"], Signal::KILL).unwrap();
        assert_back_at_once(&mut run, "good");
    }
}

#[test]
fn a_worker_that_is_ready_twice_is_named() {
    let scratch = Scratch::new("stuck-twice");
    let policy = attacker(&scratch, "ready-twice", "start");
    let mut run = start(&policy, "rate=1000", &["--offences", "2"]);
    for _ in 0..2 {
        let named = "worker a said twice that it is ready: killed";
        run.wait_for_line("the naming", |line| line.contains(named));
    }
    run.wait_for_line("the drain", |line| line.contains("worker a is not started again"));
    // What drains is weir's own program: the offender's has no say in it any more.
    let exe = |pid: Pid| std::fs::read_link(proc(pid, "exe")).ok();
    wait_until("a drain of weir's own", PATIENCE, || {
        let workers = run.workers();
        let drain = workers.get("a").and_then(|pid| exe(*pid));
        drain.is_some() && drain == workers.get("tx:wan").and_then(|pid| exe(*pid))
    });
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

/// Processor time that a process has had.
fn worked(pid: Pid) -> Duration {
    let text = std::fs::read_to_string(proc(pid, "schedstat")).unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

#[test]
fn a_worker_that_closes_its_control_socket_is_named_and_costs_the_agent_nothing_until_then() {
    let scratch = Scratch::new("stuck-deaf");
    let policy = attacker(&scratch, "close-all", "packet");
    // Without the patience that would end it for hanging.
    let more = ["--patience", "0", "--offences", "2"];
    let mut run = start(&policy, "rate=1000", &more);
    for _ in 0..2 {
        run.wait_for_line("the attack", |line| line.contains("closes everything"));
        let before = worked(run.agent());
        let named = "worker a closed its control socket: killed";
        run.wait_for_line("the naming", |line| line.contains(named));
        // An agent that looks at the closed socket again and again takes all that it gets.
        let took = worked(run.agent()) - before;
        assert!(took < Duration::from_millis(250), "the agent worked for {took:?}");
    }
    run.wait_for_line("the drain", |line| line.contains("worker a is not started again"));
    run.wait_for_line("what that means", |line| {
        line.contains("the graph stands still: no NF is left")
    });
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.said);
    let restarts = finished.restarts();
    assert!(restarts.iter().all(|(name, n)| name == "a" || *n == 0), "{restarts:?}");
}

#[test]
fn a_graph_that_stands_still_says_so_once_and_why() {
    let scratch = Scratch::new("stuck-still");
    let policy =
        scratch.policy("Port<0> lan;  Port<1> wan;  MacSwap x;  pipelet { lan -> x;  x -> wan; }");
    let out = scratch.file("out.pcap");
    let wan = format!("1=pcap:tx={}", out.display());
    let args = ["--bind", "0=gen:rate=20000", "--bind", &wan, "--patience", "0"];
    let mut run = Run::start(&policy, &args);
    let workers = run.wait_for_workers(3);
    // A worker that takes packets is ready.
    let some = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 1_000);
    wait_until("the first packets", PATIENCE, some);
    kill_process(workers["tx:wan"], Signal::STOP).unwrap();
    let (_, line) = run.wait_for_line("the standstill", |line| line.contains("stands still"));
    assert!(line.contains("worker tx:wan has packets to take, and takes none"), "{line}");
    kill_process(workers["tx:wan"], Signal::CONT).unwrap();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("stood still");
    let said = finished.said.iter().filter(|line| line.contains("stands still"));
    assert_eq!(said.count(), 1, "{:?}", finished.said);
}

/// Waits until packets have come through: all workers are ready then.
fn wait_for_packets(out: &Path) {
    let has_some = || std::fs::metadata(out).is_ok_and(|found| found.len() > 100);
    wait_until("packets", PATIENCE, has_some);
}

/// Descriptors that the agent may have: fewer than it has, more than it waits for at a time.
const FEW: u64 = 12;

#[test]
fn who_cannot_be_started_again_is_replaced_by_a_drain_as_soon_as_that_can_be_and_ends_nobody() {
    let scratch = Scratch::new("stuck-start");
    let policy =
        scratch.policy("Port<0> lan;  Port<1> wan;  MacSwap a;  pipelet { lan -> a;  a -> wan; }");
    let out = scratch.file("out.pcap");
    let tx = format!("1=pcap:tx={}", out.display());
    let mut run = Run::start(&policy, &["--bind", "0=gen:rate=1000", "--bind", &tx]);
    let pid = run.wait_for_workers(3)["a"];
    wait_for_packets(&out);
    let few = Rlimit { current: Some(FEW), ..getrlimit(Resource::Nofile) };
    let before = match prlimit(Some(run.agent()), Resource::Nofile, few) {
        // The agent hides from its own user.
        Err(_) if !rustix::process::geteuid().is_root() => {
            return eprintln!("skipped: limiting an agent needs root");
        }
        before => before.unwrap(),
    };
    kill_process(pid, Signal::KILL).unwrap();
    run.wait_for_line("what is missing", |line| line.contains("Too many open files"));
    run.wait_for_line("the drain", |line| line.contains("worker a is not started again"));
    prlimit(Some(run.agent()), Resource::Nofile, before).unwrap();
    wait_until("the drain's start", PATIENCE, || run.workers().contains_key("a"));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_service_that_cannot_begin_again_is_tried_again_and_named_with_its_reason_in_the_end() {
    let scratch = Scratch::new("stuck-service");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  Busy a { cycles: 300000 };  pipelet { lan -> a;  a -> wan; }",
    );
    let capture = scratch.file("in.pcap");
    write_capture(&capture, 50_000);
    let rx = format!("0=pcap:rx={}", capture.display());
    let out = scratch.file("out.pcap");
    let tx = format!("1=pcap:tx={}", out.display());
    let mut run = Run::start(&policy, &["--bind", &rx, "--bind", &tx]);
    wait_for_packets(&out);
    std::fs::remove_file(&capture).unwrap();
    kill_process(run.workers()["rx:lan"], Signal::KILL).unwrap();
    for time in ["its death", "that of its successor", "that of a second one"] {
        run.wait_for_line(time, |line| line.contains("worker rx:lan died"));
    }
    run.wait_for_line("the end", |line| {
        line.contains("weir: rx:lan: it dies before it is ready, again and again (")
            && line.contains("in.pcap")
    });
}
