//! `--dump-drops`: what is dropped is written down, with the reason.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::{BATCH, Run, number, read_capture, wait_until, write_capture};
use crate::common_oracle::drops::{discarded, dumped};
use crate::common_oracle::{Scratch, assert_sound, demo_capture, demo_rx, oracle, root, tx, weir};
use rustix::process::{Signal, kill_process};
use std::path::Path;
use weir_oracle::read_capture as read_input;

/// Drops by all that can: rules, an edge to `Drop`, what no edge takes, an NF that only drops; and
/// copies, so that more is dropped than comes in.
const MANY: &str = "
Port<0> lan;  Port<1> wan;
L3L4Filter fw { default: \"drop\", rules: [{ action: \"pass\", proto: \"tcp\" }] };
MacSwap swap;  Tee tee;  Drop sink;
pipelet {
  lan [!(arp)] -> tee;
  tee [tee.out] -> fw;  tee [tee.copy] -> swap;
  fw -> swap;
  swap [src port 80] -> wan;
  swap [dst port 80] -> Drop;
  swap [udp] -> sink;
}
first match; default drop;";

#[test]
fn what_is_dropped_is_in_the_file_with_its_reason_and_who_dropped_it() {
    let chain = std::fs::read_to_string(root().join("demo/chain.weir")).unwrap();
    let (packets, _) = read_input(&demo_capture(), 0).unwrap();
    for (name, text) in [("chain", chain.as_str()), ("many", MANY)] {
        let expected = oracle(text, &[0, 1], &packets);
        let want = discarded(&expected, |_| true);
        assert!(want.values().sum::<u64>() > 50, "{name}");
        for isolate in ["each", "none"] {
            let what = format!("{name} {isolate}");
            let scratch = Scratch::new();
            let policy = scratch.write("policy.weir", text);
            let file = scratch.write("drops.pcapng", "written over");
            let (rx, tx) = (demo_rx(), tx(&scratch.file("out.pcap")));
            let args = ["run", &policy, "--bind", &rx, "--bind", &tx, "--isolate", isolate];
            let more = ["--json", "-q", "--ring", "64", "--dump-drops", &file];
            let ended = weir(&[&args[..], &more].concat());
            assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
            let report = ended.json();
            assert_sound(&what, &report);
            assert_eq!(report["balance"]["dropped"], expected.dropped(), "{what}");
            let got = dumped(Path::new(&file));
            assert!(got == want, "{what}: {} kinds instead of {}", got.len(), want.len());
        }
    }
}

#[test]
fn each_trust_domain_has_a_file_of_its_own() {
    let (packets, _) = read_input(&demo_capture(), 0).unwrap();
    let expected = oracle(MANY, &[0, 1], &packets);
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", MANY);
    let file = scratch.file("drops.pcapng");
    let (rx, tx, name) = (demo_rx(), tx(&scratch.file("out.pcap")), file.to_str().unwrap());
    let args = ["run", &policy, "--bind", &rx, "--bind", &tx, "--domain", "fw=guest"];
    let ended = weir(&[&args[..], &["--json", "-q", "--dump-drops", name]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_sound("domains", &ended.json());
    assert!(dumped(&file) == discarded(&expected, |by| by != "fw"));
    let guest = scratch.file("drops.guest.pcapng");
    let want = discarded(&expected, |by| by == "fw");
    assert!(!want.is_empty() && dumped(&guest) == want);
}

#[test]
fn the_worker_that_writes_drops_can_be_killed_at_any_time() {
    const PACKETS: u64 = 400_000;
    const KILLS: u64 = 5;
    let scratch = crate::common_crash::Scratch::new("dump");
    let input = scratch.file("in.pcap");
    write_capture(&input, PACKETS);
    // About half.
    let policy = scratch.policy(
        "Port<0> lan;  Port<1> wan;  MacSwap a;
        pipelet { lan -> a;  a [dst portrange 6000-6003] -> Drop;
            a [!(dst portrange 6000-6003)] -> wan; }",
    );
    let file = scratch.file("drops.pcapng");
    let rx = format!("0=pcap:rx={}", input.display());
    let args = ["--bind", &rx, "--bind", "1=null", "--dump-drops", file.to_str().unwrap()];
    let mut run = Run::start(&policy, &args);
    let workers = run.wait_for_workers(4);
    let name = workers.keys().find(|n| n.starts_with("dump:")).unwrap().clone();
    let size = || std::fs::metadata(&file).map_or(0, |m| m.len());
    for _ in 0..KILLS {
        let before = size();
        wait_until("more drops", crate::common_crash::PATIENCE, || size() != before);
        kill_process(run.workers()[&name], Signal::KILL).unwrap();
        run.wait_for_line("its successor", |line| line.contains("runs again"));
    }
    let finished = run.finish();
    finished.assert_sound("killed");
    assert_eq!(finished.restarts()[&name], KILLS);
    let lost = finished.number("/balance/lost");
    assert_eq!(lost, 0, "counted as dropped already");
    let dropped = finished.number("/balance/dropped");
    let mut numbers = read_capture(&file, number);
    let written = numbers.len() as u64;
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, written, "written twice");
    assert!(written <= dropped && written + KILLS * BATCH >= dropped, "{written} of {dropped}");
}

#[test]
fn the_file_of_drops_must_be_none_that_the_run_uses() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", crate::common_oracle::FORWARD);
    let input = scratch.write("in.pcap", std::fs::read(demo_capture()).unwrap());
    let out = scratch.file("out.pcap");
    let fifo = scratch.file("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let (rx, tx) = (format!("0=pcap:rx={input}"), tx(&out));
    let files = [(input.as_str(), "something else"), (&policy, "something else")];
    let files = files.into_iter().chain([
        (out.to_str().unwrap(), "something else"),
        (fifo.to_str().unwrap(), "a pipe"),
        ("no/such/folder/drops.pcapng", "folder"),
    ]);
    for (file, says) in files {
        let before = std::fs::read(&policy).unwrap();
        let ended = weir(&["run", &policy, "--bind", &rx, "--bind", &tx, "--dump-drops", file]);
        assert_eq!(ended.code, Some(2), "{file}: {ended:?}");
        assert!(ended.stderr.contains(says), "{file}: {}", ended.stderr);
        assert_eq!(std::fs::read(&policy).unwrap(), before);
    }
}
