//! Service chains from documents, as an operator runs them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use serde_json::Value;
use std::path::PathBuf;

fn rooted(path: &str) -> String {
    root().join(path).to_str().unwrap().to_owned()
}

/// The report of a run that must go well.
fn report(args: &[&str]) -> Value {
    let ended = weir(args);
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    let report = ended.json();
    assert_sound(&format!("{args:?}"), &report);
    report
}

/// Bad input: exit code 2, all of `says` on the error output, nothing else.
fn refused(args: &[&str], says: &[&str]) {
    let ended = weir(args);
    assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{args:?}");
    for text in says {
        assert!(ended.stderr.contains(text), "{args:?}: `{text}` is not in:\n{}", ended.stderr);
    }
}

/// The demo's chain, said in VNFs.
fn three_vnfs() -> String {
    let fig1 = std::fs::read_to_string(root().join("examples/fig1-chain.yaml")).unwrap();
    let (head, _) = fig1.split_once("links:").unwrap();
    head.replace("  - { name: balance, type: LoadBalancer }\n", "")
        + "links:\n  - { from: wan, to: edge }\n  - { from: edge, to: monitor }\n\
           \x20 - { from: monitor, to: app }\n  - { from: app, to: backend0 }\n"
}

#[test]
fn a_chain_of_templates_sends_what_the_demos_hand_written_chain_sends() {
    let scratch = Scratch::new();
    let request = scratch.write("chain.yaml", three_vnfs());
    let (demo, rx) = (rooted("demo/chain.weir"), format!("0=pcap:rx={}", rooted("demo/http.pcap")));
    let outs = [scratch.file("vnfs.pcap"), scratch.file("demo.pcap")];
    for isolate in ["each", "none"] {
        let run = |policy: &str, out: &PathBuf| {
            let tx = tx(out);
            report(&[
                "run",
                policy,
                "--bind",
                &rx,
                "--bind",
                &tx,
                "--isolate",
                isolate,
                "--json",
                "-q",
            ])
        };
        let vnfs = run(&request, &outs[0]);
        let by_hand = run(&demo, &outs[1]);
        assert!(vnfs["balance"]["out"].as_u64().unwrap() > 2000, "{}", vnfs["balance"]);
        assert_eq!(vnfs["balance"], by_hand["balance"]);
        assert_eq!(std::fs::read(&outs[0]).unwrap(), std::fs::read(&outs[1]).unwrap());
    }
}

