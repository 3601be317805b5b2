//! The packet handle, and taking packets from a ring.

use crate::arena::{Arena, ArenaView};
use crate::entry::{Entry, Seq};
use crate::fault::{self, Step};
use crate::owner::{Owner, Owners};
use crate::ring::Consumer;
use std::cell::Cell;

/// A packet that somebody holds: it can be moved on or dropped, not copied. Passing it on gives it
/// away at compile time (the µNF paper's §VIII asks for such an ownership transfer).
#[derive(Debug)]
#[must_use = "a packet must be passed on, dropped with a reason, or given back"]
#[repr(transparent)]
pub struct Packet(Entry);

impl Packet {
    /// Takes a packet out of a ring entry that `arena` admits; `None` for anything else.
    #[inline(always)]
    pub fn admit(entry: Entry, arena: ArenaView<'_>) -> Option<Packet> {
        if arena.admits(&entry) { Some(Packet(entry)) } else { None }
    }

    /// Its ring entry, to look at.
    #[inline(always)]
    pub fn entry(&self) -> &Entry {
        &self.0
    }

    /// Its ring entry, for a view that writes.
    #[inline(always)]
    pub fn entry_mut(&mut self) -> &mut Entry {
        &mut self.0
    }

    /// The ring entries of packets that lie one after the other.
    #[inline(always)]
    pub fn entries(packets: &[Packet]) -> &[Entry] {
        // SAFETY: `Packet` is a transparent wrapper of `Entry`.
        unsafe { std::slice::from_raw_parts(packets.as_ptr().cast(), packets.len()) }
    }

    /// Gives it away as a ring entry.
    #[inline(always)]
    pub fn into_entry(self) -> Entry {
        self.0
    }
}

/// Copies up to `room` packets from the head of `ring` to the end of `out`, writes `owner` into
/// their owner words and, where the caller `TOUCHES` packet bytes, asks for their first lines (a line
/// asked for in vain is one more that crosses cores); stops before a marker, before nonsense and
/// behind sequence number `limit`. Says how many. The claim itself, which makes them the
/// caller's, is [`Consumer::claim`] of that number.
///
/// One loop for it all: this is the hottest code outside of µNFs.
#[inline]
pub fn take<const TOUCHES: bool>(
    ring: &mut Consumer<Entry>,
    arena: &Arena,
    owner: Owner,
    limit: Option<Seq>,
    room: usize,
    out: &mut Vec<Packet>,
) -> usize {
    let view = arena.view();
    if TOUCHES && arena.ahead() != u32::MAX {
        return take_some(ring, arena, owner, limit, room, out);
    }
    // Whatever does not change within the loop is decided before it.
    match (TOUCHES, view.is_writable(), limit) {
        (false, _, None) => take_each(ring, arena, owner, |_| true, |_| {}, room, out),
        (true, true, None) => {
            take_each(ring, arena, owner, |_| true, |e| view.prefetch::<true>(e), room, out)
        }
        (true, false, None) => {
            take_each(ring, arena, owner, |_| true, |e| view.prefetch::<false>(e), room, out)
        }
        (touches, writable, Some(limit)) => {
            let ask = |e: &Entry| match (touches, writable) {
                (true, true) => view.prefetch::<true>(e),
                (true, false) => view.prefetch::<false>(e),
                (false, _) => {}
            };
            take_each(ring, arena, owner, |e| !limit.before(e.seq()), ask, room, out)
        }
    }
}

/// As [`take`], for who asks for the first lines of some packets of a batch only.
#[inline(never)]
fn take_some(
    ring: &mut Consumer<Entry>,
    arena: &Arena,
    owner: Owner,
    limit: Option<Seq>,
    room: usize,
    out: &mut Vec<Packet>,
) -> usize {
    let left = Cell::new(arena.ahead());
    let ask = |e: &Entry| {
        if let Some(less) = left.get().checked_sub(1) {
            left.set(less);
            arena.prefetch(e);
        }
    };
    let may_go = |e: &Entry| limit.is_none_or(|limit| !limit.before(e.seq()));
    take_each(ring, arena, owner, may_go, ask, room, out)
}

