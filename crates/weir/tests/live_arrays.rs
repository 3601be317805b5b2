//! An array of ports between live interfaces: what answers leaves by the interface that was asked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_live;

use common_crash::*;
use common_live::*;
use rustix::process::Signal;

/// Clients at both ports of the array, the server at the other.
const POLICY: &str = "Port<0-1> int;  Port<2> ext;  Null there;  Null back;
pipelet { int -> there;  there -> ext;  ext -> back;  back -> int; }";
const OTHER: &str = "192.0.2.3";

/// Echo requests of each client, each a flow of its own.
const PINGS: usize = 12;

/// The address of an interface.
fn mac(ns: &Namespace, interface: &str) -> String {
    let output = ns.exec("cat", &[&format!("/sys/class/net/{interface}/address")]);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn each_client_gets_the_answers_to_what_it_asked_and_no_others() {
    if skipped("each_client_gets_the_answers_to_what_it_asked") {
        return;
    }
    let (scratch, net, other) = (Scratch::new("live-arrays"), Network::new(), Namespace::new("o"));
    net.weir.ip(&format!("link add m2 type veth peer name c0 netns {}", other.name()));
    net.weir.ip("link set m2 up");
    other.ip("link set c0 up");
    other.ip(&format!("addr add {OTHER}/24 dev c0"));
    // ARP is of no flow: its answers all go to the first client.
    let server = mac(&net.server, "s0");
    for (client, address) in [(&net.client, CLIENT), (&other, OTHER)] {
        client.ip(&format!("neigh replace {SERVER} lladdr {server} dev c0 nud permanent"));
        let mac = mac(client, "c0");
        net.server.ip(&format!("neigh replace {address} lladdr {mac} dev s0 nud permanent"));
    }
    for isolate in ["each", "none"] {
        let binds = ["--bind", "0=afp:m0", "--bind", "1=afp:m2", "--bind", "2=afp:m1"];
        let args = [&binds[..], &["--isolate", isolate]].concat();
        let run = net.run(&scratch.policy(POLICY), &args);
        net.wait_for_ping();
        for i in 0..PINGS {
            assert!(net.client.ping(SERVER) && other.ping(SERVER), "{isolate}: ping {i}");
        }
        run.signal(Signal::INT);
        run.finish().assert_sound(isolate);
    }
}
