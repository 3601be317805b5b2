//! Instances that become more when one is overloaded, and fewer when they are idle, in real processes, of an NF that
//! remembers flows: none is begun anew, lost or reordered. The program is its own worker, with an NF slow enough; so it has
//! no test harness but its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs)] // A test.

mod common;

use common::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};
use weir_capture::{
    Format, LinkType, Precision, RawTime, Reader, Record, TimeFormat, Timestamp, Writer,
};
use weir_control::library::Library;
use weir_control::scale::{Decision, Happened, Way};
use weir_control::setup::Setup;
use weir_control::wiring::{RunOptions, ScaleOptions, wire};
use weir_control::{Agent, Event, Report, RestartPolicy, devices};
use weir_device::DeviceSpec;
use weir_nf::wire::Frame;
use weir_nf::{
    Affinity, ConfigError, Ctx, Descriptor, Effect, Env, FlowState, LayerAccess, Merge, Nf,
    NoConfig, Packets, ReadOnly, Touch,
};
use weir_nfs as _;
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Options, Plan, Sizing};
use weir_runtime::layout::NodeCounts;

const PATIENCE: Duration = Duration::from_secs(120);
/// How long a packet takes at least.
const EACH: Duration = Duration::from_micros(30);
/// Packets of the capture: some seconds' worth.
const PACKETS: u64 = 80_000;
const FLOWS: u64 = 700;
/// Flows of what goes on when the capture has ended.
const TRICKLE: u64 = 4;
/// Stands before the number of a packet of the capture.
const MAGIC: u64 = 0x7765_6972_746f_696c;

/// Takes its time for each packet, and knows which were before it in its flow.
struct Toil;

#[derive(Debug, Default, Serialize, Deserialize)]
struct OfFlow {
    last: u64,
}

impl FlowState for OfFlow {}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Tally {
    packets: u64,
    flows: u64,
    disorder: u64,
}

impl Merge for Tally {
    fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.flows += other.flows;
        self.disorder += other.disorder;
    }
}

impl Nf for Toil {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Toil",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = OfFlow;
    type Shared = Tally;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Toil)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let begun = Instant::now();
            let bytes = packet.bytes();
            let at = |back: usize| bytes.ne64(bytes.len().wrapping_sub(back)).map(u64::from_be);
            let number = at(8).filter(|_| at(16) == Some(MAGIC));
            let (flow, shared) = ctx.flow_of_and_shared(&packet);
            shared.packets += 1;
            if let Some(flow) = flow {
                shared.flows += u64::from(flow.is_new);
                if let Some(number) = number {
                    shared.disorder += u64::from(!flow.is_new && number <= flow.state.last);
                    flow.state.last = number;
                }
            }
            while begun.elapsed() < EACH {
                std::hint::spin_loop();
            }
        }
    }
}

weir_nf::register!(Toil);

fn main() -> ExitCode {
    let tests: [(&str, fn()); 9] = [
        ("an_overloaded_nf_gets_an_instance_and_gives_it_back_when_it_is_idle", out_and_in),
        ("replicas_of_a_segment_of_two_nfs_become_more_and_fewer_together", together),
        ("who_divides_may_die_while_flows_move", || killed("rx:lan", true)),
        ("who_gets_flows_may_die_while_they_move", || killed("toil#2", false)),
        ("a_graph_that_is_changed_while_flows_move_has_as_many_instances_in_use", relinked),
        ("flows_that_moved_stay_where_they_are_when_the_limits_change", limits_changed),
        ("a_graph_that_drains_while_flows_move_loses_none", drained),
        ("what_came_to_an_instance_that_is_stopped_for_good_goes_to_the_other", lost),
        ("old_flows_may_end_where_they_are_while_new_ones_go_to_the_new_instance", old_flows_end),
    ];
    common::run(&tests)
}

