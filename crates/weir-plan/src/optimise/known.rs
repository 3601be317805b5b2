//! Ways past µNFs whose answer is known: a forward data flow over the graph, in one pass.
//!
//! NFs are visited in topological order. When one is visited all ways that lead to it are final, as
//! ways are only ever sent on to later NFs; so each is either sent past it, or counts for what is
//! known behind it. Behind an NF that an edge leads back to nothing is known, and it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_filter::Expr;

use crate::catalog::NfInfo;
use crate::domains::domain_of;
use crate::graph::{Branch, Edge, EdgeId, Graph, NodeId, NodeKind};
use crate::optimise::change::{Change, Done, Kept, Layer};
use crate::optimise::facts::{Classes, Fact, Facts, looked_at, repeats};
use crate::plan::Options;
use crate::tags;

/// Where the packets of one branch of one output go, up to the next node that still sees them.
pub(super) struct Course {
    pub(super) from: NodeId,
    pub(super) output: usize,
    pub(super) filter: Option<Expr>,
    /// The policy's edges that it stands for: its own, then one for each µNF that it passes over.
    pub(super) path: Vec<EdgeId>,
    pub(super) to: NodeId,
    input: usize,
    facts: Rc<Facts>,
}

/// What came of it.
pub(super) struct Threaded {
    /// By node that they leave, then output, then branch.
    pub(super) courses: Vec<Course>,
    /// By node: true for NFs that no packet comes to any more.
    pub(super) left_out: Vec<bool>,
    pub(super) changes: Vec<Change>,
}

pub(super) fn thread(graph: &Graph, options: &Options) -> Threaded {
    let mut threading = Threading {
        graph,
        asked: tags::asked(graph),
        options,
        classes: Classes::new(graph),
        into: vec![Vec::new(); graph.nodes().len()],
        entered_late: entered_late(graph),
        done: Threaded {
            courses: Vec::new(),
            left_out: vec![false; graph.nodes().len()],
            changes: Vec::new(),
        },
    };
    for (id, node) in graph.node_ids() {
        if let NodeKind::Port { .. } = node.kind {
            threading.leave(id, |_| Facts::default());
        }
    }
    for id in graph.order() {
        if let Some(NodeKind::Nf { info, .. }) = graph.node(*id).map(|node| &node.kind) {
            threading.visit(*id, info);
        }
    }
    threading.done
}

fn entered_late(graph: &Graph) -> Vec<bool> {
    let mut late = vec![false; graph.nodes().len()];
    for edge in graph.edges().iter().filter(|edge| edge.closes) {
        if let Some(place) = late.get_mut(edge.to.index()) {
            *place = true;
        }
    }
    late
}

struct Threading<'g> {
    graph: &'g Graph,
    /// NFs whose tags filters ask for.
    asked: BTreeSet<NodeId>,
    options: &'g Options,
    classes: Classes<'g>,
    /// By node: the courses that lead there.
    into: Vec<Vec<usize>>,
    /// By node: true where an edge that closes a cycle leads to. Packets come there by ways that are
    /// not known yet when it is visited.
    entered_late: Vec<bool>,
    done: Threaded,
}

/// What to do with a course that leads to a µNF.
enum Sent<'g> {
    /// Past it.
    On(Fact, &'g Branch, &'g Edge),
    /// Into it, though the answer is known.
    Though(Fact, Kept),
    Into,
}

impl<'g> Threading<'g> {
    fn visit(&mut self, id: NodeId, info: &'g NfInfo) {
        let coming = self.into.get_mut(id.index()).map(std::mem::take).unwrap_or_default();
        let (mut stay, mut past, mut kept) = (Vec::new(), Vec::new(), None);
        for i in coming {
            match self.send(id, info, i) {
                Sent::On(fact, branch, edge) => past.push((i, fact, branch, edge)),
                Sent::Though(fact, why) => {
                    kept = Some((fact, why));
                    stay.push(i);
                }
                Sent::Into => stay.push(i),
            }
        }
        let late = self.entered_late.get(id.index()).copied().unwrap_or(false);
        let leave_out = stay.is_empty() && repeats(info) && !info.work.keeps && !late;
        self.tell(id, info, &past, leave_out, kept);
        for (i, _, branch, edge) in past {
            if let Some(course) = self.done.courses.get_mut(i) {
                course.path.push(branch.edge);
                course.to = edge.to;
                course.input = edge.input;
            }
            if let Some(into) = self.into.get_mut(edge.to.index()) {
                into.push(i);
            }
        }
        if leave_out {
            if let Some(place) = self.done.left_out.get_mut(id.index()) {
                *place = true;
            }
            return;
        }
        if late {
            self.leave(id, |_| Facts::default());
        } else {
            self.pass(id, info, &stay);
        }
    }

