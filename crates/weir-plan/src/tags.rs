//! Tags at run time: which are asked for, who sets them, and which bits of a packet's slots they get.
//!
//! Only what a filter tests gets a place. Tests of what the same NFs say share one: the *setters* of
//! `http.url` are the instance `http` (all µNFs of a VNF of that name), or, where nothing is called
//! so, every instance of the type `http`. A flag takes one bit, a text one bit for each pattern, a number a
//! slot, in which 0 means that there is none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_filter::{Compare, Expr, SlotTest, TagTest};

use crate::auto_tags;
use crate::catalog::TagKind;
use crate::graph::{Edge, EdgeId, Graph, Node, NodeId, NodeKind};

/// Slots of a packet, each of 64 bits.
pub const TAG_SLOTS: u8 = 8;

/// Scope and name of the number of the edge by which a packet left its port. `Port` is a word that no
/// instance can have as its name.
pub(crate) const ENTRY: (&str, &str) = ("Port", "entry");

/// The policy's tests do not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagsError {
    /// More than there are slots for.
    #[error(
        "tests of tags need {slots} slots of 64 bits, and a packet has {TAG_SLOTS}; a compared number takes a slot, a pattern or a flag one bit: ask for fewer"
    )]
    TooMany {
        /// How many would be needed.
        slots: usize,
    },
    /// More patterns than a slot has bits.
    #[error("more than 64 patterns ask for `{tag}`; join some by `|`")]
    Patterns {
        /// The tag.
        tag: String,
    },
    /// More automatic tags of an NF than a slot has bits.
    #[error("filters ask for more than 64 tags that edges to `{node}` give: ask for fewer")]
    Automatic {
        /// The NF.
        node: String,
    },
}

/// Where a tag's value goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// One bit.
    Flag {
        /// The slot.
        slot: u8,
        /// The bit, from the lowest.
        bit: u8,
    },
    /// A slot, which holds the number plus one.
    Number {
        /// The slot.
        slot: u8,
    },
    /// For each pattern one bit, from `bit` on.
    Text {
        /// The slot.
        slot: u8,
        /// The first pattern's bit, from the lowest.
        bit: u8,
        /// Regular expressions.
        patterns: Vec<String>,
    },
}

/// A tag that an NF is to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Where its value goes.
    pub place: Place,
}

/// What a packet gets that takes an edge: `word` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The slot.
    pub slot: u8,
    /// Which bits are set.
    pub mask: u64,
    /// To what.
    pub word: u64,
}

/// The places of a graph's tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// By node.
    settings: Vec<Vec<Setting>>,
    /// By scope, name and kind: the place that is tested.
    tested: BTreeMap<(String, String, TagKind), Place>,
    entry: Option<u8>,
    /// By edge.
    marks: Vec<Vec<Mark>>,
}

/// What the same NFs say under one name.
type Variable = (BTreeSet<NodeId>, String, TagKind);

