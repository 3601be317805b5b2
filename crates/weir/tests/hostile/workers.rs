//! A hostile worker writes random bytes into everything that it may write: rings, indices,
//! watermarks, metadata, packet bytes, owner words, its record, its control socket, doorbells. It is
//! named and ended, its domain's buffers are audited, traffic goes on, and whoever is in another
//! domain notices nothing.
//!
//! `WEIR_HOSTILE_SECONDS` says for how long (10 unless given), `WEIR_SEED` with which seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One chain has the hostile NF in its middle; another has nothing to do with it.
const CHAINS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> left;  Port<3> right;
MacSwap before;  MacSwap hostile;  MacSwap after;
Busy calm { cycles: 30000 };  MacSwap also;
pipelet { lan -> before;  before -> hostile;  hostile -> after;  after -> wan; }
pipelet { left -> calm;  calm -> also;  also -> right; }";

/// Packets of the chain that must not notice.
const PACKETS: u64 = 150_000;

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|s| s.parse().unwrap())
}

/// What a round showed.
#[derive(Default)]
struct Seen {
    kills: u64,
    /// From the first strike of an incarnation until it was named.
    named: Vec<Duration>,
    what: BTreeMap<String, u64>,
    /// Packets that came out of the chain with the hostile NF.
    out: u64,
    /// Namings after which packets came out of that chain before the next.
    grown: u64,
    /// Most namings in a row after which none did.
    dry: u64,
}

/// Whether anything comes out of the chain with the hostile NF after it was named.
#[derive(Default)]
struct Growth {
    /// Its length at the last naming, until it has grown.
    mark: Option<u64>,
    dry: u64,
}

impl Growth {
    fn named(&mut self, len: u64, seen: &mut Seen) {
        if self.mark.replace(len).is_some() {
            self.dry += 1;
            seen.dry = seen.dry.max(self.dry);
        }
    }

    fn look(&mut self, len: u64, seen: &mut Seen) {
        if self.mark.is_some_and(|mark| len > mark) {
            (self.mark, self.dry) = (None, 0);
            seen.grown += 1;
        }
    }
}

/// Follows a run until `over`; then ends the input. `out` is how much came out of the chain with the
/// hostile NF.
fn follow(
    run: &mut Run,
    mut over: impl FnMut(&[String]) -> bool,
    out: impl Fn() -> u64,
    seen: &mut Seen,
) {
    let mut growth = Growth::default();
    let end = Instant::now() + PATIENCE;
    let mut struck = None;
    while !over(&run.said) {
        growth.look(out(), seen);
        assert!(Instant::now() < end, "it stands still:\n{}", run.said.join("\n"));
        while let Some((at, line)) = run.next_line(Duration::from_millis(20)) {
            if line.contains("hostile strikes") {
                struck.get_or_insert(at);
            } else if let Some(what) = line.strip_suffix(": killed") {
                let (_, what) = what.split_once("worker hostile ").unwrap_or_else(|| {
                    panic!("somebody else was named: {line}\n{}", run.said.join("\n"))
                });
                *seen.what.entry(what.to_owned()).or_default() += 1;
                seen.kills += 1;
                growth.look(out(), seen);
                growth.named(out(), seen);
                seen.named.extend(struck.take().map(|struck| at - struck));
            } else if line.contains(" died ") && line.contains("worker hostile ") {
                // It may have hurt itself before anybody else saw.
                struck = None;
            } else if line.contains(" died ") {
                panic!("somebody else died: {line}\n{}", run.said.join("\n"));
            }
        }
    }
    run.signal(Signal::INT);
}

