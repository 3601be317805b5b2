//! Flows of an instance whose worker has died go on at the NF's other instances, where that is asked for, and are replicated there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const ALL: u64 = FLOWS as u64;

/// A run of three instances whose flows leave when one has died.
fn start(kind: &Kind, name: &str, more: &[&str]) -> (Moving, Scratch) {
    let input = Scratch::new(&format!("{name}-in"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let modes: Vec<String> = kind.nfs.iter().map(|nf| format!("{nf}=batch,leave")).collect();
    let mut args: Vec<&str> = modes.iter().flat_map(|mode| ["--replicate", mode]).collect();
    // Where the machine is so busy that a worker shows no sign of life for long, nobody else is to die of it.
    args.extend(["--patience", "20"]);
    args.extend(more);
    let moving = Moving::on_capture(kind, name, &input.file("in.pcap"), &args);
    moving.wait_for_traffic();
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == ALL);
    (moving, input)
}

fn kill(moving: &Moving, worker: &str) {
    kill_process(moving.run.workers()[worker], Signal::KILL).unwrap();
}

/// All that came out is remembered, in order and once, and what is missing died in a worker's hands.
fn assert_nothing_forgotten(moving: Moving, kind: &Kind, deaths: u64, what: &str) -> Finished {
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound(what);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, &format!("{what}: {:#?}", finished.said));
    let out = numbers.len() as u64;
    let lost = finished.number("/balance/lost");
    assert_eq!(finished.number("/balance/in") - out, lost, "{what}");
    assert!(lost <= GROUP * deaths, "{what}: {lost} lost");
    for nf in kind.nfs.iter().filter(|nf| **nf != "fw") {
        let report = monitor_of(&finished, nf);
        assert_eq!(report["flows"], FLOWS, "{what}: {nf}: a flow began anew");
        assert_eq!(report["packets"].as_u64(), Some(out), "{what}: {nf}");
    }
    finished
}

fn recovered(finished: &Finished, worker: &str, key: &str) -> u64 {
    let workers = finished.report["workers"].as_array().unwrap();
    let own = workers.iter().find(|own| own["name"] == worker).unwrap();
    own["recovered"][key].as_u64().unwrap()
}

/// Waits until nothing is at `mon#1` and all at the others.
fn wait_until_left(moving: &Moving) {
    moving.wait_for_counts("all flows to be at the others", |counts| {
        counts[0] == 0 && counts.iter().sum::<u64>() == ALL
    });
}

fn go_on_elsewhere(kind: &Kind, name: &str) {
    let (mut moving, _input) = start(kind, name, &[]);
    let before = moving.counts();
    assert!(before.iter().all(|flows| *flows > 0), "{before:?}");
    kill(&moving, kind.first);
    let told = format!("{} flows of worker {} go on at other instances", before[0], kind.first);
    moving.run.wait_for_line(&told, |line| line.contains(&told));
    wait_until_left(&moving);
    // They stay there, and go on. Which of the two has how many is a matter of so few flows' keys.
    moving.wait_for_traffic();
    let then = moving.counts();
    assert!(then[0] == 0 && then.iter().zip(&before).skip(1).all(|(now, then)| now >= then));

    // So soon after, the next one keeps what it has, some of the first's among it: it was in its own replica.
    let second = kind.first.replace("#1", "#2");
    kill(&moving, &second);
    let stay = format!("flows of {second} stay with its successor");
    moving.run.wait_for_line(&stay, |line| line.contains(&stay));
    let again = format!("worker {second} runs again");
    moving.run.wait_for_line(&again, |line| line.contains(&again));
    moving.wait_for_traffic();
    moving.wait_for_counts("all flows to be where they were", |counts| counts == then);
    let finished = assert_nothing_forgotten(moving, kind, 2, name);
    assert_eq!((finished.restarts()[kind.first], finished.restarts()[&second]), (1, 1));
    for (worker, had, left) in [(kind.first, before[0], before[0]), (&second, then[1], 0)] {
        assert_eq!(recovered(&finished, worker, "left"), left, "{name}: {worker}");
        assert_eq!(recovered(&finished, worker, "flows"), had * kind.nfs.len() as u64, "{name}");
        assert_eq!(recovered(&finished, worker, "left_us") > 0, left > 0, "{name}: {worker}");
    }
}

#[test]
fn flows_of_a_dead_instance_go_on_at_the_others_and_are_replicated_there() {
    go_on_elsewhere(&ALONE, "leave-alone");
}

