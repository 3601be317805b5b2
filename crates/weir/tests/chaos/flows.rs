//! Every NF that remembers something, alone and in chains, on recorded and on made-up traffic, while its flows are moved, its workers are
//! killed and the graph is changed, all at random: what comes out, what is dropped, and every counter of every NF are those of a run that nobody
//! disturbs, on what was not lost with a worker. Replicated as they are, nothing else is lost.
//!
//! `WEIR_CHAOS_SECONDS` says for how long (600 is the long one), `WEIR_SEED` repeats a run's choices.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::{Finished, GROUP, PATIENCE, Run, Scratch, wait_until};
use crate::common_flows::*;
use crate::common_oracle::drops::{Drops, dumped};
use crate::common_oracle::random::{Choices, seed};
use crate::common_oracle::{
    Record, assert_same_flows, assert_same_records, demo_capture, has_ethernet, records, shared,
};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_oracle::{Input, read_capture};
use weir_packet::headers::Fragment;
use weir_packet::{Depth, parse};

/// About so many cycles are to be spent on a round's traffic, at three thousand million a second.
const CYCLES: u64 = 4_000_000_000;
/// How long a round may take on a machine that is busy with other things.
const LONGEST: Duration = Duration::from_secs(180);
/// Made-up packets of a round.
const MADE: usize = 5_000;
/// So many of a capture at least, over and over if it has fewer, and at most, that each gets some time.
const LEAST: usize = 1_500;
const MOST: usize = 8_000;

/// With a flow so many datagrams are remembered that it has last had fragments of (docs/flows.md). Of a capture with more, over and over, an
/// earlier round's datagrams of the same numbers would be known to one run and not to the other.
const DATAGRAMS: usize = 16;

/// Most fragmented datagrams between two addresses.
fn datagrams_of_a_flow(packets: &[Input]) -> usize {
    let mut of: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for packet in packets {
        let bytes = &packet.bytes[..];
        let layers = parse(bytes, Depth::L3);
        if let Some((ends, id)) = layers.ips(bytes).zip(layers.fragment_id(bytes))
            && layers.fragment() != Fragment::Whole
        {
            of.entry(ends).or_default().insert(id);
        }
    }
    of.values().map(BTreeSet::len).max().unwrap_or(0)
}

/// A run of a subject on an input.
struct Running {
    run: Run,
    scratch: Scratch,
}

impl Running {
    fn start(subject: &Subject, policy: &str, options: &str, packets: &[Input]) -> Self {
        Self::start_with(policy, &subject.with_replicas(options, false), packets)
    }

    /// With all of these options.
    fn start_with(policy: &str, options: &str, packets: &[Input]) -> Self {
        let scratch = Scratch::new("flows");
        write(&scratch.file("in.pcap"), packets);
        let policy = scratch.policy(policy);
        let file = |name: &str| scratch.file(name).display().to_string();
        let (rx, tx) =
            (format!("0=pcap:rx={}", file("in.pcap")), format!("1=pcap:tx={}", file("out.pcap")));
        let (options_file, control, drops) =
            (file("options"), file("control"), file("drops.pcapng"));
        std::fs::write(&options_file, options).unwrap();
        let args =
            ["--bind", &rx, "--bind", &tx, "--options", &options_file, "--control", &control];
        let more =
            ["--dump-drops", &drops, "--ring", "64", "--restart-delay", "0", "--patience", "20"];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        let mut weir = Command::new("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let run = Run::start_by(weir, &policy, &[&args[..], &more].concat());
        Running { run, scratch }
    }

    fn end(self) -> Ended {
        let finished = self.run.finish();
        let out = records(&self.scratch.file("out.pcap"));
        Ended { finished, out, drops: dumped(&self.scratch.file("drops.pcapng")) }
    }

    /// All workers have ended. (The agent may wait for somebody to read its report.)
    fn is_over(&self) -> bool {
        self.run.workers().is_empty()
    }
}

/// What came of a run.
struct Ended {
    finished: Finished,
    out: Vec<Record>,
    drops: Drops,
}

impl Ended {
    /// Packets that have left, or were dropped, by their times.
    fn times(&self) -> BTreeSet<u64> {
        let out = self.out.iter().map(|(_, _, time)| time.to_ns());
        out.chain(self.drops.keys().map(|(_, _, ns, _)| *ns)).collect()
    }

