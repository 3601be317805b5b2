//! What NFs may do besides judging packets, through real workers: isolated and fused, against the
//! oracle, and when workers are killed. The program is its own worker, with NFs that the library does not
//! have; so it has no test harness but its own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs)] // A test.

mod affinity;
#[path = "../common/mod.rs"]
mod common;
mod nfs;
mod stages;
mod timers;

use common::Scratch;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_capture::{
    Format, LinkType, Precision, RawTime, Reader, Record, TimeFormat, Timestamp, Writer,
};
use weir_control::library::Library;
use weir_control::wiring::{RunOptions, wire};
use weir_control::{Agent, Event, RelinkError, Report, RestartPolicy, devices};
use weir_device::DeviceSpec;
use weir_nf::wire::Frame;
use weir_nfs as _;
use weir_oracle::{Input, Oracle, Outcome, Sent};
use weir_plan::{Isolate, Options, Plan};

/// Most packets that a worker has under way.
const BATCH: u64 = weir_packet::BATCH as u64;
const PATIENCE: Duration = Duration::from_secs(60);
const PORTS: &str = "Port<0> lan; Port<1> wan;\n";

fn main() -> ExitCode {
    let tests: [(&str, fn()); 21] = [
        (
            "packets_meet_by_the_fields_that_an_nf_declares",
            affinity::packets_meet_by_the_fields_that_an_nf_declares,
        ),
        (
            "divisions_by_fields_go_on_along_a_chain",
            affinity::divisions_by_fields_go_on_along_a_chain,
        ),
        ("held_packets_leave_before_a_graph_is_relinked", held_packets_leave_before_a_relink),
        ("who_always_holds_packets_is_not_relinked", who_always_holds_is_not_relinked),
        ("timers_come_by_their_source_after_a_relink", timers::come_by_their_source_after_a_relink),
        ("poison_is_known_beside_a_branch_that_writes", stages::poison_is_known_beside_a_writer),
        ("copies_meet_their_packets_again", copies_meet_their_packets_again),
        ("copies_of_copies_are_all_made", copies_of_copies_are_all_made),
        ("a_full_lane_does_not_keep_back_what_its_merger_waits_for", one_full_lane_of_two),
        ("errors_go_back_and_packets_go_on", errors_go_back_and_packets_go_on),
        ("a_delay_line_keeps_and_flushes", a_delay_line_keeps_and_flushes),
        ("what_was_held_parts_by_the_port_it_came_in_by", held_part_by_their_own_port),
        ("timers_come_exactly_where_packet_time_says", timers_come_exactly),
        ("headers_are_added_and_removed_by_input", headers_are_added_and_removed),
        ("timers_come_while_live_input_rests", timers_come_while_live_input_rests),
        ("a_killed_copier_leaks_nothing", a_killed_copier_leaks_nothing),
        ("what_a_killed_worker_held_is_counted_as_lost", what_was_held_is_lost),
        ("shared_state_survives_kills", shared_state_survives_kills),
        ("state_that_kills_whoever_takes_it_over_is_dropped", state_that_kills_is_dropped),
        (
            "state_that_kills_its_heirs_at_packets_again_and_again_is_dropped",
            state_that_kills_at_packets_is_dropped,
        ),
        ("state_that_is_too_large_to_be_kept_is_said_once", state_that_is_too_large_is_said_once),
    ];
    common::run(&tests)
}

