//! Chaos where flows are remembered: NFs that do so, in several instances, die and stand still, flows are ordered to and fro, and
//! instances and replicas of segments come and go, by the operator's word and by themselves. `WEIR_CHAOS_SECONDS` says for how long (600
//! is the long one), `WEIR_SEED` repeats a run's choices.
//!
//! Always: what comes out came in, unharmed behind its translated address, in order, and what is missing was counted. At the end of a
//! round, when nothing disturbs any more, each flow has one translation, and no two have the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_moves::Moving;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

const POLICY: &str = "
Port<0> lan;  Port<1> wan;
FlowMonitor mon { top: 100 };  ConnTrack fw { default: 'pass', invalid: 'pass', pickup: true };
Napt nat { addresses: ['198.51.100.1', '198.51.100.2'] };  Busy slow { cycles: 160000 };
pipelet { lan -> mon -> fw -> [inside] nat;  nat [nat.outside] -> slow -> wan;  nat [nat.inside] -> Drop; }";

/// More than is read in a round: the test says when it is enough.
const PACKETS: u64 = 500_000;
/// How long a round is disturbed.
const DISTURBED: Duration = Duration::from_secs(5);

/// What a graph may be planned under; it begins and ends with the first. Flows can be moved under each: where not, those that were
/// moved have nowhere to go, and the change is refused. Where the instances' limits differ, flows that moved stay where they are.
const OPTIONS: [&str; 4] = [
    "--instances mon+fw=2 --instances nat=2",
    "--instances mon+fw=3 --instances nat=3",
    "--scale mon+fw=1:3,moves,cool=0 --instances nat=2",
    "--instances mon+fw=2 --scale nat=1:3,moves,cool=0",
];

fn long() -> Duration {
    let seconds = std::env::var("WEIR_CHAOS_SECONDS").ok().map(|s| s.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(7))
}

/// A capture in which each flow has a sender of its own: who translates gives a sender one port, whoever it sends to.
fn write_senders(path: &Path) {
    write_capture(path, PACKETS);
    let mut file = std::fs::read(path).unwrap();
    for number in 0..PACKETS {
        let port = (24 + number * RECORD + 16 + 34) as usize;
        file[port..port + 2].copy_from_slice(&(5000 + flow_of(number)).to_be_bytes());
    }
    std::fs::write(path, file).unwrap();
}

/// A packet that left: its number, and what its sender looks like from outside.
struct Left {
    number: u64,
    outside: (Ipv4Addr, u16),
}

/// Reads a packet of the capture behind the translator, which must be unharmed but for its sender.
fn left(bytes: &[u8]) -> Left {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let number = u64::from_be_bytes(bytes[42..50].try_into().unwrap());
    let from = Ipv4Addr::new(bytes[26], bytes[27], bytes[28], bytes[29]);
    assert!([1, 2].map(|n| Ipv4Addr::new(198, 51, 100, n)).contains(&from), "from {from}");
    assert_eq!(bytes[30..34], [10, 0, 0, 2], "packet {number} is harmed");
    assert_eq!(word(36), 6000 + flow_of(number), "packet {number} is harmed");
    Left { number, outside: (from, word(34)) }
}

struct Round<'c> {
    graph: Moving,
    choices: &'c mut Choices,
    did: BTreeMap<&'static str, u32>,
    stopped: Vec<(Pid, Instant)>,
}

