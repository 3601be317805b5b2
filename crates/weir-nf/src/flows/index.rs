//! Which flow a key leads to.

use super::paged::Paged;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use weir_packet::{FlowHasher, FlowKey};

/// No key, or no flow.
const NONE: u32 = u32::MAX;
/// Stands where a number is kept for a flow that is to come: none has it.
const RESERVED: u32 = NONE - 1;
/// In a key's flow number: packets in its upward direction go downward in the flow.
const TURNED: u32 = 1 << 31;
/// Most flows, so that a number has room for [`TURNED`] beside it.
const MOST: u32 = 1 << 30;

/// Most keys of a flow, its first among them: whoever adds or writes down one goes through all.
pub const MOST_KEYS: usize = 16;

/// Why a flow did not get a second key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AliasError {
    /// The key leads to a flow already.
    #[error("the key leads to another flow; choose another")]
    Taken,
    /// There are as many second keys as there may be flows.
    #[error("there are as many second keys as there may be flows; allow more flows")]
    Full,
    /// The flow has as many keys as it may have (16).
    #[error("the flow has {MOST_KEYS} keys, as many as one may have")]
    TooMany,
    /// No flow was looked up before, or it has ended since.
    #[error("there is no flow to give the key to; look one up first")]
    NoFlow,
}

/// A key: with its links just a cache line, so that a look-up touches two, with that of the chain's head.
#[repr(align(64))]
struct Node {
    /// [`FlowKey::NOTHING`] in the list of free nodes.
    key: FlowKey,
    /// The lower half of the key's hash.
    hash: u32,
    /// Next key in the chain, or in the list of free nodes.
    next: u32,
    /// The flow's number, and [`TURNED`].
    flow: u32,
    /// Next key of the flow, in the order in which it got them.
    sibling: u32,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Default for Node {
    fn default() -> Self {
        Node { key: FlowKey::NOTHING, hash: 0, next: NONE, flow: NONE, sibling: NONE }
    }
}

/// Where a flow's keys begin; while nobody has the number, the next free number instead.
struct Home {
    first: u32,
    next_free: u32,
}

impl Default for Home {
    fn default() -> Self {
        Home { first: NONE, next_free: NONE }
    }
}

static HASHER: OnceLock<FlowHasher> = OnceLock::new();

/// Has all indexes of this process hash by a secret that nobody else may know but who goes on from its replica
/// ([`FlowTable::recover_later`](super::FlowTable::recover_later)). False when there has been one already.
#[doc(hidden)]
pub fn hash_flows_by(secret: u128) -> bool {
    HASHER.set(FlowHasher::new(secret)).is_ok()
}

/// The hasher of all indexes of this process, with a seed that nobody can guess. One for all: what one µNF has hashed the next one of
/// its segment need not.
pub(super) fn hasher() -> FlowHasher {
    *HASHER.get_or_init(|| {
        let random = RandomState::new();
        FlowHasher::new(u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1)))
    })
}

/// Keys of flows: each flow has a first key and up to 15 others that lead to it as well, and a dense
/// number, which is given to another flow when it has ended.
///
/// Chains of nodes under an array of heads that grows with the keys, by linear hashing (Litwin, "Linear Hashing: A New Tool for File and
/// Table Addressing", 1980): each new key divides two chains, the next ones in turn, so that there are two heads for each key. So
/// nothing is ever moved or walked through as a whole, which an open table has to do when it grows, or is full of gaps: at ten million
/// flows that would be a pause of a good part of a second. And few flows have few heads, which caches hold, however many there may be.
/// Hashing is SipHash under a secret of the worker and its successors, so nobody can choose keys that meet in one chain.
pub struct FlowIndex {
    hasher: FlowHasher,
    /// The first node of each chain, one too high; 0: none. Room for all is reserved with the first flow, and never moved; memory is
    /// taken as they come into use.
    heads: Vec<u32>,
    /// One less than the next power of two from the number of heads.
    mask: u32,
    nodes: Paged<Node>,
    free_node: u32,
    made_nodes: u32,
    homes: Paged<Home>,
    free_home: u32,
    made_homes: u32,
    len: u32,
    aliases: u32,
    capacity: u32,
}

