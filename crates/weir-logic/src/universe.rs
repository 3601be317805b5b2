//! Traffic classes, and questions about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir_filter::{Expr, Filter, TagTest, naive_matches};

use crate::bdd::Ref;
use crate::draft::{Made, Wanted};
use crate::limits::{Limits, Spent};
use crate::model::{INGRESS, Model, ranges};
use crate::variable::Variable;
use crate::verdict::{NumberValue, Reason, TagValue, Verdict, Witness};

/// A set of packets in a [`Universe`], which alone can say anything of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(u32);

/// Packets filled in otherwise, for each way in which opaque terms may turn out.
const FILLINGS: u64 = 8;

/// Steps that compiling a filter is worth, for each of its parts, and running it and its plain reading.
const COMPILE: u64 = 200;
const RUN: u64 = 16;
/// Steps that making a packet is worth, whatever it is tried on; and a question about two classes.
const MAKE: u64 = 400;
const ASK: u64 = 4;
/// Compiled filters that are kept.
const MAX_COMPILED: usize = 1024;

/// All classes of one policy, their diagrams, and what is known already.
///
/// Filters that are equal, or were asked for before, cost a look-up. Memory and time are bounded by
/// its [`Limits`]; a class that outgrew them stays one, and every question about it is answered with
/// [`Reason::Spent`].
#[derive(Debug)]
pub struct Universe {
    pub(crate) model: Model,
    /// How each class came to be. Those that it was made of stand before it.
    classes: Vec<Known>,
    /// The classes of filters.
    filters: HashMap<Expr, Class>,
    /// Filters that packets were tried on; none is one that cannot be compiled.
    compiled: HashMap<Expr, Option<Filter>>,
    limits: Limits,
    /// The limit of nodes was reached once.
    outgrown: bool,
}

#[derive(Debug)]
struct Known {
    origin: Origin,
    set: Result<Ref, Spent>,
}

#[derive(Clone, Debug)]
enum Origin {
    Filter(Expr),
    And(Class, Class),
    Not(Class),
}

