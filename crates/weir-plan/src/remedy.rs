//! E2's remedy for packets that have several ways (E2, appendix): the traffic class of its pipelet is
//! added to each ambiguous edge. A pipelet's class is what comes in by the ports that its edges leave.

use std::collections::BTreeSet;

use thiserror::Error;
use weir_filter::Expr;

use crate::declare::{Declared, What};
use crate::edges::Link;

/// Why the classes of two edges' pipelets do not tell their packets apart.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoClass {
    /// One pipelet says both edges.
    #[error("both stand in one pipelet, so its traffic class does not tell them apart")]
    SamePipelet,
    /// A pipelet begins in the middle.
    #[error("a pipelet of theirs has no edge from a port, so it has no traffic class to add")]
    NoPort,
    /// An NF before may have changed what the class is about.
    #[error(
        "their pipelets share a port, and which packets are whose is not visible any more behind `{0}`, which may write packets"
    )]
    Rewritten(String),
    /// A class looks behind tags, as `vlan` does, which would move what the edge's filter looks at.
    #[error(
        "their pipelets share a port, and the filters there cannot be joined to these: they look behind tags or labels"
    )]
    Moves,
    /// The classes overlap.
    #[error("their pipelets' traffic classes have packets in common")]
    Common,
}

/// A pipelet's edge from a port.
struct Entrance<'a> {
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
                    list.push(Entrance { port: link.from, first: *first, last: *last, filter });
                }
            }
        }
        Self { declared, links, into, entrances }
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

    /// That a packet came in by one of these ports.
    pub(crate) fn came_by(&self, upstream: &Upstream) -> Expr {
        let numbers = upstream.ports.iter().filter_map(|port| match what(self.declared, *port) {
            What::Port { first, last } => Some(Expr::Ingress { first: *first, last: *last }),
            _ => None,
        });
        any(numbers.collect())
    }

    /// What tells the packets of the edge `link`, out of a node with this upstream, from those of
    /// `others`: the class of its pipelets.
    pub(crate) fn of(
        &self,
        link: &Link,
        others: &[&Link],
        upstream: &Upstream,
    ) -> Result<Expr, NoClass> {
        if others.iter().any(|o| o.pipelets.iter().any(|p| link.pipelets.contains(p))) {
            return Err(NoClass::SamePipelet);
        }
        let own = self.ports(link)?;
        let mut shared = false;
        for other in others {
            shared |= !self.ports(other)?.is_disjoint(&own);
        }
        if shared {
            self.unchanged(&own, upstream)?;
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
        Ok(any(class))
    }

    fn entrances_of(&self, link: &Link) -> impl Iterator<Item = &Entrance<'a>> {
        link.pipelets.iter().filter_map(|p| self.entrances.get(*p)).flatten()
    }

    /// The declared ports at which the edge's pipelets begin.
    fn ports(&self, link: &Link) -> Result<BTreeSet<usize>, NoClass> {
        let begins = |p: &usize| self.entrances.get(*p).is_some_and(|list| !list.is_empty());
        if !link.pipelets.iter().all(begins) {
            return Err(NoClass::NoPort);
        }
        Ok(self.entrances_of(link).map(|entrance| entrance.port).collect())
    }

    /// No NF between these ports and a node may write, nor that node itself.
    fn unchanged(&self, ports: &BTreeSet<usize>, upstream: &Upstream) -> Result<(), NoClass> {
        let mut behind = BTreeSet::new();
        let mut todo: Vec<usize> = ports.iter().copied().collect();
        while let Some(at) = todo.pop() {
            for link in self.links.iter().filter(|link| link.from == at) {
                if upstream.nfs.contains(&link.to) && behind.insert(link.to) {
                    todo.push(link.to);
                }
            }
        }
        let writer = behind.into_iter().find_map(|nf| match self.declared.list.get(nf) {
            Some(d) if writes(&d.what) => Some(d),
            _ => None,
        });
        writer.map_or(Ok(()), |d| Err(NoClass::Rewritten(d.name.clone())))
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