/// One run. `apart`: the hostile NF is in a domain of its own, and the calm chain must not notice;
/// else it goes until the hostile one is not started again.
fn round(what: &str, seed: u64, apart: bool, more: &[&str], seen: &mut Seen) {
    let scratch = Scratch::new(&format!("hostile-{what}-{seed}"));
    let policy = scratch.policy(CHAINS);
    let (calm, calm_out) = (scratch.file("calm.pcap"), scratch.file("calm-out.pcap"));
    let wan = scratch.file("wan.pcap");
    write_capture(&calm, PACKETS);
    let binds = [
        "0=gen:size=64,flows=100,rate=50000".to_owned(),
        format!("1=pcap:tx={}", wan.display()),
        format!("2=pcap:rx={}", calm.display()),
        format!("3=pcap:tx={}", calm_out.display()),
    ];
    let attack = format!("hostile:{seed}");
    let mut args = vec!["--attack", &attack, "--restart-delay", "100"];
    args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
    args.extend(more);
    let mut run = Run::start(&policy, &args);
    let size = std::fs::metadata(&calm).unwrap().len();
    let all_out = || std::fs::metadata(&calm_out).is_ok_and(|m| m.len() >= size);
    let given_up = |said: &[String]| said.iter().any(|l| l.contains("is not started again"));
    let over = |said: &[String]| if apart { all_out() } else { given_up(said) };
    let out = || std::fs::metadata(&wan).map_or(0, |m| m.len());
    follow(&mut run, over, out, seen);
    let finished = run.finish();
    let show = || format!("{what} {seed}: {:#}\n{}", finished.report, finished.said.join("\n"));
    assert_eq!(finished.code, Some(0), "{}", show());
    assert_eq!(finished.report["sound"], true, "{}", show());
    let c = |key: &str| finished.number(&format!("/census/{key}"));
    let census = (c("free"), c("held"), c("in_lanes"), c("doubled"));
    assert_eq!(census, (c("buffers"), 0, 0, 0), "{}", show());
    for line in &finished.said {
        assert!(!line.contains("panicked") || line.contains("'hostile'"), "{}", show());
    }
    if apart {
        let numbers = read_capture(&calm_out, number);
        assert!(numbers.iter().copied().eq(0..PACKETS), "{}", show());
    }
    let nodes = finished.report["nodes"].as_array().unwrap();
    let out = nodes.iter().find(|n| n["name"] == "tx:wan").unwrap();
    seen.out += out["packets"].as_u64().unwrap();
}

fn rounds(what: &str, apart: bool, more: &[&str]) {
    let seconds = number_from("WEIR_HOSTILE_SECONDS").unwrap_or(10);
    let start = number_from("WEIR_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds / 2);
    let mut seen = Seen::default();
    for seed in 0.. {
        round(what, (start + seed) << 16, apart, more, &mut seen);
        if Instant::now() > end {
            break;
        }
    }
    let slowest = seen.named.iter().max().copied().unwrap_or_default();
    seen.named.sort();
    let median = seen.named.get(seen.named.len() / 2).copied().unwrap_or_default();
    println!(
        "{what}: {} times named (median {median:.1?}, slowest {slowest:.1?}), {} packets out: {:#?}",
        seen.kills, seen.out, seen.what
    );
    assert!(seen.kills > 0 && seen.out > 0, "nobody was named, or nothing went through");
    // It may be named again before its first batch; not always.
    println!("packets after {} namings, {} in a row without", seen.grown, seen.dry);
    assert!(seen.grown > 0 && seen.dry < 5, "nothing goes through between namings");
    assert!(median < Duration::from_secs(1), "half of the time named only after {median:?}");
    // A second is what it takes; ten are for machines that stand still now and then.
    assert!(slowest < Duration::from_secs(10), "named only after {slowest:?}");
}

#[test]
fn a_hostile_nf_in_a_domain_of_its_own_harms_nobody_outside() {
    rounds("own domain", true, &["--domain", "hostile=theirs", "--offences", "1000000"]);
}

#[test]
fn a_hostile_nf_in_the_graphs_own_domain_is_named_and_traffic_goes_on() {
    rounds("graph's domain", false, &["--offences", "4"]);
}

#[test]
fn who_is_named_again_and_again_is_replaced_by_a_drain() {
    let mut seen = Seen::default();
    round("drain", 77, true, &["--domain", "hostile=theirs", "--offences", "2"], &mut seen);
    assert!(seen.kills <= 2, "{} times named", seen.kills);
}

/// Packets part and meet again; one way is the hostile NF's.
const FORK: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  MacSwap hostile;  MacSwap quick;  MacSwap join;
pipelet {
  lan -> head;
  head [udp dst portrange 6000-6003] -> hostile;  head [!(udp dst portrange 6000-6003)] -> quick;
  hostile -> join;  quick -> join;  join -> wan;
}";

#[test]
fn a_domain_that_neither_takes_nor_gives_holds_up_nobody_for_long() {
    let scratch = Scratch::new("hostile-idle");
    let policy = scratch.policy(FORK);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 400_000);
    let rx = format!("0=pcap:rx={}", input.display());
    let tx = format!("1=pcap:tx={}", out.display());
    let args = ["--bind", &rx, "--bind", &tx, "--domain", "hostile=theirs"];
    let mut run = Run::start(&policy, &[&args[..], &["--attack", "hostile:0"]].concat());
    run.wait_for_line("the strike", |line| line.contains("hostile strikes"));
    // As much as only goes by when nobody waits for the hostile one: more than all rings hold.
    let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
    for _ in 0..3 {
        let more = grown() + 20_000 * RECORD;
        wait_until("packets to go by", PATIENCE, || grown() > more);
    }
}

