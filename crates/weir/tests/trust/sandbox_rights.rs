//! Capabilities, and memory: what workers have of them where the agent has some, but not all.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use crate::common_sandbox::*;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const NONE: &str = "0000000000000000";

/// Runs a policy of two NFs by `command`, with the sandbox on or off; what workers have, and the line about the sandbox.
fn rights(mut command: Command, policy: &Path, sandbox: &str) -> (Vec<[String; 4]>, String) {
    command.arg("run").arg(policy).args(["--sandbox", sandbox]);
    // A service with a file to open begins with what the agent has.
    command.args(["--bind", "0=gen:rate=1000", "--bind", &tx(&policy.with_file_name("out.pcap"))]);
    let mut run = spawn(command);
    run.wait_for(if sandbox == "on" { "sandbox: seccomp" } else { "4 workers, " });
    let agent = run.child.id();
    let _ended = EndedAnyway(agent);
    let all = workers(agent);
    assert_eq!(all.len(), 4, "{all:?}");
    let sets = |(pid, _): &(String, String)| {
        ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| status(pid, set))
    };
    let found = all.iter().map(sets).collect();
    run.signal(Signal::INT);
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = ended.stderr.lines().find(|l| l.contains("sandbox: ")).unwrap_or_default();
    (found, line.to_owned())
}

fn has_none(sets: &[String; 4]) -> bool {
    sets.iter().all(|set| set == NONE)
}

#[test]
fn a_capability_of_weirs_own_program_is_not_the_workers() {
    if !is_root() {
        eprintln!("skipped: giving a program a capability needs root");
        return;
    }
    let home = Ordinary::new("setcap");
    let weir = home.file("weir");
    let given = Command::new("setcap").arg("cap_net_raw+ep").arg(&weir).output();
    if !given.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no setcap, or no capabilities in this file system");
        return;
    }
    let run = |sandbox: &str| rights(Ordinary::command(&weir), &home.file("p.weir"), sandbox);
    let (on, said) = run("on");
    assert!(on.iter().all(has_none), "{on:?}");
    assert!(said.contains("no capabilities"), "{said}");
    assert!(said.contains("an empty bounding set (not permitted)"), "{said}");
    let (off, _) = run("off");
    let net_raw = format!("{:016x}", 1 << 13);
    assert!(
        off.iter()
            .all(|[_, permitted, effective, _]| { *permitted == net_raw && *effective == net_raw }),
        "{off:?}"
    );
}

#[test]
fn workers_of_a_root_that_may_not_become_nobody_have_no_capabilities() {
    if !is_root() {
        eprintln!("skipped: it needs root to be one that may not all");
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for (lacks, bounded) in [("-setuid", true), ("-setuid,-setpcap", false)] {
        let root = || {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", lacks]).arg(env!("CARGO_BIN_EXE_weir"));
            command
        };
        if Command::new("setpriv").arg("--version").output().is_err() {
            eprintln!("skipped: no setpriv");
            return;
        }
        let (on, said) = rights(root(), policy.as_ref(), "on");
        assert!(on.iter().all(has_none), "{lacks}: {on:?}");
        assert!(said.contains("no capabilities"), "{lacks}: {said}");
        assert!(said.contains("workers stay root"), "{lacks}: {said}");
        assert_eq!(!said.contains("an empty bounding set"), bounded, "{lacks}: {said}");
        let (off, _) = rights(root(), policy.as_ref(), "off");
        assert!(!off.iter().any(has_none), "{lacks}: {off:?}");
    }
}

#[test]
fn workers_are_ended_before_others_when_memory_runs_out() {
    if !is_root() {
        eprintln!("skipped: an ordinary user's workers cannot ask for it");
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for (sandbox, wanted) in [("on", true), ("off", false)] {
        let args = ["run", &policy, "--bind", "0=gen:rate=1000", "--bind", "1=null"];
        let mut run = start(&[&args[..], &["--sandbox", sandbox]].concat());
        run.wait_for(if sandbox == "on" { "sandbox: seccomp" } else { "4 workers, " });
        let agent = run.child.id();
        let _ended = EndedAnyway(agent);
        for (pid, name) in workers(agent) {
            let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
            assert_eq!(score.trim() == "1000", wanted, "{name}, sandbox {sandbox}");
        }
        run.signal(Signal::INT);
        assert_eq!(run.end().code, Some(0));
    }
}

/// An NF that takes memory without end, in a domain of its own, beside a chain that it has no part in.
fn devours(more: &[&str]) -> Ended {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; Port<2> lan2; Port<3> wan2; MacSwap m;
         Attack a { what: \"devour\", when: \"packet\" };
         pipelet { lan -> a; a -> wan; }
         pipelet { lan2 -> m; m -> wan2; }\n",
    );
    let program = crate::common_outside::hostile("hostile-nf");
    let program = program.to_str().unwrap();
    let run = ["run", &policy, "--bind", "0=gen:packets=1", "--bind", "1=null", "--json"];
    let beside = ["--bind", "2=gen:packets=20000,rate=20000", "--bind", "3=null", "-q"];
    let apart = ["--domain", "a=apart", "--with", program, "--patience", "20"];
    weir(&[&run[..], &beside, &apart, more].concat())
}

fn packets_out(ended: &Ended, name: &str) -> u64 {
    let report = ended.json();
    let nodes = report["nodes"].as_array().unwrap().clone();
    let node = nodes.iter().find(|n| n["name"] == name).unwrap();
    node["packets"].as_u64().unwrap()
}

#[test]
fn who_takes_more_memory_than_it_may_is_ended_and_its_neighbours_go_on() {
    let ended = devours(&["--worker-memory", "64M"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("worker a died (signal: 6 (SIGABRT)"), "{ended:?}");
    assert_eq!(packets_out(&ended, "tx:wan2"), 20_000, "{ended:?}");
    // Without a limit it gets through: it has nothing to die of.
    let ended = devours(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("worker a died"), "{ended:?}");
}

#[test]
fn a_limit_on_memory_that_is_nonsense_is_refused() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    for (size, why) in [
        ("much", "is not a size"),
        ("", "is not a size"),
        ("-1", "is not a size"),
        ("99999999999999G", "is not a size"),
        ("1M", "give 16M or more"),
        ("0", "give 16M or more"),
    ] {
        let limit = format!("--worker-memory={size}");
        let ended = weir(&["run", &policy, "--bind", "0=gen", "--bind", "1=null", &limit]);
        assert_eq!(ended.code, Some(2), "{size}: {ended:?}");
        assert!(ended.stderr.contains(why), "{size}: {ended:?}");
    }
}
