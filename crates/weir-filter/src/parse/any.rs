//! `any`: what looks through tags, labels, PPPoE and extension headers.

use super::qualifiers::Qualifiers;
use super::{Parsed, Parser};
use crate::display::is_link;
use crate::error::Why;
use crate::lexer::Kind;
use crate::primitive::{AnyTest, Family, Network, Primitive, Protocol, Transport};
use crate::words;

/// What a word behind `any` says of what follows.
#[derive(Clone, Copy)]
enum Before {
    Nothing,
    /// Addresses may follow.
    Network(Network),
    /// Ports may follow, if it has any.
    Upper(Option<Transport>, u8),
    /// `any` does not look for it.
    Wrong,
}

impl Parser<'_> {
    /// `any tcp`, `any udp dst port 53`, `any port 53`, `any proto 47`, `any ip`, `any src net 10.0.0.0/8`.
    pub(super) fn any(&mut self, depth: usize) -> Parsed {
        let from = self.here().start;
        self.skip();
        let word = match self.peek() {
            Some(Kind::Word(word)) => Some(word),
            _ => None,
        };
        let before = word.map_or(Before::Nothing, before);
        if !matches!(before, Before::Nothing) {
            self.skip();
        }
        let here = self.at;
        match (self.qualifiers(None, from), before) {
            (
                Some(Qualifiers::Port { direction, is_range, .. }),
                before @ (Before::Nothing | Before::Upper(Some(_), _)),
            ) => {
                let transport = match before {
                    Before::Upper(Some(transport), _) => transport,
                    _ => Transport::Any,
                };
                return self.value(Qualifiers::AnyPort { transport, direction, is_range }, depth);
            }
            (Some(Qualifiers::IpProto { .. }), Before::Nothing) => {
                return self.value(Qualifiers::AnyProto, depth);
            }
            (
                Some(Qualifiers::Net { direction, is_net, .. }),
                before @ (Before::Nothing | Before::Network(_)),
            ) => {
                let family = match before {
                    Before::Network(network) => network.family(),
                    _ => Family::Any,
                };
                return self.value(Qualifiers::AnyNet { family, direction, is_net }, depth);
            }
            (None, before) if here == self.at => {
                let test = match before {
                    Before::Network(network) => Some(AnyTest::Network(network)),
                    Before::Upper(_, number) => Some(AnyTest::Protocol(number)),
                    Before::Nothing | Before::Wrong => None,
                };
                if let Some(test) = test {
                    let span = self.since(from);
                    return Parsed::leaf(self.made(Primitive::Any(test), span), None);
                }
            }
            _ => {}
        }
        if here == self.at
            && let Some(word) = word.filter(|word| words::is_strange(word))
        {
            return self.unknown(Why::UnknownWord { word: word.to_owned(), nearest: None });
        }
        let instead = "`any` before IP, ARP, a protocol above IP, addresses or ports, as in `any ip`, \
                       `any src net 10.0.0.0/8`, `any tcp` or `any udp port 53`";
        let span = self.since(from);
        self.error(span, Why::NoValue { instead });
        self.value(Qualifiers::Wrong, depth)
    }
}

fn before(word: &str) -> Before {
    if is_link(word) {
        return Before::Wrong;
    }
    if let Some((_, network)) = Network::WORDS.iter().find(|(w, _)| *w == word) {
        return Before::Network(*network);
    }
    let Some((_, protocol)) = Protocol::WORDS.iter().find(|(w, _)| *w == word) else {
        return Before::Nothing;
    };
    match protocol {
        Protocol::Tcp => Before::Upper(Some(Transport::Tcp), 6),
        Protocol::Udp => Before::Upper(Some(Transport::Udp), 17),
        Protocol::Sctp => Before::Upper(Some(Transport::Sctp), 132),
        Protocol::Icmp => Before::Upper(None, 1),
        Protocol::Icmp6 => Before::Upper(None, 58),
        Protocol::Igmp => Before::Upper(None, 2),
        Protocol::Igrp => Before::Upper(None, 9),
        Protocol::Pim => Before::Upper(None, 103),
        Protocol::Vrrp | Protocol::Carp => Before::Upper(None, 112),
        Protocol::Esp => Before::Upper(None, 50),
        _ => Before::Wrong,
    }
}
