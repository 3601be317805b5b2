//! A service that receives from an interface dies, and nothing that came by it is lost: its successor goes on where it was, in
//! the kernel's ring of the same socket.
#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::{Wires, skipped};
use rustix::process::{Signal, kill_process};
use std::path::PathBuf;

/// Fewer than the kernel's ring has frames, so it has room for all of them.
const PACKETS: u64 = 4000;

/// Steps that a service passes which receives: from the claim on.
const STEPS: std::ops::RangeInclusive<u32> = 4..=12;

/// Place of a generated packet, of more flows than packets.
fn place(bytes: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(bytes[26..30].try_into().unwrap()) & 0xff_ffff)
}

/// sender e0 ── m0 weir, which writes down what passes.
struct Bench {
    scratch: Scratch,
    wires: Wires,
    out: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let out = scratch.file("out.pcap");
        Bench { scratch, wires: Wires::new(), out }
    }

    fn start(&self, nf: &str, more: &[&str]) -> Run {
        let policy = format!("Port<0> lan;  Port<1> wan;  {nf};  pipelet {{ lan -> nf -> wan; }}");
        let policy = self.scratch.policy(&policy);
        let tx = format!("1=pcap:tx={}", self.out.display());
        let args = ["--bind", "0=afp:m0", "--bind", &tx, "--ring", "64", "--restart-delay", "0"];
        let weir = self.wires.weir.command(env!("CARGO_BIN_EXE_weir"));
        let run = Run::start_by(weir, &policy, &[&args, more].concat());
        run.wait_for_workers(3);
        run
    }

    /// Sends all packets.
    fn send(&self) {
        let source = format!("gen:size=64,flows=1000000,rate=5000,packets={PACKETS}");
        let sender = self.wires.end(&self.wires.sender, &self.scratch, &source, "afp:e0");
        let sent = sender.finish();
        sent.assert_sound("sender");
        assert_eq!(sent.number("/balance/out"), PACKETS);
    }

    fn written(&self) -> u64 {
        std::fs::metadata(&self.out).map_or(0, |m| m.len())
    }

    /// Waits until all that was sent is through; fails unless each packet is, once, in order.
    fn finish(&self, run: Run, what: &str) -> Finished {
        let all = 24 + PACKETS * (16 + 64);
        wait_until(&format!("{what}: all packets"), PATIENCE, || self.written() >= all);
        run.signal(Signal::INT);
        let finished = run.finish();
        finished.assert_sound(what);
        let places = read_capture(&self.out, place);
        assert_in_order(&places, what);
        assert_eq!(places.len() as u64, PACKETS, "{what}");
        assert_eq!(finished.number("/balance/in"), PACKETS, "{what}: {:#}", finished.report);
        finished
    }
}

#[test]
fn a_service_that_receives_can_die_at_any_step_and_no_packet_is_lost_or_doubled() {
    if skipped("a_service_that_receives_can_die_at_any_step") {
        return;
    }
    let bench = Bench::new("live-death");
    for step in STEPS {
        let (fault, what) = (format!("rx:lan:{step}:5"), format!("step {step}"));
        let run = bench.start("MacSwap nf", &["--fault", &fault]);
        bench.send();
        let finished = bench.finish(run, &what);
        assert_eq!(finished.restarts()["rx:lan"], 1, "{what}");
    }
}

