//! What services of devices do in a step: receive, send, write down drops.

use super::{End, Job};
use crate::early::EarlyWay;
use crate::more::Appetite;
use crate::segment::Way;
use crate::station::{Progress, Station};
use crate::worker::WorkerError;
use std::time::Instant;
use weir_device::{Room, Status, leaves_socket};
use weir_mem::fault::{self, Step};
use weir_packet::{BATCH, DropReason, REASONS};
use weir_port::Pull;

impl Job {
    pub(super) fn dump_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Dump(dump) = &mut self.end else {
            return Ok(Progress::Idle);
        };
        let lane = match station.pull(&mut self.packets, Appetite::up_to(BATCH)) {
            Pull::Some(pulled) => pulled.lane,
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                station.tell();
                return Ok(self.pass_ends(station));
            }
        };
        let place = dump.write(&self.packets, lane, station)?;
        station.set_place(place);
        fault::step(Step::Processed);
        self.finish_batch(station);
        Ok(self.did(station))
    }

    pub(super) fn tx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Tx { device } = &mut self.end else {
            return Ok(Progress::Idle);
        };
        match station.pull(&mut self.packets, Appetite::up_to(BATCH)) {
            Pull::Some(_) => {}
            Pull::Blocked | Pull::None => {
                station.ingress.wake_producers();
                station.tell();
                return Ok(self.pass_ends(station));
            }
        }
        let mut dropped = [0; REASONS];
        device.send(&self.packets, &station.arena, &mut dropped)?;
        let place = device.commit()?;
        station.set_place(place);
        fault::step(Step::Processed);
        let base = station.layout.nodes;
        station.add_drops(base, &dropped);
        self.finish_batch(station);
        Ok(self.did(station))
    }

    /// Counts packets that left the graph here and gives their buffers back.
    fn finish_batch(&mut self, station: &mut Station) {
        let base = station.layout.nodes;
        let count = self.packets.len() as u64;
        let bytes: u64 = self.packets.iter().map(|p| u64::from(p.entry().len())).sum();
        station.egress.give_all_back(&mut self.packets);
        let (packets_so_far, bytes_so_far) = (station.get(base), station.get(base + 1));
        station.set(base, packets_so_far + count);
        station.set(base + 1, bytes_so_far + bytes);
        station.commit();
        station.ingress.wake_producers();
        fault::step(Step::Done);
    }

    pub(super) fn rx_step(&mut self, station: &mut Station) -> Result<Progress, WorkerError> {
        let End::Rx { device, port, source, stopped, counted, holds, pace, taper, learner, early } =
            &mut self.end
        else {
            return Ok(Progress::Idle);
        };
        if station.own_source_ended(*source) {
            return Ok(Progress::Finished);
        }
        if *stopped && *counted {
            let ended = station.end_source(*source);
            return Ok(if ended { Progress::Finished } else { Progress::Idle });
        }
        if *holds {
            station.tell();
            return Ok(Progress::Idle);
        }
        let due = match pace.as_ref().filter(|_| !*stopped).map(|pace| pace.due(Instant::now())) {
            Some(Err(later_ns)) => {
                station.tell();
                return Ok(Progress::Later(later_ns));
            }
            Some(Ok(due)) => usize::try_from(due).unwrap_or(BATCH),
            None => BATCH,
        };
        let look = early.as_ref().map_or(BATCH, |early| early.capacity().max(BATCH));
        let space = station.egress.room(*source, look);
        // A file of drops that is behind is no reason to give up packets of more weight.
        let ahead = early.as_ref().map_or(space, |_| station.egress.room_ahead(*source, look));
        let Station { arena, egress, home, words, layout, .. } = station;
        let Some(pool) = home.as_mut() else {
            return Ok(Progress::Idle);
        };
        let buffers = pool.refill(arena.owners(), look);
        let (space, ahead) = (space.min(buffers), ahead.min(buffers));
        let calm = early.as_ref().map_or(BATCH, |early| early.at_once(ahead));
        let copied = self.segment.more.most_received(pool, arena.owners());
        // Who drops by class goes on to take what it drops.
        let tapers = taper.as_mut().filter(|_| !*stopped && early.is_none());
        let tapered = tapers.map_or(BATCH, |taper| {
            pool.collect(arena.owners());
            taper.room(pool.len().saturating_sub(pool.free()), Instant::now())
        });
        let left = space.min(BATCH).min(calm).min(copied).min(due).min(tapered);
        self.full = left == 0;
        if left == 0 && !*stopped {
            station.tell();
            return Ok(Progress::Idle);
        }
        let pool_before = taper.as_ref().map_or(0, |_| pool.free());
        let mut seq = words.get(layout.seq).copied().unwrap_or(0);
        let mut room = Room {
            arena,
            pool,
            packets: &mut self.packets,
            left,
            seq: &mut seq,
            source_port: *port,
            received: (0, 0),
            refused: [0; REASONS],
            clear_tags: self.clear_tags,
        };
        let status = if *stopped {
            *counted = true;
            device.finish(&mut room);
            Status::More
        } else {
            device.receive(&mut room)?
        };
        let (received, mut refused) = (room.received, room.refused);
        if let Some(pace) = pace {
            pace.gave(received.0);
        }
        let latest = self.packets.last().and_then(|packet| arena.meta(packet.entry()));
        if let Some(latest) = latest {
            station.ingress.say_time(*source, latest.time_ns.get());
        }
        if let Some(early) = early {
            let counts = words.get_mut(layout.classes..).unwrap_or_default();
            let mut way = EarlyWay { arena, pool, egress, source: *source };
            refused[DropReason::EarlyDrop as usize] +=
                early.choose(&mut self.packets, ahead, counts, &mut way);
        }
        if let Some(taper) = taper {
            taper.took(pool_before.saturating_sub(pool.free()));
        }
        fault::step(Step::Claimed);
        if let Some(learner) = learner {
            learner.see_time();
            learner.learn(&self.packets, arena);
        }
        let base = layout.nodes;
        if received.0 > 0 {
            let mut way = Way { arena, egress, source: *source, words };
            let packets = &mut self.packets;
            self.segment.with_buffers(pool, |segment| segment.run(0, 0, packets, &mut way));
            fault::step(Step::Processed);
        }
        // As late as can be: what the kernel has told it does not tell a successor.
        let missed = device.missed();
        refused[DropReason::KernelFull as usize] += missed;
        seq += missed;
        let place = device.place();
        let came = received.0 > 0 || missed > 0;
        // Whatever was taken out of a ring goes back only when the ledger says so.
        if came || (leaves_socket(&place) && place != station.place()) {
            // The port's node counts what it was given; what was refused comes on top.
            let count_refused: u64 = refused.iter().sum();
            station.add_drops(base, &refused);
            let so_far = station.get(base);
            station.set(base, so_far + count_refused);
            station.set(station.layout.seq, seq);
            station.set_place(place);
            if let Some(replicator) = &mut self.replicator {
                replicator.write(&mut self.segment, station, false);
            }
            station.commit();
            device.committed();
            let seq = station.seq();
            // In this order: a promise beyond that would not be believed.
            station.ingress.say_progress(*source, seq);
            station.egress.set_watermark(*source, seq);
            fault::step(Step::Done);
        }
        match status {
            Status::End => {
                *stopped = true;
                Ok(Progress::Did)
            }
            Status::Later(ns) if !came => Ok(Progress::Later(ns)),
            _ if !came => Ok(Progress::Idle),
            _ => Ok(Progress::Did),
        }
    }
}
