//! Every policy and service request in `examples/`: it is right, and what runs of it, consolidated, isolated
//! and fused, is what it says, executed as written by one plain thread. A new file there is tested by being there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::catalog::WithTemplates;
use crate::common_oracle::drops::{discarded, dumped};
use crate::common_oracle::random::{Choices, places, seed, stamped, write_capture};
use crate::common_oracle::vnfs::{Vnf, vnfs};
use crate::common_oracle::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weir_oracle::{Input, Oracle, read_capture};
use weir_plan::service::{Request, Syntax};
use weir_plan::{Graph, NodeKind};

/// Packets of each capture.
const OF_CAPTURE: usize = 100;
/// Packets that are made up.
const MADE: usize = 1500;

/// The policies and requests in `examples/`.
fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("examples")).unwrap();
    let of_kind = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("weir" | "yaml" | "yml" | "json"))
    };
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).filter(of_kind).collect();
    paths.sort();
    paths
}

/// The graph as written: nothing left out or merged.
fn load(path: &Path) -> Graph {
    let (text, catalog) = (std::fs::read_to_string(path).unwrap(), WithTemplates::shipped());
    let checked = match Syntax::of(path) {
        None => weir_plan::check(&text, &catalog),
        Some(syntax) => Request::read(&text, syntax, &catalog).map(|request| request.checked),
    };
    checked.unwrap_or_else(|e| panic!("{}", weir_plan::render(&e, "example", &text))).graph
}

/// Numbers of the ports that packets come in by, and of those that they may leave by.
fn ports(graph: &Graph) -> (Vec<u16>, Vec<u16>) {
    let (mut receive, mut send) = (Vec::new(), Vec::new());
    for (id, node) in graph.node_ids() {
        if let NodeKind::Port { first, last } = node.kind {
            if graph.edges().iter().any(|edge| edge.from == id) {
                receive.extend(first..=last);
            }
            if graph.edges().iter().any(|edge| edge.to == id) {
                send.extend(first..=last);
            }
        }
    }
    (receive, send)
}

fn reported_vnfs(report: &Value) -> BTreeMap<String, Vnf> {
    let none = Vec::new();
    let rows = report["vnfs"].as_array().unwrap_or(&none).iter();
    rows.map(|row| {
        let drops = row["drops"].as_object().unwrap();
        let drops = drops.iter().map(|(reason, n)| (reason.clone(), n.as_u64().unwrap())).collect();
        let number = |key: &str| row[key].as_u64().unwrap();
        (row["name"].as_str().unwrap().to_owned(), (number("packets"), number("out"), drops))
    })
    .collect()
}

