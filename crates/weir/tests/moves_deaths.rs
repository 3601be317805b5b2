//! Flows that go from one instance to another, and somebody who takes part dies, at whatever step: each flow is at one place, none
//! is reordered, and what is lost is what who died had in hand. `WEIR_ALL_STEPS` has them die at more passings of each step.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_moves;

use common_crash::*;
use common_moves::*;
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
