//! What a filter says of a packet, as a function of the packet's bits.
//!
//! `weir_filter` says what each term comes down to: numbers at offsets, which what stands left of it has
//! moved, and ranges that they must be in. Terms of
//! different filters that look at the same bytes get the same variables, whatever they take the bytes
//! for: nothing is lost by that.
//!
//! A read of bytes that are not there makes the term false (`weir_filter`'s rule), so each read
//! brings the variable that says they are there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use weir_filter::{Compare, Condition, Expr, Number, TagTest, Terms};

use crate::bdd::{Bdd, Ref};
use crate::limits::{Limits, Spent};
use crate::variable::Variable;

/// The number of the port that a packet came in by.
pub(crate) const INGRESS: &str = "ingress";

/// Longest packet, in bytes.
const LONGEST: u32 = 65_535;

/// The diagrams, and what their variables stand for.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) bdd: Bdd,
    /// Scope and name of each tag that is true or not.
    pub(crate) tags: Numbered<(String, String)>,
    /// Numbers that are not looked into.
    pub(crate) opaque: Numbered<String>,
    /// For each of them the term in which it came first.
    pub(crate) shown: Vec<String>,
    /// Those of them that are not the packet's but said of it, and how many bits they have.
    pub(crate) outside: BTreeMap<u32, u32>,
    /// Lengths that some term asks for: [`Variable::Has`].
    pub(crate) has: BTreeSet<u32>,
    /// The same behind IPv4 headers: [`Variable::L4Has`].
    pub(crate) l4_has: BTreeSet<(u32, u32)>,
    /// That fields are there, and in ranges.
    within: HashMap<(Field, u32, u32), Ref>,
    /// [`Model::theory`]'s answer, until a length is asked for that was not known to it.
    pub(crate) theory: Option<Ref>,
}

/// Bytes of the packet, with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Field {
    /// Counted from the end of the IPv4 header here, if any.
    behind: Option<u32>,
    at: u32,
    bytes: u32,
    mask: u32,
}

