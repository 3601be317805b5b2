//! E2's remedy for packets that have several ways (E2, appendix): the traffic class of its pipelet is
//! added to each ambiguous edge. A pipelet's class is what comes in by the ports that its edges leave.
//! Behind an NF that may write, filters say nothing of how a packet came in: there a tag carries
//! the number of the edge by which the packet left its port, and is tested instead.

use std::collections::BTreeSet;

use thiserror::Error;
use weir_filter::{Compare, Expr, TagTest};

use crate::declare::{Declared, What};
use crate::edges::Link;
use crate::said::infos;
use crate::span::Line;
use crate::tags::ENTRY;

/// Why the classes of two edges' pipelets do not tell their packets apart.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoClass {
    /// A pipelet begins in the middle.
    #[error("a pipelet of theirs has no edge from a port, so it has no traffic class to add")]
    NoPort,
    /// A class looks behind tags, as `vlan` does, which would move what the edge's filter looks at.
    #[error(
        "their pipelets share a port, and the filters there cannot be joined to these: they look behind tags or labels"
    )]
    Moves,
    /// The classes overlap.
    #[error("their pipelets' traffic classes have packets in common")]
    Common,
}

/// What tells a pipelet's packets from others.
pub(crate) struct Class {
    pub(crate) expr: Expr,
    /// Where it asks by which edges packets entered: these edges, by their places among the links, and
    /// the NF because of which it does.
    pub(crate) entered: Option<(Vec<usize>, String)>,
}

/// A pipelet's edge from a port.
struct Entrance<'a> {
    link: usize,
    number: u32,
    port: usize,
    first: u16,
    last: u16,
    filter: Option<&'a Expr>,
}

/// What pipelets the edges belong to, and where those begin.
pub(crate) struct Classes<'a> {
    declared: &'a Declared<'a>,
    links: &'a [Link],
    /// The edges into each declared node.
    into: Vec<Vec<usize>>,
    /// By pipelet: its edges from ports.
    entrances: Vec<Vec<Entrance<'a>>>,
    /// By link, for edges from ports: their numbers.
    numbers: Vec<Option<u32>>,
}

/// For each link from a port its number, from 1 in the order of the text.
pub(crate) fn entry_numbers(declared: &Declared<'_>, links: &[Link]) -> Vec<Option<u32>> {
    let mut next = 1_u32..;
    let from_port = |link: &Link| matches!(what(declared, link.from), What::Port { .. });
    links.iter().map(|link| if from_port(link) { next.next() } else { None }).collect()
}

/// True when it asks by which edge packets entered.
pub(crate) fn asks_entry(filter: &Expr) -> bool {
    filter.tag_tests().iter().any(|(scope, name, _)| (*scope, *name) == ENTRY)
}

fn entered_by(number: u32) -> Expr {
    let (scope, name) = (ENTRY.0.to_owned(), ENTRY.1.to_owned());
    let test = TagTest::Number { compare: Compare::Equal, value: number.into() };
    Expr::TagIs { scope, name, test }
}

/// What is upstream of a node.
#[derive(Default)]
pub(crate) struct Upstream {
    /// Declared ports by which its packets may have come in.
    ports: BTreeSet<usize>,
    /// Declared NFs that they may have gone through, itself among them.
    nfs: BTreeSet<usize>,
}

impl<'a> Classes<'a> {
    pub(crate) fn new(declared: &'a Declared<'a>, links: &'a [Link]) -> Self {
        let mut into = vec![Vec::new(); declared.list.len()];
        let mut entrances: Vec<Vec<Entrance<'a>>> = Vec::new();
        let numbers = entry_numbers(declared, links);
        for (i, link) in links.iter().enumerate() {
            if let Some(list) = into.get_mut(link.to) {
                list.push(i);
            }
            let What::Port { first, last } = what(declared, link.from) else {
                continue;
            };
            for &pipelet in &link.pipelets {
                if entrances.len() <= pipelet {
                    entrances.resize_with(pipelet.saturating_add(1), Vec::new);
                }
                if let Some(list) = entrances.get_mut(pipelet) {
                    let filter = link.filter.as_ref();
                    let number = numbers.get(i).copied().flatten().unwrap_or_default();
                    let (port, first, last) = (link.from, *first, *last);
                    list.push(Entrance { link: i, number, port, first, last, filter });
                }
            }
        }
        Self { declared, links, into, entrances, numbers }
    }

