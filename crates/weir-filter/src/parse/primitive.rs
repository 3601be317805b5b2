//! Primitives: a word, its qualifiers and the values they apply to.

use std::net::IpAddr;
use std::ops::Range;

use super::qualifiers::{Pname, Qualifiers, protocol};
use super::special::{ether_protocol, ip_protocol, iso_protocol};
use super::{Parsed, Parser, tag};
use crate::arith::Compare;
use crate::error::Why;
use crate::expr::Expr;
use crate::lexer::Kind;
use crate::net::Net;
use crate::primitive::{AnyTest, Family, Group, Primitive, Protocol};
use crate::{value, words};

impl<'a> Parser<'a> {
    /// A term that begins with a word.
    pub(super) fn word(
        &mut self,
        word: &'a str,
        outer: Option<Qualifiers>,
        depth: usize,
    ) -> Parsed {
        if words::is_keyword(word) {
            return self.keyword(word, depth);
        }
        if let Some((scope, name)) = tag(word) {
            return Parsed::leaf(self.tagged(scope, name), None);
        }
        if let Some(qualifiers) = outer {
            return Parsed::leaf(self.single_value(qualifiers), outer);
        }
        let why = if let Some(instead) = words::instead_of(word) {
            Why::NotTaken { word: word.to_owned(), instead }
        } else if value::is_numeric(word) || word.contains(':') || (self.lookup)(word).is_some() {
            Why::BareValue { value: word.to_owned() }
        } else {
            Why::UnknownWord { word: word.to_owned(), nearest: None }
        };
        self.unknown(why)
    }

    /// A word that begins no term, and what belongs to it.
    pub(super) fn unknown(&mut self, why: Why) -> Parsed {
        let bare = matches!(why, Why::BareValue { .. });
        self.error(self.here(), why);
        self.skip();
        // Its value, most likely: no second error for that.
        while let Some(Kind::Word(_) | Kind::Operator(_) | Kind::Compare(_)) = self.peek()
            && !matches!(self.peek(), Some(Kind::Word(next)) if words::is_keyword(next))
        {
            self.skip();
            if bare {
                break;
            }
        }
        self.unknown = (!bare).then_some(self.at);
        Parsed::leaf(Expr::False, None)
    }

    fn keyword(&mut self, word: &'a str, depth: usize) -> Parsed {
        let start = self.here().start;
        match word {
            "true" | "false" => {
                self.skip();
                Parsed::leaf(if word == "true" { Expr::True } else { Expr::False }, None)
            }
            "vlan" | "mpls" | "pppoes" => Parsed::leaf(self.shifting(word), None),
            "pppoed" => {
                let span = self.here();
                self.skip();
                Parsed::leaf(self.made(Primitive::Pppoed, span), None)
            }
            "less" => Parsed::leaf(self.length(Compare::LessOrEqual), None),
            "greater" => Parsed::leaf(self.length(Compare::GreaterOrEqual), None),
            "llc" => Parsed::leaf(self.llc(), None),
            "tos" => Parsed::leaf(self.tos(), None),
            "ingress" => Parsed::leaf(self.ingress(), None),
            "any" => self.any(depth),
            "mask" => {
                self.error(self.here(), Why::NoTerm);
                self.skip();
                Parsed::leaf(Expr::False, None)
            }
            _ => {
                let protocol = protocol(word);
                if protocol.is_some() {
                    self.skip();
                }
                if let Some(Kind::Word(word @ ("broadcast" | "multicast"))) = self.peek() {
                    return Parsed::leaf(self.group(protocol, word, start), None);
                }
                let before = self.at;
                match self.qualifiers(protocol, start) {
                    Some(qualifiers) => self.value(qualifiers, depth),
                    None if before == self.at && protocol.is_some() => {
                        self.protocol_alone(protocol, start)
                    }
                    None => Parsed::leaf(Expr::False, None),
                }
            }
        }
    }

    fn protocol_alone(&mut self, protocol: Option<Pname>, start: usize) -> Parsed {
        let span = self.since(start);
        if let Some(Pname::Protocol(p)) = protocol {
            return Parsed::leaf(self.made(Primitive::Protocol(p), span), None);
        }
        let instead = "`ether host`, `ether src`, `ether dst` or `ether proto` and a value";
        self.error(span, Why::NoValue { instead });
        Parsed::leaf(Expr::False, None)
    }

