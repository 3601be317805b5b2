//! Which NFs' flows can go from one instance to another, and who takes part.

mod replicas;

use self::replicas::{Formed, formed};
use crate::scale::Way;
use crate::setup::{LaneCarries, LaneSetup, Setup};
use std::collections::BTreeSet;
use weir_runtime::spec::{EndSpec, SpreadSpec, TargetSpec};

/// Most instances of a crew: each writes letters to each other.
const MOST: usize = 16;

/// NFs whose instances of equal number are one segment's replica: what they remember of a flow is together, and moves together. Mostly
/// that is one NF. And the workers that divide their packets over the replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crew {
    /// Those of the NFs whose packets are divided for them, by their places in [`Setup::groups`]. The first stands for the crew.
    pub groups: Vec<u16>,
    /// The names of those that remember something of flows, in their order, joined by `+`.
    pub name: String,
    /// The names of all NFs that it is of.
    pub nfs: Vec<String>,
    /// The replicas.
    pub instances: Vec<Instance>,
    /// Workers that divide.
    pub senders: Vec<usize>,
}

/// One of a crew's replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its worker.
    pub worker: usize,
    /// The nodes there that packets are divided for.
    pub entries: Vec<u16>,
    /// The nodes there that remember something of flows, in their order: the same NFs in each replica.
    pub nodes: Vec<u16>,
}

/// Why the flows of an NF of several instances stay where they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmovable {
    /// Packets of a flow meet several instances.
    #[error("packets of {0} are not divided by flows, so no flow is at one instance")]
    NotByFlow(String),
    /// Both directions of a flow may meet different instances.
    #[error(
        "packets of {0} are divided by {1}; only the flows of an NF whose packets are divided by flow, both directions alike, by clients or by leases of ports, move"
    )]
    OtherKey(String, &'static str),
    /// Nothing is to move.
    #[error("{0} remembers nothing of flows")]
    NoFlows(String),
    /// What its packets wait for cannot move.
    #[error("{1} holds packets, which cannot move with their flows")]
    Holds(String, String),
    /// No lane, so no marker; or one worker would have to write letters to itself.
    #[error(
        "instances of {0} share a worker, with each other or with who divides their packets; choose another --isolate"
    )]
    Fused(String),
    /// Markers and letters stay within a domain.
    #[error(
        "{0} and who gives it packets are in different trust domains, and what moves flows does not go through the gates between them; \
         put both into one domain (`--domain`) to move flows. Otherwise they stay where they are until they end"
    )]
    Domains(String),
    /// Packets are shared there.
    #[error(
        "{0} stands in a parallel stage, or its packets come by rings that close a cycle, or that drop when they are full; NFs of a cycle that no \
         packet goes round can be a segment's replicas (`--instances A+B=N`)"
    )]
    Stage(String),
    /// What is known of a flow stands in several places.
    #[error(
        "{0} and {1} behind it both remember something of a flow, and {1} has its packets as they were divided for {0}, in other \
         workers; they move together when instances of equal number share a worker (`--instances {0}+{1}=N`), and flows of {0} alone when {1} \
         has one instance"
    )]
    Followed(String, String),
    /// Who divides does not divide all that comes.
    #[error(
        "packets reach {0} from {1} besides, as they were divided there; have instances of equal number share a worker \
         (`--instances A+B=N`), or one of them have one instance"
    )]
    Entered(String, String),
    /// What leaves later is not where its flow is.
    #[error(
        "{1} makes packets by a timer, and {0} behind it in the same worker would get them after the flow has gone"
    )]
    Late(String, String),
    /// Whoever merges behind the instances would wait for packets that wait for each other.
    #[error(
        "packets of one port reach {0} by several workers; choose another --isolate, or one instance of what stands before it"
    )]
    Ways(String),
    /// Too many.
    #[error("{0} has {1} instances; flows move among {MOST} at most")]
    TooMany(String, usize),
}

impl Unmovable {
    /// The NF's name; of several, joined by `+`.
    #[must_use]
    pub fn nf(&self) -> &str {
        match self {
            Unmovable::NotByFlow(nf)
            | Unmovable::OtherKey(nf, _)
            | Unmovable::NoFlows(nf)
            | Unmovable::Holds(nf, _)
            | Unmovable::Fused(nf)
            | Unmovable::Domains(nf)
            | Unmovable::Stage(nf)
            | Unmovable::Followed(nf, _)
            | Unmovable::Entered(nf, _)
            | Unmovable::Late(nf, _)
            | Unmovable::Ways(nf)
            | Unmovable::TooMany(nf, _) => nf,
        }
    }
}

