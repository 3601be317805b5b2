//! Workers that say more than anybody can read, and an operator who does not read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What nobody waits for takes less, on a busy machine too.
const AT_ONCE: Duration = Duration::from_secs(1);

/// One NF that shouts at every packet, and one of another domain that passes packets on to `out`.
struct Neighbours {
    policy: PathBuf,
    out: PathBuf,
    args: Vec<String>,
}

impl Neighbours {
    fn new(scratch: &Scratch) -> Self {
        let policy = scratch.policy(
            "Port<0> lan;  Port<1> wan;  Port<2> lan2;  Port<3> wan2;
             MacSwap good;  Attack loud { what: \"shout\" };
             pipelet { lan -> good;  good -> wan;  lan2 -> loud;  loud -> wan2; }",
        );
        let out = scratch.file("out.pcap");
        let binds = [
            "0=gen:rate=20000",
            &format!("1=pcap:tx={}", out.display()),
            "2=gen:rate=20000",
            "3=null",
        ];
        let binds = binds.iter().flat_map(|bind| ["--bind", bind]).map(str::to_owned);
        let program = crate::common_outside::hostile("hostile-nf").display().to_string();
        let apart = ["--with", &program, "--domain", "loud=other"].map(str::to_owned);
        let args = binds.chain(apart).collect();
        Neighbours { policy, out, args }
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }
}

fn written(out: &Path) -> u64 {
    std::fs::metadata(out).map_or(0, |file| file.len())
}

fn wait_for_packets(out: &Path, patience: Duration) {
    let more = written(out) + 1_000;
    wait_until("packets to flow", patience, || written(out) > more);
}

#[test]
fn a_worker_that_shouts_endlessly_is_cut_off_and_what_is_left_out_is_counted() {
    let scratch = Scratch::new("words-shout");
    let all = Neighbours::new(&scratch);
    let mut run = Run::start(&all.policy, &all.args());
    let (_, line) = run.wait_for_line("a word", |line| line.contains("LOUD"));
    let loud = "LOUD".repeat(25);
    assert_eq!(line, format!("weir: worker loud says: \\u001b[2J{loud}"));
    let cut = "weir: worker loud says more than anybody is to read: ";
    let (_, line) = run.wait_for_line("the count", |line| line.starts_with(cut));
    let count = line.strip_prefix(cut).unwrap().split(' ').next().unwrap();
    assert!(count.parse::<u64>().unwrap() > 0, "{line}");
    // It goes on as before, and so does everybody else.
    wait_for_packets(&all.out, PATIENCE);
    kill_process(run.workers()["good"], Signal::KILL).unwrap();
    let died = |line: &str| line.contains("worker good died");
    let (noticed, _) = run.wait_for_line("the death", died);
    let again = |line: &str| line.contains("worker good runs again after ");
    let (back, line) = run.wait_for_line("the successor", again);
    assert!(back - noticed < AT_ONCE, "{line}");
    run.signal(Signal::INT);
    let began = run.started;
    let finished = run.finish();
    finished.assert_sound("one that shouts");
    assert_eq!(finished.restarts()["loud"], 0, "{:?}", finished.said);
    let said: usize =
        finished.said.iter().filter(|line| line.contains("LOUD")).map(String::len).sum();
    let most = (64 << 10) + began.elapsed().as_secs() as usize * (1 << 10) + 1024;
    assert!(said < most, "{said} bytes instead of {most}");
}

#[test]
fn an_operator_who_does_not_read_keeps_no_worker_from_being_mended() {
    let scratch = Scratch::new("words-unheard");
    let all = Neighbours::new(&scratch);
    let (run, unread) = Run::start_unheard(&all.policy, &all.args());
    wait_until("the first packets", PATIENCE, || written(&all.out) > 1_000);
    for name in ["good", "loud", "good"] {
        let killed = run.workers()[name];
        let at = Instant::now();
        kill_process(killed, Signal::KILL).unwrap();
        let successor = || run.workers().get(name).is_some_and(|pid| *pid != killed);
        wait_until("a successor", AT_ONCE, successor);
        wait_for_packets(&all.out, AT_ONCE.saturating_sub(at.elapsed()) + AT_ONCE / 2);
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("unheard");
    assert_eq!(finished.restarts()["good"], 2);
    drop(unread);
}
