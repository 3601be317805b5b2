//! Two graphs whose workers share a core in the real-time class: neither keeps it from the other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_oracle;

use common_oracle::*;
use rustix::process::Signal;

#[test]
fn a_graph_under_full_load_does_not_keep_its_core_from_another() {
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    let cores: Vec<String> = (0..1024).filter(|c| ours.is_set(*c)).map(|c| c.to_string()).collect();
    if cores.len() < 2 {
        println!("skipped: a_graph_under_full_load_does_not_keep_its_core_from_another: one core");
        return;
    }
    let cores = cores[..2].join(",");
    let scratch = Scratch::new();
    let policy =
        scratch.write("policy.weir", "Port<0> a; Port<1> b; MacSwap x; pipelet { a -> x -> b; }");
    let load = [
        "run",
        &policy,
        "--bind",
        "0=gen:rate=max",
        "--bind",
        "1=null",
        "--cores",
        &cores,
        "--spin",
        "1000000",
    ];
    let mut busy = start(&load);
    busy.wait_for("weir: 3 workers");
    let rx = demo_rx();
    let other = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--cores", &cores, "--json"];
    for _ in 0..3 {
        let ended = weir(&other);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_sound("beside a busy graph", &ended.json());
        if !ended.stderr.contains("real-time") {
            println!(
                "skipped: a_graph_under_full_load_does_not_keep_its_core_from_another: \
                 the real-time class is not permitted"
            );
        }
    }
    busy.signal(Signal::INT);
    let ended = busy.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
