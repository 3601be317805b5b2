//! What a chain is to achieve, and the cheapest way to it by the cost model.
//!
//! The model is rough on purpose: an NF costs its description's cycles per packet, a ring
//! [`RING_CYCLES`](crate::RING_CYCLES), and every packet takes the most expensive way. Waiting is that of an M/M/1 queue in front
//! of each worker, which has its core for itself when a latency is asked for; its p-quantile is the mean times ln(1/(1-p)); quantiles are added up along the
//! way, which is more than the sum's quantile. The estimates are bounds, to be held against
//! `weir bench`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bandwidth::Bandwidth;
use crate::cost::{RING_CYCLES, bins, cycles as cost};
use crate::graph::{Graph, Node};
use crate::plan::Isolate;
use crate::service::hardware::Server;

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
    /// Cores for NFs at the objective's throughput; devices need one more. With a bound on latency
    /// each worker has its own, else they share cores as their loads allow.
    pub cores: u32,
    /// Packets per second that its slowest worker manages with a core of its own.
    pub pps: f64,
    /// The latency at the asked percentile, in microseconds; infinite when it cannot keep up.
    pub latency_us: Option<f64>,
}

/// The way that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// It.
    pub placement: Placement,
    /// The other one, if that would do as well.
    pub instead_of: Option<Placement>,
}

/// Why no way meets the objective.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ObjectiveError {
    /// The slowest NF alone is too slow, and there is only one of each.
    #[error(
        "the objective cannot be met: {nf} takes {cycles} cycles per packet, {most:.2} Mpps on a core of \
         {ghz} GHz, and {wanted:.2} Mpps are asked for; ask for less, or make {nf} cheaper"
    )]
    TooSlow {
        /// Its name.
        nf: String,
        /// Its cycles per packet.
        cycles: u32,
        /// What it manages, in Mpps.
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

/// The cheapest way (fewest cores) to meet `objective` on `server`.
///
/// # Errors
/// Why there is none.
pub fn choose(
    graph: &Graph,
    objective: &Objective,
    server: &Server,
) -> Result<Choice, ObjectiveError> {
    if let (Some(nic), Some(wanted)) = (server.nic_bps, objective.bps)
        && wanted > nic
    {
        let server = server.name.clone();
        let (nic, wanted) = (Bandwidth::Bps(nic), Bandwidth::Bps(wanted));
        return Err(ObjectiveError::Nic { server, nic, wanted });
    }
    let all =
        [Isolate::None, Isolate::Each].map(|isolate| place(graph, objective, server, isolate));
    let wanted = objective.pps as f64;
    let for_nfs = server.cores.saturating_sub(1).max(1);
    let fast = |p: &Placement| p.pps >= wanted;
    let fits = |p: &Placement| p.cores <= for_nfs;
    let soon = |p: &Placement| match (objective.latency, p.latency_us) {
        (Some(bound), Some(us)) => us <= bound.at_most_us,
        _ => true,
    };
    let mut good: Vec<Placement> =
        all.into_iter().filter(|p| fast(p) && fits(p) && soon(p)).collect();
    good.sort_by_key(|p| p.cores);
    let mut good = good.into_iter();
    if let Some(placement) = good.next() {
        return Ok(Choice { placement, instead_of: good.next() });
    }
    Err(why_not(graph, objective, server, &all))
}

fn why_not(
    graph: &Graph,
    objective: &Objective,
    server: &Server,
    all: &[Placement],
) -> ObjectiveError {
    let wanted = objective.pps as f64;
    let for_nfs = server.cores.saturating_sub(1).max(1);
    let fast: Vec<&Placement> = all.iter().filter(|p| p.pps >= wanted).collect();
    if fast.is_empty() {
        let nodes = graph.nodes().iter().filter(|node| node.is_nf());
        let slowest = nodes.max_by_key(|node| cost(node));
        let cycles = slowest.map_or(0, cost).saturating_add(RING_CYCLES);
        return ObjectiveError::TooSlow {
            nf: slowest.map_or_else(String::new, |node| node.name.clone()),
            cycles,
            most: server.ghz * 1e3 / f64::from(cycles.max(1)),
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

/// What the model says of running `graph` this way.
fn place(graph: &Graph, objective: &Objective, server: &Server, isolate: Isolate) -> Placement {
    let pps = objective.pps as f64;
    let hertz = server.ghz * 1e9;
    let nfs = || graph.nodes().iter().filter(|node| node.is_nf());
    // Cycles per packet of each worker, and the workers that the longest way goes through.
    let (workers, way): (Vec<u32>, Vec<u32>) = match isolate {
        Isolate::None => {
            let one = longest(graph, 0).iter().fold(RING_CYCLES, |sum, c| sum.saturating_add(*c));
            (vec![one], vec![one])
        }
        // Of `auto` nothing better is known than of each.
        Isolate::Each | Isolate::Auto => (
            nfs().map(|node| cost(node).saturating_add(RING_CYCLES)).collect(),
            longest(graph, RING_CYCLES),
        ),
    };
    let slowest = workers.iter().copied().max().unwrap_or(0);
    // Workers that share a core share its cycles; a worker is never on two.
    let loads = workers.iter().map(|cycles| f64::from(*cycles) * pps / hertz);
    let latency_us = objective.latency.map(|bound| {
        let tail = (1.0 / (1.0 - bound.percentile / 100.0)).ln().max(1.0);
        let waits = way.iter().map(|cycles| {
            let service = f64::from(*cycles) / hertz;
            let load = service * pps;
            if load < 1.0 { service / (1.0 - load) * tail * 1e6 } else { f64::INFINITY }
        });
        waits.sum()
    });
    // The waits above are bounds only while nothing else runs on a worker's core.
    let cores = match objective.latency {
        Some(_) => u32::try_from(workers.len()).unwrap_or(u32::MAX),
        None => bins(loads.collect()),
    };
    Placement { isolate, cores, pps: hertz / f64::from(slowest.max(1)), latency_us }
}

/// The costs along the most expensive way through the NFs, each with `extra`.
fn longest(graph: &Graph, extra: u32) -> Vec<u32> {
    // By node: the sum to and with it, and the node before.
    let mut best: Vec<(u64, Option<usize>)> = vec![(0, None); graph.nodes().len()];
    let leaving = graph.leaving();
    let own = |at: usize| graph.nodes().get(at).map_or(0, |n| cost(n).saturating_add(extra));
    for id in graph.order() {
        let at = id.index();
        let before = best.get(at).copied().unwrap_or_default();
        let sum = before.0.saturating_add(u64::from(own(at)));
        if let Some(here) = best.get_mut(at) {
            here.0 = sum;
        }
        for edge in leaving.get(at).into_iter().flatten().filter_map(|edge| graph.edge(*edge)) {
            let to_nf = !edge.closes && graph.node(edge.to).is_some_and(Node::is_nf);
            if let Some(next) = best.get_mut(edge.to.index())
                && to_nf
                && sum > next.0
            {
                *next = (sum, Some(at));
            }
        }
    }
    let mut way = Vec::new();
    let end = best.iter().enumerate().max_by_key(|(_, (sum, _))| *sum);
    let mut at = end.filter(|(_, (sum, _))| *sum > 0).map(|(at, _)| at);
    while let Some(here) = at {
        way.push(own(here));
        at = best.get(here).and_then(|(_, before)| *before);
    }
    way.reverse();
    way
}
