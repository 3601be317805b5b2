//! By how much later packets leave a worker whose flows are replicated: one at a time, and a batch at a time, with nothing else under way.

use super::{SampleArgs, all};
use crate::bench::latency::{each_burst, percentiles};
use crate::bench::sample::{BenchError, progress, spread};
use serde::Serialize;
use std::collections::BTreeMap;
use weir_control::wiring::{self, RunOptions};
use weir_device::{DeviceSpec, ListedFlow, ListedSpec};
use weir_plan::Plan;
use weir_runtime::spec::ReplicateSpec;

/// Packets at a time.
const BURSTS: [u64; 2] = [1, 256];
/// Bursts of each mode and round.
const SAMPLES: usize = 2_000;
/// Flows that they are of, in turn.
const FLOWS: u16 = 128;
/// What each carries, so that the parser has something to remember.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n";

/// How long bursts took in a round.
#[derive(Debug, Clone, Serialize)]
pub struct Delay {
    mode: String,
    burst: u64,
    /// From just before the source takes its step until the sink has the last packet: median and 99th percentile, in nanoseconds.
    ns: [u64; 2],
}

/// All modes in turn, `rounds` times; workers are started anew in each, and poll.
pub fn measure(
    sampling: &SampleArgs,
    plan: &Plan,
    modes: &[(String, Option<ReplicateSpec>)],
    rounds: usize,
) -> Result<Vec<Delay>, BenchError> {
    let mut delays = Vec::new();
    for round in 1..=rounds {
        for (mode, spec) in modes {
            // More than a ring has room for is not given at once.
            for burst in BURSTS.into_iter().filter(|burst| *burst <= u64::from(sampling.ring)) {
                progress(&format!("round {round} of {rounds}: {mode}, {burst} at a time"));
                let options =
                    RunOptions { busy: true, replicate: all(*spec), ..sampling.options() };
                let binds = BTreeMap::from([(0, source(burst)), (1, DeviceSpec::Null)]);
                let setup = wiring::wire(plan, &binds, &BTreeMap::new(), &options)?;
                let _pinned = crate::bench::machine::pin(sampling.device_core);
                let [_, median, late, _] =
                    percentiles(each_burst(setup, SAMPLES, false, false, burst)?.ns);
                delays.push(Delay { mode: mode.clone(), burst, ns: [median, late] });
            }
        }
    }
    progress("");
    Ok(delays)
}

fn source(burst: u64) -> DeviceSpec {
    let flow = |port: u16| ListedFlow {
        source: [192, 0, 2, 1].into(),
        destination: [198, 51, 100, 1].into(),
        proto: 6,
        ports: (1024 + port, 80),
    };
    DeviceSpec::Listed(ListedSpec {
        flows: (0..FLOWS).map(flow).collect(),
        payloads: vec![REQUEST.to_vec()],
        size: 60,
        packets: None,
        burst: Some(burst),
        stays: true,
        shuffled: false,
    })
}

pub fn print_table(modes: &[(String, Option<ReplicateSpec>)], delays: &[Delay]) {
    crate::say::print_line!(
        "µs until the last of so many packets is out, nothing else under way: medians of the rounds (min / median / max), what a replica adds to them, and the \
         99th percentile"
    );
    let show = |values: Vec<f64>| match spread(values) {
        Some([a, b, c]) => format!("{a:.1} / {b:.1} / {c:.1}"),
        None => "-".into(),
    };
    let us = |ns: u64| ns as f64 / 1e3;
    for burst in BURSTS {
        let of = |mode: &str| -> Vec<[u64; 2]> {
            let its = delays.iter().filter(|d| d.burst == burst && d.mode == mode);
            its.map(|d| d.ns).collect()
        };
        let none = modes.first().map(|(mode, _)| of(mode)).unwrap_or_default();
        for (mode, _) in modes {
            let own = of(mode);
            // By round, so that what the machine does meanwhile strikes both alike.
            let added = own.iter().zip(&none).map(|(own, none)| us(own[0]) - us(none[0]));
            crate::say::print_line!(
                "{burst:>4} at a time  {mode:>10}  {:>24}  {:>24}  {}",
                show(own.iter().map(|ns| us(ns[0])).collect()),
                show(added.collect()),
                show(own.iter().map(|ns| us(ns[1])).collect())
            );
        }
    }
}
