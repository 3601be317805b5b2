//! `weir check` says of a policy what `weir run` will: what it calls right runs, what cannot run it refuses, with the
//! same options for both; `explain` and `diff` have them too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, seed};
use crate::common_oracle::*;
use std::fmt::Write;

/// Policies a run.
const POLICIES: u64 = 48;

const TYPES: [&str; 9] = [
    "MacSwap",
    "TtlDecrement",
    "Tee",
    "IcmpError",
    "CheckIpHeader",
    "HttpClassifier",
    "CountUrl",
    "L3L4Filter",
    "Null",
];

/// Up to seven NFs in a row, with some edges forwards and, now and then, back; tags, arrays of ports, packets that are made.
fn policy(choices: &mut Choices) -> (String, usize) {
    let n = 2 + choices.below(6);
    let types: Vec<&str> = (0..n).map(|_| choices.of(&TYPES)).collect();
    let mut text = String::from("Port<0> a; Port<1-2> b; Port<3> c; first match; default drop;\n");
    types.iter().enumerate().for_each(|(i, kind)| write!(text, "{kind} n{i}; ").unwrap());
    text += "\npipelet {\n  a [arp] -> c;\n  a [igmp] -> b;\n  a -> [expired] n0;\n";
    let enter = |at: usize, tag: bool| match types[at] {
        "IcmpError" => format!("[expired] n{at}"),
        "Tee" => format!("n{at}"),
        _ if tag => format!("[asked] n{at}"),
        _ => format!("n{at}"),
    };
    text = text.replace("[expired] n0", &enter(0, false));
    let back = choices.one_in(3);
    for i in 0..n {
        for _ in 0..choices.below(3) {
            let filter =
                choices.of(&["tcp", "udp dst port 53", "src net 10.0.0.0/8", "ingress == 0"]);
            let to = if back { choices.below(n) } else { (i + 1 + choices.below(n)).min(n) };
            match to {
                to if to >= n => {
                    writeln!(text, "  n{i} [{filter}] -> {};", choices.of(&["b", "c"]))
                }
                to if to == i => continue,
                to => writeln!(text, "  n{i} [{filter}] -> {};", enter(to, choices.one_in(4))),
            }
            .unwrap();
        }
        let to = if i + 1 < n { enter(i + 1, false) } else { choices.of(&["b", "c"]).to_owned() };
        writeln!(text, "  n{i} -> {to};").unwrap();
    }
    (text + "}\n", n)
}

/// Options on the plan.
fn options(choices: &mut Choices, nfs: usize) -> Vec<String> {
    let mut options = vec![format!("--isolate={}", choices.of(&["each", "none", "auto"]))];
    options.push(format!("--parallel={}", choices.of(&["auto", "always", "never"])));
    if choices.one_in(3) {
        options.push(format!("--instances=n{}=2", choices.below(nfs)));
    }
    if choices.one_in(4) {
        options.push(format!("--domain=n{}=guest", choices.below(nfs)));
    }
    options
}

#[test]
fn what_check_calls_right_runs_and_what_it_refuses_run_refuses_for_the_same_reason() {
    let seed = seed();
    let (mut right, mut refused) = (0, 0);
    for n in 0..POLICIES {
        let mut choices = Choices(seed.wrapping_add(n));
        let (text, nfs) = policy(&mut choices);
        let options = options(&mut choices, nfs);
        let what = format!("WEIR_SEED={seed}: policy {n}, {options:?}:\n{text}");
        let scratch = Scratch::new();
        let file = scratch.write("random.weir", &text);
        let with = |command: &[&str]| -> Ended {
            let options = options.iter().map(String::as_str);
            let args: Vec<&str> = command.iter().copied().chain(options).collect();
            weir(&args)
        };
        let checked = with(&["check", "-q", &file]);
        let binds = ["0=gen:packets=20,size=64", "1=null", "2=null", "3=null"];
        let binds = binds.iter().flat_map(|bind| ["--bind", bind]);
        let command: Vec<&str> = ["run", "-q", &file].into_iter().chain(binds).collect();
        let ran = with(&command);
        assert_eq!(checked.code == Some(0), ran.code == Some(0), "{what}{checked:?}\n{ran:?}");
        if checked.code == Some(0) {
            right += 1;
        } else {
            refused += 1;
            assert_eq!((checked.code, ran.code), (Some(2), Some(2)), "{what}{checked:?}\n{ran:?}");
            assert_eq!(last(&checked.stderr), last(&ran.stderr), "{what}");
        }
    }
    assert!(right > POLICIES / 4 && refused > 2, "{right} right, {refused} refused");
}

