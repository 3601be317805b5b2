//! From a spec and a list of descriptors to mapped memory and rings.

use crate::moves::{Channel, Post};
use crate::spec::{
    ArenaSpec, CarriesSpec, CrewSpec, EndSpec, Fd, LaneInSpec, LaneOutSpec, RingSpec, WorkerSpec,
};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::rc::Rc;
use weir_mem::StreamEnd;
use weir_mem::{
    Access, Arena, ArenaShape, Consumer, KeptState, LedgerWriter, MailIn, MailOut, Muster, Origins,
    Owner, Producer, ReplicaTable,
};
use weir_mem::{Region, RegionError, RingShape};
use weir_packet::{DropReason, Verdict};
use weir_port::{Carries, Doorbell, Egress, HomePool, Ingress, LaneIn, LaneOut, Return};

/// Why a worker could not attach.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The agent speaks another version.
    #[error(
        "agent and worker are of different versions (protocol {protocol}, layout {layout}): use one build of weir"
    )]
    Version {
        /// The agent's protocol version.
        protocol: u32,
        /// The agent's layout version.
        layout: u32,
    },
    /// The library's NFs are not the agent's.
    #[error(
        "this program was built with another library of NFs than the agent: build it again with weir's"
    )]
    Catalogue,
    /// A descriptor is missing.
    #[error("descriptor {0} did not come with the message")]
    Descriptor(Fd),
    /// Memory cannot be mapped.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// Numbers that no arena can have.
    #[error("an arena of {buffers} buffers of {stride} bytes cannot be")]
    Arena {
        /// Number of buffers.
        buffers: u32,
        /// Bytes of a buffer.
        stride: u32,
    },
}

/// Descriptors by index; memory and doorbells are made once per descriptor.
pub(crate) struct Descriptors {
    fds: Vec<Option<OwnedFd>>,
    bells: HashMap<Fd, Rc<Doorbell>>,
}

impl Descriptors {
    pub(crate) fn new(fds: Vec<OwnedFd>) -> Self {
        Descriptors { fds: fds.into_iter().map(Some).collect(), bells: HashMap::new() }
    }

    /// The descriptor of a device that the agent holds open, if the worker has one.
    pub(crate) fn device(&mut self, spec: &WorkerSpec) -> Result<Option<OwnedFd>, AttachError> {
        spec.device.map(|fd| self.take(fd)).transpose()
    }

    fn take(&mut self, fd: Fd) -> Result<OwnedFd, AttachError> {
        let slot = self.fds.get_mut(usize::from(fd));
        slot.and_then(Option::take).ok_or(AttachError::Descriptor(fd))
    }

    fn region(&mut self, fd: Fd, len: usize) -> Result<Region, AttachError> {
        Ok(Region::from_fd(self.take(fd)?, len)?)
    }

    pub(crate) fn bell(&mut self, fd: Fd) -> Result<Rc<Doorbell>, AttachError> {
        if let Some(bell) = self.bells.get(&fd) {
            return Ok(bell.clone());
        }
        let bell = Rc::new(Doorbell::from_fd(self.take(fd)?));
        self.bells.insert(fd, bell.clone());
        Ok(bell)
    }

    fn consumer<E: weir_mem::shared::Plain>(
        &mut self,
        ring: &RingSpec,
    ) -> Result<Consumer<E>, AttachError> {
        let shape = RingShape::at_least(ring.capacity);
        let producer = self.region(ring.producer, shape.producer_len())?;
        let consumer = self.region(ring.consumer, shape.consumer_len())?;
        Ok(Consumer::attach(shape, &producer, &consumer)?)
    }

    fn producer<E: weir_mem::shared::Plain>(
        &mut self,
        ring: &RingSpec,
    ) -> Result<Producer<E>, AttachError> {
        let shape = RingShape::at_least(ring.capacity);
        let producer = self.region(ring.producer, shape.producer_len())?;
        let consumer = self.region(ring.consumer, shape.consumer_len())?;
        Ok(Producer::attach(shape, &producer, &consumer)?)
    }
}

