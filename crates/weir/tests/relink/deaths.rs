//! A graph with a parallel stage, an NF of several instances, a cycle, filters, gates between trust domains or a writer of drops is changed, and one of its workers dies at a step of that: before
//! the switch all stays as it was, and a change that nobody dies of goes through; after it the worker is mended as ever.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_relink::*;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use weir_capture::Reader;
use weir_mem::fault::Step;

/// A kind of graph, and workers of it that are about its ports.
struct Kind {
    name: &'static str,
    policy: &'static str,
    more: &'static [&'static str],
    workers: &'static [&'static str],
    /// What finds the way back full is dropped.
    may_drop: bool,
}

const ALL: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  PacketSizeHistogram sizes;  CountSubnet nets;  MacSwap many;  Busy slow { cycles: 150000 };
pipelet { lan -> head -> sizes -> nets -> many -> slow -> wan; }";

/// Every packet goes round four times.
const AROUND: &str = "
Port<0> lan;  Port<1> wan;  default drop;
TtlDecrement t;  MacSwap back;  Busy slow { cycles: 150000 };
pipelet { lan -> t;  t [t.out && ip[8] > 60] -> back;  back -> t;  t [t.out && ip[8] <= 60] -> slow;  slow -> wan; }";

/// Packets part by a filter, and meet again.
const PARTED: &str = "
Port<0> lan;  Port<1> wan;
MacSwap a;  PacketSizeHistogram nets;  MacSwap r;  MacSwap b;  Busy slow { cycles: 150000 };
pipelet { lan -> a;  a [udp dst port 6000] -> nets;  a [!(udp dst port 6000)] -> r;  nets -> b;  r -> b;  b -> slow -> wan; }";

/// Some are dropped.
const DROPPING: &str = "
Port<0> lan;  Port<1> wan;
PacketSizeHistogram nets;  L3L4Filter fw { rules: [{ action: 'drop', proto: 'udp', dst_port: '6000' }] };  Busy slow { cycles: 150000 };
pipelet { lan -> nets -> slow -> fw -> wan; }";

/// Who gives to a stage, a branch, who has the sync port; who divides, an instance; both ends of a cycle; who asks filters, and to whom packets
/// come by several edges; both gates of a domain, and who stands in it; who drops, and who writes that down.
const KINDS: [Kind; 6] = [
    Kind {
        name: "stage",
        policy: ALL,
        more: &["--parallel", "always"],
        workers: &["head", "nets", "sync:nets"],
        may_drop: false,
    },
    Kind {
        name: "balance",
        policy: ALL,
        more: &["--parallel", "never", "--instances", "many=2"],
        workers: &["nets", "many#2"],
        may_drop: false,
    },
    Kind { name: "cycle", policy: AROUND, more: &[], workers: &["t", "back"], may_drop: true },
    Kind {
        name: "filter",
        policy: PARTED,
        more: &[],
        workers: &["a", "nets", "b"],
        may_drop: false,
    },
    Kind {
        name: "gate",
        policy: ALL,
        more: &["--parallel", "never", "--domain", "nets=other"],
        workers: &["gate:sizes -> nets", "nets", "gate:nets -> many"],
        may_drop: false,
    },
    Kind {
        name: "dump",
        policy: DROPPING,
        more: &["--dump-drops", "DROPS"],
        workers: &["fw"],
        may_drop: true,
    },
];

impl Kind {
    fn start(&self, fault: [&str; 2]) -> Changing {
        let scratch = Scratch::new(&format!("relink-{}", self.name));
        write_capture(&scratch.file("in.pcap"), PACKETS);
        let rx = format!("pcap:rx={}", scratch.file("in.pcap").display());
        let drops = scratch.file("drops.pcapng").display().to_string();
        let more = self.more.iter().map(|word| if *word == "DROPS" { &drops } else { *word });
        let args: Vec<&str> = more.chain(fault).collect();
        let changing = Changing::start_on(scratch, Command::new("env"), &rx, self.policy, &args);
        changing.wait_for_traffic();
        changing
    }

    /// The next change goes through, and nothing is missing that was not counted.
    fn assert_changes(&self, mut graph: Changing, what: &str) -> Finished {
        let line = graph.reload();
        assert!(line.contains(": relinked in "), "{what}: {line}");
        self.assert_goes_on(graph, what)
    }

