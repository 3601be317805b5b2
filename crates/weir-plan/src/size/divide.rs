//! How packets are divided over the instances of each NF, and where that need not be done anew.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{SizedNf, Traffic, sides};
use crate::describe::{Affinity, TUPLE};
use crate::fields::{Field, FieldSet};
use crate::graph::{EdgeId, Graph, NodeId, NodeKind};

/// What packets have in common that meet at the same instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Nothing: any instance will do.
    Any,
    /// The source address.
    Source,
    /// The 5-tuple.
    Tuple,
    /// The flow: the 5-tuple in either direction.
    Flow,
    /// The lease that a port is of: the source's, of what comes to the NF's first input, the destination's of the rest.
    Ends,
    /// An end: the source's of what comes to the NF's first input, the destination's of the rest.
    Client,
    /// These fields of the 5-tuple.
    Fields {
        /// The fields.
        fields: FieldSet,
        /// In either direction of a flow.
        symmetric: bool,
    },
}

/// Tags always count ([`Key::fields`]).
const TAGS: FieldSet = FieldSet::of(&[Field::Vlan]);

/// What tells a flow's directions apart.
const ENDS: FieldSet = FieldSet::of(&[Field::IpSrc, Field::IpDst, Field::L4Src, Field::L4Dst]);

impl Key {
    pub(super) fn of(affinity: Affinity) -> Self {
        match affinity {
            Affinity::None => Key::Any,
            Affinity::Source => Key::Source,
            Affinity::Tuple => Key::Tuple,
            Affinity::Flow => Key::Flow,
            Affinity::Ends => Key::Ends,
            Affinity::Client => Key::Client,
            Affinity::Fields { fields, symmetric } => Key::Fields { fields, symmetric },
        }
    }

    /// The fields that it is made of. Addresses may repeat across VLANs, so a packet's tags are always among them
    /// (`weir_packet::FlowFields`).
    const fn fields(self) -> FieldSet {
        match self {
            Key::Any => FieldSet::EMPTY,
            Key::Source => TAGS.or(FieldSet::of(&[Field::IpSrc])),
            Key::Tuple | Key::Flow | Key::Ends | Key::Client => TAGS.or(TUPLE),
            Key::Fields { fields, .. } => fields.or(TAGS),
        }
    }

    /// True when both directions of a flow have the same.
    const fn is_symmetric(self) -> bool {
        matches!(self, Key::Flow | Key::Fields { symmetric: true, .. })
    }

    /// True when packets that are the same by `wanted` are the same by this key too, so that who is
    /// divided by this key has them together. (Equal 5-tuples have the same source; the two directions of a
    /// flow have not, but the protocol.)
    #[must_use]
    pub const fn satisfies(self, wanted: Key) -> bool {
        match (self, wanted) {
            (_, Key::Any) => true,
            // By which end depends on the NF's input.
            (Key::Any | Key::Ends | Key::Client, _) | (_, Key::Ends | Key::Client) => false,
            // Who is the same by more fields is the same by fewer; the other way round too, if the fewer are the same then.
            _ => {
                let both_ways = self.is_symmetric() || self.fields().and(ENDS).is_empty();
                self.fields().without(wanted.fields()).is_empty()
                    && (both_ways || !wanted.is_symmetric())
            }
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Key::Any => "in turn",
            Key::Source => "by source address",
            Key::Tuple => "by 5-tuple",
            Key::Flow => "by flow",
            Key::Ends => "by leases of ports",
            Key::Client => "by the client's address and port",
            Key::Fields { fields, symmetric } => {
                for (i, field) in fields.iter().enumerate() {
                    let name = field.name();
                    let name = name.strip_prefix("the ").unwrap_or(name);
                    write!(f, "{}{name}", if i == 0 { "by " } else { " and " })?;
                }
                return f.write_str(if *symmetric { ", both directions alike" } else { "" });
            }
        })
    }
}

/// A division: of packets that are the same by the key, all are at the same one of `count` instances. The hash
/// is the same everywhere, so equal divisions by equal weights send a packet to instances of equal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// By what.
    pub key: Key,
    /// Into how many.
    pub count: u32,
}

/// How an edge's packets find their instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// There is one instance.
    Single,
    /// Each is hashed by the key.
    Hashed(Key),
    /// Not hashed again: instance i of the NF before sends to instance i, modulo their number, of this one.
    Direct(Key),
}

