//! Which flow a key leads to, compared with a plain map while keys come and go, also such as meet in few chains.
#![allow(clippy::unwrap_used)] // A test.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_nf::flow::PortKind;
use weir_nf::{FlowIndex, FlowKey};

const KEYS: u16 = 64;

fn key(n: u16) -> FlowKey {
    let ends = (([10, 0, 0, 1].into(), 1000 + n), ([192, 0, 2, 1].into(), 443));
    FlowKey::between(ends.0, ends.1, 6, PortKind::Ports, 0).unwrap().0
}

#[derive(Debug, Clone)]
enum Act {
    Insert(u16),
    /// A second key for it.
    Alias(u16),
    Remove(u16),
    Find(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..KEYS).prop_map(Act::Insert),
        2 => (0..KEYS).prop_map(Act::Alias),
        2 => (0..KEYS).prop_map(Act::Remove),
        1 => (0..KEYS).prop_map(Act::Find),
    ]
}

proptest! {
    #[test]
    fn a_key_leads_to_its_flow_whatever_else_comes_goes_and_collides(
        acts in prop::collection::vec(act(), 1..400),
        // So many different hashes there are, in these bits.
        different in 1..40_u32,
        shift in 0..28_u32,
        capacity in 1..70_u32,
    ) {
        let mut index = FlowIndex::new(capacity);
        let hash = |n: u16| (u32::from(n) % different) << shift;
        let (mut flows, mut named) = (BTreeMap::new(), BTreeSet::new());
        for act in acts {
            match act {
                Act::Insert(n) if !flows.contains_key(&n) => {
                    let flow = index.insert(key(n), hash(n));
                    prop_assert_eq!(flow.is_some(), flows.len() < capacity as usize);
                    if let Some(flow) = flow {
                        prop_assert!(!flows.values().any(|other| *other == flow));
                        flows.insert(n, flow);
                    }
                }
                Act::Alias(n) => {
                    let Some(flow) = flows.get(&n) else { continue };
                    // As many second keys as flows.
                    let may = !named.contains(&n) && named.len() < capacity as usize;
                    prop_assert_eq!(index.alias(*flow, key(KEYS + n), n % 2 == 1).is_ok(), may);
                    if may {
                        named.insert(n);
                    }
                }
                Act::Remove(n) => {
                    named.remove(&n);
                    if let Some(flow) = flows.remove(&n) {
                        prop_assert_eq!(index.remove(flow), Some(key(n)));
                        prop_assert_eq!(index.remove(flow), None);
                    }
                }
                Act::Insert(n) | Act::Find(n) => {
                    let flow = flows.get(&n).map(|flow| (*flow, false));
                    prop_assert_eq!(index.find(&key(n), hash(n)), flow);
                }
            }
            prop_assert_eq!(index.len(), flows.len());
        }
        for n in 0..KEYS {
            let second = named.contains(&n).then(|| (flows[&n], n % 2 == 1));
            prop_assert_eq!(index.find(&key(KEYS + n), index.hash(&key(KEYS + n))), second);
            let flow = flows.get(&n).map(|flow| (*flow, false));
            prop_assert_eq!(index.find(&key(n), hash(n)), flow);
        }
    }
}
