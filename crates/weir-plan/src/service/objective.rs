//! What a chain is to achieve, and the cheapest way to it by the cost model.
//!
//! The ways that are compared: all NFs in one worker, those of `--isolate auto`, and each NF in its own with as
//! many instances as its traffic needs and its description allows ([`size`]).
//!
//! The model is rough on purpose: an NF costs its description's cycles per packet, a ring
//! [`RING_CYCLES`](crate::RING_CYCLES), and every packet takes the most expensive way; only where each NF has its own
//! worker it gets the share of the traffic that is estimated for it. Waiting is that of an M/M/1 queue in front
//! of each worker, which has its core for itself when a latency is asked for; its p-quantile is the mean times ln(1/(1-p)); quantiles are added up along the
//! way, which is more than the sum's quantile. The estimates are bounds, to be held against
//! `weir bench`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::auto;
use crate::bandwidth::Bandwidth;
use crate::cost::{RING_CYCLES, bins, cycles as cost};
use crate::graph::{Graph, Node, NodeId, NodeKind};
use crate::plan::{Isolate, Options, runs};
use crate::service::hardware::Server;
use crate::size::{Bound, Instances, SizedNf, Sizing, sized};

/// An objective as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveDocument {
    /// What the chain must carry, as in `2 Mpps` or `1 Gbps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<String>,
    /// Mean length of packets in bytes, for a throughput in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_bytes: Option<u32>,
    /// How long packets may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyDocument>,
}

/// A bound on latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatencyDocument {
    /// For so many packets of a hundred, as in `99` or `99.9`.
    pub percentile: f64,
    /// Microseconds through the NFs, devices not counted.
    pub at_most_us: f64,
}

/// An objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Packets per second; zero when none are asked for.
    pub pps: u64,
    /// Bits per second on the wire, when that was asked for.
    pub bps: Option<u64>,
    /// The bound on latency.
    pub latency: Option<LatencyDocument>,
}

impl ObjectiveDocument {
    /// The objective; else what is wrong: JSON pointer, message, cure.
    pub(crate) fn resolve(&self) -> Result<Objective, (&'static str, String, String)> {
        let (mut pps, mut bps) = (0, None);
        if let Some(written) = &self.throughput {
            match (Bandwidth::parse(written), self.packet_bytes.filter(|bytes| *bytes > 0)) {
                (Some(Bandwidth::Pps(n)), _) => pps = n,
                (Some(Bandwidth::Bps(n)), Some(bytes)) => {
                    pps = n.checked_div(u64::from(bytes).saturating_mul(8)).unwrap_or(0);
                    bps = Some(n);
                }
                (Some(Bandwidth::Bps(_)), None) => {
                    let message = "bits per second say nothing without the length of packets";
                    let instead = "add `packet_bytes`, their mean length".to_owned();
                    return Err(("/throughput", message.to_owned(), instead));
                }
                (None, _) => {
                    let message = format!("`{written}` is not a throughput");
                    let instead = "write as in `2 Mpps` or `1 Gbps`".to_owned();
                    return Err(("/throughput", message, instead));
                }
            }
        }
        if let Some(latency) = self.latency {
            if !(0.0..100.0).contains(&latency.percentile) {
                let message = format!("{} is not a percentile", latency.percentile);
                let instead = "write a number from 0 to below 100, as in `99`".to_owned();
                return Err(("/latency/percentile", message, instead));
            }
            if !(latency.at_most_us > 0.0 && latency.at_most_us.is_finite()) {
                let message = format!("{} µs is not a bound", latency.at_most_us);
                let instead = "write a number above zero".to_owned();
                return Err(("/latency/at_most_us", message, instead));
            }
        }
        Ok(Objective { pps, bps, latency: self.latency })
    }
}

/// One way to run a chain, and what the model says of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Which NFs share a worker.
    pub isolate: Isolate,
    /// Workers, the instances of an NF each counted.
    pub workers: u32,
    /// Cores for NFs at the objective's throughput; devices need one more. With a bound on latency
    /// each worker has its own, else they share cores as their loads allow.
    pub cores: u32,
    /// Packets per second that the chain can take: what its slowest NF manages, all its instances with
    /// a core of their own.
    pub pps: f64,
    /// The latency at the asked percentile, in microseconds; infinite when it cannot keep up.
    pub latency_us: Option<f64>,
}