    fn send(&self, id: NodeId, info: &NfInfo, course: usize) -> Sent<'g> {
        let fact = self.done.courses.get(course).and_then(|course| {
            let question = (self.classes.of(id)?, course.input);
            self.known(course, id)?.get(question)
        });
        let Some(fact) = fact else { return Sent::Into };
        if info.work.keeps {
            return Sent::Though(fact, Kept::Remembers);
        }
        if self.asked.contains(&id) {
            return Sent::Though(fact, Kept::Asked);
        }
        let graph = self.graph;
        let output = graph.outputs(id).get(fact.output);
        let only = match output.map(|output| output.branches.as_slice()) {
            Some([branch @ Branch { filter: None, .. }]) => {
                graph.edge(branch.edge).map(|e| (branch, e))
            }
            _ => None,
        };
        // Who sends to `Drop` drops: its count, and its name at the packet in the file of drops.
        let goes_on = |edge: &Edge| graph.node(edge.to).is_some_and(|to| to.kind != NodeKind::Drop);
        match only.filter(|(_, edge)| goes_on(edge)) {
            Some((branch, edge)) => Sent::On(fact, branch, edge),
            None => Sent::Though(fact, Kept::Divides),
        }
    }

    /// What of a course's facts holds at `to`: another trust domain's word is none.
    fn known<'a>(&self, course: &'a Course, to: NodeId) -> Option<&'a Facts> {
        let domain = |node| domain_of(self.graph, self.options, node);
        (domain(course.from) == domain(to)).then_some(&*course.facts)
    }

    /// Packets of the courses `coming` pass a µNF.
    fn pass(&mut self, id: NodeId, info: &NfInfo, coming: &[usize]) {
        let nothing = Facts::default();
        let courses = || coming.iter().filter_map(|i| self.done.courses.get(*i));
        let mut known = courses().map(|course| self.known(course, id).unwrap_or(&nothing));
        let first = known.next().cloned().unwrap_or_default();
        let before = known.fold(first, |all, facts| all.meet(facts));
        let class = self.classes.of(id);
        let behind = before.behind(info, class, &self.classes);
        let mut inputs = courses().map(|course| course.input);
        let input = inputs.next().filter(|first| inputs.all(|input| input == *first));
        self.leave(id, |output| match (class, input) {
            (Some(class), Some(input)) => {
                behind.with(Fact { of: (class, input), output, by: id, others: false })
            }
            _ => behind.clone(),
        });
    }

    /// Packets leave a node; `facts` says what is known of an output's.
    fn leave(&mut self, from: NodeId, facts: impl Fn(usize) -> Facts) {
        for (k, output) in self.graph.outputs(from).iter().enumerate() {
            let facts = Rc::new(facts(k));
            for branch in &output.branches {
                let Some(edge) = self.graph.edge(branch.edge) else { continue };
                if let Some(into) = self.into.get_mut(edge.to.index()) {
                    into.push(self.done.courses.len());
                }
                self.done.courses.push(Course {
                    from,
                    output: k,
                    filter: branch.filter.clone(),
                    path: vec![branch.edge],
                    to: edge.to,
                    input: edge.input,
                    facts: Rc::clone(&facts),
                });
            }
        }
    }

    fn name(&self, id: NodeId) -> String {
        self.graph.node(id).map_or_else(String::new, |node| node.name.clone())
    }

    fn tell(
        &mut self,
        id: NodeId,
        info: &NfInfo,
        past: &[(usize, Fact, &Branch, &Edge)],
        left_out: bool,
        kept: Option<(Fact, Kept)>,
    ) {
        let first = past.first().map(|(_, fact, ..)| *fact);
        let done = match (first, left_out, kept) {
            (Some(fact), true, _) => Done::Known {
                by: self.name(fact.by),
                others: past.iter().any(|(_, other, ..)| other.others || other.by != fact.by),
                reads: highest(looked_at(&info.work.access)),
            },
            (None, true, _) => Done::Unreached,
            (Some(fact), false, _) => {
                // By name of the last edge before it, each once.
                let last = past.iter().filter_map(|(i, ..)| self.done.courses.get(*i)?.path.last());
                let edges: BTreeMap<_, _> = last
                    .filter_map(|edge| Some((*edge, self.graph.edge(*edge)?.name.clone())))
                    .collect();
                Done::PassedOver { edges: edges.into_values().collect(), by: self.name(fact.by) }
            }
            (None, false, Some((fact, why))) => Done::Kept { by: self.name(fact.by), why },
            (None, false, None) => return,
        };
        let (nodes, kind) = (vec![self.name(id)], info.name.clone());
        self.done.changes.push(Change { nodes, kind, done });
    }
}

fn highest(layers: u8) -> Option<Layer> {
    match layers {
        0 => None,
        1 => Some(Layer::L2),
        3 => Some(Layer::L3),
        7 => Some(Layer::L4),
        _ => Some(Layer::Payload),
    }
}
