//! From a plan and the operator's devices to what is to run.

mod arrays;
mod error;
mod leaving;
mod outputs;
mod scaling;
mod sizes;
mod stages;

use self::arrays::Arrays;
pub use self::error::WiringError;
pub use self::leaving::Unleavable;
pub use self::scaling::ScaleOptions;
use crate::devices::{Captures, check_binds, check_outputs, receives, sends};
use crate::jail::SandboxOptions;
use crate::setup::{LaneCarries, LaneSetup, NfKind, Setup, WorkerSetup};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weir_capture::{Precision, TimeFormat};
use weir_device::DeviceSpec;
use weir_mem::ArenaShape;
use weir_mem::entry::MAX_BUFFERS;
use weir_nf::{TagPlace, TagSpec};
use weir_plan::{
    Carries, EdgeId, Key, NodeId, NodeKind, Place, Plan, Segment, SegmentId, SegmentKind, Spread,
    Tags,
};
use weir_runtime::spec::{
    BranchSpec, EarlySpec, EndSpec, NodeSpec, ReplicateSpec, ScheduleSpec, Trial,
};

/// What the operator may choose besides policy and devices.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Entries of a lane.
    pub ring: u32,
    /// Buffers of a home pool; `None`: by packet size.
    pub pool: Option<u32>,
    /// Microseconds to poll after the last packet.
    pub spin_us: u32,
    /// Never sleep, but when called to.
    pub busy: bool,
    /// Use the real-time class where the plan allows it.
    pub real_time: bool,
    /// Of how many packets of a batch workers ask for the first lines when they take it; `None`: of all.
    pub prefetch: Option<u32>,
    /// For experiments: how workers are scheduled otherwise.
    pub trial: Trial,
    /// Seed of everything random.
    pub seed: u64,
    /// NFs of which what they remember outlives their workers, by the policy's names, and as of when.
    pub replicate: BTreeMap<String, ReplicateSpec>,
    /// How many flows NFs may remember, where not as many as their types say, by the policy's names.
    pub flows: BTreeMap<String, u32>,
    /// NFs whose flows go on at others of their instances when the worker of one has died, by the policy's names.
    pub leaves: BTreeSet<String>,
    /// For tests: segment name, step and passing at which it dies.
    pub faults: Vec<(String, u32, u32)>,
    /// For tests: segment name and seed of a worker that turns hostile.
    pub attacks: Vec<(String, u64)>,
    /// Where to write what is dropped.
    pub dump_drops: Option<PathBuf>,
    /// The outside programs that the plan's catalogue has.
    pub programs: Vec<PathBuf>,
    /// What workers are put into.
    pub sandbox: SandboxOptions,
    /// Classes of live sources' packets: which are given up first.
    pub early: Vec<EarlySpec>,
    /// NFs whose instances become more and fewer, by the policy's names. Their groups in the plan have the weights
    /// that they begin with.
    pub scale: BTreeMap<String, ScaleOptions>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            ring: 1024,
            pool: None,
            spin_us: 200,
            busy: false,
            real_time: true,
            prefetch: None,
            trial: Trial::default(),
            seed: 0,
            replicate: BTreeMap::new(),
            flows: BTreeMap::new(),
            leaves: BTreeSet::new(),
            faults: Vec::new(),
            attacks: Vec::new(),
            programs: Vec::new(),
            dump_drops: None,
            sandbox: SandboxOptions::default(),
            early: Vec::new(),
            scale: BTreeMap::new(),
        }
    }
}

/// Longest packet that a buffer holds, in bytes.
pub const LONGEST_PACKET: u32 = ArenaShape::MAX_PACKET;

