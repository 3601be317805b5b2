//! The tests that a filter is made of.

use serde::{Deserialize, Serialize};

use crate::arith::Relation;
use crate::net::{Mac, Net};

/// A protocol that is a primitive by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// EtherType 0x0800.
    Ip,
    /// EtherType 0x86dd.
    Ip6,
    /// EtherType 0x0806.
    Arp,
    /// EtherType 0x8035.
    Rarp,
    /// IP protocol 6, over IPv4 or IPv6.
    Tcp,
    /// IP protocol 17, over IPv4 or IPv6.
    Udp,
    /// IP protocol 132, over IPv4 or IPv6.
    Sctp,
    /// IP protocol 1, over IPv4 only.
    Icmp,
    /// IP protocol 58, over IPv6 only.
    Icmp6,
    /// IP protocol 2, over IPv4 only.
    Igmp,
    /// IP protocol 9, over IPv4 only.
    Igrp,
    /// IP protocol 103, over IPv4 or IPv6.
    Pim,
    /// IP protocol 112, over IPv4 only.
    Vrrp,
    /// IP protocol 112 as well: packets do not tell CARP from VRRP.
    Carp,
    /// IP protocol 51, over IPv4 or IPv6.
    Ah,
    /// IP protocol 50, over IPv4 or IPv6.
    Esp,
    /// AppleTalk: EtherType 0x809b, or the same in SNAP.
    Atalk,
    /// AppleTalk's ARP: EtherType 0x80f3, or the same in SNAP.
    Aarp,
    /// EtherType 0x6003.
    Decnet,
    /// EtherType 0x6004.
    Lat,
    /// EtherType 0x6007.
    Sca,
    /// EtherType 0x6002.
    Moprc,
    /// EtherType 0x6001.
    Mopdl,
    /// OSI: LLC with SAP 0xfe at both ends.
    Iso,
    /// OSI's network layer protocol 0x82.
    Esis,
    /// OSI's network layer protocol 0x81.
    Clnp,
    /// OSI's network layer protocol 0x83.
    Isis,
    /// IS-IS, any PDU of level 1.
    #[serde(rename = "l1")]
    IsisLevel1,
    /// IS-IS, any PDU of level 2.
    #[serde(rename = "l2")]
    IsisLevel2,
    /// IS-IS, hello PDUs.
    #[serde(rename = "iih")]
    IsisHello,
    /// IS-IS, link state PDUs.
    #[serde(rename = "lsp")]
    IsisLinkState,
    /// IS-IS, sequence number PDUs.
    #[serde(rename = "snp")]
    IsisSequence,
    /// IS-IS, complete sequence number PDUs.
    #[serde(rename = "csnp")]
    IsisComplete,
    /// IS-IS, partial sequence number PDUs.
    #[serde(rename = "psnp")]
    IsisPartial,
    /// Spanning tree: LLC with SAP 0x42.
    Stp,
    /// NetWare: EtherType 0x8137, the same in SNAP, LLC with SAP 0xe0, or raw 802.3.
    Ipx,
    /// LLC with SAP 0xf0 at both ends.
    Netbeui,
}

/// The kinds of LLC frames (ISO/IEC 8802-2 §5.3) that `llc` tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcKind {
    /// Information.
    I,
    /// Supervisory, any.
    S,
    /// Unnumbered, any.
    U,
    /// Receiver ready.
    Rr,
    /// Receiver not ready.
    Rnr,
    /// Reject.
    Rej,
    /// Unnumbered information.
    Ui,
    /// Unnumbered acknowledgment.
    Ua,
    /// Disconnect.
    Disc,
    /// Disconnected mode.
    Dm,
    /// Set asynchronous balanced mode extended.
    Sabme,
    /// Test.
    Test,
    /// Exchange identification.
    Xid,
    /// Frame reject.
    Frmr,
}

/// Whose group addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// The destination's group bit (IEEE 802.3 §3.2.3).
    Ether,
    /// IPv4 destinations from 224.0.0.0 on, the classes D and E.
    Ip,
    /// IPv6 destinations in ff00::/8.
    Ip6,
}

impl Network {
    /// Each with its word.
    pub(crate) const WORDS: [(&'static str, Network); 4] = [
        ("ip", Network::Ip),
        ("ip6", Network::Ip6),
        ("arp", Network::Arp),
        ("rarp", Network::Rarp),
    ];

    pub(crate) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, n)| *n == self).map_or("", |(word, _)| *word)
    }

    pub(crate) fn ether_type(self) -> u16 {
        match self {
            Network::Ip => 0x0800,
            Network::Ip6 => 0x86dd,
            Network::Arp => 0x0806,
            Network::Rarp => 0x8035,
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Network::Ip => Family::Ip,
            Network::Ip6 => Family::Ip6,
            Network::Arp => Family::Arp,
            Network::Rarp => Family::Rarp,
        }
    }
}

