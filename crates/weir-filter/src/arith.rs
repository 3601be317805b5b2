//! Numbers in filters: `ip[6:2] & 0x1fff = 0`.

use serde::{Deserialize, Serialize};

use crate::primitive::Protocol;

/// A comparison of two numbers, both unsigned of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Relation {
    /// What stands left.
    pub left: Arith,
    /// How it must compare.
    pub compare: Compare,
    /// What stands right.
    pub right: Arith,
}

/// How two numbers must compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A number: unsigned, of 32 bits, and wrapping as libpcap's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arith {
    /// A constant.
    Number(u32),
    /// `len`: the packet's length in bytes.
    Len,
    /// `tcp[13]`, `ip[2:2]`: big-endian bytes of a header.
    Load {
        /// Whose header.
        header: Header,
        /// The first byte, counted from the header's begin.
        at: Box<Arith>,
        /// How many bytes: 1, 2 or 4.
        size: Size,
    },
    /// `-x`
    Negate(Box<Arith>),
    /// `x + y` and the like.
    Binary {
        /// What is worked out.
        operator: Operator,
        /// What stands left.
        left: Box<Arith>,
        /// What stands right.
        right: Box<Arith>,
    },
}

/// How many bytes a load takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// One.
    One,
    /// Two.
    Two,
    /// Four.
    Four,
}

impl Size {
    /// The number of bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Size::One => 1,
            Size::Two => 2,
            Size::Four => 4,
        }
    }
}

/// Whose bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Header {
    /// The link layer's header: Ethernet's, or PPP's behind `pppoes`.
    Ether,
    /// The header of a protocol that [`Header::of`] knows.
    Protocol(Protocol),
}

/// Where a protocol's header begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The network layer's.
    Network,
    /// Behind the IPv4 header, in first fragments.
    Behind4,
    /// Behind the fixed IPv6 header.
    Behind6,
}

impl Header {
    /// The header of `protocol`, if libpcap can look into it.
    #[must_use]
    pub fn of(protocol: Protocol) -> Option<Header> {
        start(protocol).map(|_| Header::Protocol(protocol))
    }
}

/// Where the header of `protocol` begins; `None` when libpcap cannot look into it.
pub(crate) fn start(protocol: Protocol) -> Option<Start> {
    use Protocol as P;
    Some(match protocol {
        P::Ip
        | P::Ip6
        | P::Arp
        | P::Rarp
        | P::Atalk
        | P::Decnet
        | P::Lat
        | P::Sca
        | P::Moprc
        | P::Mopdl => Start::Network,
        P::Tcp | P::Udp | P::Sctp | P::Icmp | P::Igmp | P::Igrp | P::Pim | P::Vrrp | P::Carp => {
            Start::Behind4
        }
        P::Icmp6 => Start::Behind6,
        _ => return None,
    })
}

/// What two numbers are made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; by zero the term is false.
    Divide,
    /// `%`; by zero the term is false.
    Modulo,
    /// `&`
    And,
    /// `|`
    Or,
    /// `^`
    Xor,
    /// `<<`; by 32 or more it gives 0.
    ShiftLeft,
    /// `>>`; by 32 or more it gives 0.
    ShiftRight,
}

impl Operator {
    /// How it is written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
            Operator::And => "&",
            Operator::Or => "|",
            Operator::Xor => "^",
            Operator::ShiftLeft => "<<",
            Operator::ShiftRight => ">>",
        }
    }
}

impl Compare {
    /// How it is written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Compare::Equal => "=",
            Compare::NotEqual => "!=",
            Compare::Less => "<",
            Compare::LessOrEqual => "<=",
            Compare::Greater => ">",
            Compare::GreaterOrEqual => ">=",
        }
    }
}

/// The names that libpcap gives to numbers.
pub(crate) const NAMED: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
];

/// The names that libpcap has for numbers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMED.iter().map(|(name, _)| *name)
}

/// The number that libpcap calls `name`.
pub(crate) fn named(name: &str) -> Option<u32> {
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