    /// Packets go on, and nothing is missing that was not counted.
    fn assert_goes_on(&self, graph: Changing, what: &str) -> Finished {
        graph.wait_for_traffic();
        graph.run.signal(Signal::INT);
        let (out, finished) = (graph.out(), graph.run.finish());
        finished.assert_sound(what);
        // Who counts rounds changes packets.
        let numbers =
            read_capture(&out, |bytes| u64::from_be_bytes(bytes[42..50].try_into().unwrap()));
        assert_in_order(&numbers, what);
        let n = |key: &str| finished.number(&format!("/balance/{key}"));
        assert_eq!(numbers.len() as u64 + n("lost") + n("dropped"), n("in"), "{what}");
        assert!(self.may_drop || n("dropped") == 0, "{what}: {} dropped", n("dropped"));
        assert!(n("lost") <= BATCH, "{what}: {} lost", n("lost"));
        if self.more.contains(&"--dump-drops") {
            // Those that its writer had in hand when it died are missing.
            let written = dropped(&graph.scratch.file("drops.pcapng"));
            assert!(n("dropped") > 0, "{what}");
            assert!(
                written <= n("dropped") && written + BATCH >= n("dropped"),
                "{what}: {written}"
            );
        }
        drop(graph.scratch);
        finished
    }
}

/// Packets in a file of those that were dropped.
fn dropped(file: &Path) -> u64 {
    let (mut reader, mut count) = (Reader::open(file).unwrap(), 0);
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn who_dies_before_the_switch_leaves_the_graph_as_it_was_whatever_its_ports() {
    for kind in KINDS {
        for worker in kind.workers {
            for (option, generation, step, why) in [
                ("--later-fault", "2:", Step::StandingBy, "died before it began"),
                ("--later-fault", "2:", Step::TakenOver, "died before it began"),
                ("--fault", "", Step::HandingOver, "died meanwhile"),
            ] {
                // Who remembers nothing takes nothing over.
                if step == Step::TakenOver && *worker != "nets" {
                    continue;
                }
                let fault = format!("{generation}{worker}:{}:1", step as u32);
                let what = format!("{}: {option} {fault}", kind.name);
                let mut graph = kind.start([option, &fault]);
                let line = graph.reload();
                assert!(line.contains("not relinked") && line.contains(why), "{what}: {line}");
                graph.wait_for_traffic();
                // Who is to take over dies whenever one is made; who hands over did so once.
                let (finished, changes) = match step {
                    Step::HandingOver => (kind.assert_changes(graph, &what), 1),
                    _ => (kind.assert_goes_on(graph, &what), 0),
                };
                assert_eq!(relinks(&finished), changes, "{what}");
            }
        }
    }
}

/// Who writes down what others drop goes on in the next generation himself, with his file.
#[test]
fn who_writes_down_drops_may_die_at_any_step_of_a_change() {
    let kind = KINDS.iter().find(|kind| kind.name == "dump").unwrap();
    for (step, goes_over) in [
        (Step::Adopting, false),
        (Step::HandingOver, false),
        (Step::GoingOver, true),
        (Step::CarriedOver, true),
    ] {
        let fault = format!("dump:drops.pcapng:{}:1", step as u32);
        let mut graph = kind.start(["--fault", &fault]);
        let line = graph.reload();
        match goes_over {
            true => assert!(line.contains(": relinked in "), "{fault}: {line}"),
            false => assert!(line.contains("drops.pcapng died meanwhile"), "{fault}: {line}"),
        }
        let finished = kind.assert_changes(graph, &fault);
        assert_eq!(finished.restarts()["dump:drops.pcapng"], 1, "{fault}");
        assert_eq!(relinks(&finished), 1 + usize::from(goes_over), "{fault}");
    }
}

#[test]
fn who_dies_when_it_is_told_to_begin_is_mended_whatever_its_ports() {
    for kind in KINDS {
        for worker in kind.workers {
            let fault = format!("2:{worker}:{}:1", Step::Begun as u32);
            let what = format!("{}: {fault}", kind.name);
            let mut graph = kind.start(["--later-fault", &fault]);
            graph.run.signal(Signal::HUP);
            let died = format!("worker {worker} died");
            graph.run.wait_for_line("the death", |line| line.contains(&died));
            graph.wait_for_traffic();
            let finished = kind.assert_changes(graph, &what);
            assert_eq!(relinks(&finished), 2, "{what}");
        }
    }
}
