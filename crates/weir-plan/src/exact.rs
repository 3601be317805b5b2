//! Exactly one way for each packet (E2, appendix): the edges out of a node must be pairwise disjoint
//! and together take every packet. Decided by [`weir_logic`], with an example where it is not so.

mod never;
mod overlap;

use std::collections::HashSet;

use weir_filter::Expr;
use weir_logic::{Class, Universe, Verdict};

use crate::auto_tags::{self, Ways};
use crate::declare::Declared;
use crate::edges::Link;
use crate::error::{Errors, PolicyWarning};
use crate::graph::{Graph, Node, NodeKind};
use crate::merge::resolve;
use crate::remedy::{self, Classes};
use crate::span::Span;
use crate::tee::Tees;
use crate::why::Why;

/// A longer filter helps nobody.
const LONGEST_REST: usize = 160;

/// So many pairs of edges of one node are looked at: more than as many pipelets have as there are ports.
const MOST_PAIRS: usize = 1 << 19;
/// So many of one pipelet: no class tells them apart, so they are errors, of which fewer are shown.
const MOST_IN_ONE: usize = 1 << 12;

/// A traffic class that an edge needs.
pub(crate) struct Added {
    /// The edge's place among the links.
    pub(crate) link: usize,
    /// Its filter with the class.
    pub(crate) filter: Expr,
}

/// What was decided.
#[derive(Default)]
pub(crate) struct Judgement {
    pub(crate) added: Vec<Added>,
    /// The user is told of each.
    pub(crate) notes: Vec<PolicyWarning>,
}

/// What the policy says of nodes, by their names.
pub(crate) struct Said<'a> {
    /// Between two edges of a node the order of the text decides.
    pub(crate) first_match: &'a dyn Fn(&Link, &Link) -> bool,
    /// What no edge takes is dropped.
    pub(crate) drops: &'a dyn Fn(&str) -> bool,
}

/// Notes what is not so. `links` are the graph's edges, in the same order.
pub(crate) fn judge(
    graph: &Graph,
    declared: &Declared<'_>,
    links: &[Link],
    tees: &Tees,
    said: &Said<'_>,
    errors: &mut Errors,
) -> Judgement {
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes().len()];
    for (edge, i) in graph.edges().iter().zip(0..) {
        if let Some(list) = leaving.get_mut(edge.from.index()) {
            list.push(i);
        }
    }
    let classes = Classes::new(declared, links);
    let tags = Ways::new(declared, links);
    let mut universe = Universe::default();
    let mut judgement = Judgement::default();
    for (node, leaving) in graph.nodes().iter().zip(leaving) {
        // A port that nothing leaves only sends.
        if leaving.is_empty() && matches!(node.kind, NodeKind::Port { .. } | NodeKind::Drop) {
            continue;
        }
        let (index, span) =
            declared.get(&node.name).map_or_else(Default::default, |(i, d)| (i, d.span));
        let tee = tees.edges(index);
        let edges: Vec<Way<'_>> = match tee {
            // As it is written: edges of a Tee may overlap.
            Some(edges) => {
                let edges = edges.iter().filter_map(|(i, f)| Some((*i, links.get(*i)?, f)));
                edges.map(|(place, link, f)| Way { place, link, filter: f.clone() }).collect()
            }
            None => {
                let edges = leaving.iter().filter_map(|i| Some((*i, links.get(*i)?)));
                edges
                    .map(|(place, link)| Way { place, link, filter: link.filter.clone() })
                    .collect()
            }
        };
        let mut judge = Judge {
            universe: &mut universe,
            declared,
            classes: &classes,
            node,
            index,
            span,
            ways: edges,
            tags: &tags,
            domain: None,
            first_match: said.first_match,
            errors,
        };
        match tee {
            Some([]) => {}
            Some(_) if (said.drops)(&node.name) => {}
            Some(_) => {
                judge.set_domain();
                judge.covered("", false, false);
            }
            None => judge.node(&mut judgement),
        }
        // Of the rest nothing could be said but that nothing is left to decide it with.
        if errors.full() || universe.is_spent() {
            break;
        }
    }
    if errors.is_empty() {
        never::note(graph, links, &mut universe, &mut judgement.notes);
    }
    judgement
}

/// An edge out of the node, with the filter that it would have.
struct Way<'a> {
    place: usize,
    link: &'a Link,
    filter: Option<Expr>,
}

