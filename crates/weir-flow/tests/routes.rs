//! A director with many migrations at a time: where it sends packets, and what it remembers, compared with one that looks
//! at all it knows after each message.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_flow::{Director, DirectorEffect, Message, MoveId, Party};

/// Parts below this are flows, four to a bucket; those from it on are the buckets.
const FLOWS: u8 = 12;
const REPLICAS: u16 = 3;

fn bucket(part: u8) -> u8 {
    if part < FLOWS { FLOWS + part / 4 } else { part }
}

/// Where a part goes by its bucket: all buckets are the first replica's at first.
fn home(part: &u8, diverted: &dyn Fn(&u8) -> Option<u16>) -> u16 {
    if *part < FLOWS { diverted(&bucket(*part)).unwrap_or(0) } else { 0 }
}

/// Where the effects of a director lead packets.
#[derive(Default)]
struct Table {
    exceptions: BTreeMap<u8, u16>,
    /// Migrations that were said to be all at home.
    homes: Vec<MoveId>,
    /// What replicas remember as moved to them, each part by the migration that brought it last, until it is said to be at home.
    guests: BTreeMap<u8, MoveId>,
}

impl Table {
    fn apply(&mut self, effects: Vec<DirectorEffect<u8, ()>>) {
        for effect in effects {
            match effect {
                DirectorEffect::Divert(part, to) => drop(self.exceptions.insert(part, to)),
                DirectorEffect::Undivert(part) => drop(self.exceptions.remove(&part)),
                DirectorEffect::Send(_, Message::Settled { id, home: true }) => {
                    self.homes.push(id);
                    self.guests.retain(|_, by| *by != id);
                }
                DirectorEffect::Send(..) | DirectorEffect::Marker(..) => {}
            }
        }
    }

    fn goes(&self, part: u8) -> u16 {
        let at = |part: &u8| self.exceptions.get(part).copied();
        at(&part).unwrap_or_else(|| home(&part, &at))
    }
}

#[derive(Debug, Clone)]
enum Act {
    /// Moves some parts that are at one replica to another.
    Move { parts: BTreeSet<u8>, to: u16 },
    /// One of those that are under way is over.
    Settle(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let parts = prop::collection::btree_set(0..FLOWS + 3, 1..5);
    prop_oneof![
        (parts, 0..REPLICAS).prop_map(|(parts, to)| Act::Move { parts, to }),
        any::<usize>().prop_map(Act::Settle),
    ]
}

proptest! {
    #[test]
    fn it_sends_each_part_to_where_it_was_moved_last_and_forgets_what_is_at_home(
        acts in prop::collection::vec(act(), 1..60)
    ) {
        let mut director = Director::<u8>::new(0..REPLICAS);
        let mut table = Table::default();
        // By part, where it was moved last, by itself or with its bucket.
        let mut last = [0; FLOWS as usize + 3];
        let (mut open, mut number) = (Vec::new(), 0);
        let mut say = |table: &mut Table, source: u16, letter| {
            table.apply(director.message(Party::Replica(source), letter, home));
            director.exceptions()
        };
        for act in acts.into_iter().chain(std::iter::repeat_n(Act::Settle(0), 60)) {
            match act {
                Act::Move { parts, to } => {
                    // All are at one source, and with a bucket goes what is there of it.
                    let Some(source) = parts.first().map(|part| last[usize::from(*part)]) else { continue };
                    let there = |part: &u8| last[usize::from(*part)] == source;
                    let named = parts.into_iter().filter(there).collect::<BTreeSet<_>>();
                    let along = (0..FLOWS).filter(|flow| named.contains(&bucket(*flow))).filter(there);
                    let parts: BTreeSet<u8> = along.chain(named.iter().copied()).collect();
                    number += 1;
                    let id = MoveId { source, life: 0, number };
                    for part in &parts {
                        last[usize::from(*part)] = to;
                        table.guests.insert(*part, id);
                    }
                    open.push(id);
                    say(&mut table, source, Message::Switch { id, parts, to });
                }
                Act::Settle(at) if !open.is_empty() => {
                    let id = open.swap_remove(at % open.len());
                    say(&mut table, id.source, Message::Settled { id, home: false });
                }
                Act::Settle(_) => {}
            }
            for part in 0..FLOWS + 3 {
                prop_assert_eq!(table.goes(part), last[usize::from(part)], "part {}", part);
            }
        }
        // All is over: what is left is what does not go where its bucket does.
        let away = |part: &u8| {
            let by_bucket = if *part < FLOWS { last[usize::from(bucket(*part))] } else { 0 };
            last[usize::from(*part)] != by_bucket
        };
        let left: BTreeSet<u8> = table.exceptions.keys().copied().collect();
        prop_assert_eq!(&left, &(0..FLOWS + 3).filter(away).collect());
        prop_assert_eq!(director.exceptions(), left.len());
        // Replicas remember these as guests, and what came with one of them: nothing of a migration all of which is at home, or their room would
        // be taken by what nobody asks for any more.
        let guests: BTreeSet<u8> = table.guests.keys().copied().collect();
        prop_assert!(guests.is_superset(&left), "{:?} {:?}", guests, left);
        let away: BTreeSet<MoveId> = left.iter().filter_map(|part| table.guests.get(part)).copied().collect();
        let by: BTreeSet<MoveId> = table.guests.values().copied().collect();
        prop_assert_eq!(by, away);
        // Nobody is told twice of one, nor of one of which something is left.
        let told: BTreeSet<_> = table.homes.iter().map(|id| id.number).collect();
        prop_assert_eq!(told.len(), table.homes.len());
    }
}
