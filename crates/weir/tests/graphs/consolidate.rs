//! Consolidation seen from outside: nothing of a run shows it but its cost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use serde_json::Value;
use weir_oracle::read_capture;

fn chain() -> String {
    root().join("demo/chain.weir").to_str().unwrap().to_owned()
}

/// What of a report is the same in each run.
fn lasting(mut report: Value) -> Value {
    let report = report.as_object_mut().unwrap();
    for key in ["seconds", "workers", "census"] {
        report.remove(key).unwrap();
    }
    for node in report["nodes"].as_array_mut().unwrap() {
        let node = node.as_object_mut().unwrap();
        node.remove("ns_per_packet").unwrap();
        node.remove("worker").unwrap();
    }
    Value::Object(report.clone())
}

#[test]
fn the_demos_chain_of_vnfs_runs_as_the_papers_figure_11() {
    let ended = weir(&["explain", &chain(), "--isolate", "none"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("\n  edge_ip+edge_rules+mon_http+mon_urls+app_urls\n"),
        "{ended:?}"
    );
    let said: Vec<_> = ended.stdout.lines().filter(|line| line.contains("left out")).collect();
    assert_eq!(
        said,
        [
            "  mon_ip (CheckIpHeader): left out: every packet passed edge_ip, and nothing wrote headers up to IP since",
            "  app_ip (CheckIpHeader): left out: every packet passed edge_ip, and nothing wrote headers up to IP since",
            "  app_http (HttpClassifier): left out: every packet passed mon_http, and nothing wrote the packet since",
        ]
    );
}

#[test]
fn a_report_is_the_same_with_consolidation_and_without() {
    for isolate in ["each", "none"] {
        let run = |consolidate| {
            let rx = demo_rx();
            let args = ["run", &chain(), "--bind", &rx, "--bind", "1=null", "--isolate", isolate];
            let more = ["--consolidate", consolidate, "--json", "-q"];
            let ended = weir(&[&args[..], &more[..]].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            ended.json()
        };
        let (on, off) = (run("on"), run("off"));
        let workers = |report: &Value| report["workers"].as_array().unwrap().len();
        assert_eq!(workers(&on) < workers(&off), isolate == "each");
        assert_eq!(lasting(on), lasting(off), "--isolate {isolate}");
    }
}

#[test]
fn the_file_of_drops_names_who_would_have_dropped() {
    let scratch = Scratch::new();
    let comments = |consolidate| {
        let file = scratch.file(&format!("{consolidate}.pcapng"));
        let (rx, path) = (demo_rx(), file.to_str().unwrap().to_owned());
        let args = ["run", &chain(), "--bind", &rx, "--bind", "1=null", "--dump-drops", &path];
        let ended = weir(&[&args[..], &["--consolidate", consolidate, "-q"][..]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let count = |what: &str| text.matches(what).count();
        (
            count("filtered by edge_rules"),
            count("injection by app_urls"),
            count(" by "),
            records(&file).len(),
        )
    };
    let on = comments("on");
    assert_eq!(on, comments("off"));
    assert!(on.0 > 0 && on.1 > 0 && on.0 + on.1 == on.3, "{on:?}");
}

/// Two ways of the same work, with what remembers and what does not.
const WAYS: &str = "Port<0> lan; Port<1> wan;
    CheckIpHeader a_ip; CheckIpHeader b_ip; HttpClassifier a_http; HttpClassifier b_http;
    L3L4Filter a_rules { rules: [{ action: \"drop\", src_port: 80 }] };
    L3L4Filter b_rules { rules: [{ action: \"drop\", src_port: 80 }] };
    pipelet { lan [tcp] -> a_ip; lan [!tcp] -> b_ip;
        a_ip [a_ip.ip] -> a_http; a_ip [a_ip.non_ip] -> Drop; b_ip [b_ip.ip] -> b_http; b_ip [b_ip.non_ip] -> wan;
        a_http [a_http.http] -> a_rules -> wan; a_http [a_http.other] -> wan;
        b_http -> b_rules -> wan; }";

#[test]
fn merged_nfs_have_counters_reports_and_ways_of_their_own() {
    let scratch = Scratch::new();
    let policy = scratch.write("ways.weir", WAYS);
    let core = first_core();
    let ended = weir(&["explain", &policy, "--cores", &core]);
    for merged in ["a_ip+b_ip", "a_http+b_http", "a_rules+b_rules"] {
        assert!(ended.stdout.contains(&format!("\n  {merged}, core {core}\n")), "{ended:?}");
    }
    let (input, _) = read_capture(&demo_capture(), 0).unwrap();
    let expected = oracle(WAYS, &[0, 1], &input);
    let out = scratch.file("out.pcap");
    let ended = weir(&[
        "run",
        &policy,
        "--cores",
        &core,
        "--bind",
        &demo_rx(),
        "--bind",
        &tx(&out),
        "--json",
        "-q",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_report("merged", &ended.json(), &expected, true);
    let sent: Vec<_> = expected.sent[&1].iter().map(written).collect();
    assert!(records(&out) == sent);
    assert!(expected.nodes.values().all(|n| n.packets > 0), "nothing goes one way: {expected:?}");
}

/// Nothing of what it measures is judged here: that depends on the machine.
#[test]
fn the_bench_divides_what_each_configuration_costs_among_types_devices_and_rings() {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        println!("skipped: measurements need two cores");
        return;
    }
    let scratch = Scratch::new();
    let json = scratch.file("samples.json");
    let (capture, json_name) = (demo_capture(), json.to_str().unwrap().to_owned());
    let core = first_core();
    let args = ["bench", "consolidation", "--no-veth", "--rounds", "1", "--seconds", "0.4"];
    let more = ["--capture", capture.to_str().unwrap(), "--json", &json_name, "--core", &core];
    let ended = weir(&[&args[..], &more].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let samples = results["captures"][0]["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 6, "{results:#}");
    for sample in samples {
        let ns = sample["ns"].as_object().unwrap();
        let parts: Vec<_> = ns.keys().map(String::as_str).collect();
        let types = ["CheckIpHeader", "CountUrl", "HttpClassifier", "L3L4Filter", "ValidateUrl"];
        let others = ["FromDevice", "ToDevice", "rings"];
        let mut expected = [&types[..], &others].concat();
        expected.sort_unstable();
        assert_eq!(parts, expected, "{sample}");
        assert!(sample["packets"].as_u64().unwrap() > 0, "{sample}");
    }
}

#[cfg(feature = "faults")]
#[test]
fn a_merged_worker_that_dies_is_mended_like_any_other() {
    use weir_mem::fault::Step;
    let scratch = Scratch::new();
    let policy = scratch.write("ways.weir", WAYS);
    let core = first_core();
    for step in [Step::Claimed, Step::Committed] {
        let fault = format!("a_rules+b_rules:{}:2", step as u32);
        let ended = weir(&[
            "run",
            &policy,
            "--cores",
            &core,
            "--bind",
            &demo_rx(),
            "--bind",
            "1=null",
            "--fault",
            &fault,
            "--restart-delay",
            "0",
            "--json",
        ]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        let workers = report["workers"].as_array().unwrap();
        let worker = workers.iter().find(|w| w["name"] == "a_rules+b_rules").unwrap();
        assert!(worker["restarts"].as_u64().unwrap() > 0, "{ended:?}");
        assert_eq!(report["sound"], true, "{ended:?}");
    }
}

/// Whether the figures are right, no test can say; that there are any, this one does.
#[test]
fn the_experiment_with_devices_between_the_vnfs_has_figures_of_all_configurations() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: the_experiment_with_devices_between_the_vnfs needs root");
        return;
    }
    let scratch = Scratch::new();
    let (json, capture) = (scratch.file("samples.json"), demo_capture());
    let last = std::thread::available_parallelism().unwrap().get() - 1;
    let ended = weir(&[
        "bench".as_ref(),
        "consolidation".as_ref(),
        "--rounds".as_ref(),
        "1".as_ref(),
        "--seconds".as_ref(),
        "0.1".as_ref(),
        "--core".as_ref(),
        last.to_string().as_ref(),
        "--capture".as_ref(),
        capture.as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("veth: each VNF apart"), "{}", ended.stdout);
}
