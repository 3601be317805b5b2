//! Reduced ordered binary decision diagrams (Bryant 1986) with complemented edges (Brace, Rudell and
//! Bryant 1990): negation is free, a function and its negation share their nodes, and two functions
//! are the same exactly when their references are.
//!
//! Variables are numbers that need not be dense nor be declared: a bit of a packet is numbered by
//! its place, so the order of all bits stands before anybody asks for one of them. Nothing here can
//! run away: each operation counts its steps, and nodes, steps and variables have limits.

use crate::limits::{Limits, Spent};

/// A function: an index into the nodes, and in the lowest bit whether it is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Ref(u32);

impl Ref {
    pub(crate) const TRUE: Ref = Ref(0);
    pub(crate) const FALSE: Ref = Ref(1);

    #[inline]
    pub(crate) fn negated(self) -> Ref {
        Ref(self.0 ^ 1)
    }

    #[inline]
    fn negated_if(self, negate: bool) -> Ref {
        Ref(self.0 ^ u32::from(negate))
    }

    #[inline]
    fn is_negated(self) -> bool {
        self.0 & 1 == 1
    }

    #[inline]
    fn index(self) -> usize {
        to_usize(self.0 >> 1)
    }
}

/// A decision: `hi` when the variable is true, else `lo`. `hi` is never negated: of a function and
/// its negation one is stored, and the other is a negated edge to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    variable: u32,
    lo: Ref,
    hi: Ref,
}

/// The constant's variable: below all others.
const NONE: u32 = u32::MAX;

const TERMINAL: Node = Node { variable: NONE, lo: Ref::TRUE, hi: Ref::TRUE };

/// Slots of both tables at first, and how many times as many when one is full.
const SLOTS: usize = 1 << 14;
const GROWTH: usize = 4;
/// Slots of the cache of results at most.
const CACHE_MAX: usize = 1 << 20;

/// All functions of a universe.
#[derive(Debug)]
pub(crate) struct Bdd {
    /// Each node once; the first is the constant. A node's children stand before it.
    nodes: Vec<Node>,
    /// Where each node is, by hash, in open addressing; 0 is an empty slot.
    unique: Vec<u32>,
    /// Results of conjunctions: a newer one takes the place of an older one.
    cache: Vec<(Ref, Ref, Ref)>,
    limits: Limits,
    /// Steps that this call may still take.
    steps: u64,
    /// Steps that all calls together may still take.
    in_all: u64,
}

