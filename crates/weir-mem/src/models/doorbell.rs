//! No wake-up is lost: whoever goes to sleep either sees what it waits for in its last look, or is
//! seen sleeping by the one that brings it.
//!
//! Red under `WEIR_BROKEN=doorbell` (no fences between the store and the load on either side).

use super::explore;
use crate::entry::Seq;
use crate::ring::{heap_ring, heap_ring_inspected};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// As an eventfd: a ring before the wait is not forgotten.
#[derive(Default)]
struct Doorbell {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Doorbell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.bell.notify_one();
    }

    /// Returns when rung. loom reports a deadlock when nobody will.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.bell.wait(rung).unwrap();
        }
        *rung = false;
    }
}

#[test]
fn a_publication_is_seen_or_rings_the_bell() {
    explore(3, || {
        let (mut p, mut c) = heap_ring::<u64>(2);
        let producer = thread::spawn(move || {
            assert!(p.stage(1));
            p.publish()
        });
        c.sleep();
        let saw = c.refresh() > 0;
        let rung = producer.join().unwrap();
        assert!(saw || rung, "lost wake-up");
    });
}

#[test]
fn a_watermark_is_seen_or_rings_the_bell() {
    explore(3, || {
        let (mut p, mut c) = heap_ring::<u64>(2);
        let producer = thread::spawn(move || p.set_watermark(Seq::new(5)));
        c.sleep();
        let saw = c.watermark() == Seq::new(5);
        let rung = producer.join().unwrap();
        assert!(saw || rung, "lost wake-up");
    });
}

#[test]
fn what_the_agent_rolls_forward_is_seen_or_rings_the_bell() {
    explore(3, || {
        let (mut p, mut c, agent) = heap_ring_inspected::<u64>(2);
        assert!(p.stage(1));
        let target = p.staged();
        let agent = thread::spawn(move || {
            agent.roll_forward(target);
            agent.consumer_sleeps()
        });
        c.sleep();
        let saw = c.refresh() > 0;
        let rung = agent.join().unwrap();
        assert!(saw || rung, "lost wake-up");
    });
}

#[test]
fn a_claim_is_seen_or_wakes_the_producer() {
    explore(3, || {
        let (mut p, mut c) = heap_ring::<u64>(2);
        assert!(p.stage(1) && p.stage(2) && !p.stage(3));
        p.publish();
        let consumer = thread::spawn(move || {
            assert_eq!(c.refresh(), 2);
            c.claim(1);
            c.producer_waits()
        });
        let saw = p.wait(1);
        let woken = consumer.join().unwrap();
        assert!(saw || woken, "lost wake-up");
    });
}

/// Both sides sleep for real whenever they can, over a ring that is empty and full in turn: all
/// entries arrive, so nobody sleeps for ever.
#[test]
fn two_sides_that_sleep_whenever_they_can_finish() {
    const ENTRIES: u64 = 3;
    explore(3, || {
        let (mut p, mut c) = heap_ring::<u64>(2);
        let to_consumer = Arc::new(Doorbell::default());
        let to_producer = Arc::new(Doorbell::default());
        let (bell, mine) = (to_consumer.clone(), to_producer.clone());
        let producer = thread::spawn(move || {
            for i in 0..ENTRIES {
                while !p.stage(i) {
                    if !p.wait(1) {
                        mine.wait();
                    }
                    p.wake();
                }
                if p.publish() {
                    bell.ring();
                }
            }
        });
        for i in 0..ENTRIES {
            while c.refresh() == 0 {
                c.sleep();
                if c.refresh() == 0 {
                    to_consumer.wait();
                }
                c.wake();
            }
            assert_eq!(c.peek(0), Some(i));
            c.claim(1);
            if c.producer_waits() {
                to_producer.ring();
            }
        }
        producer.join().unwrap();
    });
}
