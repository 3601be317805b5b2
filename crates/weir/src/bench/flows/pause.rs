//! `weir bench flows pause`: how late packets come out while their flows move to another instance, beside how late they do while none moves.
//! This process plays source and sink: it knows which packet of which flow each is, and when it was due.

use super::moves::{self, Case, How, MoveArgs, MovingError, Nf, PATIENCE};
use crate::bench::latency::LatencyError;
use crate::bench::machine::pin;
use crate::bench::mood::round_trip;
use crate::bench::sample::{
    BenchError, SampleArgs, finish, prepare, progress, spread, wait_until_ready,
};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, Event, MoveFlows, Moved, RestartPolicy};
use weir_device::{DeviceError, DeviceSpec, Dropped, GeneratorSpec, Place, Rate, Send};
use weir_mem::Arena;
use weir_packet::Packet;
use weir_runtime::Stepper;
use weir_runtime::moves::What;
use weir_runtime::spec::EndSpec;

/// Between two looks of the agent, in which source and sink wait: as often while flows move as while none does.
const TURN: Duration = Duration::from_millis(5);
/// How long a graph runs at least before it is looked at: until then the agent begins workers that stand by.
const SETTLE: Duration = Duration::from_millis(500);
/// Where a generated packet says of which flow it is: in the last three bytes of its source address.
const FLOW_AT: usize = 14 + 12;
/// Of so many flows, in a hundred, the longest pauses are told beside that of all.
const PART: f64 = 0.99;

#[derive(Debug, Clone, Serialize)]
struct Sample {
    #[serde(flatten)]
    case: Case,
    moved: u64,
    milliseconds: f64,
    /// While no flow moves: how late a packet was at most, of any flow and of 99 of 100.
    still_ms: [f64; 2],
    /// While flows move.
    moving_ms: [f64; 2],
    round_trip_ns: [f64; 2],
    withheld: bool,
}

pub fn main(args: &MoveArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &MoveArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    let (own, shared) = (args.sampling.chain_core, args.sampling.device_core);
    crate::say::print_line!(
        "two instances, both on core {own}; this process, as generator and sink, on core {shared}; {} packets a second of each flow",
        args.each
    );
    let cases = args.cases(&[How::Each, How::Buckets]);
    let mut samples = Vec::new();
    for i in 1..=args.sampling.samples {
        for &case in &cases {
            progress(&format!("round {i} of {}: {} flows", args.sampling.samples, case.flows));
            let before = round_trip(shared, own);
            let mut sample = measure(&args.sampling, case)?;
            sample.round_trip_ns = [before, round_trip(shared, own)];
            samples.push(sample);
        }
    }
    progress("");
    print_table(&cases, &samples);
    args.sampling.write(args.json.as_deref(), &machine, 64, &samples)
}

fn print_table(cases: &[Case], samples: &[Sample]) {
    let show = |values: Vec<f64>| match spread(values) {
        Some([a, b, c]) => format!("{a:.2} / {b:.2} / {c:.2}"),
        None => "-".into(),
    };
    crate::say::print_line!(
        "min / median / max of all samples, in ms: until all have moved; how late a packet was at most of any flow, and of 99 of 100 flows, while none moves and while they do"
    );
    crate::say::print_line!(
        "{:>8}  {:<10}  {:>7}  {:>8}  {:^24}  {:^22}  {:^22}  {:^22}  {:^22}",
        "flows",
        "how",
        "at once",
        "together",
        "moved in",
        "still: any",
        "still: 99 %",
        "moving: any",
        "moving: 99 %"
    );
    for case in cases {
        let of = || samples.iter().filter(|s| s.case == *case);
        let how = if case.how == How::Buckets { "by buckets" } else { "one by one" };
        let late = |which: fn(&Sample) -> f64| show(of().map(which).collect());
        crate::say::print_line!(
            "{:>8}  {how:<10}  {:>7}  {:>8}  {:^24}  {:^22}  {:^22}  {:^22}  {:^22}",
            case.flows,
            told(case.at_once),
            told(case.together),
            late(|s| s.milliseconds),
            late(|s| s.still_ms[0]),
            late(|s| s.still_ms[1]),
            late(|s| s.moving_ms[0]),
            late(|s| s.moving_ms[1])
        );
    }
    if samples.iter().any(|sample| sample.withheld) {
        crate::say::print_line!("the real-time class was not granted in every sample");
    }
}

fn told(tried: Option<u16>) -> String {
    tried.map_or("default".to_owned(), |n| n.to_string())
}

/// What the sink sees of each flow.
struct Seen {
    began: Instant,
    /// Nanoseconds from one packet to the next, of all flows.
    gap: f64,
    flows: u64,
    /// Packets of each flow so far.
    packets: Vec<u32>,
    /// How late a packet of each came at most, in nanoseconds, as if the source had begun with the first step.
    late: Vec<f64>,
    /// Packets of no flow.
    strange: u64,
}

