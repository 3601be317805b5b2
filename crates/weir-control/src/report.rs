//! What happened in a run: counters per µNF and per edge, and whether they balance.

use crate::agent::{Agent, Recovered, Relinked};
use crate::census::Census;
use crate::early;
use crate::instances::{self, InstanceReport};
use crate::scale::Decision;
use serde::Serialize;
use std::collections::BTreeMap;
use weir_device::{DeviceSpec, Place};
use weir_packet::DropReason;
use weir_plan::{EdgeId, Plan, Tally};
use weir_runtime::layout::{EDGE_WORDS, NodeCounts};
use weir_runtime::spec::EndSpec;

/// A node's part.
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// Name of the instance, or of a device's service (`rx:lan`).
    pub name: String,
    /// Which it is of several of that name, from 1, before these become one row.
    #[serde(skip)]
    pub instance: u32,
    /// Type of the µNF, or `rx` or `tx`.
    pub kind: String,
    /// Name of the worker that ran it; empty when the plan left it out, as others had its answers.
    pub worker: String,
    /// Packets in.
    pub packets: u64,
    /// Bytes in.
    pub bytes: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Nanoseconds per packet in the µNF itself, from a sample; absent when nothing was sampled.
    pub ns_per_packet: Option<f64>,
    /// What the µNF itself has to say.
    pub report: serde_json::Value,
    /// Its instances, where it has several: their counters add up to the above. Of a graph that was relinked, those of its
    /// last generation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceReport>,
    /// A relink took it out of the graph: it is not in the policy that ran last.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// An edge's part.
#[derive(Debug, Clone, Serialize)]
pub struct EdgeReport {
    /// Its name, `x -> y`.
    pub name: String,
    /// Packets over it.
    pub packets: u64,
    /// Bytes over it.
    pub bytes: u64,
}

/// A VNF's part: its µNFs' summed up.
#[derive(Debug, Clone, Serialize)]
pub struct VnfReport {
    /// Name of the VNF.
    pub name: String,
    /// Its template.
    pub template: String,
    /// Names of its µNFs.
    pub nodes: Vec<String>,
    /// Packets that came in.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that left.
    pub out: u64,
    /// Drops of all its µNFs by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

/// A worker's part.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    /// Its name.
    pub name: String,
    /// How often it was restarted.
    pub restarts: u32,
    /// Packets lost with it.
    pub lost: u64,
    /// Ring entries and buffer numbers that it was given and that could not be right.
    pub rejected: u64,
    /// How often a successor had to begin without what its µNFs had remembered, as that may be what killed
    /// those before it, or was an offender's.
    pub forgotten: u32,
    /// What its successors have got back from the replica ([`RunOptions::replicate`](crate::wiring::RunOptions)).
    pub recovered: Recovered,
    /// How often another of its NF's instances waited no longer for flows that it had announced, by that one's word.
    pub unsent: u32,
    /// How often it was named for nonsense and ended. What it says of itself is not exact then.
    pub offences: u32,
}

/// in + copied + created = out + dropped + consumed + lost + hostile.
#[derive(Debug, Clone, Copy, Default, Serialize, PartialEq, Eq)]
pub struct Balance {
    /// Packets that devices received.
    #[serde(rename = "in")]
    pub input: u64,
    /// Copies made.
    pub copied: u64,
    /// Packets that µNFs created.
    pub created: u64,
    /// Packets that devices sent.
    pub out: u64,
    /// Packets dropped, for all reasons.
    pub dropped: u64,
    /// Packets that ended inside a µNF on purpose.
    pub consumed: u64,
    /// Packets lost with workers that died.
    pub lost: u64,
    /// What the devices themselves say that they received.
    pub devices_in: u64,
    /// What the devices themselves say that they sent.
    pub devices_out: u64,
    /// Packets that workers named for nonsense made away with (or, below zero, made up): what is
    /// missing in the equation. Zero when nobody was named.
    pub hostile: i64,
}

impl Balance {
    pub(crate) fn missing(&self) -> i64 {
        let before = self.input.wrapping_add(self.copied).wrapping_add(self.created);
        let after = self.out.wrapping_add(self.dropped).wrapping_add(self.consumed);
        before.wrapping_sub(after.wrapping_add(self.lost)) as i64
    }

