//! The µNFs of a segment and the edges between them, run to completion on one batch at a time.

use crate::layout::{EDGE_WORDS, Layout, NODE_WORDS};
use crate::spec::{NodeSpec, TargetSpec, WorkerSpec};
use std::time::Instant;
use weir_filter::Filter;
use weir_mem::Arena;
use weir_nf::{BuildError, Clock, Env, Instance, Outcome};
use weir_packet::{BATCH, DropReason, Packet, Verdict};
use weir_port::Egress;

/// One batch in so many is timed.
const TIME_EVERY: u32 = 16;

/// Why a segment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// A µNF refused its configuration.
    #[error("{name}: {source}")]
    Build {
        /// Name of the instance.
        name: String,
        /// Why.
        source: BuildError,
    },
    /// An edge's filter cannot be compiled.
    #[error("{name}: {source}")]
    Filter {
        /// Name of the instance.
        name: String,
        /// Why.
        source: weir_filter::CompileError,
    },
    /// An edge leads to a node that does not exist, or backwards.
    #[error("{0}: an edge leads to no later node of the segment")]
    Edge(String),
}

#[derive(Clone, Copy)]
enum Target {
    Node { node: usize, input: usize },
    Lane { edge: usize },
    Drop,
}

struct Branch {
    filter: Option<Filter>,
    target: Target,
    /// First of the edge's words in the ledger.
    words: Option<usize>,
}

struct Node {
    nf: Option<Box<dyn Instance>>,
    inbox: Vec<Vec<Packet>>,
    /// More than one edge leads here: bring packets into sequence first.
    merges: bool,
    resizes: bool,
    may_drop: bool,
    outputs: Vec<Vec<Branch>>,
}

/// What a batch needs on its way through.
pub struct Way<'w> {
    /// Packet memory.
    pub arena: &'w Arena,
    /// The rings out.
    pub egress: &'w mut Egress,
    /// Index of the packets' source.
    pub source: usize,
    /// The worker's ledger words, its counters among them.
    pub words: &'w mut [u64],
}

/// A segment.
pub struct Segment {
    nodes: Vec<Node>,
    layout: Layout,
    clock: Clock,
    verdicts: [Verdict; BATCH],
    spare: Vec<Packet>,
    batches: u32,
}

impl Segment {
    /// Builds the µNFs of `spec`.
    pub fn new(spec: &WorkerSpec) -> Result<Self, SegmentError> {
        let env = Env { tags: spec.tags.clone(), seed: spec.seed };
        let nodes = spec.nodes.iter().enumerate();
        let nodes = nodes.map(|(i, n)| node(i, n, spec, &env)).collect::<Result<Vec<_>, _>>()?;
        Ok(Segment {
            nodes,
            layout: Layout::of(spec),
            clock: Clock::default(),
            verdicts: [Verdict::FIRST; BATCH],
            spare: Vec::with_capacity(BATCH),
            batches: 0,
        })
    }

    /// Sends a batch (at most [`BATCH`] packets) into `node` and through everything behind it.
    /// Afterwards `packets` is empty: each is staged on a lane or on its way home.
    pub fn run(&mut self, node: usize, input: u8, packets: &mut Vec<Packet>, way: &mut Way<'_>) {
        if let Some(inbox) =
            self.nodes.get_mut(node).and_then(|n| n.inbox.get_mut(usize::from(input)))
        {
            std::mem::swap(inbox, packets);
        }
        self.batches = self.batches.wrapping_add(1);
        let timed = self.batches.is_multiple_of(TIME_EVERY);
        for i in node..self.nodes.len() {
            while let Some((input, mut batch)) = self.next_run(i) {
                self.node(i, input, &mut batch, way, timed);
                debug_assert!(batch.is_empty());
                self.spare = batch;
            }
        }
    }

