//! Filter expressions.

use serde::{Deserialize, Serialize};

use crate::arith::Compare;
use crate::primitive::Primitive;

/// Most memory that a compiled pattern of `~` may take, in bytes.
pub const MAX_PATTERN: usize = 256 * 1024;

/// A filter. The order of operands matters: `vlan` moves what stands right of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// Every packet.
    True,
    /// No packet.
    False,
    /// One test.
    Primitive(Primitive),
    /// `scope.name`: something an NF said of the packet (a tag or an output). Its meaning is the
    /// caller's: [`Expr::resolve_tags`].
    Tag {
        /// The instance or type that says it.
        scope: String,
        /// What is said.
        name: String,
    },
    /// `scope.name == 3`, `scope.name ~ "^/admin"`: something an NF said of the packet, compared.
    TagIs {
        /// The instance or type that says it.
        scope: String,
        /// What is said.
        name: String,
        /// What it must be.
        test: TagTest,
    },
    /// Bits of a packet's tag slots: what a [`Expr::TagIs`] comes down to when the planner has given its
    /// tag a place ([`Expr::place_tags`]). No text means it.
    Slot(SlotTest),
    /// `ingress == 2`: the number of the policy's port that the packet came in by, `first ..= last`.
    Ingress {
        /// Lowest port number.
        first: u16,
        /// Highest port number.
        last: u16,
    },
    /// Not the inner one.
    Not(Box<Expr>),
    /// All of them; none means every packet.
    And(Vec<Expr>),
    /// Any of them; none means no packet.
    Or(Vec<Expr>),
}

/// What the value of a tag must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagTest {
    /// It is a flag, and true. Written without a comparison, so [`crate::parse`] takes it for an
    /// [`Expr::Tag`]: the caller knows which of them are flags of NFs further back.
    Flag,
    /// A number that compares so.
    Number {
        /// How.
        compare: Compare,
        /// With what.
        value: u64,
    },
    /// Bytes in which this regular expression is found somewhere (the syntax of the crate `regex`,
    /// over bytes). [`crate::parse`] takes only what compiles within [`crate::MAX_PATTERN`] bytes.
    Matches(String),
}

/// A test of a slot: `word & mask` is from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotTest {
    /// Which slot.
    pub slot: u8,
    /// Bits that count: one run of ones.
    pub mask: u64,
    /// The least, with its bits where the mask has them.
    pub first: u64,
    /// The most.
    pub last: u64,
}

impl Expr {
    /// The conjunction of `list` from left to right; conjunctions in it are flattened.
    #[must_use]
    pub fn and(list: Vec<Expr>) -> Expr {
        let mut flat = Vec::with_capacity(list.len());
        for e in list {
            match e {
                Expr::And(inner) => flat.extend(inner),
                e => flat.push(e),
            }
        }
        match flat.len() {
            0 => Expr::True,
            1 => flat.pop().unwrap_or(Expr::True),
            _ => Expr::And(flat),
        }
    }

    /// The disjunction of `list` from left to right; disjunctions in it are flattened.
    #[must_use]
    pub fn or(list: Vec<Expr>) -> Expr {
        let mut flat = Vec::with_capacity(list.len());
        for e in list {
            match e {
                Expr::Or(inner) => flat.extend(inner),
                e => flat.push(e),
            }
        }
        match flat.len() {
            0 => Expr::False,
            1 => flat.pop().unwrap_or(Expr::False),
            _ => Expr::Or(flat),
        }
    }

    /// The negation.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a constructor beside `and` and `or`")]
    pub fn not(inner: Expr) -> Expr {
        Expr::Not(Box::new(inner))
    }

    /// The tags in it, from left to right, with repetitions; those that are compared with a value are
    /// not among them: see [`Expr::tag_tests`].
    #[must_use]
    pub fn tags(&self) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        self.visit(&mut |e| {
            if let Expr::Tag { scope, name } = e {
                found.push((scope.as_str(), name.as_str()));
            }
        });
        found
    }

    /// True when it asks for the port that a packet came in by.
    #[must_use]
    pub fn asks_ingress(&self) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= matches!(e, Expr::Ingress { .. }));
        found
    }

    /// True when it looks at tag slots.
    #[must_use]
    pub fn asks_slots(&self) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= matches!(e, Expr::Slot(_)));
        found
    }

    /// The tests of tags' values in it: scope, name and test, from left to right.
    #[must_use]
    pub fn tag_tests(&self) -> Vec<(&str, &str, &TagTest)> {
        let mut found = Vec::new();
        self.visit(&mut |e| {
            if let Expr::TagIs { scope, name, test } = e {
                found.push((scope.as_str(), name.as_str(), test));
            }
        });
        found
    }

    /// How many `vlan` primitives it holds: by so many tags it moves what stands right of it.
    #[must_use]
    pub fn vlans(&self) -> u32 {
        let mut n = 0_u32;
        self.visit(&mut |e| {
            if matches!(e, Expr::Primitive(Primitive::Vlan { .. })) {
                n = n.saturating_add(1);
            }
        });
        n
    }

    /// True when it holds what moves the offsets of all that stands right of it.
    #[must_use]
    pub fn shifts(&self) -> bool {
        let mut found = false;
        self.visit(&mut |e| {
            found |= matches!(
                e,
                Expr::Primitive(
                    Primitive::Vlan { .. } | Primitive::Mpls { .. } | Primitive::Pppoes { .. }
                )
            );
        });
        found
    }

    /// Calls `f` with this and everything in it, outer before inner, left before right.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Not(inner) => inner.visit(f),
            Expr::And(list) | Expr::Or(list) => list.iter().for_each(|e| e.visit(f)),
            Expr::True
            | Expr::False
            | Expr::Primitive(_)
            | Expr::Tag { .. }
            | Expr::TagIs { .. }
            | Expr::Slot(_)
            | Expr::Ingress { .. } => {}
        }
    }
}

impl From<Primitive> for Expr {
    fn from(primitive: Primitive) -> Self {
        Expr::Primitive(primitive)
    }
}