/// The way that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// It.
    pub placement: Placement,
    /// The next best, if that would do as well.
    pub instead_of: Option<Placement>,
}

/// Why no way meets the objective.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ObjectiveError {
    /// The slowest NF is too slow with as many instances as there may be.
    #[error(
        "the objective cannot be met: {nf} takes {cycles} cycles per packet, with {count} instance(s) on cores \
         of {ghz} GHz the chain takes {most:.2} Mpps, and {wanted:.2} Mpps are asked for; ask for less, make {nf} cheaper, or, if it \
         may be split, say so in its description (`scaling: {{ cores: true }}`)"
    )]
    TooSlow {
        /// Its name.
        nf: String,
        /// Its cycles per packet.
        cycles: u32,
        /// How many instances of it there may be.
        count: u32,
        /// What the chain takes with them, in Mpps.
        most: f64,
        /// GHz.
        ghz: f64,
        /// What is asked for, in Mpps.
        wanted: f64,
    },
    /// There are not enough cores.
    #[error(
        "the objective cannot be met: the NFs need {needed} cores and the devices one, and {server} has \
         {cores}; ask for less, or add cores"
    )]
    Cores {
        /// Cores for NFs.
        needed: u32,
        /// The server.
        server: String,
        /// Its cores.
        cores: u32,
    },
    /// Packets take too long whatever is done.
    #[error(
        "the objective cannot be met: at that throughput the {percentile}th percentile is {best_us:.1} µs at \
         best, and {wanted_us} µs are asked for; ask for more time or fewer packets"
    )]
    TooLate {
        /// The percentile.
        percentile: f64,
        /// The best that can be had.
        best_us: f64,
        /// What is asked for.
        wanted_us: f64,
    },
    /// The network interfaces do not carry it.
    #[error(
        "the objective cannot be met: the network interfaces of {server} carry {nic}, and {wanted} are \
         asked for"
    )]
    Nic {
        /// The server.
        server: String,
        /// What they carry.
        nic: Bandwidth,
        /// What is asked for.
        wanted: Bandwidth,
    },
}

/// The cheapest way (fewest cores) to meet `objective` on `server`, with `domains` as the operator puts NFs into them
/// ([`Options::domains`]): what is of different trust domains shares no worker. What gates cost between them, on the
/// devices' core, is not in the model.
///
/// # Errors
/// Why there is none.
pub fn choose(
    graph: &Graph,
    objective: &Objective,
    server: &Server,
    domains: &BTreeMap<String, String>,
) -> Result<Choice, ObjectiveError> {
    let online = usize::try_from(server.cores).unwrap_or(usize::MAX);
    let options = Options {
        isolate: Isolate::Auto,
        cores: None,
        online,
        domains: domains.clone(),
        ..Options::default()
    };
    if let (Some(nic), Some(wanted)) = (server.nic_bps, objective.bps)
        && wanted > nic
    {
        let server = server.name.clone();
        let (nic, wanted) = (Bandwidth::Bps(nic), Bandwidth::Bps(wanted));
        return Err(ObjectiveError::Nic { server, nic, wanted });
    }
    // Only as many instances as a plan would have.
    let sizing = Sizing { server, objective: Some(objective), asked: &BTreeMap::new() };
    let instances = sized(graph, sizing, Bound::None);
    let comes_in = comes_in(graph, &instances);
    let nfs = instances.nfs;
    let ways = [Isolate::None, Isolate::Auto, Isolate::Each];
    let all: Vec<Placement> = ways
        .into_iter()
        .filter_map(|isolate| {
            Some(place(
                objective,
                server,
                isolate,
                &workers_of(graph, comes_in, &options, isolate, &nfs)?,
            ))
        })
        .collect();
    let wanted = objective.pps as f64;
    let for_nfs = server.cores.saturating_sub(1).max(1);
    let fast = |p: &Placement| p.pps >= wanted;
    let fits = |p: &Placement| p.cores <= for_nfs;
    let soon = |p: &Placement| match (objective.latency, p.latency_us) {
        (Some(bound), Some(us)) => us <= bound.at_most_us,
        _ => true,
    };
    let mut good: Vec<Placement> =
        all.iter().copied().filter(|p| fast(p) && fits(p) && soon(p)).collect();
    good.sort_by_key(|p| (p.cores, p.workers));
    let mut good = good.into_iter();
    if let Some(placement) = good.next() {
        return Ok(Choice { placement, instead_of: good.next() });
    }
    Err(why_not(graph, objective, server, &all, (&nfs, comes_in)))
}

