//! Napt on random packets: against what is promised, against one instance, and against itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;
#[macro_use]
#[path = "common/nat.rs"]
mod nat;

use nat::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashMap;
use weir_nf::DropReason;
use weir_nf::wire::Frame;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever inner hosts send: no two inner ends share an outer one, each keeps its own, and what is sent to an outer
    /// end comes to its inner one.
    #[test]
    fn mappings_are_one_to_one(
        packets in prop::collection::vec((0_u8..20, 0_u16..40, any::<bool>(), 0_u64..400), 1..200),
    ) {
        let mut bench = bench(json!({"addresses": ["198.51.100.1", "198.51.100.2"], "ports": "1000-1063"}));
        let mut known: HashMap<(bool, End), (End, u64)> = HashMap::new();
        let mut now = 1;
        for (host, port, tcp, wait) in packets {
            now += if wait > 380 { wait } else { 0 };
            let inner = ([10, 0, 0, host], 990 + port);
            let frame = |from: End, to: End| {
                let frame = Frame::ipv4(from.0, to.0);
                if tcp { frame.tcp(from.1, to.1, SYN) } else { frame.udp(from.1, to.1) }.build()
            };
            let seen = at(&mut bench, INSIDE, now, &frame(inner, (SERVER, 80)));
            let idle = if tcp { 240 } else { 300 };
            known.retain(|_, (_, until)| *until > now);
            if seen.verdict == Err(DropReason::NoPort) {
                // At most as many as there are of its parity.
                let taken = known.iter().filter(|((t, _), (outer, _))| *t == tcp && outer.1 % 2 == inner.1 % 2).count();
                prop_assert!(taken >= 32, "{taken} taken");
                continue;
            }
            let outer = ends(&seen, "outside").0;
            if let Some((old, _)) = known.get(&(tcp, inner)) {
                prop_assert_eq!(*old, outer);
            }
            let shared = known.iter().find(|((t, i), (o, _))| (*t, *o) == (tcp, outer) && *i != inner);
            prop_assert!(shared.is_none(), "{:?}", shared);
            known.insert((tcp, inner), (outer, now + idle));
            let seen = at(&mut bench, OUTSIDE, now, &frame((SERVER, 80), outer));
            prop_assert_eq!(ends(&seen, "inside").1, inner);
        }
    }

    /// While ports do not collide several instances do to each packet what one does, whatever leases move meanwhile.
    #[test]
    fn several_instances_translate_as_one_does(
        count in 2_usize..4,
        steps in prop::collection::vec((0_u8..20, 0_u16..40, 0_u8..6, 0_u64..400), 1..150),
    ) {
        let config = json!({"addresses": ["198.51.100.1", "198.51.100.2"], "filtering": "port"});
        let (mut one, mut several) = (Nat::new(1, config.clone()), Nat::new(count, config));
        let mut now = 1;
        for (host, n, what, wait) in steps {
            now += if wait > 380 { wait } else { 0 };
            // Ports that no two hosts use.
            let inner: End = ([10, 0, 0, host], 1024 + u16::from(host) * 3000 + 64 * n);
            let outer = |nat: &mut Nat| {
                let seen = at(nat, INSIDE, now, &Frame::ipv4(inner.0, SERVER).udp(inner.1, 80).build());
                ends(&seen, "outside").0
            };
            let (input, frame) = match what {
                0 => (INSIDE, Frame::ipv4(inner.0, SERVER).tcp(inner.1, 80, SYN).build()),
                1 => (INSIDE, Frame::ipv4(inner.0, SERVER).udp(inner.1, 80).build()),
                2 => (OUTSIDE, Frame::ipv4(SERVER, OUTER).udp(80, inner.1).build()),
                3 => (OUTSIDE, Frame::ipv4(SERVER, [198, 51, 100, 2]).tcp(80, inner.1, SYN_ACK).build()),
                4 => {
                    let to = outer(&mut one);
                    prop_assert_eq!(outer(&mut several), to);
                    (OUTSIDE, Frame::ipv4(SERVER, to.0).udp(80, to.1).build())
                }
                _ => {
                    let lease = weir_nf::flow::lease(inner.1);
                    several.move_lease(lease, usize::from(host) % count);
                    continue;
                }
            };
            let (seen, expected) =
                (at(&mut several, input, now, &frame), at(&mut one, input, now, &frame));
            prop_assert_eq!((seen.verdict, seen.bytes), (expected.verdict, expected.bytes));
        }
        prop_assert_eq!(several.report(), one.report());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Most packets are untagged and without options, which has a way of its own: it does the same.
    #[test]
    fn a_plain_packet_is_translated_as_a_tagged_one(
        packets in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u8..4, any::<[u16; 4]>(), any::<u8>()), 1..12),
    ) {
        let mut benches = [false, true].map(|tagged| (tagged, bench(config())));
        for (is_tcp, out, host, [own, other, check, ip_check], flags) in packets {
            // No port that two hosts would want: then one is chosen by the packet's flow, tag included.
            let (host, own) = ([10, 0, 0, host], 1024 + own % 64 * 4 + u16::from(host));
            let seen = benches.each_mut().map(|(tagged, bench)| {
                let frame = match out {
                    true => Frame::ipv4(host, SERVER),
                    false => Frame::ipv4(SERVER, OUTER),
                };
                let ports = if out { (own, other) } else { (other, own) };
                let frame = match is_tcp {
                    true => frame.tcp(ports.0, ports.1, flags),
                    false => frame.udp(ports.0, ports.1),
                };
                let mut bytes = frame.payload(b"data").build();
                // Whatever checksums they have, right, wrong or none, is corrected by what was changed.
                bytes[24..26].copy_from_slice(&ip_check.to_be_bytes());
                let place = if is_tcp { 50 } else { 40 };
                bytes[place..place + 2].copy_from_slice(&(check % 5 * 0x3fff).to_be_bytes());
                if *tagged {
                    bytes.splice(12..12, [0x81, 0, 0, 7]);
                }
                let mut seen = at(bench, if out { INSIDE } else { OUTSIDE }, 1, &bytes);
                if *tagged {
                    seen.bytes.drain(12..16);
                }
                (seen.verdict, seen.bytes)
            });
            prop_assert_eq!(&seen[0], &seen[1]);
        }
        prop_assert_eq!(benches[0].1.report(), benches[1].1.report());
    }
}
