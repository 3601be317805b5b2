//! Where a µNF wants its flows to be.

use super::state::FlowState;
use super::table::FlowTable;
use weir_packet::FlowKey;

/// Wishes of one µNF that wait, at most.
const MOST: usize = 64;

/// Where a flow is to go ([`Ctx::move_flow`](crate::Ctx::move_flow)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whither {
    /// To this instance of the NF, counted from 0.
    Instance(u16),
    /// To the instance that packets of the flow with this key go to.
    With(FlowKey),
}

/// What a µNF wants of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The flow's first key.
    pub flow: FlowKey,
    /// Where it is to be.
    pub to: Whither,
}

impl<F: FlowState> FlowTable<F> {
    /// Remembers where the flow that was looked up last is to be: what was said last counts. False when it has ended, or too many wait.
    pub fn wish(&mut self, to: Whither) -> bool {
        let flow = self.current.and_then(|(flow, _)| self.index.keys(flow).next());
        let Some(flow) = flow.map(|(key, _)| *key) else { return false };
        // Nobody may take them: then each asks in vain, and costs no more than that.
        if self.wishes.len() >= MOST {
            return false;
        }
        match self.wishes.iter_mut().find(|wish| wish.flow == flow) {
            Some(wish) => wish.to = to,
            None => self.wishes.push(Wish { flow, to }),
        }
        true
    }

    /// What was wished for since this was asked last.
    pub fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    /// The number of the flow that a key leads to.
    pub fn number_of(&self, key: &FlowKey) -> Option<u32> {
        debug_assert_eq!(self.unread(), 0, "it may not have been read");
        self.index.find(key, self.index.hash(key)).map(|(flow, _)| flow)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use weir_packet::Direction;
    use weir_packet::flow::PortKind;

    fn key(port: u16) -> FlowKey {
        let end = |last| ([10, 0, 0, last].into(), port);
        FlowKey::between(end(1), end(2), 17, PortKind::Ports, 0).unwrap().0
    }

    #[test]
    fn a_flow_has_one_wish_the_last_and_there_are_no_more_than_wait() {
        let mut table = FlowTable::<()>::new(1000, 1 << 40);
        assert!(!table.wish(Whither::Instance(0)), "no flow was looked up");
        for port in 0..MOST as u16 {
            table.find(key(port), Direction::Up, 1).unwrap();
            assert!(table.wish(Whither::Instance(1)));
            if port == 0 {
                assert!(table.wish(Whither::With(key(7))));
            }
        }
        table.find(key(1000), Direction::Up, 1).unwrap();
        assert!(!table.wish(Whither::Instance(1)), "too many wait");
        let wishes = table.take_wishes();
        assert_eq!(wishes.len(), MOST);
        assert_eq!(wishes.first(), Some(&Wish { flow: key(0), to: Whither::With(key(7)) }));
        assert_eq!(table.take_wishes(), []);
        assert!(table.number_of(&key(3)).is_some() && table.number_of(&key(2000)).is_none());
    }
}
