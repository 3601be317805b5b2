//! All shared memory of a running graph, as the agent holds it: it keeps every descriptor, so a
//! worker's death takes none away.

mod mails;
mod told;

pub(crate) use self::told::FdList;
use crate::setup::{ArraySetup, Setup};
use std::hash::{BuildHasher, RandomState};
use weir_device::{Place, at_new_socket};
use weir_mem::TooLarge;
use weir_mem::entry::CarriesBuffer;
use weir_mem::shared::Plain;
use weir_mem::{
    Access, Arena, ArenaShape, Entry, KeptState, Ledger, LedgerWriter, Owners, Producer, Region,
};
use weir_mem::{Muster, Origins, RegionError, ReplicaTable, RingInspector, RingShape, StreamEnd};
use weir_port::{Doorbell, DoorbellError};
use weir_runtime::handover::{Handed, NfFlows, NfState, OpenDatagrams};
use weir_runtime::layout::Layout;
use weir_runtime::link::LinkError;
use weir_runtime::moves::Placing;
use weir_runtime::spec::{ArenaSpec, RingSpec};

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

/// Why a worker's state could not be written down for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandError {
    /// It cannot be reached.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// There is no room for it.
    #[error(transparent)]
    Large(#[from] TooLarge),
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
    ) -> Result<RingSpec, RegionError> {
        let capacity = self.shape.capacity();
        let (producer, consumer) = if produces {
            (fds.lend(self.producer.fd()), fds.give(self.consumer.read_only_fd()?))
        } else {
            (fds.give(self.producer.read_only_fd()?), fds.lend(self.consumer.fd()))
        };
        Ok(RingSpec { capacity, producer, consumer })
    }
}

/// A worker's own memory.
pub(crate) struct WorkerMemory {
    pub(crate) ledger: Ledger,
    ledger_region: Region,
    /// What its µNFs remember, for a worker that has any.
    state: Option<Region>,
    /// What they remember as of each batch, for a worker of which that is replicated; and whose datagrams are that have not come whole, for one
    /// that sends later fragments where their first went.
    replica: Option<Region>,
    /// By what it hashes flows: no other worker may know it, who could make flows that its index is slow with.
    secret: (u64, u64),
    /// What they know, and it knows of datagrams that have not come whole, on the way from one generation of the graph to the next.
    handover: Option<Region>,
    pub(crate) layout: Layout,
    pub(crate) bell: Doorbell,
    commands: Ring<u32>,
    pub(crate) command: Producer<u32>,
    /// Ways back to the pools of the domain that it takes from.
    pub(crate) returns: Vec<Return>,
}

/// A number that nobody can guess.
fn secret() -> (u64, u64) {
    let random = RandomState::new();
    (random.hash_one(0), random.hash_one(1))
}

impl WorkerMemory {
    /// True when the worker has taken every command that it was given.
    pub(crate) fn has_taken_commands(&self) -> bool {
        self.commands.inspector.is_empty()
    }

    /// Empties the ring of commands, for a successor.
    pub(crate) fn forget_commands(&mut self) {
        self.commands.inspector.clear();
        self.command.resync();
    }
}

/// A way back to a pool.
pub(crate) struct Return {
    /// Index of the pool.
    pub(crate) pool: usize,
    pub(crate) ring: Ring<u32>,
}

/// The packet memory of a trust domain.
pub(crate) struct Domain {
    shape: ArenaShape,
    data: Region,
    meta: Region,
    owners_region: Region,
    pub(crate) owners: Owners,
}

impl Domain {
    fn new(name: &str, pools: u32, setup: &Setup) -> Result<Self, RegionError> {
        let pool_len = 1u32 << setup.sizes.pool_bits;
        let shape = ArenaShape::new(pools.max(1) * pool_len, setup.sizes.packet);
        let data = Region::create_huge(&format!("weir/{name}data"), shape.data_len())?;
        let meta = Region::create(&format!("weir/{name}meta"), shape.meta_len())?;
        let owners_region = Region::create(&format!("weir/{name}owners"), shape.owners_len())?;
        let owners = Owners::attach(&owners_region, shape.buffers())?;
        Ok(Domain { shape, data, meta, owners_region, owners })
    }