/// What a service that sends has given to the kernel when it dies has left, and may be counted as lost all the same, as nobody has written down
/// that it was sent; no other packet is, and none is sent twice.
#[test]
fn a_service_that_sends_can_die_at_any_step_and_loses_at_most_what_it_had_in_hand() {
    if skipped("a_service_that_sends_can_die_at_any_step") {
        return;
    }
    const SENT: u64 = 1000;
    let (scratch, wires) = (Scratch::new("live-death-tx"), Wires::new());
    let policy = scratch.policy("Port<0> lan;  Port<1> wan;  pipelet { lan -> wan; }");
    let out = scratch.file("out.pcap");
    let recorded = format!("pcap:tx={}", out.display());
    // By a wire to another machine; and to the machine's own stack, which hears on the same interface.
    for (device, space, hears) in
        [("afp:m1", &wires.recorder, "afp:e1"), ("tap:weir0", &wires.weir, "afp:weir0")]
    {
        for step in weir_mem::fault::Step::ALL {
            let (fault, what) =
                (format!("tx:wan:{}:3", step as u32), format!("{device}, {step:?}"));
            let tx = format!("1={device}");
            let args =
                ["--bind", "0=afp:m0", "--bind", &tx, "--restart-delay", "0", "--fault", &fault];
            let weir = wires.weir.command(env!("CARGO_BIN_EXE_weir"));
            let run = Run::start_by(weir, &policy, &args);
            run.wait_for_workers(2);
            let recorder = wires.end(space, &scratch, hears, &recorded);
            recorder.wait_for_workers(2);
            let before = Wires::dropped_between();
            let source = format!("gen:size=64,flows=1000000,rate=5000,packets={SENT}");
            wires.end(&wires.sender, &scratch, &source, "afp:e0").finish().assert_sound("sender");
            Wires::wait_until_delivered();
            run.signal(Signal::INT);
            let finished = run.finish();
            Wires::wait_until_delivered();
            recorder.signal(Signal::INT);
            recorder.finish().assert_sound("recorder");
            finished.assert_sound(&what);
            assert_eq!(finished.restarts()["tx:wan"], 1, "{what}");
            let places = read_capture(&out, place);
            assert_in_order(&places, &what);
            let n = |key: &str| finished.number(&format!("/balance/{key}"));
            let (came, on_the_way) = (places.len() as u64, Wires::dropped_between() - before);
            assert!(n("in") + on_the_way >= SENT && n("out") + n("lost") == n("in"), "{what}");
            assert!(n("lost") <= BATCH, "{what}: {} lost", n("lost"));
            assert!(
                came <= n("in") && n("out") <= came + on_the_way,
                "{what}: {came} came of {} that left, {} lost, {on_the_way} dropped between",
                n("out"),
                n("lost")
            );
        }
    }
}

/// A TAP interface has no ring that outlives who receives: what he has taken and not handed on goes with him, a batch at most; what waits in
/// the kernel's queue does not.
#[test]
fn a_service_that_receives_from_the_machines_own_stack_can_die_at_any_step_and_loses_a_batch_at_most()
 {
    if skipped("a_service_that_receives_from_the_machines_own_stack_can_die_at_any_step") {
        return;
    }
    const SENT: u64 = 1000;
    const RECORD: u64 = 16 + 64;
    let (scratch, wires) = (Scratch::new("live-death-tap"), Wires::new());
    let policy = scratch.policy("Port<0> lan;  Port<1> wan;  pipelet { lan -> wan; }");
    let out = scratch.file("out.pcap");
    let tx = format!("1=pcap:tx={}", out.display());
    for step in STEPS {
        let (fault, what) = (format!("rx:lan:{step}:5"), format!("step {step}"));
        let own = ["--bind", "0=tap:weir0", "--bind", &tx, "--ring", "64"];
        let weir = wires.weir.command(env!("CARGO_BIN_EXE_weir"));
        let more = ["--restart-delay", "0", "--fault", &fault];
        let run = Run::start_by(weir, &policy, &[&own[..], &more].concat());
        run.wait_for_workers(2);
        let send = |source: &str| {
            let sent = wires.end(&wires.weir, &scratch, source, "afp:weir0").finish();
            sent.assert_sound("sender");
        };
        send(&format!("gen:size=64,flows=1000000,rate=5000,packets={SENT}"));
        // A longer one behind all the others: when it is through, so are they.
        send("gen:size=128,packets=1");
        let written = || std::fs::metadata(&out).map_or(0, |m| m.len());
        let is_through = || written() > 24 && (written() - 24) % RECORD == 16 + 128 - RECORD;
        wait_until(&format!("{what}: the last packet"), PATIENCE, is_through);
        run.signal(Signal::INT);
        let finished = run.finish();
        finished.assert_sound(&what);
        assert_eq!(finished.restarts()["rx:lan"], 1, "{what}");
        let mut places = read_capture(&out, place);
        let last = places.pop();
        assert!(last.is_some(), "{what}");
        assert_in_order(&places, &what);
        let came = places.len() as u64;
        assert_eq!(finished.number("/balance/out"), came + 1, "{what}");
        assert!((SENT - BATCH..=SENT).contains(&came), "{what}: {came} of {SENT}");
    }
}

#[test]
fn what_waits_in_the_kernel_for_a_service_that_is_killed_waits_for_its_successor() {
    if skipped("what_waits_in_the_kernel_for_a_service_that_is_killed") {
        return;
    }
    let bench = Bench::new("live-death-waits");
    // It takes at most half of what comes in a second.
    let mut run = bench.start("Busy nf { cycles: 2000000 }", &[]);
    bench.send();
    for _ in 0..5 {
        let more = bench.written() + 50 * 80;
        wait_until("packets to pass", PATIENCE, || bench.written() > more);
        kill_process(run.workers()["rx:lan"], Signal::KILL).unwrap();
        run.wait_for_line("the successor", |l| l.contains("worker rx:lan runs again"));
    }
    bench.finish(run, "killed");
}
