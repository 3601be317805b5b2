//! A director: a worker that divides an NF's packets over its instances.

use super::waits::Waits;
use super::{Awaited, GUESTS, Owed, Part, Post, READING, SOON_NS, WAITS_NS};
use crate::segment::Segment;
use crate::spec::{CrewSpec, FromWorker, GroupSpec};
use crate::station::Station;
use std::collections::VecDeque;
use std::time::Instant;
use weir_flow::{Director, DirectorEffect, Party};
use weir_mem::Entry;
use weir_mem::fault::{self, Step};
use weir_port::balance::{BUCKETS, Buckets, FlowDirector};

/// Parts of which a director remembers where they go, at most: twice of what sound instances have moved away, as what comes
/// home is remembered until it has come.
const ROUTES: usize = 2 * (GUESTS + BUCKETS);

/// A director's part of the protocol. Where its packets go is in the segment's
/// [`FlowDirector`].
pub(super) struct Sender {
    /// What it divides packets for, the first one first.
    groups: Vec<u16>,
    replicas: u16,
    machine: Director<Part>,
    /// Lanes out, each with the instance that it leads to.
    lanes: Vec<(usize, u16)>,
    /// Where buckets are when none was moved.
    initial: Buckets,
    /// Markers that wait for room, in order, each with its lane.
    marks: VecDeque<(usize, Entry)>,
    /// What is to be done as an instance is gone.
    undone: Vec<DirectorEffect<Part, super::Flows>>,
    /// Since it was started: for which instances it has waited.
    waits: Waits,
    notes: Vec<FromWorker>,
}

impl Sender {
    pub(super) fn new(crew: &CrewSpec, group: &GroupSpec, post: &mut Post) -> Option<Self> {
        let count = u16::try_from(group.weights.len()).ok()?;
        let gone = |replica| crew.gone.contains(&Party::Replica(replica));
        let replicas = (0..count).filter(|replica| !gone(*replica));
        let machine = match crew.life {
            0 => Director::new(replicas),
            life => {
                let (machine, effects) = Director::restarted(life, replicas);
                for effect in effects {
                    if let DirectorEffect::Send(to, letter) = effect {
                        post.send(to, &letter);
                    }
                }
                machine
            }
        };
        let lanes = crew.lanes.iter().map(|(lane, replica)| (usize::from(*lane), *replica));
        Some(Sender {
            groups: crew.groups.clone(),
            replicas: count,
            machine: machine.with_most(ROUTES),
            lanes: lanes.collect(),
            initial: group.buckets().ok()?,
            marks: VecDeque::new(),
            undone: Vec::new(),
            waits: Waits::default(),
            notes: Vec::new(),
        })
    }

    pub(super) fn group(&self) -> u16 {
        self.groups.first().copied().unwrap_or(u16::MAX)
    }

    /// How many instances there are.
    pub(super) fn replicas(&self) -> u16 {
        self.replicas
    }

    /// It has sent nothing and heard nothing yet, and buckets begin where these are.
    pub(super) fn begin_at(&mut self, buckets: Buckets, segment: &mut Segment) {
        self.direct(segment, |director| director.begin_at(&buckets));
        self.initial = buckets;
    }

    /// False also while markers wait: packets that go before them would keep the room from them.
    pub(super) fn is_ready(&self) -> bool {
        self.machine.is_ready() && self.marks.is_empty()
    }

    pub(super) fn later(&self) -> Option<u64> {
        match self.marks.is_empty() {
            false => Some(SOON_NS),
            true => (!self.machine.is_ready()).then_some(WAITS_NS),
        }
    }

    pub(super) fn notes(&mut self) -> Vec<FromWorker> {
        std::mem::take(&mut self.notes)
    }

    /// After a restart: has the agent hear of instances that do not tell what they know.
    fn note_waits(&mut self) {
        let now = Instant::now();
        if !self.waits.is_due(now) {
            return;
        }
        let unheard = self.machine.unheard();
        let unheard = unheard.into_iter().map(|replica| (Party::Replica(replica), Owed::Word));
        let group = self.group();
        for ((from, owed), all) in self.waits.look(now, unheard) {
            let ms = all.as_millis() as u64;
            let awaited = Awaited { group, from, owed };
            self.notes.push(FromWorker::Waits { awaited, ms });
        }
    }

    /// The agent says that this is not worth waiting for.
    pub(super) fn wait_no_longer(&mut self, awaited: Awaited) {
        if let (Party::Replica(replica), Owed::Word) = (awaited.from, awaited.owed) {
            self.machine.go_on_without(replica);
            self.waits.stop((awaited.from, awaited.owed));
        }
    }

