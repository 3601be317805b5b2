//! A hostile worker that writes no nonsense into rings: letters about flows that move, which all instances of an NF and
//! those who divide packets over them write to each other, and packets that it keeps.
//!
//! `WEIR_HOSTILE_SECONDS` says for how long (10 unless given), `WEIR_SEED` with which seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// One chain has the NF of several instances, one of which is hostile; another has nothing to do with it.
const CHAINS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> left;  Port<3> right;
FlowMonitor mon { top: 100 };  Busy calm { cycles: 30000 };  MacSwap also;
pipelet { lan -> mon;  mon -> wan; }
pipelet { left -> calm;  calm -> also;  also -> right; }";

/// Packets of the chain that must not notice.
const PACKETS: u64 = 100_000;

/// First seed of those that write letters.
const LETTERS: u64 = 2 << 32;

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|s| s.parse().unwrap())
}

fn seconds() -> Duration {
    Duration::from_secs(number_from("WEIR_HOSTILE_SECONDS").unwrap_or(10) / 2)
}

fn clean(finished: &Finished, what: &str) {
    let show = || format!("{what}: {:#}\n{}", finished.report, finished.said.join("\n"));
    assert_eq!(finished.code, Some(0), "{}", show());
    assert_eq!(finished.report["sound"], true, "{}", show());
    let c = |key: &str| finished.number(&format!("/census/{key}"));
    let census = (c("free"), c("held"), c("in_lanes"), c("doubled"));
    assert_eq!(census, (c("buffers"), 0, 0, 0), "{}", show());
    for line in &finished.said {
        assert!(!line.contains("panicked"), "{}", show());
    }
}

#[test]
fn an_instance_that_writes_nonsense_to_the_others_of_its_nf_harms_nobody_else_and_hangs_nobody() {
    let end = Instant::now() + seconds();
    let start = number_from("WEIR_SEED").unwrap_or(1);
    for seed in start.. {
        let what = format!("letters {seed}");
        let scratch = Scratch::new(&format!("hostile-letters-{seed}"));
        let policy = scratch.policy(CHAINS);
        let (calm, calm_out) = (scratch.file("calm.pcap"), scratch.file("calm-out.pcap"));
        let wan = scratch.file("wan.pcap");
        write_capture(&calm, PACKETS);
        let binds = [
            "0=gen:size=64,flows=400,rate=20000".to_owned(),
            format!("1=pcap:tx={}", wan.display()),
            format!("2=pcap:rx={}", calm.display()),
            format!("3=pcap:tx={}", calm_out.display()),
        ];
        let attack = format!("mon#2:{}", LETTERS + (seed << 16));
        let mut args = vec!["--instances", "mon=3", "--attack", &attack];
        args.extend(["--restart-delay", "0", "--offences", "1000000"]);
        args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
        let mut run = Run::start(&policy, &args);
        run.wait_for_line("the strike", |line| line.contains("mon#2 strikes"));
        let len = |path| std::fs::metadata(path).map_or(0, |m| m.len());
        let size = len(&calm);
        let deadline = Instant::now() + PATIENCE;
        while len(&calm_out) < size {
            assert!(Instant::now() < deadline, "{what}: it stands still:\n{}", run.said.join("\n"));
            while run.next_line(Duration::from_millis(5)).is_some() {}
        }
        // Packets of its own NF go on as well.
        let before = len(&wan);
        wait_until("packets of the NF to go on", PATIENCE, || len(&wan) > before);
        run.signal(Signal::INT);
        let finished = run.finish();
        clean(&finished, &what);
        let numbers = read_capture(&calm_out, number);
        assert!(numbers.iter().copied().eq(0..PACKETS), "{what}: {}", finished.said.join("\n"));
        // Of whoever writes no letters nobody is ended.
        for (name, restarts) in finished.restarts() {
            assert!(name.starts_with("mon") || restarts == 0, "{name}: {:?}", finished.said);
        }
        println!("{what}: {:?}", finished.restarts());
        if Instant::now() > end {
            break;
        }
    }
}

