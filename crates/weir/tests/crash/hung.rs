//! Workers that neither take nor give: named, ended, started again; the others go on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// How long a worker may hang, as the documentation promises.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn each_kind_of_worker_that_is_stopped_is_named_and_replaced() {
    let scratch = Scratch::new("hung-stopped");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  MacSwap x;  MacSwap y;
         pipelet { lan -> x;  x -> y;  y -> wan; }",
    );
    let args = ["--bind", "0=gen:rate=20000", "--bind", "1=null", "--duration", "600"];
    let mut run = Run::start(&policy, &args);
    for name in ["rx:lan", "x", "y", "tx:wan"] {
        let workers = run.wait_for_workers(4);
        kill_process(workers[name], Signal::STOP).unwrap();
        let stopped = Instant::now();
        let wants = format!("worker {name} was stopped: killed");
        let (named, _) =
            run.wait_for_line("the stopped worker to be named", |l| l.contains(&wants));
        let again = format!("worker {name} runs again");
        let (at, _) = run.wait_for_line("its successor", |l| l.contains(&again));
        // The machine may be loaded; what is promised is shown where it is not.
        let took = (named - stopped, at - stopped);
        assert!(took.0 < 5 * SOON && took.1 < 6 * SOON, "{name}: {took:?}");
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("stopped one after the other");
    let restarts = finished.restarts();
    assert!(restarts.values().all(|&r| r == 1), "{restarts:?}");
}

/// Two ways from one port: who stops on one holds up the other, when its ring is full.
const WAYS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
MacSwap stops;  Busy goes { cycles: 100000 };
pipelet {
  lan [udp dst portrange 6000-6003] -> stops;  lan [!(udp dst portrange 6000-6003)] -> goes;
  stops -> wan;  goes -> out;
}";

#[test]
fn neighbours_of_a_worker_that_is_stopped_stall_for_less_than_a_second() {
    let scratch = Scratch::new("hung-neighbours");
    let policy = scratch.policy(WAYS);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 1_000_000);
    let (rx, tx) =
        (format!("0=pcap:rx={}", input.display()), format!("2=pcap:tx={}", out.display()));
    let mut args = vec!["--bind", &rx, "--bind", "1=null", "--bind", &tx];
    args.extend(["--ring", "64", "--restart-delay", "0", "--offences", "100"]);
    let mut run = Run::start(&policy, &args);
    let len = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let mut gaps = Vec::new();
    // What others on the machine take of the time is nobody's fault: one of these must do.
    while gaps.len() < 5 && gaps.iter().all(|gap| *gap >= SOON) {
        let before = len();
        wait_until("packets of the neighbour", PATIENCE, || len() > before);
        kill_process(run.wait_for_workers(5)["stops"], Signal::STOP).unwrap();
        let (end, mut again) = (Instant::now() + PATIENCE, false);
        let (mut grown, mut at, mut longest) = (len(), Instant::now(), Duration::ZERO);
        loop {
            assert!(Instant::now() < end, "it stands still:\n{}", run.said.join("\n"));
            let line = run.next_line(Duration::from_millis(1));
            again |= line.is_some_and(|(_, l)| l.contains("worker stops runs again"));
            if len() > grown {
                longest = longest.max(at.elapsed());
                (grown, at) = (len(), Instant::now());
                if again {
                    break;
                }
            }
        }
        gaps.push(longest);
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("neighbours");
    assert!(gaps.iter().any(|gap| *gap < SOON), "{gaps:?}");
    // It did wait for it: else this says nothing.
    assert!(gaps.iter().all(|gap| *gap > SOON / 20), "{gaps:?}");
    println!("longest silence of the neighbour: {gaps:?}");
    let restarts = finished.restarts();
    assert!(restarts.iter().all(|(name, n)| name == "stops" || *n == 0), "{restarts:?}");
}

/// Four billion cycles a packet: longer than anybody waits. Beside it goes what has nothing to do with it.
const ENDLESS: &str = "
Port<0> lan;  Port<1> other;  Port<2> out;  Port<3> away;
Busy endless { cycles: 4000000000 };  MacSwap x;
pipelet { lan -> endless;  endless -> out; }
pipelet { other -> x;  x -> away; }";

#[test]
fn a_worker_in_an_endless_loop_is_ended_and_what_goes_by_it_flows_on() {
    let scratch = Scratch::new("hung-loop");
    let policy = scratch.policy(ENDLESS);
    let away = scratch.file("away.pcap");
    let device = format!("3=pcap:tx={}", away.display());
    let args = [
        "--bind",
        "0=gen:rate=10,packets=3",
        "--bind",
        "1=gen:rate=50000,packets=100000",
        "--bind",
        "2=null",
        "--bind",
        &device,
    ];
    let mut run = Run::start(&policy, &args);
    let wants = "worker endless does not come to the end of a batch: killed";
    for _ in 0..2 {
        run.wait_for_line("the endless loop to be named", |l| l.contains(wants));
        run.wait_for_line("its successor", |l| l.contains("worker endless runs again"));
    }
    let finished = run.finish();
    finished.assert_sound("an endless loop");
    let restarts = finished.restarts();
    let others = restarts.iter().filter(|(name, _)| *name != "endless");
    assert!(others.into_iter().all(|(_, &r)| r == 0), "{restarts:?}");
    assert_eq!(read_capture(&away, |_| ()).len(), 100_000);
}

#[test]
fn packets_that_hang_a_micro_nf_do_not_close_its_worker() {
    let scratch = Scratch::new("hung-packets");
    let policy = scratch.policy(ENDLESS);
    let away = scratch.file("away.pcap");
    let device = format!("3=pcap:tx={}", away.display());
    let args = [
        "--isolate",
        "none",
        "--offences",
        "2",
        "--bind",
        "0=gen:flows=8,packets=8,rate=2",
        "--bind",
        "1=gen:rate=50000,packets=100000",
        "--bind",
        "2=null",
        "--bind",
        &device,
    ];
    let finished = Run::start(&policy, &args).finish();
    finished.assert_sound("packets that hang");
    // Eight packets, each of another flow, that come one after the other: more hang it than may be named.
    assert!(finished.restarts().values().sum::<u64>() >= 2, "{:?}", finished.said);
    assert!(
        !finished.said.iter().any(|l| l.contains("is not started again")),
        "{:?}",
        finished.said
    );
    // What was in its hands with those is lost, and no more.
    let lost = finished.number("/balance/lost");
    let out = read_capture(&away, |_| ()).len() as u64;
    assert!(out + lost >= 100_000, "{out} {lost}");
}

#[test]
fn a_worker_that_is_only_slow_or_starved_is_left_alone() {
    let scratch = Scratch::new("hung-slow");
    // A batch of 256 takes a fifth of the patience.
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  Busy slow { cycles: 1000000 };
         pipelet { lan -> slow;  slow -> wan; }",
    );
    let args = ["--bind", "0=gen:packets=3000", "--bind", "1=null"];
    let finished = Run::start(&policy, &args).finish();
    finished.assert_sound("slow");
    assert!(finished.restarts().values().all(|&r| r == 0), "{:?}", finished.said);
    assert_eq!(finished.number("/balance/out"), 3000);
}
