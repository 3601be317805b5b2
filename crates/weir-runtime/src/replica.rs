//! The replica of what a segment's µNFs remember, and of whose datagrams those are whose fragments it sends on: records in memory that the
//! worker's death does not take away, written before its packets go out.
//!
//! A batch's packets are published behind the ledger's commit, and the number of the batch whose records count stands in
//! the ledger. So nobody outside has seen what a flow's record does not say (output commit: NFActor §4.2); and a flow is written
//! once, however many packets of what is committed together are its (group commit): a batch, or several that have waited.

mod reading;
mod shelf;

pub(crate) use self::reading::Reading;
pub(crate) use self::shelf::Name;

use self::reading::FlowRecords;
use self::shelf::Shelf;
use crate::handover::{self, Handed};
use crate::job::Job;
use crate::segment::{More, Segment};
use crate::spec::ReplicateSpec;
use crate::station::Station;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_mem::fault::{self, Step};
use weir_mem::{PutError, ReplicaTable, Seq};
use weir_nf::{MOST_SHARED, Piece, RestoreError, TIMER_PIECES};

/// Slots of a µNF: its time, its shared state, its timers, its sources; and behind them its flows'.
const TIME: u32 = 0;
const SHARED: u32 = 1;
const TIMERS: u32 = 2;
const SOURCES: u32 = TIMERS + TIMER_PIECES;
const OWN: u32 = SOURCES + 1;

/// One µNF's part of the table.
struct Part {
    node: usize,
    pace: ReplicateSpec,
    /// Its first slot.
    first: u32,
    /// Its slots.
    slots: u32,
    /// When it was last written, where that counts.
    last: Instant,
    /// Something was left to be written later.
    behind: bool,
    /// What was last written of its sources.
    sources: Vec<u8>,
}

impl Part {
    fn slot(&self, piece: &Piece<'_>) -> Option<u32> {
        let at = match piece {
            Piece::Time(_) => TIME,
            Piece::Shared(_) | Piece::NoShared => SHARED,
            Piece::Timers(at, _) => TIMERS + at,
            Piece::Flow(flow, ..) | Piece::Ended(flow) | Piece::Soon(flow) | Piece::Next(flow) => {
                flow.checked_add(OWN)?
            }
        };
        (at < self.slots).then_some(self.first + at)
    }

    fn waits(&self) -> Duration {
        match self.pace {
            ReplicateSpec::Micros(us) => {
                Duration::from_micros(us.into()).saturating_sub(self.last.elapsed())
            }
            ReplicateSpec::Batch | ReplicateSpec::Every(_) => Duration::ZERO,
        }
    }
}

/// What was found of a predecessor.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Flows.
    pub(crate) flows: u64,
    /// Records that were refused.
    pub(crate) refused: u64,
    /// How long it took.
    pub(crate) took: Duration,
    /// Of some flows only the keys were looked at.
    pub(crate) is_unread: bool,
    /// Nodes whose shared state was there.
    pub(crate) shared: Vec<usize>,
    /// What migrations of flows go on from.
    pub(crate) kept: Vec<(Name, Vec<u8>)>,
    /// What the operator should know.
    pub(crate) warnings: Vec<String>,
}

/// What a µNF's slot of this kind has, which is not that of its sources.
fn piece(kind: u32, record: &[u8]) -> Piece<'_> {
    match kind {
        TIME => Piece::Time(record),
        SHARED => Piece::Shared(record),
        TIMERS..SOURCES => Piece::Timers(kind - TIMERS, record),
        flow => Piece::Flow(flow.saturating_sub(OWN), record, 0),
    }
}

/// Writes what has changed.
pub(crate) struct Replicator {
    table: ReplicaTable,
    shelf: Shelf,
    /// The slots of each table that says whose the datagrams are that have not come whole: in the order of [`Segment::fragment_tables`].
    fragments: Vec<Range<u32>>,
    parts: Vec<Part>,
    /// It was said that there is no room.
    complained: bool,
    notice: Option<String>,
}

