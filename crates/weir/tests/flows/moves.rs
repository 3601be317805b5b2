//! Flows that go from one instance of an NF to another while packets come: none lost, none reordered within its flow, none
//! begun anew. Who dies meanwhile: `flows/moves_deaths.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// Packets from two sources, which come to the segment's replicas by different NFs.
const TWO_ENTRIES: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
FlowMonitor mon { top: 100 };  FlowMonitor both { top: 100 };
pipelet { lan -> mon -> both;  wan -> both;  both -> out; }";

/// Two sources, and so two that divide packets.
const TWO: &str = "
Port<0> lan;  Port<1> wan;  Port<2> out;
FlowMonitor mon { top: 100 };
pipelet { lan -> mon;  wan -> mon;  mon -> out; }";

#[test]
fn flows_of_a_capture_are_moved_under_load_and_none_is_lost_reordered_or_begun_anew() {
    moved_under_load(&ALONE, "capture");
}

#[test]
fn flows_of_a_segments_replicas_move_with_what_all_its_nfs_remember() {
    moved_under_load(&TOGETHER, "capture-fused");
}

fn moved_under_load(kind: &Kind, name: &str) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let flows = u64::from(FLOWS);
    // All to one, some back by a filter, a share, and all to another.
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [flows, 0, 0]);
    moving.wait_for_traffic();
    assert_eq!(moving.moves(&["dst port 6001 or 6003", "--to", "3"]), 2);
    assert_eq!(moving.counts(), [flows - 2, 0, 2]);
    let said = moving.ask(&["get", "flows", "--nf", kind.nfs[0]]);
    let keys = |at: usize| said.out["flows"]["counts"][at]["moved"].as_u64();
    assert_eq!([0, 1, 2].map(keys), [Some(0), Some(0), Some(2)], "{said:?}");
    moving.wait_for_traffic();
    assert_eq!(moving.moves(&["--all", "--to", "2"]), flows);
    assert_eq!(moving.counts(), [0, flows, 0]);
    moving.wait_for_traffic();
    for round in 0..8 {
        moving.moves(&["--share", "50", "--to", ["1", "2", "3"][round % 3]]);
    }
    moving.wait_for_traffic();
    assert_eq!(moving.counts().iter().sum::<u64>(), flows);
    let listed = moving.ask(&["get", "flows", "port 6002"]).out;
    let rows = listed["flows"]["flows"].as_array().unwrap();
    assert_eq!(rows.len(), kind.nfs.len(), "{listed}");
    for row in rows {
        assert_eq!(row["keys"][0][1], "10.0.0.2:6002");
        assert_eq!(row["instance"], rows[0]["instance"], "a flow is in two places: {listed}");
    }
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound("moved");
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "output");
    assert_eq!(numbers.len() as u64, finished.number("/balance/in"), "some are missing");
    let monitor = monitor(&finished);
    assert_eq!(monitor["packets"], numbers.len());
    assert_eq!(monitor["flows"], FLOWS, "a flow began anew: {monitor:#}");
}

#[test]
fn a_thousand_flows_from_two_sources_are_moved_back_and_forth() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon=3"];
    let moving = Moving::start("thousand", TWO, &[&sources[..], &args].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 1000);
    for to in ["1", "2", "3", "1"] {
        moving.moves(&["--all", "--to", to]);
        let mut wanted = vec![0; 3];
        wanted[to.parse::<usize>().unwrap() - 1] = 1000;
        assert_eq!(moving.counts(), wanted);
    }
    assert_eq!(moving.moves(&["udp", "--to", "2"]), 1000);
    moving.moves(&["--share", "30", "--to", "3"]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("moved");
    assert_eq!(finished.number("/balance/lost"), 0);
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"], 1000, "flows began anew");
    assert_eq!(monitor["packets"].as_u64(), Some(finished.number("/balance/in")));
}

#[test]
fn a_graph_is_changed_and_moved_flows_stay_where_they_are_and_go_on() {
    changed(&ALONE, "changed");
}