/// Makes the setup of `plan` with devices bound to its ports.
pub fn wire(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
    captures: &Captures,
    options: &RunOptions,
) -> Result<Setup, WiringError> {
    check_binds(plan, binds)?;
    let tags = Tags::assign(&plan.graph)?;
    let nanoseconds = captures
        .values()
        .any(|s| s.time_formats.keys().any(|t: &TimeFormat| t.in_pcap() == Precision::Nanos));
    let domains = domains(plan);
    let graph =
        Wiring { plan, tags: &tags, arrays: Arrays::of(plan), held: arrays::behind_holders(plan) };
    let mut workers = Vec::new();
    // Which worker a segment became; segments of ports without a device become none.
    let mut index = vec![None; plan.segments.len()];
    let mut source_index = BTreeMap::new();
    let mut source_ports = Vec::new();
    for (segment, i) in plan.segments.iter().zip(0..) {
        let end = match segment.kind {
            SegmentKind::Nf => EndSpec::None,
            SegmentKind::Gate { .. } => {
                let from = plan.lanes_into(SegmentId(i as u32)).next();
                let from = from.and_then(|lane| plan.segment(lane.from));
                // The graph's own domain is trusted to take and give.
                let out_of = from.is_some_and(|from| !from.domain.is_empty());
                EndSpec::Gate { into: !segment.domain.is_empty(), out_of }
            }
            SegmentKind::Rx { port, source } => match binds.get(&port) {
                Some(device) if receives(device) => {
                    let n = source_index.len() as u16;
                    source_index.insert(source, n);
                    source_ports.push(port);
                    let drops = |device: &DeviceSpec| device.drops_early();
                    let early = options.early.iter().filter(|_| drops(device)).cloned().collect();
                    EndSpec::Rx { device: device.clone(), port, source: n, early }
                }
                _ => continue,
            },
            SegmentKind::Tx { port } => match binds.get(&port) {
                Some(device) if sends(device) => {
                    let received = |s: &Segment| matches!(s.kind, SegmentKind::Rx { port: p, .. } if p == port);
                    let tells = !plan.segments.iter().any(received);
                    EndSpec::Tx { device: device.clone(), port, nanoseconds, tells }
                }
                Some(_) => {
                    let name = port_name(plan, segment);
                    return Err(WiringError::SendsNothing { port, name });
                }
                None => {
                    let name = port_name(plan, segment);
                    return Err(WiringError::Unbound { port, name });
                }
            },
        };
        if let Some(slot) = index.get_mut(i) {
            *slot = Some(workers.len());
        }
        let worker = graph.worker(SegmentId(i as u32), segment, end, options, &domains);
        let edges: Vec<EdgeId> = worker.edges.iter().map(|e| EdgeId(*e)).collect();
        let numbers = graph.arrays.lanes(SegmentId(i as u32), &edges);
        limit("ways from one worker to ports of arrays", numbers, u16::MAX.into())?;
        workers.push(worker);
    }
    if source_index.is_empty() {
        let rx = plan.segments.iter().filter_map(|s| match s.kind {
            SegmentKind::Rx { port, .. } => Some(port.to_string()),
            _ => None,
        });
        return Err(WiringError::NoInput { ports: rx.collect::<Vec<_>>().join(", ") });
    }
    let has_classes = |w: &WorkerSetup| w.end.classes() > 0;
    if !options.early.is_empty() && !workers.iter().any(has_classes) {
        return Err(WiringError::NothingLive);
    }
    limit("sources", source_index.len(), 64)?;
    limit("workers", workers.len(), 10_000)?;
    let mut lanes = Vec::new();
    // By lane of the plan: the lane of the setup.
    let mut numbers: Vec<Option<usize>> = Vec::with_capacity(plan.lanes.len());
    for lane in &plan.lanes {
        numbers.push(None);
        let Some(&source) = source_index.get(&lane.source) else { continue };
        let at = |s: SegmentId| index.get(s.index()).copied().flatten();
        let (Some(from), Some(to)) = (at(lane.from), at(lane.to)) else { continue };
        let Some(edge) = plan.edges.get(lane.edge.index()) else { continue };
        if lane.carries != Carries::Packets {
            let carries = stages::carries(plan, lane, &numbers);
            let Some((carries, edge)) = carries.zip(workers.get(from).map(|w| w.edges.len()))
            else {
                continue;
            };
            // A branch says what it has to say where others send what they drop.
            lanes.push(LaneSetup {
                from,
                to,
                source,
                edge: edge as u16,
                ordered: false,
                closes: false,
                back: false,
                node: 0,
                input: 0,
                side: 0,
                carries,
            });
            continue;
        }
        let own = |w: &WorkerSetup| w.edges.iter().position(|e| *e == lane.edge.0);
        let Some(own_edge) = workers.get(from).and_then(own) else { continue };
        let segment = plan.segment(lane.to);
        let edges: Option<Vec<EdgeId>> =
            workers.get(from).map(|w| w.edges.iter().map(|e| EdgeId(*e)).collect());
        let to_array = graph.arrays.lane(lane.from, &edges.unwrap_or_default(), lane.edge, segment);
        let is_gate = segment.is_some_and(|s| matches!(s.kind, SegmentKind::Gate { .. }));
        let node = segment.and_then(|s| s.nodes.iter().position(|n| *n == edge.to));
        let node = match stages::entered(plan, lane) {
            Some(stage) => stages::sync_node(plan, lane.to, stage),
            None => stages::nodes_before(plan, lane.to) + node.unwrap_or(0),
        };
        if let Some(number) = numbers.last_mut() {
            *number = Some(lanes.len());
        }
        lanes.push(LaneSetup {
            carries: LaneCarries::Packets,
            from,
            to,
            source,
            edge: to_array.unwrap_or(own_edge) as u16,
            ordered: lane.ordered,
            closes: lane.closes,
            back: lane.back,
            node: node as u16,
            input: if is_gate { 0 } else { edge.input as u8 },
            side: side(plan, lane.edge),
        });
    }
    if let Some(file) = &options.dump_drops {
        let mut ports: Vec<(u16, String)> = Vec::new();
        for &port in binds.keys() {
            let name = plan.graph.port(port).and_then(|id| plan.graph.node(id));
            ports.push((port, name.map_or_else(String::new, |n| n.name.clone())));
        }
        let schedule = service_schedule(options);
        crate::dumps::add(file, ports, schedule, &domains, &mut workers, &mut lanes);
        check_outputs(binds, crate::dumps::files(&workers))?;
        limit("workers", workers.len(), 10_000)?;
    }
    for (name, step, nth) in &options.faults {
        for w in workers.iter_mut().filter(|w| w.name == *name) {
            w.fault = Some((*step, *nth));
        }
    }
    for (name, seed) in &options.attacks {
        workers.iter_mut().filter(|w| w.name == *name).for_each(|w| w.attack = Some(*seed));
    }
    let sizes = sizes::sizes(plan, binds, captures, options);
    let pools = workers.iter().filter(|w| w.has_home()).count();
    limit("packet buffers", pools << sizes.pool_bits, MAX_BUFFERS as usize)?;
    let mut setup = Setup {
        domains,
        workers,
        kinds: NfKind::of_graph(&plan.graph),
        lanes,
        sources: source_index.len() as u16,
        arrays: graph.arrays.setups(&source_ports),
        source_ports,
        groups: plan.groups.iter().map(outputs::group).collect(),
        sizes,
        clear_tags: tags.any(),
        real_time: options.real_time,
        seed: options.seed,
        taps: BTreeMap::new(),
        programs: options.programs.clone(),
        sandbox: options.sandbox,
        scales: Vec::new(),
        leaves: Vec::new(),
    };
    setup.scales = scaling::scales(&setup, options)?;
    setup.leaves = leaving::leaves(&setup, options)?;
    if let Some((worker, shares, least)) = setup.too_few_buffers() {
        let (pool, worker) = (1 << setup.sizes.pool_bits, worker.to_owned());
        return Err(WiringError::FewBuffers { pool, worker, shares, least });
    }
    Ok(setup)
}

