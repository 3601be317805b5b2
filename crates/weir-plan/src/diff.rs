//! From one plan to another: the actions that lead there.
//!
//! Everything is known by its name: NF instances by theirs, workers by their segments', rings by edge,
//! source and ends. So a plan's *state* is a set of facts, and an action changes one of them, with
//! what was and what shall be: that makes each reversible. The idea of a list of actions between two
//! configurations is from Snabb's engine (`compute_config_actions`).

mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use serde::Serialize;
use serde_json::Value;

use crate::explain::weights_to_text;
use crate::graph::{NodeId, NodeKind};
use crate::plan::{Carries, Plan, SegmentId, SegmentKind};

/// A worker, by its segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerFacts {
    /// Its nodes' names.
    pub nodes: Vec<String>,
    /// The port number that it serves, if it is a device's service.
    pub port: Option<u16>,
    /// The core that it is pinned on.
    pub core: Option<usize>,
    /// Its trust domain; empty for the graph's own.
    pub domain: String,
    /// True when it may write packets.
    pub writes_packets: bool,
    /// The number of the outside program that it is.
    pub program: Option<u16>,
}

/// An NF instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NfFacts {
    /// Its type.
    pub type_name: String,
    /// Its configuration.
    pub config: Value,
}

/// One way out of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteFacts {
    /// The output's name; empty for a port's.
    pub output: String,
    /// Which packets take it; empty for all that get here.
    pub filter: String,
    /// The node that it leads to.
    pub to: String,
    /// That node's input.
    pub input: usize,
    /// True for an instance that gets its share of the packets, as [`GroupFacts`] says; false when it gets all.
    pub share: bool,
}

/// All ways out of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Routes {
    /// In the order in which packets try them.
    pub ways: Vec<RouteFacts>,
    /// Outputs whose packets are dropped by policy when they take none.
    pub else_dropped: Vec<String>,
}

/// The instances of an NF that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupFacts {
    /// Their names.
    pub instances: Vec<String>,
    /// How packets are divided over them.
    pub divided: String,
    /// Their weights.
    pub weights: Vec<u32>,
}

/// What is in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RingUse {
    /// Packets, which go by it.
    #[default]
    Packets,
    /// Packets, lent to a branch of a parallel stage.
    Lent,
    /// What a branch of a parallel stage says of them.
    Answers,
}

/// A ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RingFacts {
    /// Its edge.
    pub edge: String,
    /// Its packets' source.
    pub source: String,
    /// Its producer.
    pub from: String,
    /// Its consumer.
    pub to: String,
    /// What is in it.
    pub carries: RingUse,
    /// True when its producer publishes watermarks.
    pub ordered: bool,
    /// True when its edge closes a cycle.
    pub closes: bool,
    /// True when packets come there only around a cycle.
    pub back: bool,
}

/// What a running graph is, as far as a plan says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct State {
    /// By name.
    pub workers: BTreeMap<String, WorkerFacts>,
    /// By name.
    pub nfs: BTreeMap<String, NfFacts>,
    /// By node.
    pub routes: BTreeMap<String, Routes>,
    /// By NF: those that have several instances.
    pub groups: BTreeMap<String, GroupFacts>,
    /// All rings.
    pub rings: BTreeSet<RingFacts>,
}

/// One step. It can be taken back: [`Action::reversed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// A worker begins (`from` is none), ends (`to` is none), or becomes another.
    Worker {
        /// Its name.
        name: String,
        /// What it was.
        from: Option<WorkerFacts>,
        /// What it shall be.
        to: Option<WorkerFacts>,
    },
    /// An NF is made, removed, or gets another configuration (or type: then its state is lost).
    Nf {
        /// Its name.
        name: String,
        /// What it was.
        from: Option<NfFacts>,
        /// What it shall be.
        to: Option<NfFacts>,
    },
    /// A ring is laid (`add`) or taken away.
    Ring {
        /// Which.
        ring: RingFacts,
        /// True when it is laid.
        add: bool,
    },
    /// An NF is divided into instances (`from` is none), is one again (`to` is none), or its packets are divided
    /// otherwise.
    Group {
        /// The NF.
        name: String,
        /// As it was.
        from: Option<GroupFacts>,
        /// As it shall be.
        to: Option<GroupFacts>,
    },
    /// The ways out of a node change.
    Route {
        /// The node.
        node: String,
        /// As they were.
        from: Option<Routes>,
        /// As they shall be.
        to: Option<Routes>,
    },
}

