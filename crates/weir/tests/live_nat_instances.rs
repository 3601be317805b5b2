//! A firewall and a translator of addresses, each of two instances, between real hosts: nginx <- Napt <- ConnTrack <- curl. In two graphs behind
//! each other, or in one, where each translator shares a worker with its firewall and packets meet that again. Instances die, and
//! all their flows go to and fro, while a thousand downloads are under way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_crash;
mod common_live;

use common_crash::*;
use common_live::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Downloads at the same time, and inner hosts that they are of.
const DOWNLOADS: usize = 1000;
const HOSTS: usize = 8;
/// Length of what is downloaded: the server gives each 20 KiB a second, so that a thousand at a time are no more than a busy
/// machine takes, and last for some seconds.
const LENGTH: usize = 200_000;

/// One test at a time: each has enough to do.
static ALONE: Mutex<()> = Mutex::new(());

const OUTER: &str = "192.0.2.100";

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
const GATEWAY: &str = include_str!("../../../examples/live/nat-gateway.weir");

/// Where the two are.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// In two graphs.
    Apart,
    /// In one, each pair in a worker: the gateway of the examples.
    Together,
}

/// client c0 ── m0 firewall f0 ── n0 translator m1 ── s0 server, or c0 ── m0 both m1 ── s0
struct Site {
    net: Network,
    translator: Namespace,
    place: Where,
}

