//! Free buffers of a worker that serves several sources.
#![allow(clippy::unwrap_used)] // set-up of tests

use weir_mem::{Arena, ArenaShape, Consumer, Owner, Producer, RingShape};
use weir_port::HomePool;

const HOME: Owner = Owner(1);
const OTHER: Owner = Owner(2);
/// Buffers of the pool, among others that are not its.
const FIRST: u32 = 4;
const LEN: u32 = 8;

struct Bench {
    arena: Arena,
    back: Producer<u32>,
    pool: HomePool,
}

impl Bench {
    fn new(sources: &[usize]) -> Self {
        let arena = Arena::private(ArenaShape::new(16, 64)).unwrap();
        let shape = RingShape::<u32>::at_least(16);
        let (p, c) = shape.create("weir-test").unwrap();
        let home = Consumer::attach(shape, &p, &c).unwrap();
        let pool = HomePool::new(vec![home], FIRST, LEN, HOME, None).divided(sources);
        Bench { arena, back: Producer::attach(shape, &p, &c).unwrap(), pool }
    }

    fn give_back(&mut self, buffers: &[u32]) {
        buffers.iter().for_each(|buffer| self.arena.owners().set(*buffer, OTHER));
        assert_eq!(self.back.stage_slice(buffers), buffers.len());
        self.back.publish();
    }

    /// All that there are for a source now, taken.
    fn take_all(&mut self, source: usize) -> Vec<u32> {
        self.pool.serve(source);
        self.pool.refill(self.arena.owners(), LEN as usize);
        let mut all: Vec<u32> = std::iter::from_fn(|| self.pool.take()).collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn sources_have_buffers_of_their_own_and_what_comes_back_is_for_whom_it_was() {
    let mut bench = Bench::new(&[3, 1, 3]);
    assert_eq!(bench.pool.share_len(), 4);
    bench.give_back(&[11, 4, 5, 10, 9, 6, 8, 7]);
    assert_eq!(bench.take_all(3), [8, 9, 10, 11]);
    assert_eq!(bench.pool.free(), 4, "the other's");
    assert!(bench.take_all(3).is_empty());
    assert_eq!(bench.take_all(1), [4, 5, 6, 7]);
    bench.give_back(&[7, 8]);
    assert_eq!(bench.take_all(1), [7]);
    // One that nobody named has what is served.
    assert!(bench.take_all(2).is_empty());
    assert_eq!(bench.take_all(3), [8]);
    assert_eq!(bench.pool.rejected(), 0);
}

#[test]
fn what_is_not_used_or_lent_goes_back_to_its_source_and_a_new_start_begins_with_none() {
    let mut bench = Bench::new(&[0, 1]);
    bench.give_back(&[4, 5, 6, 7, 8, 9, 10, 11]);
    bench.pool.serve(1);
    assert_eq!(bench.pool.refill(bench.arena.owners(), 1), 4);
    let mut lent = bench.pool.lend();
    lent.sort_unstable();
    assert_eq!(lent, [8, 9, 10, 11]);
    bench.pool.unlend(vec![8, 9]);
    bench.pool.put(10);
    bench.pool.serve(0);
    assert_eq!((bench.pool.stack().len(), bench.pool.free()), (4, 7));
    bench.pool.resync(true);
    assert_eq!(bench.pool.free(), 0);
    assert!(bench.take_all(0).is_empty() && bench.take_all(1).is_empty());
}

#[test]
fn one_source_has_all_buffers_whatever_its_number() {
    let mut bench = Bench::new(&[5, 5]);
    assert_eq!(bench.pool.share_len(), LEN as usize);
    bench.give_back(&[4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(bench.take_all(0).len(), LEN as usize);
}
