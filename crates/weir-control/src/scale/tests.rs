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
                None => self.perform(&ask),
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

    fn perform(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::Move { from, to, part } => {
                let (from, to) = (usize::from(*from), usize::from(*to));
                assert!(!self.gone[to] && from != to);
                let there = self.buckets[from];
                let mut left = 0;
                let goes = match part {
                    Part::Some { flows, keep } => there.saturating_sub(*keep).min(flows * FLOW),
                    // In each second the flows of most of them end.
                    Part::Free { keep } => {
                        let goes = there.saturating_sub(*keep);
                        left = goes / 8;
                        goes - left
                    }
                    Part::All => there,
                };
                self.buckets[from] -= goes;
                self.buckets[to] += goes;
                if matches!(part, Part::Free { .. }) {
                    return if left > 0 { Answer::Left(0, left) } else { Answer::Done(0) };
                }
                let flows = u64::from(goes / FLOW);
                self.most_moved = self.most_moved.max(flows);
                Answer::Done(flows)
            }
            Ask::Weigh(weights) => {
                let sum: u32 = weights.iter().sum();
                assert!(sum > 0, "nobody is left");
                self.buckets = weights.iter().map(|w| 65_536 / sum * w).collect();
                Answer::Done(0)
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
    use Happened::{Done, Even, GivenUp, Gone, Out};
    let whats = [Out, Gone, GivenUp, Even, Done, Out, Done];
    assert_eq!(world.whats(), whats, "{:?}", world.decisions);
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
    assert_eq!(world.in_use(), [0]);
    world.run(15_000, OVERLOADED + 1);
    assert_eq!(world.in_use(), [0, 1]);
    world.packets.fill(0);
    world.scaler.go_on_with(rule(1, 2, Way::Moves));
    world.run(15_000, 100);
    assert_eq!(world.whats(), [Out, Done], "{:?}", world.decisions);
    assert_eq!(world.in_use(), [0, 1]);
    world.packets.fill(0);
    world.scaler.go_on_with(rule(1, 2, Way::Moves));
    world.run(9_000, IDLE + 1);
    assert_eq!(world.whats(), [Out, Done, In, Done], "{:?}", world.decisions);
    assert_eq!(world.in_use(), [0]);
}

#[test]
fn a_graph_of_other_limits_begins_with_those_in_use_that_have_flows() {
    let mut before = Scaler::new(rule(1, 4, Way::Moves));
    before.stand(1, Standing::InUse);
    before.stand(3, Standing::InUse);
    let in_use = |min, max, way| {
        let mut next = Scaler::new(rule(min, max, way));
        next.take_up(&before);
        next.in_use().collect::<Vec<u16>>()
    };
    assert_eq!(in_use(1, 5, Way::Moves), [0, 1, 3]);
    assert_eq!(in_use(3, 5, Way::Moves), [0, 1, 2, 3]);
    // What the fourth had is at the third, the last that there is.
    assert_eq!(in_use(1, 3, Way::Moves), [0, 1, 2]);
    assert_eq!(in_use(1, 3, Way::Rebalance), [0], "which divides anew");
}

#[test]
fn a_change_that_another_graph_does_not_go_on_with_is_told_as_given_up() {
    let mut world = World::new(rule(1, 2, Way::Moves));
    let ten = Duration::from_secs(10);
    world.scaler.begin_out(ten, "it is slow".into());
    world.scaler.give_up(ten, "the graph was changed".into());
    let told: Vec<Happened> = world.scaler.decisions().iter().map(|told| told.what).collect();
    assert_eq!(told, [Happened::Out, Happened::GivenUp]);
    world.scaler.give_up(ten, "the graph was changed".into());
    assert!(world.scaler.decisions().is_empty(), "nothing was under way");
}

#[test]
fn when_the_only_instance_in_use_is_lost_another_takes_its_place_at_once() {
    use Happened::{Done, Gone, Out};
    for way in WAYS {
        let mut world = World::new(rule(1, 3, way));
        world.run(5_000, 3);
        world.gone[0] = true;
        world.run(5_000, 1);
        assert_eq!(world.whats(), [Gone, Out, Done], "{:?}", world.decisions);
        assert_eq!(world.buckets, [0, 65_536, 0]);
        let why = &world.decisions[0].1.why;
        assert!(why.contains("begin anew at one that is taken into use now"), "{why}");
        // And again, until there is none.
        world.gone[1] = true;
        world.run(5_000, 1);
        assert_eq!(world.in_use(), [2]);
        world.gone[2] = true;
        world.run(5_000, 50);
        let mut gone = world.decisions.iter().filter(|(_, d)| d.what == Gone);
        let why = &gone.next_back().unwrap().1.why;
        assert!(why.contains("dropped until the graph is changed"), "{why}");
        assert!(world.in_use().is_empty());
    }
}

#[test]
fn what_came_to_a_lost_instance_is_given_to_others_until_that_succeeds() {
    use Happened::{Done, Even, GivenUp, Gone};
    for way in WAYS {
        let mut world = World::new(rule(2, 2, way));
        world.run(1_000, 3);
        world.gone[1] = true;
        let failed = |n| (n, Answer::Failed(0, "no".to_owned()));
        world.trouble = (0..12).map(failed).collect();
        world.run(1_000, 200);
        let whats = world.whats();
        let said_most = |what: &&Happened| **what != Happened::AtMost;
        let whats: Vec<Happened> = whats.iter().filter(said_most).copied().collect();
        assert_eq!(whats, [Gone, Even, GivenUp, Even, GivenUp, Even, Done], "{way:?}");
        assert_eq!(world.buckets, [65_536, 0], "{way:?}");
    }
}

#[test]
fn of_all_that_there_may_be_one_with_less_to_do_gets_a_larger_share() {
    use Happened::{AtMost, Done, Even};
    let mut world = World::new(rule(3, 3, Way::Moves));
    world.buckets = vec![50_000, 14_000, 1_536];
    world.run(20_000, 100);
    assert_eq!(world.whats(), [Even, Done], "{:?}", world.decisions);
    let fair = |b: &u32| b.abs_diff(65_536 / 3) <= FLOW;
    assert!(world.buckets.iter().all(fair), "{:?}", world.buckets);
    // Where one flow alone is too much shares are made even once, and it is said once that there are no more.
    let mut world = World::new(rule(2, 2, Way::Moves));
    for look in 1..300 {
        world.now += LOOK;
        let busy =
            Load { there: true, filled: 90, hindered: false, packets: look * 1000, drops: 0 };
        world.look(&[busy, Load { filled: 1, packets: look * 10, ..busy }]);
    }
    assert_eq!(world.whats(), [Even, Done, AtMost], "{:?}", world.decisions);
}

#[test]
fn old_flows_end_where_they_are_and_what_has_none_goes_at_once() {
    use Happened::{Done, In, Out};
    let mut world = World::new(rule(1, 2, Way::OldFlowsEnd(Duration::from_secs(60))));
    world.run(15_000, OVERLOADED + 1);
    assert_eq!(world.whats(), [Out]);
    assert_eq!(world.buckets, [32_768 + 4_096, 28_672], "those without flows");
    world.run(15_000, 100);
    assert_eq!(world.whats(), [Out, Done]);
    assert_eq!(world.buckets, [32_768, 32_768]);
    world.run(1_000, 100);
    assert_eq!(world.whats(), [Out, Done, In, Done], "{:?}", world.decisions);
    assert_eq!(world.buckets, [65_536, 0]);
    assert!(world.decisions.iter().all(|(_, d)| d.flows == 0), "none has moved");
}

#[test]
fn flows_that_do_not_end_in_time_stay_as_shares_grow_and_move_from_who_is_emptied() {
    let limit = Duration::from_secs(2);
    let mut world = World::new(rule(1, 2, Way::OldFlowsEnd(limit)));
    world.run(15_000, OVERLOADED + 40);
    let (at, done) = world.decisions.last().unwrap();
    assert_eq!(done.what, Happened::Done);
    assert!(*at - world.decisions[0].0 <= limit + LOOK);
    assert!(done.why.contains("parts of the flows stay where they were"), "{}", done.why);
    assert!(world.buckets[0] > 32_768, "{:?}", world.buckets);
    world.run(1_000, IDLE + 60);
    assert_eq!(world.buckets, [65_536, 0]);
    let (at, done) = world.decisions.last().unwrap();
    assert_eq!(done.what, Happened::Done);
    assert!(done.flows > 0 && *at - world.decisions[2].0 <= limit + LOOK, "{:?}", world.decisions);
}

const WAYS: [Way; 3] = [Way::Moves, Way::OldFlowsEnd(Duration::from_secs(60)), Way::Rebalance];

fn way() -> impl Strategy<Value = Way> {
    prop::sample::select(WAYS.as_slice())
}

impl World {
    /// Where nothing is under way nobody has packets who stands by, or is gone unless that is still tried; those in
    /// use have as many as each other, if no change was given up and nobody is lost whose turn has not come.
    fn assert_shares(&self) {
        if self.scaler.change.is_some() {
            return;
        }
        for (one, buckets) in self.scaler.instances.iter().zip(&self.buckets) {
            let may = one.standing == Standing::InUse || one.leaves.is_some();
            assert!(may || *buckets == 0, "{one:?} has {buckets}: {:?}", self.decisions);
        }
        let given_up = self.whats().contains(&Happened::GivenUp);
        let lost = self.scaler.instances.iter().any(|one| one.leaves.is_some());
        if given_up || lost || matches!(self.scaler.rule.way, Way::OldFlowsEnd(_)) {
            return;
        }
        let shares = || self.scaler.in_use().map(|i| self.buckets[usize::from(i)]);
        let (least, most) = (shares().min().unwrap_or(0), shares().max().unwrap_or(0));
        assert!(most - least <= 8 * FLOW, "{:?}: {:?}", self.buckets, self.decisions);
    }
}

/// What may happen: so much is offered for so many looks; the next few answers are another; an instance is stopped.
#[derive(Debug, Clone)]
enum Turn {
    Offer(u64, u32),
    Trouble(Answer, usize),
    Stop(u16),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let offer = || (0..80_000_u64, 1..60_u32).prop_map(|(o, n)| Turn::Offer(o, n));
    let answer = prop_oneof![
        Just(Answer::NotNow),
        (0..900_u64).prop_map(|flows| Answer::Failed(flows, "no".to_owned()))
    ];
    let turn = prop_oneof![
        6 => offer(), 2 => (answer, 1..9_usize).prop_map(|(a, n)| Turn::Trouble(a, n)), 1 => (0..6_u16).prop_map(Turn::Stop)
    ];
    prop::collection::vec(turn, 1..40)
}

proptest! {
    /// Whatever happens: limits hold while nobody is stopped, changes do not overlap, and each begins some time after the end
    /// of the one before, but where too few are left or one is lost; nobody has packets who is to have none.
    #[test]
    fn limits_and_pauses_hold_whatever_happens(
        (min, more) in (1..4_u16, 0..4_u16), way in way(), turns in turns()
    ) {
        let max = min + more;
        let mut world = World::new(rule(min, max, way));
        let mut stopped = 0;
        for turn in turns {
            match turn {
                Turn::Offer(offered, looks) => {
                    world.run(offered, looks);
                    world.assert_shares();
                }
                Turn::Trouble(answer, n) => {
                    let next = world.asked..world.asked + n;
                    world.trouble.extend(next.map(|at| (at, answer.clone())));
                }
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
        world.trouble.clear();
        world.run(1_000, 1_000);
        world.assert_shares();
        let lost = world.gone.iter().zip(&world.buckets).filter(|(gone, _)| **gone);
        prop_assert!(lost.map(|(_, b)| *b).sum::<u32>() == 0, "{:?}: {:?}", world.buckets, world.decisions);
        let (mut open, mut gone) = (false, Vec::new());
        for (at, decision) in &world.decisions {
            prop_assert!(decision.instances <= max && (1..=max).contains(&decision.instance));
            match decision.what {
                Happened::Out | Happened::In | Happened::Even => {
                    prop_assert!(!open, "two at once: {:?}", world.decisions);
                    // Where too few are left the next does not wait.
                    let short = decision.what == Happened::Out && decision.instances <= min;
                    let late = ended.is_none_or(|ended| *at >= ended + COOL);
                    let lost = decision.what == Happened::Even && gone.contains(&decision.instance);
                    prop_assert!(short || lost || late, "too soon: {:?}", world.decisions);
                    open = true;
                }
                Happened::Done | Happened::GivenUp => {
                    prop_assert!(open, "nothing had begun: {:?}", world.decisions);
                    ended = Some(*at);
                    open = false;
                }
                Happened::Gone => gone.push(decision.instance),
                Happened::AtMost | Happened::ByHand => {}
            }
        }
    }

    /// What is offered evenly ends in as few instances as manage it, or the most there are, and there it stays.
    #[test]
    fn an_even_load_comes_to_rest(
        max in 1..7_u16, way in prop_oneof![Just(Way::Moves), Just(Way::Rebalance)], before in 0..80_000_u64, offered in 0..80_000_u64
    ) {
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
    let rule = rule(1, 2, Way::Moves);
    // Also of who says that some are left, though it was not asked to leave any.
    for answer in [Answer::Done(u64::MAX), Answer::Left(u64::MAX, 1)] {
        let changes = [
            Change::out(&rule, Duration::ZERO, Kind::Out, 1, &[0]),
            Change::back(&rule, Duration::ZERO, 1, &[0]),
        ];
        for mut change in changes {
            let mut steps = 0;
            while !change.is_done() {
                assert!(change.ask(Duration::ZERO, Vec::new).is_some());
                assert_eq!(change.answered(Duration::ZERO, answer.clone()), None);
                steps += 1;
                assert!(steps <= 2 * 65_536);
            }
        }
    }
}

#[test]
fn what_came_to_a_lost_instance_does_not_wait_until_flows_of_others_have_ended() {
    let mut world = World::new(rule(2, 3, Way::OldFlowsEnd(Duration::from_secs(600))));
    world.run(30_000, OVERLOADED + 1);
    assert_eq!(world.whats(), [Happened::Out], "flows are waited for");
    world.gone[0] = true;
    world.run(1_000, 5);
    assert_eq!(world.buckets[0], 0, "{:?}", world.decisions);
}
