//! A running graph is told at its control socket how many instances NFs have, what is replicated, and to start one anew: NFActor's
//! calls `set cluster view`, `set replica` and `recover` (§3.1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::Signal;

const MONITORED: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };
pipelet { lan -> mon -> wan; }";

const FLOWS: u64 = 900;

/// A monitor of one instance, that has seen all flows.
fn monitored(name: &str, args: &[&str]) -> Moving {
    let own = ["--bind", "0=gen:size=64,flows=900,rate=50000", "--bind", "1=null"];
    let moving = Moving::start(name, MONITORED, &[&own, args].concat());
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == FLOWS);
    moving
}

/// Sets something; fails unless the graph is another then.
fn set(moving: &mut Moving, args: &[&str]) {
    let said = moving.ask(&[&["set"], args].concat());
    assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
    assert!(said.out["relinked"]["pause_ms"].as_f64().is_some(), "{said:?}");
    // The run says so, too.
    moving.run.wait_for_line("a word on the relink", |line| line.contains(": relinked in "));
}

fn end(moving: Moving) -> Finished {
    moving.run.signal(Signal::INT);
    let finished = moving.run.finish();
    finished.assert_sound("set");
    finished
}

#[test]
fn an_nf_has_as_many_instances_as_are_set_and_no_flow_begins_anew() {
    let mut moving = monitored("set-instances", &[]);
    set(&mut moving, &["--instances", "mon=3"]);
    assert_eq!(moving.counts(), [FLOWS, 0, 0], "flows stay where they were");
    moving.moves(&["--count", "300", "--from", "1", "--to", "2"]);
    set(&mut moving, &["--instances", "mon=2"]);
    assert_eq!(moving.counts(), [600, 300]);
    // What the command says, which is nothing.
    set(&mut moving, &["--reset"]);
    let said = moving.ask(&["get", "load", "mon"]);
    assert_eq!(said.out["load"].as_array().unwrap().len(), 1, "{said:?}");
    let finished = end(moving);
    assert_eq!(monitor(&finished)["flows"].as_u64(), Some(FLOWS));
}