    pub(crate) fn shape(&self) -> ArenaShape {
        self.shape
    }

    /// Descriptors for a worker that may write packet bytes, or not.
    fn hand_out<'f>(
        &'f self,
        fds: &mut FdList<'f>,
        writable: bool,
        pool_bits: u32,
    ) -> Result<ArenaSpec, RegionError> {
        let data = match writable {
            true => fds.lend(self.data.fd()),
            false => fds.give(self.data.read_only_fd()?),
        };
        Ok(ArenaSpec {
            buffers: self.shape.buffers(),
            stride: self.shape.stride(),
            pool_bits,
            data,
            writable,
            meta: fds.lend(self.meta.fd()),
            owners: fds.lend(self.owners_region.fd()),
        })
    }
}

/// A home pool, as the agent sees it.
pub(crate) struct Pool {
    /// Index of the domain whose buffers it has.
    pub(crate) domain: usize,
    /// First buffer.
    pub(crate) first: u32,
    /// Index of the worker whose it is.
    pub(crate) worker: usize,
    /// Its worker died and has no successor: what its ledger says of its stack is over.
    pub(crate) abandoned: bool,
    pub(crate) allocation: Ring<u32>,
    pub(crate) give: Producer<u32>,
}

/// Everything.
pub(crate) struct Memory {
    pub(crate) pool_bits: u32,
    pub(crate) domains: Vec<Domain>,
    pub(crate) lanes: Vec<Ring<Entry>>,
    /// By lane: index of the first entry that no death has been charged with.
    pub(crate) written_off: Vec<u64>,
    pub(crate) workers: Vec<WorkerMemory>,
    pub(crate) pools: Vec<Pool>,
    /// By array of ports: which flows came in by it, if packets come in by it at all.
    origins: Vec<Option<Region>>,
    /// By source: whether it has ended.
    pub(crate) ends: Vec<Region>,
    /// The same, to be read.
    pub(crate) said: Vec<StreamEnd>,
    /// By worker: where it calls its followers to sleep, if it has any.
    musters: Vec<Option<Region>>,
    /// Who moves flows, and the letters for it.
    crews: mails::Crews,
}

impl Memory {
    pub(crate) fn new(setup: &Setup) -> Result<Self, MemoryError> {
        let homes: Vec<usize> =
            (0..setup.workers.len()).filter(|&w| setup.workers[w].has_home()).collect();
        let pool_len = 1u32 << setup.sizes.pool_bits;
        let mut counts = vec![0; setup.domains.len()];
        let mut pools = Vec::new();
        for (p, &worker) in homes.iter().enumerate() {
            let domain = setup.workers[worker].domain;
            let first = counts[domain] * pool_len;
            counts[domain] += 1;
            let allocation = Ring::new(&format!("weir/pool{p}"), pool_len)?;
            let mut give = allocation.produce()?;
            for buffer in 0..pool_len {
                give.stage(first + buffer);
            }
            give.publish();
            pools.push(Pool { domain, first, worker, abandoned: false, allocation, give });
        }
        let named = setup.domains.iter().zip(counts);
        let domain = |(name, pools): (&String, u32)| match name.as_str() {
            "" => Domain::new("", pools, setup),
            name => Domain::new(&format!("{name}/"), pools, setup),
        };
        let domains = named.map(domain).collect::<Result<_, _>>()?;
        let lane = |i: usize| Ring::new(&format!("weir/lane{i}"), setup.sizes.ring);
        let lanes = (0..setup.lanes.len()).map(lane).collect::<Result<_, _>>()?;
        let ends: Vec<Region> = (0..setup.sources)
            .map(|s| Region::create(&format!("weir/end{s}"), StreamEnd::LEN))
            .collect::<Result<_, _>>()?;
        let said =
            ends.iter().map(|end| StreamEnd::attach(end, false)).collect::<Result<_, _>>()?;
        let mut memory = Memory {
            pool_bits: setup.sizes.pool_bits,
            domains,
            lanes,
            written_off: vec![0; setup.lanes.len()],
            workers: Vec::new(),
            pools,
            origins: origins(setup)?,
            ends,
            said,
            musters: Vec::new(),
            crews: mails::Crews::new(setup)?,
        };
        for w in 0..setup.workers.len() {
            let worker = memory.worker(setup, w)?;
            memory.workers.push(worker);
            let muster = match setup.followers(w).next() {
                Some(_) => Some(Region::create(&format!("weir/w{w}/muster"), Muster::LEN)?),
                None => None,
            };
            memory.musters.push(muster);
        }
        Ok(memory)
    }

