//! Decision trees over [`Key`]s: build and lookup.
//!
//! In the line of HiCuts, HyperCuts, EffiCuts (SIGCOMM 2010) and ByteCuts (INFOCOM 2018): each inner node cuts
//! the rules by a window of up to twelve bits of one word, chosen where it separates these rules best, wherever in
//! the word that is. A leaf's rules are compared in full, so what cuts leave open does not matter for the answer.

use crate::compiled::{Compiled, DPORT, Key, SPORT, WORDS};
use std::collections::HashMap;

/// Rules that are compared together, without branches: a branch per rule would mispredict. Leaves are filled up
/// to a multiple of it with [`NEVER`], and no smaller node is cut.
pub(crate) const QUAD: usize = 2;
/// Position that stands for no rule.
pub(crate) const NEVER: u32 = u32::MAX;
/// Bits of one cut at most.
const MAX_BITS: u8 = 12;
/// Rules looked at to choose a cut, beside every eighth; larger nodes are sampled evenly.
const SAMPLE: usize = 96;
/// Steps (rules put into children, tried or done; about 2 ns each) per rule that a build may take, so that it ends
/// soon even where nothing separates the rules; what is uncut then stays a large leaf.
const WORK_PER_RULE: usize = 30_000;
const WORK_LEAST: usize = 10_000_000;
/// A cut that shrinks what a packet meets by less than this many bits is not made.
const MIN_GAIN: f32 = 0.25;

/// An inner node, or a leaf of `quads()` times four rules. One word, so that a lookup step is a load and a few
/// shifts: from the lowest bit up, `base` (32 bits: first child in `nodes`, or first quad in `leaves`), the word
/// that is cut (8), its lowest bit (8), and a mask of the cut's width (16; 0 for a leaf, whose number of quads
/// then takes the place of word and lowest bit).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Node(u64);

impl Node {
    fn leaf(base: usize, quads: usize) -> Self {
        let quads = u16::try_from(quads).unwrap_or(u16::MAX);
        Node(Self::low(base) | u64::from(quads) << 32)
    }

    fn inner(base: usize, cut: Cut) -> Self {
        let mask = (1_u64 << cut.bits).wrapping_sub(1);
        let word = u64::try_from(cut.word).unwrap_or(0);
        Node(Self::low(base) | word << 32 | u64::from(cut.shift) << 40 | mask << 48)
    }

    fn low(base: usize) -> u64 {
        u64::from(u32::try_from(base).unwrap_or(u32::MAX))
    }

    /// Number of quads of a leaf.
    #[inline]
    pub(crate) fn quads(self) -> usize {
        (self.0 >> 32) as usize & 0xFFFF
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.0 >> 48 == 0
    }

    #[inline]
    fn base(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }
}

/// All trees' nodes and leaves of one address family.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forest {
    nodes: Vec<Node>,
    /// Rule positions, ascending within each leaf, filled up with [`NEVER`].
    leaves: Vec<[u32; QUAD]>,
}

impl Forest {
    /// The child of inner node `node` that `key` leads to.
    #[inline]
    pub(crate) fn child(&self, node: Node, key: &Key) -> Node {
        let word = key[(node.0 >> 32) as usize % WORDS];
        let index = u64::from(word) >> (node.0 >> 40 & 31) & node.0 >> 48;
        self.nodes.get(node.base().wrapping_add(index as usize)).copied().unwrap_or_default()
    }

    /// The rules of a leaf.
    #[inline]
    pub(crate) fn leaf(&self, node: Node) -> &[[u32; QUAD]] {
        let base = node.base();
        self.leaves.get(base..base.wrapping_add(node.quads())).unwrap_or_default()
    }

    /// Rules of the largest leaf below (or at) `roots` and anywhere else.
    pub(crate) fn largest_leaf(&self, roots: &[(u32, Node)]) -> usize {
        let roots = roots.iter().map(|(_, node)| node);
        roots
            .chain(&self.nodes)
            .filter(|node| node.is_leaf())
            .map(|node| self.leaf(*node).as_flattened().iter().filter(|&&at| at != NEVER).count())
            .max()
            .unwrap_or(0)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let nodes = self.nodes.len().saturating_mul(size_of::<Node>());
        nodes.saturating_add(self.leaves.len().saturating_mul(size_of::<[u32; QUAD]>()))
    }
}

/// The packets that can reach a node: what the cuts above it have fixed.
#[derive(Debug, Clone)]
struct Region {
    masks: Key,
    sport: (u32, u32),
    dport: (u32, u32),
}

impl Region {
    fn ports(&self, word: usize) -> (u32, u32) {
        if word == SPORT { self.sport } else { self.dport }
    }

    /// True when every packet of the region that can meet `rule` at all matches it.
    fn is_inside(&self, rule: &Compiled) -> bool {
        rule.masks.iter().zip(&self.masks).all(|(rule, fixed)| rule & !fixed == 0)
            && covers(rule.sport, self.sport)
            && covers(rule.dport, self.dport)
    }
}