/// Packets 1, 2, 3, ... of flows in turn, every other one of IPv6; stamped now, as a live source's are. `renews`: halfway others begin
/// in place of the flows.
fn write_capture(path: &Path, renews: bool) {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(path, Format::Pcap { precision, link }).unwrap();
    let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() as u32;
    let v6 = |n: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    for number in 1..=PACKETS {
        let later = if renews && number > PACKETS / 2 { FLOWS } else { 0 };
        let flow = (number % FLOWS + later) as u16;
        let mut payload = MAGIC.to_be_bytes().to_vec();
        payload.extend(number.to_be_bytes());
        let frame = match flow % 2 {
            0 => Frame::ipv4([10, 0, 0, 1], [10, 1, 0, 1]),
            _ => Frame::ipv6(v6(1), v6(2)),
        };
        let bytes = frame.udp(1000 + flow, 53).payload(&payload).build();
        let raw = RawTime::from_fields(seconds, number as u32);
        let time = Timestamp { raw, format: TimeFormat::PcapMicros };
        let (bytes, wire_len) = (bytes.as_slice(), bytes.len() as u32);
        writer
            .append(&Record { bytes, wire_len, time, link, interface: 0, comment: None })
            .unwrap();
    }
    writer.commit().unwrap();
}

/// The numbers of the capture's packets that came out.
fn numbers(path: &Path) -> Vec<u64> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let Some((rest, number)) = record.bytes.split_last_chunk() else { continue };
        if rest.ends_with(&MAGIC.to_be_bytes()) {
            all.push(u64::from_be_bytes(*number));
        }
    }
    all
}

/// What becomes more and fewer: `toil` alone, or as a segment with another NF behind it that remembers flows.
const ALONE: &str = "toil";
const TOGETHER: &str = "toil+mon";

fn planned(nfs: &str, max: u16) -> Plan {
    let way = nfs.replace('+', " -> ");
    let declared = if nfs == ALONE { "" } else { "FlowMonitor mon;" };
    let policy = format!(
        "Port<0> lan; Port<1> trickle; Port<2> wan; Toil toil; {declared}
        pipelet {{ lan -> toil; trickle -> toil; {way} -> wan; }}"
    );
    let graph = weir_plan::check(&policy, &Library).unwrap_or_else(|e| panic!("{e:?}")).graph;
    let isolate = Isolate::Each;
    let options =
        Options { isolate, cores: None, online: 2, domains: BTreeMap::new(), ..Options::default() };
    let server = Server { name: "s".to_owned(), cores: 2, ghz: 1.0, nic_bps: None };
    let scaling = Asked::scaling(1, max.into());
    let names: Vec<String> = nfs.split('+').map(str::to_owned).collect();
    let asked = match names.len() {
        1 => [(nfs.to_owned(), scaling)].into(),
        _ => scaling.of_replicas(&names).into_iter().collect(),
    };
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    Plan::sized(&graph, &options, false, sizing).unwrap().0
}

/// What a run left.
struct Ended {
    report: Report,
    decisions: Vec<Decision>,
    numbers: Vec<u64>,
}

impl Ended {
    /// What was decided. On a busy machine both may be overloaded, or one of them not run at all for a while.
    fn steps(&self) -> Vec<&Decision> {
        let all = self.decisions.iter();
        let mut steps: Vec<_> = all.filter(|step| step.what != Happened::AtMost).collect();
        while let Some(at) = steps.iter().position(|step| step.what == Happened::Even) {
            steps.drain(at..(at + 2).min(steps.len()));
        }
        steps
    }

    fn whats(&self) -> Vec<Happened> {
        self.steps().into_iter().map(|step| step.what).collect()
    }

    fn tally(&self) -> Tally {
        let toil = self.report.nodes.iter().find(|node| node.name == "toil").unwrap();
        serde_json::from_value(toil.report.clone()).unwrap()
    }

    /// Fails unless every packet came out, or was lost with who died, in order.
    fn assert_whole(&self) {
        let balance = &self.report.balance;
        assert!(self.report.sound, "{balance:?} {:?} {:?}", self.report.census, self.decisions);
        let breach = |pair: &&[u64]| matches!(pair, [a, b] if a >= b);
        let breaches: Vec<&[u64]> = self.numbers.windows(2).filter(breach).collect();
        let first = breaches.get(..breaches.len().min(5));
        assert!(breaches.is_empty(), "{} times out of order: {first:?}", breaches.len());
        assert_eq!((balance.input, balance.dropped), (balance.out + balance.lost, 0));
        assert_eq!(self.tally().disorder, 0, "an older packet met a younger flow");
    }
}

