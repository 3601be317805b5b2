//! Equal µNFs on different ways share a worker.
//!
//! Two may when neither leads to the other: then no packet passes both, so together they have at most
//! the packets of one place of the chain, and workers still form no cycle. It is worth it only while
//! there are more NF workers than cores for them: a worker that has no core to itself costs its turns of
//! the core and brings nothing, whereas one that has brings a core's work. So workers are merged, the
//! cheapest µNFs first, until each has a core or nothing equal is left. Where µNFs are fused
//! already nothing is gained, and nothing is done.

use std::collections::HashMap;

use crate::cores;
use crate::domains::domain_of;
use crate::graph::{Graph, NodeId};
use crate::optimise::change::{Change, Done};
use crate::optimise::facts::{Alike, alike, repeats};
use crate::plan::{Isolate, Options};
use crate::tags;
use crate::topo;

/// The NFs to merge, as lists.
pub(super) fn merge(
    graph: &Graph,
    options: &Options,
    apart: &[NodeId],
    changes: &mut Vec<Change>,
) -> Vec<Vec<NodeId>> {
    let cores = cores::for_nfs(options);
    let all = graph.order().len();
    // On a cycle each leads to the other.
    if options.isolate != Isolate::Each || all <= cores || graph.has_cycles() {
        return Vec::new();
    }
    let mut reach = Reach::new(graph);
    let mut merged: Vec<Vec<NodeId>> = Vec::new();
    let mut workers = all;
    for candidates in candidates(graph, options, apart) {
        let mut groups: Vec<Vec<NodeId>> = Vec::new();
        for id in candidates {
            let apart = |group: &&mut Vec<NodeId>| {
                group.first().is_some_and(|first| !reach.related(*first, id))
            };
            match groups.iter_mut().find(apart) {
                Some(group) if workers > cores => {
                    if let Some(first) = group.first() {
                        reach.join(*first, id);
                    }
                    group.push(id);
                    workers = workers.saturating_sub(1);
                }
                _ => groups.push(vec![id]),
            }
        }
        merged.extend(groups.into_iter().filter(|group| group.len() > 1));
    }
    for group in &merged {
        let nodes: Vec<_> = group.iter().filter_map(|id| graph.node(*id)).collect();
        let Some((_, info)) = nodes.first().and_then(|node| alike(node)) else { continue };
        changes.push(Change {
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            kind: info.name.clone(),
            done: Done::Merged { one_instance: !info.work.keeps, workers: all, cores },
        });
    }
    merged
}

