//! Comparisons of numbers.

use super::{Lower, Made, full};
use crate::arith::{Arith, Compare, Header, Operator, Relation, Size, Start, start};
use crate::cond::Cond;
use crate::field::{Field, Program, Step, binary};
use crate::primitive::Protocol;

impl Lower {
    pub(super) fn relation(&mut self, relation: &Relation) -> Made {
        let Relation { left, compare, right } = relation;
        let mut all = Vec::new();
        self.checks(left, &mut all)?;
        self.checks(right, &mut all)?;
        let compared = match (constant(left), constant(right)) {
            (_, Some(value)) => self.compared(left, *compare, value),
            (Some(value), None) => self.compared(right, mirrored(*compare), value),
            (None, None) => {
                let (left, right) = (self.program(left), self.program(right));
                let field = Field::Compared { left, compare: *compare, right };
                self.is(field, 1)
            }
        };
        all.push(compared);
        Ok(Cond::All(all))
    }

    /// A number against a constant.
    fn compared(&mut self, number: &Arith, compare: Compare, value: u32) -> Cond {
        let field = self.number(number);
        let ranges = match compare {
            Compare::Equal => vec![Some((value, value))],
            Compare::NotEqual => vec![
                value.checked_sub(1).map(|below| (0, below)),
                value.checked_add(1).map(|above| (above, u32::MAX)),
            ],
            Compare::Less => vec![value.checked_sub(1).map(|below| (0, below))],
            Compare::LessOrEqual => vec![Some((0, value))],
            Compare::Greater => vec![value.checked_add(1).map(|above| (above, u32::MAX))],
            Compare::GreaterOrEqual => vec![Some((value, u32::MAX))],
        };
        Cond::In(self.id(field), ranges.into_iter().flatten().collect())
    }

    /// The simplest field that is this number.
    fn number(&mut self, number: &Arith) -> Field {
        match number {
            Arith::Len => Field::Length,
            Arith::Load { .. } => {
                self.load(number, None).unwrap_or_else(|| Field::Value(self.program(number)))
            }
            Arith::Binary { operator: Operator::And, left, right } => {
                let masked = match (constant(left), constant(right)) {
                    (None, Some(mask)) => self.load(left, Some(mask)),
                    (Some(mask), None) => self.load(right, Some(mask)),
                    _ => None,
                };
                masked.unwrap_or_else(|| Field::Value(self.program(number)))
            }
            _ => Field::Value(self.program(number)),
        }
    }

    /// A load from a place that is known beforehand.
    fn load(&self, number: &Arith, mask: Option<u32>) -> Option<Field> {
        let Arith::Load { header, at, size } = number else {
            return None;
        };
        let at = constant(at)?;
        let mask = mask.unwrap_or(u32::MAX) & full(*size);
        Some(match self.base(*header) {
            Base::Fixed(base) => Field::Fixed { at: base.saturating_add(at), size: *size, mask },
            Base::Behind(header) => Field::Behind { header, at, size: *size, mask },
        })
    }

    fn base(&self, header: Header) -> Base {
        let network = self.offsets.network();
        match header {
            Header::Ether => Base::Fixed(self.offsets.link),
            Header::Protocol(protocol) => match start(protocol) {
                Some(Start::Behind4) => Base::Behind(network),
                Some(Start::Behind6) => Base::Fixed(network.saturating_add(40)),
                Some(Start::Network) | None => Base::Fixed(network),
            },
        }
    }

    /// What must hold before anything is loaded. As in libpcap, of `x + y` only what `x` needs is
    /// asked for.
    fn checks(&mut self, number: &Arith, all: &mut Vec<Cond>) -> Result<(), crate::Misplaced> {
        match number {
            Arith::Number(_) | Arith::Len => {}
            Arith::Negate(inner) => self.checks(inner, all)?,
            Arith::Binary { left, right, .. } => {
                self.checks(left, all)?;
                // Not asked, but it must be one that can be.
                self.checks(right, &mut Vec::new())?;
            }
            Arith::Load { header, at, .. } => {
                self.checks(at, all)?;
                let Header::Protocol(protocol) = *header else {
                    return Ok(());
                };
                match start(protocol) {
                    Some(Start::Behind4) => {
                        all.push(self.protocol(Protocol::Ip)?);
                        all.push(self.protocol(protocol)?);
                        all.push(self.first_fragment());
                    }
                    Some(Start::Behind6) => {
                        all.push(self.protocol(Protocol::Ip6)?);
                        let next = self.offsets.network().saturating_add(6);
                        all.push(self.is(Self::at(next, Size::One), 58));
                    }
                    Some(Start::Network) => all.push(self.protocol(protocol)?),
                    // No text and no printing makes such a load; nothing is found in it.
                    None => all.push(Cond::Const(false)),
                }
            }
        }
        Ok(())
    }

    fn program(&self, number: &Arith) -> Program {
        let mut steps = Vec::new();
        self.steps(number, &mut steps);
        Program(steps)
    }

    fn steps(&self, number: &Arith, steps: &mut Vec<Step>) {
        if let Some(value) = constant(number) {
            return steps.push(Step::Number(value));
        }
        match number {
            Arith::Number(value) => steps.push(Step::Number(*value)),
            Arith::Len => steps.push(Step::Length),
            Arith::Load { header, at, size } => {
                self.steps(at, steps);
                steps.push(match self.base(*header) {
                    Base::Fixed(base) => Step::Load { base, size: *size },
                    Base::Behind(header) => Step::LoadBehind { header, size: *size },
                });
            }
            Arith::Negate(inner) => {
                self.steps(inner, steps);
                steps.push(Step::Negate);
            }
            Arith::Binary { operator, left, right } => {
                self.steps(left, steps);
                self.steps(right, steps);
                steps.push(Step::Binary(*operator));
            }
        }
    }
}

enum Base {
    Fixed(u32),
    /// Behind the IPv4 header that begins here.
    Behind(u32),
}

/// The value that `number` has for every packet.
fn constant(number: &Arith) -> Option<u32> {
    match number {
        Arith::Number(value) => Some(*value),
        Arith::Len | Arith::Load { .. } => None,
        Arith::Negate(inner) => constant(inner).map(u32::wrapping_neg),
        Arith::Binary { operator, left, right } => {
            binary(*operator, constant(left)?, constant(right)?)
        }
    }
}

/// `a < b` is `b > a`.
fn mirrored(compare: Compare) -> Compare {
    match compare {
        Compare::Less => Compare::Greater,
        Compare::LessOrEqual => Compare::GreaterOrEqual,
        Compare::Greater => Compare::Less,
        Compare::GreaterOrEqual => Compare::LessOrEqual,
        same @ (Compare::Equal | Compare::NotEqual) => same,
    }
}
