//! What a graph may rely on of live devices, whichever they are: the suite of `graphs/conformance.rs`, whose devices are captures, on interfaces of
//! the kernel and on the machine's own stack. What differs is that a live source does not wait: what it has no room for the kernel drops, and
//! that is counted. Who dies at which of the other steps: `death.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::{Namespace, Wires, skipped};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A device on either side, and how packets get to the one and are heard from the other.
struct Kind {
    rx: &'static str,
    tx: &'static str,
    sends: (fn(&Wires) -> &Namespace, &'static str),
    hears: (fn(&Wires) -> &Namespace, &'static str),
    /// So many packets wait in the kernel without a loss.
    room: u64,
    /// So many packets a second: as many as wait for longer than anybody is away.
    rate: u64,
}

const INTERFACES: Kind = Kind {
    rx: "afp:m0",
    tx: "afp:m1",
    sends: (|wires| &wires.sender, "afp:e0"),
    hears: (|wires| &wires.recorder, "afp:e1"),
    room: 1000,
    rate: 5000,
};
/// Its queue is 500 packets long.
const OWN_STACK: Kind = Kind {
    rx: "tap:weir0",
    tx: "tap:weir1",
    sends: (|wires| &wires.weir, "afp:weir0"),
    hears: (|wires| &wires.weir, "afp:weir1"),
    room: 400,
    rate: 500,
};

/// Generated packets, of more flows than packets: the low three bytes of their source address say which it is.
fn place(bytes: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(bytes[26..30].try_into().unwrap()) & 0xff_ffff)
}

/// A graph between two such devices, and who writes down what leaves it.
struct Bench {
    kind: &'static Kind,
    scratch: Scratch,
    wires: Wires,
    run: Run,
    recorder: Run,
    dropped: u64,
}

impl Bench {
    fn start(kind: &'static Kind, nf: &str, more: &[&str]) -> Self {
        let (scratch, wires) = (Scratch::new("live-conformance"), Wires::new());
        let policy = format!("Port<0> lan;  Port<1> wan;  {nf};  pipelet {{ lan -> nf -> wan; }}");
        let (policy, options) = (scratch.policy(&policy), scratch.file("options"));
        std::fs::write(&options, "").unwrap();
        let (rx, tx) = (format!("0={}", kind.rx), format!("1={}", kind.tx));
        let options = options.display().to_string();
        let own = ["--bind", &rx, "--bind", &tx, "--options", &options, "--restart-delay", "0"];
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        let mut weir = wires.weir.command("env");
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let run = Run::start_by(weir, &policy, &[&own[..], more].concat());
        run.wait_for_workers(3);
        let out = format!("pcap:tx={}", scratch.file("out.pcap").display());
        let (space, hears) = kind.hears;
        let recorder = wires.end(space(&wires), &scratch, hears, &out);
        recorder.wait_for_workers(2);
        Bench { kind, run, recorder, dropped: Wires::dropped_between(), scratch, wires }
    }

    fn out(&self) -> PathBuf {
        self.scratch.file("out.pcap")
    }

    fn written(&self) -> u64 {
        std::fs::metadata(self.out()).map_or(0, |m| m.len()).saturating_sub(24) / (16 + 64)
    }

    /// Who sends, as many packets and as fast as `more` says, and has begun to.
    fn sends(&self, more: &str) -> Run {
        let source = format!("gen:size=64,flows=1000000{more}");
        let (space, by) = self.kind.sends;
        self.wires.end(space(&self.wires), &self.scratch, &source, by)
    }

    /// Ends all when `sender` has and what it sent is through.
    fn finish(self, sender: Run, what: &str) -> Ended {
        let sent = sender.finish();
        sent.assert_sound(&format!("{what}: sender"));
        Wires::wait_until_delivered();
        // Fewer come where the kernel has dropped some: then nothing moves any more.
        let (all, mut last) = (sent.number("/balance/out"), (0, Instant::now()));
        wait_until(&format!("{what}: what was sent"), PATIENCE, || {
            let now = self.written();
            if now != last.0 {
                last = (now, Instant::now());
            }
            now >= all || last.1.elapsed() > Duration::from_secs(3)
        });
        self.run.signal(Signal::INT);
        let finished = self.run.finish();
        finished.assert_sound(what);
        Wires::wait_until_delivered();
        self.recorder.signal(Signal::INT);
        self.recorder.finish().assert_sound(&format!("{what}: recorder"));
        let places = read_capture(&self.scratch.file("out.pcap"), place);
        assert_in_order(&places, what);
        let on_the_way = Wires::dropped_between() - self.dropped;
        Ended { sent: all, finished, came: places.len() as u64, on_the_way }
    }

