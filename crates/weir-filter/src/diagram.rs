//! Conditions to a decision diagram: each field is asked for at most once on a packet's way.
//!
//! An interval decision diagram (Strehl and Thiele, Symbolic Model Checking using Interval Diagram
//! Techniques, TIK 40, 1998), ordered by the fields and reduced as Bryant's (Graph-Based Algorithms for
//! Boolean Function Manipulation, IEEE TC 35(8), 1986), with one more branch for a missing field. Most
//! filters come out small, as their terms share fields; some grow with the product of their terms, and
//! so the work is bounded: then [`build`] gives up and the caller tests one condition after the other.

use std::collections::HashMap;

use crate::cond::{Cond, FieldId, Fields};
use crate::field::Field;

/// A node or a value.
pub(crate) type Id = u32;

/// The values, before all nodes.
pub(crate) const FALSE: Id = 0;
pub(crate) const TRUE: Id = 1;
const MISSING: Id = 2;
const VALUES: Id = 3;

/// Cases looked at before giving up: some ten milliseconds.
const MAX_CASES: usize = 400_000;
/// More fields than this nest too deeply.
const MAX_FIELDS: usize = 256;

/// A decision by a field's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) field: FieldId,
    /// Where it goes without the field.
    pub(crate) missing: Id,
    /// From this value on, where it goes; the first is from 0.
    pub(crate) cases: Vec<(u32, Id)>,
}

/// A diagram; its nodes lead only to earlier ones.
#[derive(Debug)]
pub(crate) struct Diagram {
    nodes: Vec<Node>,
    pub(crate) entry: Id,
}

impl Diagram {
    /// The node that `id` is; `None` when it is a value.
    pub(crate) fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(usize::try_from(id.checked_sub(VALUES)?).ok()?)
    }
}

impl Diagram {
    /// Where node `id` leads with `value`.
    pub(crate) fn at(&self, id: Id, value: u32) -> Id {
        let Some(node) = self.node(id) else { return id };
        let behind = node.cases.partition_point(|(from, _)| *from <= value);
        behind.checked_sub(1).and_then(|at| node.cases.get(at)).map_or(FALSE, |(_, to)| *to)
    }
}