impl Seen {
    fn new(flows: u32, gap: f64) -> Self {
        let n = flows as usize;
        let (packets, late) = (vec![0; n], vec![f64::NEG_INFINITY; n]);
        Seen { began: Instant::now(), gap, flows: flows.into(), packets, late, strange: 0 }
    }

    /// A packet has come out.
    fn came(&mut self, flow: u32, now_ns: f64) {
        let at = flow as usize;
        let (Some(packets), Some(late)) = (self.packets.get_mut(at), self.late.get_mut(at)) else {
            self.strange += 1;
            return;
        };
        // Packets go round the flows, and those of a flow leave in the order in which they came: this is the source's packet of that number.
        let number = u64::from(*packets) * self.flows + u64::from(flow) + 1;
        *packets += 1;
        *late = late.max(now_ns - number as f64 * self.gap);
    }

    /// Begins anew to look how late packets are.
    fn forget(&mut self) {
        self.late.fill(f64::NEG_INFINITY);
    }

    /// Milliseconds by which a packet was late at most, of any flow and of [`PART`] of them, of a source that began `began` ns after this did.
    /// What was due by now (`now_ns`) and has not come is as late as it is.
    fn longest(&self, began: f64, now_ns: f64) -> [f64; 2] {
        let waits = |(flow, packets): (u64, &u32)| {
            now_ns - (u64::from(*packets) * self.flows + flow + 1) as f64 * self.gap
        };
        let due = (0..).zip(&self.packets).map(waits);
        let both = self.late.iter().zip(due).map(|(late, due)| late.max(due));
        let mut all: Vec<f64> = both.map(|ns| (ns - began).max(0.0) / 1e6).collect();
        all.sort_by(f64::total_cmp);
        let rank = (all.len() as f64 * PART).ceil() as usize;
        let at = |rank: usize| all.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN);
        [at(all.len()), at(rank)]
    }
}

/// The sink's device.
struct Sink(Rc<RefCell<Seen>>);