/// All trust domains, the graph's own first.
fn domains(plan: &Plan) -> Vec<String> {
    let named: std::collections::BTreeSet<&str> =
        plan.segments.iter().map(|s| s.domain.as_str()).collect();
    let others = named.into_iter().filter(|name| !name.is_empty());
    std::iter::once("").chain(others).map(str::to_owned).collect()
}

fn port_name(plan: &Plan, segment: &Segment) -> String {
    let node = segment.nodes.first().and_then(|n| plan.graph.node(*n));
    node.map_or_else(String::new, |n| n.name.clone())
}

fn limit(what: &'static str, n: usize, most: usize) -> Result<(), WiringError> {
    if n > most { Err(WiringError::TooMany { what, n, most }) } else { Ok(()) }
}

/// What is known of the whole graph.
struct Wiring<'p> {
    plan: &'p Plan,
    tags: &'p Tags,
    arrays: Arrays<'p>,
    /// By node: packets there may have been held.
    held: Vec<bool>,
}

impl Wiring<'_> {
    fn worker(
        &self,
        id: SegmentId,
        segment: &Segment,
        end: EndSpec,
        options: &RunOptions,
        domains: &[String],
    ) -> WorkerSetup {
        let Wiring { plan, tags, arrays, .. } = self;
        let is_tx = matches!(segment.kind, SegmentKind::Tx { .. });
        let is_rx = matches!(segment.kind, SegmentKind::Rx { .. });
        let leaves = |node| plan.edges.iter().filter(move |e| e.from == node && !is_tx);
        let leaves = |node| leaves(node).filter(move |e| stages::leaves_by(plan, id, e));
        let mut edges: Vec<EdgeId> =
            segment.nodes.iter().flat_map(|&n| leaves(n).map(|e| e.id)).collect();
        let syncs = || stages::syncs_of(plan, id);
        edges.extend(syncs().flat_map(|(_, stage)| leaves(stage.last)).map(|e| e.id));
        let index = |name: &str| domains.iter().position(|d| d == name).unwrap_or(0);
        let domain = index(&segment.domain);
        let mut takes_from = domain;
        let mut gate = None;
        if let SegmentKind::Gate { edge } = segment.kind {
            edges.push(edge);
            let from = plan.lanes_into(id).next().and_then(|lane| plan.segment(lane.from));
            takes_from = from.map_or(0, |from| index(&from.domain));
            let name = segment.name.clone();
            let branch = |target| BranchSpec {
                filter: None,
                edge: Some(edges.len() as u16 - 1),
                target,
                marks: Vec::new(),
                held: false,
                share: None,
            };
            let to_array = arrays.target(id, &edges, edge);
            gate = Some(NodeSpec {
                name,
                nf: None,
                outputs: to_array.map(|target| vec![branch(target)]).into_iter().collect(),
                tags: Vec::new(),
                fan_in: 1,
                instance_of: None,
                again: false,
                part: None,
                replicate: None,
                flows: None,
                sync: None,
            });
        }
        let before = syncs().flat_map(|(_, stage)| self.sync_port(id, segment, stage, &edges));
        let first = segment.nodes.iter().map(|&n| (n, 0));
        let nodes = first.chain(segment.again.iter().copied());
        let nodes = nodes.filter_map(|(n, round)| Some((n, plan.graph.node(n)?, round)));
        let nodes = nodes.map(|(n, node, round)| NodeSpec {
            name: node.policy_name().to_owned(),
            tags: settings(tags, n),
            nf: match &node.kind {
                NodeKind::Nf { info, config } => Some((info.name.clone(), config.to_string())),
                NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => None,
            },
            outputs: if is_tx {
                Vec::new()
            } else {
                self.outputs(id, segment, (n, node, round), &edges)
            },
            fan_in: plan.edges.iter().filter(|e| e.to == n).count().min(u16::MAX.into()) as u16,
            instance_of: outputs::instance_of(
                plan,
                segment,
                stages::nodes_before(plan, id),
                (n, round),
            ),
            again: round > 0,
            part: outputs::part_of(plan, n),
            replicate: options.replicate.get(node.policy_name()).copied().filter(|_| round == 0),
            flows: options.flows.get(node.policy_name()).copied(),
            sync: None,
        });
        let nodes = before.chain(nodes).chain(gate).collect();
        let infos = || {
            let nodes = segment.nodes.iter().filter_map(|&n| plan.graph.node(n));
            nodes.filter_map(|node| match &node.kind {
                NodeKind::Nf { info, .. } => Some(info),
                NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => None,
            })
        };
        let core = segment.core.map(|c| c as u16);
        let shares_core = match segment.core {
            Some(_) => plan.segments.iter().filter(|s| s.core == segment.core).count() > 1,
            None => true,
        };
        let nf = segment.kind == SegmentKind::Nf;
        // Somebody else's program is never put above the agent. Nor are those on its core, who would not
        // leave it any time.
        let with_outside =
            plan.segments.iter().any(|s| s.core == segment.core && s.program.is_some());
        let learns = match end {
            EndSpec::Rx { port, .. } => arrays.with_port(port),
            _ => None,
        };
        let needs = sizes::needs(plan, segment, |edge| arrays.copies(id, edge));
        let arrays = arrays.chosen_by(id, &edges).0;
        // What is for all ports of an array is copied.
        let copies = nf && !arrays.is_empty();
        WorkerSetup {
            name: segment.name.clone(),
            end,
            nodes,
            arrays,
            learns,
            edges: edges.iter().map(|e| e.0).collect(),
            domain,
            takes_from,
            writable: segment.writes_packets || is_rx || copies,
            branch: stages::branch_of(plan, id).is_some(),
            beside: stages::written_beside(plan, id),
            program: segment.program,
            creates: infos().any(|info| info.creates > 0) || copies,
            needs,
            holders: infos().filter(|info| info.holds > 0).count() as u32,
            schedule: ScheduleSpec {
                core,
                real_time: options.real_time
                    && plan.real_time_ok
                    && core.is_some()
                    && nf
                    && !with_outside,
                stands_by_on: Vec::new(),
                shares_core,
                spin_us: options.spin_us,
                busy: options.busy,
                prefetch: options.prefetch,
                // Devices' services stay as they are: what is tried is tried on µNFs.
                trial: if nf { options.trial } else { Trial::default() },
            },
            careful: Vec::new(),
            fault: None,
            attack: None,
        }
    }
}

