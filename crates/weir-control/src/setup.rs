//! What is to run: workers and the lanes between them, free of file descriptors.

use crate::crews::Crew;
use crate::jail::SandboxOptions;
use crate::scale::Rule;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weir_device::DeviceSpec;
use weir_plan::{Graph, NfInfo, NodeKind, ProgramId};
use weir_runtime::spec::{EndSpec, GroupSpec, NodeSpec, ScheduleSpec};

/// A worker to run.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    /// Name of its segment.
    pub name: String,
    /// Its device, if it is a device's service.
    pub end: EndSpec,
    /// Its nodes in topological order.
    pub nodes: Vec<NodeSpec>,
    /// Edges that leave its nodes, by their number in the plan.
    pub edges: Vec<u32>,
    /// Arrays of ports that its edges lead to, by their place in [`Setup::arrays`].
    pub arrays: Vec<usize>,
    /// The array whose port its device is, of an Rx service: there it writes down what came in.
    pub learns: Option<usize>,
    /// Index of the trust domain that it works in, and sends into.
    pub domain: usize,
    /// Index of the trust domain that it takes from: another one for a gate.
    pub takes_from: usize,
    /// Whether its µNFs make packets, or it copies some for the ports of an array.
    pub creates: bool,
    /// Most buffers of its home pool that one packet which it takes may need: 0 where it makes none.
    pub needs: u32,
    /// How many of its µNFs hold packets.
    pub holders: u32,
    /// Whether it may write packet bytes.
    pub writable: bool,
    /// Whether it is a branch of a parallel stage.
    pub branch: bool,
    /// Of such a branch: fields that other branches write meanwhile ([`weir_runtime::field`]).
    pub beside: u32,
    /// The outside program that its process is; `None`: weir itself.
    pub program: Option<ProgramId>,
    /// How it shares the machine.
    pub schedule: ScheduleSpec,
    /// Nodes whose µNF has crashed, with fingerprints of packets that it is not to get.
    pub careful: Vec<(u16, Vec<u64>)>,
    /// For tests: where its first incarnation dies.
    pub fault: Option<(u32, u32)>,
    /// For tests: the seed with which it turns hostile.
    pub attack: Option<u64>,
}

impl WorkerSetup {
    /// True when it takes buffers for new packets, and so has a home pool.
    pub fn has_home(&self) -> bool {
        matches!(self.end, EndSpec::Rx { .. } | EndSpec::Gate { .. }) || self.creates
    }

    /// True when it is a service: of a device, or of the file of drops.
    pub fn serves(&self) -> bool {
        matches!(self.end, EndSpec::Rx { .. } | EndSpec::Tx { .. } | EndSpec::Dump(_))
    }

    /// True when it runs µNFs, which need not be trusted; all others run library code only.
    pub fn runs_nfs(&self) -> bool {
        matches!(self.end, EndSpec::None)
    }

    /// True when it has to send later fragments where their first went: packets of some edge of its divide by ports, among others, or leave by
    /// ports of an array. Gates do not remember that.
    pub fn follows_fragments(&self, groups: &[GroupSpec]) -> bool {
        let by_ports = |group: u16| {
            groups.get(usize::from(group)).is_some_and(|group| group.spread.asks_ports())
        };
        let branches = || self.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        let divides = || branches().filter_map(|b| b.share).any(|share| by_ports(share.group));
        let may = matches!(self.end, EndSpec::None | EndSpec::Rx { .. });
        may && (!self.arrays.is_empty() || divides())
    }

    /// True when it has memory of `domain`.
    pub fn is_in(&self, domain: usize) -> bool {
        self.domain == domain || self.takes_from == domain
    }
}

/// A lane between two workers.
#[derive(Debug, Clone)]
pub struct LaneSetup {
    /// Index of the producing worker.
    pub from: usize,
    /// Index of the consuming worker.
    pub to: usize,
    /// Index of the source.
    pub source: u16,
    /// Index among the producing worker's edges; their number: what it drops; more: one of the ways to an
    /// array's ports.
    pub edge: u16,
    /// Whether watermarks matter to somebody further on.
    pub ordered: bool,
    /// Whether it drops when it is full: its edge closes a cycle, or the operator wants it.
    pub closes: bool,
    /// The side that its packets come from, where they are divided by sides: 0 is inside, or the clients'.
    pub side: u8,
    /// Whether packets come there around a cycle.
    pub back: bool,
    /// Node of the consuming worker.
    pub node: u16,
    /// Its input.
    pub input: u8,
    /// What it carries.
    pub carries: LaneCarries,
}

impl LaneSetup {
    /// True for a lane whose packets belong to whoever takes them. What other lanes carry is in one of these
    /// too: who counts buffers must look at these only.
    pub fn has_packets(&self) -> bool {
        self.carries == LaneCarries::Packets
    }
}