/// Packets of all kinds by port 0, some microseconds apart, some bursts.
fn packets(n: usize) -> Vec<Input> {
    let v6 = |n: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    let long = [3; 1500];
    let mut micros = 0;
    let packet = |i: usize| {
        let i16 = i as u16;
        let data = &long[..i * 37 % 1400];
        let four = Frame::ipv4([10, 0, i as u8, 1], [10, 1, 0, 2]).udp(i16, 53);
        let six = Frame::ipv6(v6(10 + i16), v6(2)).tcp(i16, 80, 2);
        let bytes = match i % 7 {
            0 => four.ttl(1).payload(data).build(),
            1 => six.ttl(1).vlan(3).payload(data).build(),
            2 => six.payload(&long).build(),
            3 => Frame::other(0x0806).payload(&[i as u8; 28]).build(),
            _ => four.payload(data).vlan(9).build(),
        };
        micros += [0, 3, 40, 700, 1, 2_500][i * i % 6];
        let raw = RawTime::from_fields(1_000 + micros / 1_000_000, micros % 1_000_000);
        let time = Timestamp { raw, format: TimeFormat::PcapMicros };
        let wire_len = bytes.len() as u32;
        Input { port: 0, bytes, wire_len, time, link: LinkType::ETHERNET }
    };
    (0..n).map(packet).collect()
}

fn write_capture(path: &Path, packets: &[Input]) {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(path, Format::Pcap { precision, link }).unwrap();
    for p in packets {
        let (bytes, wire_len, time) = (p.bytes.as_slice(), p.wire_len, p.time);
        writer
            .append(&Record { bytes, wire_len, time, link, interface: 0, comment: None })
            .unwrap();
    }
    writer.commit().unwrap();
}

/// Bytes, wire length and time.
type Seen = (Vec<u8>, u32, u64);

fn read_capture(path: &Path) -> Vec<Seen> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(r) = reader.next().unwrap() {
        all.push((r.bytes.to_vec(), r.wire_len, r.time.to_ns()));
    }
    all
}

fn plan(policy: &str, isolate: Isolate) -> Plan {
    let graph =
        weir_plan::check(policy, &Library).unwrap_or_else(|e| panic!("{e:?}\n{policy}")).graph;
    Plan::build(
        &graph,
        &Options {
            isolate,
            cores: None,
            online: 2,
            domains: Default::default(),
            ..Options::default()
        },
    )
    .unwrap()
}

/// Runs to the end; `each` is called now and then.
fn run(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
    options: &RunOptions,
    each: impl FnMut(&mut Agent),
) -> Report {
    run_and_tell(plan, binds, options, each).0
}

/// As [`run`], with all that happened.
fn run_and_tell(
    plan: &Plan,
    binds: &BTreeMap<u16, DeviceSpec>,
    options: &RunOptions,
    mut each: impl FnMut(&mut Agent),
) -> (Report, Vec<Event>) {
    let captures = devices::scan(binds).unwrap();
    let setup = wire(plan, binds, &captures, options).unwrap();
    let mut agent = Agent::start(setup, RestartPolicy::default()).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    loop {
        agent.turn(Duration::from_millis(1)).unwrap();
        events.extend(std::iter::from_fn(|| agent.event()));
        if events.iter().any(|event| matches!(event, Event::Finished)) {
            break;
        }
        assert!(Instant::now() < end, "it does not end");
        each(&mut agent);
    }
    let census = agent.dismiss();
    (Report::of(plan, &agent, census, 0.0), events)
}

/// Fails unless the records are those expected; what follows from one packet may come in any order.
fn assert_sent(what: &str, mut got: Vec<Seen>, expected: &[Sent]) {
    assert_eq!(got.len(), expected.len(), "{what}: packets");
    let mut at = 0;
    for group in expected.chunk_by(|a, b| (a.source, a.place) == (b.source, b.place)) {
        let here = &mut got[at..at + group.len()];
        let mut want: Vec<Seen> =
            group.iter().map(|s| (s.bytes.clone(), s.wire_len, s.time.to_ns())).collect();
        here.sort();
        want.sort();
        assert!(here == want, "{what}: packet {at} and what follows from it");
        at += group.len();
    }
}