fn why_not(
    graph: &Graph,
    objective: &Objective,
    server: &Server,
    all: &[Placement],
    (sized, comes_in): (&[SizedNf], f64),
) -> ObjectiveError {
    let wanted = objective.pps as f64;
    let for_nfs = server.cores.saturating_sub(1).max(1);
    let fast: Vec<&Placement> = all.iter().filter(|p| p.pps >= wanted).collect();
    if fast.is_empty() {
        let takes = |nf: &SizedNf| nf.core_pps * f64::from(nf.count) / share(nf, comes_in);
        let slowest = sized.iter().min_by(|a, b| takes(a).total_cmp(&takes(b)));
        let node = slowest.and_then(|nf| graph.node(nf.node));
        return ObjectiveError::TooSlow {
            nf: slowest.map_or_else(String::new, |nf| nf.name.clone()),
            cycles: node.map_or(0, cost).saturating_add(RING_CYCLES),
            count: slowest.map_or(1, |nf| nf.count),
            most: slowest.map_or(0.0, takes) / 1e6,
            ghz: server.ghz,
            wanted: wanted / 1e6,
        };
    }
    let fits: Vec<&&Placement> = fast.iter().filter(|p| p.cores <= for_nfs).collect();
    if fits.is_empty() {
        let needed = fast.iter().map(|p| p.cores).min().unwrap_or(0);
        let (server, cores) = (server.name.clone(), server.cores);
        return ObjectiveError::Cores { needed, server, cores };
    }
    let best_us = fits.iter().filter_map(|p| p.latency_us).fold(f64::INFINITY, f64::min);
    let (percentile, wanted_us) =
        objective.latency.map_or((0.0, 0.0), |bound| (bound.percentile, bound.at_most_us));
    ObjectiveError::TooLate { percentile, best_us, wanted_us }
}

/// The packets per second that come in by ports, as far as they are known. What edges are stated to carry may be less
/// than the objective asks for.
fn comes_in(graph: &Graph, instances: &Instances) -> f64 {
    let by_port = instances.edges.iter().filter(|sized| {
        let from = graph.edge(sized.edge).and_then(|edge| graph.node(edge.from));
        from.is_some_and(|node| matches!(node.kind, NodeKind::Port { .. }))
    });
    by_port.filter_map(|sized| sized.pps).sum()
}

/// The part of what comes in that comes to an NF.
fn share(nf: &SizedNf, comes_in: f64) -> f64 {
    match nf.pps {
        Some(pps) if comes_in > 0.0 && pps > 0.0 => pps / comes_in,
        _ => 1.0,
    }
}

/// A worker, or the instances of one NF.
struct Group {
    /// Cycles of a packet on its most expensive way through.
    cycles: u32,
    /// Cycles of it on the chain's most expensive way; `None` if that leads past.
    on_way: Option<u32>,
    /// The part of the chain's packets that come here.
    share: f64,
    /// Instances.
    count: u32,
}

