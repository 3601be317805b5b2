//! Automatic tags: `a -> [name] x` where `x` has no input of that name (E2 §3.1 and appendix).
//!
//! Which edge led a packet into `x` is then a tag that filters at `x` and behind it ask for as
//! `x.name`. It is a placeholder: where headers and the port that a packet came in by still tell the
//! edge, they take its place, and nothing is carried along at run time. Where they do not, the edges
//! write it into packets ([`crate::tags`]).

use std::collections::{BTreeSet, HashMap};

use weir_filter::{Expr, TagTest};

use crate::ast::{Item, Policy, Statement};
use crate::catalog::NfInfo;
use crate::declare::{Declared, What};
use crate::edges::Link;
use crate::error::Errors;
use crate::remedy::writes;
use crate::said::infos;
use crate::tee::TEE;
use crate::why::Why;

/// What stands before the scope of an automatic tag, to tell it from the name of an output.
const ARROW: &str = "->";

/// The automatic tags of each declaration.
#[derive(Default)]
pub(crate) struct AutoTags {
    by_node: HashMap<usize, BTreeSet<String>>,
}

impl AutoTags {
    /// All that the policy's edges give; which names are inputs is known by the declarations.
    pub(crate) fn of(policy: &Policy, declared: &Declared<'_>) -> Self {
        let mut tags = AutoTags::default();
        let pipelets = policy.items.iter().filter_map(|item| match item {
            Item::Pipelet(pipelet) => Some(pipelet),
            _ => None,
        });
        for statement in pipelets.flat_map(|pipelet| &pipelet.statements) {
            let Statement::Chain(chain) = statement else { continue };
            for hop in &chain.hops {
                if let Some(written) = &hop.filter_in
                    && let Some((to, declaration)) = declared.get(&hop.to.value)
                    && let Some(info) = declaration.what.info()
                    && let Some(name) = wanted(&written.value, &hop.to.value, &info.name)
                    && is_tag(&info.inputs, name)
                {
                    tags.by_node.entry(to).or_default().insert(name.to_owned());
                }
            }
        }
        tags
    }

    /// The node whose automatic tag `scope.name` is.
    pub(crate) fn find(&self, declared: &Declared<'_>, scope: &str, name: &str) -> Option<usize> {
        let (index, _) = declared.get(scope)?;
        self.by_node.get(&index).filter(|names| names.contains(name)).map(|_| index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}

/// The name in `[name]` or `[x.name]` before the destination `x`, which may be named by its type.
pub(crate) fn wanted<'a>(written: &'a str, to: &str, kind: &str) -> Option<&'a str> {
    match written.split_once('.') {
        Some((scope, name)) if scope == to || scope == kind => Some(name),
        Some(_) => None,
        None => Some(written),
    }
}

/// True for a name that can only be an automatic tag: of an NF with one input, other than that.
pub(crate) fn is_tag(inputs: &[String], name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let word = first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word && inputs.len() == 1 && !inputs.iter().any(|input| input == name)
}

/// The scope that an automatic tag of `node` has in filters from now on.
pub(crate) fn scope(node: &str) -> String {
    format!("{ARROW}{node}")
}

/// A filter's text with automatic tags as policies write them.
pub(crate) fn as_written(filter: &str) -> String {
    filter.replace(ARROW, "")
}

/// True for the scope of an automatic tag.
pub(crate) fn is_scope(scope: &str) -> bool {
    node_of(scope).is_some()
}

/// The node of a filter's automatic tag.
fn node_of(scope: &str) -> Option<&str> {
    scope.strip_prefix(ARROW)
}

/// The automatic tags in a filter, as node and name.
pub(crate) fn asked(filter: &Expr) -> impl Iterator<Item = (&str, &str)> {
    filter.tags().into_iter().filter_map(|(scope, name)| Some((node_of(scope)?, name)))
}

/// The most edges that ask for automatic tags.
pub(crate) const MAX_ASKING: usize = 1000;

/// The edges into each declared node.
pub(crate) struct Ways<'a> {
    declared: &'a Declared<'a>,
    links: &'a [Link],
    into: Vec<Vec<usize>>,
}

impl<'a> Ways<'a> {
    pub(crate) fn new(declared: &'a Declared<'a>, links: &'a [Link]) -> Self {
        let mut into = vec![Vec::new(); declared.list.len()];
        for (i, link) in links.iter().enumerate() {
            if let Some(list) = into.get_mut(link.to) {
                list.push(i);
            }
        }
        Ways { declared, links, into }
    }

