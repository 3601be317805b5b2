//! The check of a whole policy: for each NF that its three edges out are pairwise disjoint and cover
//! everything. `cargo bench -p weir-logic`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Helpers of benches count as code to clippy.

use criterion::{Criterion, criterion_group, criterion_main};
use weir_filter::{Expr, parse};
use weir_logic::{Universe, Verdict};

/// Edges out of the `n`-th NF. Prefixes, ports and tags differ from NF to NF, so hardly any filter is
/// asked for twice; one NF in ten has an overlap, and one a hole, whose packets have to be found.
fn edges(n: usize) -> [Expr; 3] {
    let net = format!("10.{}.{}.0/24", n / 256 % 256, n % 256);
    let six = format!("2001:db8:{:x}::/48", n % 65_536);
    let port = 1024 + n * 7 % 60_000;
    let last = port + 100;
    let text = match n % 10 {
        0 | 1 => [
            format!("src net {net} and tcp dst port {port}"),
            format!("src net {net} and not tcp dst port {port}"),
            format!("not (src net {net})"),
        ],
        2 | 3 => [
            format!("tcp dst portrange {port}-{last} or udp dst port 53"),
            format!(
                "ip6 and dst net {six} and not (tcp dst portrange {port}-{last} or udp dst port 53)"
            ),
            format!(
                "not (tcp dst portrange {port}-{last} or udp dst port 53 or ip6 dst net {six})"
            ),
        ],
        4 | 5 => [
            format!("ids{n}.safe and host 10.{}.9.9", n % 256),
            format!("ids{n}.safe and not host 10.{}.9.9", n % 256),
            format!("not ids{n}.safe"),
        ],
        6 | 7 => [
            format!("vlan {} and tcp port 443", n % 4096),
            format!("vlan {} and not tcp port 443", n % 4096),
            format!("not vlan {}", n % 4096),
        ],
        8 => [
            format!("tcp port {port}"),
            format!("src net {net}"),
            format!("not tcp port {port} and not src net {net}"),
        ],
        _ => [
            format!("tcp dst port {port}"),
            format!("udp and dst net {net}"),
            "icmp or arp or ip6 proto 58".to_owned(),
        ],
    };
    text.map(|t| parse(&t).unwrap_or_else(|e| panic!("{t}: {e:?}")))
}

/// How many proofs, how many examples, and how many nodes that took.
fn check(policy: &[[Expr; 3]]) -> (usize, usize, usize) {
    let mut universe = Universe::default();
    let (mut proofs, mut examples) = (0, 0);
    for edges in policy {
        let [a, b, c] = [0, 1, 2].map(|i| universe.class(&edges[i]));
        let verdicts = [
            universe.disjoint(a, b),
            universe.disjoint(a, c),
            universe.disjoint(b, c),
            universe.covers(&[a, b, c]),
        ];
        for verdict in verdicts {
            match verdict {
                Verdict::Empty => proofs += 1,
                Verdict::Example(_) => examples += 1,
                Verdict::Unknown(reason) => panic!("{reason}"),
            }
        }
    }
    (proofs, examples, universe.nodes())
}

fn policies(c: &mut Criterion) {
    for nfs in [100, 1_000] {
        let policy: Vec<[Expr; 3]> = (0..nfs).map(edges).collect();
        let (proofs, examples, nodes) = check(&policy);
        println!(
            "{nfs} NFs, {} edges: {proofs} proofs, {examples} examples, {nodes} nodes",
            3 * nfs
        );
        c.bench_function(&format!("{nfs} NFs"), |b| b.iter(|| check(&policy)));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = policies
}
criterion_main!(benches);
