//! The µNFs of a segment and the edges between them, run to completion on one batch at a time.

mod build;
mod leave;

use crate::arrays::Pick;
use crate::careful::{CLEAN, Careful};
use crate::layout::{Layout, NODE_WORDS};
use crate::spec::{ReplicateSpec, WorkerSpec};
use crate::spread::{Balances, Leased, Part, Spread};
use crate::takes::Takes;
use std::time::Instant;
use weir_filter::CompileError;
use weir_mem::{Arena, Seq};
use weir_nf::{BuildError, Instance, Outcome, Site, TagError, Unreadable};
use weir_packet::{BATCH, DropReason, FragmentTable, Packet, Verdict};
use weir_port::Egress;
use weir_port::balance::FlowDirector;

pub use crate::spread::SpreadError;

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
    /// A µNF's tags cannot be set.
    #[error("{name}: {source}")]
    Tags {
        /// Name of the instance.
        name: String,
        /// Why.
        source: TagError,
    },
    /// An edge's filter cannot be compiled.
    #[error("{name}: {source}")]
    Filter {
        /// Name of the instance.
        name: String,
        /// Why.
        source: CompileError,
    },
    /// A node's µNF is to be that of a node that has none to lend, or one that remembers something and does not stand there once more.
    #[error("{0}: it shares a µNF with no earlier node of its type that may be shared")]
    Shared(String),
    /// The packets of an edge cannot be divided over instances.
    #[error("{name}: {source}")]
    Spread {
        /// Name of the instance that they leave.
        name: String,
        /// Why.
        source: SpreadError,
    },
    /// An edge leads to a node that does not exist, or backwards.
    #[error("{0}: an edge leads to no later node of the segment")]
    Edge(String),
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    Node {
        node: usize,
        input: usize,
    },
    Lane {
        edge: usize,
    },
    /// A lane that closes a cycle.
    Back {
        edge: usize,
    },
    /// One of an array's ports.
    Array {
        pick: usize,
    },
    /// The end of a parallel stage's branch.
    Answer,
    Drop,
}

pub(crate) struct Branch {
    takes: Takes,
    pub(crate) target: Target,
    /// First of the edge's words in the ledger.
    words: Option<usize>,
    /// Where its packets go instead, if they divide over instances.
    pub(crate) spread: Option<Box<Spread>>,
}

impl Branch {
    /// The node and input of the segment that it leads all packets to, and its edge's words.
    pub(crate) fn to_node(&self) -> Option<(usize, usize, Option<usize>)> {
        match (&self.takes, self.target, &self.spread) {
            (Takes::All, Target::Node { node, input }, None) => Some((node, input, self.words)),
            _ => None,
        }
    }
}

pub(crate) struct Node {
    pub(crate) name: String,
    /// Which instance of the µNF of that name it is, of several.
    pub(crate) instance: u8,
    pub(crate) nf: Option<Box<dyn Instance>>,
    /// Lends its µNF to this one, which has none, for each batch.
    lender: Option<usize>,
    inbox: Vec<Vec<Packet>>,
    /// More than one edge leads here: bring packets into sequence first.
    merges: bool,
    resizes: bool,
    may_drop: bool,
    pub(crate) outputs: Vec<Vec<Branch>>,
    /// For a µNF that does more than judge the packets it is given.
    pub(crate) more: Option<More>,
    /// For a µNF that has crashed by itself.
    pub(crate) careful: Option<Careful>,
    /// Of a sync port: how many branches come together here.
    pub(crate) joins: usize,
    /// Whether what its µNF remembers is replicated.
    pub(crate) replicate: Option<ReplicateSpec>,
    /// It is a segment's replica with an NF that has sides and by which packets are divided, and has none itself: it has to be told which they
    /// come from. (Packets of one source come to that NF from either.)
    pub(crate) sided: bool,
    /// Of an instance whose packets divide by leases of ports: which are its own.
    pub(crate) leased: Option<Leased>,
}

