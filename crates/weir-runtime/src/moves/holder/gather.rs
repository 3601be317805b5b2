//! What several µNFs remember, brought together by flow.

use crate::moves::Flows;
use std::collections::HashMap;
use weir_packet::FlowKey;

/// Records that were taken out of tables one after the other, by each flow's first key.
#[derive(Default)]
pub(super) struct Gathered {
    /// Place in `flows`.
    at: HashMap<FlowKey, usize>,
    flows: Vec<Vec<(u16, Vec<u8>)>>,
}

impl Gathered {
    /// Adds what µNF `nf` remembers of a flow.
    pub(super) fn add(&mut self, key: &FlowKey, nf: u16, record: &[u8]) {
        let at = *self.at.entry(*key).or_insert(self.flows.len());
        if at == self.flows.len() {
            self.flows.push(Vec::new());
        }
        if let Some(flow) = self.flows.get_mut(at) {
            flow.push((nf, record.to_vec()));
        }
    }

    /// Writes all of it behind what is in `to`; how many flows they are.
    pub(super) fn write(&self, to: &mut Flows) -> u64 {
        for flow in &self.flows {
            for (i, (nf, record)) in flow.iter().enumerate() {
                to.push(i == 0, *nf, record);
            }
        }
        self.flows.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::flow::PortKind;

    #[test]
    fn what_several_nfs_remember_of_a_flow_stands_together() {
        let ends = |port| ([10, 0, 0, 1].into(), port);
        let key = |port| FlowKey::between(ends(port), ends(80), 6, PortKind::Ports, 0).unwrap().0;
        let mut gathered = Gathered::default();
        for (port, nf, record) in [(1, 0, b"a0"), (2, 0, b"b0"), (2, 1, b"b1"), (1, 2, b"a2")] {
            gathered.add(&key(port), nf, record);
        }
        let mut flows = Flows::default();
        assert_eq!(gathered.write(&mut flows), 2);
        let records: Vec<_> = flows.records().map(|r| (r.begins, r.nf, r.bytes)).collect();
        let all = [(true, 0, b"a0"), (false, 2, b"a2"), (true, 0, b"b0"), (false, 1, b"b1")];
        assert_eq!(records, all.map(|(begins, nf, bytes)| (begins, nf, &bytes[..])));
    }
}
