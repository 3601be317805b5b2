//! Stateful NFs on recorded traffic while their flows are moved to and fro at random: each flow's output, and every counter
//! of every NF, are those of a run that nobody disturbed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, seed};
use crate::common_oracle::{
    Scratch, assert_same_flows, assert_same_records, assert_sound, demo_capture, has_ethernet,
    output_name, records, shared, start, tx, weir,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// NFActor's chain (§7), and a divider of flows.
const CHAIN: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };
ConnTrack fw { default: \"pass\", invalid: \"pass\", pickup: true };
HttpParser http;
pipelet { lan -> mon -> fw -> http -> wan; }";

/// The same, with something behind it that takes so many cycles for each packet.
fn slowed(cycles: u64) -> String {
    let slow = format!("HttpParser http;  Busy slow {{ cycles: {cycles} }};");
    CHAIN.replace("HttpParser http;", &slow).replace("http -> wan", "http -> slow -> wan")
}

/// The NFs whose flows move.
const NFS: [&str; 3] = ["mon", "fw", "http"];
/// All of them, as replicas of one segment.
const TOGETHER: &str = "mon+fw+http";
const INSTANCES: usize = 3;

/// About so many cycles are to be spent on a capture, at three thousand million a second.
const CYCLES: u64 = 6_000_000_000;

fn ask(socket: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).arg("--json").arg("--control").arg(socket).output().unwrap()
}

/// What each NF says of itself, and its counters: whichever way its packets went.
fn told(report: &Value) -> Vec<(String, Value)> {
    let nodes = report["nodes"].as_array().unwrap();
    let of = |name: &&str| {
        let node = nodes.iter().find(|node| node["name"] == **name).unwrap();
        let counters = ["packets", "bytes", "drops", "outputs", "report"];
        let mut counters = counters.map(|what| (what.to_owned(), node[what].clone()));
        for (_, counter) in &mut counters {
            // How many flows that are over have been noticed to be: a few are looked at with each batch.
            counter.as_object_mut().map(|report| report.remove("ended"));
        }
        ((*name).to_owned(), Value::Object(counters.into_iter().collect()))
    };
    NFS.iter().map(of).collect()
}

/// What is not alike, each as its place and both values.
fn differences(got: &Value, expected: &Value) -> Vec<String> {
    let inside = |place: String, (got, expected): (&Value, &Value)| {
        let inner = differences(got, expected);
        inner.into_iter().map(move |what| format!("{place}{what}"))
    };
    match (got, expected) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            let pairs = a.iter().zip(b.values());
            pairs.flat_map(|((name, a), b)| inside(format!("/{name}"), (a, b))).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.flat_map(|(i, pair)| inside(format!("/{i}"), pair)).collect()
        }
        _ if got == expected => Vec::new(),
        _ => vec![format!(": {got} in place of {expected}")],
    }
}

/// A random order for `nf`, or, of several, for any of them, or all.
fn order(nf: &str, choices: &mut Choices) -> Vec<String> {
    let mut names: Vec<&str> = nf.split('+').collect();
    names.push(nf);
    let nf = names[choices.below(names.len())];
    let to = (choices.below(INSTANCES) + 1).to_string();
    let mut words = vec!["flow".to_owned(), "move".to_owned(), nf.to_owned()];
    match choices.below(4) {
        0 => words.push("--all".to_owned()),
        1 => words.extend(["--share".to_owned(), (choices.below(90) + 5).to_string()]),
        2 => words.push(format!("port {}", choices.of(&[53, 80, 443, 8080]))),
        _ => words.push(format!(
            "src net 0.0.0.0/1 or dst portrange 1024-{}",
            2000 + choices.below(60_000)
        )),
    }
    words.extend(["--to".to_owned(), to]);
    words
}

