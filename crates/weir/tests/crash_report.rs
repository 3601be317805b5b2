//! µNFs that break: the report says which, at which packet and of what; a packet that has broken one
//! twice is not given to it again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_outside;

use common_crash::*;
use common_outside::hostile;
use serde_json::Value;
use std::path::Path;
use weir_capture::{Format, LinkType, Precision, Record, TimeFormat, Timestamp, Writer};

/// The packet at which the µNF breaks.
fn fatal() -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend([0x88, 0xb5]);
    frame.extend(b"a packet to ");
    frame.extend(b"break");
    frame
}

/// Five fatal packets, a thousand others before each and after the last.
fn write_fatal(path: &Path) {
    let format = Format::Pcap { precision: Precision::Micros, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    for number in 0..6_005u32 {
        let harmless = [vec![0x02; 12], vec![0x88, 0xb5], number.to_be_bytes().to_vec()].concat();
        let bytes = if number % 1_001 == 1_000 { fatal() } else { harmless };
        let raw = weir_capture::RawTime::from_fields(1_000, number);
        let record = Record {
            bytes: &bytes,
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

/// Runs a µNF that breaks so; gives what is told, and the report.
fn broken(name: &str, config: &str) -> Finished {
    let scratch = Scratch::new(&format!("crash-report-{name}"));
    let policy = scratch.policy(&format!(
        "Port<0> lan;  Port<1> wan;  Fragile frail {{ {config} }};  MacSwap x;
         pipelet {{ lan -> frail;  frail -> x;  x -> wan; }}"
    ));
    let input = scratch.file("in.pcap");
    write_fatal(&input);
    let rx = format!("0=pcap:rx={}", input.display());
    let program = hostile("hostile-nf");
    let with = program.to_str().unwrap();
    let args = ["--bind", &rx, "--bind", "1=null", "--with", with, "--restart-delay", "0"];
    Run::start(&policy, &args).finish()
}

fn crashes(finished: &Finished) -> Vec<Value> {
    finished.report["crashes"].as_array().unwrap().clone()
}

fn poisoned(finished: &Finished) -> u64 {
    let nodes = finished.report["nodes"].as_array().unwrap();
    let frail = nodes.iter().find(|n| n["name"] == "frail").unwrap();
    frail["drops"]["poison"].as_u64().unwrap_or(0)
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

#[test]
fn a_packet_that_was_written_to_before_the_crash_is_recognised_as_it_came() {
    let finished = broken("written", "how: \"abort\", after_writing: true");
    finished.assert_sound("written to");
    // The first time nobody had looked at it before; then twice.
    assert_eq!(crashes(&finished).len(), 3, "{:#}", finished.report);
    assert_eq!(poisoned(&finished), 2);
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
