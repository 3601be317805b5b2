//! What remembering flows costs beyond the paper: by number of flows, when they move, when they are replicated.

use super::data::{Sample, Series, Verdict};
use super::unf::plan;
use super::values::median;
use super::{ECHO, Effort};
use crate::bench::flows::moves::{self, Case, How, Measure, Nf};
use crate::bench::flows::rates::{self, Subject};
use crate::bench::sample::BenchError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_control::wiring::RunOptions;
use weir_device::{DeviceSpec, ListedSpec};
use weir_nf::{FlowKey, FlowState, FlowTable, TcpTimes};
use weir_packet::Direction;
use weir_packet::flow::PortKind;
use weir_plan::Isolate;
use weir_runtime::spec::ReplicateSpec;

const FIREWALL: &str = "ConnTrack";
const NAPT: &str = "Napt";
const CHAIN: &str = "FlowMonitor, ConnTrack, HttpParser";
const REQUESTS: &str = "the chain, a request a packet";
const REQUESTS_ECHO: &str = "echo: no µNF, a request a packet";

/// Throughput of stateful NFs by flows that come at random.
pub fn rates(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let many = [1_000, 10_000, 100_000, 1_000_000];
    // The chain's monitor and parser have room for 65,536.
    let few = [1_000, 10_000, 60_000];
    let plain: Source = rates::source;
    let all: [(&str, Subject, Source, &[usize]); 4] = [
        (FIREWALL, Subject::ConnTrack, plain, &many),
        (NAPT, Subject::Napt, plain, &many),
        (CHAIN, Subject::Chain, plain, &few),
        (REQUESTS, Subject::Requests, rates::requests, &[1_000, 60_000]),
    ];
    let mut points: Vec<_> = all
        .iter()
        .flat_map(|&(name, nf, source, flows)| {
            flows.iter().map(move |&n| (name, n as f64, (nf, source, n)))
        })
        .collect();
    // To make packets of many flows costs the source more, too.
    let limits = [(ECHO, plain, 1_000_000), (REQUESTS_ECHO, rates::requests, 60_000)];
    let ends = |(name, source, most)| {
        [1_000, most].map(|n: usize| (name, n as f64, (Subject::Echo, source, n)))
    };
    points.extend(limits.into_iter().flat_map(ends));
    effort.round(&points, |(nf, source, flows)| {
        Ok(rates::sample(effort.sampling, nf, source(flows))?.into())
    })
}

/// What makes packets of so many flows.
type Source = fn(usize) -> ListedSpec;

pub fn judge_rates(series: &[Series]) -> (Verdict, String) {
    let of = |name: &str, flows: f64| median(series, name, flows);
    let text = format!(
        "of segments without payload, by which the aims are judged, ConnTrack {:.1} Mpps with 1,000 flows and {:.1} with a million, Napt {:.1} and {:.1}, the chain {:.1} with 1,000 (HttpParser has \
         nothing to parse then); of 200-byte packets that each carry a request the chain {:.1} with 1,000 and {:.1} with 60,000",
        of(FIREWALL, 1e3),
        of(FIREWALL, 1e6),
        of(NAPT, 1e3),
        of(NAPT, 1e6),
        of(CHAIN, 1e3),
        of(REQUESTS, 1e3),
        of(REQUESTS, 6e4)
    );
    let reached = of(FIREWALL, 1e3) >= 21.0 && of(NAPT, 1e3) >= 16.0 && of(CHAIN, 1e3) >= 12.0;
    (Verdict::of(reached && of(FIREWALL, 1e6) >= 5.0), text)
}

/// A counter and a verdict.
#[derive(Default, Serialize, Deserialize)]
struct Counted {
    packets: u64,
    verdict: u8,
}

impl FlowState for Counted {}

const IDLE_NS: u64 = 120_000_000_000;
const BATCH: usize = 64;
/// Packets that are looked up in a sample.
const PACKETS: usize = 1 << 19;
/// What the largest table takes, with room to spare, in KiB.
const TABLE_KIB: u64 = 6 << 20;
pub(super) const LOOKUP: &str = "looked up, counted, expired";

/// The flow table alone, in this thread, by flows that come at random.
pub fn table(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let mut flows = vec![1_000, 10_000, 100_000, 1_000_000];
    match available_kib() > TABLE_KIB {
        true => flows.push(10_000_000),
        false => effort.fail(LOOKUP, 1e7, "too little memory was free"),
    }
    let points: Vec<_> = flows.into_iter().map(|n: u32| (LOOKUP, f64::from(n), n)).collect();
    effort.round(&points, |flows| {
        let (ns, trips) = effort.around(|| Ok(looked_up(flows)))?;
        Ok(Sample { no_workers: true, ..Sample::of(ns, trips) })
    })
}