#[test]
fn a_graph_is_changed_and_moved_flows_of_a_segments_replicas_stay_together() {
    changed(&TOGETHER, "changed-fused");
}

fn changed(kind: &Kind, name: &str) {
    let input = Scratch::new(&format!("moves-in-{name}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let mut moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let flows = u64::from(FLOWS);
    // Buckets, and flows by themselves.
    moving.moves(&["--all", "--to", "2"]);
    moving.moves(&["dst port 6001 or 6003", "--to", "3"]);
    for policy in [kind.longer, kind.policy] {
        moving.relink(policy);
        moving.wait_for_traffic();
        assert_eq!(moving.counts(), [0, flows - 2, 2]);
    }
    // They can be moved on from where they are.
    moving.moves(&["dst port 6003", "--to", "2"]);
    moving.relink(kind.longer);
    moving.wait_for_traffic();
    assert_eq!(moving.counts(), [0, flows - 1, 1]);
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [flows, 0, 0]);
    moving.wait_for_traffic();
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound("changed");
    assert_eq!(finished.number("/balance/lost"), 0);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, "output");
    assert_eq!(numbers.len() as u64, finished.number("/balance/in"), "some are missing");
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"], FLOWS, "a flow began anew: {monitor:#}");
    assert_eq!(monitor["packets"], numbers.len());
}

/// Many more flows than are looked at between two batches, or go in one migration.
#[test]
fn many_flows_are_listed_and_moved_in_small_steps_and_none_is_passed_over() {
    const MANY: u64 = 20_000;
    let gen_a = format!("0=gen:size=64,flows={},seed=1,rate=200000", MANY / 2);
    let gen_b = format!("1=gen:size=64,flows={},seed=2,rate=200000", MANY / 2);
    let args = ["--bind", &gen_a, "--bind", &gen_b, "--bind", "2=null", "--instances", "mon=3"];
    let moving = Moving::start("many", TWO, &args);
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == MANY);
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.counts(), [MANY, 0, 0]);
    assert_eq!(moving.moves(&["--all", "--to", "3"]), MANY);
    assert_eq!(moving.counts(), [0, 0, MANY]);
    assert_eq!(moving.moves(&["udp", "--to", "2"]), MANY);
    assert_eq!(moving.counts(), [0, MANY, 0]);
    assert_eq!(moving.moves(&["--all", "--to", "1"]), MANY, "whose buckets are elsewhere too");
    assert_eq!(moving.counts(), [MANY, 0, 0]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("many");
    assert_eq!(finished.number("/balance/lost"), 0);
    let monitor = monitor(&finished);
    assert_eq!(monitor["flows"].as_u64(), Some(MANY), "flows began anew");
    assert_eq!(monitor["packets"].as_u64(), Some(finished.number("/balance/in")));
}

/// Each source's packets are divided for another NF of the replicas: both who divide are asked, and a flow moves with both.
#[test]
fn flows_move_among_replicas_that_packets_come_to_by_several_nfs() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon+both=3"];
    let moving = Moving::start("entries", TWO_ENTRIES, &[&sources[..], &args].concat());
    let counts = |nf: &str| counted(&moving.ask(&["get", "flows", "--nf", nf]));
    let sum = |nf: &str| counts(nf).map_or(0, |counts| counts.iter().sum::<u64>());
    wait_until("all flows to be there", PATIENCE, || (sum("mon"), sum("both")) == (500, 1000));
    for (at, nf) in [(0, "mon"), (1, "both"), (2, "mon+both"), (0, "both")] {
        let to = (at + 1).to_string();
        let said = moving.ask(&["flow", "move", nf, "--all", "--to", &to]);
        assert_eq!(said.code, Some(0), "{nf}: {} {}", said.out, said.error);
        let all = |flows: u64| (0..3).map(|i| if i == at { flows } else { 0 }).collect::<Vec<_>>();
        assert_eq!((counts("mon"), counts("both")), (Some(all(500)), Some(all(1000))), "{nf}");
    }
    let said = moving.ask(&["flow", "move", "mon", "udp", "--to", "2"]);
    assert_eq!((said.code, &said.out["moved"]["flows"]), (Some(0), &1000.into()), "{said:?}");
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("moved");
    assert_eq!(finished.number("/balance/lost"), 0);
    for (nf, flows) in [("mon", 500), ("both", 1000)] {
        assert_eq!(monitor_of(&finished, nf)["flows"], flows, "flows of {nf} began anew");
    }
}

