//! Exactly one way for each packet (E2, appendix): the edges out of a node must be pairwise disjoint
//! and together take every packet. Decided by [`weir_logic`], with an example where it is not so.

use weir_filter::Expr;
use weir_logic::{Class, Universe, Verdict};

use crate::auto_tags::{self, Ways};
use crate::declare::Declared;
use crate::edges::Link;
use crate::error::{Errors, PolicyWarning};
use crate::graph::{Graph, Node, NodeKind};
use crate::merge::resolve;
use crate::remedy::{self, Classes, NoClass};
use crate::span::{Line, Span};
use crate::tee::Tees;
use crate::warning::Warning;
use crate::why::Why;

/// A longer filter helps nobody.
const LONGEST_REST: usize = 160;

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
    /// The order of the text decides.
    pub(crate) first_match: &'a dyn Fn(&str) -> bool,
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
            errors,
        };
        match tee {
            Some([]) => {}
            Some(_) if (said.drops)(&node.name) => {}
            Some(_) => {
                judge.set_domain();
                judge.covered("", false, false);
            }
            None => judge.node((said.first_match)(&node.name), &mut judgement),
        }
        if errors.full() {
            break;
        }
    }
    judgement
}

/// An edge out of the node, with the filter that it would have.
struct Way<'a> {
    place: usize,
    link: &'a Link,
    filter: Option<Expr>,
}

/// Two ways, by their places, that are not shown to be disjoint.
struct Meeting {
    ways: (usize, usize),
    verdict: Verdict,
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
    errors: &'a mut Errors,
}

impl Judge<'_, '_> {
    fn node(&mut self, ordered: bool, judgement: &mut Judgement) {
        if self.ways.is_empty() {
            let mut outputs = self.node.outputs.iter().enumerate();
            if outputs.any(|(k, output)| !output.default_drop && !optional(self.node, k)) {
                self.errors.push(self.span, Why::NoWayOut { name: self.node.name.clone() });
            }
            return;
        }
        self.set_domain();
        let before = judgement.added.len();
        if !ordered {
            let meetings = self.meetings();
            if !meetings.is_empty() {
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
            known.push(match entry {
                true => self.classes.entered(self.index, &upstream),
                false => self.classes.came_by(&upstream),
            });
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

    /// All pairs of ways that take the same packets. Two that meet on several outputs are one mistake.
    fn meetings(&mut self) -> Vec<Meeting> {
        let mut found: Vec<Meeting> = Vec::new();
        let node = self.node;
        for output in &node.outputs {
            let list = self.taken(&output.name);
            let mut before: Option<Class> = None;
            for (n, (at, class)) in list.iter().enumerate() {
                let class = match self.domain {
                    Some(domain) => self.universe.and(*class, domain),
                    None => *class,
                };
                // One question for all ways before this one; only if the answer is bad, one for each.
                let meets =
                    before.is_some_and(|before| !self.universe.disjoint(before, class).is_empty());
                for (other, class_before) in list.iter().take(n).filter(|_| meets) {
                    let ways = (*other, *at);
                    if found.iter().any(|meeting| meeting.ways == ways) {
                        continue;
                    }
                    let verdict = self.universe.disjoint(*class_before, class);
                    if !verdict.is_empty() {
                        found.push(Meeting { ways, verdict });
                    }
                }
                before = Some(match before {
                    Some(before) => self.universe.or(before, class),
                    None => class,
                });
            }
        }
        found
    }

    /// Adds the classes of their pipelets to the ways that meet. What meets all the same is an error.
    fn remedy(&mut self, meetings: Vec<Meeting>, judgement: &mut Judgement) {
        let upstream = self.classes.upstream(self.index);
        let class = |at: usize| -> Option<Result<remedy::Class, NoClass>> {
            let way = self.ways.get(at)?;
            let pairs = meetings.iter().map(|meeting| meeting.ways);
            let others = pairs.filter_map(|(a, b)| match at {
                _ if a == at => Some(b),
                _ if b == at => Some(a),
                _ => None,
            });
            let others: Vec<&Link> =
                others.filter_map(|other| self.ways.get(other)).map(|way| way.link).collect();
            (!others.is_empty()).then(|| self.classes.of(way.link, &others, &upstream))
        };
        let added: Vec<Option<Result<remedy::Class, NoClass>>> =
            (0..self.ways.len()).map(class).collect();
        let failed = |at: usize| match added.get(at) {
            Some(Some(Err(why))) => Some(why.clone()),
            _ => None,
        };
        // Of that nothing need be said: it is a mistake without any merging.
        let said = |at: usize| failed(at).filter(|why| *why != NoClass::SamePipelet);
        // All or nothing: half a remedy would only move the holes.
        if (0..self.ways.len()).any(|at| failed(at).is_some()) {
            for Meeting { ways: (a, b), verdict } in meetings {
                self.overlap((a, b), verdict, said(b).or_else(|| said(a)));
            }
            return;
        }
        let before: Vec<Option<Expr>> = self.ways.iter().map(|way| way.filter.clone()).collect();
        for (way, class) in self.ways.iter_mut().zip(&added) {
            if let Some(Ok(class)) = class {
                let filter = way.filter.take().unwrap_or(Expr::True);
                way.filter = Some(remedy::and(class.expr.clone(), filter));
            }
        }
        self.set_domain();
        let left: Vec<(usize, usize)> = self.meetings().iter().map(|m| m.ways).collect();
        if !left.is_empty() {
            for (way, filter) in self.ways.iter_mut().zip(before) {
                way.filter = filter;
            }
            for Meeting { ways, verdict } in meetings {
                self.overlap(ways, verdict, left.contains(&ways).then_some(NoClass::Common));
            }
            return;
        }
        for ((at, way), class) in self.ways.iter().enumerate().zip(added) {
            let (Some(Ok(class)), Some(filter)) = (class, &way.filter) else {
                continue;
            };
            judgement.added.push(Added { link: way.place, filter: filter.clone() });
            let other = meetings.iter().find_map(|m| match m.ways {
                (a, b) if a == at => Some(b),
                (a, b) if b == at => Some(a),
                _ => None,
            });
            let line = self.line(other.unwrap_or(at));
            let why = match class.entered {
                None => Warning::ClassAdded { class: class.expr.to_string(), line },
                Some((entries, writer)) => {
                    let entries = entries.into_iter().map(|link| self.classes.line(link)).collect();
                    Warning::EntryAdded { entries, line, writer }
                }
            };
            judgement.notes.push(PolicyWarning { span: way.link.span, why });
        }
    }

    fn line(&self, at: usize) -> Line {
        self.declared.lines.line(self.ways.get(at).map_or(0, |way| way.link.span.start))
    }

    fn overlap(&mut self, (a, b): (usize, usize), verdict: Verdict, class: Option<NoClass>) {
        let line = self.line(a);
        let why = match verdict {
            Verdict::Empty => return,
            Verdict::Example(example) => Why::Overlap { line, example, class },
            Verdict::Unknown(reason) => Why::PerhapsOverlap { line, reason },
        };
        let span = self.ways.get(b).map_or(self.span, |way| way.link.span);
        self.errors.push(span, why);
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