    fn worker(&self, setup: &Setup, w: usize) -> Result<WorkerMemory, MemoryError> {
        let mut returns = Vec::new();
        for pool in self.pools_for(setup, w) {
            let ring = Ring::new(&format!("weir/w{w}/return{pool}"), 1 << self.pool_bits)?;
            returns.push(Return { pool, ring });
        }
        let layout = self.layout(setup, w);
        let ledger_region =
            Region::create(&format!("weir/w{w}/ledger"), Ledger::len_for(layout.len))?;
        let commands = Ring::new(&format!("weir/w{w}/commands"), 8)?;
        // Sparse: they take memory as they are written.
        let (mut state, mut handover, mut replica) = (None, None, None);
        let worker = &setup.workers[w];
        let follows = worker.follows_fragments(&setup.groups);
        if worker.runs_nfs() {
            state = Some(Region::create(&format!("weir/w{w}/state"), KeptState::LEN)?);
        }
        if worker.runs_nfs() || follows {
            handover = Some(Region::create(&format!("weir/w{w}/handover"), KeptState::LEN)?);
        }
        let is_replicated = || worker.nodes.iter().any(|node| node.replicate.is_some());
        if follows || (worker.runs_nfs() && is_replicated()) {
            replica = Some(Region::create(&format!("weir/w{w}/replica"), ReplicaTable::LEN)?);
        }
        Ok(WorkerMemory {
            ledger: Ledger::attach(&ledger_region, layout.len)?,
            ledger_region,
            state,
            handover,
            replica,
            secret: secret(),
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
        let home = self.pools.iter().find(|p| p.worker == w);
        let takers = |d: usize| setup.workers.iter().filter(move |o| o.takes_from == d);
        Layout::new(
            lanes(|l| l.from) + self.pools_for(setup, w).count(),
            lanes(|l| l.to),
            home.map_or(0, |pool| 1 + takers(pool.domain).count()),
            setup.workers[w].nodes.len(),
            setup.workers[w].edges.len(),
            setup.workers[w].end.classes(),
        )
    }

    /// True when packet bytes are on huge pages.
    pub(crate) fn huge(&self) -> bool {
        self.domains.iter().all(|d| d.data.is_huge())
    }

    /// Bytes of packet memory, and of one buffer.
    pub(crate) fn size(&self) -> (usize, usize) {
        let all = self.domains.iter().map(|d| d.shape.data_len()).sum();
        (all, self.domains.first().map_or(0, |d| d.shape.stride() as usize))
    }

    /// Pools whose buffers worker `w` may have to give back.
    fn pools_for<'m>(&'m self, setup: &Setup, w: usize) -> impl Iterator<Item = usize> + 'm {
        let domain = setup.workers[w].takes_from;
        (0..self.pools.len()).filter(move |&p| self.pools[p].domain == domain)
    }

    /// Worker `w` died after it was done: nobody will write down that its stack is empty.
    pub(crate) fn forget_stack(&mut self, w: usize) {
        self.pools.iter_mut().filter(|p| p.worker == w).for_each(|p| p.abandoned = true);
    }