    fn into(&self, node: usize) -> impl Iterator<Item = &'a Link> {
        self.into.get(node).into_iter().flatten().filter_map(|i| self.links.get(*i))
    }

    fn what(&self, node: usize) -> Option<&'a What> {
        self.declared.list.get(node).map(|d| &d.what)
    }

    fn is_port(&self, node: usize) -> bool {
        matches!(self.what(node), Some(What::Port { .. }))
    }

    /// What packets of `node` may have gone through, itself among it, with nothing behind `without`.
    /// What enters a port does not come out of it again.
    fn upstream(&self, node: usize, without: Option<usize>) -> Vec<usize> {
        let mut seen = vec![false; self.declared.list.len()];
        let (mut found, mut next) = (vec![node], 0);
        while let Some(at) = found.get(next).copied() {
            next = next.saturating_add(1);
            if self.is_port(at) {
                continue;
            }
            for link in self.into(at).filter(|link| Some(link.from) != without) {
                if let Some(seen) = seen.get_mut(link.from).filter(|seen| !**seen) {
                    *seen = true;
                    found.push(link.from);
                }
            }
        }
        found
    }

    /// True when packets can come to `at` without going through `node`.
    fn avoidable(&self, at: usize, node: usize) -> bool {
        let begins = |at: &usize| self.is_port(*at) || self.into(*at).next().is_none();
        at != node && self.upstream(at, Some(node)).iter().any(begins)
    }

    /// What is the case of the tags that these filters ask for, on edges from `at`: of each NF's tags a
    /// packet has the one of the edge that it took, or none if some edge has none or some way leads past
    /// the NF.
    pub(crate) fn possible<'f>(
        &self,
        at: usize,
        filters: impl Iterator<Item = &'f Expr>,
    ) -> Option<Expr> {
        let nodes: BTreeSet<&str> = filters.flat_map(asked).map(|(node, _)| node).collect();
        let each = nodes.into_iter().filter_map(|node| {
            let (index, _) = self.declared.get(node)?;
            let mut had: BTreeSet<Option<&str>> =
                self.into(index).map(|link| link.tag.as_deref()).collect();
            if self.avoidable(at, index) || self.makes_up(at) {
                had.insert(None);
            }
            let names: BTreeSet<&str> = had.iter().copied().flatten().collect();
            let one = had.iter().map(|chosen| {
                let is = |name: &&str| Expr::Tag { scope: scope(node), name: (*name).to_owned() };
                let terms = names.iter().map(|name| match *chosen == Some(*name) {
                    true => is(name),
                    false => Expr::not(is(name)),
                });
                Expr::and(terms.collect())
            });
            Some(Expr::or(one.collect()))
        });
        let all: Vec<Expr> = each.collect();
        (!all.is_empty()).then(|| Expr::and(all))
    }

    /// Packets at `at` may have been made by an NF on the way there: those have no tags. A Tee's copies have.
    fn makes_up(&self, at: usize) -> bool {
        let makes = |info: &NfInfo| info.creates > 0 && info.name != TEE;
        self.upstream(at, None)
            .iter()
            .any(|node| self.what(*node).is_some_and(|what| infos(what).into_iter().any(makes)))
    }

    /// A packet is as it came in: nobody writes, makes or holds any, and each edge's filter says who
    /// takes it.
    fn unchanged(&self, nodes: &[usize], ordered: &dyn Fn(usize) -> bool) -> bool {
        nodes.iter().all(|node| {
            let keeps = |info: &NfInfo| info.creates == 0 && info.holds == 0;
            let quiet = self
                .what(*node)
                .is_some_and(|what| !writes(what) && infos(what).into_iter().all(keeps));
            quiet && !ordered(*node)
        })
    }

    /// That a packet took an edge with this tag; `None` if that depends on more than how it came in.
    fn came_by(&self, (node, name): (&str, &str)) -> Option<Expr> {
        let (index, _) = self.declared.get(node)?;
        let tagged = self.into(index).filter(|link| link.tag.as_deref() == Some(name));
        let ways: Option<Vec<Expr>> = tagged
            .take(MOST_TAGGED.saturating_add(1))
            .map(|link| self.taken(link, MOST_STEPS))
            .collect();
        Some(Expr::or(ways.filter(|ways| ways.len() <= MOST_TAGGED)?))
    }

    /// That a packet took this edge.
    fn taken(&self, link: &Link, steps: usize) -> Option<Expr> {
        let told = |f: &Expr| f.shifts() || !f.tags().is_empty() || terms(f) > MOST_TERMS;
        if link.filter.as_ref().is_some_and(told) {
            return None;
        }
        let arrived = match self.what(link.from)? {
            What::Port { first, last } => Expr::Ingress { first: *first, last: *last },
            What::Nf { .. } => {
                let steps = steps.checked_sub(1)?;
                let ways = self.into(link.from).map(|edge| self.taken(edge, steps));
                let ways: Option<Vec<Expr>> = ways.take(MOST_WAYS.saturating_add(1)).collect();
                Expr::or(ways.filter(|ways| ways.len() <= MOST_WAYS)?)
            }
            _ => return None,
        };
        Some(Expr::and(std::iter::once(arrived).chain(link.filter.clone()).collect()))
    }
}

