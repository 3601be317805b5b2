//! What NFs remember of flows outlives their worker, when it is replicated: `kill -9` at every step of a batch and of its
//! recovery, and at random. What nobody lost is as if nobody had died.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_capture::{Format, LinkType, Precision, RawTime, Record, TimeFormat, Timestamp, Writer};
use weir_mem::fault::Step;

/// A firewall that lets nobody but a client open a connection, by its first packet, behind an NF that counts.
const POLICY: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };
ConnTrack fw { default: 'drop', rules: [ { action: 'pass', dst_port: 80 } ] };
pipelet { lan -> mon -> fw -> wan; }";

const CONNECTIONS: u64 = 64;
/// Packets of all handshakes.
const OPENING: u64 = 3 * CONNECTIONS;
const PACKETS: u64 = 20_000;
const FRAME: usize = 14 + 20 + 20 + 8;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// What is acknowledged is older than the last so many segments of the other side: what a death takes has fewer of a connection.
const UNACKNOWLEDGED: u32 = (GROUP / CONNECTIONS) as u32;

/// Packet `number`: first each connection's handshake, then bytes from client and server, in turn; its number is what it carries.
fn frame(number: u64) -> [u8; FRAME] {
    let connection = number % CONNECTIONS;
    let round = (number / CONNECTIONS) as u32;
    let (from_client, flags) = match round {
        0 => (true, SYN),
        1 => (false, SYN | ACK),
        n => (n.is_multiple_of(2), ACK),
    };
    // The number stands in every packet, so all but the first carry bytes that count.
    let (seq, ack) = match round {
        0 => (1_000, 0),
        1 => (5_000, 1_009),
        n => {
            // Segments that both have sent behind their SYNs.
            let (client, server) = ((n - 1) / 2, (n - 2) / 2);
            let (own, other, first) = if from_client {
                (client, server, (1_009, 5_009))
            } else {
                (server, client, (5_009, 1_009))
            };
            (first.0 + own * 8, first.1 + other.saturating_sub(UNACKNOWLEDGED) * 8)
        }
    };
    let mut f = [0; FRAME];
    f[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(FRAME as u16 - 14).to_be_bytes());
    f[22..24].copy_from_slice(&[64, 6]);
    let (client, server) = ([10, 0, 0, connection as u8 + 1], [10, 9, 9, 9]);
    let (port, http) = (40_000 + connection as u16, 80u16);
    let (ips, ports) = match from_client {
        true => ((client, server), (port, http)),
        false => ((server, client), (http, port)),
    };
    f[26..30].copy_from_slice(&ips.0);
    f[30..34].copy_from_slice(&ips.1);
    let words = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    f[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    f[34..36].copy_from_slice(&ports.0.to_be_bytes());
    f[36..38].copy_from_slice(&ports.1.to_be_bytes());
    f[38..42].copy_from_slice(&u32::to_be_bytes(seq));
    f[42..46].copy_from_slice(&u32::to_be_bytes(ack));
    f[46] = 5 << 4;
    f[47] = flags;
    f[48..50].copy_from_slice(&60_000u16.to_be_bytes());
    f[54..62].copy_from_slice(&number.to_be_bytes());
    f
}

fn write_connections(path: &Path, packets: u64) {
    let format = Format::Pcap { precision: Precision::Micros, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    for number in 0..packets {
        let bytes = frame(number);
        let raw =
            RawTime::from_fields(1_000 + number as u32 / 1_000_000, number as u32 % 1_000_000);
        let time = Timestamp { raw, format: TimeFormat::PcapMicros };
        let (wire_len, link) = (bytes.len() as u32, LinkType::ETHERNET);
        writer
            .append(&Record { bytes: &bytes, wire_len, time, link, interface: 0, comment: None })
            .unwrap();
    }
    writer.commit().unwrap();
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[54..62].try_into().unwrap())
}

struct Bench {
    scratch: Scratch,
    policy: PathBuf,
    input: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let policy = scratch.policy(POLICY);
        let input = scratch.file("in.pcap");
        write_connections(&input, PACKETS);
        Bench { scratch, policy, input }
    }

    fn start(&self, mode: &str, isolate: &str, more: &[&str]) -> Run {
        let rx = format!("0=pcap:rx={}", self.input.display());
        let tx = format!("1=pcap:tx={}", self.scratch.file("out.pcap").display());
        let modes = ["mon", "fw"].map(|nf| format!("{nf}={mode}"));
        let mut args = vec!["--bind", &rx, "--bind", &tx, "--isolate", isolate];
        if !more.contains(&"--pool") {
            args.extend(["--pool", "1024"]);
        }
        args.extend(["--restart-delay", "0"]);
        args.extend(modes.iter().flat_map(|mode| ["--replicate", mode]));
        args.extend(more);
        Run::start(&self.policy, &args)
    }

    fn die(&self, mode: &str, isolate: &str, fault: &str) -> (Finished, Vec<u64>) {
        let finished = self.start(mode, isolate, &["--fault", fault]).finish();
        let worker = fault.split(':').next().unwrap();
        assert_eq!(finished.restarts()[worker], 1, "{fault}: nobody died");
        (finished, self.out())
    }

    fn out(&self) -> Vec<u64> {
        read_capture(&self.scratch.file("out.pcap"), number_of)
    }
}

