//! Where buckets of the flow hash begin in the next generation: with those who have their flows.

use super::RelinkError;
use super::share::{Went, meets, part_of};
use crate::agent::Agent;
use crate::crews::Crew;
use crate::setup::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_port::balance::{BUCKETS, Buckets};
use weir_runtime::moves::{Placed, Placing};
use weir_runtime::spec::{GroupSpec, SpreadSpec};

/// What nobody has.
const NOBODY: u8 = u8::MAX;

/// What all of the next generation begin with whose flows can move.
#[derive(Default)]
pub(super) struct Places {
    /// By worker.
    pub(super) of_workers: Vec<Vec<Placing>>,
    /// By group where buckets are.
    pub(super) tables: BTreeMap<u16, Vec<u8>>,
}

/// Where flows of one NF are, by the instances of the next generation.
struct Found {
    /// By bucket its instance, or [`NOBODY`].
    table: Vec<u8>,
    /// By instance what was moved there.
    moved: Vec<BTreeSet<u64>>,
    clock: u64,
    /// Packets were divided by something else.
    scattered: bool,
}

impl Places {
    /// By what has gone where.
    ///
    /// # Errors
    /// When flows would be parted from their packets, or who says where they are is not to be believed.
    pub(super) fn new(before: &Setup, next: &Agent, went: &[Went]) -> Result<Self, RelinkError> {
        let mut all =
            Places { of_workers: vec![Vec::new(); next.setup.workers.len()], ..Places::default() };
        let crews = || next.memory.crews().iter().flatten();
        for crew in crews() {
            all.add(before, next, crew, went)?;
        }
        for own in went.iter().filter(|own| own.flows > 0) {
            let moves = crews().any(|crew| crew.is_of(&own.nf));
            if let Some(placed) = own.placed.as_ref().filter(|_| !moves)
                && !divides_as(&next.setup, own, placed)
            {
                let name = &own.nf;
                let why = format!(
                    "the flows of {name}: some are at other instances than their packets divide to (they were moved there, or stayed as instances came or went), and those of the new graph \
                     cannot move any; give {name} one instance first, to which all go, or move them back (weir flow move --all; where --scale moved them, --to 1)"
                );
                return Err(RelinkError::Parted { why });
            }
        }
        Ok(all)
    }

    fn add(
        &mut self,
        before: &Setup,
        next: &Agent,
        crew: &Crew,
        went: &[Went],
    ) -> Result<(), RelinkError> {
        let Some(group) = next.setup.groups.get(usize::from(crew.group())) else { return Ok(()) };
        let mut all: Option<(&str, Found)> = None;
        for nf in crew.name.split('+') {
            let of: Vec<&Went> = went.iter().filter(|went| went.nf == nf).collect();
            if of.is_empty() {
                continue;
            }
            if parts_clients(before, group, &of) {
                let why = format!(
                    "the flows of {nf}: they were divided otherwise than by their clients, and what clients have may be at several instances; give {nf} \
                     one instance first, and then several"
                );
                return Err(RelinkError::Parted { why });
            }
            let found = find(crew, &of, |own| had(before, group, own))?;
            let Some((other, known)) = &mut all else {
                all = Some((nf, found));
                continue;
            };
            match known.meet(&found) {
                true => {}
                false => {
                    let why = format!(
                        "the flows of {other} and {nf}: they were moved or divided apart, and those of the new graph move together; move them \
                         back first (weir flow move --all; where --scale moved them, --to 1), or give both one instance first"
                    );
                    return Err(RelinkError::Parted { why });
                }
            }
        }
        let Some((_, Found { mut table, moved, clock, scattered })) = all else { return Ok(()) };
        if table.contains(&NOBODY) {
            // The weights are those that the graph was built with.
            let Ok(by_weights) = Buckets::new(&group.weights) else { return Ok(()) };
            let began = began(before, crew, went);
            let lacking = table.iter_mut().zip(0..=u16::MAX);
            for (own, bucket) in lacking.filter(|(own, _)| **own == NOBODY) {
                // What somebody had who is gone goes to who had it at first, as ever.
                let first = began.as_ref().and_then(|(buckets, to)| to.get(&buckets.at(bucket)));
                *own = first.copied().unwrap_or_else(|| by_weights.at(bucket));
            }
        }
        // Of instances that there are.
        let Ok(buckets) = Buckets::of(table, group.weights.len()) else { return Ok(()) };
        let table = buckets.save();
        let place = |moved: &BTreeSet<u64>| Placing {
            group: crew.group(),
            table: table.clone(),
            moved: moved.iter().copied().collect(),
            clock,
            scattered,
        };
        let instances = crew.instances.iter().zip(&moved);
        let instances = instances.map(|(instance, moved)| (instance.worker, place(moved)));
        let none = BTreeSet::new();
        let senders = crew.senders.iter().map(|w| (*w, place(&none)));
        for (w, place) in instances.chain(senders) {
            if let Some(own) = self.of_workers.get_mut(w) {
                own.push(place);
            }
        }
        self.tables.extend(crew.groups.iter().map(|group| (*group, table.clone())));
        Ok(())
    }
}

