//! A gate: copies the packets of an edge from one trust domain into another. And a drain, which
//! takes the place of a worker that was named too often.
//!
//! A gate is library code between two domains, of which one may be hostile. It reads nothing twice:
//! an entry, a packet's bytes and its metadata are copied out, checked, and what is handed on is
//! made anew from the copies. It writes only into the domain that the packets go to (and owner words
//! and its own ring indices where they come from).

use crate::dump;
use crate::spec::WorkerSpec;
use crate::station::{Progress, Station};
use std::time::{Duration, Instant};
use weir_mem::arena::HEADROOM;
use weir_mem::fault::{self, Step};
use weir_mem::meta::{Arrival, Arrived, CHECKSUM_GOOD, CHECKSUM_PARTIAL, VLAN_STRIPPED};
use weir_mem::{Arena, Entry, Meta, Seq};
use weir_packet::{BATCH, DropReason, Packet};
use weir_port::Pull;

/// How long a gate waits for a domain to take packets before it drops them, and to give what it
/// promised before it goes on without.
const PATIENCE: Duration = Duration::from_millis(800);
/// How often it looks meanwhile. Longer waits count as this much: then the whole machine stood still.
const GLANCE: Duration = Duration::from_millis(50);

/// Bytes that are copied at a time.
const PIECE: usize = 2048;

/// Copies packets from one domain into another.
pub(crate) struct Gate {
    /// By source: the last packet's place in the stream.
    last: Vec<Option<Seq>>,
    piece: Box<[u8; PIECE]>,
    finished: Vec<Packet>,
    /// It leads into a domain that need not be trusted, or out of one.
    into: bool,
    out_of: bool,
    /// How long there has been no room.
    blocked: Waiting,
    /// By source: how long nothing has come, and what was promised then.
    silent: Vec<(Waiting, Option<Seq>)>,
}

/// Time spent waiting, while this process had the machine.
#[derive(Default)]
struct Waiting {
    last: Option<Instant>,
    sum: Duration,
}

impl Waiting {
    fn on(&mut self) -> Duration {
        let now = Instant::now();
        let passed = self.last.map_or(Duration::ZERO, |last| now - last);
        self.last = Some(now);
        self.sum += passed.min(GLANCE);
        self.sum
    }

    fn over(&mut self) {
        *self = Waiting::default();
    }
}

impl Gate {
    pub(crate) fn new(spec: &WorkerSpec, into: bool, out_of: bool) -> Self {
        let sources = usize::from(spec.sources);
        Gate {
            last: vec![None; sources],
            piece: Box::new([0; PIECE]),
            finished: Vec::with_capacity(BATCH),
            into,
            out_of,
            blocked: Waiting::default(),
            silent: (0..sources).map(|_| Default::default()).collect(),
        }
    }

