//! A filter as a flat program of decisions.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_packet::Bytes;

use crate::expr::Expr;
use crate::view::View;

mod test;

use test::Test;

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
    nodes: Vec<Node>,
    entry: u32,
}

/// A jump to here ends the run: the packet matches.
const ACCEPT: u32 = u32::MAX;
/// A jump to here ends the run: the packet does not match.
const REJECT: u32 = u32::MAX - 1;

#[derive(Clone, Debug)]
struct Node {
    test: Test,
    /// VLAN tags to look behind.
    tags: u32,
    yes: u32,
    no: u32,
}

impl Filter {
    /// Compiles `expr`.
    ///
    /// # Errors
    /// When `expr` holds a tag, or more than 2^32 tests.
    pub fn compile(expr: &Expr) -> Result<Filter, CompileError> {
        let mut compiler = Compiler { nodes: Vec::new(), tags: expr.vlans() };
        let entry = compiler.emit(expr, ACCEPT, REJECT)?;
        Ok(Filter { expr: expr.clone(), nodes: compiler.nodes, entry })
    }

    /// What it was compiled from.
    #[must_use]
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// True when `packet`, an Ethernet frame, matches.
    #[inline]
    #[must_use]
    pub fn matches<B: Bytes + ?Sized>(&self, packet: &B) -> bool {
        let Some(mut node) = self.node(self.entry) else {
            return self.entry == ACCEPT;
        };
        let mut tags = node.tags;
        let mut view = View::new(packet, tags);
        loop {
            if node.tags != tags {
                tags = node.tags;
                view = View::new(packet, tags);
            }
            let next = if node.test.holds(&mut view) { node.yes } else { node.no };
            match self.node(next) {
                Some(n) => node = n,
                None => return next == ACCEPT,
            }
        }
    }

    #[inline]
    fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(index).unwrap_or(usize::MAX))
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

/// Emits from right to left: a test's jump targets are then known when it is emitted, and the tags it
/// looks behind are those whose `vlan` has not been emitted yet.
struct Compiler {
    nodes: Vec<Node>,
    tags: u32,
}

impl Compiler {
    /// Emits `expr` so that it ends at `yes` or `no`, and says where it begins.
    fn emit(&mut self, expr: &Expr, yes: u32, no: u32) -> Result<u32, CompileError> {
        match expr {
            Expr::True => Ok(yes),
            Expr::False => Ok(no),
            Expr::Not(inner) => self.emit(inner, no, yes),
            Expr::And(list) => list.iter().rev().try_fold(yes, |next, e| self.emit(e, next, no)),
            Expr::Or(list) => list.iter().rev().try_fold(no, |next, e| self.emit(e, yes, next)),
            Expr::Tag { scope, name } => {
                Err(CompileError::Tag { scope: scope.clone(), name: name.clone() })
            }
            Expr::Primitive(primitive) => {
                if matches!(primitive, crate::Primitive::Vlan { .. }) {
                    self.tags = self.tags.saturating_sub(1);
                }
                let index = u32::try_from(self.nodes.len()).unwrap_or(REJECT);
                if index >= REJECT {
                    return Err(CompileError::TooLong);
                }
                self.nodes.push(Node { test: Test::new(primitive), tags: self.tags, yes, no });
                Ok(index)
            }
        }
    }
}
