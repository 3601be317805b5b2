//! What is evidently odd about a policy without errors.

use std::collections::{BTreeMap, HashMap, HashSet};

use weir_filter::{Expr, Surprise};

use crate::declare::{Declared, What};
use crate::edges::Link;
use crate::error::{MAX_WARNINGS, PolicyWarning};
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};
use crate::merge::resolve;
use crate::reach::Reach;
use crate::said;
use crate::span::Span;
use crate::tee::Tees;
use crate::topo;
use crate::warning::Warning;

/// The most nodes of a cycle that are named.
const LONGEST_PATH: usize = 20;

/// The warnings, in the order of the text. `links` are the graph's edges, in the same order;
/// `notes` are what is to be said besides.
pub(crate) fn warnings(
    declared: &Declared<'_>,
    links: &[Link],
    graph: &Graph,
    tees: &Tees,
    notes: Vec<PolicyWarning>,
) -> Vec<PolicyWarning> {
    let mut list = notes;
    for name in graph.nodes().iter().map(|node| node.name.as_str()) {
        if let Some((index, d)) = declared.get(name)
            && tees.edges(index).is_some_and(|edges| edges.len() == 1)
        {
            let why = Warning::OneWay { name: name.to_owned() };
            list.push(PolicyWarning { span: d.span, why });
        }
    }
    unused(declared, links, &mut list);
    unreached(declared, graph, &mut list);
    edges(declared, links, graph, &mut list);
    said::unset(declared, links, &mut list);
    cycles(links, graph, &mut list);
    list.sort_by_key(|w| (w.span.start, w.span.end));
    capped(list)
}

/// The first [`MAX_WARNINGS`], and how many there are besides.
fn capped(mut list: Vec<PolicyWarning>) -> Vec<PolicyWarning> {
    let left = list.len().saturating_sub(MAX_WARNINGS);
    if let Some(first) = list.get(MAX_WARNINGS) {
        let word = PolicyWarning { span: first.span, why: Warning::TooMany { left } };
        list.truncate(MAX_WARNINGS);
        list.push(word);
    }
    list
}

/// Where filters surprise. One that is said for each term would drown the rest.
pub(crate) fn surprises(links: &[Link]) -> Vec<PolicyWarning> {
    let mut first: Vec<(Surprise, Span, usize)> = Vec::new();
    let mut seen: HashSet<Surprise> = HashSet::new();
    for link in links {
        for surprise in link.filter.iter().flat_map(weir_filter::warnings) {
            if seen.contains(&surprise) {
                continue;
            }
            let kind = std::mem::discriminant(&surprise);
            match first.iter_mut().find(|(known, ..)| std::mem::discriminant(known) == kind) {
                Some((.., more)) => *more = more.saturating_add(1),
                None => first.push((surprise.clone(), link.span, 0)),
            }
            seen.insert(surprise);
        }
    }
    first.sort_by_key(|(_, span, _)| (span.start, span.end));
    let warning =
        |(surprise, span, more)| PolicyWarning { span, why: Warning::Surprise { surprise, more } };
    first.into_iter().map(warning).collect()
}

fn unused(declared: &Declared<'_>, links: &[Link], list: &mut Vec<PolicyWarning>) {
    let used: HashSet<usize> = links.iter().flat_map(|link| [link.from, link.to]).collect();
    let addresses = declared.used_addresses.borrow();
    // By file: lists of addresses are made for several policies, of which each uses a few.
    let mut shared: BTreeMap<&str, (Span, Vec<String>)> = BTreeMap::new();
    for (index, declaration) in declared.list.iter().enumerate() {
        let unused = !used.contains(&index) && !addresses.contains(&index);
        if unused && !matches!(declaration.what, What::Drop) {
            let at = declaration.span.start;
            if let (What::Address(_), Some(_), Some(file)) =
                (&declaration.what, declared.lines.included(at), declared.lines.file(at))
            {
                let (_, names) =
                    shared.entry(file).or_insert_with(|| (declaration.span, Vec::new()));
                names.push(declaration.name.clone());
                continue;
            }
            let why = Warning::Unused { name: declaration.name.clone() };
            list.push(PolicyWarning { span: declaration.span, why });
        }
    }
    for (span, names) in shared.into_values() {
        list.push(PolicyWarning { span, why: Warning::UnusedAddresses { names } });
    }
}

