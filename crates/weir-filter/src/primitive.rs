//! The tests that a filter is made of.

use serde::{Deserialize, Serialize};

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

/// One test of a packet. Offsets depend on how many [`Primitive::Vlan`] stand left of it.
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
    /// `proto`, `ip proto`, `ip6 proto`.
    IpProto {
        /// In which IP version.
        family: IpFamily,
        /// The protocol number (IANA).
        number: u8,
    },
    /// `ether proto`: the EtherType, at least 1536 and not one that libpcap looks for in LLC.
    EtherProto(u16),
}