/// NFs that do the same work in the same trust domain, in topological order; cheap work first.
fn candidates(graph: &Graph, options: &Options, apart: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut places: HashMap<(Alike<'_>, &str), usize> = HashMap::new();
    let mut lists: Vec<(u32, Vec<NodeId>)> = Vec::new();
    let asked = tags::asked(graph);
    for id in graph.order() {
        let Some((alike, info)) = graph.node(*id).and_then(alike) else { continue };
        // One µNF sets its tags in one way.
        if !repeats(info) || asked.contains(id) || apart.contains(id) {
            continue;
        }
        let place = places.entry((alike, domain_of(graph, options, *id))).or_insert(lists.len());
        match lists.get_mut(*place) {
            Some((_, list)) => list.push(*id),
            None => lists.push((info.work.cost_cycles, vec![*id])),
        }
    }
    lists.sort_by_key(|(cost, _)| *cost);
    lists.into_iter().map(|(_, list)| list).filter(|list| list.len() > 1).collect()
}

/// Which nodes lead to which, with merged ones as one.
struct Reach {
    /// By node: the nodes behind it, as bits.
    behind: Vec<Vec<u64>>,
    /// By node: the one that stands for it and those it was merged with.
    stands: Vec<usize>,
}

impl Reach {
    fn new(graph: &Graph) -> Self {
        let n = graph.nodes().len();
        let mut behind = vec![vec![0_u64; n.div_ceil(64)]; n];
        let mut out = vec![Vec::new(); n];
        for edge in graph.edges() {
            if let Some(list) = out.get_mut(edge.from.index()) {
                list.push(edge.to.index());
            }
        }
        for id in graph.order().iter().rev() {
            let Some(mut own) = behind.get_mut(id.index()).map(std::mem::take) else { continue };
            for to in out.get(id.index()).into_iter().flatten() {
                insert(&mut own, *to);
                if graph.nodes().get(*to).is_some_and(crate::graph::Node::is_nf) {
                    add(&mut own, behind.get(*to).map_or(&[], Vec::as_slice));
                }
            }
            if let Some(place) = behind.get_mut(id.index()) {
                *place = own;
            }
        }
        Reach { behind, stands: (0..n).collect() }
    }

    fn stands_for(&self, node: NodeId) -> usize {
        self.stands.get(node.index()).copied().unwrap_or(usize::MAX)
    }

    fn leads(&self, from: usize, to: usize) -> bool {
        self.behind.get(from).is_some_and(|set| contains(set, to))
    }

    /// True when one leads to the other.
    fn related(&self, a: NodeId, b: NodeId) -> bool {
        let (a, b) = (self.stands_for(a), self.stands_for(b));
        a == b || self.leads(a, b) || self.leads(b, a)
    }

    /// From now on `b`, which is merged with nothing yet, is one with `a`.
    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.stands_for(a), b.index());
        if let Some(place) = self.stands.get_mut(b) {
            *place = a;
        }
        let mut both = self.behind.get(a).cloned().unwrap_or_default();
        add(&mut both, self.behind.get(b).map_or(&[], Vec::as_slice));
        for (node, set) in self.behind.iter_mut().enumerate() {
            if node == a || node == b {
                set.clone_from(&both);
            } else if contains(set, a) || contains(set, b) {
                add(set, &both);
                insert(set, a);
                insert(set, b);
            }
        }
    }
}

fn insert(set: &mut [u64], bit: usize) {
    if let Some(word) = set.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

fn contains(set: &[u64], bit: usize) -> bool {
    set.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

fn add(set: &mut [u64], other: &[u64]) {
    set.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
}

/// The workers' NFs when each NF has a worker but for those that are merged, so that each worker comes
/// before those it leads to.
pub(crate) fn in_order(graph: &Graph, merged: &[Vec<NodeId>]) -> Vec<Vec<NodeId>> {
    if merged.is_empty() {
        return graph.order().iter().map(|id| vec![*id]).collect();
    }
    let mut stands: Vec<usize> = (0..graph.nodes().len()).collect();
    let mut groups: HashMap<usize, &Vec<NodeId>> = HashMap::new();
    for group in merged {
        let Some(first) = group.first().map(|first| first.index()) else { continue };
        groups.insert(first, group);
        for id in group {
            if let Some(place) = stands.get_mut(id.index()) {
                *place = first;
            }
        }
    }
    let at = |id: NodeId| stands.get(id.index()).copied().unwrap_or(usize::MAX);
    let is_nf = |id: NodeId| graph.node(id).is_some_and(crate::graph::Node::is_nf);
    let mut next = vec![Vec::new(); graph.nodes().len()];
    for (i, edge) in graph.edges().iter().enumerate() {
        if is_nf(edge.from)
            && is_nf(edge.to)
            && !edge.closes
            && at(edge.from) != at(edge.to)
            && let Some(list) = next.get_mut(at(edge.from))
        {
            list.push((at(edge.to), i));
        }
    }
    let mut runs = Vec::new();
    for place in topo::order(&next) {
        let Some(id) = u32::try_from(place).ok().map(NodeId).filter(|id| is_nf(*id)) else {
            continue;
        };
        match groups.get(&place) {
            Some(group) => runs.push((*group).clone()),
            None if at(id) == place => runs.push(vec![id]),
            None => {}
        }
    }
    runs
}
