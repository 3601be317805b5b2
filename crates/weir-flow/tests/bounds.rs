//! What the machines do not do, whatever they are told: wait for each other for ever, give up their numbers, or remember
//! without bound.
#![allow(clippy::unwrap_used)] // A test.

use std::collections::BTreeSet;
use weir_flow::{
    Director, DirectorEffect, Effect, Fate, Going, Limits, Message, MoveId, Party, Refusal,
    Replica, Stage, StartError, Told,
};

type Done = Effect<u8, ()>;

fn replica(me: u16) -> Replica<u8> {
    Replica::new(me, 0..3, 0..2, Limits { moves: 4, packets: 0, guests: 100 })
}

fn begin(source: &mut Replica<u8>, part: u8, to: u16) -> MoveId {
    source.start::<()>([part].into(), to, false, vec![1]).unwrap().0
}

fn prepare(target: &mut Replica<u8>, id: MoveId, part: u8) -> Vec<Done> {
    let letter = Message::Prepare { id, parts: [part].into(), home: false, flows: vec![1] };
    target.message(Party::Replica(id.source), letter)
}

fn refused(id: MoveId, why: Refusal) -> Vec<Done> {
    vec![Effect::Send(Party::Replica(id.source), Message::Refused(id, why))]
}

#[test]
fn who_sends_flows_away_takes_none_so_two_never_wait_for_each_other() {
    let (mut first, mut second) = (replica(0), replica(1));
    let (there, back) = (begin(&mut first, 1, 1), begin(&mut second, 2, 0));
    // Both have asked at once: neither takes.
    assert_eq!(prepare(&mut second, there, 1), refused(there, Refusal::Busy));
    assert_eq!(prepare(&mut first, back, 2), refused(back, Refusal::Busy));
    // The second has given up: it may take the first's.
    second.message::<()>(Party::Replica(0), Message::Refused(back, Refusal::Busy));
    assert_eq!(
        prepare(&mut second, there, 1),
        [Effect::Send(Party::Replica(0), Message::Prepared(there))]
    );
    // And begins nothing until they have come.
    assert_eq!(second.start::<()>([3].into(), 2, false, vec![1]), Err(StartError::Busy));
    second.message(Party::Replica(0), Message::State(there, ()));
    assert!(second.start::<()>([3].into(), 2, false, vec![1]).is_ok());
}

#[test]
fn who_announces_flows_and_does_not_send_them_is_not_waited_for_and_keeps_nobody_else_from_moving()
{
    let mut target = replica(1);
    let hostile = |number| MoveId { source: 0, life: 0, number };
    for number in 1..=4 {
        prepare(&mut target, hostile(number), number as u8);
    }
    let busy = MoveId { source: 2, ..hostile(9) };
    assert_eq!(prepare(&mut target, busy, 9), refused(busy, Refusal::Busy));
    assert_eq!(target.packet(&[1]), Fate::Wait);
    let overdue: Vec<Done> = (1..=4).map(|number| Effect::Overdue(hostile(number))).collect();
    assert_eq!(target.forsake(0), overdue);
    assert_eq!((target.packet(&[1]), target.is_quiet()), (Fate::Process, true));
    assert_eq!(target.forsake::<()>(0), []);
    let prepared = Effect::Send(Party::Replica(2), Message::Prepared(busy));
    assert_eq!(prepare(&mut target, busy, 9), [prepared]);
    // However often it does so, no more is remembered than may be under way.
    for number in 10..20 {
        prepare(&mut target, hostile(number), number as u8);
        target.forsake::<()>(0);
    }
    assert_eq!(target.overdue(), 4);
    // What was to come from the other is still waited for.
    assert_eq!(target.packet(&[9]), Fate::Wait);
}

/// A part and its bucket, as they are asked for with each packet.
#[test]
fn a_flow_that_was_moved_here_by_itself_does_not_wait_for_its_bucket() {
    const BUCKET: u8 = 100;
    let mut target = replica(1);
    let alone = MoveId { source: 2, life: 0, number: 1 };
    prepare(&mut target, alone, 1);
    assert_eq!(target.packet(&[1, BUCKET]), Fate::Wait, "it comes");
    target.message(Party::Replica(2), Message::State(alone, ()));
    let bucket = MoveId { source: 0, life: 0, number: 2 };
    prepare(&mut target, bucket, BUCKET);
    assert_eq!(target.packet(&[1, BUCKET]), Fate::Process, "it is here");
    assert_eq!(target.packet(&[2, BUCKET]), Fate::Wait, "another of the bucket comes with it");
    // It goes, and comes back with its bucket only.
    target.message(Party::Replica(0), Message::State(bucket, ()));
    let back = begin(&mut target, 1, 2);
    target.message::<()>(Party::Replica(2), Message::Prepared(back));
    for director in 0..2 {
        target.marker::<()>(director, back);
    }
    target.message::<()>(Party::Replica(2), Message::Done { id: back, lost: 0 });
    let again = MoveId { source: 2, life: 0, number: 9 };
    prepare(&mut target, again, 1);
    assert_eq!(target.packet(&[1, BUCKET]), Fate::Wait);
}

