//! Policer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{v4, v6};
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{DropReason, Env, TagPlace, TagSpec};
use weir_nfs::policer::{Buckets, Color, Limit, Meter, Policer};

const SECOND: u64 = 1_000_000_000;

fn bench(config: Value) -> Bench {
    Bench::new::<Policer>(config).unwrap()
}

/// A datagram of 100 bytes from the IP header on.
fn hundred(port: u16) -> Vec<u8> {
    v4().udp(port, 53).payload(&[0; 72]).build()
}

/// How many of `n` such packets at a time pass.
fn pass(bench: &mut Bench, frame: &[u8], at_ns: u64, n: usize) -> usize {
    let packets = vec![(frame, frame.len(), at_ns); n];
    let seen = bench.run_cut(&packets);
    let limited = Err(DropReason::RateLimit);
    assert!(seen.iter().all(|s| s.verdict == Ok("out") || s.verdict == limited));
    seen.iter().filter(|s| s.verdict.is_ok()).count()
}

#[test]
fn a_flow_has_its_burst_and_then_its_rate_and_other_flows_have_theirs() {
    // 8000 bits a second: ten packets.
    let mut bench = bench(json!({"flow": {"rate": 8000, "burst": 500}}));
    let (one, two) = (hundred(1), hundred(2));
    assert_eq!(pass(&mut bench, &one, SECOND, 20), 5);
    assert_eq!(pass(&mut bench, &two, SECOND, 3), 3);
    assert_eq!(pass(&mut bench, &one, SECOND + 99_999_999, 20), 0);
    assert_eq!(pass(&mut bench, &one, SECOND + 100_000_000, 20), 1);
    assert_eq!(pass(&mut bench, &one, SECOND + 350_000_000, 20), 2);
    assert_eq!(pass(&mut bench, &one, 60 * SECOND, 20), 5, "no more than the burst");
    let report = bench.report();
    assert_eq!(report["green"], json!({"packets": 16, "bytes": 1600}));
    assert_eq!(report["red"]["packets"], 87);
}

#[test]
fn both_directions_share_a_flows_limit_and_ethernet_does_not_count() {
    let mut bench = bench(json!({"flow": {"rate": 8, "burst": 300}}));
    let back = Frame::ipv4([192, 0, 2, 2], [192, 0, 2, 10]).udp(53, 1).payload(&[0; 72]).build();
    assert_eq!(pass(&mut bench, &hundred(1), 1, 2), 2);
    assert_eq!(pass(&mut bench, &back, 1, 2), 1);
    let tagged = v6().vlan(7).udp(1, 2).payload(&[0; 52]).build();
    assert_eq!(pass(&mut bench, &tagged, 1, 9), 3);
}

#[test]
fn all_traffic_has_a_limit_and_what_a_flow_is_refused_does_not_use_it_up() {
    let limits = json!({"flow": {"rate": 8, "burst": 100}, "total": {"rate": 8, "burst": 300}});
    let mut bench = bench(limits);
    let passed: Vec<_> = (1..6).map(|port| pass(&mut bench, &hundred(port), 1, 9)).collect();
    assert_eq!(passed, [1, 1, 1, 0, 0]);
    // What is not IP has no flow.
    let arp = Frame::other(0x0806).payload(&[0; 28]).build();
    assert_eq!(pass(&mut bench, &arp, 1, 1), 0);
    let mut flows = self::bench(json!({"flow": {"rate": 8, "burst": 1}}));
    assert_eq!(pass(&mut flows, &arp, 1, 9), 9);
}

