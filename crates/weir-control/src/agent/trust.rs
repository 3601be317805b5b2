//! Workers that need not be trusted: looking for what a sound one would not do, naming and ending
//! who does it, and the audit of its domain.
//!
//! Who is believed: the agent's own look at ring indices and records; what a worker says of a
//! neighbour's ring, if its own record is sound. Services and gates run library code only: they may
//! say so of others, and nobody can say so of them. What others say the agent must see for itself.

mod ahead;
mod drain;
mod missing;
mod rest;

use super::{Agent, AgentError, Event, State};
use crate::audit::{clear_lanes, place};
use crate::memory::Memory;
use crate::places::promises_nonsense;
use crate::recover::{Damage, disown};
use crate::setup::Setup;
use std::time::{Duration, Instant};
use weir_mem::{Indices, Judgement};
use weir_packet::BATCH;
use weir_runtime::GROUP;
use weir_runtime::layout::Layout;

/// How often the agent looks.
const EVERY: Duration = Duration::from_millis(100);
/// Time between two audits of a domain that nobody was named for.
const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// Owner words that are looked at in one look.
const OWNERS: u32 = 1 << 15;
/// Messages that a worker may send between two looks.
const MESSAGES: u32 = 64;
/// So many bytes of one count as another.
const LONG: usize = 1 << 20;
/// More than any counter grows between two looks.
const FAR: u64 = 1 << 40;

/// What the agent knows of a graph's soundness.
pub(super) struct Trust {
    looked: Instant,
    lanes: Vec<Indices>,
    /// By worker.
    records: Vec<Record>,
    /// By domain: when it was audited last without anybody being named.
    audited: Vec<Option<Instant>>,
    /// A domain somebody of which was named.
    tainted: Vec<bool>,
    /// A domain in which nonsense was found that could be anybody's of several.
    suspected: Vec<bool>,
    /// By domain.
    missing: Vec<missing::Missing>,
    /// By domain: the next owner word to look at.
    owners: Vec<u32>,
}

#[derive(Default)]
struct Record {
    /// The last words that were sound.
    words: Vec<u64>,
    /// Nonsense that has been dealt with.
    answered: Vec<u64>,
    /// Rings by which it gives buffers back.
    returns: Vec<Indices>,
    /// Messages since the last look.
    messages: u32,
    /// What the last one counts for.
    counts: u32,
    /// Why it is being ended.
    offence: Option<String>,
    offences: Vec<Instant>,
    /// When it was ended for hanging, at no packet.
    hangs: Vec<Instant>,
    /// Offences in all.
    count: u32,
    /// Buffers that came back to its pool twice, and that was dealt with.
    doubles: u64,
    /// What it holds, while it rests.
    resting: Option<Vec<u32>>,
    /// Answers to come that were not waited for.
    stale: u32,
    /// What its death cost, when that was mended during an audit.
    mended: Option<Damage>,
    /// It was ready once.
    was_ready: bool,
    /// Whether it seems to give packets wrong places.
    ahead: ahead::Ahead,
}

impl Trust {
    pub(super) fn new(setup: &Setup) -> Self {
        Trust {
            looked: Instant::now(),
            lanes: vec![Indices::default(); setup.lanes.len()],
            records: setup.workers.iter().map(|_| Record::default()).collect(),
            audited: vec![None; setup.domains.len()],
            tainted: vec![false; setup.domains.len()],
            suspected: vec![false; setup.domains.len()],
            missing: setup.domains.iter().map(|_| missing::Missing::default()).collect(),
            owners: vec![0; setup.domains.len()],
        }
    }

    pub(super) fn ready(&mut self, w: usize) {
        self.records[w].was_ready = true;
    }

    pub(super) fn was_ready(&self, w: usize) -> bool {
        self.records[w].was_ready
    }

    /// Why worker `w` is being ended, if it is.
    pub(super) fn offence(&mut self, w: usize) -> Option<String> {
        self.records[w].offence.take()
    }

    pub(super) fn offences(&self, w: usize) -> u32 {
        self.records.get(w).map_or(0, |r| r.count)
    }

    /// True when somebody has written nonsense, whether or not it is known who.
    pub(super) fn has_seen_nonsense(&self) -> bool {
        self.records.iter().any(|r| r.count > 0) || self.suspected.contains(&true)
    }

