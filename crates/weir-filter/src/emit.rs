//! Flat programs of decisions, and how diagrams become them.

use std::collections::HashMap;

use weir_packet::Bytes;

use crate::arith::Size;
use crate::compile::CompileError;
use crate::cond::{Cond, FieldId, Fields};
use crate::diagram::{Diagram, FALSE, Id, TRUE};
use crate::field::{Field, behind};
use crate::pages::{Book, Pages, Paper};

/// A jump to here ends the run: the packet matches.
const ACCEPT: u32 = u32::MAX;
/// A jump to here ends the run: the packet does not match.
pub(crate) const REJECT: u32 = u32::MAX - 1;

/// Steps to run through, from one of several entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// Jumps only lead to lower indices, so every run ends.
    steps: Vec<Step>,
    /// Fields that steps ask for by number, being no plain loads.
    slow: Vec<Field>,
    /// The tables of [`Branch::Table`]: from which value on, and there where to.
    starts: Vec<u32>,
    targets: Vec<u32>,
    /// The tables of [`Branch::Pages`].
    pages: Pages,
}

#[derive(Clone, Debug)]
struct Step {
    ask: Ask,
    missing: u32,
    branch: Branch,
}

/// A field, as short as can be: plain loads in place, all else by number.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// Four bytes, of which the last ones are the field. One kind of load for all lengths: nothing
    /// is to be foretold. They are there when the field is, as they end where it does.
    Word {
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

#[derive(Clone, Debug)]
enum Branch {
    /// By whether the value is `first` or up to `more` above it.
    Range { first: u32, more: u32, inside: u32, outside: u32 },
    /// By a table of so many entries.
    Table { at: u32, len: u32 },
    /// By the pages of a book.
    Pages(Book),
}

impl Program {
    /// Whether the run that begins at `entry` accepts `packet`. Kept apart from the tables, which most
    /// packets go by and need few registers.
    #[inline(never)]
    pub(crate) fn accepts<B: Bytes + ?Sized>(
        &self,
        entry: u32,
        packet: &B,
        word: impl Fn(u8) -> u64,
    ) -> bool {
        let mut at = entry;
        while let Some(step) = self.steps.get(at as usize) {
            let value = match step.ask {
                Ask::Word { at, mask } => packet.be32(at as usize).map(|n| n & mask),
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
                    Branch::Range { first, more, inside, outside } => {
                        if value.wrapping_sub(first) <= more { inside } else { outside }
                    }
                    Branch::Table { at, len } => self.look_up(at, len, value),
                    Branch::Pages(book) => self.pages.turn_up(book, value).unwrap_or(REJECT),
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
}

/// Makes a program, from the last steps to the first.
#[derive(Default)]
pub(crate) struct Emitter {
    program: Program,
    /// The number of each field in [`Program::slow`].
    slow: HashMap<Field, u32>,
    paper: Paper,
}

/// Where a condition leads.
#[derive(Clone, Copy)]
struct Ways {
    yes: u32,
    no: u32,
    missing: u32,
}

impl Emitter {
    pub(crate) fn finish(self) -> Program {
        self.program
    }

    /// Where `diagram` begins.
    pub(crate) fn diagram(
        &mut self,
        diagram: &Diagram,
        fields: &Fields,
    ) -> Result<u32, CompileError> {
        self.node(diagram, diagram.entry, fields, &mut HashMap::new())
    }

    /// Where `cond` begins, one test after the other.
    pub(crate) fn tests(&mut self, cond: &Cond, fields: &Fields) -> Result<u32, CompileError> {
        self.in_a_row(cond, fields, Ways { yes: ACCEPT, no: REJECT, missing: REJECT })
    }

    fn node(
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
        let missing = self.node(diagram, node.missing, fields, done)?;
        let mut cases = Vec::with_capacity(node.cases.len());
        for (from, to) in &node.cases {
            cases.push((*from, self.node(diagram, *to, fields, done)?));
        }
        let at = self.push(node.field, fields, missing, &cases)?;
        done.insert(id, at);
        Ok(at)
    }

    /// From right to left: where a test leads is then known.
    fn in_a_row(&mut self, cond: &Cond, fields: &Fields, to: Ways) -> Result<u32, CompileError> {
        let Ways { yes, no, missing } = to;
        match cond {
            Cond::Const(value) => Ok(if *value { yes } else { no }),
            Cond::Not(inner) => self.in_a_row(inner, fields, Ways { yes: no, no: yes, missing }),
            Cond::Term(inner) => self.in_a_row(inner, fields, Ways { yes, no, missing: no }),
            Cond::All(list) => list
                .iter()
                .rev()
                .try_fold(yes, |yes, c| self.in_a_row(c, fields, Ways { yes, no, missing })),
            Cond::Any(list) => list
                .iter()
                .rev()
                .try_fold(no, |no, c| self.in_a_row(c, fields, Ways { yes, no, missing })),
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
        field: FieldId,
        fields: &Fields,
        missing: u32,
        cases: &[(u32, u32)],
    ) -> Result<u32, CompileError> {
        let index = u32::try_from(self.program.steps.len()).ok().filter(|i| *i < REJECT);
        let index = index.ok_or(CompileError::TooLong)?;
        let field = usize::try_from(field).ok().and_then(|id| fields.list.get(id));
        let field = field.ok_or(CompileError::TooLong)?;
        let ask = self.ask(field)?;
        let range = |first: u32, behind: u32, inside, outside| Branch::Range {
            first,
            more: behind.wrapping_sub(1).wrapping_sub(first),
            inside,
            outside,
        };
        let branch = match *cases {
            [(_, all)] => range(0, 0, all, all),
            // Up to the highest value there is, of which 0 stands behind.
            [(_, below), (first, above)] => range(first, 0, above, below),
            [(_, outside), (first, inside), (behind, other)] if outside == other => {
                range(first, behind, inside, outside)
            }
            _ if let Some(highest) = field.highest()
                && let Some(book) = self.paper.book(&mut self.program.pages, cases, highest) =>
            {
                Branch::Pages(book)
            }
            _ => {
                let at = u32::try_from(self.program.starts.len());
                let at = at.map_err(|_| CompileError::TooLong)?;
                let len = u32::try_from(cases.len()).map_err(|_| CompileError::TooLong)?;
                self.program.starts.extend(cases.iter().map(|(from, _)| *from));
                self.program.targets.extend(cases.iter().map(|(_, to)| *to));
                Branch::Table { at, len }
            }
        };
        self.program.steps.push(Step { ask, missing, branch });
        Ok(index)
    }

    fn ask(&mut self, field: &Field) -> Result<Ask, CompileError> {
        match *field {
            Field::Fixed { at, size, mask } | Field::There { at, size, mask } => {
                let before = 4_u32.saturating_sub(u32::try_from(size.bytes()).unwrap_or(0));
                if let Some(at) = at.checked_sub(before) {
                    return Ok(Ask::Word { at, mask });
                }
            }
            Field::Behind { header, at, size: Size::Two, mask } => {
                return Ok(Ask::Behind { header, at, mask });
            }
            Field::Tag { slot, shift, mask } => return Ok(Ask::Tag { slot, shift, mask }),
            _ => {}
        }
        if let Some(number) = self.slow.get(field) {
            return Ok(Ask::Other(*number));
        }
        let number = u32::try_from(self.program.slow.len()).map_err(|_| CompileError::TooLong)?;
        self.program.slow.push(field.clone());
        self.slow.insert(field.clone(), number);
        Ok(Ask::Other(number))
    }
}
