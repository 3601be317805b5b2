//! Streams: a thousand downloads by curl from nginx, and iperf3 both ways. Instances die, and all their flows go to and fro, meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use crate::site::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

/// Downloads at the same time.
const DOWNLOADS: usize = 1000;
/// Length of what is downloaded: the server gives each 20 KiB a second, so that a thousand at a time are no more than a busy
/// machine takes, and last for some seconds.
const LENGTH: usize = 200_000;

impl Site {
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