/// Runs a policy isolated and fused, with little and with much room, and compares with the oracle.
/// `reports`: those of NFs too.
fn compare(name: &str, nfs: &str, input: &[Input], reports: bool) -> Outcome {
    let policy = format!("{PORTS}{nfs}");
    let graph = plan(&policy, Isolate::None).graph;
    let expected = Oracle::new(&graph, &[0, 1]).unwrap().run(input).unwrap();
    for isolate in [Isolate::Each, Isolate::None] {
        for (ring, pool) in [(64, 64), (64, 4096), (1024, 256)] {
            let what = format!("{name} {isolate:?} ring {ring} pool {pool}");
            let scratch = Scratch::new(&format!("more-{name}"));
            let file = |f: &str| scratch.0.join(f);
            write_capture(&file("in.pcap"), input);
            let tx = |port: u16| {
                expected.sent.contains_key(&port).then(|| file(&format!("out{port}.pcap")))
            };
            let binds = BTreeMap::from([
                (0, DeviceSpec::Pcap { rx: Some(file("in.pcap")), tx: tx(0) }),
                (1, DeviceSpec::Pcap { rx: None, tx: tx(1) }),
            ]);
            let options = RunOptions { ring, pool: Some(pool), ..RunOptions::default() };
            let report = run(&plan(&policy, isolate), &binds, &options, |_| {});
            assert!(report.sound, "{what}: {:?} {:?}", report.balance, report.census);
            let b = &report.balance;
            assert_eq!((b.created, b.copied), (expected.created, expected.copied), "{what}");
            assert_eq!((b.lost, b.dropped), (0, expected.dropped()), "{what}");
            for node in &report.nodes {
                let Some(want) = expected.nodes.get(&node.name) else { continue };
                let got = (node.packets, node.bytes, &node.drops);
                assert_eq!(got, (want.packets, want.bytes, &want.drops), "{what}: {}", node.name);
                if reports && let Some(want) = expected.reports.get(&node.name) {
                    assert_eq!(&node.report, want, "{what}: report of {}", node.name);
                }
            }
            for edge in &report.edges {
                let want = &expected.edges[&edge.name];
                assert_eq!(
                    (edge.packets, edge.bytes),
                    (want.packets, want.bytes),
                    "{what}: {}",
                    edge.name
                );
            }
            for (port, sent) in &expected.sent {
                assert_sent(&what, read_capture(&tx(*port).unwrap()), sent);
            }
        }
    }
    expected
}

fn copies_meet_their_packets_again() {
    let nfs = "Tee t; MacSwap m; CountSubnet c { prefixes: [\"10.0.0.0/8\", \"fd00::/8\"] };
        pipelet { lan -> t; t [t.out] -> m -> c; t [t.copy] -> c; c -> wan; }";
    let outcome = compare("meet", nfs, &packets(2_000), true);
    assert_eq!((outcome.copied, outcome.sent[&1].len()), (2_000, 4_000));
}

fn copies_of_copies_are_all_made() {
    // Two, four, eight of each: more than a batch, and more than the smallest pool holds of a batch.
    let nfs = "Tee a; Tee b; Tee c; PacketSizeHistogram h;
        pipelet { lan -> a; a [a.out] -> b; a [a.copy] -> b; b [b.out] -> c; b [b.copy] -> c;
                  c [c.out] -> h; c [c.copy] -> h; h -> wan; }";
    let outcome = compare("copies", nfs, &packets(600), true);
    assert_eq!(outcome.sent[&1].len(), 600 * 8);
}

fn one_full_lane_of_two() {
    // A batch makes twice as many packets as the one lane holds, and the other stays empty at first.
    let nfs = "Tee t; Null n; pipelet {
        lan -> t; t [t.out] -> n; t [t.copy] -> n; n [arp] -> wan; n [!arp] -> wan; }";
    let is_arp = |p: &Input| p.bytes[12..14] == [0x08, 0x06];
    let (arp, mut input): (Vec<_>, Vec<_>) = packets(2_000).into_iter().partition(is_arp);
    input.extend(arp);
    let outcome = compare("full", nfs, &input, true);
    assert_eq!(outcome.sent[&1].len(), 4_000);
}