/// The actions that lead from `old` to `new`, in an order in which packets always have a way: what is
/// new is there before packets are sent to it, what is old goes when none come any more.
#[must_use]
pub fn diff(old: &Plan, new: &Plan) -> Vec<Action> {
    between(&State::of(old), &State::of(new))
}

/// As [`diff`], between states.
#[must_use]
pub fn between(old: &State, new: &State) -> Vec<Action> {
    let workers = changes(&old.workers, &new.workers);
    let nfs = changes(&old.nfs, &new.nfs);
    let routes = changes(&old.routes, &new.routes);
    let groups = changes(&old.groups, &new.groups);
    let worker = |(name, from, to)| Action::Worker { name, from, to };
    let nf = |(name, from, to)| Action::Nf { name, from, to };
    let group = |(name, from, to)| Action::Group { name, from, to };
    let ring = |ring: &RingFacts, add| Action::Ring { ring: ring.clone(), add };
    let (workers_gone, workers): (Vec<_>, Vec<_>) =
        workers.into_iter().map(worker).partition(Action::ends);
    let (nfs_gone, nfs): (Vec<_>, Vec<_>) = nfs.into_iter().map(nf).partition(Action::ends);
    let (groups_gone, groups): (Vec<_>, Vec<_>) =
        groups.into_iter().map(group).partition(Action::ends);
    let mut actions = workers;
    actions.extend(nfs);
    actions.extend(new.rings.difference(&old.rings).map(|r| ring(r, true)));
    actions.extend(groups);
    // Ways out of what is new before ways to it, ways out of what goes last.
    let mut routes = routes;
    routes.sort_by_key(|(_, from, to)| (from.is_some(), to.is_none()));
    let route = |(node, from, to)| Action::Route { node, from, to };
    actions.extend(routes.into_iter().map(route));
    actions.extend(groups_gone);
    actions.extend(old.rings.difference(&new.rings).map(|r| ring(r, false)));
    actions.extend(nfs_gone);
    actions.extend(workers_gone);
    actions
}

type Change<T> = (String, Option<T>, Option<T>);

fn changes<T: Clone + PartialEq>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Vec<Change<T>> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |name: &String| (name.clone(), old.get(name).cloned(), new.get(name).cloned());
    names.into_iter().map(change).filter(|(_, from, to)| from != to).collect()
}

impl Action {
    /// The action that takes this one back.
    #[must_use]
    pub fn reversed(self) -> Action {
        match self {
            Action::Worker { name, from, to } => Action::Worker { name, from: to, to: from },
            Action::Nf { name, from, to } => Action::Nf { name, from: to, to: from },
            Action::Ring { ring, add } => Action::Ring { ring, add: !add },
            Action::Group { name, from, to } => Action::Group { name, from: to, to: from },
            Action::Route { node, from, to } => Action::Route { node, from: to, to: from },
        }
    }

    /// True when something goes.
    fn ends(&self) -> bool {
        match self {
            Action::Worker { to, .. } => to.is_none(),
            Action::Nf { to, .. } => to.is_none(),
            Action::Route { to, .. } => to.is_none(),
            Action::Group { to, .. } => to.is_none(),
            Action::Ring { add, .. } => !add,
        }
    }
}