/// A worker in the graph's own domain, where everybody waits for it, does what the agent commands and no
/// more.
fn pretends(what: &str, policy: &str, source: &str, wants: &str) {
    let scratch = Scratch::new(&format!("hostile-pretends-{what}"));
    let policy = scratch.policy(policy);
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    write_capture(&input, 400_000);
    let rx = format!("0={}", source.replace("CAPTURE", input.to_str().unwrap()));
    let tx = format!("1=pcap:tx={}", out.display());
    let args = ["--bind", &rx, "--bind", &tx, "--restart-delay", "0"];
    let mut run = Run::start(&policy, &[&args[..], &["--attack", "hostile:1"]].concat());
    let grown = || std::fs::metadata(&out).map_or(0, |m| m.len());
    let named = format!("worker hostile {wants}: killed");
    for _ in 0..2 {
        run.wait_for_line("the naming", |line| line.contains(&named));
        let before = grown();
        run.wait_for_line("its successor", |line| line.contains("worker hostile runs again"));
        wait_until("packets to go by", PATIENCE, || grown() > before);
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound(what);
    let others = finished.restarts().into_iter().filter(|(name, n)| name != "hostile" && *n > 0);
    assert_eq!(others.count(), 0, "{:?}", finished.said);
}

#[test]
fn who_answers_and_takes_nothing_is_ended_and_traffic_goes_on() {
    pretends("takes", FORK, "pcap:rx=CAPTURE", "answers and takes nothing");
}

/// The same, but the hostile NF's way is one on which packets are made.
const MAKES: &str = "
Port<0> lan;  Port<1> wan;
MacSwap head;  Tee hostile;  MacSwap quick;  MacSwap join;
pipelet {
  lan -> head;
  head [udp dst portrange 6000-6003] -> hostile;  head [!(udp dst portrange 6000-6003)] -> quick;
  hostile [hostile.out] -> join;  hostile [hostile.copy] -> Drop;  quick -> join;  join -> wan;
}";

#[test]
fn who_makes_packets_answers_and_takes_nothing_is_ended_and_traffic_goes_on() {
    pretends("makes", MAKES, "pcap:rx=CAPTURE", "answers and takes nothing");
}

#[test]
fn who_hangs_again_after_each_restart_is_replaced_by_a_drain() {
    let scratch = Scratch::new("hostile-hangs-again");
    let policy = scratch.policy(FORK);
    let input = scratch.file("in.pcap");
    write_capture(&input, 400_000);
    let rx = format!("0=pcap:rx={}", input.display());
    let args = ["--bind", &rx, "--bind", "1=null", "--offences", "2", "--restart-delay", "0"];
    let run = Run::start(&policy, &[&args[..], &["--attack", "hostile:1"]].concat());
    // It ends: what was for the hostile one waits for it no more.
    let finished = run.finish();
    finished.assert_sound("hangs again");
    let said = |text: &str| finished.said.iter().filter(|l| l.contains(text)).count();
    assert_eq!(said("worker hostile answers and takes nothing: killed"), 2);
    assert_eq!(said("worker hostile is not started again: what comes for it is dropped"), 1);
    assert_eq!(finished.restarts()["hostile"], 2, "{:?}", finished.said);
}

#[test]
fn who_answers_and_says_nothing_of_how_far_it_has_come_is_ended_and_traffic_goes_on() {
    // None of these packets goes its way; those on the other must know that none comes.
    pretends("promises", FORK, "gen:size=64,flows=8,rate=20000", "answers and promises nothing");
}

/// The hostile NF has several lanes from those before it and two to the merge behind it.
const MERGES: &str = "
Port<0> lan;  Port<1> wan;
MacSwap before;  CheckIpHeader hostile;  MacSwap after;
pipelet {
  lan -> before;  before -> hostile;
  hostile [hostile.ip] -> after;  hostile [hostile.non_ip] -> after;  after -> wan;
}";

#[test]
fn a_hostile_nf_between_merges_makes_nobody_wait_for_what_cannot_come() {
    let start = number_from("WEIR_SEED").unwrap_or(7000);
    let mut kills = 0;
    for seed in start..start + number_from("WEIR_HOSTILE_RUNS").unwrap_or(4) {
        let scratch = Scratch::new(&format!("hostile-merges-{seed}"));
        let policy = scratch.policy(MERGES);
        let attack = format!("hostile:{seed}");
        let rx = "0=gen:size=64,flows=200,rate=20000,packets=15000";
        let mut args = vec!["--bind", rx, "--bind", "1=null", "--ring", "64", "--attack", &attack];
        args.extend(["--instances", "before=2"]);
        if seed % 2 == 1 {
            args.extend(["--instances", "after=2"]);
        }
        // It ends by itself, or whoever waits for that says that it does not.
        let finished = Run::start(&policy, &args).finish();
        let show = || format!("{seed}: {:#}\n{}", finished.report, finished.said.join("\n"));
        assert_eq!(
            (finished.code, &finished.report["sound"]),
            (Some(0), &true.into()),
            "{}",
            show()
        );
        let killed = finished.said.iter().filter_map(|line| line.strip_suffix(": killed"));
        for line in killed {
            assert!(line.contains("worker hostile "), "somebody else was named: {}", show());
            kills += 1;
        }
    }
    assert!(kills > 0, "nobody was named");
}

/// A neighbour whose 64 batches take longer than anybody waits for a worker to come to rest.
const SLOW: &str = "
Port<0> lan;  Port<1> wan;  Port<2> left;  Port<3> right;
MacSwap hostile;  Busy slow { cycles: 4000000 };
pipelet { lan -> hostile;  hostile -> wan; }
pipelet { left -> slow;  slow -> right; }";

#[test]
fn an_audit_waits_for_one_batch_of_a_slow_neighbour_and_does_not_end_it() {
    let scratch = Scratch::new("hostile-slow");
    let policy = scratch.policy(SLOW);
    let binds = ["0=gen:size=64,rate=20000", "1=null", "2=gen:size=64", "3=null"];
    let mut args = vec!["--attack", "hostile:7", "--offences", "2", "--ring", "64"];
    args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
    let mut run = Run::start(&policy, &args);
    run.wait_for_line("the drain", |line| line.contains("is not started again"));
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.said);
    let named = finished.said.iter().filter(|l| l.contains("killed") && !l.contains("hostile"));
    assert_eq!(named.count(), 0, "{:?}", finished.said);
    assert_eq!(finished.restarts()["slow"], 0);
}