#[test]
fn a_flood_of_new_flows_pushes_out_its_own_and_busy_ones_keep_their_buckets() {
    let mut bench = bench(json!({"flow": {"rate": 8, "burst": 300}}));
    assert_eq!(pass(&mut bench, &hundred(1), 1, 2), 2);
    let flood = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        Frame::ipv4([10, a, b, c], [192, 0, 2, 2]).udp(7, 53).payload(&[0; 72]).build()
    };
    for n in 0..70_000 {
        assert_eq!(pass(&mut bench, &flood(n), 2, 1), 1, "a new flow finds room");
    }
    assert_eq!(pass(&mut bench, &hundred(1), 3, 9), 1);
    assert_eq!(bench.report()["gave_way"], 70_001 - 65_536);
    assert_eq!(bench.flows(), (65_536, 0));
}

#[test]
fn a_packet_that_is_cut_in_its_addresses_is_dropped_as_such_where_flows_have_a_limit() {
    let cut = &hundred(1)[..30];
    let seen = |config| bench(config).run_cut(&[(cut, 114, 1)]).remove(0).verdict;
    assert_eq!(seen(json!({"flow": {"rate": 8, "burst": 300}})), Err(DropReason::Truncated));
    assert_eq!(seen(json!({"total": {"rate": 8, "burst": 300}})), Ok("out"));
}

#[test]
fn excess_is_yellow_and_the_tag_tells_colors() {
    let patterns = ["green", "yellow", "red"].map(|c| format!("^{c}$")).to_vec();
    let place = TagPlace::Text { slot: 0, bit: 0, patterns };
    let env = Env::new(&[TagSpec { name: "color".to_owned(), place }], 1).unwrap();
    let colors = |config: Value, times: &[u64]| {
        let mut bench = Bench::with_env::<Policer>(config, &env).unwrap();
        let frame = hundred(1);
        let packets: Vec<_> = times.iter().map(|at| (&frame[..], frame.len(), *at)).collect();
        let seen = bench.run_cut(&packets);
        assert!(seen.iter().all(|s| s.verdict == Ok("out")));
        seen.iter().map(|s| s.tags[0].trailing_zeros()).collect::<Vec<_>>()
    };
    let excess = json!({"red": "pass", "flow": {"rate": 8000, "burst": 200, "excess": 100}});
    let late = SECOND + 300_000_000;
    // The excess fills when the burst is full.
    let times = [SECOND, SECOND, SECOND, SECOND, late, late, late, late];
    assert_eq!(colors(excess, &times), [0, 0, 1, 2, 0, 0, 1, 2]);
    let peak = json!({"red": "pass", "flow":
        {"rate": 8000, "burst": 100, "peak_rate": 16000, "peak_burst": 200}});
    let late = SECOND + 50_000_000;
    let later = SECOND + 100_000_000;
    let times = [SECOND, SECOND, SECOND, late, later, later];
    assert_eq!(colors(peak, &times), [0, 1, 2, 1, 0, 2]);
}

#[test]
fn limits_that_cannot_be_are_refused_by_place() {
    for (limit, at) in [
        (json!({"rate": 0, "burst": 1}), "/flow/rate"),
        (json!({"rate": 1, "burst": 0}), "/flow/burst"),
        (json!({"rate": 1, "burst": 2_000_000_000}), "/flow/burst"),
        (json!({"rate": 9, "burst": 1, "peak_rate": 8}), "/flow/peak_rate"),
        (json!({"rate": 9, "burst": 1, "peak_rate": 9, "excess": 1}), "/flow/excess"),
        (json!({"rate": 9, "burst": 1, "peak_burst": 1}), "/flow/peak_burst"),
    ] {
        let error = Bench::new::<Policer>(json!({"flow": limit})).err().unwrap().to_string();
        assert!(error.starts_with(at), "{error}");
    }
}

#[test]
fn a_restart_does_not_fill_the_bucket_of_all_traffic() {
    let config = json!({"total": {"rate": 8, "burst": 300}});
    let mut old = bench(config.clone());
    assert_eq!(pass(&mut old, &hundred(1), SECOND, 2), 2);
    let mut new = bench(config);
    new.restore(&old.save()).unwrap();
    assert_eq!(pass(&mut new, &hundred(1), SECOND, 9), 1);
}

