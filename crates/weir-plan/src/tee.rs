//! `Tee`, a word of the language: a packet takes *all* edges out of it that match (E2, appendix).
//!
//! The µNF of that name sends each packet on by `out` and a copy by `copy`. A Tee of the policy with n
//! edges becomes n - 1 of them in a row: each edge but the last leaves an `out`, the last one the last
//! `copy`. A copy that its edge's filter does not match is dropped by policy. When an edge names `out`
//! or `copy`, the Tee is the plain µNF, and each packet of an output has one way as everywhere.

use std::collections::HashMap;

use weir_filter::Expr;

use crate::catalog::NfInfo;
use crate::declare::{Declared, What};
use crate::describe::{Access, Effect, Touch, Work};
use crate::edges::Link;
use crate::service::SEPARATOR;

/// The word, and the µNF's type.
pub(crate) const TEE: &str = "Tee";
const OUT: &str = "out";
const COPY: &str = "copy";

/// The word's type where no catalogue has the µNF: so it can be planned, if not run.
pub(crate) fn info() -> NfInfo {
    NfInfo {
        alone_by: Vec::new(),
        name: TEE.to_owned(),
        inputs: vec!["in".to_owned()],
        outputs: vec![OUT.to_owned(), COPY.to_owned()],
        writes_packets: false,
        may_drop: false,
        domain: String::new(),
        resizes: false,
        creates: 1,
        holds: 0,
        tags: Vec::new(),
        program: None,
        work: Work {
            access: Access::all(Touch::Read),
            effect: Effect::Stateful,
            follows: false,
            timers: false,
            ..Work::default()
        },
    }
}

/// The Tees of a policy that take all edges that match.
#[derive(Default)]
pub(crate) struct Tees {
    /// By declaration of each µNF that one became: for the first its edges, by their places among the
    /// links, with the filters as written.
    edges: HashMap<usize, Vec<(usize, Option<Expr>)>>,
}

impl Tees {
    /// The edges of a Tee of the policy, at the first of its µNFs; none at the others; `None` for
    /// what is no such Tee.
    pub(crate) fn edges(&self, declaration: usize) -> Option<&[(usize, Option<Expr>)]> {
        self.edges.get(&declaration).map(Vec::as_slice)
    }

    /// Replaces each Tee by as many µNFs as it needs.
    pub(crate) fn expand(declared: &mut Declared<'_>, links: &mut Vec<Link>) -> Self {
        let mut leaving: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, link) in links.iter().enumerate().filter(|(_, l)| is_tee(declared, l.from)) {
            leaving.entry(link.from).or_default().push(i);
        }
        let named = |i: &usize| {
            let filter = links.get(*i).and_then(|link| link.filter.as_ref());
            filter.is_some_and(|filter| filter.tags().iter().any(|(_, n)| *n == OUT || *n == COPY))
        };
        leaving.retain(|_, edges| !edges.iter().any(named));
        let mut tees = Tees::default();
        if leaving.is_empty() {
            return tees;
        }
        // By Tee: its µNFs so far, and how many edges are still to come.
        let mut made: HashMap<usize, (usize, usize, usize)> = HashMap::new();
        let mut all = Vec::with_capacity(links.len());
        for mut link in std::mem::take(links) {
            let tee = link.from;
            let Some(edges) = leaving.get(&tee).map(Vec::len) else {
                all.push(link);
                continue;
            };
            let (mut at, mut count, left) = made.get(&tee).copied().unwrap_or((tee, 1, edges));
            let last = left == 1 && edges > 1;
            let own = tees.edges.entry(tee).or_default();
            own.push((all.len(), link.filter.clone()));
            link.from = at;
            link.filter = Some(by(if last { COPY } else { OUT }, link.filter.take()));
            let chain = (left > 2).then(|| {
                count = count.saturating_add(1);
                let next = declared.add_behind(tee, &format!("{SEPARATOR}{count}"));
                let chain = Link {
                    from: at,
                    to: next,
                    input: 0,
                    tag: None,
                    filter: Some(by(COPY, None)),
                    bandwidth: None,
                    ..link.clone()
                };
                at = next;
                chain
            });
            all.push(link);
            if let Some(chain) = chain {
                tees.edges.insert(at, Vec::new());
                all.push(chain);
            }
            made.insert(tee, (at, count, left.saturating_sub(1)));
        }
        *links = all;
        tees
    }
}

fn is_tee(declared: &Declared<'_>, index: usize) -> bool {
    match declared.list.get(index).map(|d| &d.what) {
        Some(What::Nf { info, .. }) => info.name == TEE && info.outputs == [OUT, COPY],
        _ => false,
    }
}

fn by(output: &str, filter: Option<Expr>) -> Expr {
    let tag = Expr::Tag { scope: TEE.to_owned(), name: output.to_owned() };
    Expr::and(std::iter::once(tag).chain(filter).collect())
}
