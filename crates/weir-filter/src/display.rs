//! Printing a filter as canonical text, which parses to the same filter again.

use std::fmt::{self, Display, Formatter, Write};

use crate::arith::{Arith, Compare, Header, Relation, Size};
use crate::expr::{Expr, SlotTest, TagTest};
use crate::primitive::{
    AnyTest, Direction, Family, Group, IpFamily, LlcKind, Primitive, Protocol, Transport,
};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::True => f.write_str("true"),
            Expr::False => f.write_str("false"),
            Expr::Primitive(p) => p.fmt(f),
            Expr::Tag { scope, name } => write!(f, "{scope}.{name}"),
            Expr::TagIs { scope, name, test: TagTest::Number { compare, value } } => {
                write!(f, "{scope}.{name} {} {value}", symbol(*compare))
            }
            Expr::TagIs { scope, name, test: TagTest::Matches(pattern) } => {
                write!(f, "{scope}.{name} ~ \"{}\"", quoted(pattern))
            }
            Expr::TagIs { scope, name, test: TagTest::Flag } => write!(f, "{scope}.{name}"),
            Expr::Slot(SlotTest { slot, mask, first, last }) => {
                write!(f, "slot {slot} & {mask:#x} in {first:#x}-{last:#x}")
            }
            Expr::Ingress { first, last } if first == last => write!(f, "ingress == {first}"),
            Expr::Ingress { first, last } => write!(f, "ingress == {first}-{last}"),
            Expr::Not(inner) => {
                f.write_str("not ")?;
                operand(inner, f)
            }
            Expr::And(list) => join(list, " and ", "true", f),
            Expr::Or(list) => join(list, " or ", "false", f),
        }
    }
}

fn join(list: &[Expr], operator: &str, empty: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if list.is_empty() {
        return f.write_str(empty);
    }
    for (i, e) in list.iter().enumerate() {
        if i > 0 {
            f.write_str(operator)?;
        }
        operand(e, f)?;
    }
    Ok(())
}

/// `and` and `or` bind equally, so each list in another gets its brackets: nobody has to know.
fn operand(expr: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
    if matches!(expr, Expr::And(_) | Expr::Or(_)) { write!(f, "({expr})") } else { expr.fmt(f) }
}

/// Of tags `==` is written, to tell them from numbers in the packet.
fn symbol(compare: Compare) -> &'static str {
    if compare == Compare::Equal { "==" } else { compare.symbol() }
}

/// With a backslash before each quote that has none.
fn quoted(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(chars.next());
            }
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.compare.symbol(), self.right)
    }
}

impl Display for Arith {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arith::Number(n) => write!(f, "{n}"),
            Arith::Len => f.write_str("len"),
            Arith::Load { header, at, size } => {
                let word = match header {
                    Header::Ether => "ether",
                    Header::Protocol(p) => p.word(),
                };
                match size {
                    Size::One => write!(f, "{word}[{at}]"),
                    size => write!(f, "{word}[{at}:{}]", size.bytes()),
                }
            }
            Arith::Negate(inner) => {
                f.write_char('-')?;
                number(inner, f)
            }
            Arith::Binary { operator, left, right } => {
                number(left, f)?;
                write!(f, " {} ", operator.symbol())?;
                number(right, f)
            }
        }
    }
}

/// How operators bind is libpcap's own (`%` and `^` take all that follows): brackets leave no doubt.
fn number(number: &Arith, f: &mut Formatter<'_>) -> fmt::Result {
    match number {
        Arith::Binary { .. } | Arith::Negate(_) => write!(f, "({number})"),
        plain => plain.fmt(f),
    }
}

impl Display for AnyTest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AnyTest::Network(network) => write!(f, "any {}", network.word()),
            AnyTest::Net { family, direction, net } => {
                let (family, direction, net) = (*family, *direction, *net);
                write!(f, "any {}", Primitive::Net { family, direction, net })
            }
            AnyTest::Protocol(number) => write!(f, "any proto {number}"),
            AnyTest::Port { transport, direction, first, last } => {
                let ports = Primitive::Port {
                    transport: *transport,
                    direction: *direction,
                    first: *first,
                    last: *last,
                };
                write!(f, "any {ports}")
            }
        }
    }
}