pub fn judge_table(series: &[Series]) -> (Verdict, String) {
    let of = |flows: f64| median(series, LOOKUP, flows);
    let most = of(1e7);
    if most.is_nan() {
        let text = format!(
            "{:.0} ns a packet with 1,000 flows, {:.0} with a million; ten million do not fit into this machine's memory now",
            of(1e3),
            of(1e6)
        );
        return (Verdict::DifferentSetUp, text);
    }
    let text = format!(
        "{:.0} ns a packet with 1,000 flows, {:.0} with a million, {most:.0} with ten million",
        of(1e3),
        of(1e6)
    );
    (Verdict::of(most < 200.0), text)
}

fn available_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Nanoseconds a packet.
fn looked_up(flows: u32) -> f64 {
    let mut table =
        FlowTable::<Counted>::new(flows.max(1 << 16), IDLE_NS).with_tcp(Some(TcpTimes::RFC_5382));
    let (ack, now) = (Some(0x10), 1);
    for (key, direction) in (0..flows).filter_map(key) {
        table.find_by(key, direction, now, ack);
    }
    let mut at = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // Xorshift (Marsaglia 2003).
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        ((u128::from(at) * u128::from(flows)) >> 64) as u32
    };
    let packets: Vec<_> = (0..PACKETS).filter_map(|_| key(next())).collect();
    let start = Instant::now();
    for batch in packets.chunks(BATCH) {
        table.ready(batch.iter().map(|(key, _)| *key));
        for (key, direction) in batch {
            if let Some(found) = table.find_by(*key, *direction, now, ack) {
                found.state.packets += 1;
                found.state.verdict |= 1;
            }
        }
        table.expire(now);
    }
    start.elapsed().as_nanos() as f64 / packets.len().max(1) as f64
}

fn key(flow: u32) -> Option<(FlowKey, Direction)> {
    let [a, b, c, d] = flow.to_be_bytes();
    let ends = (([10, b, c, d].into(), 1024 + u16::from(a)), ([192, 0, 2, 1].into(), 443));
    FlowKey::between(ends.0, ends.1, 6, PortKind::Ports, 0)
}

const EACH: &str = "one by one (filter)";
const BUCKETS: &str = "by buckets (share)";
const MOVED: [u32; 4] = [100, 1_000, 10_000, 100_000];

/// Flows that go to another instance while packets of all of them come: microseconds for each.
pub fn moving(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let case = |how, flows| Case {
        nf: Nf::Firewall,
        how,
        flows,
        each_pps: 10,
        at_once: None,
        together: None,
    };
    let mut points = vec![(EACH, 1.0, case(How::One, 100))];
    for (name, how) in [(EACH, How::Each), (BUCKETS, How::Buckets)] {
        points.extend(MOVED.map(|n| (name, f64::from(n), case(how, n))));
    }
    effort.round(&points, |case| {
        let (measure, trips) = effort.around(|| moves::measure(effort.sampling, case))?;
        let Measure { moved, withheld: not_granted } = measure;
        let each = moved.took.as_secs_f64() * 1e6 / moved.flows.max(1) as f64;
        Ok(Sample { not_granted, ..Sample::of(each, trips) })
    })
}

pub fn judge_moving(series: &[Series]) -> (Verdict, String) {
    let one = median(series, EACH, 1.0);
    let told = |name: &str| {
        let each = MOVED.map(|n| format!("{:.2}", median(series, name, f64::from(n))));
        let second = 1e6 / median(series, name, 1e5);
        (format!("{} µs each, {second:.0} flows a second of 100,000", each.join(", ")), second)
    };
    let ((each, by_name), (buckets, by_buckets)) = (told(EACH), told(BUCKETS));
    let text = format!(
        "one flow alone {one:.0} µs; of 100, 1,000, 10,000 and 100,000 by name {each}; by buckets {buckets}"
    );
    (Verdict::of(one <= 50.0 && by_name.max(by_buckets) >= 500_000.0), text)
}

const EVERY: &str = "chain, every packet";
const TENTH: &str = "chain, every 10th packet";
const ALONE: &str = "ConnTrack, every packet";