    /// True when nothing is unaccounted for.
    pub fn holds(&self) -> bool {
        self.missing() == self.hostile
            && self.devices_in == self.input
            && self.devices_out == self.out
    }
}

/// A decision about the number of an NF's instances, or what became of it.
#[derive(Debug, Clone, Serialize)]
pub struct Scaling {
    /// Seconds since the start of the workers.
    pub at: f64,
    /// The NF.
    pub nf: String,
    /// What, and why.
    #[serde(flatten)]
    pub decision: Decision,
}

/// A run's report; `--json` prints it as it stands here (docs/operating.md describes it).
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this form.
    pub version: u32,
    /// Seconds from the start of the workers to the end.
    pub seconds: f64,
    /// Devices' services and µNFs.
    pub nodes: Vec<NodeReport>,
    /// VNFs; none unless the policy has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vnfs: Vec<VnfReport>,
    /// Edges.
    pub edges: Vec<EdgeReport>,
    /// Workers.
    pub workers: Vec<WorkerReport>,
    /// Bytes copied from one trust domain into another.
    pub copied_bytes: u64,
    /// Deaths that µNFs brought upon their workers, the first hundred.
    pub crashes: Vec<crate::Crash>,
    /// How many there were, by the name of the µNF's instance, or of the worker where none ran.
    pub crashed: BTreeMap<String, u64>,
    /// How the graph was relinked while it ran, each time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relinks: Vec<Relinked>,
    /// When NFs got one more of their instances, or one less, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scalings: Vec<Scaling>,
    /// The balance.
    pub balance: Balance,
    /// Where all buffers were in the end.
    pub census: Census,
    /// Packets that were under way when the time was over that they had to run out after the end was asked for: they are among those
    /// that were lost. `None` when all ran out.
    pub undrained: Option<u64>,
    /// True when balance and census are as they must be, and while it ran no buffer was missing that nobody was
    /// named for.
    pub sound: bool,
}

impl Report {
    /// The report of a run that has ended; `census` was taken after everybody had left.
    pub fn of(plan: &Plan, agent: &Agent, census: Census, seconds: f64) -> Report {
        let mut report = Report {
            version: 1,
            seconds,
            nodes: Vec::new(),
            vnfs: Vec::new(),
            edges: plan
                .edges
                .iter()
                .map(|e| EdgeReport { name: e.name.clone(), packets: 0, bytes: 0 })
                .collect(),
            workers: Vec::new(),
            copied_bytes: 0,
            crashes: agent.crashes().to_vec(),
            crashed: agent.times_crashed().clone(),
            relinks: Vec::new(),
            scalings: Vec::new(),
            balance: Balance::default(),
            census,
            undrained: agent.undrained(),
            sound: false,
        };
        for w in 0..agent.setup().workers.len() {
            report.add_worker(agent, w);
        }
        instances::fold(&mut report.nodes, plan.groups.iter().map(|group| group.name.as_str()));
        report.as_in_policy(&plan.tally);
        report.sum_vnfs(&plan.tally);
        if agent.has_seen_nonsense() {
            report.balance.hostile = report.balance.missing();
        }
        report.sound = report.balance.holds() && census.is_clean() && agent.missing() == 0;
        report
    }

    /// From the counters of the plan's graph, which may be consolidated, to those of the policy's.
    fn as_in_policy(&mut self, tally: &Tally) {
        let counted = std::mem::take(&mut self.edges);
        let sum = |edges: &[EdgeId]| {
            let counts = edges.iter().filter_map(|e| counted.get(e.index()));
            counts.fold((0_u64, 0_u64), |(packets, bytes), edge| {
                (packets.wrapping_add(edge.packets), bytes.wrapping_add(edge.bytes))
            })
        };
        let edges = tally.edges.iter().map(|edge| {
            let (packets, bytes) = sum(&edge.sum);
            EdgeReport { name: edge.name.clone(), packets, bytes }
        });
        self.edges = edges.collect();
        for nf in &tally.nodes {
            let (packets, bytes) = sum(&nf.sum);
            let nodes = &mut self.nodes;
            if let Some(row) = nodes.iter_mut().find(|row| row.name == nf.name) {
                row.packets = row.packets.wrapping_add(packets);
                row.bytes = row.bytes.wrapping_add(bytes);
                continue;
            }
            let is_nf = |row: &NodeReport| !matches!(row.kind.as_str(), "rx" | "gate");
            let behind = nodes.iter().position(|row| nf.behind.as_ref() == Some(&row.name));
            let at = behind.map(|at| at + 1).or_else(|| nodes.iter().position(is_nf));
            let at = at.unwrap_or(nodes.len());
            let row = NodeReport {
                name: nf.name.clone(),
                instance: 1,
                kind: nf.kind.clone(),
                worker: String::new(),
                packets,
                bytes,
                drops: BTreeMap::new(),
                ns_per_packet: None,
                report: serde_json::Value::Null,
                instances: Vec::new(),
                removed: false,
            };
            nodes.insert(at, row);
        }
    }