    /// Where the packets of a declared node come from.
    pub(crate) fn upstream(&self, node: usize) -> Upstream {
        let mut found = Upstream::default();
        if let What::Port { .. } = what(self.declared, node) {
            // As a source it gives what it receives.
            found.ports.insert(node);
            return found;
        }
        let mut todo = vec![node];
        while let Some(at) = todo.pop() {
            if let What::Port { .. } = what(self.declared, at) {
                found.ports.insert(at);
            } else if found.nfs.insert(at) {
                let edges = self.into.get(at).into_iter().flatten();
                todo.extend(edges.filter_map(|i| self.links.get(*i)).map(|link| link.from));
            }
        }
        found
    }

    /// True when an NF there has no inputs, so that its packets are its own.
    pub(crate) fn makes_up(&self, upstream: &Upstream) -> bool {
        let mut all = upstream.nfs.iter().flat_map(|nf| infos(what(self.declared, *nf)));
        all.any(|info| info.inputs.is_empty())
    }

    /// That a packet came in by one of these ports; where packets are still as they came in, that one of
    /// the edges from there to `node` took it.
    pub(crate) fn came_by(&self, node: usize, upstream: &Upstream) -> Expr {
        let changed = |nf: &usize| {
            let what = what(self.declared, *nf);
            writes(what) || infos(what).iter().any(|info| info.creates > 0)
        };
        if upstream.nfs.is_empty() || upstream.nfs.iter().any(changed) {
            let numbers =
                upstream.ports.iter().filter_map(|port| match what(self.declared, *port) {
                    What::Port { first, last } => {
                        Some(Expr::Ingress { first: *first, last: *last })
                    }
                    _ => None,
                });
            return any(numbers.collect());
        }
        let mut all = Vec::new();
        for link in self.links {
            let leads = link.to == node || upstream.nfs.contains(&link.to);
            if let (true, What::Port { first, last }) = (leads, what(self.declared, link.from)) {
                let ingress = Expr::Ingress { first: *first, last: *last };
                // A tag may be said behind the port, and what moves offsets stands alone.
                let plain =
                    |f: &&Expr| !f.shifts() && f.tags().is_empty() && f.tag_tests().is_empty();
                let entrance = match link.filter.as_ref().filter(plain) {
                    Some(filter) => and(ingress, filter.clone()),
                    None => ingress,
                };
                if !all.contains(&entrance) {
                    all.push(entrance);
                }
            }
        }
        any(all)
    }

    /// That a packet entered by one of the edges that may lead from these ports to `node`. What comes in
    /// by a port leaves it by one of that port's own edges.
    pub(crate) fn entered(&self, node: usize, upstream: &Upstream) -> Expr {
        let mut all = Vec::new();
        for (link, number) in self.links.iter().zip(&self.numbers) {
            let leads = link.to == node || upstream.nfs.contains(&link.to);
            if let (true, Some(number), What::Port { first, last }) =
                (leads, number, what(self.declared, link.from))
            {
                let ingress = Expr::Ingress { first: *first, last: *last };
                all.push(Expr::And(vec![ingress, entered_by(*number)]));
            }
        }
        any(all)
    }