    pub(crate) fn step(&mut self, station: &mut Station, packets: &mut Vec<Packet>) -> Progress {
        let Station { arena, outward, ingress, egress, home, .. } = station;
        let (Some(outward), Some(pool)) = (outward.as_ref(), home.as_mut()) else {
            return Progress::Idle;
        };
        let free = pool.refill(outward.owners(), BATCH);
        let room = |source| egress.room(source, BATCH).min(free);
        let pulled = match ingress.pull(arena, packets, room) {
            Pull::Some(pulled) => pulled,
            Pull::Blocked if self.into && self.blocked.on() > PATIENCE => {
                return self.drop_some(station, packets);
            }
            Pull::Blocked => {
                let _ = idle(station);
                return Progress::Later(GLANCE.as_nanos() as u64);
            }
            Pull::None => {
                let progress = idle(station);
                let again = if self.out_of { self.go_on_without(station) } else { None };
                return match (progress, again) {
                    (Progress::Idle, Some(again)) => Progress::Later(again.as_nanos() as u64),
                    (other, _) => other,
                };
            }
        };
        self.blocked.over();
        if let Some((silent, ..)) = self.silent.get_mut(pulled.source) {
            silent.over();
        }
        let (mut bytes, mut drops) = (0, Vec::new());
        let lane = egress.lane(0, pulled.source);
        for (i, packet) in packets.iter().enumerate() {
            let last = self.last.get_mut(pulled.source);
            let passed = match last {
                // Order is what the merges further on rely on.
                Some(Some(last)) if packet.entry().seq().before(*last) => Err(DropReason::BadEntry),
                Some(last) => {
                    *last = Some(packet.entry().seq());
                    copy(packet.entry(), arena, outward, &mut self.piece, || pool.take())
                }
                None => Err(DropReason::BadEntry),
            };
            bytes += u64::from(packet.entry().len());
            match passed {
                Ok(copy) => self.finished.push(copy),
                Err(reason) => drops.push((i, reason)),
            }
        }
        fault::step(Step::Processed);
        let count = packets.len() as u64;
        if drops.is_empty() || egress.dump(pulled.source).is_none() {
            egress.give_all_back(packets);
        } else {
            let mut dropped = drops.iter().copied().peekable();
            for (i, packet) in packets.drain(..).enumerate() {
                match dropped.next_if(|(at, _)| *at == i) {
                    Some((_, reason)) => {
                        dump::discard([(packet, reason)], pulled.source, arena, egress);
                    }
                    None => {
                        egress.give_back(packet);
                    }
                }
            }
        }
        if let Some(lane) = lane {
            egress.send_all(lane, &mut self.finished);
        }
        // Nothing is left where there is a lane: there was room.
        for packet in self.finished.drain(..) {
            pool.put(packet.into_entry().index());
            drops.push((usize::MAX, DropReason::NoEdge));
        }
        let base = station.layout.nodes;
        add(station, base, count);
        add(station, base + 1, bytes);
        drops.into_iter().for_each(|(_, reason)| add(station, base + 4 + reason as usize, 1));
        station.commit();
        station.pass_watermarks();
        station.ingress.wake_producers();
        fault::step(Step::Done);
        Progress::Did
    }
}

impl Gate {
    /// The domain takes nothing: what comes for it is dropped, lest others wait for it.
    fn drop_some(&mut self, station: &mut Station, packets: &mut Vec<Packet>) -> Progress {
        let Station { arena, ingress, egress, .. } = station;
        let pulled = match ingress.pull(arena, packets, |source| egress.dump_room(source, BATCH)) {
            Pull::Some(pulled) => pulled,
            // Whoever writes down what is dropped is of our own domain, and will.
            Pull::Blocked => return Progress::Later(GLANCE.as_nanos() as u64),
            Pull::None => return Progress::Idle,
        };
        if let (Some(last), Some(packet)) = (self.last.get_mut(pulled.source), packets.last()) {
            *last = Some(packet.entry().seq());
        }
        let count = packets.len() as u64;
        let bytes = packets.iter().map(|p| u64::from(p.entry().len())).sum();
        let dropped = packets.drain(..).map(|p| (p, DropReason::RingFull));
        dump::discard(dropped, pulled.source, arena, egress);
        count_dropped(station, DropReason::RingFull, count, bytes);
        Progress::Did
    }

    /// Where a merge further on may wait for this domain, and it has been silent for too long:
    /// promises in its stead, until it says something again, that nothing follows before what the
    /// source has sent. What comes later all the same is dropped. Says when to look again, if
    /// somebody waits.
    fn go_on_without(&mut self, station: &mut Station) -> Option<Duration> {
        let mut again: Option<Duration> = None;
        for source in 0..station.ingress.sources() {
            let (true, Some(promised), Some(reached), Some((silent, before)), Some(last)) = (
                station.egress.is_ordered(source),
                station.ingress.frontier(source),
                station.ingress.reached(source),
                self.silent.get_mut(source),
                self.last.get_mut(source),
            ) else {
                continue;
            };
            if *before != Some(promised) || !promised.before(reached) {
                silent.over();
                *before = Some(promised);
            }
            if !promised.before(reached) {
                continue;
            }
            let mut look = GLANCE;
            if silent.on() > PATIENCE {
                station.egress.set_watermark(source, reached);
                if last.is_none_or(|last| last.before(reached)) {
                    *last = Some(reached);
                }
                look = GLANCE / 50;
            }
            again = Some(again.map_or(look, |again| again.min(look)));
        }
        again
    }
}