    /// A copy of a packet's bytes in `domain`, and its fingerprint; `None` for none.
    pub(crate) fn bytes(&self, domain: usize, entry: &Entry, but: u32) -> Option<(Vec<u8>, u64)> {
        let d = self.domains.get(domain)?;
        let arena =
            Arena::attach(d.shape, Access::ReadOnly, &d.data, &d.meta, &d.owners_region).ok()?;
        let bytes = arena.bytes(entry);
        let mut copy = vec![0; bytes.len()];
        bytes.copy_to(0, &mut copy);
        (!copy.is_empty()).then(|| (copy, weir_runtime::fingerprint(&bytes, but)))
    }

    /// Worker `w` has died: says how many packets its µNFs held, and writes down that they do not
    /// any more. A successor that dies before its first commit must not lose them again. No more are
    /// believed than its domain has buffers.
    pub(crate) fn take_held(&mut self, setup: &Setup, w: usize) -> u64 {
        let most = self.held_most(setup, w);
        let own = &self.workers[w];
        let mut words = own.ledger.read().unwrap_or_default();
        match words.get_mut(own.layout.held) {
            Some(held) if *held > 0 => {
                let lost = std::mem::take(held);
                if let Ok(mut writer) = LedgerWriter::attach(&own.ledger_region, own.layout.len) {
                    writer.commit(&words);
                }
                lost.min(most)
            }
            _ => 0,
        }
    }

    /// Most packets that worker `w`'s µNFs can hold: each is a buffer of its domain.
    pub(crate) fn held_most(&self, setup: &Setup, w: usize) -> u64 {
        self.domains[setup.workers[w].domain].shape.buffers().into()
    }

    /// Where the device of worker `w` is, by its record.
    pub(crate) fn place(&self, w: usize) -> Place {
        let worker = &self.workers[w];
        let words = worker.ledger.read().unwrap_or_default();
        std::array::from_fn(|i| words.get(worker.layout.place + i).copied().unwrap_or(0))
    }

    /// The device of worker `w`, which has ended, is to go on with another packet socket than its predecessor's, and to count
    /// what was `left` in that.
    pub(crate) fn begin_at_new_socket(&mut self, w: usize, left: u64) {
        let place = at_new_socket(self.place(w), left);
        let own = &self.workers[w];
        let mut words = own.ledger.read().unwrap_or_default();
        let its = words.get_mut(own.layout.place..own.layout.seq).unwrap_or_default();
        its.iter_mut().zip(place).for_each(|(word, new)| *word = new);
        if let Ok(mut writer) = LedgerWriter::attach(&own.ledger_region, own.layout.len) {
            writer.commit(&words);
        }
    }

    /// See [`Agent::kept`](crate::Agent::kept).
    pub(crate) fn kept(&self, w: usize) -> Option<Vec<weir_runtime::Kept>> {
        let region = self.workers.get(w)?.state.as_ref()?;
        weir_runtime::read_kept(&KeptState::attach(region).ok()?.read()?)
    }

    /// What worker `w`'s µNFs remembered is not handed to its successor: it is not to be believed, or it
    /// is what kills it. To be called when the worker has died. True when there was any.
    pub(crate) fn clear_kept(&self, w: usize) -> bool {
        let region = self.workers.get(w).and_then(|worker| worker.state.as_ref());
        let Some(Ok(mut kept)) = region.map(KeptState::attach) else { return false };
        let any = kept.is_written();
        kept.clear();
        any
    }

    /// The same of what is replicated; and of what the generation before has handed on, which whoever finds no replica would
    /// take up instead.
    pub(crate) fn clear_replica(&mut self, w: usize) -> bool {
        let Some(worker) = self.workers.get_mut(w) else { return false };
        // Nobody goes on by it, and whoever was told it is not to know the next one.
        worker.secret = secret();
        let handed = worker.handover.as_ref().map(KeptState::attach).is_some_and(|handover| {
            let Ok(mut handover) = handover else { return false };
            let any = handover.is_written();
            handover.clear();
            any
        });
        let Some(region) = &worker.replica else { return false };
        ReplicaTable::attach(region).is_ok_and(|replica| replica.forget()) || handed
    }

