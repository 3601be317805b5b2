//! Later fragments go where the first of their datagram went, also when whoever sends them there has died in between, or the
//! graph was changed: each flow's fragments are counted as one flow's, as nobody else knows whose they are.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_relink::*;
use rustix::process::{Signal, kill_process};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use weir_packet::wire::Frame;

/// Datagrams of a flow each, half of them of IPv4: their first fragments come first, the others at the end.
const DATAGRAMS: u16 = 100;
/// Whole packets in between.
const BETWEEN: u64 = 90_000;
const FLOWS_IN_ALL: u64 = DATAGRAMS as u64 + FLOWS as u64;

/// `head` divides, where it is alone. `slow` gives time; flows that begin leave by a port of their own.
const GRAPH: &str = "
Port<0> lan;  Port<1> wan;  Port<2> first;
MacSwap head;  FlowMonitor mon;  Busy slow { cycles: 60000 };
pipelet { lan -> head -> mon -> slow;  slow [mon.packets == 1] -> first;  slow [!(mon.packets == 1)] -> wan; }";

/// The same; the service of the port divides.
const AT_PORT: &str = "
Port<0> lan;  Port<1> wan;  Port<2> first;
FlowMonitor mon;  Busy slow { cycles: 60000 };
pipelet { lan -> mon -> slow;  slow [mon.packets == 1] -> first;  slow [!(mon.packets == 1)] -> wan; }";

/// `slow` chooses by which of two ports packets leave.
const ARRAY: &str = "
Port<0> lan;  Port<1-2> out;
MacSwap head;  Busy slow { cycles: 60000 };
pipelet { lan -> head -> slow -> out; }";

/// The graphs in which somebody divides, and who.
const DIVIDED: [(&str, &str, &str); 2] = [("port", AT_PORT, "rx:lan"), ("nf", GRAPH, "head")];

const THREE: &str = "--isolate each\n--instances mon=3\n";

/// Without Ethernet addresses, which are swapped.
fn fragments(flow: u16) -> Vec<Vec<u8>> {
    let [high, low] = flow.to_be_bytes();
    let payload = [0; 96];
    let frame = match flow.is_multiple_of(2) {
        true => Frame::ipv4([10, 9, high, low], [192, 0, 2, 1]),
        false => {
            let other = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
            Frame::ipv6([0x2001, 0xdb8, 9, 0, 0, 0, 0, flow], other)
        }
    };
    let frame = frame.id(u32::from(flow) + 1).udp(1_000 + flow, 53).payload(&payload);
    let all = frame.fragments(48);
    assert!(all.len() >= 3);
    all
}

/// Whose fragment a packet is, and whether a later one.
fn fragment(bytes: &[u8]) -> Option<(u16, bool)> {
    static ALL: OnceLock<HashMap<Vec<u8>, (u16, bool)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let of = |flow| (0..).zip(fragments(flow)).map(move |(at, own)| (at, flow, own));
        let all = (0..DATAGRAMS).flat_map(of);
        all.map(|(at, flow, own): (u32, _, _)| (own[12..].to_vec(), (flow, at > 0))).collect()
    });
    all.get(&bytes[12..]).copied()
}

/// Datagrams of other flows, more than are remembered.
const WHOLE: std::ops::Range<u16> = 1_000..2_500;

struct Fragmented {
    graph: Changing,
    second: PathBuf,
    flows: u64,
    /// Bytes of all packets before the later fragments.
    before: u64,
}

impl Fragmented {
    /// Packets flow. `options`: those of the file.
    fn start(name: &str, policy: &str, args: &[&str]) -> Self {
        Self::start_behind(name, policy, 0..0, args)
    }

