//! Super-packets in tunnels are cut into what their sender would have sent piece by piece; what is
//! wrong around them is refused. SCTP's checksum is finished as a CRC.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use std::net::IpAddr;
use weir_device::offload::{Gso, OffloadError, VnetHeader, finish_checksum};
use weir_packet::checksum::{checksum, pseudo_v4, pseudo_v6};
use weir_packet::headers::{ETHERNET_LEN, ether_type, proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Depth, parse};

const NEEDS_CSUM: u8 = 1;

/// What carries a packet in another.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Carrier {
    Vxlan,
    /// VXLAN that says what is inside, with IP directly.
    VxlanGpe,
    Geneve {
        options: u8,
        ethernet: bool,
    },
    Gre {
        ethernet: bool,
        key: bool,
        checksum: bool,
    },
    /// IP directly in IP.
    Ip,
    /// IP directly in UDP.
    Fou,
}

/// A packet around another.
#[derive(Debug, Clone, Copy)]
struct Around {
    v6: bool,
    id: u16,
    tag: bool,
    /// The IPv6 destination option by which ip6tnl limits nesting.
    option: bool,
    udp_checksum: bool,
    carrier: Carrier,
}

/// A packet that is to be cut.
#[derive(Debug, Clone)]
struct Inner {
    v6: bool,
    udp: bool,
    tags: usize,
    id: u16,
    seq: u32,
    flags: u8,
    payload: Vec<u8>,
    size: u16,
}

fn carriers() -> impl Strategy<Value = Carrier> {
    let geneve = (0u8..64, any::<bool>());
    let gre = (any::<bool>(), any::<bool>(), any::<bool>());
    prop_oneof![
        Just(Carrier::Vxlan),
        Just(Carrier::VxlanGpe),
        geneve.prop_map(|(options, ethernet)| Carrier::Geneve { options, ethernet }),
        gre.prop_map(|(ethernet, key, checksum)| Carrier::Gre { ethernet, key, checksum }),
        Just(Carrier::Ip),
        Just(Carrier::Fou),
    ]
}

fn arounds() -> impl Strategy<Value = Around> {
    let bools = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (bools, any::<u16>(), carriers()).prop_map(|((v6, tag, option, udp_checksum), id, carrier)| {
        Around { v6, id, tag, option, udp_checksum, carrier }
    })
}

fn inners() -> impl Strategy<Value = Inner> {
    let payload = prop::collection::vec(any::<u8>(), 0..5000);
    let numbers = (any::<u16>(), any::<u32>(), any::<u8>(), 1u16..2000);
    (any::<bool>(), any::<bool>(), 0usize..3, numbers, payload).prop_map(
        |(v6, udp, tags, (id, seq, flags, size), payload)| Inner {
            v6,
            udp,
            tags,
            id,
            seq,
            flags,
            payload,
            size,
        },
    )
}

impl Carrier {
    fn has_ethernet(self) -> bool {
        matches!(
            self,
            Carrier::Vxlan
                | Carrier::Geneve { ethernet: true, .. }
                | Carrier::Gre { ethernet: true, .. }
        )
    }

    fn is_udp(self) -> bool {
        !matches!(self, Carrier::Ip | Carrier::Gre { .. })
    }