/// Where a condition is true, and where it is missing.
#[derive(Clone, Copy)]
struct Sides {
    yes: Ref,
    missing: Ref,
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            bdd: Bdd::new(limits),
            tags: Numbered::default(),
            opaque: Numbered::default(),
            shown: Vec::new(),
            outside: BTreeMap::new(),
            has: BTreeSet::new(),
            l4_has: BTreeSet::new(),
            within: HashMap::new(),
            theory: None,
        }
    }

    /// Forgets the functions made since `mark`.
    pub(crate) fn undo(&mut self, mark: usize) {
        self.bdd.undo(mark);
        let Self { bdd, within, .. } = self;
        within.retain(|_, f| bdd.survives(*f, mark));
        self.theory = self.theory.filter(|f| self.bdd.survives(*f, mark));
    }

    /// The packets that `expr` matches.
    pub(crate) fn filter(&mut self, expr: &Expr) -> Result<Ref, Spent> {
        self.expression(expr, &mut Terms::new())
    }

    /// Looks at every part, also when the result is known: some move what follows them.
    fn expression(&mut self, expr: &Expr, terms: &mut Terms) -> Result<Ref, Spent> {
        match expr {
            Expr::True => Ok(Ref::TRUE),
            Expr::False => Ok(Ref::FALSE),
            Expr::Not(inner) => Ok(self.expression(inner, terms)?.negated()),
            Expr::And(list) => list.iter().try_fold(Ref::TRUE, |f, e| {
                let g = self.expression(e, terms)?;
                self.bdd.and(f, g)
            }),
            Expr::Or(list) => list.iter().try_fold(Ref::FALSE, |f, e| {
                let g = self.expression(e, terms)?;
                self.bdd.or(f, g)
            }),
            Expr::Tag { scope, name } => {
                let index = self.tags.number(&(scope.clone(), name.clone()));
                self.alone(Variable::Tag { index, bit: 0 })
            }
            Expr::TagIs { scope, name, test: TagTest::Number { compare, value } } => {
                let key = format!("{scope}.{name}");
                let ranges = ranges(*compare, *value);
                self.said(&key, &ranges, 64, expr)
            }
            Expr::TagIs { scope, name, test: TagTest::Flag } => {
                self.said(&format!("{scope}.{name}"), &[(1, 1)], 1, expr)
            }
            // Where a tag stands says nothing of what it means.
            Expr::TagIs { test: TagTest::Matches(_), .. } | Expr::Slot(_) => {
                Ok(self.opaque(&expr.to_string(), &[(1, 1)], 1, expr)?.yes)
            }
            Expr::Ingress { first, last } => {
                let range = (u64::from(*first), u64::from(*last));
                self.said(INGRESS, &[range], 16, expr)
            }
            // What libpcap does not take matches nothing; to compile it is an error.
            Expr::Primitive(p) => match terms.next(p) {
                Ok(condition) => Ok(self.condition(&condition, expr)?.yes),
                Err(_) => Ok(Ref::FALSE),
            },
        }
    }

    /// `expr` is the term that it belongs to.
    fn condition(&mut self, condition: &Condition, expr: &Expr) -> Result<Sides, Spent> {
        match condition {
            Condition::Const(value) => {
                let yes = if *value { Ref::TRUE } else { Ref::FALSE };
                Ok(Sides { yes, missing: Ref::FALSE })
            }
            Condition::Not(inner) => {
                let Sides { yes, missing } = self.condition(inner, expr)?;
                let known = self.bdd.or(yes, missing)?.negated();
                Ok(Sides { yes: known, missing })
            }
            Condition::All(list) => {
                let mut all = Sides { yes: Ref::TRUE, missing: Ref::FALSE };
                for inner in list {
                    let inner = self.condition(inner, expr)?;
                    // What comes later is asked only where all before were true.
                    let missing = self.bdd.and(all.yes, inner.missing)?;
                    all.missing = self.bdd.or(all.missing, missing)?;
                    all.yes = self.bdd.and(all.yes, inner.yes)?;
                }
                Ok(all)
            }
            Condition::Any(list) => {
                let mut any = Sides { yes: Ref::FALSE, missing: Ref::FALSE };
                for inner in list {
                    let inner = self.condition(inner, expr)?;
                    let known = self.bdd.or(any.yes, any.missing)?;
                    let asked = known.negated();
                    let missing = self.bdd.and(asked, inner.missing)?;
                    let yes = self.bdd.and(asked, inner.yes)?;
                    any.missing = self.bdd.or(any.missing, missing)?;
                    any.yes = self.bdd.or(any.yes, yes)?;
                }
                Ok(any)
            }
            Condition::In(number, ranges) => self.number(number, ranges, expr),
        }
    }

    fn number(
        &mut self,
        number: &Number,
        ranges: &[(u32, u32)],
        expr: &Expr,
    ) -> Result<Sides, Spent> {
        let field = match *number {
            Number::Fixed { at, bytes, mask } => Field { behind: None, at, bytes, mask },
            Number::Behind { header, at, bytes, mask } => {
                Field { behind: Some(header), at, bytes, mask }
            }
            Number::Length => return self.length(ranges),
            Number::Other(_) => return self.other(number, ranges, expr),
        };
        let Some(bits) = field.bits() else {
            // Behind an IPv4 header it may be there, further right than any packet goes it is not.
            return match field.behind {
                Some(_) => self.other(number, ranges, expr),
                None => Ok(Sides { yes: Ref::FALSE, missing: Ref::TRUE }),
            };
        };
        let there = self.there(field)?;
        let mut yes = Ref::FALSE;
        for &(lo, hi) in ranges {
            let this = match self.within.get(&(field, lo, hi)) {
                Some(f) => *f,
                None => {
                    let this = self.bdd.range(&bits, lo.into(), hi.into())?;
                    let this = self.bdd.and(there, this)?;
                    self.within.insert((field, lo, hi), this);
                    this
                }
            };
            yes = self.bdd.or(yes, this)?;
        }
        Ok(Sides { yes, missing: there.negated() })
    }

    /// At least so many bytes, and not more than so many.
    fn length(&mut self, ranges: &[(u32, u32)]) -> Result<Sides, Spent> {
        let mut yes = Ref::FALSE;
        for &(lo, hi) in ranges {
            let from = self.has(lo)?;
            let longer = self.has(hi.saturating_add(1))?;
            let this = self.bdd.and(from, longer.negated())?;
            yes = self.bdd.or(yes, this)?;
        }
        Ok(Sides { yes, missing: Ref::FALSE })
    }

    fn has(&mut self, bytes: u32) -> Result<Ref, Spent> {
        if bytes == 0 {
            return Ok(Ref::TRUE);
        }
        if bytes <= LONGEST && self.has.insert(bytes) {
            self.theory = None;
        }
        self.alone(Variable::Has { bytes })
    }

    fn other(
        &mut self,
        number: &Number,
        ranges: &[(u32, u32)],
        expr: &Expr,
    ) -> Result<Sides, Spent> {
        let ranges: Vec<_> = ranges.iter().map(|&(a, b)| (a.into(), b.into())).collect();
        self.opaque(&format!("{number:?}"), &ranges, 32, expr)
    }

    /// A number that is said of the packet.
    fn said(
        &mut self,
        name: &str,
        ranges: &[(u64, u64)],
        bits: u32,
        expr: &Expr,
    ) -> Result<Ref, Spent> {
        let sides = self.opaque(name, ranges, bits, expr)?;
        let index = self.opaque.number(&name.to_owned());
        self.outside.insert(index, bits);
        Ok(sides.yes)
    }

    /// A number that is not looked into: there or not, and of any value.
    fn opaque(
        &mut self,
        key: &str,
        ranges: &[(u64, u64)],
        bits: u32,
        expr: &Expr,
    ) -> Result<Sides, Spent> {
        let index = self.opaque.number(&key.to_owned());
        if self.shown.len() < self.opaque.list.len() {
            self.shown.push(expr.to_string());
        }
        let there = self.alone(Variable::Opaque { index, bit: 0 })?;
        let bits: Vec<Option<u32>> =
            (1..=bits).map(|bit| Variable::Opaque { index, bit }.place()).collect();
        let mut yes = Ref::FALSE;
        for &(lo, hi) in ranges {
            let this = self.bdd.range(&bits, lo.into(), hi.into())?;
            yes = self.bdd.or(yes, this)?;
        }
        let yes = self.bdd.and(there, yes)?;
        Ok(Sides { yes, missing: there.negated() })
    }

    /// That all its bytes are there.
    fn there(&mut self, field: Field) -> Result<Ref, Spent> {
        let bytes = field.at.saturating_add(field.bytes);
        match field.behind {
            None => self.has(bytes),
            Some(l3) => {
                if self.l4_has.insert((l3, bytes)) {
                    self.theory = None;
                }
                self.alone(Variable::L4Has { l3, bytes })
            }
        }
    }

    /// That `variable` is true. Without a place it is not.
    fn alone(&mut self, variable: Variable) -> Result<Ref, Spent> {
        match variable.place() {
            Some(place) => self.bdd.choose(place, Ref::FALSE, Ref::TRUE),
            None => Ok(Ref::FALSE),
        }
    }
}

