//! Where libpcap's meaning is not what one would think.

use std::collections::HashSet;

use thiserror::Error;

use crate::arith::{Arith, Header, Relation, Start, start};
use crate::expr::Expr;
use crate::primitive::{Group, IpFamily, Primitive, Protocol};

/// Something in a filter that means less, or other, than it seems to.
#[derive(Clone, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Surprise {
    /// A term looks right behind the Ethernet header only.
    #[error(
        "`{term}` misses packets with a VLAN tag, an MPLS label or PPPoE before IP; write `{instead}` to look through them"
    )]
    Encapsulated {
        /// The term.
        term: String,
        /// What looks through them.
        instead: String,
    },
    /// The same, of a term that `any` has no form for.
    #[error(
        "`{term}` misses packets with a VLAN tag, an MPLS label or PPPoE before IP; write `{instead}` to take those with one tag, too"
    )]
    Tagged {
        /// The term.
        term: String,
        /// What takes those with one tag.
        instead: String,
    },
    /// Over IPv6 a term looks at the next header (and one fragment header), no further.
    #[error(
        "`{term}` misses IPv6 packets with most extension headers; write `{instead}` to look through them"
    )]
    Extensions {
        /// The term.
        term: String,
        /// What looks through them.
        instead: String,
    },
    /// Ports are in the first fragment only.
    #[error("`{term}` misses all fragments of a packet but the first: only that one has ports")]
    Fragments {
        /// The term.
        term: String,
    },
    /// What moves offsets stands under `not`, or in one arm of an `or`.
    #[error(
        "`{shift}` moves where `{term}` looks, also when it does not match; write what shall not be moved left of it"
    )]
    Shifted {
        /// What moves it.
        shift: String,
        /// The first term that is moved.
        term: String,
    },
    /// A load that libpcap makes for IPv4 alone.
    #[error("`{term}` looks at IPv4 only: libpcap reads no transport header behind IPv6")]
    FourOnly {
        /// The term.
        term: String,
    },
    /// Of two operands only the left one's protocol is asked for.
    #[error(
        "in `{term}` only the left operand's protocol is asked for: the right one's bytes may be another's; write `{protocol} and` before it"
    )]
    Unchecked {
        /// The term.
        term: String,
        /// The protocol that is not asked for.
        protocol: &'static str,
    },
    /// `protochain` goes on at the wrong place behind an authentication header.
    #[error(
        "`{term}` loses its way behind an authentication header, as in libpcap; write `any proto N` to look through it"
    )]
    Chain {
        /// The term.
        term: String,
    },
    /// `carp` and `vrrp` are one number.
    #[error("`{term}` matches CARP and VRRP alike: both are IP protocol 112")]
    Same {
        /// The term.
        term: String,
    },
}

impl Surprise {
    /// What to write for it, when that is one term.
    #[must_use]
    pub fn instead(&self) -> Option<&str> {
        match self {
            Surprise::Encapsulated { instead, .. }
            | Surprise::Tagged { instead, .. }
            | Surprise::Extensions { instead, .. } => Some(instead),
            _ => None,
        }
    }
}

/// What in `expr` may surprise, from left to right, each once.
#[must_use]
pub fn warnings(expr: &Expr) -> Vec<Surprise> {
    let mut knows_tags = false;
    expr.visit(&mut |e| {
        knows_tags = knows_tags || matches!(e, Expr::Primitive(p) if shifts(p));
    });
    let whole = expr.to_string();
    let mut walk =
        Walk { found: Vec::new(), known: HashSet::new(), shift: None, knows_tags, whole };
    walk.expression(expr);
    walk.found
}

struct Walk {
    found: Vec<Surprise>,
    known: HashSet<Surprise>,
    /// What has moved offsets for terms that it has nothing to do with.
    shift: Option<String>,
    /// Something moves offsets: who writes it knows of tags.
    knows_tags: bool,
    /// All of the filter.
    whole: String,
}

impl Walk {
    fn add(&mut self, surprise: Surprise) {
        if self.known.insert(surprise.clone()) {
            self.found.push(surprise);
        }
    }

    fn expression(&mut self, expr: &Expr) {
        match expr {
            Expr::Primitive(primitive) => self.primitive(primitive),
            Expr::And(list) => list.iter().for_each(|e| self.expression(e)),
            Expr::Or(list) => {
                for arm in list {
                    self.expression(arm);
                    self.leave(arm);
                }
            }
            Expr::Not(inner) => {
                self.expression(inner);
                self.leave(inner);
            }
            _ => {}
        }
    }

    /// What in `arm` moves offsets moves them for all that follows, too.
    fn leave(&mut self, arm: &Expr) {
        arm.visit(&mut |e| {
            if let Expr::Primitive(p) = e
                && self.shift.is_none()
                && shifts(p)
            {
                self.shift = Some(p.to_string());
            }
        });
    }

