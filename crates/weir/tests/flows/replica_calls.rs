//! What is asked of an NF's instances from outside: how much they have to do, which flows they have, for how long, and that so many go elsewhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use weir_capture::{Format, LinkType, Precision, Record, TimeFormat, Timestamp, Writer};
use weir_packet::wire::Frame;

const MONITORED: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };
pipelet { lan -> mon -> wan; }";

#[test]
fn as_many_flows_go_as_were_asked_for_from_the_instance_that_was_named() {
    let args = ["--bind", "0=gen:size=64,flows=900", "--bind", "1=null", "--instances", "mon=3"];
    let moving = Moving::start("count", MONITORED, &args);
    moving.wait_for_counts("all flows to be there", |counts| counts.iter().sum::<u64>() == 900);
    moving.moves(&["--all", "--to", "1"]);
    assert_eq!(moving.moves(&["--count", "123", "--from", "1", "--to", "2"]), 123);
    assert_eq!(moving.counts(), [777, 123, 0]);
    // More than there are: all that there are.
    assert_eq!(moving.moves(&["--count", "1000", "--from", "2", "--to", "3"]), 123);
    assert_eq!(moving.counts(), [777, 0, 123]);
    // The other ways, too, take those of one instance only, if it is named.
    assert_eq!(moving.moves(&["udp", "--from", "3", "--to", "2"]), 123);
    assert_eq!(moving.counts(), [777, 123, 0]);
    let refused = moving.ask(&["flow", "move", "mon", "--count", "5", "--to", "3"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.error.contains("name it by --from"), "{}", refused.error);
    let refused = moving.ask(&["flow", "move", "mon", "--count", "5", "--from", "4", "--to", "3"]);
    assert!(refused.error.contains("mon has no instance 4; it has 1 to 3"), "{}", refused.error);
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("counted");
}

/// A packet of flow A, another a second later, then B's packets, from two seconds on, one each millisecond.
fn write_two_flows(path: &Path) {
    let format = Format::Pcap { precision: Precision::Nanos, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    let b = (0..PACKETS).map(|n| (2_000_000_000 + n * 1_000_000, 6001));
    for (ns, port) in [(0, 6000), (1_000_000_000, 6000)].into_iter().chain(b) {
        let bytes = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(5000, port).build();
        let format = TimeFormat::PcapNanos;
        let time = Timestamp { raw: format.at_ns(1_000_000_000_000 + ns), format };
        let (wire_len, link) = (bytes.len() as u32, LinkType::ETHERNET);
        let record = Record { bytes: &bytes, wire_len, time, link, interface: 0, comment: None };
        writer.append(&record).unwrap();
    }
    writer.commit().unwrap();
}

#[test]
fn flows_are_listed_with_how_old_they_are_and_for_how_long_they_are_idle() {
    let input = Scratch::new("ages-in");
    write_two_flows(&input.file("in.pcap"));
    let one = Kind { instances: "mon=1", ..ALONE };
    let moving = Moving::on_capture(&one, "ages", &input.file("in.pcap"), &[]);
    moving.wait_for_traffic();
    let said = moving.ask(&["get", "flows", "--nf", "mon"]);
    let rows = said.out["flows"]["flows"].as_array().unwrap();
    let of = |port: &str, what: &str| -> f64 {
        let has = |row: &&Value| row["keys"][0].to_string().contains(port);
        rows.iter().find(has).unwrap_or_else(|| panic!("{said:?}"))[what].as_f64().unwrap()
    };
    let is = |a: f64, b: f64| (a - b).abs() < 1e-6;
    // All by the packets' time, which goes on while it is asked.
    assert!(is(of(":6000", "age") - of(":6000", "idle"), 1.0), "{said:?}");
    assert!(is(of(":6000", "age") - of(":6001", "age"), 2.0), "{said:?}");
    assert!(is(of(":6001", "idle"), 0.0) && of(":6001", "age") > 0.1, "{said:?}");
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("aged");
}

#[test]
fn each_instance_tells_how_much_it_has_to_do() {
    let input = Scratch::new("load-in");
    write_capture(&input.file("in.pcap"), PACKETS);
    let moving = Moving::on_capture(&ALONE, "load", &input.file("in.pcap"), &["--ring", "64"]);
    moving.wait_for_traffic();
    let rows = |words: &[&str]| {
        let said = moving.ask(&[&["get", "load"], words].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out["load"].as_array().unwrap().clone()
    };
    let monitors = rows(&["mon"]);
    let workers: Vec<&str> = monitors.iter().map(|row| row["worker"].as_str().unwrap()).collect();
    assert_eq!(workers, ["mon#1", "mon#2", "mon#3"]);
    for (row, instance) in monitors.iter().zip(1..) {
        assert_eq!((&row["instance"], &row["ready"]), (&instance.into(), &true.into()), "{row}");
    }
    assert!(monitors.iter().any(|row| row["packets"].as_u64().unwrap() > 0), "{monitors:?}");
    // Who is slow has its input full, which is the output of those in front.
    wait_until("the slow one's input to be full", PATIENCE, || {
        let all = rows(&[]);
        let of = |nf: &str, what: &str| {
            let fills = all.iter().filter(|row| row["nf"] == nf).map(|row| row[what].as_u64());
            fills.flatten().max().unwrap()
        };
        of("slow", "input") > 50 && of("mon", "output") > 50 && of("slow", "output") < 50
    });
    let refused = moving.ask(&["get", "load", "none"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.error.contains("there is no NF `none`"), "{}", refused.error);
    moving.run.signal(Signal::INT);
    moving.run.finish().assert_sound("loaded");
}