impl State {
    /// A plan's.
    #[must_use]
    pub fn of(plan: &Plan) -> State {
        let mut state = State::default();
        let node_name = |id: NodeId| plan.graph.node(id).map_or("", |node| node.name.as_str());
        let worker_name = |id: SegmentId| plan.segment(id).map_or("", |s| s.name.as_str());
        for segment in &plan.segments {
            let facts = WorkerFacts {
                nodes: segment.nodes.iter().map(|id| node_name(*id).to_owned()).collect(),
                port: match segment.kind {
                    SegmentKind::Rx { port, .. } | SegmentKind::Tx { port } => Some(port),
                    SegmentKind::Nf | SegmentKind::Gate { .. } => None,
                },
                core: segment.core,
                domain: segment.domain.clone(),
                writes_packets: segment.writes_packets,
                program: segment.program.map(|program| program.0),
            };
            state.workers.insert(segment.name.clone(), facts);
        }
        for node in plan.graph.nodes() {
            if let NodeKind::Nf { info, config } = &node.kind {
                let facts = NfFacts { type_name: info.name.clone(), config: config.clone() };
                state.nfs.insert(node.name.clone(), facts);
            }
            let mut ways = Vec::new();
            for output in &node.outputs {
                for branch in &output.branches {
                    let Some(edge) = plan.graph.edge(branch.edge) else {
                        continue;
                    };
                    ways.push(RouteFacts {
                        output: output.name.clone(),
                        filter: branch.filter.as_ref().map(ToString::to_string).unwrap_or_default(),
                        to: node_name(edge.to).to_owned(),
                        input: edge.input,
                        share: edge.share.is_some(),
                    });
                }
            }
            let dropped = node.outputs.iter().filter(|output| output.default_drop);
            let else_dropped: Vec<String> = dropped.map(|output| output.name.clone()).collect();
            if !ways.is_empty() || !else_dropped.is_empty() {
                state.routes.insert(node.name.clone(), Routes { ways, else_dropped });
            }
        }
        for group in &plan.groups {
            let facts = GroupFacts {
                instances: group.nodes.iter().map(|id| node_name(*id).to_owned()).collect(),
                divided: plan.division(group),
                weights: group.weights.clone(),
            };
            state.groups.insert(group.name.clone(), facts);
        }
        for lane in &plan.lanes {
            let source = plan.sources.get(usize::try_from(lane.source.0).unwrap_or(usize::MAX));
            state.rings.insert(RingFacts {
                edge: plan.graph.edge(lane.edge).map_or("", |edge| &edge.name).to_owned(),
                source: source.map_or("", |source| &source.name).to_owned(),
                from: worker_name(lane.from).to_owned(),
                to: worker_name(lane.to).to_owned(),
                carries: match lane.carries {
                    Carries::Packets => RingUse::Packets,
                    Carries::Loans { .. } => RingUse::Lent,
                    Carries::Answers { .. } => RingUse::Answers,
                },
                ordered: lane.ordered,
                closes: lane.closes,
                back: lane.back,
            });
        }
        state
    }

    /// The state after an action; `None` when what the action says there was is not what is there.
    #[must_use]
    pub fn after(mut self, action: &Action) -> Option<State> {
        let fits = match action {
            Action::Worker { name, from, to } => replace(&mut self.workers, name, from, to),
            Action::Nf { name, from, to } => replace(&mut self.nfs, name, from, to),
            Action::Route { node, from, to } => replace(&mut self.routes, node, from, to),
            Action::Group { name, from, to } => replace(&mut self.groups, name, from, to),
            Action::Ring { ring, add: true } => self.rings.insert(ring.clone()),
            Action::Ring { ring, add: false } => self.rings.remove(ring),
        };
        fits.then_some(self)
    }
}

