//! Who asks which flows there are has the answer as soon as all have answered that can, whoever is stopped or dies, and whatever
//! becomes of the graph meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::{Signal, kill_process};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Each instance of `mon` is a worker that keeps flows.
const POLICY: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 10 };
pipelet { lan -> mon -> wan; }";

/// How many flows come.
const FLOWS: u64 = 300;
/// Longer than any answer takes of whom nobody waits for, and less than it took when somebody did.
const BOUND: Duration = Duration::from_secs(8);

fn started(name: &str, patience: &str) -> Moving {
    let args = ["--bind", "0=gen:flows=300,rate=20000", "--bind", "1=null", "--instances", "mon=3"];
    let moving = Moving::start(name, POLICY, &[&args[..], &["--patience", patience]].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == FLOWS);
    moving
}

/// Asks in a thread; how long it took, and the answer.
fn asks(moving: &Moving) -> JoinHandle<(Duration, Said)> {
    let socket = moving.socket.clone();
    std::thread::spawn(move || {
        let begun = Instant::now();
        let said = weir(&socket, &["get", "flows", "--nf", "mon"]);
        (begun.elapsed(), said)
    })
}

fn end(moving: Moving, what: &str) -> Finished {
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound(what);
    finished
}

#[test]
fn one_that_is_stopped_is_said_to_be_missing_and_may_answer_late() {
    let moving = started("seen-stopped", "0");
    let stopped = moving.run.workers()["mon#1"];
    kill_process(stopped, Signal::STOP).unwrap();
    for _ in 0..3 {
        let (took, said) = asks(&moving).join().unwrap();
        assert!(took < BOUND, "it took {took:?}: {said:?}");
        assert_eq!(said.code, Some(1), "{said:?}");
        let missing = said.out["flows"]["failures"].to_string();
        assert!(missing.contains("mon#1 was stopped"), "{said:?}");
        let counts = said.out["flows"]["counts"].as_array().unwrap();
        assert_eq!(counts.len(), 2, "the others have answered: {said:?}");
    }
    // What it answers now nobody waits for any more, and it is no fault of its.
    kill_process(stopped, Signal::CONT).unwrap();
    moving.wait_for_counts("all to answer again", |counts| counts.len() == 3);
    let finished = end(moving, "stopped");
    assert_eq!(finished.restarts().values().sum::<u64>(), 0, "{:?}", finished.said);
}

#[test]
fn one_that_is_stopped_is_ended_in_time_although_it_is_asked() {
    let mut moving = started("seen-ended", "1");
    kill_process(moving.run.workers()["mon#1"], Signal::STOP).unwrap();
    let begun = Instant::now();
    let asks = asks(&moving);
    let told = |line: &str| line.contains("mon#1 was stopped: killed");
    let (at, _) = moving.run.wait_for_line("the end of the stopped one", told);
    let (took, said) = asks.join().unwrap();
    assert!(at - begun < Duration::from_secs(6), "it was let stand for {:?}", at - begun);
    assert!(took < BOUND, "it took {took:?}: {said:?}");
    // The others' flows are there, whatever came of its own.
    let counts = said.out["flows"]["counts"].as_array().unwrap();
    assert!(counts.len() >= 2, "{said:?}");
    end(moving, "ended");
}

#[test]
fn the_successor_of_one_that_dies_answers_for_it() {
    let (moving, mut answered) = (started("seen-dead", "0"), 0);
    for round in 0..5 {
        let asked = moving.run.workers()["mon#1"];
        // So that it has been asked, and has not answered, when it dies.
        kill_process(asked, Signal::STOP).unwrap();
        let asks = asks(&moving);
        sleep(Duration::from_millis(300));
        kill_process(asked, Signal::KILL).unwrap();
        let (took, said) = asks.join().unwrap();
        assert!(took < BOUND, "it took {took:?}: {said:?}");
        let all = counted(&said).is_some_and(|counts| counts.len() == 3);
        // Its successor may be long in coming where others have the machine.
        answered += u32::from(all);
        assert!(all || said.out.to_string().contains("ask again"), "round {round}: {said:?}");
        assert!(!said.out.to_string().contains("died meanwhile"), "round {round}: {said:?}");
        wait_until("a successor", PATIENCE, || moving.run.workers().contains_key("mon#1"));
    }
    assert!(answered > 0, "no successor ever answered");
    end(moving, "dead");
}

#[test]
fn a_question_is_answered_while_the_graph_is_changed() {
    let mut moving = started("seen-change", "0");
    let mut all = 0;
    for round in 0..5 {
        let name = format!("more{round}");
        let longer = POLICY.replace("-> wan", &format!("-> {name} -> wan"));
        moving.scratch.policy(&format!("{longer} MacSwap {name};"));
        moving.run.signal(Signal::HUP);
        let mut relinked = false;
        while !relinked {
            let (took, said) = asks(&moving).join().unwrap();
            assert!(took < BOUND, "it took {took:?}: {said:?}");
            assert_ne!(said.code, Some(2), "it was refused: {said:?}");
            all += u32::from(counted(&said).is_some_and(|c| c.iter().sum::<u64>() == FLOWS));
            while let Some((_, line)) = moving.run.next_line(Duration::ZERO) {
                relinked |= line.contains("relinked");
            }
        }
    }
    assert!(all > 0, "nobody was ever answered in full");
    end(moving, "changed");
}

/// What waits before `slow` takes it seconds, and for so long the switch lasts.
#[test]
fn a_question_does_not_wait_until_what_is_under_way_has_run_out() {
    const SLOW: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 10 };  Busy slow { cycles: 1000000 };
pipelet { lan -> mon -> slow -> wan; }";
    let args = ["--bind", "0=gen:flows=300", "--bind", "1=null", "--instances", "mon=2"];
    let more = ["--patience", "20", "--ring", "512"];
    let mut moving = Moving::start("seen-switch", SLOW, &[&args[..], &more].concat());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == FLOWS);
    moving.scratch.policy(&format!("{} MacSwap more;", SLOW.replace("-> wan", "-> more -> wan")));
    moving.run.signal(Signal::HUP);
    let (mut longest, mut switched) = (Duration::ZERO, None);
    while switched.is_none() {
        let (took, said) = asks(&moving).join().unwrap();
        longest = longest.max(took);
        assert_ne!(said.code, Some(2), "{said:?}");
        while let Some((_, line)) = moving.run.next_line(Duration::ZERO) {
            switched = switched.or(line.contains("relinked").then_some(line));
        }
    }
    let line = switched.unwrap();
    let relinked = line.split("relinked in ").nth(1).and_then(|rest| rest.split(' ').next());
    let pause: f64 = relinked.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    assert!(pause > 300.0, "the switch was too short to show anything: {line}");
    assert!(longest.as_secs_f64() * 1e3 < pause / 2.0, "an answer took {longest:?}: {line}");
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("switched");
}