/// How the packets of an NF of several instances are divided, for who comes behind it.
struct Divided {
    split: Split,
    /// The weights of its instances, where each has exactly the packets whose hash is its own.
    by_hash: Option<Vec<u32>>,
    /// They change while it runs.
    scales: bool,
    replica_of: Vec<String>,
}

impl Divided {
    /// True when instances of equal number share a worker, and so have the same packets whatever becomes of weights.
    fn goes_along(&self, nf: &SizedNf) -> bool {
        !self.replica_of.is_empty() && self.replica_of == nf.replica_of()
    }
}

/// Decides the division of each NF that has several instances; gives the way of each edge.
pub(super) fn divide(graph: &Graph, traffic: &Traffic, nfs: &mut [SizedNf]) -> Vec<Way> {
    let mut divided: Vec<Option<Divided>> = graph.nodes().iter().map(|_| None).collect();
    let mut into: Vec<Vec<EdgeId>> = vec![Vec::new(); graph.nodes().len()];
    for (id, edge) in graph.edge_ids() {
        if let Some(list) = into.get_mut(edge.to.index()) {
            list.push(id);
        }
    }
    let mut ways = vec![Way::Single; graph.edges().len()];
    let sides = sides::divided(graph, nfs);
    for (nf, sides) in nfs.iter_mut().zip(sides).filter(|(nf, _)| nf.count > 1) {
        let coming = into.get(nf.node.index()).map(Vec::as_slice).unwrap_or_default();
        if let Some((key, set)) = sides {
            // As for that one, whichever of them packets come to; what goes on among them stays where it is.
            let split = Split { key, count: nf.count };
            nf.split = Some(split);
            for id in coming {
                let inside = graph.edge(*id).is_some_and(|edge| set.contains(&edge.from));
                if let Some(way) = ways.get_mut(id.index()) {
                    *way = if inside { Way::Direct(key) } else { Way::Hashed(key) };
                }
            }
            if let Some(place) = divided.get_mut(nf.node.index()) {
                let (scales, replica_of) = (nf.scales(), nf.replica_of().to_vec());
                *place = Some(Divided { split, by_hash: Some(nf.weights()), scales, replica_of });
            }
            continue;
        }
        let split = choose(graph, traffic, nf, coming, &divided);
        nf.split = Some(split);
        let from = |id: &EdgeId| graph.edge(*id).map(|edge| edge.from);
        let one_origin = coming.iter().all(|id| from(id) == coming.first().and_then(from));
        let weights = nf.weights();
        let mut alike = true;
        for id in coming {
            let before = before(graph, *id, nf, &divided);
            let along = before.is_some_and(|before| before.goes_along(nf));
            let same = before.and_then(|before| before.by_hash.as_ref()) == Some(&weights);
            // Packets of a flow must meet whichever way they come: what comes from elsewhere too may only go on to
            // where a hash would send it.
            // And who was asked for weights, or for the least loaded, gets them.
            let meets = match &nf.asked {
                Some(asked) => same && !asked.parts_all() && (along || !asked.scales),
                None => same || one_origin || split.key == Key::Any,
            };
            let kept = before.filter(|before| keeps(graph, *id, before));
            let direct = kept.is_some_and(|before| meets && continues(before.split, split));
            alike &= same || !direct;
            if let Some(way) = ways.get_mut(id.index()) {
                *way = if direct { Way::Direct(split.key) } else { Way::Hashed(split.key) };
            }
        }
        if let Some(place) = divided.get_mut(nf.node.index()) {
            let by_hash = alike.then_some(weights);
            let (scales, replica_of) = (nf.scales(), nf.replica_of().to_vec());
            *place = Some(Divided { split, by_hash, scales, replica_of });
        }
    }
    ways
}

