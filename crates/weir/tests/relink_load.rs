//! A graph that is changed while its device offers more than it takes, at millions of packets a second: what the device drops
//! meanwhile is counted, and nothing else is missing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_live;
mod common_relink;

use common_crash::*;
use common_live::{Wires, skipped};
use common_relink::*;
use rustix::process::Signal;
use std::process::Command;
use std::time::Instant;
use weir_capture::Reader;

/// Packets a second: many times what any machine's chain takes.
const RATE: u64 = 20_000_000;
/// Flows that are offered, packets of each in turn.
const OFFERED: u32 = 1024;
/// Those of them that are written down, the first.
const WRITTEN: u32 = 64;
/// Packets that wait at a generator before it drops.
const QUEUE: u64 = 4096;

/// A chain that takes what it can; a few of the flows are written down.
fn chain(nfs: &str, way: &str) -> String {
    format!(
        "Port<0> lan;  Port<1> wan;  Port<2> rest;
MacSwap head;  {nfs}  Null last;
pipelet {{ lan -> head -> {way} -> last;  last [src net 10.0.0.0/26] -> wan;  last [!(src net 10.0.0.0/26)] -> rest; }}"
    )
}

/// What the device dropped; fails unless nobody dropped anything else, and what came and did not leave was that.
fn dropped_by_the_device(finished: &Finished) -> u64 {
    let drops = common_live::drops(&finished.report);
    let other: Vec<_> = drops
        .iter()
        .filter(|(n, why, _)| (n.as_str(), why.as_str()) != ("rx:lan", "kernel-full"))
        .collect();
    assert!(other.is_empty(), "{other:?}");
    let all = drops.iter().map(|(.., count)| count).sum();
    let n = |key: &str| finished.number(&format!("/balance/{key}"));
    assert_eq!((n("in"), n("lost")), (n("out") + all, 0), "{:#}", finished.report);
    all
}

#[test]
fn at_full_load_what_the_device_drops_while_the_graph_is_changed_is_counted_and_order_holds() {
    let few = chain("PacketSizeHistogram sizes;", "sizes");
    let more = chain("PacketSizeHistogram sizes;  MacSwap more;", "sizes -> more");
    let other = chain("PacketSizeHistogram sizes { bounds: [128] };", "sizes");
    let rx = format!("gen:size=64,flows={OFFERED},rate={RATE},full=drop");
    let scratch = Scratch::new("relink-load");
    let args = ["--bind", "2=null"];
    let mut graph = Changing::start_on(scratch, Command::new("env"), &rx, &few, &args);
    graph.wait_for_traffic();
    let changes =
        [("each", &more), ("each", &few), ("each", &other), ("none", &other), ("each", &few)];
    for (isolate, policy) in changes {
        graph.isolate(isolate);
        std::fs::write(&graph.policy, policy).unwrap();
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{line}");
        graph.wait_for_traffic();
    }
    let out = graph.out();
    graph.run.signal(Signal::INT);
    let finished = graph.run.finish();
    finished.assert_sound("load");
    let all = dropped_by_the_device(&finished);
    let told = finished.report["relinks"].as_array().unwrap();
    assert_eq!(told.len(), changes.len());
    let mut missed = 0;
    for relink in told {
        let (pause, here) =
            (relink["pause_ms"].as_f64().unwrap(), relink["missed"].as_u64().unwrap());
        // All that was due in the pause, but for what waited and what was due already when its end was noticed.
        let due = (pause * RATE as f64 / 2e3) as u64;
        assert!(here > 0 && here >= due.saturating_sub(QUEUE), "{relink}");
        missed += here;
    }
    assert!(missed <= all, "{missed} told of {all}");
    assert_flows_in_order(&out);
    drop(graph.scratch);
}

