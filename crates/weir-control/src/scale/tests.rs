//! The machine against schedules, by a virtual clock.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const COOL: Duration = Duration::from_secs(1);
/// Packets per second that an instance manages.
const MANAGES: u64 = 10_000;

fn rule(min: u16, max: u16, way: Way) -> Rule {
    Rule { min, max, way, step: 500, cool: COOL }
}

/// An NF whose instances divide what is offered by the buckets that they have, with a flow in each `1 / FLOWS` of them.
struct World {
    scaler: Scaler,
    now: Duration,
    buckets: Vec<u32>,
    packets: Vec<u64>,
    gone: Vec<bool>,
    decisions: Vec<(Duration, Decision)>,
    /// Answers that are not "done", by number of the question.
    trouble: BTreeMap<usize, Answer>,
    asked: usize,
    most_moved: u64,
}

/// Buckets of which one has a flow.
const FLOW: u32 = 8;

impl World {
    fn new(rule: Rule) -> Self {
        let max = usize::from(rule.max);
        let mut buckets = vec![0; max];
        let min = u32::from(rule.min);
        buckets.iter_mut().take(usize::from(rule.min)).for_each(|b| *b = 65_536 / min);
        World {
            scaler: Scaler::new(rule),
            now: Duration::from_secs(7),
            buckets,
            packets: vec![0; max],
            gone: vec![false; max],
            decisions: Vec::new(),
            trouble: BTreeMap::new(),
            asked: 0,
            most_moved: 0,
        }
    }

    /// One look later, in which so many packets per second were offered.
    fn pass(&mut self, offered: u64) {
        self.now += LOOK;
        let all: u64 = self.buckets.iter().map(|b| u64::from(*b)).sum();
        let mut loads = Vec::new();
        for (i, buckets) in self.buckets.iter().enumerate() {
            let share = (offered * u64::from(*buckets)).checked_div(all).unwrap_or(0);
            self.packets[i] += share.min(MANAGES) / 10;
            let filled = if share > MANAGES { 90 } else { 3 };
            let there = !self.gone[i];
            let packets = self.packets[i];
            loads.push(Load { there, filled, hindered: false, packets, drops: 0 });
        }
        self.look(&loads);
    }

    fn look(&mut self, loads: &[Load]) {
        self.scaler.look(self.now, loads);
        self.note();
        while let Some(ask) = self.scaler.ask(self.now) {
            let answer = match self.trouble.remove(&self.asked) {
                Some(trouble) => trouble,
                None => Answer::Done(self.perform(&ask)),
            };
            self.asked += 1;
            self.scaler.answered(self.now, answer);
            self.note();
        }
    }

    fn note(&mut self) {
        let now = self.now;
        self.decisions.extend(self.scaler.decisions().into_iter().map(|d| (now, d)));
    }

    fn perform(&mut self, ask: &Ask) -> u64 {
        match ask {
            Ask::Move { from, to, part } => {
                let (from, to) = (usize::from(*from), usize::from(*to));
                assert!(!self.gone[from] && !self.gone[to] && from != to);
                let there = self.buckets[from];
                let goes = match part {
                    Part::Some { flows, keep } => there.saturating_sub(*keep).min(flows * FLOW),
                    Part::All => there,
                };
                self.buckets[from] -= goes;
                self.buckets[to] += goes;
                let flows = u64::from(goes / FLOW);
                self.most_moved = self.most_moved.max(flows);
                flows
            }
            Ask::Weigh(weights) => {
                let sum: u32 = weights.iter().sum();
                assert!(sum > 0, "nobody is left");
                self.buckets = weights.iter().map(|w| 65_536 / sum * w).collect();
                0
            }
        }
    }

    fn run(&mut self, offered: u64, looks: u32) {
        (0..looks).for_each(|_| self.pass(offered));
    }

    fn whats(&self) -> Vec<Happened> {
        self.decisions.iter().map(|(_, d)| d.what).collect()
    }

    fn in_use(&self) -> Vec<u16> {
        self.scaler.in_use().collect()
    }
}