    /// Its header in front of `inside`.
    fn body(self, inside: &[u8], v6: bool) -> Vec<u8> {
        let kind = match (self.has_ethernet(), v6) {
            (true, _) => ether_type::TRANSPARENT_ETHERNET,
            (false, false) => ether_type::IPV4,
            (false, true) => ether_type::IPV6,
        };
        let [a, b] = kind.to_be_bytes();
        let header = match self {
            Carrier::Ip | Carrier::Fou => vec![],
            Carrier::Vxlan => vec![0x08, 0, 0, 0, 1, 2, 3, 0],
            Carrier::VxlanGpe => vec![0x0c, 0, 0, 1 + u8::from(v6), 1, 2, 3, 0],
            Carrier::Geneve { options, .. } => {
                let mut header = vec![options, 0, a, b, 1, 2, 3, 0];
                header.resize(8 + 4 * usize::from(options), 7);
                header
            }
            Carrier::Gre { key, checksum, .. } => {
                let flags = if checksum { 0x80 } else { 0 } | if key { 0x20 } else { 0 };
                let mut header = vec![flags, 0, a, b];
                header.resize(4 + if checksum { 4 } else { 0 }, 0);
                header.extend_from_slice(if key { &[9, 8, 7, 6] } else { &[] });
                header
            }
        };
        let mut body = [&header, inside].concat();
        if let Carrier::Gre { checksum: true, .. } = self {
            let sum = other_zero(checksum(&body));
            body[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        body
    }
}

/// All ones mean the same as zero, and are what is stored.
fn other_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

impl Around {
    /// Puts itself around `frame`, as number `index` of its packets; `unfinished`: as the kernel leaves it to a card.
    fn wrap(&self, frame: &[u8], index: usize, unfinished: bool) -> Vec<u8> {
        let layers = parse(frame, Depth::L3);
        let v6 = layers.ether_type == ether_type::IPV6;
        let from = if self.carrier.has_ethernet() { 0 } else { usize::from(layers.l3) };
        let body = self.carrier.body(&frame[from..], v6);
        let options: &[(u8, &[u8])] =
            if self.option { &[(proto::DEST_OPTS, &[4, 1, 4, 1, 0, 0])] } else { &[] };
        let outer = match self.v6 {
            false => Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]),
            true => Frame::ipv6([0x20; 16], [0x21; 16]).extensions(options),
        };
        let outer = outer.id(self.id.wrapping_add(index as u16).into()).payload(&body);
        let outer = if self.tag { outer.vlan(77) } else { outer };
        let ip = if v6 { proto::IPV6 } else { proto::IPIP };
        let mut bytes = match self.carrier {
            Carrier::Ip => outer.proto(ip),
            Carrier::Gre { .. } => outer.proto(proto::GRE),
            _ => outer.udp(50_000, 4789),
        }
        .build();
        if self.carrier.is_udp() {
            let layers = parse(bytes.as_slice(), Depth::L4);
            let at = usize::from(layers.l4) + 6;
            let sum = match (self.udp_checksum, unfinished) {
                (false, _) => 0,
                (true, true) => pseudo_sum(&bytes),
                (true, false) => return bytes,
            };
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }
}

/// What the kernel leaves in the place of a checksum.
fn pseudo_sum(bytes: &[u8]) -> u16 {
    let layers = parse(bytes, Depth::L4);
    let len = layers.end - layers.l4;
    let sum = match layers.ips(bytes).unwrap() {
        (IpAddr::V4(a), IpAddr::V4(b)) => pseudo_v4(a, b, layers.proto, len),
        (IpAddr::V6(a), IpAddr::V6(b)) => pseudo_v6(a, b, layers.proto, len.into()),
        _ => unreachable!(),
    };
    !sum.finish()
}

impl Inner {
    fn header_len(&self) -> usize {
        if self.udp { 8 } else { 20 }
    }

    fn checksum_offset(&self) -> usize {
        if self.udp { 6 } else { 16 }
    }

    fn frame(&self, index: usize, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let frame = match self.v6 {
            false => Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).options(&[1; 4]),
            true => Frame::ipv6([0xfd; 16], [0xfe; 16]),
        };
        let frame = frame.id(self.id.wrapping_add(index as u16).into());
        let frame = (0..self.tags).fold(frame, |frame, tag| frame.vlan(tag as u16));
        let frame = match self.udp {
            true => frame.udp(1, 2),
            false => frame.tcp(1, 2, flags).seq(seq, 9),
        };
        frame.payload(payload).build()
    }