    /// The same behind datagrams that have come whole.
    fn start_behind(name: &str, policy: &str, whole: std::ops::Range<u16>, args: &[&str]) -> Self {
        let scratch = Scratch::new(&format!("fragments-{name}"));
        let flows = FLOWS_IN_ALL + whole.len() as u64;
        let whole = whole.flat_map(fragments);
        let firsts = (0..DATAGRAMS).map(|flow| fragments(flow).remove(0));
        let between = (0..BETWEEN).map(|number| frame(number, flow_of(number)).to_vec());
        let later = (0..DATAGRAMS).flat_map(|flow| fragments(flow).split_off(1));
        let before: Vec<Vec<u8>> = whole.chain(firsts).chain(between).collect();
        let bytes = before.iter().map(|frame| 16 + frame.len() as u64).sum();
        write_frames(&scratch.file("in.pcap"), before.into_iter().chain(later));
        let rx = format!("pcap:rx={}", scratch.file("in.pcap").display());
        let second = scratch.file("second.pcap");
        let other = format!("2=pcap:tx={}", second.display());
        let own = ["--ring", "64", "--restart-delay", "0", "--bind", &other];
        let args = [&own[..], args].concat();
        let graph = Changing::start_on(scratch, Command::new("env"), &rx, policy, &args);
        graph.wait_for_traffic();
        Fragmented { graph, second, flows, before: bytes }
    }

    /// Changes it to other options.
    fn becomes(&mut self, options: &str) {
        self.graph.scratch.write("options", options);
        let said = self.graph.reload();
        assert!(said.contains(": relinked in "), "{said}");
        self.graph.wait_for_traffic();
    }

    /// Kills a worker and waits for its successor.
    fn kill(&mut self, who: &str) {
        let workers = self.graph.run.workers();
        let pid = *workers.get(who).unwrap_or_else(|| panic!("no {who} among {workers:?}"));
        kill_process(pid, Signal::KILL).unwrap();
        self.wait_for_successor(who);
    }

    fn wait_for_successor(&mut self, who: &str) {
        let back = format!("{who} runs again");
        self.graph.run.wait_for_line("a successor", |line| line.contains(&back));
    }

    /// Fails if later fragments may have come already: then it says nothing that they are known.
    fn assert_none_came(&self) {
        let (out, second, most) = (written(&self.graph.out()), written(&self.second), self.before);
        // Some are under way.
        let under_way = 2_000 * RECORD;
        assert!(out + second + under_way < most, "too late: {out} + {second} of {most} bytes");
    }

    /// At its end each flow began once, with the first packet that came of it: what does not is a fragment that somebody did not know.
    /// Whose first fragment is lost is not known to anybody.
    fn finish(self, what: &str) -> Finished {
        let (out, second, run) = (self.graph.out(), self.second, self.graph.run);
        let finished = run.finish();
        finished.assert_sound(what);
        let [other, began] = [out, second].map(|path| read_capture(&path, |bytes| bytes.to_vec()));
        let firsts = |all: &[Vec<u8>]| -> BTreeSet<u16> {
            let own = all.iter().filter_map(|bytes| fragment(bytes));
            own.filter(|(_, later)| !later).map(|(flow, _)| flow).collect()
        };
        let known = &firsts(&began) | &firsts(&other);
        let later = began.iter().filter_map(|bytes| fragment(bytes)).filter(|(_, later)| *later);
        let anew: Vec<u16> = later.map(|(flow, _)| flow).filter(|f| known.contains(f)).collect();
        assert!(anew.is_empty(), "{what}: not known whose they are: {anew:?}");
        let lost = u64::from(DATAGRAMS) - known.len() as u64;
        assert!(lost <= finished.number("/balance/lost"), "{what}: {lost} first ones are missing");
        if lost == 0 {
            let seen = node(&finished, "mon")["report"]["flows"].as_u64().unwrap();
            assert_eq!((began.len() as u64, seen), (self.flows, self.flows), "{what}");
        }
        drop(self.graph.scratch);
        finished
    }
}