fn report<'r>(finished: &'r Finished, nf: &str) -> &'r Value {
    let nodes = finished.report["nodes"].as_array().unwrap();
    &nodes.iter().find(|n| n["name"] == nf).unwrap()["report"]
}

/// No connection was forgotten, and every packet that is not lost went through.
fn assert_nothing_forgotten(finished: &Finished, numbers: &[u64], what: &str) -> u64 {
    finished.assert_sound(what);
    assert_in_order(numbers, what);
    let lost = finished.number("/balance/lost");
    assert_eq!(finished.number("/balance/dropped"), 0, "{what}: {:#}", finished.report);
    assert_eq!(numbers.len() as u64, PACKETS - lost, "{what}");
    assert_eq!(report(finished, "mon")["flows"], CONNECTIONS, "{what}: a flow began anew");
    assert_eq!(report(finished, "fw")["denied"], 0, "{what}");
    lost
}

/// All counters of all NFs say what came out: the worker that died has the packets that it lost in none of them.
fn assert_counted_once(finished: &Finished, numbers: &[u64], what: &str) {
    let monitor = report(finished, "mon");
    let (fw, count) =
        (report(finished, "fw"), |report: &Value, key: &str| report[key].as_u64().unwrap());
    let judged = ["new", "established", "closing"].iter().map(|key| count(fw, key)).sum::<u64>();
    assert_eq!(judged, numbers.len() as u64, "{what}: {fw:#}");
    let seen = count(monitor, "packets");
    assert_eq!(seen, count(monitor, "bytes") / FRAME as u64, "{what}");
    let mut by_port = BTreeMap::new();
    for number in numbers {
        *by_port.entry(40_000 + number % CONNECTIONS).or_insert(0) += 1;
    }
    let listed = monitor["top"].as_array().or(monitor["top"]["talkers"].as_array()).unwrap();
    assert_eq!(listed.len() as u64, CONNECTIONS, "{what}");
    let mut all = 0;
    for talker in listed {
        let end = talker["ends"][0].as_str().unwrap();
        let port: u64 = end.rsplit(':').next().unwrap().parse().unwrap();
        let packets = talker["account"]["packets"].as_array().unwrap();
        let packets = packets.iter().map(|p| p.as_u64().unwrap()).sum::<u64>();
        all += packets;
        // Between the two NFs packets may have been lost, in front of the monitor none are counted.
        assert!(packets >= by_port[&port], "{what}: {end} has {packets} < {}", by_port[&port]);
    }
    assert_eq!(all, seen, "{what}: accounts and sum differ");
}

/// Steps of a batch from its claim on, with those of the replica: all, where what was changed is not yet committed, or not yet
/// published. Of a few batches each there is one commit, and it writes each flow once.
const STEPS: [(Step, u32); 10] = [
    (Step::Claimed, 20),
    (Step::Processed, 20),
    (Step::Processed, 21),
    (Step::HalfReplicated, 700),
    (Step::HalfReplicated, 701),
    (Step::Replicated, 6),
    (Step::Staged, 6),
    (Step::Banked, 6),
    (Step::Committed, 6),
    (Step::Done, 6),
];

