//! From a policy's text to a checked graph: all pipelets in one, every name resolved.

use std::collections::{HashMap, HashSet};

use crate::ast::{Item, Policy, Statement};
use crate::auto_tags::{self, AutoTags};
use crate::catalog::Catalog;
use crate::declare::{Declared, What};
use crate::edges::{Link, Linker};
use crate::error::{Errors, PolicyError, PolicyWarning};
use crate::exact;
use crate::graph::{Edge, Graph, Node, NodeId, NodeKind, Output};
use crate::parse::{Parsed, parse_all};
use crate::remedy;
use crate::service;
use crate::span::{Lines, Span};
use crate::tags::Tags;
use crate::tee::Tees;
use crate::texts::LoadError;
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
    check_parsed(alone(parse_all(text)), &Lines::new(text), catalog)
}

/// A text beside which there are no files to include.
fn alone(mut parsed: Parsed) -> Parsed {
    for item in &parsed.policy.items {
        if let Item::Include(include) = item {
            parsed.errors.push(include.path.span, Why::Include(LoadError::NoFiles));
            parsed.incomplete = true;
        }
    }
    parsed
}

/// Checks a policy that was read from the text of `lines`, whatever language that is in.
pub(crate) fn check_parsed(
    parsed: Parsed,
    lines: &Lines<'_>,
    catalog: &dyn Catalog,
) -> Result<Checked, Vec<PolicyError>> {
    let Parsed { policy, mut errors, lost, incomplete } = parsed;
    if incomplete {
        return Err(errors.into_list());
    }
    let mut declared = Declared::new(&policy, catalog, lines, &mut errors);
    let mut links = link(&policy, &declared, &lost, &mut errors);
    if links.is_empty() && errors.is_empty() {
        errors.push(lines.end_of_first(), Why::NoEdges);
    }
    if !errors.is_empty() {
        return Err(errors.into_list());
    }
    auto_tags::check(&declared, &links, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_list());
    }
    let tees = Tees::expand(&mut declared, &mut links);
    let drops = Said::new(&policy, &Item::DefaultDrop, &Statement::DefaultDrop);
    let first = Said::new(&policy, &Item::FirstMatch, &Statement::FirstMatch);
    let mut written = build(&declared, &links, (&drops, &first), &tees);
    // As it was written: what is inside a template is not for the operator's text to answer.
    let order = |a: &Link, b: &Link| first.says(a) && first.says(b);
    let said = exact::Said { first_match: &order, drops: &|node| drops.of(node) };
    let judged = exact::judge(&written, &declared, &links, &tees, &said, &mut errors);
    if !errors.is_empty() {
        return Err(errors.into_list());
    }
    let ordered = |at: usize| {
        let name = declared.list.get(at).map_or("", |d| d.name.as_str());
        tees.edges(at).is_some() || first.of(name)
    };
    let changed = !judged.added.is_empty();
    if changed {
        for added in judged.added {
            if let Some(link) = links.get_mut(added.link) {
                link.filter = Some(added.filter);
            }
        }
    }
    // After that, as what was added is part of what tells edges apart.
    let settled = match written.has_cycles() {
        true => 0,
        false => auto_tags::settle(&declared, &mut links, &ordered),
    };
    if changed || settled > 0 {
        written = build(&declared, &links, (&drops, &first), &tees);
    }
    let warnings = warn::warnings(&declared, &links, &written, &tees, judged.notes);
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
                    shown_with: catalog.shown_with(&info.name),
                },
                (None, _) => continue,
            };
            errors.push(span, why);
        }
        return Err(errors.into_list());
    }
    if let Err(error) = Tags::assign(&graph) {
        let asks = |link: &&Link| link.filter.as_ref().is_some_and(|f| !f.tag_tests().is_empty());
        let span = links.iter().find(asks).map_or(Span::default(), |link| link.span);
        errors.push(span, Why::Tags(error));
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
    let auto = AutoTags::of(policy, declared);
    let mut linker = Linker::new(declared, lost, &auto);
    for item in &policy.items {
        if let Item::Pipelet(pipelet) = item {
            linker.pipelet(pipelet, errors);
        }
    }
    linker.links
}

/// Nodes of which the policy says something: all, or the sources of edges in pipelets that say so.
struct Said<'a> {
    everywhere: bool,
    sources: HashSet<&'a str>,
    /// Pipelets that say it, counted from 1 in the order of the text.
    pipelets: HashSet<usize>,
}