#[test]
fn what_stays_overloaded_gets_an_instance_and_gives_it_back_when_it_is_idle() {
    use Happened::{Done, In, Out};
    for way in [Way::Moves, Way::Rebalance] {
        let mut world = World::new(rule(1, 3, way));
        world.run(15_000, OVERLOADED);
        assert!(world.whats().is_empty(), "the first look has nothing to compare with");
        world.run(15_000, 1);
        assert_eq!(world.whats(), [Out, Done]);
        assert_eq!(world.buckets, [32_768, 32_768, 0]);
        world.run(15_000, 100);
        assert_eq!(world.whats().len(), 2, "two manage it");
        // Less than half of the 10,000 each, but not for long.
        world.run(9_000, IDLE - 1);
        world.run(15_000, 1);
        assert_eq!(world.whats().len(), 2);
        world.run(9_000, IDLE);
        assert_eq!(world.whats(), [Out, Done, In, Done], "{:?}", world.decisions);
        assert_eq!(world.buckets, [65_536, 0, 0]);
        assert_eq!(world.in_use(), [0]);
        let why: Vec<&str> = world.decisions.iter().map(|(_, d)| d.why.as_str()).collect();
        assert!(why[0].contains("the input of 1") && why[2].contains("half of 10000"), "{why:?}");
    }
}

#[test]
fn flows_move_step_by_step_until_shares_are_even() {
    let mut world = World::new(rule(1, 3, Way::Moves));
    world.run(100_000, 100);
    let fair = |b: &u32| b.abs_diff(65_536 / 3) <= FLOW;
    assert!(world.buckets.iter().all(fair), "{:?}", world.buckets);
    assert_eq!(world.most_moved, 500);
    let done = world.decisions.iter().filter(|(_, d)| d.what == Happened::Done);
    let flows: Vec<u64> = done.map(|(_, d)| d.flows).collect();
    assert_eq!(flows, [4096, 2 * 1365]);
    // The most there may be is said, once.
    assert_eq!(world.whats().iter().filter(|w| **w == Happened::AtMost).count(), 1);
}

#[test]
fn who_waits_for_somebody_else_is_not_the_bottleneck() {
    let mut world = World::new(rule(1, 2, Way::Moves));
    for look in 0..50 {
        world.now += LOOK;
        let load = Load { there: true, filled: 100, hindered: true, packets: look, drops: look };
        world.look(&[load, Load { filled: 0, packets: 0, ..load }]);
    }
    assert!(world.whats().is_empty());
}

#[test]
fn drops_where_packets_come_in_make_a_quarter_full_enough() {
    for (drops, changes) in [(0, 0), (1, 2)] {
        let mut world = World::new(rule(1, 2, Way::Moves));
        for look in 0..12 {
            world.now += LOOK;
            let (packets, drops) = (look * 100, look * drops);
            let load = Load { there: true, filled: 30, hindered: false, packets, drops };
            world.look(&[load, Load { filled: 0, packets: 0, drops: 0, ..load }]);
        }
        assert_eq!(world.whats().len(), changes, "{:?}", world.decisions);
    }
}

#[test]
fn a_step_that_fails_is_tried_again_and_given_up_in_the_end() {
    let failed = || Answer::Failed(3, "it died".to_owned());
    let mut world = World::new(rule(1, 2, Way::Moves));
    world.trouble = [(1, failed()), (2, Answer::NotNow), (3, Answer::NotNow)].into();
    world.run(15_000, 40);
    assert_eq!(world.whats(), [Happened::Out, Happened::Done]);
    assert_eq!(world.buckets, [32_768, 32_768]);
    let mut world = World::new(rule(1, 2, Way::Moves));
    world.trouble = (0..5).map(|n| (n, failed())).collect();
    world.run(15_000, 40);
    assert_eq!(world.whats()[..2], [Happened::Out, Happened::GivenUp]);
    assert_eq!(world.decisions[1].1.flows, 15);
}