fn covers(range: (u16, u16), region: (u32, u32)) -> bool {
    u32::from(range.0) <= region.0 && u32::from(range.1) >= region.1
}

/// A cut: `bits` bits of `word` from bit `shift` up.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cut {
    word: usize,
    shift: u8,
    bits: u8,
}

impl Cut {
    fn children(self) -> usize {
        1_usize.wrapping_shl(u32::from(self.bits))
    }

    /// Calls `visit` with each child that `rule` reaches.
    fn visit(self, rule: &Compiled, region: &Region, mut visit: impl FnMut(usize)) {
        let all = (1_u32 << self.bits).wrapping_sub(1);
        if self.word == SPORT || self.word == DPORT {
            let range = if self.word == SPORT { rule.sport } else { rule.dport };
            let (low, high) = region.ports(self.word);
            let first = u32::from(range.0).max(low);
            let last = u32::from(range.1).min(high);
            if first <= last {
                for child in (first >> self.shift & all)..=(last >> self.shift & all) {
                    visit(child as usize);
                }
            }
            return;
        }
        let mask = rule.masks[self.word % WORDS] >> self.shift & all;
        let value = rule.values[self.word % WORDS] >> self.shift & mask;
        // All numbers whose bits inside `mask` are `value`: counts through the bits outside it.
        let free = !mask & all;
        let mut sub = 0_u32;
        loop {
            visit((value | sub) as usize);
            sub = sub.wrapping_sub(free) & free;
            if sub == 0 {
                break;
            }
        }
    }

    fn child_region(self, region: &Region, child: usize) -> Region {
        let mut inner = region.clone();
        let child = u32::try_from(child).unwrap_or(0) << self.shift;
        if self.word == SPORT || self.word == DPORT {
            let (low, high) = region.ports(self.word);
            let all = (1_u32 << self.bits).wrapping_sub(1) << self.shift;
            let from = low & !all | child;
            let to = from | (1_u32 << self.shift).wrapping_sub(1);
            let range = (from.max(low), to.min(high));
            if self.word == SPORT {
                inner.sport = range;
            } else {
                inner.dport = range;
            }
        } else {
            inner.masks[self.word % WORDS] |= (1_u32 << self.bits).wrapping_sub(1) << self.shift;
        }
        inner
    }
}

/// Builds trees into a [`Forest`].
pub(crate) struct Builder<'a> {
    rules: &'a [Compiled],
    port_bits: (u8, u8),
    forest: Forest,
    /// Scratch: rules per child.
    sizes: Vec<u32>,
    /// Steps of building left; see [`WORK_PER_RULE`].
    work: usize,
}

impl<'a> Builder<'a> {
    /// A builder for rules whose source and destination port classes have that many bits.
    pub(crate) fn new(rules: &'a [Compiled], port_bits: (u8, u8)) -> Self {
        let work = rules.len().saturating_mul(WORK_PER_RULE).saturating_add(WORK_LEAST);
        Builder { rules, port_bits, forest: Forest::default(), sizes: Vec::new(), work }
    }

    pub(crate) fn finish(self) -> Forest {
        self.forest
    }

    /// Builds the tree of the rules at `positions` (ascending). `budget` bounds its entries: nodes plus rules in
    /// leaves, shared out to subtrees by their number of rules, so that one bad corner cannot use up all of it.
    pub(crate) fn tree(&mut self, positions: Vec<u32>, budget: usize) -> Node {
        let full = |bits: u8| (0, (1_u32 << bits).wrapping_sub(1));
        let region = Region {
            masks: [0; WORDS],
            sport: full(self.port_bits.0),
            dport: full(self.port_bits.1),
        };
        self.node(positions, region, budget)
    }