    /// What tells the packets of the edge `link`, out of a node with this upstream, from those of
    /// `others`: the class of its pipelets.
    pub(crate) fn of(
        &self,
        link: &Link,
        others: &[&Link],
        upstream: &Upstream,
    ) -> Result<Class, NoClass> {
        let own = self.ports(link)?;
        let mut shared = false;
        for other in others {
            shared |= !self.ports(other)?.is_disjoint(&own);
        }
        if shared && let Some(writer) = self.writer(&own, upstream) {
            let mut entered: Vec<usize> = self.entrances_of(link).map(|e| e.link).collect();
            entered.sort_unstable();
            entered.dedup();
            let mut numbers: Vec<u32> = self.entrances_of(link).map(|e| e.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let expr = any(numbers.into_iter().map(entered_by).collect());
            return Ok(Class { expr, entered: Some((entered, writer)) });
        }
        let mut class = Vec::new();
        for entrance in self.entrances_of(link) {
            let ingress = Expr::Ingress { first: entrance.first, last: entrance.last };
            let part = match entrance.filter.filter(|_| shared) {
                Some(filter) if filter.shifts() => return Err(NoClass::Moves),
                Some(filter) => and(ingress, filter.clone()),
                None => ingress,
            };
            if !class.contains(&part) {
                class.push(part);
            }
        }
        Ok(Class { expr: any(class), entered: None })
    }

    fn entrances_of(&self, link: &Link) -> impl Iterator<Item = &Entrance<'a>> {
        link.pipelets.iter().filter_map(|p| self.entrances.get(*p)).flatten()
    }

    /// The line of a link, named beside what stands at byte `here`.
    pub(crate) fn line(&self, link: usize, here: usize) -> Line {
        let at = self.links.get(link).map_or(0, |link| link.span.start);
        self.declared.lines.line_beside(at, here)
    }

    /// Where packets come from by several ports, the number of one of them.
    pub(crate) fn one_of_several(&self, upstream: &Upstream) -> Option<u16> {
        let first = |port: &usize| match what(self.declared, *port) {
            What::Port { first, .. } => Some(*first),
            _ => None,
        };
        let numbers: BTreeSet<u16> = upstream.ports.iter().filter_map(first).collect();
        numbers.first().copied().filter(|_| numbers.len() > 1)
    }

    /// The declared ports at which the edge's pipelets begin.
    fn ports(&self, link: &Link) -> Result<BTreeSet<usize>, NoClass> {
        let begins = |p: &usize| self.entrances.get(*p).is_some_and(|list| !list.is_empty());
        if !link.pipelets.iter().all(begins) {
            return Err(NoClass::NoPort);
        }
        Ok(self.entrances_of(link).map(|entrance| entrance.port).collect())
    }

    /// An NF between these ports and a node that may write, or that node itself.
    fn writer(&self, ports: &BTreeSet<usize>, upstream: &Upstream) -> Option<String> {
        let mut behind = BTreeSet::new();
        let mut todo: Vec<usize> = ports.iter().copied().collect();
        while let Some(at) = todo.pop() {
            for link in self.links.iter().filter(|link| link.from == at) {
                if upstream.nfs.contains(&link.to) && behind.insert(link.to) {
                    todo.push(link.to);
                }
            }
        }
        behind.into_iter().find_map(|nf| match self.declared.list.get(nf) {
            Some(d) if writes(&d.what) => Some(d.name.clone()),
            _ => None,
        })
    }
}

/// True for an NF that may write packets, and a VNF one of whose µNFs may.
pub(crate) fn writes(what: &What) -> bool {
    match what {
        What::Nf { info, .. } => info.writes_packets,
        What::Vnf(vnf) => vnf.info.writes_packets,
        What::Port { .. } | What::Address(_) | What::Drop | What::Broken => false,
    }
}

fn what<'d>(declared: &'d Declared<'_>, index: usize) -> &'d What {
    declared.list.get(index).map_or(&What::Broken, |d| &d.what)
}

/// True when some pipelet says both.
pub(crate) fn share_pipelet(a: &Link, b: &Link) -> bool {
    a.pipelets.iter().any(|p| b.pipelets.contains(p))
}

/// A class as it can be written beside a filter.
pub(crate) fn bracketed(class: &Expr) -> String {
    match class {
        Expr::Or(_) => format!("({class})"),
        class => class.to_string(),
    }
}

/// `class` first: it moves nothing.
pub(crate) fn and(class: Expr, filter: Expr) -> Expr {
    match filter {
        Expr::True => class,
        filter => Expr::And(vec![class, filter]),
    }
}

fn any(mut list: Vec<Expr>) -> Expr {
    if list.len() == 1 { list.remove(0) } else { Expr::Or(list) }
}
