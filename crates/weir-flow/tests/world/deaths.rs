//! Deaths in the world: what is lost with whoever dies, and what its successor begins with.

use super::{Broken, Case, Flows, Item, Worker, World, limits};
use std::collections::BTreeMap;
use weir_flow::{Party, Replica};

impl World {
    pub(super) fn lose(&mut self, case: &Case, dead: Party) {
        if case.lossy {
            self.messages.retain(|(_, to), _| *to != dead);
        }
    }

    /// What a replica had in its hands is lost; rings and channels stay.
    pub(super) fn die(&mut self, case: &Case, me: u16) {
        self.deaths += 1;
        self.harmed |= !case.durable;
        self.lose(case, Party::Replica(me));
        let life = self.workers[usize::from(me)].life + 1;
        let (mut machine, effects) =
            Replica::restarted(me, life, self.living(), 0..case.directors, limits(case));
        self.ordered &= me != 1;
        let (mut table, mut copies, mut here) = (Flows::new(), BTreeMap::new(), me == 0);
        if case.durable {
            let old = &self.workers[usize::from(me)];
            let (mut taken, mut handing) = (old.machine.taken().clone(), Vec::new());
            if self.broken != Some(Broken::LosesCopies) {
                handing = old.machine.handing().map(|(id, going)| (id, going.clone())).collect();
                copies = old.copies.clone();
            }
            if self.broken == Some(Broken::LosesTaken) {
                taken.clear();
            }
            table = old.table.clone();
            let moved = old.machine.moved_here();
            let mut guests: Vec<_> = moved.map(|(part, by)| (*part, by)).collect();
            // What has come home is no guest there; who would have said so may have said it to the earlier life.
            guests.retain(|_| me != self.home() && self.broken != Some(Broken::LosesGuests));
            here |= !guests.is_empty();
            if !machine.resume(taken, handing, guests) {
                self.wrong = Some("what a sound one has committed is refused");
            }
        }
        let new = Worker {
            machine,
            life,
            gone: false,
            here,
            ordered: false,
            table,
            copies,
            buffers: BTreeMap::new(),
        };
        let old = std::mem::replace(&mut self.workers[usize::from(me)], new);
        self.lost.extend(old.buffers.into_values().flatten());
        self.effects(me, effects);
    }

    /// A replica goes for good: its rings and what it said go with it, and all others are told.
    pub(super) fn go(&mut self, me: u16) {
        let worker = &mut self.workers[usize::from(me)];
        self.harmed = true;
        worker.gone = true;
        worker.table.clear();
        let buffers = std::mem::take(&mut worker.buffers);
        self.lost.extend(buffers.into_values().flatten());
        let (party, mut rings) = (Party::Replica(me), std::mem::take(&mut self.rings));
        self.messages.retain(|(from, to), _| *from != party && *to != party);
        for (_, ring) in rings.extract_if(.., |(_, to), _| *to == me) {
            let packets = ring.into_iter().filter_map(|item| match item {
                Item::Packet(packet) => Some(packet),
                Item::Marker(_) => None,
            });
            self.lost.extend(packets);
        }
        self.rings = rings;
        for director in 0..self.directors.len() {
            let effects = self.directors[director].gone(me);
            self.director_effects(director as u16, effects);
        }
        let effects = self.workers[usize::from(1 - me)].machine.gone(me);
        self.effects(1 - me, effects);
    }
}