/// One capture, undisturbed, and with the flows of `nf` moved; how many were.
fn compare(capture: &Path, nf: &str, choices: &mut Choices) -> u64 {
    let scratch = Scratch::new();
    let name = capture.file_name().unwrap().to_string_lossy().into_owned();
    let (still, moved) = (scratch.file("still"), scratch.file("moved"));
    std::fs::create_dir_all(&still).unwrap();
    std::fs::create_dir_all(&moved).unwrap();
    let (still, moved) = (still.join(output_name(capture)), moved.join(output_name(capture)));
    let rx = format!("0=pcap:rx={}", capture.display());
    let plain = scratch.write("plain.weir", CHAIN);
    let undisturbed = weir(&[
        "run",
        &plain,
        "--bind",
        &rx,
        "--bind",
        &tx(&still),
        "--isolate",
        "none",
        "--json",
        "-q",
    ]);
    assert_eq!(undisturbed.code, Some(0), "{name}: {undisturbed:?}");
    let undisturbed = undisturbed.json();

    let packets = undisturbed["balance"]["in"].as_u64().unwrap();
    let policy = scratch.write("slow.weir", slowed((CYCLES / packets).min(4_000_000)));
    let socket = scratch.file("control");
    let mut args =
        vec!["run".to_owned(), policy, "--control".to_owned(), socket.display().to_string()];
    for more in [
        "--bind",
        &rx,
        "--bind",
        &tx(&moved),
        "--isolate",
        "each",
        "--ring",
        "64",
        "--patience",
        "20",
        "--json",
    ] {
        args.push(more.to_owned());
    }
    args.extend(["--instances".to_owned(), format!("{nf}={INSTANCES}")]);
    let mut run = start(&args);
    // Until the run is over: then nobody answers any more.
    let (mut orders, mut flows) = (Vec::new(), 0);
    loop {
        let order = order(nf, choices);
        let words: Vec<&str> = order.iter().map(String::as_str).collect();
        let answer = ask(&socket, &words);
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        flows += said["moved"]["flows"].as_u64().unwrap_or(0);
        orders.push((
            order.join(" "),
            answer.status.code(),
            String::from_utf8_lossy(&answer.stderr).into_owned(),
        ));
        if run.child.try_wait().unwrap().is_some() {
            break;
        }
    }
    let ended = run.end();
    let what = format!("{name}, {nf}: {} orders", orders.len());
    assert_eq!(ended.code, Some(0), "{what}: {ended:?}\n{orders:#?}");
    let report = ended.json();
    assert_eq!(report["balance"]["lost"], 0, "{what}: {orders:#?}\n{}", ended.stderr);
    assert_sound(&what, &report);
    let (got, expected) = (records(&moved), records(&still));
    assert_same_records(&what, &got, &expected);
    assert_same_flows(&what, &got, &expected);
    for ((nf, got), (_, expected)) in told(&report).into_iter().zip(told(&undisturbed)) {
        let other = differences(&got, &expected);
        assert!(other.is_empty(), "{what}: {nf} tells {}\n{orders:#?}", other.join("; "));
    }
    println!("{what}: {flows} flows moved");
    flows
}

#[test]
fn flows_that_are_moved_at_random_leave_outputs_and_all_counters_as_they_would_have_been() {
    let seed = seed();
    println!("WEIR_SEED={seed} gives the same orders");
    let mut choices = Choices(seed);
    for nf in NFS.into_iter().chain([TOGETHER]) {
        let flows = compare(&demo_capture(), nf, &mut choices);
        assert!(flows > 0, "no flow of {nf} was moved");
    }
    let busiest = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let chosen = ["http-browsing", "http-pipelined", "vlan-isp", "dns-219", "ipv4-fragments"];
        has_ethernet(path) && chosen.iter().any(|start| name.starts_with(start))
    };
    for (capture, i) in shared().iter().filter(busiest).zip(0..) {
        compare(capture, NFS[i % NFS.len()], &mut choices);
        compare(capture, TOGETHER, &mut choices);
    }
}

#[test]
fn flows_of_one_nf_do_not_move_away_from_those_of_another_behind_it() {
    let scratch = Scratch::new();
    let policy = scratch.write("slow.weir", slowed(1_000_000));
    let (rx, socket) = (format!("0=pcap:rx={}", demo_capture().display()), scratch.file("control"));
    let path = socket.display().to_string();
    let args = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--control", &path];
    let mut run = start(&[&args[..], &["--instances", "mon=2", "--instances", "fw=2"]].concat());
    run.wait_until("the control socket", || socket.exists());
    let answer = ask(&socket, &["flow", "move", "mon", "--all", "--to", "1"]);
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    run.signal(rustix::process::Signal::INT);
    run.end();
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(said.contains("mon and fw behind it both remember"), "{said}");
}