    /// `broadcast` or `multicast`, behind an optional protocol.
    fn group(&mut self, protocol: Option<Pname>, kind: &'a str, start: usize) -> Expr {
        self.skip();
        let span = self.since(start);
        let primitive = match (protocol, kind) {
            (None | Some(Pname::Ether), "broadcast") => Primitive::Broadcast,
            (None | Some(Pname::Ether), _) => Primitive::Multicast(Group::Ether),
            (Some(Pname::Protocol(Protocol::Ip)), "multicast") => Primitive::Multicast(Group::Ip),
            (Some(Pname::Protocol(Protocol::Ip6)), "multicast") => Primitive::Multicast(Group::Ip6),
            (Some(protocol), "broadcast") => {
                let instead = "`broadcast`, or the address, as in `dst host 10.0.0.255`: there is no interface whose mask could be known";
                let (protocol, kind) = (protocol.word(), "broadcast");
                return self.placeholder(span, Why::Qualifier { protocol, kind, instead });
            }
            (Some(protocol), _) => {
                let (protocol, kind) = (protocol.word(), "multicast");
                let instead = "`ether`, `ip`, `ip6` or nothing before it";
                return self.placeholder(span, Why::Qualifier { protocol, kind, instead });
            }
        };
        self.made(primitive, span)
    }

    /// One value.
    pub(super) fn single_value(&mut self, qualifiers: Qualifiers) -> Expr {
        let span = self.here();
        let word = match self.peek() {
            Some(Kind::Word(word)) if !words::is_keyword(word) => word,
            Some(Kind::Escaped(word)) if qualifiers.takes_protocol() => word,
            // Many things may be missing after qualifiers that are wrong already.
            _ if matches!(qualifiers, Qualifiers::Wrong)
                || self.errors.len() >= super::MAX_ERRORS =>
            {
                return Expr::False;
            }
            _ => {
                let instead = match qualifiers {
                    Qualifiers::Net { .. } | Qualifiers::AnyNet { .. } | Qualifiers::Wrong => {
                        "an address, as in `host 10.0.0.1`"
                    }
                    Qualifiers::Port { is_range: false, .. }
                    | Qualifiers::AnyPort { is_range: false, .. } => {
                        "a port number, as in `port 80`"
                    }
                    Qualifiers::Port { .. } | Qualifiers::AnyPort { .. } => {
                        "two port numbers, as in `portrange 20-21`"
                    }
                    Qualifiers::Ether { .. } => {
                        "an Ethernet address, as in `ether host 02:00:00:00:00:01`"
                    }
                    Qualifiers::Decnet { .. } => "an address, as in `decnet host 10.123`",
                    _ => {
                        "a protocol's number, or its name, as in `ip proto 47` or `ip proto \\tcp`"
                    }
                };
                return self.placeholder(span, Why::NoValue { instead });
            }
        };
        self.skip();
        let result =
            match qualifiers {
                Qualifiers::Net { family, direction, is_net } => self
                    .network(word, is_net)
                    .and_then(|net| fits(family, net))
                    .map(|net| Primitive::Net { family, direction, net }),
                Qualifiers::AnyNet { family, direction, is_net } => self
                    .network(word, is_net)
                    .and_then(|net| fits(family, net))
                    .map(|net| Primitive::Any(AnyTest::Net { family, direction, net })),
                Qualifiers::Port { transport, direction, is_range } => ports(word, is_range)
                    .map(|(first, last)| Primitive::Port { transport, direction, first, last }),
                Qualifiers::AnyPort { transport, direction, is_range } => ports(word, is_range)
                    .map(|(first, last)| {
                        Primitive::Any(AnyTest::Port { transport, direction, first, last })
                    }),
                Qualifiers::Ether { direction } => {
                    value::mac(word).map(|mac| Primitive::Ether { direction, mac })
                }
                Qualifiers::Decnet { direction } => {
                    value::decnet(word).map(|address| Primitive::Decnet { direction, address })
                }
                Qualifiers::IpProto { family } => {
                    ip_number(word).map(|number| Primitive::IpProto { family, number })
                }
                Qualifiers::Chain { family } => {
                    ip_number(word).map(|number| Primitive::Chain { family, number })
                }
                Qualifiers::AnyProto => {
                    ip_number(word).map(|number| Primitive::Any(AnyTest::Protocol(number)))
                }
                Qualifiers::EtherProto => ether_type(word).map(Primitive::EtherProto),
                Qualifiers::IsoProto => named_byte(word, iso_protocol(word), "`iso proto 0x83`")
                    .map(Primitive::IsoProto),
                Qualifiers::IsisProto => {
                    named_byte(word, None, "`isis proto 18`").map(Primitive::IsisProto)
                }
                Qualifiers::Wrong => {
                    self.rest_of_network();
                    return Expr::False;
                }
            };
        match result {
            Ok(primitive) => {
                let span = self.since(span.start);
                self.made(primitive, span)
            }
            Err(why) => self.placeholder(self.since(span.start), why),
        }
    }