#[test]
fn figure_1_runs_and_the_report_sums_up_each_vnf() {
    let scratch = Scratch::new();
    let rx = format!("0=pcap:rx={}", rooted("demo/http.pcap"));
    let outs = [scratch.file("b0.pcap"), scratch.file("b1.pcap")];
    let (b0, b1) =
        (format!("1=pcap:tx={}", outs[0].display()), format!("2=pcap:tx={}", outs[1].display()));
    let fig1 = rooted("examples/fig1-chain.yaml");
    let report =
        report(&["run", &fig1, "--bind", &rx, "--bind", &b0, "--bind", &b1, "--json", "-q"]);
    let vnfs = report["vnfs"].as_array().unwrap();
    let names: Vec<_> = vnfs.iter().map(|vnf| vnf["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["edge", "monitor", "app", "balance"]);
    let number = |vnf: &Value, key: &str| vnf[key].as_u64().unwrap();
    let mut came = report["balance"]["in"].as_u64().unwrap();
    for vnf in vnfs {
        let drops: u64 =
            vnf["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(number(vnf, "packets"), came, "{vnf}");
        assert_eq!(number(vnf, "out") + drops, came, "{vnf}");
        came = number(vnf, "out");
    }
    assert!(vnfs[0]["drops"].as_object().is_some_and(|drops| !drops.is_empty()), "{}", vnfs[0]);
    assert!(vnfs[2]["drops"].as_object().is_some_and(|drops| !drops.is_empty()), "{}", vnfs[2]);
    // Both back-ends got a part, and nothing went missing.
    let sent: Vec<_> = outs.iter().map(|out| records(out).len()).collect();
    assert!(sent.iter().all(|n| *n > 100), "{sent:?}");
    assert_eq!(sent.iter().sum::<usize>() as u64, came);
}

#[test]
fn policies_use_templates_by_name_and_an_operators_own_goes_first() {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; Monitor m { urls: 5 };\npipelet { lan -> m -> wan; }\n",
    );
    let shown = weir(&["explain", &policy]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("m/count"), "{}", shown.stdout);
    let own = scratch.write(
        "own.yaml",
        "template: Monitor\nparameters: [{ name: urls, type: integer, optional: true }]\n\
         nodes: [{ name: count, type: CountUrl, config: { max: $urls } }]\n\
         inputs: [{ name: in, to: count }]\nlinks: [{ from: count, to: out }]\noutputs: [{ name: out }]\n",
    );
    let shown = weir(&["explain", &policy, "--template", &own]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(!shown.stdout.contains("m/classify"), "{}", shown.stdout);
    let shown = weir(&["nf", "show", "Monitor", "--template", &own]).json();
    assert_eq!(shown["template"]["nodes"].as_array().unwrap().len(), 1);
    let wrong = scratch
        .write("wrong.weir", "Port<0> p; Monitor m { urls: \"x\" };\npipelet { p -> m -> p; }\n");
    refused(&["check", &wrong], &["wrong.weir:1:24", "must be a whole number"]);
}

#[test]
fn what_is_described_only_can_be_checked_not_run() {
    let scratch = Scratch::new();
    let ids = rooted("examples/descriptions/ids.json");
    let policy = scratch.write(
        "policy.weir",
        "Port<0> lan; Port<1> wan; Ids i;\npipelet { lan -> i; i [i.safe] -> wan; i [i.unsafe] -> Drop; }\n",
    );
    let shown = weir(&["explain", &policy, "--describe", &ids]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("i -> wan: ring"), "{}", shown.stdout);
    let run = ["run", &policy, "--describe", &ids, "--bind", "0=gen:packets=1", "--bind", "1=null"];
    refused(&run, &[&policy, "`i`", "Ids", "no code"]);
    refused(&["check", &policy], &["no NF type is called `Ids`"]);
    let paper = rooted("examples/descriptions/tcpip-classifier.yaml");
    assert_eq!(weir(&["nf", "show", "TCPIPClassifier", "--describe", &paper]).code, Some(0));
    let taken = scratch.write("taken.yaml", "nf: MacSwap\n");
    refused(&["check", &policy, "--describe", &taken], &["taken.yaml", "MacSwap", "already"]);
}

#[test]
fn an_objective_chooses_the_isolation_or_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let server = rooted("examples/descriptions/server.yaml");
    let request = |throughput: &str| {
        let text = format!("{}objective: {{ throughput: {throughput} }}\n", three_vnfs());
        scratch.write("objective.yaml", text)
    };
    let modest = request("100 kpps");
    let shown = weir(&["check", &modest, "--hardware", &server]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stderr.contains("--isolate none meets it on testbed"), "{}", shown.stderr);
    let bold = request("50 Mpps");
    refused(
        &["check", &bold, "--hardware", &server],
        &["objective.yaml", "cannot be met", "ask for less"],
    );
    // What the operator says goes before, with a word on it.
    let shown = weir(&["check", &bold, "--hardware", &server, "--isolate", "none"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for text in ["warning: ", "cannot be met", "--isolate none goes before it"] {
        assert!(shown.stderr.contains(text), "{}", shown.stderr);
    }
}

#[test]
fn a_document_that_is_wrong_is_refused_with_its_place() {
    let scratch = Scratch::new();
    let file = scratch.write("bad.yaml", "service: s\nports: [{ name: p, numbr: 0 }]\nlinks: []\n");
    refused(
        &["run", &file, "--bind", "0=gen"],
        &[&format!("{file}:2:20"), "numbr", "write `number`"],
    );
    let file = scratch.write("bad.json", "{ service: \"s\", ports: [,] }");
    refused(&["check", &file], &[&format!("{file}:1:25")]);
    let file = scratch.write("template.txt", "x");
    refused(&["check", &file, "--template", &file], &["template.txt", ".yaml"]);
}

#[test]
fn every_kind_of_document_has_a_schema_to_show() {
    for kind in ["request", "template", "descriptor", "nf", "hardware"] {
        let shown = weir(&["schema", kind]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let kept =
            std::fs::read_to_string(root().join(format!("docs/schemas/{kind}.json"))).unwrap();
        assert_eq!(shown.stdout, kept);
    }
}
