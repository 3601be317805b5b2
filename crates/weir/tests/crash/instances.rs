//! `kill -9` of one of several instances of an NF, under load: it loses what it had in hand, which is counted;
//! what waits for it waits for its successor; the other instance is not touched.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::Signal;

const BOTTLENECK: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  Busy slow { cycles: 10000 };  PacketSizeHistogram sizes;
pipelet { lan -> head -> slow -> sizes -> wan; }";

const PACKETS: u64 = 150_000;
const KILLS: u64 = 20;

#[test]
fn a_killed_instance_loses_what_it_had_in_hand_and_only_that() {
    let scratch = Scratch::new("instances");
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let policy = scratch.policy(BOTTLENECK);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    let args = ["--bind", &rx, "--bind", &tx, "--restart-delay", "0"];
    let more = ["--instances", "slow=2", "--instances", "sizes=2"];
    let mut run = Run::start(&policy, &[args.as_slice(), &more].concat());
    run.wait_for_workers(7);
    let names = ["slow#1", "slow#2", "sizes#2"];
    let names = names.into_iter().cycle().take(KILLS as usize);
    let (lost, kills) = kill_in_turn(&mut run, &out, names);
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("instances");
    let mut restarts = finished.restarts();
    restarts.retain(|_, n| *n > 0);
    assert_eq!(restarts, kills, "nobody else was started again");
    assert_eq!(finished.number("/balance/lost"), lost);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "instances");
    let missing = finished.number("/balance/in") - numbers.len() as u64;
    assert_eq!(missing, lost, "what was lost was in the dead ones' hands");
    // Both had their part, and the NF's counters are theirs together.
    let nodes = finished.report["nodes"].as_array().unwrap();
    let slow = nodes.iter().find(|node| node["name"] == "slow").unwrap();
    let parts: Vec<u64> = slow["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["packets"].as_u64().unwrap())
        .collect();
    assert_eq!(parts.len(), 2);
    assert_eq!(parts.iter().sum::<u64>(), slow["packets"].as_u64().unwrap());
    assert!(parts.iter().all(|n| n * 3 > slow["packets"].as_u64().unwrap()), "{parts:?}");
}

/// As `weir_mem::fault::Step::Claimed`.
const CLAIMED: u32 = 4;

#[test]
fn who_dies_between_taking_the_ends_of_two_lanes_has_nobody_named_for_it() {
    let scratch = Scratch::new("instances-ends");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  MacSwap x;  MacSwap y;
         pipelet { lan -> x;  x -> y;  y -> wan; }",
    );
    // No packets come: the first that Tx, and `y`, claim is the end of the lane from one instance of the two.
    for (dies, nth) in [("tx:wan", 1), ("tx:wan", 2), ("y#1", 1), ("y#1", 2)] {
        let fault = format!("{dies}:{CLAIMED}:{nth}");
        let args = ["--bind", "0=gen:packets=0", "--bind", "1=null", "--fault", &fault];
        let more = ["--instances", "x=3", "--instances", "y=2"];
        let mut run = Run::start(&policy, &[args.as_slice(), &more].concat());
        let died = format!("worker {dies} died");
        run.wait_for_line("the death", |line| line.contains(&died));
        let finished = run.finish();
        finished.assert_sound(&fault);
        let said = &finished.said;
        assert!(!said.iter().any(|line| line.contains("nonsense")), "{fault}: {said:?}");
        assert_eq!(finished.number("/balance/lost"), 0, "{fault}: {said:?}");
    }
}