#[test]
fn an_nf_remembers_as_many_flows_as_the_operator_says_and_tells_the_memory_that_they_take() {
    let args = ["--bind", "0=gen:size=64,flows=900,rate=50000", "--bind", "1=null"];
    let mut moving =
        Moving::start("set-flows", MONITORED, &[&args[..], &["--flows", "mon=100"]].concat());
    let count = |moving: &Moving| moving.ask(&["get", "flows"]).out["flows"]["counts"][0].clone();
    let number = |count: &serde_json::Value, of: &str| count[of].as_u64().unwrap();
    wait_until("the socket", PATIENCE, || moving.socket.exists());
    let packets = || moving.ask(&["get", "load", "mon"]).out["load"][0]["packets"].as_u64();
    wait_until("all flows to have come", PATIENCE, || packets() > Some(20 * FLOWS));
    let few = count(&moving);
    assert_eq!((number(&few, "flows"), number(&few, "most")), (100, 100), "{few}");
    set(&mut moving, &["--flows", "mon=1000"]);
    moving.wait_for_counts("all flows to be there", |counts| counts == [FLOWS]);
    let all = count(&moving);
    assert_eq!(number(&all, "most"), 1000);
    // A cache line for each flow's key, at least, and a state.
    assert!(
        number(&all, "bytes") > 100 * FLOWS && number(&all, "bytes") > number(&few, "bytes"),
        "{all} {few}"
    );
    // Fewer than there are cannot be: the graph stays as it is.
    let said = moving.ask(&["set", "--flows", "mon=800"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert_eq!(count(&moving)["most"], 1000, "{said:?}");
    for (wrong, why) in [
        ("lan=5", "no NF `lan` that remembers flows; those that do: mon"),
        ("mon=0", "1 to 15728640"),
    ] {
        let said = moving.ask(&["set", "--flows", wrong]);
        assert!(said.code != Some(0) && said.error.contains(why), "{said:?}");
    }
    set(&mut moving, &["--flows", "mon=type"]);
    assert_eq!(count(&moving)["most"], 65_536);
    end(moving);
}

#[test]
fn what_is_set_stays_as_the_files_are_read_again_and_is_in_place_of_what_they_say() {
    let mut moving = monitored("set-stays", &["--replicate", "mon=batch"]);
    set(&mut moving, &["--instances", "mon=3"]);
    // Another option, which leaves the first as it is.
    set(&mut moving, &["--replicate", "mon=none"]);
    moving.relink(MONITORED);
    assert_eq!(moving.counts(), [FLOWS, 0, 0]);
    let replicated = |moving: &Moving| {
        let said = moving.ask(&["renew", "mon", "--instance", "1"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out["renewed"]["flows"].as_u64().unwrap()
    };
    assert_eq!(replicated(&moving), 0, "nothing was replicated");
    set(&mut moving, &["--reset", "--instances", "mon=2"]);
    moving.wait_for_counts("all flows again", |counts| counts.iter().sum::<u64>() == FLOWS);
    let first = moving.counts()[0];
    assert_eq!(replicated(&moving), first, "as the command says");
    end(moving);
}

#[test]
fn what_cannot_be_is_refused_with_why_and_the_graph_goes_on() {
    let mut moving = monitored("set-refused", &[]);
    for (args, why) in [
        (&["set"][..], "say what is to be set, or reset"),
        (&["set", "--instances", "nobody=2"], "nobody"),
        (&["set", "--instances", "mon=2", "--scale", "mon=1:3"], "mon"),
        (&["renew", "nobody"], "there is no NF `nobody`"),
        (&["renew", "mon", "--instance", "2"], "mon has no instance 2; it has 1 to 1"),
        (&["renew", "mon", "--instance", "0"], "mon has no instance 0; it has 1 to 1"),
    ] {
        let said = moving.ask(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(said.error.contains(why), "{args:?}: {}", said.error);
    }
    assert_eq!(moving.counts(), [FLOWS]);
    // What was refused is not tried again with what comes then.
    set(&mut moving, &["--instances", "mon=2"]);
    assert_eq!(moving.counts(), [FLOWS, 0]);
    let said = moving.ask(&["renew", "mon"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.error.contains("mon has 2 instances; say which"), "{}", said.error);
    end(moving);
}

#[test]
fn an_instance_that_is_renewed_goes_on_with_its_flows() {
    let moving = monitored("renewed", &["--instances", "mon=2", "--replicate", "mon=batch"]);
    let before = moving.run.workers();
    let second = moving.counts()[1];
    let said = moving.ask(&["renew", "mon", "--instance", "2"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out["renewed"]["flows"].as_u64(), Some(second), "{said:?}");
    assert_eq!(said.out["renewed"]["worker"], "mon#2");
    let after = moving.run.workers();
    let others = |all: &std::collections::BTreeMap<_, _>| -> Vec<_> {
        all.clone().into_iter().filter(|(name, _)| name != "mon#2").collect()
    };
    assert_ne!(before["mon#2"], after["mon#2"]);
    assert_eq!(others(&before), others(&after), "nobody else was touched");
    let finished = end(moving);
    assert_eq!(monitor(&finished)["flows"].as_u64(), Some(FLOWS), "none began anew");
    assert!(finished.number("/balance/lost") <= GROUP);
}

#[test]
fn settings_that_come_at_the_same_time_are_done_one_after_the_other() {
    let moving = monitored("set-both", &[]);
    let ask = |args: &'static [&'static str]| {
        let socket = moving.socket.clone();
        std::thread::spawn(move || weir(&socket, args))
    };
    let all = [
        ask(&["set", "--instances", "mon=2"]),
        ask(&["set", "--replicate", "mon=batch"]),
        ask(&["set", "--instances", "nobody=2"]),
    ];
    let codes = all.map(|asked| asked.join().unwrap()).map(|said| (said.code, said.error));
    assert_eq!((codes[0].0, codes[1].0), (Some(0), Some(0)), "{codes:?}");
    assert_eq!(codes[2].0, Some(2), "{codes:?}");
    assert_eq!(moving.counts(), [FLOWS, 0], "the first holds");
    let said = moving.ask(&["renew", "mon", "--instance", "1"]);
    assert_eq!(said.out["renewed"]["flows"].as_u64(), Some(FLOWS), "the second holds: {said:?}");
    end(moving);
}
