//! Looking up flows: `cargo bench -p weir-nf`. Million look-ups per second, and memory per flow; packets of all flows
//! come in random order, which is the worst for caches. Behind `--`, a number of flows restricts it to that.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench")]

use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;
use weir_nf::wire::Frame;
use weir_nf::{Depth, FlowIndex, FlowKey, FlowState, FlowTable, TcpTimes};
use weir_packet::{Direction, parse};

/// A small state: a counter and a verdict.
#[derive(Default, Serialize, Deserialize)]
struct State {
    packets: u64,
    verdict: u8,
}
impl FlowState for State {}

const PACKETS: usize = 1 << 21;
const BATCH: usize = 64;
const REPEATS: usize = 7;
const IDLE: u64 = 120_000_000_000;

fn key(flow: u32) -> (FlowKey, Direction) {
    let [a, b, c, d] = flow.to_be_bytes();
    let ends = (([10, b, c, d].into(), 1024 + u16::from(a)), ([192, 0, 2, 1].into(), 443));
    let ports = weir_packet::flow::PortKind::Ports;
    FlowKey::between(ends.0, ends.1, 6, ports, 0).unwrap()
}

/// Which flow each packet is of.
fn order(flows: u32) -> Vec<u32> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        (x, _) = (x ^ x << 13, 0);
        (x, _) = (x ^ x >> 7, 0);
        (x, _) = (x ^ x << 17, 0);
        x
    };
    (0..PACKETS).map(|_| ((u128::from(next()) * u128::from(flows)) >> 64) as u32).collect()
}

/// Million per second: the best and the median of several runs.
fn measure(what: &str, flows: u32, mut run: impl FnMut()) {
    let mut rates: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = busy();
            run();
            PACKETS as f64 / (busy() - start) as f64 * 1e3
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[REPEATS / 2], rates[REPEATS - 1]);
    println!("{flows:>10} flows  {what:<34} {best:>7.1} best {median:>7.1} median");
}

/// Nanoseconds that this thread has run for: others may use the machine.
fn busy() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn table(flows: u32) -> FlowTable<State> {
    let mut table =
        FlowTable::<State>::new(flows.max(1 << 16), IDLE).with_tcp(Some(TcpTimes::RFC_5382));
    for flow in 0..flows {
        let (key, direction) = key(flow);
        table.find_by(key, direction, 1, Some(0x10)).unwrap();
    }
    table
}

/// Bytes of a letter of a copy: as many as a relink has copied at a time.
const LETTER: usize = 256 << 10;
/// Flows that change between two letters.
const CHANGES: usize = 4096;

/// The table is copied while flows change: what a flow costs who gives it and who takes it, of those that had changed.
fn copying(table: &mut FlowTable<State>, flows: u32, packets: &[(FlowKey, Direction)]) {
    let mut copy =
        FlowTable::<State>::new(flows.max(1 << 16), IDLE).with_tcp(Some(TcpTimes::RFC_5382));
    table.begin_precopy(1);
    let mut letter = Vec::new();
    let (mut whole, mut walks) = ([0; 3], true);
    while walks {
        letter.clear();
        let progress = add(&mut whole[0], || table.precopy(LETTER, &mut letter).unwrap());
        add(&mut whole[1], || copy.take_precopied(2, &letter).unwrap());
        whole[2] += progress.copied as u64;
        walks = progress.walks;
    }
    let mut changes: Vec<[u64; 3]> = Vec::new();
    for some in packets.chunks(packets.len() / REPEATS) {
        let mut all = [0; 3];
        for batch in some.chunks(CHANGES) {
            for (key, direction) in batch {
                table.find_by(*key, *direction, 2, Some(0x10)).unwrap().state.packets += 1;
            }
            letter.clear();
            let progress = add(&mut all[0], || table.precopy(usize::MAX, &mut letter).unwrap());
            add(&mut all[1], || copy.take_precopied(2, &letter).unwrap());
            all[2] += progress.copied as u64;
        }
        changes.push(all);
    }
    table.end_precopy();
    let ns = |[give, take, flows]: [u64; 3]| [give, take].map(|all| all as f64 / flows as f64);
    let mut changes: Vec<_> = changes.into_iter().filter(|all| all[2] > 0).map(ns).collect();
    changes.sort_by(|a, b| (a[0] + a[1]).total_cmp(&(b[0] + b[1])));
    let (best, median) = (changes[0], changes[changes.len() / 2]);
    let [give, take] = ns(whole);
    println!(
        "{flows:>10} flows  copied whole: {give:.0} ns to give, {take:.0} ns to take each; changed: {:.0} and {:.0} best, {:.0} and {:.0} median",
        best[0], best[1], median[0], median[1]
    );
}

/// Adds how long it took.
fn add<T>(ns: &mut u64, of: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = of();
    *ns += start.elapsed().as_nanos() as u64;
    done
}

fn main() {
    let wanted = std::env::args().skip(1).find_map(|arg| arg.parse::<u32>().ok());
    for flows in [128, 1 << 16, 1_000_000, 10_000_000] {
        if wanted.is_some_and(|wanted| wanted != flows) {
            continue;
        }
        let before = resident();
        let start = Instant::now();
        let mut table = table(flows);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{flows:>10} flows  made in {seconds:.3} s; {} B each by its own count, {} B by the system's",
            table.bytes() / flows as usize,
            resident().saturating_sub(before) / u64::from(flows)
        );
        let order = order(flows);
        let packets: Vec<_> = order.iter().map(|flow| key(*flow)).collect();
        measure("find, one at a time", flows, || {
            for (key, direction) in &packets {
                let found = table.find_by(*key, *direction, 2, Some(0x10)).unwrap();
                found.state.packets += 1;
            }
        });
        measure("find, batches, expiry", flows, || {
            for batch in packets.chunks(BATCH) {
                table.ready(batch.iter().map(|(key, _)| *key));
                for (key, direction) in batch {
                    let found = table.find_by(*key, *direction, 2, Some(0x10)).unwrap();
                    found.state.packets += 1;
                }
                table.expire(2);
            }
        });
        copying(&mut table, flows, &packets);
        let mut index = FlowIndex::new(flows.max(1 << 16));
        for flow in 0..flows {
            let (key, _) = key(flow);
            let hash = index.hash(&key);
            index.insert(key, hash).unwrap();
        }
        measure("index alone, hash and find each", flows, || {
            for (key, _) in &packets {
                black_box(index.find(key, index.hash(key)));
            }
        });
        measure("index alone, hash all and find all", flows, || {
            for batch in packets.chunks(BATCH) {
                let mut hashes = [0; BATCH];
                for (hash, (key, _)) in hashes.iter_mut().zip(batch) {
                    *hash = index.hash(key);
                }
                for (hash, (key, _)) in hashes.iter().zip(batch) {
                    black_box(index.find(key, *hash));
                }
            }
        });
        drop(index);
        if flows <= 1 << 16 {
            let frames: Vec<Vec<u8>> = (0..flows)
                .map(|flow| {
                    let [_, b, c, d] = flow.to_be_bytes();
                    Frame::ipv4([10, b, c, d], [192, 0, 2, 1]).tcp(1024, 443, 0x10).build()
                })
                .collect();
            measure("frame to flow: parse, key, find", flows, || {
                for flow in &order {
                    let frame = frames[*flow as usize].as_slice();
                    let layers = parse(frame, Depth::L4);
                    let (key, direction) = table.key(frame, &layers, 2).unwrap();
                    let flags = layers.tcp_flags(frame);
                    table.find_by(key, direction, 2, flags).unwrap().state.packets += 1;
                }
            });
        }
    }
}
