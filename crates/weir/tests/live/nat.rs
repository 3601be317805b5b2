//! A firewall that follows connections and a translator of addresses behind it, between real hosts:
//! nginx <- Napt <- ConnTrack <- curl.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Stdio};

/// Downloads at the same time, by so many clients.
const DOWNLOADS: usize = 1000;
const CURLS: usize = 4;

/// The client's own addresses, and the one that its packets have outside.
const INNER: &str = "10.0.0.5";
const OUTER: &str = "192.0.2.100";

/// The policy, as operators have it.
const POLICY: &str = include_str!("../../../../examples/live/nat-gateway.weir");

/// The network with the client inside. Both sides know each other's hardware addresses: nobody answers for the outer address.
fn network() -> Network {
    let net = Network::new();
    let mac = |ns: &Namespace, interface: &str| {
        let output = ns.exec("cat", &[&format!("/sys/class/net/{interface}/address")]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    net.client.ip("-4 addr flush dev c0");
    net.client.ip(&format!("addr add {INNER}/8 dev c0"));
    net.client.ip("route add 192.0.2.0/24 dev c0");
    net.client.ip(&format!("neigh replace {SERVER} lladdr {} dev c0", mac(&net.server, "s0")));
    net.server.ip(&format!("neigh replace {OUTER} lladdr {} dev s0", mac(&net.client, "c0")));
    net
}

/// Downloads the small page so often, all at the same time; the clients.
fn download(net: &Network, scratch: &Scratch, host: &str, count: usize) -> Vec<Child> {
    let of_each = count / CURLS;
    let start = |curl: usize| {
        let dir = scratch.file(&format!("got{curl}"));
        std::fs::create_dir_all(&dir).unwrap();
        let (to, url) = (dir.join("#1"), format!("http://{host}/small?n=[1-{of_each}]"));
        let mut command = net.client.command("curl");
        command.args(["-sS", "--fail", "--max-time", "60", "--parallel", "--parallel-immediate"]);
        command.args(["--parallel-max", &of_each.to_string(), "-o", to.to_str().unwrap(), &url]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..CURLS).map(start).collect()
}

/// Fails unless all downloads succeeded, byte for byte.
fn assert_downloaded(scratch: &Scratch, curls: Vec<Child>, page: &[u8], count: usize) {
    for curl in curls {
        let output = curl.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {said}", output.status);
    }
    for curl in 0..CURLS {
        for n in 1..=count / CURLS {
            let file = scratch.file(&format!("got{curl}")).join(n.to_string());
            let got = std::fs::read(&file).unwrap_or_default();
            assert!(got == page, "{}: {} bytes", file.display(), got.len());
        }
        std::fs::remove_dir_all(scratch.file(&format!("got{curl}"))).unwrap();
    }
}

/// Fails when a connection was reset, as either end counts.
fn assert_no_resets(net: &Network) {
    for end in [&net.client, &net.server] {
        assert_eq!(end.counter("Tcp", "EstabResets"), 0, "in {}", end.name());
    }
}

fn node<'r>(report: &'r Value, name: &str) -> &'r Value {
    report["nodes"].as_array().unwrap().iter().find(|n| n["name"] == name).unwrap()
}

#[test]
fn a_thousand_downloads_at_a_time_pass_translated_and_followed_and_so_do_iperf_and_traceroute() {
    if skipped("a_thousand_downloads_at_a_time_pass_translated_and_followed") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-nat"), network());
    let (_nginx, page) = net.web_server(&scratch);
    // A host behind the server, for errors on the way.
    let far = Namespace::new("f");
    let (s, f) = (net.server.name(), far.name());
    must("ip", &format!("link add s1 netns {s} type veth peer name f0 netns {f}"));
    net.server.ip("link set s1 up");
    far.ip("link set f0 up");
    net.server.ip("addr add 203.0.113.1/24 dev s1");
    far.ip("addr add 203.0.113.2/24 dev f0");
    far.ip("route add default via 203.0.113.1");
    net.server.exec("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
    net.client.ip(&format!("route add 203.0.113.0/24 via {SERVER} dev c0 onlink"));

    let run = net.run_between(&scratch.policy(POLICY));
    let curls = download(&net, &scratch, SERVER, DOWNLOADS);
    assert_downloaded(&scratch, curls, &page[..SMALL], DOWNLOADS);
    // IPv6 is followed, and not translated.
    assert!(net.client.ping(SERVER6), "ping over IPv6");
    let curls = download(&net, &scratch, "[fd00::2]", DOWNLOADS / 10);
    assert_downloaded(&scratch, curls, &page[..SMALL], DOWNLOADS / 10);
    // iperf3 itself ends some of its connections by a reset.
    assert_no_resets(&net);
    for (host, family) in [(SERVER, "-4"), (SERVER6, "-6")] {
        let _iperf = net.server.spawn("iperf3", &["-s", family]);
        let moved = || {
            let args = ["-c", host, "-t", "1", "-P", "4", "-J"];
            let output = net.client.exec("iperf3", &args);
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            report.pointer("/end/sum_received/bytes").and_then(Value::as_f64)
        };
        // The server may not listen yet.
        wait_until("iperf3", PATIENCE, || moved().is_some_and(|bytes| bytes > 1e5));
    }
    let route =
        net.client.exec("traceroute", &["-n", "-q", "1", "-w", "3", "-m", "4", "203.0.113.2"]);
    let route = String::from_utf8(route.stdout).unwrap();
    let hops: Vec<_> =
        route.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, [SERVER, "203.0.113.2"], "{route}");
    // Nobody outside opens a connection: not to the outer address, and not past the translator.
    let outside = net.server.exec("curl", &["-sS", "--max-time", "2", "http://[fd00::1]:8080/"]);
    assert_eq!(outside.status.code(), Some(28), "{}", String::from_utf8_lossy(&outside.stderr));
    net.assert_checksums();

    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("nat");
    let (fw, nat) = (node(&finished.report, "fw"), node(&finished.report, "nat"));
    assert!(nat["report"]["mappings"].as_u64().unwrap() >= DOWNLOADS as u64, "{nat:#}");
    assert!(nat["report"]["errors"].as_u64().unwrap() >= 2, "{nat:#}");
    assert!(fw["report"]["related"].as_u64().unwrap() >= 2, "{fw:#}");
    // What the test asked for and was refused; an edge that closes a cycle drops what finds its ring full.
    let allowed = ["filtered", "bad-state", "ring-full", "kernel-full"];
    let others: Vec<_> = drops(&finished.report);
    let others = others.iter().filter(|(_, reason, _)| !allowed.contains(&reason.as_str()));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&(String, String, u64)>::new());
}

