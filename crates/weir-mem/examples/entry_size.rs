//! Experiment behind docs/decisions/0001-ring-entry.md: what must travel with a packet?
//!
//! Two threads on two cores. The producer writes offset, length and sequence where the consumer
//! will look for them, the consumer swaps the MAC addresses and gives the buffer back:
//! `entry 16`: all in a 16-byte ring entry; `entry 8 + meta`: an 8-byte entry carries the buffer's
//! number, the rest stands in the packet's metadata line. Alternating, five samples each; the
//! core-to-core round trip is measured around each.

#![allow(clippy::expect_used)] // an experiment, not part of the system

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_mem::meta::{Arrival, Arrived};
use weir_mem::{
    Arena, ArenaShape, Consumer, Entry, Owner, Packet, Producer, RingShape, Seq, packet,
};

const BUFFERS: u32 = 4096;
const BURST: usize = 64;

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn round_trip() -> f64 {
    let ball = AtomicU64::new(0);
    let play = |core: usize, odd: u64| {
        pin(core);
        for n in 0..20_000 {
            while ball.load(Ordering::Acquire) != 2 * n + odd {
                std::hint::spin_loop();
            }
            ball.store(2 * n + odd + 1, Ordering::Release);
        }
    };
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| play(1, 1));
        s.spawn(|| play(0, 0));
    });
    start.elapsed().as_nanos() as f64 / 20_000.0
}

fn ring<E: weir_mem::shared::Plain>(capacity: u32) -> (Producer<E>, Consumer<E>) {
    let shape = RingShape::at_least(capacity);
    let (p, c) = shape.create("experiment").expect("memory");
    let ends = (Producer::attach(shape, &p, &c), Consumer::attach(shape, &p, &c));
    (ends.0.expect("map"), ends.1.expect("map"))
}

fn swap(arena: &Arena, packet: &mut Packet) {
    let Some(mut bytes) = arena.view().bytes_mut(packet.entry_mut()) else { return };
    let Some(mut head) = bytes.head::<12>() else { return };
    let (low, high) = (head.ne64::<0>(), head.ne32::<8>());
    head.set_ne64::<0>(low >> 48 | u64::from(high) << 16 | low << 48);
    head.set_ne32::<8>((low >> 16) as u32);
}

/// Mpps of the two designs: `wide` is the 16-byte entry.
fn measure(wide: bool, span: Duration) -> f64 {
    let arena = Arena::private(ArenaShape::new(BUFFERS, 1920)).expect("memory");
    let (mut out16, mut in16) = ring::<Entry>(1024);
    let (mut out8, mut in8) = ring::<u64>(1024);
    let (mut back_out, mut back_in) = ring::<u32>(BUFFERS);
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let (arena, stop) = (&arena, &stop);
    let count = std::thread::scope(|s| {
        s.spawn(move || {
            pin(0);
            let mut free: Vec<u32> = (0..BUFFERS).collect();
            let mut seq = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = packet::collect(
                    &mut back_in,
                    arena.owners(),
                    Owner(1),
                    (0, BUFFERS),
                    false,
                    &mut free,
                );
                let room = if wide { out16.room(BURST) } else { out8.room(BURST) };
                for _ in 0..room.min(BURST).min(free.len()) {
                    let Some(buffer) = free.pop() else { break };
                    let entry = Entry::packet(buffer, 128, 64, Seq::new(seq), 0);
                    seq += 1;
                    if wide {
                        out16.stage(entry);
                    } else {
                        if let Some(meta) = arena.meta(&entry) {
                            let arrival =
                                Arrival { raw_time: seq, wire_len: 64, ..Arrival::default() };
                            meta.arrive(&Arrived::new(&arrival, 128), false);
                        }
                        out8.stage(u64::from(buffer));
                    }
                }
                out16.publish();
                out8.publish();
            }
        });
        let consumer =
            s.spawn(move || {
                pin(1);
                let (mut batch, mut count) = (Vec::with_capacity(BURST), 0u64);
                while start.elapsed() < span {
                    let n = if wide {
                        packet::take::<true>(&mut in16, arena, Owner(2), None, BURST, &mut batch)
                    } else {
                        let n = in8.available(BURST).min(BURST);
                        let ahead = |i: usize| {
                            in8.peek(i).map(|b| Entry::packet(b as u32, 0, 64, Seq::new(0), 0))
                        };
                        for i in 0..n {
                            if let Some(m) =
                                ahead(i + 8).and_then(|e| arena.meta(&e).map(std::ptr::from_ref))
                            {
                                #[cfg(target_arch = "x86_64")]
                                // SAFETY: a prefetch never faults.
                                unsafe {
                                    std::arch::x86_64::_mm_prefetch::<
                                        { std::arch::x86_64::_MM_HINT_T0 },
                                    >(m.cast());
                                }
                                let _ = m;
                            }
                            let Some(found) = ahead(i) else { break };
                            let Some(meta) = arena.meta(&found) else { break };
                            let (offset, len) =
                                (meta.source_port.get(), meta.wire_len.get() as u16);
                            let seq = Seq::new(meta.raw_time.get());
                            let entry = Entry::packet(found.index(), offset, len, seq, 0);
                            arena.owners().set(entry.index(), Owner(2));
                            arena.prefetch(&entry);
                            batch.extend(Packet::admit(entry, arena.view()));
                        }
                        n
                    };
                    if wide {
                        in16.claim(n)
                    } else {
                        in8.claim(n)
                    }
                    for packet in &mut batch {
                        swap(arena, packet);
                    }
                    count += n as u64;
                    back_out.stage_all(batch.drain(..).map(|p| p.into_entry().index()));
                    back_out.publish();
                }
                stop.store(true, Ordering::Relaxed);
                count
            });
        consumer.join().unwrap_or(0)
    });
    count as f64 / span.as_secs_f64() / 1e6
}

fn main() {
    println!("{:>12} {:>18} {:>14}", "round trip", "entry 8 + meta", "entry 16");
    for _ in 0..5 {
        let trip = round_trip();
        let narrow = measure(false, Duration::from_millis(500));
        let wide = measure(true, Duration::from_millis(500));
        println!("{trip:>9.0} ns {narrow:>13.1} Mpps {wide:>9.1} Mpps   {:.2}", wide / narrow);
    }
}
