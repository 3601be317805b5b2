//! Which IP headers are acceptable.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use weir_packet::headers::proto;
use weir_packet::wire::Frame;
use weir_packet::{Depth, HeaderFault, check_ip, checksum, parse};

const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];

fn v4() -> Vec<u8> {
    Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[7; 30]).build()
}

fn v6() -> Vec<u8> {
    let chain: &[(u8, &[u8])] = &[(proto::HOP_BY_HOP, &[0; 6]), (proto::DEST_OPTS, &[0; 14])];
    Frame::ipv6(A6, A6).extensions(chain).udp(1, 2).payload(&[7; 30]).build()
}

fn check(frame: &[u8], wire_len: usize) -> Result<(), HeaderFault> {
    check_ip(frame, &parse(frame, Depth::L2), wire_len)
}

/// `frame` after a change, with a right IPv4 header checksum again.
fn changed(mut frame: Vec<u8>, change: impl Fn(&mut Vec<u8>)) -> Result<(), HeaderFault> {
    change(&mut frame);
    if frame[12..14] == [8, 0] {
        let end = (14 + usize::from(frame[14] & 15) * 4).min(frame.len());
        (frame[24], frame[25]) = (0, 0);
        let check = checksum::checksum(&frame[14..end]).to_be_bytes();
        frame[24..26].copy_from_slice(&check);
    }
    check(&frame, frame.len())
}

#[test]
fn well_formed_headers_pass_also_with_padding_and_tags() {
    for frame in [v4(), v6()] {
        assert_eq!(check(&frame, frame.len()), Ok(()));
    }
    let frame = Frame::ipv4([1; 4], [2; 4]).vlan(3).vlan(4).options(&[1; 40]).pad_to(200).build();
    assert_eq!(check(&frame, frame.len()), Ok(()));
}

#[test]
fn every_single_flipped_bit_of_an_ipv4_header_is_found() {
    for bit in 0..20 * 8 {
        let mut frame = v4();
        frame[14 + bit / 8] ^= 1 << (bit % 8);
        assert!(check(&frame, frame.len()).is_err(), "bit {bit}");
    }
}

#[test]
fn each_ipv4_fault_is_told_apart_when_the_checksum_is_right() {
    assert_eq!(changed(v4(), |f| f[14] = 0x55), Err(HeaderFault::Version));
    assert_eq!(changed(v4(), |f| f[14] = 0x44), Err(HeaderFault::HeaderLength));
    assert_eq!(changed(v4(), |f| f[17] = 19), Err(HeaderFault::TotalLengthShort));
    assert_eq!(changed(v4(), |f| f[17] += 1), Err(HeaderFault::TotalLengthLong));
    assert_eq!(changed(v4(), |f| f.truncate(33)), Err(HeaderFault::IpHeaderCut));
    assert_eq!(changed(v4(), |f| f[17] = 20), Ok(()));
    let mut frame = v4();
    frame[24] ^= 1;
    assert_eq!(check(&frame, frame.len()), Err(HeaderFault::Checksum));
}

#[test]
fn each_ipv6_fault_is_told_apart() {
    assert_eq!(changed(v6(), |f| f[14] = 0x40), Err(HeaderFault::Version));
    assert_eq!(changed(v6(), |f| f[19] += 1), Err(HeaderFault::PayloadLengthLong));
    assert_eq!(changed(v6(), |f| f.truncate(53)), Err(HeaderFault::IpHeaderCut));
    assert_eq!(changed(v6(), |f| f[55] = 200), Err(HeaderFault::ExtensionCut));
    assert_eq!(changed(v6(), |f| f[54] = 0), Err(HeaderFault::HopByHopMisplaced));
    let many: Vec<(u8, &[u8])> = vec![(proto::DEST_OPTS, &[0; 6]); 17];
    let frame = Frame::ipv6(A6, A6).extensions(&many).build();
    assert_eq!(check(&frame, frame.len()), Err(HeaderFault::TooManyExtensions));
}

#[test]
fn a_capture_cut_by_snap_length_is_judged_by_what_is_there() {
    for frame in [v4(), v6()] {
        for len in 14..frame.len() {
            assert_eq!(check(&frame[..len], frame.len()), Ok(()), "{len} bytes");
        }
    }
    let mut frame = v4();
    frame[22] ^= 1;
    assert_eq!(check(&frame[..40], frame.len()), Err(HeaderFault::Checksum));
    frame[14] = 0x41;
    assert_eq!(check(&frame[..15], frame.len()), Err(HeaderFault::HeaderLength));
}

#[test]
fn packets_that_are_not_ip_have_no_ip_header_to_check() {
    let frame = Frame::other(0x0806).payload(&[0; 46]).build();
    assert_eq!(check(&frame, frame.len()), Err(HeaderFault::NotIp));
    assert_eq!(check(&[], 0), Err(HeaderFault::NotIp));
}

#[test]
fn fault_numbers_are_their_places_in_the_list() {
    for (index, fault) in HeaderFault::ALL.into_iter().enumerate() {
        assert_eq!(fault as usize, index + 1);
        assert_eq!(HeaderFault::from_number(fault as u8), Some(fault));
    }
    assert_eq!(HeaderFault::from_number(0), None);
    assert_eq!(HeaderFault::from_number(16), None);
}