/// Why an NF's instances cannot become more and fewer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unscalable {
    /// Nothing divides its packets.
    #[error(
        "{0} has no instances that packets divide over: they are in the worker that gives it packets (choose another --isolate), or \
         it was left out, as its answers are known (--consolidate off keeps it)"
    )]
    NoInstances(String),
    /// Its flows stay.
    #[error(transparent)]
    Unmovable(#[from] Unmovable),
    /// What it remembers of flows would stay behind.
    #[error("flows of {0} can move, with what it remembers of them: leave `rebalance` out")]
    FlowsMove(String),
    /// Packets that are to meet would not.
    #[error(
        "packets of {0} that meet at one instance would part, and only flows, both directions together, move with what it \
         remembers; write `,rebalance` if they may part"
    )]
    Meets(String),
    /// Its packets need not meet, so it has no flows that could be kept together.
    #[error(
        "packets of {0} need not meet, so it has no flows that move or stay: leave `moves` and `old-flows-end` out"
    )]
    NeedNotMeet(String),
}

/// The NF called `name` as one whose instances become more and fewer, in the way that was `asked` for or that suits it.
///
/// # Errors
/// When it cannot be.
pub fn scales(setup: &Setup, name: &str, asked: Option<Way>) -> Result<(Crew, Way), Unscalable> {
    let mut all = formed(setup).into_iter();
    let Some(formed) = all.find(|formed| formed.crew.is_of(name)) else {
        return Err(Unscalable::NoInstances(name.to_owned()));
    };
    let may_move = movable(setup, &formed);
    let Formed { crew, fused, .. } = formed;
    let group = setup.groups.get(crew.first_group());
    let meets = group
        .is_some_and(|group| !matches!(group.spread, SpreadSpec::InTurn | SpreadSpec::LeastLoaded));
    let way = match (asked, may_move) {
        (None | Some(Way::Moves), Ok(())) => Way::Moves,
        (Some(Way::OldFlowsEnd(limit)), Ok(())) => Way::OldFlowsEnd(limit),
        (Some(Way::Rebalance), Ok(())) => return Err(Unscalable::FlowsMove(crew.name)),
        (Some(Way::Moves | Way::OldFlowsEnd(_)), Err(_)) if !meets => {
            return Err(Unscalable::NeedNotMeet(crew.name));
        }
        (None, Err(Unmovable::OtherKey(..))) => return Err(Unscalable::Meets(crew.name)),
        (None | Some(Way::Rebalance), Err(_)) if !meets => Way::Rebalance,
        (Some(Way::Rebalance), Err(Unmovable::OtherKey(..))) => Way::Rebalance,
        (_, Err(why)) => return Err(why.into()),
    };
    if way == Way::Rebalance {
        if is_fused(setup, &crew, fused) {
            return Err(Unmovable::Fused(crew.name).into());
        }
        if let Some(why) = misplaced(setup, &crew) {
            return Err(why.into());
        }
    }
    Ok((crew, way))
}

/// True when not every instance has lanes from who divides, and a worker of its own.
fn is_fused(setup: &Setup, crew: &Crew, fused: bool) -> bool {
    let is_short = |group: &u16| {
        let group = setup.groups.get(usize::from(*group));
        group.is_none_or(|group| group.weights.len() != crew.instances.len())
    };
    let workers: BTreeSet<usize> = crew.instances.iter().map(|own| own.worker).collect();
    fused || workers.len() < crew.instances.len() || crew.groups.iter().any(is_short)
}

/// The crews of a setup, and of NFs of several instances that have none why.
#[must_use]
pub fn of(setup: &Setup) -> Vec<Result<Crew, Unmovable>> {
    let judged = |formed: Formed| movable(setup, &formed).map(|()| formed.crew);
    formed(setup).into_iter().map(judged).collect()
}

