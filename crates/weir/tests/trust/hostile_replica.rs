//! A hostile worker writes random bytes into the replica of what its NF remembers, and dies. Its successor reads that, and nobody
//! else does: it refuses what cannot be, goes on, and turns hostile itself.
//!
//! `WEIR_HOSTILE_SECONDS` says for how long (10 unless given), `WEIR_SEED` with which seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use rustix::process::{Pid, Signal};
use std::time::{Duration, Instant};

/// One chain has the NF that is replicated, in a domain of its own; another has nothing to do with it.
const CHAINS: &str = "
Port<0> lan;  Port<1> wan;  Port<2> left;  Port<3> right;
FlowMonitor mon { top: 100 };  MacSwap after;  Busy calm { cycles: 30000 };  MacSwap also;
pipelet { lan -> mon;  mon -> after;  after -> wan; }
pipelet { left -> calm;  calm -> also;  also -> right; }";

/// Packets of the chain that must not notice.
const PACKETS: u64 = 100_000;
/// First seed of those that spoil what their successors take over.
const REPLICA: u64 = 3 << 32;
/// Successors that have read what was spoiled.
const READERS: usize = 3;

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|s| s.parse().unwrap())
}

/// Whether a process has a replica mapped or open.
fn has_replica(pid: Pid) -> bool {
    let maps = std::fs::read_to_string(proc(pid, "maps")).unwrap_or_default();
    let open = std::fs::read_dir(proc(pid, "fd")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    maps.contains("/replica") || open.any(|link| link.to_string_lossy().contains("/replica"))
}

fn round(seed: u64) -> usize {
    let what = format!("replica {seed}");
    let scratch = Scratch::new(&format!("hostile-replica-{seed}"));
    let policy = scratch.policy(CHAINS);
    let (calm, calm_out) = (scratch.file("calm.pcap"), scratch.file("calm-out.pcap"));
    let wan = scratch.file("wan.pcap");
    write_capture(&calm, PACKETS);
    let binds = [
        "0=gen:size=64,flows=400,rate=20000".to_owned(),
        format!("1=pcap:tx={}", wan.display()),
        format!("2=pcap:rx={}", calm.display()),
        format!("3=pcap:tx={}", calm_out.display()),
    ];
    let attack = format!("mon:{}", REPLICA + (seed << 16));
    let mut args = vec!["--replicate", "mon=batch", "--domain", "mon=theirs", "--attack", &attack];
    args.extend(["--restart-delay", "0", "--offences", "1000000"]);
    args.extend(binds.iter().flat_map(|bind| ["--bind", bind]));
    let mut run = Run::start(&policy, &args);
    let show = |run: &Run| run.said.join("\n");
    let workers = run.wait_for_workers(10);
    // It dies again and again: of its own only what it has while it lives can be seen.
    let others = || workers.iter().filter(|(name, _)| *name != "mon");
    for (name, pid) in others() {
        assert!(!has_replica(*pid), "{name} can read what mon remembers");
    }
    let len = |path| std::fs::metadata(path).map_or(0, |m| m.len());
    for _ in 0..READERS {
        run.wait_for_line("what was refused", |line| {
            line.contains("records of the replica are refused")
        });
        let before = len(&wan);
        let deadline = Instant::now() + PATIENCE;
        while len(&wan) <= before {
            assert!(Instant::now() < deadline, "{what}: it stands still:\n{}", show(&run));
            while run.next_line(Duration::from_millis(5)).is_some() {}
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while len(&calm_out) < len(&calm) {
        assert!(Instant::now() < deadline, "{what}: it stands still:\n{}", show(&run));
        while run.next_line(Duration::from_millis(5)).is_some() {}
    }
    for (name, pid) in others() {
        assert!(!has_replica(*pid), "{name} can read what mon remembers");
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    let show = || format!("{what}: {:#}\n{}", finished.report, finished.said.join("\n"));
    assert_eq!((finished.code, &finished.report["sound"]), (Some(0), &true.into()), "{}", show());
    let c = |key: &str| finished.number(&format!("/census/{key}"));
    let census = (c("free"), c("held"), c("in_lanes"), c("doubled"));
    assert_eq!(census, (c("buffers"), 0, 0, 0), "{}", show());
    let numbers = read_capture(&calm_out, number);
    assert!(numbers.iter().copied().eq(0..PACKETS), "{}", show());
    for line in &finished.said {
        assert!(!line.contains("panicked") && !line.contains("was not ready"), "{}", show());
    }
    let restarts = finished.restarts();
    for (name, n) in &restarts {
        assert!(name == "mon" || *n == 0, "{name}: {}", show());
    }
    println!("{what}: {} deaths", restarts["mon"]);
    restarts["mon"] as usize
}

#[test]
fn what_a_hostile_worker_writes_into_its_replica_its_successor_alone_reads_and_nobody_is_harmed() {
    let half = Duration::from_secs(number_from("WEIR_HOSTILE_SECONDS").unwrap_or(10) / 2);
    let (end, start) = (Instant::now() + half, number_from("WEIR_SEED").unwrap_or(1));
    for seed in start.. {
        assert!(round(seed) >= READERS, "too few have died");
        if Instant::now() > end {
            break;
        }
    }
}
