//! µNFs that break: the report says which, at which packet and of what; a packet that has broken one
//! twice is not given to it again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_outside::hostile;
use serde_json::Value;
use std::path::Path;
use weir_capture::{Format, LinkType, Precision, Record, TimeFormat, Timestamp, Writer};

/// A frame with this after its Ethernet header.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&[0x02; 12][..], &[0x88, 0xb5], payload].concat()
}

/// The packet at which the µNF breaks.
fn fatal() -> Vec<u8> {
    frame(b"a packet to break")
}

/// Another one each time.
fn fatal_and_unlike_others(number: u32) -> Vec<u8> {
    frame(&[&number.to_be_bytes()[..], b"break"].concat())
}

/// One at which it does not.
fn harmless(number: u32) -> Vec<u8> {
    frame(&number.to_be_bytes())
}

/// Five packets, a thousand harmless ones before each and after the last.
fn five(which: impl Fn(u32) -> Vec<u8>) -> Vec<Vec<u8>> {
    spread(5, which)
}

/// The same for any number of them.
fn spread(times: u32, which: impl Fn(u32) -> Vec<u8>) -> Vec<Vec<u8>> {
    let fatal = |n: u32| n % 1_001 == 1_000;
    let all = 0..times * 1_001 + 1_000;
    all.map(|n| if fatal(n) { which(n) } else { harmless(n) }).collect()
}

fn write(path: &Path, packets: &[Vec<u8>]) {
    let format = Format::Pcap { precision: Precision::Micros, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    for (number, bytes) in (0u32..).zip(packets) {
        let raw = weir_capture::RawTime::from_fields(1_000, number);
        let record = Record {
            bytes,
            wire_len: bytes.len() as u32,
            time: Timestamp { raw, format: TimeFormat::PcapMicros },
            link: LinkType::ETHERNET,
            interface: 0,
            comment: None,
        };
        writer.append(&record).unwrap();
    }
    writer.commit().unwrap();
}

/// Runs a µNF that breaks so at five packets that are alike; gives what is told, and the report.
fn broken(name: &str, config: &str) -> Finished {
    broken_by(name, config, &five(|_| fatal()))
}

/// The same with these packets.
fn broken_by(name: &str, config: &str, packets: &[Vec<u8>]) -> Finished {
    let scratch = Scratch::new(&format!("crash-report-{name}"));
    let policy = scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  Fragile frail {{ {config} }};  MacSwap x;
         pipelet {{ lan -> frail;  frail -> x;  x -> wan; }}"
    ));
    let input = scratch.file("in.pcap");
    write(&input, packets);
    let rx = format!("0=pcap:rx={}", input.display());
    let program = hostile("hostile-nf");
    let with = program.to_str().unwrap();
    let args = ["--bind", &rx, "--bind", "1=null", "--with", with, "--restart-delay", "0"];
    Run::start(&policy, &args).finish()
}

fn crashes(finished: &Finished) -> Vec<Value> {
    finished.report["crashes"].as_array().unwrap().clone()
}

fn frail(finished: &Finished) -> &Value {
    let nodes = finished.report["nodes"].as_array().unwrap();
    nodes.iter().find(|n| n["name"] == "frail").unwrap()
}

fn poisoned(finished: &Finished) -> u64 {
    frail(finished)["drops"]["poison"].as_u64().unwrap_or(0)
}

/// Packets that each death of the worker lost.
fn losses(finished: &Finished) -> Vec<u64> {
    let died = finished.said.iter().filter(|line| line.contains("worker frail died ("));
    died.map(|line| lost_in(line)).collect()
}