impl Tags {
    /// Gives places to what the graph's filters test.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn assign(graph: &Graph) -> Result<Self, TagsError> {
        let mut asked: BTreeMap<Variable, Vec<String>> = BTreeMap::new();
        let mut scopes: BTreeMap<(String, String, TagKind), Variable> = BTreeMap::new();
        let mut by_entry = false;
        let outputs = graph.nodes().iter().flat_map(|node| &node.outputs);
        let filters = outputs.flat_map(|output| &output.branches).filter_map(|b| b.filter.as_ref());
        for (scope, name, test) in filters.flat_map(Expr::tag_tests) {
            if (scope, name) == ENTRY {
                by_entry = true;
                continue;
            }
            let key = (scope.to_owned(), name.to_owned(), kind(test));
            let variable = scopes.entry(key).or_insert_with(|| {
                (setters(graph, scope, name, kind(test)), name.to_owned(), kind(test))
            });
            // What nobody can say is false: it needs no place.
            if variable.0.is_empty() {
                continue;
            }
            let patterns = asked.entry(variable.clone()).or_default();
            if let TagTest::Matches(pattern) = test
                && !patterns.contains(pattern)
            {
                patterns.push(pattern.clone());
            }
        }
        let mut packing = Packing::default();
        let entry = if by_entry { Some(packing.take(64)) } else { None };
        let mut places: BTreeMap<Variable, Place> = BTreeMap::new();
        // The widest first, so that what is left over is small.
        let mut order: Vec<(Variable, Vec<String>)> = asked.into_iter().collect();
        order.sort_by_key(|((.., kind), patterns)| std::cmp::Reverse(width(*kind, patterns)));
        for (variable, patterns) in order {
            if patterns.len() > 64 {
                return Err(TagsError::Patterns { tag: variable.1 });
            }
            let (slot, bit) = packing.take(width(variable.2, &patterns));
            let place = match variable.2 {
                TagKind::Flag => Place::Flag { slot: clamp(slot), bit },
                TagKind::Number => Place::Number { slot: clamp(slot) },
                TagKind::Text => Place::Text { slot: clamp(slot), bit, patterns },
            };
            places.insert(variable, place);
        }
        let mut automatic: BTreeMap<String, (BTreeSet<String>, (usize, u8))> = BTreeMap::new();
        for (node, names) in asked_automatic(graph) {
            let bits = u8::try_from(names.len()).ok().filter(|bits| *bits <= 64);
            let Some(bits) = bits else { return Err(TagsError::Automatic { node }) };
            automatic.insert(node, (names, packing.take(bits)));
        }
        if packing.slots() > usize::from(TAG_SLOTS) {
            return Err(TagsError::TooMany { slots: packing.slots() });
        }
        let mut settings = vec![Vec::new(); graph.nodes().len()];
        for ((setters, name, _), place) in &places {
            for setter in setters {
                if let Some(list) = settings.get_mut(setter.index()) {
                    list.push(Setting { name: name.clone(), place: place.clone() });
                }
            }
        }
        let tested = scopes
            .into_iter()
            .filter_map(|(key, variable)| places.get(&variable).map(|place| (key, place.clone())));
        let mut tested: BTreeMap<_, _> = tested.collect();
        let entry = entry.map(|(slot, _)| clamp(slot));
        let mut marks: Vec<Vec<Mark>> = graph
            .edges()
            .iter()
            .map(|edge| entry_mark(entry, edge).into_iter().collect())
            .collect();
        for (node, (names, (slot, first))) in automatic {
            let slot = clamp(slot);
            let bit = |i: usize| 1_u64.wrapping_shl(u32::from(first)) << i;
            let mask = (0..names.len()).fold(0, |mask, i| mask | bit(i));
            for (edge, marks) in graph.edges().iter().zip(&mut marks) {
                if enters(graph, edge, &node) {
                    let given = names.iter().position(|name| Some(name) == edge.tag.as_ref());
                    marks.push(Mark { slot, mask, word: given.map_or(0, bit) });
                }
            }
            for (name, bit) in names.into_iter().zip(first..) {
                let key = (auto_tags::scope(&node), name, TagKind::Flag);
                tested.insert(key, Place::Flag { slot, bit });
            }
        }
        Ok(Self { settings, tested, entry, marks })
    }

    /// True when some tag has a place: packets then arrive with empty slots.
    #[must_use]
    pub fn any(&self) -> bool {
        self.entry.is_some() || !self.tested.is_empty()
    }

    /// What a node has to set.
    #[must_use]
    pub fn of(&self, node: NodeId) -> &[Setting] {
        self.settings.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// What packets get that take an edge: the number of an edge by which they leave their port, and the
    /// automatic tag of one that leads into an NF.
    #[must_use]
    pub fn marks(&self, edge: EdgeId) -> &[Mark] {
        self.marks.get(edge.index()).map_or(&[], Vec::as_slice)
    }

    /// The filter with tests of slots in place of tests of tags.
    #[must_use]
    pub fn place(&self, filter: &Expr) -> Expr {
        auto_tags::as_flags(filter).place_tags(&mut |scope, name, test| {
            let place = match self.entry.filter(|_| (scope, name) == ENTRY) {
                Some(slot) => Some(Place::Number { slot }),
                None => {
                    let key = (scope.to_owned(), name.to_owned(), kind(test));
                    self.tested.get(&key).cloned()
                }
            };
            match (place, test) {
                (Some(Place::Flag { slot, bit }), TagTest::Flag) => one(slot, bit.into()),
                (Some(Place::Number { slot }), TagTest::Number { compare, value }) => {
                    number(slot, *compare, *value)
                }
                (Some(Place::Text { slot, bit, patterns }), TagTest::Matches(pattern)) => {
                    match patterns.iter().zip(u32::from(bit)..).find(|(p, _)| *p == pattern) {
                        Some((_, bit)) => one(slot, bit),
                        None => Expr::False,
                    }
                }
                _ => Expr::False,
            }
        })
    }
}