impl Node {
    /// True for the node that has this instance of the µNF of this name and type.
    pub(crate) fn is(&self, name: &str, instance: u8, kind: &str) -> bool {
        let has = || self.nf.as_ref().is_some_and(|nf| nf.descriptor().name == kind);
        self.name == name && self.instance == instance && has()
    }
}

/// What is remembered of such a µNF's packets.
pub(crate) struct More {
    /// Bit i: packets of source i may come here, as the graph says.
    pub(crate) comes: u64,
    /// Bit i: it was told that source i has ended.
    pub(crate) over: u64,
    /// Bit i: packets of source i have come since it was told that its input has ended.
    pub(crate) sources: u64,
    /// Source of the last.
    pub(crate) last_source: usize,
    /// A source that is told of as one whose packets have come, in the place of those that do not come any more.
    pub(crate) stands_in: Option<usize>,
    /// By source: place of the last.
    pub(crate) places: Vec<Seq>,
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
    pub(crate) nodes: Vec<Node>,
    pub(crate) layout: Layout,
    pub(crate) more: crate::more::Beyond,
    balances: Balances,
    /// For each edge to an array of ports, and the array's index.
    pub(crate) picks: Vec<(usize, Pick)>,
    /// By source: the number of the policy's port that its packets came in by.
    pub(crate) source_ports: Vec<u16>,
    pub(crate) verdicts: [Verdict; BATCH],
    spare: Vec<Packet>,
    batches: u32,
    /// Of a branch of a parallel stage: what it says of the packets it was given.
    pub(crate) branch: Option<crate::stage::Said>,
    /// Bit i: packets of source i come from outside, for nodes that are [`Node::sided`].
    outside: u64,
    /// Of such a branch: fields that other branches write meanwhile ([`crate::field`]).
    pub(crate) beside: u32,
    /// Packets still to be taken in one at a time, as some µNF has crashed; see [`Segment::appetite`].
    pub(crate) care: usize,
}

impl Segment {
    /// Builds the µNFs of `spec`.
    pub fn new(spec: &WorkerSpec) -> Result<Self, SegmentError> {
        let mut nodes = Vec::with_capacity(spec.nodes.len());
        let mut balances = Balances::default();
        let mut picks = Vec::new();
        for (i, n) in spec.nodes.iter().enumerate() {
            let node = build::node(i, n, spec, &nodes, &mut balances, &mut picks)?;
            nodes.push(node);
        }
        build::comes(&mut nodes, spec);
        let careful = nodes.iter().any(|n| n.careful.is_some());
        let outside = spec.lanes_in.iter().filter(|lane| lane.side > 0);
        let outside = outside.fold(0, |set, lane| set | 1_u64 << (lane.source % 64));
        Ok(Segment {
            outside,
            more: crate::more::Beyond::of(&nodes, &picks),
            nodes,
            picks,
            source_ports: spec.source_ports.clone(),
            layout: Layout::of(spec),
            balances,
            verdicts: [Verdict::FIRST; BATCH],
            spare: Vec::with_capacity(BATCH),
            batches: 0,
            branch: spec.branch.then(crate::stage::Said::default),
            beside: spec.beside,
            care: if careful { CLEAN } else { 0 },
        })
    }

    /// Sends a batch (at most [`BATCH`] packets) into `node` and through everything behind it.
    /// Afterwards `packets` is empty: each is staged on a lane or on its way home.
    pub fn run(&mut self, node: usize, input: u8, packets: &mut Vec<Packet>, way: &mut Way<'_>) {
        if self.care > 0 {
            self.grow_calm(packets.len());
        }
        if let Some(inbox) =
            self.nodes.get_mut(node).and_then(|n| n.inbox.get_mut(usize::from(input)))
        {
            std::mem::swap(inbox, packets);
        }
        self.carry_on(node, way);
    }

