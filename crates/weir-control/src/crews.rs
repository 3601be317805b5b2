//! Which NFs' flows can go from one instance to another, and who takes part.

mod followers;

use crate::scale::Way;
use crate::setup::{LaneCarries, LaneSetup, Setup};
use std::collections::{BTreeMap, BTreeSet};
use weir_runtime::spec::{EndSpec, SpreadSpec, TargetSpec};

/// Most instances of a crew: each writes letters to each other.
const MOST: usize = 16;

/// An NF's instances, and the workers that divide its packets over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crew {
    /// The NF, by its place in [`Setup::groups`].
    pub group: u16,
    /// Its name.
    pub name: String,
    /// By instance: its worker, and its node there.
    pub instances: Vec<(usize, u16)>,
    /// Workers that divide.
    pub senders: Vec<usize>,
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
        "packets of {0} are divided by {1}; only the flows of an NF whose packets are divided by flow, both directions alike, move"
    )]
    OtherKey(String, &'static str),
    /// Nothing is to move.
    #[error("{0} remembers nothing of flows")]
    NoFlows(String),
    /// What its packets wait for cannot move.
    #[error("{0} holds packets, which cannot move with their flows")]
    Holds(String),
    /// Its code is elsewhere.
    #[error("{0} is of an outside program")]
    Outside(String),
    /// What leaves by a letter is not committed with its replica.
    #[error("{0} is replicated (--replicate), and flows that are do not move yet")]
    Replicated(String),
    /// No lane, so no marker.
    #[error(
        "instances of {0} are in the worker that divides its packets; choose another --isolate"
    )]
    Fused(String),
    /// Markers and letters stay within a domain.
    #[error("{0} and who gives it packets are in different trust domains")]
    Domains(String),
    /// Packets are shared there.
    #[error("{0} stands in a parallel stage, or around a cycle")]
    Stage(String),
    /// What is known of a flow stands in several places.
    #[error(
        "{0} and {1} behind it both remember something of a flow, and {1} has its packets as they were divided for {0}; flows of {0} \
         move when {1} has one instance"
    )]
    Followed(String, String),
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
    /// The NF's name.
    #[must_use]
    pub fn nf(&self) -> &str {
        match self {
            Unmovable::NotByFlow(nf)
            | Unmovable::OtherKey(nf, _)
            | Unmovable::NoFlows(nf)
            | Unmovable::Holds(nf)
            | Unmovable::Outside(nf)
            | Unmovable::Replicated(nf)
            | Unmovable::Fused(nf)
            | Unmovable::Domains(nf)
            | Unmovable::Stage(nf)
            | Unmovable::Followed(nf, _)
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
    #[error("packets of {0} need not meet, so no flow moves: leave `moves` out")]
    NeedNotMeet(String),
}

/// The NF called `name` as one whose instances become more and fewer, in the way that was `asked` for or that suits it.
///
/// # Errors
/// When it cannot be.
pub fn scales(setup: &Setup, name: &str, asked: Option<Way>) -> Result<(Crew, Way), Unscalable> {
    let mut all = (0..setup.groups.len()).filter_map(|group| members(setup, group));
    let Some((crew, fused)) = all.find(|(crew, _)| crew.name == name) else {
        return Err(Unscalable::NoInstances(name.to_owned()));
    };
    let group = setup.groups.get(usize::from(crew.group));
    let meets = group
        .is_some_and(|group| !matches!(group.spread, SpreadSpec::InTurn | SpreadSpec::LeastLoaded));
    let way = match (asked, movable(setup, &crew, fused)) {
        (None | Some(Way::Moves), Ok(())) => Way::Moves,
        (Some(Way::Rebalance), Ok(())) => return Err(Unscalable::FlowsMove(crew.name)),
        (Some(Way::Moves), Err(_)) if !meets => return Err(Unscalable::NeedNotMeet(crew.name)),
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

/// True when not every instance has lanes from who divides.
fn is_fused(setup: &Setup, crew: &Crew, fused: bool) -> bool {
    let group = setup.groups.get(usize::from(crew.group));
    fused || group.is_none_or(|group| group.weights.len() != crew.instances.len())
}

/// The crews of a setup, and of NFs of several instances that have none why.
#[must_use]
pub fn of(setup: &Setup) -> Vec<Result<Crew, Unmovable>> {
    (0..setup.groups.len()).filter_map(|group| crew(setup, group)).collect()
}

/// The lanes by which `worker` sends to instance `index` of a group, with the number of the worker's output edge.
fn edges_to(setup: &Setup, worker: usize, group: usize) -> Vec<(usize, usize, bool)> {
    let nodes = setup.workers.get(worker).map_or(&[][..], |w| &w.nodes);
    let branches = nodes.iter().flat_map(|node| &node.outputs).flatten();
    let own = branches.filter_map(|branch| {
        let share = branch.share.filter(|share| usize::from(share.group) == group)?;
        let is_lane = matches!(branch.target, TargetSpec::Lane);
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

fn crew(setup: &Setup, group: usize) -> Option<Result<Crew, Unmovable>> {
    let (crew, fused) = members(setup, group)?;
    Some(movable(setup, &crew, fused).map(|()| crew))
}

/// Who is of an NF's crew; and whether some instance is where its packets are divided.
fn members(setup: &Setup, group: usize) -> Option<(Crew, bool)> {
    let mut instances: BTreeMap<usize, (usize, u16)> = BTreeMap::new();
    let (mut senders, mut fused) = (BTreeSet::new(), false);
    for worker in 0..setup.workers.len() {
        for (index, edge, is_lane) in edges_to(setup, worker, group) {
            fused |= !is_lane;
            senders.insert(worker);
            for (_, lane) in lanes_of(setup, worker, edge) {
                instances.insert(index, (lane.to, lane.node));
            }
        }
    }
    let (first, node) = *instances.values().next()?;
    let node = setup.workers.get(first)?.nodes.get(usize::from(node))?;
    let name = node.name.clone();
    let crew = Crew {
        group: u16::try_from(group).ok()?,
        name: name.clone(),
        instances: instances.values().copied().collect(),
        senders: senders.into_iter().collect(),
    };
    Some((crew, fused))
}

/// Whether the flows of a crew's NF can be moved.
fn movable(setup: &Setup, crew: &Crew, fused: bool) -> Result<(), Unmovable> {
    let name = crew.name.clone();
    let spread = setup.groups.get(usize::from(crew.group)).map(|group| group.spread);
    let refused = match spread.unwrap_or(SpreadSpec::InTurn) {
        SpreadSpec::InTurn | SpreadSpec::LeastLoaded => Some(Unmovable::NotByFlow(name)),
        SpreadSpec::Source => Some(Unmovable::OtherKey(name, "source address")),
        SpreadSpec::Tuple => Some(Unmovable::OtherKey(name, "5-tuple")),
        SpreadSpec::Fields { .. } => {
            Some(Unmovable::OtherKey(name, "fields of the 5-tuple that were chosen"))
        }
        SpreadSpec::Flow | SpreadSpec::Ends if is_fused(setup, crew, fused) => {
            Some(Unmovable::Fused(name))
        }
        SpreadSpec::Flow | SpreadSpec::Ends if crew.instances.len() > MOST => {
            Some(Unmovable::TooMany(name, crew.instances.len()))
        }
        SpreadSpec::Flow | SpreadSpec::Ends => refused(setup, crew),
    };
    refused.map_or(Ok(()), Err)
}

/// Why who is of a crew stands where instances cannot change what they have.
fn misplaced(setup: &Setup, crew: &Crew) -> Option<Unmovable> {
    let name = || crew.name.clone();
    let (first, _) = *crew.instances.first()?;
    let domain = setup.workers.get(first)?.domain;
    let members = || crew.instances.iter().map(|(w, _)| *w).chain(crew.senders.iter().copied());
    for worker in members().filter_map(|w| setup.workers.get(w)) {
        if worker.domain != domain || worker.takes_from != domain {
            return Some(Unmovable::Domains(name()));
        }
        if worker.branch || worker.nodes.iter().any(|node| node.sync.is_some()) {
            return Some(Unmovable::Stage(name()));
        }
    }
    let lends = |lane: &LaneSetup| {
        let concerns = crew.instances.iter().any(|(w, _)| lane.to == *w);
        concerns && (lane.carries != LaneCarries::Packets || lane.back || lane.closes)
    };
    setup.lanes.iter().any(lends).then(|| Unmovable::Stage(name()))
}

fn refused(setup: &Setup, crew: &Crew) -> Option<Unmovable> {
    let name = || crew.name.clone();
    let (first, node) = *crew.instances.first()?;
    let members = || crew.instances.iter().map(|(w, _)| *w).chain(crew.senders.iter().copied());
    if let Some(why) = misplaced(setup, crew) {
        return Some(why);
    }
    if members().any(|w| setup.workers.get(w).is_some_and(|w| w.program.is_some())) {
        return Some(Unmovable::Outside(name()));
    }
    let node = setup.workers.get(first)?.nodes.get(usize::from(node))?;
    if node.replicate.is_some() {
        return Some(Unmovable::Replicated(name()));
    }
    match node.nf.as_ref().and_then(|(kind, _)| weir_nf::find(kind).ok()) {
        // One that was named too often has none.
        None => {}
        Some(found) if !found.follows => return Some(Unmovable::NoFlows(name())),
        Some(found) if found.descriptor.holds > 0 => return Some(Unmovable::Holds(name())),
        Some(_) => {}
    }
    if let Some(behind) = followers::follower(setup, crew) {
        return Some(Unmovable::Followed(name(), behind));
    }
    for source in 0..setup.sources {
        let gives = |w: &&usize| {
            setup.lanes.iter().any(|lane| {
                let comes =
                    crew.instances.iter().any(|(to, node)| (lane.to, lane.node) == (*to, *node));
                lane.from == **w && lane.source == source && comes
            })
        };
        if crew.senders.iter().filter(gives).count() > 1 {
            return Some(Unmovable::Ways(name()));
        }
    }
    None
}

impl Crew {
    /// Of sender `worker` its lanes out to the instances, by their places among its lanes out.
    pub(crate) fn lanes_out(&self, setup: &Setup, worker: usize) -> Vec<(u16, u16)> {
        let mut all = Vec::new();
        for (index, edge, _) in edges_to(setup, worker, self.group.into()) {
            for (l, _) in lanes_of(setup, worker, edge) {
                let before = setup.lanes.iter().take(l).filter(|lane| lane.from == worker).count();
                all.push((before as u16, index as u16));
            }
        }
        all
    }

    /// Of the instance `(worker, node)` its lanes in by which packets come, by their places among its lanes in, with
    /// the number of who sends.
    pub(crate) fn lanes_in(&self, setup: &Setup, (worker, node): (usize, u16)) -> Vec<(u16, u16)> {
        let own = setup.lanes.iter().filter(|lane| lane.to == worker).enumerate();
        let sender = |from: usize| self.senders.iter().position(|sender| *sender == from);
        own.filter(|(_, lane)| lane.node == node)
            .filter_map(|(at, lane)| Some((at as u16, sender(lane.from)? as u16)))
            .collect()
    }

    /// True when a worker takes part.
    #[must_use]
    pub fn has(&self, worker: usize) -> bool {
        self.senders.contains(&worker) || self.instances.iter().any(|(w, _)| *w == worker)
    }
}

/// True for a worker that takes what comes in place of one that was named too often.
pub(crate) fn is_drain(setup: &Setup, worker: usize) -> bool {
    setup.workers.get(worker).is_some_and(|w| w.end == EndSpec::Drain)
}
