//! From a policy's text to a checked graph: all pipelets in one, every name resolved.

use std::collections::HashSet;

use crate::ast::{Item, Policy, Statement};
use crate::catalog::Catalog;
use crate::declare::{Declared, What};
use crate::edges::{Link, Linker};
use crate::error::{Errors, PolicyError, PolicyWarning};
use crate::exact;
use crate::graph::{Edge, Graph, Node, NodeId, NodeKind, Output};
use crate::parse::{Parsed, parse_all};
use crate::service;
use crate::span::{Lines, Span};
use crate::topo;
use crate::warn;
use crate::why::Why;

/// The most port numbers of all `Port` declarations together.
pub const MAX_PORTS: usize = 1024;

/// A policy that may run.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Its graph, VNFs replaced by their µNFs.
    pub graph: Graph,
    /// Its graph as it was written, VNFs as one node each.
    pub written: Graph,
    /// What is probably not meant, in the order of the text.
    pub warnings: Vec<PolicyWarning>,
    /// Where its filters mean, as libpcap's do, less or other than they seem to: each kind of surprise
    /// once, at the first edge that has it.
    pub surprises: Vec<PolicyWarning>,
}

/// Reads and checks a policy.
///
/// # Errors
/// All errors found, in the order of the text, at most [`crate::MAX_ERRORS`] and a word on the rest.
pub fn check(text: &str, catalog: &dyn Catalog) -> Result<Checked, Vec<PolicyError>> {
    check_parsed(parse_all(text), text, catalog)
}

/// Checks a policy that was read from `text`, whatever language that is in.
pub(crate) fn check_parsed(
    parsed: Parsed,
    text: &str,
    catalog: &dyn Catalog,
) -> Result<Checked, Vec<PolicyError>> {
    let Parsed { policy, mut errors, lost } = parsed;
    let lines = Lines::new(text);
    let declared = Declared::new(&policy, catalog, &lines, &mut errors);
    let mut links = link(&policy, &declared, &lost, &mut errors);
    if links.is_empty() && errors.is_empty() {
        errors.push(Span::new(text.len(), text.len()), Why::NoEdges);
    }
    refuse_cycles(&declared, &links, &mut errors);
    refuse_port_arrays(&declared, &links, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_list());
    }
    let drops = Said::new(&policy, &Item::DefaultDrop, &Statement::DefaultDrop);
    let mut written = build(&declared, &links, &drops);
    // As it was written: what is inside a template is not for the operator's text to answer.
    let first = Said::new(&policy, &Item::FirstMatch, &Statement::FirstMatch);
    let judged = exact::judge(&written, &declared, &links, &|node| first.of(node), &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_list());
    }
    if !judged.added.is_empty() {
        for added in judged.added {
            if let Some(link) = links.get_mut(added.link) {
                link.filter = Some(added.filter);
            }
        }
        written = build(&declared, &links, &drops);
    }
    let warnings = warn::warnings(&declared, &links, &written, judged.notes);
    let mut graph = service::expand(&written);
    if let Err(problems) = service::configure(&mut graph, catalog) {
        for (id, problem) in problems {
            let Some(node) = graph.node(id) else { continue };
            let instance = node.vnf.as_ref().map_or(&node.name, |vnf| &vnf.instance);
            let span = declared.get(instance).map_or(Span::default(), |(_, d)| d.span);
            let why = match (&node.vnf, &node.kind) {
                (Some(vnf), _) => Why::Parameters {
                    name: vnf.instance.clone(),
                    template: vnf.template.clone(),
                    why: format!("its µNF `{}`: {}", vnf.node, problem.why),
                },
                (None, NodeKind::Nf { info, .. }) => Why::Config {
                    name: node.name.clone(),
                    type_name: info.name.clone(),
                    why: problem.why,
                },
                (None, _) => continue,
            };
            errors.push(span, why);
        }
        return Err(errors.into_list());
    }
    let surprises = warn::surprises(&links);
    Ok(Checked { graph, written, warnings, surprises })
}

/// All edges of all pipelets; one that a later pipelet repeats is taken once.
fn link(
    policy: &Policy,
    declared: &Declared<'_>,
    lost: &HashSet<String>,
    errors: &mut Errors,
) -> Vec<Link> {
    let mut linker = Linker::new(declared, lost);
    for item in &policy.items {
        if let Item::Pipelet(pipelet) = item {
            linker.pipelet(pipelet, errors);
        }
    }
    linker.links
}