    /// The same for a sender that sends without end.
    fn stop(self, sender: Run, what: &str) -> Ended {
        sender.signal(Signal::INT);
        self.finish(sender, what)
    }
}

/// What came of it.
struct Ended {
    sent: u64,
    finished: Finished,
    /// Packets that were recorded.
    came: u64,
    /// Those that the kernel has dropped on the wires, which is mostly none.
    on_the_way: u64,
}

impl Ended {
    fn n(&self, key: &str) -> u64 {
        self.finished.number(&format!("/balance/{key}"))
    }

    fn show(&self, what: &str) -> String {
        let Ended { sent, finished, came, on_the_way } = self;
        let said = finished.said.join("\n");
        format!(
            "{what}: {sent} sent, {came} came, {on_the_way} dropped between: {:#}\n{said}",
            finished.report
        )
    }

    /// All came that was sent, once; but for what the kernel has dropped on the wires.
    fn assert_all(&self, what: &str) {
        let (sent, on_the_way, show) = (self.sent, self.on_the_way, || self.show(what));
        assert!(sent > 0, "{}", show());
        assert_eq!((self.n("dropped"), self.n("lost")), (0, 0), "{}", show());
        assert!(self.n("in") <= sent && self.n("in") + on_the_way >= sent, "{}", show());
        assert_eq!(self.n("out"), self.n("in"), "{}", show());
        assert!(self.came <= sent && self.came + on_the_way >= self.n("out"), "{}", show());
    }
}

fn order_and_end(kind: &'static Kind) {
    for (ring, pool) in [("64", "64"), ("256", "1024"), ("4096", "8192")] {
        let what = format!("{} --ring {ring} --pool {pool}", kind.rx);
        let bench = Bench::start(kind, "MacSwap nf", &["--ring", ring, "--pool", pool]);
        let sender = bench.sends(&format!(",packets={0},rate={0}", kind.rate));
        bench.finish(sender, &what).assert_all(&what);
    }
}

fn back_pressure(kind: &'static Kind) {
    for ring in ["64", "1024"] {
        let what = format!("{} slow, --ring {ring}", kind.rx);
        let more = ["--ring", ring, "--pool", "2048"];
        // As much as waits without a loss comes at once.
        let bench = Bench::start(kind, "Busy nf { cycles: 300000 }", &more);
        let sender = bench.sends(&format!(",packets={}", kind.room));
        bench.finish(sender, &what).assert_all(&what);
        // Of more some is dropped, before any work was spent on it, and each is counted.
        let bench = Bench::start(kind, "Busy nf { cycles: 300000 }", &more);
        let sender = bench.sends(",packets=20000,rate=40000");
        let ended = bench.finish(sender, &what);
        let Ended { sent, finished, came, on_the_way } = &ended;
        let n = |key: &str| ended.n(key);
        assert_eq!((n("lost"), *sent), (0, 20_000), "{what}");
        assert_eq!(n("out") + n("dropped"), n("in"), "{what}");
        let rx = finished.report["nodes"].as_array().unwrap();
        let rx = rx.iter().find(|node| node["kind"] == "rx").unwrap();
        assert_eq!(
            rx["drops"]["kernel-full"].as_u64().unwrap_or(0),
            n("dropped"),
            "{what}: {rx:#}"
        );
        assert!(*came <= n("out") && came + on_the_way >= n("out"), "{}", ended.show(&what));
        // The queue before a TAP interface is not the service's, and who sends there is told nothing.
        if kind.rx.starts_with("afp:") {
            assert!(n("in") + on_the_way >= *sent, "{}", ended.show(&what));
            assert!(n("dropped") > 0, "{what}: all of it had room");
        }
    }
}

fn changes(kind: &'static Kind) {
    let mut bench = Bench::start(kind, "MacSwap nf", &["--ring", "64"]);
    let sender = bench.sends(&format!(",rate={}", kind.rate));
    for how in ["--isolate none", "--isolate each", "--isolate none", "--isolate each"] {
        let before = bench.written();
        wait_until("packets to flow", PATIENCE, || bench.written() > before + 64);
        bench.scratch.write("options", how);
        bench.run.signal(Signal::HUP);
        let (_, line) = bench.run.wait_for_line("a word on the relink", |l| l.contains("relinked"));
        assert!(line.contains(": relinked in "), "{}: {line}", kind.rx);
    }
    bench.stop(sender, kind.rx).assert_all(kind.rx);
}

/// Who receives or sends dies at a step of a change: before the switch all stays as it was, after it the worker is mended as ever, and no packet is
/// lost but what he had in hand.
#[cfg(feature = "faults")]
fn deaths_in_changes(kind: &'static Kind) {
    use weir_mem::fault::Step;

    for worker in ["rx:lan", "tx:wan"] {
        for (step, changed) in [
            (Step::Adopting, false),
            (Step::Holding, false),
            (Step::HandingOver, false),
            (Step::GoingOver, true),
            (Step::CarriedOver, true),
        ] {
            if step == Step::Holding && worker == "tx:wan" {
                // Nothing comes in by it.
                continue;
            }
            let fault = format!("{worker}:{}:1", step as u32);
            let what = format!("{}: {fault}", kind.rx);
            let more = ["--ring", "64", "--fault", &fault];
            let mut bench = Bench::start(kind, "PacketSizeHistogram nf", &more);
            let sender = bench.sends(&format!(",rate={}", kind.rate));
            wait_until("packets to flow", PATIENCE, || bench.written() > 64);
            bench.run.signal(Signal::HUP);
            let (_, line) =
                bench.run.wait_for_line("a word on the relink", |l| l.contains("relinked"));
            let died = format!("{worker} died");
            match changed {
                true => assert!(line.contains(": relinked in "), "{what}: {line}"),
                false => {
                    assert!(line.contains("not relinked") && line.contains(&died), "{what}: {line}")
                }
            }
            // By whoever is there now.
            let before = bench.written();
            wait_until("packets to flow again", PATIENCE, || bench.written() > before + 64);
            let ended = bench.stop(sender, &what);
            let (n, show) = (|key: &str| ended.n(key), || ended.show(&what));
            let Ended { sent, finished, came, on_the_way } = &ended;
            assert_eq!(finished.restarts()[worker], 1, "{}", show());
            assert_eq!(n("in"), n("out") + n("lost") + n("dropped"), "{}", show());
            assert_eq!(n("dropped"), 0, "{}", show());
            // What a service had given to the kernel when it died has left, and counts as lost all the same.
            assert!(*came <= n("in") && came + on_the_way >= n("out"), "{}", show());
            // What who receives from a TAP had in hand goes with him, uncounted: nothing else has seen it.
            let taken = if kind.rx.starts_with("tap:") && worker == "rx:lan" { BATCH } else { 0 };
            assert!(n("lost") <= BATCH, "{}", show());
            assert!(n("in") + on_the_way + taken >= *sent, "{}", show());
        }
    }
}

macro_rules! conforms {
    ($($module:ident: $kind:expr;)*) => {
        $(mod $module {
            #[test]
            fn packets_come_once_and_in_order_and_what_has_come_is_through_at_the_end() {
                if !super::skipped(concat!(stringify!($module), "::packets_come_once_and_in_order")) {
                    super::order_and_end(&$kind);
                }
            }

            #[test]
            fn what_has_no_room_waits_in_the_kernel_and_is_dropped_there_and_counted() {
                if !super::skipped(concat!(stringify!($module), "::what_has_no_room_waits_in_the_kernel")) {
                    super::back_pressure(&$kind);
                }
            }

            #[test]
            fn a_change_of_the_running_graph_passes_behind_the_packets_before_it() {
                if !super::skipped(concat!(stringify!($module), "::a_change_of_the_running_graph")) {
                    super::changes(&$kind);
                }
            }

            #[cfg(feature = "faults")]
            #[test]
            fn who_dies_in_a_change_leaves_the_graph_as_it_was_or_is_mended() {
                if !super::skipped(concat!(stringify!($module), "::who_dies_in_a_change")) {
                    super::deaths_in_changes(&$kind);
                }
            }
        })*
    };
}

conforms! {
    interfaces: super::INTERFACES;
    own_stack: super::OWN_STACK;
}