    /// Sums up what the µNFs of each VNF did, from the policy's own counters.
    fn sum_vnfs(&mut self, tally: &Tally) {
        let sum = |edges: &[usize]| {
            let counts = edges.iter().filter_map(|edge| self.edges.get(*edge));
            counts.fold((0_u64, 0_u64), |(packets, bytes), edge| {
                (packets.wrapping_add(edge.packets), bytes.wrapping_add(edge.bytes))
            })
        };
        let mut vnfs = Vec::new();
        for vnf in &tally.vnfs {
            let (packets, bytes) = sum(&vnf.ins);
            let mut drops: BTreeMap<&'static str, u64> = BTreeMap::new();
            for row in self.nodes.iter().filter(|row| vnf.nodes.contains(&row.name)) {
                for (reason, count) in &row.drops {
                    *drops.entry(*reason).or_default() += count;
                }
            }
            vnfs.push(VnfReport {
                name: vnf.instance.clone(),
                template: vnf.template.clone(),
                nodes: vnf.nodes.clone(),
                packets,
                bytes,
                out: sum(&vnf.outs).0,
                drops,
            });
        }
        self.vnfs = vnfs;
    }

    fn add_worker(&mut self, agent: &Agent, w: usize) {
        let (Some(worker), Some(layout)) = (agent.setup().workers.get(w), agent.layout(w)) else {
            return;
        };
        let words = agent.words(w).unwrap_or_default();
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        // What the devices counted in earlier generations is those'.
        let before = agent.inherited(w);
        let place: Place =
            std::array::from_fn(|i| word(layout.place + i).saturating_sub(before[i]));
        let reports = agent.reports(w);
        // By node: its row.
        let mut rows: Vec<usize> = Vec::with_capacity(worker.nodes.len());
        for (n, node) in worker.nodes.iter().enumerate() {
            rows.push(self.nodes.len());
            let counts = NodeCounts::read(&words, &layout, n);
            if node.sync.is_some() {
                self.add_drops_of_branch(&node.name, &counts, agent.offences(w) == 0);
                continue;
            }
            let (name, kind) = match (&worker.end, &node.nf) {
                (EndSpec::Rx { device, .. }, _) => {
                    self.balance.input += counts.packets;
                    self.balance.devices_in += match device {
                        DeviceSpec::Pcap { .. } => place[3],
                        DeviceSpec::Generator(_)
                        | DeviceSpec::Listed(_)
                        | DeviceSpec::Replay(_)
                        | DeviceSpec::Afp(_)
                        | DeviceSpec::Tap(_) => place[0],
                        DeviceSpec::Null => 0,
                    };
                    (worker.name.clone(), "rx".to_owned())
                }
                (EndSpec::Tx { device, .. }, _) => {
                    // What the device could not send is among the drops.
                    let sent = counts.packets.saturating_sub(counts.dropped());
                    self.balance.out += sent;
                    self.balance.devices_out += match device {
                        DeviceSpec::Pcap { .. } => place[3],
                        DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => place[0],
                        // It keeps no count of its own.
                        DeviceSpec::Generator(_)
                        | DeviceSpec::Listed(_)
                        | DeviceSpec::Replay(_)
                        | DeviceSpec::Null => sent,
                    };
                    (worker.name.clone(), "tx".to_owned())
                }
                (EndSpec::Gate { .. }, _) => {
                    self.copied_bytes += counts.bytes;
                    (worker.name.clone(), "gate".to_owned())
                }
                // Counted as dropped where they were.
                (EndSpec::Dump(_), _) => (worker.name.clone(), "dump".to_owned()),
                (EndSpec::Drain, _) => (node.name.clone(), "quarantined".to_owned()),
                (EndSpec::None, nf) => {
                    let kind = nf.as_ref().map_or_else(String::new, |(kind, _)| kind.clone());
                    (node.name.clone(), kind)
                }
            };
            // What a hostile worker says that it dropped is not believed.
            if agent.offences(w) == 0 {
                self.balance.dropped = self.balance.dropped.wrapping_add(counts.dropped());
            }
            let drops = DropReason::ALL.iter().map(|r| (r.name(), counts.drops[*r as usize]));
            let drops = drops.filter(|(_, n)| *n > 0);
            let timed = counts.timed_packets;
            if let Some(first) = node.instance_of.filter(|_| node.again) {
                let row = rows.get(usize::from(first)).and_then(|row| self.nodes.get_mut(*row));
                if let Some(row) = row {
                    let own = (timed > 0).then(|| counts.timed_ns as f64 / timed as f64);
                    let all = [(row.ns_per_packet, row.packets), (own, counts.packets)];
                    row.ns_per_packet = mean(all);
                    row.packets = row.packets.wrapping_add(counts.packets);
                    row.bytes = row.bytes.wrapping_add(counts.bytes);
                    for (reason, n) in drops {
                        *row.drops.entry(reason).or_default() += n;
                    }
                }
                continue;
            }
            self.nodes.push(NodeReport {
                name,
                instance: u32::from(node.instance()) + 1,
                kind,
                worker: worker.name.clone(),
                packets: counts.packets,
                bytes: counts.bytes,
                drops: drops.collect(),
                ns_per_packet: (timed > 0).then(|| counts.timed_ns as f64 / timed as f64),
                report: match &worker.end {
                    EndSpec::Rx { early, .. } => early::report(early, &words, &layout),
                    _ => reports
                        .get(n)
                        .and_then(|r| serde_json::from_str(r).ok())
                        .unwrap_or(serde_json::Value::Null),
                },
                instances: Vec::new(),
                removed: false,
            });
        }
        for (i, edge) in worker.edges.iter().enumerate() {
            if let Some(edge) = self.edges.get_mut(*edge as usize) {
                edge.packets = edge.packets.wrapping_add(word(layout.edges + i * EDGE_WORDS));
                edge.bytes = edge.bytes.wrapping_add(word(layout.edges + i * EDGE_WORDS + 1));
            }
        }
        self.balance.created += word(layout.created);
        self.balance.copied += word(layout.copied);
        let (lost, restarts) = agent.toll(w);
        self.balance.lost += lost;
        let rejected = word(layout.rejected);
        let offences = agent.offences(w);
        let name = worker.name.clone();
        let forgotten = agent.forgotten(w);
        let (recovered, unsent) = (agent.recovered(w), agent.unsent(w));
        self.workers.push(WorkerReport {
            name,
            restarts,
            lost,
            rejected,
            forgotten,
            recovered,
            unsent,
            offences,
        });
    }

