//! The reports of a graph's generations as one.

use crate::census::Census;
use crate::instances::InstanceReport;
use crate::report::{Balance, EdgeReport, NodeReport, Report, VnfReport, WorkerReport};
use serde_json::Value;
use std::collections::BTreeMap;

impl Report {
    /// Adds what an earlier generation of the same run counted. What its NFs reported goes for those only that are in
    /// no later one: what the others know went over.
    pub fn add_earlier(&mut self, earlier: Report) {
        for node in earlier.nodes {
            add_node(&mut self.nodes, node);
        }
        for edge in earlier.edges {
            match self.edges.iter_mut().find(|e| e.name == edge.name) {
                Some(own) => {
                    own.packets = own.packets.wrapping_add(edge.packets);
                    own.bytes = own.bytes.wrapping_add(edge.bytes);
                }
                None => self.edges.push(EdgeReport { ..edge }),
            }
        }
        for vnf in earlier.vnfs {
            add_vnf(&mut self.vnfs, vnf);
        }
        for worker in earlier.workers {
            add_worker(&mut self.workers, worker);
        }
        self.copied_bytes = self.copied_bytes.wrapping_add(earlier.copied_bytes);
        let later = std::mem::replace(&mut self.crashes, earlier.crashes);
        self.crashes.extend(later);
        for (name, times) in earlier.crashed {
            *self.crashed.entry(name).or_default() += times;
        }
        let later = std::mem::replace(&mut self.relinks, earlier.relinks);
        self.relinks.extend(later);
        self.balance = sum(&self.balance, &earlier.balance);
        self.census = both(&self.census, &earlier.census);
        if self.workers.iter().any(|w| w.offences > 0) {
            self.balance.hostile = self.balance.missing();
        }
        self.sound = self.balance.holds() && self.census.is_clean();
    }
}

fn add_drops(own: &mut BTreeMap<&'static str, u64>, earlier: BTreeMap<&'static str, u64>) {
    for (reason, count) in earlier {
        let sum = own.entry(reason).or_default();
        *sum = sum.wrapping_add(count);
    }
}

fn add_node(nodes: &mut Vec<NodeReport>, mut earlier: NodeReport) {
    let same = |n: &&mut NodeReport| n.name == earlier.name && n.kind == earlier.kind;
    let Some(own) = nodes.iter_mut().find(same) else {
        // A gate comes and goes with the plan.
        let removed = earlier.kind != "gate";
        nodes.push(NodeReport { removed, ..earlier });
        return;
    };
    // Where there are several, or were, each has a row: also one that was alone.
    if own.instances.is_empty() && !earlier.instances.is_empty() {
        own.instances.push(alone(own));
    }
    let mut instances = std::mem::take(&mut earlier.instances);
    if instances.is_empty() && !own.instances.is_empty() {
        instances.push(alone(&earlier));
    }
    instances.into_iter().for_each(|instance| add_instance(&mut own.instances, instance));
    own.packets = own.packets.wrapping_add(earlier.packets);
    own.bytes = own.bytes.wrapping_add(earlier.bytes);
    own.ns_per_packet = own.ns_per_packet.or(earlier.ns_per_packet);
    add_drops(&mut own.drops, earlier.drops);
    if own.kind == "rx" {
        crate::early::add(&mut own.report, earlier.report);
    }
}

/// The row of the only instance of an NF.
fn alone(node: &NodeReport) -> InstanceReport {
    InstanceReport {
        instance: 1,
        worker: node.worker.clone(),
        packets: node.packets,
        bytes: node.bytes,
        drops: node.drops.clone(),
        ns_per_packet: node.ns_per_packet,
        report: Value::Null,
    }
}

fn add_instance(instances: &mut Vec<InstanceReport>, earlier: InstanceReport) {
    // Several may share a worker.
    let same = |own: &&mut InstanceReport| {
        (&own.worker, own.instance) == (&earlier.worker, earlier.instance)
    };
    match instances.iter_mut().find(same) {
        Some(own) => {
            own.packets = own.packets.wrapping_add(earlier.packets);
            own.bytes = own.bytes.wrapping_add(earlier.bytes);
            own.ns_per_packet = own.ns_per_packet.or(earlier.ns_per_packet);
            add_drops(&mut own.drops, earlier.drops);
        }
        // What it remembered is in the others' reports.
        None => instances.push(InstanceReport { report: Value::Null, ..earlier }),
    }
}

fn add_vnf(vnfs: &mut Vec<VnfReport>, earlier: VnfReport) {
    let same = |v: &&mut VnfReport| v.name == earlier.name && v.template == earlier.template;
    let Some(own) = vnfs.iter_mut().find(same) else {
        vnfs.push(earlier);
        return;
    };
    own.packets = own.packets.wrapping_add(earlier.packets);
    own.bytes = own.bytes.wrapping_add(earlier.bytes);
    own.out = own.out.wrapping_add(earlier.out);
    add_drops(&mut own.drops, earlier.drops);
}

fn add_worker(workers: &mut Vec<WorkerReport>, earlier: WorkerReport) {
    let Some(own) = workers.iter_mut().find(|w| w.name == earlier.name) else {
        workers.push(earlier);
        return;
    };
    own.restarts = own.restarts.saturating_add(earlier.restarts);
    own.lost = own.lost.wrapping_add(earlier.lost);
    own.rejected = own.rejected.wrapping_add(earlier.rejected);
    own.forgotten = own.forgotten.saturating_add(earlier.forgotten);
    own.recovered.add(earlier.recovered);
    own.unsent = own.unsent.saturating_add(earlier.unsent);
    own.offences = own.offences.saturating_add(earlier.offences);
}

fn sum(a: &Balance, b: &Balance) -> Balance {
    Balance {
        input: a.input.wrapping_add(b.input),
        copied: a.copied.wrapping_add(b.copied),
        created: a.created.wrapping_add(b.created),
        out: a.out.wrapping_add(b.out),
        dropped: a.dropped.wrapping_add(b.dropped),
        consumed: a.consumed.wrapping_add(b.consumed),
        lost: a.lost.wrapping_add(b.lost),
        devices_in: a.devices_in.wrapping_add(b.devices_in),
        devices_out: a.devices_out.wrapping_add(b.devices_out),
        hostile: a.hostile.wrapping_add(b.hostile),
    }
}

fn both(a: &Census, b: &Census) -> Census {
    Census {
        buffers: a.buffers + b.buffers,
        free: a.free + b.free,
        in_lanes: a.in_lanes + b.in_lanes,
        held: a.held + b.held,
        doubled: a.doubled + b.doubled,
    }
}
