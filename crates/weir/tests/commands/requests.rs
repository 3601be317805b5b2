//! A generator's HTTP requests, as the NFs see them that follow streams.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use serde_json::{Value, json};

const CHAIN: &str = "Port<0> lan; Port<1> wan;
FlowMonitor mon; ConnTrack fw { pickup: true }; HttpParser http;
pipelet { lan -> mon -> fw -> http -> wan; }";

const PACKETS: u64 = 20_000;

/// What `nf` reports after `PACKETS` packets of the generator.
fn reported(generator: &str, isolate: &str, nf: &str) -> Value {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", CHAIN);
    let rx = format!("0=gen:{generator},packets={PACKETS}");
    let run = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--isolate", isolate];
    let ended = weir(&[&run[..], &["--json", "-q"]].concat());
    assert_eq!(ended.code, Some(0), "{generator}: {ended:?}");
    let report = ended.json();
    assert_sound(generator, &report);
    assert_eq!(report["balance"]["out"], PACKETS, "{generator}: {report:#}");
    let nodes = report["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["name"] == nf).unwrap()["report"].clone()
}

#[test]
fn each_packet_is_a_request_that_goes_on_where_its_flow_was() {
    // The generator keeps 1,024 flows ready and makes the others anew each time; with 7 one flow has thousands of requests.
    for (generator, isolate) in [
        ("carry=http,flows=7", "none"),
        ("carry=http,flows=3000,size=196", "each"),
        ("carry=http,flows=100,ip=6", "none"),
    ] {
        let parsed = reported(generator, isolate, "http");
        assert_eq!(parsed["requests"], json!({ "GET": PACKETS }), "{generator}: {parsed:#}");
        for nothing in ["repeated", "early", "given_up", "lost", "no_room"] {
            assert_eq!(parsed[nothing], 0, "{generator}, {nothing}: {parsed:#}");
        }
    }
}

#[test]
fn without_them_the_parser_has_nothing_to_parse() {
    let parsed = reported("flows=100", "none", "http");
    assert_eq!(parsed["requests"], json!({}), "{parsed:#}");
}
