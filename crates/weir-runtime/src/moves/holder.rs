//! A replica: an instance of an NF, or of several that are fused, whose flows come and go, each with all that they remember of it.

mod claim;
mod cut;
mod ended;
mod gather;
mod kept;
mod pieces;
mod placed;
mod some;
mod sorted;
mod table;
mod visitors;
mod waits;
mod wants;
mod wishes;

pub use self::placed::{Placed, Placing};
pub use self::wants::MOST_TIMES;

use self::claim::Claim;
use self::cut::Cut;
use self::ended::Ended;
use self::kept::Kept;
use self::sorted::Sorted;
use self::visitors::Visitors;
use self::waits::Come;
use self::wants::{Ordered, Ticket, Wanted};
use self::wishes::Wishes;
use super::waits::Waits;
use super::{Flows, GUESTS, Letter, Part, Post, READING, SOON_NS, WAITS_NS};
use crate::segment::Segment;
use crate::spec::{CrewSpec, FromWorker, GroupSpec, SpreadSpec, WorkerSpec};
use crate::station::Station;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use weir_flow::{Effect, Fate, Going, Limits, Message, MoveId, Party, Refusal, Replica, Stage};
use weir_mem::fault::{self, Step};
use weir_mem::{Arena, Entry};
use weir_packet::flow::Side;
use weir_packet::headers::{Depth, Fragment};
use weir_packet::layers_of;
use weir_port::balance::{BUCKETS, Balance, Buckets, Placer};

/// How long a step of the protocol may take before it is asked again; then twice as long each time, so often.
const PATIENCE: Duration = Duration::from_millis(100);
const DOUBLINGS: u32 = 5;
/// How long the target may take to say that it is ready, before it is given up.
const PREPARE: Duration = Duration::from_millis(500);

/// A replica's part of the protocol. The flows are in the tables of its µNFs.
pub(super) struct Holder {
    me: u16,
    life: u32,
    group: u16,
    /// The nodes of the µNFs that remember something of flows, in the order that all replicas have.
    nodes: Vec<usize>,
    directors: u16,
    replicas: u16,
    cut: Cut,
    machine: Replica<Part>,
    /// Lanes in, each with its director.
    lanes: Vec<(usize, u16)>,
    spread: SpreadSpec,
    /// Of an NF whose packets divide by one of their ends: by lane in, of which.
    sides: Option<BTreeMap<usize, Side>>,
    /// Hashes packets as directors do.
    keyer: Balance,
    /// The same for what is remembered of flows.
    placer: Placer,
    /// Where buckets are when none was moved, and which are here.
    initial: Buckets,
    owned: Vec<bool>,
    /// Hashes of flows that were moved here one by one. Some director may still send them here for that reason, so they
    /// go along when their bucket does.
    visitors: Visitors,
    /// What comes.
    coming: BTreeMap<MoveId, Come>,
    /// For whom it has waited, and how long.
    waits: Waits,
    /// Instances that are gone for good, and what may be here again for that.
    gone: BTreeSet<u16>,
    claim: Option<Claim>,
    /// Who announced what did not come, and until when nothing is taken from him.
    shunned: BTreeMap<u16, Instant>,
    /// What goes.
    leaving: BTreeMap<MoveId, Leave>,
    /// What the agent wants and has not been cut into migrations.
    orders: VecDeque<Ordered>,
    /// Which flows are of which bucket, by µNF, while buckets are to move; else nothing.
    sorted: Vec<Sorted>,
    wanted: VecDeque<Wanted>,
    tickets: BTreeMap<u64, Ticket>,
    notes: Vec<FromWorker>,
    /// What was handed to a target that is gone: it goes back into the table.
    returning: Vec<Flows>,
    /// Flows that found no place where they came.
    lost: u64,
    /// Of the flows that have just come so many found no place.
    refused: u64,
    /// Instances of which an earlier life's migrations may go on, as far as is known here; all, for one that was itself
    /// started anew.
    restarted: BTreeSet<u16>,
    kept: Kept,
    wishes: Wishes,
    ended: Ended,
}