impl Family {
    /// Whether addresses in `of`, which is none but one, are meant.
    pub(crate) fn takes(self, of: Family) -> bool {
        self == Family::Any || self == of
    }
}

/// What `any …` looks for behind all tags, labels and extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnyTest {
    /// What stands behind tags, labels and PPPoE: `any ip`, `any ip6`, `any arp`, `any rarp`.
    Network(Network),
    /// Addresses there: `any host`, `any src net`.
    Net {
        /// Where the address stands.
        family: Family,
        /// Which address.
        direction: Direction,
        /// The network it must be in.
        net: Net,
    },
    /// The upper-layer protocol: `any tcp`, `any proto 47`.
    Protocol(u8),
    /// Ports of TCP, UDP or SCTP, `first ..= last`: `any tcp dst port 80`.
    Port {
        /// Whose ports.
        transport: Transport,
        /// Which port.
        direction: Direction,
        /// Lowest port.
        first: u16,
        /// Highest port.
        last: u16,
    },
}

/// The protocols that `any` finds by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// ARP.
    Arp,
    /// RARP.
    Rarp,
}

/// Which of a packet's two addresses, or ports, must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The source or the destination (`src or dst`, and what no qualifier means).
    Either,
    /// The source.
    Src,
    /// The destination.
    Dst,
    /// The source and the destination.
    Both,
}

/// In which protocol an address is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4 addresses in IPv4, ARP and RARP; IPv6 addresses in IPv6.
    Any,
    /// IPv4 headers.
    Ip,
    /// IPv6 headers.
    Ip6,
    /// ARP's protocol addresses (RFC 826), taken to be IPv4 in Ethernet.
    Arp,
    /// RARP's protocol addresses (RFC 903), taken to be IPv4 in Ethernet.
    Rarp,
}

/// Which IP version a protocol number is looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpFamily {
    /// IPv4 and IPv6.
    Any,
    /// IPv4.
    Ip,
    /// IPv6: the next header, or the one behind a fragment header.
    Ip6,
}

/// Whose ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP, UDP and SCTP.
    Any,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// One test of a packet. Where it looks depends on the [`Primitive::Vlan`], [`Primitive::Mpls`] and
/// [`Primitive::Pppoes`] left of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Primitive {
    /// `ip`, `tcp`, …
    Protocol(Protocol),
    /// `vlan`, `vlan 5`: the packet has a tag here (with this 12-bit id).
    Vlan {
        /// The VLAN id, at most 4095; `None` for any.
        id: Option<u16>,
    },
    /// `mpls`, `mpls 5`: the packet has a label here.
    Mpls {
        /// The label, at most 2^20 - 1; `None` for any.
        label: Option<u32>,
    },
    /// `pppoed`: PPPoE discovery (RFC 2516).
    Pppoed,
    /// `pppoes`, `pppoes 7`: a PPPoE session's packet (RFC 2516).
    Pppoes {
        /// The session's number; `None` for any.
        session: Option<u16>,
    },
    /// `host`, `net`.
    Net {
        /// Where the address stands.
        family: Family,
        /// Which address.
        direction: Direction,
        /// The network it must be in. One of the other IP version than `family` never matches.
        net: Net,
    },
    /// `port`, `portrange`: `first ..= last`.
    Port {
        /// Whose ports.
        transport: Transport,
        /// Which port.
        direction: Direction,
        /// Lowest port.
        first: u16,
        /// Highest port.
        last: u16,
    },
    /// `ether host`.
    Ether {
        /// Which address.
        direction: Direction,
        /// The address.
        mac: Mac,
    },
    /// `decnet host`: an address of DECnet phase IV, its area in the upper six bits.
    Decnet {
        /// Which address.
        direction: Direction,
        /// The address.
        address: u16,
    },
    /// `proto`, `ip proto`, `ip6 proto`.
    IpProto {
        /// In which IP version.
        family: IpFamily,
        /// The protocol number (IANA).
        number: u8,
    },
    /// `protochain`: a header of this protocol anywhere in the chain of headers.
    Chain {
        /// In which IP version.
        family: IpFamily,
        /// The protocol number (IANA).
        number: u8,
    },
    /// `ether proto`: the EtherType; up to 1500 the SAP in an LLC frame.
    EtherProto(u16),
    /// `iso proto`: OSI's network layer protocol.
    IsoProto(u8),
    /// `isis proto`: the type of an IS-IS PDU.
    IsisProto(u8),
    /// `llc`, `llc ui`: an LLC frame (of this kind).
    Llc(Option<LlcKind>),
    /// `broadcast`: the Ethernet destination is ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// `multicast`, `ip multicast`, `ip6 multicast`.
    Multicast(Group),
    /// `tos N` (E2, figure 16): IPv4's type of service, or IPv6's traffic class.
    Tos(u8),
    /// `any tcp`: looks through what libpcap does not.
    Any(AnyTest),
    /// `tcp[13] & 2 != 0`: a comparison of numbers.
    Relation(Relation),
}