/// Pairs of ways, by their places, that are not shown to be disjoint; the later one is the second.
#[derive(Default)]
struct Meetings {
    pairs: Vec<(usize, usize)>,
    /// There may be more: it was not worth going on.
    cut: bool,
}

/// True for an output that its template says need not be linked.
fn optional(node: &Node, output: usize) -> bool {
    matches!(&node.kind, NodeKind::Vnf(vnf) if vnf.optional.contains(&output))
}

struct Judge<'a, 'd> {
    universe: &'a mut Universe,
    declared: &'a Declared<'d>,
    classes: &'a Classes<'a>,
    node: &'a Node,
    /// Its place among the declarations.
    index: usize,
    /// Its declaration.
    span: Span,
    ways: Vec<Way<'a>>,
    tags: &'a Ways<'a>,
    /// The packets that can get here, where filters ask how they came in; else all.
    domain: Option<Class>,
    first_match: &'a dyn Fn(&Link, &Link) -> bool,
    errors: &'a mut Errors,
}

impl Judge<'_, '_> {
    fn node(&mut self, judgement: &mut Judgement) {
        if self.ways.is_empty() {
            let mut outputs = self.node.outputs.iter().enumerate();
            if outputs.any(|(k, output)| !output.default_drop && !optional(self.node, k)) {
                self.errors.push(self.span, Why::NoWayOut { name: self.node.name.clone() });
            }
            return;
        }
        self.set_domain();
        let before = judgement.added.len();
        if !self.all_ordered() {
            let mut meetings = self.meetings();
            self.confirm(&mut meetings);
            if !meetings.pairs.is_empty() {
                self.remedy(meetings, judgement);
            }
        }
        let added = judgement.added.len() > before;
        let node = self.node;
        for (k, output) in node.outputs.iter().enumerate() {
            if !output.default_drop {
                self.covered(&output.name, optional(node, k), added);
            }
        }
    }

    fn set_domain(&mut self) {
        let filters = || self.ways.iter().filter_map(|way| way.filter.as_ref());
        let (ingress, entry) =
            (filters().any(Expr::asks_ingress), filters().any(remedy::asks_entry));
        let mut known = Vec::new();
        if ingress || entry {
            let upstream = self.classes.upstream(self.index);
            // What an NF makes by itself came in nowhere.
            if !self.classes.makes_up(&upstream) {
                known.push(match entry {
                    true => self.classes.entered(self.index, &upstream),
                    false => self.classes.came_by(self.index, &upstream),
                });
            }
        }
        known.extend(self.tags.possible(self.index, filters()));
        self.domain = (!known.is_empty()).then(|| self.universe.class(&Expr::and(known)));
    }

    /// The ways that packets of an output can take, by their places, and which of them do.
    fn taken(&mut self, output: &str) -> Vec<(usize, Class)> {
        let mut list = Vec::with_capacity(self.ways.len());
        for (at, way) in self.ways.iter().enumerate() {
            let filter = resolve(way.filter.as_ref(), output);
            if filter != Expr::False {
                list.push((at, self.universe.class(&filter)));
            }
        }
        list
    }

    /// All pairs of ways that may take the same packets, as far as diagrams say. Two that meet on several
    /// outputs are one mistake.
    fn meetings(&mut self) -> Meetings {
        let mut found = Meetings::default();
        let mut known: HashSet<(usize, usize)> = HashSet::new();
        let mut in_one = 0_usize;
        let node = self.node;
        for output in &node.outputs {
            let mut list = self.taken(&output.name);
            if let Some(domain) = self.domain {
                for (_, class) in &mut list {
                    *class = self.universe.and(*class, domain);
                }
            }
            let mut before: Option<Class> = None;
            for (n, (at, class)) in list.iter().enumerate() {
                // One question for all ways before this one; only if the answer is bad, one for each.
                let meets = before.is_some_and(|before| self.universe.may_meet(before, *class));
                for (other, other_class) in list.iter().take(n).filter(|_| meets) {
                    let ways = (*other, *at);
                    if self.ordered(ways)
                        || !self.universe.may_meet(*other_class, *class)
                        || !known.insert(ways)
                    {
                        continue;
                    }
                    found.pairs.push(ways);
                    in_one = in_one.saturating_add(usize::from(self.in_one_pipelet(ways)));
                    if in_one >= MOST_IN_ONE || found.pairs.len() >= MOST_PAIRS {
                        found.cut = true;
                        return found;
                    }
                }
                before = Some(match before {
                    Some(before) => self.universe.or(before, *class),
                    None => *class,
                });
            }
        }
        found
    }