#[test]
fn they_follow_their_first_over_the_death_of_who_divides_them() {
    for (name, policy, who) in DIVIDED {
        let mut graph = Fragmented::start(name, policy, &["--instances", "mon=3"]);
        graph.kill(who);
        // Of a successor's successor, too.
        graph.kill(who);
        graph.assert_none_came();
        let finished = graph.finish(name);
        assert_eq!(finished.restarts()[who], 2);
        assert!(finished.number("/balance/lost") <= 2 * BATCH);
    }
}

#[test]
fn they_follow_their_first_through_changes_of_the_graph() {
    for (name, policy, who) in DIVIDED {
        let name = format!("{name}-changed");
        let mut graph = Fragmented::start(&name, policy, &[]);
        // Who has to know whose they are was not there when their first came; or was another.
        for options in ["--isolate none\n", THREE, "--isolate each\n--instances mon=2\n"] {
            graph.becomes(options);
        }
        graph.kill(who);
        graph.assert_none_came();
        let finished = graph.finish(&name);
        assert!(finished.number("/balance/lost") <= BATCH);
    }
}

#[test]
fn they_follow_their_first_though_more_datagrams_came_whole_before_than_are_remembered() {
    let mut graph = Fragmented::start_behind("whole", AT_PORT, WHOLE, &["--instances", "mon=3"]);
    for options in ["--isolate each\n--instances mon=2\n", "--isolate each\n", THREE] {
        graph.becomes(options);
    }
    graph.kill("rx:lan");
    graph.assert_none_came();
    let finished = graph.finish("whole");
    assert!(finished.number("/balance/lost") <= BATCH);
}

#[test]
fn they_follow_their_first_whatever_datagrams_another_port_has_had() {
    let scratch = Scratch::new("fragments-dmz");
    write_frames(&scratch.file("dmz.pcap"), WHOLE.flat_map(fragments));
    let dmz = format!("3=pcap:rx={}", scratch.file("dmz.pcap").display());
    let policy = AT_PORT.replace("Port<2> first;", "Port<2> first;  Port<3> dmz;");
    let policy = policy.replace("{ lan -> mon -> slow;", "{ lan -> mon;  dmz -> mon -> slow;");
    let args = ["--bind", &dmz, "--instances", "mon=3"];
    let mut graph = Fragmented::start("ports", &policy, &args);
    graph.flows += WHOLE.len() as u64;
    let most = u64::from(DATAGRAMS) + 3 * WHOLE.len() as u64;
    wait_until("the other port's to come", PATIENCE, || {
        written(&graph.graph.out()) > 2 * most * RECORD
    });
    graph.becomes(THREE);
    graph.becomes("--isolate each\n--instances mon=2\n");
    graph.assert_none_came();
    let finished = graph.finish("ports");
    assert_eq!(finished.number("/balance/lost"), 0);
}

#[test]
fn they_leave_by_the_port_of_their_first_when_who_chooses_it_has_died() {
    let mut graph = Fragmented::start("array", ARRAY, &[]);
    graph.kill("slow");
    graph.assert_none_came();
    let (out, second) = (graph.graph.out(), graph.second);
    let finished = graph.graph.run.finish();
    finished.assert_sound("array");
    let flows = |path: &PathBuf| -> [BTreeSet<u16>; 2] {
        let all: Vec<_> = read_capture(path, fragment).into_iter().flatten().collect();
        [false, true].map(|is_later| {
            let own = all.iter().filter(|(_, later)| *later == is_later);
            own.map(|(flow, _)| *flow).collect()
        })
    };
    let [[first, later], [other, other_later]] = [&out, &second].map(flows);
    assert!(first.len() > 10 && other.len() > 10, "{first:?} {other:?}");
    assert_eq!(&later & &other, BTreeSet::new(), "later fragments leave elsewhere");
    assert_eq!(&other_later & &first, BTreeSet::new(), "later fragments leave elsewhere");
}

