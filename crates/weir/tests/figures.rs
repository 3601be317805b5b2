//! Figures, seen from outside. What they measure is judged nowhere here: that depends on the machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common_oracle;

use common_oracle::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// As little as makes a figure.
const LITTLE: [&str; 4] = ["--samples", "1", "--seconds", "0.05"];

fn has_two_cores() -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2);
    if !two {
        println!("skipped: measurements need two cores");
    }
    two
}

fn bench(args: &[&str], out: &Path) -> Command {
    bench_of(args, out, &LITTLE)
}

/// The same of so many samples, or of others.
fn bench_of(args: &[&str], out: &Path, samples: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("bench").args(args).args(samples).arg("--out").arg(out);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{}\n{out}\n{err}", output.status)
}

fn record(out: &Path, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(out.join(format!("{name}.json"))).unwrap()).unwrap()
}

#[test]
fn a_run_that_is_interrupted_is_taken_up_where_it_was_and_compared_with_an_earlier_one() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("figures");
    let figures = ["figure", "unf-7", "unf-10"];
    let mut first = bench(&figures, &out);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !out.join("unf-7.json").exists() {
        assert!(start.elapsed() < PATIENCE, "no figure");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&first), Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130), "it did not end by the signal");
    assert!(!out.join("unf-10.json").exists(), "it was made before anybody could interrupt it");
    let before = record(&out, "unf-7");

    let earlier = scratch.file("earlier");
    std::fs::create_dir(&earlier).unwrap();
    std::fs::copy(out.join("unf-7.json"), earlier.join("unf-7.json")).unwrap();
    let second = bench(&figures, &out).arg("--against").arg(&earlier).output().unwrap();
    assert!(second.status.success(), "{}", said(&second));
    assert!(said(&second).contains("unf-7: there already"), "{}", said(&second));
    assert_eq!(record(&out, "unf-7"), before, "it was measured again");
    assert!(said(&second).contains("unf-7: agrees: +0.0 %"), "{}", said(&second));
    assert!(said(&second).contains("1 figures agree, 0 cannot be compared; that differ: none"));
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("id=\"unf-7\"") && report.contains("id=\"unf-10\""));
    // The limit is in each plot of throughput.
    for name in ["unf-7", "unf-10"] {
        let record = record(&out, name);
        let lines = record["series"].as_array().unwrap();
        assert!(lines.iter().any(|line| line["name"] == "echo: no µNF"), "{record:#}");
        let svg = std::fs::read_to_string(out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.contains("echo: no µNF"), "{name}");
    }
}

