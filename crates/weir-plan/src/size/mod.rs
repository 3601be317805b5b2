//! Sizing: how many instances of each NF the expected traffic needs, and how packets are divided
//! over them (E2 §5.1, steps 2 and 3). The policy graph becomes the instance graph (iGraph).
//!
//! - **Load**: what the edges to an NF are stated or estimated to carry ([`traffic`]).
//! - **Capacity**: the clock rate over the NF's cycles per packet and its share of a ring.
//! - **Division**: by what the NF's affinity keeps together. Where the NF before is divided so that this
//!   one's packets are together already, they are not divided anew (E2's Fig. 4(d)).
//!
//! [`unfold`] makes the graph that runs of it: a node for each instance, and edges to each.
//!
//! Which instance is on which server is the next step (E2's step 4); it takes an [`Instances`], and is
//! not there yet: all is one server's.

mod divide;
mod replicas;
mod show;
mod sides;
mod traffic;
mod unfold;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use divide::{Key, Split, Way};
pub(crate) use replicas::{NoReplicas, replicas};
pub(crate) use show::mpps;
pub use traffic::{Estimate, MEAN_PACKET_BYTES};
pub(crate) use traffic::{Traffic, Unstated};
pub use unfold::{Group, Spread};
pub(crate) use unfold::{Unfolded, unfold};

use crate::Affinity;
use crate::cost::{RING_CYCLES, bins, cycles};
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};
use crate::service::{Objective, Server};

/// The most instances of an NF.
pub const MAX_INSTANCES: u32 = 64;

/// The instance graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instances {
    /// Clock rate of a core in GHz.
    pub ghz: f64,
    /// Cores that there are for NFs.
    pub cores: u32,
    /// Cores that the instances need at the expected traffic, sharing cores as their loads allow.
    pub cores_needed: u32,
    /// Bytes of a packet, by which bits per second were counted.
    pub packet_bytes: u32,
    /// The NFs in topological order.
    pub nfs: Vec<SizedNf>,
    /// The graph's edges, in its order.
    pub edges: Vec<SizedEdge>,
}

/// An NF with the number of its instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizedNf {
    /// Which.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Packets per second that come to it; `None` when nothing is known of them.
    pub pps: Option<f64>,
    /// Packets per second that an instance manages on a core.
    pub core_pps: f64,
    /// How many instances there are; at least one.
    pub count: u32,
    /// How packets are divided over them, when there are several.
    pub split: Option<Split>,
    /// What is wrong, when they do not do.
    pub over: Option<Over>,
    /// The operator's word on it, which goes before what the traffic needs.
    #[serde(default)]
    pub asked: Option<Asked>,
}

impl SizedNf {
    /// True when the weights change while it runs.
    pub(crate) fn scales(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.scales)
    }

    /// The NFs that it is a segment's replica with, itself among them; none for one that is by itself.
    pub(crate) fn replica_of(&self) -> &[String] {
        self.asked.as_ref().map_or(&[], |asked| &asked.replica_of)
    }

    /// The instances' weights.
    pub(crate) fn weights(&self) -> Vec<u32> {
        let asked = self.asked.as_ref().map(|asked| asked.weights.clone());
        asked.unwrap_or_else(|| Asked::equal(self.count).weights)
    }
}

/// What an operator asks for of an NF's instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// A weight for each instance: its part of flows, or of packets.
    pub weights: Vec<u32>,
    /// Packets that need not meet go to the instance with the least waiting before it, not in turn.
    pub least_loaded: bool,
    /// Which packets meet at one instance, where not those that the NF's own affinity names: fewer may not.
    #[serde(default)]
    pub affinity: Option<Affinity>,
    /// The weights change while it runs: those that have none now stand by.
    #[serde(default)]
    pub scales: bool,
    /// The NFs, itself among them, whose instances of equal number share a worker: a segment's replicas, which packets are divided
    /// over once. Empty for one that is by itself.
    #[serde(default)]
    pub replica_of: Vec<String>,
}

impl Asked {
    /// So many instances of equal weight.
    #[must_use]
    pub fn equal(count: u32) -> Self {
        Self::weighted((0..count).map(|_| 1).collect())
    }

    /// An instance for each of these weights.
    #[must_use]
    pub fn weighted(weights: Vec<u32>) -> Self {
        Asked {
            weights,
            least_loaded: false,
            affinity: None,
            scales: false,
            replica_of: Vec::new(),
        }
    }

    /// True when packets are to go by load or by turn, whatever belongs together.
    pub(crate) fn parts_all(&self) -> bool {
        self.least_loaded || self.affinity == Some(Affinity::None)
    }