impl Replicator {
    /// For those µNFs of a segment that are to be replicated, and for what fragments are sent by; `None` when there is neither. Each is
    /// told to note what changes.
    pub(crate) fn new(table: ReplicaTable, segment: &mut Segment) -> Option<Self> {
        let (mut parts, mut fragments, mut first) = (Vec::new(), Vec::new(), shelf::SLOTS);
        for table in segment.fragment_tables() {
            table.follow();
            let end = first.saturating_add(u32::try_from(table.capacity()).unwrap_or(0));
            fragments.push(first..end);
            first = end;
        }
        for (node, n) in segment.nodes.iter_mut().enumerate() {
            let Some((pace, nf)) = n.replicate.zip(n.nf.as_mut()).filter(|(_, nf)| nf.has_pieces())
            else {
                continue;
            };
            let every = match pace {
                ReplicateSpec::Every(packets) => packets.max(1),
                ReplicateSpec::Batch | ReplicateSpec::Micros(_) => 1,
            };
            nf.follow(every, every > 1 || matches!(pace, ReplicateSpec::Micros(_)));
            let left = ReplicaTable::SLOTS.saturating_sub(first);
            let slots = nf.most_flows().saturating_add(OWN).min(left);
            let last = Instant::now();
            parts.push(Part { node, pace, first, slots, last, behind: false, sources: Vec::new() });
            first += slots;
        }
        let (complained, notice) = (false, None);
        let shelf = Shelf::new();
        let any = !parts.is_empty() || !fragments.is_empty();
        any.then_some(Replicator { table, shelf, fragments, parts, complained, notice })
    }

    /// True when some µNF is replicated, with its flows if it has any.
    pub(crate) fn has_nfs(&self) -> bool {
        !self.parts.is_empty()
    }

    /// True when what some µNF remembers is written by commits, not after some time.
    pub(crate) fn writes_at_commits(&self) -> bool {
        self.parts.iter().any(|part| !matches!(part.pace, ReplicateSpec::Micros(_)))
    }

    /// Gives the µNFs what a predecessor had committed. `alike`: it hashed flows as this process does, so they can be read as packets ask
    /// for them.
    pub(crate) fn recover(
        &mut self,
        segment: &mut Segment,
        committed: u64,
        alike: bool,
    ) -> Recovered {
        let start = Instant::now();
        let mut all = Recovered::default();
        let (mut why, parts, shelf) = (None, &self.parts, &mut self.shelf);
        let fragments = &self.fragments;
        for part in parts.iter().filter(|_| alike) {
            if let Some(nf) = segment.nf(part.node) {
                let (view, first) = (self.table.view(), part.first + OWN);
                let most = self.table.used(first..part.first.saturating_add(part.slots));
                nf.recover_from(Box::new(FlowRecords { view, first, committed }), most as usize);
            }
        }
        let found = self.table.reopen(committed, |slot, found| {
            if slot < shelf::SLOTS {
                return found.record().is_some_and(|record| shelf.read(slot, record));
            }
            let own = fragments.iter().enumerate().find(|(_, own)| own.contains(&slot));
            if let Some((at, own)) = own {
                let place = slot.wrapping_sub(own.start);
                let record = found.record().and_then(<[u8]>::as_array);
                let table = segment.fragment_tables().nth(at).zip(record);
                return table.is_some_and(|(table, record)| table.restore_at(place, record));
            }
            let at = parts.partition_point(|part| part.first <= slot);
            let part = at.checked_sub(1).and_then(|at| parts.get(at));
            let Some(part) = part.filter(|part| slot - part.first < part.slots) else {
                return false;
            };
            let Some(node) = segment.nodes.get_mut(part.node) else { return false };
            let Some(nf) = &mut node.nf else { return false };
            let kind = slot - part.first;
            if let Some((_, tag)) = found.ahead().filter(|(slot, _)| slot - part.first < part.slots)
            {
                nf.recover_soon(tag);
            }
            let later = match kind.checked_sub(OWN) {
                Some(flow) => nf.recover_later(flow, found.tag()),
                None => Ok(false),
            };
            let taken = match later {
                Ok(false) => match found.record() {
                    None => return false,
                    Some(record) if kind == SOURCES => {
                        return node.more.as_mut().is_some_and(|more| more.read(record));
                    }
                    Some(record) => nf.recover(piece(kind, record)),
                },
                later => later.map(drop),
            };
            match taken {
                Ok(()) => {
                    match kind {
                        SHARED => all.shared.push(part.node),
                        OWN.. => all.flows += 1,
                        _ => {}
                    }
                    true
                }
                Err(e) => {
                    why.get_or_insert_with(|| refusal(&node.name, &e));
                    false
                }
            }
        });
        segment.fragment_tables().for_each(|table| table.end_restore());
        all.is_unread = segment.read_unread(0) > 0;
        all.kept = self.shelf.found();
        (all.refused, all.took) = (found.refused, start.elapsed());
        if found.refused > 0 {
            let why = why.unwrap_or_else(|| "they are damaged".to_owned());
            all.warnings.push(lost(found.refused, &why));
        }
        all
    }