#[test]
fn what_another_run_left_is_not_lost_and_nonsense_is_refused_before_anything_is_measured() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("figures");
    std::fs::create_dir(&out).unwrap();
    let refused = |more: &[&str], says: &str| {
        let ended = bench_of(&["figure", "unf-7"], &out, more).output().unwrap();
        assert!(!ended.status.success(), "{more:?}: {}", said(&ended));
        assert!(said(&ended).contains(says), "{more:?}: {}", said(&ended));
    };
    for odd in ["nan", "inf", "0.01", "61"] {
        refused(&["--seconds", odd], "0.05 to 60");
    }
    refused(&["--samples", "0"], "1 to 10000");
    for cores in [["1", "1"], ["0", "9999"]] {
        refused(&["--device-core", cores[0], "--chain-core", cores[1]], "need a core each");
    }
    let itself = out.display().to_string();
    refused(&["--against", &itself], "a run agrees with itself");
    // Somebody else measures into it.
    let other = std::fs::File::open(&out).unwrap();
    other.lock().unwrap();
    refused(&[], "is being written to by another measurement");
    drop(other);
    // What another program took, or nobody can read.
    for text in ["{", "{}"] {
        std::fs::write(out.join("unf-7.json"), text).unwrap();
        refused(&[], "unf-7.json is no figure's file");
        refused(&[], "--fresh measures it anew, --out chooses another folder");
        assert_eq!(std::fs::read_to_string(out.join("unf-7.json")).unwrap(), text);
    }
    std::fs::remove_file(out.join("unf-7.json")).unwrap();
    // Told from the samples of another figure, which would be measured for it.
    std::fs::write(out.join("unf-5a.json"), "{}").unwrap();
    let ended = bench(&["figure", "unf-yielding"], &out).output().unwrap();
    assert!(said(&ended).contains("unf-5a.json is no figure's file"), "{}", said(&ended));
    std::fs::remove_file(out.join("unf-5a.json")).unwrap();
    // What another program took.
    let policies = bench(&["figure", "grow-policy"], &out).output().unwrap();
    assert!(policies.status.success(), "{}", said(&policies));
    let path = out.join("grow-policy.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["effort"]["program"] = 7.into();
    let others = serde_json::to_string(&record).unwrap();
    std::fs::write(&path, &others).unwrap();
    let ended = bench(&["figure", "grow-policy"], &out).output().unwrap();
    let says = said(&ended);
    assert!(!ended.status.success(), "{says}");
    assert!(says.contains("grow-policy: what the folder has of it was taken by another"), "{says}");
    assert!(says.contains("--fresh measures anew, --out chooses another folder"), "{says}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), others);
    // Two cores are for what measures: what does not says what there is on one.
    let list = ["-c", "0", env!("CARGO_BIN_EXE_weir"), "bench", "figure", "--list"];
    let listed = std::process::Command::new("taskset").args(list).output().unwrap();
    assert!(listed.status.success(), "{}", said(&listed));
}

/// A figure's file with five samples of each point, all of them what the first was, times `factor`.
fn write_fivefold(record: &Value, factor: f64, to: &Path) {
    let mut record = record.clone();
    record["effort"]["samples"] = 5.into();
    for line in record["series"].as_array_mut().unwrap() {
        for place in line["places"].as_array_mut().unwrap() {
            let mut sample = place["samples"][0].clone();
            sample["value"] = (sample["value"].as_f64().unwrap() * factor).into();
            place["samples"] = vec![sample; 5].into();
        }
    }
    std::fs::create_dir_all(to).unwrap();
    std::fs::write(to.join("unf-7.json"), record.to_string()).unwrap();
}

#[test]
fn what_a_round_gave_outlives_an_interruption_and_a_slower_run_is_told_from_an_equal_one() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("figures");
    let of = |samples: &str, against: Option<&Path>| {
        let samples = ["--seconds", "0.05", "--samples", samples];
        let mut command = bench_of(&["figure", "unf-7"], &out, &samples);
        if let Some(folder) = against {
            command.arg("--against").arg(folder);
        }
        command
    };
    // Of five rounds the first is made, and somebody interrupts the second.
    let mut first = of("5", None).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !out.join("unf-7.json").exists() {
        assert!(start.elapsed() < PATIENCE, "no figure");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&first), Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130), "it did not end by the signal");
    let before = record(&out, "unf-7");
    let there = before["effort"]["samples"].as_u64().unwrap();
    assert!((1..5).contains(&there), "{there} rounds");
    let wanted = (there + 1).to_string();
    let second = of(&wanted, None).output().unwrap();
    assert!(second.status.success(), "{}", said(&second));
    let taken_up = format!("unf-7: {there} of {wanted} samples there already");
    assert!(said(&second).contains(&taken_up), "{}", said(&second));
    let after = record(&out, "unf-7");
    for (old, new) in lines(&before).iter().zip(lines(&after)) {
        let (old, new) = (old["places"].as_array().unwrap(), new["places"].as_array().unwrap());
        for (old, new) in old.iter().zip(new) {
            let (old, new) =
                (old["samples"].as_array().unwrap(), new["samples"].as_array().unwrap());
            assert_eq!(new.len() as u64, there + 1, "one more, and no point has fewer or more");
            assert_eq!(old[..], new[..old.len()], "a sample was taken again");
        }
    }

    // Five equal samples of each point: nothing is measured any more.
    write_fivefold(&before, 1.0, &out);
    for (factor, says) in [(1.0, "unf-7: agrees: +0.0 %"), (2.0, "unf-7: differs: -50.0 %")] {
        let earlier = scratch.file(&format!("earlier-{factor}"));
        write_fivefold(&before, factor, &earlier);
        let compared = of("5", Some(&earlier)).output().unwrap();
        assert!(compared.status.success(), "{}", said(&compared));
        assert!(said(&compared).contains("unf-7: there already"), "{}", said(&compared));
        assert!(said(&compared).contains(says), "{}", said(&compared));
        let report = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(report.contains(says.split(": ").nth(1).unwrap()), "{says}");
    }
}

