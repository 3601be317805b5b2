//! The packet handle, and taking packets from a ring.

use crate::arena::{Arena, ArenaView};
use crate::entry::{Entry, Seq};
use crate::fault::{self, Step};
use crate::owner::{Owner, Owners};
use crate::ring::Consumer;

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
    let room = ring.available(room).min(room);
    out.reserve(room);
    fault::step(Step::Peeked);
    let (view, owners, window) = (arena.view(), arena.owners().view(), ring.window());
    let old = out.len();
    // SAFETY: `reserve` made room for `room` packets behind the last.
    let spare = unsafe { out.as_mut_ptr().add(old) };
    let mut n = 0;
    while n < room {
        // One copy, checked before any use: entries come from another process.
        let entry = window.get(n);
        if !view.admits(&entry) || limit.is_some_and(|l| l.before(entry.seq())) {
            break;
        }
        owners.set(entry.index(), owner);
        if TOUCHES {
            view.prefetch(&entry);
        }
        // SAFETY: n < room.
        unsafe { spare.add(n).write(Packet(entry)) };
        n += 1;
        if n == 1 {
            fault::step(Step::HalfOwned);
        }
    }
    // SAFETY: the first n of the reserved places have been written.
    unsafe { out.set_len(old + n) };
    n
}

/// Takes everything from a ring of free buffers whose numbers lie in `first .. first + len`: writes
/// `owner` into their owner words, appends them to `free` (which never grows beyond its capacity)
/// and claims them. Says how many numbers could not be right.
pub fn collect(
    ring: &mut Consumer<u32>,
    owners: &Owners,
    owner: Owner,
    first: u32,
    len: u32,
    free: &mut Vec<u32>,
) -> u64 {
    let n = ring.refresh();
    if n == 0 {
        return 0;
    }
    fault::step(Step::Peeked);
    let (owners, window) = (owners.view(), ring.window());
    let before = free.len();
    // A number from another process: believe it only when it is one of ours and there is room,
    // which there always is unless somebody gave a buffer back twice.
    let room = (len as usize).saturating_sub(before);
    let numbers = (0..n.min(room)).map(|i| {
        if i == n / 2 {
            fault::step(Step::HalfOwned);
        }
        window.get(i)
    });
    let ours = numbers.filter(|buffer| buffer.wrapping_sub(first) < len);
    free.extend(ours.inspect(|&buffer| owners.set(buffer, owner)));
    fault::step(Step::Owned);
    ring.claim(n);
    fault::step(Step::Claimed);
    (n - (free.len() - before)) as u64
}