    /// The network that `word`, with the length or mask that follows, means.
    fn network(&mut self, word: &'a str, is_net: bool) -> Result<Net, Why> {
        if !value::is_numeric(word) && !word.contains(':') {
            let instead = "the address itself, as in `host 10.0.0.1`, or a name that the policy gives an address";
            let named = (self.lookup)(word).ok_or_else(|| value::name(word, instead));
            return if self.rest_of_network().is_some() { Err(Why::PrefixOnHost) } else { named };
        }
        let rest = self.rest_of_network();
        if rest.is_some() && !is_net {
            return Err(Why::PrefixOnHost);
        }
        // libpcap takes no length after a plain number: in `10/8` it would be a division.
        if rest.is_none()
            && let Some(number) = value::number(word)
        {
            return Ok(value::numeric_net(number, is_net));
        }
        let (address, own_len) = value::dotted(word)?;
        let len = match rest {
            None => own_len,
            Some(Rest::Mask(mask)) => value::mask_len(mask)?,
            Some(Rest::Len(len)) => {
                let wanted = "a prefix length in bits";
                let len =
                    value::at_most(len, 255, wanted, "a number of bits, as in `net 10.0.0.0/8`")?;
                u8::try_from(len).unwrap_or(u8::MAX)
            }
        };
        if rest.is_some() && address.is_ipv4() && !word.contains('.') {
            return Err(Why::Value {
                value: word.to_owned(),
                wanted: "an address that takes a length",
                instead: "all four bytes, as in `net 10.0.0.0/8`",
            });
        }
        Net::new(address, len).map_err(Why::Net)
    }

    /// `/len` or `mask M`, if it stands here.
    fn rest_of_network(&mut self) -> Option<Rest<'a>> {
        let is_len = match self.peek() {
            Some(Kind::Slash) => true,
            Some(Kind::Word("mask")) => false,
            _ => return None,
        };
        self.skip();
        let word = match self.peek() {
            Some(Kind::Word(word)) if !words::is_keyword(word) => {
                self.skip();
                word
            }
            _ => "",
        };
        Some(if is_len { Rest::Len(word) } else { Rest::Mask(word) })
    }

    /// Reports an error and gives something to go on with.
    pub(super) fn placeholder(&mut self, span: Range<usize>, why: Why) -> Expr {
        self.error(span, why);
        Expr::False
    }
}

enum Rest<'a> {
    Len(&'a str),
    Mask(&'a str),
}

/// Refuses an address of another IP version than `family` has.
fn fits(family: Family, net: Net) -> Result<Net, Why> {
    let (wrong, protocol, kind, instead) = match net.address() {
        IpAddr::V4(_) => {
            (family == Family::Ip6, "ip6", "an IPv4 address", "`ip`, or nothing, before it")
        }
        IpAddr::V6(_) => {
            let word = match family {
                Family::Any | Family::Ip6 => "",
                Family::Ip => "ip",
                Family::Arp => "arp",
                Family::Rarp => "rarp",
            };
            (!word.is_empty(), word, "an IPv6 address", "`ip6`, or nothing, before it")
        }
    };
    if wrong { Err(Why::Qualifier { protocol, kind, instead }) } else { Ok(net) }
}

fn ports(word: &str, is_range: bool) -> Result<(u16, u16), Why> {
    if is_range { value::port_range(word) } else { value::port(word).map(|port| (port, port)) }
}

/// A protocol above IP, by number or name.
fn ip_number(word: &str) -> Result<u8, Why> {
    let instead = "a number from 0 to 255, as in `ip proto 47`";
    named_byte(word, ip_protocol(word), instead)
}

fn named_byte(word: &str, named: Option<u8>, instead: &'static str) -> Result<u8, Why> {
    if let Some(number) = named {
        return Ok(number);
    }
    let number = value::at_most(word, 255, "a protocol number", instead)?;
    Ok(u8::try_from(number).unwrap_or(u8::MAX))
}

/// An EtherType, by number or name; up to 1500 the SAP in an LLC frame.
fn ether_type(word: &str) -> Result<u16, Why> {
    let instead = "an EtherType from 0 to 0xffff, as in `ether proto 0x88cc`";
    match ether_protocol(word) {
        Some(number) => Ok(number),
        None => value::at_most(word, u16::MAX, "an EtherType", instead),
    }
}
