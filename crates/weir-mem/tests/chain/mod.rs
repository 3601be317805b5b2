//! A chain of three over real threads: a source, a worker and a sink, buffers claimed on the way
//! and given back to the source at the end. Used over two mappings per ring (`ring_threads.rs`) and,
//! for ThreadSanitizer, over one (`src/threads.rs` says why).

#![allow(clippy::expect_used)] // only tests use it

use super::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use weir_mem::{Consumer, Entry, Owner, Owners, Producer, Seq};

/// The ends of a chain's rings: source → worker → sink, and back to the source.
pub struct Chain {
    pub source_to_worker: (Producer<Entry>, Consumer<Entry>),
    pub worker_to_sink: (Producer<Entry>, Consumer<Entry>),
    pub sink_to_source: (Producer<u32>, Consumer<u32>),
}

const SOURCE: Owner = Owner(1);
const WORKER: Owner = Owner(2);
const SINK: Owner = Owner(3);

/// What an entry with this sequence number carries, so that a torn or stale one shows.
fn entry(buffer: u32, seq: u64) -> Entry {
    let span = (seq.wrapping_mul(0x9e37_79b9) >> 8) as u16;
    Entry::packet(buffer, span, !span, Seq::new(seq), span)
}

/// Sends `packets` packets in `buffers` buffers round the chain and checks that each arrives once,
/// in order and whole, from the owner that had it, and that all buffers come back.
pub fn run(chain: Chain, owners: &Owners, buffers: u32, packets: u64, seed: u64) {
    let (mut out, mut input) = chain.source_to_worker;
    let (mut passed, mut at_sink) = chain.worker_to_sink;
    let (mut give_back, mut returned) = chain.sink_to_source;
    let finished = AtomicU64::new(0);
    let finished = &finished;

    // Scoped threads that borrow, and no `Arc`: ThreadSanitizer does not understand the fence in its
    // drop.
    let source = move || {
        let mut random = Random(seed);
        let mut free: Vec<u32> = (0..buffers).collect();
        free.iter().for_each(|&b| owners.set(b, SOURCE));
        let mut seq = 0;
        loop {
            let want = 1 + random.below(64) as usize;
            let n = returned.available(want).min(want);
            for i in 0..n {
                let buffer = returned.peek(i).expect("available");
                assert_eq!(owners.get(buffer), Some(SINK));
                owners.set(buffer, SOURCE);
                free.push(buffer);
            }
            returned.claim(n);
            let want = 1 + random.below(64);
            let mut staged = 0;
            while staged < want && seq < packets && !free.is_empty() {
                let buffer = free[free.len() - 1];
                if !out.stage(entry(buffer, seq)) {
                    break;
                }
                free.pop();
                seq += 1;
                staged += 1;
            }
            out.publish();
            out.set_watermark(Seq::new(seq));
            // Acquire: pairs with the sink's Release; only ends the loop.
            if finished.load(Ordering::Acquire) == packets
                && returned.refresh() == 0
                && free.len() == buffers as usize
            {
                free.sort_unstable();
                assert!(free.iter().copied().eq(0..buffers), "a buffer came back twice");
                return;
            }
            if n == 0 && staged == 0 {
                thread::yield_now();
            }
        }
    };

    let worker = move || {
        let mut random = Random(!seed);
        let mut done = 0;
        let mut batch = [entry(0, 0); 64];
        while done < packets {
            let watermark = input.watermark();
            let want = 1 + random.below(64) as usize;
            let want = want.min(passed.room(want));
            let (n, marker) = peek_packets(&mut input, &mut batch[..want]);
            assert!(marker.is_none());
            if n == 0 {
                // Looked after the watermark: everything before it has come by.
                assert!(want == 0 || watermark.get() <= done);
                thread::yield_now();
                continue;
            }
            for (i, packet) in batch[..n].iter().enumerate() {
                assert_eq!(*packet, entry(packet.index(), done + i as u64));
                assert_eq!(owners.get(packet.index()), Some(SOURCE));
                owners.set(packet.index(), WORKER);
            }
            input.claim(n);
            assert!(batch[..n].iter().all(|packet| passed.stage(*packet)));
            passed.publish();
            done += n as u64;
        }
    };

    let sink = move || {
        let mut random = Random(seed.rotate_left(32));
        let mut seen = 0;
        let mut batch = [entry(0, 0); 64];
        while seen < packets {
            let want = 1 + random.below(64) as usize;
            let want = want.min(give_back.room(want));
            let (n, _) = peek_packets(&mut at_sink, &mut batch[..want]);
            if n == 0 {
                thread::yield_now();
                continue;
            }
            for (i, packet) in batch[..n].iter().enumerate() {
                assert_eq!(*packet, entry(packet.index(), seen + i as u64));
                assert_eq!(owners.get(packet.index()), Some(WORKER));
                owners.set(packet.index(), SINK);
            }
            at_sink.claim(n);
            assert!(batch[..n].iter().all(|packet| give_back.stage(packet.index())));
            give_back.publish();
            seen += n as u64;
        }
        finished.store(seen, Ordering::Release);
    };

    thread::scope(|scope| {
        // Joined here and not left to the scope, which does not wait for the threads' last breath.
        for thread in [scope.spawn(source), scope.spawn(worker), scope.spawn(sink)] {
            thread.join().expect("a thread of the chain failed");
        }
    });
}

/// Copies packets' entries from the head on, stopping before a marker.
fn peek_packets(ring: &mut Consumer<Entry>, out: &mut [Entry]) -> (usize, Option<Entry>) {
    let n = ring.available(out.len()).min(out.len());
    for (i, slot) in out.iter_mut().enumerate().take(n) {
        match ring.peek(i) {
            Some(entry) if entry.is_packet() => *slot = entry,
            other => return (i, other),
        }
    }
    (n, None)
}