    /// The next packets for node `i` that came by one input, in sequence.
    fn next_run(&mut self, i: usize) -> Option<(u8, Vec<Packet>)> {
        let node = self.nodes.get_mut(i)?;
        if let [only] = node.inbox.as_mut_slice() {
            if only.is_empty() {
                return None;
            }
            let mut batch = std::mem::replace(only, std::mem::take(&mut self.spare));
            if node.merges {
                in_sequence(&mut batch);
            }
            return Some((0, batch));
        }
        for inbox in &mut node.inbox {
            in_sequence(inbox);
        }
        let head = |b: &Vec<Packet>| b.first().map(|p| p.entry().seq());
        let heads = node.inbox.iter().enumerate().filter_map(|(k, b)| Some((k, head(b)?)));
        let (input, _) = heads.reduce(|a, b| if b.1.before(a.1) { b } else { a })?;
        let others = node.inbox.iter().enumerate().filter(|(k, _)| *k != input);
        let limit = others.filter_map(|(_, b)| head(b)).reduce(|a, b| a.min(b));
        let inbox = node.inbox.get_mut(input)?;
        let n = match limit {
            Some(limit) => {
                inbox.iter().take_while(|p| !limit.before(p.entry().seq())).count().max(1)
            }
            None => inbox.len(),
        };
        let mut batch = std::mem::take(&mut self.spare);
        batch.extend(inbox.drain(..n));
        Some((input as u8, batch))
    }

    fn node(
        &mut self,
        i: usize,
        input: u8,
        batch: &mut Vec<Packet>,
        way: &mut Way<'_>,
        timed: bool,
    ) {
        let base = self.layout.nodes + i * NODE_WORDS;
        let (count, bytes) = weigh(batch);
        add(way.words, base, count);
        add(way.words, base + 1, bytes);
        let Some(node) = self.nodes.get_mut(i) else {
            return;
        };
        let mut outcome = Outcome::AllFirst;
        if let Some(nf) = &mut node.nf {
            let start = timed.then(Instant::now);
            let Some(verdicts) = self.verdicts.get_mut(..batch.len()) else {
                return;
            };
            outcome = nf.process(batch, verdicts, way.arena, input, &mut self.clock);
            if let Some(start) = start {
                add(way.words, base + 2, count);
                add(way.words, base + 3, start.elapsed().as_nanos() as u64);
            }
        }
        if outcome == Outcome::AllFirst {
            let first = node.outputs.first().map(Vec::as_slice);
            if let Some([Branch { filter: None, target, words }]) = first {
                // Only a µNF that adds or removes headers changes what was weighed.
                let bytes = if node.resizes { weigh(batch).1 } else { bytes };
                if let Some(words) = *words {
                    add(way.words, words, count);
                    add(way.words, words + 1, bytes);
                }
                match *target {
                    Target::Node { node, input } => self.hand_on(node, input, batch),
                    Target::Lane { edge } => {
                        if let Some(lane) = way.egress.lane(edge, way.source) {
                            way.egress.send_all(lane, batch);
                        }
                    }
                    Target::Drop => {}
                }
                // What is left had `-> Drop`, or no lane, which the plan excludes.
                for packet in batch.drain(..) {
                    discard(packet, DropReason::Policy, base, way);
                }
                return;
            }
        }
        self.dispatch(i, base, batch, way);
        self.verdicts.fill(Verdict::FIRST);
    }

    fn hand_on(&mut self, node: usize, input: usize, batch: &mut Vec<Packet>) {
        let Some(inbox) = self.nodes.get_mut(node).and_then(|n| n.inbox.get_mut(input)) else {
            return;
        };
        if inbox.is_empty() {
            std::mem::swap(inbox, batch);
        } else {
            inbox.append(batch);
        }
    }

