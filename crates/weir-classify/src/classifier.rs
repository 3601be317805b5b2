//! The compiled rule list.

use crate::compiled::{Cold, Compiled, Family, Hot, Key, key};
use crate::headers::Headers;
use crate::ports::PortClasses;
use crate::rule::{Prefix, Rule};
use crate::tree::{Builder, Forest, NEVER, Node, QUAD};
use std::collections::HashSet;

/// Rules of one list at most.
pub const MAX_RULES: usize = 65_535;

/// What [`Classifier::classify_batch`] writes when no rule matches.
pub const NO_RULE: u32 = u32::MAX;

/// Tree entries (8-byte nodes, 4-byte rule numbers) per rule at most, beside a constant: bounds memory.
const ENTRIES_PER_RULE: usize = 64;
const ENTRIES_MAX: usize = 2_000_000;

/// Rough prices, in ns, of a tree, of a step in it, and of comparing a group of rules in its leaf.
const COST_TREE: usize = 8;
const COST_STEP: usize = 4;
const COST_GROUP: usize = 5;

/// Packets that [`Classifier::classify_batch`] keeps in flight: enough to hide the second-level cache, few enough
/// that their keys stay in the first.
const LANES: usize = 16;

/// Why a rule list cannot be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// More than [`MAX_RULES`].
    #[error("{0} rules are too many: at most {MAX_RULES} fit one list")]
    TooManyRules(usize),
    /// The rules tell apart all 65,536 ports of one field.
    #[error("the rules tell apart every single port: combine some port ranges")]
    TooManyPortRanges,
}

/// A rule list compiled to decision trees; immutable, so it can be shared and swapped.
///
/// The rules are compiled apart for IPv4, IPv6 and everything else, into one to four trees each: rules that are wide
/// in the source, in the destination, in both or in neither address would copy each other into every branch of one
/// tree (EffiCuts, SIGCOMM 2010). Five ways to part them are built, and the cheapest for a packet of each rule kept.
///
/// *Bounds.* Entries of the trees are limited to 64 per rule and 2,000,000 per family, the work of a build per rule
/// too. Where rules overlap so much that cuts do not part them within that, leaves stay large and are compared in
/// order: the worst case is all rules of the family, about 1 ns each ([`Shape::largest_leaf`] tells). Every other
/// answer takes a few dependent loads per tree.
#[derive(Debug, Clone)]
pub struct Classifier {
    sport: PortClasses,
    dport: PortClasses,
    link: bool,
    v4: Group,
    v6: Group,
    other: Group,
}

/// The rules of one address family.
#[derive(Debug, Clone, Default)]
struct Group {
    forest: Forest,
    /// Trees with the smallest rule position in each, ascending.
    roots: Vec<(u32, Node)>,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
}

/// How large a compiled list is, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of all tables.
    pub bytes: usize,
    /// Trees over all families.
    pub trees: usize,
    /// Rules of the largest leaf.
    pub largest_leaf: usize,
}