impl Default for Universe {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Universe {
    /// An empty one.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            model: Model::new(limits),
            classes: Vec::new(),
            filters: HashMap::new(),
            compiled: HashMap::new(),
            limits,
            outgrown: false,
        }
    }

    /// The packets that `filter` matches. It is compiled alone: a `vlan` in it moves nothing in other
    /// filters. A tag in it is true or not, as if a packet's bytes had nothing to do with it.
    pub fn class(&mut self, filter: &Expr) -> Class {
        if let Some(class) = self.filters.get(filter) {
            return *class;
        }
        self.model.bdd.begin();
        let set = self.bounded(|model| model.filter(filter));
        let class = self.push(Origin::Filter(filter.clone()), set);
        self.filters.insert(filter.clone(), class);
        class
    }

    /// The packets that are in both.
    pub fn and(&mut self, a: Class, b: Class) -> Class {
        self.model.bdd.begin();
        let set = match (self.set(a), self.set(b)) {
            (Ok(f), Ok(g)) => self.bounded(|model| model.bdd.and(f, g)),
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
        self.push(Origin::And(a, b), set)
    }

    /// The packets that are in one of them, or both.
    pub fn or(&mut self, a: Class, b: Class) -> Class {
        let (a, b) = (self.not(a), self.not(b));
        let neither = self.and(a, b);
        self.not(neither)
    }

    /// The packets that are not in it.
    pub fn not(&mut self, a: Class) -> Class {
        if let Some(Known { origin: Origin::Not(inner), .. }) = self.known(a) {
            return *inner;
        }
        let set = self.set(a).map(Ref::negated);
        self.push(Origin::Not(a), set)
    }

    /// The packets of `a` that are not in `b`.
    pub fn difference(&mut self, a: Class, b: Class) -> Class {
        let b = self.not(b);
        self.and(a, b)
    }

    /// The packets that are in any of `list`.
    pub fn any(&mut self, list: &[Class]) -> Class {
        let none = self.class(&Expr::False);
        list.iter().fold(none, |f, g| self.or(f, *g))
    }

    /// Whether no packet is in it; an example if one is.
    pub fn is_empty(&mut self, class: Class) -> Verdict {
        self.model.bdd.begin();
        let set = self.set(class);
        match self.decide(class, set) {
            Ok(verdict) => verdict,
            Err(spent) => Verdict::Unknown(Reason::Spent(spent)),
        }
    }

    /// Whether no packet is in both. An example is in both.
    pub fn disjoint(&mut self, a: Class, b: Class) -> Verdict {
        let before = self.classes.len();
        let both = self.and(a, b);
        let verdict = self.is_empty(both);
        // Nobody else knows of it.
        self.classes.truncate(before);
        verdict
    }

    /// False when it is proved that no packet is in both. Asks the diagrams alone, so it is quick, and
    /// true says little: [`Universe::disjoint`] looks for an example.
    pub fn may_meet(&mut self, a: Class, b: Class) -> bool {
        self.model.bdd.begin();
        let (Ok(f), Ok(g)) = (self.set(a), self.set(b)) else {
            return true;
        };
        let both = self.bounded(|model| {
            model.bdd.charge(ASK)?;
            let both = model.bdd.and(f, g)?;
            if both == Ref::FALSE {
                return Ok(both);
            }
            let theory = model.theory()?;
            model.bdd.and(both, theory)
        });
        both != Ok(Ref::FALSE)
    }

    /// True when its limit of nodes, or of steps in all, was reached: for much that is asked from now on
    /// the answer will be [`Reason::Spent`], and take long.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.outgrown || self.model.bdd.is_spent()
    }

    /// Whether each packet is in one of `list`. An example is in none.
    pub fn covers(&mut self, list: &[Class]) -> Verdict {
        let any = self.any(list);
        let none = self.not(any);
        self.is_empty(none)
    }

    /// Whether all packets of `a` are in `b`. An example is in `a` alone.
    pub fn subset(&mut self, a: Class, b: Class) -> Verdict {
        let rest = self.difference(a, b);
        self.is_empty(rest)
    }

    /// Whether it is proved that the same packets are in both; false when it is not so, or not known.
    pub fn equal(&mut self, a: Class, b: Class) -> bool {
        if let (Ok(f), Ok(g)) = (self.set(a), self.set(b))
            && f == g
        {
            return true;
        }
        self.subset(a, b).is_empty() && self.subset(b, a).is_empty()
    }

    /// How many nodes its diagrams have: 12 bytes each, and up to 16 for finding it.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.model.bdd.len()
    }

    /// True when `packet` is in `class` by `weir_filter`'s own evaluation, which shares nothing with
    /// the diagrams. `tag(scope, name)` says what NFs said; opaque terms are what
    /// they really are. Tags that are compared with a value have none here, nor has `ingress`.
    #[must_use]
    pub fn contains(
        &self,
        class: Class,
        packet: &[u8],
        tag: &mut dyn FnMut(&str, &str) -> bool,
    ) -> bool {
        let no = |_: &str| None;
        self.evaluate(class, &mut |filter| naive_matches(&resolved(filter, tag, &no), packet))
    }

    fn known(&self, class: Class) -> Option<&Known> {
        self.classes.get(usize::try_from(class.0).ok()?)
    }

    /// A class of another universe is none here; then it is not known what is in it.
    fn set(&self, class: Class) -> Result<Ref, Spent> {
        self.known(class).map_or(Err(Spent::Nodes), |k| k.set)
    }

    fn push(&mut self, origin: Origin, set: Result<Ref, Spent>) -> Class {
        let class = Class(u32::try_from(self.classes.len()).unwrap_or(u32::MAX));
        self.classes.push(Known { origin, set });
        class
    }

    /// Runs `make` with what is left of this call's limits. What it made goes when it does not end.
    fn bounded<T>(
        &mut self,
        make: impl FnOnce(&mut Model) -> Result<T, Spent>,
    ) -> Result<T, Spent> {
        let mark = self.model.bdd.mark();
        let made = make(&mut self.model);
        if let Err(spent) = &made {
            self.model.undo(mark);
            self.outgrown |= *spent == Spent::Nodes;
        }
        made
    }

    /// Looks for a packet in `class`, until there is one or there can be none.
    fn decide(&mut self, class: Class, set: Result<Ref, Spent>) -> Result<Verdict, Spent> {
        let mut left = set?;
        if left == Ref::FALSE {
            return Ok(Verdict::Empty);
        }
        let mut tried = 0;
        let mut blamed = BTreeSet::new();
        let mut in_vain = false;
        for _ in 0..self.limits.tries {
            left = self.bounded(|model| {
                let theory = model.theory()?;
                model.bdd.and(left, theory)
            })?;
            // A packet that ends somewhere odd explains little, if a whole one does as well.
            let whole = self.bounded(|model| {
                let whole = model.whole()?;
                model.bdd.and(left, whole)
            })?;
            let from = if whole == Ref::FALSE { left } else { whole };
            let Some((chosen, wanted)) = self.choose(from) else {
                return Ok(if in_vain { self.unknown(tried, blamed) } else { Verdict::Empty });
            };
            match self.try_packets(class, &chosen, &wanted, &mut tried)? {
                Tried::Found(witness) => return Ok(Verdict::Example(Box::new(witness))),
                Tried::Impossible(ties) => {
                    left = self.bounded(|model| {
                        ties.iter().try_fold(left, |f, tie| {
                            let tie = model.tie(tie)?;
                            model.bdd.and(f, tie)
                        })
                    })?;
                }
                Tried::InVain => {
                    in_vain = true;
                    blamed.extend(wanted.opaque.iter().map(|((index, _), _)| *index));
                    left = self.bounded(|model| {
                        let tried = model.bdd.cube(&mut chosen.clone())?;
                        model.bdd.and(left, tried.negated())
                    })?;
                }
            }
        }
        Ok(self.unknown(tried, blamed))
    }

    fn unknown(&self, tries: u32, blamed: BTreeSet<u32>) -> Verdict {
        let text = |i: &u32| self.model.shown.get(usize::try_from(*i).ok()?).cloned();
        let terms: BTreeSet<String> = blamed.iter().filter_map(text).collect();
        Verdict::Unknown(if terms.is_empty() {
            Reason::Unconfirmed { tries }
        } else {
            Reason::Opaque { terms: terms.into_iter().collect() }
        })
    }

    /// The values with which `set` holds that are most like an ordinary packet.
    fn choose(&self, set: Ref) -> Option<(Vec<(u32, bool)>, Wanted)> {
        let mut wanted = Wanted::default();
        let mut known = 0_usize;
        let chosen = self.model.bdd.example(set, |place, chosen| {
            for (place, value) in chosen.iter().skip(known) {
                wanted.add(Variable::at(*place), *value);
            }
            known = chosen.len();
            wanted.ordinary(Variable::at(place))
        })?;
        let wanted = Wanted::new(&chosen);
        Some((chosen, wanted))
    }

    /// Makes packets with what is wanted, until one is in `class`.
    fn try_packets(
        &mut self,
        class: Class,
        chosen: &[(u32, bool)],
        wanted: &Wanted,
        tried: &mut u32,
    ) -> Result<Tried, Spent> {
        // Terms of other filters may ask for lengths that nothing here depends on.
        if let Made::Packet(packet) = Wanted::of_any_length(chosen).packet(0) {
            let witness = self.witness(class, packet, wanted);
            if self.confirmed(class, &witness)? {
                return Ok(Tried::Found(witness));
            }
        }
        // Only what is not looked into can depend on the rest of the packet.
        let outside = &self.model.outside;
        let packets = |((index, _), _): &((u32, u32), bool)| !outside.contains_key(index);
        let fillings = if wanted.opaque.iter().any(packets) { FILLINGS } else { 1 };
        for seed in 0..fillings {
            *tried = tried.saturating_add(1);
            match Wanted::new(chosen).packet(seed) {
                Made::Never(ties) => return Ok(Tried::Impossible(ties)),
                Made::Packet(packet) => {
                    let witness = self.witness(class, packet, wanted);
                    if self.confirmed(class, &witness)? {
                        return Ok(Tried::Found(witness));
                    }
                }
            }
        }
        Ok(Tried::InVain)
    }

    fn witness(&self, class: Class, packet: Vec<u8>, wanted: &Wanted) -> Witness {
        let mut tags = BTreeSet::new();
        // Only asks which filters there are.
        self.evaluate(class, &mut |filter| {
            tags.extend(filter.tags().iter().map(|(s, n)| ((*s).to_owned(), (*n).to_owned())));
            false
        });
        let tags = tags.into_iter().map(|(scope, name)| {
            let tag = (scope, name);
            let number = self.model.tags.find(&tag);
            let value = wanted.tags.iter().any(|((n, _), value)| Some(*n) == number && *value);
            TagValue { scope: tag.0, name: tag.1, value }
        });
        let tags = tags.collect();
        let wire_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        Witness { packet, wire_len, tags, numbers: self.numbers(wanted) }
    }

    /// Compared tags, and `ingress`, that must have a value. What bits are open is zero.
    fn numbers(&self, wanted: &Wanted) -> Vec<NumberValue> {
        let mut found: BTreeMap<u32, (bool, u64)> = BTreeMap::new();
        for &((index, bit), value) in &wanted.opaque {
            let (there, number) = found.entry(index).or_default();
            match bit {
                0 => *there = value,
                _ if value => {
                    let width = self.model.outside.get(&index).copied().unwrap_or(0);
                    *number |= 1_u64.checked_shl(width.saturating_sub(bit)).unwrap_or(0);
                }
                _ => {}
            }
        }
        let named = |(index, (there, value)): (u32, (bool, u64))| {
            let name = self.model.opaque.get(index).filter(|_| there)?;
            self.model.outside.get(&index)?;
            Some(NumberValue { name: name.clone(), value })
        };
        found.into_iter().filter_map(named).collect()
    }

    /// Both of `weir_filter`'s evaluations must say so: a report that names a packet must be right.
    fn confirmed(&mut self, class: Class, witness: &Witness) -> Result<bool, Spent> {
        let mut tag = |scope: &str, name: &str| {
            witness.tags.iter().any(|t| t.scope == scope && t.name == name && t.value)
        };
        let number = |name: &str| witness.numbers.iter().find(|n| n.name == name).map(|n| n.value);
        let mut compiled = std::mem::take(&mut self.compiled);
        let mut steps = MAKE;
        // Compiled filters refuse what nobody knows, and then nothing is confirmed.
        let mut refused = false;
        let mut plain: HashMap<Expr, bool> = HashMap::new();
        let fast = self.evaluate(class, &mut |filter| {
            let filter = resolved(filter, &mut tag, &number);
            let mut parts = 0_u64;
            filter.visit(&mut |_| parts = parts.saturating_add(1));
            steps = steps.saturating_add(parts.saturating_mul(RUN));
            if !compiled.contains_key(&filter) {
                steps = steps.saturating_add(parts.saturating_mul(COMPILE));
                if compiled.len() >= MAX_COMPILED {
                    compiled.clear();
                }
                compiled.insert(filter.clone(), Filter::compile(&filter).ok());
            }
            let matches = match compiled.get(&filter).and_then(Option::as_ref) {
                Some(filter) => filter.matches(witness.packet.as_slice()),
                None => {
                    refused = true;
                    false
                }
            };
            plain.entry(filter).or_insert_with_key(|f| naive_matches(f, &witness.packet));
            matches
        });
        let slow = self.evaluate(class, &mut |filter| {
            plain.get(&resolved(filter, &mut tag, &number)).is_some_and(|matches| *matches)
        });
        self.compiled = compiled;
        self.model.bdd.charge(steps)?;
        Ok(fast && slow && !refused)
    }

    /// What `class` is when `truth` says what each of its filters is. Asks for every filter in it.
    fn evaluate(&self, class: Class, truth: &mut dyn FnMut(&Expr) -> bool) -> bool {
        let mut needed = BTreeSet::from([class.0]);
        let mut at = Some(class.0);
        // What a class is made of stands before it, so one way down finds all.
        while let Some(this) = at {
            match self.known(Class(this)).map(|k| &k.origin) {
                Some(Origin::And(a, b)) => needed.extend([a.0, b.0]),
                Some(Origin::Not(a)) => needed.extend([a.0]),
                Some(Origin::Filter(_)) | None => {}
            }
            at = needed.range(..this).next_back().copied();
        }
        let mut values: HashMap<u32, bool> = HashMap::with_capacity(needed.len());
        let value = |values: &HashMap<u32, bool>, c: &Class| values.get(&c.0) == Some(&true);
        for this in needed {
            let result = match self.known(Class(this)).map(|k| &k.origin) {
                Some(Origin::Filter(filter)) => truth(filter),
                Some(Origin::And(a, b)) => value(&values, a) && value(&values, b),
                Some(Origin::Not(a)) => !value(&values, a),
                None => false,
            };
            values.insert(this, result);
        }
        value(&values, &class)
    }
}

