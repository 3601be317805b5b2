//! Numbers: worked out in 64 bits, and cut to 32 after each step.

use super::Place;
use crate::arith::{Arith, Compare, Header, Operator, Relation};
use crate::primitive::Protocol;

const WRAP: u64 = 1 << 32;

impl Place<'_> {
    pub(super) fn relation(&self, relation: &Relation) -> Option<bool> {
        let Relation { left, compare, right } = relation;
        if !self.allows(left)? || !self.allows(right)? {
            return Some(false);
        }
        let (left, right) = (self.worked_out(left)?, self.worked_out(right)?);
        Some(match compare {
            Compare::Equal => left == right,
            Compare::NotEqual => left != right,
            Compare::Less => left < right,
            Compare::LessOrEqual => left <= right,
            Compare::Greater => left > right,
            Compare::GreaterOrEqual => left >= right,
        })
    }

    /// The packet has the headers that are looked into; of two operands the left one's count.
    fn allows(&self, number: &Arith) -> Option<bool> {
        match number {
            Arith::Number(_) | Arith::Len => Some(true),
            Arith::Negate(inner) => self.allows(inner),
            Arith::Binary { left, .. } => self.allows(left),
            Arith::Load { header, at, .. } => Some(
                self.allows(at)?
                    && match header {
                        Header::Ether => true,
                        Header::Protocol(Protocol::Icmp6) => {
                            self.is(0x86dd)? && self.number(self.network() + 6, 1)? == 58
                        }
                        Header::Protocol(p) if behind_ip(*p) => {
                            self.is(0x0800)?
                                && self.protocol(*p)?
                                && self.number(self.network() + 6, 2)? % 0x2000 == 0
                        }
                        Header::Protocol(p) => self.protocol(*p)?,
                    },
            ),
        }
    }

    fn worked_out(&self, number: &Arith) -> Option<u64> {
        Some(match number {
            Arith::Number(n) => u64::from(*n),
            Arith::Len => u64::try_from(self.packet.len()).ok()? % WRAP,
            Arith::Negate(inner) => (WRAP - self.worked_out(inner)?) % WRAP,
            Arith::Load { header, at, size } => {
                let index = self.worked_out(at)?;
                let (base, index) = match header {
                    Header::Ether => (self.link, index),
                    Header::Protocol(Protocol::Icmp6) => (self.network() + 40, index),
                    Header::Protocol(p) if behind_ip(*p) => {
                        // What is added to the length of the IPv4 header wraps.
                        let length = self.number(self.network(), 1)? % 16 * 4;
                        (self.network(), (u64::try_from(length).ok()? + index) % WRAP)
                    }
                    Header::Protocol(_) => (self.network(), index),
                };
                let at = u64::try_from(base).ok()? + index;
                let found = self.number(usize::try_from(at).ok()?, size.bytes())?;
                u64::try_from(found).ok()?
            }
            Arith::Binary { operator, left, right } => {
                let (left, right) = (self.worked_out(left)?, self.worked_out(right)?);
                match operator {
                    Operator::Add => (left + right) % WRAP,
                    Operator::Subtract => (WRAP + left - right) % WRAP,
                    Operator::Multiply => left.wrapping_mul(right) % WRAP,
                    Operator::Divide => left.checked_div(right)?,
                    Operator::Modulo => left.checked_rem(right)?,
                    Operator::And => left & right,
                    Operator::Or => left | right,
                    Operator::Xor => left ^ right,
                    Operator::ShiftLeft if right < 32 => (left << right) % WRAP,
                    Operator::ShiftRight if right < 32 => left >> right,
                    Operator::ShiftLeft | Operator::ShiftRight => 0,
                }
            }
        })
    }
}

fn behind_ip(protocol: Protocol) -> bool {
    use Protocol::{Carp, Icmp, Igmp, Igrp, Pim, Sctp, Tcp, Udp, Vrrp};
    [Tcp, Udp, Sctp, Icmp, Igmp, Igrp, Pim, Vrrp, Carp].contains(&protocol)
}
