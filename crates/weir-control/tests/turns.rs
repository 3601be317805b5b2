//! How many batches a turn of a worker has, and how large they are, follows from the load by itself (docs/scheduling.md, "A turn").
//! The workers take turns in one thread, so each is counted and none is timed.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use weir_control::library::Library;
use weir_control::wiring::{RunOptions, wire};
use weir_control::{Agent, RestartPolicy};
use weir_device::DeviceSpec;
use weir_nfs as _;
use weir_packet::BATCH;
use weir_plan::{Isolate, Options, Plan};
use weir_runtime::Stepper;

const ALL: u64 = BATCH as u64;

/// A service that receives, a worker, a service that sends.
struct Chain {
    receives: Stepper,
    works: Stepper,
    sends: Stepper,
    /// Their memory is its.
    _agent: Agent,
}

impl Chain {
    /// For so many packets.
    fn new(packets: u64) -> Self {
        let policy = "Port<0> lan; Port<1> wan; MacSwap x; pipelet { lan -> x -> wan; }";
        let graph = weir_plan::check(policy, &Library).unwrap().graph;
        let options = Options { isolate: Isolate::Each, online: 1, ..Options::default() };
        let plan = Plan::build(&graph, &options).unwrap();
        let source = format!("gen:size=64,packets={packets}").parse().unwrap();
        let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
        let setup = wire(&plan, &binds, &BTreeMap::new(), &RunOptions::default()).unwrap();
        let names: Vec<_> = setup.workers.iter().map(|w| w.name.clone()).collect();
        assert_eq!(names, ["rx:lan", "x", "tx:wan"]);
        let agent = Agent::start_hosting(setup, RestartPolicy::default(), |_| true).unwrap();
        let [receives, works, sends] = [0, 1, 2].map(|w| agent.stepper(w).unwrap());
        Chain { receives, works, sends, _agent: agent }
    }

    /// What comes while the worker does not run: so many batches.
    fn receive(&mut self, batches: usize) {
        (0..batches).for_each(|_| assert!(self.receives.step().unwrap()));
    }

    /// A turn of the worker, which ends when it can do no more: the packets of each batch.
    fn turn(&mut self) -> Vec<u64> {
        turn(&mut self.works)
    }
}

fn turn(worker: &mut Stepper) -> Vec<u64> {
    let mut batches = Vec::new();
    loop {
        let before = worker.packets();
        worker.step().unwrap();
        match worker.packets() - before {
            0 => return batches,
            packets => batches.push(packets),
        }
    }
}

#[test]
fn a_turn_has_as_many_batches_as_wait_and_a_lone_packet_waits_for_no_others() {
    // Load comes, grows to what a ring holds, shrinks, and ends with three packets.
    let chain_of = [1, 4, 3, 2, 1];
    let all: usize = chain_of.iter().sum();
    let mut chain = Chain::new(all as u64 * ALL + 3);
    for waiting in chain_of {
        chain.receive(waiting);
        assert_eq!(chain.turn(), vec![ALL; waiting], "{waiting} batches wait");
        assert!(chain.turn().is_empty(), "nothing waits");
        assert_eq!(turn(&mut chain.sends).iter().sum::<u64>(), waiting as u64 * ALL);
    }
    chain.receive(1);
    assert_eq!(chain.turn(), [3]);
    assert_eq!(turn(&mut chain.sends), [3]);
}

#[test]
fn a_turn_ends_where_there_is_no_room_further_on_and_takes_up_what_there_is() {
    let mut chain = Chain::new(1 << 20);
    // Nobody sends until both rings are full.
    let fill = |chain: &mut Chain| {
        let before = chain.receives.packets();
        while {
            let so_far = chain.receives.packets();
            chain.receives.step().unwrap();
            chain.receives.packets() > so_far
        } {}
        chain.receives.packets() - before
    };
    let ring = fill(&mut chain);
    assert_eq!(
        chain.turn().iter().sum::<u64>(),
        ring,
        "as much as is in one ring fits in the next"
    );
    assert!(fill(&mut chain) > 0);
    assert!(chain.turn().is_empty(), "no room");
    let before = chain.sends.packets();
    chain.sends.step().unwrap();
    let gone = chain.sends.packets() - before;
    assert!(gone > 0 && gone < ring);
    assert_eq!(chain.turn().iter().sum::<u64>(), gone, "as much as there is room for");
}

#[test]
fn a_source_gives_as_many_packets_as_are_due_and_makes_up_for_those_that_were_late() {
    let mut chain = Chain::new(1 << 40);
    chain.receives.pace(Some(0));
    (0..100).for_each(|_| assert!(chain.receives.step().unwrap()));
    assert_eq!(chain.receives.packets(), 0, "nothing is ever due");
    let rate = 100_000;
    let begun = std::time::Instant::now();
    chain.receives.pace(Some(rate));
    let paced = std::time::Instant::now();
    let due = || (begun.elapsed().as_secs_f64() * rate as f64) as u64;
    while paced.elapsed() < std::time::Duration::from_millis(11) {
        std::hint::spin_loop();
    }
    // Behind by four batches: all of them come now, one after the other.
    chain.receive(4);
    assert_eq!(chain.receives.packets(), 4 * ALL);
    // And never one too early.
    let mut before = chain.receives.packets();
    while chain.receives.packets() < 3000 {
        chain.receives.step().unwrap();
        let now = chain.receives.packets();
        assert!(now <= due() + 1 && now - before <= ALL, "{now} of {}", due());
        before = now;
        turn(&mut chain.works);
        turn(&mut chain.sends);
    }
    chain.receives.pace(None);
    let before = chain.receives.packets();
    chain.receive(1);
    assert_eq!(chain.receives.packets() - before, ALL, "as many as are taken");
}