/// In workers of their own they would be at several places, and packets of one of them come undivided.
#[test]
fn nfs_behind_each_other_that_share_no_worker_are_refused_with_what_to_do() {
    let args = ["--bind", "0=gen:size=64,flows=4,rate=1000", "--bind", "1=gen:size=64,rate=1000"];
    let more = ["--bind", "2=null", "--instances", "mon=2", "--instances", "both=2"];
    let moving = Moving::start("apart", TWO_ENTRIES, &[&args[..], &more].concat());
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    for (nf, why) in
        [("mon", "`--instances mon+both=N`"), ("both", "packets reach both from mon#1 besides")]
    {
        let said = moving.ask(&["flow", "move", nf, "--all", "--to", "1"]);
        assert_eq!(said.code, Some(2), "{nf}: {said:?}");
        assert!(said.error.contains(why), "{nf}: {}", said.error);
    }
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("apart");
}

/// Two who order at once: one after the other is done, the other is told so. Were both begun, instances would wait for each
/// other's flows.
#[test]
fn of_two_orders_at_once_one_waits_and_traffic_goes_on() {
    let sources =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let args = ["--bind", "2=null", "--instances", "mon=2"];
    let moving = Moving::start("opposite", TWO, &[&sources[..], &args].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 1000);
    let socket = &moving.socket;
    let order = |to: &str| {
        for share in ["50", "20", "70", "10", "90"] {
            wait_until("an order to be taken", PATIENCE, || {
                let said = weir(socket, &["flow", "move", "mon", "--share", share, "--to", to]);
                assert!(
                    said.code == Some(0) || said.error.contains("being moved already"),
                    "{} {}",
                    said.out,
                    said.error
                );
                said.code == Some(0)
            });
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| order("1"));
        scope.spawn(|| order("2"));
    });
    assert_eq!(moving.counts().iter().sum::<u64>(), 1000);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("opposite");
    assert_eq!(finished.number("/balance/lost"), 0);
    assert_eq!(monitor(&finished)["flows"], 1000, "flows began anew");
}

/// The socket is there before the workers are: who asks then waits for them, and misses none.
#[test]
fn who_asks_as_soon_as_there_is_a_socket_is_answered_in_full() {
    for _ in 0..5 {
        let args =
            ["--bind", "0=gen:size=64,flows=4", "--bind", "1=gen:size=64", "--bind", "2=null"];
        let moving = Moving::start("soon", TWO, &[&args[..], &["--instances", "mon=3"]].concat());
        let begun = Instant::now();
        while !moving.socket.exists() && begun.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        assert_eq!(moving.counts().len(), 3);
        moving.run.signal(Signal::INT);
        moving.run.finish().assert_sound("soon");
    }
}