/// Which instance a worker's node has, from 1, of an NF that has several.
pub(crate) fn instance_at(
    setup: &Setup,
    crews: &[Result<Crew, Unmovable>],
    (w, at): (usize, usize),
) -> Option<u32> {
    let of = |at: u16| crews.iter().flatten().find_map(|crew| crew.replica_at(w, at));
    let replica = u16::try_from(at).ok().and_then(of);
    // Of those whose flows cannot move there is no crew.
    let part = setup.workers.get(w)?.nodes.get(at)?.part;
    replica.map(|at| at as u32 + 1).or(part.map(|part| u32::from(part.index) + 1))
}

/// The lanes by which `worker` sends to instance `index` of a group, with the number of the worker's output edge.
fn edges_to(setup: &Setup, worker: usize, group: usize) -> Vec<(usize, usize, bool)> {
    let nodes = setup.workers.get(worker).map_or(&[][..], |w| &w.nodes);
    let branches = nodes.iter().flat_map(|node| &node.outputs).flatten();
    let own = branches.filter_map(|branch| {
        let share = branch.share.filter(|share| usize::from(share.group) == group)?;
        let is_lane = matches!(branch.target, TargetSpec::Lane | TargetSpec::Back);
        Some((usize::from(share.index), usize::from(branch.edge?), is_lane))
    });
    own.collect()
}

/// The lanes from a worker over one of its edges.
pub(crate) fn lanes_of(
    setup: &Setup,
    worker: usize,
    edge: usize,
) -> impl Iterator<Item = (usize, &LaneSetup)> {
    let all = setup.lanes.iter().enumerate();
    all.filter(move |(_, lane)| lane.from == worker && usize::from(lane.edge) == edge)
        .filter(|(_, lane)| lane.carries == LaneCarries::Packets)
}

/// Whether the flows of a crew's NF can be moved.
fn movable(setup: &Setup, formed: &Formed) -> Result<(), Unmovable> {
    let Formed { crew, fused, crossed } = formed;
    let name = crew.name.clone();
    let spread = |group: &u16| setup.groups.get(usize::from(*group)).map(|group| group.spread);
    // One that divides otherwise than by flows speaks for all.
    let mut spreads = crew.groups.iter().filter_map(spread);
    let other = spreads.find(|spread| *spread != SpreadSpec::Flow);
    let refused = match other.unwrap_or(SpreadSpec::Flow) {
        SpreadSpec::InTurn | SpreadSpec::LeastLoaded => Some(Unmovable::NotByFlow(name)),
        SpreadSpec::Source => Some(Unmovable::OtherKey(name, "source address")),
        SpreadSpec::Tuple => Some(Unmovable::OtherKey(name, "5-tuple")),
        SpreadSpec::Fields { .. } => {
            Some(Unmovable::OtherKey(name, "fields of the 5-tuple that were chosen"))
        }
        SpreadSpec::Flow | SpreadSpec::Ends | SpreadSpec::Client
            if is_fused(setup, crew, *fused) =>
        {
            Some(Unmovable::Fused(name))
        }
        SpreadSpec::Flow | SpreadSpec::Ends | SpreadSpec::Client if crew.instances.len() > MOST => {
            Some(Unmovable::TooMany(name, crew.instances.len()))
        }
        SpreadSpec::Flow | SpreadSpec::Ends | SpreadSpec::Client => {
            crossed.clone().or_else(|| refused(setup, crew))
        }
    };
    refused.map_or(Ok(()), Err)
}

/// Why who is of a crew stands where instances cannot change what they have.
fn misplaced(setup: &Setup, crew: &Crew) -> Option<Unmovable> {
    let name = || crew.name.clone();
    let first = crew.instances.first()?.worker;
    let domain = setup.workers.get(first)?.domain;
    for worker in crew.workers().filter_map(|w| setup.workers.get(w)) {
        if worker.domain != domain || worker.takes_from != domain {
            return Some(Unmovable::Domains(name()));
        }
        if worker.branch || worker.nodes.iter().any(|node| node.sync.is_some()) {
            return Some(Unmovable::Stage(name()));
        }
    }
    let lends = |lane: &LaneSetup| {
        let concerns = crew.instances.iter().any(|instance| lane.to == instance.worker);
        concerns && (lane.carries != LaneCarries::Packets || lane.back || lane.closes)
    };
    setup.lanes.iter().any(lends).then(|| Unmovable::Stage(name()))
}