fn errors_go_back_and_packets_go_on() {
    let nfs = "CheckIpHeader i; TtlDecrement t { mtu: 1400 };
        IcmpError e { v4: \"10.9.9.9\", v6: \"fd00::99\", mtu: 1400, rate: 1000000, burst: 1000 };
        pipelet { lan -> i; i [i.ip] -> t; i [i.non_ip] -> wan; t [t.out] -> wan; t [t.other] -> Drop;
                  t [t.expired] -> [expired] e; t [t.too_big] -> [too_big] e; e -> lan; }";
    let outcome = compare("errors", nfs, &packets(1_400), true);
    let drops = &outcome.nodes["e"].drops;
    assert_eq!((drops["expired"], drops["too-big"]), (400, 200));
    assert_eq!((outcome.created, outcome.sent[&0].len()), (600, 600));
}

fn a_delay_line_keeps_and_flushes() {
    let nfs = "DelayLine a; Null n; DelayLine b; pipelet { lan -> a -> n -> b -> wan; }";
    let outcome = compare("delay", nfs, &packets(1_000), false);
    assert_eq!(outcome.nodes["a"].drops["held-at-end"], 2);
    // What the first sends at its end, the second still gets.
    assert_eq!(outcome.nodes["b"].packets, 998);
    assert_eq!(outcome.nodes["b"].drops["held-at-end"], 2);
}

/// Two ports' packets meet in a delay line, where each is released when another one comes, of whichever
/// port; behind it they part by the port that they came in by themselves.
fn held_part_by_their_own_port() {
    let policy = "Port<0> a; Port<1> b; Port<2> of_a; Port<3> of_b; DelayLine d; Null n;
        pipelet { a -> d; b -> d; d -> n; n [ingress == 0] -> of_a; n [ingress == 1] -> of_b; }";
    let graph = weir_plan::check(policy, &Library).unwrap().graph;
    let input = packets(3_000);
    let of = |own: &dyn Fn(usize) -> bool| {
        let own = input.iter().enumerate().filter(|(i, _)| own(*i));
        own.map(|(_, p)| p.clone()).collect::<Vec<_>>()
    };
    let halves = [of(&|i| i % 2 == 0), of(&|i| i % 2 == 1)];
    // Of two so unequal ones the first has mostly ended before anything comes by the other: the line is to wait for that too.
    let few_first = [of(&|i| i < 9), of(&|i| i >= 9)];
    let (all_first, none_first) =
        ([of(&|_| true), of(&|_| false)], [of(&|_| false), of(&|_| true)]);
    let guest = |nodes: &[&str]| {
        nodes.iter().map(|n| ((*n).to_owned(), "guest".to_owned())).collect::<BTreeMap<_, _>>()
    };
    let runs =
        [(Isolate::Each, guest(&[])), (Isolate::None, guest(&[])), (Isolate::Each, guest(&["d"]))];
    let runs = [&halves, &few_first, &all_first, &none_first].into_iter().flat_map(|inputs| {
        let with = move |(isolate, domains)| (inputs, isolate, domains);
        runs.clone().map(with)
    });
    for (inputs, isolate, domains) in runs {
        let what = format!("{} by a, {isolate:?} {domains:?}", inputs[0].len());
        let scratch = Scratch::new("more-held-part");
        let file = |name: &str| scratch.0.join(name);
        let rx = |n: usize| {
            let path = file(&format!("in{n}.pcap"));
            write_capture(&path, &inputs[n]);
            DeviceSpec::Pcap { rx: Some(path), tx: None }
        };
        let tx = |n: usize| DeviceSpec::Pcap { rx: None, tx: Some(file(&format!("out{n}.pcap"))) };
        let binds = BTreeMap::from([(0, rx(0)), (1, rx(1)), (2, tx(0)), (3, tx(1))]);
        let options = Options { isolate, cores: None, online: 2, domains, ..Options::default() };
        let plan = Plan::build(&graph, &options).unwrap();
        let report = run(&plan, &binds, &RunOptions::default(), |_| {});
        assert!(report.sound, "{what}: {:?} {:?}", report.balance, report.census);
        let mut out = 0;
        for (n, own) in inputs.iter().enumerate() {
            let own: std::collections::HashSet<(&[u8], u64)> =
                own.iter().map(|p| (p.bytes.as_slice(), p.time.to_ns())).collect();
            let sent = read_capture(&file(&format!("out{n}.pcap")));
            out += sent.len();
            let foreign =
                sent.iter().filter(|(b, _, t)| !own.contains(&(b.as_slice(), *t))).count();
            assert_eq!(foreign, 0, "{what}: of {} packets of port {n}", sent.len());
        }
        // What the line keeps at the end it sends but for every third.
        assert_eq!(out, 2_998, "{what}");
    }
}

fn timers_come_exactly() {
    let nfs =
        "Batcher b; Tee t; Null n; pipelet { lan [ip || ip6] -> b -> t; lan [!(ip || ip6)] -> wan;
        t [t.out] -> wan; t [t.copy] -> n -> wan; }";
    let outcome = compare("timers", nfs, &packets(2_000), false);
    assert!(outcome.created > 100 && outcome.nodes["b"].drops["filtered"] > 100);
}