    fn primitive(&mut self, p: &Primitive) {
        let term = || p.to_string();
        if moved(p)
            && let Some(shift) = self.shift.take()
        {
            self.add(Surprise::Shifted { shift, term: term() });
        }
        match p {
            Primitive::Net { .. }
            | Primitive::Protocol(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp) => {
                self.encapsulated(term(), format!("any {p}"));
            }
            Primitive::Multicast(Group::Ip) => {
                self.encapsulated(term(), "any ip dst net 224.0.0.0/3".to_owned());
            }
            Primitive::Multicast(Group::Ip6) => {
                self.encapsulated(term(), "any ip6 dst net ff00::/8".to_owned());
            }
            Primitive::Tos(_) | Primitive::Protocol(Protocol::Ah) => self.tagged(&term()),
            Primitive::Port { .. } => {
                self.upper(p, &term());
                self.add(Surprise::Fragments { term: term() });
            }
            Primitive::Protocol(protocol) => {
                if matches!(protocol, Protocol::Carp | Protocol::Vrrp) {
                    self.add(Surprise::Same { term: term() });
                } else if is_upper(*protocol) {
                    self.upper(p, &term());
                }
            }
            Primitive::Chain { .. } => self.add(Surprise::Chain { term: term() }),
            Primitive::IpProto { family, number } => {
                let instead = format!("any proto {number}");
                self.encapsulated(term(), instead.clone());
                if *family != IpFamily::Ip {
                    self.add(Surprise::Extensions { term: term(), instead });
                }
            }
            Primitive::Relation(relation) => self.relation(relation, &term()),
            _ => {}
        }
    }

    fn encapsulated(&mut self, term: String, instead: String) {
        if !self.knows_tags {
            self.add(Surprise::Encapsulated { term, instead });
        }
    }

    fn tagged(&mut self, term: &str) {
        if !self.knows_tags {
            // The whole filter twice: `vlan` would move whatever stood behind it.
            let whole = &self.whole;
            let instead = format!("({whole}) or (vlan and ({whole}))");
            self.add(Surprise::Tagged { term: term.to_owned(), instead });
        }
    }

    fn upper(&mut self, p: &Primitive, term: &str) {
        let instead = format!("any {term}");
        self.encapsulated(term.to_owned(), instead.clone());
        let four_only =
            matches!(p, Primitive::Protocol(Protocol::Icmp | Protocol::Igmp | Protocol::Igrp));
        if !four_only {
            self.add(Surprise::Extensions { term: term.to_owned(), instead });
        }
    }

    fn relation(&mut self, relation: &Relation, term: &str) {
        let mut loads = Vec::new();
        for side in [&relation.left, &relation.right] {
            collect(side, true, &mut loads);
        }
        if !loads.is_empty() {
            self.tagged(term);
        }
        for (protocol, asked) in loads {
            if !asked {
                let (term, protocol) = (term.to_owned(), protocol.word());
                self.add(Surprise::Unchecked { term, protocol });
            }
            let both_versions =
                matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Pim);
            if both_versions && start(protocol) == Some(Start::Behind4) {
                self.add(Surprise::FourOnly { term: term.to_owned() });
            }
        }
    }
}

/// The protocols whose bytes are loaded, and whether libpcap asks for them before.
fn collect(number: &Arith, asked: bool, loads: &mut Vec<(Protocol, bool)>) {
    match number {
        Arith::Number(_) | Arith::Len => {}
        Arith::Negate(inner) => collect(inner, asked, loads),
        Arith::Load { header, at, .. } => {
            collect(at, asked, loads);
            if let Header::Protocol(protocol) = header {
                let asked = asked || loads.iter().any(|(p, asked)| *asked && p == protocol);
                loads.push((*protocol, asked));
            }
        }
        Arith::Binary { left, right, .. } => {
            collect(left, asked, loads);
            collect(right, false, loads);
        }
    }
}

fn shifts(p: &Primitive) -> bool {
    matches!(p, Primitive::Vlan { .. } | Primitive::Mpls { .. } | Primitive::Pppoes { .. })
}

/// Where it looks depends on what stands left of it.
fn moved(p: &Primitive) -> bool {
    match p {
        Primitive::Any(_)
        | Primitive::Ether { .. }
        | Primitive::Broadcast
        | Primitive::Multicast(Group::Ether) => false,
        Primitive::Relation(relation) => {
            let mut loads = Vec::new();
            collect(&relation.left, true, &mut loads);
            collect(&relation.right, true, &mut loads);
            !loads.is_empty()
        }
        _ => true,
    }
}

fn is_upper(protocol: Protocol) -> bool {
    use Protocol::{Esp, Icmp, Icmp6, Igmp, Igrp, Pim, Sctp, Tcp, Udp};
    [Tcp, Udp, Sctp, Icmp, Icmp6, Igmp, Igrp, Pim, Esp].contains(&protocol)
}
