//! What a µNF remembers in pieces, each as it changes: for a replica that its worker's death does not take away.

use crate::clock::BEYOND_NS;
use crate::ctx::Cause;
use crate::flows::{Appended, Changed, Reader, Records, RestoreError, Unreadable};
use crate::instance::{Instance, Running};
use crate::nf::{Merge, Nf};
use crate::timers::MOST_TIMERS;

/// Shared state is written whole whenever it has changed. Of more bytes than this that takes too long for every batch: it
/// is left out from then on.
pub const MOST_SHARED: usize = 64 << 10;

/// Timers of one piece, and how many pieces of them there are: so many timers are the largest record that a replica takes.
const TIMERS: usize = 1 << 15;
/// See [`Piece::Timers`].
pub const TIMER_PIECES: u32 = (MOST_TIMERS / TIMERS) as u32;

/// A piece of what a µNF remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'p> {
    /// Its time and the last packet.
    Time(&'p [u8]),
    /// Its outstanding timers, in [`TIMER_PIECES`] pieces from 0 on.
    Timers(u32, &'p [u8]),
    /// Its shared state, version first.
    Shared(&'p [u8]),
    /// Its shared state has become more than [`MOST_SHARED`] bytes, or has no serialised form: it is no piece any more.
    /// Said once.
    NoShared,
    /// A flow, by its number; its record, and a tag for [`Replicate::recover_later`].
    Flow(u32, &'p [u8], u64),
    /// The flow of this number has ended.
    Ended(u32),
    /// No piece: that of this flow comes in a while, and what says where it is kept may be fetched.
    Soon(u32),
    /// No piece: it comes in a moment, and where it is kept may be fetched.
    Next(u32),
}

/// A µNF of which a replica can be kept.
pub trait Replicate {
    /// Whether there is anything to keep: flows, timers, or shared state. (Of one that has none of these, but sends packets of
    /// its own, there is nothing: what it would send follows from what it holds.)
    fn has_pieces(&self) -> bool;

    /// From now on it is noted which flows change: at every `every`-th packet of each, and whenever a flow begins or ends,
    /// gets a key, its TCP connection comes further, or the µNF says so ([`Ctx::note_flow`](crate::Ctx::note_flow)). `lags`: what is recovered may
    /// be older than the last commit ([`FlowState::recovered_late`](crate::FlowState::recovered_late)). To be said before there are flows.
    fn follow(&mut self, every: u16, lags: bool);

    /// True when some flow has changed since the last [`Replicate::take_changes`].
    fn has_changes(&self) -> bool;

    /// Gives what has changed since the last call, nothing twice. Pieces are complete in themselves: the last of each
    /// kind and number is the one that counts.
    fn take_changes(&mut self, to: &mut dyn FnMut(Piece<'_>));

    /// Puts a piece into a µNF that has processed nothing yet: time first, then shared state and timers, then flows by ascending
    /// number. Others need not be there.
    ///
    /// # Errors
    /// As [`Instance::restore_flows`]; nothing has changed then.
    fn recover(&mut self, piece: Piece<'_>) -> Result<(), RestoreError>;

    /// Says where the records are of which [`Replicate::recover_later`] tells, and how many that will be at most.
    fn recover_from(&mut self, records: Box<dyn Records>, most: usize);

    /// [`Replicate::recover_later`] is told of a flow with this tag in a moment: memory that it looks at then may be fetched. Whatever the tag, nothing changes.
    fn recover_soon(&self, tag: u64);

    /// Puts in a flow, which is not read before a packet of it comes, or [`Replicate::read_unread`] comes to it. Until all are read,
    /// nobody but packets may look for flows. `tag`: what was given with its record, in a process that hashes flows alike
    /// ([`hash_flows_by`](crate::hash_flows_by)). False if the record is to be [recovered](Replicate::recover) at once.
    ///
    /// # Errors
    /// When there is no room.
    fn recover_later(&mut self, number: u32, tag: u64) -> Result<bool, RestoreError>;

    /// Reads some flows that have not been read, `most` at most; how many are left.
    fn read_unread(&mut self, most: usize) -> usize;

    /// The records of flows that could not be read since this was asked last. Their flows are given as [ended](Piece::Ended).
    fn take_unreadable(&mut self) -> Option<Unreadable>;
}

/// What is remembered for it.
#[derive(Default)]
pub(crate) struct Pieces {
    /// Its time as it was given last.
    time: Vec<u8>,
    /// How often timers had changed when they were given last, and in how many pieces.
    timers: u64,
    timer_pieces: usize,
    /// Shared state as it was given last.
    shared: Vec<u8>,
    scratch: Vec<u8>,
    is_too_large: bool,
}

impl<N: Nf> Running<N> {
    fn write_time(&self, out: &mut Vec<u8>) {
        out.extend(self.clock.now_ns.to_le_bytes());
        out.push(u8::from(self.last.is_some()));
        self.last.iter().for_each(|last| last.write(out));
    }

    /// The piece `at` of its timers.
    fn write_timers(&self, at: usize, out: &mut Vec<u8>) {
        let timers = self.desk.timers.unsorted().skip(at * TIMERS).take(TIMERS);
        for (due, set, token) in timers {
            out.extend(due.to_le_bytes());
            out.extend(set.to_le_bytes());
            out.extend(token.to_le_bytes());
        }
    }

    fn read_time(&mut self, piece: &[u8]) -> Result<(), RestoreError> {
        let mut from = Reader(piece);
        let now = from.u64()?;
        if now >= BEYOND_NS {
            return Err(RestoreError::Damaged("its time is none that a clock has"));
        }
        let last = match from.array()? {
            [0] => None,
            [1] => Some(Cause::read(&mut from)?),
            _ => return Err(RestoreError::Damaged("its last packet is none")),
        };
        from.end()?;
        self.clock.resume(now);
        self.last = self.last.or(last);
        Ok(())
    }

    fn read_timers(&mut self, piece: &[u8]) -> Result<(), RestoreError> {
        let mut from = Reader(piece);
        let mut timers = Vec::new();
        while from.end().is_err() {
            timers.push((from.u64()?, from.u64()?, from.u64()?));
        }
        match self.desk.timers.put(&timers) {
            true => Ok(()),
            false => Err(RestoreError::Timers),
        }
    }

    /// Gives its time, if that has changed, and its timers.
    fn take_time(&mut self, to: &mut dyn FnMut(Piece<'_>)) {
        let mut out = std::mem::take(&mut self.pieces.scratch);
        out.clear();
        self.write_time(&mut out);
        if out != self.pieces.time {
            to(Piece::Time(&out));
            std::mem::swap(&mut out, &mut self.pieces.time);
        }
        let changes = self.desk.timers.changes();
        if changes != self.pieces.timers {
            let pieces = self.desk.timers.len().div_ceil(TIMERS);
            // Of fewer than there were the last are given too, with nothing in them.
            for at in 0..pieces.max(self.pieces.timer_pieces) {
                out.clear();
                self.write_timers(at, &mut out);
                to(Piece::Timers(at as u32, &out));
            }
            (self.pieces.timers, self.pieces.timer_pieces) = (changes, pieces);
        }
        self.pieces.scratch = out;
    }

    /// Writes shared state into the scratch memory; false when it is too large, or cannot be written.
    fn write_shared(&mut self) -> bool {
        let out = &mut self.pieces.scratch;
        out.clear();
        out.extend(N::Shared::VERSION.to_le_bytes());
        postcard::serialize_with_flavor(&self.shared, Appended::at_most(out, MOST_SHARED)).is_ok()
    }
}

impl<N: Nf> Replicate for Running<N> {
    fn has_pieces(&self) -> bool {
        self.has_flows() || self.remembers()
    }

    fn follow(&mut self, every: u16, lags: bool) {
        self.flows.follow(every, lags);
    }

    fn has_changes(&self) -> bool {
        self.flows.has_changed()
    }

    fn take_changes(&mut self, to: &mut dyn FnMut(Piece<'_>)) {
        if self.has_flows() || N::DESCRIPTOR.does_more() {
            self.take_time(to);
        }
        if self.has_flows() {
            self.flows.take_changed(|changed| {
                to(match changed {
                    Changed::Soon(flow) => Piece::Soon(flow),
                    Changed::Next(flow) => Piece::Next(flow),
                    Changed::Flow(flow, record, tag) => Piece::Flow(flow, record, tag),
                    Changed::Ended(flow) => Piece::Ended(flow),
                });
            });
        }
        if !self.remembers() || self.pieces.is_too_large {
            return;
        }
        if !self.write_shared() {
            self.pieces.is_too_large = true;
            return to(Piece::NoShared);
        }
        let Pieces { shared, scratch, .. } = &mut self.pieces;
        if shared != scratch {
            to(Piece::Shared(scratch));
            std::mem::swap(shared, scratch);
        }
    }

    fn recover(&mut self, piece: Piece<'_>) -> Result<(), RestoreError> {
        match piece {
            Piece::Time(piece) => self.read_time(piece),
            Piece::Timers(_, piece) => self.read_timers(piece),
            Piece::Shared(piece) => self.restore(piece),
            Piece::Flow(number, piece, _) => self.flows.recover(number, self.clock.now_ns, piece),
            Piece::NoShared | Piece::Ended(_) | Piece::Soon(_) | Piece::Next(_) => Ok(()),
        }
    }

    fn recover_from(&mut self, records: Box<dyn Records>, most: usize) {
        self.flows.recover_from(records, most);
    }

    fn recover_soon(&self, tag: u64) {
        self.flows.recover_soon(tag);
    }

    fn recover_later(&mut self, number: u32, tag: u64) -> Result<bool, RestoreError> {
        self.flows.recover_later(number, tag)
    }

    fn read_unread(&mut self, most: usize) -> usize {
        self.flows.read_unread(most, self.clock.now_ns)
    }

    fn take_unreadable(&mut self) -> Option<Unreadable> {
        self.flows.take_unreadable()
    }
}
