//! The suite.

use crate::rig::{Event, RING, Rig, Shape};
use weir_packet::BATCH;

pub fn batches_of_any_size(shape: Shape) {
    let mut rig = Rig::new(shape);
    for size in 1..=BATCH {
        for _ in 0..2 {
            assert_eq!(rig.send(size), size, "there is room");
        }
        rig.drain();
        let came: usize = rig.came.iter().map(Vec::len).sum();
        assert_eq!(came as u64, rig.sent, "in batches of {size}");
    }
    // Taken in others than they were sent in.
    for size in [1, 7, 100, BATCH] {
        rig.send(BATCH);
        rig.all_between(BATCH);
        while (0..shape.takers).map(|taker| rig.take(taker, size)).sum::<usize>() > 0 {}
        rig.assert_settled();
    }
}

pub fn back_pressure(shape: Shape) {
    let mut rig = Rig::new(shape);
    while rig.send(BATCH) > 0 {}
    let full = rig.sent;
    assert!((RING as u64..=(RING * shape.lanes) as u64).contains(&full), "{full}");
    assert_eq!(rig.send(1), 0, "a full lane lets nobody pass");
    rig.drain();
    assert_eq!(rig.send(BATCH), BATCH, "there is room again");
    rig.drain();
    rig.assert_settled();
    assert_eq!((rig.dropped.len(), rig.sent), (0, full + BATCH as u64));
}

pub fn end_of_stream(shape: Shape) {
    let mut rig = Rig::new(shape);
    rig.send(100);
    assert!(rig.end());
    let ended = |rig: &mut Rig| (0..shape.takers).all(|taker| rig.has_ended(taker));
    assert!(!ended(&mut rig), "packets are under way");
    rig.drain();
    rig.all_between(BATCH);
    assert_eq!(rig.came.iter().map(Vec::len).sum::<usize>(), 100);
    assert!(ended(&mut rig));
    (0..shape.takers).for_each(|taker| rig.finish(taker));
    assert!(ended(&mut rig), "and stays so");
    rig.assert_settled();
}

pub fn markers(shape: Shape) {
    if !shape.marks {
        return;
    }
    let mut rig = Rig::new(shape);
    for number in 0..20 {
        rig.send(1 + 13 * number as usize % 50);
        let sent: Vec<u64> = rig.by_lane.iter().map(|(sent, _)| *sent).collect();
        assert!(rig.mark(number));
        rig.send(30);
        rig.drain();
        for (lane, sent) in sent.iter().enumerate() {
            assert!(rig.by_lane[lane].1 <= *sent, "lane {lane}: a packet has passed the marker");
        }
        let mut passed = vec![false; shape.lanes];
        // Merged, a lane comes to its marker when the others have come to theirs, or past it.
        for _ in 0..=shape.lanes {
            for (lane, passed) in passed.iter_mut().enumerate().filter(|(_, passed)| !**passed) {
                let taken = rig.by_lane[lane].1;
                if let Some(found) = rig.pass_mark(lane) {
                    assert_eq!((found, taken), (number, sent[lane]), "lane {lane}");
                    *passed = true;
                }
            }
            rig.drain();
        }
        assert!(passed.iter().all(|passed| *passed), "{passed:?}");
        rig.assert_settled();
    }
}

pub fn death_of_the_sender(shape: Shape) {
    let mut rig = Rig::new(shape);
    for n in [1, 2, 100, BATCH] {
        rig.send(50);
        rig.sender_dies(n);
        rig.send(50);
        rig.drain();
        rig.assert_settled();
    }
    assert_eq!(rig.came.iter().map(Vec::len).sum::<usize>(), 400);
}

pub fn death_of_the_taker(shape: Shape) {
    let mut rig = Rig::new(shape);
    for n in [0, 1, 2, 100, BATCH] {
        rig.send(BATCH);
        rig.all_between(BATCH);
        let before = rig.lost.len();
        (0..shape.takers).for_each(|taker| rig.taker_dies(taker, n));
        assert!(rig.lost.len() - before <= n * shape.takers, "no more than it had claimed");
        assert!(n == 0 || rig.lost.len() > before, "it had some");
        rig.drain();
        rig.assert_settled();
    }
}

pub fn any_history(shape: Shape, events: &[Event]) {
    let mut rig = Rig::new(shape);
    for event in events {
        match *event {
            Event::Send(n) => {
                rig.send(n);
            }
            Event::Between(branch, n) => rig.between(branch, n),
            Event::Take(taker, n) => {
                rig.take(taker, n);
            }
            Event::SenderDies(n) => rig.sender_dies(n),
            Event::TakerDies(taker, n) => rig.taker_dies(taker, n),
            Event::BranchDies(branch, n) => rig.branch_dies(branch, n),
        }
    }
    rig.drain();
    rig.assert_settled();
    if shape.branches == 0 {
        assert!(rig.dropped.is_empty());
    }
}
