//! How much each NF has to do, for whoever asks from outside.

use super::Agent;
use super::scale::counts;
use crate::crews::instance_at;

/// How much an instance of an NF has to do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LoadRow {
    /// Name of the NF.
    pub nf: String,
    /// Its instance, from 1, where it has several.
    pub instance: Option<u32>,
    /// Its worker.
    pub worker: String,
    /// Whether that takes packets; one that is being started does not.
    pub ready: bool,
    /// How full the fullest of the worker's rings in is, in hundredths.
    pub input: u8,
    /// How full the fullest of its rings out is, in hundredths: from a half on it waits for those behind it.
    pub output: u8,
    /// Packets that the NF has had.
    pub packets: u64,
    /// Packets that it has dropped.
    pub dropped: u64,
}

impl Agent {
    /// What each NF, or that of this name, has to do just now: read from memory, nobody is asked.
    pub fn load_of(&self, nf: Option<&str>) -> Vec<LoadRow> {
        let mut rows: Vec<LoadRow> = Vec::new();
        let nfs = self.setup.workers.iter().enumerate().filter(|(_, worker)| worker.runs_nfs());
        for (w, worker) in nfs {
            let (input, output) = self.filled(w);
            // By node: its row.
            let mut own: Vec<usize> = Vec::with_capacity(worker.nodes.len());
            for (at, node) in worker.nodes.iter().enumerate() {
                own.push(rows.len());
                if nf.is_some_and(|nf| nf != node.name) {
                    continue;
                }
                let counts = counts(&self.memory, w, at);
                let dropped = counts
                    .as_ref()
                    .map_or(0, |c| c.drops.iter().fold(0, |a: u64, b| a.wrapping_add(*b)));
                if let Some(first) = node.instance_of.filter(|_| node.again) {
                    let row = own.get(usize::from(first)).and_then(|row| rows.get_mut(*row));
                    if let Some(row) = row {
                        let packets = counts.as_ref().map_or(0, |counts| counts.packets);
                        row.packets = row.packets.wrapping_add(packets);
                        row.dropped = row.dropped.wrapping_add(dropped);
                    }
                    continue;
                }
                rows.push(LoadRow {
                    nf: node.name.clone(),
                    instance: instance_at(&self.setup, self.memory.crews(), (w, at)),
                    worker: worker.name.clone(),
                    ready: self.liveness.is_ready(w),
                    input,
                    output,
                    packets: counts.as_ref().map_or(0, |counts| counts.packets),
                    dropped,
                });
            }
        }
        rows.sort_by(|a, b| (&a.nf, a.instance, &a.worker).cmp(&(&b.nf, b.instance, &b.worker)));
        rows
    }

    /// How full the fullest of worker `w`'s rings in and out are, in hundredths.
    fn filled(&self, w: usize) -> (u8, u8) {
        let (mut input, mut output) = (0, 0);
        for (lane, ring) in self.setup.lanes.iter().zip(&self.memory.lanes) {
            let (len, capacity) = (ring.inspector.len(), ring.inspector.capacity().max(1));
            let full = (len * 100 / capacity).min(100) as u8;
            if lane.has_packets() && lane.to == w {
                input = input.max(full);
            }
            if lane.has_packets() && lane.from == w {
                output = output.max(full);
            }
        }
        (input, output)
    }
}