fn headers_are_added_and_removed() {
    let nfs =
        "Tagger a; Tagger b; pipelet { lan [ip] -> [tag] a; lan [vlan 9] -> [untag] a;
        lan [!(ip || vlan 9)] -> wan; a [vlan 7] -> [untag] b; a [!(vlan 7)] -> [tag] b; b -> wan; }";
    let outcome = compare("tags", nfs, &packets(1_000), true);
    // What was tagged and untagged is as before.
    let lengths = |sent: &[Sent]| sent.iter().map(|s| s.bytes.len()).sum::<usize>();
    assert!(lengths(&outcome.sent[&1]) > 0);
}

fn gen_binds(spec: &str) -> BTreeMap<u16, DeviceSpec> {
    BTreeMap::from([(0, spec.parse().unwrap()), (1, DeviceSpec::Null)])
}

fn node(report: &Report, name: &str) -> weir_control::report::NodeReport {
    report.nodes.iter().find(|n| n.name == name).unwrap().clone()
}

fn kill(agent: &Agent, w: usize) -> bool {
    let Some(pid) = agent.pid(w).and_then(|p| rustix::process::Pid::from_raw(p as i32)) else {
        return false;
    };
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
}

fn worker(agent: &Agent, name: &str) -> usize {
    agent.setup().workers.iter().position(|w| w.name == name).unwrap()
}

/// Packets that came to the first node of worker `w` so far.
fn seen(agent: &Agent, w: usize) -> u64 {
    let (Some(words), Some(layout)) = (agent.words(w), agent.layout(w)) else { return 0 };
    words.get(layout.nodes).copied().unwrap_or(0)
}

/// Relinks a graph to itself, so often, while packets come; says how each change went.
fn relink_to_itself(nf: &str, rate: u32, times: usize) -> Vec<Option<RelinkError>> {
    let policy = format!("{PORTS} {nf} nf; pipelet {{ lan -> nf -> wan; }}");
    let (plan, options) = (plan(&policy, Isolate::Each), RunOptions::default());
    let binds = gen_binds(&format!("gen:rate={rate}"));
    let (mut begun, mut stopped) = (0, false);
    let (report, events) = run_and_tell(&plan, &binds, &options, |agent| {
        for retired in agent.retired() {
            assert!(retired.census.is_clean(), "{:?}", retired.census);
        }
        if agent.is_relinking() || seen(agent, worker(agent, "nf")) < 20 || stopped {
            return;
        }
        if begun == times {
            stopped = true;
            return agent.stop();
        }
        let setup = wire(&plan, &binds, &devices::scan(&binds).unwrap(), &options).unwrap();
        agent.relink(setup).unwrap();
        begun += 1;
    });
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    let told = events.into_iter().filter_map(|event| match event {
        Event::Relinked(_) => Some(None),
        Event::NotRelinked { why } => Some(Some(why)),
        _ => None,
    });
    told.collect()
}

