//! Nanoseconds per packet of the µNFs that remember flows, 128 flows and 65,536, over what the test bench itself takes
//! (Null): `cargo bench -p weir-nfs`; behind `--`, names restrict it to those.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;
use weir_nf::Nf;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nfs::{
    conn_track::ConnTrack, flow_monitor::FlowMonitor, http_parser::HttpParser, napt::Napt,
    null::Null, policer::Policer,
};

const REPEATS: usize = 9;
const PACKETS: usize = 65_536;
const ACK: u8 = 16;

/// Segments of so many connections in turn, with an HTTP request each.
fn frames(flows: usize) -> Vec<Vec<u8>> {
    let request = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let frame = |n: usize| {
        let n = n % flows;
        let (host, port) = ([10, 0, (n >> 8) as u8, n as u8], 1024 + (n % 60_000) as u16);
        Frame::ipv4(host, [203, 0, 113, 9]).tcp(port, 80, ACK).payload(request).build()
    };
    (0..PACKETS).map(frame).collect()
}

/// Median of the nanoseconds per packet.
fn measure<N: Nf>(config: &Value, frames: &[Vec<u8>]) -> f64 {
    let mut bench = Bench::new::<N>(config.clone()).unwrap();
    black_box(bench.run(frames));
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            for batch in frames.chunks(64) {
                black_box(bench.run(batch));
            }
            start.elapsed().as_nanos() as f64 / frames.len() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}

type Measure = fn(&Value, &[Vec<u8>]) -> f64;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let limit = json!({"flow": {"rate": 100_000_000_000_u64, "burst": 1_000_000}});
    let all: [(&str, Measure, Value); 5] = [
        ("FlowMonitor", measure::<FlowMonitor>, json!({})),
        ("ConnTrack", measure::<ConnTrack>, json!({"pickup": true})),
        ("Policer", measure::<Policer>, limit),
        ("HttpParser", measure::<HttpParser>, json!(null)),
        ("Napt", measure::<Napt>, json!({"addresses": ["198.51.100.1", "198.51.100.2"]})),
    ];
    for flows in [128, 65_536] {
        let frames = frames(flows);
        let null = measure::<Null>(&json!(null), &frames);
        println!("{flows} flows: the bench itself {null:.1} ns per packet");
        for (name, measure, config) in &all {
            if wanted.is_empty() || wanted.iter().any(|w| w == name) {
                println!("  {name:12} {:6.1} ns", measure(config, &frames) - null);
            }
        }
    }
}
