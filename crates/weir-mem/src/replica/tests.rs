use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SHAPE: Shape = Shape { slots: 200, units: 1 << 12 };

/// Everything that counts as of a batch.
fn all(table: &ReplicaTable, committed: u64) -> BTreeMap<u32, Vec<u8>> {
    (0..SHAPE.slots).filter_map(|slot| Some((slot, table.record(slot, committed)?))).collect()
}

/// What a worker does in one batch.
type Batch = Vec<(u32, Option<Vec<u8>>)>;

/// What is written beside a record.
fn tag(record: &[u8]) -> u64 {
    record.iter().map(|byte| u64::from(*byte)).sum()
}

fn batch() -> impl Strategy<Value = Batch> {
    let record = proptest::option::weighted(0.8, proptest::collection::vec(any::<u8>(), 1..400));
    proptest::collection::vec((0..SHAPE.slots, record), 0..12)
}

fn write(table: &mut ReplicaTable, batch: &Batch, number: u64) {
    for (slot, record) in batch {
        match record {
            Some(record) => {
                assert_eq!(table.put_tagged(*slot, record, tag(record), number), Ok(()));
            }
            None => table.clear(*slot, number),
        }
    }
}

fn apply(model: &mut BTreeMap<u32, Vec<u8>>, batch: &Batch) {
    for (slot, record) in batch {
        match record {
            Some(record) => model.insert(*slot, record.clone()),
            None => model.remove(slot),
        };
    }
}

proptest! {
    #[test]
    fn whoever_takes_over_finds_the_batches_that_were_committed_and_nothing_of_a_later_one(
        lives in proptest::collection::vec(
            (proptest::collection::vec(batch(), 0..8), batch(), 0usize..12, 0..SHAPE.slots), 1..6
        )
    ) {
        let end = heap(SHAPE);
        let (mut model, mut committed) = (BTreeMap::new(), 0);
        for (batches, last, cut, half) in lives {
            let mut table = end();
            let mut taken = BTreeMap::new();
            let found = table.reopen(committed, |slot, found| {
                let record = found.record().unwrap().to_vec();
                assert_eq!(found.tag(), tag(&record));
                taken.insert(slot, record);
                true
            });
            prop_assert_eq!(&taken, &model);
            prop_assert_eq!(found, Reopened { taken: model.len() as u64, refused: 0 });
            for batch in &batches {
                write(&mut table, batch, committed + 1);
                prop_assert_eq!(&all(&table, committed), &model, "before the commit");
                apply(&mut model, batch);
                committed += 1;
                prop_assert_eq!(&all(&table, committed), &model, "behind the commit");
            }
            // It dies in the middle of this one.
            let some: Batch = last.into_iter().take(cut).collect();
            write(&mut table, &some, committed + 1);
            // And of another record: it has its place, and is not whole.
            if table.is_used(half / PAGE) {
                let (at, ..) = table.spare(half, committed + 1);
                table.store(at, 0);
            }
        }
    }

    #[test]
    fn whatever_stands_in_the_memory_is_taken_or_refused_and_can_be_written_over(
        batches in proptest::collection::vec(batch(), 1..4),
        scribbles in proptest::collection::vec((0usize..SHAPE.words(), any::<u64>()), 0..60),
        small in proptest::collection::vec((0usize..SHAPE.first_record(), 0u64..300), 0..60),
    ) {
        let end = heap(SHAPE);
        let mut table = end();
        for (number, batch) in (1..).zip(&batches) {
            write(&mut table, batch, number);
        }
        let committed = batches.len() as u64;
        for (at, word) in scribbles.into_iter().chain(small) {
            table.store(at, word);
        }
        let mut successor = end();
        let mut taken = BTreeMap::new();
        let found = successor.reopen(committed, |slot, found| {
            let Some(record) = found.record() else { return false };
            taken.insert(slot, record.to_vec());
            slot % 3 > 0
        });
        let (view, mut record) = (successor.view(), Vec::new());
        for (slot, taken) in taken.iter().filter(|(slot, _)| **slot % 3 > 0) {
            prop_assert!(view.read(*slot, committed, &mut record) && record == *taken);
        }
        prop_assert_eq!(found.taken as usize, taken.keys().filter(|s| *s % 3 > 0).count());
        prop_assert!(all(&successor, committed).keys().all(|slot| slot % 3 > 0), "refused is gone");
        // From here on it is a table like any other.
        let mut model = all(&successor, committed);
        // Each slot's both versions are written over, and more often.
        let more = batches.iter().cycle().take(4 * batches.len());
        for (number, batch) in (committed + 1..).zip(more) {
            write(&mut successor, batch, number);
            apply(&mut model, batch);
            prop_assert_eq!(&all(&successor, number), &model);
        }
    }
}

