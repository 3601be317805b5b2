//! Flows of an instance whose worker has died go on at the NF's other instances, where that is asked for, and are replicated there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_moves;

use common_crash::*;
use common_moves::*;
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
    assert!(lost <= BATCH * deaths, "{what}: {lost} lost");
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

fn go_on_elsewhere(kind: &Kind, name: &str) {
    let (mut moving, _input) = start(kind, name, &[]);
    let before = moving.counts();
    assert!(before.iter().all(|flows| *flows > 0), "{before:?}");
    let second = kind.first.replace("#1", "#2");
    let mut had = [0; 2];
    for (at, worker) in [kind.first, &second].into_iter().enumerate() {
        let then = moving.counts();
        had[at] = then[at];
        kill(&moving, worker);
        let told = format!("flows of worker {worker} go on at other instances");
        let (_, line) = moving.run.wait_for_line(&told, |line| line.contains(&told));
        assert!(line.starts_with(&format!("weir: {} flows", then[at])), "{line}: {then:?}");
        // The other two have them: which of them how many is a matter of so few flows' keys.
        moving.wait_for_counts("all flows to be at the others", |counts| {
            let grown = counts.iter().zip(&then).enumerate();
            counts[at] == 0
                && counts.iter().sum::<u64>() == ALL
                && grown.filter(|(i, _)| *i != at).all(|(_, (now, then))| now >= then)
        });
        // They stay there, and go on.
        moving.wait_for_traffic();
        assert_eq!(moving.counts()[at], 0);
    }
    let finished = assert_nothing_forgotten(moving, kind, 2, name);
    let restarts = finished.restarts();
    assert_eq!((restarts[kind.first], restarts[&second]), (1, 1));
    for (worker, had) in [kind.first, &second].into_iter().zip(had) {
        assert_eq!(recovered(&finished, worker, "left"), had, "{name}: {worker}");
        // What the second had of the first came out of its own replica.
        assert_eq!(recovered(&finished, worker, "flows"), had * kind.nfs.len() as u64, "{name}");
    }
    assert!(recovered(&finished, kind.first, "left_us") > 0);
}

#[test]
fn flows_of_a_dead_instance_go_on_at_the_others_and_come_back_when_one_of_those_dies() {
    go_on_elsewhere(&ALONE, "leave-alone");
}

#[test]
fn flows_of_a_dead_replica_of_a_segment_go_on_at_the_others_with_all_its_nfs() {
    go_on_elsewhere(&TOGETHER, "leave-together");
}

#[test]
fn whoever_dies_while_flows_leave_no_flow_is_forgotten_or_at_two_places() {
    let (moving, _input) = start(&ALONE, "leave-deaths", &[]);
    // First who is dead already: its successor, who takes, who divides.
    let rounds = [("mon#1", "mon#1"), ("mon#2", "mon#3"), ("mon#3", "rx:lan"), ("mon#1", "mon#2")];
    let mut deaths = 0;
    for (first, then) in rounds {
        let other = moving.run.workers()[first];
        kill(&moving, first);
        wait_until("somebody to kill", PATIENCE, || {
            moving.run.workers().get(then).is_some_and(|pid| *pid != other)
        });
        kill(&moving, then);
        deaths += 2;
        moving.wait_for_traffic();
        moving.wait_for_counts(&format!("no flow to be at {first}, after {then}"), |counts| {
            let at = usize::from(first.as_bytes()[4] - b'1');
            counts.iter().sum::<u64>() == ALL && (counts[at] == 0 || first != "mon#1")
        });
    }
    assert_nothing_forgotten(moving, &ALONE, deaths, "deaths while flows leave");
}

#[test]
fn a_graph_that_is_changed_while_flows_leave_forgets_none() {
    let (mut moving, _input) = start(&ALONE, "leave-relink", &[]);
    kill(&moving, "mon#1");
    moving.relink(LONGER);
    moving.wait_for_traffic();
    moving.wait_for_counts("all flows to be at the others", |counts| {
        counts[0] == 0 && counts.iter().sum::<u64>() == ALL
    });
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
    assert!(alone.contains("write --instances mon=2"), "{alone}");
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
