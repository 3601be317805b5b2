//! Where packets go that leave a node.

use super::{Wiring, stages};
use weir_plan::{
    Branch, Edge, EdgeId, EdgeKind, Field, Group, Key, Mark, Node, NodeId, NodeKind, Plan, Segment,
    SegmentId, Share, Spread,
};
use weir_runtime::spec::{
    BranchSpec, GroupSpec, MarkSpec, PartSpec, ShareSpec, SpreadSpec, TargetSpec,
};

/// An NF of several instances, as workers are told of it.
pub(super) fn group(group: &Group) -> GroupSpec {
    let spread = match group.spread {
        Spread::InTurn | Spread::By(Key::Any) => SpreadSpec::InTurn,
        Spread::LeastLoaded => SpreadSpec::LeastLoaded,
        Spread::By(Key::Source) => SpreadSpec::Source,
        Spread::By(Key::Tuple) => SpreadSpec::Tuple,
        Spread::By(Key::Flow) => SpreadSpec::Flow,
        Spread::By(Key::Ends) => SpreadSpec::Ends,
        Spread::By(Key::Client) => SpreadSpec::Client,
        Spread::By(Key::Fields { fields, symmetric }) => SpreadSpec::Fields {
            addresses: (fields.has(Field::IpSrc), fields.has(Field::IpDst)),
            ports: (fields.has(Field::L4Src), fields.has(Field::L4Dst)),
            proto: fields.has(Field::IpProto),
            symmetric,
        },
    };
    GroupSpec { weights: group.weights.clone(), spread, table: None }
}

impl Wiring<'_> {
    pub(super) fn outputs(
        &self,
        id: SegmentId,
        segment: &Segment,
        (number, node, round): (NodeId, &Node, u32),
        edges: &[EdgeId],
    ) -> Vec<Vec<BranchSpec>> {
        let Wiring { plan, tags, arrays, .. } = self;
        let held = self.held.get(number.index()).copied().unwrap_or(false);
        let before = stages::nodes_before(plan, id);
        let target = |edge: EdgeId| {
            let edge = plan.edges.get(edge.index());
            match edge.map(|e| (e.kind, e)) {
                Some((EdgeKind::Direct { segment: s }, e)) if s == id => {
                    let closes = plan.graph.edge(e.id).is_some_and(|e| e.closes);
                    let place = place_of(segment, e.to, round + u32::from(closes));
                    // Where no packet comes there is nothing.
                    place.map_or(TargetSpec::Drop, |place| TargetSpec::Node {
                        node: (before + place) as u16,
                        input: e.input as u8,
                    })
                }
                Some((EdgeKind::Ring, e)) if plan.graph.edge(e.id).is_some_and(|e| e.closes) => {
                    TargetSpec::Back
                }
                Some((EdgeKind::Stage, _)) => TargetSpec::Answer,
                Some((EdgeKind::Ring, e)) => {
                    arrays.target(id, edges, e.id).unwrap_or(TargetSpec::Lane)
                }
                _ => TargetSpec::Drop,
            }
        };
        let mark = |m: &Mark| MarkSpec { slot: m.slot, mask: m.mask, word: m.word };
        let share = |s: Share| ShareSpec {
            group: s.group as u16,
            index: s.index as u8,
            side: s.side as u8,
        };
        let shared = |edge: &Edge| edge.share.map(share);
        let branch = |b: &Branch| BranchSpec {
            share: plan.graph.edge(b.edge).and_then(shared),
            filter: b.filter.as_ref().map(|filter| tags.place(filter)),
            edge: edges.iter().position(|e| *e == b.edge).map(|i| i as u16),
            target: target(b.edge),
            marks: tags.marks(b.edge).iter().map(mark).collect(),
            held,
        };
        let output = |o: &weir_plan::Output| {
            let mut branches: Vec<_> = o.branches.iter().map(branch).collect();
            if o.default_drop && branches.last().is_none_or(|b| b.filter.is_some()) {
                branches.push(BranchSpec {
                    filter: None,
                    edge: None,
                    target: TargetSpec::Drop,
                    marks: Vec::new(),
                    held: false,
                    share: None,
                });
            }
            branches
        };
        // The last of a parallel stage: its outputs lead on from the sync port.
        let leads_on = stages::branch_of(plan, id).is_some_and(|stage| stage.last == number);
        if leads_on && segment.nodes.contains(&number) {
            let answer = || BranchSpec {
                filter: None,
                edge: None,
                target: TargetSpec::Answer,
                marks: Vec::new(),
                held: false,
                share: None,
            };
            return node.outputs.iter().map(|_| vec![answer()]).collect();
        }
        node.outputs.iter().map(output).collect()
    }
}

/// The place among a segment's NFs, and those that stand there once more, of one that packets have come to after so many `rounds`.
pub(super) fn place_of(segment: &Segment, node: NodeId, rounds: u32) -> Option<usize> {
    match rounds {
        0 => segment.nodes.iter().position(|n| *n == node),
        _ => {
            let again = segment.again.iter().position(|own| *own == (node, rounds))?;
            Some(segment.nodes.len() + again)
        }
    }
}

/// Which instance a node is, of an NF that has several.
pub(super) fn part_of(plan: &Plan, node: NodeId) -> Option<PartSpec> {
    let mut groups = plan.groups.iter().zip(0..);
    groups.find_map(|(group, number)| {
        let index = group.nodes.iter().position(|own| *own == node)?;
        Some(PartSpec { group: number, index: index as u8 })
    })
}

/// The node of the segment whose instance `node` is too, where the plan has merged them, or it stands there once more.
/// `before` nodes of sync ports stand before its own.
pub(super) fn instance_of(
    plan: &Plan,
    segment: &Segment,
    before: usize,
    (node, round): (NodeId, u32),
) -> Option<u16> {
    let own = place_of(segment, node, 0).filter(|_| round > 0);
    let remembers = match plan.graph.node(node).map(|n| &n.kind) {
        Some(NodeKind::Nf { info, .. }) => info.work.keeps,
        _ => true,
    };
    let merged = plan.merged.iter().find(|group| group.contains(&node) && !remembers);
    let merged = merged.and_then(|group| segment.nodes.iter().position(|n| group.contains(n)));
    let is_first = |at: &usize| segment.nodes.get(*at) == Some(&node) && round == 0;
    let lender = merged.or(own).filter(|at| !is_first(at))?;
    Some((before + lender) as u16)
}
