//! A gate: copies the packets of an edge from one trust domain into another. And a drain, which
//! takes the place of a worker that was named too often.
//!
//! A gate is library code between two domains, of which one may be hostile. It reads nothing twice:
//! an entry, a packet's bytes and its metadata are copied out, checked, and what is handed on is
//! made anew from the copies. It writes only into the domain that the packets go to (and owner words
//! and its own ring indices where they come from).

mod patience;

use self::patience::{GLANCE, PATIENCE, Patience, Waiting};
use crate::arrays::Pick;
use crate::dump;
use crate::layout::NODE_WORDS;
use crate::more::{self, Appetite};
use crate::spec::WorkerSpec;
use crate::station::{Progress, Station};
use std::time::{Duration, Instant};
use weir_mem::arena::HEADROOM;
use weir_mem::fault::{self, Step};
use weir_mem::meta::{Arrival, Arrived};
use weir_mem::{Arena, Entry, Meta, Seq};
use weir_nf::Pool;
use weir_packet::{BATCH, DropReason, Packet};
use weir_port::{Egress, HomePool, Pull, UNSAID};

/// How far a packet's time stamp may be from those around it: as far as a µNF's clock takes for nothing.
const LEEWAY_NS: u64 = 1_000_000_000;

/// Bytes that are copied at a time.
const PIECE: usize = 2048;

/// Copies packets from one domain into another.
pub(crate) struct Gate {
    /// By source: the last packet's place in the stream.
    last: Vec<Option<Seq>>,
    /// By source: the highest time stamp that was passed on since it went back, if any.
    highest_ns: Vec<Option<u64>>,
    /// By source: the port that its packets came in by, if any come here.
    ports: Vec<Option<u16>>,
    piece: Box<[u8; PIECE]>,
    finished: Vec<Packet>,
    /// What of a batch is dropped, by its place there.
    drops: Vec<(usize, DropReason)>,
    /// Free buffers, while copies are made for the ports of an array.
    pool: Pool,
    /// It leads into a domain that need not be trusted, or out of one.
    into: bool,
    out_of: bool,
    /// What is left of the patience with a domain that takes too slowly.
    patience: Patience,
    /// The source of which it has been waited for too long.
    late: Option<usize>,
    /// By source: how long nothing has come, and what was promised then.
    silent: Vec<(Waiting, Option<Seq>)>,
}

impl Gate {
    pub(crate) fn new(spec: &WorkerSpec, into: bool, out_of: bool) -> Self {
        let sources = usize::from(spec.sources);
        let comes = |source: u16| spec.lanes_in.iter().any(|lane| lane.source == source);
        Gate {
            last: vec![None; sources],
            highest_ns: vec![None; sources],
            ports: (0..)
                .zip(&spec.source_ports)
                .map(|(s, port)| comes(s).then_some(*port))
                .collect(),
            piece: Box::new([0; PIECE]),
            finished: Vec::with_capacity(BATCH),
            drops: Vec::with_capacity(BATCH),
            pool: Pool::default(),
            into,
            out_of,
            patience: Patience::with(sources),
            late: None,
            silent: (0..sources).map(|_| Default::default()).collect(),
        }
    }