    /// True when worker `w` was named, and has not been buried since.
    pub(super) fn is_named(&self, w: usize) -> bool {
        self.records.get(w).is_some_and(|record| record.offence.is_some())
    }

    /// What workers have said so far counts as read.
    pub(super) fn forgive_messages(&mut self) {
        self.records.iter_mut().for_each(|record| record.messages = 0);
    }

    /// Worker `w` has answered what it was asked, which counts for none.
    pub(super) fn forgive_message(&mut self, w: usize) {
        if let Some(record) = self.records.get_mut(w) {
            record.messages = record.messages.saturating_sub(record.counts);
        }
    }

    /// A successor begins, for which no command waits.
    pub(super) fn expects_nothing(&mut self, w: usize) {
        self.records[w].stale = 0;
    }

    pub(super) fn rests(&mut self, w: usize, held: Vec<u32>) {
        let record = &mut self.records[w];
        // Its answer to an audit that did not wait for it.
        if record.stale > 0 {
            record.stale -= 1;
            return;
        }
        record.resting = Some(held);
    }

    /// Remembers the rings of domain `d` as they are now.
    fn remember(&mut self, setup: &Setup, memory: &Memory, d: usize) {
        for (l, lane) in setup.lanes.iter().enumerate() {
            if setup.lane_domain(lane) == d {
                self.lanes[l] = memory.lanes[l].inspector.indices();
            }
        }
        for (w, record) in self.records.iter_mut().enumerate() {
            if setup.workers[w].is_in(d) {
                let returns = memory.workers[w].returns.iter();
                record.returns = returns.map(|r| r.ring.inspector.indices()).collect();
            }
        }
    }
}

impl Agent {
    /// True when so many messages have come that it cannot be sound.
    pub(super) fn too_many_messages(&mut self, w: usize, bytes: usize) -> bool {
        let record = &mut self.trust.records[w];
        // A long one takes the agent as long as several.
        record.counts = 1 + (bytes / LONG) as u32;
        record.messages += record.counts;
        record.messages > MESSAGES
    }

    /// Names worker `w`, if it runs µNFs, and ends it; it is buried as soon as it has ended.
    pub(super) fn convict(&mut self, w: usize, what: &str) {
        if !self.setup.workers[w].runs_nfs() || self.trust.records[w].offence.is_some() {
            return;
        }
        let (State::Running(process) | State::Done(process)) = &mut self.workers[w].state else {
            return;
        };
        process.kill();
        self.accuse(w, what);
    }

    /// Names worker `w`, which has ended or is about to.
    pub(super) fn accuse(&mut self, w: usize, what: &str) {
        let record = &mut self.trust.records[w];
        if !self.setup.workers[w].runs_nfs() || record.offence.is_some() {
            return;
        }
        record.offence = Some(what.to_owned());
        record.count += 1;
        self.events.push_back(Event::Offence { worker: w, what: what.to_owned() });
    }

    /// Looks for nonsense, now and then.
    pub(super) fn look(&mut self) -> Result<(), AgentError> {
        if self.trust.looked.elapsed() < EVERY {
            return Ok(());
        }
        self.look_now()?;
        self.look_at_places()?;
        self.look_for_missing()
    }

    pub(super) fn look_now(&mut self) -> Result<(), AgentError> {
        self.trust.looked = Instant::now();
        self.look_at_lanes()?;
        for w in 0..self.workers.len() {
            self.trust.records[w].messages = 0;
            let (State::Running(process) | State::Done(process)) = &self.workers[w].state else {
                continue;
            };
            if process.stammers() {
                self.convict(w, "began a message to the agent and did not end it");
                continue;
            }
            if let Some(what) = self.promised_nonsense(w) {
                self.convict(w, &what);
            }
            self.look_at_returns(w)?;
            self.look_at_record(w);
        }
        for d in 0..self.setup.domains.len() {
            self.look_for_doubles(d)?;
            self.look_at_owners(d)?;
        }
        Ok(())
    }

    /// Owner words that name nobody of the domain: all can write them, so somebody is named only
    /// where there is one that can be.
    fn look_at_owners(&mut self, d: usize) -> Result<(), AgentError> {
        let owners = &self.memory.domains[d].owners;
        let from = self.trust.owners[d] % owners.len().max(1) as u32;
        let until = from.saturating_add(OWNERS).min(owners.len() as u32);
        self.trust.owners[d] = until;
        let is_right = |owner: u32| match (owner as usize).checked_sub(1) {
            Some(w) => self.setup.workers.get(w).is_some_and(|w| w.is_in(d)),
            None => true,
        };
        if (from..until).all(|buffer| owners.get(buffer).is_none_or(|o| is_right(o.0))) {
            return Ok(());
        }
        self.blame(d, "wrote nonsense into owner words")
    }

