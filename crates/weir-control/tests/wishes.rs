//! Flows that an NF itself wants at another of its instances, in real processes: they get there under load, with what all NFs of the segment
//! remember of them, and none is lost, reordered or begun anew. The program is its own worker, with NFs that the library does not have;
//! so it has no test harness but its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs)] // A test.

mod common;

use common::Scratch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_capture::{
    Format, LinkType, Precision, RawTime, Reader, Record, TimeFormat, Timestamp, Writer,
};
use weir_control::library::Library;
use weir_control::wiring::{RunOptions, wire};
use weir_control::{Agent, Event, Listed, Report, RestartPolicy, devices};
use weir_device::DeviceSpec;
use weir_nf::wire::Frame;
use weir_nf::{
    Affinity, ConfigError, Ctx, Descriptor, Effect, Env, FlowState, LayerAccess, Merge, Nf,
    NoConfig, Packets, ReadOnly, Touch, Whither,
};
use weir_nfs as _;
use weir_packet::FlowKey;
use weir_packet::flow::PortKind;
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Options, Plan, Sizing};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a packet takes at least.
const EACH: Duration = Duration::from_micros(20);
/// So many at most: it ends when all is seen.
const PACKETS: u64 = 1_000_000;
const FLOWS: u16 = 600;
/// Flows of one session, of which the first leads.
const SESSION: u16 = 10;
const FIRST_PORT: u16 = 1000;
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)];

/// Wants the flows of a session where its first is, and those of the first session at the third instance.
struct Gather;

#[derive(Debug, Default, Serialize, Deserialize)]
struct OfFlow {
    last: u64,
    packets: u64,
}

impl FlowState for OfFlow {}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Tally {
    packets: u64,
    flows: u64,
    disorder: u64,
    unheard: u64,
}

impl Merge for Tally {
    fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.flows += other.flows;
        self.disorder += other.disorder;
        self.unheard += other.unheard;
    }
}

fn key_of(flow: u16) -> FlowKey {
    let [a, b] = ENDS.map(IpAddr::V4);
    FlowKey::between((a, FIRST_PORT + flow), (b, 53), 17, PortKind::Ports, 0).unwrap().0
}

impl Nf for Gather {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Gather",
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
        Ok(Gather)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let begun = Instant::now();
            let number = packet.bytes().ne64(packet.bytes().len().wrapping_sub(8));
            let number = number.map_or(0, u64::from_be);
            let flow_number = (number % u64::from(FLOWS)) as u16;
            let (flow, shared) = ctx.flow_of_and_shared(&packet);
            shared.packets += 1;
            let mut asks = false;
            if let Some(flow) = flow {
                shared.flows += u64::from(flow.is_new);
                shared.disorder += u64::from(!flow.is_new && number <= flow.state.last);
                flow.state.last = number;
                flow.state.packets += 1;
                // Not all at once: few wishes wait to be heard.
                asks = (flow.state.packets + u64::from(flow_number)) % 8 == 3;
            }
            let leader = flow_number - flow_number % SESSION;
            let heard = match asks {
                true if flow_number == 0 => ctx.move_flow(Whither::Instance(2)),
                // Nobody is there: nothing comes of it.
                true if flow_number == leader => ctx.move_flow(Whither::Instance(9)),
                true => ctx.move_flow(Whither::With(key_of(leader))),
                false => true,
            };
            ctx.shared().unheard += u64::from(!heard);
            while begun.elapsed() < EACH {
                std::hint::spin_loop();
            }
        }
    }
}

weir_nf::register!(Gather);

fn main() -> ExitCode {
    let tests: [(&str, fn()); 3] = [
        ("an_nf_gathers_flows_at_the_instances_that_it_wants_them_at", || {
            gathers("alone", ALONE, None);
        }),
        ("what_other_nfs_of_the_segment_remember_of_a_flow_goes_along", || {
            gathers("together", TOGETHER, None);
        }),
        ("who_divides_packets_may_die_meanwhile", || gathers("killed", ALONE, Some("rx:lan"))),
    ];
    common::run(&tests)
}

const ALONE: &str = "gather";
const TOGETHER: &str = "gather+mon";

/// Packets 1, 2, 3, ... of the flows in turn.
fn write_capture(path: &Path) {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(path, Format::Pcap { precision, link }).unwrap();
    for number in 1..=PACKETS {
        let flow = (number % u64::from(FLOWS)) as u16;
        let [a, b] = ENDS.map(|end| end.octets());
        let payload = number.to_be_bytes();
        let frame = Frame::ipv4(a, b).udp(FIRST_PORT + flow, 53).payload(&payload).build();
        let raw = RawTime::from_fields(1_700_000_000, number as u32);
        let time = Timestamp { raw, format: TimeFormat::PcapMicros };
        let (bytes, wire_len) = (frame.as_slice(), frame.len() as u32);
        let record = Record { bytes, wire_len, time, link, interface: 0, comment: None };
        writer.append(&record).unwrap();
    }
    writer.commit().unwrap();
}

/// The numbers of the packets that came out.
fn numbers(path: &Path) -> Vec<u64> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        all.push(u64::from_be_bytes(*record.bytes.last_chunk().unwrap()));
    }
    all
}