impl Send for Sink {
    fn send(
        &mut self,
        packets: &[Packet],
        arena: &Arena,
        _dropped: &mut Dropped,
    ) -> Result<(), DeviceError> {
        let seen = &mut *self.0.borrow_mut();
        let now = seen.began.elapsed().as_nanos() as f64;
        for packet in packets {
            let mut address = [0; 4];
            arena.bytes(packet.entry()).copy_to(FLOW_AT, &mut address);
            seen.came(u32::from_be_bytes(address) & 0xff_ffff, now);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<Place, DeviceError> {
        Ok(Place::default())
    }
}

/// A graph that runs, of which this process is the ends.
struct Played {
    agent: Agent,
    source: Stepper,
    sink: Stepper,
    seen: Rc<RefCell<Seen>>,
    /// When the source began, at the latest: nanoseconds after the sink did.
    began: f64,
    turned: Instant,
}

impl Played {
    /// Lets packets go from the source and into the sink, once; the agent's events when it was its turn.
    fn step(&mut self) -> Result<Vec<Event>, BenchError> {
        self.source.step().map_err(LatencyError::from)?;
        {
            // Packet n is due n gaps after the source began, which is no later than any of its steps says.
            let seen = self.seen.borrow();
            let now = seen.began.elapsed().as_nanos() as f64;
            self.began = self.began.min(now - self.source.packets() as f64 * seen.gap);
        }
        self.sink.step().map_err(LatencyError::from)?;
        if self.turned.elapsed() < TURN {
            return Ok(Vec::new());
        }
        self.agent.turn(Duration::ZERO)?;
        self.turned = Instant::now();
        Ok(std::iter::from_fn(|| self.agent.event()).collect())
    }

    fn run_for(&mut self, span: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Has flows moved while packets come, until they are.
    fn move_flows(&mut self, nf: Nf, what: What, to: u32) -> Result<Moved, BenchError> {
        let order = MoveFlows { from: None, nf: nf.name(), what, to };
        let ticket = self.agent.move_flows(&order).map_err(MovingError::from)?;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            for event in self.step()? {
                if let Some(moved) = moves::moved_by(ticket, event) {
                    return Ok(moved?);
                }
            }
        }
        Err(MovingError::Late.into())
    }

    fn longest(&self) -> [f64; 2] {
        let seen = self.seen.borrow();
        seen.longest(self.began, seen.began.elapsed().as_nanos() as f64)
    }
}

fn measure(sampling: &SampleArgs, case: Case) -> Result<Sample, BenchError> {
    let cores = vec![sampling.device_core, sampling.chain_core, sampling.chain_core];
    let plan = moves::plan(case.nf, cores)?;
    let rate = u64::from(case.flows) * u64::from(case.each_pps);
    let generator =
        GeneratorSpec { flows: case.flows, rate: Rate::PerSecond(rate), ..case.nf.packets() };
    let binds = BTreeMap::from([(0, DeviceSpec::Generator(generator)), (1, DeviceSpec::Null)]);
    let options = RunOptions { trial: case.trial(), ..sampling.options() };
    let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &options)?;
    let is_device = |end: &EndSpec| matches!(end, EndSpec::Rx { .. } | EndSpec::Tx { .. });
    let instances = setup.workers.iter().filter(|w| !is_device(&w.end)).count();
    let last = setup.workers.len() - 1;
    let _pinned = pin(sampling.device_core);
    let mut agent = Agent::start_hosting(setup, RestartPolicy::default(), |w| is_device(&w.end))?;
    let real_time = wait_until_ready(&mut agent, instances)?;
    let seen = Rc::new(RefCell::new(Seen::new(case.flows, 1e9 / rate as f64)));
    let mut sink = agent.stepper(last).map_err(LatencyError::from)?;
    sink.send_to(Box::new(Sink(seen.clone())));
    let source = agent.stepper(0).map_err(LatencyError::from)?;
    let (began, turned) = (f64::INFINITY, Instant::now());
    let mut played = Played { agent, source, sink, seen, began, turned };

    // All buckets to the first instance: hardly a flow is there yet. Then two packets of each.
    played.move_flows(case.nf, What::Share(100), 1)?;
    let round = Duration::from_secs_f64(1.0 / f64::from(case.each_pps));
    played.run_for(round.saturating_mul(2).max(SETTLE))?;
    played.seen.borrow_mut().forget();
    played.run_for(sampling.span())?;
    let still_ms = played.longest();
    played.seen.borrow_mut().forget();
    let what = if case.how == How::Buckets { What::Share(100) } else { What::Flows(None) };
    let moved = played.move_flows(case.nf, what, 2)?;
    // What waited for the last of it.
    played.run_for(round.saturating_mul(2))?;
    let moving_ms = played.longest();
    let strange = played.seen.borrow().strange;
    if strange > 0 {
        return Err(BenchError::Disturbed(format!("{strange} packets of no flow came out")));
    }
    Ok(Sample {
        case,
        moved: moved.flows,
        milliseconds: moved.took.as_secs_f64() * 1e3,
        still_ms,
        moving_ms,
        round_trip_ns: [0.0; 2],
        withheld: options.real_time && !real_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three flows, a packet each microsecond, the first due after one.
    fn seen() -> Seen {
        Seen::new(3, 1_000.0)
    }

    #[test]
    fn a_flows_nth_packet_was_due_in_the_nth_round_whatever_others_of_its_kind_do() {
        let mut seen = seen();
        // The second flow's packets come out after all others': they are late, nobody else's are.
        for (flow, at) in [(0, 1_000.0), (2, 3_000.0), (0, 4_000.0), (2, 6_000.0)] {
            seen.came(flow, at);
        }
        assert_eq!(seen.longest(0.0, 2_000.0), [0.0, 0.0]);
        // Its first packet was due after 2 µs.
        assert_eq!(seen.longest(0.0, 5_000.0), [0.003, 0.003]);
        seen.came(1, 9_000_000.0);
        seen.came(1, 9_000_000.0);
        assert_eq!(seen.longest(0.0, 6_000.0), [8.998, 8.998]);
        assert_eq!(seen.late, [0.0, 8_998_000.0, 0.0]);
    }

    #[test]
    fn of_a_hundred_flows_one_may_be_later_than_what_is_told_of_the_others() {
        let mut seen = Seen::new(200, 1_000.0);
        for flow in 0..200 {
            let late = if flow < 2 { 5e6 } else { 1e6 };
            seen.came(flow, f64::from(flow + 1) * 1e3 + late);
        }
        assert_eq!(seen.longest(0.0, 0.0), [5.0, 1.0]);
        // A source that began half a millisecond later: so much of it was no delay.
        assert_eq!(seen.longest(5e5, 0.0), [4.5, 0.5]);
    }

    #[test]
    fn what_was_before_is_forgotten_and_a_packet_of_no_flow_is_counted() {
        let mut seen = seen();
        seen.came(0, 1e9);
        seen.forget();
        assert_eq!(seen.longest(0.0, 0.0), [0.0; 2], "nothing has come since, and nothing was due");
        seen.came(0, 4_500.0);
        assert_eq!(seen.late[0], 500.0, "its second packet");
        seen.came(3, 0.0);
        assert_eq!(seen.strange, 1);
    }
}