#[test]
fn who_announces_flows_and_never_sends_them_has_nobody_wait_for_long_and_nobody_is_ended_for_it() {
    let scratch = Scratch::new("hostile-announces");
    let policy = scratch
        .policy("Port<0> lan;  Port<1> wan;  FlowMonitor mon;  pipelet { lan -> mon -> wan; }");
    let out = scratch.file("out.pcap");
    let tx = format!("1=pcap:tx={}", out.display());
    let mut args = vec!["--bind", "0=gen:size=64,flows=400,rate=20000", "--bind", &tx];
    args.extend(["--instances", "mon=3", "--attack", "mon#2:4"]);
    let mut run = Run::start(&policy, &args);
    run.wait_for_line("the strike", |line| line.contains("mon#2 strikes"));
    // Either may be the first.
    let mut wait = BTreeSet::from(["mon#1", "mon#3"]);
    while !wait.is_empty() {
        let announced = "waits no longer for flows that mon#2 announced";
        let (_, line) = run.wait_for_line("who waits no longer", |line| line.contains(announced));
        wait.retain(|other| !line.contains(&format!("worker {other} ")));
    }
    // More than all rings hold: nobody waits any more, however often it announces anew.
    let len = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let more = len() + 60_000 * 80;
    let deadline = Instant::now() + PATIENCE;
    while len() < more {
        assert!(Instant::now() < deadline, "it stands still:\n{}", run.said.join("\n"));
        while run.next_line(Duration::from_millis(5)).is_some() {}
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    clean(&finished, "announcer");
    assert!(finished.restarts().values().all(|n| *n == 0), "{}", finished.said.join("\n"));
    let workers = finished.report["workers"].as_array().unwrap();
    let unsent = |w: &&serde_json::Value| w["unsent"].as_u64().is_some_and(|n| n > 0);
    let named: Vec<_> = workers.iter().filter(unsent).map(|w| &w["name"]).collect();
    assert_eq!(named, ["mon#2"], "{:#}", finished.report);
}

/// Two ways from one port, and so from one pool; one is the hostile NF's. They do not meet again.
const WAYS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
MacSwap hostile;  MacSwap quick;
pipelet {
  lan [udp dst portrange 6000-6003] -> hostile;  lan [!(udp dst portrange 6000-6003)] -> quick;
  hostile -> wan;  quick -> out;
}";

/// Packets on both ways.
const KEPT_FROM: u64 = 400_000;

/// A run in which the hostile NF keeps what it takes, and how much came by the other way.
fn keeper(scratch: &Scratch, more: &[&str]) -> (Run, impl Fn() -> u64) {
    let policy = scratch.policy(WAYS);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, KEPT_FROM);
    let binds = [format!("0=pcap:rx={}", input.display()), format!("2=pcap:tx={}", out.display())];
    let mut args = vec!["--bind", &binds[0], "--bind", "1=null", "--bind", &binds[1]];
    args.extend(["--attack", "hostile:3", "--restart-delay", "0"]);
    args.extend(more);
    let run = Run::start(&policy, &args);
    (run, move || std::fs::metadata(&out).map_or(0, |file| file.len().saturating_sub(24) / RECORD))
}

#[test]
fn packets_that_an_nf_of_several_keeps_are_found_and_the_others_get_their_buffers_back() {
    let scratch = Scratch::new("hostile-keeps");
    let (mut run, out) = keeper(&scratch, &[]);
    for _ in 0..2 {
        run.wait_for_line("what is missing", |line| line.contains("packets are missing: an NF"));
        // Nobody could take more while the pool was dry.
        let before = out();
        wait_until("packets of the other way", PATIENCE, || out() > before + 1000);
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    // Nobody was named: such a run is not sound.
    assert_eq!((finished.code, &finished.report["sound"]), (Some(1), &false.into()));
    let killed = finished.said.iter().filter(|line| line.contains("kept packets"));
    assert_eq!(killed.count(), 0, "{:?}", finished.said);
    assert_eq!(finished.restarts()["quick"], 0, "{:?}", finished.said);
}

#[test]
fn who_keeps_packets_in_a_domain_of_its_own_is_named_and_traffic_goes_on() {
    let scratch = Scratch::new("hostile-keeps-own");
    let (mut run, out) = keeper(&scratch, &["--domain", "hostile=theirs"]);
    run.wait_for_line("its name", |line| {
        line.contains("worker hostile kept packets that it took: killed")
    });
    // It ends by itself, and all that goes the other way arrives.
    clean(&run.finish(), "keeper in a domain of its own");
    let others = (0..KEPT_FROM).filter(|number| flow_of(*number) >= 4).count();
    assert_eq!(out(), others as u64);
}
