//! Lookup in lists of any length and shape: decision trees.

use crate::classifier::NO_RULE;
use crate::compiled::{Cold, Compiled, DPORT, Hot, Key, SPORT};
use crate::rule::{Prefix, Rule};
use crate::tree::{Builder, Forest, NEVER, Node, QUAD};

/// Tree entries (8-byte nodes, 4-byte rule numbers) per rule at most, beside a constant: bounds memory.
const ENTRIES_PER_RULE: usize = 64;
const ENTRIES_MAX: usize = 2_000_000;

/// Rough prices, in ns, of a tree, of a step in it, and of comparing a group of rules in its leaf.
const COST_TREE: usize = 8;
const COST_STEP: usize = 4;
const COST_GROUP: usize = 5;

/// Packets that [`Trees::lookup_batch`] keeps in flight: enough to hide the second-level cache, few enough
/// that their keys stay in the first.
pub(crate) const IN_FLIGHT: usize = 16;

/// The rules of one address family, in one to four trees: rules that are wide in the source, in the destination, in
/// both or in neither address would copy each other into every branch of one tree (EffiCuts, SIGCOMM 2010). Five
/// ways to part them are built, and the cheapest for a packet of each rule kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trees {
    forest: Forest,
    /// Trees with the smallest rule position in each, ascending.
    roots: Vec<(u32, Node)>,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
}

impl Trees {
    /// `port_bits`: the bits of both port class numbers.
    pub(crate) fn build(rules: &[Rule], compiled: &[Compiled], port_bits: (u8, u8)) -> Trees {
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
        let mut best: Option<(usize, Trees)> = None;
        let mut tried: Vec<&Vec<Vec<u32>>> = Vec::new();
        for plan in &plans {
            if tried.contains(&plan) {
                continue;
            }
            tried.push(plan);
            let group = Trees::plant(compiled, port_bits, plan.clone());
            let cost = group.cost(compiled);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, group));
            }
        }
        best.map(|(_, group)| group).unwrap_or_default()
    }

    fn plant(compiled: &[Compiled], port_bits: (u8, u8), lists: Vec<Vec<u32>>) -> Trees {
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
        Trees { forest: builder.finish(), roots, hot, cold }
    }

    /// Position in the caller's list of the first rule that matches; ports in `key` are classes.
    #[inline]
    pub(crate) fn lookup(&self, key: &Key) -> u32 {
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

    /// As [`Self::lookup`] for up to [`IN_FLIGHT`] packets, so that their cache misses overlap.
    pub(crate) fn lookup_batch(&self, keys: &[Key], found: &mut [u32]) {
        let mut best = [NO_RULE; IN_FLIGHT];
        for &(first, root) in &self.roots {
            let mut at = [root; IN_FLIGHT];
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

    /// Number of trees.
    pub(crate) fn count(&self) -> usize {
        self.roots.len()
    }

    /// Rules of the largest leaf.
    pub(crate) fn largest_leaf(&self) -> usize {
        self.forest.largest_leaf(&self.roots)
    }

    /// Estimated time of lookups of packets that just match each of up to 4096 rules.
    fn cost(&self, compiled: &[Compiled]) -> usize {
        let step = compiled.len().div_ceil(4096).max(1);
        let mut cost = 0_usize;
        for rule in compiled.iter().step_by(step) {
            let mut key = rule.values;
            key[SPORT] = u32::from(rule.sport.0);
            key[DPORT] = u32::from(rule.dport.0);
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

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
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
