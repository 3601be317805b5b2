//! What is known of all packets on a way: which µNFs would say what of them.

use std::collections::HashMap;

use crate::catalog::NfInfo;
use crate::describe::{Access, Effect, Touch, Work};
use crate::graph::{Graph, Node, NodeId, NodeKind};

/// µNFs that say the same of the same packet: type, configuration and program are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Class(u32);

/// A class, and the input that a packet comes by.
pub(super) type Question = (Class, usize);

/// Every packet here has passed a µNF of a class, and it would leave it by that output again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) of: Question,
    pub(super) output: usize,
    /// A µNF that found it.
    pub(super) by: NodeId,
    /// True when on other ways other µNFs did.
    pub(super) others: bool,
}

/// Facts, by question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    pub(super) fn get(&self, question: Question) -> Option<Fact> {
        let at = self.0.binary_search_by_key(&question, |fact| fact.of).ok()?;
        self.0.get(at).copied()
    }

    /// What holds on both of two ways.
    pub(super) fn meet(&self, other: &Facts) -> Facts {
        let both = |fact: &Fact| {
            let too = other.get(fact.of).filter(|too| too.output == fact.output)?;
            let others = fact.others || too.others || fact.by != too.by;
            Some(Fact { others, ..*fact })
        };
        Facts(self.0.iter().filter_map(both).collect())
    }

    /// With one more, in place of an older one of the same question.
    pub(super) fn with(&self, fact: Fact) -> Facts {
        let mut all = self.clone();
        match all.0.binary_search_by_key(&fact.of, |known| known.of) {
            Ok(at) => {
                if let Some(known) = all.0.get_mut(at) {
                    *known = fact;
                }
            }
            Err(at) => all.0.insert(at, fact),
        }
        all
    }

    /// What still holds behind `info`, a µNF that is of class `own` or of none.
    pub(super) fn behind(&self, info: &NfInfo, own: Option<Class>, classes: &Classes<'_>) -> Facts {
        // Packets that it makes or lets go later did not all come by this way.
        if info.resizes || info.creates > 0 || info.holds > 0 {
            return Facts::default();
        }
        let written = written(&info.work.access);
        let holds = |fact: &&Fact| {
            let (class, _) = fact.of;
            let Some(asked) = classes.info(class) else { return false };
            // Of several inputs each may say something else by the same tag.
            let others = own != Some(class) || info.inputs.len() > 1;
            let tag = others && asked.tags.iter().any(|tag| info.tags.contains(tag));
            written & looked_at(&asked.work.access) == 0 && !tag
        };
        Facts(self.0.iter().filter(holds).copied().collect())
    }
}

/// The classes of a graph's µNFs that have more than one member: of others nothing need be known.
pub(super) struct Classes<'g> {
    of: Vec<Option<Class>>,
    infos: Vec<&'g NfInfo>,
}

impl<'g> Classes<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        let mut members: HashMap<Alike<'g>, Vec<usize>> = HashMap::new();
        for (i, node) in graph.nodes().iter().enumerate() {
            if let Some((alike, info)) = alike(node)
                && repeats(info)
            {
                members.entry(alike).or_default().push(i);
            }
        }
        let mut several: Vec<Vec<usize>> = members.into_values().filter(|m| m.len() > 1).collect();
        several.sort();
        let mut classes = Classes { of: vec![None; graph.nodes().len()], infos: Vec::new() };
        for (class, members) in (0_u32..).map(Class).zip(several) {
            for (n, member) in members.into_iter().enumerate() {
                if let Some(place) = classes.of.get_mut(member) {
                    *place = Some(class);
                }
                if n == 0
                    && let Some(NodeKind::Nf { info, .. }) =
                        graph.nodes().get(member).map(|n| &n.kind)
                {
                    classes.infos.push(info);
                }
            }
        }
        classes
    }

    pub(super) fn of(&self, node: NodeId) -> Option<Class> {
        self.of.get(node.index()).copied().flatten()
    }

    fn info(&self, class: Class) -> Option<&'g NfInfo> {
        self.infos.get(usize::try_from(class.0).ok()?).copied()
    }
}

/// What makes two µNFs the same work: type, program, configuration.
pub(super) type Alike<'g> = (&'g str, Option<crate::catalog::ProgramId>, String);

pub(super) fn alike(node: &Node) -> Option<(Alike<'_>, &NfInfo)> {
    match &node.kind {
        NodeKind::Nf { info, config } => {
            Some(((info.name.as_str(), info.program, config.to_string()), info))
        }
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => None,
    }
}

/// True when a packet that passed it once would pass it again unchanged and by the same output.
pub(super) fn repeats(info: &NfInfo) -> bool {
    let Work { effect, access, .. } = info.work;
    let makes = info.creates > 0 || info.holds > 0 || info.resizes;
    let same = match effect {
        Effect::Pure => written(&access) == 0 && !info.writes_packets,
        // What it says of a packet may change with what it wrote: only with one way out is it known.
        Effect::Idempotent => info.outputs.len() == 1 && !info.may_drop,
        Effect::Stateful | Effect::External => false,
    };
    same && !makes
}

/// Layers from the lowest up, as bits.
const fn layers(access: &Access) -> [Touch; 4] {
    [access.l2, access.l3, access.l4, access.payload]
}

fn written(access: &Access) -> u8 {
    let bits = layers(access).into_iter().zip(0_u32..);
    bits.filter(|(touch, _)| *touch == Touch::Write).fold(0, |set, (_, bit)| set | 1 << bit)
}

/// The layers that its answer depends on: those it touches and all below, as a layer is found by the
/// headers of those below.
pub(super) fn looked_at(access: &Access) -> u8 {
    let touched = layers(access).into_iter().zip(0_u32..).filter(|(touch, _)| *touch != Touch::Nop);
    touched.map(|(_, bit)| bit).max().map_or(0, |top| (2 << top) - 1)
}
