//! A segment's nodes, from what the agent says of them.

use super::{Branch, More, Node, SegmentError, Target};
use crate::arrays::Pick;
use crate::careful::Careful;
use crate::layout::{EDGE_WORDS, Layout};
use crate::spec::{BranchSpec, NodeSpec, SpreadSpec, TargetSpec, WorkerSpec};
use crate::spread::{Balances, Leased, Part, Spread, SpreadError};
use crate::takes::Takes;
use weir_mem::Seq;
use weir_nf::{Descriptor, Env};
use weir_packet::BATCH;

pub(super) fn node(
    i: usize,
    n: &NodeSpec,
    spec: &WorkerSpec,
    earlier: &[Node],
    balances: &mut Balances,
    picks: &mut Vec<(usize, Pick)>,
) -> Result<Node, SegmentError> {
    let layout = Layout::of(spec);
    let group = n.part.and_then(|part| spec.groups.get(usize::from(part.group)));
    let build = |source| SegmentError::Build { name: n.name.clone(), source };
    // A quarantined node has no µNF, and needs none of another's.
    let lender = n.instance_of.filter(|_| n.nf.is_some()).map(usize::from);
    let lent = match lender {
        Some(at) => Some(lent(earlier.get(at), spec.nodes.get(at), n)?),
        None => None,
    };
    let nf = match &n.nf {
        _ if lent.is_some() => None,
        Some((kind, config)) => {
            let config = serde_json::from_str(config).map_err(|e| build(e.into()))?;
            let env = Env::new(&n.tags, spec.seed)
                .map_err(|source| SegmentError::Tags { name: n.name.clone(), source })?
                .of_several(group.map_or(1, |group| group.weights.len() as u32))
                .with_flows(n.flows);
            let made = weir_nf::find(kind).and_then(|r| r.make(&config, &env));
            Some(made.map_err(build)?)
        }
        None => None,
    };
    let descriptor = lent.or(nf.as_ref().map(|nf| nf.descriptor()));
    let inputs = descriptor.map_or(1, |d| d.inputs.len());
    let mut outputs = Vec::new();
    for branches in &n.outputs {
        let list = list(i, n, branches, spec, &layout, balances, picks)?;
        outputs.push(list);
    }
    let inbox = (0..inputs).map(|_| Vec::with_capacity(BATCH)).collect();
    let resizes = descriptor.is_some_and(|d| d.resizes);
    let may_drop = descriptor.is_none_or(|d| d.may_drop);
    let mut nf = nf;
    let more = nf.as_mut().filter(|nf| nf.descriptor().does_more()).map(|nf| {
        nf.limit_held(spec.hold_most as usize);
        let places = vec![Seq::default(); usize::from(spec.sources)];
        More { comes: 0, over: 0, sources: 0, last_source: 0, stands_in: None, places }
    });
    let name = n.name.clone();
    let careful = spec.careful.iter().find(|(node, _)| usize::from(*node) == i);
    let careful = careful.map(|(_, poison)| Careful::new(poison));
    let merges = n.fan_in > 1;
    let joins = n.sync.map_or(0, usize::from);
    let replicate = n.replicate;
    let sides = group.is_some_and(|group| group.spread.asks_side());
    let sided = sides && descriptor.is_some_and(|d| !d.affinity.asks_sides());
    let leased = group.filter(|group| group.spread == SpreadSpec::Ends).zip(n.part);
    let leased = leased.and_then(|(group, part)| Leased::new(group, part, spec.seed));
    Ok(Node {
        name,
        instance: n.instance(),
        nf,
        lender,
        inbox,
        merges,
        resizes,
        may_drop,
        outputs,
        more,
        careful,
        joins,
        replicate,
        sided,
        leased,
    })
}