    /// What each of these NFs says of itself, and its counters: whichever way its packets went.
    fn told(&self, nfs: &[&str]) -> BTreeMap<String, Value> {
        let nodes = self.finished.report["nodes"].as_array().unwrap();
        let mut told = BTreeMap::new();
        for nf in nfs {
            let node = nodes.iter().find(|node| node["name"] == **nf).unwrap();
            for what in ["packets", "bytes", "drops", "outputs", "report"] {
                let mut value = node[what].clone();
                // How many flows that are over have been noticed to be: a few are looked at with each batch.
                value.as_object_mut().map(|report| report.remove("ended"));
                told.insert(format!("{nf}: {what}"), value);
            }
        }
        told
    }
}

impl Subject {
    /// `leaves`: what an instance had goes on at the others when it has died, where that can be.
    fn with_replicas(&self, options: &str, leaves: bool) -> String {
        let can = self.moves != Moves::Never && options.contains("--instances");
        let way = if leaves && can { "batch,leave" } else { "batch" };
        let modes = self.nfs.iter().map(|nf| format!("\n--replicate {nf}={way}"));
        options.to_owned() + &modes.collect::<String>()
    }
}

/// Who disturbs a run.
struct Chaos<'a> {
    subject: &'a Subject,
    slow: Slow,
    running: Running,
    /// An order that is under way.
    order: Option<Child>,
    /// Who was killed and does not run again yet: what nobody promises is that two may die at once.
    dead: Option<String>,
    did: BTreeMap<&'static str, u32>,
    moved: u64,
    /// All in their order, for who has to find out.
    log: Vec<String>,
}