/// What a lane carries; lanes by their place in [`Setup::lanes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneCarries {
    /// Packets.
    Packets,
    /// The packets of another lane of the same producer, lent to a branch of a parallel stage.
    Loans {
        /// That lane.
        of: usize,
    },
    /// What a branch says of the packets of another lane of the same consumer.
    Answers {
        /// That lane.
        on: usize,
        /// Whether packets with which the branch's worker died are dropped.
        drops_lost: bool,
    },
}

impl LaneSetup {
    /// True when packets of `source` come new to worker `w` by it: not around a cycle, where nobody need
    /// wait for any.
    pub(crate) fn brings(&self, w: usize, source: u16) -> bool {
        self.to == w && self.source == source && !self.back
    }
}

/// An array of ports that edges lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArraySetup {
    /// How many ports it has.
    pub ports: u16,
    /// By source: which of them its packets come in by, counted from 0; `None` for none of them.
    pub places: Vec<Option<u16>>,
}

/// An NF whose instances become more and fewer while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleSetup {
    /// Its instances, and who divides its packets over them.
    pub crew: Crew,
    /// When and how.
    pub rule: Rule,
}

/// Sizes of the graph's memory.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Longest packet in bytes.
    pub packet: u32,
    /// Buffers of each home pool: two to this.
    pub pool_bits: u32,
    /// Entries of each lane.
    pub ring: u32,
}

/// What is to be known of a type of NF, wherever its code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfKind {
    /// It remembers something of each flow.
    pub follows: bool,
    /// It holds packets.
    pub holds: bool,
    /// It does something at times of its own.
    pub timers: bool,
    /// It makes packets.
    pub creates: bool,
}

impl NfKind {
    /// Those of a graph, by name of the type.
    pub(crate) fn of_graph(graph: &Graph) -> BTreeMap<String, Self> {
        let infos = graph.nodes().iter().filter_map(|node| match &node.kind {
            NodeKind::Nf { info, .. } => Some(info),
            _ => None,
        });
        let of = |info: &NfInfo| NfKind {
            follows: info.work.follows,
            holds: info.holds > 0,
            timers: info.work.timers,
            creates: info.creates > 0,
        };
        infos.map(|info| (info.name.clone(), of(info))).collect()
    }
}

/// Everything that is to run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Trust domains, the graph's own first; each has packet memory of its own.
    pub domains: Vec<String>,
    /// Workers. Owner words carry their index plus one.
    pub workers: Vec<WorkerSetup>,
    /// The types of their NFs.
    pub kinds: BTreeMap<String, NfKind>,
    /// Lanes.
    pub lanes: Vec<LaneSetup>,
    /// Number of sources.
    pub sources: u16,
    /// By source: the number of the policy's port that its packets come in by.
    pub source_ports: Vec<u16>,
    /// NFs of several instances.
    pub groups: Vec<GroupSpec>,
    /// Those of them whose instances become more and fewer.
    pub scales: Vec<ScaleSetup>,
    /// NFs whose flows go on at their other instances when the worker of one has died.
    pub leaves: Vec<Crew>,
    /// Arrays of ports that edges lead to.
    pub arrays: Vec<ArraySetup>,
    /// Sizes.
    pub sizes: Sizes,
    /// Whether some filter asks for tags.
    pub clear_tags: bool,
    /// Whether the real-time class may be asked for, by workers that the plan allows it and by the agent while all wait for it.
    pub real_time: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// Descriptors of TAP interfaces by name. They are the agent's, so the interfaces outlive the
    /// workers that use them.
    pub taps: BTreeMap<String, Arc<OwnedFd>>,
    /// The outside programs, in the order of their numbers.
    pub programs: Vec<PathBuf>,
    /// What workers are put into.
    pub sandbox: SandboxOptions,
}

impl Setup {
    /// The workers behind `w` that share its core and its trust domain, in chain order, if packets come
    /// to that core by `w`; none else. Such workers are best woken together: see `weir_runtime`'s rest.
    pub(crate) fn followers(&self, w: usize) -> impl Iterator<Item = usize> {
        let home = |w: usize| self.workers.get(w).map(|w| (w.schedule.core, w.domain));
        let own = home(w).filter(|(core, _)| core.is_some());
        let is_rx = self.workers.get(w).is_some_and(|w| matches!(w.end, EndSpec::Rx { .. }));
        let from_elsewhere = self.lanes.iter().any(|l| l.to == w && home(l.from) != own);
        let mut reached = vec![false; self.workers.len()];
        if own.is_some() && (is_rx || from_elsewhere) {
            let mut at = vec![w];
            while let Some(from) = at.pop() {
                for lane in self.lanes.iter().filter(|l| l.from == from && home(l.to) == own) {
                    if lane.to != w && !std::mem::replace(&mut reached[lane.to], true) {
                        at.push(lane.to);
                    }
                }
            }
        }
        // Workers are numbered in chain order.
        reached.into_iter().enumerate().filter_map(|(w, reached)| reached.then_some(w))
    }

