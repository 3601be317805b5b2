//! A translator of addresses of several instances on recorded traffic, while leases of ports move among them with their mappings: each
//! flow's output, and every counter, are those of a run that nobody disturbed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, seed};
use crate::common_oracle::{
    Scratch, assert_same_flows, assert_same_records, assert_sound, demo_capture, has_ethernet,
    output_name, records, shared, spawn, start, tx,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const INSTANCES: usize = 3;

/// About so many cycles are to be spent on a capture, at three thousand million a second.
const CYCLES: u64 = 6_000_000_000;

/// All of a capture as from inside, with something behind that takes so many cycles for each packet.
fn policy(cycles: u64) -> String {
    format!(
        "Port<0> lan;  Port<1> wan;
         Napt nat {{ addresses: [\"198.51.100.1\", \"198.51.100.2\"] }};
         Busy slow {{ cycles: {cycles} }};
         pipelet {{ lan -> [inside] nat;  nat [nat.outside] -> slow -> wan;  nat [nat.inside] -> Drop; }}"
    )
}

fn ask(socket: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).arg("--json").arg("--control").arg(socket).output().unwrap()
}

fn run_args(scratch: &Scratch, capture: &Path, out: &Path, cycles: u64) -> Vec<String> {
    let policy = scratch.write(&format!("{cycles}.weir"), policy(cycles));
    let socket = scratch.file("control");
    let (rx, tx) = (format!("0=pcap:rx={}", capture.display()), tx(out));
    let instances = format!("nat={INSTANCES}");
    let socket = socket.display().to_string();
    let own = ["run", &policy, "--control", &socket, "--bind", &rx, "--bind", &tx, "--json"];
    let more = ["--isolate", "each", "--ring", "64", "--instances", &instances];
    own.iter().chain(&more).map(|arg| (*arg).to_owned()).collect()
}

/// What the translator says of itself, and its counters.
fn told(report: &Value) -> Vec<Value> {
    let nodes = report["nodes"].as_array().unwrap();
    let nat = nodes.iter().find(|node| node["name"] == "nat").unwrap();
    ["packets", "bytes", "drops", "outputs", "report"].map(|what| nat[what].clone()).into()
}

/// One capture, undisturbed, and with leases moved; how many mappings went along.
fn compare(capture: &Path, choices: &mut Choices, options: &[&str]) -> u64 {
    let scratch = Scratch::new();
    let name = capture.file_name().unwrap().to_string_lossy().into_owned();
    let (still, moved) = (scratch.file("still"), scratch.file("moved"));
    std::fs::create_dir_all(&still).unwrap();
    std::fs::create_dir_all(&moved).unwrap();
    let (still, moved) = (still.join(output_name(capture)), moved.join(output_name(capture)));
    let undisturbed = start(&run_args(&scratch, capture, &still, 1)).end();
    assert_eq!(undisturbed.code, Some(0), "{name}: {undisturbed:?}");
    let undisturbed = undisturbed.json();

    let packets = undisturbed["balance"]["in"].as_u64().unwrap().max(1);
    let cycles = (CYCLES / packets).min(4_000_000);
    let socket = scratch.file("control");
    let mut args = run_args(&scratch, capture, &moved, cycles);
    args.extend(options.iter().map(|option| (*option).to_owned()));
    let mut run = start(&args);
    let (mut orders, mut mappings) = (Vec::new(), 0);
    // Until the run is over: then nobody answers any more.
    while run.child.try_wait().unwrap().is_none() {
        let to = (choices.below(INSTANCES) + 1).to_string();
        let share = (choices.below(90) + 5).to_string();
        let which: &[&str] = if choices.below(2) == 0 { &["--all"] } else { &["--share", &share] };
        let words = [&["flow", "move", "nat"], which, &["--to", &to]].concat();
        let answer = ask(&socket, &words);
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        mappings += said["moved"]["flows"].as_u64().unwrap_or(0);
        orders.push((words.join(" "), String::from_utf8_lossy(&answer.stderr).into_owned()));
    }
    let ended = run.end();
    let what = format!("{name}: {} orders", orders.len());
    assert_eq!(ended.code, Some(0), "{what}: {ended:?}\n{orders:#?}");
    let report = ended.json();
    assert_eq!(report["balance"]["lost"], 0, "{what}: {orders:#?}\n{}", ended.stderr);
    assert_sound(&what, &report);
    let (got, expected) = (records(&moved), records(&still));
    assert_same_records(&what, &got, &expected);
    assert_same_flows(&what, &got, &expected);
    assert_eq!(told(&report), told(&undisturbed), "{what}\n{orders:#?}");
    println!("{what}: {mappings} mappings moved");
    mappings
}

#[test]
fn mappings_whose_leases_move_at_random_translate_as_if_they_had_stayed() {
    let seed = seed();
    println!("WEIR_SEED={seed} gives the same orders");
    let mut choices = Choices(seed);
    for options in [&[][..], &["--replicate", "nat=batch"]] {
        assert!(compare(&demo_capture(), &mut choices, options) > 0, "no mapping was moved");
    }
    let busiest = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let chosen = ["http-pipelined", "dns-219", "ipv4-fragments"];
        has_ethernet(path) && chosen.iter().any(|start| name.starts_with(start))
    };
    for capture in shared().iter().filter(busiest) {
        compare(capture, &mut choices, &[]);
    }
}

#[test]
fn when_instances_or_their_weights_change_mappings_go_to_who_has_their_lease() {
    let scratch = Scratch::new();
    let (still, changed) = (scratch.file("still.pcap"), scratch.file("changed.pcap"));
    let undisturbed = start(&run_args(&scratch, &demo_capture(), &still, 1)).end().json();
    let options = |text: &str| scratch.write("options", text);
    let file = options("--instances nat=2");
    // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
    let mut weir = Command::new("env");
    weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
    let cycles = CYCLES / undisturbed["balance"]["in"].as_u64().unwrap();
    weir.args(run_args(&scratch, &demo_capture(), &changed, cycles)).args(["--options", &file]);
    let mut run = spawn(weir);
    let written = || std::fs::metadata(&changed).map_or(0, |m| m.len());
    for asked in ["3", "2", "1:3", "4"] {
        let before = written();
        run.wait_until("packets to flow", || written() > before + 50_000);
        options(&format!("--instances nat={asked}"));
        run.signal(rustix::process::Signal::HUP);
        run.wait_for(": relinked in ");
    }
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.json();
    assert_sound("relinked", &report);
    let (got, expected) = (records(&changed), records(&still));
    assert_same_records("relinked", &got, &expected);
    assert_same_flows("relinked", &got, &expected);
    // None begins anew: as many were made.
    assert_eq!(told(&report), told(&undisturbed));
}

#[test]
fn mappings_that_are_named_by_a_filter_stay_and_it_is_said_what_moves() {
    let scratch = Scratch::new();
    let args = run_args(&scratch, &demo_capture(), &scratch.file("out.pcap"), 4_000_000);
    let socket = scratch.file("control");
    let mut run = start(&args);
    run.wait_until("the control socket", || socket.exists());
    let answer = ask(&socket, &["flow", "move", "nat", "port 80", "--to", "1"]);
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    run.signal(rustix::process::Signal::INT);
    run.end();
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(said.contains("write --share PERCENT or --all instead of a filter"), "{said}");
}