    /// The general case: each packet by its verdict and the edges' filters.
    fn dispatch(&mut self, i: usize, base: usize, batch: &mut Vec<Packet>, way: &mut Way<'_>) {
        for (packet, verdict) in batch.drain(..).zip(self.verdicts) {
            let Some(output) = verdict.as_output() else {
                debug_assert!(self.nodes.get(i).is_some_and(|n| n.may_drop), "undeclared drop");
                let reason = verdict.as_drop().unwrap_or(DropReason::BadEntry);
                discard(packet, reason, base, way);
                continue;
            };
            let bytes = way.arena.bytes(packet.entry());
            let branches = self.nodes.get(i).and_then(|n| n.outputs.get(usize::from(output)));
            let takes = |b: &&Branch| b.filter.as_ref().is_none_or(|f| f.matches(&bytes));
            let Some(branch) = branches.and_then(|b| b.iter().find(takes)) else {
                discard(packet, DropReason::NoEdge, base, way);
                continue;
            };
            if let Some(words) = branch.words {
                add(way.words, words, 1);
                add(way.words, words + 1, u64::from(packet.entry().len()));
            }
            match branch.target {
                Target::Node { node, input } => {
                    if let Some(inbox) =
                        self.nodes.get_mut(node).and_then(|n| n.inbox.get_mut(input))
                    {
                        inbox.push(packet);
                    }
                }
                Target::Lane { edge } => {
                    let sent = match way.egress.lane(edge, way.source) {
                        Some(lane) => way.egress.send(lane, packet),
                        None => Err(packet),
                    };
                    if let Err(packet) = sent {
                        discard(packet, DropReason::RingFull, base, way);
                    }
                }
                Target::Drop => discard(packet, DropReason::Policy, base, way),
            }
        }
    }

    /// What each node has to report, as JSON; `null` for a port.
    pub fn reports(&self) -> Vec<String> {
        let report = |n: &Node| n.nf.as_ref().map_or("null".into(), |nf| nf.report().to_string());
        self.nodes.iter().map(report).collect()
    }
}

fn node(i: usize, n: &NodeSpec, spec: &WorkerSpec, env: &Env) -> Result<Node, SegmentError> {
    let layout = Layout::of(spec);
    let build = |source| SegmentError::Build { name: n.name.clone(), source };
    let nf = match &n.nf {
        Some((kind, config)) => {
            let config = serde_json::from_str(config).map_err(|e| build(e.into()))?;
            let made = weir_nf::find(kind).and_then(|r| r.make(&config, env));
            Some(made.map_err(build)?)
        }
        None => None,
    };
    let inputs = nf.as_ref().map_or(1, |nf| nf.descriptor().inputs.len());
    let mut outputs = Vec::new();
    for branches in &n.outputs {
        let mut list = Vec::new();
        for b in branches {
            let edge = usize::from(b.edge.unwrap_or(u16::MAX));
            let words = b.edge.map(|e| layout.edges + usize::from(e) * EDGE_WORDS);
            let target = match b.target {
                TargetSpec::Node { node, input } => {
                    let node = usize::from(node);
                    if node <= i || node >= spec.nodes.len() {
                        return Err(SegmentError::Edge(n.name.clone()));
                    }
                    Target::Node { node, input: usize::from(input) }
                }
                TargetSpec::Lane => Target::Lane { edge },
                TargetSpec::Drop => Target::Drop,
            };
            let filter = b.filter.as_ref().map(Filter::compile).transpose();
            let filter =
                filter.map_err(|source| SegmentError::Filter { name: n.name.clone(), source })?;
            list.push(Branch { filter, target, words });
        }
        outputs.push(list);
    }
    let inbox = (0..inputs).map(|_| Vec::with_capacity(BATCH)).collect();
    let resizes = nf.as_ref().is_some_and(|nf| nf.descriptor().resizes);
    let may_drop = nf.as_ref().is_none_or(|nf| nf.descriptor().may_drop);
    Ok(Node { nf, inbox, merges: n.fan_in > 1, resizes, may_drop, outputs })
}

/// Packets and bytes of a batch.
#[inline]
fn weigh(batch: &[Packet]) -> (u64, u64) {
    (batch.len() as u64, batch.iter().map(|p| u64::from(p.entry().len())).sum())
}

#[inline]
fn add(words: &mut [u64], at: usize, n: u64) {
    if let Some(word) = words.get_mut(at) {
        *word = word.wrapping_add(n);
    }
}

/// Counts a drop and sends the buffer home.
#[inline]
fn discard(packet: Packet, reason: DropReason, base: usize, way: &mut Way<'_>) {
    add(way.words, base + 4 + reason as usize, 1);
    way.egress.give_back(packet);
}

fn in_sequence(batch: &mut [Packet]) {
    if let Some(first) = batch.first().map(|p| p.entry().seq()) {
        batch.sort_unstable_by_key(|p| p.entry().seq().offset_from(first));
    }
}
