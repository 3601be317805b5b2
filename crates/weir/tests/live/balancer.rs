//! A load balancer between a real client and real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Stdio};

/// The services' addresses, and the second server's.
const SERVICE: &str = "192.0.2.80";
const SERVICE6: &str = "fd00::80";

/// Of three servers one has nobody who listens.
const POLICY: &str = r#"Port<0> clients;  Port<1> servers;
L4LoadBalancer lb { cool_down: 600, services: [
  { address: "192.0.2.80", port: 80, backends: [
    { address: "192.0.2.2" }, { address: "192.0.2.3" }, { address: "192.0.2.3", port: 81 } ] },
  { address: "fd00::80", port: 80, backends: [ { address: "fd00::2" }, { address: "fd00::3" } ] },
  { address: "192.0.2.80", port: 81, backends: [ { address: "192.0.2.3", state: "down" } ] },
] };
IcmpError nobody { v4: "192.0.2.80", unreachable: "port" };
pipelet {
  clients -> [clients] lb;  lb [lb.servers] -> servers;
  lb [lb.unavailable] -> [unreachable] nobody;  nobody -> clients;
  servers -> [servers] lb;  lb [lb.clients] -> clients;
}"#;

fn servers(report: &Value) -> Vec<(String, u64, u64)> {
    let nodes = report["nodes"].as_array().unwrap();
    let lb = nodes.iter().find(|node| node["name"] == "lb").unwrap();
    let all = lb["report"]["servers"].as_array().unwrap().iter();
    let text = |s: &Value| s["server"].as_str().unwrap().to_owned();
    all.map(|s| (text(s), s["flows"].as_u64().unwrap(), s["refused"].as_u64().unwrap())).collect()
}

/// Hosts, of which the server has two addresses.
fn cluster() -> Network {
    let net = Network::new();
    net.server.ip("addr add 192.0.2.3/24 dev s0");
    net.server.ip("addr add fd00::3/64 dev s0 nodad");
    // Nobody answers for the services' addresses but the balancer, which does not ask for neighbours.
    let mac = net.server.exec("cat", &["/sys/class/net/s0/address"]);
    let mac = String::from_utf8(mac.stdout).unwrap();
    for address in [SERVICE, SERVICE6] {
        net.client.ip(&format!("neigh replace {address} lladdr {} dev c0", mac.trim()));
    }
    net
}

#[test]
fn connections_are_spread_over_servers_and_one_that_refuses_is_left_out() {
    if skipped("connections_are_spread_over_servers_and_one_that_refuses_is_left_out") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-balancer"), cluster());
    let (_nginx, page) = net.web_server(&scratch);
    let run = net.run_between(&scratch.policy(POLICY));
    let mut refused = 0;
    for _ in 0..60 {
        match net.client.curl(&format!("http://{SERVICE}/small")) {
            Ok(got) => assert!(got == page[..SMALL]),
            // "Failed to connect to host".
            Err(7) => refused += 1,
            Err(code) => panic!("curl: {code}"),
        }
    }
    assert_eq!(refused, 3, "three in a row take a server out");
    for _ in 0..20 {
        let got = net.client.curl(&format!("http://[{SERVICE6}]/small")).unwrap();
        assert!(got == page[..SMALL]);
    }
    // A service without servers says so at once.
    assert_eq!(net.client.curl(&format!("http://{SERVICE}:81/")).unwrap_err(), 7);
    net.assert_checksums();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("balancer");
    let servers = servers(&finished.report);
    for (server, flows, refused) in &servers {
        match server.as_str() {
            // Of the first service it has refused three; of the other it is down.
            "192.0.2.3:81" => assert!(matches!((flows, refused), (3, 3) | (0, 0)), "{servers:?}"),
            // Which connections go where depends on the clients' ports.
            _ => assert!(*flows > 0 && *refused == 0, "{servers:?}"),
        }
    }
}

/// Downloads by each service at the same time, and the length of each: it takes some seconds, as the server gives 20 KiB a second.
const DOWNLOADS: usize = 100;
const LENGTH: usize = 100_000;

