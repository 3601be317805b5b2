//! A director: who sends each packet to a replica.

use crate::message::{Message, MoveId, Party, Route, Stage, Told};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// What a director's driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DirectorEffect<K: Ord, R> {
    /// Send a message.
    Send(Party, Message<K, R>),
    /// From now on packets of a part go to a replica.
    Divert(K, u16),
    /// From now on packets of a part go where its bucket goes.
    Undivert(K),
    /// Put a marker into the ring to a replica, behind the packets that are in it.
    Marker(u16, MoveId),
}

/// The exceptions of a director. It does not know every flow, only parts that do not go where their
/// bucket does: at most as many as all replicas take ([`Limits::guests`](crate::Limits::guests)).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Director<K: Ord> {
    life: u32,
    replicas: BTreeSet<u16>,
    routes: BTreeMap<K, Route>,
    /// By migration that is not over: the parts whose routes say so. To look at these when it is over, not at all routes.
    unsettled: BTreeMap<MoveId, BTreeSet<K>>,
    /// Since all routes were looked at.
    since: Since,
    /// By migration of which some parts are forgotten, as they are at home, and others are not: its target, which is to hear that all are
    /// when none is left, and how many are left.
    partly: BTreeMap<MoveId, (u16, usize)>,
    /// Replicas that have not told yet.
    unheard: BTreeSet<u16>,
    /// While that is so: migrations of which their sources have told or asked,
    known: BTreeSet<MoveId>,
    /// and those of which only the target has told, with it: how they stand is heard from one of both.
    open: BTreeMap<MoveId, u16>,
    /// The highest number of a migration that is known here.
    clock: u64,
    /// Exceptions, at most.
    most: usize,
}

/// Whether all routes are looked at again, and when. Sooner or later does the same: two directors that differ in the count
/// alone are equal, so that whoever explores all states does not meet each once for every count.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    /// Migrations that were over since.
    settled: usize,
    /// What parts go by that were not moved themselves has changed since: some of them may have come home by it. Else nothing has but what
    /// migrations name.
    stale: bool,
}

impl PartialEq for Since {
    fn eq(&self, other: &Self) -> bool {
        self.stale == other.stale
    }
}

impl Eq for Since {}

impl Hash for Since {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.stale.hash(state);
    }
}

/// Migrations of one source that are not over, as far as is known here, at most: many times as many as a sound one has under way. Of more the
/// oldest count as over: their source has died since, or is none that could be waited for.
const OPEN: usize = 256;

impl<K: Ord + Clone + Debug> Director<K> {
    /// A director that has sent nothing yet, in front of these replicas.
    #[must_use]
    pub fn new(replicas: impl IntoIterator<Item = u16>) -> Self {
        let replicas = replicas.into_iter().collect();
        Director {
            life: 0,
            replicas,
            routes: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            since: Since::default(),
            partly: BTreeMap::new(),
            unheard: BTreeSet::new(),
            known: BTreeSet::new(),
            open: BTreeMap::new(),
            clock: 0,
            most: usize::MAX,
        }
    }

    /// One in place of a director that died, in a life that none of this number had: it sends nothing until all replicas have told it what
    /// was moved.
    #[must_use]
    pub fn restarted<R>(
        life: u32,
        replicas: impl IntoIterator<Item = u16>,
    ) -> (Self, Vec<DirectorEffect<K, R>>) {
        let mut new = Director { life, ..Self::new(replicas) };
        new.unheard = new.replicas.clone();
        let hello = |to: &u16| DirectorEffect::Send(Party::Replica(*to), Message::Hello(life));
        let effects = new.replicas.iter().map(hello).collect();
        (new, effects)
    }

    /// Bounds its exceptions. A request that would lead to more is passed over: no sound replica's
    /// does, as each takes a bounded number of guests.
    #[must_use]
    pub fn with_most(self, most: usize) -> Self {
        Director { most, ..self }
    }