#[test]
fn a_crash_is_reported_with_nf_packet_and_cause_and_the_packet_is_poison_after_two() {
    for (how, cause) in [
        ("panic", "a packet that I do not like"),
        ("segv", "signal: 11 (SIGSEGV)"),
        ("abort", "signal: 6 (SIGABRT)"),
        ("loop", "does not come to the end of a batch"),
    ] {
        let finished = broken(how, &format!("how: \"{how}\""));
        finished.assert_sound(how);
        let crashes = crashes(&finished);
        assert_eq!(crashes.len(), 2, "{how}: {crashes:?}");
        let hex: String = fatal().iter().map(|b| format!("{b:02x}")).collect();
        for (k, crash) in crashes.iter().enumerate() {
            assert_eq!(crash["node"], "frail", "{how}");
            assert_eq!(crash["nf"], "Fragile", "{how}");
            assert_eq!(crash["packet"], hex, "{how}");
            let said = crash["cause"].as_str().unwrap();
            assert!(said.contains(cause), "{how}: {said}");
            assert_eq!(crash["poison"], k == 1, "{how}: only the second time");
        }
        assert_eq!(poisoned(&finished), 3, "{how}: the third to the fifth");
        assert_eq!(finished.restarts()["x"], 0, "{how}: the neighbour is left alone");
        let told = finished.said.join("\n");
        assert!(told.contains("frail (Fragile) crashed: "), "{told}");
        assert!(told.contains("0000  02 02 02 02"), "{told}");
    }
}

/// On the way back each of them meets the NFs in the other order, for which one of them stands twice where all share a worker.
#[test]
fn an_nf_that_breaks_where_it_stands_a_second_time_is_known_there_too() {
    const BOTH_WAYS: &str = "
Port<0> int;  Port<1> ext;  default drop;  Fragile frail { how: 'panic' };  PacketSizeHistogram sizes;
pipelet { int -> frail;  frail [ingress == 0] -> sizes;  sizes [ingress == 0] -> ext; }
pipelet { ext -> sizes;  sizes [ingress == 1] -> frail;  frail [ingress == 1] -> int; }";
    for (isolate, from, to) in [("none", 0, 1), ("none", 1, 0), ("each", 1, 0)] {
        let what = format!("{isolate}, from {from}");
        let scratch = Scratch::new("crash-report-again");
        let (policy, input) = (scratch.policy(BOTH_WAYS), scratch.file("in.pcap"));
        write(&input, &five(|_| fatal()));
        let (nothing, out) = (scratch.file("nothing.pcap"), scratch.file("out.pcap"));
        write(&nothing, &[]);
        let bind = |port, rx: &Path, tx: &str| {
            format!("{port}=pcap:rx={},tx={}", rx.display(), scratch.file(tx).display())
        };
        let (one, other) = (bind(from, &input, "back.pcap"), bind(to, &nothing, "out.pcap"));
        let program = hostile("hostile-nf").display().to_string();
        let args = ["--bind", &one, "--bind", &other, "--with", &program, "--restart-delay", "0"];
        // Room for all: on a way back they are dropped otherwise.
        let more = ["--isolate", isolate, "--ring", "8192"];
        let finished = Run::start(&policy, &[&args[..], &more].concat()).finish();
        finished.assert_sound(&what);
        let crashes = crashes(&finished);
        assert_eq!(crashes.len(), 2, "{what}: {crashes:?}");
        for (k, crash) in crashes.iter().enumerate() {
            assert_eq!(
                (&crash["node"], &crash["nf"]),
                (&"frail".into(), &"Fragile".into()),
                "{what}"
            );
            assert_eq!(crash["poison"], k == 1, "{what}: only the second time");
        }
        assert_eq!(poisoned(&finished), 3, "{what}: the third to the fifth");
        let came = read_capture(&out, |_| ()).len() as u64;
        assert_eq!(came + finished.number("/balance/lost") + 3, 6005, "{what}");
    }
}

#[test]
fn crashes_at_packet_after_packet_fill_no_screen_and_are_counted() {
    let packets = spread(12, fatal_and_unlike_others);
    let finished = broken_by("many", "how: \"panic\"", &packets);
    finished.assert_sound("many");
    assert_eq!(finished.report["crashed"], serde_json::json!({ "frail": 12 }));
    let lines = |text: &str| finished.said.iter().filter(|line| line.contains(text)).count();
    assert_eq!(lines("frail (Fragile) crashed: "), 8, "with their packets: {:?}", finished.said);
    assert_eq!(lines("frail (Fragile) crashed again, "), 4, "{:?}", finished.said);
    assert_eq!((lines("worker frail died"), lines("worker frail runs again")), (8, 8));
}

#[test]
fn a_packet_that_was_written_to_before_the_crash_is_recognised_as_it_came() {
    let finished = broken("written", "how: \"abort\", after_writing: true");
    finished.assert_sound("written to");
    // The first time nobody had looked at it before; then twice.
    assert_eq!(crashes(&finished).len(), 3, "{:#}", finished.report);
    assert_eq!(poisoned(&finished), 2);
}