impl Site {
    fn new(place: Where) -> Self {
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

    /// Downloads, all at the same time; the clients.
    fn download(&self, scratch: &Scratch) -> Vec<Child> {
        let of_each = (DOWNLOADS / HOSTS).to_string();
        let start = |host: usize| {
            let dir = scratch.file(&format!("got{host}"));
            std::fs::create_dir_all(&dir).unwrap();
            let url = format!("http://{SERVER}/slow?n=[1-{of_each}]");
            let mut command = self.net.client.command("curl");
            command.args([
                "-sS",
                "--no-progress-meter",
                "--fail",
                "--max-time",
                "60",
                "--parallel",
            ]);
            command.args(["--parallel-immediate", "--parallel-max", &of_each]);
            command.args(["--interface", &format!("10.0.0.{host}")]);
            command.args(["-o", dir.join("#1").to_str().unwrap(), &url]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        (1..=HOSTS).map(start).collect()
    }

    /// Waits for the end of all downloads; what is wrong with them, if anything is: all have come whole, and nobody has counted a
    /// reset or a wrong checksum.
    fn faults(&self, scratch: &Scratch, curls: Vec<Child>, page: &[u8]) -> Vec<String> {
        let mut faults = Vec::new();
        for curl in curls {
            let output = curl.wait_with_output().unwrap();
            if !output.status.success() {
                faults.push(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        for host in 1..=HOSTS {
            for n in 1..=DOWNLOADS / HOSTS {
                let file = scratch.file(&format!("got{host}")).join(n.to_string());
                let got = std::fs::read(&file).unwrap_or_default();
                if got != page {
                    faults.push(format!("{}: {} bytes", file.display(), got.len()));
                }
            }
        }
        for end in [&self.net.client, &self.net.server] {
            if end.counter("Tcp", "EstabResets") > 0 {
                faults.push(format!("resets in {}", end.name()));
            }
        }
        self.net.assert_checksums();
        (1..=HOSTS).for_each(|h| drop(std::fs::remove_dir_all(scratch.file(&format!("got{h}")))));
        faults
    }
}

/// A graph that runs: the NFs whose flows move in it, joined by `+`.
struct Running {
    nfs: &'static str,
    run: Run,
    socket: PathBuf,
}

/// The firewall and the translator, running, in the order in which packets that go out meet them.
struct Chain(Vec<Running>);

impl Chain {
    /// `NF` in `args` is the NFs of each graph, as its flows are replicated.
    fn start(site: &Site, scratch: &Scratch, args: &[&str]) -> Self {
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
    fn replicas(&self) -> Vec<(usize, String)> {
        let of = |graph: &Running, n: usize| {
            let nfs = graph.nfs.split('+').map(|nf| format!("{nf}#{n}"));
            nfs.collect::<Vec<_>>().join("+")
        };
        let all = |n| self.0.iter().enumerate().map(move |(at, graph)| (at, of(graph, n)));
        [1, 2].into_iter().flat_map(all).collect()
    }

    /// Ends all; their reports, of runs in which everything is accounted for.
    fn finish(self) -> Vec<Value> {
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
fn node<'r>(reports: &'r [Value], name: &str) -> &'r Value {
    let mut nodes = reports.iter().flat_map(|report| report["nodes"].as_array().unwrap());
    nodes.find(|node| node["name"] == name).unwrap()
}

/// What was dropped, and what the NFs say.
fn told(reports: &[Value]) -> String {
    let nfs = |report: &Value| report["nodes"].as_array().unwrap().clone();
    let told = reports.iter().flat_map(nfs).map(|node| {
        let instances: Vec<Value> =
            node["instances"].as_array().into_iter().flatten().cloned().collect();
        format!("{}: {} {:#?}", node["name"], node["drops"], instances)
    });
    let restarts = reports.iter().map(|report| format!("{:#?}", report["workers"]));
    told.chain(restarts).collect::<Vec<_>>().join("\n")
}

/// The page that is downloaded, of the web server that is started with it.
fn page(site: &Site, scratch: &Scratch) -> (Service, Vec<u8>) {
    let (nginx, page) = site.net.web_server(scratch);
    std::fs::write(scratch.file("site").join("slow"), &page[..LENGTH]).unwrap();
    (nginx, page[..LENGTH].to_vec())
}

/// How much has been downloaded.
fn downloaded(scratch: &Scratch) -> u64 {
    let files = (1..=HOSTS).filter_map(|h| scratch.file(&format!("got{h}")).read_dir().ok());
    let lens = files.flatten().filter_map(|file| file.ok()?.metadata().ok());
    lens.map(|meta| meta.len()).sum()
}

fn is_under_way(curls: &mut [Child]) -> bool {
    curls.iter_mut().any(|curl| curl.try_wait().unwrap().is_none())
}

#[test]
fn a_thousand_downloads_survive_the_death_of_every_replica_of_firewall_and_translator() {
    if skipped("a_thousand_downloads_survive_the_death_of_every_replica") {
        return;
    }
    every_replica_dies(Where::Apart);
}

#[test]
fn a_thousand_downloads_survive_the_death_of_every_replica_of_both_together() {
    if skipped("a_thousand_downloads_survive_the_death_of_every_replica_of_both") {
        return;
    }
    every_replica_dies(Where::Together);
}

fn every_replica_dies(place: Where) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scratch, site) = (Scratch::new("nat-replicas"), Site::new(place));
    let (_nginx, page) = page(&site, &scratch);
    let mut chain = Chain::start(&site, &scratch, &["--replicate", "NF=batch"]);
    let mut curls = site.download(&scratch);
    wait_until("downloads", PATIENCE, || downloaded(&scratch) > 1 << 20);
    let mut kills = 0;
    for round in 0..3 {
        for (graph, name) in chain.replicas() {
            let run = &mut chain.0[graph].run;
            // The first round is part of the test; others as long as there is something to disturb.
            if round == 0 || is_under_way(&mut curls) {
                assert!(is_under_way(&mut curls), "all are over before {name} dies");
                kill_process(run.workers()[&name], Signal::KILL).unwrap();
                let again = format!("worker {name} runs again after ");
                run.wait_for_line("the successor", |line| line.contains(&again));
                kills += 1;
            }
        }
    }
    let faults = site.faults(&scratch, curls, &page);
    let reports = chain.finish();
    assert!(faults.is_empty(), "{faults:#?}\n{}", told(&reports));
    let recovered = |report: &Value| -> u64 {
        let workers = report["workers"].as_array().unwrap().iter();
        workers.filter_map(|worker| worker["recovered"]["flows"].as_u64()).sum()
    };
    let recovered: Vec<u64> = reports.iter().map(recovered).collect();
    println!("{kills} kills, flows recovered by graph: {recovered:?}");
    assert!(recovered.iter().all(|flows| *flows > 0), "{reports:#?}");
}

#[test]
fn a_thousand_downloads_survive_twenty_migrations_of_all_flows_of_firewall_and_translator() {
    if skipped("a_thousand_downloads_survive_twenty_migrations_of_all_flows") {
        return;
    }
    all_flows_move(Where::Apart);
}

#[test]
fn a_thousand_downloads_survive_twenty_migrations_of_all_flows_of_both_together() {
    if skipped("a_thousand_downloads_survive_twenty_migrations_of_all_flows_of_both") {
        return;
    }
    all_flows_move(Where::Together);
}

fn all_flows_move(place: Where) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scratch, site) = (Scratch::new("nat-moves"), Site::new(place));
    let (_nginx, page) = page(&site, &scratch);
    // On a busy machine a worker may be without a sign of life for long: its flows would be gone with it.
    let chain = Chain::start(&site, &scratch, &["--patience", "20"]);
    let (mut moved, mut migrations, mut faults) = (vec![0; chain.0.len()], 0, Vec::new());
    // Again, where the machine is so slow that downloads are over before that.
    while migrations < 20 && faults.is_empty() {
        let mut curls = site.download(&scratch);
        wait_until("downloads", PATIENCE, || downloaded(&scratch) > 1 << 20);
        while migrations < 20 && is_under_way(&mut curls) {
            let to = migrations % 2 + 1;
            for (moved, graph) in moved.iter_mut().zip(&chain.0) {
                *moved += move_flows(&graph.socket, graph.nfs, &["--all"], to);
            }
            migrations += u32::from(is_under_way(&mut curls));
        }
        faults = site.faults(&scratch, curls, &page);
    }
    let reports = chain.finish();
    println!("{moved:?} flows moved, by graph, {migrations} times");
    assert!(faults.is_empty(), "{faults:#?}\n{}", told(&reports));
    assert!(moved.iter().all(|flows| *flows >= 10 * DOWNLOADS as u64), "{moved:?}");
    // Connections would survive some losses: there are none.
    for report in &reports {
        assert_eq!(report["balance"]["lost"], 0, "{}", told(&reports));
    }
    for name in ["fw", "nat"] {
        let drops = &node(&reports, name)["drops"];
        assert_eq!(*drops, serde_json::json!({}), "{name}: {}", told(&reports));
    }
    let nat = node(&reports, "nat");
    let lost =
        ["no_port", "no_mapping", "fragments"].map(|what| nat["report"][what].as_u64().unwrap());
    assert_eq!(lost, [0, 0, 0], "{nat:#}");
}

#[test]
fn a_thousand_downloads_survive_deaths_in_the_middle_of_migrations_of_firewall_and_translator() {
    if skipped("a_thousand_downloads_survive_deaths_in_the_middle_of_migrations") {
        return;
    }
    some_die_as_flows_move(Where::Apart);
}

#[test]
fn a_thousand_downloads_survive_deaths_in_the_middle_of_migrations_of_both_together() {
    if skipped("a_thousand_downloads_survive_deaths_in_the_middle_of_migrations_of_both") {
        return;
    }
    some_die_as_flows_move(Where::Together);
}

fn some_die_as_flows_move(place: Where) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scratch, site) = (Scratch::new("nat-moves-deaths"), Site::new(place));
    let (_nginx, page) = page(&site, &scratch);
    let args = ["--replicate", "NF=batch", "--patience", "20"];
    let mut chain = Chain::start(&site, &scratch, &args);
    let (mut deaths, mut faults, mut moved) = (0, Vec::new(), vec![0; chain.0.len()]);
    // Who dies: who gives flows away, who gets them, and who divides packets.
    while deaths < 12 && faults.is_empty() {
        let mut curls = site.download(&scratch);
        wait_until("downloads", PATIENCE, || downloaded(&scratch) > 1 << 20);
        while deaths < 12 && is_under_way(&mut curls) {
            let graphs = chain.0.len();
            let (at, to) = (deaths as usize % graphs, deaths / 6 % 2 + 1);
            let replicas = chain.replicas();
            let replica = |n: u32| replicas[(n as usize - 1) * graphs + at].1.clone();
            let who = match deaths / 2 % 3 {
                0 => replica(3 - to),
                1 => replica(to),
                _ => "rx:lan".to_owned(),
            };
            let Running { nfs, run, socket } = &mut chain.0[at];
            let mut order = order_move(socket, nfs, &["--all"], to);
            let order = order.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            // Some are asked sooner, some later.
            std::thread::sleep(Duration::from_millis(u64::from(deaths) * 3));
            kill_process(run.workers()[&who], Signal::KILL).unwrap();
            let again = format!("worker {who} runs again after ");
            run.wait_for_line("the successor", |line| line.contains(&again));
            // Whether or not all have gone: it may say that somebody died meanwhile.
            let said: Value =
                serde_json::from_slice(&order.wait_with_output().unwrap().stdout).unwrap();
            moved[at] += said["moved"]["flows"].as_u64().unwrap_or(0);
            deaths += u32::from(is_under_way(&mut curls));
        }
        faults = site.faults(&scratch, curls, &page);
    }
    let reports = chain.finish();
    println!("{deaths} deaths, {moved:?} flows moved beside them, by graph");
    assert!(faults.is_empty(), "{faults:#?}\n{}", told(&reports));
    assert!(moved.iter().all(|flows| *flows > 0), "{moved:?}");
}

#[test]
fn streams_of_iperf3_both_ways_go_on_while_all_flows_of_both_move_to_and_fro() {
    if skipped("streams_of_iperf3_both_ways_go_on_while_all_flows_of_both_move") {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (scratch, site) = (Scratch::new("nat-iperf"), Site::new(Where::Together));
    let chain = Chain::start(&site, &scratch, &["--patience", "20"]);
    let Running { nfs, socket, .. } = &chain.0[0];
    let _server = site.net.server.spawn("iperf3", &["-s", "-4"]);
    let client = |seconds: &str| {
        let mut command = site.net.client.command("iperf3");
        command.args(["-c", SERVER, "-4", "--bidir", "-P", "4", "-t", seconds, "-J"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap().wait_with_output()
    };
    let both = |output: &std::process::Output| -> Option<[f64; 2]> {
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        let bytes = |way: &str| report.pointer(&format!("/end/{way}/bytes"))?.as_f64();
        Some([bytes("sum_received")?, bytes("sum_received_bidir_reverse")?])
    };
    // The server may not listen yet.
    wait_until("iperf3", PATIENCE, || client("1").is_ok_and(|output| both(&output).is_some()));
    let (mut moved, mut migrations) = (0, 0);
    let streams = std::thread::scope(|scope| {
        let streams = scope.spawn(|| client("4").unwrap());
        while !streams.is_finished() {
            moved += move_flows(socket, nfs, &["--all"], migrations % 2 + 1);
            migrations += 1;
        }
        streams.join().unwrap()
    });
    let said = String::from_utf8_lossy(&streams.stdout).into_owned();
    let reports = chain.finish();
    let bytes = both(&streams).unwrap_or_else(|| panic!("{said}\n{}", told(&reports)));
    println!("{migrations} migrations, {moved} flows moved, {bytes:?} bytes out and in");
    assert!(streams.status.success(), "{said}\n{}", told(&reports));
    // Each way as long as it lasted, and what is on its way is not lost when its flow goes.
    assert!(bytes.iter().all(|bytes| *bytes > 1e6), "{said}");
    assert!(migrations >= 4 && moved >= 20, "{migrations} migrations, {moved} flows");
    assert_eq!(reports[0]["balance"]["lost"], 0, "{}", told(&reports));
}