impl Classifier {
    /// Compiles an ordered list.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(rules: &[Rule]) -> Result<Classifier, BuildError> {
        if rules.len() > MAX_RULES {
            return Err(BuildError::TooManyRules(rules.len()));
        }
        let usable =
            || rules.iter().filter(|rule| !rule.sport.is_empty() && !rule.dport.is_empty());
        let sport = PortClasses::new(usable().map(|rule| &rule.sport))
            .ok_or(BuildError::TooManyPortRanges)?;
        let dport = PortClasses::new(usable().map(|rule| &rule.dport))
            .ok_or(BuildError::TooManyPortRanges)?;
        let mut link = false;
        let mut group = |family| {
            // A rule equal to an earlier one never wins, and no cut would part them.
            let mut seen = HashSet::new();
            let compiled: Vec<Compiled> = (0_u32..)
                .zip(rules)
                .filter(|(_, rule)| seen.insert(*rule))
                .filter_map(|(index, rule)| Compiled::new(rule, index, family, &sport, &dport))
                .collect();
            link |= compiled.iter().any(Compiled::tests_link);
            Group::build(rules, &compiled, (sport.bits(), dport.bits()))
        };
        let (v4, v6, other) = (group(Family::V4), group(Family::V6), group(Family::Other));
        Ok(Classifier { link, v4, v6, other, sport, dport })
    }

    /// Position of the first rule that matches.
    #[inline]
    pub fn classify(&self, headers: &Headers) -> Option<u32> {
        let (family, key) = key(headers, &self.sport, &self.dport, self.link);
        let found = self.group(family).lookup(&key);
        (found != NO_RULE).then_some(found)
    }

    /// Writes to each element of `found` the position of the first rule that matches the header of the same
    /// position, [`NO_RULE`] when none does. Stops at the shorter of both slices.
    ///
    /// Several lookups are in flight at a time, so that their cache misses overlap.
    pub fn classify_batch(&self, headers: &[Headers], found: &mut [u32]) {
        for (headers, found) in headers.chunks(LANES).zip(found.chunks_mut(LANES)) {
            let mut keys = [[0; 16]; LANES];
            let mut families = [Family::Other; LANES];
            for ((header, key_slot), family_slot) in
                headers.iter().zip(&mut keys).zip(&mut families)
            {
                (*family_slot, *key_slot) = key(header, &self.sport, &self.dport, self.link);
            }
            let count = headers.len().min(found.len());
            let first = families[0];
            if families.iter().take(count).all(|family| *family == first) {
                self.group(first).lookup_batch(keys.get(..count).unwrap_or_default(), found);
            } else {
                for ((key, family), found) in keys.iter().zip(families).zip(found) {
                    *found = self.group(family).lookup(key);
                }
            }
        }
    }

    /// Size of the compiled tables.
    pub fn shape(&self) -> Shape {
        let groups = [&self.v4, &self.v6, &self.other];
        let sum =
            |count: fn(&Group) -> usize| groups.iter().map(|group| count(group)).sum::<usize>();
        Shape {
            bytes: sum(Group::bytes)
                .saturating_add(self.sport.bytes())
                .saturating_add(self.dport.bytes()),
            trees: sum(|group| group.roots.len()),
            largest_leaf: groups
                .iter()
                .map(|group| group.forest.largest_leaf(&group.roots))
                .max()
                .unwrap_or(0),
        }
    }

    #[inline]
    fn group(&self, family: Family) -> &Group {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
            Family::Other => &self.other,
        }
    }
}

