//! Primitives with a form of their own, and tests of what is not in the packet.

use std::ops::Range;

use super::Parser;
use crate::arith::{Arith, Compare, Relation};
use crate::error::Why;
use crate::expr::{Expr, MAX_PATTERN, TagTest};
use crate::lexer::Kind;
use crate::primitive::{LlcKind, Primitive};
use crate::{value, words};

impl<'a> Parser<'a> {
    /// `vlan`, `mpls`, `pppoes`, whose number may be left out and may stand in brackets.
    pub(super) fn shifting(&mut self, word: &str) -> Expr {
        let from = self.here().start;
        self.skip();
        let number = self.bracketed_number();
        let span = self.since(from);
        let (max, wanted, instead) = match word {
            "vlan" => (4095, "a VLAN id", "a number from 0 to 4095"),
            "mpls" => (0xf_ffff, "an MPLS label", "a number from 0 to 1048575"),
            _ => (0xffff, "a session's number", "a number from 0 to 65535"),
        };
        let number = match number {
            None => None,
            Some((word, span)) => match value::number(word).filter(|n| *n <= max) {
                Some(number) => Some(number),
                None => {
                    let value = word.to_owned();
                    return self.placeholder(span, Why::Value { value, wanted, instead });
                }
            },
        };
        let short = number.and_then(|n| u16::try_from(n).ok());
        let primitive = match word {
            "vlan" => Primitive::Vlan { id: short },
            "mpls" => Primitive::Mpls { label: number },
            _ => Primitive::Pppoes { session: short },
        };
        self.made(primitive, span)
    }

    fn bracketed_number(&mut self) -> Option<(&'a str, Range<usize>)> {
        let mut brackets = 0_usize;
        while self.peek_after(brackets) == Some(Kind::Open) {
            brackets = brackets.saturating_add(1);
        }
        let Some(Kind::Word(word)) = self.peek_after(brackets) else {
            return None;
        };
        if !value::is_numeric(word) {
            return None;
        }
        let open = self.here();
        self.at = self.at.saturating_add(brackets);
        let span = self.here();
        self.skip();
        for _ in 0..brackets {
            self.close(open.clone());
        }
        Some((word, span))
    }

    /// `less N`, `greater N`: both include N.
    pub(super) fn length(&mut self, compare: Compare) -> Expr {
        let from = self.here().start;
        self.skip();
        match self.required("a length in bytes", "a number, as in `less 64`", u32::MAX) {
            Ok(number) => {
                let (left, right) = (Arith::Len, Arith::Number(number));
                let span = self.since(from);
                self.made(Primitive::Relation(Relation { left, compare, right }), span)
            }
            Err(error) => error,
        }
    }

    /// `tos N`.
    pub(super) fn tos(&mut self) -> Expr {
        let from = self.here().start;
        self.skip();
        let wanted = "a type of service";
        match self.required(wanted, "a number from 0 to 255, as in `tos 0x10`", 255) {
            Ok(number) => {
                let span = self.since(from);
                self.made(Primitive::Tos(u8::try_from(number).unwrap_or(u8::MAX)), span)
            }
            Err(error) => error,
        }
    }

    /// `llc`, `llc ui`.
    pub(super) fn llc(&mut self) -> Expr {
        let from = self.here().start;
        self.skip();
        let kind = match self.peek() {
            Some(Kind::Word(word)) => {
                LlcKind::WORDS.iter().find(|(w, _)| word.eq_ignore_ascii_case(w))
            }
            _ => None,
        };
        if kind.is_some() {
            self.skip();
        }
        let span = self.since(from);
        self.made(Primitive::Llc(kind.map(|(_, kind)| *kind)), span)
    }

    /// `ingress == 2`, `ingress == 2-5`.
    pub(super) fn ingress(&mut self) -> Expr {
        self.skip();
        let here = self.here();
        let instead = "the policy's port, as in `ingress == 2` or `ingress == 2-5`";
        match self.compare() {
            Some(Compare::Equal) => {}
            _ => return self.placeholder(here, Why::NoValue { instead }),
        }
        let here = self.here();
        let Some(Kind::Word(word)) = self.peek() else {
            return self.placeholder(here, Why::NoValue { instead });
        };
        self.skip();
        match value::port_range(word) {
            Ok((first, last)) => Expr::Ingress { first, last },
            Err(_) => {
                let (value, wanted) = (word.to_owned(), "a port of the policy");
                self.placeholder(here, Why::Value { value, wanted, instead })
            }
        }
    }