/// Only NFs can be on a cycle: what enters a port's sending side leaves the graph.
fn refuse_cycles(declared: &Declared<'_>, links: &[Link], errors: &mut Errors) {
    let is_nf = |index: usize| {
        let what = declared.list.get(index).map(|d| &d.what);
        matches!(what, Some(What::Nf { .. } | What::Vnf(_)))
    };
    let mut next = vec![Vec::new(); declared.list.len()];
    for (edge, link) in links.iter().enumerate() {
        if is_nf(link.from)
            && is_nf(link.to)
            && let Some(edges) = next.get_mut(link.from)
        {
            edges.push((link.to, edge));
        }
    }
    for cycle in topo::cycles(&next) {
        let along: Vec<&Link> = cycle.iter().filter_map(|edge| links.get(*edge)).collect();
        let name = |index: usize| declared.list.get(index).map_or("", |d| d.name.as_str());
        let mut names: Vec<&str> = along.iter().map(|link| name(link.from)).take(20).collect();
        if along.len() > names.len() {
            names.push("...");
        }
        names.extend(along.first().map(|link| name(link.from)));
        // The edge that closes the cycle is the one written last.
        if let Some(last) = along.iter().max_by_key(|link| link.span.start) {
            errors.push(last.span, Why::Cycle { path: names.join(" -> ") });
        }
    }
}

/// One error for each array, at the first edge to it.
fn refuse_port_arrays(declared: &Declared<'_>, links: &[Link], errors: &mut Errors) {
    let mut seen = HashSet::new();
    for link in links {
        if let Some(declaration) = declared.list.get(link.to)
            && let What::Port { first, last } = declaration.what
            && first < last
            && seen.insert(link.to)
        {
            let count = usize::from(last.saturating_sub(first)).saturating_add(1);
            errors.push(link.to_span, Why::PortArray { name: declaration.name.clone(), count });
        }
    }
}

/// Nodes of which the policy says something: all, or the sources of edges in pipelets that say so.
struct Said<'a> {
    everywhere: bool,
    sources: HashSet<&'a str>,
}

impl<'a> Said<'a> {
    fn new(policy: &'a Policy, everywhere: &Item, there: &Statement) -> Self {
        let mut said =
            Said { everywhere: policy.items.contains(everywhere), sources: HashSet::new() };
        let pipelets = policy.items.iter().filter_map(|item| match item {
            Item::Pipelet(pipelet) if pipelet.statements.contains(there) => Some(pipelet),
            _ => None,
        });
        for statement in pipelets.flat_map(|pipelet| &pipelet.statements) {
            if let Statement::Chain(chain) = statement {
                said.sources.insert(chain.from.value.as_str());
                let inner = chain.hops.iter().rev().skip(1);
                said.sources.extend(inner.map(|hop| hop.to.value.as_str()));
            }
        }
        said
    }

    fn of(&self, node: &str) -> bool {
        self.everywhere || self.sources.contains(node)
    }
}

/// Places of declarations to nodes: those that have edges, in the order of their declaration.
fn build(declared: &Declared<'_>, links: &[Link], drops: &Said<'_>) -> Graph {
    let mut used = vec![false; declared.list.len()];
    for end in links.iter().flat_map(|link| [link.from, link.to]) {
        if let Some(place) = used.get_mut(end) {
            *place = true;
        }
    }
    let mut ids: Vec<Option<NodeId>> = vec![None; declared.list.len()];
    let mut nodes = Vec::new();
    for ((declaration, used), place) in declared.list.iter().zip(used).zip(&mut ids) {
        if !used {
            continue;
        }
        let (kind, outputs) = match &declaration.what {
            What::Port { first, last } => {
                (NodeKind::Port { first: *first, last: *last }, vec![String::new()])
            }
            What::Nf { info, config } => {
                (NodeKind::Nf { info: info.clone(), config: config.clone() }, info.outputs.clone())
            }
            What::Vnf(vnf) => (NodeKind::Vnf(vnf.clone()), vnf.info.outputs.clone()),
            What::Drop => (NodeKind::Drop, Vec::new()),
            What::Address(_) | What::Broken => continue,
        };
        let default_drop = drops.of(&declaration.name);
        let outputs = outputs
            .into_iter()
            .map(|name| Output { name, branches: Vec::new(), default_drop })
            .collect();
        *place = u32::try_from(nodes.len()).ok().map(NodeId);
        nodes.push(Node { name: declaration.name.clone(), kind, outputs, vnf: None });
    }
    let id = |index: usize| ids.get(index).copied().flatten();
    let mut graph = Graph { nodes, edges: Vec::new(), order: Vec::new() };
    for link in links {
        if let (Some(from), Some(to)) = (id(link.from), id(link.to)) {
            graph.add(Edge {
                name: String::new(),
                from,
                outputs: Vec::new(),
                to,
                input: link.input,
                filter: link.filter.clone(),
                bandwidth: link.bandwidth,
                pipelet: link.pipelet.clone(),
            });
        }
    }
    graph.name_edges();
    graph.sort();
    graph
}
