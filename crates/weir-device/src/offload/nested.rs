//! Finding the packet that an interface was left work on: the outermost one, or one in tunnels.
//!
//! What an interface is told says where that packet's transport header begins, not what is around it.
//! So the way there is looked for, and only one is taken on which each length fits: what is inside
//! fills what is around it.

use super::OffloadError;
use weir_packet::headers::{ether_type, proto};
use weir_packet::{Begins, Bytes, Depth, Fragment, Layers, parse, parse_at};

/// Most packets around the one that is looked for. The kernel itself has interfaces finish what goes through one tunnel.
const MOST_AROUND: usize = 2;

/// A packet, and those around it. All offsets count from the start of the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nested {
    pub(super) inner: Layers,
    around: [Layers; MOST_AROUND],
    count: usize,
}

impl Nested {
    /// The packet whose transport header begins at `start`; if that is not said, the outermost.
    pub(super) fn find(frame: &[u8], start: Option<u16>) -> Result<Self, OffloadError> {
        let inner = parse(frame, Depth::L4);
        let outermost = Nested { inner, around: Default::default(), count: 0 };
        outermost.descend(frame, start.unwrap_or(inner.l4))
    }

    /// The packets around it, outermost first.
    pub(super) fn around(&self) -> &[Layers] {
        self.around.get(..self.count).unwrap_or_default()
    }

    fn descend(self, frame: &[u8], start: u16) -> Result<Self, OffloadError> {
        let layers = self.inner;
        whole(&layers)?;
        if layers.l4 == start {
            return Ok(self);
        }
        let ways = ways(frame, &layers);
        if ways.iter().all(Option::is_none) {
            return Err(OffloadError::ChecksumPlace);
        }
        let mut deeper = self;
        let free = deeper.around.get_mut(self.count).ok_or(OffloadError::Tunnel)?;
        *free = layers;
        deeper.count += 1;
        let bytes = frame.get(..usize::from(layers.end)).ok_or(OffloadError::Tunnel)?;
        for (at, begins) in ways.into_iter().flatten() {
            deeper.inner = parse_at(bytes, at, begins, Depth::L4);
            let fills = deeper.inner.end == layers.end;
            if let Some(found) = fills.then(|| deeper.descend(frame, start).ok()).flatten() {
                return Ok(found);
            }
        }
        Err(OffloadError::Tunnel)
    }
}

/// Nothing of the packet is missing, and its headers are sound.
fn whole(layers: &Layers) -> Result<(), OffloadError> {
    if layers.fragment() != Fragment::Whole || layers.fragment_header != 0 {
        return Err(OffloadError::Fragment);
    }
    if !layers.is_ip() || layers.is_truncated() || layers.fault.is_some() {
        return Err(OffloadError::Headers);
    }
    Ok(())
}

/// What may begin inside a packet, and where.
type Way = (usize, Begins);

/// All ways on from a packet; none if it is not known to carry packets.
fn ways(frame: &[u8], layers: &Layers) -> [Option<Way>; 3] {
    let l4 = usize::from(layers.l4);
    match layers.proto {
        proto::IPIP | proto::IPV6 => [Some((l4, Begins::Ip)), None, None],
        proto::GRE => [gre(frame, l4), None, None],
        proto::UDP if frame.be16(l4 + 4) == Some(layers.end.saturating_sub(layers.l4)) => {
            // Ports may be any: what is inside tells.
            let at = usize::from(layers.payload);
            let bare = frame.u8(at).filter(|first| matches!(first >> 4, 4 | 6));
            [vxlan(frame, at), geneve(frame, at), bare.map(|_| (at, Begins::Ip))]
        }
        _ => [None; 3],
    }
}

/// What an EtherType in a tunnel's header announces.
fn begins(kind: u16) -> Option<Begins> {
    match kind {
        ether_type::IPV4 | ether_type::IPV6 => Some(Begins::Ip),
        ether_type::TRANSPARENT_ETHERNET => Some(Begins::Ethernet),
        _ => None,
    }
}

/// True when the GRE header at `at` has a checksum.
pub(super) fn gre_has_checksum(frame: &[u8], at: usize) -> bool {
    frame.u8(at).is_some_and(|flags| flags & GRE_CHECKSUM != 0)
}

const GRE_CHECKSUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;

/// RFC 2784 and 2890. Not where packets have numbers: each piece would need one that nobody else uses.
fn gre(frame: &[u8], at: usize) -> Option<Way> {
    let [flags, version, a, b] = frame.array(at)?;
    if flags & !(GRE_CHECKSUM | GRE_KEY) != 0 || version != 0 {
        return None;
    }
    let words = 1 + (flags & (GRE_CHECKSUM | GRE_KEY)).count_ones() as usize;
    Some((at + 4 * words, begins(u16::from_be_bytes([a, b]))?))
}

/// RFC 7348, and its extension that says what is inside (draft-ietf-nvo3-vxlan-gpe).
fn vxlan(frame: &[u8], at: usize) -> Option<Way> {
    const HAS_ID: u8 = 0x08;
    const SAYS_NEXT: u8 = 0x04;
    let [flags, _, _, next] = frame.array(at)?;
    let begins = match (flags & HAS_ID != 0, flags & SAYS_NEXT != 0, next) {
        (true, false, _) | (true, true, 3) => Begins::Ethernet,
        (true, true, 1 | 2) => Begins::Ip,
        _ => return None,
    };
    Some((at + 8, begins))
}

/// RFC 8926.
fn geneve(frame: &[u8], at: usize) -> Option<Way> {
    let [version_and_words, _, a, b] = frame.array(at)?;
    if version_and_words >> 6 != 0 {
        return None;
    }
    let options = usize::from(version_and_words) * 4;
    Some((at + 8 + options, begins(u16::from_be_bytes([a, b]))?))
}