/// The diagram of `cond`; `None` when it grows too large, or takes too long.
pub(crate) fn build(cond: &Cond, fields: &Fields) -> Option<Diagram> {
    if fields.list.len() > MAX_FIELDS {
        return None;
    }
    let mut builder =
        Builder { there: fields.list.iter().map(Field::is_there).collect(), ..Builder::default() };
    let entry = builder.cond(cond)?;
    Some(Diagram { nodes: builder.nodes, entry })
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Join {
    And,
    Or,
}

#[derive(Default)]
struct Builder {
    /// Of each field, whether it is never missing. Then nobody asks where a node goes without it.
    there: Vec<bool>,
    nodes: Vec<Node>,
    known: HashMap<Node, Id>,
    joined: HashMap<(Join, Id, Id), Id>,
    cases: usize,
}

impl Builder {
    fn cond(&mut self, cond: &Cond) -> Option<Id> {
        match cond {
            Cond::Const(true) => Some(TRUE),
            Cond::Const(false) => Some(FALSE),
            Cond::In(field, ranges) => {
                let mut cases = Vec::with_capacity(ranges.len().saturating_mul(2));
                let mut from = Some(0);
                for (first, last) in ranges {
                    if from.is_some_and(|from| from < *first) {
                        cases.extend(from.map(|from| (from, FALSE)));
                    }
                    cases.push((*first, TRUE));
                    from = last.checked_add(1);
                }
                cases.extend(from.map(|from| (from, FALSE)));
                self.node(*field, MISSING, cases)
            }
            Cond::Not(inner) => {
                let inner = self.cond(inner)?;
                self.replace(inner, [TRUE, FALSE, MISSING])
            }
            Cond::Term(inner) => {
                let inner = self.cond(inner)?;
                self.replace(inner, [FALSE, TRUE, FALSE])
            }
            Cond::All(list) => self.list(Join::And, list),
            Cond::Any(list) => self.list(Join::Or, list),
        }
    }

    /// Joined in pairs, then the pairs, so that long lists do not grow one by one.
    fn list(&mut self, join: Join, list: &[Cond]) -> Option<Id> {
        match list {
            [] => Some(if join == Join::And { TRUE } else { FALSE }),
            [only] => self.cond(only),
            _ => {
                let (left, right) = list.split_at(list.len() / 2);
                let (left, right) = (self.list(join, left)?, self.list(join, right)?);
                self.join(join, left, right)
            }
        }
    }

    fn node(&mut self, field: FieldId, missing: Id, mut cases: Vec<(u32, Id)>) -> Option<Id> {
        // Before any of them goes: they are the work that was done.
        self.cases = self.cases.saturating_add(cases.len());
        if self.cases > MAX_CASES {
            return None;
        }
        cases.dedup_by_key(|(_, to)| *to);
        let there = self.is_there(field);
        if let [(_, only)] = cases.as_slice()
            && (there || *only == missing)
        {
            return Some(*only);
        }
        let missing = if there { FALSE } else { missing };
        let node = Node { field, missing, cases };
        if let Some(id) = self.known.get(&node) {
            return Some(*id);
        }
        let id = Id::try_from(self.nodes.len()).ok()?.checked_add(VALUES)?;
        self.known.insert(node.clone(), id);
        self.nodes.push(node);
        Some(id)
    }

    fn is_there(&self, field: FieldId) -> bool {
        usize::try_from(field).ok().and_then(|at| self.there.get(at)).is_some_and(|there| *there)
    }

    fn get(&self, id: Id) -> Option<&Node> {
        self.nodes.get(usize::try_from(id.checked_sub(VALUES)?).ok()?)
    }

    /// The diagram with its values replaced: false, true and missing by these.
    fn replace(&mut self, id: Id, values: [Id; 3]) -> Option<Id> {
        let mut done = HashMap::new();
        self.replace_in(id, values, &mut done)
    }

    fn replace_in(&mut self, id: Id, values: [Id; 3], done: &mut HashMap<Id, Id>) -> Option<Id> {
        if let Some(value) = usize::try_from(id).ok().and_then(|id| values.get(id)) {
            return Some(*value);
        }
        if let Some(id) = done.get(&id) {
            return Some(*id);
        }
        let Node { field, missing, cases } = self.get(id)?.clone();
        let missing = self.replace_in(missing, values, done)?;
        let mut replaced = Vec::with_capacity(cases.len());
        for (from, to) in cases {
            replaced.push((from, self.replace_in(to, values, done)?));
        }
        let new = self.node(field, missing, replaced)?;
        done.insert(id, new);
        Some(new)
    }

    /// `left` then `right`: what `left` decides, or misses, is the result.
    fn join(&mut self, join: Join, left: Id, right: Id) -> Option<Id> {
        let goes_on = if join == Join::And { TRUE } else { FALSE };
        if left == goes_on {
            return Some(right);
        }
        if left < VALUES || right == goes_on {
            return Some(left);
        }
        if let Some(id) = self.joined.get(&(join, left, right)) {
            return Some(*id);
        }
        let a = self.get(left)?.clone();
        let b = self.get(right).cloned();
        // The field that comes first decides; who does not ask for it stays as it is.
        let field = b.as_ref().map_or(a.field, |b| b.field.min(a.field));
        let part = |node: Option<&Node>, id: Id| match node {
            Some(node) if node.field == field => (node.missing, node.cases.clone()),
            _ => (id, vec![(0, id)]),
        };
        let (missing_a, cases_a) = part(Some(&a), left);
        let (missing_b, cases_b) = part(b.as_ref(), right);
        let missing =
            if self.is_there(field) { FALSE } else { self.join(join, missing_a, missing_b)? };
        let mut cases = Vec::with_capacity(cases_a.len().max(cases_b.len()));
        let (mut rest_a, mut rest_b) = (cases_a.iter().peekable(), cases_b.iter().peekable());
        let (mut at_a, mut at_b) = (left, right);
        // Where either begins a new case, both are looked at again.
        while let Some(from) = match (rest_a.peek(), rest_b.peek()) {
            (Some((a, _)), Some((b, _))) => Some(*a.min(b)),
            (Some((only, _)), None) | (None, Some((only, _))) => Some(*only),
            (None, None) => None,
        } {
            if let Some((_, to)) = rest_a.next_if(|(at, _)| *at == from) {
                at_a = *to;
            }
            if let Some((_, to)) = rest_b.next_if(|(at, _)| *at == from) {
                at_b = *to;
            }
            cases.push((from, self.join(join, at_a, at_b)?));
        }
        let id = self.node(field, missing, cases)?;
        self.joined.insert((join, left, right), id);
        Some(id)
    }
}