    /// Names who did what only an NF of domain `d` can have done, where there is only one; puts the
    /// domain right where there are more.
    fn blame(&mut self, d: usize, what: &str) -> Result<(), AgentError> {
        if let Some(only) = self.only_nf(d) {
            self.convict(only, what);
            return Ok(());
        }
        self.trust.suspected[d] = true;
        if self.trust.audited[d].is_none_or(|last| last.elapsed() >= AUDIT_EVERY) {
            self.trust.audited[d] = Some(Instant::now());
            self.audit(d)?;
        }
        Ok(())
    }

    /// The one worker of domain `d` that runs µNFs, if there is just one.
    fn only_nf(&self, d: usize) -> Option<usize> {
        let nfs =
            |w: &usize| self.setup.workers[*w].domain == d && self.setup.workers[*w].runs_nfs();
        let mut nfs = (0..self.workers.len()).filter(nfs);
        nfs.next().filter(|_| nfs.next().is_none())
    }

    /// Names worker `w`, which has ended, if it left a promise that cannot be.
    pub(super) fn look_at_promises(&mut self, w: usize) {
        if let Some(what) = self.promised_nonsense(w) {
            self.accuse(w, &what);
        }
    }

    fn promised_nonsense(&self, w: usize) -> Option<String> {
        let mut lanes = (0..self.setup.lanes.len()).filter(|l| self.setup.lanes[*l].from == w);
        let l = lanes.find(|l| promises_nonsense(&self.setup, &self.memory, *l))?;
        let to = self.name(self.setup.lanes[l].to);
        Some(format!("promised {to} more than its source has sent"))
    }

    fn name(&self, w: usize) -> &str {
        self.setup.workers.get(w).map_or("", |w| w.name.as_str())
    }

    fn look_at_lanes(&mut self) -> Result<(), AgentError> {
        for l in 0..self.setup.lanes.len() {
            let (from, to) = (self.setup.lanes[l].from, self.setup.lanes[l].to);
            let judgement = match self.memory.lanes[l].inspector.judge(&mut self.trust.lanes[l]) {
                Judgement::Either => self.weigh_up(l),
                judgement => judgement,
            };
            match judgement {
                Judgement::Sound => {}
                Judgement::Producer => {
                    let what = format!("wrote nonsense into its ring to {}", self.name(to));
                    self.convict(from, &what);
                }
                Judgement::Consumer => {
                    let what = format!("wrote nonsense into its ring from {}", self.name(from));
                    self.convict(to, &what);
                }
                // Who it was cannot be told: the domain is put right.
                Judgement::Either => {
                    let d = self.setup.workers[from].domain;
                    self.blame(d, "wrote nonsense into a ring")?;
                }
            }
        }
        Ok(())
    }

    /// One side of lane `l` has written what the other may have believed. A service or gate is
    /// believed; of two that run µNFs the one whose own record contradicts its index is not.
    fn weigh_up(&self, l: usize) -> Judgement {
        let (from, to) = (self.setup.lanes[l].from, self.setup.lanes[l].to);
        match (self.setup.workers[from].runs_nfs(), self.setup.workers[to].runs_nfs()) {
            (true, false) => return Judgement::Producer,
            (false, true) => return Judgement::Consumer,
            _ => {}
        }
        let inspector = &self.memory.lanes[l].inspector;
        let before = |f: fn(&crate::setup::LaneSetup) -> usize, w: usize| {
            self.setup.lanes[..l].iter().filter(|lane| f(lane) == w).count()
        };
        // What is published was committed; a batch at most is claimed beyond what was, or a group of them.
        let mut nodes = self.setup.workers[to].nodes.iter();
        let batches = if nodes.any(|node| node.replicate.is_some()) { GROUP } else { 1 };
        let most = u64::from(batches) * BATCH as u64;
        let promised = self.memory.workers[from].ledger.read();
        let promised = promised.and_then(|words| words.get(before(|l| l.from, from)).copied());
        let honest_producer = promised.is_some_and(|p| p.wrapping_sub(inspector.head()) < FAR);
        let layout = self.memory.workers[to].layout;
        let claimed = self.memory.workers[to].ledger.read();
        let claimed =
            claimed.and_then(|words| words.get(layout.lanes_in + before(|l| l.to, to)).copied());
        let honest_consumer = claimed.is_some_and(|c| inspector.tail().wrapping_sub(c) <= most + 1);
        match (honest_producer, honest_consumer) {
            (false, true) => Judgement::Producer,
            (true, false) => Judgement::Consumer,
            _ => Judgement::Either,
        }
    }

