//! The networks of these tests, and the graphs between them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Mutex;

/// Inner hosts.
pub const HOSTS: usize = 8;

/// One test at a time: each has enough to do.
pub static ALONE: Mutex<()> = Mutex::new(());

pub const OUTER: &str = "192.0.2.100";

const FIREWALL: &str = "
Port<0> lan;  Port<1> wan;
ConnTrack fw { rules: [{ action: \"pass\", src: \"10.0.0.0/8\" }], default: \"drop\" };
pipelet { lan -> fw;  wan -> fw;  fw [ingress == 0] -> wan;  fw [ingress == 1] -> lan; }";

const TRANSLATOR: &str = "
Port<0> lan;  Port<1> wan;
Napt nat { addresses: [\"192.0.2.100\"] };
pipelet {
  lan -> [inside] nat;   nat [nat.outside] -> wan;
  wan -> [outside] nat;  nat [nat.inside] -> lan;
}";

/// The gateway of the examples.
const GATEWAY: &str = include_str!("../../../../examples/live/nat-gateway.weir");

/// Where the two are.
#[derive(Clone, Copy, PartialEq)]
pub enum Where {
    /// In two graphs.
    Apart,
    /// In one, each pair in a worker: the gateway of the examples.
    Together,
}

/// client c0 ── m0 firewall f0 ── n0 translator m1 ── s0 server, or c0 ── m0 both m1 ── s0
pub struct Site {
    pub net: Network,
    translator: Namespace,
    place: Where,
}

impl Site {
    pub fn new(place: Where) -> Self {
        let site = Site { net: Network::new(), translator: Namespace::new("n"), place };
        let (net, translator) = (&site.net, &site.translator);
        let (m, n) = (net.weir.name(), translator.name());
        if place == Where::Apart {
            net.weir.ip(&format!("link set m1 netns {n}"));
            translator.ip("link set m1 up");
            must("ip", &format!("link add f0 netns {m} type veth peer name n0 netns {n}"));
            net.weir.ip("link set f0 up");
            translator.ip("link set n0 up");
        }
        // Both sides know each other's hardware addresses: nobody answers for the outer address.
        let mac = |ns: &Namespace, interface: &str| {
            let output = ns.exec("cat", &[&format!("/sys/class/net/{interface}/address")]);
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        net.client.ip("-4 addr flush dev c0");
        for host in 1..=HOSTS {
            net.client.ip(&format!("addr add 10.0.0.{host}/8 dev c0"));
        }
        net.client.ip("route add 192.0.2.0/24 dev c0");
        net.client.ip(&format!("neigh replace {SERVER} lladdr {} dev c0", mac(&net.server, "s0")));
        net.server.ip(&format!("neigh replace {OUTER} lladdr {} dev s0", mac(&net.client, "c0")));
        site
    }
}

/// A graph that runs: the NFs whose flows move in it, joined by `+`.
pub struct Running {
    pub nfs: &'static str,
    pub run: Run,
    pub socket: PathBuf,
}

/// The firewall and the translator, running, in the order in which packets that go out meet them.
pub struct Chain(pub Vec<Running>);

impl Chain {
    /// `NF` in `args` is the NFs of each graph, as its flows are replicated.
    pub fn start(site: &Site, scratch: &Scratch, args: &[&str]) -> Self {
        let start = |space: &Namespace, nfs: &'static str, policy: &str, devices: [&str; 2]| {
            let (file, socket) = (scratch.file(&format!("{nfs}.weir")), scratch.file(nfs));
            std::fs::write(&file, policy).unwrap();
            let [lan, wan] = [0, 1].map(|i| format!("{i}=afp:{}", devices[i]));
            let (instances, path) = (format!("{nfs}=2"), socket.display().to_string());
            let own = ["--bind", &lan, "--bind", &wan, "--isolate", "each"];
            let more = ["--instances", &instances, "--control", &path, "--restart-delay", "0"];
            let mut own_args = Vec::new();
            for pair in args.chunks(2) {
                let all: Vec<&str> = match pair[1].contains("NF") {
                    true => nfs.split('+').collect(),
                    false => vec![nfs],
                };
                let of = |nf| [pair[0].to_owned(), pair[1].replace("NF", nf)];
                own_args.extend(all.into_iter().flat_map(of));
            }
            let own_args: Vec<&str> = own_args.iter().map(String::as_str).collect();
            let weir = space.command(env!("CARGO_BIN_EXE_weir"));
            let run = Run::start_by(weir, &file, &[&own[..], &more, &own_args].concat());
            Running { nfs, run, socket }
        };
        let graphs = match site.place {
            Where::Apart => vec![
                start(&site.net.weir, "fw", FIREWALL, ["m0", "f0"]),
                start(&site.translator, "nat", TRANSLATOR, ["n0", "m1"]),
            ],
            Where::Together => vec![start(&site.net.weir, "fw+nat", GATEWAY, ["m0", "m1"])],
        };
        site.net.wait_for_ping();
        Chain(graphs)
    }

    /// The workers that have an instance, each with the place of its graph.
    pub fn replicas(&self) -> Vec<(usize, String)> {
        let of = |graph: &Running, n: usize| {
            let nfs = graph.nfs.split('+').map(|nf| format!("{nf}#{n}"));
            nfs.collect::<Vec<_>>().join("+")
        };
        let all = |n| self.0.iter().enumerate().map(move |(at, graph)| (at, of(graph, n)));
        [1, 2].into_iter().flat_map(all).collect()
    }

    /// Ends all; their reports, of runs in which everything is accounted for.
    pub fn finish(self) -> Vec<Value> {
        let finish = |graph: Running| {
            graph.run.signal(Signal::INT);
            let finished = graph.run.finish();
            finished.assert_sound(graph.nfs);
            finished.report
        };
        self.0.into_iter().map(finish).collect()
    }
}

/// What an NF reports, in whichever graph it is.
pub fn node<'r>(reports: &'r [Value], name: &str) -> &'r Value {
    let mut nodes = reports.iter().flat_map(|report| report["nodes"].as_array().unwrap());
    nodes.find(|node| node["name"] == name).unwrap()
}

/// What was dropped, and what the NFs say.
pub fn told(reports: &[Value]) -> String {
    let nfs = |report: &Value| report["nodes"].as_array().unwrap().clone();
    let told = reports.iter().flat_map(nfs).map(|node| {
        let instances: Vec<Value> =
            node["instances"].as_array().into_iter().flatten().cloned().collect();
        format!("{}: {} {:#?}", node["name"], node["drops"], instances)
    });
    let restarts = reports.iter().map(|report| format!("{:#?}", report["workers"]));
    told.chain(restarts).collect::<Vec<_>>().join("\n")
}
