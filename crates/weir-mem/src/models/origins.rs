//! Services of several ports write down what came in by them; whoever takes a packet finds where the
//! flows before it came in.
//!
//! Red under `WEIR_BROKEN=origins`: a writer stores over what another has written since it looked.

use super::explore;
use crate::entry::{Entry, Seq};
use crate::origins::heap_origins;
use crate::ring::heap_ring;
use loom::thread;

const A: u64 = 1 << 40;
const B: u64 = 2 << 40;

#[test]
fn who_takes_a_packet_finds_what_was_learned_before_it_was_published() {
    explore(3, || {
        let [writer, reader] = heap_origins(1);
        let (mut producer, mut consumer) = heap_ring(2);
        let service = thread::spawn(move || {
            writer.learn(A, true, 3);
            assert!(producer.stage(Entry::packet(1, 0, 64, Seq::new(1), 0)));
            producer.publish();
        });
        consumer.refresh();
        if consumer.peek(0).is_some() {
            assert_eq!(reader.find(A, true), Some(3), "a learned flow is not found");
        }
        service.join().unwrap();
    });
}

#[test]
fn two_flows_learned_at_once_are_both_found_afterwards() {
    explore(3, || {
        let [first, second, reader] = heap_origins(1);
        let a = thread::spawn(move || first.learn(A, true, 1));
        let b = thread::spawn(move || second.learn(B, true, 2));
        a.join().unwrap();
        b.join().unwrap();
        let found = (reader.find(A, true), reader.find(B, true));
        assert_eq!(found, (Some(1), Some(2)), "a learned flow is not found");
    });
}

#[test]
fn a_flow_that_comes_in_by_two_sources_is_found_at_one_of_them_and_nowhere_else() {
    explore(3, || {
        let [first, second, reader] = heap_origins(1);
        let a = thread::spawn(move || first.learn(A, true, 1));
        let b = thread::spawn(move || second.learn(A, true, 2));
        assert!(matches!(reader.find(A, true), None | Some(1 | 2)), "found where it never was");
        assert_eq!((reader.find(A, false), reader.find(B, true)), (None, None));
        a.join().unwrap();
        b.join().unwrap();
        assert!(matches!(reader.find(A, true), Some(1 | 2)), "a learned flow is not found");
    });
}