fn held_packets_leave_before_a_relink() {
    // It holds packets for 2 ms in 5 or more.
    let told = relink_to_itself("Batcher", 200, 6);
    assert!(told.len() == 6 && told.iter().all(Option::is_none), "{told:?}");
}

fn who_always_holds_is_not_relinked() {
    let told = relink_to_itself("DelayLine", 2000, 1);
    let [Some(RelinkError::Held { nf, packets: 7, .. })] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(nf, "nf");
}

fn timers_come_while_live_input_rests() {
    // One packet in ten seconds; what it set the timer for must not wait for the next.
    let policy = format!("{PORTS} Batcher b; pipelet {{ lan -> b -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let start = Instant::now();
    let mut stopped = false;
    let report = run(&plan, &gen_binds("gen:rate=1,packets=5"), &RunOptions::default(), |agent| {
        let (tx, b) = (worker(agent, "tx:wan"), worker(agent, "b"));
        // Its own packet, and the one that it held (or dropped): before a second has come.
        if !stopped && seen(agent, b) >= 1 && seen(agent, tx) >= 1 {
            assert!(seen(agent, b) < 5, "only the end let it go");
            stopped = true;
            agent.stop();
        }
    });
    assert!(stopped && report.sound, "{:?} after {:?}", report.balance, start.elapsed());
    assert!(report.balance.created >= 1);
}

/// Kills worker `name` each time that it has seen `every` packets more, `times` times.
fn killing(name: &'static str, every: u64, times: u32) -> impl FnMut(&mut Agent) {
    let (mut next, mut left) = (every, times);
    move |agent| {
        let w = worker(agent, name);
        if left > 0 && seen(agent, w) >= next && kill(agent, w) {
            left -= 1;
            next = seen(agent, w) + every;
        }
    }
}

fn a_killed_copier_leaks_nothing() {
    let policy = format!(
        "{PORTS} Tee t; Null n; pipelet {{ lan -> t; t [t.out] -> n -> wan; t [t.copy] -> wan; }}"
    );
    for isolate in [Isolate::Each, Isolate::None] {
        let plan = plan(&policy, isolate);
        let name = if isolate == Isolate::Each { "t" } else { "t+n" };
        let options = RunOptions { pool: Some(256), ring: 128, ..RunOptions::default() };
        let binds = gen_binds("gen:packets=400000");
        let report = run(&plan, &binds, &options, killing(name, 40_000, 5));
        assert!(report.sound, "{:?} {:?}", report.balance, report.census);
        let restarts = report.workers.iter().find(|w| w.name == name).unwrap().restarts;
        assert!(restarts > 0, "nobody died");
        assert_eq!(report.balance.copied + report.balance.lost, 400_000);
    }
}

fn what_was_held_is_lost() {
    let policy = format!("{PORTS} DelayLine d; pipelet {{ lan -> d -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let binds = gen_binds("gen:packets=400000");
    let report = run(&plan, &binds, &RunOptions::default(), killing("d", 40_000, 5));
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    let died = report.workers.iter().find(|w| w.name == "d").unwrap();
    assert!(died.restarts > 0, "nobody died");
    // Seven each time, and at most a batch that was under way.
    let restarts = u64::from(died.restarts);
    assert!((7 * restarts..=(7 + BATCH) * restarts).contains(&died.lost), "{died:?}");
    assert_eq!(node(&report, "d").drops["held-at-end"], 2);
}

/// What Tally remembered when it was last written down.
fn kept(agent: &Agent, w: usize) -> u64 {
    let all = agent.kept(w).unwrap_or_default();
    let state = all.iter().find(|(name, _, kind, _)| name == "c" && kind == "Tally");
    state.map_or(0, |(.., state)| postcard::from_bytes::<nfs::Count>(&state[4..]).unwrap().packets)
}

fn shared_state_survives_kills() {
    let policy = format!("{PORTS} Tally c; pipelet {{ lan -> c -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let binds = gen_binds("gen:rate=100000,packets=200000");
    // Packets counted and not written down when it was killed.
    let (mut unwritten, mut kills, mut wait_for) = (0, 0u64, 1);
    let report = run(&plan, &binds, &RunOptions::default(), |agent| {
        let w = worker(agent, "c");
        let (written, pid) = (kept(agent, w), agent.pid(w));
        if kills < 4 && written >= wait_for && pid.is_some() && kill(agent, w) {
            kills += 1;
            // At most: its successor may count on already.
            unwritten += seen(agent, w) - written;
            wait_for = written + 1;
        }
    });
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    let c = node(&report, "c");
    let counted = c.report["packets"].as_u64().unwrap();
    println!("{kills} kills: {counted} of {} packets remembered", c.packets);
    assert_eq!(kills, 4);
    assert!(
        counted <= c.packets && counted + unwritten + BATCH * kills >= c.packets,
        "{counted} {unwritten}"
    );
    assert!(counted * 2 > c.packets, "most of it was before the last death");
}

fn state_that_kills_is_dropped() {
    let policy = format!("{PORTS} Poisoned c; pipelet {{ lan -> c -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let mut killed = false;
    let report =
        run(&plan, &gen_binds("gen:rate=20000,packets=20000"), &RunOptions::default(), |agent| {
            let w = worker(agent, "c");
            if !killed && agent.kept(w).is_some_and(|kept| !kept.is_empty()) {
                killed = kill(agent, w);
            }
        });
    assert!(killed && report.sound, "{:?} {:?}", report.balance, report.census);
    // Two successors took it over and died of it; the third had nothing to take over.
    let c = report.workers.iter().find(|w| w.name == "c").unwrap();
    assert_eq!((c.restarts, c.forgotten), (3, 1));
    assert!(node(&report, "c").report["packets"].as_u64().unwrap() > 0);
}

fn state_that_kills_at_packets_is_dropped() {
    let policy = format!("{PORTS} Cursed c; pipelet {{ lan -> c -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let binds = gen_binds("gen:flows=5000,rate=20000,packets=20000");
    let mut killed = false;
    let (report, events) = run_and_tell(&plan, &binds, &RunOptions::default(), |agent| {
        let w = worker(agent, "c");
        if !killed && agent.kept(w).is_some_and(|kept| !kept.is_empty()) {
            killed = kill(agent, w);
        }
    });
    assert!(killed && report.sound, "{:?} {:?}", report.balance, report.census);
    let c = report.workers.iter().find(|w| w.name == "c").unwrap();
    // Five successors died of it; the sixth had nothing to take over.
    assert_eq!((c.restarts, c.forgotten, report.crashes.len()), (6, 1, 5));
    assert!(node(&report, "c").report["packets"].as_u64().unwrap() > 0);
    let said = |e: &&Event| matches!(e, Event::Warning { text, .. } if text.contains("dropped"));
    assert_eq!(events.iter().filter(said).count(), 1, "{events:?}");
}

fn state_that_is_too_large_is_said_once() {
    let policy = format!("{PORTS} Hoarder c; pipelet {{ lan -> c -> wan; }}");
    let plan = plan(&policy, Isolate::Each);
    let binds = gen_binds("gen:rate=10000,packets=10000");
    let (report, events) = run_and_tell(&plan, &binds, &RunOptions::default(), |_| {});
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    let said = |e: &&Event| matches!(e, Event::Warning { text, .. } if text.contains("16777216"));
    assert_eq!(events.iter().filter(said).count(), 1, "{events:?}");
}