    /// `scope.name`, and what its value must be.
    pub(super) fn tagged(&mut self, scope: &str, name: &str) -> Expr {
        self.skip();
        let (scope, name) = (scope.to_owned(), name.to_owned());
        if self.peek() == Some(Kind::Tilde) {
            self.skip();
            let here = self.here();
            let Some(Kind::Text(text)) = self.peek() else {
                if let Some(Kind::Word(word)) = self.peek()
                    && !words::is_keyword(word)
                {
                    self.skip();
                }
                let instead = "a pattern in quotes, as in `http.url ~ \"^/admin\"`";
                return self.placeholder(here, Why::NoValue { instead });
            };
            self.skip();
            let pattern = unquoted(text);
            return match checked(&pattern) {
                Ok(()) => Expr::TagIs { scope, name, test: TagTest::Matches(pattern) },
                Err(why) => self.placeholder(here, why),
            };
        }
        let Some(compare) = self.compare() else {
            return Expr::Tag { scope, name };
        };
        let here = self.here();
        let word = match self.peek() {
            Some(Kind::Word(word)) if !words::is_keyword(word) => word,
            _ => "",
        };
        if !word.is_empty() {
            self.skip();
        }
        let Some(value) = value::wide(word) else {
            let (value, wanted) = (word.to_owned(), "a tag's value");
            let instead = "a number, as in `ids.score == 3`; for bytes write `~` and a pattern";
            return self.placeholder(here, Why::Value { value, wanted, instead });
        };
        Expr::TagIs { scope, name, test: TagTest::Number { compare, value } }
    }

    /// The number that must stand here.
    fn required(
        &mut self,
        wanted: &'static str,
        instead: &'static str,
        max: u32,
    ) -> Result<u32, Expr> {
        let here = self.here();
        let Some(Kind::Word(word)) = self.peek() else {
            return Err(self.placeholder(here, Why::NoValue { instead }));
        };
        if words::is_keyword(word) {
            return Err(self.placeholder(here, Why::NoValue { instead }));
        }
        self.skip();
        value::number(word).filter(|n| *n <= max).ok_or_else(|| {
            self.placeholder(here, Why::Value { value: word.to_owned(), wanted, instead })
        })
    }
}

/// A backslash before a quote only keeps the string from ending; all others are the pattern's.
fn unquoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('"') => out.push('"'),
            next => {
                out.push(c);
                out.extend(next);
            }
        }
    }
    out
}

/// Refuses a pattern that does not compile, or not into little memory.
fn checked(pattern: &str) -> Result<(), Why> {
    regex::bytes::RegexBuilder::new(pattern)
        .size_limit(MAX_PATTERN)
        .nest_limit(64)
        .build()
        .map(|_| ())
        .map_err(|e| Why::Pattern(e.to_string().lines().last().unwrap_or_default().to_owned()))
}

/// The number of a protocol above IP by its name in IANA's list, in small letters as in
/// /etc/protocols; of the commoner ones.
pub(super) fn ip_protocol(name: &str) -> Option<u8> {
    Some(match name {
        "icmp" => 1,
        "igmp" => 2,
        "ipencap" => 4,
        "tcp" => 6,
        "egp" => 8,
        "igp" => 9,
        "udp" => 17,
        "ipv6" => 41,
        "ipv6-route" => 43,
        "ipv6-frag" => 44,
        "rsvp" => 46,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "ipv6-icmp" => 58,
        "ipv6-nonxt" => 59,
        "ipv6-opts" => 60,
        "eigrp" => 88,
        "ospf" => 89,
        "pim" => 103,
        "vrrp" => 112,
        "l2tp" => 115,
        "sctp" => 132,
        "udplite" => 136,
        _ => return None,
    })
}

/// The EtherType, or the SAP in its place, by libpcap's name.
pub(super) fn ether_protocol(name: &str) -> Option<u16> {
    Some(match name {
        "ip" => 0x0800,
        "ip6" => 0x86dd,
        "arp" => 0x0806,
        "rarp" => 0x8035,
        "atalk" => 0x809b,
        "aarp" => 0x80f3,
        "decnet" => 0x6003,
        "ipx" => 0x00e0,
        "iso" => 0x00fe,
        "lat" => 0x6004,
        "loopback" => 0x9000,
        "mopdl" => 0x6001,
        "moprc" => 0x6002,
        "netbeui" => 0x00f0,
        "sca" => 0x6007,
        "stp" => 0x0042,
        _ => return None,
    })
}

/// OSI's network layer protocol by its name.
pub(super) fn iso_protocol(name: &str) -> Option<u8> {
    Some(match name {
        "clnp" => 0x81,
        "esis" => 0x82,
        "isis" => 0x83,
        _ => return None,
    })
}