impl Chaos<'_> {
    fn disturb(&mut self, choices: &mut Choices) {
        let start = Instant::now();
        while !self.running.is_over() {
            let log = || self.log.join("\n");
            assert!(start.elapsed() < LONGEST, "it does not end:\n{}", log());
            self.disturb_once(choices);
            self.hear(Duration::from_micros(choices.below(120_000) as u64));
            self.hear_of_order();
        }
        if let Some(mut order) = self.order.take() {
            // Whoever has ended answers nobody.
            order.kill().unwrap();
            order.wait().unwrap();
        }
    }

    fn hear(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while let Some((_, line)) =
            self.running.run.next_line(end.saturating_duration_since(Instant::now()))
        {
            assert!(
                !line.contains("fault of weir") && !line.contains("panicked"),
                "{line}\n{}",
                self.log.join("\n")
            );
            if line.contains(": relinked in ") {
                *self.did.entry("relinked").or_default() += 1;
                self.dead = None;
            }
            let is_over = |dead: &String| {
                line.contains(&format!("worker {dead} runs again"))
                    || line.contains(&format!("the new worker {dead} died before it began"))
            };
            self.dead = self.dead.take().filter(|dead| !is_over(dead));
            if std::env::var_os("WEIR_SAY").is_some() {
                println!("{line}");
            }
            self.log.push(line);
        }
    }

    fn hear_of_order(&mut self) {
        let Some(order) = &mut self.order else { return };
        if order.try_wait().unwrap().is_none() {
            return;
        }
        let Some(order) = self.order.take() else { return };
        let answer = order.wait_with_output().unwrap();
        let said: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
        self.moved += said["moved"]["flows"].as_u64().unwrap_or(0);
        self.log.push(format!("{said} {}", String::from_utf8_lossy(&answer.stderr)));
    }

    fn disturb_once(&mut self, choices: &mut Choices) {
        let what = match choices.below(8) {
            0..=3 => self.order(choices),
            4 | 5 => self.kill(choices),
            6 => self.change(choices),
            _ => "nothing",
        };
        *self.did.entry(what).or_default() += 1;
    }

    /// Has some flows moved, while other things happen.
    fn order(&mut self, choices: &mut Choices) -> &'static str {
        if self.subject.moves == Moves::Never || self.order.is_some() {
            return "nothing";
        }
        let nf = self.subject.nfs[choices.below(self.subject.nfs.len())];
        let ways = if self.subject.moves == Moves::Flows { 4 } else { 2 };
        let mut words = vec!["flow".to_owned(), "move".to_owned(), nf.to_owned()];
        match choices.below(ways) {
            0 => words.push("--all".to_owned()),
            1 => words.extend(["--share".to_owned(), (choices.below(90) + 5).to_string()]),
            2 => words.push(format!("port {}", choices.of(&[53, 80, 443, 8080]))),
            _ => words.push(format!("portrange 1024-{}", 2000 + choices.below(60_000))),
        }
        words.extend(["--to".to_owned(), (choices.below(3) + 1).to_string(), "--json".to_owned()]);
        self.log.push(words.join(" "));
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(words).arg("--control").arg(self.running.scratch.file("control"));
        weir.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.order = Some(weir.spawn().unwrap());
        "ordered"
    }

    /// Kills somebody with whom nothing is lost that one of the NFs has seen and another has not.
    fn kill(&mut self, choices: &mut Choices) -> &'static str {
        if self.dead.is_some() {
            return "nothing";
        }
        let may = |name: &str| {
            let is_behind = name == "slow" && matches!(self.slow, Slow::Behind(_));
            !(name.starts_with("tx:") || name.starts_with("dump:") || is_behind)
        };
        let mut workers = self.running.run.workers();
        workers.retain(|name, _| may(name));
        let Some((name, pid)) = workers.into_iter().nth(choices.below(4)) else { return "nothing" };
        if kill_process(pid, Signal::KILL).is_err() {
            return "nothing";
        }
        self.log.push(format!("{name} killed"));
        self.dead = Some(name);
        "killed"
    }

    fn change(&mut self, choices: &mut Choices) -> &'static str {
        let options = choices.of(self.subject.options);
        let more = choices.one_in(2);
        let options = self.subject.with_replicas(options, choices.one_in(2));
        self.log.push(format!("{options}, more: {more}"));
        let scratch = &self.running.scratch;
        scratch.write("options", options);
        scratch.policy(&self.subject.policy(self.slow, more));
        self.running.run.signal(Signal::HUP);
        "changed"
    }
}

