//! Arithmetic as a flat program over a small stack.

use weir_packet::Bytes;

use super::{behind, length, load};
use crate::arith::{Operator, Size};
use crate::parse::MAX_DEPTH;

/// Values that wait at once: at most one for each level of nesting, and one more.
const STACK: usize = MAX_DEPTH + 2;

/// Steps that leave one number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program(pub(crate) Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Puts a constant on the stack.
    Number(u32),
    /// Puts the packet's length on it.
    Length,
    /// Replaces the top by the bytes at `base` and so many more.
    Load { base: u32, size: Size },
    /// The same behind the IPv4 header at `header`.
    LoadBehind { header: u32, size: Size },
    /// Negates the top.
    Negate,
    /// Replaces the two at the top by one.
    Binary(Operator),
}

impl Program {
    /// The number; `None` when bytes are missing or something is divided by zero.
    pub(super) fn value<B: Bytes + ?Sized>(&self, packet: &B) -> Option<u32> {
        let mut stack = [0_u32; STACK];
        let mut height = 0_usize;
        for step in &self.0 {
            let below = height.checked_sub(1);
            match step {
                Step::Number(n) => {
                    *stack.get_mut(height)? = *n;
                    height = height.checked_add(1)?;
                }
                Step::Length => {
                    *stack.get_mut(height)? = length(packet);
                    height = height.checked_add(1)?;
                }
                Step::Load { base, size } => {
                    let top = stack.get_mut(below?)?;
                    *top = load(packet, base.checked_add(*top)?, *size)?;
                }
                Step::LoadBehind { header, size } => {
                    let top = stack.get_mut(below?)?;
                    let at = behind(packet, *header, *top)?;
                    *top = load(packet, at, *size)?;
                }
                Step::Negate => {
                    let top = stack.get_mut(below?)?;
                    *top = top.wrapping_neg();
                }
                Step::Binary(operator) => {
                    let right = *stack.get(below?)?;
                    height = below?;
                    let left = stack.get_mut(height.checked_sub(1)?)?;
                    *left = binary(*operator, *left, right)?;
                }
            }
        }
        stack.get(height.checked_sub(1)?).copied()
    }
}

/// `None`: division by zero.
pub(crate) fn binary(operator: Operator, left: u32, right: u32) -> Option<u32> {
    Some(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Divide => left.checked_div(right)?,
        Operator::Modulo => left.checked_rem(right)?,
        Operator::And => left & right,
        Operator::Or => left | right,
        Operator::Xor => left ^ right,
        Operator::ShiftLeft => left.checked_shl(right).unwrap_or(0),
        Operator::ShiftRight => left.checked_shr(right).unwrap_or(0),
    })
}