    fn look_at_returns(&mut self, w: usize) -> Result<(), AgentError> {
        let returns = &self.memory.workers[w].returns;
        let last = &mut self.trust.records[w].returns;
        last.resize(returns.len(), Indices::default());
        let bad = |(back, last): (&crate::memory::Return, &mut Indices)| {
            let judgement = back.ring.inspector.judge(last);
            (judgement != Judgement::Sound).then_some((judgement, back.pool))
        };
        let Some((judgement, pool)) = returns.iter().zip(last).find_map(bad) else {
            return Ok(());
        };
        let owner = self.memory.pools[pool].worker;
        let nfs = (self.setup.workers[w].runs_nfs(), self.setup.workers[owner].runs_nfs());
        match (judgement, nfs) {
            (Judgement::Producer, _) | (Judgement::Either, (true, false)) => {
                let what = format!("wrote nonsense into its ring back to {}", self.name(owner));
                self.convict(w, &what);
            }
            (Judgement::Either, (true, true)) if w != owner => {
                let d = self.memory.pools[pool].domain;
                self.blame(d, "wrote nonsense into a ring of buffers")?;
            }
            _ => {
                let what = format!("wrote nonsense into its ring back from {}", self.name(w));
                self.convict(owner, &what);
            }
        }
        Ok(())
    }

    /// What worker `w` has written down: of itself, and of what its neighbours wrote into rings.
    fn look_at_record(&mut self, w: usize) {
        let Some(words) = self.memory.workers[w].ledger.read() else { return };
        let layout = self.memory.workers[w].layout;
        if self.setup.workers[w].runs_nfs() {
            let record = &self.trust.records[w];
            let pool = 1 << self.memory.pool_bits;
            let domain = self.memory.domains[self.setup.workers[w].domain].owners.len() as u64;
            let most = Most { sources: self.setup.sources, free: pool, held: domain };
            if !is_sound(&words, &record.words, &layout, most) {
                self.convict(w, "wrote nonsense into its record");
                return;
            }
        }
        let record = &mut self.trust.records[w];
        record.words.clone_from(&words);
        let said = words.get(layout.nonsense..layout.nodes).unwrap_or_default();
        record.answered.resize(said.len(), 0);
        let new: Vec<usize> = (0..said.len()).filter(|&i| said[i] > record.answered[i]).collect();
        record.answered.copy_from_slice(said);
        for i in new {
            if let Some((accused, what)) = self.accused(w, i)
                && (!self.setup.workers[w].runs_nfs() || self.shows(w, i))
            {
                self.convict(accused, &what);
            }
        }
    }

    /// Whether the agent can see for itself what worker `w`, which runs foreign code, says of its
    /// `i`th ring: it may say so to have a neighbour ended. What a ring's producer wrote into its
    /// slots stays there for a while.
    fn shows(&self, w: usize, i: usize) -> bool {
        let mut lanes = self.setup.lanes.iter().zip(&self.memory.lanes).filter(|(l, _)| l.to == w);
        let shape = self.memory.domains[self.setup.workers[w].takes_from].shape();
        lanes.nth(i).is_some_and(|(_, ring)| {
            ring.inspector.slots().any(|e| place(&e, shape).is_none() && e.as_marker().is_none())
        })
    }

