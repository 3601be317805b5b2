//! The parser against etherparse, an independent one, on generated frames and recorded captures.
//!
//! Compared: where the IP header and its payload begin and end, the final protocol, fragmentation,
//! and where the transport payload begins. Where the two differ by intent, the packet is left out
//! (each left-out packet has one of these reasons, checked by [`differs_by_intent`]):
//!
//! - more than three tags: etherparse stops there;
//! - AH in IPv4: etherparse walks over it, we stop (an IPv4 filter looks at the header's field);
//! - mobility, HIP and shim6 headers: etherparse walks over them, we stop;
//! - a hop-by-hop header out of place: etherparse stops, we go on;
//! - packets that we call faulty, and headers that the capture cut;
//! - an IPv6 payload length of 0: etherparse takes it as "not filled in", we take it as written;
//! - length (LLC) frames: etherparse has no notion of them below 0x600.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use proptest::prelude::*;
use weir_packet::headers::{Layers, flags, proto};
use weir_packet::wire::Frame;
use weir_packet::{Depth, Fragment, HeaderFault, L3, parse};

/// Where a packet's parts are, as both parsers can say it.
#[derive(Debug, PartialEq)]
struct Found {
    v6: bool,
    l3: usize,
    l4: usize,
    end: usize,
    proto: u8,
    fragmented: bool,
    /// End of the transport header, when it is whole.
    payload: Option<usize>,
}

fn ours(layers: &Layers) -> Option<Found> {
    layers.is_ip().then(|| Found {
        v6: layers.kind == L3::Ipv6,
        l3: layers.l3.into(),
        l4: layers.l4.into(),
        end: layers.end.into(),
        proto: layers.proto,
        fragmented: layers.fragment() != Fragment::Whole,
        payload: (layers.has_l4()
            && layers.proto != proto::SCTP
            && layers.fragment() == Fragment::Whole)
            .then(|| layers.payload.into()),
    })
}

fn theirs(frame: &[u8]) -> Option<Found> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let offset = |part: &[u8]| part.as_ptr().addr() - frame.as_ptr().addr();
    let (v6, l3, ip) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => (false, offset(ip.header().slice()), ip.payload()),
        LaxNetSlice::Ipv6(ip) => (true, offset(ip.header().slice()), ip.payload()),
        LaxNetSlice::Arp(_) => return None,
    };
    let l4 = offset(ip.payload);
    let payload = match &packet.transport {
        Some(TransportSlice::Udp(_)) => Some(l4 + 8),
        Some(TransportSlice::Tcp(tcp)) => Some(l4 + tcp.header_slice().len()),
        Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_)) => Some(l4 + 8),
        Some(TransportSlice::Igmp(_)) | None => None,
    };
    Some(Found {
        v6,
        l3,
        l4,
        end: l4 + ip.payload.len(),
        proto: ip.ip_number.0,
        fragmented: ip.fragmented,
        payload,
    })
}

fn differs_by_intent(layers: &Layers) -> bool {
    let transport_only = matches!(
        layers.fault,
        Some(HeaderFault::TransportCut | HeaderFault::TcpDataOffset | HeaderFault::UdpLength)
    );
    let walked = layers.kind == L3::Ipv4 && layers.proto == proto::AH
        || layers.kind == L3::Ipv6 && matches!(layers.proto, 135 | 139 | 140);
    let empty6 = layers.kind == L3::Ipv6 && layers.end == layers.l3.saturating_add(40);
    layers.vlan_count > 3
        || empty6
        || layers.ether_type == 0
        || layers.fault.is_some() && !transport_only
        || walked
}

/// Compares, and says whether there was something to compare.
fn agree(frame: &[u8]) -> bool {
    let layers = parse(frame, Depth::L4);
    let (ours, theirs) = (ours(&layers), theirs(frame));
    let mut layers_cut = false;
    if let (Some(ours), None) = (&ours, &theirs) {
        // etherparse has nothing when the capture ends inside the IP header; we know the EtherType.
        layers_cut = layers.is_truncated() && ours.l4 >= ours.end;
        layers_cut |= layers.is_truncated() && ours.l4 == ours.l3;
    }
    if differs_by_intent(&layers) || layers_cut {
        return false;
    }
    let (Some(mut ours), Some(mut theirs)) = (ours, theirs) else {
        assert!(!layers.is_ip(), "only we found IP in {frame:02x?}");
        return true;
    };
    if layers.is_truncated() && layers.has(flags::OPTIONS) && ours.v6 {
        return false;
    }
    if layers.fault.is_some() || layers.is_truncated() {
        // A transport header that does not fit: etherparse judges lengths differently when lax.
        (ours.payload, theirs.payload) = (None, None);
    }
    assert_eq!(ours, theirs, "{layers:?} {frame:02x?}");
    true
}

#[test]
fn we_agree_with_etherparse_on_recorded_captures() {
    for path in crate::common::captures() {
        let frames = crate::common::ethernet_frames(&path);
        let compared = frames.iter().filter(|record| agree(&record.bytes)).count();
        let name = path.file_name().unwrap().display().to_string();
        println!("{name}: {compared} of {} Ethernet frames compared", frames.len());
        let deliberately_odd =
            ["fuzzed", "ipv6-fragments", "headers-too-short"].iter().any(|odd| name.contains(odd));
        assert!(deliberately_odd || compared * 10 >= frames.len() * 9, "{name}: too few compared");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn we_agree_with_etherparse_on_generated_frames(
        tags in prop::collection::vec((prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), any::<u16>()), 0..4),
        v6: bool,
        shape in 0u8..5,
        options in prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..40)],
        chain in prop::collection::vec((prop::sample::select(vec![proto::DEST_OPTS, proto::ROUTING, proto::AH]), 0usize..30), 0..4),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        pad in 0usize..200,
        cut in 0usize..400,
    ) {
        let bodies: Vec<(u8, Vec<u8>)> = chain.iter().map(|&(kind, len)| (kind, vec![0; len.max(10)])).collect();
        let extensions: Vec<(u8, &[u8])> = bodies.iter().map(|(kind, body)| (*kind, &body[..])).collect();
        let frame = if v6 {
            Frame::ipv6([1; 8], [2; 8]).extensions(&extensions)
        } else {
            Frame::ipv4([1; 4], [2; 4]).options(&options)
        };
        let frame = tags.iter().fold(frame, |frame, &(kind, tci)| frame.tag(kind, tci)).payload(&payload).pad_to(pad);
        let frame = match shape {
            0 => frame.udp(1, 2),
            1 => frame.tcp(1, 2, 3),
            2 => frame.icmp(8, 0, [0; 4]),
            3 => frame.proto(proto::ESP),
            _ => frame.proto(proto::SCTP),
        };
        let whole = frame.build();
        let empty6 = v6 && extensions.is_empty() && payload.is_empty() && shape > 2;
        prop_assert!(agree(&whole) != empty6);
        agree(&whole[..cut.min(whole.len())]);
        for piece in frame.fragments(32) {
            prop_assert!(agree(&piece));
        }
    }
}
