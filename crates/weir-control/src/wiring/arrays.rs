//! Arrays of ports that edges lead to: which lanes lead to which of their ports.

use crate::setup::ArraySetup;
use weir_plan::{EdgeId, NodeId, NodeKind, Plan, Segment, SegmentId, SegmentKind};
use weir_runtime::spec::TargetSpec;

/// The arrays that edges of a plan lead to, in the order of their nodes.
pub(super) struct Arrays<'p> {
    plan: &'p Plan,
    list: Vec<Array>,
}

struct Array {
    node: NodeId,
    first: u16,
    last: u16,
}

impl Array {
    fn len(&self) -> usize {
        usize::from(self.last - self.first) + 1
    }
}

impl<'p> Arrays<'p> {
    pub(super) fn of(plan: &'p Plan) -> Self {
        let arrays = plan.graph.node_ids().filter_map(|(node, n)| match n.kind {
            NodeKind::Port { first, last } if first < last => Some(Array { node, first, last }),
            _ => None,
        });
        let list = arrays.filter(|a| plan.edges.iter().any(|edge| edge.to == a.node)).collect();
        Arrays { plan, list }
    }

    fn index(&self, edge: EdgeId) -> Option<usize> {
        let to = self.plan.edges.get(edge.index())?.to;
        self.list.iter().position(|array| array.node == to)
    }

    /// The arrays that these edges lead to, each once: what their worker chooses among.
    pub(super) fn chosen_by(
        &self,
        segment: SegmentId,
        edges: &[EdgeId],
    ) -> (Vec<usize>, Vec<EdgeId>) {
        let chooses =
            |edge: &&EdgeId| self.index(**edge).is_some() && self.chooses(segment, **edge);
        let edges: Vec<EdgeId> = edges.iter().filter(chooses).copied().collect();
        let mut arrays: Vec<usize> = edges.iter().filter_map(|edge| self.index(*edge)).collect();
        arrays.sort_unstable();
        arrays.dedup();
        (arrays, edges)
    }

    /// How many copies are made here of a packet that leaves by `edge`, at most.
    pub(super) fn copies(&self, segment: SegmentId, edge: EdgeId) -> u32 {
        let array = self.index(edge).filter(|_| self.chooses(segment, edge));
        let ports = array.and_then(|array| self.list.get(array)).map_or(1, Array::len);
        u32::try_from(ports).unwrap_or(u32::MAX) - 1
    }

    /// True where packets of the edge are put onto lanes to the ports themselves: in its gate, if it has one.
    fn chooses(&self, segment: SegmentId, edge: EdgeId) -> bool {
        let kind = |s: &Segment| s.kind == SegmentKind::Gate { edge };
        match self.plan.segments.iter().position(kind) {
            Some(gate) => gate == segment.index(),
            None => true,
        }
    }

    /// The number of the lanes to the first port of the array that `edge` leads to, behind those of the
    /// worker's `edges` and of what it drops.
    pub(super) fn first_lane(
        &self,
        segment: SegmentId,
        edges: &[EdgeId],
        edge: EdgeId,
    ) -> Option<usize> {
        let (_, own) = self.chosen_by(segment, edges);
        let at = own.iter().position(|e| *e == edge)?;
        let before = own.iter().take(at).filter_map(|e| self.list.get(self.index(*e)?));
        Some(edges.len() + 1 + before.map(Array::len).sum::<usize>())
    }

    /// How many numbers of lanes a worker with these edges needs.
    pub(super) fn lanes(&self, segment: SegmentId, edges: &[EdgeId]) -> usize {
        let (_, own) = self.chosen_by(segment, edges);
        let ports = own.iter().filter_map(|e| self.list.get(self.index(*e)?)).map(Array::len);
        edges.len() + 1 + ports.sum::<usize>()
    }

    /// The number of the lane of `edge` to the Tx service of `to`, if that is of an array's port.
    pub(super) fn lane(
        &self,
        segment: SegmentId,
        edges: &[EdgeId],
        edge: EdgeId,
        to: Option<&Segment>,
    ) -> Option<usize> {
        let SegmentKind::Tx { port } = to?.kind else { return None };
        let array = self.list.get(self.index(edge)?)?;
        let first = self.first_lane(segment, edges, edge)?;
        Some(first + usize::from(port.checked_sub(array.first)?))
    }

    /// What a branch of that edge leads to, if it is the ports of an array.
    pub(super) fn target(
        &self,
        segment: SegmentId,
        edges: &[EdgeId],
        edge: EdgeId,
    ) -> Option<TargetSpec> {
        let first = self.first_lane(segment, edges, edge)?;
        let (arrays, _) = self.chosen_by(segment, edges);
        let index = self.index(edge)?;
        let array = arrays.iter().position(|array| *array == index)?;
        Some(TargetSpec::Array { array: array as u16, first: first as u16 })
    }

    /// The array that a port is of.
    pub(super) fn with_port(&self, port: u16) -> Option<usize> {
        self.list.iter().position(|array| (array.first..=array.last).contains(&port))
    }

    /// What the agent has to know; `source_ports` are the ports that packets come in by.
    pub(super) fn setups(&self, source_ports: &[u16]) -> Vec<ArraySetup> {
        let setup = |array: &Array| {
            let has = |port: &u16| (array.first..=array.last).contains(port);
            let place = |port: &u16| has(port).then(|| port - array.first);
            let places = source_ports.iter().map(place).collect();
            // Of an array of all numbers one is left out: nothing can be bound to so many.
            ArraySetup { ports: u16::try_from(array.len()).unwrap_or(u16::MAX), places }
        };
        self.list.iter().map(setup).collect()
    }
}

/// Nodes at which packets may be that an NF has held on their way there, or is holding.
pub(super) fn behind_holders(plan: &Plan) -> Vec<bool> {
    let graph = &plan.graph;
    let holds =
        |node: &weir_plan::Node| matches!(&node.kind, NodeKind::Nf { info, .. } if info.holds > 0);
    let mut behind: Vec<bool> = graph.nodes().iter().map(holds).collect();
    // What enters a port does not come out of it again; each node is visited once.
    let mut todo: Vec<usize> = (0..behind.len()).filter(|i| behind[*i]).collect();
    while let Some(from) = todo.pop() {
        for edge in plan.edges.iter().filter(|edge| edge.from.index() == from) {
            let nf = graph.node(edge.to).is_some_and(weir_plan::Node::is_nf);
            if let Some(behind) = behind.get_mut(edge.to.index()).filter(|b| nf && !**b) {
                *behind = true;
                todo.push(edge.to.index());
            }
        }
    }
    behind
}