#[test]
fn flows_of_a_dead_replica_of_a_segment_go_on_at_the_others_with_all_its_nfs() {
    go_on_elsewhere(&TOGETHER, "leave-together");
}

/// Who takes them, before and behind its commit, and who divides, when it has said where it sends them.
#[cfg(feature = "faults")]
#[test]
fn whoever_dies_as_flows_leave_none_is_forgotten_or_at_two_places() {
    use weir_mem::fault::Step;
    let dies = [
        ("mon#2", Step::LetterTaken, 1),
        ("mon#2", Step::MovesWritten, 1),
        ("mon#3", Step::MovesKept, 1),
        ("rx:lan", Step::MarkSent, 1),
    ];
    for (who, step, nth) in dies {
        let fault = format!("{who}:{}:{nth}", step as u32);
        // Of so few flows it may be given none, and does not come to that step: then once more, with another division.
        let died = (0..RUNS).any(|_| dies_meanwhile(who, &fault));
        assert!(died, "{fault}: nobody died of it in {RUNS} runs");
    }
}

/// How often a death is tried to be brought about, at most.
#[cfg(feature = "faults")]
const RUNS: u32 = 8;

/// Whether it died while flows of the first left.
#[cfg(feature = "faults")]
fn dies_meanwhile(who: &str, fault: &str) -> bool {
    let name = format!("leave-{}", fault.replace([':', '#'], ""));
    let (moving, _input) = start(&ALONE, &name, &["--fault", fault]);
    kill(&moving, "mon#1");
    wait_until_left(&moving);
    moving.wait_for_traffic();
    let finished = assert_nothing_forgotten(moving, &ALONE, 2, fault);
    finished.restarts()[who] == 1
}

#[test]
fn who_dies_again_as_its_flows_leave_has_them_leave_all_the_same() {
    let (moving, _input) = start(&ALONE, "leave-again", &[]);
    let first = moving.run.workers()["mon#1"];
    kill(&moving, "mon#1");
    let next = || moving.run.workers().get("mon#1").copied().filter(|pid| *pid != first);
    kill_process(wait_for(PATIENCE, next, || "a successor".to_owned()), Signal::KILL).unwrap();
    wait_until_left(&moving);
    moving.wait_for_traffic();
    assert_nothing_forgotten(moving, &ALONE, 2, "dies again");
}

#[test]
fn who_is_started_anew_on_purpose_keeps_its_flows() {
    let (moving, _input) = start(&ALONE, "leave-renew", &[]);
    let before = moving.counts();
    let said = moving.ask(&["renew", "mon", "--instance", "1"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    moving.wait_for_traffic();
    moving.wait_for_counts("all flows to be where they were", |counts| counts == before);
    let finished = assert_nothing_forgotten(moving, &ALONE, 1, "renew");
    assert_eq!(recovered(&finished, "mon#1", "left"), 0);
}

#[test]
fn a_graph_that_is_changed_while_flows_leave_forgets_none() {
    let (mut moving, _input) = start(&ALONE, "leave-relink", &[]);
    kill(&moving, "mon#1");
    moving.relink(LONGER);
    moving.wait_for_traffic();
    wait_until_left(&moving);
    assert_nothing_forgotten(moving, &ALONE, 1, "changed while flows leave");
}

/// What a run that is refused says.
fn refused(args: &[&str]) -> String {
    let scratch = Scratch::new("leave-refused");
    let policy = scratch.policy(CHAIN);
    let mut weir = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let weir = weir.arg("run").arg(&policy).args(["--bind", "0=gen:packets=1", "--bind", "1=null"]);
    let output = weir.args(args).output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{args:?}");
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_err(), "it ran");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn where_flows_cannot_leave_it_is_refused_with_what_to_write() {
    let alone = refused(&["--replicate", "mon=batch,leave"]);
    assert!(alone.contains("write --instances mon=2 ("), "{alone}");
    let args = ["--replicate", "mon=batch,leave", "--scale", "mon=1:3", "--isolate", "each"];
    let scaled = refused(&args);
    assert!(scaled.contains("leave out one of the two"), "{scaled}");
    for mode in ["none,leave", "batch,stay", "batch,leave,leave"] {
        let wrong = refused(&["--replicate", &format!("mon={mode}")]);
        assert!(wrong.contains("behind it may stand ,leave"), "{wrong}");
    }
    let fused = ["--instances", "mon=2", "--isolate", "none"];
    let fused = refused(&[&fused[..], &["--replicate", "mon=batch,leave"]].concat());
    assert!(fused.contains("choose another --isolate"), "{fused}");
}