    fn rule(&self, position: u32) -> Option<&'a Compiled> {
        self.rules.get(position as usize)
    }

    fn node(&mut self, mut positions: Vec<u32>, region: Region, budget: usize) -> Node {
        // Behind a rule that takes every packet here, nothing matters.
        let last = positions
            .iter()
            .position(|&at| self.rule(at).is_some_and(|rule| region.is_inside(rule)));
        if let Some(last) = last {
            positions.truncate(last.saturating_add(1));
        }
        if positions.len() <= QUAD || self.work == 0 {
            return self.make_leaf(&positions);
        }
        let Some(cut) = self.choose(&positions, &region, budget) else {
            return self.make_leaf(&positions);
        };
        let mut lists = vec![Vec::new(); cut.children()];
        let mut total = cut.children();
        for &position in &positions {
            let Some(rule) = self.rule(position) else { continue };
            cut.visit(rule, &region, |child| {
                if let Some(list) = lists.get_mut(child) {
                    list.push(position);
                    total = total.saturating_add(1);
                }
            });
        }
        if total > budget {
            return self.make_leaf(&positions);
        }
        drop(positions);
        self.inner(cut, lists, &region, budget.saturating_sub(total), total)
    }

    fn inner(
        &mut self,
        cut: Cut,
        lists: Vec<Vec<u32>>,
        region: &Region,
        spare: usize,
        total: usize,
    ) -> Node {
        let base = self.forest.nodes.len();
        self.forest.nodes.resize(base.saturating_add(lists.len()), Node::default());
        // Children with the same rules share one subtree; it must then hold for the region of all of them.
        let mut users: HashMap<&[u32], usize> = HashMap::new();
        for list in &lists {
            *users.entry(list).or_default() += 1;
        }
        let mut shared: HashMap<&[u32], Node> = HashMap::new();
        for (child, list) in lists.iter().enumerate() {
            let node = match shared.get(list.as_slice()) {
                Some(node) => *node,
                None => {
                    let alone = users.get(list.as_slice()).copied().unwrap_or(1) == 1;
                    let inner =
                        if alone { cut.child_region(region, child) } else { region.clone() };
                    let share = spare.saturating_mul(list.len()).checked_div(total).unwrap_or(0);
                    let node = self.node(list.clone(), inner, share.saturating_add(list.len()));
                    shared.insert(list, node);
                    node
                }
            };
            if let Some(slot) = self.forest.nodes.get_mut(base.saturating_add(child)) {
                *slot = node;
            }
        }
        Node::inner(base, cut)
    }

    fn make_leaf(&mut self, positions: &[u32]) -> Node {
        let base = self.forest.leaves.len();
        for positions in positions.chunks(QUAD) {
            let mut quad = [NEVER; QUAD];
            for (slot, position) in quad.iter_mut().zip(positions) {
                *slot = *position;
            }
            self.forest.leaves.push(quad);
        }
        Node::leaf(base, positions.len().div_ceil(QUAD))
    }

    /// The cut that leaves a packet the fewest rules for its price in memory; `None` when none is worth it.
    fn choose(&mut self, positions: &[u32], region: &Region, budget: usize) -> Option<Cut> {
        let step = positions.len().div_ceil((positions.len() / 8).saturating_add(SAMPLE)).max(1);
        let sample: Vec<&Compiled> =
            positions.iter().step_by(step).filter_map(|&at| self.rule(at)).collect();
        let largest =
            positions.len().saturating_mul(16).min(budget.saturating_sub(positions.len()));
        let max_bits =
            u8::try_from(largest.checked_ilog2().unwrap_or(0)).unwrap_or(0).min(MAX_BITS);
        let mut best: Option<(f32, Cut)> = None;
        for word in 0..WORDS {
            for cut in self.candidates(word, &sample, region, max_bits) {
                if let Some(score) = self.score(cut, &sample, region, positions.len())
                    && best.is_none_or(|(other, _)| score > other)
                {
                    best = Some((score, cut));
                }
            }
        }
        best.map(|(_, cut)| cut)
    }

    /// The windows of `word` worth a try: those whose highest and lowest bit some rule tests.
    fn candidates(
        &self,
        word: usize,
        sample: &[&Compiled],
        region: &Region,
        max_bits: u8,
    ) -> Vec<Cut> {
        let mut cuts = Vec::new();
        if word == SPORT || word == DPORT {
            // Ranges are cut from the top, so that each child is a range again.
            let (low, high) = region.ports(word);
            let open =
                u8::try_from(u32::BITS.saturating_sub((low ^ high).leading_zeros())).unwrap_or(0);
            for bits in 1..=max_bits.min(open) {
                cuts.push(Cut { word, shift: open.saturating_sub(bits), bits });
            }
            return cuts;
        }
        let tested = sample.iter().fold(0, |sum, rule| sum | rule.masks[word % WORDS])
            & !region.masks[word % WORDS];
        for bits in [1, 2, 3, 4, 5, 6, 8, 10, 12_u8] {
            if bits > max_bits {
                break;
            }
            for shift in (0..=32_u8.saturating_sub(bits)).step_by(if bits > 4 { 2 } else { 1 }) {
                let top = u32::from(shift).saturating_add(u32::from(bits)).saturating_sub(1);
                if tested >> shift & 1 == 1 && tested >> top & 1 == 1 {
                    cuts.push(Cut { word, shift, bits });
                }
            }
        }
        cuts
    }

    /// Bits by which the cut shrinks what a packet meets, less the price of copies and of empty children.
    fn score(
        &mut self,
        cut: Cut,
        sample: &[&Compiled],
        region: &Region,
        rules: usize,
    ) -> Option<f32> {
        self.sizes.clear();
        self.sizes.resize(cut.children(), 0);
        for rule in sample {
            cut.visit(rule, region, |child| {
                if let Some(size) = self.sizes.get_mut(child) {
                    *size = size.saturating_add(1);
                }
            });
        }
        let (mut sum, mut squares) = (0_f32, 0_f32);
        for &size in &self.sizes {
            let size = size as f32;
            sum += size;
            squares += size * size;
        }
        self.work = self.work.saturating_sub(sum as usize).saturating_sub(cut.children());
        let sampled = sample.len() as f32;
        let gain = (sampled * sum / squares.max(1.0)).log2();
        let copies = (sum / sampled).max(1.0).log2();
        let children = cut.children() as f32 / rules as f32;
        (gain >= MIN_GAIN).then_some(gain - 0.75 * copies - 0.1 * children)
    }
}
