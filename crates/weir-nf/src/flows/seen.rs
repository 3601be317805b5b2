//! A table's flows seen from outside: looked at in pieces, and which are new.

use super::state::FlowState;
use super::table::FlowTable;
use weir_packet::{Direction, FlowKey};

/// How far a walk over a table's flows has come, for what is done in pieces. Flows that begin
/// meanwhile may be met or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    pub(super) next: u32,
}

impl Walk {
    /// One that begins at a flow's number ([`FlowSeen::number`]).
    #[must_use]
    pub fn at(number: u32) -> Self {
        Walk { next: number }
    }
}

/// One flow of a table, for who looks at it from outside.
#[derive(Debug, Clone, Copy)]
pub struct FlowSeen<'f> {
    /// Its number, which another gets when it has ended.
    pub number: u32,
    /// All its keys, the first one first.
    pub keys: &'f [FlowKey],
    /// For each key the direction that packets have by it that come from where the flow's first one came from; from inside, of one
    /// whose first packet came from outside ([`FlowTable::comes_from`]).
    pub starts: &'f [Direction],
    /// Packet time of its first packet, in nanoseconds since 1970.
    pub born_ns: u64,
    /// Packet time of its last packet.
    pub last_ns: u64,
}

impl<F: FlowState> FlowTable<F> {
    /// Shows flows, by going on with a walk that looks at `look` numbers at most; nothing changes. Those that have ended
    /// by `now_ns`, and nobody has noticed, are passed over. False when the walk is at its end.
    pub fn look_at(
        &self,
        walk: &mut Walk,
        look: usize,
        now_ns: u64,
        show: &mut dyn FnMut(FlowSeen<'_>),
    ) -> bool {
        debug_assert_eq!(self.unread(), 0, "some would be left out");
        let (mut left, mut keys, mut starts) = (look, Vec::new(), Vec::new());
        while left > 0 {
            let (flow, next) = self.index.next(walk.next, left);
            let on = next.unwrap_or(u32::MAX);
            left = left.saturating_sub(on.saturating_sub(walk.next).max(1) as usize);
            walk.next = on;
            if let Some(flow) = flow.filter(|flow| self.is_alive(*flow, now_ns))
                && let Some(slot) = self.slots.get(flow)
            {
                keys.clear();
                starts.clear();
                for (key, turned) in self.index.keys(flow) {
                    keys.push(*key);
                    starts.push(slot.start_by(turned));
                }
                let (born_ns, last_ns) = (slot.born_ns, slot.last_ns);
                show(FlowSeen { number: flow, keys: &keys, starts: &starts, born_ns, last_ns });
            }
            if next.is_none() {
                return false;
            }
        }
        true
    }

    /// How many flows have come from elsewhere, or gone there.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Shows the state of each flow.
    pub fn each(&mut self, now_ns: u64, mut show: impl FnMut(&F)) {
        self.read_rest(now_ns);
        let mut from = Some(0);
        while let Some(at) = from {
            let (flow, next) = self.index.next(at, usize::MAX);
            flow.and_then(|flow| self.slots.get(flow)).iter().for_each(|slot| show(&slot.state));
            from = next;
        }
    }

    /// From now on, or no more, it is remembered which flows begin, come from elsewhere, or get a key, until
    /// [`FlowTable::take_news`].
    pub fn watch(&mut self, on: bool) {
        self.news = on.then(Vec::new);
    }

    /// The numbers of those flows. Some may have ended since.
    pub fn take_news(&mut self) -> Vec<u32> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    #[inline]
    pub(super) fn tell_of(&mut self, flow: u32) {
        if let Some(news) = &mut self.news {
            news.push(flow);
        }
        self.is_other(flow);
    }
}