fn planned(nfs: &str) -> Plan {
    let way = nfs.replace('+', " -> ");
    let declared = if nfs == ALONE { "" } else { "FlowMonitor mon;" };
    let policy = format!(
        "Port<0> lan; Port<1> wan; Gather gather; {declared} pipelet {{ lan -> {way} -> wan; }}"
    );
    let graph = weir_plan::check(&policy, &Library).unwrap_or_else(|e| panic!("{e:?}")).graph;
    let isolate = Isolate::Each;
    let options = Options { isolate, online: 2, ..Options::default() };
    let server = Server { name: "s".to_owned(), cores: 2, ghz: 1.0, nic_bps: None };
    let names: Vec<String> = nfs.split('+').map(str::to_owned).collect();
    let asked = match names.len() {
        1 => [(nfs.to_owned(), Asked::equal(3))].into(),
        _ => Asked::equal(3).of_replicas(&names).into_iter().collect(),
    };
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    Plan::sized(&graph, &options, false, sizing).unwrap().0
}

/// By session, at which instances of `nf` its flows are; nothing while not all are known.
fn places(listed: &Listed, nf: &str) -> BTreeMap<u16, BTreeSet<u32>> {
    let mut places: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
    let own: Vec<_> = listed.rows.iter().filter(|row| row.nf == nf).collect();
    if own.len() == usize::from(FLOWS) {
        for row in own {
            let flow = (0..FLOWS).find(|flow| row.keys.contains(&key_of(*flow))).unwrap();
            places.entry(flow / SESSION).or_default().extend(row.instance);
        }
    }
    places
}

fn gathers(name: &str, nfs: &str, kills: Option<&str>) {
    let scratch = Scratch::new(&format!("wishes-{name}"));
    let (input, output) = (scratch.0.join("in.pcap"), scratch.0.join("out.pcap"));
    write_capture(&input);
    let binds = BTreeMap::from([
        (0, DeviceSpec::Pcap { rx: Some(input), tx: None }),
        (1, DeviceSpec::Pcap { rx: None, tx: Some(output.clone()) }),
    ]);
    let plan = planned(nfs);
    let captures = devices::scan(&binds).unwrap();
    let setup = wire(&plan, &binds, &captures, &RunOptions::default()).unwrap();
    let mut agent = Agent::start(setup, RestartPolicy::default()).unwrap();
    let (end, mut killed, mut asked) = (Instant::now() + PATIENCE, kills.is_none(), false);
    let (mut gathered, mut stopped, mut warnings, mut last) = (false, false, Vec::new(), None);
    loop {
        agent.turn(Duration::from_millis(1)).unwrap();
        let mut finished = false;
        for event in std::iter::from_fn(|| agent.event()).collect::<Vec<_>>() {
            match event {
                Event::Finished => finished = true,
                Event::Warning { text, .. } => warnings.push(text),
                Event::FlowsListed { listed, .. } => {
                    asked = false;
                    let all: Vec<_> = nfs.split('+').map(|nf| places(&listed, nf)).collect();
                    let whole = all[0].len() == usize::from(FLOWS / SESSION);
                    last = all.first().cloned();
                    gathered |= whole
                        && all.iter().all(|places| *places == all[0])
                        && all[0].values().all(|at| at.len() == 1)
                        && all[0][&0] == BTreeSet::from([3]);
                }
                _ => {}
            }
        }
        if finished {
            break;
        }
        assert!(Instant::now() < end, "it does not end");
        if gathered && killed && !stopped {
            agent.stop();
            stopped = true;
        }
        if !asked && !gathered {
            agent.list_flows(None, None, 10_000).unwrap();
            asked = true;
        }
        let divides = agent.setup().workers.iter().position(|w| Some(w.name.as_str()) == kills);
        let pid = divides.filter(|_| !killed).and_then(|w| agent.pid(w));
        let moved = |agent: &Agent| {
            let third = agent.setup().workers.iter().position(|w| w.name == "gather#3").unwrap();
            agent.words(third).is_some_and(|words| words.iter().any(|word| *word > 500))
        };
        if let Some(pid) = pid.filter(|_| moved(&agent)).and_then(|pid| i32::try_from(pid).ok()) {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            killed = true;
        }
    }
    let census = agent.dismiss();
    let report = Report::of(&plan, &agent, census, 0.0);
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    assert!(killed, "nobody was killed");
    let apart = last.map(|mut places| {
        places.retain(|session, at| at.len() > 1 || *session == 0);
        places
    });
    assert!(gathered, "some flows of a session are apart to the end: {apart:?}");
    let came = numbers(&output);
    let (balance, whole) = (&report.balance, came.len() as u64 + report.balance.lost);
    assert!(came.is_sorted(), "out of order");
    assert_eq!((whole, balance.dropped), (balance.input, 0), "{balance:?}");
    let node = |nf: &str| report.nodes.iter().find(|node| node.name == nf).unwrap();
    let tally: Tally = serde_json::from_value(node("gather").report.clone()).unwrap();
    assert_eq!((tally.flows, tally.disorder), (FLOWS.into(), 0), "flows began anew: {tally:?}");
    if nfs == TOGETHER {
        assert_eq!(node("mon").report["flows"], u64::from(FLOWS), "flows began anew");
    }
    // That an instance is not there is said by each that was asked for it, once in its life.
    let stay = warnings.iter().filter(|text| text.contains("there is no such instance")).count();
    assert!((1..=3).contains(&stay), "{warnings:?}");
    for instance in &node("gather").instances {
        assert!(instance.packets > 0, "{instance:?}");
    }
}