/// The workers of one way to run `graph`; `None` when there is no such way.
fn workers_of(
    graph: &Graph,
    comes_in: f64,
    options: &Options,
    isolate: Isolate,
    sized: &[SizedNf],
) -> Option<Vec<Group>> {
    let groups: Vec<Vec<NodeId>> = match isolate {
        Isolate::None => runs(graph, options),
        Isolate::Each => sized.iter().map(|nf| vec![nf.node]).collect(),
        Isolate::Auto => {
            let auto = auto::runs(graph, options, &[]).ok()?;
            // Else it is one of the others.
            (runs(graph, options).len() < auto.len() && auto.len() < sized.len()).then_some(auto)?
        }
    };
    let ring = if groups.len() < 2 { 0 } else { RING_CYCLES };
    let way = longest(graph, ring, |_| true);
    let cycles = |ids: &[NodeId]| {
        let all = ids.iter().filter_map(|id| graph.node(*id)).map(cost);
        all.fold(RING_CYCLES, u32::saturating_add)
    };
    let group = |ids: Vec<NodeId>| {
        let on_way: Vec<NodeId> = way.iter().copied().filter(|id| ids.contains(id)).collect();
        let nf = |id: NodeId| sized.iter().find(|nf| nf.node == id);
        let (share, count) = match ids.as_slice() {
            [only] if isolate == Isolate::Each => {
                nf(*only).map_or((1.0, 1), |nf| (share(nf, comes_in), nf.count))
            }
            _ => (1.0, 1),
        };
        Group {
            cycles: match ids.as_slice() {
                [only] => cycles(&[*only]),
                _ => cycles(&longest(graph, 0, |id| ids.contains(&id))),
            },
            on_way: (!on_way.is_empty()).then(|| cycles(&on_way)),
            share,
            count,
        }
    };
    Some(groups.into_iter().map(group).collect())
}

/// What the model says of running a chain this way.
fn place(objective: &Objective, server: &Server, isolate: Isolate, groups: &[Group]) -> Placement {
    let pps = objective.pps as f64;
    let hertz = server.ghz * 1e9;
    // Packets per second of each instance, and the part of a core that they take.
    let own = |g: &Group| pps * g.share / f64::from(g.count);
    let load = |g: &Group| f64::from(g.cycles) * own(g) / hertz;
    let takes =
        |g: &Group| hertz / f64::from(g.cycles.max(1)) * f64::from(g.count) / g.share.max(1e-9);
    let latency_us = objective.latency.map(|bound| {
        let tail = (1.0 / (1.0 - bound.percentile / 100.0)).ln().max(1.0);
        let waits = groups.iter().filter_map(|g| {
            let service = f64::from(g.on_way?) / hertz;
            let load = service * own(g);
            Some(if load < 1.0 { service / (1.0 - load) * tail * 1e6 } else { f64::INFINITY })
        });
        waits.sum()
    });
    let workers = groups.iter().fold(0, |sum: u32, g| sum.saturating_add(g.count));
    // The waits above are bounds only while nothing else runs on a worker's core.
    let cores = match objective.latency {
        Some(_) => workers,
        // Workers that share a core share its cycles; a worker is never on two.
        None => bins(groups.iter().flat_map(|g| (0..g.count).map(move |_| load(g))).collect()),
    };
    let slowest = groups.iter().map(takes).fold(f64::INFINITY, f64::min);
    Placement { isolate, workers, cores, pps: slowest, latency_us }
}

/// The NFs of `among` on the most expensive way through them, each with `extra` cycles.
fn longest(graph: &Graph, extra: u32, among: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
    // By node: the sum to and with it, and the node before.
    let mut best: Vec<(u64, Option<NodeId>)> = vec![(0, None); graph.nodes().len()];
    let leaving = graph.leaving();
    let is_in = |id: NodeId| among(id) && graph.node(id).is_some_and(Node::is_nf);
    for &id in graph.order().iter().filter(|id| is_in(**id)) {
        let own = graph.node(id).map_or(0, |n| cost(n).saturating_add(extra));
        let before = best.get(id.index()).copied().unwrap_or_default();
        let sum = before.0.saturating_add(u64::from(own));
        if let Some(here) = best.get_mut(id.index()) {
            here.0 = sum;
        }
        let edges = leaving.get(id.index()).into_iter().flatten();
        for edge in edges.filter_map(|edge| graph.edge(*edge)) {
            if let Some(next) = best.get_mut(edge.to.index())
                && !edge.closes
                && is_in(edge.to)
                && sum > next.0
            {
                *next = (sum, Some(id));
            }
        }
    }
    let mut way = Vec::new();
    let ends = graph.order().iter().filter(|id| is_in(**id));
    let sum = |id: &&NodeId| best.get(id.index()).map_or(0, |b| b.0);
    let mut at = ends.max_by_key(sum).copied();
    while let Some(here) = at {
        way.push(here);
        at = best.get(here.index()).and_then(|(_, before)| *before);
    }
    way.reverse();
    way
}