    /// Who has `w` among its followers, or itself if it has some.
    pub(crate) fn leader(&self, w: usize) -> Option<usize> {
        if self.followers(w).next().is_some() {
            return Some(w);
        }
        (0..self.workers.len()).find(|&leader| self.followers(leader).any(|f| f == w))
    }

    /// Index of the trust domain whose packets a lane has: its consumer's. (What a gate drops it has
    /// from another domain than that which it sends into.)
    pub(crate) fn lane_domain(&self, lane: &LaneSetup) -> usize {
        self.workers.get(lane.to).map_or(0, |to| to.takes_from)
    }

    /// The descriptor of worker `w`'s device, when that is one for all who use it.
    pub(crate) fn device(&self, w: usize) -> Option<&OwnedFd> {
        let (EndSpec::Rx { device, .. } | EndSpec::Tx { device, .. }) = &self.workers.get(w)?.end
        else {
            return None;
        };
        self.taps.get(device.interface()?).map(|fd| &**fd)
    }

    /// The interface that worker `w` needs a packet socket of its own for, and whether it receives.
    pub(crate) fn packets(&self, w: usize) -> Option<(&str, bool)> {
        match &self.workers.get(w)?.end {
            EndSpec::Rx { device: DeviceSpec::Afp(name), .. } => Some((name, true)),
            EndSpec::Tx { device: DeviceSpec::Afp(name), .. } => Some((name, false)),
            _ => None,
        }
    }
}

impl Setup {
    /// True when some source is live: its packets' time stamps go with the wall clock.
    pub fn is_live(&self) -> bool {
        let live = |end: &EndSpec| match end {
            EndSpec::Rx { device, .. } => !matches!(device, DeviceSpec::Pcap { .. }),
            _ => false,
        };
        self.workers.iter().any(|w| live(&w.end))
    }

    /// Most packets that one µNF may hold: all together leave half of each pool to move, or of each share of one.
    pub fn hold_most(&self) -> u32 {
        let shares = (0..self.workers.len()).map(|w| self.shares(w)).max().unwrap_or(1);
        ((1u32 << self.sizes.pool_bits) / shares / 2 / self.holders().max(1)).max(1)
    }

    /// How many µNFs hold packets.
    fn holders(&self) -> u32 {
        self.workers.iter().map(|w| w.holders).sum()
    }

    /// Into how many shares the buffers of worker `w` are divided, one for each source that packets come of.
    ///
    /// Where two workers fill buffers with packets of several sources, and what they send of one source is merged further on, one's
    /// packets wait there for the other's. If they could take all buffers, of the first packets of one source and of
    /// the second those of another, neither would have a buffer for what the other's wait for. With shares no source waits for
    /// another, and within one the earliest packet can always go on.
    pub(crate) fn shares(&self, w: usize) -> u32 {
        let serves = |w: &usize| self.serves_several(*w);
        let several = (0..self.workers.len()).filter(serves).nth(1).is_some();
        if several && serves(&w) { self.sources_of(w) } else { 1 }
    }

    /// True when worker `w` fills buffers with packets that come from other workers, of several sources.
    fn serves_several(&self, w: usize) -> bool {
        let worker = self.workers.get(w);
        let fills = worker.is_some_and(|w| w.has_home() && !matches!(w.end, EndSpec::Rx { .. }));
        fills && self.sources_of(w) > 1
    }

    /// Of how many sources packets come to worker `w`.
    fn sources_of(&self, w: usize) -> u32 {
        let lanes = self.lanes.iter().filter(|lane| lane.to == w && lane.has_packets());
        lanes.fold(0u64, |of, lane| of | 1 << (lane.source % 64)).count_ones()
    }

    /// A worker whose shares are too small for one packet beside what may be held: its name, the number of its shares, and the
    /// number of buffers that its pool has to have.
    pub(crate) fn too_few_buffers(&self) -> Option<(&str, u32, u32)> {
        (0..self.workers.len()).find_map(|w| {
            let (worker, shares) = (self.workers.get(w)?, self.shares(w));
            // Half of a share may be held.
            let share = worker.needs.max(self.holders()).max(1).saturating_mul(2);
            let least = share.saturating_mul(shares).checked_next_power_of_two()?;
            let few = shares > 1 && (1 << self.sizes.pool_bits) < least;
            few.then_some((worker.name.as_str(), shares, least))
        })
    }
}
