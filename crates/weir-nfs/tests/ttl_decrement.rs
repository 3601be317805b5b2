//! TtlDecrement.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{HOP_BY_HOP_AND_DEST_OPTS, v4, v6};
use serde_json::json;
use std::net::Ipv6Addr;
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nfs::ttl_decrement::TtlDecrement;

fn run(mtu: Option<u16>, frame: &[u8]) -> Seen {
    let config = mtu.map_or(json!(null), |mtu| json!({"mtu": mtu}));
    Bench::new::<TtlDecrement>(config).unwrap().run(&[frame]).remove(0)
}

#[test]
fn a_hop_is_counted_and_the_frame_is_otherwise_as_built_with_one_hop_less() {
    // Built anew with the lower TTL, so the checksum is reckoned from nothing.
    for ttl in 2..=255 {
        for frame in [
            v4().udp(1, 2).payload(b"data"),
            v4().udp(1, 2).options(&[1; 8]).id(u32::from(ttl) * 257),
            v4().tcp(1, 2, 2).vlan(7),
            v6().udp(1, 2).tag(0x88a8, 5).vlan(7),
            v6().tcp(1, 2, 2).extensions(HOP_BY_HOP_AND_DEST_OPTS),
        ] {
            let seen = run(None, &frame.ttl(ttl).build());
            assert_eq!(seen.output(), "out");
            assert_eq!(seen.bytes, frame.ttl(ttl - 1).build(), "{ttl}");
        }
    }
}

#[test]
fn packets_without_a_hop_left_leave_untouched_by_expired() {
    for frame in [v4().udp(1, 2), v6().udp(1, 2).vlan(7)] {
        for ttl in [0, 1] {
            let frame = frame.ttl(ttl).build();
            let seen = run(Some(1280), &frame);
            assert_eq!((seen.output(), seen.bytes), ("expired", frame));
        }
    }
}

fn dont_fragment(mut frame: Vec<u8>) -> Vec<u8> {
    let (check, old) = (u16::from_be_bytes([frame[24], frame[25]]), frame[20]);
    frame[20] = old | 0x40;
    let new = [frame[20], frame[21]];
    let check = weir_nf::checksum::update_u16(
        check,
        u16::from_be_bytes([old, new[1]]),
        u16::from_be_bytes(new),
    );
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}

#[test]
fn packets_over_the_mtu_that_may_not_be_fragmented_leave_untouched_by_too_big() {
    let (long, fits) = (vec![0; 1500 - 27], vec![0; 1500 - 28]);
    let v4 = |payload| v4().udp(1, 2).payload(payload).build();
    for (frame, output) in [
        (dont_fragment(v4(&long)), "too_big"),
        (dont_fragment(v4(&fits)), "out"),
        // It could be fragmented, which is not this NF's business.
        (v4(&long), "out"),
        (v6().udp(1, 2).payload(&long[19..]).build(), "too_big"),
        (v6().udp(1, 2).payload(&long[21..]).build(), "out"),
    ] {
        let seen = run(Some(1500), &frame);
        assert_eq!(seen.output(), output, "{} bytes", frame.len());
        assert_eq!(seen.bytes == frame, output == "too_big");
        assert_eq!(run(None, &frame).output(), "out");
    }
}

#[test]
fn what_is_not_ip_or_cut_in_its_header_leaves_untouched_by_other() {
    let whole = v4().udp(1, 2).build();
    let mut frames =
        vec![Frame::other(0x0806).payload(&[0; 28]).build(), vec![], whole[..14].to_vec()];
    frames.extend((15..34).map(|cut| whole[..cut].to_vec()));
    let mut wrong = whole.clone();
    wrong[14] = 0x65;
    frames.push(wrong);
    for frame in frames {
        let seen = run(None, &frame);
        assert_eq!((seen.output(), &seen.bytes), ("other", &frame));
    }
}

#[test]
fn what_belongs_to_one_link_leaves_untouched_by_other_and_the_like_of_it_is_counted() {
    let (a, b) = ([192, 0, 2, 10], [192, 0, 2, 2]);
    let v4 = |src: [u8; 4], dst: [u8; 4]| Frame::ipv4(src, dst).udp(1, 2);
    for (src, dst, output) in [
        ([169, 254, 1, 1], b, "other"),
        (a, [169, 254, 255, 1], "other"),
        (a, [224, 0, 0, 251], "other"),
        ([0; 4], [255; 4], "other"),
        ([169, 253, 1, 1], [169, 255, 0, 1], "out"),
        (a, [224, 0, 1, 1], "out"),
        (a, [192, 0, 2, 255], "out"),
    ] {
        let seen = run(None, &v4(src, dst).build());
        assert_eq!(seen.output(), output, "{src:?} {dst:?}");
        // Even with a hop only: groups are joined that way.
        let frame = v4(src, dst).ttl(1).build();
        let seen = run(None, &frame);
        assert_eq!(seen.output(), if output == "out" { "expired" } else { "other" });
        assert_eq!(seen.bytes, frame);
    }
    let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let v6 = |src: &str, dst: &str| Frame::ipv6(ip(src), ip(dst));
    for (src, dst, output) in [
        ("fe80::1", "fd00::2", "other"),
        ("fd00::1", "febf::2", "other"),
        ("fd00::1", "ff02::fb", "other"),
        ("fd00::1", "ff12::1", "other"),
        ("fd00::1", "ff01::1", "other"),
        ("::", "fd00::2", "other"),
        ("::1:2", "fec0::2", "out"),
        ("fd00::1", "ff05::2", "out"),
    ] {
        let frame = v6(src, dst).udp(1, 2).ttl(255).build();
        let seen = run(None, &frame);
        assert_eq!(seen.output(), output, "{src} {dst}");
        assert_eq!(seen.bytes == frame, output == "other");
    }
    // Neighbour discovery between addresses of any kind; with 254 it came from elsewhere.
    for (kind, hops, output) in [
        (133, 255, "other"),
        (135, 255, "other"),
        (137, 255, "other"),
        (135, 254, "out"),
        (135, 1, "expired"),
        (132, 255, "out"),
        (138, 255, "out"),
    ] {
        let frame = v6("fd00::1", "fd00::2").icmp(kind, 0, [0; 4]).payload(&[1; 16]);
        let seen = run(None, &frame.ttl(hops).build());
        assert_eq!(seen.output(), output, "type {kind}, hop limit {hops}");
    }
}

#[test]
fn an_mtu_below_that_of_ipv6_is_refused() {
    let error = Bench::new::<TtlDecrement>(json!({"mtu": 1279})).err().unwrap().to_string();
    assert!(error.starts_with("/mtu: 1279 is less than 1280"), "{error}");
}