/// Runs an example with packets that come in by `sources`, in turn, and compares everything.
fn run(path: &Path, graph: &Graph, packets: &[Input], sources: &[u16]) {
    let scratch = Scratch::new();
    let file = |kind: &str, port: u16| scratch.file(&format!("{kind}{port}.pcap"));
    let mut input = Vec::new();
    for (turn, &port) in sources.iter().enumerate() {
        let part = stamped(packets.iter().skip(turn).step_by(sources.len()), port);
        write_capture(&file("in", port), &part);
        input.extend(part);
    }
    let (receive, send) = ports(graph);
    let mut bound = [receive, send.clone()].concat();
    bound.retain(|port| sources.contains(port) || send.contains(port));
    bound.sort_unstable();
    bound.dedup();
    let expected = Oracle::new(graph, &bound).unwrap().run(&input).unwrap();
    assert!(expected.nodes.values().any(|n| n.packets > 0), "{}: no packets", path.display());
    let core = first_core();
    for isolate in ["each", "none"] {
        let what = format!("{} from {sources:?} --isolate {isolate}", path.display());
        // On one core workers of equal work are merged whatever the machine has.
        let mut args = ["run", path.to_str().unwrap(), "--isolate", isolate, "--cores", &core]
            .map(str::to_owned)
            .to_vec();
        for &port in &bound {
            let rx = format!("rx={}", file("in", port).display());
            let tx = format!("tx={}", file("out", port).display());
            let parts = [(sources.contains(&port), rx), (send.contains(&port), tx)];
            let parts: Vec<_> = parts.into_iter().filter(|p| p.0).map(|p| p.1).collect();
            args.extend(["--bind".to_owned(), format!("{port}=pcap:{}", parts.join(","))]);
        }
        args.extend(["--no-real-time", "--json", "-q"].map(str::to_owned));
        let drops = scratch.file("drops.pcapng");
        let dumps = isolate == "none";
        if dumps {
            args.extend(["--dump-drops".to_owned(), drops.display().to_string()]);
        }
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        let mut report = ended.json();
        // The file of drops is no node of the policy.
        let nodes = report["nodes"].as_array_mut().unwrap();
        nodes.retain(|node| !node["name"].as_str().unwrap().starts_with("dump:"));
        // What several sources bring, and copies, an NF may see in any order, and list so.
        let in_order = sources.len() == 1 && expected.copied == 0 && expected.created == 0;
        assert_report(&what, &report, &expected, in_order);
        assert_eq!(reported_vnfs(&report), vnfs(graph, &expected), "{what}: VNFs");
        if dumps {
            let (got, want) = (dumped(&drops), discarded(&expected, |_| true));
            assert!(got == want, "{what}: {} kinds of drops, not {}", got.len(), want.len());
        }
        for (port, sent) in &expected.sent {
            let got = records(&file("out", *port));
            let sent: Vec<_> = sent.iter().map(written).collect();
            assert_same_records(&what, &got, &sent);
            for &source in sources {
                let (got, sent) = (places(&got, source), places(&sent, source));
                assert!(got == sent, "{what}: order of source {source} at port {port}");
            }
            if in_order {
                assert!(got == sent, "{what}: order at port {port}");
            }
        }
    }
}

/// Runs all examples, packets coming in by each port alone and by all, two at a time.
fn on_all(packets: &[Input]) {
    let next = Mutex::new(examples().into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(path) = next.lock().unwrap().next() else { break };
                    let graph = load(&path);
                    let (receive, _) = ports(&graph);
                    for port in &receive {
                        run(&path, &graph, packets, std::slice::from_ref(port));
                    }
                    if receive.len() > 1 {
                        run(&path, &graph, packets, &receive);
                    }
                }
            });
        }
    });
}

#[test]
fn each_example_is_right_and_has_a_line_in_the_table() {
    let table = std::fs::read_to_string(root().join("examples/README.md")).unwrap();
    let examples = examples();
    assert!(examples.len() >= 12, "{examples:?}");
    for path in examples {
        let ended = weir(&["check", path.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(table.contains(&format!("| [{name}]({name}) |")), "{name}");
    }
}

#[test]
fn each_example_does_with_generated_packets_and_every_capture_what_it_says() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same packets");
    let mut packets = traffic::packets(&mut Choices(seed), MADE);
    let mut paths = vec![demo_capture()];
    paths.extend(shared().into_iter().filter(|path| has_ethernet(path)));
    for path in &paths {
        let (all, _) = read_capture(path, 0).unwrap();
        packets.extend(all.into_iter().filter(|p| p.link.is_ethernet()).take(OF_CAPTURE));
    }
    println!("{} packets, made up and of {} captures", packets.len(), paths.len());
    on_all(&packets);
}

/// Else what they do would not be seen.
#[test]
fn generated_packets_come_to_every_nf_of_the_examples_and_leave_by_every_port() {
    let packets = traffic::packets(&mut Choices(1), 6000);
    for path in examples() {
        let graph = load(&path);
        let (receive, send) = ports(&graph);
        let mut input = Vec::new();
        for (turn, port) in receive.iter().enumerate() {
            input.extend(stamped(packets.iter().skip(turn).step_by(receive.len()), *port));
        }
        let outcome = Oracle::new(&graph, &[receive, send].concat()).unwrap().run(&input).unwrap();
        let idle: Vec<_> = outcome.nodes.iter().filter(|node| node.1.packets == 0).collect();
        assert!(idle.is_empty(), "{}: nothing comes to {idle:?}", path.display());
    }
}
