//! A home pool whose worker dies while it takes free buffers in, and others go on giving back: the agent
//! sweeps, the successor collects, and every buffer is in exactly one place.
//!
//! Red under `WEIR_BROKEN=pool`: the successor takes what its predecessor had marked, and not claimed, for a
//! buffer that it has already.

use super::any_bell;
use crate::egress::{Egress, Return};
use crate::pool::HomePool;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_mem::fault::Step;
use weir_mem::model::{dies_at, explore, heap_successors};
use weir_mem::ring::heap_ring_inspected;
use weir_mem::sweep::InRings;
use weir_mem::{Arena, ArenaShape, Entry, Owner, Packet, Seq};

const HOME: Owner = Owner(1);
const OTHER: Owner = Owner(2);
const BUFFERS: u32 = 2;

fn packet(arena: &Arena, buffer: u32) -> Packet {
    let entry = Entry::packet(buffer, 0, 64, Seq::new(0), 0);
    Packet::admit(entry, arena.view()).unwrap()
}

fn collected_and_killed_at(step: Step) {
    let deaths = Arc::new(AtomicUsize::new(0));
    let counted = deaths.clone();
    explore(3, move || {
        let arena = Arc::new(Arena::modelled(ArenaShape::new(BUFFERS, 64)).unwrap());
        let (back, home, agent) = heap_ring_inspected(BUFFERS);
        (0..BUFFERS).for_each(|buffer| arena.owners().set(buffer, OTHER));
        let others = thread::spawn({
            let arena = arena.clone();
            move || {
                let back = Return { ring: back, bell: any_bell() };
                let mut egress = Egress::new(Vec::new(), &[], vec![back], 8, 1);
                for buffer in 0..BUFFERS {
                    assert!(egress.give_back(packet(&arena, buffer)));
                    egress.publish();
                }
            }
        });
        let worker = thread::spawn({
            let arena = arena.clone();
            move || {
                let mut pool = HomePool::new(vec![home], 0, BUFFERS, HOME, None);
                dies_at(step, || {
                    for _ in 0..2 {
                        pool.collect(arena.owners());
                    }
                })
            }
        });
        // Whether it came there or had nothing to collect: it has ended, and its stack with it.
        counted.fetch_add(usize::from(worker.join().unwrap()), Ordering::Relaxed);
        let mut in_rings = InRings::new(BUFFERS as usize);
        in_rings.look_at(&agent);
        let mut everywhere = in_rings.sweep(arena.owners(), HOME);
        let mut successor = HomePool::new(vec![heap_successors(&agent).1], 0, BUFFERS, HOME, None);
        successor.collect(arena.owners());
        others.join().unwrap();
        successor.collect(arena.owners());
        everywhere.extend(successor.stack());
        everywhere.sort_unstable();
        assert_eq!(everywhere, [0, 1], "a buffer leaked or doubled");
        assert_eq!(successor.rejected(), 0);
    });
    assert!(deaths.load(Ordering::Relaxed) > 0, "{step:?} is never passed");
}

#[test]
fn a_pool_whose_worker_dies_while_it_collects_leaks_and_doubles_nothing() {
    for step in [Step::Peeked, Step::HalfOwned, Step::Owned, Step::Claimed] {
        collected_and_killed_at(step);
    }
}
