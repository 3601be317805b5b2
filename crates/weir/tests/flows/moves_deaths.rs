//! Flows that go from one instance to another, and somebody who takes part dies, at whatever step: each flow is at one place, none
//! is reordered, and what is lost is what who died had in hand. `WEIR_ALL_STEPS` has them die at more passings of each step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::Signal;
use weir_mem::fault::Step;

/// Kills `worker` at each of the steps of the protocol that it passes while flows are moved.
fn killed_at_each_step(kind: &Kind, worker: &str, steps: &[Step]) {
    let called = format!("{}{}", worker.replace([':', '#', '+'], ""), kind.nfs.len());
    let input = Scratch::new(&format!("moves-in-{called}"));
    write_capture(&input.file("in.pcap"), PACKETS);
    for (at, step) in steps.iter().enumerate() {
        for nth in passings(at) {
            let fault = format!("{worker}:{}:{nth}", *step as u32);
            let name = format!("{called}-{}-{nth}", *step as u32);
            let args = ["--fault", &fault];
            let moving = Moving::on_capture(kind, &name, &input.file("in.pcap"), &args);
            moving.wait_for_traffic();
            // To the first and away from it: `mon#1` is target, then source. What cannot be done as somebody has
            // just died is tried again.
            for to in ["1", "2"] {
                wait_until("flows to be moved", PATIENCE, || {
                    let said = moving.ask(&["flow", "move", "mon", "--all", "--to", to]);
                    said.code == Some(0)
                });
                moving.wait_for_traffic();
            }
            moving.wait_for_counts("all flows to be where they belong", |counts| {
                counts == [0, u64::from(FLOWS), 0]
            });
            moving.run.signal(Signal::INT);
            let (out, finished) = (moving.out(), moving.run.finish());
            finished.assert_sound(&fault);
            let numbers = read_capture(&out, number);
            assert_in_order(&numbers, &format!("{fault}: {:#?}", finished.said));
            assert_eq!(finished.restarts().get(worker), Some(&1), "{fault}: nobody died of it");
            if worker.starts_with("rx:") {
                // It has no flows, so none begins anew.
                for nf in kind.nfs.iter().filter(|nf| **nf != "fw") {
                    assert_eq!(monitor_of(&finished, nf)["flows"], FLOWS, "{fault}: {nf}");
                }
            }
            let missing = finished.number("/balance/in") - numbers.len() as u64;
            assert_eq!(missing, finished.number("/balance/lost"), "{fault}");
        }
    }
}

const OF_INSTANCE: [Step; 3] = [Step::LetterTaken, Step::LetterSent, Step::MarkTaken];
const OF_DIRECTOR: [Step; 3] = [Step::LetterTaken, Step::LetterSent, Step::MarkSent];

#[test]
fn an_instance_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step(&ALONE, ALONE.first, &OF_INSTANCE);
}

#[test]
fn a_director_that_dies_at_any_step_of_a_migration_leaves_each_flow_at_one_place() {
    killed_at_each_step(&ALONE, "rx:lan", &OF_DIRECTOR);
}

#[test]
fn a_segments_replica_that_dies_at_any_step_leaves_each_flow_at_one_place_with_all_its_nfs() {
    killed_at_each_step(&TOGETHER, TOGETHER.first, &OF_INSTANCE);
}

#[test]
fn a_director_of_a_segments_replicas_that_dies_at_any_step_leaves_each_flow_at_one_place() {
    killed_at_each_step(&TOGETHER, "rx:lan", &OF_DIRECTOR);
}

/// Who is to take over dies whenever one is made: flows that had left an instance by then, as it was to go, come back.
#[test]
fn instances_that_were_to_go_get_back_what_they_have_left_when_the_change_fails() {
    const ALL: u64 = 3_000;
    const TRACKED: &str = "
Port<0> lan;  Port<1> out;  ConnTrack mon { default: \"pass\" };
pipelet { lan -> mon;  mon -> out; }";
    let scratch = Scratch::new("moves-come-back");
    let options = scratch.file("options");
    let file = options.display().to_string();
    std::fs::write(&options, "--instances mon=3\n").unwrap();
    let input = format!("0=gen:size=64,flows={ALL},rate=50000,seed=1");
    let fault = format!("2:mon#1:{}:1", Step::TakenOver as u32);
    let args = ["--bind", &input, "--bind", "1=null", "--options", &file, "--later-fault", &fault];
    let mut moving = Moving::start_in(scratch, TRACKED, &args);
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == ALL);
    std::fs::write(&options, "--instances mon=2\n").unwrap();
    for attempt in ["first", "second"] {
        moving.scratch.policy(TRACKED);
        moving.run.signal(Signal::HUP);
        let told = |line: &str| line.contains("relinked");
        let (_, line) = moving.run.wait_for_line("a word on the relink", told);
        assert!(line.contains("not relinked") && line.contains("died before it began"), "{line}");
        moving.wait_for_counts(&format!("flows to have come back, the {attempt} time"), |counts| {
            let is_share = |flows: &u64| flows.abs_diff(ALL / 3) < ALL / 10;
            counts.len() == 3 && counts.iter().sum::<u64>() == ALL && counts.iter().all(is_share)
        });
    }
    // Nothing is under way any more: what goes on purpose stays.
    assert!(moving.moves(&["--all", "--to", "3"]) > ALL / 2);
    assert_eq!(moving.counts(), [0, 0, ALL]);
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("come back");
    assert_eq!(finished.number("/balance/lost"), 0, "{:#}", finished.report);
}
