//! Parallel stages: consecutive µNFs that work on the same packet at the same time (µNF paper §V-B).
//!
//! A stage is a run of µNFs of which each is given every packet of the one before and nothing else,
//! and of which every two may work side by side ([`judge`]). Runs are taken from the front, each as long as it
//! may be; as a part of a stage is a stage too, there is no division into fewer. Whether a stage is worth its
//! branches and its join is the cost model's word.
//!
//! How stages run is in [`run`]: [`Plan::side_by_side`](crate::Plan::side_by_side).

mod conflict;
mod run;
mod table;

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

pub use conflict::{Allowed, Conflict, judge};
pub use run::{Against, InSequence, Running, SideBySide};
pub use table::pairs_table;

use crate::catalog::NfInfo;
use crate::cores;
use crate::cost::{cycles, latency_cycles, saved_percent};
use crate::domains::domain_of;
use crate::graph::{Branch, Graph, NodeId, NodeKind};
use crate::plan::{Isolate, Options};

/// What a stage must save of its own latency to be worth its cores and its join, in percent.
pub const WORTH_PERCENT: f64 = 20.0;

/// µNFs that may work on the same packet at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// They, in chain order; at least two.
    pub nodes: Vec<NodeId>,
    /// Whether they shall.
    pub verdict: Verdict,
}

/// Whether a stage shall be parallel, and what the cost model says of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It shall.
    Parallel {
        /// What is saved of the stage's latency, in percent.
        saved: f64,
        /// Cores that it needs at once.
        cores: usize,
    },
    /// It would save too little, or even cost.
    NotWorth {
        /// What would be saved of the stage's latency, in percent.
        saved: f64,
    },
    /// There are too few cores for NFs.
    TooFewCores {
        /// What would be saved of the stage's latency, in percent.
        saved: f64,
        /// Cores that it needs at once.
        needed: usize,
        /// Cores that there are for NFs.
        there: usize,
    },
    /// There are enough cores for NFs, but not of one NUMA node: packets that branches on several share go from one to the other.
    TooFar {
        /// What would be saved of the stage's latency, in percent, if they were near each other.
        saved: f64,
        /// Cores that it needs at once.
        needed: usize,
        /// Cores of one node that there are for NFs, at most; 0 when workers are on no core in particular.
        there: usize,
    },
    /// One worker is to run all NFs.
    Fused,
    /// It shall, whatever it saves: the operator said so.
    Asked {
        /// What is saved of the stage's latency by the cost model, in percent; below 0 when it costs.
        saved: f64,
    },
    /// The operator said that no stage shall.
    Never,
}

/// Two µNFs that follow each other and are not in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// The first: of those of the stage before, the one that stands against it.
    pub first: NodeId,
    /// The second.
    pub second: NodeId,
    /// Why.
    pub why: Conflict,
}

/// The stages of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parallel {
    /// In topological order.
    pub stages: Vec<Stage>,
    /// What is not, and why; in topological order.
    pub apart: Vec<Apart>,
}

/// The parallel stages of a graph, and which of them shall run as such by `which`. Pure: equal arguments, equal
/// result.
#[must_use]
pub fn parallelise(graph: &Graph, options: &Options, which: SideBySide) -> Parallel {
    let mut done = Parallel::default();
    let mut in_stage = vec![false; graph.nodes().len()];
    let links = Links::new(graph);
    for &start in graph.order() {
        if in_stage.get(start.index()).copied().unwrap_or(true) {
            continue;
        }
        let mut stage = vec![start];
        while let Some(&last) = stage.last() {
            if let Some(place) = in_stage.get_mut(last.index()) {
                *place = true;
            }
            let Some(next) = links.next(last, &mut done.apart) else { break };
            let against = stage.iter().find_map(|first| {
                together(graph, options, *first, next).err().map(|why| (*first, why))
            });
            match against {
                None => stage.push(next),
                Some((first, why)) => {
                    done.apart.push(Apart { first, second: next, why });
                    break;
                }
            }
        }
        if stage.len() > 1 {
            let verdict = verdict(graph, options, which, &stage);
            done.stages.push(Stage { nodes: stage, verdict });
        }
    }
    done
}

fn together(
    graph: &Graph,
    options: &Options,
    first: NodeId,
    second: NodeId,
) -> Result<Allowed, Conflict> {
    let info = |id| match graph.node(id).map(|node| (&node.kind, &node.name)) {
        // By the instance's name, which is what the reason is to say.
        Some((NodeKind::Nf { info, .. }, name)) => {
            Some(NfInfo { name: name.clone(), ..(**info).clone() })
        }
        _ => None,
    };
    if domain_of(graph, options, first) != domain_of(graph, options, second) {
        return Err(Conflict::Domains);
    }
    match info(first).zip(info(second)) {
        Some((first, second)) => judge(&first, &second),
        None => Err(Conflict::Domains),
    }
}

fn verdict(graph: &Graph, options: &Options, which: SideBySide, stage: &[NodeId]) -> Verdict {
    let costs: Vec<u32> = stage.iter().filter_map(|id| graph.node(*id)).map(cycles).collect();
    let row: Vec<Vec<u32>> = costs.iter().map(|cycles| vec![*cycles]).collect();
    let saved = saved_percent(latency_cycles(&row), latency_cycles(&[costs]));
    let (needed, there) = (stage.len(), cores::for_nfs(options));
    let together = cores::together(options);
    if which == SideBySide::Never {
        Verdict::Never
    } else if options.isolate == Isolate::None {
        Verdict::Fused
    } else if which == SideBySide::Always {
        Verdict::Asked { saved }
    } else if saved < WORTH_PERCENT {
        Verdict::NotWorth { saved }
    } else if there < needed {
        Verdict::TooFewCores { saved, needed, there }
    } else if together < needed {
        Verdict::TooFar { saved, needed, there: together }
    } else {
        Verdict::Parallel { saved, cores: needed }
    }
}