    /// What the branch of a parallel stage that ends with the NF `name` had dropped: the sync port counts it,
    /// and it is the NF's.
    fn add_drops_of_branch(&mut self, name: &str, counts: &NodeCounts, believed: bool) {
        if believed {
            self.balance.dropped = self.balance.dropped.wrapping_add(counts.dropped());
        }
        let of = |row: &&mut NodeReport| row.name == name && row.kind != "rx" && row.kind != "tx";
        let Some(row) = self.nodes.iter_mut().find(of) else { return };
        for reason in DropReason::ALL {
            let n = counts.drops[*reason as usize];
            if n > 0 {
                *row.drops.entry(reason.name()).or_default() += n;
            }
        }
    }

    /// The tables for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let rows = self.nodes.iter().map(|n| {
            let drops: Vec<_> = n.drops.iter().map(|(r, c)| format!("{r} {c}")).collect();
            let ns = n.ns_per_packet.map_or_else(|| "-".into(), |ns| format!("{ns:.1}"));
            [
                if n.removed { format!("{} (removed)", n.name) } else { n.name.clone() },
                n.kind.clone(),
                n.packets.to_string(),
                n.bytes.to_string(),
                ns,
                if drops.is_empty() { "-".into() } else { drops.join(", ") },
            ]
        });
        let head = ["nf", "type", "packets", "bytes", "ns/packet", "drops"];
        render(&mut out, head, rows.collect(), &[2, 3, 4]);
        out.push('\n');
        if !self.vnfs.is_empty() {
            let rows = self.vnfs.iter().map(|v| {
                let drops: Vec<_> = v.drops.iter().map(|(r, c)| format!("{r} {c}")).collect();
                [
                    v.name.clone(),
                    v.template.clone(),
                    v.packets.to_string(),
                    v.bytes.to_string(),
                    v.out.to_string(),
                    if drops.is_empty() { "-".into() } else { drops.join(", ") },
                ]
            });
            let head = ["vnf", "template", "packets", "bytes", "out", "drops"];
            render(&mut out, head, rows.collect(), &[2, 3, 4]);
            out.push('\n');
        }
        let rows = self.edges.iter();
        let rows = rows.map(|e| [e.name.clone(), e.packets.to_string(), e.bytes.to_string()]);
        render(&mut out, ["edge", "packets", "bytes"], rows.collect(), &[1, 2]);
        out.push('\n');
        for w in self.workers.iter().filter(|w| w.restarts > 0 || w.lost > 0 || w.rejected > 0) {
            out += &format!(
                "worker {}: restarted {} times, {} packets lost, {} entries rejected\n",
                w.name, w.restarts, w.lost, w.rejected
            );
            if w.offences > 0 {
                out += &format!("worker {}: named {} times for nonsense\n", w.name, w.offences);
            }
        }
        for (name, times) in &self.crashed {
            let first = self.crashes.iter().find(|crash| crash.name() == name);
            let cause = first.map_or_else(String::new, |crash| {
                let cause: Vec<_> = crash.cause.split_whitespace().collect();
                format!(", first: {}", cause.join(" "))
            });
            out += &format!("{name} crashed {times} times{cause}\n");
        }
        if self.copied_bytes > 0 {
            out += &format!("copied between trust domains: {} bytes\n", self.copied_bytes);
        }
        for r in &self.relinks {
            out += &format!(
                "relinked: {:.1} ms without input, {} packets missed by devices; {:.0} ms of preparation\n",
                r.pause_ms, r.missed, r.prepared_ms
            );
        }
        let b = &self.balance;
        out += &format!(
            "balance: in {} + copied {} + created {} = out {} + dropped {} + consumed {} + lost {}{}: {}\n",
            b.input,
            b.copied,
            b.created,
            b.out,
            b.dropped,
            b.consumed,
            b.lost,
            if b.hostile == 0 { String::new() } else { format!(" + hostile {}", b.hostile) },
            if b.holds() { "holds" } else { "DOES NOT HOLD" },
        );
        let c = &self.census;
        out += &format!(
            "buffers: free {} + in rings {} + held {} = {}: {}\n",
            c.free,
            c.in_lanes,
            c.held,
            c.buffers,
            if c.is_clean() { "all back" } else { "NOT ALL BACK" },
        );
        out
    }
}

