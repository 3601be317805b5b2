//! `--instances NF=N,least`: packets that need not meet go round an instance that does not get on with its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;

use common_crash::*;
use rustix::process::{Signal, kill_process};

/// Entries of a ring.
const RING: u64 = 1024;

/// Copies end at `x`, whose instances so wait for nobody; how many there are of them the packets themselves show.
const COUNTED: &str = "Port<0> lan;  Port<1> wan;  Tee t;  PacketSizeHistogram x;
pipelet { lan -> t;  t [t.out] -> wan;  t [t.copy] -> x;  x -> Drop; }";

/// In turn, a full ring of one instance would hold up all.
#[test]
fn packets_go_round_an_instance_that_stands_still() {
    let scratch = Scratch::new("least");
    let (policy, out) = (scratch.policy(COUNTED), scratch.file("out.pcap"));
    let tx = format!("1=pcap:tx={}", out.display());
    // Few enough for one instance, which then has never as many waiting as the one that stands still.
    let args = ["--bind", "0=gen:size=64,rate=5000", "--bind", &tx, "--isolate", "each"];
    let more = ["--instances", "x=2,least", "--ring", "1024", "--patience", "0"];
    let run = Run::start(&policy, &[&args[..], &more].concat());
    let workers = run.wait_for_workers(5);
    let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
    wait_until("packets to flow", PATIENCE, || size() > 0);
    kill_process(workers["x#1"], Signal::STOP).unwrap();
    let enough = size() + 6 * RING * 80;
    wait_until("packets to go round it", PATIENCE, || size() > enough);
    kill_process(workers["x#1"], Signal::CONT).unwrap();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("least");
    let nodes = finished.report["nodes"].as_array().unwrap();
    let x = nodes.iter().find(|node| node["name"] == "x").unwrap();
    let parts = x["instances"].as_array().unwrap().iter();
    let parts: Vec<u64> = parts.map(|one| one["packets"].as_u64().unwrap()).collect();
    assert_eq!(parts.iter().sum::<u64>(), finished.number("/balance/in"));
    // What is not its had no room where the other stands.
    assert!(parts[1] > 4 * RING, "{parts:?}");
}