    /// How packets were to be divided instead of by `own`, what the NF needs, if it would not do.
    pub(crate) fn parts(&self, own: Affinity) -> Option<Parts> {
        let own = Key::of(own);
        let key = match self.affinity {
            _ if self.least_loaded => Key::Any,
            Some(affinity) => Key::of(affinity),
            None => return None,
        };
        let asked = match key {
            _ if self.least_loaded => "to the least loaded".to_owned(),
            key => key.to_string(),
        };
        (!key.satisfies(own)).then(|| Parts { asked, needed: own.to_string() })
    }

    /// `most` instances, of which the first `least` have packets at first.
    #[must_use]
    pub fn scaling(least: u32, most: u32) -> Self {
        let weights = (0..most).map(|i| u32::from(i < least)).collect();
        Asked { scales: true, ..Self::weighted(weights) }
    }

    /// The same for each of several NFs, which are a segment's replicas together.
    #[must_use]
    pub fn of_replicas(self, nfs: &[String]) -> Vec<(String, Self)> {
        let one = |nf: &String| (nf.clone(), Asked { replica_of: nfs.to_vec(), ..self.clone() });
        nfs.iter().map(one).collect()
    }
}

/// How packets were to be divided, and how the NF needs them divided, in words.
pub(crate) struct Parts {
    pub(crate) asked: String,
    pub(crate) needed: String,
}

/// What a plan with instances is made for.
#[derive(Clone, Copy, Debug)]
pub struct Sizing<'a> {
    /// The server that it runs on.
    pub server: &'a Server,
    /// What is asked of the graph as a whole.
    pub objective: Option<&'a Objective>,
    /// By NF: the operator's word.
    pub asked: &'a BTreeMap<String, Asked>,
}

/// What bounds the number of an NF's instances that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Nothing: as many as the traffic needs.
    None,
    /// More than there are cores for NFs bring nothing.
    Cores,
    /// All share a worker: several bring nothing.
    OneWorker,
}

/// Why an NF cannot carry what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Its description does not allow several instances.
    OneOnly {
        /// How many there would have to be.
        needed: u32,
    },
    /// More than [`MAX_INSTANCES`] would be needed.
    TooMany {
        /// How many there would have to be.
        needed: u32,
    },
    /// There are no cores for so many.
    Cores {
        /// How many there would have to be.
        needed: u32,
    },
    /// All NFs share a worker, in which several would do no more than one.
    OneWorker {
        /// How many there would have to be.
        needed: u32,
    },
}

/// An edge with its traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizedEdge {
    /// Which.
    pub edge: EdgeId,
    /// Its name.
    pub name: String,
    /// Packets per second; `None` when unknown.
    pub pps: Option<f64>,
    /// Where that comes from.
    pub estimate: Estimate,
    /// Instances of the node before and of the node behind it; a port or `Drop` counts as one.
    pub counts: (u32, u32),
    /// How its packets find their instance.
    pub way: Way,
    /// The input that decides which end of a packet counts, where one does: of the NF itself, or of the one among a segment's replicas by which
    /// packets are divided.
    #[serde(default)]
    pub side: usize,
}

/// The instance graph for a server. What ports give that say nothing on their edges is the objective's
/// throughput, as far as there is one.
#[must_use]
pub fn size(graph: &Graph, server: &Server, objective: Option<&Objective>) -> Instances {
    sized(graph, Sizing { server, objective, asked: &BTreeMap::new() }, Bound::None)
}