/// The division for an NF: that of the busiest edge that has one it can go on with, else by its own
/// affinity, or the operator's. All its edges then keep to it, as its packets must meet whichever way they come.
fn choose(
    graph: &Graph,
    traffic: &Traffic,
    nf: &SizedNf,
    coming: &[EdgeId],
    divided: &[Option<Divided>],
) -> Split {
    let own = match graph.node(nf.node).map(|node| &node.kind) {
        Some(NodeKind::Nf { info, .. }) => Key::of(info.work.affinity),
        _ => Key::Flow,
    };
    let chosen = nf.asked.as_ref().and_then(|asked| asked.affinity).map(Key::of);
    // What is chosen is had, not what would do as well.
    let serves = |before: Key| chosen.map_or(before.satisfies(own), |chosen| before == chosen);
    let own = chosen.unwrap_or(own);
    let mut coming = coming.to_vec();
    coming.sort_by(|a, b| traffic.edge(*b).pps.total_cmp(&traffic.edge(*a).pps));
    let alone = nf.asked.as_ref().is_some_and(|asked| asked.parts_all() || asked.scales);
    let kept = coming.iter().filter_map(|id| {
        let before = before(graph, *id, nf, divided)?;
        let goes_on = keeps(graph, *id, before) && (!alone || before.goes_along(nf));
        goes_on.then_some(before.split)
    });
    let mut usable = kept.filter(|before| {
        serves(before.key) && continues(*before, Split { key: before.key, count: nf.count })
    });
    Split { key: usable.next().map_or(own, |before| before.key), count: nf.count }
}

/// How the packets of an edge to `nf` were divided. Whose weights change divides anew: who comes behind it cannot go by how it was
/// divided at first, unless it goes along.
fn before<'d>(
    graph: &Graph,
    edge: EdgeId,
    nf: &SizedNf,
    divided: &'d [Option<Divided>],
) -> Option<&'d Divided> {
    let before = divided.get(graph.edge(edge)?.from.index())?.as_ref()?;
    (!before.scales || before.goes_along(nf)).then_some(before)
}

/// True when an edge's packets still have the division of the NF before: it does not write what they were
/// divided by.
fn keeps(graph: &Graph, edge: EdgeId, before: &Divided) -> bool {
    let written = graph.edge(edge).map_or(FieldSet::EMPTY, |edge| written(graph, edge.from));
    written.and(before.split.key.fields()).is_empty()
}

pub(super) fn written(graph: &Graph, id: NodeId) -> FieldSet {
    match graph.node(id).map(|node| &node.kind) {
        // Who adds headers may put others before those that were looked at.
        Some(NodeKind::Nf { info, .. }) if info.resizes || info.creates > 0 => {
            FieldSet::L2.or(FieldSet::L3).or(FieldSet::L4)
        }
        Some(NodeKind::Nf { info, .. }) => info.work.touched().writes,
        _ => FieldSet::EMPTY,
    }
}

/// True when instance i of one division may send all to instance i modulo n of the other.
fn continues(before: Split, after: Split) -> bool {
    before.key == after.key
        && !matches!(before.key, Key::Ends | Key::Client)
        && before.count.checked_rem(after.count) == Some(0)
}

#[cfg(test)]
mod tests {
    use super::{Field, FieldSet, Key};

    #[test]
    fn who_is_divided_by_fewer_fields_has_packets_together_that_agree_in_more() {
        let some =
            |fields: &[Field], symmetric| Key::Fields { fields: FieldSet::of(fields), symmetric };
        let by = |fields: &[Field]| some(fields, false);
        let (pair, target) = (by(&[Field::IpSrc, Field::IpDst]), by(&[Field::IpDst]));
        let peers = some(&[Field::IpSrc, Field::IpDst], true);
        let ports = some(&[Field::L4Src, Field::L4Dst], true);
        for (before, wanted, serves) in [
            (target, pair, true),
            (pair, target, false),
            (pair, Key::Tuple, true),
            (Key::Tuple, pair, false),
            (Key::Source, pair, true),
            (Key::Source, target, false),
            (Key::Flow, Key::Tuple, true),
            (Key::Flow, pair, false),
            // The two directions of a flow have other sources, but one protocol.
            (pair, Key::Flow, false),
            (by(&[Field::IpProto]), Key::Flow, true),
            // What is the same both ways has them together, and serves who asks for one way.
            (peers, Key::Flow, true),
            (peers, Key::Tuple, true),
            (peers, pair, true),
            (pair, peers, false),
            (by(&[Field::IpProto]), peers, false),
            (Key::Flow, peers, false),
            (ports, Key::Flow, true),
            (ports, peers, false),
            (Key::Source, peers, false),
            (Key::Any, pair, false),
            (pair, Key::Any, true),
        ] {
            assert_eq!(before.satisfies(wanted), serves, "{before}, {wanted}");
        }
        assert_eq!(pair.to_string(), "by source address and destination address");
        assert_eq!(ports.to_string(), "by source port and destination port, both directions alike");
    }
}
