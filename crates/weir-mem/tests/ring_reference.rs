//! The ring against a queue from the standard library, single-threaded.
#![cfg(not(loom))]

use proptest::prelude::*;
use std::collections::VecDeque;
use weir_mem::{Consumer, Producer, RingInspector, RingShape};

#[derive(Clone, Debug)]
enum Action {
    Stage(u64),
    Publish,
    Peek(usize),
    Claim(usize),
    Room(usize),
    Available(usize),
    RollForward,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => any::<u64>().prop_map(Action::Stage),
        2 => Just(Action::Publish),
        2 => (0usize..10).prop_map(Action::Peek),
        2 => (0usize..10).prop_map(Action::Claim),
        1 => (0usize..10).prop_map(Action::Room),
        2 => (0usize..10).prop_map(Action::Available),
        1 => Just(Action::RollForward),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_ring_behaves_as_a_bounded_queue_with_a_staging_area(
        capacity in 1u32..9,
        actions in prop::collection::vec(action(), 1..200),
    ) {
        let shape = RingShape::<u64>::at_least(capacity);
        let (pr, cr) = shape.create("weir-test").unwrap();
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        let agent = RingInspector::attach(shape, &pr, &cr).unwrap();
        let capacity = shape.capacity() as usize;
        // What the ring holds: published and not claimed, then staged and not published. And how
        // many of the published ones the consumer has been told of.
        let (mut queue, mut staged, mut known) = (VecDeque::new(), VecDeque::new(), 0);
        for action in actions {
            match action {
                Action::Stage(value) => {
                    let fits = queue.len() + staged.len() < capacity;
                    prop_assert_eq!(p.stage(value), fits);
                    if fits {
                        staged.push_back(value);
                    }
                }
                Action::Publish => {
                    prop_assert!(!p.publish(), "nobody sleeps");
                    queue.append(&mut staged);
                }
                Action::Peek(i) => {
                    prop_assert_eq!(c.peek(i), queue.get(i).copied().filter(|_| i < known));
                }
                Action::Claim(n) => {
                    c.claim(n);
                    let n = n.min(known);
                    queue.drain(..n);
                    known -= n;
                }
                Action::Room(want) => {
                    let room = capacity - queue.len() - staged.len();
                    let said = p.room(want);
                    prop_assert!(said <= room && said.min(want) == room.min(want));
                }
                Action::Available(want) => {
                    let said = c.available(want);
                    prop_assert!(said <= queue.len());
                    prop_assert_eq!(said.min(want), queue.len().min(want));
                    prop_assert!(said >= known);
                    known = said;
                }
                Action::RollForward => {
                    // By the agent, up to what a ledger had; the producer publishes it once more.
                    agent.roll_forward(p.staged());
                    queue.append(&mut staged);
                    prop_assert!(!p.publish());
                }
            }
            prop_assert_eq!(agent.unclaimed(), queue.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(agent.len(), queue.len() as u64);
        }
    }
}