#[test]
fn an_instance_that_is_stopped_for_good_takes_no_part_any_more() {
    // A target that is gone while it is to get its share; and the one that is being emptied.
    let mut world = World::new(rule(1, 3, Way::Moves));
    world.trouble = [(0, Answer::NotNow)].into();
    world.run(15_000, OVERLOADED + 1);
    world.gone[1] = true;
    world.run(15_000, 60);
    use Happened::{Done, GivenUp, Gone, Out};
    assert_eq!(world.whats(), [Out, Gone, GivenUp, Out, Done], "{:?}", world.decisions);
    assert_eq!(world.in_use(), [0, 2]);
    assert_eq!(world.buckets, [32_768, 0, 32_768]);
    // Where there are to be two at least, another is taken into use.
    let mut world = World::new(rule(2, 3, Way::Rebalance));
    world.run(1, 3);
    world.gone[0] = true;
    world.run(1, 3);
    assert_eq!(world.in_use(), [1, 2], "{:?}", world.decisions);
}

#[test]
fn who_has_flows_by_hand_is_in_use() {
    let mut world = World::new(rule(1, 2, Way::Moves));
    world.run(5_000, 3);
    world.buckets = vec![32_768, 32_768];
    world.run(5_000, 2);
    assert_eq!((world.whats(), world.in_use()), (vec![Happened::ByHand], vec![0, 1]));
}

#[test]
fn the_next_generation_of_a_graph_goes_on_with_as_many_and_counts_anew() {
    use Happened::{Done, In, Out};
    let mut world = World::new(rule(1, 2, Way::Moves));
    assert!(!world.scaler.has_moved());
    world.run(15_000, OVERLOADED + 1);
    assert!(world.scaler.has_moved());
    world.packets.fill(0);
    world.scaler.go_on_with(rule(1, 2, Way::Moves));
    world.run(15_000, 100);
    assert_eq!(world.whats(), [Out, Done], "{:?}", world.decisions);
    assert_eq!(world.in_use(), [0, 1]);
    world.packets.fill(0);
    world.scaler.go_on_with(rule(1, 2, Way::Moves));
    world.run(9_000, IDLE + 1);
    assert_eq!(world.whats(), [Out, Done, In, Done], "{:?}", world.decisions);
    assert!(!world.scaler.has_moved());
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![Just(Way::Moves), Just(Way::Rebalance)]
}

/// What may happen: so much is offered for so many looks; an answer is another; an instance is stopped.
#[derive(Debug, Clone)]
enum Turn {
    Offer(u64, u32),
    Trouble(Answer),
    Stop(u16),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let offer = || (0..80_000_u64, 1..60_u32).prop_map(|(o, n)| Turn::Offer(o, n));
    let answer = prop_oneof![
        Just(Answer::NotNow),
        (0..900_u64).prop_map(|flows| Answer::Failed(flows, "no".to_owned()))
    ];
    let turn = prop_oneof![
        6 => offer(), 2 => answer.prop_map(Turn::Trouble), 1 => (0..6_u16).prop_map(Turn::Stop)
    ];
    prop::collection::vec(turn, 1..40)
}

