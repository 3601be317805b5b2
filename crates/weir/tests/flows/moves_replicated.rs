//! Flows that are replicated go from one instance to another, and somebody who takes part dies, at whatever step: no flow is forgotten or
//! doubled, and all that came out is remembered, of each flow and in each counter.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use weir_mem::fault::Step;

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// What a FlowMonitor says of what came out: `packets` of all flows.
fn assert_remembers(finished: &Finished, nf: &str, packets: u64, what: &str) {
    let report = monitor_of(finished, nf);
    assert_eq!(report["flows"], FLOWS, "{what}: {nf}: a flow began anew");
    assert_eq!(count(&report["packets"]), packets, "{what}: {nf}");
    let listed = report["top"].as_array().or(report["top"]["talkers"].as_array()).unwrap();
    let of = |talker: &Value| -> u64 {
        talker["account"]["packets"].as_array().unwrap().iter().map(count).sum()
    };
    assert_eq!(listed.len(), FLOWS as usize, "{what}: {nf}");
    assert_eq!(listed.iter().map(of).sum::<u64>(), packets, "{what}: {nf}: by flow");
}

/// Who dies at the how manyth passing of which step.
type Fault = (&'static str, Step, u32);

/// All flows go to these instances, one after the other, while these die.
fn killed(kind: &Kind, input: &Path, faults: &[Fault], ways: [usize; 2]) {
    let of = |(worker, step, nth): &Fault| format!("{worker}:{}:{nth}", *step as u32);
    let asked: Vec<String> = faults.iter().map(of).collect();
    let what = format!("{} to {ways:?}: {}", kind.instances, asked.join(" and "));
    let name = format!("repl-{}-{}", ways[0], asked.join("-").replace([':', '#', '+'], ""));
    let modes: Vec<String> = kind.nfs.iter().map(|nf| format!("{nf}=batch")).collect();
    let mut args: Vec<&str> = asked.iter().flat_map(|fault| ["--fault", fault]).collect();
    args.extend(modes.iter().flat_map(|mode| ["--replicate", mode]));
    // Where the machine is so busy that a worker shows no sign of life for long, nobody else is to die of it.
    args.extend(["--patience", "20"]);
    let moving = Moving::on_capture(kind, &name, input, &args);
    moving.wait_for_traffic();
    for to in ways {
        // What cannot be done as somebody has just died is tried again.
        wait_until("flows to be moved", PATIENCE, || {
            let to = to.to_string();
            let said = moving.ask(&["flow", "move", "mon", "--all", "--to", &to]);
            said.code == Some(0)
        });
        moving.wait_for_traffic();
    }
    moving.wait_for_counts("all flows to be where they belong", |counts| {
        counts.iter().zip(1..).all(|(flows, instance)| {
            *flows == if instance == ways[1] { u64::from(FLOWS) } else { 0 }
        })
    });
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound(&what);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, &format!("{what}: {:#?}", finished.said));
    for (worker, ..) in faults {
        let deaths = finished.restarts().get(*worker).copied();
        assert_eq!(deaths, Some(1), "{what}: {worker}: {:#?}", finished.said);
    }
    let out = numbers.len() as u64;
    let lost = finished.number("/balance/in") - out;
    assert_eq!(lost, finished.number("/balance/lost"), "{what}");
    assert!(lost <= GROUP * faults.len() as u64, "{what}: {lost} lost");
    for nf in kind.nfs.iter().filter(|nf| **nf != "fw") {
        assert_remembers(&finished, nf, out, &what);
    }
}

/// Kills `worker` at each of the steps that it passes.
fn killed_at_each_step(kind: &Kind, worker: &'static str, steps: &[Step], ways: [usize; 2]) {
    let called = worker.replace([':', '#', '+'], "");
    let input = Scratch::new(&format!("moves-repl-in-{called}-{}", ways[0]));
    write_capture(&input.file("in.pcap"), PACKETS);
    for (at, step) in steps.iter().enumerate() {
        for nth in passings(at) {
            killed(kind, &input.file("in.pcap"), &[(worker, *step, nth)], ways);
        }
    }
}

