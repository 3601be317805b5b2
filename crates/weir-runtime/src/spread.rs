//! Packets of an edge that divide over the instances of an NF.

use crate::segment::Target;
use crate::spec::{CrewSpec, GroupSpec, PartSpec, ShareSpec, SpreadSpec, WorkerSpec};
use std::collections::BTreeMap;
use weir_flow::Party;
use weir_mem::ArenaView;
use weir_packet::flow::Side;
use weir_packet::headers::{Depth, Fragment, Layers};
use weir_packet::{Direction, FieldsError, FlowFields, FlowKey, FragmentTable, Packet, layers_of};
use weir_port::balance::{Balance, Buckets, BucketsError, FlowDirector, Placer, Rule};

/// Why packets cannot be divided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpreadError {
    /// Weights that give nobody anything, or too many.
    #[error(transparent)]
    Buckets(#[from] BucketsError),
    /// Fields that mean nothing.
    #[error(transparent)]
    Fields(#[from] FieldsError),
    /// Branches that do not stand as they must.
    #[error("its edges lead to some of the instances of an NF, or to none")]
    Parts,
}

/// The way of one instance: where it is, and the first of its edge's words in the ledger.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) target: Target,
    pub(crate) words: Option<usize>,
}

/// The ways of a branch that leads to several instances.
pub(crate) struct Spread {
    /// Which of the segment's balances.
    balance: usize,
    /// The side of an address translator that it leads to.
    side: Side,
    parts: Vec<Part>,
}

impl Spread {
    /// Of the first instance's branch; the others' follow.
    pub(crate) fn new(balance: usize, share: ShareSpec, first: Part) -> Self {
        Spread { balance, side: side(share.side), parts: vec![first] }
    }

    /// The next instance's branch.
    pub(crate) fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// What divides the packets that a segment sends to NFs of several instances: one for each such NF, whichever of
/// the segment's edges they take, so that fragments follow their first.
#[derive(Default)]
pub(crate) struct Balances {
    all: Vec<One>,
    /// By group: place in `all`.
    places: BTreeMap<u16, usize>,
}

struct One {
    balance: Balance,
    /// Of an NF whose flows can be moved: where they go.
    director: Option<FlowDirector>,
    instances: usize,
    /// The rule asks how much waits.
    asks_load: bool,
    /// The rule looks into packets.
    by_flow: bool,
    /// It goes by one of a packet's ends.
    by_ends: bool,
    /// Scratch memory.
    waiting: Vec<usize>,
}

impl Balances {
    /// The place of the balance that a share speaks of; it is made if it is the first that asks.
    pub(crate) fn place(
        &mut self,
        share: ShareSpec,
        spec: &WorkerSpec,
    ) -> Result<usize, SpreadError> {
        if let Some(place) = self.places.get(&share.group) {
            return Ok(*place);
        }
        let group = spec.groups.get(usize::from(share.group)).ok_or(SpreadError::Parts)?;
        let balance = Balance::new(rule(group)?, &group.weights, u128::from(spec.seed))?;
        let directs = |crew: &CrewSpec| {
            crew.groups.contains(&share.group) && matches!(crew.me, Party::Director(_))
        };
        let director = match spec.crews.iter().any(directs) {
            true => {
                let (buckets, instances) = (group.buckets()?, group.weights.len());
                Some(FlowDirector::over(buckets, instances, u128::from(spec.seed), 0))
            }
            false => None,
        };
        let instances = group.weights.len();
        let asks_load = group.spread == SpreadSpec::LeastLoaded;
        let by_flow = !matches!(group.spread, SpreadSpec::InTurn | SpreadSpec::LeastLoaded);
        let by_ends = group.spread.asks_side();
        let waiting = vec![0; instances];
        self.all.push(One { balance, director, instances, asks_load, by_flow, by_ends, waiting });
        let place = self.all.len() - 1;
        self.places.insert(share.group, place);
        Ok(place)
    }

    /// Where the flows of a group go, if this worker can be told to send some elsewhere.
    pub(crate) fn director(&mut self, group: u16) -> Option<&mut FlowDirector> {
        let place = *self.places.get(&group)?;
        self.all.get_mut(place)?.director.as_mut()
    }