#[test]
fn a_director_remembers_a_bounded_number_of_migrations_of_who_ends_none() {
    let mut director = Director::<u8>::new(0..3);
    let home = |_: &u8, _: &dyn Fn(&u8) -> Option<u16>| 0;
    let switch = |number, to| {
        let id = MoveId { source: 1, life: 0, number };
        Message::<u8, ()>::Switch { id, parts: [7].into(), to }
    };
    let routes = |director: &mut Director<u8>| {
        let told = director.message(Party::Replica(2), Message::<u8, ()>::Hello(1), home);
        let [DirectorEffect::Send(_, Message::Tell(_, told)), ..] = &told[..] else { panic!() };
        told.routes.clone()
    };
    for number in 1..=1000 {
        director.message(Party::Replica(1), switch(number, 2), home);
    }
    let [(7, route)] = &routes(&mut director)[..] else { panic!("not one route") };
    assert_eq!((route.to, route.unsettled.len()), (2, 256));
    // When it is gone nothing keeps the part from being forgotten at home.
    director.message(Party::Replica(1), switch(1001, 0), home);
    director.gone::<()>(1);
    let other = MoveId { source: 2, life: 0, number: 1002 };
    director.message(
        Party::Replica(2),
        Message::<u8, ()>::Settled { id: other, home: false },
        home,
    );
    assert_eq!(director.exceptions(), 0);
}

#[test]
fn what_comes_late_is_taken_and_answered() {
    let mut target = replica(1);
    let id = MoveId { source: 0, life: 0, number: 1 };
    prepare(&mut target, id, 1);
    target.forsake::<()>(0);
    let late = target.message(Party::Replica(0), Message::State(id, ()));
    let done = Effect::Send(Party::Replica(0), Message::Done { id, lost: 0 });
    assert_eq!(late, [Effect::Adopt(id, ()), Effect::Release(id), done.clone()]);
    assert_eq!((target.overdue(), target.guests()), (0, 1));
    // Asked for again it says so again.
    assert_eq!(target.message(Party::Replica(0), Message::State(id, ())), [done]);
}

#[test]
fn nobody_tells_of_flows_that_another_is_to_send() {
    let limits = Limits { moves: 4, packets: 0, guests: 100 };
    let (mut target, _) = Replica::<u8>::restarted::<()>(1, 1, 0..3, 0..1, limits);
    let going = |source| {
        let id = MoveId { source, life: 0, number: 1 };
        let (parts, stage) = ([source as u8].into(), Stage::Handing);
        (id, Going { parts, to: 1, home: false, stage })
    };
    let told = Told { going: vec![going(0), going(2)], ..Told::default() };
    target.message::<()>(Party::Replica(0), Message::Tell(1, told));
    assert!(target.is_coming(going(0).0) && !target.is_coming(going(2).0));
}

#[test]
fn after_a_restart_nobody_waits_for_ever_for_who_does_not_answer() {
    let limits = Limits { moves: 4, packets: 0, guests: 100 };
    let (mut replica, _) = Replica::<u8>::restarted::<()>(1, 1, 0..3, 0..1, limits);
    let tell = |machine: &mut Replica<u8>, who| {
        machine.message::<()>(who, Message::Tell(1, Told::default()));
    };
    tell(&mut replica, Party::Director(0));
    tell(&mut replica, Party::Replica(0));
    assert_eq!(replica.unheard().collect::<Vec<_>>(), [Party::Replica(2)]);
    replica.go_on_without::<()>(Party::Replica(2));
    assert!(replica.is_ready());

    let (mut director, _) = Director::<u8>::restarted::<()>(1, 0..3);
    let id = MoveId { source: 2, life: 0, number: 1 };
    // One tells of flows that another is to send it, and that one of none.
    let coming = vec![(id, [7].into(), false)];
    let told = |coming| Message::<u8, ()>::Tell(1, Told { coming, ..Told::default() });
    director.message(Party::Replica(0), told(coming), |_, _| 0);
    director.message(Party::Replica(1), told(Vec::new()), |_, _| 0);
    assert_eq!(director.unheard(), [0, 2].into());
    director.go_on_without(2);
    director.go_on_without(0);
    assert!(director.is_ready());
}