/// Who asks just before a graph is changed has the answer, though the worker that he waits for answers only when all are being brought to
/// rest: until then it is stopped.
#[test]
fn who_is_answered_while_a_graph_is_held_still_to_be_changed_has_the_answer() {
    let args =
        ["--bind", "0=gen:size=64,flows=500,seed=1", "--bind", "1=gen:size=64,flows=500,seed=2"];
    let more = ["--bind", "2=null", "--instances", "mon=2", "--patience", "0"];
    let mut moving = Moving::start("held-still", TWO, &[&args[..], &more].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 1000);
    let mut answered = false;
    for round in 0..10 {
        let stopped = moving.run.workers()["mon#1"];
        kill_process(stopped, Signal::STOP).unwrap();
        let socket = moving.socket.clone();
        let asks = std::thread::spawn(move || weir(&socket, &["get", "flows", "--nf", "mon"]));
        // Nobody tells when the question has come, nor when the graph is held still: that this is so in most rounds is enough.
        std::thread::sleep(Duration::from_millis(100));
        let name = format!("more{round}");
        let longer = TWO.replace("mon -> out", &format!("mon -> {name} -> out"));
        moving.scratch.policy(&format!("{longer} MacSwap {name};"));
        moving.run.signal(Signal::HUP);
        wait_until("the next workers", PATIENCE, || moving.run.workers().contains_key(&name));
        std::thread::sleep(Duration::from_millis(100));
        kill_process(stopped, Signal::CONT).unwrap();
        moving.run.wait_for_line("a word on the relink", |line| line.contains("relinked"));
        let said = asks.join().unwrap();
        let has_come = counted(&said).is_some_and(|counts| counts.iter().sum::<u64>() == 1000);
        let is_refused = said.error.contains("is being relinked");
        // On a slow machine it was stopped for longer than anybody waits for who is.
        let is_missing = said.out.to_string().contains("mon#1 was stopped");
        assert!(has_come || is_refused || is_missing, "{said:?}");
        answered |= has_come;
    }
    assert!(answered, "nobody asked in time");
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("held-still");
}