/// A plain table: columns in `right` are numbers.
fn render<const N: usize>(
    out: &mut String,
    head: [&str; N],
    rows: Vec<[String; N]>,
    right: &[usize],
) {
    let width: [usize; N] = std::array::from_fn(|i| {
        let cells = rows.iter().map(|r| r[i].chars().count());
        cells.chain([head[i].len()]).max().unwrap_or(0)
    });
    let mut line = |cells: [&str; N]| {
        let cells = cells.iter().enumerate().map(|(i, c)| {
            if right.contains(&i) {
                format!("{c:>w$}", w = width[i])
            } else {
                format!("{c:<w$}", w = width[i])
            }
        });
        let text = cells.collect::<Vec<_>>().join("  ");
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(head);
    for row in &rows {
        line(std::array::from_fn(|i| row[i].as_str()));
    }
}

/// What a packet takes in all, of places with so many packets each.
fn mean(places: [(Option<f64>, u64); 2]) -> Option<f64> {
    let timed = || places.iter().filter_map(|(ns, packets)| Some((*ns.as_ref()?, *packets as f64)));
    let packets: f64 = timed().map(|(_, packets)| packets).sum();
    (packets > 0.0).then(|| timed().map(|(ns, packets)| ns * packets).sum::<f64>() / packets)
}