/// Runs a capture and a trickle; `each` sees all events and may do something.
fn run(name: &str, mut each: impl FnMut(&mut Agent, &[Event])) -> Ended {
    run_changed(ALONE, name, |agent, events, _| each(agent, events))
}

/// The same; `each` can also make the graph anew, with so many instances at most.
fn run_changed(
    nfs: &str,
    name: &str,
    each: impl FnMut(&mut Agent, &[Event], &dyn Fn(u16) -> Setup),
) -> Ended {
    run_in(nfs, None, name, each)
}

/// The same, in some way.
fn run_in(
    nfs: &str,
    way: Option<Way>,
    name: &str,
    mut each: impl FnMut(&mut Agent, &[Event], &dyn Fn(u16) -> Setup),
) -> Ended {
    let scratch = Scratch::new(&format!("scaling-{name}"));
    let (input, output) = (scratch.0.join("in.pcap"), scratch.0.join("out.pcap"));
    write_capture(&input, way.is_some());
    let trickle = format!("gen:size=64,flows={TRICKLE},rate=200,seed=3").parse().unwrap();
    let binds = BTreeMap::from([
        (0, DeviceSpec::Pcap { rx: Some(input), tx: None }),
        (1, trickle),
        (2, DeviceSpec::Pcap { rx: None, tx: Some(output.clone()) }),
    ]);
    let setup = |max: u16| {
        let cool = Duration::from_millis(300);
        let scale = ScaleOptions { limits: (1, max), way, step: 50, cool };
        let scale = [(nfs.to_owned(), scale)].into();
        let options = RunOptions { scale, ..RunOptions::default() };
        let captures = devices::scan(&binds).unwrap();
        wire(&planned(nfs, max), &binds, &captures, &options).unwrap()
    };
    let plan = planned(nfs, 2);
    let mut agent = Agent::start(setup(2), RestartPolicy::default()).unwrap();
    let mut earlier = Vec::new();
    let (end, mut events) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        agent.turn(Duration::from_millis(1)).unwrap();
        events.extend(std::iter::from_fn(|| agent.event()));
        if events.iter().any(|event| matches!(event, Event::Finished)) {
            break;
        }
        assert!(Instant::now() < end, "it does not end: {:?}", decisions(&events));
        for retired in agent.retired() {
            earlier.push(Report::of(&plan, &retired.agent, retired.census, 0.0));
        }
        each(&mut agent, &events, &setup);
    }
    let census = agent.dismiss();
    let mut report = Report::of(&plan, &agent, census, 0.0);
    earlier.into_iter().for_each(|earlier| report.add_earlier(earlier));
    Ended { report, decisions: decisions(&events), numbers: numbers(&output) }
}

fn decisions(events: &[Event]) -> Vec<Decision> {
    let decision = |event: &Event| match event {
        Event::Scaled { decision, .. } => Some(decision.clone()),
        _ => None,
    };
    events.iter().filter_map(decision).collect()
}

fn count(events: &[Event], what: Happened) -> usize {
    count_of(&decisions(events), what)
}

/// True when the second instance has been emptied again.
fn is_back(events: &[Event]) -> bool {
    let last = decisions(events).pop();
    last.is_some_and(|last| (last.what, last.instances) == (Happened::Done, 1))
}

/// The agent's number of a worker.
fn worker(agent: &Agent, name: &str) -> usize {
    agent.setup().workers.iter().position(|worker| worker.name == name).unwrap()
}

