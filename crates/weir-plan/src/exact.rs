//! Exactly one way for each packet (E2, appendix): the edges out of a node must be pairwise disjoint
//! and together take every packet. Decided by [`weir_logic`], with an example where it is not so.

use weir_filter::Expr;
use weir_logic::{Class, Universe, Verdict};

use crate::declare::Declared;
use crate::edges::Link;
use crate::error::Errors;
use crate::graph::{Graph, Node, NodeKind};
use crate::merge::resolve;
use crate::span::Span;
use crate::why::Why;

/// Notes what is not so. `links` are the graph's edges, in the same order; `first_match` says of
/// which nodes the order of the text decides.
pub(crate) fn judge(
    graph: &Graph,
    declared: &Declared<'_>,
    links: &[Link],
    first_match: &dyn Fn(&str) -> bool,
    errors: &mut Errors,
) {
    let mut leaving: Vec<Vec<&Link>> = vec![Vec::new(); graph.nodes().len()];
    for (edge, link) in graph.edges().iter().zip(links) {
        if let Some(list) = leaving.get_mut(edge.from.index()) {
            list.push(link);
        }
    }
    let mut universe = Universe::default();
    for (node, leaving) in graph.nodes().iter().zip(leaving) {
        // A port that nothing leaves only sends.
        if leaving.is_empty() && matches!(node.kind, NodeKind::Port { .. } | NodeKind::Drop) {
            continue;
        }
        let span = declared.get(&node.name).map_or(Span::default(), |(_, d)| d.span);
        let ordered = first_match(&node.name);
        let mut judge = Judge { universe: &mut universe, declared, node, span, errors };
        judge.node(&leaving, ordered);
        if errors.full() {
            return;
        }
    }
}

struct Judge<'a, 'd> {
    universe: &'a mut Universe,
    declared: &'a Declared<'d>,
    node: &'a Node,
    /// Its declaration.
    span: Span,
    errors: &'a mut Errors,
}

impl Judge<'_, '_> {
    fn node(&mut self, leaving: &[&Link], ordered: bool) {
        // Two edges that meet on several outputs are one mistake.
        let mut met: Vec<(usize, usize)> = Vec::new();
        for output in &self.node.outputs {
            if leaving.is_empty() && !output.default_drop {
                self.errors.push(self.span, Why::NoWayOut { name: self.node.name.clone() });
                return;
            }
            let mut classes: Vec<(usize, Class)> = Vec::with_capacity(leaving.len());
            let mut taken: Option<Class> = None;
            for (at, link) in leaving.iter().enumerate() {
                let filter = resolve(link.filter.as_ref(), &output.name);
                if filter == Expr::False {
                    continue;
                }
                let class = self.universe.class(&filter);
                if let Some(taken) = taken
                    && !ordered
                {
                    self.disjoint(leaving, (at, class), taken, &classes, &mut met);
                }
                classes.push((at, class));
                taken = Some(match taken {
                    Some(taken) => self.universe.or(taken, class),
                    None => class,
                });
            }
            if !output.default_drop {
                self.covered(&output.name, &classes);
            }
        }
    }

    /// One question for all edges before this one; only if the answer is bad, one for each.
    fn disjoint(
        &mut self,
        leaving: &[&Link],
        (at, class): (usize, Class),
        taken: Class,
        before: &[(usize, Class)],
        met: &mut Vec<(usize, usize)>,
    ) {
        if self.universe.disjoint(taken, class).is_empty() {
            return;
        }
        let Some(link) = leaving.get(at) else {
            return;
        };
        for (other, class_before) in before {
            let verdict = self.universe.disjoint(*class_before, class);
            if verdict.is_empty() || met.contains(&(*other, at)) {
                continue;
            }
            met.push((*other, at));
            let start = leaving.get(*other).map_or(0, |link| link.span.start);
            let line = self.declared.lines.line(start);
            let why = match verdict {
                Verdict::Empty => continue,
                Verdict::Example(example) => Why::Overlap { line, example },
                Verdict::Unknown(reason) => Why::PerhapsOverlap { line, reason },
            };
            self.errors.push(link.span, why);
        }
    }

    fn covered(&mut self, output: &str, classes: &[(usize, Class)]) {
        let classes: Vec<Class> = classes.iter().map(|(_, class)| *class).collect();
        let name = || self.node.name.clone();
        let by = if self.node.outputs.len() > 1 { output.to_owned() } else { String::new() };
        if classes.is_empty() {
            self.errors
                .push(self.span, Why::OutputOpen { name: name(), output: output.to_owned() });
            return;
        }
        let why = match self.universe.covers(&classes) {
            Verdict::Empty => return,
            Verdict::Example(example) => Why::Hole { name: name(), by, example },
            Verdict::Unknown(reason) => Why::PerhapsHole { name: name(), by, reason },
        };
        self.errors.push(self.span, why);
    }
}
