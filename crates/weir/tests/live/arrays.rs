//! An array of ports between live interfaces: what answers leaves by the interface that was asked, and hosts find each
//! other's Ethernet addresses through it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;

/// Hosts at both ports of the array `int`, the server at `ext`.
const POLICY: &str = "Port<0-1> int;  Port<2> ext;  Null there;  Null back;
pipelet { int -> there;  there -> ext;  ext -> back;  back -> int; }";
/// Hosts at the ports of one array, which reach each other and nobody else.
const AMONG: &str = "Port<0-2> int;  Null x;  pipelet { int -> x -> int; }";
const BINDS: [&str; 6] = ["--bind", "0=afp:m0", "--bind", "1=afp:m2", "--bind", "2=afp:m1"];

/// Echo requests between two hosts, each a flow of its own.
const PINGS: usize = 4;

/// A host with these addresses: behind the interface `m2`, or beside the client, on the Ethernet behind `m0`.
struct Host {
    space: Namespace,
    interface: &'static str,
    addresses: [&'static str; 2],
}

impl Host {
    fn new(space: Namespace, interface: &'static str, addresses: [&'static str; 2]) -> Self {
        space.ip(&format!("link set {interface} up"));
        space.ip(&format!("addr add {}/24 dev {interface}", addresses[0]));
        space.ip(&format!("addr add {}/64 dev {interface} nodad", addresses[1]));
        Host { space, interface, addresses }
    }
}

fn behind_m2(net: &Network) -> Host {
    let space = Namespace::new("o");
    net.weir.ip(&format!("link add m2 type veth peer name c0 netns {}", space.name()));
    net.weir.ip("link set m2 up");
    Host::new(space, "c0", ["192.0.2.3", "fd00::3"])
}

fn beside_the_client(net: &Network) -> Host {
    let space = Namespace::new("p");
    let to = format!("netns {} type macvlan mode bridge", space.name());
    net.client.ip(&format!("link add link c0 name v0 {to}"));
    Host::new(space, "v0", ["192.0.2.4", "fd00::4"])
}

/// Each finds each of the others, in both directions, with nothing known of anybody before.
fn find_each_other(what: &str, hosts: &[(&Namespace, &str, [&str; 2])]) {
    for (from, interface, _) in hosts {
        for (to, other, addresses) in hosts.iter().filter(|to| to.0.name() != from.name()) {
            for address in addresses {
                let what = format!("{what}: {} to {} {address}", from.name(), to.name());
                from.ip(&format!("neigh flush dev {interface} nud all"));
                to.ip(&format!("neigh flush dev {other} nud all"));
                wait_until(&what, PATIENCE, || from.ping(address));
                for i in 0..PINGS {
                    assert!(from.ping(address), "{what}: ping {i}");
                }
            }
        }
    }
}

#[test]
fn hosts_behind_an_array_and_the_server_find_each_other_without_being_told_addresses() {
    if skipped("hosts_behind_an_array_and_the_server_find_each_other") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-arrays"), Network::new());
    let (other, beside) = (behind_m2(&net), beside_the_client(&net));
    let server = (&net.server, "s0", [SERVER, SERVER6]);
    let client = (&net.client, "c0", [CLIENT, "fd00::1"]);
    for isolate in ["each", "none"] {
        let run = net.run(&scratch.policy(POLICY), &[&BINDS[..], &["--isolate", isolate]].concat());
        for host in [&other, &beside] {
            find_each_other(isolate, &[server, (&host.space, host.interface, host.addresses)]);
        }
        find_each_other(isolate, &[server, client]);
        run.signal(Signal::INT);
        run.finish().assert_sound(isolate);
    }
}

#[test]
fn hosts_behind_different_ports_of_one_array_find_each_other() {
    if skipped("hosts_behind_different_ports_of_one_array_find_each_other") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-among"), Network::new());
    let other = behind_m2(&net);
    let hosts = [
        (&net.client, "c0", [CLIENT, "fd00::1"]),
        (&other.space, other.interface, other.addresses),
        (&net.server, "s0", [SERVER, SERVER6]),
    ];
    let run = net.run(&scratch.policy(AMONG), &BINDS);
    find_each_other("among", &hosts);
    run.signal(Signal::INT);
    run.finish().assert_sound("among");
}

#[test]
fn a_live_run_divides_packets_under_a_seed_by_chance() {
    if skipped("a_live_run_divides_packets_under_a_seed_by_chance") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-seed"), Network::new());
    let _other = behind_m2(&net);
    let policy = scratch.policy(POLICY).display().to_string();
    let seed = |more: &[&str]| {
        let args = [&["run", policy.as_str()][..], &BINDS, &["--duration", "1"], more].concat();
        let ended = net.weir.exec(env!("CARGO_BIN_EXE_weir"), &args);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{said}");
        let line = said.lines().find(|line| line.contains("seed by chance: "));
        line.map(str::to_owned)
    };
    let (one, other) = (seed(&[]), seed(&[]));
    assert!(one.is_some() && other.is_some() && one != other, "{one:?} {other:?}");
    assert_eq!(seed(&["--seed", "7"]), None);
}
