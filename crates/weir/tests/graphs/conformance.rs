//! What a µNF may rely on whatever port its packets come by and leave by: one suite for every kind, with real processes. A packet comes once and in the
//! order of its flow, a full ring loses nothing, the end comes last, a change of the running graph passes through, and whoever dies at whatever step of the
//! protocol, nothing is leaked, doubled or reordered and what is lost is counted.
//!
//! Ring by ring, with batches of every size and histories at random: `crates/weir-port/tests/conformance`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A kind of port: a graph whose packets all pass one.
struct Kind {
    name: &'static str,
    /// What stands in the policy besides ports, and the pipelet.
    policy: &'static str,
    args: &'static [&'static str],
    /// Flows go from one instance of `mon` to another meanwhile, so that markers are in the lanes.
    moves: bool,
}

const CHAIN: &str =
    "MacSwap a; PacketSizeHistogram h; MacSwap b; pipelet { lan -> a -> h -> b -> wan; }";

const DEVICE: Kind =
    Kind { name: "device", policy: "pipelet { lan -> wan; }", args: &[], moves: false };
const DIRECT: Kind =
    Kind { name: "direct", policy: CHAIN, args: &["--isolate", "none"], moves: false };
const POINT_TO_POINT: Kind =
    Kind { name: "point-to-point", policy: CHAIN, args: &["--isolate", "each"], moves: false };
/// The sync port is in the worker behind the stage.
const BRANCH: Kind = Kind {
    name: "branch",
    policy: "MacSwap a; PacketSizeHistogram h; CountSubnet n; MacSwap b; pipelet { lan -> a -> h -> n -> b -> wan; }",
    args: &["--isolate", "each", "--parallel", "always"],
    moves: false,
};
/// The sync port has a worker of its own.
const SYNC: Kind = Kind {
    name: "sync",
    policy: "PacketSizeHistogram h; CountSubnet n; pipelet { lan -> h -> n -> wan; }",
    args: &["--isolate", "each", "--parallel", "always"],
    moves: false,
};
const BALANCE: Kind = Kind {
    name: "balance",
    policy: "FlowMonitor mon; MacSwap b; pipelet { lan -> mon -> b -> wan; }",
    args: &["--isolate", "each", "--instances", "mon=3"],
    moves: false,
};
/// Those meet that agree in some fields, in either direction, instead of what the NF asks for.
const BALANCE_BY: Kind = Kind {
    name: "balance-by",
    args: &["--isolate", "each", "--instances", "mon=3,by=src_port+dst_port,symmetric"],
    ..BALANCE
};
/// Packets that need not meet, the twice as many of them to one of two instances.
const IN_TURN: Kind = Kind {
    name: "in-turn",
    policy: "MacSwap a; MacSwap many; MacSwap b; pipelet { lan -> a -> many -> b -> wan; }",
    args: &["--isolate", "each", "--instances", "many=2:1,rr"],
    ..BALANCE
};
const LEAST_LOADED: Kind = Kind {
    name: "least-loaded",
    args: &["--isolate", "each", "--instances", "many=2,least"],
    ..IN_TURN
};
const MARKER: Kind = Kind { name: "marker", moves: true, ..BALANCE };
const FILTER: Kind = Kind {
    name: "filter",
    policy: "MacSwap a; MacSwap l; MacSwap r; MacSwap b; pipelet { lan -> a;
        a [udp dst port 6000] -> l; a [udp dst portrange 6001-6003] -> r; a [!(udp dst portrange 6000-6003)] -> b;
        l -> b; r -> b; b -> wan; }",
    args: &["--isolate", "each"],
    moves: false,
};

/// A run of a kind on a numbered capture.
struct Graph {
    run: Run,
    scratch: Scratch,
    socket: PathBuf,
}