/// Packets divide once, for the first; what both remember of a flow goes with it, and comes back with it.
fn together() {
    use Happened::{Done, In, Out};
    let mut stopped = false;
    let ended = run_changed(TOGETHER, "together", |agent, events, _| {
        if is_back(events) && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.whats(), [Out, Done, In, Done], "{:?}", ended.decisions);
    assert_eq!(ended.numbers.len() as u64, PACKETS);
    assert_eq!(ended.tally().flows, FLOWS + TRICKLE, "flows of toil began anew");
    let row = |name: &str| ended.report.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(row("mon").report["flows"], FLOWS + TRICKLE, "flows of mon began anew");
    for (toil, mon) in row("toil").instances.iter().zip(&row("mon").instances) {
        assert!(toil.packets > 1000, "{toil:?}");
        assert_eq!((&toil.worker, toil.packets), (&mon.worker, mon.packets));
    }
}

fn out_and_in() {
    use Happened::{Done, In, Out};
    let mut stopped = false;
    let ended = run("out-and-in", |agent, events| {
        if is_back(events) && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.whats(), [Out, Done, In, Done], "{:?}", ended.decisions);
    let [out, over, _, back] = ended.steps()[..] else { panic!("{:?}", ended.decisions) };
    assert_eq!((out.instance, out.instances, back.instances), (2, 2, 1));
    assert!(out.why.contains("the input of 1 was at least half full"), "{}", out.why);
    // Half of what there was by then, and all of it back.
    let half = FLOWS / 2;
    assert!(over.flows.abs_diff(half) < half / 2, "{:?}", ended.decisions);
    assert!(back.flows >= over.flows, "{:?}", ended.decisions);
    assert_eq!(ended.numbers.len() as u64, PACKETS);
    let tally = ended.tally();
    assert_eq!(tally.flows, FLOWS + TRICKLE, "flows began anew");
    assert_eq!(tally.packets, ended.report.balance.input);
    let toil = ended.report.nodes.iter().find(|node| node.name == "toil").unwrap();
    assert!(toil.instances.iter().all(|one| one.packets > 1000), "{:?}", toil.instances);
}

/// The first instance is killed as soon as flows are to leave it, and its successors, until there is none any more.
fn lost() {
    use Happened::{Even, Gone};
    let mut then = None;
    let ended = run("lost", |agent, events| {
        let first = worker(agent, "toil#1");
        let is_closed =
            |event: &Event| matches!(event, Event::Quarantined { worker } if *worker == first);
        if count(events, Happened::Out) > 0 && !events.iter().any(is_closed) {
            let pid = agent.pid(first).and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let is_over = decisions(events).last().is_some_and(|d| d.what == Happened::Done);
        if count(events, Even) == 0 || !is_over {
            return;
        }
        // From here on nothing goes to who is gone, whatever comes.
        let dropped = counts(agent, first).drops.iter().sum::<u64>();
        let came = counts(agent, worker(agent, "rx:trickle")).packets;
        match then {
            None => then = Some((dropped, came)),
            Some((before, at)) if came > at + 100 => {
                assert_eq!(dropped, before);
                agent.stop();
            }
            Some(_) => {}
        }
    });
    let balance = &ended.report.balance;
    assert!(ended.report.sound, "{balance:?} {:?}", ended.decisions);
    assert_eq!(balance.input, balance.out + balance.lost + balance.dropped);
    assert!(ended.numbers.is_sorted(), "out of order");
    let place = |what| ended.decisions.iter().position(|d| d.what == what).unwrap();
    let over = ended.decisions.last().unwrap();
    assert!(place(Gone) < place(Even), "{:?}", ended.decisions);
    assert_eq!((ended.decisions[place(Gone)].instance, over.instances), (1, 1));
    let lost = &ended.decisions[place(Even)];
    assert!(lost.why.contains("what came to it goes to the others"), "{lost:?}");
}

/// What the first node of a worker has counted.
fn counts(agent: &Agent, w: usize) -> NodeCounts {
    NodeCounts::read(&agent.words(w).unwrap(), &agent.layout(w).unwrap(), 0)
}

/// The flows that there are stay; of those that begin later the new instance has its part. What it has when it is emptied
/// moves after a second, if it has not ended.
fn old_flows_end() {
    use Happened::{Done, In, Out};
    let mut stopped = false;
    let way = Some(Way::OldFlowsEnd(Duration::from_secs(1)));
    let ended = run_in(ALONE, way, "old-flows-end", |agent, events, _| {
        if is_back(events) && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.numbers.len() as u64, PACKETS);
    assert_eq!(ended.tally().flows, 2 * FLOWS + TRICKLE, "flows began anew");
    let of = |what| ended.decisions.iter().find(|d| d.what == what).unwrap();
    assert_eq!((of(Out).instance, of(Done).flows), (2, 0), "{:?}", ended.decisions);
    let toil = ended.report.nodes.iter().find(|node| node.name == "toil").unwrap();
    assert!(toil.instances.iter().all(|one| one.packets > 1000), "{:?}", toil.instances);
    // What began before it was emptied, and no more.
    let back = ended.decisions.last().unwrap();
    assert!(count_of(&ended.decisions, In) > 0 && back.flows > FLOWS / 4, "{:?}", ended.decisions);
    assert!(back.flows < FLOWS, "{:?}", ended.decisions);
}

fn count_of(decisions: &[Decision], what: Happened) -> usize {
    decisions.iter().filter(|decision| decision.what == what).count()
}

/// `name` is killed as soon as flows are to move. `keeps`: it has none that would begin anew.
fn killed(name: &str, keeps: bool) {
    let (mut dead, mut stopped) = (false, false);
    let ended = run(name, |agent, events| {
        if count(events, Happened::Out) > 0 && !dead {
            let pid = agent.pid(worker(agent, name)).and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                dead = true;
            }
        }
        if is_back(events) && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    let dead = ended.report.workers.iter().find(|worker| worker.name == name).unwrap();
    assert_eq!(dead.restarts, 1);
    if keeps {
        assert_eq!(ended.tally().flows, FLOWS + TRICKLE, "flows began anew");
    }
}

fn relinked() {
    use Happened::{Done, In, Out};
    let (mut begun, mut stopped) = (false, false);
    let ended = run_changed(ALONE, "relinked", |agent, events, setup| {
        if count(events, Out) > 0 && !begun {
            begun = true;
            agent.relink(setup(2)).unwrap();
        }
        let failed = events.iter().find(|event| matches!(event, Event::NotRelinked { .. }));
        assert!(failed.is_none(), "{failed:?}");
        if is_back(events) && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.whats(), [Out, Done, In, Done], "{:?}", ended.decisions);
    assert_eq!(ended.numbers.len() as u64, PACKETS);
    assert_eq!(ended.tally().flows, FLOWS + TRICKLE, "flows began anew");
}

/// With other limits buckets are at the first again, but what moved must not be.
fn limits_changed() {
    let relinks = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::Relinked(_))).count()
    };
    let (mut asked, mut is_through) = (0, false);
    let ended = run_changed(ALONE, "limits", |agent, events, setup| {
        let failed = events.iter().find(|event| matches!(event, Event::NotRelinked { .. }));
        assert!(failed.is_none(), "{failed:?}");
        // One more than two, then two again: the third may have got some meanwhile.
        if count(events, Happened::Done) > 0 && asked < 2 && relinks(events) == asked {
            agent.relink(setup([3, 2][asked])).unwrap();
            asked += 1;
        }
        if relinks(events) == 2 && is_back(events) && !is_through {
            is_through = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.numbers.len() as u64, PACKETS);
    assert_eq!(ended.tally().flows, FLOWS + TRICKLE, "flows began anew");
}

fn drained() {
    let mut stopped = false;
    let ended = run("drained", |agent, events| {
        if count(events, Happened::Out) > 0 && !stopped {
            stopped = true;
            agent.stop();
        }
    });
    ended.assert_whole();
    assert_eq!(ended.numbers.len() as u64 + ended.trickled(), ended.report.balance.input);
    assert_eq!(ended.report.balance.lost, 0);
    assert!(ended.tally().flows <= FLOWS + TRICKLE, "flows began anew");
}

impl Ended {
    /// Packets of the trickle.
    fn trickled(&self) -> u64 {
        let rx = self.report.nodes.iter().find(|node| node.name == "rx:trickle").unwrap();
        rx.packets
    }
}