    /// Writes down what has changed. It counts with the station's next commit. `all`: also what need not be written yet.
    pub(crate) fn write(&mut self, segment: &mut Segment, station: &mut Station, all: bool) {
        // Behind what is committed, not behind what was written: a second batch would be written over what counts.
        let batch = station.committed_replica.saturating_add(1);
        let mut any = false;
        for part in &mut self.parts {
            let node = segment.nodes.get_mut(part.node);
            let Some((name, nf, more)) =
                node.and_then(|n| Some((&n.name, n.nf.as_mut()?, &n.more)))
            else {
                continue;
            };
            let is_due = match part.pace {
                ReplicateSpec::Batch => true,
                // Of one without flows nothing else says so.
                ReplicateSpec::Every(_) => nf.has_changes() || nf.descriptor().flows == 0,
                ReplicateSpec::Micros(_) => part.waits().is_zero(),
            };
            part.behind = !is_due && !all;
            if part.behind {
                continue;
            }
            if let ReplicateSpec::Micros(_) = part.pace {
                part.last = Instant::now();
            }
            let table = &mut self.table;
            if let Some(more) = more
                && more.write_if_changed(&mut part.sources)
            {
                any = true;
                // Nothing that could be out of date stays: at worst its end is told of again.
                if table.put(part.first + SOURCES, &part.sources, batch).is_err() {
                    table.clear(part.first + SOURCES, batch);
                }
            }
            let part = &*part;
            let (complained, notice) = (&mut self.complained, &mut self.notice);
            nf.take_changes(&mut |piece| {
                any = true;
                if let Err(e) = write(table, part, piece, batch)
                    && !std::mem::replace(complained, true)
                {
                    *notice = Some(left_out(name, &piece, &e));
                }
            });
        }
        for (own, fragments) in self.fragments.iter().zip(segment.fragment_tables()) {
            let table = &mut self.table;
            fragments.take_changes(|place, record| {
                any = true;
                let slot = own.start.saturating_add(place);
                // What is out of date must not be believed.
                if table.put(slot, record, batch).is_err() {
                    table.clear(slot, batch);
                }
            });
        }
        if any {
            station.set(station.layout.replica, batch);
        }
        fault::step(Step::Replicated);
    }

    /// Writes down what a migration of flows has to find again, or that it is over. It counts with the station's next commit.
    pub(crate) fn keep(&mut self, station: &mut Station, name: Name, bytes: Option<&[u8]>) {
        let batch = station.committed_replica.saturating_add(1);
        match bytes {
            None => self.shelf.clear(&mut self.table, name, batch),
            Some(bytes) => {
                if let Err(e) = self.shelf.put(&mut self.table, name, bytes, batch)
                    && !std::mem::replace(&mut self.complained, true)
                {
                    self.notice = Some(format!(
                        "flows that are on their way to another instance, or stay although their packets divide otherwise now, are not replicated, and begin anew should the worker die: {e}"
                    ));
                }
            }
        }
        station.set(station.layout.replica, batch);
    }

    /// In how long something is to be written if no packets come; `None` when nothing is.
    pub(crate) fn due(&self) -> Option<Duration> {
        let waits = |part: &Part| {
            let waits = matches!(part.pace, ReplicateSpec::Micros(_)) && part.behind;
            waits.then(|| part.waits())
        };
        self.parts.iter().filter_map(waits).min()
    }

    /// What the operator should know; once.
    pub(crate) fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }
}

fn lost(records: u64, why: &str) -> String {
    format!("{records} records of the replica are refused, and what they say is lost: {why}")
}

impl More {
    /// Writes it down over what was written before; false when it is the same.
    fn write_if_changed(&self, before: &mut Vec<u8>) -> bool {
        let stands_in = self.stands_in.map_or(0, |source| source as u64 + 1);
        let own = [self.sources, self.last_source as u64, self.over, stands_in];
        let words = own.into_iter().chain(self.places.iter().map(|place| place.get()));
        let is_same = before.len() == 8 * (own.len() + self.places.len())
            && before.chunks_exact(8).zip(words.clone()).all(|(old, new)| old == new.to_le_bytes());
        if !is_same {
            before.clear();
            words.for_each(|word| before.extend(word.to_le_bytes()));
        }
        !is_same
    }

