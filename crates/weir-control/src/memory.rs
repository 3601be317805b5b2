//! All shared memory of a running graph, as the agent holds it: it keeps every descriptor, so a
//! worker's death takes none away.

use crate::setup::Setup;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_mem::entry::CarriesBuffer;
use weir_mem::shared::Plain;
use weir_mem::{ArenaShape, Entry, Ledger, Owners, Producer, Region, RegionError};
use weir_mem::{RingInspector, RingShape};
use weir_port::{Doorbell, DoorbellError};
use weir_runtime::layout::Layout;
use weir_runtime::link::LinkError;
use weir_runtime::spec::{
    ArenaSpec, Fd, HomeSpec, LaneInSpec, LaneOutSpec, PROTOCOL_VERSION, RingSpec, WorkerSpec,
};

/// Why the graph's memory could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A region.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A doorbell.
    #[error(transparent)]
    Doorbell(#[from] DoorbellError),
    /// A message.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A ring with both its memories.
pub(crate) struct Ring<E> {
    producer: Region,
    consumer: Region,
    shape: RingShape<E>,
    pub(crate) inspector: RingInspector<E>,
}

impl<E: Plain + CarriesBuffer> Ring<E> {
    fn new(name: &str, capacity: u32) -> Result<Self, RegionError> {
        let shape = RingShape::at_least(capacity);
        let (producer, consumer) = shape.create(name)?;
        let inspector = RingInspector::attach(shape, &producer, &consumer)?;
        Ok(Ring { producer, consumer, shape, inspector })
    }

    /// The agent's own producing end.
    pub(crate) fn produce(&self) -> Result<Producer<E>, RegionError> {
        Producer::attach(self.shape, &self.producer, &self.consumer)
    }

    /// Descriptors for the end that produces (or consumes): its own memory writable, the other's
    /// read-only.
    fn hand_out<'f>(
        &'f self,
        fds: &mut FdList<'f>,
        produces: bool,
        bell: Fd,
    ) -> Result<RingSpec, RegionError> {
        let capacity = self.shape.capacity();
        let (producer, consumer) = if produces {
            (fds.lend(self.producer.fd()), fds.give(self.consumer.read_only_fd()?))
        } else {
            (fds.give(self.producer.read_only_fd()?), fds.lend(self.consumer.fd()))
        };
        Ok(RingSpec { capacity, producer, consumer, bell })
    }
}

enum Handed<'f> {
    Lent(BorrowedFd<'f>),
    Given(OwnedFd),
}

/// Descriptors that go with a message.
#[derive(Default)]
pub(crate) struct FdList<'f>(Vec<Handed<'f>>);

impl<'f> FdList<'f> {
    fn lend(&mut self, fd: BorrowedFd<'f>) -> Fd {
        self.0.push(Handed::Lent(fd));
        (self.0.len() - 1) as Fd
    }