/// Who follows whom.
struct Links<'g> {
    graph: &'g Graph,
    /// By node: how many different nodes packets come from, on edges that packets take.
    before: Vec<usize>,
    /// By node: the NFs that its packets go to.
    after: Vec<Vec<NodeId>>,
}

impl<'g> Links<'g> {
    fn new(graph: &'g Graph) -> Self {
        let n = graph.nodes().len();
        let (mut from, mut after) = (vec![Vec::new(); n], vec![Vec::new(); n]);
        for edge in graph.edges().iter().filter(|edge| !edge.outputs.is_empty()) {
            let to_nf = graph.node(edge.to).is_some_and(crate::graph::Node::is_nf);
            if let Some(list) = from.get_mut(edge.to.index())
                && !list.contains(&edge.from)
            {
                list.push(edge.from);
            }
            if let Some(list) = after.get_mut(edge.from.index())
                && to_nf
                && !list.contains(&edge.to)
            {
                list.push(edge.to);
            }
        }
        Links { graph, before: from.iter().map(Vec::len).collect(), after }
    }

    /// The NF that every packet of `id` goes to by one input, and no other packet. What is not so for NFs
    /// behind it is written into `apart`.
    fn next(&self, id: NodeId, apart: &mut Vec<Apart>) -> Option<NodeId> {
        let outputs = self.graph.outputs(id);
        let after = self.after.get(id.index()).map(Vec::as_slice).unwrap_or_default();
        let name = |id| self.graph.node(id).map_or_else(String::new, |node| node.name.clone());
        let mut ways = outputs.iter().map(|output| match output.branches.as_slice() {
            [Branch { filter: None, edge }] => {
                self.graph.edge(*edge).map(|edge| (edge.to, edge.input))
            }
            _ => None,
        });
        let first = ways.next().flatten();
        let one = first.filter(|first| ways.all(|way| way == Some(*first)));
        let Some((next, _)) = one.filter(|(next, _)| after.contains(next)) else {
            let why = || Conflict::Divides { who: name(id) };
            apart.extend(after.iter().map(|to| Apart { first: id, second: *to, why: why() }));
            return None;
        };
        if self.before.get(next.index()).is_none_or(|n| *n != 1) {
            let why = Conflict::Joins { who: name(next) };
            apart.push(Apart { first: id, second: next, why });
            return None;
        }
        Some(next)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Parallel { saved, cores } => {
                write!(
                    f,
                    "side by side on {cores} cores, saves {saved:.0} % of the stage's latency"
                )
            }
            Verdict::NotWorth { saved } if *saved <= 0.0 => {
                f.write_str("in sequence: branching and joining would cost more than it saves")
            }
            Verdict::NotWorth { saved } => {
                write!(f, "in sequence: only {saved:.0} % of the stage's latency would be saved")
            }
            Verdict::TooFewCores { saved, needed, there } => {
                let there = if *there == 1 { "is 1".to_owned() } else { format!("are {there}") };
                write!(
                    f,
                    "in sequence: {needed} cores are needed and there {there} for NFs; {saved:.0} % of \
                     the stage's latency would be saved"
                )
            }
            Verdict::TooFar { saved, there: 0, .. } => write!(
                f,
                "in sequence: the machine has several NUMA nodes, and no cores are given that keep the stage on one (--cores); \
                 {saved:.0} % of the stage's latency would be saved"
            ),
            Verdict::TooFar { saved, needed, there } => write!(
                f,
                "in sequence: {needed} cores of one NUMA node are needed, and no node has more than {there} for NFs (--cores); \
                 {saved:.0} % of the stage's latency would be saved"
            ),
            Verdict::Fused => f.write_str("in sequence: one worker runs all NFs"),
            Verdict::Asked { saved } if *saved < 0.0 => {
                let costs = -saved;
                write!(f, "side by side, as asked for; costs {costs:.0} % of the stage's latency")
            }
            Verdict::Asked { saved } => {
                write!(f, "side by side, as asked for; saves {saved:.0} % of the stage's latency")
            }
            Verdict::Never => f.write_str("in sequence: as asked for"),
        }
    }
}

impl Parallel {
    /// Stages and their verdicts, then which µNFs that follow each other are in none together, and why; one a
    /// line. Empty without µNFs that follow each other.
    #[must_use]
    pub fn to_text(&self, graph: &Graph) -> String {
        let name = |id: &NodeId| graph.node(*id).map_or("", |node| node.name.as_str());
        let mut out = String::new();
        // Writing to a string cannot fail: here and below.
        if !self.stages.is_empty() {
            out.push_str("parallel stages\n");
        }
        for stage in &self.stages {
            let names: Vec<&str> = stage.nodes.iter().map(name).collect();
            let _ = writeln!(out, "  {}: {}", names.join(" | "), stage.verdict);
        }
        if !self.apart.is_empty() {
            out.push_str("not side by side\n");
        }
        for apart in &self.apart {
            let (first, second) = (name(&apart.first), name(&apart.second));
            let _ = writeln!(out, "  {first}, {second}: {}", apart.why);
        }
        out
    }
}