    /// True when packets may be sent on.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unheard.is_empty() && self.open.is_empty()
    }

    /// Where a part goes, if not where its bucket does.
    #[must_use]
    pub fn diverted(&self, part: &K) -> Option<u16> {
        self.routes.get(part).map(|route| route.to)
    }

    /// Exceptions.
    #[must_use]
    pub fn exceptions(&self) -> usize {
        self.routes.len()
    }

    /// Takes in a message. `home` says where a part's bucket goes; it is given where this director sends a part, if not where its
    /// bucket goes: a bucket may have been moved itself.
    pub fn message<R>(
        &mut self,
        from: Party,
        message: Message<K, R>,
        home: impl Fn(&K, &dyn Fn(&K) -> Option<u16>) -> u16,
    ) -> Vec<DirectorEffect<K, R>> {
        let mut effects = Vec::new();
        let Party::Replica(replica) = from else { return effects };
        // These end no migration: what is remembered stays.
        let mut keeps = self.is_ready()
            && matches!(message, Message::Switch { .. } | Message::Hello(_) | Message::Where(_));
        if let Message::Switch { parts, .. } | Message::Arrived { parts, .. } = &message {
            self.since.stale = self.since.stale || parts.iter().any(|part| leads(part, &home));
        }
        match message {
            Message::Hello(life) => {
                let routes = self.routes.iter().map(|(part, route)| {
                    let home = home(part, &|part| self.diverted(part)) == route.to;
                    (part.clone(), Route { home, ..route.clone() })
                });
                let told = Told { routes: routes.collect(), ..Told::default() };
                effects.push(DirectorEffect::Send(from, Message::Tell(life, told)));
                if self.unheard.contains(&replica) {
                    // What this one asked may have died with the replica's earlier life.
                    effects.push(DirectorEffect::Send(from, Message::Hello(self.life)));
                }
                self.ask_again(replica, &mut effects);
            }
            Message::Tell(life, told) if life == self.life => {
                self.told(replica, told, &mut effects);
            }
            Message::Tell(..) => {}
            // What it said before it told what it knows is in that.
            _ if self.unheard.contains(&replica) => {}
            Message::Switch { id, parts, to } => self.switch(id, parts, to, &mut effects),
            Message::Arrived { id, parts } => {
                self.open.remove(&id);
                let may = self.may_come(id, parts.len());
                for part in parts.into_iter().filter(|_| may) {
                    self.divert(part, replica, id, false, &mut effects);
                }
            }
            Message::Dropped(id) => {
                self.open.remove(&id);
            }
            Message::Settled { id, .. } => keeps = self.settle(id, &home, &mut effects),
            // Who does not know it yet says nothing: where packets go is asked again.
            Message::Where(part) if self.is_ready() => {
                let diverted = |part: &K| self.diverted(part);
                let to = diverted(&part).unwrap_or_else(|| home(&part, &diverted));
                effects.push(DirectorEffect::Send(from, Message::There(part, to)));
            }
            _ => {}
        }
        if self.is_ready() && !keeps {
            self.known.clear();
            self.forget(home, &mut effects);
        }
        effects
    }

    /// A migration is over. Forgets those of its parts that are at home; false when all parts have to be looked at for that, as what has come
    /// home because its bucket did is no part of this one: if any bucket was moved since, when no other migration is under way, and now and
    /// then else. A look at all of some ten thousand takes longer than packets should wait.
    fn settle<R>(
        &mut self,
        id: MoveId,
        home: &impl Fn(&K, &dyn Fn(&K) -> Option<u16>) -> u16,
        effects: &mut Vec<DirectorEffect<K, R>>,
    ) -> bool {
        let parts = self.close(id);
        self.since.settled += 1;
        let is_due = self.unsettled.is_empty() || self.since.settled >= self.routes.len();
        if !self.is_ready() {
            // Nobody looks at its parts now.
            self.since.stale = true;
            return false;
        }
        if self.since.stale && is_due {
            return false;
        }
        let routes = parts.iter().filter_map(|part| Some((part, self.routes.get(part)?)));
        let (gone, stays): (Vec<_>, Vec<_>) =
            routes.partition(|(part, route)| self.is_over(part, route, home));
        if gone.iter().any(|(_, route)| route.by != id) {
            // Others may have come with the same, later migration.
            return false;
        }
        if !gone.is_empty() && stays.iter().any(|(_, route)| route.by == id) {
            // How many stay is to be known of all routes.
            return false;
        }
        let to = gone.first().map(|(_, route)| route.to);
        let gone: Vec<K> = gone.into_iter().map(|(part, _)| part.clone()).collect();
        for part in gone {
            self.routes.remove(&part);
            effects.push(DirectorEffect::Undivert(part));
        }
        // As in `forget`.
        if let Some(to) = to {
            self.partly.remove(&id);
            let letter = Message::Settled { id, home: true };
            effects.push(DirectorEffect::Send(Party::Replica(to), letter));
        }
        true
    }

    /// Of a migration nobody asks for anything any more; its parts.
    fn close(&mut self, id: MoveId) -> BTreeSet<K> {
        let parts = self.unsettled.remove(&id).unwrap_or_default();
        for part in &parts {
            if let Some(route) = self.routes.get_mut(part) {
                route.unsettled.remove(&id);
            }
        }
        parts
    }

    /// The migrations of a source that are not over.
    fn open_of(&self, source: u16) -> impl Iterator<Item = MoveId> {
        let first = MoveId { source, life: 0, number: 0 };
        let last = MoveId { source, life: u32::MAX, number: u64::MAX };
        self.unsettled.range(first..=last).map(|(id, _)| *id)
    }

    /// True for a part that goes where its bucket does, and of which no source can ask for anything else.
    fn is_over(
        &self,
        part: &K,
        route: &Route,
        home: &impl Fn(&K, &dyn Fn(&K) -> Option<u16>) -> u16,
    ) -> bool {
        route.unsettled.is_empty() && home(part, &|part| self.diverted(part)) == route.to
    }

    /// Takes a route away, with what is known of its migrations.
    fn unroute(&mut self, part: &K) -> Option<Route> {
        let route = self.routes.remove(part)?;
        for id in &route.unsettled {
            if let Some(parts) = self.unsettled.get_mut(id) {
                parts.remove(part);
                if parts.is_empty() {
                    self.unsettled.remove(id);
                }
            }
        }
        Some(route)
    }

    /// Forgets what is at home, when no source can ask for it again: an old request that comes late
    /// must find what is newer than it.
    fn forget<R>(
        &mut self,
        home: impl Fn(&K, &dyn Fn(&K) -> Option<u16>) -> u16,
        effects: &mut Vec<DirectorEffect<K, R>>,
    ) {
        self.since = Since::default();
        let is_home = |(part, route): &(&K, &Route)| self.is_over(part, route, &home);
        let parts = self.routes.iter().filter(is_home).map(|(part, _)| part.clone());
        let parts: Vec<K> = parts.collect();
        let forgotten = parts.into_iter().filter_map(|part| self.routes.remove_entry(&part));
        let forgotten: Vec<_> = forgotten.collect();
        if forgotten.is_empty() {
            return;
        }
        // Of a migration of many parts this is said once, and not while some of them are not at home.
        let mut left: BTreeMap<MoveId, usize> = BTreeMap::new();
        self.routes.values().for_each(|route| *left.entry(route.by).or_default() += 1);
        let mut told = BTreeSet::new();
        for (part, route) in forgotten {
            effects.push(DirectorEffect::Undivert(part));
            if let Some(left) = left.get(&route.by) {
                self.partly.insert(route.by, (route.to, *left));
                continue;
            }
            self.partly.remove(&route.by);
            if !told.insert(route.by) {
                continue;
            }
            // Who would have said so may have died, and the target remembers a guest until it hears.
            let settled = Message::Settled { id: route.by, home: true };
            effects.push(DirectorEffect::Send(Party::Replica(route.to), settled));
        }
    }

    /// A replica is gone for good: what was moved to it goes where its buckets go.
    pub fn gone<R>(&mut self, replica: u16) -> Vec<DirectorEffect<K, R>> {
        self.replicas.remove(&replica);
        self.unheard.remove(&replica);
        self.since.stale = true;
        self.open.retain(|_, target| *target != replica);
        self.partly.retain(|_, (to, _)| *to != replica);
        // It asks for nothing any more.
        let own: Vec<MoveId> = self.open_of(replica).collect();
        own.into_iter().for_each(|id| drop(self.close(id)));
        let to_it = self.routes.iter().filter(|(_, route)| route.to == replica);
        let lost: Vec<K> = to_it.map(|(part, _)| part.clone()).collect();
        lost.iter().for_each(|part| drop(self.unroute(part)));
        lost.into_iter().map(DirectorEffect::Undivert).collect()
    }

    /// After a restart: replicas of which is not known yet what they know, or how what comes to them ends.
    pub fn unheard(&self) -> BTreeSet<u16> {
        self.unheard.iter().chain(self.open.values()).copied().collect()
    }

    /// Waits no longer for what a replica is to tell: packets go on as if it had told that it knows nothing.
    pub fn go_on_without(&mut self, replica: u16) {
        self.unheard.remove(&replica);
        self.open.retain(|_, target| *target != replica);
    }

    /// A replica was started anew of which this director waited to hear how migrations end: that is
    /// forgotten there, so it is asked what it knows now.
    fn ask_again<R>(&mut self, replica: u16, effects: &mut Vec<DirectorEffect<K, R>>) {
        let before = self.open.len();
        self.open.retain(|_, target| *target != replica);
        if self.open.len() < before {
            self.unheard.insert(replica);
            let hello = Message::Hello(self.life);
            effects.push(DirectorEffect::Send(Party::Replica(replica), hello));
        }
    }

    fn switch<R>(
        &mut self,
        id: MoveId,
        parts: BTreeSet<K>,
        to: u16,
        effects: &mut Vec<DirectorEffect<K, R>>,
    ) {
        if !self.may_come(id, parts.len()) {
            return;
        }
        self.open.remove(&id);
        if !self.is_ready() {
            self.known.insert(id);
        }
        if !self.unsettled.contains_key(&id) && self.open_of(id.source).count() >= OPEN {
            let oldest = self.open_of(id.source).next();
            oldest.into_iter().for_each(|id| drop(self.close(id)));
            // Its parts are not looked at as those of one that is over are.
            self.since.stale = true;
        }
        for part in parts {
            if self.replicas.contains(&to) {
                self.divert(part, to, id, true, effects);
            } else if let Some(route) = self.unroute(&part) {
                // The target went before it was asked for.
                effects.push(DirectorEffect::Undivert(part));
                self.part_left(route.by, effects);
            }
        }
        effects.push(DirectorEffect::Marker(id.source, id));
    }

    /// True for a migration of so many parts that can be: there is room for them, and its number is none that no
    /// later one could follow.
    fn may_come(&mut self, id: MoveId, parts: usize) -> bool {
        let may = id.can_follow(self.clock) && self.routes.len().saturating_add(parts) <= self.most;
        if may {
            self.clock = self.clock.max(id.number);
        }
        may
    }

    /// Sends a part elsewhere, unless a later migration has done so. `open`: its source may ask again.
    fn divert<R>(
        &mut self,
        part: K,
        to: u16,
        id: MoveId,
        open: bool,
        effects: &mut Vec<DirectorEffect<K, R>>,
    ) {
        let new = || Route { to, by: id, unsettled: BTreeSet::new(), home: false };
        let route = self.routes.entry(part.clone()).or_insert_with(new);
        if open && route.unsettled.insert(id) {
            self.unsettled.entry(id).or_default().insert(part.clone());
        }
        if !route.by.is_later(id) {
            let before = std::mem::replace(&mut route.by, id);
            route.to = to;
            effects.push(DirectorEffect::Divert(part, to));
            if before != id {
                self.part_left(before, effects);
            }
        }
    }

    /// A part goes no more where this migration brought it. If it was the last that was not at home, all that it brought are.
    fn part_left<R>(&mut self, id: MoveId, effects: &mut Vec<DirectorEffect<K, R>>) {
        let Some((to, left)) = self.partly.get_mut(&id) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let letter = Message::Settled { id, home: true };
            effects.push(DirectorEffect::Send(Party::Replica(*to), letter));
            self.partly.remove(&id);
        }
    }

    /// What a replica says that this director's earlier life knew.
    fn told<R>(&mut self, replica: u16, told: Told<K>, effects: &mut Vec<DirectorEffect<K, R>>) {
        if !self.unheard.remove(&replica) {
            return;
        }
        self.since.stale = true;
        let clock = self.clock;
        for (part, by) in told.guests {
            if by.can_follow(clock) && self.routes.len() < self.most {
                self.clock = self.clock.max(by.number);
                self.divert(part, replica, by, false, effects);
            }
        }
        for (id, going) in told.going {
            self.open.remove(&id);
            self.known.insert(id);
            if going.stage != Stage::Preparing {
                self.switch(id, going.parts, going.to, effects);
            }
        }
        for (id, ..) in told.coming {
            if !self.known.contains(&id) && self.replicas.contains(&id.source) {
                self.open.insert(id, replica);
            }
        }
    }
}

/// True for a part by which others may go, as a bucket's flows do: its own home is that of no other part.
fn leads<K>(part: &K, home: &impl Fn(&K, &dyn Fn(&K) -> Option<u16>) -> u16) -> bool {
    let asked = Cell::new(false);
    home(part, &|_| {
        asked.set(true);
        None
    });
    !asked.get()
}
