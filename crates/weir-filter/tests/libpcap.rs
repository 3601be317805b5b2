//! The real libpcap, the compiled filter and the naive one agree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::frames::{frame, whole_frame};
use common::libpcap::{Libpcap, Outcome};
use common::{Random, expression, label, primitive, sound};
use weir_filter::{Expr, Filter, Primitive, Why, naive_matches, parse};

/// Change it to try others; `WEIR_FILTER_SEED` overrides it for one run.
const SEED: u64 = 20_260_721;

fn seeded() -> Random {
    let seed = std::env::var("WEIR_FILTER_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(SEED);
    println!("WEIR_FILTER_SEED={seed}");
    Random(seed)
}

/// Compiles the text of `expr` as a user would give it, so that parser and printer are compared too.
fn through_text(expr: &Expr) -> (String, Filter) {
    let text = expr.to_string();
    let parsed = parse(&text).unwrap_or_else(|e| panic!("`{text}`: {e:?}"));
    (text, Filter::compile(&parsed).unwrap())
}

/// libpcap's program; `None` when nothing can match, or the numbers need more memory than it has.
fn compiled_by_libpcap(text: &str, optimize: bool) -> Option<Libpcap> {
    match Libpcap::try_compile(text, optimize) {
        Ok(program) => program,
        Err(e) => {
            // To it `x << (99 ^ ip[0])` shifts by 99, and its optimiser works out more constants.
            let in_numbers = ["registers", "by zero", "more than 31 bits"];
            let in_numbers = in_numbers.iter().any(|part| e.contains(part));
            assert!(in_numbers, "libpcap refuses `{text}`: {e}");
            None
        }
    }
}

#[test]
fn each_primitive_alone_equals_libpcap_on_every_packet_even_when_cut() {
    let mut r = seeded();
    let mut seen: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut cases = 0;
    for _ in 0..48_000 {
        let primitive = primitive(&mut r);
        let expr = Expr::from(primitive.clone());
        let (text, filter) = through_text(&expr);
        // Not optimised: the optimiser drops loads that nothing depends on, so cut packets differ.
        let Some(libpcap) = compiled_by_libpcap(&text, false) else {
            continue;
        };
        for _ in 0..64 {
            let packet = frame(&mut r);
            // What goes in circles there is false here.
            let expected = libpcap.run(&packet) == Outcome::Accept;
            assert_eq!(filter.matches(&packet[..]), expected, "compiled `{text}` on {packet:02x?}");
            assert_eq!(naive_matches(&expr, &packet), expected, "naive `{text}` on {packet:02x?}");
            let (hits, misses) = seen.entry(label(&primitive)).or_default();
            *if expected { hits } else { misses } += 1;
            cases += 1;
        }
    }
    println!("{cases} cases, {} primitives", seen.len());
    assert!(cases >= 10_000);
    assert!(seen.len() >= 180, "the generator covers only {} primitives", seen.len());
    for (label, (hits, misses)) in seen {
        assert!(hits > 0 && misses > 0, "{label}: {hits} hits, {misses} misses");
    }
}

#[test]
fn expressions_equal_libpcap_except_where_libpcap_reads_behind_a_cut_packet() {
    let mut r = seeded();
    let (mut compared, mut hits, mut with_shift, mut excepted, mut refused) = (0, 0, 0, 0, 0);
    for _ in 0..8_000 {
        let expr = expression(&mut r, 3);
        let text = expr.to_string();
        if let Err(errors) = parse(&text) {
            // What cannot stand where it does, libpcap refuses too.
            assert!(
                errors.iter().all(|e| matches!(e.why, Why::Misplaced(_))),
                "`{text}`: {errors:?}"
            );
            assert!(
                Libpcap::try_compile(&text, false).is_err(),
                "libpcap takes `{text}`: {errors:?}"
            );
            refused += 1;
            continue;
        }
        let (text, filter) = through_text(&expr);
        let programs: Vec<Libpcap> =
            [false, true].iter().filter_map(|o| compiled_by_libpcap(&text, *o)).collect();
        let shifts = ["vlan", "mpls", "pppoes"].iter().any(|word| text.contains(word));
        for _ in 0..16 {
            let packet = if r.one_in(4) { frame(&mut r) } else { whole_frame(&mut r) };
            let compiled = filter.matches(&packet[..]);
            assert_eq!(
                naive_matches(&expr, &packet),
                compiled,
                "naive and compiled `{text}` on {packet:02x?}"
            );
            let outcomes: Vec<Outcome> = programs.iter().map(|p| p.run(&packet)).collect();
            if outcomes.iter().any(|o| matches!(o, Outcome::Cut | Outcome::Endless)) {
                excepted += 1;
                continue;
            }
            for outcome in outcomes {
                assert_eq!(compiled, outcome == Outcome::Accept, "`{text}` on {packet:02x?}");
            }
            compared += 1;
            hits += usize::from(compiled);
            with_shift += usize::from(shifts);
        }
    }
    println!(
        "{compared} cases, {hits} hits, {with_shift} with offsets moved, {excepted} cut, {refused} refused"
    );
    assert!(
        compared >= 10_000
            && hits > compared / 10
            && hits < compared * 9 / 10
            && with_shift > compared / 10
    );
    assert!(refused > 100, "{refused} refused filters compare too few");
    assert!(excepted < compared / 2, "{excepted} cut packets leave too little compared");
}

#[test]
fn any_means_behind_tags_what_libpcap_means_behind_as_many_vlans() {
    let mut r = seeded();
    let tagged = |packet: &[u8], tags: usize| {
        let kind = packet.get(12 + 4 * tags..14 + 4 * tags);
        matches!(kind, Some([0x81, 0] | [0x88, 0xa8] | [0x91, 0]))
    };
    let mut seen = BTreeMap::new();
    for _ in 0..4_000 {
        let primitive = loop {
            let p = primitive(&mut r);
            use weir_filter::Protocol::{Arp, Ip, Ip6, Rarp};
            if matches!(p, Primitive::Net { .. } | Primitive::Protocol(Ip | Ip6 | Arp | Rarp)) {
                break p;
            }
        };
        let (text, any) = through_text(&parse(&format!("any {primitive}")).unwrap());
        let programs: Vec<Option<Libpcap>> = (0..4)
            .map(|tags| {
                compiled_by_libpcap(&format!("{}{primitive}", "vlan and ".repeat(tags)), false)
            })
            .collect();
        for _ in 0..16 {
            let packet = frame(&mut r);
            let tags = (0..).find(|tags| !tagged(&packet, *tags)).unwrap();
            // libpcap has no word for what stands behind any number of labels, or a session.
            let kind = packet.get(12 + 4 * tags..14 + 4 * tags);
            if matches!(kind, Some([0x88, 0x47 | 0x48 | 0x64])) {
                continue;
            }
            let Some(Some(libpcap)) = programs.get(tags) else { continue };
            let expected = libpcap.run(&packet) == Outcome::Accept;
            assert_eq!(any.matches(&packet[..]), expected, "`{text}` on {packet:02x?}");
            let what = match &primitive {
                Primitive::Net { family, net, .. } => {
                    format!("{family:?} {}", if net.address().is_ipv4() { 4 } else { 6 })
                }
                other => other.to_string(),
            };
            let (hits, misses) = seen.entry((what, tags > 0)).or_insert((0, 0));
            *if expected { hits } else { misses } += 1;
        }
    }
    assert_eq!(seen.len(), 20, "four protocols and six kinds of addresses, with tags and without");
    for (what, (hits, misses)) in seen {
        assert!(hits > 0 && misses > 0, "{what:?}: {hits} hits, {misses} misses");
    }
}

/// Text as people write it: libpcap reads the text itself here, not what Weir prints.
#[test]
fn abbreviations_and_precedence_mean_what_they_mean_to_libpcap() {
    let mut r = seeded();
    for text in [
        "tcp src port 80 or 443 and host 10.1.2.3 or 10.1.2.4",
        "not port 80 or 443",
        "port not 80",
        "port 53 or (tcp) or 443",
        "port 53 or ((tcp) or 443)",
        "host 10.1.2.3 or (10.1.2.4 and not 192.0.2.7)",
        "vlan 5 or ip and vlan and tcp or udp",
        "not vlan and not (vlan or tcp) or host 10.1.2.3",
        "tcp and udp or ip && arp || !icmp",
        "net 10 or 192.0.2 and dst 10.1",
        "src or dst net 10.1 mask 255.255.0.0",
        "dst and src port 0x50 or 065",
        "portrange 443-53 or 8080",
        "ip6 host 2001:db8::1 or fe80::1",
        "ip proto (6 or 17) or 1",
        "ether src 2:0:0:0:0:1 or 020000000002",
        "vlan(5) and vlan (0x64)",
        "net 0",
        "net 0.0.0.0/0 and ip6",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src net 10",
        "tcp[13]&2!=0",
        "tcp[12:1] >> 4 << 2 > 20 || udp[4:2] <= 100",
        "ip[2:2] - ((ip[0]&0xf)<<2) - ((tcp[12]&0xf0)>>2) != 0",
        "ip[0] + 2 % 3 + 1 = 5",
        "ip[8] * 2 ^ 1 | 4 > 100",
        "-ip[8] % 7 = 1 or 6 - -ip6[7] & 3 == 2",
        "ether[0] & 1 = 0 and ether[12:2] > 0x600",
        "icmp[icmptype] = icmp-echo or icmp6[icmp6type] != icmp6-echo",
        "len > 100 and less 200 or greater 60",
        "(len - 14) / 4 >= 20 and ((ip))",
        "5 < len and 60 <= len or (len) = 34",
        "ip[ip[0] & 0xf] = 1 or link[13 - 1] = 8 or tcp[-1] = 0",
        "2 + tcp[0] = 1 or len = tcp[2:2]",
        "broadcast or ether multicast or ip multicast or ip6 multicast",
        "ip proto \\tcp or \\udp or gre",
        "ether proto \\ipx or \\arp or \\iso or \\stp or 0x8137 or loopback",
        "iso proto \\isis or \\clnp and not isis proto 18",
        "ip protochain 6 or 17",
        "protochain \\tcp",
        "decnet src 10.15 or 1.2",
        "mpls 1024 and mpls and ip and tcp port 80",
        "pppoes 7 and (ip6 or host 10.1.2.3)",
        "vlan 5 and pppoes and mpls and ip6",
        "llc ui or llc S or llc rnr or llc",
        "l1 or l2 and not (iih or lsp or snp or csnp or psnp)",
        "fddi host 2:0:0:0:0:1 or wlan[0] = 2",
        "ah or esp or pim or igmp or igrp or vrrp or carp",
    ] {
        let expr = parse(text).unwrap_or_else(|e| panic!("`{text}`: {e:?}"));
        let filter = Filter::compile(&expr).unwrap();
        let for_few = Filter::compile_for_few(&expr).unwrap();
        let programs: Vec<Libpcap> =
            [false, true].iter().filter_map(|o| Libpcap::compile(text, *o)).collect();
        for _ in 0..500 {
            let packet = whole_frame(&mut r);
            let outcomes: Vec<Outcome> = programs.iter().map(|p| p.run(&packet)).collect();
            if !outcomes.iter().any(|o| matches!(o, Outcome::Cut | Outcome::Endless)) {
                let ours = filter.matches(&packet[..]);
                assert_eq!(naive_matches(&expr, &packet), ours, "`{text}` on {packet:02x?}");
                assert_eq!(for_few.matches(&packet[..]), ours, "`{text}` on {packet:02x?}");
                assert!(
                    outcomes.iter().all(|o| (*o == Outcome::Accept) == ours),
                    "`{text}` on {packet:02x?}"
                );
            }
        }
    }
}

#[test]
fn a_filter_and_its_negation_share_all_packets_between_them() {
    let mut r = seeded();
    for _ in 0..2_000 {
        let expr = sound(&mut r, 3);
        let (yes, no) =
            (Filter::compile(&expr).unwrap(), Filter::compile(&Expr::not(expr.clone())).unwrap());
        for _ in 0..8 {
            let packet = frame(&mut r);
            assert_ne!(
                yes.matches(&packet[..]),
                no.matches(&packet[..]),
                "`{expr}` on {packet:02x?}"
            );
        }
    }
}

#[test]
fn filters_equal_libpcap_on_every_ethernet_capture() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("skipped: no captures in {}", folder.display());
        return;
    };
    let texts = [
        "ip",
        "ip6",
        "arp",
        "tcp",
        "udp",
        "sctp",
        "icmp",
        "icmp6",
        "vlan",
        "vlan and tcp",
        "vlan and vlan and ip",
        "tcp port 80",
        "port 53",
        "udp portrange 1000-60000",
        "net 10",
        "src net 192.168 and dst port 443 or 80",
        "not (tcp port 80)",
        "not vlan and tcp",
        "ip6 net 2000::/3",
        "host 10.0.0.1 or 192.168.1.1",
        "ether dst ff:ff:ff:ff:ff:ff",
        "ip proto 47 or 50",
        "ip6 proto 44",
        "src and dst portrange 1024-65535",
        "(tcp or udp) and not port 53 and (net 10 or 172.16.0.0/12 or 192.168)",
        "ether proto 0x8864",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
        "ip[6:2] & 0x3fff != 0",
        "tcp[(tcp[12] & 0xf0) >> 2 : 4] = 0x47455420",
        "len > 1000 or less 60",
        "ip multicast or ip6 multicast or broadcast",
        "mpls and ip and udp",
        "mpls and mpls and host 10.1.1.1",
        "pppoes and tcp port 80",
        "vlan and vlan and pppoes and ip",
        "ip6 protochain 6",
        "ip6 protochain 58 and not icmp6",
        "stp or llc or isis or arp[6:2] = 1",
        "ah or esp or igmp or pim",
    ];
    let filters: Vec<(&str, Expr, Filter, Vec<Libpcap>)> = texts
        .iter()
        .map(|text| {
            let expr = parse(text).unwrap();
            let filter = Filter::compile(&expr).unwrap();
            let programs =
                [false, true].iter().filter_map(|o| Libpcap::compile(text, *o)).collect();
            (*text, expr, filter, programs)
        })
        .collect();
    let (mut captures, mut compared, mut hits) = (0, 0_usize, 0_usize);
    for file in files {
        let path = file.unwrap().path();
        let Ok(mut capture) = pcap::Capture::from_file(&path) else {
            continue;
        };
        if capture.get_datalink() != pcap::Linktype::ETHERNET {
            continue;
        }
        captures += 1;
        while let Ok(packet) = capture.next_packet() {
            for (text, expr, filter, programs) in &filters {
                let compiled = filter.matches(packet.data);
                assert_eq!(
                    naive_matches(expr, packet.data),
                    compiled,
                    "`{text}` in {}",
                    path.display()
                );
                let outcomes: Vec<Outcome> = programs.iter().map(|p| p.run(packet.data)).collect();
                if !outcomes.iter().any(|o| matches!(o, Outcome::Cut | Outcome::Endless)) {
                    assert!(
                        outcomes.iter().all(|o| (*o == Outcome::Accept) == compiled),
                        "`{text}` in {}: {outcomes:?}, here {compiled}",
                        path.display()
                    );
                    compared += 1;
                    hits += usize::from(compiled);
                }
            }
        }
    }
    println!("{captures} captures, {compared} cases, {hits} hits");
    assert!(captures == 0 || hits > 0);
}