    /// A replica is gone for good. What was moved to it goes where its buckets go, from the next turn on.
    pub(super) fn gone(&mut self, replica: u16) {
        let effects = self.machine.gone::<super::Flows>(replica);
        self.undone.extend(effects);
    }

    pub(super) fn turn(
        &mut self,
        post: &mut Post,
        station: &mut Station,
        segment: &mut Segment,
    ) -> bool {
        let mut did = false;
        for effect in std::mem::take(&mut self.undone) {
            self.apply(effect, post, segment);
            did = true;
        }
        if post.has_some() {
            let begun = Instant::now();
            while let Some((from, letter)) = post.take() {
                let initial = &self.initial;
                let home = |part: &Part, diverted: &dyn Fn(&Part) -> Option<u16>| {
                    home(part, diverted, initial)
                };
                let effects = self.machine.message(from, letter, home);
                for effect in effects {
                    self.apply(effect, post, segment);
                }
                did = true;
                if begun.elapsed() >= READING {
                    break;
                }
            }
        }
        if !self.marks.is_empty() {
            did |= self.mark(station, segment);
        }
        if !self.machine.is_ready() {
            self.note_waits();
        } else {
            self.waits.rest();
        }
        did
    }

    fn apply(
        &mut self,
        effect: DirectorEffect<Part, super::Flows>,
        post: &mut Post,
        segment: &mut Segment,
    ) {
        match effect {
            DirectorEffect::Send(to, letter) => post.send(to, &letter),
            DirectorEffect::Divert(part, to) => {
                let Ok(to) = u8::try_from(to) else { return };
                // The protocol knows no other instances than there are.
                self.direct(segment, |director| {
                    let _ = match part {
                        Part::Flow(hash) => director.divert(hash, to),
                        Part::Bucket(bucket) => director.set_bucket(bucket, to),
                    };
                });
            }
            DirectorEffect::Undivert(Part::Flow(hash)) => {
                self.direct(segment, |director| director.undivert(hash));
            }
            DirectorEffect::Undivert(Part::Bucket(bucket)) => {
                let to = self.initial.at(bucket);
                self.direct(segment, |director| {
                    let _ = director.set_bucket(bucket, to);
                });
            }
            DirectorEffect::Marker(replica, id) => {
                // The lower half of the number: the source knows the rest.
                let entry = Entry::moved(id.life, id.number as u32);
                let lanes = self.lanes.iter().filter(|(_, to)| *to == replica);
                self.marks.extend(lanes.map(|(lane, _)| (*lane, entry)));
            }
        }
    }

    /// Tells all who divide its crew's packets here.
    fn direct(&self, segment: &mut Segment, mut tell: impl FnMut(&mut FlowDirector)) {
        for group in &self.groups {
            if let Some(director) = segment.director(*group) {
                tell(director);
            }
        }
    }

    /// Puts markers behind what was sent; true when any found room. Behind the end of a source none comes: its marker says as much.
    ///
    /// Behind what waits for room in the same lane: another one may be full for as long as its instance waits for what this
    /// marker lets another hand over.
    fn mark(&mut self, station: &mut Station, segment: &Segment) -> bool {
        let mut any = false;
        for _ in 0..self.marks.len() {
            let Some((lane, entry)) = self.marks.pop_front() else { break };
            let source = station.egress.lanes().get(lane).map(|lane| lane.source);
            let ended = source.is_none_or(|source| station.own_source_ended(source));
            // What finds no room is tried again, in any order: each is behind the packets that it is to be behind.
            let mut waits =
                || segment.more.has_backlog_for(lane) || !station.egress.mark(lane, entry);
            if !ended && waits() {
                self.marks.push_back((lane, entry));
                continue;
            }
            any = true;
        }
        if any {
            station.commit();
            fault::step(Step::MarkSent);
        }
        any
    }
}

/// Where a part's bucket goes: of a bucket, where it is when it was not moved.
fn home(part: &Part, diverted: &dyn Fn(&Part) -> Option<u16>, initial: &Buckets) -> u16 {
    match part {
        Part::Flow(hash) => {
            let bucket = Buckets::bucket(*hash);
            diverted(&Part::Bucket(bucket)).unwrap_or_else(|| initial.at(bucket).into())
        }
        Part::Bucket(bucket) => initial.at(*bucket).into(),
    }
}