impl Field {
    /// The places of its bits, highest first; none where the mask makes it zero. Nothing when its
    /// variables do not reach so far.
    fn bits(&self) -> Option<Vec<Option<u32>>> {
        let count = self.bytes.checked_mul(8)?;
        let mut bits = Vec::with_capacity(32);
        for i in 0..count {
            let byte = self.at.checked_add(i / 8)?;
            let bit = 7 - i % 8;
            let variable = match self.behind {
                None => Variable::Bit { byte, bit },
                Some(l3) => Variable::L4Bit { l3, byte, bit },
            };
            let place = variable.place()?;
            let lowest = count.saturating_sub(1).saturating_sub(i);
            bits.push((self.mask.checked_shr(lowest)? & 1 == 1).then_some(place));
        }
        Some(bits)
    }
}

/// The numbers that compare so with `value`.
pub(crate) fn ranges(compare: Compare, value: u64) -> Vec<(u64, u64)> {
    let below = value.checked_sub(1).map(|n| (0, n));
    let above = value.checked_add(1).map(|n| (n, u64::MAX));
    match compare {
        Compare::Equal => vec![(value, value)],
        Compare::NotEqual => below.into_iter().chain(above).collect(),
        Compare::Less => below.into_iter().collect(),
        Compare::LessOrEqual => vec![(0, value)],
        Compare::Greater => above.into_iter().collect(),
        Compare::GreaterOrEqual => vec![(value, u64::MAX)],
    }
}

/// Things in the order in which they first came.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    known: HashMap<T, u32>,
    list: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), list: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn number(&mut self, thing: &T) -> u32 {
        if let Some(number) = self.known.get(thing) {
            return *number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(thing.clone());
        self.known.insert(thing.clone(), number);
        number
    }

    /// The number of `thing`, if it has come.
    pub(crate) fn find(&self, thing: &T) -> Option<u32> {
        self.known.get(thing).copied()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.list.get(usize::try_from(number).ok()?)
    }
}
