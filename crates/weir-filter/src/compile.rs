//! A filter as a flat program of decisions.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_packet::Bytes;

use crate::arith::Size;
use crate::cond::{Cond, Fields};
use crate::diagram::{self, Diagram, FALSE, Id, TRUE};
use crate::expr::Expr;
use crate::field::{Field, behind};
use crate::lower::{LowerError, lower};
use crate::offsets::Misplaced;

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompileError {
    /// A tag is left: [`Expr::resolve_tags`] comes first.
    #[error("the tag `{scope}.{name}` is not resolved")]
    Tag {
        /// The tag's scope.
        scope: String,
        /// The tag's name.
        name: String,
    },
    /// A test of what is said of a packet: [`Expr::place_tags`] and [`Expr::resolve_ingress`] come
    /// first.
    #[error("the test `{test}` has no place")]
    Value {
        /// The test as text.
        test: String,
    },
    /// A primitive stands where libpcap does not take it.
    #[error("{0}")]
    Misplaced(Misplaced),
    /// More tests than a program can hold.
    #[error("the filter has too many terms")]
    TooLong,
}

/// A compiled filter. Serialised as its expression, and compiled again when read: a program that
/// comes from outside cannot be made to loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Expr", into = "Expr")]
pub struct Filter {
    expr: Expr,
    /// Jumps only lead to lower indices, so every run ends.
    steps: Vec<Step>,
    /// Fields that steps ask for by number, being no plain loads.
    slow: Vec<Field>,
    /// The tables of [`Branch::Table`]: from which value on, and there where to.
    starts: Vec<u32>,
    targets: Vec<u32>,
    /// The tables of [`Branch::Pages`]: by the high byte which page, there by the low byte where to.
    books: Vec<[u16; 256]>,
    pages: Vec<[u32; 256]>,
    entry: u32,
}

/// A jump to here ends the run: the packet matches.
const ACCEPT: u32 = u32::MAX;
/// A jump to here ends the run: the packet does not match.
const REJECT: u32 = u32::MAX - 1;

/// Most pages of a filter, 1 KiB each: more would not stay in a core's nearest cache.
const MAX_PAGES: usize = 64;

#[derive(Clone, Debug)]
struct Step {
    ask: Ask,
    missing: u32,
    branch: Branch,
}

/// A field, as short as can be: plain loads in place, all else by number.
#[derive(Clone, Copy, Debug)]
enum Ask {
    One {
        at: u32,
        mask: u32,
    },
    Two {
        at: u32,
        mask: u32,
    },
    Four {
        at: u32,
        mask: u32,
    },
    /// Two bytes behind an IPv4 header: a port.
    Behind {
        header: u32,
        at: u32,
        mask: u32,
    },
    /// Bits of a tag slot.
    Tag {
        slot: u8,
        shift: u8,
        mask: u32,
    },
    Other(u32),
}

