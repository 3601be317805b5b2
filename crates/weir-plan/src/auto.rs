//! `isolate: auto`: which NFs share a worker on one server.
//!
//! What must be apart is: trust domains, outside programs, and the instances of an NF. Beyond that a worker more is worth
//! it only if it gets a core of its own, and takes enough off the busiest one to pay for its rings: so
//! there are as few workers as bring the busiest to within [`SLACK`] of the least that the cores allow.
//!
//! Workers are runs of a topological order, so no way leads from a later to an earlier one and they
//! form no cycle. Finding the best such division is a partition of a line; its least bound is found by
//! bisection, each step filling workers from the front.

use crate::catalog::ProgramId;
use crate::cores;
use crate::cost::{RING_CYCLES, cycles};
use crate::domains::domain_of;
use crate::graph::{Edge, Graph, NodeId, NodeKind};
use crate::plan::{Options, PlanError};
use crate::size::{MEAN_PACKET_BYTES, Traffic, Unstated};

/// The most NF workers on a core. With eight, switching and cache misses take half of what fusing
/// them gives (docs/performance.md, chains of n).
pub(crate) const MAX_PER_CORE: usize = 6;

/// How much busier than necessary the busiest worker may be, if that saves workers.
const SLACK: f64 = 1.1;

/// What a port gives that says nothing, in packets per second. Only relations matter here.
const UNSTATED: f64 = 1e6;

/// Steps of bisection: each halves the error.
const STEPS: usize = 40;

/// The NFs of each worker, each worker before those it leads to. Those of each of `replicas` share one.
pub(crate) fn runs(
    graph: &Graph,
    options: &Options,
    replicas: &[Vec<NodeId>],
) -> Result<Vec<Vec<NodeId>>, PlanError> {
    let line = Line::new(graph, options, replicas);
    let cores = cores::for_nfs(options);
    let most = cores.saturating_mul(MAX_PER_CORE);
    // Only what must be apart.
    let fewest = line.cut(f64::INFINITY);
    if fewest.len() > most {
        return Err(PlanError::TooManyWorkers { workers: fewest.len(), most, cores });
    }
    if fewest.len() >= cores {
        return Ok(line.names(&fewest));
    }
    let (mut low, mut high) = (line.heaviest(), line.all());
    if line.cut(low).len() <= cores {
        high = low;
    }
    for _ in 0..STEPS {
        let bound = f64::midpoint(low, high);
        if line.cut(bound).len() <= cores { high = bound } else { low = bound }
    }
    let loose = line.cut(high * SLACK);
    let best = if loose.len() <= cores { loose } else { line.cut(high) };
    Ok(line.names(&best))
}

/// The NFs in a row.
struct Line<'g> {
    graph: &'g Graph,
    options: &'g Options,
    order: Vec<NodeId>,
    /// By node: those that must be in one worker have an equal number.
    units: Vec<usize>,
    /// By node: cycles a second of its work.
    work: Vec<f64>,
    /// By node: the nodes that it has packets from, with the cycles a second of its end of the ring.
    from: Vec<Vec<(NodeId, f64)>>,
    /// By node: cycles a second of its ends of all rings that leave it.
    leaves: Vec<f64>,
}

impl<'g> Line<'g> {
    fn new(graph: &'g Graph, options: &'g Options, replicas: &[Vec<NodeId>]) -> Self {
        let traffic = Traffic::of(graph, Unstated::Each(UNSTATED), MEAN_PACKET_BYTES);
        let n = graph.nodes().len();
        let (mut from, mut leaves) = (vec![Vec::new(); n], vec![0.0; n]);
        for (id, edge) in graph.edge_ids() {
            if graph.node(edge.to).is_none_or(|to| to.kind == NodeKind::Drop) {
                continue;
            }
            let end = traffic.edge(id).pps * f64::from(RING_CYCLES) / 2.0;
            if let Some(list) = from.get_mut(edge.to.index()) {
                list.push((edge.from, end));
            }
            if let Some(sum) = leaves.get_mut(edge.from.index()) {
                *sum += end;
            }
        }
        let work = graph
            .node_ids()
            .map(|(id, node)| traffic.node(id).unwrap_or(0.0) * f64::from(cycles(node)));
        let work = work.collect();
        let units = units(graph, replicas);
        let order = order(graph, options, &units);
        Line { graph, options, order, units, work, from, leaves }
    }

    /// What the dearest NF costs alone: no worker that has it costs less. (One of those that must be together: less than they cost.)
    fn heaviest(&self) -> f64 {
        let alone = self.order.iter().map(|id| self.alone(*id));
        alone.fold(0.0, f64::max)
    }

    /// What an NF costs in a worker of its own.
    fn alone(&self, id: NodeId) -> f64 {
        let comes =
            self.from.get(id.index()).into_iter().flatten().map(|(_, end)| end).sum::<f64>();
        self.at(&self.work, id) + self.at(&self.leaves, id) + comes
    }

    /// More than any worker could cost.
    fn all(&self) -> f64 {
        let ends: f64 = self.from.iter().flatten().map(|(_, end)| end).sum();
        1.0 + self.work.iter().sum::<f64>() + ends + self.leaves.iter().sum::<f64>()
    }