#[test]
fn a_fused_worker_that_dies_at_any_step_forgets_nothing_that_was_seen() {
    let bench = Bench::new("replica-steps");
    for (step, nth) in STEPS {
        let fault = format!("mon+fw:{}:{nth}", step as u32);
        let (finished, numbers) = bench.die("batch", "none", &fault);
        let lost = assert_nothing_forgotten(&finished, &numbers, &fault);
        assert!(lost <= GROUP, "{fault}: {lost} lost");
        assert_counted_once(&finished, &numbers, &fault);
        // In one worker: what the first has counted the second has passed.
        assert_eq!(report(&finished, "mon")["packets"], PACKETS - lost, "{fault}");
        let worker = worker(&finished, "mon+fw");
        assert_eq!(worker["recovered"]["flows"], 2 * CONNECTIONS, "{fault}: {worker:#}");
        assert_eq!(worker["recovered"]["refused"], 0, "{fault}: {worker:#}");
    }
}

/// Nothing that leaves waits for room, so nothing but the ring in says how much may be in hand.
#[test]
fn one_that_dies_with_several_batches_of_which_all_is_dropped_loses_these_and_nothing_that_waits() {
    let mut bench = Bench::new("replica-drops");
    // Slow enough that packets wait, and fast enough that several batches are done in the time of a group.
    bench.policy = bench.scratch.policy(
        "Port<0> lan;  Port<1> wan;
         Busy slow { cycles: 500 };  FlowMonitor mon { top: 100 };  ConnTrack fw { default: 'drop', rules: [] };
         pipelet { lan -> slow -> mon -> fw -> wan; }",
    );
    for nth in [5, 8, 11, 12, 16, 20, 24] {
        let fault = format!("slow+mon+fw:{}:{nth}", Step::Processed as u32);
        let ring = ["--ring", "512", "--pool", "4096"];
        let finished = bench.start("batch", "none", &[&ring[..], &["--fault", &fault]].concat());
        let finished = finished.finish();
        assert_eq!(finished.restarts()["slow+mon+fw"], 1, "{fault}: nobody died");
        finished.assert_sound(&fault);
        let number = |name: &str| finished.number(&format!("/balance/{name}"));
        assert_eq!((number("in"), number("out")), (PACKETS, 0), "{fault}");
        assert!(number("lost") <= 512, "{fault}: {} lost", number("lost"));
        assert_eq!(report(&finished, "mon")["packets"], PACKETS - number("lost"), "{fault}");
    }
}

#[test]
fn isolated_workers_that_die_forget_nothing_that_was_seen() {
    let bench = Bench::new("replica-each");
    let dies = [
        ("mon", Step::Processed, 20),
        ("mon", Step::Committed, 6),
        ("fw", Step::HalfReplicated, 300),
        ("fw", Step::Banked, 6),
        ("fw", Step::Committed, 6),
    ];
    for (worker, step, nth) in dies {
        let fault = format!("{worker}:{}:{nth}", step as u32);
        let (finished, numbers) = bench.die("batch", "each", &fault);
        assert_nothing_forgotten(&finished, &numbers, &fault);
        assert_counted_once(&finished, &numbers, &fault);
    }
}

/// Three replicas of the segment, each a worker. As each has a third of the connections, a batch has to be smaller for as few of each to
/// be lost with it.
const CREW: [&str; 4] = ["--instances", "mon+fw=3", "--ring", "64"];

fn worker<'r>(finished: &'r Finished, name: &str) -> &'r Value {
    let workers = finished.report["workers"].as_array().unwrap();
    workers.iter().find(|w| w["name"] == name).unwrap()
}

/// One of three died so often, and took its place again with its flows; the others had nothing to do with it.
fn assert_rejoined(bench: &Bench, finished: &Finished, name: &str, deaths: u64, what: &str) {
    for packet in read_capture(&bench.scratch.file("out.pcap"), <[u8]>::to_vec) {
        assert_eq!(packet, frame(number_of(&packet)), "{what}: a packet is not as it was sent");
    }
    let numbers = bench.out();
    let lost = assert_nothing_forgotten(finished, &numbers, what);
    assert_counted_once(finished, &numbers, what);
    assert!(lost <= GROUP, "{what}: {lost} lost");
    for nth in 1..=3 {
        let other = format!("mon#{nth}+fw#{nth}");
        let own = if other == name { (deaths, lost) } else { (0, 0) };
        assert_eq!((finished.restarts()[&other], finished.lost_by(&other)), own, "{what}");
    }
    let recovered = &worker(finished, name)["recovered"];
    let count = |key: &str| recovered[key].as_u64().unwrap();
    assert!(count("flows") > 0, "{what}: {recovered:#}");
    assert_eq!(count("refused"), 0, "{what}: {recovered:#}");
    // Detected, started, read; and packets came again, before or after all was read.
    assert!(count("reading_us") <= count("away_us"), "{what}: {recovered:#}");
    assert!(count("first_out_us") > 0, "{what}: {recovered:#}");
}