/// Where flows of an NF are, as those say who had them; `had` says it by bucket.
fn find(
    crew: &Crew,
    went: &[&Went],
    had: impl Fn(&Went) -> Option<Vec<bool>>,
) -> Result<Found, RelinkError> {
    let mut found = Found {
        table: vec![NOBODY; BUCKETS],
        moved: vec![BTreeSet::new(); crew.instances.len()],
        clock: 0,
        scattered: false,
    };
    for own in went {
        let index = crew.instances.iter().position(|instance| instance.worker == own.to.0);
        let Some(index) = index.and_then(|index| u8::try_from(index).ok()) else { continue };
        let Some(had) = had(own) else {
            found.scattered = true;
            continue;
        };
        let mut doubled = false;
        for (instance, had) in found.table.iter_mut().zip(had) {
            doubled |= had & (*instance != NOBODY) & (*instance != index);
            *instance = if had { index } else { *instance };
        }
        if let Some(placed) = &own.placed {
            found.clock = found.clock.max(placed.clock);
            doubled |= found.moved.iter().zip(0..).any(|(moved, of)| {
                of != index && placed.moved.iter().any(|hash| moved.contains(hash))
            });
            if let Some(moved) = found.moved.get_mut(usize::from(index)) {
                moved.extend(&placed.moved);
            }
        }
        if doubled {
            let why = format!(
                "two instances of {} say that the same flows are with them, and one of them is not to be believed",
                own.nf
            );
            return Err(RelinkError::Parted { why });
        }
    }
    Ok(found)
}

/// Where buckets began in the generation before, and which instance of the next has what each had.
fn began(before: &Setup, crew: &Crew, went: &[Went]) -> Option<(Buckets, BTreeMap<u8, u8>)> {
    let own = |went: &&Went| crew.is_of(&went.nf);
    let part = |went: &Went| part_of(before, &went.nf, went.from);
    let first = went.iter().filter(own).find_map(part)?;
    let buckets = before.groups.get(usize::from(first.group))?.buckets().ok()?;
    let to = went.iter().filter(own).filter_map(|went| {
        let at = crew.instances.iter().position(|instance| instance.worker == went.to.0)?;
        Some((part(went)?.index, u8::try_from(at).ok()?))
    });
    Some((buckets, to.collect()))
}

/// True when flows are at several instances that were not divided by clients and are to be, or the reverse: of one hash then, that goes to one
/// instance, several have some.
fn parts_clients(before: &Setup, group: &GroupSpec, went: &[&Went]) -> bool {
    let by_clients = |own: &&&Went| {
        let part = part_of(before, &own.nf, own.from);
        let old = part.and_then(|part| before.groups.get(usize::from(part.group)));
        old.map(|old| old.spread == SpreadSpec::Client)
    };
    let had: Vec<bool> =
        went.iter().filter(|own| own.flows > 0).filter_map(|own| by_clients(&own)).collect();
    had.len() > 1 && had.iter().any(|had| *had != (group.spread == SpreadSpec::Client))
}

/// By bucket whether an instance had it; `None` when packets were divided by something else than they are now.
fn had(before: &Setup, group: &GroupSpec, own: &Went) -> Option<Vec<bool>> {
    if let Some(placed) = &own.placed {
        return Some(placed.buckets.to_vec());
    }
    let Some(part) = part_of(before, &own.nf, own.from) else { return Some(vec![true; BUCKETS]) };
    let old = before.groups.get(usize::from(part.group))?;
    let buckets = old.buckets().ok().filter(|_| old.spread == group.spread)?;
    Some(buckets.instances().map(|instance| instance == part.index).collect())
}

