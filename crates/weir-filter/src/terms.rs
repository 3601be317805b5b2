//! What primitives come down to, for those who reason about filters instead of running them.

use crate::cond::Cond;
use crate::field::Field;
use crate::lower::Lower;
use crate::offsets::Misplaced;
use crate::primitive::Primitive;

/// Goes through a filter's primitives from left to right: each moves what stands right of it.
pub struct Terms(Lower);

/// When a primitive holds. It has three values: true, false, and *missing* when a number is that it
/// asks for. Operands are asked from left to right and only until the result is known; a primitive
/// with a missing result is false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always, or never.
    Const(bool),
    /// The number is in one of these ranges, which are in order and apart.
    In(Number, Vec<(u32, u32)>),
    /// Not the inner one.
    Not(Box<Condition>),
    /// All of them.
    All(Vec<Condition>),
    /// Any of them.
    Any(Vec<Condition>),
}

/// A number of 32 bits, a function of the packet alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// So many bytes (1, 2 or 4) at `at`, big-endian, with a mask. Missing when they are not there.
    Fixed {
        /// Offset in the frame.
        at: u32,
        /// How many.
        bytes: u32,
        /// Bits that count.
        mask: u32,
    },
    /// The same at `at` behind the end of an IPv4 header.
    Behind {
        /// Offset of the IPv4 header in the frame.
        header: u32,
        /// Offset behind its end; wraps, so it may be before it.
        at: u32,
        /// How many.
        bytes: u32,
        /// Bits that count.
        mask: u32,
    },
    /// The packet's length in bytes. Never missing.
    Length,
    /// Something that is worked out. The same text is the same number.
    Other(String),
}

impl Default for Terms {
    fn default() -> Self {
        Self::new()
    }
}

impl Terms {
    /// At a filter's begin.
    #[must_use]
    pub fn new() -> Self {
        let mut lower = Lower::new();
        lower.implied = true;
        Self(lower)
    }

    /// When the next primitive holds.
    ///
    /// # Errors
    /// When it stands where libpcap does not take it.
    pub fn next(&mut self, primitive: &Primitive) -> Result<Condition, Misplaced> {
        let cond = self.0.next(primitive)?;
        Ok(self.condition(cond))
    }

    fn condition(&self, cond: Cond) -> Condition {
        let all = |list: Vec<Cond>| list.into_iter().map(|c| self.condition(c)).collect();
        match cond {
            Cond::Const(value) => Condition::Const(value),
            Cond::In(id, ranges) => {
                let at = usize::try_from(id).unwrap_or(usize::MAX);
                match self.0.fields.list.get(at) {
                    Some(field) => Condition::In(number(field), ranges),
                    None => Condition::Const(false),
                }
            }
            Cond::Not(inner) => Condition::Not(Box::new(self.condition(*inner))),
            Cond::All(list) => Condition::All(all(list)),
            Cond::Any(list) => Condition::Any(all(list)),
            Cond::Term(inner) => self.condition(*inner),
        }
    }
}

fn number(field: &Field) -> Number {
    match *field {
        Field::Fixed { at, size, mask } => Number::Fixed { at, bytes: bytes(size), mask },
        Field::Behind { header, at, size, mask } => {
            Number::Behind { header, at, bytes: bytes(size), mask }
        }
        Field::Length => Number::Length,
        ref other => Number::Other(format!("{other:?}")),
    }
}

fn bytes(size: crate::Size) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(4)
}