/// The nodes that set a tag which some filter of the graph tests, or the edges into which give one.
pub(crate) fn asked(graph: &Graph) -> BTreeSet<NodeId> {
    let filters = graph.edges().iter().filter_map(|edge| edge.filter.as_ref());
    let tests = filters.flat_map(Expr::tag_tests);
    let names: BTreeSet<(&str, &str, TagKind)> =
        tests.map(|(scope, name, test)| (scope, name, kind(test))).collect();
    let set = names.into_iter().flat_map(|(scope, name, kind)| setters(graph, scope, name, kind));
    let automatic = asked_automatic(graph);
    let entered = graph.node_ids().filter(|(_, n)| automatic.keys().any(|node| is_of(n, node)));
    set.chain(entered.map(|(id, _)| id)).collect()
}

/// The automatic tags that filters ask for, by the NF that the edges lead to which give them.
fn asked_automatic(graph: &Graph) -> BTreeMap<String, BTreeSet<String>> {
    let outputs = graph.nodes().iter().flat_map(|node| &node.outputs);
    let filters = outputs.flat_map(|output| &output.branches).filter_map(|b| b.filter.as_ref());
    let mut automatic: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (node, name) in filters.flat_map(auto_tags::asked) {
        automatic.entry(node.to_owned()).or_default().insert(name.to_owned());
    }
    automatic
}

/// True for the node of that name, and for the µNFs of a VNF of that name.
fn is_of(node: &Node, name: &str) -> bool {
    node.policy_name() == name || node.vnf.as_ref().is_some_and(|vnf| vnf.instance == name)
}

/// True for an edge that leads into the NF or VNF `name`; not for those between a VNF's own µNFs.
fn enters(graph: &Graph, edge: &Edge, name: &str) -> bool {
    let is_of = |id| graph.node(id).is_some_and(|node| is_of(node, name));
    let inside = is_of(edge.from) && graph.node(edge.to).is_some_and(|to| to.vnf.is_some());
    is_of(edge.to) && !inside
}

fn entry_mark(slot: Option<u8>, edge: &Edge) -> Option<Mark> {
    let (slot, entry) = (slot?, edge.entry?);
    Some(Mark { slot, mask: u64::MAX, word: u64::from(entry).saturating_add(1) })
}

/// The kind of tag that a test is for.
pub(crate) fn kind(test: &TagTest) -> TagKind {
    match test {
        TagTest::Flag => TagKind::Flag,
        TagTest::Number { .. } => TagKind::Number,
        TagTest::Matches(_) => TagKind::Text,
    }
}

fn says(node: &Node, name: &str, kind: TagKind) -> bool {
    match &node.kind {
        NodeKind::Nf { info, .. } => info.tags.iter().any(|t| t.name == name && t.kind == kind),
        NodeKind::Vnf(vnf) => {
            vnf.nodes.iter().any(|n| n.info.tags.iter().any(|t| t.name == name && t.kind == kind))
        }
        NodeKind::Port { .. } | NodeKind::Drop => false,
    }
}

/// The nodes that `scope` names and that set such a tag.
fn setters(graph: &Graph, scope: &str, name: &str, kind: TagKind) -> BTreeSet<NodeId> {
    let instance = |node: &Node| {
        node.policy_name() == scope || node.vnf.as_ref().is_some_and(|vnf| vnf.instance == scope)
    };
    let of_type = |node: &Node| match &node.kind {
        NodeKind::Nf { info, .. } => {
            info.name == scope || node.vnf.as_ref().is_some_and(|vnf| vnf.template == scope)
        }
        NodeKind::Vnf(vnf) => vnf.info.name == scope,
        NodeKind::Port { .. } | NodeKind::Drop => false,
    };
    let found = |matches: &dyn Fn(&Node) -> bool| {
        let all = graph.node_ids().filter(|(_, node)| matches(node) && says(node, name, kind));
        all.map(|(id, _)| id).collect::<BTreeSet<_>>()
    };
    if graph.nodes().iter().any(instance) { found(&instance) } else { found(&of_type) }
}

