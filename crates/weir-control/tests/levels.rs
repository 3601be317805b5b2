//! Instances that come, go and are stopped for good, in real processes: what has no flows goes where the weights say, what has some stays with them,
//! and what is still to go is known in the next generation. The program is its own worker, so it has no test harness but its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs)] // A test.

#[allow(dead_code, reason = "others need more of it")]
mod common;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::library::Library;
use weir_control::setup::Setup;
use weir_control::wiring::{RunOptions, ScaleOptions, wire};
use weir_control::{Agent, Event, Levelled, Listed, RelinkError, Relinked, Report, RestartPolicy};
use weir_device::DeviceSpec;
use weir_nfs as _;
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Options, Plan, Sizing};

const PATIENCE: Duration = Duration::from_secs(60);
const FLOWS: u64 = 2000;
/// Parts of the flow hash.
const ALL: u32 = 65_536;

fn main() -> ExitCode {
    let tests: [(&str, fn()); 4] = [
        ("who_dies_while_parts_go_does_not_keep_the_rest_from_going", dies),
        ("of_an_nf_that_scales_those_that_are_to_be_in_use_have_their_part", scales),
        ("what_has_no_flows_goes_to_an_instance_that_comes_and_the_rest_is_still_to_go", comes),
        ("an_instance_that_was_stopped_for_good_has_its_part_again_in_the_next_graph", gone),
    ];
    common::run(&tests)
}

fn planned(asked: Asked) -> Plan {
    let policy = "Port<0> lan; Port<1> wan; FlowMonitor mon; pipelet { lan -> mon -> wan; }";
    let graph = weir_plan::check(policy, &Library).unwrap_or_else(|e| panic!("{e:?}")).graph;
    let options = Options { isolate: Isolate::Each, online: 2, ..Options::default() };
    let server = Server { name: "s".to_owned(), cores: 2, ghz: 1.0, nic_bps: None };
    let asked = BTreeMap::from([("mon".to_owned(), asked)]);
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    Plan::sized(&graph, &options, false, sizing).unwrap().0
}

fn setup(instances: u32) -> Setup {
    wired(Asked::equal(instances), &RunOptions::default())
}

/// Of an NF of so many instances, of which at least so many are in use.
fn scaled(min: u16, max: u16) -> Setup {
    let cool = Duration::from_secs(60);
    let scale = ScaleOptions { limits: (min, max), way: None, step: 50, cool };
    let options = RunOptions { scale: [("mon".to_owned(), scale)].into(), ..RunOptions::default() };
    wired(Asked::scaling(min.into(), max.into()), &options)
}

fn wired(asked: Asked, options: &RunOptions) -> Setup {
    let source = format!("gen:size=64,flows={FLOWS},rate=50000,seed=3").parse().unwrap();
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    wire(&planned(asked), &binds, &BTreeMap::new(), options).unwrap()
}

struct Running {
    agent: Agent,
    events: Vec<Event>,
    earlier: Vec<Report>,
}

impl Running {
    fn start(setup: Setup) -> Self {
        let agent = Agent::start(setup, RestartPolicy::default()).unwrap();
        Running { agent, events: Vec::new(), earlier: Vec::new() }
    }

    /// Lets it go on until `found` finds something in what has happened since it was asked last, which is forgotten then.
    fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Agent, &[Event]) -> Option<T>,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.agent.turn(Duration::from_millis(1)).unwrap();
            self.events.extend(std::iter::from_fn(|| self.agent.event()));
            for retired in self.agent.retired() {
                let plan = planned(Asked::equal(1));
                self.earlier.push(Report::of(&plan, &retired.agent, retired.census, 0.0));
            }
            if let Some(found) = found(&mut self.agent, &self.events) {
                self.events.clear();
                return found;
            }
            assert!(Instant::now() < end, "waited in vain for {what}: {:?}", self.events);
        }
    }

    fn relink(&mut self, instances: u32) -> Relinked {
        self.relink_to(|| setup(instances))
    }

    /// Where a new worker does not get to run in time, as on a busy machine, the graph goes on as it was, and it is tried again.
    fn relink_to(&mut self, setup: impl Fn() -> Setup) -> Relinked {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.agent.relink(setup()).unwrap();
            let relinked = self.until("the change", |_, events| {
                events.iter().find_map(|event| match event {
                    Event::Relinked(relinked) => Some(Some(*relinked)),
                    Event::NotRelinked { why: RelinkError::Unready { .. } } => Some(None),
                    Event::NotRelinked { why } => panic!("{why}"),
                    _ => None,
                })
            });
            if let Some(relinked) = relinked {
                return relinked;
            }
        }
        panic!("new workers are never ready");
    }

    fn levelled(&mut self) -> Levelled {
        self.until("what goes", |_, events| {
            events.iter().find_map(|event| match event {
                Event::Levelled(levelled) => Some(levelled.clone()),
                _ => None,
            })
        })
    }

    /// How many flows each instance has, in order.
    fn counts(&mut self) -> Vec<u64> {
        self.agent.list_flows(None, None, 1).unwrap();
        let listed: Listed = self.until("which flows there are", |_, events| {
            events.iter().find_map(|event| match event {
                Event::FlowsListed { listed, .. } => Some(listed.clone()),
                _ => None,
            })
        });
        listed.counts.iter().map(|count| count.flows).collect()
    }

    fn until_counts(&mut self, what: &str, is: impl Fn(&[u64]) -> bool) -> Vec<u64> {
        let end = Instant::now() + PATIENCE;
        loop {
            let counts = self.counts();
            if is(&counts) {
                return counts;
            }
            assert!(Instant::now() < end, "waited in vain for {what}: {counts:?}");
        }
    }

    fn end(mut self) {
        self.agent.stop();
        self.until("the end", |_, events| {
            events.iter().any(|event| matches!(event, Event::Finished)).then_some(())
        });
        let census = self.agent.dismiss();
        let mut report = Report::of(&planned(Asked::equal(1)), &self.agent, census, 0.0);
        self.earlier.into_iter().for_each(|earlier| report.add_earlier(earlier));
        assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    }
}