    /// Fills workers from the front, each up to `bound`; gives the place in the order at which each begins.
    fn cut(&self, bound: f64) -> Vec<usize> {
        let mut begins = Vec::new();
        // By node: the worker that it is in.
        let mut home = vec![usize::MAX; self.graph.nodes().len()];
        let mut load = 0.0;
        let mut last: Option<NodeId> = None;
        let mut program: Option<ProgramId> = None;
        // NFs of which the worker that is being filled has an instance.
        let mut instances: Vec<&str> = Vec::new();
        for (place, id) in self.order.iter().enumerate() {
            let here = begins.len();
            let (mut alone, mut inside) =
                (self.at(&self.work, *id) + self.at(&self.leaves, *id), 0.0);
            for (from, end) in self.from.get(id.index()).into_iter().flatten() {
                alone += end;
                if home.get(from.index()).copied() == here.checked_sub(1) {
                    inside += 2.0 * end;
                }
            }
            let own = program_of(self.graph, *id);
            let instance = instance_of(self.graph, *id);
            let unit = |id: NodeId| self.units.get(id.index());
            let must = last.is_some_and(|last| unit(last) == unit(*id));
            let fits = last.is_some_and(|last| {
                // Two in one worker would do no more than one.
                instance.is_none_or(|of| !instances.contains(&of))
                    && domain_of(self.graph, self.options, last)
                        == domain_of(self.graph, self.options, *id)
                    && (program.is_none() || own.is_none() || program == own)
            });
            if must || fits && load + alone - inside <= bound {
                load += alone - inside;
            } else {
                begins.push(place);
                (load, program) = (alone, None);
                instances.clear();
            }
            program = program.or(own);
            instances.extend(instance);
            last = Some(*id);
            if let Some(home) = home.get_mut(id.index()) {
                *home = begins.len().saturating_sub(1);
            }
        }
        begins
    }

    fn at(&self, list: &[f64], id: NodeId) -> f64 {
        list.get(id.index()).copied().unwrap_or(0.0)
    }

    /// The workers that begin at these places.
    fn names(&self, begins: &[usize]) -> Vec<Vec<NodeId>> {
        let ends = begins.iter().skip(1).copied().chain([self.order.len()]);
        let run = |(begin, end): (&usize, usize)| self.order.get(*begin..end).map(<[_]>::to_vec);
        begins.iter().zip(ends).filter_map(run).collect()
    }
}

/// By node a number: equal for those that must be in one worker, each its own otherwise.
fn units(graph: &Graph, replicas: &[Vec<NodeId>]) -> Vec<usize> {
    let mut units: Vec<usize> = (0..graph.nodes().len()).collect();
    for set in replicas {
        let Some(first) = set.first().map(|first| first.index()) else { continue };
        for id in set {
            if let Some(unit) = units.get_mut(id.index()) {
                *unit = first;
            }
        }
    }
    units
}

/// The NFs, each before those its edges lead to (but for edges that close cycles), those of a unit together, and those that may share a
/// worker together as far as may be.
fn order(graph: &Graph, options: &Options, units: &[usize]) -> Vec<NodeId> {
    let is_nf = |id: NodeId| graph.node(id).is_some_and(crate::graph::Node::is_nf);
    let unit = |id: NodeId| units.get(id.index()).copied().unwrap_or(usize::MAX);
    let counts = |edge: &Edge| {
        is_nf(edge.from) && is_nf(edge.to) && !edge.closes && unit(edge.from) != unit(edge.to)
    };
    // By unit.
    let mut waits = vec![0_usize; graph.nodes().len()];
    let mut members: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes().len()];
    for id in graph.order() {
        if let Some(members) = members.get_mut(unit(*id)) {
            members.push(*id);
        }
    }
    for edge in graph.edges().iter().filter(|edge| counts(edge)) {
        if let Some(count) = waits.get_mut(unit(edge.to)) {
            *count = count.saturating_add(1);
        }
    }
    let leaving = graph.leaving();
    let kind = |id: NodeId| (domain_of(graph, options, id), program_of(graph, id));
    let alike = |a: NodeId, b: NodeId| {
        let ((a, p), (b, q)) = (kind(a), kind(b));
        a == b && (p.is_none() || q.is_none() || p == q)
    };
    let is_first = |id: &NodeId| members.get(unit(*id)).and_then(|m| m.first()) == Some(id);
    let free = |id: &NodeId| waits.get(unit(*id)) == Some(&0) && is_first(id);
    // A stack, so that chains stay together.
    let mut ready: Vec<NodeId> = graph.order().iter().rev().copied().filter(free).collect();
    let mut order: Vec<NodeId> = Vec::with_capacity(graph.order().len());
    while let Some(top) = ready.len().checked_sub(1) {
        let like = order.last().and_then(|last| ready.iter().rposition(|id| alike(*last, *id)));
        let id = ready.remove(like.unwrap_or(top));
        let together = members.get(unit(id)).cloned().unwrap_or_default();
        let mut next: Vec<NodeId> = Vec::new();
        for id in &together {
            order.push(*id);
            let edges = leaving.get(id.index()).into_iter().flatten();
            for edge in edges.filter_map(|e| graph.edge(*e)).filter(|edge| counts(edge)) {
                let to = unit(edge.to);
                let Some(count) = waits.get_mut(to) else { continue };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    next.extend(members.get(to).and_then(|members| members.first()));
                }
            }
        }
        ready.extend(next.into_iter().rev());
    }
    order
}

/// The NF that it is one of several instances of.
fn instance_of(graph: &Graph, id: NodeId) -> Option<&str> {
    Some(&graph.node(id)?.instance.as_ref()?.name)
}

fn program_of(graph: &Graph, id: NodeId) -> Option<ProgramId> {
    match graph.node(id).map(|node| &node.kind) {
        Some(NodeKind::Nf { info, .. }) => info.program,
        _ => None,
    }
}