impl Bdd {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            nodes: vec![TERMINAL],
            unique: vec![0; SLOTS],
            cache: vec![Default::default(); SLOTS],
            limits,
            steps: limits.steps,
            in_all: limits.steps_in_all,
        }
    }

    /// Begins a call, which may take its steps anew.
    pub(crate) fn begin(&mut self) {
        self.steps = self.limits.steps;
    }

    /// Takes `steps` off what is left, for work that is none of diagrams.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn charge(&mut self, steps: u64) -> Result<(), Spent> {
        let left = self.in_all.checked_sub(steps);
        // What is over stays over: a smaller step must not find some left.
        self.in_all = left.unwrap_or(0);
        self.steps = self.steps.checked_sub(steps).ok_or(Spent::Steps)?;
        left.map(|_| ()).ok_or(Spent::Steps)
    }

    /// True when no call can do anything any more: all steps are taken.
    pub(crate) fn is_spent(&self) -> bool {
        self.in_all == 0
    }

    /// What there is now, for [`Bdd::undo`].
    pub(crate) fn mark(&self) -> usize {
        self.nodes.len()
    }

    /// Forgets all nodes made since `mark`. Nobody may hold references to them.
    pub(crate) fn undo(&mut self, mark: usize) {
        // What was remembered of older nodes stays right.
        if self.nodes.len() <= mark.max(1) {
            return;
        }
        self.nodes.truncate(mark.max(1));
        self.cache.fill(Default::default());
        self.rehash(self.unique.len());
    }

    /// True when [`Bdd::undo`] to `mark` leaves `f`.
    pub(crate) fn survives(&self, f: Ref, mark: usize) -> bool {
        f.index() < mark
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&self, f: Ref) -> Node {
        self.nodes.get(f.index()).copied().unwrap_or(TERMINAL)
    }

    /// The two halves of `f` at `variable`, which is not below `f`'s first.
    #[inline]
    fn halves(f: Ref, node: Node, variable: u32) -> (Ref, Ref) {
        if node.variable == variable {
            (node.lo.negated_if(f.is_negated()), node.hi.negated_if(f.is_negated()))
        } else {
            (f, f)
        }
    }

    /// `hi` where `variable` is true, else `lo`; `variable` stands before all of theirs.
    ///
    /// # Errors
    /// When there are as many nodes as there may be.
    pub(crate) fn choose(&mut self, variable: u32, lo: Ref, hi: Ref) -> Result<Ref, Spent> {
        if lo == hi {
            return Ok(lo);
        }
        let negate = hi.is_negated();
        let node = Node { variable, lo: lo.negated_if(negate), hi: hi.negated_if(negate) };
        if self.nodes.len().saturating_mul(2) > self.unique.len() {
            self.rehash(self.unique.len().saturating_mul(GROWTH));
        }
        let mask = self.unique.len().wrapping_sub(1);
        let mut slot = hash(variable, node.lo.0, node.hi.0) & mask;
        // Ends: half of the slots are empty.
        while let Some(&index) = self.unique.get(slot)
            && index != 0
        {
            if self.nodes.get(to_usize(index)) == Some(&node) {
                return Ok(Ref(index << 1).negated_if(negate));
            }
            slot = slot.wrapping_add(1) & mask;
        }
        let index = match u32::try_from(self.nodes.len()) {
            Ok(index) if self.nodes.len() < self.limits.nodes && index < u32::MAX >> 1 => index,
            _ => return Err(Spent::Nodes),
        };
        self.nodes.push(node);
        if let Some(slot) = self.unique.get_mut(slot) {
            *slot = index;
        }
        Ok(Ref(index << 1).negated_if(negate))
    }

    /// Puts every node into a table of `slots` (a power of two) anew.
    fn rehash(&mut self, slots: usize) {
        self.unique.clear();
        self.unique.resize(slots, 0);
        let mask = slots.wrapping_sub(1);
        for (index, node) in (0_u32..).zip(&self.nodes).skip(1) {
            let mut at = hash(node.variable, node.lo.0, node.hi.0) & mask;
            while self.unique.get(at).is_some_and(|i| *i != 0) {
                at = at.wrapping_add(1) & mask;
            }
            if let Some(slot) = self.unique.get_mut(at) {
                *slot = index;
            }
        }
        if slots > self.cache.len() && slots <= CACHE_MAX {
            self.cache.clear();
            self.cache.resize(slots, Default::default());
        }
    }

    /// Where both hold.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn and(&mut self, f: Ref, g: Ref) -> Result<Ref, Spent> {
        self.and_below(f, g, self.limits.variables)
    }

    /// Each level of recursion is one variable further, so `depth` bounds the stack.
    fn and_below(&mut self, f: Ref, g: Ref, depth: u32) -> Result<Ref, Spent> {
        let (f, g) = if f <= g { (f, g) } else { (g, f) };
        if f == Ref::FALSE || g == Ref::FALSE || f == g.negated() {
            return Ok(Ref::FALSE);
        }
        if f == Ref::TRUE || f == g {
            return Ok(g);
        }
        let slot = hash(f.0, g.0, 0) & self.cache.len().wrapping_sub(1);
        if let Some(&(a, b, result)) = self.cache.get(slot)
            && (a, b) == (f, g)
        {
            return Ok(result);
        }
        let depth = depth.checked_sub(1).ok_or(Spent::Variables)?;
        self.steps = self.steps.checked_sub(1).ok_or(Spent::Steps)?;
        self.in_all = self.in_all.checked_sub(1).ok_or(Spent::Steps)?;
        let (of_f, of_g) = (self.node(f), self.node(g));
        let variable = of_f.variable.min(of_g.variable);
        let (f0, f1) = Self::halves(f, of_f, variable);
        let (g0, g1) = Self::halves(g, of_g, variable);
        let lo = self.and_below(f0, g0, depth)?;
        let hi = self.and_below(f1, g1, depth)?;
        let result = self.choose(variable, lo, hi)?;
        // The cache may have grown meanwhile.
        let slot = hash(f.0, g.0, 0) & self.cache.len().wrapping_sub(1);
        if let Some(entry) = self.cache.get_mut(slot) {
            *entry = (f, g, result);
        }
        Ok(result)
    }

    /// Where one of them holds.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn or(&mut self, f: Ref, g: Ref) -> Result<Ref, Spent> {
        self.and(f.negated(), g.negated()).map(Ref::negated)
    }

    /// Where all of `literals` hold: variables with the values they must have.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn cube(&mut self, literals: &mut [(u32, bool)]) -> Result<Ref, Spent> {
        literals.sort_unstable();
        literals.iter().rev().try_fold(Ref::TRUE, |below, &(variable, value)| {
            let (lo, hi) = if value { (Ref::FALSE, below) } else { (below, Ref::FALSE) };
            self.choose(variable, lo, hi)
        })
    }

    /// Where the number written in `bits` (highest first, in the variables' order; none is a zero) is in
    /// `lo ..= hi`.
    ///
    /// # Errors
    /// When a limit is reached.
    pub(crate) fn range(&mut self, bits: &[Option<u32>], lo: u128, hi: u128) -> Result<Ref, Spent> {
        let width = u32::try_from(bits.len()).unwrap_or(u32::MAX);
        let highest = 1_u128.checked_shl(width).map_or(u128::MAX, |n| n.saturating_sub(1));
        if lo > highest || lo > hi {
            return Ok(Ref::FALSE);
        }
        let hi = hi.min(highest);
        // From the lowest bit up: what holds if the bits above are equal to those of `lo`, of `hi`,
        // of both. Above the highest bit in which these differ they are the same.
        let (mut from, mut to, mut both) = (Ref::TRUE, Ref::TRUE, Ref::TRUE);
        let differ = 128_u32.saturating_sub((lo ^ hi).leading_zeros());
        for (i, &variable) in (0_u32..).zip(bits.iter().rev()) {
            let bit = |n: u128| n.checked_shr(i).unwrap_or(0) & 1 == 1;
            if i >= differ {
                let (zero, one) = if bit(lo) { (Ref::FALSE, both) } else { (both, Ref::FALSE) };
                both = self.bit(variable, zero, one)?;
            } else if i.saturating_add(1) == differ {
                both = self.bit(variable, from, to)?;
            } else {
                let (zero, one) = if bit(lo) { (Ref::FALSE, from) } else { (from, Ref::TRUE) };
                from = self.bit(variable, zero, one)?;
                let (zero, one) = if bit(hi) { (Ref::TRUE, to) } else { (to, Ref::FALSE) };
                to = self.bit(variable, zero, one)?;
            }
        }
        Ok(both)
    }

    /// [`Bdd::choose`]; none is always zero.
    fn bit(&mut self, variable: Option<u32>, zero: Ref, one: Ref) -> Result<Ref, Spent> {
        match variable {
            Some(variable) => self.choose(variable, zero, one),
            None => Ok(zero),
        }
    }

    /// Values of variables with which `f` holds, whatever the others are; none when it never holds.
    /// Where both values would do it takes what `prefer` says of the variable, given what was chosen
    /// before it.
    pub(crate) fn example(
        &self,
        f: Ref,
        mut prefer: impl FnMut(u32, &[(u32, bool)]) -> bool,
    ) -> Option<Vec<(u32, bool)>> {
        let mut chosen = Vec::new();
        let mut at = f;
        while at != Ref::TRUE {
            if at == Ref::FALSE {
                return None;
            }
            let node = self.node(at);
            let (lo, hi) = Self::halves(at, node, node.variable);
            // Every function but one can be made true, so only that one is a wrong turn.
            let value = match (lo == Ref::FALSE, hi == Ref::FALSE) {
                (true, _) => true,
                (_, true) => false,
                _ => prefer(node.variable, &chosen),
            };
            chosen.push((node.variable, value));
            at = if value { hi } else { lo };
        }
        Some(chosen)
    }
}

