//! The buffers that a worker takes for new packets.

use crate::doorbell::Doorbell;
use std::rc::Rc;
use weir_mem::fault::{self, Step};
use weir_mem::{Consumer, Owner, Owners};

/// A worker's home pool: buffers come from the agent (at the start, and after a sweep) and from
/// every worker where their packets end; free ones wait in a stack of this process. Should it die,
/// the stack is no loss: its buffers carry this worker's owner word and are swept.
pub struct HomePool {
    rings: Vec<Consumer<u32>>,
    bells: Vec<Rc<Doorbell>>,
    free: Vec<u32>,
    first: u32,
    len: u32,
    owner: Owner,
    rejected: u64,
}

impl HomePool {
    /// The pool of buffers `first .. first + len`, fed by `rings`.
    pub fn new(
        rings: Vec<(Consumer<u32>, Rc<Doorbell>)>,
        first: u32,
        len: u32,
        owner: Owner,
    ) -> Self {
        let (rings, bells) = rings.into_iter().unzip();
        let free = Vec::with_capacity(len as usize);
        HomePool { rings, bells, free, first, len, owner, rejected: 0 }
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
            let n = ring.available(usize::MAX);
            if n > 0 {
                fault::step(Step::Peeked);
            }
            for i in 0..n {
                let Some(buffer) = ring.peek(i) else { break };
                // A number from another process: believe it only when it is one of ours and there
                // is room, which there always is unless somebody gave a buffer back twice.
                let ours = buffer.wrapping_sub(self.first) < self.len;
                if ours && self.free.len() < self.len as usize {
                    owners.set(buffer, self.owner);
                    self.free.push(buffer);
                } else {
                    self.rejected += 1;
                }
                if i == n / 2 {
                    fault::step(Step::HalfOwned);
                }
            }
            if n > 0 {
                fault::step(Step::Owned);
                ring.claim(n);
                fault::step(Step::Claimed);
            }
        }
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

    /// Doorbells of those who feed the pool (they never wait: the rings hold the whole pool).
    pub fn feeders(&self) -> &[Rc<Doorbell>] {
        &self.bells
    }
}