/// What a replica costs: percent of the throughput without one.
pub fn replicas(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let every = ReplicateSpec::Batch;
    let tenth = crate::policy::parse_replicate("nf=every:10")
        .ok()
        .and_then(|(_, own)| own)
        .map(|own| own.spec);
    let mut points = Vec::new();
    for flows in [128, 1_000, 10_000, 60_000] {
        points.push((EVERY, flows as f64, (Subject::Requests, flows)));
    }
    for flows in [128, 10_000, 1_000_000] {
        points.push((ALONE, flows as f64, (Subject::ConnTrack, flows)));
    }
    effort.round_of(&effort.in_turn(&points), |(.., (nf, flows))| {
        let plan = plan(effort, &nf.policy(), Isolate::None)?;
        let run = |spec: Option<ReplicateSpec>| {
            let names = ["mon", "fw", "http"].into_iter().map(str::to_owned);
            let names = names.filter(|name| nf == Subject::Requests || name == "fw");
            let replicate: BTreeMap<_, _> = names.filter_map(|name| Some((name, spec?))).collect();
            let options = RunOptions { replicate, ..effort.sampling.options() };
            let source = DeviceSpec::Listed(nf.source(flows));
            effort.sampling.run_after(&plan, source, &options, flows as u64)
        };
        let lines = match nf {
            Subject::ConnTrack => vec![(ALONE, every)],
            _ => [(EVERY, every)].into_iter().chain(tenth.map(|spec| (TENTH, spec))).collect(),
        };
        let parts = lines.into_iter().map(|(name, spec)| {
            // Neighbours, so that what the machine does meanwhile strikes both alike; neither is always the first.
            let [first, second] = match effort.is_backwards() {
                false => [run(None)?, run(Some(spec))?],
                true => [run(Some(spec))?, run(None)?],
            };
            let around = first.around.until(second.around);
            let part = match effort.is_backwards() {
                false => second.mpps / first.mpps,
                true => first.mpps / second.mpps,
            };
            let not_granted = first.withheld || second.withheld;
            let sample = Sample { not_granted, ..Sample::of(part * 100.0, around) };
            Ok((name.to_owned(), flows as f64, sample))
        });
        parts.collect::<Result<_, BenchError>>()
    })
}

pub fn judge_replicas(series: &[Series]) -> (Verdict, String) {
    let cost = |name: &str, flows: f64| 100.0 - median(series, name, flows);
    let (every, tenth) = (cost(EVERY, 128.0), cost(TENTH, 128.0));
    let text = format!(
        "of the chain, of packets with requests, with 128 flows every packet costs {every:.0} %, every 10th {tenth:.0} %; with 60,000 flows {:.0} and {:.0} %; ConnTrack with a million {:.0} %",
        cost(EVERY, 60_000.0),
        cost(TENTH, 60_000.0),
        cost(ALONE, 1e6)
    );
    (Verdict::of(every <= 15.0 && tenth <= 5.0), text)
}

/// A time as milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::data::add;

    fn series(points: &[(&str, f64, f64)]) -> Vec<Series> {
        let mut series = Vec::new();
        points
            .iter()
            .for_each(|(name, x, y)| add(&mut series, name, *x, Sample::of(*y, [80.0; 2])));
        series
    }

    #[test]
    fn the_chains_aim_is_judged_without_payload_and_the_rate_of_requests_is_told_beside() {
        let of = |plain, requests| {
            let chain = [(CHAIN, 1e3, plain), (REQUESTS, 1e3, requests), (REQUESTS, 6e4, 0.7)];
            let rest = [(FIREWALL, 1e3, 22.0), (FIREWALL, 1e6, 6.0), (NAPT, 1e3, 17.0)];
            judge_rates(&series(&[chain, rest].concat()))
        };
        let (verdict, text) = of(12.5, 2.5);
        assert_eq!(verdict, Verdict::Reached);
        assert!(text.starts_with("of segments without payload, by which the aims are judged"));
        assert!(text.ends_with("a request the chain 2.5 with 1,000 and 0.7 with 60,000"), "{text}");
        assert_eq!(of(11.0, 12.5).0, Verdict::Missed);
    }

    #[test]
    fn of_moves_both_ways_are_told_at_every_number_of_flows() {
        let each = MOVED.map(|n| (EACH, f64::from(n), 4.0)).into_iter();
        let buckets = MOVED.map(|n| (BUCKETS, f64::from(n), 1.6));
        let points: Vec<_> = each.chain(buckets).chain([(EACH, 1.0, 40.0)]).collect();
        let (verdict, text) = judge_moving(&series(&points));
        assert_eq!(verdict, Verdict::Reached, "{text}");
        assert!(text.contains("by name 4.00, 4.00, 4.00, 4.00 µs each, 250000 flows a second"));
        assert!(text.contains("by buckets 1.60, 1.60, 1.60, 1.60 µs each, 625000 flows"), "{text}");
    }
}