impl Graph {
    fn start(kind: &Kind, what: &str, packets: u64, slow: bool, more: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("port-{}-{what}", kind.name));
        // Whoever takes 20 µs for a packet lets all rings before him fill.
        let policy = match slow {
            true => kind.policy.replace("-> wan", "-> slow -> wan"),
            false => kind.policy.to_owned(),
        };
        let busy = if slow { "Busy slow { cycles: 60000 };" } else { "" };
        let policy = scratch.policy(&format!("Port<0> lan; Port<1> wan; {busy} {policy}"));
        write_capture(&scratch.file("in.pcap"), packets);
        let socket = scratch.file("control");
        let rx = format!("0=pcap:rx={}", scratch.file("in.pcap").display());
        let tx = format!("1=pcap:tx={}", scratch.file("out.pcap").display());
        let control = socket.display().to_string();
        let own = ["--bind", &rx, "--bind", &tx, "--control", &control, "--restart-delay", "0"];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        let mut weir = Command::new("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let run = Run::start_by(weir, &policy, &[&own[..], kind.args, more].concat());
        Graph { run, scratch, socket }
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    fn wait_for_traffic(&self) {
        let written = || std::fs::metadata(self.out()).map_or(0, |m| m.len());
        let before = written();
        wait_until("packets to flow", PATIENCE, || written() > before + 64 * RECORD);
    }

    /// Moves all flows to an instance, if the kind is one where they move.
    fn meanwhile(&self, kind: &Kind, nth: usize) {
        if kind.moves {
            let to = ["1", "2", "3"][nth % 3];
            move_all(&self.socket, to);
        }
    }

    /// From now to the end all flows move from one instance to the next, again and again, if the kind is one where they move.
    fn keep_moving(&self, kind: &Kind) -> Option<Moving> {
        let (socket, over) = (self.socket.clone(), Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        let moves = move || {
            let orders = (1..=3).cycle().take_while(|_| !ended.load(Ordering::Relaxed));
            // One is refused before the graph runs, when it has ended, and where whom it asks has died.
            let moved = |to: u32| {
                let said = order_move(&socket, "mon", &["--all"], to).output().unwrap();
                let flows: Option<Value> = serde_json::from_slice(&said.stdout).ok();
                flows.filter(|_| said.status.success())?["moved"]["flows"].as_u64()
            };
            orders.filter_map(moved).sum()
        };
        kind.moves.then(|| Moving { over, moves: std::thread::spawn(moves) })
    }

    /// To the end: what was lost, and which packets came.
    fn finish(self, what: &str) -> (Finished, Vec<u64>) {
        let out = self.out();
        let finished = self.run.finish();
        finished.assert_sound(what);
        let numbers = read_capture(&out, number);
        assert_in_order(&numbers, what);
        let (came, lost) = (finished.number("/balance/in"), finished.number("/balance/lost"));
        assert_eq!(finished.number("/balance/out"), numbers.len() as u64, "{what}");
        assert_eq!(numbers.len() as u64 + lost, came, "{what}: some are missing, and not counted");
        (finished, numbers)
    }
}

/// Orders that are given beside a run.
struct Moving {
    over: Arc<AtomicBool>,
    /// Gives how many flows have moved.
    moves: JoinHandle<u64>,
}

/// How many flows have moved by them; none of a kind whose flows do not move.
fn moved(moving: Option<Moving>) -> u64 {
    moving.map_or(0, |moving| {
        moving.over.store(true, Ordering::Relaxed);
        moving.moves.join().unwrap()
    })
}

fn move_all(socket: &Path, to: &str) {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["flow", "move", "mon", "--all", "--to", to, "--control"]).arg(socket);
    let said = weir.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

fn order_and_end(kind: &Kind) {
    const PACKETS: u64 = 20_000;
    let mut moves = 0;
    // Rings of less than a batch, of some, and of many; the smallest pool that may be.
    for (ring, pool) in [("64", "64"), ("256", "1024"), ("4096", "8192")] {
        let what = format!("{} --ring {ring} --pool {pool}", kind.name);
        let more = ["--ring", ring, "--pool", pool];
        // Where flows are to move there must be time for it.
        let graph = Graph::start(kind, "end", PACKETS, kind.moves, &more);
        let moving = graph.keep_moving(kind);
        let (finished, numbers) = graph.finish(&what);
        moves += moved(moving);
        assert_eq!(finished.number("/balance/in"), PACKETS, "{what}: it ended before");
        assert_eq!(numbers, (0..PACKETS).collect::<Vec<_>>(), "{what}");
    }
    assert!(!kind.moves || moves > 0, "no flow has moved");
}

fn back_pressure(kind: &Kind) {
    const PACKETS: u64 = 6_000;
    let mut moves = 0;
    for ring in ["64", "1024"] {
        let what = format!("{} slow, --ring {ring}", kind.name);
        let more = ["--ring", ring, "--pool", "2048"];
        let graph = Graph::start(kind, "slow", PACKETS, true, &more);
        let moving = graph.keep_moving(kind);
        let (_, numbers) = graph.finish(&what);
        moves += moved(moving);
        assert_eq!(numbers.len() as u64, PACKETS, "{what}: a full ring loses nothing");
    }
    assert!(!kind.moves || moves > 0, "no flow has moved");
}

fn markers(kind: &Kind) {
    let mut graph =
        Graph::start(kind, "change", 400_000, true, &["--ring", "64", "--pool", "2048"]);
    graph.wait_for_traffic();
    for nth in 0..4 {
        graph.meanwhile(kind, nth);
        graph.wait_for_traffic();
        graph.run.signal(Signal::HUP);
        let told = |line: &str| line.contains("relinked");
        let (_, line) = graph.run.wait_for_line("a word on the relink", told);
        assert!(line.contains(": relinked in "), "{}: {line}", kind.name);
        graph.wait_for_traffic();
    }
    graph.run.signal(Signal::INT);
    let (finished, _) = graph.finish(kind.name);
    assert_eq!(finished.number("/balance/lost"), 0, "{}: {:#}", kind.name, finished.report);
}

/// All workers die, each at another step, and with every run each at the next.
#[cfg(feature = "faults")]
fn deaths(kind: &Kind) {
    const PACKETS: u64 = 6_000;
    const STEPS: u32 = 12;
    let names: Vec<String> = {
        let graph = Graph::start(kind, "names", 1, kind.moves, &[]);
        let (finished, _) = graph.finish(kind.name);
        finished.restarts().into_keys().collect()
    };
    let (mut died, mut moves) = (vec![0; names.len()], 0);
    for first in 0..STEPS {
        let of = |nth: u32| (first + 5 * nth) % STEPS + 1;
        let faults: Vec<String> = names
            .iter()
            .zip(0..)
            .flat_map(|(name, nth)| ["--fault".to_owned(), format!("{name}:{}:2", of(nth))])
            .collect();
        let what = format!("{} {}", kind.name, faults.join(" "));
        let mut more: Vec<&str> = faults.iter().map(String::as_str).collect();
        more.extend(["--pool", "1024"]);
        let graph = Graph::start(kind, "death", PACKETS, kind.moves, &more);
        let moving = graph.keep_moving(kind);
        let (finished, _) = graph.finish(&what);
        moves += moved(moving);
        assert_eq!(finished.number("/balance/in"), PACKETS, "{what}");
        let restarts: Vec<u64> = finished.restarts().into_values().collect();
        let deaths: u64 = restarts.iter().sum();
        assert!(finished.number("/balance/lost") <= deaths * BATCH, "{what}");
        died.iter_mut().zip(restarts).for_each(|(sum, n)| *sum += n);
    }
    for (name, died) in names.iter().zip(died) {
        // An instance whose flows are all with others for nearly a whole run does not come to every step.
        let least = if kind.moves { STEPS / 2 } else { STEPS };
        assert!((least..=STEPS).contains(&(died as u32)), "{}: {died} deaths of {name}", kind.name);
    }
    assert!(!kind.moves || moves > 0, "no flow has moved");
}

macro_rules! conforms {
    ($($module:ident: $kind:expr;)*) => {
        $(mod $module {
            #[test]
            fn packets_come_once_in_the_order_of_their_flow_and_the_end_comes_last() {
                super::order_and_end(&$kind);
            }

            #[test]
            fn a_full_ring_slows_the_sender_and_loses_nothing() {
                super::back_pressure(&$kind);
            }

            #[test]
            fn a_change_of_the_running_graph_passes_behind_the_packets_before_it() {
                super::markers(&$kind);
            }

            #[cfg(feature = "faults")]
            #[test]
            fn whoever_dies_at_whatever_step_each_buffer_is_in_one_place_and_losses_are_counted() {
                super::deaths(&$kind);
            }
        })*
    };
}

conforms! {
    device: super::DEVICE;
    direct: super::DIRECT;
    point_to_point: super::POINT_TO_POINT;
    branch: super::BRANCH;
    sync: super::SYNC;
    balance: super::BALANCE;
    balance_by_fields: super::BALANCE_BY;
    // A balance port whose flows move. Who dies at the steps of that: `flows/moves_deaths.rs`.
    marker: super::MARKER;
    balance_in_turn: super::IN_TURN;
    balance_least_loaded: super::LEAST_LOADED;
    filter: super::FILTER;
}