fn last(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

#[test]
fn check_says_of_nfs_without_code_that_they_can_be_shown_only() {
    let folder = root().join("examples/e2");
    let path = |name: &str| folder.join(name).display().to_string();
    let ended = weir(&["check", "--describe", &path("nfs.yaml"), &path("figure-14.weir")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(": right: "), "{ended:?}");
    assert!(ended.stdout.contains("to be shown, not run: of "), "{ended:?}");
    assert!(ended.stdout.contains("there is a description, but no code"), "{ended:?}");
}

#[test]
fn check_warns_when_devices_at_all_ports_would_be_more_than_can_run() {
    let scratch = Scratch::new();
    let text = "Port<0-99> lan; Port<100> wan; MacSwap x; pipelet { lan -> x -> wan; }";
    let file = scratch.write("wide.weir", text);
    let ended = weir(&["check", &file]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let says = "warning: with a device at each port it cannot run: sources: 100 are more than 64";
    assert!(ended.stderr.contains(says), "{ended:?}");
}

const CHAIN: &str = "Port<0> a; Port<1> b; CountUrl x; ValidateUrl y; MacSwap z; pipelet { a -> x -> y -> z -> b; }";

#[test]
fn all_commands_plan_with_the_same_options_and_files_of_them() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.weir", CHAIN);
    let same = scratch.write("same", "--isolate none # in one\n--domain\n  z=guest\n");
    let shown = |args: &[&str]| {
        let ended = weir(args);
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.stdout
    };
    let given = ["--isolate", "none", "--domain", "z=guest"];
    for command in [&["check", &file][..], &["explain", &file]] {
        let by_file = shown(&[command, &["--options", &same]].concat());
        assert_eq!(by_file, shown(&[command, &given].concat()), "{command:?}");
        assert_ne!(by_file, shown(command), "{command:?}");
    }
    let wrong = scratch.write("wrong", "--isolate none\n--paralel never\n");
    for command in
        [&["check", &file][..], &["explain", &file], &["diff", &file, &file], &["run", &file]]
    {
        let ended = weir(&[command, &["--options", &wrong]].concat());
        assert_eq!(ended.code, Some(2), "{command:?}: {ended:?}");
        for says in [&format!("{wrong}:2: "), "'--paralel'", "'--parallel'", "write each option"] {
            assert!(ended.stderr.contains(says), "{command:?}: {says}: {ended:?}");
        }
    }
}

#[test]
fn the_parallel_stage_is_shown_as_it_is_asked_for() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.weir", CHAIN);
    for (how, says) in [
        ("never", "x | y: in sequence: as asked for"),
        ("always", "x | y: side by side, as asked for"),
    ] {
        let ended = weir(&["explain", &file, "--stage", "parallel", "--parallel", how]);
        assert!(ended.stdout.contains(says), "{how}: {ended:?}");
    }
}

#[test]
fn diff_says_what_other_options_change_of_one_policy() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.weir", CHAIN);
    let old = scratch.write("old", "--parallel never\n");
    let own = "restart worker z: in domain `guest` instead of the graph's own domain";
    for (options, says) in [
        ("--parallel never --instances z=2:1", "divide packets of z over z#1, z#2 "),
        ("--parallel always", "packets lent of rx:a"),
        ("--parallel never --domain z=guest", own),
    ] {
        let new = scratch.write("new", options);
        let ended = weir(&["diff", &file, &file, "--old-options", &old, "--options", &new]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains(says), "{options:?}: {says}: {ended:?}");
    }
}
