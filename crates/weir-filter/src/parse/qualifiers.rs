//! Qualifiers: protocol, direction and kind, and which of them go together.

use super::Parser;
use crate::display::is_link;
use crate::error::Why;
use crate::lexer::Kind;
use crate::primitive::{Direction, Family, IpFamily, Protocol, Transport};

/// What a value is compared with. A bare value after `and` or `or` repeats the last one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Qualifiers {
    /// `host`, `net`, or a direction alone. Only `net` takes a length.
    Net { family: Family, direction: Direction, is_net: bool },
    /// `port`; or `portrange` when `is_range`.
    Port { transport: Transport, direction: Direction, is_range: bool },
    /// `any host`, `any net`.
    AnyNet { family: Family, direction: Direction, is_net: bool },
    /// `any port`.
    AnyPort { transport: Transport, direction: Direction, is_range: bool },
    /// `ether host`.
    Ether { direction: Direction },
    /// `decnet host`.
    Decnet { direction: Direction },
    /// `proto`.
    IpProto { family: IpFamily },
    /// `protochain`.
    Chain { family: IpFamily },
    /// `any proto`.
    AnyProto,
    /// `ether proto`.
    EtherProto,
    /// `iso proto`.
    IsoProto,
    /// `isis proto`.
    IsisProto,
    /// Qualifiers that do not go together: already reported, so the values are passed over.
    Wrong,
}

impl Qualifiers {
    /// Whether a protocol's name may be the value.
    pub(super) fn takes_protocol(self) -> bool {
        matches!(
            self,
            Qualifiers::IpProto { .. }
                | Qualifiers::Chain { .. }
                | Qualifiers::AnyProto
                | Qualifiers::EtherProto
                | Qualifiers::IsoProto
        )
    }
}

/// A word that may stand before qualifiers.
#[derive(Clone, Copy)]
pub(super) enum Pname {
    Protocol(Protocol),
    Ether,
}

impl Pname {
    pub(super) fn word(self) -> &'static str {
        match self {
            Pname::Ether => "ether",
            Pname::Protocol(p) => p.word(),
        }
    }
}

pub(super) fn protocol(word: &str) -> Option<Pname> {
    if is_link(word) {
        return Some(Pname::Ether);
    }
    Protocol::WORDS.iter().find(|(w, _)| *w == word).map(|(_, p)| Pname::Protocol(*p))
}

impl Parser<'_> {
    /// Direction and kind after an optional protocol; `None` when there are none.
    pub(super) fn qualifiers(
        &mut self,
        protocol: Option<Pname>,
        start: usize,
    ) -> Option<Qualifiers> {
        let direction = self.direction();
        let kind = match self.peek() {
            Some(Kind::Word("host")) => "host",
            Some(Kind::Word("net")) => "net",
            Some(Kind::Word("port")) => "port",
            Some(Kind::Word("portrange")) => "portrange",
            Some(Kind::Word("proto")) if direction.is_none() => "proto",
            Some(Kind::Word("protochain")) if direction.is_none() => "protochain",
            // E2's `dst ip X`.
            Some(Kind::Word("ip")) if direction.is_some() && protocol.is_none() => "net",
            _ => {
                let direction = direction?;
                return Some(self.check(protocol, direction, "host", start));
            }
        };
        self.skip();
        Some(self.check(protocol, direction.unwrap_or(Direction::Either), kind, start))
    }

    fn direction(&mut self) -> Option<Direction> {
        let (first, other) = match self.peek() {
            Some(Kind::Word("src")) => (Direction::Src, "dst"),
            Some(Kind::Word("dst")) => (Direction::Dst, "src"),
            _ => return None,
        };
        self.skip();
        let both = match self.peek() {
            Some(Kind::Or) => Direction::Either,
            Some(Kind::And) => Direction::Both,
            _ => return Some(first),
        };
        if self.peek_after(1) == Some(Kind::Word(other)) {
            self.skip();
            self.skip();
            return Some(both);
        }
        Some(first)
    }

    /// The qualifiers, if they go together.
    fn check(
        &mut self,
        protocol: Option<Pname>,
        direction: Direction,
        kind: &'static str,
        start: usize,
    ) -> Qualifiers {
        let family = match protocol {
            None => Some(Family::Any),
            Some(Pname::Protocol(Protocol::Ip)) => Some(Family::Ip),
            Some(Pname::Protocol(Protocol::Ip6)) => Some(Family::Ip6),
            Some(Pname::Protocol(Protocol::Arp)) => Some(Family::Arp),
            Some(Pname::Protocol(Protocol::Rarp)) => Some(Family::Rarp),
            _ => None,
        };
        let transport = match protocol {
            None => Some(Transport::Any),
            Some(Pname::Protocol(Protocol::Tcp)) => Some(Transport::Tcp),
            Some(Pname::Protocol(Protocol::Udp)) => Some(Transport::Udp),
            Some(Pname::Protocol(Protocol::Sctp)) => Some(Transport::Sctp),
            _ => None,
        };
        let is_ether = matches!(protocol, Some(Pname::Ether));
        let version = match protocol {
            None => Some(IpFamily::Any),
            Some(Pname::Protocol(Protocol::Ip)) => Some(IpFamily::Ip),
            Some(Pname::Protocol(Protocol::Ip6)) => Some(IpFamily::Ip6),
            _ => None,
        };
        let found = match (kind, family, transport) {
            ("host", ..) if matches!(protocol, Some(Pname::Protocol(Protocol::Decnet))) => {
                Some(Qualifiers::Decnet { direction })
            }
            ("proto", ..) if matches!(protocol, Some(Pname::Protocol(Protocol::Iso))) => {
                Some(Qualifiers::IsoProto)
            }
            ("proto", ..) if matches!(protocol, Some(Pname::Protocol(Protocol::Isis))) => {
                Some(Qualifiers::IsisProto)
            }
            ("proto", ..) if !is_ether => version.map(|family| Qualifiers::IpProto { family }),
            ("protochain", ..) => version.map(|family| Qualifiers::Chain { family }),
            ("host", _, _) if is_ether => Some(Qualifiers::Ether { direction }),
            ("proto", _, _) if is_ether => Some(Qualifiers::EtherProto),
            ("host" | "net", Some(family), _) => {
                Some(Qualifiers::Net { family, direction, is_net: kind == "net" })
            }
            ("port" | "portrange", _, Some(transport)) => {
                Some(Qualifiers::Port { transport, direction, is_range: kind == "portrange" })
            }
            _ => None,
        };
        found.unwrap_or_else(|| {
            let instead = match kind {
                "port" | "portrange" => {
                    "`tcp`, `udp`, `sctp` or nothing before it, or join the two with `and`"
                }
                "proto" => "`ip`, `ip6`, `ether`, `iso`, `isis` or nothing before it",
                "protochain" => "`ip`, `ip6` or nothing before it",
                _ if is_ether => "`ether host`, or leave `ether` out",
                _ => "`ip`, `ip6`, `arp`, `rarp` or nothing before it, or join the two with `and`",
            };
            let protocol = protocol.map_or("", Pname::word);
            self.error(self.since(start), Why::Qualifier { protocol, kind, instead });
            Qualifiers::Wrong
        })
    }
}