/// Downloads by both services; the clients.
fn download(net: &Network, scratch: &Scratch) -> Vec<Child> {
    let start = |(n, service): (usize, &str)| {
        let url = format!("http://{service}/slow?n=[1-{DOWNLOADS}]");
        let (to, most) = (scratch.file(&format!("got{n}-#1")), DOWNLOADS.to_string());
        let mut curl = net.client.command("curl");
        curl.args(["-sS", "--no-progress-meter", "--fail", "--max-time", "60", "--parallel"]);
        curl.args(["--parallel-immediate", "--parallel-max", &most]);
        curl.arg("-o").arg(to).arg(&url);
        curl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    [SERVICE, &format!("[{SERVICE6}]")].into_iter().enumerate().map(start).collect()
}

fn downloaded(scratch: &Scratch) -> u64 {
    let of = |n: usize| scratch.file(&format!("got{}-{}", n % 2, 1 + n / 2)).metadata();
    (0..2 * DOWNLOADS).filter_map(|n| of(n).ok()).map(|meta| meta.len()).sum()
}

#[test]
fn downloads_go_on_while_connections_go_from_instance_to_instance_and_these_die() {
    if skipped("downloads_go_on_while_connections_go_from_instance_to_instance_and_these_die") {
        return;
    }
    let (scratch, net) = (Scratch::new("balancer-moves"), cluster());
    let (_nginx, page) = net.web_server(&scratch);
    std::fs::write(scratch.file("site").join("slow"), &page[..LENGTH]).unwrap();
    let socket = scratch.file("control");
    let (path, at_once) = (socket.display().to_string(), ["--restart-delay", "0"]);
    let args =
        ["--bind", "0=afp:m0", "--bind", "1=afp:m1", "--isolate", "each", "--control", &path];
    let more = ["--instances", "lb=3", "--replicate", "lb=batch", "--patience", "20"];
    // All servers listen.
    let policy = POLICY.replace(", { address: \"192.0.2.3\", port: 81 }", "");
    let mut run = net.run(&scratch.policy(&policy), &[&args[..], &more, &at_once].concat());
    let (mut moved, mut rounds) = (0, 0);
    // Again, where the machine is so slow that downloads are over before that.
    while rounds < 9 {
        let before = downloaded(&scratch);
        let mut curls = download(&net, &scratch);
        wait_until("downloads", PATIENCE, || downloaded(&scratch).abs_diff(before) > 1 << 18);
        let is_under_way =
            |curls: &mut [Child]| curls.iter_mut().any(|c| c.try_wait().unwrap().is_none());
        while rounds < 9 && is_under_way(&mut curls) {
            let to = rounds as u32 % 3 + 1;
            moved += move_flows(&socket, "lb", &["--all"], to);
            // Who has them all, and who divides what comes from servers.
            let who = if rounds % 2 == 0 { format!("lb#{to}") } else { "rx:servers".to_owned() };
            kill_process(run.workers()[&who], Signal::KILL).unwrap();
            let again = format!("worker {who} runs again after ");
            run.wait_for_line("the successor", |line| line.contains(&again));
            rounds += usize::from(is_under_way(&mut curls));
        }
        for curl in curls {
            let output = curl.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        for n in 0..2 * DOWNLOADS {
            let got = scratch.file(&format!("got{}-{}", n % 2, 1 + n / 2));
            assert!(std::fs::read(&got).unwrap() == page[..LENGTH], "{}", got.display());
            std::fs::remove_file(got).unwrap();
        }
    }
    net.assert_checksums();
    for end in [&net.client, &net.server] {
        assert_eq!(end.counter("Tcp", "EstabResets"), 0, "in {}", end.name());
    }
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("balancer");
    println!("{moved} connections moved");
    assert!(moved >= 5 * DOWNLOADS as u64, "{moved} moved");
    for (server, flows, refused) in &servers(&finished.report) {
        assert!(*refused == 0 && (*flows > 0 || server.ends_with(":81")), "{server}: {flows}");
    }
}

#[test]
fn the_examples_that_are_tested_live_are_right() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/live");
    let mut checked = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let mut weir = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        let ended = weir.arg("check").arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{}: {said}", path.display());
        checked += 1;
    }
    assert!(checked >= 2);
}