#[test]
fn an_audit_ends_a_neighbour_that_sleeps_in_a_batch_without_taking_it_for_the_offender() {
    let scratch = Scratch::new("hostile-asleep");
    let policy = scratch.policy(SLOW);
    let binds = ["0=gen:size=64,rate=20000", "1=null", "2=gen:size=64,rate=100", "3=null"];
    // Without the patience that would end it sooner.
    let mut args = vec!["--attack", "hostile:7", "--offences", "1000000", "--patience", "0"];
    args.extend(["--attack", "slow:0"]);
    args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
    let mut run = Run::start(&policy, &args);
    run.wait_for_line("its end", |line| {
        line.contains("worker slow waits for something other than packets: killed")
    });
    run.wait_for_line("its successor", |line| line.contains("worker slow runs again"));
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.said);
    let offences = finished.report["workers"].as_array().unwrap().iter();
    let named = offences.filter(|w| w["name"] != "hostile" && w["offences"] != 0);
    assert_eq!(named.count(), 0, "{:#}", finished.report);
}

#[test]
fn an_audit_ends_a_stopped_neighbour_without_taking_it_for_the_offender() {
    let scratch = Scratch::new("hostile-stopped");
    let policy = scratch.policy(SLOW);
    let out = scratch.file("right.pcap");
    let right = format!("3=pcap:tx={}", out.display());
    let binds = ["0=gen:size=64,rate=20000", "1=null", "2=gen:size=64,rate=100", &right];
    // Without the patience that would end it sooner.
    let mut args = vec!["--attack", "hostile:7", "--offences", "1000000", "--patience", "0"];
    args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
    let mut run = Run::start(&policy, &args);
    let slow = run.wait_for_workers(6)["slow"];
    // Who passes packets on is ready; who is not ready yet is not waited for.
    let some = || std::fs::metadata(&out).is_ok_and(|file| file.len() > 200);
    wait_until("packets from the slow one", PATIENCE, some);
    kill_process(slow, Signal::STOP).unwrap();
    run.wait_for_line("its end", |line| line.contains("worker slow was stopped: killed"));
    run.wait_for_line("its successor", |line| line.contains("worker slow runs again"));
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.said);
    let offences = finished.report["workers"].as_array().unwrap().iter();
    let named = offences.filter(|w| w["name"] != "hostile" && w["offences"] != 0);
    assert_eq!(named.count(), 0, "{:#}", finished.report);
}

