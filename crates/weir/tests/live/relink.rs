//! A graph on interfaces of the kernel that is relinked while packets come: none is missed, none comes twice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;
use std::process::Stdio;

/// Echo requests, each with its number, by a chain of two.
const CHAIN: &str =
    "Port<0> lan;  Port<1> wan;  PacketSizeHistogram there;  PacketSizeHistogram back;
pipelet { lan -> there -> wan;  wan -> back -> lan; }";
const COUNT: &str = "2000";

#[test]
fn no_packet_of_an_interface_is_missed_or_comes_twice_while_the_graph_is_relinked() {
    if skipped("no_packet_of_an_interface_is_missed_or_comes_twice") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-relink"), Network::new());
    let policy = scratch.policy(CHAIN);
    let options = scratch.file("options");
    std::fs::write(&options, "").unwrap();
    // Whoever runs the tests may have ignored hang-ups.
    let mut weir = net.weir.command("env");
    weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
    let devices = ["--bind", "0=afp:m0", "--bind", "1=afp:m1"];
    let args = [&devices[..], &["--options", options.to_str().unwrap()]].concat();
    let mut run = Run::start_by(weir, &policy, &args);
    net.wait_for_ping();
    let mut ping = net.client.command("ping");
    ping.args(["-q", "-n", "-i", "0.002", "-W", "5", "-c", COUNT, SERVER]);
    let mut ping = ping.stdout(Stdio::piped()).spawn().unwrap();
    let mut relinked = 0;
    while ping.try_wait().unwrap().is_none() {
        let how = if relinked % 2 == 0 { "--isolate none" } else { "--isolate each" };
        std::fs::write(&options, how).unwrap();
        run.signal(Signal::HUP);
        let (_, line) = run.wait_for_line("a word on the relink", |l| l.contains("relinked"));
        assert!(line.contains(": relinked in ") && line.contains(": 0 packets missed"), "{line}");
        relinked += 1;
    }
    let said = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains(&format!("{COUNT} packets transmitted, {COUNT} received")), "{said}");
    assert!(!said.contains("duplicates"), "{said}");
    assert!(relinked > 1, "only {relinked} relinks");
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("relinked");
    assert_eq!(finished.report["relinks"].as_array().unwrap().len(), relinked);
}
