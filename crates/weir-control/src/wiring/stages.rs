//! Parallel stages: their lanes, and the nodes of their sync ports.

use super::Wiring;
use crate::setup::LaneCarries;
use weir_plan::{
    Carries, EdgeId, FieldSet, Lane, NodeKind, Plan, PlanEdge, Running, Segment, SegmentId,
};
use weir_runtime::spec::NodeSpec;

/// The stage of which a segment is a branch.
pub(super) fn branch_of(plan: &Plan, id: SegmentId) -> Option<&Running> {
    plan.stages.iter().find(|stage| stage.branches.contains(&id))
}

/// The fields that the other branches of its stage write while a segment is given packets; none of one that is no branch.
pub(super) fn written_beside(plan: &Plan, id: SegmentId) -> u32 {
    let others = branch_of(plan, id).into_iter().flat_map(|stage| &stage.branches);
    let nodes = others.filter(|other| **other != id).filter_map(|other| plan.segment(*other));
    let infos = nodes.flat_map(|segment| &segment.nodes).filter_map(|node| plan.graph.node(*node));
    let writes = infos.filter_map(|node| match &node.kind {
        NodeKind::Nf { info, .. } => Some(info.work.touched().writes),
        _ => None,
    });
    writes.fold(FieldSet::EMPTY, FieldSet::or).bits()
}

/// The stages whose sync port a segment has, with their numbers.
pub(super) fn syncs_of(plan: &Plan, id: SegmentId) -> impl Iterator<Item = (usize, &Running)> {
    plan.stages.iter().enumerate().filter(move |(_, stage)| stage.sync == id)
}

/// The nodes of sync ports, which stand before a segment's own.
pub(super) fn nodes_before(plan: &Plan, id: SegmentId) -> usize {
    syncs_of(plan, id).map(|(_, stage)| stage.branches.len()).sum()
}

/// The node of a segment at which the packets of stage `stage` go on.
pub(super) fn sync_node(plan: &Plan, id: SegmentId, stage: usize) -> usize {
    let until = syncs_of(plan, id).take_while(|(n, _)| *n <= stage);
    until.map(|(_, stage)| stage.branches.len()).sum::<usize>().saturating_sub(1)
}

/// The stage that a lane of packets leads into.
pub(super) fn entered(plan: &Plan, lane: &Lane) -> Option<usize> {
    plan.stages.iter().position(|stage| stage.entry == lane.edge && stage.sync == lane.to)
}

/// Whether packets leave segment `id` by `edge`, if they do by any edge of the node that it is of: those of a stage's
/// last NF leave by the sync port.
pub(super) fn leaves_by(plan: &Plan, id: SegmentId, edge: &PlanEdge) -> bool {
    let of = plan.stages.iter().find(|stage| stage.last == edge.from);
    of.is_none_or(|stage| stage.sync == id)
}

/// What a lane of a stage carries. `numbers` are the setup's of the plan's lanes so far: the packets' own lane comes
/// before those that say something of it.
pub(super) fn carries(plan: &Plan, lane: &Lane, numbers: &[Option<usize>]) -> Option<LaneCarries> {
    let (Carries::Loans { stage, branch } | Carries::Answers { stage, branch }) = lane.carries
    else {
        return Some(LaneCarries::Packets);
    };
    let running = plan.stages.get(stage as usize)?;
    let own = |l: &Lane| {
        l.carries == Carries::Packets && l.edge == running.entry && l.source == lane.source
    };
    let reference = numbers.get(plan.lanes.iter().position(own)?).copied().flatten()?;
    Some(match lane.carries {
        Carries::Answers { .. } => {
            let drops_lost = decides(plan, running, branch as usize);
            LaneCarries::Answers { on: reference, drops_lost }
        }
        _ => LaneCarries::Loans { of: reference },
    })
}

/// Whether a branch decides what becomes of packets, or what they are: some NF of it may drop, writes, or sets tags, or
/// it is the last and its NF has several outputs. What it died of must not get further, nor what is half written.
fn decides(plan: &Plan, stage: &Running, branch: usize) -> bool {
    let Some(id) = stage.branches.get(branch) else { return true };
    let nodes = plan.segment(*id).map(|s| s.nodes.as_slice()).unwrap_or_default();
    let drops = nodes.iter().filter_map(|n| plan.graph.node(*n)).any(|node| match &node.kind {
        NodeKind::Nf { info, .. } => info.may_drop || !info.tags.is_empty(),
        _ => false,
    });
    let writes = plan.segment(*id).is_some_and(|segment| segment.writes_packets);
    let chooses = plan.graph.node(stage.last).is_some_and(|node| node.outputs.len() > 1);
    drops || writes || (chooses && nodes.contains(&stage.last))
}

impl Wiring<'_> {
    /// The nodes of a stage's sync port: one for each branch, which counts what that drops; packets go on from the
    /// last by the outputs of the stage's last NF.
    pub(super) fn sync_port(
        &self,
        id: SegmentId,
        segment: &Segment,
        stage: &Running,
        edges: &[EdgeId],
    ) -> Vec<NodeSpec> {
        let plan = self.plan;
        let count = stage.branches.len();
        let last = |branch: &SegmentId| {
            let node = *plan.segment(*branch)?.nodes.last()?;
            Some((node, plan.graph.node(node)?))
        };
        let ends = stage.branches.iter().filter_map(last).enumerate();
        ends.map(|(branch, (number, node))| {
            let is_last = branch + 1 == count;
            NodeSpec {
                name: node.policy_name().to_owned(),
                nf: None,
                outputs: match is_last {
                    true => self.outputs(id, segment, (number, node, 0), edges),
                    false => Vec::new(),
                },
                tags: Vec::new(),
                fan_in: 1,
                instance_of: None,
                again: false,
                part: None,
                replicate: None,
                flows: None,
                sync: Some(if is_last { count as u16 } else { 0 }),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use weir_plan::Field;
    use weir_runtime::field;

    #[test]
    fn planner_and_workers_number_fields_alike() {
        let all = [
            (Field::EthDst, field::ETH_DST),
            (Field::EthSrc, field::ETH_SRC),
            (Field::EthType, field::ETH_TYPE),
            (Field::Vlan, field::VLAN),
            (Field::IpSrc, field::IP_SRC),
            (Field::IpDst, field::IP_DST),
            (Field::IpTtl, field::IP_TTL),
            (Field::IpTos, field::IP_TOS),
            (Field::IpProto, field::IP_PROTO),
            (Field::IpLength, field::IP_LENGTH),
            (Field::IpChecksum, field::IP_CHECKSUM),
            (Field::IpOther, field::IP_OTHER),
            (Field::L4Src, field::L4_SRC),
            (Field::L4Dst, field::L4_DST),
            (Field::L4Flags, field::L4_FLAGS),
            (Field::L4Checksum, field::L4_CHECKSUM),
            (Field::L4Other, field::L4_OTHER),
            (Field::Payload, field::PAYLOAD),
        ];
        assert_eq!(all.len(), Field::ALL.len());
        for (of_plan, of_worker) in all {
            assert_eq!(weir_plan::FieldSet::of(&[of_plan]).bits(), of_worker, "{of_plan:?}");
        }
    }
}