const OF_INSTANCE: [Step; 5] =
    [Step::LetterTaken, Step::LetterSent, Step::MarkTaken, Step::MovesWritten, Step::MovesKept];
const OF_DIRECTOR: [Step; 3] = [Step::LetterTaken, Step::LetterSent, Step::MarkSent];

#[test]
fn a_target_that_dies_at_any_step_forgets_nothing() {
    killed_at_each_step(&ALONE, ALONE.first, &OF_INSTANCE, [1, 2]);
}

#[test]
fn a_source_that_dies_at_any_step_forgets_nothing() {
    killed_at_each_step(&ALONE, ALONE.first, &OF_INSTANCE, [2, 1]);
}

#[test]
fn a_segments_replica_that_dies_as_a_source_at_any_step_forgets_nothing_of_any_nf() {
    killed_at_each_step(&TOGETHER, TOGETHER.first, &OF_INSTANCE, [2, 1]);
}

#[test]
fn a_director_that_dies_at_any_step_has_nothing_forgotten() {
    killed_at_each_step(&ALONE, "rx:lan", &OF_DIRECTOR, [1, 2]);
}

/// `mon#1` is the target of what `mon#2` and `mon#3` send, then the source.
#[test]
fn a_source_and_a_target_that_die_at_once_forget_nothing() {
    let input = Scratch::new("moves-repl-in-two");
    write_capture(&input.file("in.pcap"), PACKETS);
    for source in [Step::MovesWritten, Step::MovesKept, Step::LetterSent] {
        for target in [Step::LetterTaken, Step::MovesWritten, Step::MovesKept] {
            let faults = [("mon#2", source, 1), ("mon#1", target, 1)];
            killed(&ALONE, &input.file("in.pcap"), &faults, [1, 2]);
        }
    }
}

/// Who divides packets stands still when an instance dies, so that its successor hears nothing from it, and dies then: neither knows from the
/// other what had been moved.
fn both_die_before_one_has_told_the_other(what: &[&str]) {
    let name = format!("repl-untold-{}", what[0].trim_matches('-'));
    let input = Scratch::new(&format!("moves-{name}-in"));
    write_capture(&input.file("in.pcap"), PACKETS);
    let args = ["--replicate", "mon=batch", "--patience", "20"];
    let mut moving = Moving::on_capture(&ALONE, &name, &input.file("in.pcap"), &args);
    moving.wait_for_traffic();
    moving.moves(&[what, &["--to", "1"]].concat());
    let all_are_there = |counts: &[u64]| counts == [u64::from(FLOWS), 0, 0];
    moving.wait_for_counts("all flows to be at the first", all_are_there);
    let kill = |moving: &Moving, who: &str, signal| {
        kill_process(moving.run.workers()[who], signal).unwrap();
    };
    kill(&moving, "rx:lan", Signal::STOP);
    for who in ["mon#1", "rx:lan"] {
        kill(&moving, who, Signal::KILL);
        let again = format!("worker {who} runs again");
        moving.run.wait_for_line(&again, |line| line.contains(&again));
    }
    moving.wait_for_traffic();
    moving.wait_for_counts("all flows to be where they were", all_are_there);
    moving.run.signal(Signal::INT);
    let (out, finished) = (moving.out(), moving.run.finish());
    finished.assert_sound(&name);
    let numbers = read_capture(&out, number);
    assert_in_order(&numbers, &format!("{name}: {:#?}", finished.said));
    assert_remembers(&finished, "mon", numbers.len() as u64, &name);
}

#[test]
fn buckets_that_were_moved_stay_where_they_are_when_instance_and_director_die() {
    both_die_before_one_has_told_the_other(&["--all"]);
}

#[test]
fn flows_that_were_moved_by_name_stay_where_they_are_when_instance_and_director_die() {
    both_die_before_one_has_told_the_other(&["ip"]);
}