fn to_usize(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Multiplication spreads low bits upwards, the shift brings them back; constants from SplitMix64
/// (Steele, Lea and Flood 2014).
#[inline]
fn hash(a: u32, b: u32, c: u32) -> usize {
    let n = (u64::from(a) << 32 | u64::from(b)) ^ u64::from(c).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // The mask takes what it needs; 64 bits are never more than a platform's word here.
    usize::try_from((n ^ n >> 31) & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
impl Bdd {
    /// Whether `f` is true when `value` says what the variables are.
    pub(crate) fn holds(&self, f: Ref, mut value: impl FnMut(u32) -> bool) -> bool {
        let mut at = f;
        while at != Ref::TRUE && at != Ref::FALSE {
            let node = self.node(at);
            let (lo, hi) = Bdd::halves(at, node, node.variable);
            at = if value(node.variable) { hi } else { lo };
        }
        at == Ref::TRUE
    }
}

#[cfg(test)]
mod tests {
    use super::{Bdd, Ref};
    use crate::limits::{Limits, Spent};

    #[test]
    fn a_range_holds_exactly_between_its_ends() {
        let mut bdd = Bdd::new(Limits::default());
        let bits: Vec<Option<u32>> = (0..5).map(Some).collect();
        for lo in 0..32_u128 {
            for hi in lo..32 {
                let f = bdd.range(&bits, lo, hi).unwrap();
                for n in 0..32_u128 {
                    assert_eq!(
                        bdd.holds(f, |v| n >> (4 - v) & 1 == 1),
                        (lo..=hi).contains(&n),
                        "{n} in {lo}..={hi}"
                    );
                }
            }
        }
    }

    #[test]
    fn equal_functions_are_equal_references_however_they_were_made() {
        let mut bdd = Bdd::new(Limits::default());
        let [a, b, c] = [7, 3, 900].map(|v| bdd.cube(&mut [(v, true)]).unwrap());
        let ab = bdd.and(a, b).unwrap();
        let ac = bdd.and(a, c).unwrap();
        let left = bdd.or(ab, ac).unwrap();
        let b_or_c = bdd.or(c, b).unwrap();
        assert_eq!(bdd.and(b_or_c, a).unwrap(), left);
        assert_eq!(bdd.and(left, a.negated()).unwrap(), Ref::FALSE);
        assert_eq!(bdd.or(left, left.negated()).unwrap(), Ref::TRUE);
    }

    #[test]
    fn each_limit_ends_an_operation_and_undoing_it_leaves_what_was_before() {
        let many = |limits: Limits| {
            let mut bdd = Bdd::new(limits);
            let kept = bdd.cube(&mut [(1, true), (2, false)]).unwrap();
            let mark = bdd.mark();
            // Pairs that stand far apart: exponential in their number, whatever is done about it.
            let result = (0..20).try_fold(Ref::TRUE, |f, i| {
                let one = bdd.cube(&mut [(10 + i, true), (50 + i, true)])?;
                let none = bdd.cube(&mut [(10 + i, false), (50 + i, false)])?;
                let same = bdd.or(one, none)?;
                bdd.and(f, same)
            });
            bdd.undo(mark);
            assert_eq!(bdd.cube(&mut [(1, true), (2, false)]).unwrap(), kept);
            assert!(bdd.len() <= 3);
            result.unwrap_err()
        };
        assert_eq!(many(Limits { nodes: 1000, ..Limits::default() }), Spent::Nodes);
        assert_eq!(many(Limits { steps: 1000, ..Limits::default() }), Spent::Steps);
        assert_eq!(many(Limits { variables: 16, ..Limits::default() }), Spent::Variables);
    }

    #[test]
    fn the_deepest_function_that_is_allowed_fits_a_small_stack() {
        let deepest = Limits::default().variables;
        let run = move || {
            let mut bdd = Bdd::new(Limits::default());
            let mut even: Vec<(u32, bool)> = (0..deepest / 2).map(|v| (2 * v, true)).collect();
            let mut odd: Vec<(u32, bool)> = (0..deepest / 2).map(|v| (2 * v + 1, true)).collect();
            let (f, g) = (bdd.cube(&mut even).unwrap(), bdd.cube(&mut odd).unwrap());
            bdd.and(f, g).map(|_| ())
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
        assert!(thread.join().unwrap().is_ok());
    }
}
