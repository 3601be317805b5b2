//! The buffers that a worker takes for new packets.

use crate::broken;
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
    /// Ring by which this worker itself gives back.
    own: Option<usize>,
    /// By ring: numbers of no buffer of this pool.
    foreign: Vec<u64>,
    doubled: u64,
    /// Nothing was collected yet.
    first_time: bool,
    shares: Option<Shares>,
}

/// Free buffers that are not for the source which is served.
struct Shares {
    /// By source: which share is its.
    of_source: Vec<Option<usize>>,
    /// By share; what the one that is served has stands in the pool itself.
    free: Vec<Vec<u32>>,
    /// The share that is served.
    served: usize,
}

impl HomePool {
    /// The pool of buffers `first .. first + len`, fed by `rings`; by which of them, if any, the
    /// worker itself gives back is `own`.
    pub fn new(
        rings: Vec<Consumer<u32>>,
        first: u32,
        len: u32,
        owner: Owner,
        own: Option<usize>,
    ) -> Self {
        let free = Vec::with_capacity(len as usize);
        let foreign = vec![0; rings.len()];
        HomePool {
            rings,
            free,
            first,
            len,
            owner,
            own,
            foreign,
            doubled: 0,
            first_time: true,
            shares: None,
        }
    }

    /// Divides the buffers among these sources, by their numbers, so that a successor divides them alike: packets of one that wait
    /// further on then leave buffers for those of the others, which they may wait for. Of one source, or none, nothing
    /// changes. The first is served.
    #[must_use]
    pub fn divided(mut self, sources: &[usize]) -> Self {
        let mut sources = sources.to_vec();
        sources.sort_unstable();
        sources.dedup();
        if sources.len() > 1 {
            let mut of_source = vec![None; sources.last().map_or(0, |last| last + 1)];
            for (share, source) in sources.iter().enumerate() {
                if let Some(of) = of_source.get_mut(*source) {
                    *of = Some(share);
                }
            }
            // Each is where all that comes back is taken in first.
            let free = sources.iter().map(|_| Vec::with_capacity(self.len as usize)).collect();
            self.shares = Some(Shares { of_source, free, served: 0 });
        }
        self
    }

    /// What is taken from here on is of this source's share.
    pub fn serve(&mut self, source: usize) {
        let Some(shares) = &mut self.shares else { return };
        let share = shares.of_source.get(source).copied().flatten().unwrap_or(shares.served);
        if share == shares.served {
            return;
        }
        for at in [shares.served, share] {
            if let Some(other) = shares.free.get_mut(at) {
                std::mem::swap(other, &mut self.free);
            }
        }
        shares.served = share;
    }

    /// Of what was collected, from `first` on, puts aside what is not of the share that is served.
    fn put_aside(&mut self, first: usize) {
        let Some(shares) = &mut self.shares else { return };
        let (count, len) = (shares.free.len() as u64, u64::from(self.len.max(1)));
        let mut kept = first;
        for at in first..self.free.len() {
            let Some(&buffer) = self.free.get(at) else { break };
            let share = u64::from(buffer.wrapping_sub(self.first)) * count / len;
            match shares.free.get_mut(share as usize) {
                Some(other) if share as usize != shares.served => other.push(buffer),
                // Its own; a number of another pool would not have been collected.
                _ => {
                    if let Some(place) = self.free.get_mut(kept) {
                        *place = buffer;
                    }
                    kept += 1;
                }
            }
        }
        self.free.truncate(kept);
    }

    /// Takes up to `want` free buffers' worth into reach; says how many there are, of the share that is served.
    #[inline]
    pub fn refill(&mut self, owners: &Owners, want: usize) -> usize {
        if self.free.len() < want {
            self.collect(owners);
        }
        self.free.len()
    }

    /// Takes in everything that came back.
    pub fn collect(&mut self, owners: &Owners) {
        let (pool, before) = ((self.first, self.len), self.free.len());
        for (i, (ring, foreign)) in self.rings.iter_mut().zip(&mut self.foreign).enumerate() {
            // A predecessor that died between owning and claiming has written its number already.
            let own = self.own == Some(i) || (self.first_time && !broken::is("pool"));
            let strange = packet::collect(ring, owners, self.owner, pool, own, &mut self.free);
            *foreign += strange.foreign;
            self.doubled += strange.doubled;
        }
        self.first_time = false;
        self.put_aside(before);
    }

    /// Forgets what it remembers of its rings, and with `empty` its free buffers too: the agent
    /// has put the rings right while this worker rested, and gives what is free by them.
    pub fn resync(&mut self, empty: bool) {
        self.rings.iter_mut().for_each(Consumer::resync);
        if empty {
            self.free.clear();
            let shares = self.shares.iter_mut().flat_map(|shares| &mut shares.free);
            shares.for_each(Vec::clear);
        }
    }

    /// Nonsense that came by each ring: indices that could not be, numbers of no buffer.
    pub fn nonsense(&self) -> impl Iterator<Item = u64> {
        self.rings.iter().zip(&self.foreign).map(|(ring, foreign)| ring.nonsense() + foreign)
    }

    /// Numbers that came back of buffers that were here already.
    pub fn doubled(&self) -> u64 {
        self.doubled
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

    /// All free buffers in this process, of the share that is served; the last is the one that is taken next.
    #[inline(always)]
    pub fn stack(&self) -> &[u32] {
        &self.free
    }

    /// Takes the last `n` buffers of [`HomePool::stack`].
    #[inline(always)]
    pub fn take_many(&mut self, n: usize) {
        self.free.truncate(self.free.len().saturating_sub(n));
    }

    /// Puts back a buffer that was taken and not used.
    #[inline]
    pub fn put(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// Lends all free buffers of the share that is served out, to be given back by [`HomePool::unlend`] before anything else.
    #[inline]
    pub fn lend(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.free)
    }

    /// Takes back what is left of what [`HomePool::lend`] gave.
    #[inline]
    pub fn unlend(&mut self, left: Vec<u32>) {
        self.free = left;
    }

    /// Free buffers in this process.
    pub fn free(&self) -> usize {
        let shares = self.shares.iter().flat_map(|shares| &shares.free);
        self.free.len() + shares.map(Vec::len).sum::<usize>()
    }

    /// Buffers for what is served, at least: a share, or the pool.
    pub fn share_len(&self) -> usize {
        self.len() / self.shares.as_ref().map_or(1, |shares| shares.free.len().max(1))
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
        self.foreign.iter().sum::<u64>() + self.doubled
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
