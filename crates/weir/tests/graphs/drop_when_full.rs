//! `--drop-when-full`: rings that drop instead of slowing down who sends, where the operator wants that and nowhere else.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use serde_json::Value;
use std::path::PathBuf;

const PACKETS: u64 = 20_000;

/// `slow` takes a fraction of a thousandth of a second for each packet.
const SLOW: &str = "Busy slow { cycles: 500000 };";

struct Bench {
    scratch: Scratch,
    policy: PathBuf,
}

impl Bench {
    fn new(name: &str, pipelet: &str) -> Self {
        let scratch = Scratch::new(name);
        let slow = if pipelet.contains("slow") { SLOW } else { "" };
        let policy = scratch.policy(&format!("Port<0> lan;  Port<1> wan;  {slow}  {pipelet}"));
        write_capture(&scratch.file("in.pcap"), PACKETS);
        Bench { scratch, policy }
    }

    /// Runs it; the report and the packets that left.
    fn run(&self, more: &[&str]) -> (Finished, Vec<u64>) {
        let (input, out) = (self.scratch.file("in.pcap"), self.scratch.file("out.pcap"));
        let (rx, tx) =
            (format!("0=pcap:rx={}", input.display()), format!("1=pcap:tx={}", out.display()));
        let mut args = vec!["--bind", &rx, "--bind", &tx, "--ring", "64", "--consolidate", "off"];
        args.extend(["--parallel", "never", "--restart-delay", "0"]);
        args.extend(more);
        let finished = Run::start(&self.policy, &args).finish();
        (finished, read_capture(&out, number))
    }
}

/// Packets in, and dropped as the ring was full, of a node.
fn counts(report: &Value, node: &str) -> (u64, u64) {
    let nodes = report["nodes"].as_array().unwrap();
    let row = nodes.iter().find(|row| row["name"] == node).unwrap();
    let full = row["drops"].get("ring-full").map_or(0, |n| n.as_u64().unwrap());
    (row["packets"].as_u64().unwrap(), full)
}

/// Copies go to an NF that cannot follow.
const WATCHED: &str = "Port<2> log;  Tee t;
pipelet { lan -> t;  t [t.out] -> wan;  t [t.copy] -> slow;  slow -> log; }";

#[test]
fn an_nf_that_may_miss_packets_slows_down_nobody() {
    let bench = Bench::new("watched", WATCHED);
    let more = ["--bind", "2=null", "--drop-when-full", "slow"];
    for isolate in [&["--isolate", "each"][..], &["--isolate", "each", "--spin", "0"]] {
        let (finished, numbers) = bench.run(&[isolate, &more].concat());
        finished.assert_sound("watched");
        // Whatever becomes of the copies, the packets themselves are all there.
        assert_eq!(numbers, (0..PACKETS).collect::<Vec<_>>());
        let ((copied, full), (seen, _)) =
            (counts(&finished.report, "t"), counts(&finished.report, "slow"));
        assert_eq!((copied, seen + full), (PACKETS, PACKETS), "each copy is seen or counted");
        assert!(full > PACKETS / 2 && seen >= 64, "{seen} seen, {full} dropped");
        assert_eq!(finished.number("/balance/dropped"), full, "nothing else is dropped");
    }
}

#[test]
fn what_is_dropped_in_the_middle_of_a_chain_is_counted_whoever_dies_and_the_rest_is_in_order() {
    let chain = "MacSwap a;  MacSwap b;  pipelet { lan -> a -> slow -> b -> wan; }";
    let bench = Bench::new("chain", chain);
    let run = |fault: Option<&str>| {
        let mut more = vec!["--isolate", "each", "--drop-when-full", "slow"];
        more.extend(fault.into_iter().flat_map(|fault| ["--fault", fault]));
        let (finished, numbers) = bench.run(&more);
        let what = format!("{fault:?}");
        finished.assert_sound(&what);
        assert_in_order(&numbers, &what);
        let (lost, (came, full)) =
            (finished.number("/balance/lost"), counts(&finished.report, "a"));
        assert!(full > PACKETS / 2, "{what}: {full}");
        assert_eq!(numbers.len() as u64 + full + lost, PACKETS, "{what}");
        assert!(lost <= BATCH && came + lost >= PACKETS, "{what}: {lost} lost, {came} came");
        finished.restarts()
    };
    assert!(run(None).values().all(|n| *n == 0));
    for worker in ["a", "slow"] {
        for step in 1..=12 {
            let fault = format!("{worker}:{step}:1");
            assert_eq!(run(Some(&fault))[worker], 1, "{fault}");
        }
    }
}

/// What waits for nobody is told all the same how far its source has come, and that it has ended.
#[test]
fn ways_that_come_together_again_keep_the_order() {
    let meets = "MacSwap a;  MacSwap fast;  MacSwap join;
pipelet { lan -> a;  a [udp dst portrange 6000-6006] -> slow;  a [!(udp dst portrange 6000-6006)] -> fast;
slow -> join;  fast -> join;  join -> wan; }";
    let bench = Bench::new("meets", meets);
    let (finished, numbers) = bench.run(&["--isolate", "each", "--drop-when-full", "slow"]);
    finished.assert_sound("meets");
    assert_in_order(&numbers, "meets");
    let (_, full) = counts(&finished.report, "a");
    assert_eq!(numbers.len() as u64 + full, PACKETS);
    // Who waits is the fast way, for the order: meanwhile most of the others find no room.
    assert!(full > PACKETS / 4, "{full}");
    let fast = numbers.iter().filter(|n| flow_of(**n) == 7).count();
    assert_eq!(fast, (0..PACKETS).filter(|n| flow_of(*n) == 7).count(), "only the slow way drops");
}

#[test]
fn where_nobody_asks_for_it_and_in_one_worker_nothing_is_dropped() {
    let bench = Bench::new(
        "asked",
        "Busy b { cycles: 20000 };  MacSwap a;  pipelet { lan -> a -> b -> wan; }",
    );
    for more in [&["--isolate", "each"][..], &["--isolate", "none", "--drop-when-full", "b"]] {
        let (finished, numbers) = bench.run(more);
        finished.assert_sound("asked");
        assert_eq!((numbers.len() as u64, counts(&finished.report, "a").1), (PACKETS, 0));
    }
}

#[test]
fn what_is_not_there_cannot_drop() {
    let bench = Bench::new("nothing", "pipelet { lan -> slow -> wan; }");
    let policy = bench.policy.to_str().unwrap();
    let check = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", policy, "--drop-when-full", "quick"])
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(2));
    let said = String::from_utf8(check.stderr).unwrap();
    assert!(
        said.contains(
            "--drop-when-full quick: the policy has no NF and no port quick; it has lan, wan, slow"
        ),
        "{said}"
    );
}
