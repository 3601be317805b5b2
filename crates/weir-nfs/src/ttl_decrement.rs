//! Counts hops down, as a router does.

use schemars::JsonSchema;
use serde::Deserialize;
use weir_nf::checksum::update_u16;
use weir_nf::headers::proto;
use weir_nf::{
    Bytes, ConfigError, Ctx, Depth, Descriptor, Effect, Env, Field, L3, LayerAccess, Nf, Packets,
    Pkt, ReadWrite, Touch,
};

/// Takes one from the TTL (IPv6: hop limit) of every IP packet, and corrects the IPv4 header's checksum.
///
/// *Outputs:* `out`; `expired`, packets that have no hop left; `too_big`, packets longer than `mtu` that may
/// not be fragmented (IPv4 with DF, all of IPv6): both untouched, for IcmpError; `other`, what is not
/// IP, or is cut inside its IP header, and what no router forwards since it belongs to one link
/// (neighbour discovery, link-local addresses and groups, limited broadcast), untouched. *Config:* `mtu` of the next hop in bytes (from the IP
/// header on, at least 1280); without it nothing is too big. IPv4 packets without DF pass whatever their length: it
/// does not fragment. *Source:* RFC 1812 §5.3.1 and §4.2.2.7, RFC 8200 §3 and §5, RFC 1624 (checksum),
/// RFC 1191, RFC 8201; of one link: RFC 1812 §5.3.5.1, RFC 3927 §2.7, RFC 5771 §4, RFC 4291 §2.5.2,
/// §2.5.6 and §2.7, RFC 4861 §6.1 and §7.1.
#[derive(Debug)]
pub struct TtlDecrement {
    mtu: usize,
}

/// Configuration of [`TtlDecrement`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Most bytes that the next hop takes, from the IP header on; at least 1280. Without it: any number.
    #[serde(default)]
    #[schemars(range(min = LEAST_MTU))]
    pub mtu: Option<u16>,
}

/// The least MTU that IPv6 works with, in bytes (RFC 8200 §5).
pub const LEAST_MTU: u16 = 1280;

/// Refuses an MTU that is none.
pub(crate) fn check_mtu(mtu: u16) -> Result<u16, ConfigError> {
    if mtu < LEAST_MTU {
        let why = format!("{mtu} is less than {LEAST_MTU}, which every IPv6 link must carry");
        return Err(ConfigError { at: "/mtu".to_owned(), why });
    }
    Ok(mtu)
}

const EXPIRED: u8 = 1;
const TOO_BIG: u8 = 2;
const OTHER: u8 = 3;
/// Don't fragment.
const DF: u16 = 0x4000;

/// True for an IPv4 packet that stays on its link: from or to a link-local address, to the local
/// network control block or to all hosts.
#[inline]
fn is_of_link_v4<B: Bytes>(bytes: &B, l3: usize) -> bool {
    let (Some(src), Some(dst)) = (bytes.be32(l3 + 12), bytes.be32(l3 + 16)) else { return false };
    src >> 16 == 0xa9fe || dst >> 16 == 0xa9fe || dst >> 8 == 0x00e0_0000 || dst == u32::MAX
}

/// True for an IPv6 packet that stays on its link: from or to a link-local address, to a group on
/// the link or the interface, from nowhere, or of neighbour discovery, whose receivers drop what
/// has lost a hop.
#[inline]
fn is_of_link_v6<B: Bytes>(bytes: &B, l3: usize, hop_limit: u8) -> bool {
    let (Some(src), Some(dst)) = (bytes.be16(l3 + 8), bytes.be16(l3 + 24)) else { return false };
    let link_local = |address: u16| address & 0xffc0 == 0xfe80;
    if link_local(src) || link_local(dst) {
        return true;
    }
    let group_on_link = dst >> 8 == 0xff && matches!(dst & 15, 1 | 2);
    let unspecified = || src == 0 && (1..8).all(|word| bytes.be16(l3 + 8 + 2 * word) == Some(0));
    let discovery = || {
        hop_limit == 255
            && bytes.u8(l3 + 6) == Some(proto::ICMPV6)
            && bytes.u8(l3 + 40).is_some_and(|kind| (133..=137).contains(&kind))
    };
    group_on_link || unspecified() || discovery()
}

impl TtlDecrement {
    /// Where the packet goes; `None` once its hop is counted.
    #[inline]
    fn forward(&self, packet: &mut Pkt<'_, ReadWrite>) -> Option<u8> {
        let layers = packet.layers(Depth::L2);
        let (bytes, l3) = (packet.bytes(), usize::from(layers.l3));
        let (Some(ttl), Some(first)) = (layers.ttl(&bytes), bytes.u8(l3)) else {
            return Some(OTHER);
        };
        let v4 = layers.kind == L3::Ipv4;
        // A whole header of the version that the frame says: what is none has no TTL to count.
        let (version, header) = if v4 { (4, usize::from(first & 15) * 4) } else { (6, 40) };
        if first >> 4 != version || header < 20 || bytes.len() < l3 + header {
            return Some(OTHER);
        }
        let (length, whole) = match v4 {
            true => (bytes.be16(l3 + 2).map(usize::from), bytes.be16(l3 + 6).map(|w| w & DF != 0)),
            false => (bytes.be16(l3 + 4).map(|n| 40 + usize::from(n)), Some(true)),
        };
        let (Some(length), Some(whole)) = (length, whole) else { return Some(OTHER) };
        let of_link = if v4 { is_of_link_v4(&bytes, l3) } else { is_of_link_v6(&bytes, l3, ttl) };
        if of_link {
            return Some(OTHER);
        }
        if ttl <= 1 {
            return Some(EXPIRED);
        }
        if length > self.mtu && whole {
            return Some(TOO_BIG);
        }
        if v4 {
            let (Some(old), Some(check)) = (bytes.be16(l3 + 8), bytes.be16(l3 + 10)) else {
                return Some(OTHER);
            };
            let new = old - 0x100;
            let mut bytes = packet.bytes_mut()?;
            bytes.set_ne16(l3 + 8, new.to_be());
            bytes.set_ne16(l3 + 10, update_u16(check, old, new).to_be());
        } else {
            packet.bytes_mut()?.set_ne8(l3 + 7, ttl - 1);
        }
        None
    }
}

impl Nf for TtlDecrement {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "TtlDecrement",
        summary: "Counts down TTL and hop limit; expired and too big packets go ways of their own",
        outputs: &["out", "expired", "too_big", "other"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Write,
            l4: Touch::Read,
            ..LayerAccess::NONE
        },
        fields: &[
            (Field::EthType, Touch::Read),
            (Field::Vlan, Touch::Read),
            (Field::IpSrc, Touch::Read),
            (Field::IpDst, Touch::Read),
            (Field::IpTtl, Touch::Write),
            (Field::IpProto, Touch::Read),
            (Field::IpLength, Touch::Read),
            (Field::IpOther, Touch::Read),
        ],
        // Not idempotent: twice is two hops.
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 30,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = Config;
    type Flow = ();
    type Shared = ();

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let mtu = config.mtu.map(check_mtu).transpose()?;
        Ok(TtlDecrement { mtu: mtu.map_or(usize::MAX, usize::from) })
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            if let Some(output) = self.forward(&mut packet) {
                packet.send(output);
            }
        }
    }
}

weir_nf::register!(TtlDecrement);
