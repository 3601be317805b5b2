//! Primitives: a word, its qualifiers and the values they apply to.

use std::net::IpAddr;
use std::ops::Range;

use super::qualifiers::{Pname, Qualifiers, protocol};
use super::{Parsed, Parser, tag};
use crate::error::Why;
use crate::expr::Expr;
use crate::lexer::Kind;
use crate::net::Net;
use crate::primitive::{Family, Primitive};
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
            self.skip();
            return Parsed::leaf(
                Expr::Tag { scope: scope.to_owned(), name: name.to_owned() },
                None,
            );
        }
        if let Some(qualifiers) = outer {
            return Parsed::leaf(self.single_value(qualifiers), outer);
        }
        let why = if let Some(instead) = words::instead_of(word) {
            Why::NotTaken { word: word.to_owned(), instead }
        } else if value::is_numeric(word) || word.contains(':') || (self.lookup)(word).is_some() {
            Why::BareValue { value: word.to_owned() }
        } else {
            Why::UnknownWord { word: word.to_owned(), nearest: words::nearest(word) }
        };
        self.error(self.here(), why);
        self.skip();
        if let Some(Kind::Word(next)) = self.peek()
            && !words::is_keyword(next)
        {
            // Its value, most likely: no second error for that.
            self.skip();
        }
        Parsed::leaf(Expr::False, None)
    }

    fn keyword(&mut self, word: &'a str, depth: usize) -> Parsed {
        let start = self.here().start;
        match word {
            "true" | "false" => {
                self.skip();
                Parsed::leaf(if word == "true" { Expr::True } else { Expr::False }, None)
            }
            "vlan" => {
                self.skip();
                Parsed::leaf(self.vlan(), None)
            }
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
        if let Some(Pname::Protocol(p)) = protocol {
            return Parsed::leaf(Primitive::Protocol(p).into(), None);
        }
        let instead = "`ether host`, `ether src`, `ether dst` or `ether proto` and a value";
        self.error(self.since(start), Why::NoValue { instead });
        Parsed::leaf(Expr::False, None)
    }

    /// The id after `vlan`, which may stand in brackets.
    fn vlan(&mut self) -> Expr {
        let mut brackets = 0_usize;
        while self.peek_after(brackets) == Some(Kind::Open) {
            brackets = brackets.saturating_add(1);
        }
        let id = match self.peek_after(brackets) {
            Some(Kind::Word(word)) if value::is_numeric(word) => word,
            _ => return Primitive::Vlan { id: None }.into(),
        };
        let open = self.here();
        self.at = self.at.saturating_add(brackets);
        let span = self.here();
        self.skip();
        for _ in 0..brackets {
            self.close(open.clone());
        }
        match value::at_most(id, 4095, "a VLAN id", "a number from 0 to 4095") {
            Ok(id) => Primitive::Vlan { id: Some(id) }.into(),
            Err(why) => self.placeholder(span, why),
        }
    }

    /// One value.
    pub(super) fn single_value(&mut self, qualifiers: Qualifiers) -> Expr {
        let span = self.here();
        let word = match self.peek() {
            Some(Kind::Word(word)) if !words::is_keyword(word) => word,
            // Many things may be missing after qualifiers that are wrong already.
            _ if matches!(qualifiers, Qualifiers::Wrong)
                || self.errors.len() >= super::MAX_ERRORS =>
            {
                return Expr::False;
            }
            _ => {
                let instead = match qualifiers {
                    Qualifiers::Net { .. } | Qualifiers::Wrong => {
                        "an address, as in `host 10.0.0.1`"
                    }
                    Qualifiers::Port { is_range: false, .. } => "a port number, as in `port 80`",
                    Qualifiers::Port { .. } => "two port numbers, as in `portrange 20-21`",
                    Qualifiers::Ether { .. } => {
                        "an Ethernet address, as in `ether host 02:00:00:00:00:01`"
                    }
                    Qualifiers::IpProto { .. } | Qualifiers::EtherProto => {
                        "a protocol number, as in `ip proto 47`"
                    }
                };
                return self.placeholder(span, Why::NoValue { instead });
            }
        };
        self.skip();
        let result = match qualifiers {
            Qualifiers::Net { family, direction, is_net } => self
                .network(word, is_net)
                .and_then(|net| fits(family, net))
                .map(|net| Primitive::Net { family, direction, net }),
            Qualifiers::Port { transport, direction, is_range } => {
                let range = if is_range {
                    value::port_range(word)
                } else {
                    value::port(word).map(|p| (p, p))
                };
                range.map(|(first, last)| Primitive::Port { transport, direction, first, last })
            }
            Qualifiers::Ether { direction } => {
                value::mac(word).map(|mac| Primitive::Ether { direction, mac })
            }
            Qualifiers::IpProto { family } => value::at_most(
                word,
                255,
                "an IP protocol number",
                "a number from 0 to 255, as in `ip proto 47`",
            )
            .map(|n| Primitive::IpProto { family, number: u8::try_from(n).unwrap_or(u8::MAX) }),
            Qualifiers::EtherProto => ether_type(word).map(Primitive::EtherProto),
            Qualifiers::Wrong => {
                self.rest_of_network();
                return Expr::False;
            }
        };
        match result {
            Ok(primitive) => primitive.into(),
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
    fn placeholder(&mut self, span: Range<usize>, why: Why) -> Expr {
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

/// An EtherType. Below 1536 the field is a length (IEEE 802.3 §3.2.6), and for AppleTalk's two types
/// libpcap looks behind an LLC header: neither is taken.
fn ether_type(word: &str) -> Result<u16, Why> {
    let instead = "an EtherType from 0x600 to 0xffff, as in `ether proto 0x88cc`";
    let number = value::at_most(word, u16::MAX, "an EtherType", instead)?;
    if number < 0x600 || number == 0x809b || number == 0x80f3 {
        return Err(Why::Value {
            value: word.to_owned(),
            wanted: "an EtherType that is taken here",
            instead,
        });
    }
    Ok(number)
}