/// At each step of the batch that first fragments are in: what is known of them is what of them came out.
#[cfg(feature = "faults")]
#[test]
fn they_follow_their_first_wherever_who_divides_them_dies() {
    use weir_mem::fault::Step::*;
    for (name, policy, who) in DIVIDED {
        for step in [Claimed, Processed, HalfReplicated, Replicated, Banked, Committed, Done] {
            let fault = format!("{who}:{}:1", step as u32);
            let what = format!("{name}-{}", step as u32);
            let args = ["--instances", "mon=3", "--fault", &fault];
            // Nobody changes the graph meanwhile: half of the time is enough.
            let policy = policy.replace("60000", "30000");
            let mut graph = Fragmented::start(&what, &policy, &args);
            graph.wait_for_successor(who);
            graph.assert_none_came();
            let finished = graph.finish(&fault);
            assert_eq!(finished.restarts()[who], 1, "{fault}");
        }
    }
}

/// A service goes over into a changed graph by itself.
#[cfg(feature = "faults")]
#[test]
fn they_follow_their_first_when_the_service_dies_as_it_goes_over() {
    use weir_mem::fault::Step::{CarriedOver, GoingOver};
    for step in [GoingOver, CarriedOver] {
        let fault = format!("rx:lan:{}:1", step as u32);
        let args = ["--instances", "mon=3", "--fault", &fault];
        let mut graph = Fragmented::start(&format!("over-{}", step as u32), AT_PORT, &args);
        graph.becomes("--isolate each\n--instances mon=2\n");
        graph.assert_none_came();
        let finished = graph.finish(&fault);
        assert!(finished.number("/balance/lost") <= BATCH, "{fault}");
    }
}

/// A translator knows where a later fragment goes when its first one has come; who orders them stands before it.
#[test]
fn fragments_in_any_order_pass_a_translator_behind_who_orders_them() {
    const POLICY: &str = "
Port<0> lan;  Port<1> wan;
OrderFragments order;  Napt nat { addresses: [\"198.51.100.1\"] };
pipelet { lan -> order -> [inside] nat;  nat [nat.outside] -> wan;  nat [nat.inside] -> Drop; }";
    let scratch = Scratch::new("fragments-order");
    // Four datagrams at a time, each of whose last fragments come first.
    let flows: Vec<u16> = (0..40).map(|nth| 2 * nth).collect();
    let frames: Vec<Vec<u8>> = flows
        .chunks(4)
        .flat_map(|some| {
            let mut all: Vec<_> = some.iter().map(|flow| fragments(*flow)).collect();
            std::iter::from_fn(move || {
                let next: Vec<_> = all.iter_mut().filter_map(Vec::pop).collect();
                (!next.is_empty()).then_some(next)
            })
        })
        .flatten()
        .collect();
    write_frames(&scratch.file("in.pcap"), frames.iter());
    let (rx, out) =
        (format!("0=pcap:rx={}", scratch.file("in.pcap").display()), scratch.file("out.pcap"));
    let tx = format!("1=pcap:tx={}", out.display());
    let own = ["--bind", &rx, "--bind", &tx];
    let as_it_is = POLICY
        .replace("lan -> order -> [inside]", "lan -> [inside]")
        .replace("OrderFragments order;", "");
    let without = Run::start(&scratch.policy(&as_it_is), &own).finish();
    let lost = frames.len() as u64 - flows.len() as u64;
    assert_eq!(
        without.number("/balance/dropped"),
        lost,
        "only first ones pass: {:#}",
        without.report
    );
    for args in [
        ["--isolate", "each"],
        ["--isolate", "none"],
        ["--instances", "order=2"],
        ["--instances", "nat=2"],
    ] {
        let finished = Run::start(&scratch.policy(POLICY), &[&own[..], &args].concat()).finish();
        finished.assert_sound(&format!("{args:?}"));
        let payload = |bytes: &[u8]| (bytes[26..30].to_vec(), bytes[34..].to_vec());
        let came = read_capture(&out, payload);
        assert_eq!(came.len(), frames.len(), "{args:?}: {:#}", finished.report);
        assert!(came.iter().all(|(source, _)| *source == [198, 51, 100, 1]), "{args:?}");
    }
}