    /// Reads it; false, and nothing has changed, when it is not of as many sources.
    fn read(&mut self, record: &[u8]) -> bool {
        let (chunks, rest) = record.as_chunks::<8>();
        let mut words = chunks.iter().map(|word| u64::from_le_bytes(*word));
        let own = (words.next(), words.next(), words.next(), words.next());
        let (Some(sources), Some(last), Some(over), Some(stands_in)) = own else { return false };
        let count = self.places.len();
        let beyond = u64::MAX.checked_shl(count as u32).unwrap_or(0);
        if !rest.is_empty()
            || words.len() != count
            || (sources | over) & beyond != 0
            || last >= count.max(1) as u64
            || stands_in > count as u64
        {
            return false;
        }
        (self.sources, self.last_source) = (sources, last as usize);
        self.over = over;
        self.stands_in = (stands_in as usize).checked_sub(1);
        self.places.iter_mut().zip(words).for_each(|(place, word)| *place = Seq::new(word));
        true
    }
}

impl Job {
    /// Takes up what a predecessor has left, if there was one. `alike`: see [`Replicator::recover`].
    pub(crate) fn recover(&mut self, station: &mut Station, alike: bool) {
        let mut has = Vec::new();
        if let Some(replicator) = &mut self.replicator {
            let committed = station.get(station.layout.replica);
            let mut found = replicator.recover(&mut self.segment, committed, alike);
            self.warnings.append(&mut found.warnings);
            has = std::mem::take(&mut found.shared);
            let has_nfs = replicator.has_nfs();
            // Who replicates no NF keeps no migrations: what stands there was written by nobody sound.
            if let Some(moves) = self.moves.as_mut().filter(|_| has_nfs) {
                self.warnings.extend(moves.resume(&found.kept));
            }
            // It died before it had taken over what the generation before had handed on.
            let handed = station.handover.as_ref().filter(|_| committed == 0);
            if let Some(Handed::All(states, datagrams, _)) = handed.and_then(handover::read) {
                // What is no whole was written by its predecessor itself, for a change that did not come about: who takes a rest has committed.
                if has_nfs && states.iter().all(|state| !state.rest) {
                    let refused = self.take_over(station);
                    self.warnings.extend(refused.into_iter().map(|what| format!("lost: {what}")));
                    return;
                }
                self.segment.restore_datagrams(&datagrams);
            }
            self.reading = found.is_unread.then(Reading::default);
            self.recovered = Some(found).filter(|_| committed > 0 && has_nfs);
        }
        if let Some(keeper) = &mut self.keeper {
            self.warnings.append(&mut keeper.restore(&mut self.segment, &has));
        }
    }

    /// Writes down for a successor what the last packets have changed: to be called before they are published.
    #[inline]
    pub(crate) fn replicate(&mut self, station: &mut Station) {
        if let Some(replicator) = &mut self.replicator {
            replicator.write(&mut self.segment, station, false);
        }
    }
}

/// Why a piece was not written.
#[derive(Debug, thiserror::Error)]
enum LeftOut {
    #[error(transparent)]
    Put(#[from] PutError),
    #[error("it is more than {MOST_SHARED} bytes")]
    Shared,
    #[error(
        "the replica has no slot for it; allow fewer flows, or run the NF in a worker of its own (--isolate each)"
    )]
    Slot,
}

fn write(
    table: &mut ReplicaTable,
    part: &Part,
    piece: Piece<'_>,
    batch: u64,
) -> Result<(), LeftOut> {
    let slot = part.slot(&piece).ok_or(LeftOut::Slot)?;
    match piece {
        Piece::Time(record) | Piece::Timers(_, record) | Piece::Shared(record) => {
            // What is out of date must not be believed.
            table.put(slot, record, batch).inspect_err(|_| table.clear(slot, batch))?;
        }
        Piece::Flow(_, record, tag) => {
            let put = table.put_tagged(slot, record, tag, batch);
            put.inspect_err(|_| table.clear(slot, batch))?;
        }
        Piece::Ended(_) => table.clear(slot, batch),
        Piece::Soon(_) => table.fetch(slot),
        Piece::Next(_) => table.fetch_record(slot, batch),
        Piece::NoShared => {
            table.clear(slot, batch);
            return Err(LeftOut::Shared);
        }
    }
    Ok(())
}

fn left_out(name: &str, piece: &Piece<'_>, why: &LeftOut) -> String {
    match piece {
        Piece::Shared(_) | Piece::NoShared => format!(
            "what {name} remembers besides flows is not replicated while it is so: {why}; it is kept as without a replica, but \
             for what the last tenth of a second adds"
        ),
        Piece::Time(_) | Piece::Timers(..) => {
            format!("the timers of {name} are not replicated while it is so: {why}")
        }
        Piece::Flow(..) | Piece::Ended(_) | Piece::Soon(_) | Piece::Next(_) => {
            format!(
                "flows of {name} are not replicated, and begin anew should the worker die: {why}"
            )
        }
    }
}

fn refusal(name: &str, why: &RestoreError) -> String {
    format!("{name}: {why}")
}