#[inline(always)]
fn take_each(
    ring: &mut Consumer<Entry>,
    arena: &Arena,
    owner: Owner,
    may_go: impl Fn(&Entry) -> bool,
    ask: impl Fn(&Entry),
    room: usize,
    out: &mut Vec<Packet>,
) -> usize {
    let room = ring.available(room).min(room);
    out.reserve(room);
    fault::step(Step::Peeked);
    let (view, owners) = (arena.view(), arena.owners().view());
    let old = out.len();
    // SAFETY: `reserve` made room for `room` packets behind the last.
    let first = unsafe { out.as_mut_ptr().add(old) };
    let mut next = first;
    'all: for run in ring.window(room) {
        // One copy, checked before any use: entries come from another process.
        for entry in run {
            if !view.admits(&entry) || !may_go(&entry) {
                break 'all;
            }
            // SAFETY: an admitted entry's index is below the arena's number of buffers, and an arena
            // has an owner word for each of its buffers.
            unsafe { owners.set_within(entry.index(), owner) };
            ask(&entry);
            // SAFETY: the runs have `room` entries, and so many places are reserved.
            unsafe {
                next.write(Packet(entry));
                next = next.add(1);
            }
            #[cfg(any(loom, feature = "faults"))]
            if next == first.wrapping_add(1) {
                fault::step(Step::HalfOwned);
            }
        }
    }
    // SAFETY: both point into (or behind) the reserved places, the former not before the latter.
    let n = unsafe { next.offset_from_unsigned(first) };
    // SAFETY: the first n of the reserved places have been written.
    unsafe { out.set_len(old + n) };
    n
}

/// As [`take`], for packets that stay somebody else's: a branch of a parallel stage looks at them while whoever
/// has the stage's sync port owns them. No owner word is written, so a sweep after the borrower's death leaves
/// them alone. The handles must be given up, never passed on.
pub fn borrow(
    ring: &mut Consumer<Entry>,
    arena: &Arena,
    room: usize,
    out: &mut Vec<Packet>,
) -> usize {
    let room = ring.available(room).min(room);
    fault::step(Step::Peeked);
    let (view, before) = (arena.view(), out.len());
    for entry in ring.window(room).into_iter().flatten() {
        let Some(packet) = Packet::admit(entry, view) else { break };
        arena.prefetch(packet.entry());
        out.push(packet);
        fault::step(Step::HalfOwned);
    }
    out.len() - before
}

/// Takes everything from a ring of free buffers whose numbers lie in `first .. first + len`: writes
/// `owner` into their owner words, appends them to `free` (which never grows beyond its capacity)
/// and claims them. `own`: by this ring the taker itself gives back.
pub fn collect(
    ring: &mut Consumer<u32>,
    owners: &Owners,
    owner: Owner,
    (first, len): (u32, u32),
    own: bool,
    free: &mut Vec<u32>,
) -> Strange {
    let n = ring.refresh();
    if n == 0 {
        return Strange::default();
    }
    fault::step(Step::Peeked);
    let len = len.min((owners.len() as u32).saturating_sub(first));
    let here = if own { Owner(u32::MAX) } else { owner };
    let owners = owners.view();
    let before = free.len();
    // A number from another process: believe it only when it is one of ours and there is room,
    // which there always is unless somebody gave a buffer back twice.
    let room = (len as usize).saturating_sub(before).min(n);
    free.reserve(room);
    // SAFETY: `reserve` made room for `room` numbers behind the last.
    let first_free = unsafe { free.as_mut_ptr().add(before) };
    let mut next = first_free;
    let mut foreign = 0;
    for run in ring.window(room) {
        for buffer in run {
            if buffer.wrapping_sub(first) >= len {
                foreign += 1;
                continue;
            }
            // What others give back was theirs until now: if not, it is here already.
            // SAFETY: `len` was cut to the owner words that there are.
            if unsafe { owners.replace_within(buffer, owner) } != here {
                // SAFETY: the runs have `room` numbers, and so many places are reserved.
                unsafe {
                    next.write(buffer);
                    next = next.add(1);
                }
                #[cfg(any(loom, feature = "faults"))]
                if next == first_free.wrapping_add(n.div_ceil(2)) {
                    fault::step(Step::HalfOwned);
                }
            }
        }
    }
    // SAFETY: both point into (or behind) the reserved places, the former not before the latter.
    let taken = unsafe { next.offset_from_unsigned(first_free) };
    // SAFETY: the first `taken` of the reserved places have been written.
    unsafe { free.set_len(before + taken) };
    fault::step(Step::Owned);
    ring.claim(n);
    fault::step(Step::Claimed);
    Strange { foreign, doubled: (n - taken) as u64 - foreign }
}

/// Buffer numbers that [`collect`] did not take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Strange {
    /// Of no buffer of the pool.
    pub foreign: u64,
    /// Of a buffer that is in the pool already.
    pub doubled: u64,
}