fn lines(record: &Value) -> &Vec<Value> {
    record["series"].as_array().unwrap()
}

#[test]
fn what_cannot_be_had_is_said_in_the_figure_and_is_no_failure() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("figures");
    std::fs::create_dir(&out).unwrap();
    std::fs::set_permissions(&out, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = bench(&["figure", "rivals-live", "--install"], &out);
    // No rival is to be found, and nobody but root may install one.
    command.env("PATH", "/nonexistent");
    if rustix::process::getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let ended = match command.output() {
        Ok(ended) => ended,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: nobody else may run {}", env!("CARGO_BIN_EXE_weir"));
            return;
        }
        Err(e) => panic!("{e}"),
    };
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(
        said(&ended).contains("not installed, as that needs root: dpdk-dev"),
        "{}",
        said(&ended)
    );
    let record = record(&out, "rivals-live");
    let finding = record["finding"].as_str().unwrap();
    assert_eq!(finding, "not measured: network namespaces and veth pairs need root");
    assert_eq!(record["verdict"], "different-set-up");
    assert!(!out.join("rivals-live.svg").exists(), "a chart of nothing");
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains(finding));
}

#[test]
fn what_makes_interfaces_refuses_a_network_namespace_that_is_in_use() {
    let live = ["live", "--between", "nothing", "--size", "64", "--seconds", "0.1"];
    let cores = ["--device-core", "0", "--chain-core", "1"];
    let consolidation = ["consolidation", "--inside", "--rounds", "1", "--seconds", "0.1"];
    for args in [[&live[..], &cores].concat(), consolidation.to_vec()] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let ended = command.arg("bench").args(&args).current_dir(root()).output().unwrap();
        assert!(!ended.status.success(), "{args:?}");
        assert!(said(&ended).contains("network namespace of its own"), "{}", said(&ended));
        let interfaces = std::fs::read_to_string("/proc/self/net/dev").unwrap();
        assert!(!interfaces.contains("c0:") && !interfaces.contains("weir0a:"), "{interfaces}");
    }
}

#[test]
fn every_flow_that_moves_has_its_own_time_and_none_is_longer_than_the_whole() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let ended = bench(&["figure", "nfactor-6a", "nfactor-6b"], scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let whole = record(scratch.path(), "nfactor-6a");
    for place in lines(&whole).iter().flat_map(|line| line["places"].as_array().unwrap()) {
        let sample = &place["samples"][0];
        let total_ns = sample["value"].as_f64().unwrap() * 1e6;
        let own = sample["histogram"].as_array().unwrap();
        let flows: u64 = own.iter().map(|own| own[1].as_u64().unwrap()).sum();
        assert_eq!(flows as f64, place["x"].as_f64().unwrap(), "{place:#}");
        assert!(own.iter().all(|own| own[0].as_f64().unwrap() <= total_ns), "{place:#}");
    }
    let own = record(scratch.path(), "nfactor-6b");
    let names: Vec<_> = lines(&own).iter().filter_map(|line| line["name"].as_str()).collect();
    assert!(
        names.contains(&"50 pps a flow, median") && names.contains(&"50 pps a flow, p99"),
        "{names:?}"
    );
}

#[test]
fn flows_move_by_a_controller_too_and_no_packet_of_theirs_is_lost() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    // Each of its samples ends only when all packets that were made have been processed.
    let ended = bench(&["figure", "nfactor-8"], scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let record = record(scratch.path(), "nfactor-8");
    assert_eq!(record["series"].as_array().unwrap().len(), 6, "{record:#}");
}

