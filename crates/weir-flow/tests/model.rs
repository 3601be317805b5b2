//! Every interleaving of small cases: messages, packets, markers, time-outs, and deaths at every step.
//!
//! One flow has packets by one or two directors while it moves from replica 0, its home, to replica 1
//! (and back). Looked for: a packet that is lost, taken twice, or out of its director's order; a flow at
//! two places, or begun anew though its state is elsewhere; an end at which something is left to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A test.

mod world;

use stateright::{Checker, Model, Property};
use world::{Broken, Case, World};

impl Model for Case {
    type State = World;
    type Action = world::Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Self::Action>) {
        if world.wrong.is_none() {
            world.normal(self, actions);
            world.faults(self, actions);
        }
    }

    fn next_state(&self, world: &World, action: Self::Action) -> Option<World> {
        let mut next = world.clone();
        next.act(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing goes wrong", |_, world: &World| world.wrong.is_none()),
            Property::always("when all is done, all is well", |case: &Case, world: &World| {
                let mut left = Vec::new();
                world.normal(case, &mut left);
                !left.is_empty() || world.wrong.is_some() || world.is_well(case)
            }),
            Property::sometimes("the flow moves", |case: &Case, world: &World| {
                world.moved > usize::from(case.back)
            }),
            Property::sometimes("packets are buffered", |_, world: &World| world.was_buffered),
        ]
    }
}

/// What breaks these machines must be seen.
#[test]
fn a_broken_protocol_is_found_out() {
    let case =
        |broken, deaths| Case { packets: 2, deaths, broken: Some(broken), ..Case::default() };
    let ordered = Case { packets: 1, directors: 1, back: true, ordered: true, ..Case::default() };
    for case in [
        case(Broken::MarkerFirst, 0),
        case(Broken::NoBuffer, 0),
        case(Broken::AsksNobody, 1),
        Case { deaths: 1, broken: Some(Broken::ObeysAtOnce), ..ordered },
        Case { impatient: true, ..case(Broken::Forgets, 0) },
        Case { durable: true, room: 0, directors: 1, ..case(Broken::LosesCopies, 1) },
        Case { durable: true, room: 0, directors: 1, timeouts: 1, ..case(Broken::LosesTaken, 1) },
        Case { durable: true, room: 0, directors: 1, ..case(Broken::LosesGuests, 2) },
        Case { durable: true, room: 0, directors: 1, ..case(Broken::TellsOnce, 2) },
    ] {
        let broken = case.broken;
        let checker = case.checker().spawn_bfs().join();
        let found = ["nothing goes wrong", "when all is done, all is well"];
        let found = found.into_iter().find_map(|what| checker.discovery(what));
        assert!(found.is_some(), "{broken:?} is not found out");
    }
}

fn check(case: Case) {
    let name = format!("{case:?}");
    let checker = case.checker().spawn_bfs().join();
    for (what, path) in checker.discoveries() {
        // `sometimes` properties are discovered by an example, which is what they are for.
        if !what.starts_with("the flow") && !what.starts_with("packets are") {
            let end = path.last_state().clone();
            let steps: Vec<String> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
            panic!("not so: {what}\n{name}\n{}\n{end:#?}", steps.join("\n"));
        }
    }
    checker.assert_properties();
    println!("{name}: {} states", checker.unique_state_count());
}

#[test]
fn a_flow_moves_whole_and_in_order_whatever_comes_when() {
    check(Case { packets: 3, ..Case::default() });
    check(Case { directors: 1, packets: 4, ..Case::default() });
}

#[test]
fn a_full_buffer_makes_packets_wait_and_loses_none() {
    check(Case { packets: 3, room: 1, ..Case::default() });
    check(Case { packets: 2, room: 0, never_buffers: true, ..Case::default() });
}

#[test]
fn a_flow_moves_and_comes_home_again_and_directors_forget_it() {
    check(Case { packets: 2, back: true, ..Case::default() });
}

#[test]
fn time_outs_at_any_step_do_no_harm() {
    check(Case { packets: 2, timeouts: 2, ..Case::default() });
    check(Case { directors: 1, packets: 3, timeouts: 2, back: true, ..Case::default() });
}

#[test]
fn one_of_them_dies_at_any_step_and_is_started_anew() {
    check(Case { packets: 2, deaths: 1, ..Case::default() });
    check(Case { packets: 2, directors: 1, deaths: 1, timeouts: 1, back: true, ..Case::default() });
}

#[test]
fn what_was_on_its_way_to_who_dies_may_die_with_it() {
    check(Case { packets: 2, directors: 1, deaths: 1, lossy: true, ..Case::default() });
    check(Case {
        packets: 1,
        directors: 1,
        deaths: 2,
        lossy: true,
        never_buffers: true,
        ..Case::default()
    });
}

#[test]
fn a_replica_is_gone_for_good_at_any_step() {
    check(Case { packets: 2, gone: true, ..Case::default() });
    check(Case { packets: 2, directors: 1, gone: true, timeouts: 1, ..Case::default() });
}

#[test]
fn who_waits_no_longer_processes_all_packets_and_takes_what_comes_late() {
    let impatient = Case { impatient: true, ..Case::default() };
    check(Case { packets: 2, ..impatient.clone() });
    check(Case { packets: 2, room: 0, never_buffers: true, ..impatient.clone() });
    check(Case { packets: 3, directors: 1, timeouts: 1, ..impatient.clone() });
    check(Case { packets: 2, directors: 1, deaths: 1, ..impatient });
}

#[test]
fn who_is_ordered_to_send_all_away_has_nothing_afterwards_whoever_died() {
    let ordered = Case { packets: 1, back: true, ordered: true, ..Case::default() };
    check(Case { packets: 2, never_buffers: true, ..ordered.clone() });
    check(Case { deaths: 1, never_buffers: true, ..ordered.clone() });
    check(Case { directors: 1, deaths: 1, timeouts: 1, never_buffers: true, ..ordered });
}

#[test]
fn two_die_or_one_dies_and_one_is_gone() {
    check(Case { packets: 2, directors: 1, deaths: 2, ..Case::default() });
    check(Case {
        packets: 1,
        directors: 1,
        deaths: 2,
        back: true,
        never_buffers: true,
        ..Case::default()
    });
    check(Case { packets: 2, directors: 1, deaths: 1, gone: true, ..Case::default() });
}

#[test]
fn what_outlives_its_replica_is_neither_lost_nor_doubled_whoever_dies_in_whatever_step() {
    let durable = Case { durable: true, room: 0, never_buffers: true, ..Case::default() };
    check(Case { packets: 2, deaths: 1, ..durable.clone() });
    check(Case { packets: 2, directors: 1, deaths: 1, timeouts: 1, back: true, ..durable.clone() });
    check(Case { packets: 2, directors: 1, deaths: 1, lossy: true, ..durable.clone() });
    check(Case { packets: 1, directors: 1, deaths: 1, back: true, lossy: true, ..durable.clone() });
    // A packet after both deaths shows whether the director sends it where the flow is.
    check(Case { packets: 2, directors: 1, deaths: 2, ..durable });
}
