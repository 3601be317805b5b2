//! Objectives of service requests, and the hardware they are to be met on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use weir_plan::service::{Hardware, Objective, ObjectiveError, Request, Server, Syntax, choose};
use weir_plan::{Catalog, Checked, ConfigProblem, Isolate, NfInfo, check, render};

const REQUEST: &str = "\
service: one
ports:
  - { name: a, number: 0 }
  - { name: b, number: 1 }
vnfs:
  - { name: x, type: MacSwap }
links:
  - { from: a, to: x }
  - { from: x, to: b }
";

/// All that is said about a document that must not be taken.
fn refused<T>(text: &str, read: Result<T, Vec<weir_plan::PolicyError>>) -> String {
    match read {
        Ok(_) => panic!("this was taken:\n{text:.300}"),
        Err(errors) => render(&errors, "bad.yaml", text),
    }
}

fn server(cores: u32) -> Server {
    Server { name: "box".to_owned(), cores, ghz: 1.0, nic_bps: Some(10_000_000_000) }
}

/// A type of which there may be several instances.
struct Split;

impl Catalog for Split {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let mut info = Types.nf("MacSwap").filter(|_| type_name == "Many")?;
        info.name = type_name.to_owned();
        info.work.scales = true;
        Some(info)
    }

    fn types(&self) -> Vec<String> {
        vec!["Many".to_owned()]
    }

    fn check_config(&self, _: &str, _: &serde_json::Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

/// A chain of `n` NFs of 1000 cycles each (what nothing is known about).
fn chain(n: usize) -> Checked {
    let nfs: String = (0..n).map(|i| format!("MacSwap x{i}; ")).collect();
    let way: String = (0..n).map(|i| format!("x{i} -> ")).collect();
    crate::common::good(&format!("Port<0> p; Port<1> q; {nfs} pipelet {{ p -> {way} q; }}"))
}

#[test]
fn an_objective_is_met_with_the_fewest_cores_or_it_is_said_why_not() {
    let graph = chain(4).graph;
    let wanted = |pps| Objective { pps, bps: None, latency: None };
    // One core does 1 GHz / 4060 cycles.
    let slow = choose(&graph, &wanted(200_000), &server(8), &Default::default()).unwrap().placement;
    assert_eq!((slow.isolate, slow.cores), (Isolate::None, 1));
    // Twice that takes two workers of two NFs each, which pass on fewer rings than four.
    let twice = choose(&graph, &wanted(440_000), &server(3), &Default::default()).unwrap();
    assert_eq!((twice.placement.isolate, twice.placement.cores), (Isolate::Auto, 2));
    assert_eq!(
        twice.instead_of.map(|p| (p.isolate, p.workers, p.cores)),
        Some((Isolate::Each, 4, 2))
    );
    // More needs a core for each NF: at 900 kpps each is busy to 95 %.
    let fast = choose(&graph, &wanted(900_000), &server(8), &Default::default()).unwrap().placement;
    assert_eq!((fast.isolate, fast.cores), (Isolate::Each, 4));
    let few = choose(&graph, &wanted(900_000), &server(3), &Default::default()).unwrap_err();
    assert_eq!(few, ObjectiveError::Cores { needed: 4, server: "box".to_owned(), cores: 3 });
    let never = choose(&graph, &wanted(2_000_000), &server(8), &Default::default()).unwrap_err();
    assert!(matches!(never, ObjectiveError::TooSlow { cycles: 1060, .. }), "{never}");
    let wire = Objective { bps: Some(20_000_000_000), ..wanted(1) };
    assert!(matches!(
        choose(&graph, &wire, &server(8), &Default::default()),
        Err(ObjectiveError::Nic { .. })
    ));
}

#[test]
fn what_trust_domains_keep_apart_is_not_promised_in_one_worker() {
    let graph = chain(4).graph;
    let wanted = Objective { pps: 1000, bps: None, latency: None };
    let domains = [("x1".to_owned(), "guest".to_owned())].into();
    let place = choose(&graph, &wanted, &server(8), &domains).unwrap().placement;
    // What comes before, the guest, and what comes behind.
    assert_eq!((place.isolate, place.workers, place.cores), (Isolate::None, 3, 1));
}

#[test]
fn instances_are_promised_whatever_domain_they_are_in_and_ports_packets_come_by() {
    let text = "Port<0> p; Port<1> q; Port<2> o; Many x; pipelet { p -> x; q -> x; x -> o; }";
    let graph = check(text, &Split).unwrap().graph;
    let wanted = Objective { pps: 1_500_000, bps: None, latency: None };
    for domain in ["", "guest"] {
        let domains = [("x".to_owned(), domain.to_owned())].into();
        let place = choose(&graph, &wanted, &server(8), &domains).unwrap().placement;
        assert!(place.workers > 1, "{place:?}");
    }
}

#[test]
fn a_bound_on_latency_counts_the_waiting() {
    let graph = chain(4).graph;
    let read = |text: &str| {
        let request = format!("{REQUEST}objective: {text}\n");
        Request::read(&request, Syntax::Yaml, &Types).unwrap().objective.unwrap()
    };
    let late = read("{ throughput: 200 kpps, latency: { percentile: 99, at_most_us: 60 } }");
    // Alone a worker would be busy to 81 % and its packets wait; four wait less.
    assert_eq!(
        choose(&graph, &late, &server(8), &Default::default()).unwrap().placement.isolate,
        Isolate::Each
    );
    // The waits of four are those of four with a core each, which two cores do not have.
    let shared = choose(&graph, &late, &server(2), &Default::default()).unwrap_err();
    assert!(matches!(shared, ObjectiveError::TooLate { .. }), "{shared}");
    let soon = read("{ throughput: 200 kpps, latency: { percentile: 99, at_most_us: 1 } }");
    let error = choose(&graph, &soon, &server(8), &Default::default()).unwrap_err();
    assert!(matches!(error, ObjectiveError::TooLate { best_us, .. } if best_us > 1.0), "{error}");
    let bits = read("{ throughput: 1 Gbps, packet_bytes: 125 }");
    assert_eq!((bits.pps, bits.bps), (1_000_000, Some(1_000_000_000)));
    for (wrong, says) in [
        ("{ throughput: fast }", "`2 Mpps`"),
        ("{ throughput: 1 Gbps }", "add `packet_bytes`"),
        ("{ latency: { percentile: 100, at_most_us: 1 } }", "percentile"),
        ("{ latency: { percentile: 50, at_most_us: -1 } }", "above zero"),
    ] {
        let text = format!("{REQUEST}objective: {wrong}\n");
        let said = refused(&text, Request::read(&text, Syntax::Yaml, &Types));
        assert!(said.contains(says) && said.contains("bad.yaml:10:"), "{wrong}: {said}");
    }
}

#[test]
fn a_hardware_description_has_servers_with_cores_clock_and_network() {
    let text = "servers:\n  - { name: a, cores: 12, ghz: 2.1, nic: 10 Gbps }\n";
    let read = Hardware::read(text, Syntax::Yaml).unwrap();
    assert_eq!((read.servers[0].cores, read.servers[0].nic_bps), (12, Some(10_000_000_000)));
    for (from, to, says) in [
        ("cores: 12", "cores: 0", "at least 1"),
        ("ghz: 2.1", "ghz: -2", "in GHz"),
        ("10 Gbps", "10 Mpps", "in bits"),
        ("servers:", "switches: []\nservers:", "unknown field `switches`"),
    ] {
        let text = text.replace(from, to);
        let said = refused(&text, Hardware::read(&text, Syntax::Yaml));
        assert!(said.contains(says), "{to}: {said}");
    }
}