impl Display for Primitive {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Protocol(p) => f.write_str(p.word()),
            Primitive::Vlan { id: None } => f.write_str("vlan"),
            Primitive::Vlan { id: Some(id) } => write!(f, "vlan {id}"),
            Primitive::Mpls { label: None } => f.write_str("mpls"),
            Primitive::Mpls { label: Some(label) } => write!(f, "mpls {label}"),
            Primitive::Pppoed => f.write_str("pppoed"),
            Primitive::Pppoes { session: None } => f.write_str("pppoes"),
            Primitive::Pppoes { session: Some(session) } => write!(f, "pppoes {session}"),
            Primitive::Net { family, direction, net } => {
                word(family.word(), f)?;
                word(direction.word(), f)?;
                write!(f, "{} {net}", if net.is_host() { "host" } else { "net" })
            }
            Primitive::Port { transport, direction, first, last } => {
                word(transport.word(), f)?;
                word(direction.word(), f)?;
                if first == last {
                    write!(f, "port {first}")
                } else {
                    write!(f, "portrange {first}-{last}")
                }
            }
            Primitive::Ether { direction, mac } => {
                f.write_str("ether ")?;
                word(direction.word(), f)?;
                write!(f, "host {mac}")
            }
            Primitive::IpProto { family, number } => {
                word(family.word(), f)?;
                write!(f, "proto {number}")
            }
            Primitive::Chain { family, number } => {
                word(family.word(), f)?;
                write!(f, "protochain {number}")
            }
            Primitive::Decnet { direction, address } => {
                f.write_str("decnet ")?;
                word(direction.word(), f)?;
                write!(f, "host {}.{}", address >> 10, address & 0x03ff)
            }
            Primitive::EtherProto(number) => write!(f, "ether proto {number:#06x}"),
            Primitive::IsoProto(number) => write!(f, "iso proto {number:#04x}"),
            Primitive::IsisProto(number) => write!(f, "isis proto {number}"),
            Primitive::Llc(None) => f.write_str("llc"),
            Primitive::Llc(Some(kind)) => write!(f, "llc {}", kind.word()),
            Primitive::Broadcast => f.write_str("ether broadcast"),
            Primitive::Multicast(Group::Ether) => f.write_str("ether multicast"),
            Primitive::Multicast(Group::Ip) => f.write_str("ip multicast"),
            Primitive::Multicast(Group::Ip6) => f.write_str("ip6 multicast"),
            Primitive::Tos(tos) => write!(f, "tos {tos}"),
            Primitive::Any(test) => test.fmt(f),
            Primitive::Relation(relation) => relation.fmt(f),
        }
    }
}

/// libpcap's words for the link layer, which are all one.
pub(crate) fn is_link(word: &str) -> bool {
    matches!(word, "ether" | "link" | "fddi" | "tr" | "wlan" | "ppp" | "slip")
}

fn word(word: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if word.is_empty() {
        return Ok(());
    }
    f.write_str(word)?;
    f.write_char(' ')
}

impl Protocol {
    /// Every protocol and its word.
    pub(crate) const WORDS: &'static [(&'static str, Protocol)] = &[
        ("ip", Protocol::Ip),
        ("ip6", Protocol::Ip6),
        ("arp", Protocol::Arp),
        ("rarp", Protocol::Rarp),
        ("tcp", Protocol::Tcp),
        ("udp", Protocol::Udp),
        ("sctp", Protocol::Sctp),
        ("icmp", Protocol::Icmp),
        ("icmp6", Protocol::Icmp6),
        ("igmp", Protocol::Igmp),
        ("igrp", Protocol::Igrp),
        ("pim", Protocol::Pim),
        ("vrrp", Protocol::Vrrp),
        ("carp", Protocol::Carp),
        ("ah", Protocol::Ah),
        ("esp", Protocol::Esp),
        ("atalk", Protocol::Atalk),
        ("aarp", Protocol::Aarp),
        ("decnet", Protocol::Decnet),
        ("lat", Protocol::Lat),
        ("sca", Protocol::Sca),
        ("moprc", Protocol::Moprc),
        ("mopdl", Protocol::Mopdl),
        ("iso", Protocol::Iso),
        ("esis", Protocol::Esis),
        ("clnp", Protocol::Clnp),
        ("isis", Protocol::Isis),
        ("l1", Protocol::IsisLevel1),
        ("l2", Protocol::IsisLevel2),
        ("iih", Protocol::IsisHello),
        ("lsp", Protocol::IsisLinkState),
        ("snp", Protocol::IsisSequence),
        ("csnp", Protocol::IsisComplete),
        ("psnp", Protocol::IsisPartial),
        ("stp", Protocol::Stp),
        ("ipx", Protocol::Ipx),
        ("netbeui", Protocol::Netbeui),
    ];

    pub(crate) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, p)| *p == self).map_or("", |(word, _)| *word)
    }
}

impl LlcKind {
    /// Every kind and its word.
    pub(crate) const WORDS: &'static [(&'static str, LlcKind)] = &[
        ("i", LlcKind::I),
        ("s", LlcKind::S),
        ("u", LlcKind::U),
        ("rr", LlcKind::Rr),
        ("rnr", LlcKind::Rnr),
        ("rej", LlcKind::Rej),
        ("ui", LlcKind::Ui),
        ("ua", LlcKind::Ua),
        ("disc", LlcKind::Disc),
        ("dm", LlcKind::Dm),
        ("sabme", LlcKind::Sabme),
        ("test", LlcKind::Test),
        ("xid", LlcKind::Xid),
        ("frmr", LlcKind::Frmr),
    ];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, k)| *k == self).map_or("", |(word, _)| *word)
    }
}

impl Direction {
    /// Its qualifier; empty for the one that is meant without.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Direction::Either => "",
            Direction::Src => "src",
            Direction::Dst => "dst",
            Direction::Both => "src and dst",
        }
    }
}

impl Family {
    fn word(self) -> &'static str {
        match self {
            Family::Any => "",
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
            Family::Arp => "arp",
            Family::Rarp => "rarp",
        }
    }
}

impl IpFamily {
    fn word(self) -> &'static str {
        match self {
            IpFamily::Any => "",
            IpFamily::Ip => "ip",
            IpFamily::Ip6 => "ip6",
        }
    }
}

impl Transport {
    fn word(self) -> &'static str {
        match self {
            Transport::Any => "",
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        }
    }
}