    /// `pick`: which way packets leave, where they leave by an array of ports.
    pub(crate) fn step(
        &mut self,
        station: &mut Station,
        packets: &mut Vec<Packet>,
        pick: Option<&mut Pick>,
    ) -> Progress {
        if let Some(source) = self.late.take()
            && self.drop_some(station, packets, source) == Progress::Did
        {
            return Progress::Did;
        }
        let Station { arena, outward, ingress, egress, home, .. } = station;
        let (Some(outward), Some(pool)) = (outward.as_ref(), home.as_mut()) else {
            // No packets can come: nothing leads to the NF that its edge leaves.
            return idle(station);
        };
        // Of each packet one copy, or one for each port of an array.
        let each = 1 + pick.as_ref().map_or(0, |pick| pick.copies());
        let (into, patience, late) = (self.into, &mut self.patience, &mut self.late);
        let room = |source| {
            pool.serve(source);
            let room = egress.room(source, BATCH).min(more::most(each, pool, outward.owners()));
            if into && room == 0 && patience.is_over(source, Instant::now) {
                *late = Some(source);
            }
            room
        };
        let pulled = match ingress.pull(arena, packets, room) {
            Pull::Some(pulled) => pulled,
            Pull::Blocked => {
                if let Some(source) = self.late.take() {
                    return self.drop_some(station, packets, source);
                }
                pool.collect(outward.owners());
                let _ = idle(station);
                return Progress::Later(GLANCE.as_nanos() as u64);
            }
            Pull::None => {
                // Also what comes home for a source of which no packets come: the agent is told what is free.
                pool.collect(outward.owners());
                let progress = idle(station);
                let again = if self.out_of { self.go_on_without(station) } else { None };
                return match (progress, again) {
                    (Progress::Idle, Some(again)) => Progress::Later(again.as_nanos() as u64),
                    (other, _) => other,
                };
            }
        };
        pool.serve(pulled.source);
        self.patience.took(pulled.source, packets.len(), Instant::now);
        if let Some((silent, ..)) = self.silent.get_mut(pulled.source) {
            silent.over();
        }
        let (mut bytes, mut drops) = (0, std::mem::take(&mut self.drops));
        let reached = ingress.reached(pulled.source);
        for (i, packet) in packets.iter().enumerate() {
            let last = self.last.get_mut(pulled.source);
            let seq = packet.entry().seq();
            let passed = match last {
                Some(last) if !follows(seq, *last, reached) => Err(DropReason::BadEntry),
                Some(last) => {
                    *last = Some(seq);
                    let (ports, highest_ns) = (self.ports.as_slice(), &mut self.highest_ns);
                    let as_it_came = |theirs: &Meta| {
                        let (port, of) = came_by(theirs.source_port.get(), ports, pulled.source);
                        let latest_ns = ingress.time_of(of).filter(|_| self.out_of);
                        (arrival(theirs, latest_ns, highest_ns.get_mut(of)), port)
                    };
                    let buffer = || pool.take();
                    copy(packet.entry(), arena, outward, &mut self.piece, as_it_came, buffer)
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
                        dump::discard([(packet, reason)], 0, pulled.source, arena, egress);
                    }
                    None => {
                        egress.give_back(packet);
                    }
                }
            }
        }
        let mut copied = 0;
        match (pick, egress.lane(0, pulled.source)) {
            (Some(pick), _) => {
                copied = self.send_to_array(pick, pulled.source, (outward, pool), egress);
            }
            (None, Some(lane)) => egress.send_all(lane, &mut self.finished),
            (None, None) => {}
        }
        // Nothing is left where there is a lane: there was room.
        for packet in self.finished.drain(..) {
            pool.put(packet.into_entry().index());
            drops.push((usize::MAX, DropReason::NoEdge));
        }
        let base = station.layout.nodes;
        add(station, base, count);
        add(station, base + 1, bytes);
        add(station, station.layout.copied, copied);
        drops.drain(..).for_each(|(_, reason)| add(station, base + 4 + reason as usize, 1));
        self.drops = drops;
        station.commit();
        station.pass_watermarks();
        station.ingress.wake_producers();
        fault::step(Step::Done);
        Progress::Did
    }
}

impl Gate {
    /// Sends what is finished by the ports of an array; what finds no way stays. Says how many copies were made.
    fn send_to_array(
        &mut self,
        pick: &mut Pick,
        source: usize,
        (arena, home): (&Arena, &mut HomePool),
        egress: &mut Egress,
    ) -> u64 {
        self.pool.fill(home.lend());
        let (mut copied, mut left) = (0, Vec::new());
        let mut send = |edge: usize, packet| match egress.lane(edge, source) {
            Some(lane) => left.extend(egress.send(lane, packet).err()),
            None => left.push(packet),
        };
        for packet in self.finished.drain(..) {
            let mut ways = pick.ways(&packet, arena);
            let first = ways.next();
            for edge in ways {
                let Some(copy) = self.pool.copy_of(arena, &packet) else { break };
                copied += 1;
                send(edge, copy);
            }
            send(first.unwrap_or(usize::MAX), packet);
        }
        home.unlend(self.pool.drain());
        self.finished.append(&mut left);
        copied
    }