    /// Bytes, at most, of what a successor of worker `w` finds remembered for it: what was never written takes no memory.
    pub(crate) fn remembered(&self, w: usize) -> u64 {
        let Some(worker) = self.workers.get(w) else { return 0 };
        let regions = [&worker.state, &worker.replica, &worker.handover];
        regions
            .into_iter()
            .flatten()
            .filter_map(|region| rustix::fs::fstat(region.fd()).ok())
            .map(|stat| stat.st_blocks.unsigned_abs() * 512)
            .sum()
    }

    /// What worker `w`, which rests, has written down of its µNFs; `None` for nonsense.
    pub(crate) fn handed_over(&self, w: usize) -> Option<Handed> {
        let region = self.workers.get(w)?.handover.as_ref()?;
        weir_runtime::handover::read(&KeptState::attach(region).ok()?)
    }

    /// Writes down what worker `w`, which has not begun, is to go on from.
    pub(crate) fn hand_to(
        &self,
        w: usize,
        states: &[NfState],
        datagrams: &OpenDatagrams,
        places: &[Placing],
    ) -> Result<(), HandError> {
        let Some(worker) = self.workers.get(w) else { return Ok(()) };
        if let Some(region) = &worker.handover {
            let mut memory = KeptState::attach(region)?;
            weir_runtime::handover::write(&mut memory, states, datagrams, places)?;
        }
        // Should it die before it has taken that, its successor finds as much as after any death.
        if let Some(region) = &worker.state {
            KeptState::attach(region)?.write(&weir_runtime::handover::as_kept(states))?;
        }
        Ok(())
    }

    /// Writes down flows that worker `w`, which has not begun, is to take while others still work with them.
    pub(crate) fn hand_ahead_to(&self, w: usize, flows: &[NfFlows]) -> Result<(), HandError> {
        if let Some(region) = self.workers.get(w).and_then(|worker| worker.handover.as_ref()) {
            weir_runtime::handover::write_ahead(&mut KeptState::attach(region)?, flows)?;
        }
        Ok(())
    }

    /// Index of the pool that a domain's buffer belongs to.
    pub(crate) fn pool_of(&self, domain: usize, buffer: u32) -> Option<usize> {
        let len = 1 << self.pool_bits;
        let has = |p: &Pool| p.domain == domain && buffer.wrapping_sub(p.first) < len;
        self.pools.iter().position(has)
    }

    /// Rings by which buffers come back to pool `p`, with the worker that gives: the order in which
    /// the pool's worker has them, after the agent's.
    pub(crate) fn returns_to(&self, p: usize) -> impl Iterator<Item = (usize, &Ring<u32>)> {
        let all = self.workers.iter().enumerate();
        all.flat_map(move |(w, worker)| {
            worker.returns.iter().filter(move |r| r.pool == p).map(move |r| (w, &r.ring))
        })
    }
}

/// A table for each array by whose ports packets come in, with a secret that nobody chose.
fn origins(setup: &Setup) -> Result<Vec<Option<Region>>, RegionError> {
    let table = |(i, array): (usize, &ArraySetup)| {
        if array.places.iter().all(Option::is_none) {
            return Ok(None);
        }
        let region = Region::create(&format!("weir/origins{i}"), Origins::LEN)?;
        // Keys of the system's random numbers, as maps have them.
        let random = std::hash::RandomState::new();
        let secret = [0, 1].map(|n| random.hash_one((n, i)));
        Origins::attach(&region, true)?.set_secret(secret);
        Ok(Some(region))
    };
    setup.arrays.iter().enumerate().map(table).collect()
}

#[cfg(test)]
mod tests;