impl Group {
    fn build(rules: &[Rule], compiled: &[Compiled], port_bits: (u8, u8)) -> Group {
        let positions: Vec<u32> = (0_u32..).zip(compiled).map(|(position, _)| position).collect();
        let wide = |position: u32| {
            let rule =
                compiled.get(position as usize).and_then(|rule| rules.get(rule.index as usize));
            rule.map_or((false, false), |rule| (is_wide(rule.src), is_wide(rule.dst)))
        };
        // Which tree a rule goes to, by whether its source and its destination are wide.
        let ways: [fn((bool, bool)) -> usize; 5] = [
            |_| 0,
            |(src, _)| usize::from(src),
            |(_, dst)| usize::from(dst),
            |(src, dst)| if src { 1 + usize::from(dst) } else { 0 },
            |(src, dst)| usize::from(src) * 2 + usize::from(dst),
        ];
        let plans = ways.map(|tree| {
            let mut lists: [Vec<u32>; 4] = Default::default();
            for &position in &positions {
                if let Some(list) = lists.get_mut(tree(wide(position))) {
                    list.push(position);
                }
            }
            lists.into_iter().filter(|list| !list.is_empty()).collect::<Vec<_>>()
        });
        let mut best: Option<(usize, Group)> = None;
        let mut tried: Vec<&Vec<Vec<u32>>> = Vec::new();
        for plan in &plans {
            if tried.contains(&plan) {
                continue;
            }
            tried.push(plan);
            let group = Group::plant(compiled, port_bits, plan.clone());
            let cost = group.cost(compiled);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, group));
            }
        }
        best.map(|(_, group)| group).unwrap_or_default()
    }

    fn plant(compiled: &[Compiled], port_bits: (u8, u8), lists: Vec<Vec<u32>>) -> Group {
        let budget =
            compiled.len().saturating_mul(ENTRIES_PER_RULE).saturating_add(4096).min(ENTRIES_MAX);
        let mut builder = Builder::new(compiled, port_bits);
        let mut roots = Vec::new();
        for list in lists {
            if let Some(&first) = list.first() {
                let share =
                    budget.saturating_mul(list.len()).checked_div(compiled.len()).unwrap_or(0);
                roots.push((first, builder.tree(list, share)));
            }
        }
        roots.sort_unstable_by_key(|(first, _)| *first);
        let mut cold = Vec::new();
        let hot = compiled.iter().map(|rule| Hot::new(rule, &mut cold)).collect();
        Group { forest: builder.finish(), roots, hot, cold }
    }

    #[inline]
    fn lookup(&self, key: &Key) -> u32 {
        let mut best = NO_RULE;
        for &(first, mut node) in &self.roots {
            if first >= best {
                break;
            }
            while !node.is_leaf() {
                node = self.forest.child(node, key);
            }
            best = self.check(node, key, best);
        }
        self.index(best)
    }

    fn lookup_batch(&self, keys: &[Key], found: &mut [u32]) {
        let mut best = [NO_RULE; LANES];
        for &(first, root) in &self.roots {
            let mut at = [root; LANES];
            let mut open = !root.is_leaf();
            while open {
                open = false;
                for (node, key) in at.iter_mut().zip(keys) {
                    let child = self.forest.child(*node, key);
                    *node = if node.is_leaf() { *node } else { child };
                    open |= !node.is_leaf();
                }
            }
            for ((node, key), best) in at.into_iter().zip(keys).zip(&mut best) {
                if first < *best {
                    *best = self.check(node, key, *best);
                }
            }
        }
        for (found, best) in found.iter_mut().zip(best) {
            *found = self.index(best);
        }
    }

    /// The first rule of leaf `node` before position `best` that matches; `best` when none does.
    #[inline]
    fn check(&self, node: Node, key: &Key, best: u32) -> u32 {
        for quad in self.forest.leaf(node) {
            let first = self.first_match(quad, key);
            if first != NEVER {
                let confirmed =
                    if self.rule(first).has_rest() { self.slow_check(quad, key) } else { first };
                if confirmed != NEVER {
                    return confirmed.min(best);
                }
            }
        }
        best
    }

    /// The first of four rules whose hot words match. No branches.
    #[inline]
    fn first_match(&self, quad: &[u32; QUAD], key: &Key) -> u32 {
        // Or-ing all ones, which is `NEVER`, instead of `if`: the compiler would make branches of that.
        let test =
            |position: u32| position | u32::from(self.rule(position).matches(key)).wrapping_sub(1);
        quad.iter().fold(NEVER, |first, &position| first.min(test(position)))
    }

    /// As [`Self::first_match`], but all words.
    fn slow_check(&self, quad: &[u32; QUAD], key: &Key) -> u32 {
        let matches = |rule: &Hot| {
            rule.matches(key) && (!rule.has_rest() || rule.rest_matches(key, &self.cold))
        };
        quad.iter().copied().find(|&position| matches(self.rule(position))).unwrap_or(NEVER)
    }

    #[inline]
    fn rule(&self, position: u32) -> &Hot {
        self.hot.get(position as usize).unwrap_or(&Hot::NEVER)
    }

    #[inline]
    fn index(&self, position: u32) -> u32 {
        self.rule(position).index
    }

    /// Estimated time of lookups of packets that just match each of up to 4096 rules.
    fn cost(&self, compiled: &[Compiled]) -> usize {
        let step = compiled.len().div_ceil(4096).max(1);
        let mut cost = 0_usize;
        for rule in compiled.iter().step_by(step) {
            let mut key = rule.values;
            key[crate::compiled::SPORT] = u32::from(rule.sport.0);
            key[crate::compiled::DPORT] = u32::from(rule.dport.0);
            let mut best = NO_RULE;
            for &(first, mut node) in &self.roots {
                if first >= best {
                    break;
                }
                while !node.is_leaf() {
                    cost = cost.saturating_add(COST_STEP);
                    node = self.forest.child(node, &key);
                }
                cost = cost
                    .saturating_add(COST_TREE)
                    .saturating_add(node.quads().saturating_mul(COST_GROUP));
                best = self.check(node, &key, best);
            }
        }
        cost
    }

    fn bytes(&self) -> usize {
        let hot = self.hot.len().saturating_mul(size_of::<Hot>());
        let cold = self.cold.len().saturating_mul(size_of::<Cold>());
        self.forest.bytes().saturating_add(hot).saturating_add(cold)
    }
}

/// Prefixes that leave so much open that cutting by them copies the rule into many branches.
fn is_wide(prefix: Prefix) -> bool {
    match prefix {
        Prefix::Any => true,
        Prefix::V4 { len, .. } => len < 10,
        Prefix::V6 { len, .. } => len < 20,
    }
}