/// True when packets divide over the instances of an NF whose flows cannot move to where its flows are.
fn divides_as(next: &Setup, own: &Went, placed: &Placed) -> bool {
    // All go to one instance.
    let Some(part) = part_of(next, &own.nf, own.to) else { return true };
    let group = next.groups.get(usize::from(part.group));
    if group.is_some_and(|group| !meets(next, &own.nf, group.spread)) {
        return true;
    }
    let buckets = group.and_then(|group| Buckets::new(&group.weights).ok());
    let own = |buckets: Buckets| {
        buckets.instances().map(|instance| instance == part.index).eq(placed.buckets.to_vec())
    };
    placed.moved.is_empty() && buckets.is_some_and(own)
}

impl Found {
    /// Takes in where flows are of another NF that move together with these; false when they are elsewhere.
    fn meet(&mut self, other: &Found) -> bool {
        for (own, other) in self.table.iter_mut().zip(&other.table) {
            match (*own, *other) {
                (_, NOBODY) => {}
                (NOBODY, other) => *own = other,
                (own, other) if own != other => return false,
                _ => {}
            }
        }
        self.clock = self.clock.max(other.clock);
        self.moved == other.moved && self.scattered == other.scattered
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
mod tests {
    use super::*;
    use crate::crews::Instance;
    use weir_runtime::moves::BucketSet;

    /// Of two instances, in workers 7 and 8.
    fn crew() -> Crew {
        let instance = |worker| Instance { worker, entries: vec![0], nodes: vec![0] };
        let nfs = vec!["a".to_owned(), "b".to_owned()];
        let (name, instances) = ("a+b".to_owned(), vec![instance(7), instance(8)]);
        Crew { groups: vec![0], name, nfs, instances, senders: vec![3] }
    }

    fn went(nf: &str, to: usize, has: impl Fn(u16) -> bool, moved: &[u64], clock: u64) -> Went {
        let buckets = BucketSet::new(&(0..=u16::MAX).map(has).collect::<Vec<_>>());
        let placed = Some(Placed { buckets, moved: moved.to_vec(), clock });
        Went { nf: nf.to_owned(), from: (1, 0), to: (to, 0), placed, flows: 1 }
    }

    fn found(went: &[&Went]) -> Result<Found, RelinkError> {
        find(&crew(), went, |own| own.placed.as_ref().map(|placed| placed.buckets.to_vec()))
    }

    #[test]
    fn buckets_are_with_who_takes_over_what_had_them_and_what_two_went_to_one_is_together() {
        let all = [
            went("a", 7, |b| b < 100, &[1], 4),
            went("a", 8, |b| (100..200).contains(&b), &[2], 9),
            went("a", 8, |b| b >= 300, &[3], 2),
        ];
        let found = found(&all.iter().collect::<Vec<_>>()).unwrap();
        let at = |bucket: usize| found.table[bucket];
        assert_eq!([at(0), at(99), at(100), at(199), at(200), at(300)], [0, 0, 1, 1, NOBODY, 1]);
        assert_eq!(found.moved, [BTreeSet::from([1]), BTreeSet::from([2, 3])]);
        assert_eq!((found.clock, found.scattered), (9, false));
    }

    #[test]
    fn who_claims_what_another_has_is_not_believed() {
        let (one, other) = (went("a", 7, |b| b < 100, &[], 0), went("a", 8, |b| b == 99, &[], 0));
        let Err(RelinkError::Parted { why }) = found(&[&one, &other]) else {
            panic!("both are believed")
        };
        assert!(why.contains("two instances of a say that the same flows are with them"), "{why}");
    }

    #[test]
    fn nfs_move_together_whose_flows_are_at_the_same_places() {
        let a = || found(&[&went("a", 7, |b| b < 100, &[5], 1)]).unwrap();
        // What is not known of one is known of the other.
        let mut both = a();
        assert!(both.meet(&found(&[&went("b", 7, |b| b < 50, &[5], 8)]).unwrap()));
        assert_eq!((both.clock, both.table[99]), (8, 0));
        assert!(!a().meet(&found(&[&went("b", 8, |b| b == 5, &[5], 1)]).unwrap()));
        assert!(!a().meet(&found(&[&went("b", 7, |b| b < 100, &[6], 1)]).unwrap()));
    }
}