proptest! {
    /// Whatever happens: limits hold while nobody is stopped, changes do not overlap, and each begins some time after
    /// Whatever happens: limits hold while nobody is stopped, changes do not overlap, and each begins some time after the end
    /// of the one before, but where too few are left.
    #[test]
    fn limits_and_pauses_hold_whatever_happens(
        (min, more) in (1..4_u16, 0..4_u16), way in way(), turns in turns()
    ) {
        let max = min + more;
        let mut world = World::new(rule(min, max, way));
        let mut stopped = 0;
        for turn in turns {
            match turn {
                Turn::Offer(offered, looks) => world.run(offered, looks),
                Turn::Trouble(answer) => drop(world.trouble.insert(world.asked, answer)),
                // One is left.
                Turn::Stop(i) if stopped + 1 < max && i < max => {
                    stopped += u16::from(!std::mem::replace(&mut world.gone[usize::from(i)], true));
                }
                Turn::Stop(_) => {}
            }
            let used = world.in_use();
            prop_assert!(used.len() <= usize::from(max));
            prop_assert!(stopped > 0 || used.len() >= usize::from(min), "{used:?}");
        }
        let mut ended: Option<Duration> = None;
        let (mut open, mut lost) = (false, false);
        for (at, decision) in &world.decisions {
            prop_assert!(decision.instances <= max && (1..=max).contains(&decision.instance));
            match decision.what {
                Happened::Out | Happened::In => {
                    prop_assert!(!open, "two at once: {:?}", world.decisions);
                    // Where too few are left the next does not wait.
                    let short = decision.what == Happened::Out && decision.instances <= min;
                    let late = ended.is_none_or(|ended| *at >= ended + COOL);
                    prop_assert!(short || late, "too soon: {:?}", world.decisions);
                    open = true;
                }
                Happened::Done | Happened::GivenUp => {
                    prop_assert!(open, "nothing had begun: {:?}", world.decisions);
                    ended = Some(*at);
                    // The change ends with the one that it was of, whose share goes to the others then.
                    open = lost && decision.what == Happened::GivenUp;
                }
                // What a lost one's share was goes to the others.
                Happened::Gone if way == Way::Rebalance && decision.instances > 0 => open = true,
                Happened::AtMost | Happened::Gone | Happened::ByHand => {}
            }
            lost = decision.what == Happened::Gone && way == Way::Rebalance && decision.instances > 0;
        }
    }

    /// What is offered evenly ends in as few instances as manage it, or the most there are, and there it stays.
    #[test]
    fn an_even_load_comes_to_rest(max in 1..7_u16, way in way(), before in 0..80_000_u64, offered in 0..80_000_u64) {
        let mut world = World::new(rule(1, max, way));
        world.run(before, 400);
        world.run(offered, 800);
        let count = world.in_use().len() as u64;
        let each = offered / count;
        let slack = MANAGES / 50;
        prop_assert!(each <= MANAGES + slack || count == u64::from(max), "{count} for {offered}");
        prop_assert!(count == 1 || each >= MANAGES / 2 - slack, "{count} for {offered}");
        let settled = world.decisions.len();
        world.run(offered, 400);
        prop_assert_eq!(world.decisions.len(), settled, "{:?}", world.decisions);
    }
}

#[test]
fn an_instance_that_hangs_with_a_full_input_is_not_taken_for_overloaded() {
    let mut world = World::new(rule(1, 2, Way::Moves));
    let stuck = Load { there: true, filled: 100, hindered: false, packets: 7, drops: 0 };
    let idle = Load { filled: 0, packets: 0, ..stuck };
    for _ in 0..30 {
        world.now += LOOK;
        world.look(&[stuck, idle]);
    }
    assert_eq!(world.whats(), []);
}

#[test]
fn the_share_of_one_that_was_stopped_for_good_goes_to_the_others_at_once_where_packets_divide_anew()
{
    let mut world = World::new(rule(2, 4, Way::Rebalance));
    world.run(1_000, 5);
    world.gone[1] = true;
    world.run(1_000, 2);
    assert_eq!(world.buckets[1], 0);
    assert!(world.buckets[0] > 0);
    // And another takes its place without waiting for the pause after a change.
    world.run(1_000, 3);
    assert_eq!(world.in_use(), [0, 2]);
    assert_eq!(world.buckets.iter().filter(|b| **b > 0).count(), 2);
}

#[test]
fn a_step_of_which_it_is_always_said_that_it_moved_some_has_an_end() {
    let mut change = Change::out(&rule(1, 2, Way::Moves), Duration::ZERO, 1, &[0]);
    let mut steps = 0;
    while !change.is_done() {
        assert!(change.ask(Duration::ZERO, Vec::new).is_some());
        assert_eq!(change.answered(Duration::ZERO, Answer::Done(u64::MAX)), None);
        steps += 1;
        assert!(steps <= 65_536);
    }
}
