//! Two graphs whose workers share a core in the real-time class: neither keeps it from the other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_oracle;

use common_oracle::*;
use rustix::process::Signal;
use std::sync::{Mutex, PoisonError};

/// One test at a time: which cores the graphs of the machine have is what they are about.
static MACHINE: Mutex<()> = Mutex::new(());

/// Others come through their whole input beside graphs that take all the time they can get: on two cores, of which each graph has its
/// services on one and its NF on the other, and all on one.
#[test]
fn graphs_under_full_load_do_not_keep_their_cores_from_another() {
    let what = "graphs_under_full_load_do_not_keep_their_cores_from_another";
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let cores: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    let scratch = Scratch::new();
    let policy =
        scratch.write("policy.weir", "Port<0> a; Port<1> b; MacSwap x; pipelet { a -> x -> b; }");
    for (share, graphs) in [(2, 1), (1, 3)] {
        if cores.len() < share {
            println!("skipped: {what}: on {share} cores; there is one");
            continue;
        }
        let cores = cores[..share].join(",");
        let own = ["run", &policy, "--bind", "1=null", "--isolate", "each", "--cores", &cores];
        let load = [&own[..], &["--bind", "0=gen:rate=max", "--spin", "1000000"]].concat();
        let mut busy: Vec<Running> = (0..graphs).map(|_| start(&load)).collect();
        busy.iter_mut().for_each(|graph| graph.wait_for("weir: 3 workers"));
        let rx = demo_rx();
        let other = [&own[..], &["--bind", &rx, "--json"]].concat();
        for _ in 0..3 {
            let ended = weir(&other);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert_sound("beside busy graphs", &ended.json());
            // All of one core is never given to it.
            if share > 1 && !ended.stderr.contains("real-time") {
                println!("skipped: {what}: the real-time class is not permitted");
            }
        }
        for graph in busy {
            graph.signal(Signal::INT);
            let ended = graph.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
}

/// Each leaves the other's cores, so together they would leave none.
#[test]
fn two_graphs_do_not_take_all_cores_in_the_real_time_class_together() {
    let what = "two_graphs_do_not_take_all_cores_in_the_real_time_class_together";
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let cores: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let all = format!("0-{}", cores.len().saturating_sub(1));
    if cores.len() < 2 || online.trim() != all {
        println!("skipped: {what}: one core, or not all of the machine's");
        return;
    }
    let scratch = Scratch::new();
    // An NF for each core but the services'.
    let names: Vec<String> = (1..cores.len()).map(|n| format!("x{n}")).collect();
    let declared: Vec<String> = names.iter().map(|name| format!("MacSwap {name}; ")).collect();
    let text = format!(
        "Port<0> a; Port<1> b; {}pipelet {{ a -> {} -> b; }}",
        declared.concat(),
        names.join(" -> ")
    );
    let (wide, narrow) = (
        scratch.write("wide.weir", text),
        scratch.write("narrow.weir", "Port<0> a; Port<1> b; MacSwap x; pipelet { a -> x -> b; }"),
    );
    let forth = cores.join(",");
    let back = format!("{},{}", cores[1], cores[0]);
    let with = |file: &str, packets: &str, cores: &str| {
        let bind = format!("0=gen:{packets}");
        start(&[
            "run",
            file,
            "--bind",
            &bind,
            "--bind",
            "1=null",
            "--cores",
            cores,
            "--isolate",
            "each",
        ])
    };
    let alone = with(&narrow, "packets=10", &back).end();
    if !alone.stderr.contains("real-time scheduling") {
        println!("skipped: {what}: the real-time class is not permitted");
        return;
    }
    let mut first = with(&wide, "rate=1000", &forth);
    first.wait_for("real-time scheduling");
    let beside = with(&narrow, "packets=10", &back).end();
    assert_eq!(beside.code, Some(0), "{beside:?}");
    assert!(beside.stderr.contains("default scheduling"), "{beside:?}");
    // On the same cores it is as good as alone.
    let same = with(&narrow, "packets=10", &forth).end();
    assert!(same.stderr.contains("real-time scheduling"), "{same:?}");
    let held = format!("@weir-real-time/{}/", first.child.id());
    assert!(std::fs::read_to_string("/proc/net/unix").unwrap().contains(&held));
    first.signal(Signal::KILL);
    first.wait_until("the first to be gone", || {
        let names = std::fs::read_to_string("/proc/net/unix").unwrap();
        !names.contains(&held)
    });
    let after = with(&narrow, "packets=10", &back).end();
    assert!(after.stderr.contains("real-time scheduling"), "{after:?}");
}