    /// Who writes into the other side of worker `w`'s `i`th ring.
    fn accused(&self, w: usize, i: usize) -> Option<(usize, String)> {
        let layout = &self.memory.workers[w].layout;
        let lanes = || self.setup.lanes.iter();
        let me = self.name(w);
        if let Some(lane) = lanes().filter(|l| l.to == w).nth(i) {
            return Some((lane.from, format!("wrote nonsense into its ring to {me}")));
        }
        let i = i.checked_sub(layout.lanes_in_len)?;
        if let Some(lane) = lanes().filter(|l| l.from == w).nth(i) {
            return Some((lane.to, format!("wrote nonsense into its ring from {me}")));
        }
        if i < layout.rings_out {
            let lanes = lanes().filter(|l| l.from == w).count();
            let pool = self.memory.workers[w].returns.get(i - lanes)?.pool;
            let owner = self.memory.pools[pool].worker;
            return Some((owner, format!("wrote nonsense into its ring back from {me}")));
        }
        // The first of a pool's rings is the agent's own.
        let i = (i - layout.rings_out).checked_sub(1)?;
        let p = self.memory.pools.iter().position(|p| p.worker == w)?;
        let (giver, _) = self.memory.returns_to(p).nth(i)?;
        Some((giver, format!("wrote nonsense into its ring back to {me}")))
    }

    /// Buffers that came back to their pool twice: somebody of the domain passed them on twice.
    fn look_for_doubles(&mut self, d: usize) -> Result<(), AgentError> {
        let mut new = None;
        for pool in self.memory.pools.iter().filter(|p| p.domain == d) {
            let at = self.memory.workers[pool.worker].layout.doubled;
            let Some(words) = self.memory.workers[pool.worker].ledger.read() else { continue };
            let said = words.get(at).copied().unwrap_or(0);
            let record = &mut self.trust.records[pool.worker];
            if record.doubled(said) {
                new = Some(pool.worker);
            }
        }
        let Some(pool) = new else { return Ok(()) };
        let what = format!("passed on a buffer twice, as {} saw", self.name(pool));
        self.blame(d, &what)
    }

    /// Mends the graph after the death of `w`; after that of a named one, audits its domain.
    pub(super) fn mend(&mut self, w: usize, named: bool) -> Result<Damage, AgentError> {
        if !named {
            return Ok(self.recover(w));
        }
        let words = std::mem::take(&mut self.trust.records[w].words);
        // The next one does something else.
        let attack = &mut self.setup.workers[w].attack;
        *attack = attack.map(|seed| seed.wrapping_add(1));
        let damage = disown(&self.setup, &mut self.memory, w, words);
        let record = &mut self.trust.records[w];
        record.answered.fill(0);
        let d = self.setup.workers[w].domain;
        self.trust.tainted[d] = true;
        let freed = self.audit(d)?;
        Ok(Damage { swept: freed, ..damage })
    }

    /// When all workers have ended: nobody takes any more what was left in the lanes of a domain that an
    /// offender was in. It is missing from its output, as [`crate::report::Balance::hostile`] says.
    pub(super) fn clear_tainted(&mut self) {
        for d in (0..self.trust.tainted.len()).filter(|d| self.trust.tainted[*d]) {
            clear_lanes(&self.setup, &mut self.memory, d);
        }
    }

    /// Gives worker `w` a command.
    pub(super) fn order(&mut self, w: usize, command: u32) {
        self.order_quietly(w, command);
        self.memory.workers[w].bell.ring();
    }

    /// As [`Agent::order`], without waking it.
    pub(super) fn order_quietly(&mut self, w: usize, command: u32) {
        let worker = &mut self.memory.workers[w];
        worker.command.stage(command);
        worker.command.publish();
    }
}

impl Record {
    /// True when more buffers came back twice than before.
    fn doubled(&mut self, said: u64) -> bool {
        let new = said > self.doubles;
        self.doubles = said;
        new
    }
}

/// What a sound worker's record does not exceed.
#[derive(Clone, Copy)]
struct Most {
    sources: u16,
    /// Free buffers: those of its pool.
    free: u64,
    /// Buffers in the hands of its µNFs: those of its domain.
    held: u64,
}

/// Whether a worker's record can follow the one before: counters and indices only grow, and not by
/// more than a machine can count.
fn is_sound(words: &[u64], before: &[u64], layout: &Layout, most: Most) -> bool {
    let grows = |i: usize| {
        let (now, before) = (words[i], before.get(i).copied().unwrap_or(0));
        now.wrapping_sub(before) < FAR
    };
    let all_sources = 1u64.checked_shl(most.sources.into()).map_or(u64::MAX, |bit| bit - 1);
    let special = [layout.free, layout.ended, layout.held];
    words.len() == layout.len
        && words[layout.free] <= most.free
        && words[layout.held] <= most.held
        && words[layout.ended] & !all_sources == 0
        && (0..words.len()).filter(|i| !special.contains(i)).all(grows)
}