    /// What they remember of datagrams that have not come whole: of those that look at ports.
    pub(crate) fn fragments(&mut self) -> impl Iterator<Item = &mut FragmentTable> {
        self.all.iter_mut().filter_map(|one| one.balance.fragments())
    }

    /// From now on the packets of a group divide by other weights, of as many instances. Nothing changes where its flows are
    /// moved: they have to be moved, then, or by weights that cannot be.
    pub(crate) fn reweigh(&mut self, group: u16, weights: &[u32]) {
        let place = self.places.get(&group).copied();
        let one = place.and_then(|place| self.all.get_mut(place));
        if let Some(one) =
            one.filter(|one| one.director.is_none() && one.instances == weights.len())
        {
            let _ = one.balance.reweigh(weights);
        }
    }

    /// True when a branch has the ways of all instances.
    pub(crate) fn whole(&self, spread: &Spread) -> bool {
        self.all.get(spread.balance).is_some_and(|one| one.instances == spread.parts.len())
    }

    /// The way of a packet. `waits` says how many are before an instance.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        spread: &Spread,
        arena: ArenaView<'_>,
        packet: &Packet,
        waits: impl FnMut(&Part) -> usize,
    ) -> Option<Part> {
        let one = self.all.get_mut(spread.balance)?;
        if one.asks_load {
            one.waiting.clear();
            one.waiting.extend(spread.parts.iter().map(waits));
        }
        let entry = packet.entry();
        // Who takes turns need not be looked into.
        let layers = match one.by_flow {
            true => layers_of(arena, entry, Depth::L4),
            false => Layers::default(),
        };
        let now = arena.meta(entry).map_or(0, |meta| meta.time_ns.get());
        let bytes = arena.bytes(entry);
        let hash = match one.by_ends {
            true => Some(one.balance.end_hash(&bytes, &layers, now, spread.side)),
            false if one.director.is_some() => one.balance.flow_hash(&bytes, &layers, now),
            false => None,
        };
        let instance = match (&one.director, hash) {
            (Some(director), Some(hash)) => {
                // The first fragment may have gone to another instance: this one could not tell whose it is.
                if layers.fragment() == Fragment::Later {
                    arena.meta(entry)?.flow_hash.set(hash);
                }
                director.at(hash)
            }
            (Some(_), None) => return None,
            (None, Some(hash)) => one.balance.of_hash(hash),
            (None, None) => one.balance.instance(&bytes, &layers, now, &one.waiting),
        };
        spread.parts.get(usize::from(instance)).copied()
    }
}

/// The side of an address translator, or of a load balancer, that an input is on: the first is inside.
pub(crate) fn side(input: u8) -> Side {
    if input == 0 { Side::Inside } else { Side::Outside }
}

/// Which leases of ports an instance has, when none was moved.
pub(crate) struct Leased {
    buckets: Buckets,
    me: u8,
    placer: Placer,
}

impl Leased {
    pub(crate) fn new(group: &GroupSpec, part: PartSpec, seed: u64) -> Option<Self> {
        let balance = Balance::new(Rule::Ends, &group.weights, u128::from(seed)).ok()?;
        let buckets = Buckets::new(&group.weights).ok()?;
        Some(Leased { buckets, me: part.index, placer: balance.placer() })
    }

    /// True for a key whose packets come to this instance. `start`: as [`Placer::hash`] takes it.
    pub(crate) fn has(&self, key: &FlowKey, start: Direction) -> bool {
        self.buckets.instance(self.placer.hash(key, start)) == self.me
    }
}

pub(crate) fn rule(group: &GroupSpec) -> Result<Rule, SpreadError> {
    let flow = |fields| Rule::Flow { fields };
    Ok(match group.spread {
        SpreadSpec::InTurn => Rule::RoundRobin,
        SpreadSpec::LeastLoaded => Rule::LeastLoaded,
        SpreadSpec::Source => flow(FlowFields::SOURCE),
        SpreadSpec::Tuple => flow(FlowFields::new((true, true), (true, true), true, false)?),
        SpreadSpec::Flow => flow(FlowFields::FLOW),
        SpreadSpec::Ends => Rule::Ends,
        SpreadSpec::Client => Rule::Client,
        SpreadSpec::Fields { addresses, ports, proto, symmetric } => {
            flow(FlowFields::new(addresses, ports, proto, symmetric)?)
        }
    })
}