/// Fails unless a disturbed run has left what one leaves that nobody disturbs.
fn round(subject: &Subject, packets: Vec<Input>, what: &str, choices: &mut Choices) {
    let least = if datagrams_of_a_flow(&packets) > DATAGRAMS { 0 } else { LEAST };
    let packets = told_apart(packets, least, MOST);
    let cycles = (CYCLES / packets.len() as u64).min(4_000_000);
    let slow = if choices.one_in(2) { Slow::Front(cycles) } else { Slow::Behind(cycles) };
    let policy = subject.policy(slow, false);
    let options = subject.with_replicas(choices.of(subject.options), choices.one_in(2));
    let running = Running::start_with(&policy, &options, &packets);
    let socket = running.scratch.file("control");
    wait_until("the control socket", PATIENCE, || socket.exists());
    let log = vec![format!("{policy}\n{options}")];
    let did = BTreeMap::new();
    let mut chaos = Chaos { subject, slow, running, order: None, dead: None, did, moved: 0, log };
    chaos.disturb(choices);
    let Chaos { running, did, moved, log, .. } = chaos;
    println!("{what}: {did:?}, {moved} flows moved");
    let disturbed = running.end();
    let said = disturbed.finished.said.join("\n");
    let show = || format!("{what}:\n{}\nAll that was said:\n{said}\n", log.join("\n"));
    disturbed.finished.assert_sound(&show());

    let left = disturbed.times();
    let came: Vec<Input> = packets.into_iter().filter(|p| left.contains(&p.time.to_ns())).collect();
    let kills = u64::from(did.get("killed").copied().unwrap_or(0));
    let lost = disturbed.finished.number("/balance/lost");
    assert!(lost <= kills * GROUP, "{lost} lost: {}", show());
    assert_eq!(disturbed.finished.number("/balance/in") - lost, came.len() as u64, "{}", show());

    let undisturbed = subject.policy(slow.quick(), false);
    let undisturbed = Running::start(subject, &undisturbed, subject.undisturbed, &came).end();
    undisturbed.finished.assert_sound(what);
    assert_eq!(undisturbed.finished.number("/balance/lost"), 0, "{what}");
    let only = |one: &Drops, other: &Drops| {
        let only = one.keys().filter(|drop| !other.contains_key(*drop));
        only.map(|(bytes, _, ns, comment)| format!("{ns} ns, {} bytes: {comment}", bytes.len()))
            .collect::<Vec<_>>()
    };
    let show = || {
        let differ = (
            only(&disturbed.drops, &undisturbed.drops),
            only(&undisturbed.drops, &disturbed.drops),
        );
        format!("{}Dropped by the disturbed run only, and by the other only: {differ:#?}\n", show())
    };
    assert_same_records(&show(), &disturbed.out, &undisturbed.out);
    assert_same_flows(&show(), &disturbed.out, &undisturbed.out);
    assert_eq!(disturbed.drops, undisturbed.drops, "{}", show());
    let (got, expected) = (disturbed.told(subject.nfs), undisturbed.told(subject.nfs));
    for (counter, value) in &expected {
        assert_eq!(got.get(counter), Some(value), "{counter}: {}", show());
    }
}

/// Rounds of all subjects, until the time is over; each begins with choices of its own.
fn rounds(what: &str, mut round: impl FnMut(&Subject, &str, &mut Choices)) {
    let first = seed();
    let seconds = std::env::var("WEIR_CHAOS_SECONDS").ok().map(|s| s.parse().unwrap());
    let (start, long) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(1)));
    let only = std::env::var("WEIR_SUBJECT").ok();
    let mut nth = 0_u64;
    while nth == 0 || start.elapsed() < long {
        for subject in SUBJECTS.iter().filter(|s| only.as_ref().is_none_or(|o| o == s.name)) {
            let seed = first.wrapping_add(nth);
            println!("{what}, {}: WEIR_SEED={seed} WEIR_SUBJECT='{}'", subject.name, subject.name);
            round(subject, &format!("{what}, {}", subject.name), &mut Choices(seed));
            nth += 1;
        }
    }
}

#[test]
fn made_up_connections_come_out_of_chaos_as_if_nobody_had_disturbed_them() {
    rounds("made up", |subject, what, choices| {
        round(subject, connections(choices, MADE), what, choices);
    });
}

/// `WEIR_CAPTURE` chooses captures by a part of their name.
#[test]
fn recorded_traffic_comes_out_of_chaos_as_if_nobody_had_disturbed_it() {
    let shared: Vec<PathBuf> = shared().into_iter().filter(|path| has_ethernet(path)).collect();
    let wanted = std::env::var("WEIR_CAPTURE").unwrap_or_default();
    let mut all = [vec![demo_capture()], shared].concat();
    all.retain(|path| path.file_name().unwrap().to_string_lossy().contains(&wanted));
    assert!(!all.is_empty(), "no capture has {wanted} in its name");
    rounds("recorded", |subject, what, choices| {
        let path = &all[choices.below(all.len())];
        let (mut packets, _) = read_capture(path, 0).unwrap();
        packets.retain(|p| p.link.is_ethernet() && p.bytes.len() >= 14 && p.bytes.len() <= 1600);
        // What is written has room for no later second than 2^32.
        packets.retain(|p| p.time.to_ns() < (1 << 31) * 1_000_000_000);
        if packets.is_empty() {
            return;
        }
        let name = path.file_name().unwrap().to_string_lossy();
        round(subject, packets, &format!("{what} {name}"), choices);
    });
}