/// What is done when there is nothing to take.
fn idle(station: &mut Station) -> Progress {
    station.pass_watermarks();
    station.ingress.wake_producers();
    station.tell_nonsense();
    station.pass_ends(|_, _| true)
}

fn count_dropped(station: &mut Station, reason: DropReason, count: u64, bytes: u64) {
    let base = station.layout.nodes;
    add(station, base, count);
    add(station, base + 1, bytes);
    add(station, base + 4 + reason as usize, count);
    station.commit();
    station.pass_watermarks();
    station.ingress.wake_producers();
}

/// Takes packets and drops them.
pub(crate) fn drain(station: &mut Station, packets: &mut Vec<Packet>) -> Progress {
    let source = match station.pull(packets, BATCH) {
        Pull::Some(pulled) => pulled.source,
        Pull::Blocked | Pull::None => return idle(station),
    };
    let count = packets.len() as u64;
    let bytes = packets.iter().map(|p| u64::from(p.entry().len())).sum();
    let dropped = packets.drain(..).map(|p| (p, DropReason::Quarantined));
    dump::discard(dropped, source, &station.arena, &mut station.egress);
    count_dropped(station, DropReason::Quarantined, count, bytes);
    Progress::Did
}

fn add(station: &mut Station, word: usize, n: u64) {
    let so_far = station.get(word);
    station.set(word, so_far.wrapping_add(n));
}

/// The packet of `entry` in a buffer of `to`.
fn copy(
    entry: &Entry,
    from: &Arena,
    to: &Arena,
    piece: &mut [u8; PIECE],
    buffer: impl FnOnce() -> Option<u32>,
) -> Result<Packet, DropReason> {
    let len = entry.len();
    if u32::from(len) + u32::from(HEADROOM) > to.shape().stride() {
        return Err(DropReason::Oversize);
    }
    let Some(theirs) = from.meta(entry) else {
        return Err(DropReason::BadEntry);
    };
    // As many as packets were taken for.
    let buffer = buffer().ok_or(DropReason::BadEntry)?;
    let mut made = Entry::packet(buffer, HEADROOM, len, entry.seq(), entry.bucket());
    if let (Some(mut out), bytes) = (to.bytes_mut(&mut made), from.bytes(entry)) {
        for at in (0..usize::from(len)).step_by(PIECE) {
            let n = bytes.copy_to(at, piece.as_mut_slice());
            out.write(at, piece.get(..n).unwrap_or_default());
        }
    }
    if let Some(ours) = to.meta(&made) {
        describe(theirs, ours, len);
    }
    Packet::admit(made, to.view()).ok_or(DropReason::BadEntry)
}

/// Makes a packet's metadata from a copy of what another domain says of it: what can be reckoned
/// anew (headers, flow hash) is, and what cannot be right is made harmless.
fn describe(theirs: &Meta, ours: &Meta, len: u16) {
    let arrival = Arrival {
        time_ns: theirs.time_ns.get(),
        raw_time: theirs.raw_time.get(),
        wire_len: theirs.wire_len.get().max(len.into()),
        time_format: theirs.time_format.get(),
    };
    ours.arrive(&Arrived::new(&arrival, theirs.source_port.get()), false);
    let (start, offset) = (theirs.checksum_start.get(), theirs.checksum_offset.get());
    let mut flags = theirs.flags.get() & (CHECKSUM_GOOD | CHECKSUM_PARTIAL | VLAN_STRIPPED);
    if u32::from(start) + u32::from(offset) + 2 > u32::from(len) {
        flags &= !CHECKSUM_PARTIAL;
    }
    ours.checksum_start.set(start);
    ours.checksum_offset.set(offset);
    ours.vlan_tci.set(theirs.vlan_tci.get());
    ours.flags.set(flags);
    // Plain numbers, that whoever reads them checks anyway.
    for (ours, theirs) in ours.tags.iter().zip(&theirs.tags) {
        ours.set(theirs.get());
    }
}