    /// Lets packets that wait before `node` or a later one go all the way.
    pub(crate) fn carry_on(&mut self, node: usize, way: &mut Way<'_>) {
        self.batches = self.batches.wrapping_add(1);
        // Other packets may be in the same buffers by now.
        self.more.keys.get_mut().forget();
        let timed = is_timed(self.batches);
        for i in node..self.nodes.len() {
            while let Some((input, mut batch)) = self.next_run(i) {
                self.lend(i);
                if self.nodes.get(i).is_some_and(|n| n.careful.is_some()) {
                    self.carefully(i, input, &mut batch, way, timed);
                } else {
                    self.node(i, input, &mut batch, way, timed);
                }
                self.lend(i);
                debug_assert!(batch.is_empty());
                self.spare = batch;
            }
        }
    }

    /// Gives node `i` the µNF that it shares with another, or gives it back.
    #[inline]
    fn lend(&mut self, i: usize) {
        if let Some(lender) = self.nodes.get(i).and_then(|n| n.lender)
            && let Ok([lender, node]) = self.nodes.get_disjoint_mut([lender, i])
        {
            std::mem::swap(&mut lender.nf, &mut node.nf);
        }
    }

    /// The next packets for node `i` that came by one input, in sequence.
    fn next_run(&mut self, i: usize) -> Option<(u8, Vec<Packet>)> {
        let node = self.nodes.get_mut(i)?;
        if let [only] = node.inbox.as_mut_slice() {
            if only.is_empty() {
                return None;
            }
            if node.merges {
                in_sequence(only);
            }
            // Copies may make more of a batch than one.
            if only.len() > BATCH {
                let mut batch = std::mem::take(&mut self.spare);
                batch.extend(only.drain(..BATCH));
                return Some((0, batch));
            }
            let batch = std::mem::replace(only, std::mem::take(&mut self.spare));
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
        let n = n.min(BATCH);
        let mut batch = std::mem::take(&mut self.spare);
        batch.extend(inbox.drain(..n));
        Some((input as u8, batch))
    }

    pub(crate) fn node(
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
            if let (Some(more), Some(last)) = (&mut node.more, batch.last()) {
                more.sources |= 1 << way.source;
                more.last_source = way.source;
                if let Some(place) = more.places.get_mut(way.source) {
                    *place = last.entry().seq();
                }
            }
            let site = Site { arena: way.arena, pool: &self.more.pool, keys: &self.more.keys };
            if node.sided {
                nf.comes_from(self.outside >> (way.source % 64) & 1 == 1);
            }
            way.arena.witness().runs(Some(i));
            outcome = nf.process(batch, verdicts, input, site);
            #[cfg(feature = "slowed")]
            crate::slowed::burn(batch.len());
            way.arena.witness().runs(None);
            if let Some(start) = start {
                add(way.words, base + 2, count);
                add(way.words, base + 3, start.elapsed().as_nanos() as u64);
            }
        }
        let judged = outcome == Outcome::Judged;
        // What a µNF sends besides has its place among the packets: then one by one.
        let sends =
            node.more.is_some() && node.nf.as_mut().is_some_and(|nf| !nf.leaving().is_empty());
        let same = match (judged, sends) {
            (_, true) => None,
            (true, false) => same_output(&self.verdicts, batch.len()),
            (false, false) => Some(0),
        };
        if let Some(output) = same {
            let branches = node.outputs.get(output).map(Vec::as_slice);
            if let Some([Branch { takes: Takes::All, target, words, spread: None }]) = branches
                && !matches!(target, Target::Array { .. } | Target::Back { .. })
            {
                if judged {
                    self.verdicts.fill(Verdict::FIRST);
                }
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
                            let sheds = way.egress.sheds(lane);
                            if sheds || !self.more.waits(way.source) {
                                way.egress.send_all(lane, batch);
                            }
                            if sheds {
                                for packet in batch.drain(..) {
                                    self.discard(packet, DropReason::RingFull, i, way);
                                }
                            } else if self.more.any {
                                self.more.wait(way.source, lane, batch.drain(..));
                            }
                        }
                    }
                    Target::Answer => self.answer_all(batch, Verdict::output(output as u8)),
                    Target::Back { .. } | Target::Array { .. } | Target::Drop => {}
                }
                // What is left had `-> Drop`, or no lane, which the plan excludes.
                for packet in batch.drain(..) {
                    self.discard(packet, DropReason::Policy, i, way);
                }
                return;
            }
        }
        self.dispatch(i, batch, way);
        self.verdicts.fill(Verdict::FIRST);
    }

    pub(crate) fn hand_on(&mut self, node: usize, input: usize, batch: &mut Vec<Packet>) {
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
    pub(crate) fn dispatch(&mut self, i: usize, batch: &mut Vec<Packet>, way: &mut Way<'_>) {
        let node = self.nodes.get_mut(i);
        if let Some(Node { nf: Some(nf), more: Some(_), .. }) = node {
            let leaving = std::mem::take(nf.leaving());
            return self.dispatch_more(i, batch, leaving, way);
        }
        for (packet, verdict) in batch.drain(..).zip(self.verdicts) {
            self.place(i, packet, verdict, way);
        }
    }

    /// One packet by its verdict and the edges' filters.
    #[inline(always)]
    pub(crate) fn place(&mut self, i: usize, packet: Packet, verdict: Verdict, way: &mut Way<'_>) {
        let Some(output) = verdict.as_output() else {
            debug_assert!(
                self.nodes.get(i).is_some_and(|n| n.may_drop || n.more.is_some()),
                "undeclared drop"
            );
            let reason = verdict.as_drop().unwrap_or(DropReason::BadEntry);
            return self.discard(packet, reason, i, way);
        };
        let bytes = way.arena.bytes(packet.entry());
        let branches = self.nodes.get(i).and_then(|n| n.outputs.get(usize::from(output)));
        let takes = |b: &&Branch| b.takes.takes(&bytes, way.source, &packet, way.arena);
        let Some(branch) = branches.and_then(|b| b.iter().find(takes)) else {
            return self.discard(packet, DropReason::NoEdge, i, way);
        };
        let Part { target, words } = match &branch.spread {
            None => Part { target: branch.target, words: branch.words },
            Some(spread) => {
                let (nodes, egress) = (&self.nodes, &mut *way.egress);
                let waits = |part: &Part| match part.target {
                    Target::Node { node, input } => {
                        nodes.get(node).and_then(|n| n.inbox.get(input)).map_or(0, Vec::len)
                    }
                    Target::Lane { edge } | Target::Back { edge } => {
                        egress.lane(edge, way.source).map_or(0, |lane| egress.waiting(lane))
                    }
                    // Instances are of NFs, no ports.
                    Target::Array { .. } | Target::Answer | Target::Drop => 0,
                };
                match self.balances.choose(spread, way.arena.view(), &packet, waits) {
                    Some(part) => part,
                    None => return self.discard(packet, DropReason::NoEdge, i, way),
                }
            }
        };
        if let Some(words) = words {
            add(way.words, words, 1);
            add(way.words, words + 1, u64::from(packet.entry().len()));
        }
        match target {
            Target::Node { node, input } => {
                if let Some(inbox) = self.nodes.get_mut(node).and_then(|n| n.inbox.get_mut(input)) {
                    inbox.push(packet);
                }
            }
            Target::Lane { edge } => self.send(i, edge, packet, way),
            Target::Back { edge } => self.send_back(i, edge, packet, way),
            Target::Array { pick } => self.send_to_array(i, pick, packet, way),
            Target::Answer => self.answer(packet, verdict),
            Target::Drop => self.discard(packet, DropReason::Policy, i, way),
        }
    }

    /// Where the flows of a group go, if this worker can be told to send some elsewhere.
    pub(crate) fn director(&mut self, group: u16) -> Option<&mut FlowDirector> {
        self.balances.director(group)
    }

    /// Whose the datagrams are that have not come whole, of each that sends later fragments where their first went: always in the
    /// same order.
    pub(crate) fn fragment_tables(&mut self) -> impl Iterator<Item = &mut FragmentTable> {
        let picks = self.picks.iter_mut().map(|(_, pick)| pick.fragments());
        self.balances.fragments().chain(picks)
    }

    /// From now on the packets of a group divide by other weights.
    pub(crate) fn reweigh(&mut self, group: u16, weights: &[u32]) {
        self.balances.reweigh(group, weights);
    }

    /// The µNF of a node.
    pub(crate) fn nf(&mut self, node: usize) -> Option<&mut (dyn Instance + 'static)> {
        self.nodes.get_mut(node)?.nf.as_deref_mut()
    }

    /// The same, to look at.
    pub(crate) fn nf_ref(&self, node: usize) -> Option<&dyn Instance> {
        self.nodes.get(node)?.nf.as_deref()
    }

    /// Reads flows that have not been read, `most` at most, of one µNF after the other; how many are left.
    pub(crate) fn read_unread(&mut self, most: usize) -> usize {
        let (mut most, mut left) = (most, 0);
        for nf in self.nodes.iter_mut().filter_map(|node| node.nf.as_mut()) {
            let before = nf.read_unread(0);
            let behind = if before > 0 { nf.read_unread(most) } else { 0 };
            // Who is looked for before his turn is read then.
            most = most.saturating_sub(before.saturating_sub(behind));
            left += behind;
        }
        left
    }

    /// Those that could not be read since this was asked last, by µNF.
    pub(crate) fn unreadable(&mut self) -> Vec<(String, Unreadable)> {
        let nodes = self.nodes.iter_mut();
        let of = |node: &mut Node| Some((node.name.clone(), node.nf.as_mut()?.take_unreadable()?));
        nodes.filter_map(of).collect()
    }

    /// What each node has to report, as JSON; `null` for a port.
    pub fn reports(&self) -> Vec<String> {
        let report = |n: &Node| n.nf.as_ref().map_or("null".into(), |nf| nf.report().to_string());
        self.nodes.iter().map(report).collect()
    }
}