/// What per-flow state will change: the firewall forgets its connections with its worker.
#[test]
fn when_the_translator_dies_downloads_go_on_and_when_the_firewall_dies_new_ones_do() {
    if skipped("when_the_translator_dies_downloads_go_on") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-nat-kill"), network());
    let (_nginx, page) = net.web_server(&scratch);
    let devices = ["--bind", "0=afp:m0", "--bind", "1=afp:m1"];
    let args = [&devices[..], &["--isolate", "each", "--replicate", "nat=batch"]].concat();
    let mut run = net.run(&scratch.policy(POLICY), &args);
    net.wait_for_ping();
    let mut kill = |name: &str| {
        kill_process(run.workers()[name], Signal::KILL).unwrap();
        let again = format!("worker {name} runs again after ");
        run.wait_for_line("the successor", |line| line.contains(&again));
    };
    for _ in 0..2 {
        let got = scratch.file("large");
        let mut large = net.client.command("curl");
        large.args(["-sS", "--fail", "--max-time", "60", "--limit-rate", "1M", "-o"]);
        large.arg(&got).arg(format!("http://{SERVER}/large")).stdin(Stdio::null());
        let large = large.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let len = || std::fs::metadata(&got).map_or(0, |m| m.len());
        wait_until("a part of the download", PATIENCE, || len() > 1 << 20);
        kill("nat");
        let output = large.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && std::fs::read(&got).unwrap() == page, "{said}");
        std::fs::remove_file(&got).unwrap();
        kill("fw");
        let curls = download(&net, &scratch, SERVER, 100);
        assert_downloaded(&scratch, curls, &page[..SMALL], 100);
    }
    net.assert_checksums();
    assert_no_resets(&net);
    run.signal(Signal::INT);
    run.finish().assert_sound("nat, killed");
}
