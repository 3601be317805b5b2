//! Printing a filter as canonical text, which parses to the same filter again.

use std::fmt::{self, Display, Formatter, Write};

use crate::expr::Expr;
use crate::primitive::{Direction, Family, IpFamily, Primitive, Protocol, Transport};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::True => f.write_str("true"),
            Expr::False => f.write_str("false"),
            Expr::Primitive(p) => p.fmt(f),
            Expr::Tag { scope, name } => write!(f, "{scope}.{name}"),
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

impl Display for Primitive {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Protocol(p) => f.write_str(p.word()),
            Primitive::Vlan { id: None } => f.write_str("vlan"),
            Primitive::Vlan { id: Some(id) } => write!(f, "vlan {id}"),
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
            Primitive::EtherProto(number) => write!(f, "ether proto {number:#06x}"),
        }
    }
}

fn word(word: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if word.is_empty() {
        return Ok(());
    }
    f.write_str(word)?;
    f.write_char(' ')
}

impl Protocol {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Protocol::Ip => "ip",
            Protocol::Ip6 => "ip6",
            Protocol::Arp => "arp",
            Protocol::Rarp => "rarp",
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
            Protocol::Icmp => "icmp",
            Protocol::Icmp6 => "icmp6",
        }
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