fn width(kind: TagKind, patterns: &[String]) -> u8 {
    match kind {
        TagKind::Flag => 1,
        TagKind::Number => 64,
        TagKind::Text => u8::try_from(patterns.len()).unwrap_or(u8::MAX),
    }
}

/// Bits of slots, taken first fit. Goes on beyond the slots that there are, to say how many are needed.
#[derive(Default)]
struct Packing(Vec<u8>);

impl Packing {
    /// The slot of so many bits, 64 at most, and the first of them.
    fn take(&mut self, bits: u8) -> (usize, u8) {
        let fits = |used: &u8| used.saturating_add(bits) <= 64;
        let slot = self.0.iter().position(fits).unwrap_or(self.0.len());
        if slot == self.0.len() {
            self.0.push(0);
        }
        let Some(used) = self.0.get_mut(slot) else { return (slot, 0) };
        let bit = *used;
        *used = used.saturating_add(bits);
        (slot, bit)
    }

    fn slots(&self) -> usize {
        self.0.len()
    }
}

fn clamp(slot: usize) -> u8 {
    u8::try_from(slot).unwrap_or(u8::MAX)
}

fn one(slot: u8, bit: u32) -> Expr {
    let mask = 1_u64.wrapping_shl(bit);
    Expr::Slot(SlotTest { slot, mask, first: mask, last: mask })
}

/// The slot holds the number plus one, or 0.
fn number(slot: u8, compare: Compare, value: u64) -> Expr {
    let range = |first: Option<u64>, last: Option<u64>| match (first, last) {
        (Some(first), Some(last)) if first <= last => {
            Expr::Slot(SlotTest { slot, mask: u64::MAX, first, last })
        }
        _ => Expr::False,
    };
    let (stored, above) = (value.checked_add(1), value.checked_add(2));
    let (least, most) = (Some(1), Some(u64::MAX));
    match compare {
        Compare::Equal => range(stored, stored),
        Compare::NotEqual => Expr::or(
            [range(least, Some(value)), range(above, most)]
                .into_iter()
                .filter(|part| *part != Expr::False)
                .collect(),
        ),
        Compare::Less => range(least, Some(value)),
        Compare::LessOrEqual => range(least, stored.or(most)),
        Compare::Greater => range(above, most),
        Compare::GreaterOrEqual => range(stored, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_no_number_compare_as_they_should_at_both_ends() {
        let compares = [
            (Compare::Equal, (|a, b| a == b) as fn(u64, u64) -> bool),
            (Compare::NotEqual, |a, b| a != b),
            (Compare::Less, |a, b| a < b),
            (Compare::LessOrEqual, |a, b| a <= b),
            (Compare::Greater, |a, b| a > b),
            (Compare::GreaterOrEqual, |a, b| a >= b),
        ];
        // 2^64 - 2 is the largest that is stored.
        let most = u64::MAX - 1;
        let values = [0, 1, 2, 77, most - 1, most];
        for (compare, holds) in compares {
            for with in values.into_iter().chain([u64::MAX]) {
                let test = number(3, compare, with);
                assert_eq!(test.resolve_slots(&|_| 0), Expr::False, "no number {compare:?} {with}");
                for value in values {
                    let wanted = if holds(value, with) { Expr::True } else { Expr::False };
                    let word = |slot| if slot == 3 { value + 1 } else { 0 };
                    assert_eq!(test.resolve_slots(&word), wanted, "{value} {compare:?} {with}");
                }
            }
        }
    }

    #[test]
    fn small_places_share_a_slot() {
        let mut packing = Packing::default();
        assert_eq!(
            [64, 60, 1, 5, 3].map(|n| packing.take(n)),
            [(0, 0), (1, 0), (1, 60), (2, 0), (1, 61)]
        );
        assert_eq!(packing.slots(), 3);
    }
}