    /// The reference: the pieces, each made from nothing.
    fn pieces(&self) -> Vec<Vec<u8>> {
        let count = self.payload.len().div_ceil(self.size.into()).max(1);
        let piece = |index: usize| {
            let at = index * usize::from(self.size);
            let end = (at + usize::from(self.size)).min(self.payload.len());
            let mut flags = self.flags;
            if index > 0 {
                flags &= !tcp::CWR;
            }
            if index + 1 < count {
                flags &= !(tcp::FIN | tcp::PSH);
            }
            let seq = self.seq.wrapping_add(at as u32);
            let mut bytes = self.frame(index, seq, flags, &self.payload[at..end]);
            let at = bytes.len() - (end - at) - self.header_len() + self.checksum_offset();
            let sum = other_zero(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            bytes
        };
        (0..count).map(piece).collect()
    }

    /// The whole as the sender leaves it to the card, in these tunnels, and what it says of it.
    fn left_to_the_card(&self, around: &[Around]) -> (Vec<u8>, VnetHeader) {
        let mut whole = self.frame(0, self.seq, self.flags, &self.payload);
        let sum = pseudo_sum(&whole);
        let at = whole.len() - self.payload.len() - self.header_len() + self.checksum_offset();
        whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let bytes = around.iter().fold(whole, |frame, around| around.wrap(&frame, 0, true));
        let start = bytes.len() - self.payload.len() - self.header_len();
        let header = VnetHeader {
            flags: NEEDS_CSUM,
            gso_type: match (self.udp, self.v6) {
                (true, _) => 5,
                (false, true) => 4,
                (false, false) => 1,
            },
            hdr_len: 0,
            gso_size: self.size,
            csum_start: start as u16,
            csum_offset: self.checksum_offset() as u16,
        };
        (bytes, header)
    }
}

fn cut(frame: &[u8], header: &VnetHeader) -> Result<Vec<Vec<u8>>, OffloadError> {
    let gso = Gso::new(frame, header)?.unwrap();
    let mut head = Vec::new();
    let pieces = (0..gso.segments()).map(|index| {
        let payload = gso.cut(frame, index, &mut head)?;
        Ok([&head[..], &frame[payload]].concat())
    });
    pieces.collect()
}

proptest! {
    #[test]
    fn a_super_packet_in_tunnels_becomes_what_its_sender_would_have_sent_piece_by_piece(
        inner in inners(), around in prop::collection::vec(arounds(), 0..=2),
    ) {
        let (frame, header) = inner.left_to_the_card(&around);
        let cut = cut(&frame, &header).unwrap();
        let pieces = inner.pieces();
        prop_assert_eq!(cut.len(), pieces.len());
        for (index, (cut, piece)) in cut.into_iter().zip(pieces).enumerate() {
            let piece = around.iter().fold(piece, |frame, around| around.wrap(&frame, index, false));
            prop_assert_eq!(cut, piece, "piece {}", index);
        }
    }

    #[test]
    fn whatever_is_wrong_around_a_super_packet_breaks_nothing(
        inner in inners(),
        around in prop::collection::vec(arounds(), 1..=3),
        wrong in prop::collection::vec((0usize..150, any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
        shift in -3i16..4,
    ) {
        let (mut frame, mut header) = inner.left_to_the_card(&around);
        header.csum_start = header.csum_start.wrapping_add_signed(shift / 3 * 2);
        for (at, byte) in wrong {
            if let Some(place) = frame.get_mut(at) { *place = byte; }
        }
        let _ = cut(&frame, &header);
        let _ = cut(&frame[..end.index(frame.len())], &header);
    }

    #[test]
    fn the_checksum_of_sctp_is_a_crc_also_in_tunnels(
        chunk in prop::collection::vec(any::<u8>(), 0..100),
        v6 in any::<bool>(),
        around in prop::collection::vec(arounds(), 0..=2),
    ) {
        let mut packet = vec![0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0];
        packet.extend_from_slice(&chunk);
        let frame = if v6 { Frame::ipv6([7; 16], [8; 16]) } else { Frame::ipv4([7; 4], [8; 4]) };
        let frame = frame.proto(proto::SCTP).payload(&packet).build();
        let frame = around.iter().fold(frame, |frame, around| around.wrap(&frame, 0, false));
        let start = frame.len() - packet.len();
        let header = unfinished(start, 8);
        let finished = finish_checksum(&frame, &header).unwrap();
        prop_assert_eq!(finished.at, start + 8);
        prop_assert_eq!(finished.bytes(), crc(&packet).to_le_bytes());
    }
}

fn unfinished(start: usize, offset: u16) -> VnetHeader {
    let csum_start = start as u16;
    VnetHeader { flags: NEEDS_CSUM, csum_start, csum_offset: offset, ..VnetHeader::default() }
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[test]
fn the_crc_of_the_test_itself_is_that_of_rfc_3720() {
    assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
}

#[test]
fn padding_behind_an_sctp_packet_is_not_summed_and_a_cut_one_is_refused() {
    let packet = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 9];
    let frame = Frame::ipv4([7; 4], [8; 4]).proto(proto::SCTP).payload(&packet);
    let padded = frame.pad_to(60).build();
    let header = unfinished(ETHERNET_LEN + 20, 8);
    let finished = finish_checksum(&padded, &header).unwrap();
    assert_eq!(finished.bytes(), crc(&packet).to_le_bytes());
    assert_eq!(finish_checksum(&padded[..44], &header), Err(OffloadError::Headers));
    let short = Frame::ipv4([7; 4], [8; 4]).proto(proto::SCTP).payload(&packet[..11]).build();
    assert_eq!(finish_checksum(&short, &header), Err(OffloadError::Headers));
}

#[test]
fn a_sum_where_sctp_has_its_crc_is_a_sum_when_the_protocol_is_another() {
    let frame = Frame::ipv4([7; 4], [8; 4]).proto(253).payload(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    let finished = finish_checksum(&frame.build(), &unfinished(ETHERNET_LEN + 20, 8)).unwrap();
    assert_eq!(finished.bytes(), (!0x0102u16).to_be_bytes());
}

fn inner() -> Inner {
    let payload = vec![3; 4000];
    Inner { v6: false, udp: false, tags: 0, id: 1, seq: 7, flags: tcp::ACK, payload, size: 1400 }
}

fn in_a(carrier: Carrier) -> Around {
    Around { v6: false, id: 5, tag: false, option: false, udp_checksum: true, carrier }
}

/// The first byte of what an IPv4 packet without tag or options carries.
const CARRIED: usize = ETHERNET_LEN + 20;
const UDP_BODY: usize = CARRIED + 8;

#[test]
fn what_cannot_be_right_around_a_super_packet_is_an_error_that_says_what() {
    let wrong = |carrier, change: fn(&mut Vec<u8>, &mut VnetHeader)| {
        let (mut frame, mut header) = inner().left_to_the_card(&[in_a(carrier)]);
        assert_eq!(cut(&frame, &header).map(|pieces| pieces.len()), Ok(3), "as it is");
        change(&mut frame, &mut header);
        cut(&frame, &header).unwrap_err()
    };
    let gre = Carrier::Gre { ethernet: false, key: true, checksum: false };
    let geneve = Carrier::Geneve { options: 2, ethernet: true };
    assert_eq!(wrong(gre, |f, _| f[CARRIED] |= 0x10), OffloadError::ChecksumPlace, "numbered");
    assert_eq!(wrong(gre, |f, _| f[CARRIED + 1] |= 1), OffloadError::ChecksumPlace, "its version");
    assert_eq!(wrong(gre, |f, _| f[CARRIED + 2] ^= 1), OffloadError::ChecksumPlace, "what it has");
    assert_eq!(wrong(Carrier::Vxlan, |f, _| f[UDP_BODY] = 0), OffloadError::ChecksumPlace);
    assert_eq!(wrong(geneve, |f, _| f[UDP_BODY] = 3), OffloadError::Tunnel, "too many options");
    assert_eq!(wrong(Carrier::Ip, |f, _| f[CARRIED] = 0x55), OffloadError::Tunnel, "IP version 5");
    assert_eq!(wrong(Carrier::Ip, |f, _| f[CARRIED + 3] -= 1), OffloadError::Tunnel, "not filled");
    assert_eq!(wrong(Carrier::Vxlan, |f, _| f[CARRIED + 5] -= 1), OffloadError::ChecksumPlace);
    assert_eq!(wrong(Carrier::Vxlan, |f, _| f[20] |= 0x20), OffloadError::Fragment);
    assert_eq!(wrong(Carrier::Vxlan, |f, _| f.truncate(f.len() - 1)), OffloadError::Headers);
    assert_eq!(wrong(Carrier::Vxlan, |_, h| h.csum_start += 2), OffloadError::Tunnel);
    assert_eq!(wrong(Carrier::Vxlan, |_, h| h.csum_offset += 2), OffloadError::ChecksumPlace);
    assert_eq!(wrong(Carrier::Vxlan, |_, h| h.gso_type = 4), OffloadError::Headers);
    assert_eq!(wrong(Carrier::Vxlan, |_, h| h.flags = 0), OffloadError::Headers, "not said where");
}

#[test]
fn a_tunnel_in_a_tunnel_in_a_tunnel_is_refused() {
    let (frame, header) = inner().left_to_the_card(&[in_a(Carrier::Vxlan); 3]);
    assert_eq!(cut(&frame, &header), Err(OffloadError::Tunnel));
}

#[test]
fn a_vxlan_header_that_reads_as_geneve_too_is_told_by_what_is_inside() {
    let around = in_a(Carrier::Vxlan);
    let inner = inner();
    let (mut frame, header) = inner.left_to_the_card(&[around]);
    // A group policy, whose number is an EtherType (draft-smith-vxlan-group-policy).
    frame[UDP_BODY + 2..UDP_BODY + 4].copy_from_slice(&[0x65, 0x58]);
    assert_eq!(cut(&frame, &header).unwrap().len(), 3);
    let geneve = in_a(Carrier::Geneve { options: 8, ethernet: true });
    let (frame, header) = inner.left_to_the_card(&[geneve]);
    assert_eq!(frame[UDP_BODY], 0x08, "VXLAN's flag");
    assert_eq!(cut(&frame, &header).unwrap().len(), 3);
}