impl Round<'_> {
    fn options(&self, options: &str) {
        self.graph.scratch.write("options", options);
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.choices.below(list.len() as u64) as usize]
    }

    /// Does something at random.
    fn disturb(&mut self) {
        let workers: Vec<Pid> = self.graph.run.workers().into_values().collect();
        let one = (!workers.is_empty()).then(|| self.of(&workers));
        let signal =
            |pid: Option<Pid>, signal| pid.is_some_and(|pid| kill_process(pid, signal).is_ok());
        let what = match self.choices.below(12) {
            0..=2 => match signal(one, Signal::KILL) {
                true => "killed",
                false => "was gone",
            },
            3..=7 => self.order(),
            8..=9 => {
                let options = self.of(&OPTIONS);
                self.options(options);
                self.graph.run.signal(Signal::HUP);
                "planned otherwise"
            }
            10 => {
                let until = Instant::now() + Duration::from_millis(self.choices.below(600));
                if signal(one, Signal::STOP) {
                    self.stopped.extend(one.map(|pid| (pid, until)));
                }
                "stopped"
            }
            _ => {
                // Whoever does not live any more does not answer.
                let _ = self.graph.ask(&["get", "flows"]);
                "asked"
            }
        };
        *self.did.entry(what).or_default() += 1;
    }

    /// Orders flows elsewhere. That may be refused: there are no such instances, or somebody dies.
    fn order(&mut self) -> &'static str {
        let nf = self.of(&["mon", "fw", "nat"]);
        let (to, share) = (self.of(&["1", "2", "3"]), (1 + self.choices.below(99)).to_string());
        let port = format!("port {}", 6000 + self.choices.below(FLOWS.into()));
        let which: &[&str] = match self.choices.below(3) {
            0 => &["--all"],
            1 => &["--share", &share],
            _ => &[&port],
        };
        let said = self.graph.ask(&[&["flow", "move", nf], which, &["--to", to]].concat());
        match said.code {
            Some(0) => "flows moved",
            Some(_) => "flows not moved",
            None => panic!("the command died: {said:?}"),
        }
    }

    /// Lets go on who was stopped for long enough, or all.
    fn let_go(&mut self, all: bool) {
        self.stopped.retain(|(pid, until)| {
            let over = all || Instant::now() >= *until;
            if over {
                let _ = kill_process(*pid, Signal::CONT);
            }
            !over
        });
    }

    fn hear(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        let left = || end.saturating_duration_since(Instant::now());
        while let Some((_, line)) = self.graph.run.next_line(left()) {
            assert!(!line.contains("fault of weir") && !line.contains("panicked"), "{line}");
        }
    }

    /// The graph is as at first, and nothing disturbs.
    fn settle(&mut self) {
        self.let_go(true);
        self.options(OPTIONS[0]);
        self.hear(Duration::ZERO);
        // What was asked for before may still be under way, and so an older file may be what was read.
        let (end, mut words) = (Instant::now() + 3 * PATIENCE, 0);
        loop {
            self.graph.run.signal(Signal::HUP);
            let told = |line: &str| line.contains("relinked");
            let (_, line) = self.graph.run.wait_for_line("a word on the relink", told);
            words += 1;
            if words >= 3 && line.contains(": relinked in ") {
                return;
            }
            assert!(Instant::now() < end, "never relinked again: {line}");
        }
    }
}

fn round(input: &Scratch, choices: &mut Choices) {
    let scratch = Scratch::new("chaos-flows");
    std::fs::write(scratch.file("options"), OPTIONS[0]).unwrap();
    let rx = format!("0=pcap:rx={}", input.file("in.pcap").display());
    let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
    let options = scratch.file("options").display().to_string();
    let args = ["--bind", &rx, "--bind", &tx, "--options", &options, "--ring", "64"];
    let graph = Moving::start_in(scratch, POLICY, &args);
    graph.wait_for_traffic();
    let (did, stopped) = (BTreeMap::new(), Vec::new());
    let mut round = Round { graph, choices, did, stopped };
    let start = Instant::now();
    while start.elapsed() < DISTURBED {
        round.disturb();
        let patience = Duration::from_micros(round.choices.below(100_000));
        round.hear(patience);
        round.let_go(false);
    }
    round.settle();
    println!("{:?}", round.did);
    let Round { graph, .. } = round;
    graph.wait_for_traffic();
    let quiet = read_capture(&graph.out(), |_| ()).len();
    for _ in 0..4 {
        graph.wait_for_traffic();
    }
    graph.run.signal(Signal::INT);
    let (out, finished) = (graph.out(), graph.run.finish());
    finished.assert_sound("flows");
    let all = read_capture(&out, left);
    let numbers: Vec<u64> = all.iter().map(|left| left.number).collect();
    assert_in_order(&numbers, "flows");
    let n = |key: &str| finished.number(&format!("/balance/{key}"));
    assert!(n("in") < PACKETS, "the input ended before all was over");
    let show = || format!("{:#}\n{}", finished.report, finished.said.join("\n"));
    assert_eq!(n("dropped"), 0, "none is dropped: {}", show());
    assert_eq!(numbers.len() as u64 + n("lost"), n("in"), "{}", show());
    // Nothing disturbs from here on.
    let mut outside = BTreeMap::new();
    for left in &all[quiet..] {
        let flow = flow_of(left.number);
        let first = *outside.entry(flow).or_insert(left.outside);
        assert_eq!(left.outside, first, "flow {flow} has another translation at {}", left.number);
    }
    assert_eq!(outside.len(), usize::from(FLOWS), "{outside:?}");
    let distinct: BTreeSet<_> = outside.values().collect();
    assert_eq!(distinct.len(), outside.len(), "two flows look like one: {outside:?}");
}

#[test]
fn flows_survive_chaos_and_orders_and_all_that_is_missing_was_counted() {
    let input = Scratch::new("chaos-flows-in");
    write_senders(&input.file("in.pcap"));
    let (first, start) = (crate::common_oracle::random::seed(), Instant::now());
    for n in 0.. {
        let seed = first.wrapping_add(n);
        println!("flows: round {n}, WEIR_SEED={seed}");
        round(&input, &mut Choices(seed));
        if start.elapsed() > long() {
            return;
        }
    }
}
