//! Rings between real threads, each end over its own mapping of the two memories, as between
//! processes.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests, some of them in helpers

mod chain;
mod random;

use chain::Chain;
use random::Random;
use weir_mem::shared::Plain;
use weir_mem::{Consumer, Owners, Producer, Region, RingShape};

fn ring<E: Plain>(capacity: u32) -> (Producer<E>, Consumer<E>) {
    let shape = RingShape::at_least(capacity);
    let (p, c) = shape.create("weir-test").unwrap();
    (Producer::attach(shape, &p, &c).unwrap(), Consumer::attach(shape, &p, &c).unwrap())
}

#[test]
fn a_chain_of_three_delivers_every_packet_once_in_order_and_gets_its_buffers_back() {
    const PACKETS: u64 = 1_500_000;
    const BUFFERS: u32 = 192;
    for (seed, capacity) in [(1, 256), (2, 32)] {
        let owners = Region::create("weir-test", Owners::len_for(BUFFERS)).unwrap();
        let chain = Chain {
            source_to_worker: ring(capacity),
            worker_to_sink: ring(capacity),
            sink_to_source: ring(256),
        };
        let owners = Owners::attach(&owners, BUFFERS).unwrap();
        chain::run(chain, &owners, BUFFERS, PACKETS, seed);
    }
}

#[test]
fn a_new_producer_and_a_new_consumer_go_on_where_the_old_ones_ended() {
    let shape = RingShape::<u64>::at_least(4);
    let (pr, cr) = shape.create("weir-test").unwrap();
    let mut random = Random(3);
    let (mut sent, mut got) = (0, 0);
    while got < 10_000 {
        let mut p = Producer::attach(shape, &pr, &cr).unwrap();
        for _ in 0..random.below(5) {
            if p.stage(sent) {
                sent += 1;
            }
        }
        p.publish();
        // Staged and never published: its successor writes the slot anew.
        p.stage(u64::MAX);
        let mut c = Consumer::attach(shape, &pr, &cr).unwrap();
        let n = c.refresh().min(random.below(5) as usize);
        for i in 0..n {
            assert_eq!(c.peek(i), Some(got + i as u64));
        }
        c.claim(n);
        got += n as u64;
    }
}