fn replace<T: Clone + PartialEq>(
    map: &mut BTreeMap<String, T>,
    name: &str,
    from: &Option<T>,
    to: &Option<T>,
) -> bool {
    let was = match to {
        Some(to) => map.insert(name.to_owned(), to.clone()),
        None => map.remove(name),
    };
    was == *from
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Action::Worker { name, from: None, to: Some(to) } => {
                write!(f, "start worker {name}")?;
                if let Some(core) = to.core {
                    write!(f, " on core {core}")?;
                }
                if to.domain.is_empty() { Ok(()) } else { write!(f, " in domain `{}`", to.domain) }
            }
            Action::Worker { name, from: Some(from), to: Some(to) } => {
                write!(f, "restart worker {name}: {}", differences(from, to))
            }
            Action::Worker { name, .. } => write!(f, "stop worker {name}"),
            Action::Nf { name, from: None, to: Some(to) } => {
                write!(f, "make {name} ({} {})", to.type_name, to.config)
            }
            Action::Nf { name, from: Some(from), to: Some(to) } => {
                if from.type_name == to.type_name {
                    let differences = config::differences(&from.config, &to.config);
                    write!(f, "reconfigure {name}: {differences}")
                } else {
                    write!(f, "replace {name} ({} by {})", from.type_name, to.type_name)
                }
            }
            Action::Nf { name, .. } => write!(f, "remove {name}"),
            Action::Ring { ring, add } => {
                let verb = if *add { "lay" } else { "take away" };
                write!(f, "{verb} the ring {} => {}: ", ring.from, ring.to)?;
                write!(f, "{}, {} of {}", ring.edge, ring.carries, ring.source)?;
                f.write_str(if ring.ordered { ", with watermarks" } else { "" })
            }
            Action::Group { name, to: None, .. } => write!(f, "run {name} as one instance"),
            Action::Group { name, to: Some(to), .. } => {
                let (instances, weights) = (to.instances.join(", "), weights_to_text(&to.weights));
                write!(f, "divide packets of {name} over {instances} {}{weights}", to.divided)
            }
            Action::Route { node, to, .. } => {
                write!(f, "route {node}:")?;
                let Routes { ways, else_dropped } = to.clone().unwrap_or_default();
                for (at, way) in ways.iter().enumerate() {
                    write!(f, "{} {way}", if at == 0 { "" } else { ";" })?;
                }
                if ways.is_empty() {
                    f.write_str(" nowhere")?;
                }
                match else_dropped.as_slice() {
                    [] => Ok(()),
                    [one] if one.is_empty() => f.write_str("; else drop"),
                    outputs => write!(f, "; else drop {}", outputs.join(", ")),
                }
            }
        }
    }
}

impl Display for RouteFacts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.output.is_empty() {
            write!(f, "{} ", self.output)?;
        }
        if !self.filter.is_empty() {
            write!(f, "[{}] ", self.filter)?;
        }
        write!(f, "-> {}{}", self.to, if self.share { " (its share)" } else { "" })
    }
}

impl Display for RingUse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingUse::Packets => "packets",
            RingUse::Lent => "packets lent",
            RingUse::Answers => "answers on packets",
        })
    }
}

/// What differs between a worker and what it becomes.
fn differences(from: &WorkerFacts, to: &WorkerFacts) -> String {
    let core = |core: Option<usize>| core.map_or("any core".to_owned(), |c| format!("core {c}"));
    let mut all = Vec::new();
    if from.nodes != to.nodes {
        all.push(format!("it runs {} instead of {}", to.nodes.join(", "), from.nodes.join(", ")));
    }
    if from.port != to.port {
        let port = |port: Option<u16>| port.map_or("no port".to_owned(), |p| format!("port {p}"));
        all.push(format!("it serves {} instead of {}", port(to.port), port(from.port)));
    }
    if from.core != to.core {
        all.push(format!("on {} instead of {}", core(to.core), core(from.core)));
    }
    if from.domain != to.domain {
        let domain = |name: &str| match name {
            "" => "the graph's own domain".to_owned(),
            name => format!("domain `{name}`"),
        };
        all.push(format!("in {} instead of {}", domain(&to.domain), domain(&from.domain)));
    }
    if from.writes_packets != to.writes_packets {
        let may = if to.writes_packets { "may" } else { "may no longer" };
        all.push(format!("it {may} write packets"));
    }
    if from.program != to.program {
        all.push("another program".to_owned());
    }
    all.join(", ")
}