#[test]
fn one_of_a_crew_that_dies_at_any_step_takes_its_place_again_and_the_others_notice_nothing() {
    let bench = Bench::new("replica-crew");
    let undisturbed = bench.start("batch", "each", &CREW).finish();
    assert_eq!(assert_nothing_forgotten(&undisturbed, &bench.out(), "undisturbed"), 0);
    for ((step, nth), which) in STEPS.into_iter().zip([1, 2, 3].into_iter().cycle()) {
        // Not before the connections of each are open.
        let nth = nth.max(60);
        let name = format!("mon#{which}+fw#{which}");
        let fault = format!("{name}:{}:{nth}", step as u32);
        let args = [&CREW[..], &["--fault", &fault]].concat();
        let finished = bench.start("batch", "each", &args).finish();
        assert_rejoined(&bench, &finished, &name, 1, &fault);
    }
}

#[test]
fn one_of_a_crew_whose_successor_dies_while_it_reads_takes_its_place_again() {
    let bench = Bench::new("replica-reading");
    let name = "mon#2+fw#2";
    let out = bench.scratch.file("out.pcap");
    // At its first record, and at later ones; and when it has begun with packets and not read all of them.
    let records = [1, 5, 20].map(|nth| (Step::Recovering, nth));
    for (step, nth) in records.into_iter().chain([(Step::ReadingOn, 1)]) {
        let fault = format!("{name}:{}:{nth}", step as u32);
        let args = [&CREW[..], &["--fault", &fault]].concat();
        let _ = std::fs::remove_file(&out);
        let run = bench.start("batch", "each", &args);
        let opened = 2 * OPENING * (16 + FRAME as u64);
        let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
        wait_until("connections to be open", PATIENCE, || grown() > opened);
        kill_process(run.workers()[name], Signal::KILL).unwrap();
        assert_rejoined(&bench, &run.finish(), name, 2, &fault);
    }
}

#[test]
fn without_a_replica_connections_are_forgotten() {
    let bench = Bench::new("replica-none");
    let (finished, _) = bench.die("none", "none", "mon+fw:9:20");
    finished.assert_sound("none");
    assert!(finished.number("/balance/dropped") > 0, "the firewall forgot no connection");
    let seen = report(&finished, "mon")["packets"].as_u64().unwrap();
    assert!(seen < PACKETS - finished.number("/balance/lost"), "the monitor forgot no packet");
}

#[test]
fn weaker_modes_keep_every_connection_and_forget_only_what_came_last() {
    let bench = Bench::new("replica-weak");
    // At most nine packets of each flow are not in its record.
    let least = |mode: &str| if mode == "every:10" { PACKETS - 9 * CONNECTIONS } else { OPENING };
    for (mode, nth) in [("every:10", 6), ("us:500", 30)] {
        for step in [Step::Committed, Step::Replicated] {
            let fault = format!("mon+fw:{}:{nth}", step as u32);
            let (finished, numbers) = bench.die(mode, "none", &fault);
            let lost = assert_nothing_forgotten(&finished, &numbers, &format!("{mode} {fault}"));
            let seen = report(&finished, "mon")["packets"].as_u64().unwrap();
            assert!(seen <= PACKETS - lost, "{mode}: {seen} of {PACKETS}");
            assert!(seen + lost >= least(mode), "{mode}: {seen} of {PACKETS}");
            let worker = worker(&finished, "mon+fw");
            assert_eq!(worker["recovered"]["flows"], 2 * CONNECTIONS, "{mode}: {worker:#}");
        }
    }
}