impl<'a> Said<'a> {
    fn new(policy: &'a Policy, everywhere: &Item, there: &Statement) -> Self {
        let mut said = Said {
            everywhere: policy.items.contains(everywhere),
            sources: HashSet::new(),
            pipelets: HashSet::new(),
        };
        let pipelets = policy.items.iter().filter_map(|item| match item {
            Item::Pipelet(pipelet) => Some(pipelet),
            _ => None,
        });
        let pipelets = (1_usize..).zip(pipelets).filter(|(_, p)| p.statements.contains(there));
        let pipelets: Vec<_> = pipelets.collect();
        said.pipelets.extend(pipelets.iter().map(|(number, _)| *number));
        for statement in pipelets.iter().flat_map(|(_, pipelet)| &pipelet.statements) {
            if let Statement::Chain(chain) = statement {
                said.sources.insert(chain.from.value.as_str());
                let inner = chain.hops.iter().rev().skip(1);
                said.sources.extend(inner.map(|hop| hop.to.value.as_str()));
            }
        }
        said
    }

    /// True when all pipelets of the edge say it.
    fn says(&self, link: &Link) -> bool {
        self.everywhere || link.pipelets.iter().all(|p| self.pipelets.contains(p))
    }

    fn of(&self, node: &str) -> bool {
        self.everywhere || self.sources.contains(node)
    }
}

/// By link: its place among those from its source between which the order of the text decides, from 1.
fn places(links: &[Link], first: &Said<'_>) -> Vec<Option<u32>> {
    let mut count: HashMap<usize, u32> = HashMap::new();
    let places = links.iter().map(|link| {
        let place = count.entry(link.from).or_default();
        *place = place.saturating_add(u32::from(first.says(link)));
        first.says(link).then_some(*place)
    });
    let mut places: Vec<Option<u32>> = places.collect();
    for (place, link) in places.iter_mut().zip(links) {
        // One alone is in no order.
        *place = place.filter(|_| count.get(&link.from).is_some_and(|count| *count > 1));
    }
    places
}

/// Places of declarations to nodes: those that have edges, in the order of their declaration.
fn build(
    declared: &Declared<'_>,
    links: &[Link],
    (drops, first): (&Said<'_>, &Said<'_>),
    tees: &Tees,
) -> Graph {
    let places = places(links, first);
    let mut used = vec![false; declared.list.len()];
    for end in links.iter().flat_map(|link| [link.from, link.to]) {
        if let Some(place) = used.get_mut(end) {
            *place = true;
        }
    }
    let mut ids: Vec<Option<NodeId>> = vec![None; declared.list.len()];
    let mut nodes = Vec::new();
    for index in declared.in_order() {
        let is_used = used.get(index).copied().unwrap_or(false);
        let (Some(declaration), Some(place)) =
            (declared.list.get(index).filter(|_| is_used), ids.get_mut(index))
        else {
            continue;
        };
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
        // A copy that nobody wants is dropped.
        let default_drop = drops.of(&declaration.name) || tees.edges(index).is_some();
        let outputs = outputs
            .into_iter()
            .map(|name| Output { name, branches: Vec::new(), default_drop })
            .collect();
        *place = u32::try_from(nodes.len()).ok().map(NodeId);
        nodes.push(Node {
            name: declaration.name.clone(),
            kind,
            outputs,
            vnf: None,
            instance: None,
        });
    }
    let id = |index: usize| ids.get(index).copied().flatten();
    let by_entry = links.iter().filter_map(|link| link.filter.as_ref()).any(remedy::asks_entry);
    let numbers = if by_entry { remedy::entry_numbers(declared, links) } else { Vec::new() };
    let mut graph = Graph { nodes, edges: Vec::new(), order: Vec::new() };
    for (i, link) in links.iter().enumerate() {
        if let (Some(from), Some(to)) = (id(link.from), id(link.to)) {
            graph.add(Edge {
                name: String::new(),
                from,
                outputs: Vec::new(),
                to,
                input: link.input,
                tag: link.tag.clone(),
                filter: link.filter.clone(),
                bandwidth: link.bandwidth,
                pipelet: link.pipelet.clone(),
                entry: numbers.get(i).copied().flatten(),
                closes: false,
                sheds: false,
                first_match: places.get(i).copied().flatten(),
                share: None,
            });
        }
    }
    graph.name_edges();
    graph.settle_order();
    graph.sort();
    graph
}