/// Finds which sources' packets may come to a node: those of the lanes that lead to it, and to those before it. By what the
/// graph says, whatever filters let through: the lanes behind are laid for the same.
pub(super) fn comes(nodes: &mut [Node], spec: &WorkerSpec) {
    let mut comes = vec![0u64; nodes.len()];
    for lane in &spec.lanes_in {
        if let Some(comes) = comes.get_mut(usize::from(lane.node)) {
            *comes |= 1u64.checked_shl(lane.source.into()).unwrap_or(0);
        }
    }
    // Every edge within leads to a later node.
    for (i, (node, said)) in nodes.iter_mut().zip(&spec.nodes).enumerate() {
        let own = comes.get(i).copied().unwrap_or(0);
        for branch in said.outputs.iter().flatten() {
            if let TargetSpec::Node { node, .. } = branch.target
                && let Some(behind) = comes.get_mut(usize::from(node))
            {
                *behind |= own;
            }
        }
        if let Some(more) = &mut node.more {
            more.comes = own;
        }
    }
}

/// The branches of an output. What divides over instances is one, whose filter is asked once.
fn list(
    i: usize,
    n: &NodeSpec,
    branches: &[BranchSpec],
    spec: &WorkerSpec,
    layout: &Layout,
    balances: &mut Balances,
    picks: &mut Vec<(usize, Pick)>,
) -> Result<Vec<Branch>, SegmentError> {
    let spreads = |source| SegmentError::Spread { name: n.name.clone(), source };
    let mut list: Vec<Branch> = Vec::new();
    for b in branches {
        let edge = usize::from(b.edge.unwrap_or(u16::MAX));
        let words = b.edge.map(|e| layout.edges + usize::from(e) * EDGE_WORDS);
        let target = match b.target {
            TargetSpec::Node { node, input } => {
                let node = usize::from(node);
                if node <= i || node >= spec.nodes.len() {
                    return Err(SegmentError::Edge(n.name.clone()));
                }
                Target::Node { node, input: usize::from(input) }
            }
            TargetSpec::Lane => Target::Lane { edge },
            TargetSpec::Back => Target::Back { edge },
            TargetSpec::Array { array, first } => {
                let array = usize::from(array);
                let ports =
                    spec.arrays.get(array).ok_or_else(|| SegmentError::Edge(n.name.clone()))?;
                picks.push((array, Pick::new(ports, first.into(), &spec.source_ports, spec.seed)));
                Target::Array { pick: picks.len() - 1 }
            }
            TargetSpec::Answer => Target::Answer,
            TargetSpec::Drop => Target::Drop,
        };
        let part = Part { target, words };
        let spread = match b.share {
            None => None,
            Some(share) if share.index == 0 => {
                let balance = balances.place(share, spec).map_err(spreads)?;
                Some(Box::new(Spread::new(balance, share, part)))
            }
            Some(_) => {
                let first = list.last_mut().and_then(|branch| branch.spread.as_mut());
                first.ok_or_else(|| spreads(SpreadError::Parts))?.push(part);
                continue;
            }
        };
        let takes = Takes::new(b.filter.as_ref(), &spec.source_ports, &b.marks, b.held)
            .map_err(|source| SegmentError::Filter { name: n.name.clone(), source })?;
        list.push(Branch { takes, target, words, spread });
    }
    match list.iter().filter_map(|b| b.spread.as_ref()).all(|spread| balances.whole(spread)) {
        true => Ok(list),
        false => Err(spreads(SpreadError::Parts)),
    }
}

/// What the µNF is that `n` shares with the node `lender`.
fn lent(
    lender: Option<&Node>,
    spec: Option<&NodeSpec>,
    n: &NodeSpec,
) -> Result<&'static Descriptor, SegmentError> {
    let nf = lender.and_then(|node| node.nf.as_ref());
    let nf = nf.filter(|nf| (n.again || !nf.remembers()) && !nf.descriptor().does_more());
    let nf = nf.filter(|_| spec.is_some_and(|spec| spec.nf == n.nf && spec.tags == n.tags));
    nf.map(|nf| nf.descriptor()).ok_or_else(|| SegmentError::Shared(n.name.clone()))
}
