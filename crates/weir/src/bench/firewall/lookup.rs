//! The classifier alone, in the same process and moment as the chain's measurement.

use super::traffic::shuffled;
use crate::bench::machine::pin;
use crate::bench::sample::spread;
use std::hint::black_box;
use std::time::Instant;
use weir_classify::{BuildError, Classifier, HeaderBatch, LANES, Net, Rule};

/// Rounds over all flows, of which the median counts.
const ROUNDS: usize = 5;

/// Nanoseconds per packet to put headers into batches of 64 and look them up, on core `core`.
pub fn nanoseconds(
    seed: u64,
    rules: &[Rule],
    flows: usize,
    core: usize,
) -> Result<f64, BuildError> {
    let classifier = Classifier::build(rules)?;
    let headers = shuffled(seed, rules, flows);
    let measure = || {
        let _pinned = pin(core);
        let mut batch = HeaderBatch::new();
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for headers in headers.chunks(LANES) {
                batch.clear();
                for header in headers {
                    match (header.net, header.ports, header.proto) {
                        (Net::V4 { src, dst }, Some(ports), Some(proto)) => {
                            batch.push_v4(src, dst, ports, proto, header.tcp_flags);
                        }
                        _ => batch.push(header),
                    }
                }
                black_box(classifier.classify_batch(&batch));
            }
            rounds.push(start.elapsed().as_nanos() as f64 / headers.len().max(1) as f64);
        }
        spread(rounds).map_or(f64::NAN, |[_, median, _]| median)
    };
    // A thread of its own: this one keeps its cores.
    Ok(std::thread::scope(|s| s.spawn(measure).join().unwrap_or(f64::NAN)))
}