enum Tried {
    Found(Witness),
    Impossible(Vec<crate::theory::Tie>),
    InVain,
}

/// `filter` with what was said in place of tags and of comparisons with values.
fn resolved(
    filter: &Expr,
    tag: &mut dyn FnMut(&str, &str) -> bool,
    number: &dyn Fn(&str) -> Option<u64>,
) -> Expr {
    with_values(filter, number).resolve_tags(&mut |scope, name| Some(tag(scope, name)))
}

fn with_values(expr: &Expr, number: &dyn Fn(&str) -> Option<u64>) -> Expr {
    let list = |list: &[Expr]| list.iter().map(|e| with_values(e, number)).collect();
    let (name, ranges) = match expr {
        Expr::TagIs { scope, name, test: TagTest::Number { compare, value } } => {
            (format!("{scope}.{name}"), ranges(*compare, *value))
        }
        Expr::TagIs { scope, name, test: TagTest::Flag } => {
            (format!("{scope}.{name}"), vec![(1, 1)])
        }
        Expr::Ingress { first, last } => {
            (INGRESS.to_owned(), vec![(u64::from(*first), u64::from(*last))])
        }
        Expr::Not(inner) => return Expr::not(with_values(inner, number)),
        Expr::And(inner) => return Expr::And(list(inner)),
        Expr::Or(inner) => return Expr::Or(list(inner)),
        other => return other.clone(),
    };
    let holds =
        number(&name).is_some_and(|n| ranges.iter().any(|(lo, hi)| (lo..=hi).contains(&&n)));
    if holds { Expr::True } else { Expr::False }
}