fn refused(setup: &Setup, crew: &Crew) -> Option<Unmovable> {
    let name = || crew.name.clone();
    if let Some(why) = misplaced(setup, crew) {
        return Some(why);
    }
    let first = crew.instances.first()?;
    if first.nodes.is_empty() {
        return Some(Unmovable::NoFlows(name()));
    }
    if let Some(why) = replicas::misses(setup, crew) {
        return Some(why);
    }
    let divided = crew.divided(setup);
    for source in 0..setup.sources {
        let gives = |w: &&usize| {
            setup.lanes.iter().any(|lane| {
                let edge = (lane.from, usize::from(lane.edge));
                lane.from == **w
                    && lane.source == source
                    && divided.iter().any(|(from, out, _)| (*from, *out) == edge)
            })
        };
        if crew.senders.iter().filter(gives).count() > 1 {
            return Some(Unmovable::Ways(name()));
        }
    }
    None
}

impl Crew {
    /// True when its flows are those of the NF called `name`; or of all of several, joined by `+`.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        name.split('+').all(|name| self.nfs.iter().any(|nf| nf == name))
    }

    /// The place of the first of its groups, which stands for the crew.
    #[must_use]
    pub fn group(&self) -> u16 {
        self.groups.first().copied().unwrap_or(u16::MAX)
    }

    fn first_group(&self) -> usize {
        self.group().into()
    }

    /// All workers that take part.
    fn workers(&self) -> impl Iterator<Item = usize> {
        self.instances.iter().map(|instance| instance.worker).chain(self.senders.iter().copied())
    }

    /// The edges by which packets are divided over its instances: worker, the worker's output edge, and the instance that it
    /// leads to.
    fn divided(&self, setup: &Setup) -> BTreeSet<(usize, usize, usize)> {
        let mut all = BTreeSet::new();
        for &worker in &self.senders {
            for group in &self.groups {
                let edges = edges_to(setup, worker, (*group).into()).into_iter();
                all.extend(edges.map(|(index, edge, _)| (worker, edge, index)));
            }
        }
        all
    }

    /// Of sender `worker` its lanes out to the instances, by their places among its lanes out.
    pub(crate) fn lanes_out(&self, setup: &Setup, worker: usize) -> Vec<(u16, u16)> {
        let divided = self.divided(setup);
        let own = setup.lanes.iter().filter(|lane| lane.from == worker).enumerate();
        let leads = |lane: &LaneSetup| {
            let edge = (worker, usize::from(lane.edge));
            let (_, _, index) = divided.iter().find(|(from, out, _)| (*from, *out) == edge)?;
            lane.has_packets().then_some(*index)
        };
        own.filter_map(|(at, lane)| Some((at as u16, leads(lane)? as u16))).collect()
    }

    /// Of replica `index` its lanes in by which its packets come, by their places among its worker's lanes in, with
    /// the number of who sends.
    pub(crate) fn lanes_in(&self, setup: &Setup, index: usize) -> Vec<(u16, u16)> {
        let Some(instance) = self.instances.get(index) else { return Vec::new() };
        let divided = self.divided(setup);
        let own = setup.lanes.iter().filter(|lane| lane.to == instance.worker).enumerate();
        let sender = |lane: &LaneSetup| {
            let comes = divided.contains(&(lane.from, usize::from(lane.edge), index));
            let at = self.senders.iter().position(|sender| *sender == lane.from);
            at.filter(|_| comes && lane.has_packets())
        };
        own.filter_map(|(at, lane)| Some((at as u16, sender(lane)? as u16))).collect()
    }

    /// The replica, from 0, that node `node` of `worker` is of.
    #[must_use]
    pub fn replica_at(&self, worker: usize, node: u16) -> Option<usize> {
        let has = |instance: &Instance| {
            instance.worker == worker
                && (instance.nodes.contains(&node) || instance.entries.contains(&node))
        };
        self.instances.iter().position(has)
    }

    /// True when a worker takes part.
    #[must_use]
    pub fn has(&self, worker: usize) -> bool {
        self.workers().any(|own| own == worker)
    }
}

/// True for a worker that takes what comes in place of one that was named too often.
pub(crate) fn is_drain(setup: &Setup, worker: usize) -> bool {
    setup.workers.get(worker).is_some_and(|w| w.end == EndSpec::Drain)
}
