//! Arrays of ports: by which of them a packet leaves.

use std::collections::{BTreeMap, HashMap};

use weir_packet::headers::Mac;
use weir_packet::{
    Depth, Direction, FlowHasher, FlowKey, FragmentTable, Stations, is_discovery, parse,
};
use weir_plan::{EdgeId, NodeId};

/// Datagrams whose first fragment is remembered: as many as at run time.
const DATAGRAMS: usize = 1024;
/// The seed of graphs that are given none.
const SEED: u64 = 0;

/// What came in by arrays of ports.
#[derive(Default)]
pub(crate) struct Arrays {
    /// By array: the port that each flow's last packet came in by, in each direction.
    came: HashMap<(NodeId, FlowKey, Direction), u16>,
    /// By array: the port that each station was heard at last; stations are of a VLAN.
    heard: HashMap<(NodeId, u64, Mac), u16>,
    /// By port, and by edge: first fragments that have passed there.
    came_by: BTreeMap<u16, FragmentTable>,
    left_by: HashMap<EdgeId, FragmentTable>,
}

fn fragments() -> FragmentTable {
    FragmentTable::new(DATAGRAMS, FlowHasher::for_ports(SEED))
}

impl Arrays {
    /// A packet has come in by `port` of an array.
    pub(crate) fn come(&mut self, array: NodeId, port: u16, bytes: &[u8], time_ns: u64) {
        let layers = parse(bytes, Depth::L4);
        if let Some(stations) = Stations::of(bytes, &layers)
            && let Some(mac) = stations.sender()
        {
            self.heard.insert((array, stations.zone, mac), port);
        }
        if is_discovery(bytes, &layers) {
            return;
        }
        let table = self.came_by.entry(port).or_insert_with(fragments);
        if let Some((key, direction)) = table.key(bytes, &layers, time_ns) {
            self.came.insert((array, key, direction), port);
        }
    }

    /// The ports that a packet leaves by which goes over `edge` to the array of ports `first ..= last` and once
    /// came in by `source`.
    pub(crate) fn leave(
        &mut self,
        (array, first, last): (NodeId, u16, u16),
        edge: EdgeId,
        source: u16,
        bytes: &[u8],
        time_ns: u64,
    ) -> Vec<u16> {
        let layers = parse(bytes, Depth::L4);
        let heard = Stations::of(bytes, &layers).and_then(|stations| {
            self.heard.get(&(array, stations.zone, stations.addressee()?)).copied()
        });
        if is_discovery(bytes, &layers) {
            return match heard {
                Some(port) => vec![port],
                None => (first..=last).filter(|port| *port != source).collect(),
            };
        }
        let table = self.left_by.entry(edge).or_insert_with(fragments);
        let Some((key, direction)) = table.key(bytes, &layers, time_ns) else {
            return vec![first];
        };
        if let Some(port) = self.came.get(&(array, key, direction.reverse())) {
            return vec![*port];
        }
        if let Some(port) = heard {
            return vec![port];
        }
        let count = usize::from(last.saturating_sub(first)).saturating_add(1);
        let place = FlowHasher::for_ports(SEED).choose(&key, count);
        vec![first.saturating_add(u16::try_from(place).unwrap_or(0))]
    }
}