/// A migration away from here.
struct Leave {
    /// Why; `None` for one that an earlier life began.
    wanted: Option<Wanted>,
    /// Lanes whose marker has come.
    marked: BTreeSet<usize>,
    /// Since when it has waited for an answer.
    since: Instant,
    stage: Stage,
    /// How often it has been asked again in this stage.
    asked: u32,
    /// What was handed over, while the target has not said that it has it.
    copy: Option<Flows>,
    flows: u64,
    /// Of those, what found no place at the target.
    lost: u64,
}

impl Leave {
    fn wanted(&self) -> Option<&Wanted> {
        self.wanted.as_ref()
    }

    fn new(wanted: Option<Wanted>) -> Self {
        Leave {
            wanted,
            marked: BTreeSet::new(),
            since: Instant::now(),
            stage: Stage::Preparing,
            asked: 0,
            copy: None,
            flows: 0,
            lost: 0,
        }
    }

    fn of_buckets(&self) -> bool {
        self.wanted.as_ref().is_none_or(Wanted::of_buckets)
    }
}

impl Holder {
    pub(super) fn new(
        me: u16,
        crew: &CrewSpec,
        group: &GroupSpec,
        spec: &WorkerSpec,
        post: &mut Post,
    ) -> Option<Self> {
        let cut = Cut::of(&spec.schedule.trial);
        let count = u16::try_from(group.weights.len()).ok()?;
        // Nothing is buffered outside of the lanes.
        let guests = BUCKETS + GUESTS / group.weights.len().max(1);
        let limits = Limits { moves: cut.in_all, packets: 0, guests };
        let gone = |party: Party| crew.gone.contains(&party);
        let there = (0..count).filter(|replica| !gone(Party::Replica(*replica)));
        let directors = (0..crew.directors).filter(|director| !gone(Party::Director(*director)));
        let machine = match crew.life {
            0 => Replica::new(me, there, directors, limits),
            life => {
                let (machine, effects) = Replica::restarted(me, life, there, directors, limits);
                for effect in effects {
                    if let Effect::Send(to, letter) = effect {
                        post.send(to, &letter);
                    }
                }
                machine
            }
        };
        let initial = group.buckets().ok()?;
        let mut all = Vec::with_capacity(BUCKETS);
        all.extend((0..=u16::MAX).map(|bucket| u16::from(initial.at(bucket)) == me));
        let rule = crate::spread::rule(group).ok()?;
        let keyer = Balance::new(rule, &group.weights, u128::from(spec.seed)).ok()?;
        let sides = group.spread.asks_side().then(|| {
            let lanes = crew.lanes.iter().map(|(lane, _)| usize::from(*lane));
            let side =
                |lane: usize| Some((lane, crate::spread::side(spec.lanes_in.get(lane)?.side)));
            lanes.filter_map(side).collect()
        });
        Some(Holder {
            me,
            life: crew.life,
            group: crew.groups.first().copied()?,
            nodes: crew.nodes.iter().map(|node| usize::from(*node)).collect(),
            directors: crew.directors,
            replicas: count,
            cut,
            machine,
            lanes: crew.lanes.iter().map(|(lane, of)| (usize::from(*lane), *of)).collect(),
            spread: group.spread,
            sides,
            placer: keyer.placer(),
            keyer,
            initial,
            owned: all,
            visitors: Visitors::default(),
            coming: BTreeMap::new(),
            waits: Waits::default(),
            gone: (0..count).filter(|replica| gone(Party::Replica(*replica))).collect(),
            claim: None,
            shunned: BTreeMap::new(),
            leaving: BTreeMap::new(),
            orders: VecDeque::new(),
            sorted: Vec::new(),
            wanted: VecDeque::new(),
            tickets: BTreeMap::new(),
            notes: Vec::new(),
            returning: Vec::new(),
            lost: 0,
            refused: 0,
            restarted: if crew.life == 0 { BTreeSet::new() } else { (0..count).collect() },
            kept: Kept::default(),
            wishes: Wishes::default(),
            ended: Ended::default(),
        })
    }

    pub(super) fn group(&self) -> u16 {
        self.group
    }

    /// Its number, and which of its lives this is.
    #[cfg(feature = "attacks")]
    pub(super) fn who(&self) -> (u16, u32) {
        (self.me, self.life)
    }

    /// Keys that were moved here one by one; `None` for a node that is not of this replica.
    pub(super) fn moved_to(&self, node: usize) -> Option<u64> {
        self.nodes.contains(&node).then_some(self.visitors.len() as u64)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.machine.is_ready()
    }

