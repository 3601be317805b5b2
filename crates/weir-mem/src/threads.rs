//! The chain of `tests/chain` over rings with *one* mapping, for ThreadSanitizer.
//!
//! ThreadSanitizer knows memory by its address: two mappings of the same memory are two memories to
//! it, so over `attach`ed rings it would see neither a race nor the orderings that prevent one.
//! These rings have both ends in one memory, so it sees both.

#[path = "../tests/chain/mod.rs"]
mod chain;
#[path = "../tests/random/mod.rs"]
mod random;

use crate::owner::Owners;
use crate::ring::heap_ring;

#[test]
fn a_chain_of_three_over_one_mapping_delivers_every_packet_once_and_in_order() {
    const PACKETS: u64 = 1_500_000;
    const BUFFERS: u32 = 192;
    for (seed, capacity) in [(1, 256), (2, 32)] {
        let region = crate::Region::create("weir-test", Owners::len_for(BUFFERS)).unwrap();
        let chain = chain::Chain {
            source_to_worker: heap_ring(capacity),
            worker_to_sink: heap_ring(capacity),
            sink_to_source: heap_ring(256),
        };
        let owners = Owners::attach(&region, BUFFERS).unwrap();
        chain::run(chain, &owners, BUFFERS, PACKETS, seed);
    }
}