#[test]
fn what_cannot_be_moved_is_refused_with_why() {
    let policy = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon;  MacSwap swap;
pipelet { lan -> mon -> swap -> wan; }";
    let args = ["--bind", "0=gen:size=64,flows=4,rate=1000", "--bind", "1=null"];
    let more = ["--instances", "mon=2", "--instances", "swap=2"];
    let moving = Moving::start("refused", policy, &[&args[..], &more].concat());
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    for (args, why) in [
        (&["nobody", "udp", "--to", "1"][..], "there is no NF `nobody`"),
        (&["mon", "udp", "--to", "3"], "mon has no instance 3; it has 1 to 2"),
        (&["mon", "udp and", "--to", "1"], "filter `udp and`"),
        (&["mon", "ingress == 1", "--to", "1"], "no port that they came in by"),
        (&["swap", "--all", "--to", "1"], "swap"),
    ] {
        let said = moving.ask(&[&["flow", "move"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.error.contains(why), "{args:?}: {}", said.error);
    }
    let said = weir(&moving.scratch.file("none"), &["get", "flows"]);
    assert!(said.code == Some(1) && said.error.contains("does `weir run` run"), "{}", said.error);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("refused");
    assert!(!moving.socket.exists(), "the socket is left over");
}

/// Nor are flows of instances that share a worker, or that are in another domain than who divides their packets; who asks breaks nothing.
#[test]
fn flows_of_instances_in_one_worker_or_behind_gates_are_refused_and_go_on() {
    let sources =
        ["--bind", "0=gen:flows=50,rate=2000", "--bind", "1=gen:flows=50,seed=2,rate=2000"];
    let args = [&sources[..], &["--bind", "2=null", "--instances", "mon=3"]].concat();
    for (name, more, why) in [
        ("one-worker", &["--isolate", "none"][..], "instances of mon share a worker"),
        (
            "gates",
            &["--isolate", "each", "--domain", "mon=theirs"],
            "mon and who gives it packets are in different trust domains, and what moves flows does not go through the gates",
        ),
    ] {
        let scratch = Scratch::new(&format!("moves-{name}"));
        let socket = scratch.file("control");
        let control = socket.display().to_string();
        let own = [&args, more, &["--control", &control]].concat();
        let run = Run::start(&scratch.policy(TWO), &own);
        let moving = Moving { run, scratch, socket, nfs: ALONE.nfs };
        let all = |counts: &[u64]| counts.iter().sum::<u64>() == 100;
        moving.wait_for_counts("all flows to be there", all);
        for to in ["1", "2", "3"] {
            let said = moving.ask(&["flow", "move", "mon", "--all", "--to", to]);
            assert_eq!(said.code, Some(2), "{said:?}");
            assert!(said.error.contains(why), "{said:?}");
            assert!(!said.error.contains("gate:"), "a gate is called an NF: {said:?}");
        }
        let said = moving.ask(&["flow", "move", "nobody", "--all", "--to", "1"]);
        assert!(said.error.contains("there are: mon\n"), "a gate is called an NF: {said:?}");
        assert!(all(&moving.counts()));
        moving.run.signal(Signal::INT);
        let finished = moving.run.finish();
        finished.assert_sound(name);
        assert_eq!(finished.restarts().values().sum::<u64>(), 0, "somebody died");
    }
}

/// Flows of the first source come again and again; the second has two hundred new ones each second.
#[test]
fn flows_stay_where_they_are_when_instances_come_and_go_and_new_ones_divide_anew() {
    const OLD: u64 = 500;
    const NEW: u64 = 2000;
    let scratch = Scratch::new("moves-instances");
    let options = scratch.file("options");
    let file = options.display().to_string();
    let instances =
        |asked: &str| std::fs::write(&options, format!("--instances {asked}\n")).unwrap();
    instances("mon=2");
    let (first, second) = (
        format!("0=gen:size=64,flows={OLD},rate=5000,seed=1"),
        format!("1=gen:size=64,flows={NEW},rate=200,seed=2"),
    );
    let args = ["--bind", &first, "--bind", &second, "--bind", "2=null", "--options", &file];
    let mut moving = Moving::start_in(scratch, TWO, &args);
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("old flows to be there", |counts| counts.iter().sum::<u64>() > OLD + 50);
    let before = moving.counts();
    assert!(before.len() == 2 && before.iter().all(|n| *n > 200), "{before:?}");
    instances("mon=3");
    moving.relink(TWO);
    // Whatever flow there was is still there, however many new ones have come since.
    let after = moving.counts();
    assert!(after[0] >= before[0] && after[1] >= before[1], "{before:?} {after:?}");
    moving.wait_for_counts("new flows at the new instance", |counts| counts[2] > 20);
    // One goes: those that are left have what it had.
    instances("mon=2");
    moving.relink(TWO);
    let left = moving.counts();
    assert_eq!(left.len(), 2, "{left:?}");
    instances("mon=1:3");
    moving.relink(TWO);
    let weighted = moving.counts();
    assert!(weighted[0] >= left[0] && weighted[1] >= left[1], "{left:?} {weighted:?}");
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("instances");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
    // One in three is to go elsewhere, as there is one more; of what the last leaves to the two before it hardly anything, as both get as much; and by weights.
    let uneven = |n: usize| finished.number(&format!("/relinks/{n}/uneven"));
    let of = |n: usize, least: u64, most: u64| (least..=most).contains(&uneven(n));
    let all = of(0, 21_845, 21_846) && of(1, 0, 1_000) && of(2, 10_000, 65_536);
    assert!(all, "{:#}", finished.report["relinks"]);
    let nodes = finished.report["nodes"].as_array().unwrap();
    let came =
        nodes.iter().find(|node| node["name"] == "rx:wan").unwrap()["packets"].as_u64().unwrap();
    assert_eq!(monitor(&finished)["flows"], OLD + came.min(NEW), "a flow began anew");
}

/// More flows than could be remembered one by one.
#[test]
fn very_many_flows_stay_where_they_are_when_instances_come_and_go() {
    const MANY: u64 = 300_000;
    const TRACKED: &str = "
Port<0> lan;  Port<1> out;  ConnTrack mon { default: \"pass\" };
pipelet { lan -> mon;  mon -> out; }";
    let scratch = Scratch::new("moves-very-many");
    let options = scratch.file("options");
    let file = options.display().to_string();
    let instances =
        |asked: &str| std::fs::write(&options, format!("--instances {asked}\n")).unwrap();
    instances("mon=2");
    let first = format!("0=gen:size=64,flows={MANY},rate=300000,seed=1");
    let args = ["--bind", &first, "--bind", "1=null", "--options", &file];
    let mut moving = Moving::start_in(scratch, TRACKED, &args);
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == MANY);
    let before = moving.counts();
    instances("mon=3");
    moving.relink(TRACKED);
    assert_eq!(moving.counts(), [before[0], before[1], 0]);
    // They can go there on purpose, and what is not there any more is where it went.
    moving.moves(&["--share", "30", "--from", "1", "--to", "3"]);
    let moved = moving.counts();
    assert!(moved[2] > before[0] / 5 && moved.iter().sum::<u64>() == MANY, "{moved:?}");
    instances("mon=2");
    moving.relink(TRACKED);
    // Each of those that stay gets half of what the third had.
    let left = moving.counts();
    let half = moved[2] / 2;
    let got = [left[0] - moved[0], left[1] - moved[1]];
    assert!(left.len() == 2 && got.iter().sum::<u64>() == moved[2], "{moved:?} {left:?}");
    assert!(got.iter().all(|got| got.abs_diff(half) < half / 5), "{moved:?} {left:?}");
    instances("mon=1");
    moving.relink(TRACKED);
    assert_eq!(moving.counts(), [MANY]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("very-many");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
    // They went while packets flowed, not in the pause.
    let went = [0, 1, 2].map(|n| finished.number(&format!("/relinks/{n}/left")));
    assert_eq!(went, [0, moved[2], left[1]], "{:#}", finished.report["relinks"]);
}

/// Those that were moved stay, wherever their buckets go; of what comes anew each instance gets its share.
#[test]
fn flows_that_were_moved_stay_when_an_instance_is_added_and_new_ones_divide_over_all() {
    const OLD: u64 = 300;
    const NEW: u64 = 20_000;
    const ENOUGH: u64 = 900;
    let scratch = Scratch::new("moves-pinned");
    let options = scratch.file("options");
    let file = options.display().to_string();
    std::fs::write(&options, "--instances mon=2\n").unwrap();
    let (first, second) = (
        format!("0=gen:size=64,flows={OLD},rate=5000,seed=1"),
        format!("1=gen:size=64,flows={NEW},rate=300,seed=2"),
    );
    let args = ["--bind", &first, "--bind", &second, "--bind", "2=null", "--options", &file];
    let mut moving = Moving::start_in(scratch, TWO, &args);
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("old flows to be there", |counts| counts.iter().sum::<u64>() > OLD + 50);
    // By name, so about half of them do not go where their buckets go.
    let moved = moving.moves(&["udp", "--to", "2"]);
    assert!(moved > 100, "{moved}");
    let before = moving.counts();
    std::fs::write(&options, "--instances mon=3\n").unwrap();
    moving.relink(TWO);
    let after = moving.counts();
    let fell: Vec<_> = before.iter().zip(&after).filter(|(before, after)| after < before).collect();
    assert!(after.len() == 3 && fell.is_empty(), "flows have gone: {before:?} {after:?}");
    assert!(after[1] > OLD, "{after:?}");
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    moving.wait_for_counts("new flows", |counts| sum(counts) >= sum(&after) + ENOUGH);
    let later = moving.counts();
    let new: Vec<u64> = later.iter().zip(&after).map(|(later, after)| later - after).collect();
    let third = sum(&new) / 3;
    assert!(new.iter().all(|n| n.abs_diff(third) < third / 2), "unevenly divided: {new:?}");
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("pinned");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
    let nodes = finished.report["nodes"].as_array().unwrap();
    let came =
        nodes.iter().find(|node| node["name"] == "rx:wan").unwrap()["packets"].as_u64().unwrap();
    assert_eq!(monitor(&finished)["flows"], OLD + came.min(NEW), "a flow began anew");
}