/// A meter as RFC 2697 and 2698 write it, with tokens that are counted up, in whole numbers.
struct Plain {
    tokens: [i128; 2],
    at_ns: u64,
}

fn plain(limit: &Limit, state: &mut Plain, now: u64, bytes: u64) -> Color {
    let unit = 8_i128 * 1_000_000_000;
    let two = limit.peak_rate;
    let size = [limit.burst, two.map_or(limit.excess, |_| limit.peak_burst.unwrap())];
    let size = size.map(|bytes| i128::from(bytes) * unit);
    for _ in state.at_ns..now {
        state.tokens[0] += i128::from(limit.rate);
        match two {
            Some(peak) => state.tokens[1] += i128::from(peak),
            None => state.tokens[1] += (state.tokens[0] - size[0]).max(0),
        }
        state.tokens = [0, 1].map(|i: usize| state.tokens[i].min(size[i]));
    }
    state.at_ns = now;
    let cost = i128::from(bytes) * unit;
    let has = state.tokens.map(|tokens| tokens >= cost);
    let (color, takes) = match (two, has) {
        (None, [true, _]) => (Color::Green, [true, false]),
        (None, [false, true]) => (Color::Yellow, [false, true]),
        (Some(_), [true, true]) => (Color::Green, [true, true]),
        (Some(_), [false, true]) => (Color::Yellow, [false, true]),
        _ => (Color::Red, [false, false]),
    };
    (0..2).filter(|i| takes[*i]).for_each(|i| state.tokens[i] -= cost);
    color
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nanosecond by nanosecond.
    #[test]
    fn a_meter_is_that_of_the_rfcs(
        rate in 1_u64..20_000_000_000,
        more in 0_u64..20_000_000_000,
        burst in 1_u32..400,
        second in 0_u32..400,
        two in any::<bool>(),
        packets in prop::collection::vec((0_u64..300, 0_u64..200), 1..60),
    ) {
        let limit = if two {
            let peak_burst = Some(second.max(1));
            Limit { rate, burst, excess: 0, peak_rate: Some(rate + more), peak_burst }
        } else {
            Limit { rate, burst, excess: second, peak_rate: None, peak_burst: None }
        };
        let meter = Meter::new(&limit, "").unwrap();
        let mut buckets = Buckets::default();
        let full = [burst, if two { second.max(1) } else { second }];
        let tokens = full.map(|bytes| i128::from(bytes) * 8_000_000_000);
        let mut state = Plain { tokens, at_ns: 0 };
        let mut now = 0;
        for (after, bytes) in packets {
            now += after;
            let color = meter.look(&mut buckets, now, bytes);
            meter.take(&mut buckets, bytes, color);
            prop_assert_eq!(color, plain(&limit, &mut state, now, bytes), "{} ns, {} bytes", now, bytes);
        }
    }

    /// Whatever the rate, over hours not one packet too many or too few.
    #[test]
    fn nothing_drifts(rate in 1_u64..1_000_000, start in 0_u64..1 << 60) {
        // A byte more than a packet, so that what a nanosecond brings too much is not lost.
        let limit = Limit { rate, burst: 101, ..Limit::default() };
        let meter = Meter::new(&limit, "").unwrap();
        let mut buckets = Buckets::default();
        let mut send = |now| {
            let color = meter.look(&mut buckets, now, 100);
            meter.take(&mut buckets, 100, color);
            color == Color::Green
        };
        prop_assert!(send(start));
        // Each as soon as its tokens are there, by exact division; the byte is there from the start.
        for n in 1..2000_u64 {
            let tokens = (u128::from(n) * 800 - 8) * 1_000_000_000;
            let due = start + tokens.div_ceil(u128::from(rate)) as u64;
            prop_assert!(!send(due - 1), "packet {} a nanosecond early", n);
            prop_assert!(send(due), "packet {}", n);
            prop_assert!(!send(due), "twice");
        }
    }
}
