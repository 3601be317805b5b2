//! Looking at flows: which a filter chooses, and what is said of them.
//!
//! A table of a million flows takes half a second to go through, so it is done in steps between batches: packets wait no longer than
//! for one step.

use super::frame::frame;
use super::order::{FlowLine, FlowTotal};
use crate::segment::Segment;
use crate::spec::FromWorker;
use weir_filter::{CompileError, Expr, Filter};
use weir_nf::{FlowSeen, Walk};
use weir_packet::{Direction, FlowKey};

/// Places of a table that are looked at between two batches: some 0.5 ms, with a filter.
pub(super) const LOOK: usize = 1024;

/// A filter over flows: true for a flow when it is for a packet of one of its keys, in either direction. The packet has what
/// the key has: addresses, ports, protocol, VLANs; nothing else of it says anything.
pub(super) struct Chooser(Option<Filter>);

impl Chooser {
    pub(super) fn new(filter: Option<&Expr>) -> Result<Self, CompileError> {
        Ok(Chooser(filter.map(Filter::compile_for_few).transpose()?))
    }

    pub(super) fn takes(&self, keys: &[FlowKey]) -> bool {
        let Some(filter) = &self.0 else { return true };
        let matches = |key: &FlowKey, direction| filter.matches(frame(key, direction).as_slice());
        keys.iter().any(|key| matches(key, Direction::Up) || matches(key, Direction::Down))
    }
}

/// What is to be said of a segment's flows, as far as it has been found.
pub(crate) struct Listing {
    ticket: u64,
    chooser: Chooser,
    /// Lines of flows, at most.
    most: usize,
    node: usize,
    walk: Walk,
    /// Flows of the node that were chosen.
    count: u64,
    totals: Vec<FlowTotal>,
    lines: Vec<FlowLine>,
}

impl Listing {
    /// One to begin; `None` for a filter that cannot be, which the agent does not send.
    pub(crate) fn new(ticket: u64, filter: Option<&Expr>, most: u32) -> Option<Self> {
        Some(Listing {
            ticket,
            chooser: Chooser::new(filter).ok()?,
            most: most as usize,
            node: 0,
            walk: Walk::default(),
            count: 0,
            totals: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// Goes on by a step; the answer when that was the last: by node that keeps any flows how many there are and how many were
    /// chosen; and of those the first.
    pub(crate) fn go_on(&mut self, segment: &Segment) -> Option<FromWorker> {
        let nf = loop {
            let Some(node) = segment.nodes.get(self.node) else {
                let (totals, lines) =
                    (std::mem::take(&mut self.totals), std::mem::take(&mut self.lines));
                return Some(FromWorker::Flows { ticket: self.ticket, totals, lines });
            };
            match node.nf.as_ref().filter(|nf| nf.descriptor().flows > 0) {
                Some(nf) => break nf,
                None => self.node += 1,
            }
        };
        let Ok(at) = u16::try_from(self.node) else { return None };
        let Listing { chooser, most, walk, count, lines, .. } = self;
        let now = nf.now_ns();
        let goes_on = nf.look_at_flows(walk, LOOK, &mut |seen: FlowSeen<'_>| {
            if !chooser.takes(seen.keys) {
                return;
            }
            *count += 1;
            if lines.len() < *most {
                lines.push(FlowLine {
                    node: at,
                    keys: seen.keys.iter().map(|key| key.to_bytes().to_vec()).collect(),
                    age_ns: now.saturating_sub(seen.born_ns),
                    idle_ns: now.saturating_sub(seen.last_ns),
                });
            }
        });
        if !goes_on {
            let ((flows, refused), chosen) = (nf.flows(), std::mem::take(&mut self.count));
            self.totals.push(FlowTotal {
                node: at,
                flows: flows as u64,
                chosen,
                moved: 0,
                most: nf.most_flows(),
                refused,
                bytes: nf.flow_bytes() as u64,
            });
            (self.node, self.walk) = (self.node + 1, Walk::default());
        }
        None
    }
}