impl Ask {
    fn of(field: &Field, slow: &mut Vec<Field>) -> Self {
        match *field {
            Field::Fixed { at, size: Size::One, mask } => Ask::One { at, mask },
            Field::Fixed { at, size: Size::Two, mask } => Ask::Two { at, mask },
            Field::Fixed { at, size: Size::Four, mask } => Ask::Four { at, mask },
            Field::Behind { header, at, size: Size::Two, mask } => Ask::Behind { header, at, mask },
            Field::Tag { slot, shift, mask } => Ask::Tag { slot, shift, mask },
            _ => {
                let number = slow.iter().position(|known| known == field).unwrap_or(slow.len());
                if number == slow.len() {
                    slow.push(field.clone());
                }
                // There are no more than steps, of which 2^32 are refused.
                Ask::Other(u32::try_from(number).unwrap_or(u32::MAX))
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Branch {
    /// Between these two values, both included; and else.
    Range { first: u32, last: u32, inside: u32, outside: u32 },
    /// By a table of so many entries.
    Table { at: u32, len: u32 },
    /// By the pages of a book: fields of up to 16 bits.
    Pages(u32),
}

impl Filter {
    /// Compiles `expr`.
    ///
    /// # Errors
    /// When `expr` holds a tag or a test of a value, a primitive where libpcap does not take it, or more
    /// than 2^32 tests.
    pub fn compile(expr: &Expr) -> Result<Filter, CompileError> {
        let (fields, cond) = lower(expr)?;
        let mut filter = Filter {
            expr: expr.clone(),
            steps: Vec::new(),
            slow: Vec::new(),
            starts: Vec::new(),
            targets: Vec::new(),
            books: Vec::new(),
            pages: Vec::new(),
            entry: REJECT,
        };
        filter.entry = match diagram::build(&cond, fields.list.len()) {
            Some(diagram) => {
                let mut done = HashMap::new();
                filter.emit_node(&diagram, diagram.entry, &fields, &mut done)?
            }
            None => filter.emit_cond(
                &cond,
                &fields,
                Ways { yes: ACCEPT, no: REJECT, missing: REJECT },
            )?,
        };
        Ok(filter)
    }

    /// What it was compiled from.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// True when `packet`, an Ethernet frame without tags, matches.
    #[inline]
    #[must_use]
    pub fn matches<B: Bytes + ?Sized>(&self, packet: &B) -> bool {
        self.matches_tagged(packet, |_| 0)
    }

    /// True when `packet`, an Ethernet frame, matches. `word` says what stands in each of its tag slots;
    /// it is asked for slots only when the filter tests them.
    #[inline]
    #[must_use]
    pub fn matches_tagged<B: Bytes + ?Sized>(&self, packet: &B, word: impl Fn(u8) -> u64) -> bool {
        let mut at = self.entry;
        while let Some(step) = self.steps.get(at as usize) {
            let value = match step.ask {
                Ask::One { at, mask } => packet.u8(at as usize).map(|n| u32::from(n) & mask),
                Ask::Two { at, mask } => packet.be16(at as usize).map(|n| u32::from(n) & mask),
                Ask::Four { at, mask } => packet.be32(at as usize).map(|n| n & mask),
                Ask::Behind { header, at, mask } => behind(packet, header, at)
                    .and_then(|at| packet.be16(at as usize))
                    .map(|n| u32::from(n) & mask),
                // The mask has 32 bits: what it leaves fits.
                Ask::Tag { slot, shift, mask } => Some((word(slot) >> (shift & 63)) as u32 & mask),
                Ask::Other(n) => self.slow.get(n as usize).and_then(|field| field.value(packet)),
            };
            at = match value {
                None => step.missing,
                Some(value) => match step.branch {
                    Branch::Range { first, last, inside, outside } => {
                        if (first..=last).contains(&value) { inside } else { outside }
                    }
                    Branch::Table { at, len } => self.look_up(at, len, value),
                    Branch::Pages(book) => self.turn_up(book, value),
                },
            };
        }
        at == ACCEPT
    }

    #[inline]
    fn look_up(&self, at: u32, len: u32, value: u32) -> u32 {
        let (at, end) = (at as usize, at.saturating_add(len) as usize);
        let starts = self.starts.get(at..end).unwrap_or_default();
        // Without a branch in the loop: which half is right cannot be foretold.
        let (mut low, mut size) = (0_usize, starts.len());
        while size > 1 {
            let half = size / 2;
            let middle = low.saturating_add(half);
            low = if starts.get(middle).is_some_and(|from| *from <= value) { middle } else { low };
            size = size.saturating_sub(half);
        }
        self.targets.get(at.saturating_add(low)).copied().unwrap_or(REJECT)
    }

    #[inline]
    fn turn_up(&self, book: u32, value: u32) -> u32 {
        let [_, _, high, low] = value.to_be_bytes();
        let page = self.books.get(book as usize).map_or(0, |book| book[usize::from(high)]);
        self.pages.get(usize::from(page)).map_or(REJECT, |page| page[usize::from(low)])
    }

    /// A table of values up to 0xffff as pages; `None` when there would be too many of them.
    fn book(&mut self, cases: &[(u32, u32)]) -> Option<Branch> {
        let before = self.pages.len();
        let mut book = [0_u16; 256];
        let mut rest = cases.iter().peekable();
        let mut to = REJECT;
        let mut value = 0_u32;
        for number in &mut book {
            let mut page = [REJECT; 256];
            for entry in &mut page {
                while let Some((_, next)) = rest.next_if(|(from, _)| *from <= value) {
                    to = *next;
                }
                *entry = to;
                value = value.saturating_add(1);
            }
            let known = self.pages.iter().position(|known| *known == page);
            let index = known.unwrap_or(self.pages.len());
            if known.is_none() {
                if index >= MAX_PAGES {
                    self.pages.truncate(before);
                    return None;
                }
                self.pages.push(page);
            }
            *number = u16::try_from(index).ok()?;
        }
        let number = u32::try_from(self.books.len()).ok()?;
        self.books.push(book);
        Some(Branch::Pages(number))
    }

    fn emit_node(
        &mut self,
        diagram: &Diagram,
        id: Id,
        fields: &Fields,
        done: &mut HashMap<Id, u32>,
    ) -> Result<u32, CompileError> {
        match id {
            TRUE => return Ok(ACCEPT),
            FALSE => return Ok(REJECT),
            _ => {}
        }
        if let Some(at) = done.get(&id) {
            return Ok(*at);
        }
        // Missing outside of all terms is nowhere: each primitive is a term.
        let Some(node) = diagram.node(id) else { return Ok(REJECT) };
        let missing = self.emit_node(diagram, node.missing, fields, done)?;
        let mut cases = Vec::with_capacity(node.cases.len());
        for (from, to) in &node.cases {
            cases.push((*from, self.emit_node(diagram, *to, fields, done)?));
        }
        let at = self.push(node.field, fields, missing, &cases)?;
        done.insert(id, at);
        Ok(at)
    }

    /// One test after the other, from right to left: where a test leads is then known.
    fn emit_cond(&mut self, cond: &Cond, fields: &Fields, to: Ways) -> Result<u32, CompileError> {
        let Ways { yes, no, missing } = to;
        match cond {
            Cond::Const(value) => Ok(if *value { yes } else { no }),
            Cond::Not(inner) => self.emit_cond(inner, fields, Ways { yes: no, no: yes, missing }),
            Cond::Term(inner) => self.emit_cond(inner, fields, Ways { yes, no, missing: no }),
            Cond::All(list) => list
                .iter()
                .rev()
                .try_fold(yes, |yes, c| self.emit_cond(c, fields, Ways { yes, no, missing })),
            Cond::Any(list) => list
                .iter()
                .rev()
                .try_fold(no, |no, c| self.emit_cond(c, fields, Ways { yes, no, missing })),
            Cond::In(field, ranges) => {
                let mut cases = Vec::with_capacity(ranges.len().saturating_mul(2));
                let mut from = Some(0);
                for (first, last) in ranges {
                    if from.is_some_and(|from| from < *first) {
                        cases.extend(from.map(|from| (from, no)));
                    }
                    cases.push((*first, yes));
                    from = last.checked_add(1);
                }
                cases.extend(from.map(|from| (from, no)));
                self.push(*field, fields, missing, &cases)
            }
        }
    }

    fn push(
        &mut self,
        field: crate::cond::FieldId,
        fields: &Fields,
        missing: u32,
        cases: &[(u32, u32)],
    ) -> Result<u32, CompileError> {
        let index = u32::try_from(self.steps.len()).ok().filter(|i| *i < REJECT);
        let index = index.ok_or(CompileError::TooLong)?;
        let field = usize::try_from(field).ok().and_then(|id| fields.list.get(id)).cloned();
        let field = field.ok_or(CompileError::TooLong)?;
        let ask = Ask::of(&field, &mut self.slow);
        let branch = match *cases {
            [(_, all)] => Branch::Range { first: 0, last: u32::MAX, inside: all, outside: all },
            [(_, below), (first, above)] => {
                Branch::Range { first, last: u32::MAX, inside: above, outside: below }
            }
            [(_, outside), (first, inside), (behind, other)] if outside == other => {
                Branch::Range { first, last: behind.saturating_sub(1), inside, outside }
            }
            _ if field.is_short()
                && let Some(book) = self.book(cases) =>
            {
                book
            }
            _ => {
                let at = u32::try_from(self.starts.len()).map_err(|_| CompileError::TooLong)?;
                let len = u32::try_from(cases.len()).map_err(|_| CompileError::TooLong)?;
                self.starts.extend(cases.iter().map(|(from, _)| *from));
                self.targets.extend(cases.iter().map(|(_, to)| *to));
                Branch::Table { at, len }
            }
        };
        self.steps.push(Step { ask, missing, branch });
        Ok(index)
    }
}

/// Where a condition leads.
#[derive(Clone, Copy)]
struct Ways {
    yes: u32,
    no: u32,
    missing: u32,
}

impl From<LowerError> for CompileError {
    fn from(error: LowerError) -> Self {
        match error {
            LowerError::Misplaced { why, .. } => CompileError::Misplaced(why),
            LowerError::Tag { scope, name } => CompileError::Tag { scope, name },
            LowerError::Value(test) => CompileError::Value { test },
        }
    }
}

impl TryFrom<Expr> for Filter {
    type Error = CompileError;

    fn try_from(expr: Expr) -> Result<Self, CompileError> {
        Filter::compile(&expr)
    }
}

impl From<Filter> for Expr {
    fn from(filter: Filter) -> Self {
        filter.expr
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.expr == other.expr
    }
}

impl Eq for Filter {}
