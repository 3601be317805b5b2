//! A filter, compiled: a program for all packets, and a table for each of the shapes that most have.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_packet::Bytes;

use crate::cond::Fields;
use crate::cross::{Table, Writer};
use crate::diagram::{self, Diagram};
use crate::emit::{Emitter, Program};
use crate::expr::Expr;
use crate::kinds::Kinds;
use crate::lower::{LowerError, lower};
use crate::offsets::Misplaced;
use crate::pages::Pages;
use crate::shape::{self, PLACES, SHAPES, Shape};

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
    program: Program,
    pages: Pages,
    /// By [`shape::of`].
    ways: [Way; PLACES],
}

/// How packets of one shape are judged.
#[derive(Clone, Debug)]
enum Way {
    Table(Table),
    /// By the program, from this step on.
    Steps(u32),
    /// By the EtherType where that decides, else by the program, from this step on.
    Kinds(Kinds, u32),
}

impl Way {
    /// From the step `entry`, where `diagram` begins; a look at the EtherType first where packets are of many.
    fn steps(entry: u32, diagram: &Diagram, fields: &Fields, many: bool) -> Way {
        match Kinds::of(diagram, fields).filter(|_| many) {
            Some(kinds) => Way::Kinds(kinds, entry),
            None => Way::Steps(entry),
        }
    }
}

impl Filter {
    /// Compiles `expr`.
    ///
    /// # Errors
    /// When `expr` holds a tag or a test of a value, a primitive where libpcap does not take it, or more
    /// than 2^32 tests.
    pub fn compile(expr: &Expr) -> Result<Filter, CompileError> {
        Self::for_shapes(expr, &SHAPES)
    }

    /// As [`Filter::compile`], for so few packets that it would take longer to make the tables than to judge them without.
    ///
    /// # Errors
    /// The same.
    pub fn compile_for_few(expr: &Expr) -> Result<Filter, CompileError> {
        Self::for_shapes(expr, &[])
    }

    /// With tables for packets of these shapes, the first ones of [`SHAPES`].
    fn for_shapes(expr: &Expr, shapes: &[Shape]) -> Result<Filter, CompileError> {
        let (fields, cond) = lower(expr)?;
        let mut emitter = Emitter::default();
        let (entry, first) = match diagram::build(&cond, &fields) {
            Some(diagram) => {
                let entry = emitter.diagram(&diagram, &fields)?;
                (entry, Way::steps(entry, &diagram, &fields, true))
            }
            None => {
                let entry = emitter.tests(&cond, &fields)?;
                (entry, Way::Steps(entry))
            }
        };
        let mut writer = Writer::default();
        let mut ways = std::array::from_fn(|_| Way::Steps(entry));
        if let Some(way) = ways.first_mut() {
            *way = first;
        }
        for (shape, way) in shapes.iter().zip(ways.iter_mut().skip(1)) {
            let (fields, cond) = shape.narrowed(&cond, &fields);
            // What grows too large even so is judged as all packets are.
            if let Some(diagram) = diagram::build(&cond, &fields) {
                let table = writer.table(&diagram, &fields, shape.columns());
                *way = match table {
                    Some(table) => Way::Table(table),
                    None => {
                        let entry = emitter.diagram(&diagram, &fields)?;
                        Way::steps(entry, &diagram, &fields, shape.is_of_many_kinds())
                    }
                };
            }
        }
        let program = emitter.finish();
        Ok(Filter { expr: expr.clone(), program, pages: writer.finish(), ways })
    }

    /// What it was compiled from.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// True when `packet`, an Ethernet frame, matches. Tags are as of a packet of which nobody has said
    /// anything.
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
        match self.ways.get(shape::of(packet)) {
            Some(Way::Table(table)) => table.accepts(&self.pages, packet),
            Some(Way::Kinds(kinds, entry)) => match kinds.answer(packet) {
                Some(answer) => answer,
                None => self.program.accepts(*entry, packet, word),
            },
            Some(Way::Steps(entry)) => self.program.accepts(*entry, packet, word),
            None => false,
        }
    }
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
