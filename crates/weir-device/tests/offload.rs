//! Super-packets are cut as a network card would cut them, and checksums finished.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use std::net::IpAddr;
use weir_device::offload::{Gso, OffloadError, VnetHeader, finish_checksum};
use weir_packet::checksum::{L4Checksum, pseudo_v4, pseudo_v6, verify_l4};
use weir_packet::headers::{proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Depth, L3, Layers, check_ip, parse};

const NEEDS_CSUM: u8 = 1;
const ECN: u8 = 0x80;

/// What a super-packet is made of.
#[derive(Debug, Clone)]
struct Super {
    v6: bool,
    udp: bool,
    tags: Vec<(u16, u16)>,
    /// IPv4 options, or the bodies of IPv6 extension headers.
    extra: Vec<u8>,
    extensions: Vec<u8>,
    tcp_options: usize,
    flags: u8,
    seq: u32,
    id: u16,
    payload: Vec<u8>,
    size: u16,
    /// Left unfinished by the sender, as the kernel does; else finished over the whole.
    partial: bool,
}

fn supers() -> impl Strategy<Value = Super> {
    let headers = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u8>(), any::<u32>());
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    let extension = prop_oneof![Just(proto::ROUTING), Just(proto::DEST_OPTS)];
    let extra = prop::collection::vec(any::<u8>(), 0..40);
    let payload = prop::collection::vec(any::<u8>(), 0..9000);
    (
        headers,
        prop::collection::vec(tag, 0..3),
        prop::collection::vec(extension, 0..3),
        extra,
        payload,
        (1u16..3000, 0usize..=10, any::<u16>()),
    )
        .prop_map(|(headers, tags, extensions, extra, payload, (size, words, id))| {
            let (v6, udp, partial, flags, seq) = headers;
            let tcp_options = words * 4;
            Super {
                v6,
                udp,
                tags,
                extra,
                extensions,
                tcp_options,
                flags,
                seq,
                id,
                payload,
                size,
                partial,
            }
        })
}

