//! Which flows may have been idle for too long: a hierarchical wheel of time slots (Varghese & Lauck,
//! "Hashed and hierarchical timing wheels", SOSP 1987, scheme 7), whose entries go down a level only
//! when their slot has come.

use super::paged::Paged;

/// Slots per level, the bits of a word.
const SLOTS: u64 = 64;
/// A slot of each level lasts for 8 of the level below.
const FINER: u32 = 3;
/// Five levels reach 262,144 ticks; what is due later is looked at then, and put again.
const LEVELS: usize = 5;
/// The list of those whose slot has come, behind those of the slots.
const DUE: u32 = SLOTS as u32 * LEVELS as u32;
/// Lists' heads; flow *i* is link `LISTS + i`.
const LISTS: u32 = DUE + 1;
/// Ticks per shortest idle time: so much late a flow ends at most.
const TICKS: u64 = 16;

/// A link of a circular list; both `UNLINKED` outside of any.
#[derive(Clone, Copy)]
struct Link {
    next: u32,
    before: u32,
}

const UNLINKED: u32 = u32::MAX;

impl Default for Link {
    fn default() -> Self {
        Link { next: UNLINKED, before: UNLINKED }
    }
}

/// Each flow stands in one slot, by number. One that was busy meanwhile is found in its old slot and
/// put into a new one, so a packet does not touch the wheel unless its flow is to end sooner than
/// before. Everything is a constant number of steps, but for [`Wheel::turn`], which looks at each level's slots.
pub(crate) struct Wheel {
    links: Paged<Link>,
    /// Slots that may have flows, a bit each, by level.
    used: [u64; LEVELS],
    /// The tick up to which slots have been emptied.
    done: u64,
    tick_ns: u64,
    len: u32,
}

impl Wheel {
    /// For idle times of which `shortest_ns` is the shortest.
    pub(crate) fn new(shortest_ns: u64) -> Self {
        let tick_ns = (shortest_ns / TICKS).max(1);
        Wheel { links: Paged::default(), used: [0; LEVELS], done: 0, tick_ns, len: 0 }
    }

    /// Puts a flow where it is looked at not before `due_ns`; it may stand elsewhere.
    pub(crate) fn put(&mut self, flow: u32, due_ns: u64, now_ns: u64) {
        self.remove(flow);
        if self.len == 0 {
            self.done = now_ns / self.tick_ns;
        }
        let list = self.list(due_ns.div_ceil(self.tick_ns));
        self.push(list, LISTS.saturating_add(flow));
        self.len += 1;
    }

    /// The list for what is due at a tick: of the finest level that reaches so far.
    fn list(&mut self, due: u64) -> u32 {
        if due <= self.done {
            return DUE;
        }
        for (level, used) in (0..).zip(&mut self.used) {
            let (slot, now) = (due >> (FINER * level), self.done >> (FINER * level));
            let last = level + 1 == LEVELS as u32;
            if slot - now < SLOTS || last {
                let slot = slot.min(now + SLOTS - 1) % SLOTS;
                *used |= 1 << slot;
                return level * SLOTS as u32 + slot as u32;
            }
        }
        DUE
    }

    pub(crate) fn remove(&mut self, flow: u32) {
        if self.unlink(LISTS.saturating_add(flow)) {
            self.len -= 1;
        }
    }

    /// True when a slot's time has come since the last look, or more is waiting for one.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.len > 0 && (self.done < now_ns / self.tick_ns || self.first(DUE).is_some())
    }

    /// Brings the flows of all slots whose time has come to the list of the due.
    pub(crate) fn turn(&mut self, now_ns: u64) {
        let tick = now_ns / self.tick_ns;
        if tick <= self.done {
            return;
        }
        for level in 0..LEVELS as u32 {
            let (from, to) = (self.done >> (FINER * level), tick >> (FINER * level));
            for slot in from + 1..=to.min(from + SLOTS) {
                let (slot, index) = (slot % SLOTS, level as usize);
                if self.used.get(index).is_some_and(|used| used >> slot & 1 == 1) {
                    self.used.iter_mut().skip(index).take(1).for_each(|used| *used &= !(1 << slot));
                    self.join(level * SLOTS as u32 + slot as u32);
                }
            }
        }
        self.done = tick;
    }

    /// Takes a flow whose time may be over, as far as the wheel has been turned.
    pub(crate) fn take_due(&mut self) -> Option<u32> {
        let link = self.first(DUE)?;
        self.unlink(link);
        self.len -= 1;
        link.checked_sub(LISTS)
    }

    /// Memory taken, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.links.bytes()
    }

    fn first(&self, list: u32) -> Option<u32> {
        let next = self.links.get(list)?.next;
        (next != list && next != UNLINKED).then_some(next)
    }

    /// To the end of a list.
    fn push(&mut self, list: u32, link: u32) {
        self.links.reach(link);
        let last = match self.links.reach(list) {
            Some(head) if head.next == UNLINKED => {
                *head = Link { next: list, before: list };
                list
            }
            Some(head) => head.before,
            None => return,
        };
        self.set(link, |l| *l = Link { next: list, before: last });
        self.set(last, |l| l.next = link);
        self.set(list, |l| l.before = link);
    }

    /// False when it stood nowhere.
    fn unlink(&mut self, link: u32) -> bool {
        let Some(&Link { next, before }) = self.links.get(link) else { return false };
        if next == UNLINKED {
            return false;
        }
        self.set(before, |l| l.next = next);
        self.set(next, |l| l.before = before);
        self.set(link, |l| *l = Link::default());
        true
    }

    /// Appends a whole list to that of the due.
    fn join(&mut self, list: u32) {
        let Some(&Link { next, before }) = self.links.get(list) else { return };
        if next == list || next == UNLINKED {
            return;
        }
        let last = match self.links.reach(DUE) {
            Some(head) if head.next == UNLINKED => {
                *head = Link { next: DUE, before: DUE };
                DUE
            }
            Some(head) => head.before,
            None => return,
        };
        self.set(last, |l| l.next = next);
        self.set(next, |l| l.before = last);
        self.set(before, |l| l.next = DUE);
        self.set(DUE, |l| l.before = before);
        self.set(list, |l| *l = Link { next: list, before: list });
    }

    #[inline]
    fn set(&mut self, link: u32, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(link) {
            change(link);
        }
    }
}