/// Everything of a worker that is shared memory.
pub(crate) struct Attached {
    pub(crate) arena: Arena,
    pub(crate) outward: Option<Arena>,
    pub(crate) ingress: Ingress,
    pub(crate) egress: Egress,
    pub(crate) home: Option<HomePool>,
    pub(crate) ledger: LedgerWriter,
    pub(crate) commands: Consumer<u32>,
    pub(crate) bell: Rc<Doorbell>,
    pub(crate) followers: Vec<Rc<Doorbell>>,
    pub(crate) muster: Option<Muster>,
    pub(crate) state: Option<KeptState>,
    pub(crate) handover: Option<KeptState>,
    pub(crate) replica: Option<ReplicaTable>,
    /// By array: which flows came in by it.
    pub(crate) origins: Vec<Option<Rc<Origins>>>,
    /// Where the worker itself writes that.
    pub(crate) learns: Option<Rc<Origins>>,
    /// By crew: its letters.
    pub(crate) posts: Vec<Post>,
}

pub(crate) fn attach(
    spec: &WorkerSpec,
    ledger_words: usize,
    fds: &mut Descriptors,
) -> Result<Attached, AttachError> {
    let (protocol, layout) = (spec.protocol, spec.layout);
    if protocol != crate::spec::PROTOCOL_VERSION || layout != weir_mem::meta::LAYOUT_VERSION {
        return Err(AttachError::Version { protocol, layout });
    }
    if spec.catalogue != crate::outside::catalogue() {
        return Err(AttachError::Catalogue);
    }
    let owner = Owner(spec.owner);
    let mut arena = arena(&spec.arena, fds)?;
    if let Some(packets) = spec.schedule.prefetch {
        arena.set_ahead(packets);
    }
    let outward = spec.outward.as_ref().map(|a| self::arena(a, fds)).transpose()?;

    let lane_in = |l: &LaneInSpec, fds: &mut Descriptors| {
        let (ring, bell) = (fds.consumer(&l.ring)?, fds.bell(l.bell)?);
        let mut lane = LaneIn::new(ring, l.source.into(), l.node.into(), l.input, bell);
        lane.carries = carries(l.carries);
        Ok(if l.back { lane.coming_back() } else { lane })
    };
    let lanes_in: Result<Vec<_>, AttachError> =
        spec.lanes_in.iter().map(|l| lane_in(l, fds)).collect();
    let lane_out = |l: &LaneOutSpec, fds: &mut Descriptors| {
        let (ring, bell) = (fds.producer(&l.ring)?, fds.bell(l.bell)?);
        let LaneOutSpec { ordered, closes, back, .. } = *l;
        Ok(LaneOut { ring, source: l.source.into(), ordered, closes, back, bell })
    };
    let lanes_out: Result<Vec<_>, AttachError> =
        spec.lanes_out.iter().map(|l| lane_out(l, fds)).collect();
    let mut returns = Vec::new();
    for r in &spec.returns {
        returns.push(Return { ring: fds.producer(&r.ring)?, bell: fds.bell(r.bell)? });
    }
    let home = match &spec.home {
        Some(h) => {
            let rings: Result<Vec<_>, AttachError> =
                h.rings.iter().map(|r| fds.consumer(r)).collect();
            let pool = HomePool::new(rings?, h.first, h.len, owner, h.own.map(usize::from));
            let sources = spec.lanes_in.iter().map(|lane| usize::from(lane.source));
            Some(pool.divided(&sources.filter(|_| h.divides).collect::<Vec<_>>()))
        }
        None => None,
    };
    let sources = usize::from(spec.sources);
    let edges: Vec<usize> = spec.lanes_out.iter().map(|l| l.edge.into()).collect();
    let ledger_len = weir_mem::Ledger::len_for(ledger_words);
    let ledger = fds.region(spec.ledger, ledger_len)?;
    let own_source = match spec.end {
        EndSpec::Rx { source, .. } => Some(usize::from(source)),
        _ => None,
    };
    let mut ends = Vec::new();
    for (source, &fd) in spec.ends.iter().enumerate() {
        let region = fds.region(fd, StreamEnd::LEN)?;
        ends.push(StreamEnd::attach(&region, own_source == Some(source))?);
    }
    let mut ingress = Ingress::new(lanes_in?, sources, owner);
    ingress.set_ends(ends);
    let state = match spec.state {
        Some(fd) => Some(KeptState::attach(&fds.region(fd, KeptState::LEN)?)?),
        None => None,
    };
    let handover = match spec.handover {
        Some(fd) => Some(KeptState::attach(&fds.region(fd, KeptState::LEN)?)?),
        None => None,
    };
    let replica = match spec.replica {
        Some(fd) => Some(ReplicaTable::attach(&fds.region(fd, ReplicaTable::LEN)?)?),
        None => None,
    };
    let mut origins = |fd: Fd, writable| -> Result<Rc<Origins>, AttachError> {
        Ok(Rc::new(Origins::attach(&fds.region(fd, Origins::LEN)?, writable)?))
    };
    let learns = spec.learns.map(|fd| origins(fd, true)).transpose()?;
    let known = spec.arrays.iter().map(|a| a.origins.map(|fd| origins(fd, false)).transpose());
    let origins = known.collect::<Result<_, _>>()?;
    let muster = match spec.muster {
        Some(fd) => {
            Some(Muster::attach(&fds.region(fd, Muster::LEN)?, !spec.followers.is_empty())?)
        }
        None => None,
    };
    let ledger = LedgerWriter::attach(&ledger, ledger_words)?;
    arena.set_witness(ledger.witness());
    if spec.branch {
        arena.set_shared();
    }
    let lends = |(lane, l): (usize, &LaneOutSpec)| Some((lane, usize::from(l.lends?)));
    let loans = spec.lanes_out.iter().enumerate().filter_map(lends).collect();
    let bits = spec.arena.pool_bits;
    let mut egress = Egress::with_loans(lanes_out?, &edges, returns, bits, sources, loans);
    egress.set_dump_edge(spec.edges.len());
    let posts = spec.crews.iter().map(|crew| post(crew, fds)).collect::<Result<_, _>>()?;
    Ok(Attached {
        posts,
        state,
        handover,
        replica,
        origins,
        learns,
        arena,
        outward,
        ingress,
        egress,
        home,
        ledger,
        commands: fds.consumer(&spec.commands)?,
        bell: fds.bell(spec.bell)?,
        muster,
        followers: spec.followers.iter().map(|f| fds.bell(*f)).collect::<Result<_, _>>()?,
    })
}