/// The output by which all of the first `n` packets leave, if it is one.
#[inline]
fn same_output(verdicts: &[Verdict; BATCH], n: usize) -> Option<usize> {
    let verdicts = verdicts.get(..n)?;
    let first = *verdicts.first()?;
    // No way out of the loop: the compiler compares many at a time.
    let same = verdicts.iter().fold(true, |same, verdict| same & (*verdict == first));
    first.as_output().filter(|_| same).map(usize::from)
}

/// True for one batch in sixteen, in no rhythm: of sources that take turns each is timed as often as its batches come, however many
/// they are (multiples of the golden ratio: Knuth, The Art of Computer Programming 3, 6.4, theorem S).
#[inline]
fn is_timed(batch: u32) -> bool {
    batch.wrapping_mul(0x9e37_79b9) < 1 << 28
}

/// Packets and bytes of a batch.
#[inline]
fn weigh(batch: &[Packet]) -> (u64, u64) {
    (batch.len() as u64, batch.iter().map(|p| u64::from(p.entry().len())).sum())
}

#[inline]
pub(crate) fn add(words: &mut [u64], at: usize, n: u64) {
    if let Some(word) = words.get_mut(at) {
        *word = word.wrapping_add(n);
    }
}

fn in_sequence(batch: &mut [Packet]) {
    if let Some(first) = batch.first().map(|p| p.entry().seq()) {
        // Stable: copies of a packet have its number, and stay in the order in which they were made.
        batch.sort_by_key(|p| p.entry().seq().offset_from(first));
    }
}

#[cfg(test)]
mod tests {
    use super::is_timed;

    #[test]
    fn batches_of_each_of_several_sources_that_take_turns_are_timed_alike() {
        for sources in 1..=64 {
            for source in 0..sources {
                let own = (0..1600).map(|turn| turn * sources + source);
                let timed = own.filter(|batch| is_timed(*batch)).count();
                assert!((80..=120).contains(&timed), "source {source} of {sources}: {timed}");
            }
        }
    }
}