    fn give(&mut self, fd: OwnedFd) -> Fd {
        self.0.push(Handed::Given(fd));
        (self.0.len() - 1) as Fd
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

/// A worker's own memory.
pub(crate) struct WorkerMemory {
    pub(crate) ledger: Ledger,
    ledger_region: Region,
    pub(crate) layout: Layout,
    pub(crate) bell: Doorbell,
    commands: Ring<u32>,
    pub(crate) command: Producer<u32>,
    /// Ways back to each pool.
    pub(crate) returns: Vec<Ring<u32>>,
}

/// A home pool, as the agent sees it.
pub(crate) struct Pool {
    /// Index of the worker whose it is.
    pub(crate) worker: usize,
    /// Its worker died and has no successor: what its ledger says of its stack is over.
    pub(crate) abandoned: bool,
    pub(crate) allocation: Ring<u32>,
    pub(crate) give: Producer<u32>,
}

/// Everything.
pub(crate) struct Memory {
    shape: ArenaShape,
    pool_bits: u32,
    data: Region,
    meta: Region,
    owners_region: Region,
    pub(crate) owners: Owners,
    pub(crate) lanes: Vec<Ring<Entry>>,
    /// By lane: index of the first entry that no death has been charged with.
    pub(crate) written_off: Vec<u64>,
    pub(crate) workers: Vec<WorkerMemory>,
    pub(crate) pools: Vec<Pool>,
    agent_bell: Doorbell,
}

impl Memory {
    pub(crate) fn new(setup: &Setup) -> Result<Self, MemoryError> {
        let homes: Vec<usize> =
            (0..setup.workers.len()).filter(|&w| setup.workers[w].has_home()).collect();
        let pool_len = 1u32 << setup.sizes.pool_bits;
        let shape = ArenaShape::new((homes.len() as u32).max(1) * pool_len, setup.sizes.packet);
        let data = Region::create_huge("weir/data", shape.data_len())?;
        let meta = Region::create("weir/meta", shape.meta_len())?;
        let owners_region = Region::create("weir/owners", shape.owners_len())?;
        let owners = Owners::attach(&owners_region, shape.buffers())?;
        let lane = |i: usize| Ring::new(&format!("weir/lane{i}"), setup.sizes.ring);
        let lanes = (0..setup.lanes.len()).map(lane).collect::<Result<_, _>>()?;
        let mut pools = Vec::new();
        for (p, &worker) in homes.iter().enumerate() {
            let allocation = Ring::new(&format!("weir/pool{p}"), pool_len)?;
            let mut give = allocation.produce()?;
            for buffer in 0..pool_len {
                give.stage(p as u32 * pool_len + buffer);
            }
            give.publish();
            pools.push(Pool { worker, abandoned: false, allocation, give });
        }
        let mut memory = Memory {
            shape,
            pool_bits: setup.sizes.pool_bits,
            data,
            meta,
            owners_region,
            owners,
            lanes,
            written_off: vec![0; setup.lanes.len()],
            workers: Vec::new(),
            pools,
            agent_bell: Doorbell::new()?,
        };
        for w in 0..setup.workers.len() {
            let worker = memory.worker(setup, w)?;
            memory.workers.push(worker);
        }
        Ok(memory)
    }

    fn worker(&self, setup: &Setup, w: usize) -> Result<WorkerMemory, MemoryError> {
        let back = |p: usize| Ring::new(&format!("weir/w{w}/return{p}"), 1 << self.pool_bits);
        let returns = (0..self.pools.len()).map(back).collect::<Result<_, _>>()?;
        let layout = self.layout(setup, w);
        let ledger_region =
            Region::create(&format!("weir/w{w}/ledger"), Ledger::len_for(layout.len))?;
        let commands = Ring::new(&format!("weir/w{w}/commands"), 8)?;
        Ok(WorkerMemory {
            ledger: Ledger::attach(&ledger_region, layout.len)?,
            ledger_region,
            layout,
            bell: Doorbell::new()?,
            command: commands.produce()?,
            commands,
            returns,
        })
    }

    fn layout(&self, setup: &Setup, w: usize) -> Layout {
        let lanes = |f: fn(&crate::setup::LaneSetup) -> usize| {
            setup.lanes.iter().filter(|l| f(l) == w).count()
        };
        Layout::new(
            lanes(|l| l.from) + self.pools.len(),
            lanes(|l| l.to),
            setup.workers[w].nodes.len(),
            setup.workers[w].edges.len(),
        )
    }

    /// True when packet bytes are on huge pages.
    pub(crate) fn huge(&self) -> bool {
        self.data.is_huge()
    }

    pub(crate) fn shape(&self) -> ArenaShape {
        self.shape
    }

    /// Worker `w` died after it was done: nobody will write down that its stack is empty.
    pub(crate) fn forget_stack(&mut self, w: usize) {
        self.pools.iter_mut().filter(|p| p.worker == w).for_each(|p| p.abandoned = true);
    }

    /// Index of the pool that buffer belongs to.
    pub(crate) fn pool_of(&self, buffer: u32) -> usize {
        (buffer >> self.pool_bits) as usize
    }

    /// What worker `w` is told, with the descriptors that go with it.
    pub(crate) fn spec(
        &self,
        setup: &Setup,
        w: usize,
        fault: Option<(u32, u32)>,
    ) -> Result<(WorkerSpec, FdList<'_>), MemoryError> {
        let worker = &setup.workers[w];
        let own = &self.workers[w];
        let mut fds = FdList::default();
        let bells: Vec<Fd> = self.workers.iter().map(|m| fds.lend(m.bell.fd())).collect();
        let agent_bell = fds.lend(self.agent_bell.fd());
        let data = if worker.writable {
            fds.lend(self.data.fd())
        } else {
            fds.give(self.data.read_only_fd()?)
        };
        let arena = ArenaSpec {
            buffers: self.shape.buffers(),
            stride: self.shape.stride(),
            pool_bits: self.pool_bits,
            data,
            writable: worker.writable,
            meta: fds.lend(self.meta.fd()),
            owners: fds.lend(self.owners_region.fd()),
        };
        let (mut lanes_in, mut lanes_out) = (Vec::new(), Vec::new());
        for (lane, ring) in setup.lanes.iter().zip(&self.lanes) {
            if lane.to == w {
                let ring = ring.hand_out(&mut fds, false, bells[lane.from])?;
                let (source, node, input) = (lane.source, lane.node, lane.input);
                lanes_in.push(LaneInSpec { ring, source, node, input });
            }
            if lane.from == w {
                let ring = ring.hand_out(&mut fds, true, bells[lane.to])?;
                let (source, edge, ordered) = (lane.source, lane.edge, lane.ordered);
                lanes_out.push(LaneOutSpec { ring, source, edge, ordered });
            }
        }
        let mut returns = Vec::new();
        for (ring, pool) in own.returns.iter().zip(&self.pools) {
            returns.push(ring.hand_out(&mut fds, true, bells[pool.worker])?);
        }
        let home = match self.pools.iter().position(|p| p.worker == w) {
            Some(p) => {
                let pool = &self.pools[p];
                let mut rings = vec![pool.allocation.hand_out(&mut fds, false, agent_bell)?];
                for (other, bell) in self.workers.iter().zip(&bells) {
                    if let Some(ring) = other.returns.get(p) {
                        rings.push(ring.hand_out(&mut fds, false, *bell)?);
                    }
                }
                let len = 1 << self.pool_bits;
                Some(HomeSpec { first: p as u32 * len, len, rings })
            }
            None => None,
        };
        let spec = WorkerSpec {
            protocol: PROTOCOL_VERSION,
            layout: weir_mem::meta::LAYOUT_VERSION,
            name: worker.name.clone(),
            owner: w as u32 + 1,
            sources: setup.sources,
            arena,
            lanes_in,
            lanes_out,
            returns,
            home,
            commands: own.commands.hand_out(&mut fds, false, agent_bell)?,
            bell: bells[w],
            ledger: fds.lend(own.ledger_region.fd()),
            nodes: worker.nodes.clone(),
            edges: worker.edges.clone(),
            end: worker.end.clone(),
            tags: setup.tags.clone(),
            seed: setup.seed,
            schedule: worker.schedule.clone(),
            fault,
        };
        debug_assert_eq!(Layout::of(&spec), own.layout);
        Ok((spec, fds))
    }
}
