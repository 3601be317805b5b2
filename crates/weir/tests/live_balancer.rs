//! A load balancer between a real client and real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_live;

use common_crash::*;
use common_live::*;
use rustix::process::Signal;
use serde_json::Value;

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

#[test]
fn connections_are_spread_over_servers_and_one_that_refuses_is_left_out() {
    if skipped("connections_are_spread_over_servers_and_one_that_refuses_is_left_out") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-balancer"), Network::new());
    let (_nginx, page) = net.web_server(&scratch);
    net.server.ip("addr add 192.0.2.3/24 dev s0");
    net.server.ip("addr add fd00::3/64 dev s0 nodad");
    // Nobody answers for the services' addresses but the balancer, which does not ask for neighbours.
    let mac = net.server.exec("cat", &["/sys/class/net/s0/address"]);
    let mac = String::from_utf8(mac.stdout).unwrap();
    for address in [SERVICE, SERVICE6] {
        net.client.ip(&format!("neigh replace {address} lladdr {} dev c0", mac.trim()));
    }
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