    /// Whether no packet takes both ways; an example if one does.
    fn disjoint(&mut self, (a, b): (usize, usize)) -> Verdict {
        let node = self.node;
        let mut verdict = Verdict::Empty;
        for output in &node.outputs {
            let filter = |at: usize| {
                let way = self.ways.get(at)?;
                Some(resolve(way.filter.as_ref(), &output.name)).filter(|f| *f != Expr::False)
            };
            let (Some(first), Some(second)) = (filter(a), filter(b)) else { continue };
            let (first, mut second) = (self.universe.class(&first), self.universe.class(&second));
            if let Some(domain) = self.domain {
                second = self.universe.and(second, domain);
            }
            match self.universe.disjoint(first, second) {
                Verdict::Empty => {}
                example @ Verdict::Example(_) => return example,
                unknown @ Verdict::Unknown(_) => verdict = unknown,
            }
        }
        verdict
    }

    /// Leaves of these pairs those whose ways really meet some other, as far as that is known: an example
    /// is looked for once for each way, not for each pair.
    fn confirm(&mut self, meetings: &mut Meetings) {
        let mut meets = vec![false; self.ways.len()];
        let mut empty: HashSet<(usize, usize)> = HashSet::new();
        for &(a, b) in &meetings.pairs {
            if meets.get(a) == Some(&true) && meets.get(b) == Some(&true) {
                continue;
            }
            if self.disjoint((a, b)).is_empty() {
                empty.insert((a, b));
                continue;
            }
            for at in [a, b] {
                if let Some(meets) = meets.get_mut(at) {
                    *meets = true;
                }
            }
        }
        meetings.pairs.retain(|pair| !empty.contains(pair));
    }

    fn ordered(&self, (a, b): (usize, usize)) -> bool {
        match (self.ways.get(a), self.ways.get(b)) {
            (Some(a), Some(b)) => (self.first_match)(a.link, b.link),
            _ => false,
        }
    }

    /// True when each way of the node is in such an order with the others.
    fn all_ordered(&self) -> bool {
        self.ways.iter().all(|way| (self.first_match)(way.link, way.link))
    }

    fn in_one_pipelet(&self, (a, b): (usize, usize)) -> bool {
        match (self.ways.get(a), self.ways.get(b)) {
            (Some(a), Some(b)) => remedy::share_pipelet(a.link, b.link),
            _ => false,
        }
    }

    /// A filter for what no way takes from `output`, if it can be said in a few words.
    fn rest(&self, output: &str) -> Option<String> {
        let filters = self.ways.iter().map(|way| resolve(way.filter.as_ref(), output));
        let mut filters: Vec<Expr> = filters.filter(|filter| *filter != Expr::False).collect();
        // What stands right of `vlan` would look elsewhere.
        if filters.iter().any(Expr::shifts) {
            return None;
        }
        let taken = if filters.len() == 1 { filters.remove(0) } else { Expr::Or(filters) };
        let mut text = auto_tags::as_written(&Expr::not(taken).to_string());
        if self.node.outputs.len() > 1 && !output.is_empty() {
            text = format!("{}.{output} && {text}", self.node.name);
        }
        (text.len() <= LONGEST_REST).then_some(text)
    }

    /// `may_be_open` says that the output need not have a way, `added` that ways were restricted.
    fn covered(&mut self, output: &str, may_be_open: bool, added: bool) {
        let mut classes: Vec<Class> = self.taken(output).into_iter().map(|(_, c)| c).collect();
        let name = || self.node.name.clone();
        let by = if self.node.outputs.len() > 1 && !output.is_empty() {
            output.to_owned()
        } else {
            String::new()
        };
        if classes.is_empty() {
            if !may_be_open {
                let why = Why::OutputOpen { name: name(), output: output.to_owned() };
                self.errors.push(self.span, why);
            }
            return;
        }
        // What cannot get here need not go anywhere.
        if let Some(domain) = self.domain {
            classes.push(self.universe.not(domain));
        }
        let verdict = self.universe.covers(&classes);
        let rest = || self.rest(output);
        let why = match verdict {
            Verdict::Empty => return,
            Verdict::Example(example) => {
                Why::Hole { name: name(), by, example, added, rest: rest() }
            }
            Verdict::Unknown(reason) => Why::PerhapsHole { name: name(), by, reason, rest: rest() },
        };
        self.errors.push(self.span, why);
    }
}
