//! Filters of twenty terms: Weir's program and libpcap's interpreter on the same packets.
//!
//! `cargo bench -p weir-filter` prints criterion's figures and then, for each filter, the ratio of the
//! two, measured in turns so that a change of the machine's speed meets both.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{Random, frames::whole_frame};
use criterion::{BenchmarkId, Criterion, Throughput};
use pcap::{BpfProgram, Capture, Linktype};
use weir_filter::{Filter, parse};

/// Twenty terms each: ports as in a policy of services; networks as in one of sites; and a mixture of
/// what the language has.
const FILTERS: &[(&str, &str)] = &[
    (
        "ports",
        "tcp port 80 or 443 or 22 or 25 or 110 or 143 or 993 or 995 or 587 or 8080 or udp port 53 or 67 \
         or 68 or 123 or 161 or 500 or 514 or 1194 or 4500 or 51820",
    ),
    (
        "networks",
        "src net 10.1.0.0/16 or 10.3.0.0/16 or 10.5.0.0/16 or 10.7.0.0/16 or 10.9.0.0/16 or 172.16.0.0/12 \
         or 192.168.1.0/24 or 192.168.3.0/24 or 192.168.5.0/24 or 198.51.100.0/24 or dst net 10.2.0.0/16 \
         or 10.4.0.0/16 or 10.6.0.0/16 or 10.8.0.0/16 or 10.10.0.0/16 or 203.0.113.0/24 or 192.168.2.0/24 \
         or 192.168.4.0/24 or 192.168.6.0/24 or 100.64.0.0/10",
    ),
    (
        "mixed",
        "(tcp and not port 22 and tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src net 10.200.0.0/16) \
         or (udp and (port 53 or portrange 5000-6000) and len > 60 and not dst host 10.1.9.9) \
         or (ip6 and not icmp6 and src net 2001:db8::/32) \
         or (icmp and icmp[icmptype] = icmp-echo) or arp or (ip and ip[8] < 2 and not igmp) or sctp",
    ),
];

/// The generated mixture, or with `typical` plain packets of TCP and UDP over IPv4 as most links carry.
fn packets(typical: bool) -> Vec<Vec<u8>> {
    let mut r = Random(1);
    std::iter::repeat_with(|| whole_frame(&mut r))
        .filter(|p| {
            let plain = p.get(12..14) == Some(&[8, 0])
                && p.get(14) == Some(&0x45)
                && matches!(p.get(23), Some(6 | 17));
            // Long enough for all that is asked: libpcap gives up on a cut packet, Weir on the term.
            p.len() >= 100 && (!typical || plain)
        })
        .take(1024)
        .collect()
}

fn libpcap(text: &str) -> BpfProgram {
    Capture::dead(Linktype::ETHERNET).unwrap().compile(text, true).unwrap()
}

/// Shortest time for all packets in some rounds of turns: what else the machine does only adds to it.
fn ratio(filter: &Filter, program: &BpfProgram, packets: &[Vec<u8>]) -> (f64, f64) {
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..400 {
        let begin = Instant::now();
        let hits = packets.iter().filter(|p| filter.matches(black_box(&p[..]))).count();
        ours = ours.min(begin.elapsed());
        let begin = Instant::now();
        let wanted = packets.iter().filter(|p| program.filter(black_box(p))).count();
        theirs = theirs.min(begin.elapsed());
        assert_eq!(hits, wanted, "the two must say the same to be compared");
    }
    let each = |d: Duration| d.as_secs_f64() * 1e9 / packets.len() as f64;
    (each(ours), each(theirs))
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mixes = [("typical", packets(true)), ("generated", packets(false))];
    let mut lines = Vec::new();
    for (name, text) in FILTERS {
        let filter = Filter::compile(&parse(text).unwrap()).unwrap();
        let program = libpcap(text);
        for (mix, packets) in &mixes {
            let mut group = criterion.benchmark_group(format!("{name}, {mix} packets"));
            group.throughput(Throughput::Elements(packets.len() as u64));
            group.bench_function(BenchmarkId::from_parameter("weir"), |b| {
                b.iter(|| packets.iter().filter(|p| filter.matches(black_box(&p[..]))).count());
            });
            group.bench_function(BenchmarkId::from_parameter("libpcap"), |b| {
                b.iter(|| packets.iter().filter(|p| program.filter(black_box(p))).count());
            });
            group.finish();
            let (ours, theirs) = ratio(&filter, &program, packets);
            lines.push(format!(
                "{name:<9} {mix:<10} weir {ours:6.1} ns  libpcap {theirs:6.1} ns  ratio {:.1}",
                theirs / ours
            ));
        }
    }
    println!("Per packet, shortest of 400 rounds in turns:");
    lines.iter().for_each(|line| println!("{line}"));
    criterion.final_summary();
}
