//! A run that is asked to end does so within a bound, whatever state its graph is in, and says what it cost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::weir;
use rustix::process::{Signal, kill_process};

const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
MacSwap x;  PacketSizeHistogram y;
pipelet { lan -> x -> y -> wan; }";

/// Starts the chain, stops `dead` for good, as nobody ends who hangs, and waits until that can be seen.
fn comes_to_no_end(scratch: &Scratch, dead: &str, more: &[&str]) -> Run {
    let (policy, out) = (scratch.policy(CHAIN), scratch.file("out.pcap"));
    let wan = format!("1=pcap:tx={}", out.display());
    let args = ["--bind", "0=gen:rate=20000", "--bind", &wan, "--patience", "0", "--drain", "1"];
    let mut run = Run::start(&policy, &[args.as_slice(), more].concat());
    // Another domain's NF has a gate before it and one behind it.
    let apart = !more.is_empty();
    let workers = run.wait_for_workers(if apart { 6 } else { 4 });
    let some = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 1_000);
    wait_until("the first packets", PATIENCE, some);
    kill_process(workers[dead], Signal::STOP).unwrap();
    if !apart {
        // A gate would drop what is not taken: then all goes on but for the end.
        run.wait_for_line("the standstill", |line| line.contains("stands still"));
    }
    run
}

#[test]
fn a_graph_that_stands_still_ends_when_it_is_asked_to_and_counts_what_was_under_way() {
    // A µNF, in one domain with all and apart; who sends.
    let apart = ["--domain", "y=other"];
    for (dead, more) in [("x", [].as_slice()), ("y", &[]), ("y", &apart), ("tx:wan", &[])] {
        let what = format!("{dead} {more:?}");
        let scratch = Scratch::new("ending");
        let run = comes_to_no_end(&scratch, dead, more);
        run.signal(Signal::INT);
        let finished = run.finish();
        let said = finished.said.join("\n");
        assert_eq!(finished.code, Some(1), "{what}: {said}");
        assert!(
            said.contains("was still under way 1 s after the end was asked for"),
            "{what}: {said}"
        );
        // All that came in is somewhere, and every buffer is back.
        assert!(
            finished.report["sound"].as_bool().unwrap(),
            "{what}: {:#}\n{said}",
            finished.report
        );
        // How many there are to take for who is stopped behind a gate is a matter of chance.
        let some = finished.number("/balance/lost") > 0 || !more.is_empty();
        assert!(some, "{what}: {:#}", finished.report);
        assert_eq!(finished.number("/undrained"), finished.number("/balance/lost"), "{what}");
        let written = read_capture(&scratch.file("out.pcap"), |_| ()).len() as u64;
        let out = finished.number("/balance/out");
        // Who sends may have been stopped between what it wrote and counting it, a batch at most: no successor takes that back.
        let uncounted = if dead == "tx:wan" { finished.number("/undrained").min(BATCH) } else { 0 };
        assert!((out..=out + uncounted).contains(&written), "{what}: {written} instead of {out}");
    }
}

#[test]
fn it_ends_in_time_while_a_successor_is_still_to_be_started() {
    let scratch = Scratch::new("ending-restart");
    let (policy, drops) = (scratch.policy(CHAIN), scratch.file("drops.pcapng"));
    let drops = drops.display().to_string();
    let args = ["--bind", "0=gen:rate=20000", "--bind", "1=null", "--restart-delay", "60000"];
    let socket = scratch.file("control");
    let path = socket.display().to_string();
    let more = ["--drain", "1", "--dump-drops", &drops, "--control", &path];
    let mut run = Run::start(&policy, &[&args[..], &more].concat());
    run.wait_for_workers(5);
    // The successor would be there after 10 s: the end asked for is cut short well before, on a slow machine, too.
    run.kill_often("x", 12);
    // It dies having taken all that had come, often: what comes then waits for its successor.
    wait_until("packets that wait", PATIENCE, || {
        let load = weir(&socket, &["get", "load", "x"]);
        let row = &load.out["load"][0];
        row["ready"] == false && row["input"].as_u64().is_some_and(|filled| filled > 0)
    });
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(1), "{:?}", finished.said);
    assert!(finished.report["sound"].as_bool().unwrap(), "{:#}", finished.report);
    assert!(finished.number("/undrained") > 0, "nothing waited for it: {:#}", finished.report);
    assert!(finished.number("/undrained") <= finished.number("/balance/lost"));
}

#[test]
fn a_graph_that_drains_in_time_ends_as_ever() {
    let scratch = Scratch::new("ending-sound");
    let policy = scratch.policy(CHAIN);
    let run =
        Run::start(&policy, &["--bind", "0=gen:rate=20000", "--bind", "1=null", "--drain", "20"]);
    run.wait_for_workers(4);
    run.signal(Signal::TERM);
    let finished = run.finish();
    finished.assert_sound("drained");
    assert!(finished.report["undrained"].is_null(), "{:#}", finished.report);
}
