//! The flow director.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_packet::FlowKey;
use weir_packet::flow::PortKind;
use weir_port::balance::{DirectError, FlowDirector};

fn key(flow: u16) -> FlowKey {
    let ends = (([10, 0, 0, 1].into(), flow), ([192, 0, 2, 1].into(), 53));
    FlowKey::between(ends.0, ends.1, 17, PortKind::Ports, 0).unwrap().0
}

fn director(weights: &[u32], most: usize) -> FlowDirector {
    FlowDirector::new(weights, 7, most).unwrap()
}

/// A flow whose bucket is an instance's.
fn at_home(director: &FlowDirector, instance: u8) -> FlowKey {
    (0..=u16::MAX).map(key).find(|key| director.home(key) == instance).unwrap()
}

#[test]
fn a_flow_moves_with_all_its_keys_and_its_neighbours_stay() {
    let mut director = director(&[1, 1], 10);
    let flow = [at_home(&director, 0), at_home(&director, 1)];
    let others: Vec<FlowKey> = (100..200).map(key).filter(|key| !flow.contains(key)).collect();
    let before: Vec<u8> = others.iter().map(|key| director.instance(key)).collect();
    director.move_flows(flow.iter(), 1).unwrap();
    assert!(flow.iter().all(|key| director.instance(key) == 1));
    // Only what is not at home is remembered.
    assert_eq!(director.exceptions(), 1);
    let after: Vec<u8> = others.iter().map(|key| director.instance(key)).collect();
    assert_eq!(after, before);
    director.move_flows(flow.iter(), 0).unwrap();
    assert!(flow.iter().all(|key| director.instance(key) == 0));
    assert_eq!(director.exceptions(), 1);
    director.move_home(&flow[1]);
    assert_eq!((director.instance(&flow[1]), director.exceptions()), (1, 0));
}

#[test]
fn a_set_that_finds_no_room_or_no_instance_is_refused_and_nothing_moves() {
    let mut director = director(&[1, 0], 99);
    let keys: Vec<FlowKey> = (0..100).map(key).collect();
    assert_eq!(director.move_flows(keys.iter(), 1), Err(DirectError::Full(99)));
    assert_eq!(director.move_flows(keys.iter(), 2), Err(DirectError::NoInstance(2, 2)));
    assert_eq!(director.move_buckets(&[1, 2], 2), Err(DirectError::NoInstance(2, 2)));
    assert!(director.exceptions() == 0 && keys.iter().all(|key| director.instance(key) == 0));
    // The same key twice needs one place.
    director.move_flows(keys[1..].iter().chain(&keys[1..]), 1).unwrap();
    assert_eq!(director.exceptions(), 99);
}

#[test]
fn a_share_is_so_many_buckets_and_all_is_all_of_them() {
    let mut director = director(&[1, 1, 0], 10);
    let alone = at_home(&director, 0);
    director.move_flows([&alone].into_iter(), 1).unwrap();
    let share = director.share(0, 500);
    assert_eq!(share.len(), 500);
    director.move_buckets(&share, 2).unwrap();
    assert_eq!((director.share(2, usize::MAX), director.instance(&alone)), (share, 1));
    let all = director.share(0, usize::MAX);
    director.move_buckets(&all, 2).unwrap();
    assert!((0..1000).map(key).all(|key| director.instance(&key) != 0));
    // Where its bucket has gone too, a flow is no exception any more.
    let bucket = director.bucket(&alone);
    director.move_buckets(&[bucket], 1).unwrap();
    assert_eq!((director.exceptions(), director.instance(&alone)), (0, 1));
}