#[test]
fn workers_killed_at_random_forget_nothing_however_often() {
    let bench = Bench::new("replica-random");
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut choices = Choices(seed);
    let out = bench.scratch.file("out.pcap");
    let mut run = bench.start("batch", "none", &["--ring", "64"]);
    let mut kills = 0;
    let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let record = 16 + FRAME as u64;
    while kills < 4 && grown() < (PACKETS - 5_000) * record {
        let more = grown().max(2 * OPENING * record) + choices.below(300) * record;
        wait_until("packets to flow", PATIENCE, || grown() > more);
        let Some(pid) = run.workers().get("mon+fw").copied() else { break };
        kill_process(pid, Signal::KILL).unwrap();
        run.wait_for_line("the successor", |l| l.contains("runs again"));
        kills += 1;
    }
    let finished = run.finish();
    assert!(kills > 0, "the run was over before anybody was killed");
    let numbers = bench.out();
    let lost = assert_nothing_forgotten(&finished, &numbers, "random");
    assert!(lost <= kills * GROUP, "{lost} lost in {kills} kills");
    assert_counted_once(&finished, &numbers, "random");
}

/// The same, slow enough to be changed meanwhile.
const SLOW: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };
ConnTrack fw { default: 'drop', rules: [ { action: 'pass', dst_port: 80 } ] };
Busy slow { cycles: 200000 };
pipelet { lan -> mon -> fw -> slow -> wan; }";

#[test]
fn what_is_replicated_goes_over_into_a_changed_graph_and_outlives_a_death_there() {
    let mut bench = Bench::new("replica-relink");
    bench.policy = bench.scratch.policy(SLOW);
    let (options, out) = (bench.scratch.file("options"), bench.scratch.file("out.pcap"));
    let (rx, tx) =
        (format!("0=pcap:rx={}", bench.input.display()), format!("1=pcap:tx={}", out.display()));
    let alone = ("each", "none", "mon+fw+slow");
    // Of two instances the first has all flows that there were, also those that packets divide to the other one now.
    let divided = ("none", "each\n--instances mon+fw=2", "mon#1+fw#1");
    // As soon as it is told to begin, before it has taken a packet; and in its third batch.
    for ((before, after, worker), step, nth) in [
        (alone, Step::Begun, 1),
        (alone, Step::Committed, 3),
        (divided, Step::Begun, 1),
        (divided, Step::Committed, 3),
    ] {
        let fault = format!("2:{worker}:{}:{nth}", step as u32);
        let told = |isolate: &str| {
            let text = format!("--isolate {isolate}\n--replicate mon=batch --replicate fw=batch\n");
            std::fs::write(&options, text).unwrap();
        };
        told(before);
        let _ = std::fs::remove_file(&out);
        let file = options.display().to_string();
        let mut args =
            vec!["--bind", &rx, "--bind", &tx, "--options", &file, "--restart-delay", "0"];
        args.extend(["--later-fault", &fault, "--ring", "64"]);
        let mut weir = std::process::Command::new("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let mut run = Run::start_by(weir, &bench.policy, &args);
        let opened = 2 * OPENING * (16 + FRAME as u64);
        let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
        wait_until("connections to be open", PATIENCE, || grown() > opened);
        told(after);
        run.signal(Signal::HUP);
        let (_, line) = run.wait_for_line("a word on the relink", |l| l.contains("relinked"));
        assert!(line.contains(": relinked in "), "{line}");
        let finished = run.finish();
        assert_eq!(finished.restarts()[worker], 1, "{fault}: nobody died");
        let numbers = bench.out();
        assert_nothing_forgotten(&finished, &numbers, &fault);
        assert_counted_once(&finished, &numbers, &fault);
    }
}

#[test]
fn what_cannot_be_replicated_is_refused_with_its_cure() {
    let bench = Bench::new("replica-refused");
    let refused = |args: &[&str]| {
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("run")
            .arg(&bench.policy)
            .args(args)
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        String::from_utf8(run.stderr).unwrap()
    };
    let input = format!("0=pcap:rx={}", bench.input.display());
    let bound = ["--bind", &input, "--bind", "1=null"];
    let said = refused(&[&bound[..], &["--replicate", "nat=batch"]].concat());
    assert!(said.contains("no NF `nat`; it has fw, mon"), "{said}");
    let twice = ["--replicate", "fw=batch", "--replicate", "fw=none"];
    assert!(refused(&[&bound[..], &twice].concat()).contains("give it once"));
    for (wrong, cure) in
        [("fw", "write NF=batch"), ("fw=often", "NF=every:N"), ("fw=every:0", "1 to")]
    {
        let said = refused(&[&bound[..], &["--replicate", wrong]].concat());
        assert!(said.contains(cure), "{wrong}: {said}");
    }
}