impl FlowIndex {
    /// For at most `capacity` flows (2^30 at most), and as many further keys.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        FlowIndex {
            hasher: hasher(),
            heads: Vec::new(),
            mask: 0,
            nodes: Paged::default(),
            free_node: NONE,
            made_nodes: 0,
            homes: Paged::default(),
            free_home: NONE,
            made_homes: 0,
            len: 0,
            aliases: 0,
            capacity: capacity.min(MOST),
        }
    }

    /// The hasher of the keys.
    pub fn hasher(&self) -> FlowHasher {
        self.hasher
    }

    /// Hash of a key, for [`FlowIndex::find`] and [`FlowIndex::insert`]. Pure: a batch can be hashed first.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u32 {
        self.hasher.hash(key) as u32
    }

    /// The flow that a key leads to; true with it when packets of the key's upward direction go downward in the flow,
    /// which has the directions of its first key.
    #[inline]
    pub fn find(&self, key: &FlowKey, hash: u32) -> Option<(u32, bool)> {
        let mut at = *self.heads.get(self.place(hash))?;
        at = at.wrapping_sub(1);
        while let Some(node) = self.nodes.get(at) {
            if node.hash == hash && node.key == *key {
                return Some((node.flow & !TURNED, node.flow & TURNED != 0));
            }
            at = node.next;
        }
        None
    }

    /// The first key of a hash's chain; only to have it in the cache, as is [`FlowIndex::flow_of`].
    #[inline]
    pub(super) fn head(&self, hash: u32) -> u32 {
        self.heads.get(self.place(hash)).map_or(NONE, |head| head.wrapping_sub(1))
    }

    /// The flow of a key by its node.
    #[inline]
    pub(super) fn flow_of(&self, node: u32) -> u32 {
        self.nodes.get(node).map_or(NONE, |node| node.flow & !TURNED)
    }

    /// A new flow with this first key, which leads to none yet. `None` when there are as many as may be.
    pub fn insert(&mut self, key: FlowKey, hash: u32) -> Option<u32> {
        if self.len >= self.capacity {
            return None;
        }
        let flow = match self.homes.get(self.free_home) {
            Some(free) => std::mem::replace(&mut self.free_home, free.next_free),
            None => {
                self.made_homes += 1;
                self.made_homes - 1
            }
        };
        self.settle(flow, key, hash);
        self.len += 1;
        Some(flow)
    }

    /// Keeps a number for a flow that is to come, which must be higher than any that a flow has had here; those in between are free. False
    /// when there are as many flows as may be, or it is not.
    pub(super) fn reserve(&mut self, flow: u32) -> bool {
        if self.len >= self.capacity || flow < self.made_homes || flow >= self.capacity {
            return false;
        }
        for free in self.made_homes..flow {
            if let Some(home) = self.homes.reach(free) {
                *home = Home { first: NONE, next_free: self.free_home };
                self.free_home = free;
            }
        }
        if let Some(home) = self.homes.reach(flow) {
            *home = Home { first: NONE, next_free: RESERVED };
        }
        self.made_homes = flow + 1;
        self.len += 1;
        true
    }

    /// The flow that a number is kept for has come, with this first key, which leads to none yet. False when none is kept.
    pub(super) fn insert_reserved(&mut self, flow: u32, key: FlowKey, hash: u32) -> bool {
        let is_kept = self.homes.get(flow).is_some_and(|home| home.next_free == RESERVED);
        if is_kept {
            self.settle(flow, key, hash);
        }
        is_kept
    }

    /// The flow that a number is kept for does not come; nothing if none is kept.
    pub(super) fn release(&mut self, flow: u32) {
        if let Some(home) = self.homes.get_mut(flow).filter(|home| home.next_free == RESERVED) {
            *home = Home { first: NONE, next_free: self.free_home };
            self.free_home = flow;
            self.len -= 1;
        }
    }

    fn settle(&mut self, flow: u32, key: FlowKey, hash: u32) {
        let first = self.chain(key, hash, flow);
        if let Some(home) = self.homes.reach(flow) {
            *home = Home { first, next_free: NONE };
        }
    }

    /// Lets a second key lead to a flow. `turned`: packets of the key's upward direction go downward in the flow.
    ///
    /// # Errors
    /// When the key leads to a flow already, or the flow has too many, or there are too many in all.
    pub fn alias(&mut self, flow: u32, key: FlowKey, turned: bool) -> Result<(), AliasError> {
        let first = self.first(flow).ok_or(AliasError::NoFlow)?;
        let hash = self.hash(&key);
        if self.find(&key, hash).is_some() {
            return Err(AliasError::Taken);
        }
        if self.aliases >= self.capacity {
            return Err(AliasError::Full);
        }
        let (mut last, mut keys) = (first, 1);
        while let Some(next) = self.nodes.get(last).map(|n| n.sibling).filter(|n| *n != NONE) {
            last = next;
            keys += 1;
        }
        if keys >= MOST_KEYS {
            return Err(AliasError::TooMany);
        }
        let node = self.chain(key, hash, if turned { flow | TURNED } else { flow });
        if let Some(last) = self.nodes.get_mut(last) {
            last.sibling = node;
        }
        self.aliases += 1;
        Ok(())
    }

    /// Forgets a flow with all its keys; the first of them.
    pub fn remove(&mut self, flow: u32) -> Option<FlowKey> {
        let first = self.first(flow)?;
        let key = self.nodes.get(first)?.key;
        let mut at = first;
        while at != NONE {
            let sibling = self.nodes.get(at).map_or(NONE, |n| n.sibling);
            self.unchain(at);
            self.aliases -= u32::from(at != first);
            at = sibling;
        }
        if let Some(home) = self.homes.get_mut(flow) {
            *home = Home { first: NONE, next_free: self.free_home };
        }
        self.free_home = flow;
        self.len -= 1;
        Some(key)
    }

    /// A flow's keys, the first one first, each with whether it is turned; none for a number nobody has.
    pub fn keys(&self, flow: u32) -> impl Iterator<Item = (&FlowKey, bool)> + Clone {
        let mut at = self.first(flow);
        std::iter::from_fn(move || {
            let node = self.nodes.get(at?)?;
            at = (node.sibling != NONE).then_some(node.sibling);
            Some((&node.key, node.flow & TURNED != 0))
        })
    }

    /// True when there is a flow of this number.
    pub(super) fn has(&self, flow: u32) -> bool {
        self.first(flow).is_some()
    }

    /// What [`FlowIndex::has`] looks at will be needed.
    pub(super) fn prefetch(&self, flow: u32) {
        self.homes.get(flow).into_iter().for_each(weir_mem::prefetch);
    }

    /// The hash of a flow's only key; `None` if it has several, or there is none of this number.
    pub(super) fn only_hash(&self, flow: u32) -> Option<u32> {
        let node = self.nodes.get(self.first(flow)?)?;
        (node.sibling == NONE).then_some(node.hash)
    }

    /// The first flow whose number is not below `from`, for walks in pieces; looks at `most` numbers.
    /// With it, or without, the number to go on from; `None` at the end.
    pub(crate) fn next(&self, from: u32, most: usize) -> (Option<u32>, Option<u32>) {
        let end = self.made_homes.min(from.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)));
        let found = (from..end).find(|flow| self.first(*flow).is_some());
        let on = found.map_or(end, |flow| flow + 1).max(from);
        (found, (on < self.made_homes).then_some(on))
    }

    /// Numbers of flows are below this.
    pub(super) fn numbers(&self) -> u32 {
        self.made_homes
    }

    /// Flows.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when there can be no more.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// Most flows.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> usize {
        self.heads.len() * size_of::<u32>() + self.nodes.bytes() + self.homes.bytes()
    }

    fn first(&self, flow: u32) -> Option<u32> {
        self.homes.get(flow).map(|home| home.first).filter(|first| *first != NONE)
    }

    #[inline]
    fn place(&self, hash: u32) -> usize {
        // Chains from here on have not been divided off yet.
        let place = (hash & self.mask) as usize;
        if place < self.heads.len() { place } else { (hash & (self.mask >> 1)) as usize }
    }

    /// Divides the next chain: those of its keys whose next bit of the hash is set go under a new head.
    fn divide(&mut self) {
        let new = self.heads.len();
        if new >= self.most_heads() {
            return;
        }
        if new == self.heads.capacity() {
            // Once, with the first key.
            self.heads.reserve_exact(self.most_heads());
        }
        self.mask = (new + 1).next_power_of_two() as u32 - 1;
        let old = new & (self.mask >> 1) as usize;
        self.heads.push(0);
        if new == 0 {
            return;
        }
        let mut at =
            self.heads.get_mut(old).map_or(NONE, |head| std::mem::take(head).wrapping_sub(1));
        // Both keep their order.
        let mut last = [NONE; 2];
        while let Some((hash, next)) = self.nodes.get(at).map(|node| (node.hash, node.next)) {
            let goes = (hash & self.mask) as usize == new;
            let place = if goes { new } else { old };
            let end = &mut last[usize::from(goes)];
            match self.nodes.get_mut(*end) {
                Some(before) => before.next = at,
                None => {
                    if let Some(head) = self.heads.get_mut(place) {
                        *head = at + 1;
                    }
                }
            }
            *end = at;
            at = next;
        }
        for end in last {
            if let Some(node) = self.nodes.get_mut(end) {
                node.next = NONE;
            }
        }
    }

    /// Heads of a full index: two for each flow's first key.
    fn most_heads(&self) -> usize {
        self.capacity as usize * 2
    }

    /// A node for a key, at the head of its chain.
    fn chain(&mut self, key: FlowKey, hash: u32, flow: u32) -> u32 {
        // With this one.
        let keys = self.len as usize + self.aliases as usize + 1;
        for _ in 0..2 {
            if self.heads.len() < 2 * keys {
                self.divide();
            }
        }
        let at = match self.nodes.get(self.free_node) {
            Some(free) => std::mem::replace(&mut self.free_node, free.next),
            None => {
                self.made_nodes += 1;
                self.made_nodes - 1
            }
        };
        let place = self.place(hash);
        if let (Some(head), Some(node)) = (self.heads.get_mut(place), self.nodes.reach(at)) {
            let next = head.wrapping_sub(1);
            *node = Node { key, hash, next, flow, sibling: NONE };
            *head = at + 1;
        }
        at
    }

    /// Takes a node out of its chain, and frees it.
    fn unchain(&mut self, at: u32) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        let (hash, next) = (node.hash, node.next);
        *node = Node { next: self.free_node, ..Node::default() };
        self.free_node = at;
        let place = self.place(hash);
        let Some(head) = self.heads.get_mut(place) else { return };
        if head.wrapping_sub(1) == at {
            *head = next.wrapping_add(1);
            return;
        }
        let mut before = head.wrapping_sub(1);
        while let Some(node) = self.nodes.get_mut(before) {
            if node.next == at {
                node.next = next;
                return;
            }
            before = node.next;
        }
    }
}
