//! Instances of an NF whose packets need not meet become more when one is overloaded and fewer when they are idle: no packet is
//! lost or reordered, and what was decided is told with why. NFs that remember flows: `weir-control/tests/scaling.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// Behind an NF that remembers flows one that takes its time; when the capture ends a trickle goes on.
const CHAIN: &str = "
Port<0> lan;  Port<1> trickle;  Port<2> wan;
FlowMonitor mon { top: 100 };  Busy slow { cycles: 160000 };
pipelet { lan -> mon;  trickle -> mon;  mon -> slow -> wan; }";

/// What takes one instance some seconds.
const PACKETS: u64 = 60_000;

#[test]
fn an_overloaded_nf_gets_an_instance_whatever_else_happens_and_gives_it_back_when_it_is_idle() {
    let scratch = Scratch::new("scaling");
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, PACKETS);
    let policy = scratch.policy(CHAIN);
    let (rx, tx) =
        (format!("0=pcap:rx={}", input.display()), format!("2=pcap:tx={}", out.display()));
    let trickle = "1=gen:size=64,flows=4,rate=200,seed=3";
    let args = [
        "--isolate",
        "each",
        "--scale",
        "slow=1:2,cool=0.3",
        "--scale",
        "mon=1:2",
        "--bind",
        &rx,
        "--bind",
        &tx,
    ];
    let more = ["--bind", trickle, "--restart-delay", "0"];
    let mut run = Run::start(&policy, &[&args[..], &more].concat());
    let says = |words: &'static str| move |line: &str| line.contains(words);
    let (_, out_line) = run.wait_for_line("an instance more", says("instance 2 is taken into use"));
    assert!(out_line.contains("scaling slow: ") && out_line.contains("(2 in use)"), "{out_line}");
    // An instance that dies is one again.
    let written = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let more_packets = || {
        let before = written();
        wait_until("packets to flow", PATIENCE, || written() > before + 256 * RECORD);
    };
    more_packets();
    rustix::process::kill_process(run.workers()["slow#2"], Signal::KILL).unwrap();
    run.wait_for_line("the successor", says("worker slow#2 runs again"));
    more_packets();
    let (_, back) = run.wait_for_line("an instance less", says("instance 2 is being emptied"));
    assert!(back.contains("less than half of"), "{back}");
    run.wait_for_line("the end of it", says("scaling slow: done (1 in use"));
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("scaled");
    let numbers: Vec<u64> = read_capture(&out, |bytes| {
        let is_numbered = bytes.len() as u64 + 16 == RECORD;
        is_numbered.then(|| number(bytes))
    })
    .into_iter()
    .flatten()
    .collect();
    assert_in_order(&numbers, "output");
    assert_eq!(
        finished.number("/balance/out") + finished.number("/balance/lost"),
        finished.number("/balance/in")
    );
    let scalings = finished.report["scalings"].as_array().unwrap();
    let whats = scalings.iter().map(|s| s["what"].as_str().unwrap());
    // On a slow machine two are overloaded too.
    let whats: Vec<&str> = whats.filter(|what| *what != "at_most").collect();
    assert_eq!(whats, ["out", "done", "in", "done"], "{scalings:#?}");
    for scaling in scalings {
        assert_eq!((&scaling["nf"], &scaling["instance"]), (&"slow".into(), &2.into()));
        assert!(scaling["at"].as_f64().unwrap() > 0.0 && scaling["why"].is_string(), "{scaling}");
    }
    let nodes = finished.report["nodes"].as_array().unwrap();
    let node = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap();
    let parts = node("slow")["instances"].as_array().unwrap();
    assert!(parts.iter().all(|part| part["packets"].as_u64().unwrap() > 500), "{parts:#?}");
    // Not the bottleneck, though its input was as full: it waited for who is behind it.
    assert_eq!(node("mon")["instances"][1]["packets"], 0);
}

/// What `weir run` says against such a rule.
fn refused(policy: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command
        .arg("run")
        .arg(policy)
        .args(["--bind", "0=gen:size=64,packets=1", "--bind", "1=null", "-q"])
        .args(args)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Flows of a replicated NF move to the instance that is added, and what each remembers is committed with what comes out.
#[test]
fn a_replicated_nf_gets_an_instance_too_and_remembers_just_what_came_out_when_both_die() {
    const FLOWS: u64 = 100;
    let scratch = Scratch::new("scaling-replicated");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  FlowMonitor mon;  Busy slow { cycles: 160000 };
        pipelet { lan -> mon -> slow -> wan; }",
    );
    let lan = format!("0=gen:size=64,flows={FLOWS},rate=40000,seed=1");
    let args = ["--isolate", "each", "--scale", "mon+slow=1:2,cool=0.3", "--replicate"];
    let more = ["mon=batch", "--bind", &lan, "--bind", "1=null", "--restart-delay", "0"];
    let mut run = Run::start(&policy, &[&args[..], &more].concat());
    run.wait_for_line("an instance more", |line| line.contains("scaling mon: done (2 in use"));
    for name in ["mon#1+slow#1", "mon#2+slow#2"] {
        rustix::process::kill_process(run.workers()[name], Signal::KILL).unwrap();
        let back = format!("worker {name} has ");
        run.wait_for_line("its flows", |line| line.contains(&back) && line.contains("flows back"));
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("scaling, replicated");
    let nodes = finished.report["nodes"].as_array().unwrap();
    let told = &nodes.iter().find(|node| node["name"] == "mon").unwrap()["report"];
    assert_eq!(told["flows"], FLOWS, "a flow began anew: {told:#}");
    assert_eq!(told["packets"], finished.number("/balance/out"), "{told:#}");
}

#[test]
fn what_cannot_be_scaled_is_refused_with_why() {
    let scratch = Scratch::new("scaling-refused");
    let policy = scratch.policy(
        "Port<0> lan; Port<1> wan; FlowMonitor mon; Busy slow; IcmpError e;
        Policer p { total: { rate: 1000000, burst: 10000 } };
        pipelet { lan [ip] -> mon -> slow -> p -> wan; lan [!ip] -> [unreachable] e -> wan; }",
    );
    for (args, why) in [
        (&["--scale", "mon=1:2", "--scale", "mon=1:3"][..], "mon is given twice"),
        (&["--scale", "mon=1:2", "--instances", "mon=2"], "give one of the two"),
        (&["--scale", "nobody=1:2"], "the policy has no NF nobody"),
        (&["--scale", "e=1:2"], "the description of IcmpError allows one instance"),
        (&["--scale", "p=1:2"], "Policer has one instance when its configuration has `total`"),
        (&["--scale", "mon=1:17"], "flows move among 16 at most"),
        (&["--scale", "mon=1:2,rebalance"], "leave `rebalance` out"),
        (&["--scale", "slow=1:2,moves"], "need not meet"),
        (&["--scale", "slow=1:2", "--isolate", "none"], "another --isolate"),
        (&["--scale", "slow=1:2,old-flows-end"], "need not meet"),
    ] {
        let said = refused(&policy, args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