/// Ways that lead back to where they come from: at most one warning for each cycle, none for some.
fn cycles(links: &[Link], graph: &Graph, list: &mut Vec<PolicyWarning>) {
    if !graph.has_cycles() {
        return;
    }
    let reach = Reach::new(graph);
    for mut cycle in topo::cycles(&graph.among_nfs()) {
        // Shown from where packets come in: behind the edge that closes it.
        let closes = |i: &usize| graph.edges().get(*i).is_some_and(|edge| edge.closes);
        if let Some(last) = cycle.iter().position(closes) {
            let mid = last.saturating_add(1).min(cycle.len());
            cycle.rotate_left(mid);
        }
        let along = cycle.iter().filter_map(|i| graph.edges().get(*i));
        let nodes: HashSet<NodeId> = along.clone().map(|edge| edge.from).collect();
        let names = along.filter_map(|edge| graph.node(edge.from)).map(|node| node.name.as_str());
        let mut names: Vec<&str> = names.collect();
        let first = names.first().copied();
        if names.len() > LONGEST_PATH {
            names.truncate(LONGEST_PATH);
            names.push("...");
        }
        names.extend(first);
        if let Some(link) = cycle.last().and_then(|i| links.get(*i)) {
            // All that lead to each other with these: another way round may be longer.
            let next = graph.among_nfs();
            let first = nodes.iter().next().map_or(0, |id| id.index());
            let is_on = |id: &&NodeId| {
                topo::reaches(&next, first, id.index()) && topo::reaches(&next, id.index(), first)
            };
            let on: Vec<NodeId> = graph.order().iter().filter(is_on).copied().collect();
            let path = names.join(" -> ");
            let why = match reach.again(&on) {
                Some(_) => {
                    let name = |id: &NodeId| graph.node(*id).map(|node| node.name.as_str());
                    let together = on.iter().filter_map(name).collect::<Vec<_>>().join("+");
                    Warning::NoRound { path, together }
                }
                None => Warning::Cycle { path },
            };
            list.push(PolicyWarning { span: link.span, why });
        }
    }
}

/// NFs that get no packets.
fn unreached(declared: &Declared<'_>, graph: &Graph, list: &mut Vec<PolicyWarning>) {
    let targets: HashSet<NodeId> = graph.edges().iter().map(|edge| edge.to).collect();
    for (id, node) in graph.node_ids() {
        let has_inputs = match &node.kind {
            NodeKind::Nf { info, .. } => !info.inputs.is_empty(),
            NodeKind::Vnf(_) => true,
            NodeKind::Port { .. } | NodeKind::Drop => false,
        };
        if has_inputs && !targets.contains(&id) {
            let span = declared.get(&node.name).map_or(Span::default(), |(_, d)| d.span);
            list.push(PolicyWarning {
                span,
                why: Warning::NoWayIn { name: node.name.clone(), in_request: false },
            });
        }
    }
}

/// Edges that no packet takes.
fn edges(declared: &Declared<'_>, links: &[Link], graph: &Graph, list: &mut Vec<PolicyWarning>) {
    let mut takes_all: HashMap<(NodeId, usize), EdgeId> = HashMap::new();
    for (id, node) in graph.node_ids() {
        for (k, output) in node.outputs.iter().enumerate() {
            if let Some(last) = output.branches.last().filter(|branch| branch.filter.is_none()) {
                takes_all.insert((id, k), last.edge);
            }
        }
    }
    for ((_, edge), link) in graph.edge_ids().zip(links) {
        if !edge.outputs.is_empty() {
            continue;
        }
        // The first output whose packets match says which edge stands in the way.
        let outputs = graph.outputs(edge.from).iter().enumerate();
        let blocker = outputs
            .filter(|(_, output)| resolve(edge.filter.as_ref(), &output.name) != Expr::False)
            .find_map(|(k, _)| takes_all.get(&(edge.from, k)))
            .and_then(|blocker| links.get(blocker.index()));
        let why = match blocker {
            Some(blocker) => {
                let (at, here) = (blocker.span.start, link.span.start);
                Warning::Unreachable { line: declared.lines.line_beside(at, here) }
            }
            None => Warning::NeverMatches,
        };
        list.push(PolicyWarning { span: link.span, why });
    }
}
