//! CountSubnet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nfs::count_subnet::{CountSubnet, Prefixes};

fn from(address: &str) -> Vec<u8> {
    match address.parse::<Ipv4Addr>() {
        Ok(v4) => Frame::ipv4(v4, [203, 0, 113, 1]).udp(1, 2).build(),
        Err(_) => {
            let v6: Ipv6Addr = address.parse().unwrap();
            Frame::ipv6(v6, Ipv6Addr::LOCALHOST).udp(1, 2).vlan(7).build()
        }
    }
}

/// Packets by prefix, then those in none and those not IP.
fn packets(report: &Value) -> Vec<(String, u64)> {
    let of = |v: &Value| v["packets"].as_u64().unwrap();
    let list = report["subnets"].as_array().unwrap().iter();
    let mut all: Vec<_> = list.map(|p| (p[0].as_str().unwrap().to_owned(), of(&p[1]))).collect();
    all.push(("other".to_owned(), of(&report["other"])));
    all.push(("not_ip".to_owned(), of(&report["not_ip"])));
    all
}

const PREFIXES: [&str; 6] =
    ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32", "2001:db8:1::/48", "::/0"];

#[test]
fn each_packet_counts_under_the_longest_prefix_only() {
    let mut bench = Bench::new::<CountSubnet>(json!({"prefixes": PREFIXES})).unwrap();
    let addresses = [
        "10.9.9.9",
        "10.1.9.9",
        "10.1.2.3",
        "10.1.2.4",
        "11.0.0.1",
        "2001:db8::1",
        "2001:db8:1::1",
        "fd00::1",
    ];
    let mut frames: Vec<_> = addresses.iter().map(|a| from(a)).collect();
    frames.push(Frame::other(0x0806).payload(&[0; 28]).build());
    bench.run(&frames);
    let counts: Vec<_> = packets(&bench.report()).into_iter().map(|p| p.1).collect();
    assert_eq!(counts, [1, 2, 1, 1, 1, 1, 1, 1]);
    assert_eq!(bench.report()["subnets"][0][1]["bytes"], frames[0].len());
}

#[test]
fn by_dst_the_destination_decides() {
    let config = json!({"prefixes": ["203.0.113.0/24", "0.0.0.0/0"], "by": "dst"});
    let mut bench = Bench::new::<CountSubnet>(config).unwrap();
    bench.run(&[from("10.0.0.1"), from("fd00::1")]);
    assert_eq!(packets(&bench.report())[0].1, 1);
    assert_eq!(packets(&bench.report())[2], ("other".to_owned(), 1));
}

#[test]
fn after_a_restart_counts_go_on_in_the_order_of_the_configuration() {
    let config = || json!({"prefixes": ["10.0.0.0/8", "9.0.0.0/8"]});
    let mut first = Bench::new::<CountSubnet>(config()).unwrap();
    first.run(&[from("10.0.0.1"), from("10.0.0.2"), from("9.0.0.1"), from("8.0.0.1")]);
    let mut second = Bench::new::<CountSubnet>(config()).unwrap();
    second.restore(&first.save()).unwrap();
    second.run(&[from("9.0.0.1")]);
    let counts = packets(&second.report());
    assert_eq!(
        counts[..3],
        [("10.0.0.0/8".into(), 2), ("9.0.0.0/8".into(), 2), ("other".into(), 1)]
    );
    // Another list: what is gone counts as in none.
    let mut third = Bench::new::<CountSubnet>(json!({"prefixes": ["9.0.0.0/8"]})).unwrap();
    third.restore(&second.save()).unwrap();
    third.run(&[from("9.0.0.1")]);
    assert_eq!(packets(&third.report())[..2], [("9.0.0.0/8".into(), 3), ("other".into(), 3)]);
}

#[test]
fn what_is_no_subnet_is_refused_with_its_place() {
    for (prefix, why) in [
        ("10.0.0.0", "is no subnet"),
        ("10.0.0.0/33", "is no subnet"),
        ("10.0.0.1/8", "has bits behind its /8"),
        ("::1/0", "has bits behind its /0"),
        ("9.0.0.0/8", "is there twice"),
    ] {
        let made = Bench::new::<CountSubnet>(json!({"prefixes": ["9.0.0.0/8", prefix]}));
        let error = made.err().unwrap().to_string();
        assert!(error.starts_with("/prefixes/1: ") && error.contains(why), "{error}");
    }
}

/// Bits of few different values, so that prefixes and addresses meet; those left of `len` of `width`.
fn some_bits(seed: u16, len: u32, width: u32) -> u128 {
    let ends = u128::from(seed & 0xff) << (width - 8) | u128::from(seed >> 8);
    ends.checked_shr(width - len).and_then(|n| n.checked_shl(width - len)).unwrap_or(0)
}

fn address(v6: bool, bits: u128) -> IpAddr {
    if v6 { Ipv6Addr::from_bits(bits).into() } else { Ipv4Addr::from_bits(bits as u32).into() }
}

proptest! {
    #[test]
    fn the_place_found_is_that_of_the_longest_prefix(
        prefixes in prop::collection::btree_set((any::<bool>(), any::<u16>(), 0_u32..=128), 0..60),
        addresses in prop::collection::vec((any::<bool>(), any::<u16>()), 1..60),
    ) {
        let width = |v6: bool| if v6 { 128 } else { 32 };
        let mut list: Vec<(bool, u128, u32)> = prefixes
            .into_iter()
            .map(|(v6, seed, len)| {
                let len = len.min(width(v6));
                (v6, some_bits(seed, len, width(v6)), len)
            })
            .collect();
        list.sort_unstable();
        list.dedup();
        // In an order that says nothing.
        list.sort_by_key(|(_, bits, len)| (bits.wrapping_mul(0x9e37_79b9) >> 7, *len));
        let names: Vec<_> =
            list.iter().map(|(v6, bits, len)| format!("{}/{len}", address(*v6, *bits))).collect();
        let built = Prefixes::new(&names).unwrap();
        let upper = |bits: u128, len: u32, width: u32| bits.checked_shr(width - len).unwrap_or(0);
        // The prefixes' own first addresses and those around them too: there the ranges begin and end.
        let around = list.iter().flat_map(|&(v6, bits, len)| {
            let size = 1_u128.checked_shl(width(v6) - len).unwrap_or(0);
            let most = upper(u128::MAX, width(v6), 128);
            let (behind, before) = (bits.wrapping_add(size), bits.wrapping_sub(1));
            [bits, behind & most, behind.wrapping_sub(1) & most, before & most].map(|b| (v6, b))
        });
        let random = addresses.iter().map(|(v6, seed)| (*v6, some_bits(*seed, width(*v6), width(*v6))));
        for (v6, bits) in around.chain(random) {
            let matching = list.iter().enumerate().filter(|(_, (of_v6, network, len))| {
                *of_v6 == v6 && upper(bits, *len, width(v6)) == upper(*network, *len, width(v6))
            });
            let expected = matching.max_by_key(|(_, (.., len))| *len).map(|(i, _)| i);
            prop_assert_eq!(built.find(address(v6, bits)), expected, "{}", address(v6, bits));
        }
    }
}