    /// True while the state of some flows is to come.
    pub(super) fn expects(&self) -> bool {
        self.coming.values().any(|come| !come.overdue)
    }

    pub(super) fn notes(&mut self) -> Vec<FromWorker> {
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let text = format!("{lost} flows could not be moved and begin anew");
            self.notes.push(FromWorker::Warning(text));
        }
        std::mem::take(&mut self.notes)
    }

    pub(super) fn later(&self) -> Option<u64> {
        let orders = !self.wanted.is_empty() || !self.orders.is_empty();
        let waits = orders || !self.leaving.is_empty() || self.wishes.wait();
        let soon = match waits {
            true => Some(5 * SOON_NS),
            false => (self.expects() || !self.is_ready()).then_some(WAITS_NS),
        };
        [soon, self.ended.later()].into_iter().flatten().min()
    }

    /// True for a packet that may be taken: the state of its flow is here, or it has none that comes.
    pub(super) fn goes(&mut self, arena: &Arena, lane: usize, entry: &Entry) -> bool {
        if !self.lanes.iter().any(|(own, _)| *own == lane) {
            return true;
        }
        let view = arena.view();
        let layers = layers_of(view, entry, Depth::L4);
        let meta = view.meta(entry);
        // Of a later fragment the director has written down whose it is.
        let told = meta.filter(|_| layers.fragment() == Fragment::Later);
        let told = told.map(|meta| meta.flow_hash.get()).filter(|hash| *hash != 0);
        let now = meta.map_or(0, |meta| meta.time_ns.get());
        let (bytes, keyer) = (view.bytes(entry), &mut self.keyer);
        let hash = || match &self.sides {
            Some(sides) => sides.get(&lane).map(|side| keyer.end_hash(&bytes, &layers, now, *side)),
            None => keyer.flow_hash(&bytes, &layers, now),
        };
        match told.or_else(hash) {
            Some(hash) => self.machine.packet(&Part::of(hash)) != Fate::Wait,
            None => true,
        }
    }

    pub(super) fn turn(
        &mut self,
        post: &mut Post,
        station: &mut Station,
        segment: &mut Segment,
    ) -> bool {
        let mut did = self.sort(segment);
        for copy in std::mem::take(&mut self.returning) {
            self.kept.dirty = true;
            self.lost += self.put(&copy, segment);
        }
        if post.has_some() {
            let begun = Instant::now();
            while let Some((from, letter)) = post.take() {
                did = true;
                self.hear(from, letter, post, segment);
                if begun.elapsed() >= READING {
                    break;
                }
            }
        }
        if self.machine.is_ready() {
            did |= self.take_marks(station);
            did |= self.judge_marks(post, station, segment);
        }
        self.ask_again(post, segment);
        if self.expects() || !self.is_ready() {
            self.note_waits();
        } else {
            self.waits.rest();
        }
        did |= self.hear_wishes(post, segment);
        did |= self.look_at_ended(post, segment);
        did |= self.cut_orders(segment);
        did | self.begin_wanted(post, segment)
    }

    /// An instance is gone for good.
    pub(super) fn gone(&mut self, replica: u16, post: &mut Post) {
        self.kept.dirty = true;
        // What is to be done with the table waits for the next turn, which comes before any packet.
        let effects = self.machine.gone(replica);
        self.apply_without_table(effects, post);
        self.gone.insert(replica);
        self.claim(post);
    }

    /// Does what needs no table.
    pub(super) fn apply_without_table(
        &mut self,
        effects: Vec<Effect<Part, Flows>>,
        post: &mut Post,
    ) {
        for effect in effects {
            match effect {
                Effect::Send(to, letter) => post.send(to, &letter),
                Effect::TakeBack(id) => self.take_back(id),
                Effect::Release(id) => self.arrive(id),
                Effect::Overdue(id) => self.overdue(id),
                Effect::Failed(id, _) => self.returned(id),
                _ => {}
            }
        }
    }

    fn hear(&mut self, from: Party, letter: Letter, post: &mut Post, segment: &mut Segment) {
        self.kept.dirty = true;
        match &letter {
            // What was told an earlier life may be out of date, and what was not asked for is not to be believed.
            Message::Tell(life, told) if *life == self.life && self.asked(from) => {
                self.judge_claim(from, told);
                // Who has not heard yet who is gone sends nothing more there when he has: that was judged above.
                let there = told.routes.iter().filter(|(_, route)| !self.gone.contains(&route.to));
                let routes: Vec<_> = there.cloned().collect();
                for (part, route) in &routes {
                    let here = route.to == self.me;
                    match part {
                        Part::Bucket(bucket) => self.own(*bucket, here),
                        Part::Flow(hash) if here => self.visitors.insert(*hash),
                        Part::Flow(_) => {}
                    }
                }
                let to_here = |(id, going): &&(MoveId, Going<Part>)| {
                    going.to == self.me && from == Party::Replica(id.source)
                };
                for (id, going) in told.going.iter().filter(to_here) {
                    // One that is on its way by now knows more.
                    let come = || Come::new(going.parts.clone(), Vec::new());
                    self.coming.entry(*id).or_insert_with(come);
                }
            }
            Message::Hello(_) => {
                if let Party::Replica(replica) = from {
                    self.restarted.insert(replica);
                }
            }
            Message::Prepare { id, parts, flows, .. } if !self.machine.is_coming(*id) => {
                if let Some(why) = self.refuses(*id, parts, flows, segment) {
                    return post.send(from, &Message::Refused(*id, why));
                }
                let flows = flows.iter().take(self.nodes.len()).copied().collect();
                self.coming.insert(*id, Come::new(parts.clone(), flows));
            }
            Message::There(part, to) => match (from, *part) {
                (Party::Director(_), Part::Flow(hash)) => self.told_where(hash, *to),
                (Party::Director(_), Part::Bucket(bucket)) => self.told_home(bucket, *to),
                (Party::Replica(_), _) => {}
            },
            Message::Settled { id, home: true } => {
                if let Party::Director(director) = from {
                    self.visitors.at_home(*id, director);
                }
            }
            Message::Done { id, lost } => {
                if let Some(leave) = self.leaving.get_mut(id) {
                    leave.lost = (*lost).min(leave.flows);
                }
            }
            _ => {}
        }
        let effects = self.machine.message(from, letter);
        self.apply(effects, post, segment);
        // Refused, given up, or here already.
        let machine = &self.machine;
        self.coming.retain(|id, _| machine.is_coming(*id));
    }

    /// Why flows cannot come, besides what the protocol knows.
    fn refuses(
        &self,
        id: MoveId,
        parts: &BTreeSet<Part>,
        flows: &[u64],
        segment: &Segment,
    ) -> Option<Refusal> {
        if self.shunned.get(&id.source).is_some_and(|until| Instant::now() < *until) {
            return Some(Refusal::Busy);
        }
        for ((at, node), flows) in self.nodes.iter().enumerate().zip(flows) {
            let nf = segment.nf_ref(*node)?;
            let coming = self.coming.values().filter(|come| !come.overdue);
            let coming = coming.filter_map(|come| come.flows.get(at)).copied();
            let then = (nf.flows().0 as u64).saturating_add(coming.fold(0, u64::saturating_add));
            let then = then.saturating_add(*flows);
            // With no flows it may be one of an earlier life, which has to go on.
            if *flows > 0 && then > u64::from(nf.most_flows()) {
                return Some(Refusal::Full);
            }
        }
        // Nobody lets packets wait for what is here. What an earlier life began may be known to directors.
        let is_here = |part: &Part| self.is_here(part);
        if !self.restarted.contains(&id.source) && parts.iter().any(is_here) {
            return Some(Refusal::Moving);
        }
        None
    }

    /// True for a part whose packets come here.
    fn is_here(&self, part: &Part) -> bool {
        match part {
            Part::Bucket(bucket) => self.owned.get(usize::from(*bucket)).is_some_and(|own| *own),
            Part::Flow(hash) => self.visitors.contains(*hash),
        }
    }

    fn apply(&mut self, effects: Vec<Effect<Part, Flows>>, post: &mut Post, segment: &mut Segment) {
        self.kept.dirty |= !effects.is_empty();
        for effect in effects {
            match effect {
                Effect::Send(to, mut letter) => {
                    if let Message::Done { lost, .. } = &mut letter {
                        *lost = std::mem::take(&mut self.refused);
                    }
                    post.send(to, &letter);
                }
                Effect::HandOver(id, to, parts) => {
                    let flows = self.take(id, &parts, segment);
                    post.send(Party::Replica(to), &Message::State(id, flows.clone()));
                    let leave = self.leave(id);
                    (leave.copy, leave.since) = (Some(flows), Instant::now());
                }
                Effect::HandAgain(id, to, _) => {
                    let leave = self.leave(id);
                    leave.since = Instant::now();
                    let flows = leave.copy.clone().unwrap_or_default();
                    post.send(Party::Replica(to), &Message::State(id, flows));
                }
                Effect::TakeBack(id) => self.take_back(id),
                Effect::Adopt(_, flows) => self.refused = self.put(&flows, segment),
                Effect::Release(id) => self.arrive(id),
                Effect::Overdue(id) => self.overdue(id),
                Effect::Moved(id) => self.moved(id),
                Effect::Failed(id, why) => self.failed(id, why),
            }
        }
    }

    fn leave(&mut self, id: MoveId) -> &mut Leave {
        self.leaving.entry(id).or_insert_with(|| Leave::new(None))
    }

    fn own(&mut self, bucket: u16, here: bool) {
        if let Some(owned) = self.owned.get_mut(usize::from(bucket)) {
            *owned = here;
        }
    }

    /// What a migration brings is here.
    fn arrive(&mut self, id: MoveId) {
        let Some(come) = self.coming.remove(&id) else { return };
        for part in come.parts {
            match part {
                Part::Bucket(bucket) => self.own(bucket, true),
                Part::Flow(hash) => self.visitors.come(id, hash, self.directors),
            }
        }
    }

    /// What was handed over comes back.
    fn take_back(&mut self, id: MoveId) {
        let copy = self.leave(id).copy.take();
        self.returning.extend(copy);
    }

    /// Takes markers out of the lanes.
    fn take_marks(&mut self, station: &mut Station) -> bool {
        let mut any = false;
        for at in 0..self.lanes.len() {
            let Some(&(lane, _)) = self.lanes.get(at) else { break };
            while let Some((life, number)) = station.ingress.mark(lane) {
                station.pass_mark(lane);
                any = true;
                // The lower half of the number: so few are under way that no two have the same.
                let is_it = |id: &MoveId| id.life == life && id.number as u32 == number;
                let known = self.machine.leaving().map(|(id, _)| id).find(is_it);
                if let Some(id) = known {
                    self.leave(id).marked.insert(lane);
                }
                fault::step(Step::MarkTaken);
            }
        }
        any
    }

    /// Tells the protocol of directors all of whose lanes have brought the marker, or have ended.
    fn judge_marks(
        &mut self,
        post: &mut Post,
        station: &mut Station,
        segment: &mut Segment,
    ) -> bool {
        let switching = self.machine.leaving().filter(|(_, stage)| *stage == Stage::Switching);
        let switching: Vec<MoveId> = switching.map(|(id, _)| id).collect();
        let mut any = false;
        for id in switching {
            for director in 0..self.directors {
                let lanes = station.ingress.lanes();
                let ended = |lane: usize| lanes.get(lane).is_none_or(|l| l.ended());
                let leave = self.leaving.get(&id);
                let marked = |lane| leave.is_some_and(|leave| leave.marked.contains(&lane));
                let mut own = self.lanes.iter().filter(|(_, of)| *of == director);
                if own.all(|(lane, _)| marked(*lane) || ended(*lane)) {
                    let effects = self.machine.marker(director, id);
                    any |= !effects.is_empty();
                    self.apply(effects, post, segment);
                }
            }
        }
        any
    }

    /// Asks again what was not answered in time.
    fn ask_again(&mut self, post: &mut Post, segment: &mut Segment) {
        let leaving: Vec<_> = self.machine.leaving().collect();
        for (id, stage) in leaving {
            let patience = if stage == Stage::Preparing { PREPARE } else { PATIENCE };
            let leave = self.leave(id);
            if leave.stage != stage {
                (leave.stage, leave.since, leave.asked) = (stage, Instant::now(), 0);
            }
            if leave.since.elapsed() >= patience * (1 << leave.asked.min(DOUBLINGS)) {
                leave.since = Instant::now();
                leave.asked += 1;
                let effects = self.machine.timeout(id);
                self.apply(effects, post, segment);
            }
        }
    }
}
