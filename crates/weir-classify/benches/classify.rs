//! Nanoseconds per lookup over 100,000 distinct headers that hit the rules evenly: `cargo bench -p weir-classify`;
//! behind `--`, a kind and a number of rules (`Acl 100`) restrict it to those.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use std::hint::black_box;
use std::time::Instant;
use weir_classify::generate::{Kind, generate, headers_hitting};
use weir_classify::{Classifier, HeaderBatch, LANES, NO_RULE, Net};

const HEADERS: usize = 100_000;
const REPEATS: usize = 9;

fn main() {
    println!(
        "kind rules  build ms   KiB trees leaf | single ns min/median/max | batch ns min/median/max"
    );
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for kind in [Kind::Acl, Kind::Fw, Kind::Ipc] {
        for n in [0, 100, 500, 1_000, 10_000] {
            let name = [format!("{kind:?}"), n.to_string()];
            if !wanted.iter().all(|word| name.contains(word)) {
                continue;
            }
            // No rules: the price of reading headers alone.
            let some = generate(1, 100, kind);
            let rules = generate(1, n, kind);
            let started = Instant::now();
            let classifier = Classifier::build(&rules).expect("generated rules compile");
            let built = started.elapsed().as_millis();
            let mut headers = headers_hitting(2, if n == 0 { &some } else { &rules }, HEADERS);
            shuffle(&mut headers);
            let single = repeat(|| {
                let mut sum = 0_u32;
                for header in &headers {
                    sum = sum.wrapping_add(classifier.classify(header).unwrap_or(NO_RULE));
                }
                black_box(sum);
            });
            let mut found = vec![0; HEADERS];
            let mut batch = HeaderBatch::new();
            let batched = repeat(|| {
                // As a chain does it: 64 packets at a time, their fields put in directly.
                for (headers, found) in headers.chunks(LANES).zip(found.chunks_mut(LANES)) {
                    batch.clear();
                    for header in headers {
                        match (header.net, header.ports, header.proto) {
                            (Net::V4 { src, dst }, Some(ports), Some(proto)) => {
                                batch.push_v4(src, dst, ports, proto, header.tcp_flags);
                            }
                            _ => batch.push(header),
                        }
                    }
                    let answers = classifier.classify_batch(&batch);
                    found.copy_from_slice(answers.get(..found.len()).unwrap_or_default());
                }
                black_box(&found);
            });
            let shape = classifier.shape();
            println!(
                "{kind:?} {:6} {built:9} {:7} {:4} {:4} | {single} | {batched}",
                rules.len(),
                shape.bytes / 1024,
                shape.trees,
                shape.largest_leaf,
            );
        }
    }
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = weir_classify::generate::Random::new(3);
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at + 1));
    }
}

fn repeat(mut run: impl FnMut()) -> String {
    run();
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed().as_nanos() as f64 / HEADERS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:6.1} {:6.1} {:6.1}", times[0], times[REPEATS / 2], times[REPEATS - 1])
}