#[test]
fn only_the_target_says_how_it_goes_with_a_migration() {
    let mut source = replica(0);
    let id = begin(&mut source, 1, 1);
    let (target, another) = (Party::Replica(1), Party::Replica(2));
    assert_eq!(source.message::<()>(another, Message::Prepared(id)), []);
    assert_eq!(source.message::<()>(another, Message::Refused(id, Refusal::Full)), []);
    assert_eq!(source.message::<()>(target, Message::Prepared(id)).len(), 2);
    source.marker::<()>(0, id);
    source.marker::<()>(1, id);
    // Its copy would be lost.
    assert_eq!(source.message::<()>(another, Message::Done { id, lost: 0 }), []);
    assert!(!source.is_quiet());
    source.message::<()>(target, Message::Done { id, lost: 0 });
    assert!(source.is_quiet());
}

#[test]
fn a_number_that_no_later_one_could_follow_is_not_believed() {
    let mut replica = replica(0);
    let last = MoveId { source: 1, life: 0, number: u64::MAX };
    assert_eq!(prepare(&mut replica, last, 1), refused(last, Refusal::Busy));
    assert!(begin(&mut replica, 2, 2).number < 10);

    let mut director = Director::new(0..3);
    let switch = |id| Message::<u8, ()>::Switch { id, parts: [7].into(), to: 1 };
    assert_eq!(director.message(Party::Replica(1), switch(last), |_, _| 0), []);
    let sound = MoveId { source: 0, number: 1, ..last };
    assert_eq!(
        director.message(Party::Replica(0), switch(sound), |_, _| 0),
        [DirectorEffect::Divert(7, 1), DirectorEffect::Marker(0, sound)]
    );
}

#[test]
fn a_director_remembers_no_more_parts_than_it_may() {
    let mut director = Director::new(0..3).with_most(10);
    let id = |number| MoveId { source: 0, life: 0, number };
    let mut switch = |number, parts: std::ops::Range<u8>| {
        let parts: BTreeSet<u8> = parts.collect();
        let letter = Message::<u8, ()>::Switch { id: id(number), parts, to: 1 };
        director.message(Party::Replica(0), letter, |_, _| 0).len()
    };
    assert_eq!(switch(1, 0..8), 9);
    assert_eq!(switch(2, 8..11), 0, "more than it may");
    assert_eq!(switch(3, 8..10), 3);
    let parts = (20..40).collect();
    director.message::<()>(Party::Replica(2), Message::Arrived { id: id(4), parts }, |_, _| 0);
    assert_eq!(director.exceptions(), 10);
}

#[test]
fn who_takes_the_place_of_one_that_rests_has_its_guests_and_gives_later_numbers() {
    let (mut old, mut new) = (replica(1), replica(1));
    let id = MoveId { source: 0, life: 0, number: 7 };
    prepare(&mut old, id, 1);
    old.message(Party::Replica(0), Message::State(id, ()));
    let guests = old.moved_here().map(|(part, by)| (*part, by)).collect();
    new.carry_on(old.clock(), guests);
    assert!(begin(&mut new, 2, 2).number > id.number);
    // A director that knows nothing is told where the part is.
    let (mut director, _) = Director::restarted::<()>(1, 0..3);
    let mut tell = |replica: &mut Replica<u8>, me| {
        let told = replica.message::<()>(Party::Director(0), Message::Hello(1));
        for effect in told {
            if let Effect::Send(_, letter) = effect {
                director.message(Party::Replica(me), letter, |_, _| 0);
            }
        }
        (director.is_ready(), director.diverted(&1))
    };
    tell(&mut replica(0), 0);
    tell(&mut replica(2), 2);
    assert_eq!(tell(&mut new, 1), (true, Some(1)));
}

#[test]
fn a_part_stays_where_it_was_moved_though_its_bucket_was_moved_away_from_there() {
    // Of part 1 the bucket is 101. It was at replica 2 in the beginning, and is at 1 now.
    let (part, bucket) = (1, 101);
    let home = |of: &u8, diverted: &dyn Fn(&u8) -> Option<u16>| match *of {
        1 => diverted(&bucket).unwrap_or(2),
        _ => 2,
    };
    let (mut director, _) = Director::restarted::<()>(1, 0..3);
    let by = |number| MoveId { source: 0, life: 0, number };
    for (replica, guests) in [(0, vec![]), (2, vec![(part, by(2))]), (1, vec![(bucket, by(1))])] {
        let told = Message::<u8, ()>::Tell(1, Told { guests, ..Told::default() });
        director.message(Party::Replica(replica), told, home);
    }
    assert!(director.is_ready());
    assert_eq!((director.diverted(&part), director.diverted(&bucket)), (Some(2), Some(1)));
}