fn comes() {
    let mut run = Running::start(setup(2));
    let before = run.until_counts("all flows", |counts| counts.iter().sum::<u64>() == FLOWS);
    assert_eq!(run.relink(2).uneven, 0, "nothing was to go");
    let relinked = run.relink(3);
    assert!(relinked.uneven.abs_diff(ALL / 3) <= 1, "{relinked:?}");
    let levelled = run.levelled();
    // All but those with flows: a third of them.
    assert_eq!((levelled.flows, levelled.failures.as_slice()), (0, &[][..]), "{levelled:?}");
    let third = FLOWS as u32 / 3;
    assert!((third / 2..third * 2).contains(&levelled.left), "{levelled:?}");
    assert_eq!(run.counts(), [before[0], before[1], 0]);
    // Known in the next, which is no other.
    assert_eq!(run.relink(3).uneven, levelled.left);
    assert_eq!(run.levelled().left, levelled.left);
    // Whoever moves some on purpose wants them there: nothing else goes.
    let order = weir_control::MoveFlows {
        nf: "mon".to_owned(),
        what: weir_runtime::moves::What::Share(100),
        from: Some(1),
        to: 2,
    };
    run.agent.move_flows(&order).unwrap();
    run.until("flows to have moved", |_, events| {
        events.iter().find_map(|event| match event {
            Event::FlowsMoved { moved, .. } => {
                assert_eq!(moved.failures, [""; 0]);
                Some(())
            }
            _ => None,
        })
    });
    assert_eq!(run.counts(), [0, FLOWS, 0]);
    assert_eq!(run.relink(3).uneven, 0);
    assert_eq!(run.counts(), [0, FLOWS, 0]);
    // Of its third of the parts, in which no flow is, the last leaves half to each of the others, one of which had none.
    let relinked = run.relink(2);
    assert!(relinked.uneven.abs_diff(ALL / 3) < ALL / 50 && relinked.left == 0, "{relinked:?}");
    assert_eq!(run.counts(), [0, FLOWS]);
    let relinked = run.relink(1);
    assert_eq!((relinked.uneven, relinked.left), (0, FLOWS), "{relinked:?}");
    assert_eq!(run.counts(), [FLOWS]);
    run.end();
}

fn gone() {
    let mut run = Running::start(setup(2));
    let before = run.until_counts("all flows", |counts| counts.iter().sum::<u64>() == FLOWS);
    run.until("the first to be stopped for good", |agent, events| {
        let first = worker(agent, "mon#1");
        let is_closed =
            |event: &Event| matches!(event, Event::Quarantined { worker } if *worker == first);
        if events.iter().any(is_closed) {
            return Some(());
        }
        kill(agent, first);
        None
    });
    run.relink(2);
    // It has what it had, and begins anew; the other's stay where they were.
    let is_whole = |counts: &[u64]| counts.iter().sum::<u64>() == FLOWS;
    let after = run.until_counts("all flows again", is_whole);
    assert_eq!(after, before);
    run.end();
}

fn worker(agent: &Agent, name: &str) -> usize {
    agent.setup().workers.iter().position(|worker| worker.name == name).unwrap()
}

fn kill(agent: &Agent, w: usize) {
    let pid = agent.pid(w).and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn dies() {
    let mut run = Running::start(setup(2));
    run.until_counts("all flows", |counts| counts.iter().sum::<u64>() == FLOWS);
    let most = run.relink(3).uneven;
    // Each that gives some, once: what it was told it may not have heard.
    for name in ["mon#1", "mon#2"] {
        let first = worker(&run.agent, name);
        kill(&run.agent, first);
        run.until("its successor", |_, events| {
            let is_there =
                |event: &Event| matches!(event, Event::Ready { worker, .. } if *worker == first);
            events.iter().any(is_there).then_some(())
        });
    }
    // In the end only those with flows are still to go.
    let end = Instant::now() + PATIENCE;
    loop {
        let left = run.relink(3).uneven;
        if left < 2 * FLOWS as u32 / 3 {
            break;
        }
        assert!(Instant::now() < end, "{left} of {most} parts have not gone");
        run.levelled();
    }
    run.end();
}

fn scales() {
    let mut run = Running::start(scaled(1, 4));
    let all = run.until_counts("all flows", |counts| counts.iter().sum::<u64>() == FLOWS);
    assert_eq!(all, [FLOWS, 0, 0, 0]);
    let relinked = run.relink_to(|| scaled(3, 4));
    assert!(relinked.uneven.abs_diff(2 * ALL / 3) <= 2, "{relinked:?}");
    let levelled = run.levelled();
    assert_eq!((levelled.flows, levelled.failures.as_slice()), (0, &[][..]), "{levelled:?}");
    assert_eq!(run.counts(), [FLOWS, 0, 0, 0]);
    // That fewer are enough moves nothing.
    assert_eq!(run.relink_to(|| scaled(1, 4)).uneven, 0);
    run.end();
}