    /// The domain takes nothing of a source: what comes of it is dropped, lest others wait for it.
    fn drop_some(
        &mut self,
        station: &mut Station,
        packets: &mut Vec<Packet>,
        late: usize,
    ) -> Progress {
        let Station { arena, ingress, egress, .. } = station;
        let room = |source| if source == late { egress.dump_room(source, BATCH) } else { 0 };
        let pulled = match ingress.pull(arena, packets, room) {
            Pull::Some(pulled) => pulled,
            // Whoever writes down what is dropped is of our own domain, and will.
            Pull::Blocked => return Progress::Later(GLANCE.as_nanos() as u64),
            Pull::None => return Progress::Idle,
        };
        let reached = ingress.reached(pulled.source);
        for seq in packets.iter().map(|packet| packet.entry().seq()) {
            if let Some(last) = self.last.get_mut(pulled.source)
                && follows(seq, *last, reached)
            {
                *last = Some(seq);
            }
        }
        let count = packets.len() as u64;
        let bytes = packets.iter().map(|p| u64::from(p.entry().len())).sum();
        let dropped = packets.drain(..).map(|p| (p, DropReason::RingFull));
        dump::discard(dropped, 0, pulled.source, arena, egress);
        count_dropped(station, 0, DropReason::RingFull, count, bytes);
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

/// Whether a place in the stream can be, after `last`, of a source that says that it has come so far.
/// Order is what the merges further on rely on; and a place that the source has not come to would make
/// all that is sound after it too late.
fn follows(seq: Seq, last: Option<Seq>, reached: Option<Seq>) -> bool {
    last.is_none_or(|last| !seq.before(last))
        && reached.is_none_or(|reached| seq.before(reached.plus(UNSAID)))
}

/// What is done when there is nothing to take.
fn idle(station: &mut Station) -> Progress {
    station.pass_watermarks();
    station.ingress.wake_producers();
    station.tell();
    station.pass_ends(|_, _| true)
}

fn count_dropped(station: &mut Station, node: usize, reason: DropReason, count: u64, bytes: u64) {
    let base = station.layout.nodes + node * NODE_WORDS;
    add(station, base, count);
    add(station, base + 1, bytes);
    add(station, base + 4 + reason as usize, count);
    station.commit();
    station.pass_watermarks();
    station.ingress.wake_producers();
}

/// Takes packets and drops them. `counts`: by node that they come to, at which one that is counted.
pub(crate) fn drain(
    station: &mut Station,
    counts: &[usize],
    packets: &mut Vec<Packet>,
) -> Progress {
    let (node, source) = match station.pull(packets, Appetite::up_to(BATCH)) {
        Pull::Some(pulled) => (counts.get(pulled.node).copied().unwrap_or(0), pulled.source),
        Pull::Blocked | Pull::None => return idle(station),
    };
    let count = packets.len() as u64;
    let bytes = packets.iter().map(|p| u64::from(p.entry().len())).sum();
    let dropped = packets.drain(..).map(|p| (p, DropReason::Quarantined));
    dump::discard(dropped, node, source, &station.arena, &mut station.egress);
    count_dropped(station, node, DropReason::Quarantined, count, bytes);
    Progress::Did
}

fn add(station: &mut Station, word: usize, n: u64) {
    let so_far = station.get(word);
    station.set(word, so_far.wrapping_add(n));
}

/// The packet of `entry` in a buffer of `to`. `arrived` makes of what the other domain says what is believed.
fn copy(
    entry: &Entry,
    from: &Arena,
    to: &Arena,
    piece: &mut [u8; PIECE],
    arrived: impl FnOnce(&Meta) -> (Arrival, u16),
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
    // No gate stands on a cycle (weir-plan's `refuse_gates_on_cycles`): it has made no rounds, whatever is said.
    let mut made = Entry::packet(buffer, HEADROOM, len, entry.seq(), 0);
    if let (Some(mut out), bytes) = (to.bytes_mut(&mut made), from.bytes(entry)) {
        for at in (0..usize::from(len)).step_by(PIECE) {
            let n = bytes.copy_to(at, piece.as_mut_slice());
            out.write(at, piece.get(..n).unwrap_or_default());
        }
    }
    if let Some(ours) = to.meta(&made) {
        let (mut arrival, port) = arrived(theirs);
        arrival.wire_len = arrival.wire_len.max(len.into());
        ours.arrive(&Arrived::new(&arrival, port), false);
        // Plain numbers, that whoever reads them checks anyway.
        for (ours, theirs) in ours.tags.iter().zip(&theirs.tags) {
            ours.set(theirs.get());
        }
    }
    Packet::admit(made, to.view()).ok_or(DropReason::BadEntry)
}

/// How a packet came of which another domain's metadata is this, at a time that can be. What can be reckoned anew (headers,
/// flow hash) is.
fn arrival(theirs: &Meta, latest_ns: Option<u64>, highest_ns: Option<&mut Option<u64>>) -> Arrival {
    let mut time_ns = theirs.time_ns.get();
    if let (Some(latest_ns), Some(highest_ns)) = (latest_ns, highest_ns) {
        time_ns = time_that_can_be(time_ns, highest_ns, latest_ns);
    }
    Arrival {
        time_ns,
        raw_time: theirs.raw_time.get(),
        wire_len: theirs.wire_len.get(),
        time_format: theirs.time_format.get(),
    }
}

/// A time stamp that another domain gives, held between the highest before it and that which the source's service has come to: flows
/// of µNFs behind the gate end by it, also those that never came through that domain. Some leeway on both sides, as packets
/// overtake each other; it does not add up, however many stamps go back and forth within it. A source goes back now and then,
/// which its service tells: then it begins anew.
fn time_that_can_be(said_ns: u64, highest_ns: &mut Option<u64>, latest_ns: u64) -> u64 {
    let top_ns = latest_ns.saturating_add(LEEWAY_NS);
    let before_ns = highest_ns.filter(|highest_ns| *highest_ns <= top_ns);
    let time_ns = said_ns.clamp(before_ns.unwrap_or(latest_ns).saturating_sub(LEEWAY_NS), top_ns);
    *highest_ns = Some(before_ns.map_or(time_ns, |before_ns| before_ns.max(time_ns)));
    time_ns
}

/// The port that a packet came in by of which another domain says `said`, and the source of that port: one of those by which
/// packets come here at all, else its lane's. (A packet that was held goes on in another one's stream.)
fn came_by(said: u16, ports: &[Option<u16>], source: usize) -> (u16, usize) {
    let own = ports.get(source).copied().flatten();
    if own == Some(said) {
        return (said, source);
    }
    let other = ports.iter().position(|port| *port == Some(said));
    other.map_or((own.unwrap_or(said), source), |other| (said, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_cannot_make_time_pass_that_its_source_has_not_told_of() {
        const S: u64 = 1_000_000_000;
        let at =
            |said, highest: u64, latest| time_that_can_be(said, &mut Some(highest), latest) / S;
        assert_eq!(at(50 * S, 49 * S, 60 * S), 50, "as it should be");
        assert_eq!(at(86_400 * S, 49 * S, 60 * S), 61, "days ahead");
        assert_eq!(at(u64::MAX, u64::MAX, u64::MAX) * S, u64::MAX / S * S);
        assert_eq!(at(0, 49 * S, 60 * S), 48, "long ago");
        assert_eq!(at(3 * S, 49 * S, 4 * S), 3, "the source has gone back");
        assert_eq!(at(49 * S, 49 * S, 4 * S), 5, "what was under way then");
        assert_eq!(at(0, 0, 0), 0, "the first");
        assert_eq!(
            time_that_can_be(0, &mut None, 60 * S),
            59 * S,
            "the first of a gate that was started anew"
        );
        // Back and forth, ever so often, while the source stands still: never further back than a clock takes for nothing.
        for stamps in [[0, 60 * S, 0], [59 * S, 60 * S, 61 * S]] {
            let (mut highest, mut most) = (None, 0);
            for said in stamps.into_iter().cycle().take(10_000) {
                let time = time_that_can_be(said, &mut highest, 60 * S);
                assert!(time + LEEWAY_NS >= most && time <= 61 * S, "{time} after {most}");
                most = most.max(time);
            }
        }
    }

    #[test]
    fn a_held_packet_is_of_the_source_of_its_port() {
        let ports = [Some(3), None, Some(7)];
        assert_eq!(came_by(3, &ports, 0), (3, 0));
        assert_eq!(came_by(7, &ports, 0), (7, 2));
        assert_eq!(came_by(9, &ports, 0), (3, 0), "made up");
        assert_eq!(came_by(9, &ports, 1), (9, 1));
    }

    #[test]
    fn a_place_in_the_stream_lies_between_the_last_one_and_what_the_source_has_sent() {
        let seq = Seq::new;
        let fits = |n, last: Option<u64>| follows(seq(n), last.map(seq), Some(seq(1000)));
        assert!(fits(7, Some(7)) && fits(8, Some(7)) && !fits(6, Some(7)) && fits(0, None));
        assert!(fits(999 + BATCH as u64, Some(7)) && !fits(1000 + BATCH as u64, Some(7)));
        assert!(!fits(1 << 40, None) && !fits(u64::MAX, Some(0)));
        assert!(follows(seq(1 << 40), None, None));
    }
}