#[test]
fn all_flows_are_back_when_the_replica_is_read_and_no_sample_is_the_wait_for_nobody() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let ended =
        bench(&["figure", "nfactor-9b", "flows-recovery"], scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    for (name, lines) in [("nfactor-9b", 6), ("flows-recovery", 3)] {
        let record = record(scratch.path(), name);
        assert_eq!(record["failed"].as_array().unwrap().len(), 0, "{record:#}");
        let all = samples(&record);
        assert_eq!(all.len(), 3 * lines, "{record:#}");
        let ms = |sample: &Value| sample["value"].as_f64().unwrap();
        assert!(all.iter().all(|(_, sample)| (0.1..29_000.0).contains(&ms(sample))), "{record:#}");
    }
    let record = record(scratch.path(), "flows-recovery");
    let all = samples(&record);
    let of = |line: &str| -> Vec<f64> {
        let of = all.iter().filter(|(name, _)| name.contains(line));
        of.map(|(_, sample)| sample["value"].as_f64().unwrap()).collect()
    };
    let reading = of("reading the replica");
    // Packets go before all is read.
    assert!(
        of("all flows are back").iter().zip(&reading).all(|(all, read)| all > read),
        "{record:#}"
    );
}

/// All samples of a figure, each with its line.
fn samples<'r>(record: &'r Value) -> Vec<(&'r str, &'r Value)> {
    let of = |line: &'r Value| {
        let places = line["places"].as_array().unwrap().iter();
        let samples = places.flat_map(|place| place["samples"].as_array().unwrap());
        samples.map(|sample| (line["name"].as_str().unwrap(), sample))
    };
    lines(record).iter().flat_map(of).collect()
}

#[test]
fn each_rival_that_is_installed_forwards_packets_and_its_processor_time_is_measured() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let ended = bench(&["figure", "rivals", "rivals-blank"], scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let [record, blank] = ["rivals", "rivals-blank"].map(|name| record(scratch.path(), name));
    let all: Vec<_> = samples(&record).into_iter().chain(samples(&blank)).collect();
    for (rival, program) in [
        ("testpmd", "/usr/bin/dpdk-testpmd"),
        ("Open vSwitch", "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"),
    ] {
        let of = || all.iter().filter(|(line, _)| line.starts_with(rival));
        if !Path::new(program).exists() {
            println!("skipped: {rival}, which is not installed ({program})");
            assert_eq!(of().count(), 0, "{rival}");
            assert!(record["finding"].as_str().unwrap().contains("Left out"), "{record:#}");
            continue;
        }
        assert!(of().count() > 0, "{}", said(&ended));
        for (line, sample) in of() {
            // One core at most works for it; other tests run beside this one, and the account of 50 ms has some grain.
            let mpps = sample["value"].as_f64().unwrap();
            let cores = mpps * sample["cpu_ns"].as_f64().unwrap() / 1e3;
            assert!(mpps > 0.0 && cores > 0.0 && cores < 2.5, "{line}: {cores} cores: {sample}");
        }
    }
}

#[test]
fn throughput_has_the_rate_that_is_sustained_beside_it_in_data_table_and_chart() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let ended = bench(&["figure", "unf-10", "unf-5b"], scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let [searched, offered] = ["unf-10", "unf-5b"].map(|name| record(scratch.path(), name));
    for (line, sample) in samples(&searched) {
        let held = sample["sustained"]["value"].as_f64();
        // Other tests run beside this one: how much is held is no matter of it, but a search has ended, and not far above what arrived.
        let most = sample["value"].as_f64().unwrap() * 8.0;
        assert!(held.is_some_and(|mpps| (0.0..=most).contains(&mpps)), "{line}: {sample}");
    }
    let held = samples(&searched).iter().any(|(_, s)| s["sustained"]["value"].as_f64() > Some(0.1));
    assert!(held, "{searched:#}");
    assert!(searched["finding"].as_str().unwrap().contains("Sustained of a source that does not"));
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap();
    assert!(read("unf-10.svg").contains("sustained rate, searched for"));
    assert!(read("unf-10.csv").contains(",sustained,sustained_open,"));
    // What arrives of a given rate is no search's matter.
    assert!(samples(&offered).iter().all(|(_, sample)| sample.get("sustained").is_none()));
    assert!(!read("unf-5b.svg").contains("sustained rate, searched for"));
}