#[test]
fn an_nf_that_has_crashed_once_loses_just_the_packets_at_which_it_crashes_again() {
    let finished = broken_by("one-each", "how: \"panic\"", &five(fatal_and_unlike_others));
    finished.assert_sound("one each");
    assert_eq!(crashes(&finished).len(), 5, "{:#}", finished.report);
    let losses = losses(&finished);
    let (first, later) = losses.split_first().unwrap();
    assert!((1..=BATCH).contains(first), "{losses:?}: a batch, when nothing was known");
    assert_eq!(later, [1; 4], "only the packet itself");
    assert_eq!(finished.number("/balance/lost"), first + 4);
    assert_eq!(poisoned(&finished), 0, "none has killed twice");
}

/// A fatal packet, again behind a batch, so many harmless ones, and the fatal one again.
fn after(harmless_ones: u32) -> Vec<Vec<u8>> {
    let batch = BATCH as u32;
    let mut packets: Vec<_> = (0..batch + harmless_ones).map(harmless).collect();
    packets.insert(batch as usize, fatal());
    packets.insert(0, fatal());
    packets.push(fatal());
    packets
}

#[test]
fn after_a_hundred_thousand_packets_without_a_crash_batches_are_whole_and_poison_is_still_known() {
    // Time is taken of some whole batches only, so it tells whether there were any.
    for (harmless, whole) in [(50_000, false), (102_000, true)] {
        let finished = broken_by(&format!("calm-{harmless}"), "how: \"panic\"", &after(harmless));
        finished.assert_sound("calm");
        assert_eq!(crashes(&finished).len(), 2, "{:#}", finished.report);
        assert_eq!(poisoned(&finished), 1, "after {harmless}");
        let timed = !frail(&finished)["ns_per_packet"].is_null();
        assert_eq!(timed, whole, "after {harmless}: {:#}", finished.report);
    }
}

#[test]
fn poison_is_still_known_when_the_graph_has_been_changed() {
    let scratch = Scratch::new("crash-report-relinked");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  Fragile frail { how: \"panic\" };  Busy x { cycles: 150000 };
         pipelet { lan -> frail;  frail -> x;  x -> wan; }",
    );
    let (input, program) = (scratch.file("in.pcap"), hostile("hostile-nf"));
    write(&input, &after(60_000));
    let rx = format!("0=pcap:rx={}", input.display());
    let args = ["--bind", &rx, "--bind", "1=null", "--with", program.to_str().unwrap()];
    // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
    let mut weir = std::process::Command::new("env");
    weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
    let mut run = Run::start_by(weir, &policy, &args);
    for _ in 0..2 {
        run.wait_for_line("a crash", |l| l.contains("worker frail runs again"));
    }
    run.signal(rustix::process::Signal::HUP);
    let (_, line) = run.wait_for_line("a word on the relink", |l| l.contains("relinked"));
    assert!(line.contains(": relinked in "), "{line}");
    let finished = run.finish();
    finished.assert_sound("relinked");
    assert_eq!((crashes(&finished).len(), poisoned(&finished)), (2, 1), "{:#}", finished.report);
}

#[test]
fn a_worker_that_somebody_kills_is_no_crash_and_its_packets_are_no_poison() {
    let scratch = Scratch::new("crash-none");
    let policy =
        scratch.policy("Port<0> lan;  Port<1> wan;  MacSwap x;  pipelet { lan -> x;  x -> wan; }");
    let args = ["--bind", "0=gen:flows=1,rate=100000", "--bind", "1=null"];
    let mut run = Run::start(&policy, &args);
    for _ in 0..3 {
        let pid = run.wait_for_workers(3)["x"];
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        run.wait_for_line("its successor", |l| l.contains("worker x runs again"));
    }
    run.signal(rustix::process::Signal::INT);
    let finished = run.finish();
    finished.assert_sound("killed");
    assert_eq!(crashes(&finished), Vec::<Value>::new());
    let x = finished.report["nodes"].as_array().unwrap().iter().find(|n| n["name"] == "x").unwrap();
    assert_eq!(x["drops"], serde_json::json!({}));
}
