//! `kill -9` of workers around a cycle, under load: each loses what it had in hand, which is counted, and the run
//! ends all the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::Signal;

/// Each packet goes round four times, until its TTL has become 60.
const ROUND: &str = "
Port<0> lan;  Port<1> wan;  default drop;
TtlDecrement t;  Busy slow { cycles: 2000 };
pipelet { lan -> t;  t [t.out && ip[8] > 60] -> slow;  slow -> t;  t [t.out && ip[8] <= 60] -> wan; }";

const PACKETS: u64 = 150_000;
const KILLS: usize = 20;

#[test]
fn what_is_killed_around_a_cycle_loses_what_it_had_in_hand_and_the_run_ends() {
    let scratch = Scratch::new("cycles");
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let policy = scratch.policy(ROUND);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    let mut run = Run::start(&policy, &["--bind", &rx, "--bind", &tx, "--restart-delay", "0"]);
    run.wait_for_workers(4);
    let names = ["slow", "t", "rx:lan", "tx:wan"].into_iter().cycle().take(KILLS);
    let (lost, kills) = kill_in_turn(&mut run, &out, names);
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("cycles");
    let mut restarts = finished.restarts();
    restarts.retain(|_, n| *n > 0);
    assert_eq!(restarts, kills, "nobody else was started again");
    assert_eq!(finished.number("/balance/lost"), lost);
    // All went round as often, one behind the other.
    let numbers = read_capture(&out, |bytes| {
        assert_eq!(bytes[22], 60);
        u64::from_be_bytes(bytes[42..50].try_into().unwrap())
    });
    assert_in_order(&numbers, "cycles");
    let missing = finished.number("/balance/in") - numbers.len() as u64;
    assert_eq!(missing, lost + finished.number("/balance/dropped"));
}

#[test]
#[cfg(feature = "faults")]
fn a_run_ends_when_a_worker_has_died_with_the_last_packets_in_hand() {
    let scratch = Scratch::new("cycles-last");
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 10);
    let policy = scratch.policy(ROUND);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    for worker in ["t", "slow", "tx:wan"] {
        for (step, nth) in [(4, 1), (4, 3), (8, 1), (8, 2)] {
            let fault = format!("{worker}:{step}:{nth}");
            let args = ["--bind", &rx, "--bind", &tx, "--restart-delay", "0", "--fault", &fault];
            let finished = Run::start(&policy, &args).finish();
            finished.assert_sound(&fault);
            let n = |key: &str| finished.number(&format!("/balance/{key}"));
            assert_eq!(n("out") + n("lost"), 10, "{fault}");
        }
    }
}