/// Every automatic tag that a filter asks for can be there: its NF is the filter's source or before it.
pub(crate) fn check(declared: &Declared<'_>, links: &[Link], errors: &mut Errors) {
    let ways = Ways::new(declared, links);
    let mut asking = 0_usize;
    for link in links {
        let Some(filter) = link.filter.as_ref().filter(|f| asked(f).next().is_some()) else {
            continue;
        };
        asking = asking.saturating_add(1);
        if asking > MAX_ASKING {
            errors.push(link.span, Why::TooManyTags);
            errors.stop();
            return;
        }
        let upstream = ways.upstream(link.from, None);
        let nodes: BTreeSet<(&str, &str)> = asked(filter).collect();
        for (node, name) in nodes {
            let before = declared.get(node).is_some_and(|(index, _)| upstream.contains(&index));
            if !before {
                let from = declared.list.get(link.from).map_or("", |d| d.name.as_str()).to_owned();
                let (node, name) = (node.to_owned(), name.to_owned());
                errors.push(link.span, Why::TagElsewhere { node, name, from });
            }
        }
    }
}

/// Puts what headers and ports say in place of automatic tags, where they say it. `ordered`: of these
/// declarations the order of edges decides, or packets take several, so that an edge's filter alone
/// does not say who took it. Nothing is said of graphs with cycles. Gives how many filters it changed.
pub(crate) fn settle(
    declared: &Declared<'_>,
    links: &mut [Link],
    ordered: &dyn Fn(usize) -> bool,
) -> usize {
    let ways = Ways::new(declared, links);
    let mut settled = Vec::new();
    for (i, link) in links.iter().enumerate() {
        let Some(filter) = link.filter.as_ref().filter(|f| asked(f).next().is_some()) else {
            continue;
        };
        // What moves offsets cannot be joined with what stands beside it.
        if filter.shifts() || !ways.unchanged(&ways.upstream(link.from, None), ordered) {
            continue;
        }
        let mut known: HashMap<(&str, &str), Option<Expr>> = HashMap::new();
        let mut size = terms(filter);
        for tag in asked(filter) {
            let value = known.entry(tag).or_insert_with(|| ways.came_by(tag));
            size = size.saturating_add(value.as_ref().map_or(0, terms));
        }
        if size > MOST_TERMS || known.values().any(Option::is_none) {
            continue;
        }
        let value =
            |scope: &str, name: &str| known.get(&(node_of(scope)?, name)).and_then(Clone::clone);
        settled.push((i, replace(filter, &value)));
    }
    let count = settled.len();
    for (i, filter) in settled {
        if let Some(link) = links.get_mut(i) {
            link.filter = Some(filter);
        }
    }
    count
}

/// The most NFs between a port and an automatic tag that are looked through.
const MOST_STEPS: usize = 8;
/// The most edges into each of them: filters stay short.
const MOST_WAYS: usize = 2;
/// The most edges with the same tag.
const MOST_TAGGED: usize = 64;
/// The most terms of a filter that stands for a tag, or has one.
const MOST_TERMS: usize = 1000;

/// How many terms and brackets a filter has.
fn terms(filter: &Expr) -> usize {
    match filter {
        Expr::Not(inner) => terms(inner).saturating_add(1),
        Expr::And(list) | Expr::Or(list) => list.iter().map(terms).fold(1, usize::saturating_add),
        _ => 1,
    }
}

/// A filter that tests automatic tags as the flags that they are at run time.
pub(crate) fn as_flags(filter: &Expr) -> Expr {
    replace(filter, &|scope, name| {
        let (scope, name) = (is_scope(scope).then(|| scope.to_owned())?, name.to_owned());
        Some(Expr::TagIs { scope, name, test: TagTest::Flag })
    })
}

fn replace(filter: &Expr, value: &dyn Fn(&str, &str) -> Option<Expr>) -> Expr {
    let all = |list: &[Expr]| list.iter().map(|e| replace(e, value)).collect();
    match filter {
        Expr::Tag { scope, name } => value(scope, name).unwrap_or_else(|| filter.clone()),
        Expr::Not(inner) => Expr::not(replace(inner, value)),
        Expr::And(list) => Expr::And(all(list)),
        Expr::Or(list) => Expr::Or(all(list)),
        other => other.clone(),
    }
}
