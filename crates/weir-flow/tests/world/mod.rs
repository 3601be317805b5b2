//! The world around the machines: channels, rings, tables, buffers, and who dies.

mod deaths;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_flow::{Director, DirectorEffect, Effect, Fate, Limits, Message, MoveId, Party, Replica};

/// The flow's one key; its bucket's home is replica 0 as long as that is there.
const FLOW: u8 = 1;

/// A packet: by which director, and which of its packets.
pub type Packet = (u16, u8);
/// A flow's state: the packets that made it.
type Flow = Vec<Packet>;
type Flows = BTreeMap<u8, Flow>;

/// What may be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Directors' markers overtake packets.
    MarkerFirst,
    /// The target processes what it should buffer.
    NoBuffer,
    /// Who is started anew does not ask what is under way.
    AsksNobody,
    /// Who is ordered to send away all that it has does so before it has been told what it has.
    ObeysAtOnce,
    /// Who waits no longer for flows that were announced forgets them: when they come nobody says that they have.
    Forgets,
    /// Where what is remembered outlives a death: what was handed over does not.
    LosesCopies,
    /// The same: which migrations have come does not.
    LosesTaken,
    /// The same: what was moved to it does not.
    LosesGuests,
    /// Two that were started anew together believe what the other said before it knew.
    TellsOnce,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Case {
    pub directors: u16,
    /// Packets that come by each.
    pub packets: u8,
    /// Packets that a replica may buffer.
    pub room: usize,
    pub never_buffers: bool,
    /// The flow moves back home.
    pub back: bool,
    /// It does so as replica 1 is ordered to send away all that it has: it has to know by itself what that is, also when it
    /// was just started anew.
    pub ordered: bool,
    /// How many time-outs there may be.
    pub timeouts: usize,
    /// How often somebody may die and be started anew.
    pub deaths: usize,
    /// What was on its way to who dies is lost with it.
    pub lossy: bool,
    /// Whether one replica may go for good.
    pub gone: bool,
    /// Whether a target may once be told to wait no longer.
    pub impatient: bool,
    /// What replicas remember outlives them, as of their last step whose effects counted. Somebody may die in a step: before it counts,
    /// or when it does and some of its messages, or none, are sent.
    pub durable: bool,
    pub broken: Option<Broken>,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            directors: 2,
            packets: 2,
            room: 8,
            never_buffers: false,
            back: false,
            ordered: false,
            timeouts: 0,
            deaths: 0,
            lossy: false,
            gone: false,
            impatient: false,
            durable: false,
            broken: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A replica begins to move the flow to the other.
    Start(u16),
    /// Replica 1 is ordered to send away all that it has.
    Order,
    /// It begins to.
    Obey,
    /// A director sends its next packet on.
    Send(u16),
    /// A replica takes the next of a director's ring.
    Take(u16, u16),
    /// A message arrives.
    Arrive(Party, Party),
    Timeout(u16, MoveId),
    /// A replica waits no longer for what the other has announced.
    Forsake(u16),
    Die(Party),
    /// A replica dies in a step. It counts if there is a number, and so many of its messages are sent.
    DieIn(Box<Action>, Option<usize>),
    Go(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    Packet(Packet),
    Marker(MoveId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    machine: Replica<u8>,
    life: u32,
    gone: bool,
    /// Packets of the flow come here, as far as its driver knows.
    here: bool,
    /// It is to send away all that it has, and has not begun.
    ordered: bool,
    table: Flows,
    copies: BTreeMap<MoveId, Flows>,
    buffers: BTreeMap<MoveId, VecDeque<Packet>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    workers: Vec<Worker>,
    directors: Vec<Director<u8>>,
    messages: BTreeMap<(Party, Party), VecDeque<Message<u8, Flows>>>,
    rings: BTreeMap<(u16, u16), VecDeque<Item>>,
    /// Packets that each director has sent.
    sent: Vec<u8>,
    processed: BTreeSet<Packet>,
    /// Packets that died with who had them.
    lost: BTreeSet<Packet>,
    starts: usize,
    /// Replica 1, in the life that it is in, has been ordered to send away all that it has.
    ordered: bool,
    pub moved: usize,
    pub was_buffered: bool,
    timeouts: usize,
    deaths: usize,
    /// Whether a worker died or is gone: flows may be lost with it.
    harmed: bool,
    /// Whether somebody did not wait for flows that come: they may begin anew, and their packets meet in two places.
    hurried: bool,
    broken: Option<Broken>,
    /// So many messages of the replica that is dying are sent.
    sends: Option<usize>,
    pub wrong: Option<&'static str>,
}

fn limits(case: &Case) -> Limits {
    Limits { moves: 2, packets: case.room, guests: 4 }
}

impl Action {
    /// The replica whose step it is.
    fn of_replica(&self) -> Option<u16> {
        match self {
            Action::Start(me) | Action::Take(me, _) | Action::Timeout(me, _) => Some(*me),
            Action::Obey => Some(1),
            Action::Arrive(_, Party::Replica(me)) => Some(*me),
            _ => None,
        }
    }
}

impl World {
    pub fn new(case: &Case) -> Self {
        let worker = |me| Worker {
            machine: Replica::new(me, 0..2, 0..case.directors, limits(case)),
            life: 0,
            gone: false,
            here: me == 0,
            ordered: false,
            table: Flows::new(),
            copies: BTreeMap::new(),
            buffers: BTreeMap::new(),
        };
        World {
            workers: vec![worker(0), worker(1)],
            directors: (0..case.directors).map(|_| Director::new(0..2)).collect(),
            messages: BTreeMap::new(),
            rings: BTreeMap::new(),
            sent: vec![0; usize::from(case.directors)],
            processed: BTreeSet::new(),
            lost: BTreeSet::new(),
            starts: 0,
            ordered: false,
            moved: 0,
            was_buffered: case.never_buffers,
            timeouts: 0,
            deaths: 0,
            harmed: false,
            hurried: false,
            broken: case.broken,
            sends: None,
            wrong: None,
        }
    }

    fn living(&self) -> Vec<u16> {
        (0..2).filter(|me| !self.workers[usize::from(*me)].gone).collect()
    }

    fn home(&self) -> u16 {
        u16::from(self.workers[0].gone)
    }

    /// All that may happen without a fault.
    pub fn normal(&self, case: &Case, actions: &mut Vec<Action>) {
        let others_there = self.workers.iter().all(|worker| !worker.gone);
        let may_start = |me: usize| {
            others_there
                && self.workers[me].machine.is_ready()
                && self.workers[me].table.contains_key(&FLOW)
        };
        if self.starts == 0 && may_start(0) {
            actions.push(Action::Start(0));
        }
        if case.back && !case.ordered && self.starts == 1 && self.moved == 1 && may_start(1) {
            actions.push(Action::Start(1));
        }
        if case.ordered && self.moved >= 1 && !self.ordered {
            actions.push(Action::Order);
        }
        let knows = |machine: &Replica<u8>| machine.is_ready() && machine.is_quiet();
        if self.workers[1].ordered
            && (knows(&self.workers[1].machine) || self.broken == Some(Broken::ObeysAtOnce))
        {
            actions.push(Action::Obey);
        }
        for director in 0..case.directors {
            let at = usize::from(director);
            if self.sent[at] < case.packets && self.directors[at].is_ready() {
                actions.push(Action::Send(director));
            }
        }
        for (&(director, replica), ring) in &self.rings {
            let worker = &self.workers[usize::from(replica)];
            let may = match ring.front() {
                None => false,
                Some(Item::Marker(_)) => worker.machine.is_ready(),
                Some(Item::Packet(_)) => worker.machine.clone().packet(&[FLOW]) != Fate::Wait,
            };
            if may && !worker.gone {
                actions.push(Action::Take(replica, director));
            }
        }
        let some = self.messages.iter().filter(|(_, queue)| !queue.is_empty());
        actions.extend(some.map(|((from, to), _)| Action::Arrive(*from, *to)));
        if case.lossy && actions.is_empty() {
            self.timeouts(actions);
        }
    }

    fn timeouts(&self, actions: &mut Vec<Action>) {
        for (me, worker) in (0..).zip(&self.workers).filter(|(_, worker)| !worker.gone) {
            actions.extend(worker.machine.leaving().map(|(id, _)| Action::Timeout(me, id)));
        }
    }

    pub fn faults(&self, case: &Case, actions: &mut Vec<Action>) {
        if self.timeouts < case.timeouts {
            self.timeouts(actions);
        }
        if self.starts == 0 {
            // A death before anything moves is nobody's business here.
            return;
        }
        if self.deaths < case.deaths {
            actions.extend(self.living().into_iter().map(|me| Action::Die(Party::Replica(me))));
            actions.extend((0..case.directors).map(|me| Action::Die(Party::Director(me))));
            if case.durable {
                let mut steps = Vec::new();
                self.normal(case, &mut steps);
                let steps = steps.into_iter().filter(|step| step.of_replica().is_some());
                let ends = [None, Some(0), Some(1)];
                let dies =
                    |step: Action| ends.map(|end| Action::DieIn(Box::new(step.clone()), end));
                actions.extend(steps.flat_map(dies));
            }
        }
        if case.impatient && !self.hurried {
            let waits = |me: &u16| {
                let mut machine = self.workers[usize::from(*me)].machine.clone();
                !machine.forsake::<Flows>(1 - me).is_empty()
            };
            actions.extend(self.living().into_iter().filter(waits).map(Action::Forsake));
        }
        if case.gone && self.workers.iter().all(|worker| !worker.gone) {
            actions.extend((0..2).map(Action::Go));
        }
    }

    pub fn act(&mut self, case: &Case, action: Action) {
        match action {
            Action::Start(me) => {
                self.starts += 1;
                let machine = &mut self.workers[usize::from(me)].machine;
                let started = machine.start([FLOW].into(), 1 - me, me == 1, vec![1]);
                let (_, effects) = started.expect("nothing else is under way");
                self.effects(me, effects);
            }
            Action::Order => {
                self.ordered = true;
                self.workers[1].ordered = true;
            }
            Action::Obey => {
                let worker = &mut self.workers[1];
                worker.ordered = false;
                if worker.here {
                    match worker.machine.start([FLOW].into(), 0, true, vec![1]) {
                        Ok((_, effects)) => self.effects(1, effects),
                        Err(_) => self.wrong = Some("an order is obeyed too soon"),
                    }
                }
            }
            Action::Send(director) => {
                let at = usize::from(director);
                let to = self.directors[at].diverted(&FLOW).unwrap_or(self.home());
                let packet = (director, self.sent[at]);
                self.sent[at] += 1;
                self.rings.entry((director, to)).or_default().push_back(Item::Packet(packet));
            }
            Action::Take(replica, director) => {
                let ring = self.rings.get_mut(&(director, replica)).unwrap();
                match ring.pop_front().unwrap() {
                    Item::Marker(id) => {
                        let machine = &mut self.workers[usize::from(replica)].machine;
                        let effects = machine.marker(director, id);
                        self.effects(replica, effects);
                    }
                    Item::Packet(packet) => self.take(replica, packet),
                }
            }
            Action::Arrive(from, to) => {
                let message = self.messages.get_mut(&(from, to)).unwrap().pop_front().unwrap();
                match to {
                    Party::Replica(me) => {
                        let worker = &mut self.workers[usize::from(me)];
                        if let Message::Tell(life, told) = &message
                            && *life == worker.life
                            && let Some((_, route)) = told.routes.first()
                        {
                            worker.here = route.to == me;
                        }
                        let effects = worker.machine.message(from, message);
                        self.effects(me, effects);
                    }
                    Party::Director(me) => {
                        let home = self.home();
                        let machine = &mut self.directors[usize::from(me)];
                        let effects = machine.message(from, message, |_, _| home);
                        self.director_effects(me, effects);
                    }
                }
            }
            Action::Timeout(me, id) => {
                // Those that come because nothing else does are not counted: it may take any number.
                self.timeouts = case.timeouts.min(self.timeouts + 1);
                let effects = self.workers[usize::from(me)].machine.timeout(id);
                self.effects(me, effects);
            }
            Action::Forsake(me) => {
                self.hurried = true;
                let machine = &mut self.workers[usize::from(me)].machine;
                let mut effects = machine.clone().forsake(1 - me);
                match self.broken {
                    Some(Broken::Forgets) => {
                        let late = effects.iter().filter_map(|effect| match effect {
                            Effect::Overdue(id) => Some(*id),
                            _ => None,
                        });
                        let late: Vec<MoveId> = late.collect();
                        let from = Party::Replica(1 - me);
                        let forget = |id| machine.message(from, Message::Cancel(id));
                        effects = late.into_iter().flat_map(forget).collect();
                    }
                    _ => effects = machine.forsake(1 - me),
                }
                self.effects(me, effects);
            }
            Action::Die(Party::Replica(me)) => self.die(case, me),
            Action::Die(Party::Director(me)) => {
                self.deaths += 1;
                self.lose(case, Party::Director(me));
                let (new, effects) = match self.broken {
                    Some(Broken::AsksNobody) => (Director::new(0..2), Vec::new()),
                    _ => Director::restarted(self.deaths as u32, self.living()),
                };
                self.directors[usize::from(me)] = new;
                self.director_effects(me, effects);
            }
            Action::DieIn(action, sends) => {
                let Some(me) = action.of_replica() else { return };
                match sends {
                    Some(_) => {
                        self.sends = sends;
                        self.act(case, *action);
                        self.sends = None;
                    }
                    // A message was taken, and nothing done of what it asks for. What else is taken counts with what is done.
                    None => {
                        if let Action::Arrive(from, to) = *action {
                            self.messages.get_mut(&(from, to)).unwrap().pop_front();
                        }
                        if let Action::Take(replica, director) = *action {
                            let ring = self.rings.get_mut(&(director, replica)).unwrap();
                            if matches!(ring.front(), Some(Item::Marker(_))) {
                                ring.pop_front();
                            }
                        }
                    }
                }
                self.die(case, me);
            }
            Action::Go(me) => self.go(me),
        }
        // Empty queues are no different from none.
        self.messages.retain(|_, queue| !queue.is_empty());
        self.rings.retain(|_, ring| !ring.is_empty());
    }

    fn take(&mut self, replica: u16, packet: Packet) {
        let worker = &mut self.workers[usize::from(replica)];
        match worker.machine.packet(&[FLOW]) {
            Fate::Process => self.process(replica, packet),
            Fate::Buffer(_) if self.broken == Some(Broken::NoBuffer) => {
                self.process(replica, packet);
            }
            Fate::Buffer(id) => {
                self.was_buffered = true;
                worker.buffers.entry(id).or_default().push_back(packet);
            }
            Fate::Wait => self.wrong = Some("a packet was taken that was to wait"),
        }
    }

    fn process(&mut self, replica: u16, packet: Packet) {
        let (director, number) = packet;
        if !self.processed.insert(packet) {
            self.wrong = Some("a packet is processed twice");
        }
        let later = |(by, later): &Packet| *by == director && *later > number;
        if !self.hurried && self.processed.iter().any(later) {
            self.wrong = Some("a packet is processed out of order");
        }
        let other = &self.workers[usize::from(1 - replica)];
        if !self.hurried && other.table.contains_key(&FLOW) {
            self.wrong = Some("the flow is at two places");
        }
        let table = &self.workers[usize::from(replica)].table;
        if !self.hurried && !table.contains_key(&FLOW) && self.is_kept() {
            self.wrong = Some("the flow begins anew though somebody living has its state");
        }
        let flow = self.workers[usize::from(replica)].table.entry(FLOW).or_default();
        flow.push(packet);
        if !self.harmed && !self.hurried && flow.len() != self.processed.len() {
            self.wrong = Some("the flow begins anew though its state is elsewhere");
        }
    }

    /// Somebody living has a copy of the flow, or it is on its way between two of them.
    fn is_kept(&self) -> bool {
        let here = |flows: &Flows| flows.contains_key(&FLOW);
        let copies = self.workers.iter().filter(|w| !w.gone).flat_map(|w| w.copies.values());
        let messages = self.messages.values().flatten().filter_map(|message| match message {
            Message::State(_, flows) => Some(flows),
            _ => None,
        });
        copies.chain(messages).any(here)
    }

    fn send(&mut self, from: Party, to: Party, mut message: Message<u8, Flows>) {
        if let Message::Tell(_, told) = &mut message {
            told.more &= self.broken != Some(Broken::TellsOnce);
        }
        let gone =
            |party| matches!(party, Party::Replica(me) if self.workers[usize::from(me)].gone);
        match &mut self.sends {
            Some(0) => return,
            Some(left) => *left -= 1,
            None => {}
        }
        if !gone(from) && !gone(to) {
            self.messages.entry((from, to)).or_default().push_back(message);
        }
    }

    fn effects(&mut self, me: u16, effects: Vec<Effect<u8, Flows>>) {
        for effect in effects {
            let worker = &mut self.workers[usize::from(me)];
            match effect {
                Effect::Send(to, message) => self.send(Party::Replica(me), to, message),
                Effect::HandOver(id, to, parts) | Effect::HandAgain(id, to, parts) => {
                    worker.here = false;
                    let table = &mut worker.table;
                    let copy = worker.copies.entry(id).or_insert_with(|| {
                        table.extract_if(.., |key, _| parts.contains(key)).collect()
                    });
                    let state = Message::State(id, copy.clone());
                    self.send(Party::Replica(me), Party::Replica(to), state);
                }
                Effect::TakeBack(id) => {
                    worker.table.extend(worker.copies.remove(&id).unwrap_or_default());
                }
                Effect::Adopt(_, flows) => {
                    for (key, flow) in flows {
                        if !self.hurried && worker.table.contains_key(&key) {
                            self.wrong = Some("the target had the flow already");
                        }
                        // What has begun anew stays.
                        worker.table.entry(key).or_insert(flow);
                    }
                }
                Effect::Release(id) | Effect::Overdue(id) => {
                    worker.here |= matches!(effect, Effect::Release(_));
                    for packet in worker.buffers.remove(&id).unwrap_or_default() {
                        self.process(me, packet);
                    }
                }
                Effect::Moved(id) => {
                    worker.copies.remove(&id);
                    self.moved += 1;
                }
                // What was ordered is tried again.
                Effect::Failed(..) => worker.ordered |= me == 1 && self.ordered,
            }
        }
    }

    fn director_effects(&mut self, me: u16, effects: Vec<DirectorEffect<u8, Flows>>) {
        for effect in effects {
            match effect {
                DirectorEffect::Send(to, message) => self.send(Party::Director(me), to, message),
                DirectorEffect::Marker(to, id) => {
                    let ring = self.rings.entry((me, to)).or_default();
                    match self.broken {
                        Some(Broken::MarkerFirst) => ring.push_front(Item::Marker(id)),
                        _ => ring.push_back(Item::Marker(id)),
                    }
                }
                // The machine's own memory serves as the table here.
                DirectorEffect::Divert(..) | DirectorEffect::Undivert(_) => {}
            }
        }
    }

    /// Nothing is left to do: is all as it should be?
    pub fn is_well(&self, case: &Case) -> bool {
        let there = || self.workers.iter().filter(|worker| !worker.gone);
        let quiet = there().all(|worker| {
            worker.machine.is_quiet()
                && worker.machine.overdue() == 0
                && worker.buffers.is_empty()
                && worker.copies.is_empty()
        });
        let sent = self.sent.iter().all(|sent| *sent == case.packets);
        let all = usize::from(case.packets) * usize::from(case.directors);
        let every = self.processed.len() + self.lost.len() == all;
        let places = there().filter(|worker| worker.table.contains_key(&FLOW)).count();
        let whole = there().filter_map(|worker| worker.table.get(&FLOW)).any(|f| f.len() == all);
        // Directors agree, and what has come home is forgotten.
        let ways: BTreeSet<u16> =
            self.directors.iter().map(|d| d.diverted(&FLOW).unwrap_or(self.home())).collect();
        // Nor is it a guest at its home, whoever died.
        let gone = self.workers.iter().any(|worker| worker.gone);
        let no_guest = gone || self.workers[0].machine.guests() == 0;
        // Who was ordered to send away all that it has, and has been through with it, has nothing.
        let obeyed = !case.ordered
            || self.moved == 0
            || (ways.contains(&0) && !self.workers[1].table.contains_key(&FLOW));
        let at_home =
            !case.back || self.moved < 2 || self.directors.iter().all(|d| d.exceptions() == 0);
        let whole = whole || self.hurried;
        // What comes after nobody waited for it any more a director that was started anew may hear of too late.
        let split = self.hurried && self.deaths > 0;
        quiet
            && sent
            && every
            && no_guest
            && obeyed
            && ways.len() == 1
            && (self.harmed || (self.lost.is_empty() && (places == 1 || split) && whole && at_home))
            && (places <= 1 || split)
    }
}
