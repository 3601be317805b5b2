//! Early drop by class, against a plain model: one queue, and for each class a mark up to which it may be filled.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use weir_port::Shares;

/// What comes and goes: a packet of a class, or so many that are taken out.
#[derive(Debug, Clone, Copy)]
enum Event {
    Comes(usize),
    Taken(usize),
}

fn events(classes: usize, capacity: usize) -> impl Strategy<Value = Vec<Event>> {
    let comes = (0..classes).prop_map(Event::Comes);
    let taken = (0..=capacity / 2).prop_map(Event::Taken);
    prop::collection::vec(prop_oneof![8 => comes, 1 => taken], 0..600)
}

/// The same written down plainly: marks in exact fractions, a queue of classes.
struct Model {
    weights: Vec<u32>,
    capacity: usize,
    queue: Vec<usize>,
}

impl Model {
    fn comes(&mut self, class: usize) -> bool {
        let largest = *self.weights.iter().max().unwrap();
        // Up to this place, counted from 0, the class may stand: the least n with n / capacity >= 1/2 + weight / largest / 2.
        let sum = (largest + self.weights[class]) as usize;
        let mark = (self.capacity * sum).div_ceil(2 * largest as usize);
        let enters = self.queue.len() < mark;
        if enters {
            self.queue.push(class);
        }
        enters
    }

    fn taken(&mut self, n: usize) {
        self.queue.drain(..n.min(self.queue.len()));
    }
}

fn cases() -> impl Strategy<Value = (Vec<u32>, usize, Vec<Event>)> {
    let weights = prop::collection::vec(1..=1000u32, 1..6);
    (weights, 1..200usize).prop_flat_map(|(weights, capacity)| {
        let events = events(weights.len(), capacity);
        (Just(weights), Just(capacity), events)
    })
}

proptest! {
    #[test]
    fn packets_enter_as_in_the_plain_model((weights, capacity, events) in cases()) {
        let shares = Shares::new(weights.clone(), capacity);
        let mut model = Model { weights, capacity, queue: Vec::new() };
        for event in events {
            match event {
                Event::Comes(class) => {
                    let room = capacity - model.queue.len();
                    prop_assert_eq!(shares.admits(class, room), model.comes(class));
                }
                Event::Taken(n) => model.taken(n),
            }
        }
    }

    #[test]
    fn who_is_told_that_all_enter_need_not_ask_for_each((weights, capacity, _) in cases(), n in 0..300usize, room in 0..200usize) {
        let room = room.min(capacity);
        let shares = Shares::new(weights.clone(), capacity);
        let each = |class: usize| (0..n).all(|i| i < room && shares.admits(class, room - i));
        let all = (0..weights.len()).all(each);
        prop_assert_eq!(shares.admits_all(n, room), all);
    }

    #[test]
    fn a_class_loses_nothing_to_lower_ones_while_it_fits_beside_their_shares(
        low in 1..10u32, capacity in 20..200usize, noise in prop::collection::vec(0..30usize, 1..100)
    ) {
        // Each turn takes as many out as the upper class brings: it fits, if what it brings fits above the lower one's mark.
        let upper = 10;
        let shares = Shares::new(vec![upper, low], capacity);
        let mark = (capacity * (upper + low) as usize).div_ceil(2 * upper as usize);
        let brings = (capacity - mark).min(5);
        let mut queued = 0;
        for lower in noise {
            for _ in 0..lower {
                queued += usize::from(shares.admits(1, capacity - queued));
            }
            for _ in 0..brings {
                prop_assert!(shares.admits(0, capacity - queued));
                queued += 1;
            }
            queued -= brings.min(queued);
        }
    }
}

proptest! {
    #[test]
    fn nobody_loses_anything_of_what_is_taken_at_once_while_the_ring_is_less_than_half_full(
        (weights, capacity, _) in cases(), taken in 0..100usize
    ) {
        let shares = Shares::new(weights.clone(), capacity);
        prop_assume!(2 * taken < capacity);
        let n = shares.at_once(capacity - taken);
        if n != usize::MAX {
            prop_assert!(shares.admits_all(n, capacity - taken), "{n} at once");
        }
    }
}

#[test]
fn one_class_has_all_of_the_ring() {
    let shares = Shares::new(vec![7], 64);
    assert!((1..=64).all(|room| shares.admits(0, room)) && !shares.admits(0, 0));
}