impl Super {
    /// The frame as the sender leaves it, and what it says of it.
    fn build(&self) -> (Vec<u8>, VnetHeader) {
        let mut l4 = vec![0; if self.udp { 8 } else { 20 + self.tcp_options }];
        l4[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
        if self.udp {
            l4[4..6].copy_from_slice(&(8 + self.payload.len() as u16).to_be_bytes());
        } else {
            l4[4..8].copy_from_slice(&self.seq.to_be_bytes());
            l4[12] = (l4.len() as u8 / 4) << 4;
            l4[13] = self.flags;
            l4[20..].fill(1); // no-operation
        }
        l4.extend_from_slice(&self.payload);
        // A routing header that has been followed to its end, or options to be skipped.
        let body = [0, 0, 1, 0, 0, 0];
        let extensions: Vec<(u8, &[u8])> =
            self.extensions.iter().map(|kind| (*kind, &body[..])).collect();
        let frame = match self.v6 {
            true => Frame::ipv6([0xfd; 16], [0xfe; 16]).extensions(&extensions),
            false => {
                Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).options(&[1; 40][..self.extra.len()])
            }
        };
        let frame = frame.id(self.id.into()).proto(if self.udp { proto::UDP } else { proto::TCP });
        let frame = self.tags.iter().fold(frame, |f, (tpid, tci)| f.tag(*tpid, *tci));
        let mut bytes = frame.payload(&l4).build();
        let layers = parse(bytes.as_slice(), Depth::L4);
        let (start, offset) = (usize::from(layers.l4), if self.udp { 6 } else { 16 });
        let proto = layers.proto;
        let mut sum = match layers.ips(bytes.as_slice()).unwrap() {
            (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_v4(a, b, proto, l4.len() as u16),
            (IpAddr::V6(a), IpAddr::V6(b)) => pseudo_v6(a, b, proto, l4.len() as u32),
            _ => unreachable!(),
        };
        if !self.partial {
            sum.add_slice(&l4);
        }
        let value = if self.partial { !sum.finish() } else { sum.finish() };
        bytes[start + offset..][..2].copy_from_slice(&value.to_be_bytes());
        let kind = if self.udp {
            5
        } else if self.v6 {
            4
        } else {
            1
        };
        let header = VnetHeader {
            flags: if self.partial { NEEDS_CSUM } else { 0 },
            gso_type: kind | if self.flags & tcp::CWR != 0 && !self.udp { ECN } else { 0 },
            hdr_len: 0,
            gso_size: self.size,
            csum_start: layers.l4,
            csum_offset: offset as u16,
        };
        (bytes, header)
    }
}

fn segments(frame: &[u8], gso: &Gso) -> Vec<Vec<u8>> {
    let mut head = Vec::new();
    (0..gso.segments())
        .map(|i| {
            let payload = gso.cut(frame, i, &mut head).unwrap();
            assert_eq!(head.len() + payload.len(), gso.len(i));
            [&head[..], &frame[payload]].concat()
        })
        .collect()
}

/// Headers without what differs from segment to segment.
fn shared_headers(bytes: &[u8], layers: &Layers) -> Vec<u8> {
    let mut head = bytes[..usize::from(layers.payload)].to_vec();
    let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
    match layers.kind {
        L3::Ipv4 => {
            head[l3 + 2..l3 + 6].fill(0); // length, identification
            head[l3 + 10..l3 + 12].fill(0);
        }
        _ => head[l3 + 4..l3 + 6].fill(0),
    }
    if layers.proto == proto::TCP {
        head[l4 + 4..l4 + 8].fill(0);
        head[l4 + 13] &= !(tcp::FIN | tcp::PSH | tcp::CWR);
        head[l4 + 16..l4 + 18].fill(0);
    } else {
        head[l4 + 4..l4 + 8].fill(0);
    }
    head
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

proptest! {
    #[test]
    fn segments_are_sound_packets_that_put_together_are_the_whole(s in supers()) {
        let (frame, header) = s.build();
        let whole = parse(frame.as_slice(), Depth::L4);
        prop_assert_eq!(usize::from(whole.end), frame.len());
        let gso = Gso::new(&frame, &header).unwrap().unwrap();
        let cut = segments(&frame, &gso);
        prop_assert_eq!(cut.len(), s.payload.len().div_ceil(s.size.into()).max(1));
        let mut payload = Vec::new();
        for (i, bytes) in cut.iter().enumerate() {
            let (first, last) = (i == 0, i + 1 == cut.len());
            let layers = parse(bytes.as_slice(), Depth::L4);
            // Lengths and the IPv4 header's checksum; then the transport's.
            prop_assert_eq!(check_ip(bytes.as_slice(), &layers, bytes.len()), Ok(()));
            prop_assert_eq!(verify_l4(bytes.as_slice(), &layers), L4Checksum::Good);
            prop_assert_eq!(usize::from(layers.end), bytes.len());
            prop_assert_eq!(shared_headers(bytes, &layers), shared_headers(&frame, &whole));
            let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
            if !s.v6 {
                prop_assert_eq!(be16(bytes, l3 + 4), s.id.wrapping_add(i as u16));
            }
            if s.udp {
                prop_assert_eq!(usize::from(be16(bytes, l4 + 4)), bytes.len() - l4);
            } else {
                let seq = u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().unwrap());
                prop_assert_eq!(seq, s.seq.wrapping_add(payload.len() as u32));
                let mut flags = s.flags;
                if !first { flags &= !tcp::CWR; }
                if !last { flags &= !(tcp::FIN | tcp::PSH); }
                prop_assert_eq!(bytes[l4 + 13], flags);
            }
            let part = &bytes[usize::from(layers.payload)..];
            prop_assert!(part.len() == usize::from(s.size) || last);
            payload.extend_from_slice(part);
        }
        prop_assert_eq!(payload, s.payload);
    }

    #[test]
    fn an_unfinished_checksum_is_finished_right(s in supers()) {
        let s = Super { partial: true, ..s };
        let (mut frame, header) = s.build();
        let finished = finish_checksum(&frame, &header).unwrap();
        frame[finished.at..][..2].copy_from_slice(finished.bytes());
        let layers = parse(frame.as_slice(), Depth::L4);
        prop_assert_eq!(verify_l4(frame.as_slice(), &layers), L4Checksum::Good);
        prop_assert_ne!(finished.bytes(), [0, 0], "zero means no checksum to UDP");
    }

    #[test]
    fn whatever_an_interface_says_of_whatever_bytes_nothing_breaks(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        vnet in any::<[u8; VnetHeader::LEN]>(),
    ) {
        let header = VnetHeader::parse(&vnet);
        if let Ok(finished) = finish_checksum(&bytes, &header) {
            prop_assert!(finished.at + finished.bytes().len() <= bytes.len());
        }
        if let Ok(Some(gso)) = Gso::new(&bytes, &header) {
            segments(&bytes, &gso);
        }
    }

    #[test]
    fn a_sound_packet_with_whatever_its_interface_says_of_it_breaks_nothing(
        s in supers(), vnet in any::<[u8; VnetHeader::LEN]>(), kind in 0u8..7,
    ) {
        let (frame, _) = s.build();
        let header = VnetHeader { gso_type: kind, ..VnetHeader::parse(&vnet) };
        if let Ok(Some(gso)) = Gso::new(&frame, &header) {
            let payload: usize = (0..gso.segments())
                .map(|i| gso.cut(&frame, i, &mut Vec::new()).unwrap().len())
                .sum();
            prop_assert_eq!(payload, s.payload.len());
        }
    }
}

fn plain() -> Super {
    Super {
        v6: false,
        udp: false,
        tags: vec![],
        extra: vec![],
        extensions: vec![],
        tcp_options: 12,
        flags: tcp::ACK,
        seq: 7,
        id: 1,
        payload: vec![3; 4000],
        size: 1448,
        partial: true,
    }
}

#[test]
fn what_cannot_be_right_is_an_error_that_says_what() {
    let (frame, header) = plain().build();
    let wrong = |change: fn(&mut VnetHeader)| {
        let mut header = header;
        change(&mut header);
        Gso::new(&frame, &header).map(|_| ()).unwrap_err()
    };
    assert_eq!(wrong(|h| h.gso_size = 0), OffloadError::NoSize);
    assert_eq!(wrong(|h| h.gso_type = 3), OffloadError::Kind(3));
    assert_eq!(wrong(|h| h.gso_type = 4), OffloadError::Headers);
    assert_eq!(wrong(|h| h.gso_type = 5), OffloadError::Headers);
    assert_eq!(wrong(|h| h.csum_start += 2), OffloadError::ChecksumPlace);
    assert_eq!(
        Gso::new(&frame[..frame.len() - 1], &header).map(|_| ()),
        Err(OffloadError::Headers),
        "a packet that is not all there"
    );
    let beyond = VnetHeader { csum_start: frame.len() as u16 - 1, csum_offset: 0, ..header };
    assert_eq!(finish_checksum(&frame, &beyond), Err(OffloadError::ChecksumPlace));
    let mut fragment = frame.clone();
    fragment[20] |= 0x20; // more fragments
    assert_eq!(Gso::new(&fragment, &header).map(|_| ()), Err(OffloadError::Fragment));
}

#[test]
fn a_datagram_without_a_checksum_is_cut_into_datagrams_without() {
    let (mut frame, header) = Super { udp: true, partial: false, ..plain() }.build();
    let l4 = usize::from(parse(frame.as_slice(), Depth::L4).l4);
    frame[l4 + 6..l4 + 8].fill(0);
    let gso = Gso::new(&frame, &header).unwrap().unwrap();
    for bytes in segments(&frame, &gso) {
        let layers = parse(bytes.as_slice(), Depth::L4);
        assert_eq!(verify_l4(bytes.as_slice(), &layers), L4Checksum::Absent);
    }
}
