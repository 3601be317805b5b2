//! Looking at flows: which a filter chooses, and what is said of them.

use super::frame::frame;
use super::order::FlowLine;
use crate::segment::Segment;
use weir_filter::{CompileError, Expr, Filter};
use weir_nf::{FlowSeen, Instance, Walk};
use weir_packet::{Direction, FlowKey};

/// A filter over flows: true for a flow when it is for a packet of one of its keys, in either direction. The packet has what
/// the key has: addresses, ports, protocol, VLANs; nothing else of it says anything.
pub(super) struct Chooser(Option<Filter>);

impl Chooser {
    pub(super) fn new(filter: Option<&Expr>) -> Result<Self, CompileError> {
        Ok(Chooser(filter.map(Filter::compile).transpose()?))
    }

    fn takes(&self, keys: &[FlowKey]) -> bool {
        let Some(filter) = &self.0 else { return true };
        let matches = |key: &FlowKey, direction| filter.matches(frame(key, direction).as_slice());
        keys.iter().any(|key| matches(key, Direction::Up) || matches(key, Direction::Down))
    }
}

/// Shows the flows of a µNF that a filter chooses.
pub(super) fn chosen(nf: &dyn Instance, filter: Option<&Expr>, show: &mut dyn FnMut(FlowSeen<'_>)) {
    // The agent has compiled it before.
    let Ok(chooser) = Chooser::new(filter) else { return };
    let mut walk = Walk::default();
    let mut look = |seen: FlowSeen<'_>| {
        if chooser.takes(seen.keys) {
            show(seen);
        }
    };
    while nf.look_at_flows(&mut walk, usize::MAX, &mut look) {}
}

impl Segment {
    /// What there is to say of its flows: by node that keeps any, how many there are and how many a filter chooses;
    /// and of those the first `most`.
    pub(crate) fn list_flows(
        &self,
        filter: Option<&Expr>,
        most: usize,
    ) -> (Vec<(u16, u64, u64)>, Vec<FlowLine>) {
        let (mut totals, mut lines) = (Vec::new(), Vec::new());
        for (node, i) in self.nodes.iter().zip(0..=u16::MAX) {
            let Some(nf) = node.nf.as_ref().filter(|nf| nf.descriptor().flows > 0) else {
                continue;
            };
            let (now, mut count) = (nf.now_ns(), 0);
            chosen(nf.as_ref(), filter, &mut |seen| {
                count += 1;
                if lines.len() < most {
                    lines.push(FlowLine {
                        node: i,
                        keys: seen.keys.iter().map(|key| key.to_bytes().to_vec()).collect(),
                        age_ns: now.saturating_sub(seen.born_ns),
                        idle_ns: now.saturating_sub(seen.last_ns),
                    });
                }
            });
            totals.push((i, nf.flows().0 as u64, count));
        }
        (totals, lines)
    }
}