/// Packets that are made at one time are of one flow after the other; a later one has a later time.
fn assert_flows_in_order(out: &std::path::Path) {
    let mut reader = Reader::open(out).unwrap();
    let mut last: Option<(u64, u32)> = None;
    let mut packets = 0_u64;
    while let Some(record) = reader.next().unwrap() {
        let flow = u32::from_be_bytes(record.bytes[26..30].try_into().unwrap()) & 0xff_ffff;
        let time = record.time.to_ns();
        if let Some((before, prior)) = last {
            let follows = time > before || (time == before && flow == (prior + 1) % WRITTEN);
            assert!(follows, "packet {packets}: {time} {flow} behind {before} {prior}");
        }
        (last, packets) = (Some((time, flow)), packets + 1);
    }
    assert!(packets > 1000, "{packets} packets");
}

/// Bytes of the packets that come last.
const LAST: u32 = 200;

/// True when one of the last packets has come out: then nothing waits that was sent before them.
fn has_last(out: &std::path::Path) -> bool {
    let Ok(mut reader) = Reader::open(out) else { return false };
    std::iter::from_fn(|| reader.next().ok().flatten().map(|r| r.wire_len)).any(|len| len == LAST)
}

#[test]
fn what_the_kernel_drops_while_the_graph_is_changed_is_counted() {
    if skipped("what_the_kernel_drops_while_the_graph_is_changed") {
        return;
    }
    let (wires, between) = (Wires::new(), Wires::dropped_between());
    // Takes some 15,000 packets a second at most. What waits in the rings takes some milliseconds, so a pause is that long.
    let policy = "Port<0> lan;  Port<1> wan;  MacSwap head;  Busy slow { cycles: 200000 };
pipelet { lan -> head -> slow -> wan; }";
    let scratch = Scratch::new("relink-live-load");
    let end = Scratch::new("relink-live-load-end");
    let env = wires.weir.command("env");
    let mut graph = Changing::start_on(scratch, env, "afp:m0", policy, &["--ring", "64"]);
    graph.run.wait_for_workers(4);
    let sends = |source: &str| wires.end(&wires.sender, &end, source, "afp:e0");
    let sender = sends("gen:size=64,flows=1000,rate=60000");
    graph.wait_for_traffic();
    for how in ["none", "each", "none"] {
        graph.isolate(how);
        let mut line = graph.reload();
        // On a busy machine what is under way may take too long.
        let end = Instant::now() + PATIENCE;
        while line.contains("did not run out") && Instant::now() < end {
            line = graph.reload();
        }
        assert!(line.contains(": relinked in "), "{how}: {line}");
        graph.wait_for_traffic();
    }
    sender.signal(Signal::INT);
    let sent_by = |sender: Run| {
        let sent = sender.finish();
        sent.assert_sound("sender");
        sent.number("/balance/out")
    };
    let mut sent = sent_by(sender);
    // While the kernel's ring is full these are dropped, too.
    let latest = Instant::now() + PATIENCE;
    while !has_last(&graph.out()) {
        assert!(Instant::now() < latest, "none of the last packets comes out");
        sent += sent_by(sends(&format!("gen:size={LAST},rate=100,packets=10")));
    }
    graph.run.signal(Signal::INT);
    let finished = graph.run.finish();
    finished.assert_sound("live");
    let all = dropped_by_the_device(&finished);
    // How many of them are told of with a change depends on how far the kernel's ring has been taken by then.
    let missed = |relink: &serde_json::Value| relink["missed"].as_u64().unwrap();
    let told = finished.report["relinks"].as_array().unwrap();
    let missed: Vec<u64> = told.iter().map(missed).collect();
    assert!(missed.len() == 3 && missed.iter().sum::<u64>() <= all && all > 0, "{missed:?} {all}");
    // What a veth dropped before weir's interface weir cannot know of.
    let (came, between) = (finished.number("/balance/in"), Wires::dropped_between() - between);
    assert!(came <= sent && came + between >= sent, "{came} of {sent}, {between} between");
    drop(graph.scratch);
}
