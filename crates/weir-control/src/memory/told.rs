//! What a worker is told at its start, and the descriptors that go with it.

use super::{Memory, MemoryError, WorkerMemory, secret};
use crate::setup::{ArraySetup, LaneCarries, LaneSetup, Setup};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use weir_runtime::layout::Layout;
use weir_runtime::spec::{
    ArraySpec, CarriesSpec, EndSpec, Fd, HomeSpec, LaneInSpec, LaneOutSpec, PROTOCOL_VERSION,
    ReturnSpec, WorkerSpec,
};

enum Handed<'f> {
    Lent(BorrowedFd<'f>),
    Given(OwnedFd),
}

/// Descriptors that go with a message.
#[derive(Default)]
pub(crate) struct FdList<'f>(Vec<Handed<'f>>);

impl<'f> FdList<'f> {
    pub(super) fn lend(&mut self, fd: BorrowedFd<'f>) -> Fd {
        self.0.push(Handed::Lent(fd));
        (self.0.len() - 1) as Fd
    }

    pub(super) fn give(&mut self, fd: OwnedFd) -> Fd {
        self.0.push(Handed::Given(fd));
        (self.0.len() - 1) as Fd
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = Vec::with_capacity(self.0.len());
        for handed in &self.0 {
            fds.push(match handed {
                Handed::Lent(fd) => *fd,
                Handed::Given(fd) => fd.as_fd(),
            });
        }
        fds
    }
}

/// The doorbells that one worker is lent: its own, and of those whom it wakes. With any other it could steal
/// wake-ups, or keep others awake, in domains that are not its own.
struct Bells<'f> {
    of: &'f [WorkerMemory],
    /// By worker: where its bell is in the list.
    lent: BTreeMap<usize, Fd>,
}

impl<'f> Bells<'f> {
    fn lend(&mut self, fds: &mut FdList<'f>, w: usize) -> Fd {
        *self.lent.entry(w).or_insert_with(|| fds.lend(self.of[w].bell.fd()))
    }
}