/// A worker's letters in a crew.
fn post(crew: &CrewSpec, fds: &mut Descriptors) -> Result<Post, AttachError> {
    let (sender, reader) = weir_mem::mail::lens();
    let mut channels = Vec::with_capacity(crew.mails.len());
    for mail in &crew.mails {
        let mut regions = |(s, r): (Fd, Fd)| -> Result<(Region, Region), AttachError> {
            Ok((fds.region(s, sender)?, fds.region(r, reader)?))
        };
        let (to, from) = (regions(mail.to)?, regions(mail.from)?);
        channels.push(Channel {
            with: mail.with,
            out: MailOut::attach(&to.0, &to.1)?,
            mail: MailIn::attach(&from.0, &from.1)?,
            bell: fds.bell(mail.bell)?,
        });
    }
    Ok(Post::new(channels))
}

fn carries(spec: CarriesSpec) -> Carries {
    match spec {
        CarriesSpec::Packets => Carries::Packets,
        CarriesSpec::Loans => Carries::Loans,
        CarriesSpec::Answers { on, drops_lost } => {
            let lost = match drops_lost {
                true => Verdict::drop(DropReason::BranchLost),
                false => Verdict::FIRST,
            };
            Carries::Answers { on: on.into(), lost }
        }
    }
}

fn arena(a: &ArenaSpec, fds: &mut Descriptors) -> Result<Arena, AttachError> {
    let shape = ArenaShape::from_raw(a.buffers, a.stride)
        .ok_or(AttachError::Arena { buffers: a.buffers, stride: a.stride })?;
    let access = if a.writable { Access::ReadWrite } else { Access::ReadOnly };
    let data = fds.region(a.data, shape.data_len())?;
    let meta = fds.region(a.meta, shape.meta_len())?;
    let owners = fds.region(a.owners, shape.owners_len())?;
    Ok(Arena::attach(shape, access, &data, &meta, &owners)?)
}