#[test]
fn a_table_that_is_full_says_so_and_keeps_what_counts() {
    let mut table = heap(Shape { slots: 64, units: 4 })();
    table.put(0, &[1; 64], 1).unwrap();
    table.put(1, &[2; 65], 1).unwrap();
    assert_eq!(table.put(2, &[3; 65], 2), Err(PutError::Full));
    assert_eq!(table.put(0, &[3; 64], 2), Ok(()));
    assert_eq!(table.put(1, &[3; 64], 2), Err(PutError::Full));
    assert_eq!((table.record(0, 2), table.record(1, 2)), (Some(vec![3; 64]), Some(vec![2; 65])));
    // Its older version's room is taken by the next.
    table.clear(1, 2);
    table.clear(1, 3);
    assert_eq!(table.put(2, &[4; 65], 3), Ok(()));
    assert_eq!(table.put(64, &[], 3), Err(PutError::NoSlot(64)));
    assert_eq!(
        table.put(2, &vec![0; RECORD_BYTES + 1], 3),
        Err(PutError::TooLong(RECORD_BYTES + 1))
    );
}

#[test]
fn a_table_that_is_forgotten_has_nothing_and_what_stood_there_does_not_come_back() {
    let region = Region::create("weir-test", ReplicaTable::LEN).unwrap();
    let mut worker = ReplicaTable::attach(&region).unwrap();
    let agent = ReplicaTable::attach(&region).unwrap();
    assert!(!agent.forget());
    worker.put(5, b"five", 1).unwrap();
    worker.put(70, b"seventy", 1).unwrap();
    assert!(agent.forget());
    let mut successor = ReplicaTable::attach(&region).unwrap();
    assert_eq!(successor.reopen(1, |_, found| found.record().is_some()), Reopened::default());
    successor.put(6, b"six", 2).unwrap();
    assert_eq!((successor.record(5, 2), successor.record(6, 2)), (None, Some(b"six".to_vec())));
    assert_eq!(successor.record(6, 1), None, "not committed");
}

#[test]
fn a_batch_that_is_written_again_before_it_is_committed_leaves_the_version_that_counts() {
    let mut table = heap(SHAPE)();
    table.put(3, b"seen", 1).unwrap();
    for again in [b"once", b"more", b"then"] {
        table.put(3, again, 2).unwrap();
        assert_eq!(table.record(3, 1).as_deref(), Some(&b"seen"[..]));
    }
    assert_eq!(table.record(3, 2).as_deref(), Some(&b"then"[..]));
}

#[test]
fn however_often_a_table_is_taken_over_its_records_find_the_room_that_they_had() {
    let end = heap(Shape { slots: 200, units: 200 * 4 * 2 + 64 });
    for life in 0..40u64 {
        let mut table = end();
        let found = table.reopen(2 * life, |_, found| found.record().is_some());
        assert_eq!(found, Reopened { taken: if life == 0 { 0 } else { 200 }, refused: 0 });
        for batch in [2 * life + 1, 2 * life + 2] {
            for slot in 0..200 {
                assert_eq!(table.put(slot, &[life as u8; 200], batch), Ok(()), "life {life}");
            }
        }
    }
}

/// What a slot has beside the version that counts is not believed: a place there may be another's by now.
#[test]
fn of_what_a_predecessor_left_beside_what_counts_no_room_is_used() {
    let end = heap(SHAPE);
    for batch in [0, 3, 5] {
        let mut table = end();
        for slot in 0..2 {
            table.put(slot, &[slot as u8; 300], 5).unwrap();
        }
        let [own, theirs] = [0, 1].map(|slot| {
            let both = [0, 1].map(|version| table.version(slot, version));
            let counts = both.into_iter().find(|at| table.load(*at) == 5).unwrap();
            [0, 1, 2].map(|word| table.load(counts + word))
        });
        // The first version of slot 0 counts. Its second says that it lies where the record of slot 1 does.
        for (word, own) in own.into_iter().enumerate() {
            table.store(table.version(0, 0) + word, own);
        }
        table.store(table.version(0, 1), batch);
        table.store(table.version(0, 1) + 1, theirs[1]);
        let mut successor = end();
        successor.reopen(5, |_, found| found.record().is_some());
        for number in 6..12 {
            successor.put(0, &[9; 300], number).unwrap();
            assert_eq!(successor.record(1, number), Some(vec![1; 300]), "beside: {batch}");
            assert_eq!(successor.record(0, number), Some(vec![9; 300]), "beside: {batch}");
            assert_ne!(successor.record(0, number - 1), None, "the one before still counts");
        }
        assert!(successor.forget());
    }
}

#[test]
fn of_records_that_lie_in_one_place_one_is_read_and_the_others_are_refused() {
    let end = heap(SHAPE);
    let mut table = end();
    for slot in 0..100 {
        table.put(slot, &[7; 300], 1).unwrap();
    }
    // All point to where that of slot 40 lies.
    let place = table.load(table.version(40, 0) + 1).max(table.load(table.version(40, 1) + 1));
    for slot in 0..100 {
        let version = usize::from(table.load(table.version(slot, 0)) == 0);
        table.store(table.version(slot, version) + 1, place);
    }
    let (mut successor, mut read) = (end(), 0);
    let found = successor.reopen(1, |_, found| {
        read += 1;
        found.record().is_some()
    });
    assert!(read <= 1, "{read} records were read in one place");
    assert_eq!(found.taken + found.refused, 100);
    assert_eq!(all(&successor, 1).len() as u64, found.taken, "nobody is left without a word");
}