impl Memory {
    /// What worker `w` is told, with the descriptors that go with it; `packets` is its packet socket.
    pub(crate) fn spec<'a>(
        &'a self,
        setup: &'a Setup,
        w: usize,
        fault: Option<(u32, u32)>,
        packets: Option<BorrowedFd<'a>>,
    ) -> Result<(WorkerSpec, FdList<'a>), MemoryError> {
        let worker = &setup.workers[w];
        let own = &self.workers[w];
        let mut fds = FdList::default();
        let mut bells = Bells { of: &self.workers, lent: BTreeMap::new() };
        let crosses = worker.takes_from != worker.domain;
        let bits = self.pool_bits;
        let writable = worker.writable && !crosses;
        let arena = self.domains[worker.takes_from].hand_out(&mut fds, writable, bits)?;
        let outward = match crosses {
            true => Some(self.domains[worker.domain].hand_out(&mut fds, true, bits)?),
            false => None,
        };
        let mut ends = Vec::new();
        for (source, end) in self.ends.iter().enumerate() {
            let own =
                matches!(worker.end, EndSpec::Rx { source: s, .. } if source == usize::from(s));
            ends.push(if own { fds.lend(end.fd()) } else { fds.give(end.read_only_fd()?) });
        }
        let leader = setup.leader(w);
        let muster = match leader.and_then(|l| self.musters.get(l)?.as_ref()) {
            Some(region) if leader == Some(w) => Some(fds.lend(region.fd())),
            Some(region) => Some(fds.give(region.read_only_fd()?)),
            None => None,
        };
        let mut arrays = Vec::new();
        for &array in &worker.arrays {
            let origins = self.origins.get(array).and_then(Option::as_ref);
            let origins = origins.map(|region| region.read_only_fd()).transpose()?;
            let ArraySetup { ports, places } = setup.arrays[array].clone();
            arrays.push(ArraySpec { ports, places, origins: origins.map(|fd| fds.give(fd)) });
        }
        let learns = worker.learns.and_then(|array| self.origins.get(array)?.as_ref());
        let learns = learns.map(|region| fds.lend(region.fd()));
        let (mut lanes_in, mut lanes_out) = (Vec::new(), Vec::new());
        // A lane's place among those of its producer, or of its consumer.
        let place = |of: fn(&LaneSetup) -> usize, lane: usize| {
            setup.lanes.iter().take(lane).filter(|l| of(l) == w).count() as u16
        };
        for (lane, ring) in setup.lanes.iter().zip(&self.lanes) {
            if lane.to == w {
                let bell = bells.lend(&mut fds, lane.from);
                let ring = ring.hand_out(&mut fds, false)?;
                let LaneSetup { source, node, input, side, back, .. } = *lane;
                let carries = match lane.carries {
                    LaneCarries::Packets => CarriesSpec::Packets,
                    LaneCarries::Loans { .. } => CarriesSpec::Loans,
                    LaneCarries::Answers { on, drops_lost } => {
                        CarriesSpec::Answers { on: place(|l| l.to, on), drops_lost }
                    }
                };
                lanes_in.push(LaneInSpec { ring, bell, source, node, input, side, back, carries });
            }
            if lane.from == w {
                let bell = bells.lend(&mut fds, lane.to);
                let ring = ring.hand_out(&mut fds, true)?;
                let LaneSetup { source, edge, ordered, closes, back, .. } = *lane;
                let lends = match lane.carries {
                    LaneCarries::Loans { of } => Some(place(|l| l.from, of)),
                    LaneCarries::Packets | LaneCarries::Answers { .. } => None,
                };
                lanes_out.push(LaneOutSpec {
                    ring,
                    bell,
                    source,
                    edge,
                    ordered,
                    closes,
                    back,
                    lends,
                });
            }
        }
        let mut returns = Vec::new();
        for back in &own.returns {
            let bell = bells.lend(&mut fds, self.pools[back.pool].worker);
            returns.push(ReturnSpec { ring: back.ring.hand_out(&mut fds, true)?, bell });
        }
        let home = match self.pools.iter().position(|p| p.worker == w) {
            Some(p) => {
                let pool = &self.pools[p];
                let mut rings = vec![pool.allocation.hand_out(&mut fds, false)?];
                let mut own = None;
                for (o, back) in self.returns_to(p) {
                    if o == w {
                        own = Some(rings.len() as u16);
                    }
                    rings.push(back.hand_out(&mut fds, false)?);
                }
                let len = 1 << self.pool_bits;
                Some(HomeSpec { first: pool.first, len, rings, own, divides: setup.shares(w) > 1 })
            }
            None => None,
        };
        let crews = self.crews.tell(setup, w, &mut fds, &mut |fds, w| bells.lend(fds, w))?;
        let spec = WorkerSpec {
            protocol: PROTOCOL_VERSION,
            layout: weir_mem::meta::LAYOUT_VERSION,
            catalogue: weir_runtime::outside::catalogue(),
            name: worker.name.clone(),
            owner: w as u32 + 1,
            sources: setup.sources,
            source_ports: setup.source_ports.clone(),
            arena,
            outward,
            ends,
            lanes_in,
            lanes_out,
            returns,
            home,
            commands: own.commands.hand_out(&mut fds, false)?,
            bell: bells.lend(&mut fds, w),
            followers: setup.followers(w).map(|f| bells.lend(&mut fds, f)).collect(),
            muster,
            ledger: fds.lend(own.ledger_region.fd()),
            nodes: worker.nodes.clone(),
            edges: worker.edges.clone(),
            groups: setup.groups.clone(),
            crews,
            arrays,
            learns,
            branch: worker.branch,
            beside: worker.beside,
            end: worker.end.clone(),
            device: packets.or(setup.device(w).map(AsFd::as_fd)).map(|fd| fds.lend(fd)),
            clear_tags: setup.clear_tags,
            seed: setup.seed,
            secret: own.replica.as_ref().map_or_else(secret, |_| own.secret),
            schedule: worker.schedule.clone(),
            live: setup.is_live(),
            hold_most: setup.hold_most(),
            standby: false,
            handover: own.handover.as_ref().map(|h| fds.lend(h.fd())),
            state: own.state.as_ref().map(|s| fds.lend(s.fd())),
            replica: own.replica.as_ref().map(|r| fds.lend(r.fd())),
            sandbox: None,
            careful: worker.careful.clone(),
            fault,
            attack: worker.attack,
        };
        debug_assert_eq!(Layout::of(&spec), own.layout);
        Ok((spec, fds))
    }
}