#[test]
fn what_is_dropped_for_an_nf_behind_a_parallel_stage_is_not_counted_at_the_stages_branches() {
    let scratch = Scratch::new("hostile-behind");
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  PacketSizeHistogram one;  CountSubnet two;  MacSwap behind;
pipelet { lan -> one -> two -> behind -> wan; }",
    );
    let mut args = vec!["--bind", "0=gen:size=64,rate=20000", "--bind", "1=null"];
    args.extend(["--parallel", "always", "--attack", "behind:7", "--offences", "1"]);
    let mut run = Run::start(&policy, &args);
    run.wait_for_line("the drain", |line| line.contains("is not started again"));
    // The drain is there, and takes what comes.
    run.wait_for_line("the drain's process", |line| line.contains("worker behind runs again"));
    while run.next_line(Duration::from_millis(300)).is_some() {}
    run.signal(Signal::INT);
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.said);
    let quarantined = |name: &str| {
        let nodes = finished.report["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|n| n["name"] == name).unwrap();
        node["drops"]["quarantined"].as_u64().unwrap_or(0)
    };
    let all = ["one", "two", "behind"].map(quarantined);
    assert!(all[..2] == [0, 0] && all[2] > 0, "{all:?}");
}

#[test]
fn who_keeps_a_cycle_from_its_end_by_what_its_record_says_is_named() {
    let scratch = Scratch::new("hostile-lies");
    let policy = scratch.policy(
        "Port<0> a;  Port<1> b;  MacSwap x;  TtlDecrement y;  default drop;
pipelet { a -> x;  x -> y;  y [y.out && ip[8] > 60] -> x;  y [y.out && ip[8] <= 60] -> b; }",
    );
    // Few at a time, as it lies only after some steps of work.
    let rx = "0=gen:size=64,flows=16,rate=4000,packets=8000";
    let args = ["--bind", rx, "--bind", "1=null", "--ring", "8192", "--attack", "x:2"];
    let mut run = Run::start(&policy, &args);
    let (_, line) = run.wait_for_line("a name", |l| l.contains("keeps a run from its end"));
    assert!(line.contains("worker x "), "{line}");
    let finished = run.finish();
    assert_eq!(finished.code, Some(0), "{:#}", finished.report);
    assert_eq!(finished.number("/balance/out"), 8000, "{:#}", finished.report);
}