/// The same, with the operator's word on some NFs, and a bound for the others.
pub(crate) fn sized(graph: &Graph, sizing: Sizing<'_>, bound: Bound) -> Instances {
    let Sizing { server, objective, asked: wanted } = sizing;
    let cores = server.cores.saturating_sub(1).max(1);
    let asked = objective.filter(|objective| objective.pps > 0);
    let bytes_of = |o: &Objective| o.bps?.checked_div(o.pps)?.checked_div(8);
    let packet_bytes = asked.and_then(bytes_of).and_then(|bytes| u32::try_from(bytes).ok());
    let packet_bytes = packet_bytes.unwrap_or(MEAN_PACKET_BYTES);
    let unstated = asked.map_or(Unstated::Unknown, |o| Unstated::Together(o.pps as f64));
    let traffic = Traffic::of(graph, unstated, packet_bytes);
    let hertz = server.ghz * 1e9;
    let mut nfs: Vec<SizedNf> = Vec::new();
    let mut loads = Vec::new();
    for id in graph.order() {
        let Some(node) = graph.node(*id) else { continue };
        let NodeKind::Nf { info, .. } = &node.kind else { continue };
        let each = f64::from(cycles(node).saturating_add(RING_CYCLES).max(1));
        let core_pps = hertz / each;
        let pps = traffic.node(*id);
        let needed = needed(pps.unwrap_or(0.0) / core_pps);
        let own = wanted.get(&node.name).filter(|own| !own.weights.is_empty());
        let given = own.and_then(|own| u32::try_from(own.weights.len()).ok());
        let (count, over) = match needed {
            _ if given.is_some() => (given.unwrap_or(1).min(MAX_INSTANCES), None),
            2.. if !info.work.scales => (1, Some(Over::OneOnly { needed })),
            2.. if bound == Bound::OneWorker => (1, Some(Over::OneWorker { needed })),
            n if bound == Bound::Cores && n > cores => (cores, Some(Over::Cores { needed })),
            n if n > MAX_INSTANCES => (MAX_INSTANCES, Some(Over::TooMany { needed })),
            n => (n, None),
        };
        let name = node.name.clone();
        let asked = own.cloned();
        let nf = SizedNf { node: *id, name, pps, core_pps, count, split: None, over, asked };
        loads.extend(loads_of(&nf));
        nfs.push(nf);
    }
    if bound == Bound::Cores {
        share_cores(&mut nfs, cores);
        loads = nfs.iter().flat_map(loads_of).collect();
    }
    let ways = divide::divide(graph, &traffic, &mut nfs);
    let inputs = sides::inputs(graph, &nfs);
    let mut counts = vec![1; graph.nodes().len()];
    for nf in &nfs {
        if let Some(count) = counts.get_mut(nf.node.index()) {
            *count = nf.count;
        }
    }
    let count = |node: NodeId| counts.get(node.index()).copied().unwrap_or(1);
    let edges = graph.edge_ids().zip(ways).map(|((id, edge), way)| {
        let load = traffic.edge(id);
        let pps = (load.estimate != Estimate::Unknown).then_some(load.pps);
        let (name, counts) = (edge.name.clone(), (count(edge.from), count(edge.to)));
        let side = inputs.get(&id).copied().unwrap_or(edge.input);
        SizedEdge { edge: id, name, pps, estimate: load.estimate, counts, way, side }
    });
    let edges = edges.collect();
    let (ghz, cores_needed) = (server.ghz, bins(loads));
    Instances { ghz, cores, cores_needed, packet_bytes, nfs, edges }
}

/// The part of a core that each instance takes. What one core cannot carry fills it.
fn loads_of(nf: &SizedNf) -> impl Iterator<Item = f64> + use<> {
    let load = nf.pps.unwrap_or(0.0) / nf.core_pps / f64::from(nf.count);
    (0..nf.count).map(move |_| load.min(1.0))
}

/// Where all together would need more than `cores`, each NF that nobody gave a number has its part of them:
/// more workers than cores bring nothing.
fn share_cores(nfs: &mut [SizedNf], cores: u32) {
    let all: f64 = nfs.iter().flat_map(loads_of).sum();
    let part = f64::from(cores) / all;
    for nf in nfs.iter_mut().filter(|nf| part < 1.0 && nf.asked.is_none() && nf.count > 1) {
        nf.over = Some(Over::Cores { needed: needed(nf.pps.unwrap_or(0.0) / nf.core_pps) });
        nf.count = ((f64::from(nf.count) * part).floor() as u32).max(1);
    }
}

/// Instances for a load in cores; at least one.
fn needed(load: f64) -> u32 {
    // Casts from floats saturate. What is over by rounding is not over.
    ((load - 1e-9).ceil() as u32).max(1)
}

impl Instances {
    /// How many [`links`](Self::links) an edge has, without making them.
    #[must_use]
    pub fn parts(&self, edge: usize) -> u64 {
        self.edges.get(edge).map_or(0, |edge| match (edge.way, edge.counts) {
            (Way::Direct(_), (from, _)) => u64::from(from),
            (Way::Single | Way::Hashed(_), (from, to)) => {
                u64::from(from).saturating_mul(u64::from(to))
            }
        })
    }

    /// From which instance of the NF before to which of the NF behind an edge leads, by its place in
    /// [`Instances::edges`]; ports and `Drop` are one each.
    #[must_use]
    pub fn links(&self, edge: usize) -> Vec<(u32, u32)> {
        let Some(edge) = self.edges.get(edge) else { return Vec::new() };
        let (from, to) = edge.counts;
        let pairs = (0..from).flat_map(|a| (0..to).map(move |b| (a, b)));
        match edge.way {
            Way::Direct(_) => pairs.filter(|(a, b)| a.checked_rem(to) == Some(*b)).collect(),
            Way::Single | Way::Hashed(_) => pairs.collect(),
        }
    }
}