/// How many samples of a line there are, and how many are told to have failed.
fn there_and_failed(record: &Value, line: &str) -> (u64, u64) {
    let failed = record["failed"].as_array().unwrap().iter();
    let failed = failed.filter(|f| f["line"] == line).map(|f| f["times"].as_u64().unwrap()).sum();
    let there = samples(record).iter().filter(|(name, _)| *name == line).count() as u64;
    (there, failed)
}

#[test]
fn latency_under_load_has_its_load_percentiles_in_order_and_every_packet_in_its_histogram() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let figures = ["figure", "unf-8-90", "unf-9a-90", "sustained"];
    let ended = bench(&figures, scratch.path()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let number = |value: &Value| value.as_f64().unwrap();
    // What was offered for 50 ms came out, or is told to be missing; packets of up to 100 ms before came meanwhile.
    let assert_offered = |line: &str, sample: &Value| {
        let (load, lost) = (number(&sample["load"][0]), number(&sample["load"][1]));
        let steps = sample["histogram"].as_array().unwrap();
        let packets: u64 = steps.iter().map(|step| step[1].as_u64().unwrap()).sum();
        let due = load * 0.05 * (1.0 - lost);
        assert!((due * 0.9..load * 0.16).contains(&(packets as f64)), "{line}: {packets}, {due}");
    };
    let side = record(scratch.path(), "unf-8-90");
    for line in ["in sequence", "side by side"] {
        let (there, failed) = there_and_failed(&side, line);
        assert_eq!(there + failed, 3, "{line}: a sample for each cost, or told to have failed");
    }
    for (line, sample) in samples(&side) {
        let tail: Vec<f64> = sample["tail"].as_array().unwrap().iter().map(number).collect();
        assert!(number(&sample["value"]) <= tail[0] && tail[0] <= tail[1], "{line}");
        assert_offered(line, sample);
        // µNFs on both cores never get the real-time class: the machine would stand still.
        assert_eq!(sample["not_granted"], true, "{line}");
    }
    let lengths = record(scratch.path(), "unf-9a-90");
    for (line, places) in [("isolated", 5), ("fused", 5), ("echo: no µNF", 2)] {
        let (there, _) = there_and_failed(&lengths, &format!("{line}, p50"));
        let (_, failed) = there_and_failed(&lengths, line);
        // Echo is drawn at both ends, and fails once.
        let all = there + failed * if places == 2 { 2 } else { 1 };
        assert_eq!(all, places, "{line}: {lengths:#}");
    }
    let rates = record(scratch.path(), "sustained");
    let loaded: Vec<(&str, &Value)> =
        samples(&lengths).into_iter().filter(|(line, _)| line.ends_with(", p50")).collect();
    assert_eq!(samples(&rates).len(), loaded.len(), "one rate for each load");
    for ((line, sample), (of, rate)) in loaded.into_iter().zip(samples(&rates)) {
        assert_eq!(line, format!("{of}, p50"));
        assert_offered(line, sample);
        assert_eq!(sample["open"], rate["open"], "{line}");
        assert!(number(&rate["value"]) * 1e6 > number(&sample["load"][0]), "{line}");
    }
}

/// The processes of a group, but for those that have ended: number and command line.
fn group(leader: u32) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |pid: u32| {
        // One may end at any moment. Its name, in brackets, may have anything in it.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let is_its = fields.first() != Some(&"Z") && *fields.get(2)? == leader.to_string();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        is_its.then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    pids.filter_map(of).collect()
}