/// The side that an edge's packets come from, where they are divided by sides.
fn side(plan: &Plan, edge: EdgeId) -> u8 {
    let share = plan.graph.edge(edge).and_then(|edge| edge.share);
    let group = share.and_then(|share| plan.groups.get(share.group as usize));
    let has_sides =
        group.is_some_and(|group| matches!(group.spread, Spread::By(Key::Ends | Key::Client)));
    u8::from(has_sides && share.is_some_and(|share| share.side > 0))
}

/// How a worker that is on no core of the plan's shares the machine.
fn service_schedule(options: &RunOptions) -> ScheduleSpec {
    ScheduleSpec {
        core: None,
        real_time: false,
        stands_by_on: Vec::new(),
        shares_core: true,
        spin_us: options.spin_us,
        busy: false,
        prefetch: None,
        trial: Trial::default(),
    }
}

/// The tags that a node is to set.
fn settings(tags: &Tags, node: NodeId) -> Vec<TagSpec> {
    let place = |place: &Place| match place.clone() {
        Place::Flag { slot, bit } => TagPlace::Flag { slot, bit },
        Place::Number { slot } => TagPlace::Number { slot },
        Place::Text { slot, bit, patterns } => TagPlace::Text { slot, bit, patterns },
    };
    let all = tags.of(node).iter();
    all.map(|s| TagSpec { name: s.name.clone(), place: place(&s.place) }).collect()
}

#[cfg(test)]
mod tests;