#[test]
fn one_more_instance_takes_its_share_bucket_by_bucket() {
    let mut director = director(&[1, 1], 10);
    let moves = director.moves_for(&[1, 1, 1]).unwrap();
    assert!(moves.len().abs_diff(65_536 / 3) <= 1 && moves.iter().all(|(_, _, to)| *to == 2));
    assert!(director.share(2, 1).is_empty(), "nothing has changed yet");
    director.set_instances(3);
    for (bucket, _, to) in moves.iter().take(100) {
        director.move_buckets(&[*bucket], *to).unwrap();
    }
    assert_eq!(director.share(2, usize::MAX).len(), 100);
    let rest = director.moves_for(&[1, 1, 1]).unwrap();
    assert_eq!(rest, moves[100..], "the rest is as it was");
}

#[test]
fn with_one_more_instance_moved_flows_stay_and_of_the_others_one_in_so_many_moves_there() {
    for n in 1..=8_u8 {
        let mut director = director(&vec![1; n.into()], 4000);
        let all: Vec<FlowKey> = (0..8000).map(key).collect();
        // Half of them were moved: in turn to each instance, some of these to the one where they were.
        let (moved, others) = all.split_at(4000);
        for (key, to) in moved.iter().zip((0..n).cycle()) {
            director.move_flows([key].into_iter(), to).unwrap();
        }
        let where_are = |director: &FlowDirector, keys: &[FlowKey]| -> Vec<u8> {
            keys.iter().map(|key| director.instance(key)).collect()
        };
        let away: Vec<FlowKey> =
            moved.iter().filter(|k| director.instance(k) != director.home(k)).copied().collect();
        let (stay, before) = (where_are(&director, &away), where_are(&director, others));
        let moves = director.moves_for(&vec![1; usize::from(n) + 1]).unwrap();
        director.set_instances(n + 1);
        for (bucket, _, to) in moves {
            director.move_buckets(&[bucket], to).unwrap();
        }
        assert_eq!(where_are(&director, &away), stay, "{n} instances: a moved flow is elsewhere");
        let after = where_are(&director, others);
        let went = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(went.clone().all(|(_, to)| *to == n), "{n} instances: one went to an old one");
        // Six standard deviations of so many flows.
        let (share, count) = (1.0 / (f64::from(n) + 1.0), others.len() as f64);
        let far = 6.0 * (count * share * (1.0 - share)).sqrt();
        let went = went.count() as f64;
        assert!((went - count * share).abs() < far, "{n} instances: {went} of {count} went");
    }
}

#[test]
fn flows_that_were_moved_to_an_instance_that_is_gone_go_home() {
    let mut director = director(&[1, 1, 1], 10);
    let flow = at_home(&director, 0);
    director.move_flows([&flow].into_iter(), 2).unwrap();
    director.gone(2);
    assert_eq!((director.instance(&flow), director.exceptions()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Against a map that remembers every flow.
    #[test]
    fn it_is_a_map_of_all_flows_that_forgets_those_at_home(
        steps in prop::collection::vec((0u16..20, 0u8..3, any::<bool>()), 1..60)
    ) {
        let mut director = director(&[1, 1, 1], 100);
        let mut plain: BTreeMap<u16, u8> = (0..20).map(|f| (f, director.instance(&key(f)))).collect();
        for (flow, to, whole) in steps {
            let moved = key(flow);
            if whole {
                let bucket = director.bucket(&moved);
                let stay = |f: &u16| director.instance(&key(*f)) != director.home(&key(*f));
                let with: Vec<u16> = (0..20)
                    .filter(|f| director.bucket(&key(*f)) == bucket && !stay(f))
                    .collect();
                director.move_buckets(&[bucket], to).unwrap();
                plain.extend(with.into_iter().map(|f| (f, to)));
            } else {
                director.move_flows([&moved].into_iter(), to).unwrap();
                plain.insert(flow, to);
            }
            for (flow, instance) in &plain {
                prop_assert_eq!(director.instance(&key(*flow)), *instance);
            }
            let away = plain.keys().filter(|f| director.home(&key(**f)) != plain[*f]).count();
            prop_assert_eq!(director.exceptions(), away);
        }
    }
}