/// What DPDK has of programs on this machine.
fn left_by_dpdk() -> BTreeSet<OsString> {
    let entries = std::fs::read_dir("/run/dpdk").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

#[test]
fn a_run_that_is_interrupted_leaves_no_process_and_no_file_behind() {
    if !has_two_cores() {
        return;
    }
    let daemon = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    let is_root = rustix::process::getuid().is_root();
    // Figure; whose process and which file, of a temporary folder PID, are to be there when it is interrupted; whether it can be had.
    let testpmd = Path::new("/usr/bin/dpdk-testpmd").exists();
    let cases = [
        ("rivals", "dpdk-testpmd --no-huge", "weir-testpmd-PID/dpdk", testpmd),
        ("rivals", daemon, "weir-ovs-PID/dpdk", Path::new(daemon).exists()),
        ("rivals-live", "bench live", "", is_root),
        ("unf-tables", "bench consolidation", "weir-tables-PID", true),
        // In its network namespace, where one is granted.
        ("unf-tables", "--backwards --inside", "weir-tables-PID", is_root),
    ];
    for (figure, process, file, can_be_had) in cases {
        if !can_be_had {
            println!("skipped: {process} of {figure}, which is not installed or needs root");
            continue;
        }
        let (scratch, before) = (Scratch::new(), left_by_dpdk());
        let temporary = scratch.file("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["bench", "figure", figure, "--samples", "2", "--seconds", "0.05", "--out"]);
        command.arg(scratch.file("figures")).current_dir(root()).env("TMPDIR", &temporary);
        // All that it starts are of its group.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = command.spawn().unwrap();
        let start = Instant::now();
        let file = temporary.join(file.replace("PID", &run.id().to_string()));
        let is_there = |line: &str| line.contains(process) && file.exists();
        while !group(run.id()).iter().any(|(_, line)| is_there(line)) {
            assert!(start.elapsed() < PATIENCE, "no {process}: {:?}", group(run.id()));
            assert_eq!(run.try_wait().unwrap(), None, "it ended without {process}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // In a terminal all of the group would be told; here only the one that is to clear up.
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        assert_eq!(
            run.wait().unwrap().code(),
            Some(130),
            "{process}: it did not end by the signal"
        );
        let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(left.is_empty(), "{process}: {left:?}");
        // Its own are gone before it is, theirs with them.
        let start = Instant::now();
        while !group(run.id()).is_empty() {
            assert!(start.elapsed() < PATIENCE, "{process}: {:?}", group(run.id()));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let its = format!("-{}", run.id());
        let mut left = left_by_dpdk();
        left.retain(|name| !before.contains(name) && name.to_string_lossy().ends_with(&its));
        assert!(left.is_empty(), "{process}: {left:?}");
    }
}

#[test]
fn changes_of_a_running_graph_are_timed_one_by_one_and_what_is_remembered_goes_along() {
    if !has_two_cores() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("changes.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["bench", "relink", "--samples", "1", "--changes", "3"]);
    command.args(["--becomes", "isolated,fused,2"]);
    command.args(["--flows", "1,50", "--rates", "1000", "--json"]).arg(&file);
    let ended = command.current_dir(root()).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let samples = told["samples"].as_array().unwrap();
    let what = samples.iter().map(|s| (&s["flows"], &s["was"], &s["becomes"]));
    let what = serde_json::to_value(what.collect::<Vec<_>>()).unwrap();
    let two = || serde_json::json!({ "instances": 2 });
    let of = |flows: u32| {
        let changes = [
            serde_json::json!([flows, "isolated", "fused"]),
            serde_json::json!([flows, "fused", two()]),
            serde_json::json!([flows, two(), "isolated"]),
        ];
        changes.into_iter()
    };
    assert_eq!(what, of(1).chain(of(50)).collect::<Value>());
    for sample in samples {
        assert!(sample["pause_ms"].as_f64().unwrap() > 0.0, "{sample}");
        // ConnTrack and PacketSizeHistogram at least: a change that lost their state would be the faster one.
        assert!(sample["carried"].as_u64().unwrap() >= 2, "{sample}");
    }
}
