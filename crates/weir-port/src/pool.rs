//! The buffers that a worker takes for new packets.

use weir_mem::{Consumer, Owner, Owners, packet};

/// A worker's home pool: buffers come from the agent (at the start, and after a sweep) and from
/// every worker where their packets end; free ones wait in a stack of this process. Should it die,
/// the stack is no loss: its buffers carry this worker's owner word and are swept.
pub struct HomePool {
    rings: Vec<Consumer<u32>>,
    free: Vec<u32>,
    first: u32,
    len: u32,
    owner: Owner,
    rejected: u64,
}

impl HomePool {
    /// The pool of buffers `first .. first + len`, fed by `rings`.
    pub fn new(rings: Vec<Consumer<u32>>, first: u32, len: u32, owner: Owner) -> Self {
        let free = Vec::with_capacity(len as usize);
        HomePool { rings, free, first, len, owner, rejected: 0 }
    }

    /// Takes up to `want` free buffers' worth into reach; says how many there are.
    #[inline]
    pub fn refill(&mut self, owners: &Owners, want: usize) -> usize {
        if self.free.len() < want {
            self.collect(owners);
        }
        self.free.len()
    }

    /// Takes in everything that came back.
    pub fn collect(&mut self, owners: &Owners) {
        for ring in &mut self.rings {
            let (first, len) = (self.first, self.len);
            self.rejected += packet::collect(ring, owners, self.owner, first, len, &mut self.free);
        }
    }

    /// The buffer that will be taken after `n` others, to ask for its memory early.
    #[inline(always)]
    pub fn ahead(&self, n: usize) -> Option<u32> {
        self.free.get(self.free.len().wrapping_sub(n + 1)).copied()
    }

    /// A free buffer.
    #[inline(always)]
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Puts back a buffer that was taken and not used.
    #[inline]
    pub fn put(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// Free buffers in this process.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Buffers of the pool.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for a pool of no buffers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers that came back and cannot be right.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Says that this worker is going to sleep until a buffer comes back; true when one has.
    pub fn sleep(&mut self) -> bool {
        let mut something = false;
        for ring in &mut self.rings {
            ring.sleep();
            something |= ring.refresh() > 0;
        }
        something
    }

    /// Takes back [`HomePool::sleep`].
    pub fn wake(&mut self) {
        self.rings.iter_mut().for_each(Consumer::wake);
    }
}
