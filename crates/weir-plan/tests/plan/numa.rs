//! Where things run on machines of several NUMA nodes, made up here.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::Types;
use proptest::prelude::*;
use serde_json::Value;
use weir_plan::{
    Access, Catalog, ConfigProblem, Effect, Isolate, NfInfo, Options, Plan, SegmentKind,
    SideBySide, Topology, Touch, Work, check, parallelise,
};

/// `Look`, any number of which may work on a packet at the same time, and `Change`, which may beside nothing.
struct Two;

impl Catalog for Two {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let (touch, writes_packets) = match type_name {
            "Look" => (Touch::Read, false),
            "Change" => (Touch::Write, true),
            _ => return None,
        };
        let (access, effect) = (Access::all(touch), Effect::Stateful);
        let work = Work { access, effect, cost_cycles: 700, ..Work::default() };
        let base = Types.nf("MacSwap")?;
        Some(NfInfo { name: type_name.to_owned(), writes_packets, work, ..base })
    }

    fn types(&self) -> Vec<String> {
        ["Look", "Change"].map(str::to_owned).to_vec()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

/// `nodes` of `each` cores, numbered one node after the other.
fn machine(nodes: u32, each: usize) -> Topology {
    let cores = |node: u32| (node as usize * each..(node as usize + 1) * each).collect();
    Topology { nodes: (0..nodes).map(|node| (node, cores(node))).collect(), nics: BTreeMap::new() }
}

fn options(topology: Topology, cores: Option<&[usize]>) -> Options {
    let cores = cores.map(<[usize]>::to_vec);
    Options { isolate: Isolate::Each, cores, online: 16, topology, ..Options::default() }
}

/// A chain of these types.
fn plan(chain: &[&str], options: &Options) -> Plan {
    let names: Vec<String> = (0..chain.len()).map(|i| format!("n{i}")).collect();
    let declared = chain.iter().zip(&names).map(|(nf, name)| format!("{nf} {name}; "));
    let text = format!(
        "Port<0> lan; Port<1> wan; {} pipelet {{ lan -> {} -> wan; }}",
        declared.collect::<String>(),
        names.join(" -> ")
    );
    let graph = check(&text, &Two).unwrap().graph;
    Plan::build(&graph, options).unwrap().side_by_side(options, SideBySide::Auto).unwrap()
}

fn core(plan: &Plan, name: &str) -> usize {
    plan.segment(plan.find(name).unwrap()).unwrap().core.unwrap()
}

const CHAIN: [&str; 4] = ["Change", "Look", "Look", "Change"];

#[test]
fn branches_are_on_distinct_cores_of_one_node_and_the_plan_says_so() {
    // Of node 0 the services have one of two cores: the stage fits on node 1 only.
    let topology = machine(2, 2);
    let plan = plan(&CHAIN, &options(topology, Some(&[0, 1, 2, 3])));
    let branches = BTreeSet::from([core(&plan, "n1"), core(&plan, "n2")]);
    assert_eq!(branches, BTreeSet::from([2, 3]), "{}", plan.to_text());
    let said = plan.to_text();
    assert!(said.contains("n1 | n2: come together in n3, all on node 1"), "{said}");
    assert!(said.contains("n1, core 2 (node 1)") || said.contains("n1, core 3 (node 1)"), "{said}");
}

#[test]
fn a_stage_that_no_node_has_cores_for_stays_in_sequence_and_the_plan_says_why() {
    let in_sequence = |topology: Topology, cores: Option<&[usize]>| {
        let plan = plan(&CHAIN, &options(topology, cores));
        assert!(plan.stages.is_empty(), "{}", plan.to_text());
        plan.in_sequence_to_text()
    };
    // Three cores for NFs, each of another node.
    let said = in_sequence(machine(4, 1), Some(&[0, 1, 2, 3]));
    assert!(
        said.contains("2 cores of one NUMA node are needed, and no node has more than 1"),
        "{said}"
    );
    let said = in_sequence(machine(2, 4), None);
    assert!(said.contains("several NUMA nodes, and no cores are given"), "{said}");
    // Too few in all: as on any machine.
    let said = in_sequence(machine(2, 1), Some(&[0, 1]));
    assert!(said.contains("2 cores are needed and there is 1 for NFs"), "{said}");
    // Who insists has it side by side all the same.
    let options = options(machine(4, 1), Some(&[0, 1, 2, 3]));
    let text = "Port<0> lan; Port<1> wan; Look a; Look b; pipelet { lan -> a -> b -> wan; }";
    let graph = check(text, &Two).unwrap().graph;
    let plan = Plan::build(&graph, &options).unwrap();
    let plan = plan.side_by_side(&options, SideBySide::Always).unwrap();
    assert_eq!(plan.stages.len(), 1);
    assert!(plan.to_text().contains("on several nodes"), "{}", plan.to_text());
}

#[test]
fn services_are_on_the_node_of_their_nic_and_the_plan_says_which_are_not() {
    let mut topology = machine(2, 4);
    topology.nics = BTreeMap::from([(0, 1), (1, 7)]);
    let with = |cores: &[usize]| plan(&CHAIN, &options(topology.clone(), Some(cores)));
    let near = with(&[0, 1, 2, 4, 5, 6]);
    assert_eq!((core(&near, "rx:lan"), core(&near, "tx:wan")), (4, 0));
    assert!((0..4).all(|n| ![0, 4].contains(&core(&near, &format!("n{n}")))), "{}", near.to_text());
    let said = near.to_text();
    assert!(said.contains("rx:lan: on core 4, as its NIC is at node 1"), "{said}");
    assert!(said.contains("tx:wan: on core 0, although its NIC is at node 7"), "{said}");
    // NFs have a core of their own before services are near their NICs.
    let few = with(&[0, 4]);
    assert_eq!((core(&few, "rx:lan"), core(&few, "n0")), (0, 4), "{}", few.to_text());
    // On a machine of one node nothing is said of nodes.
    let plain = plan(&CHAIN, &options(machine(1, 8), Some(&[0, 1, 2])));
    assert!(!plain.to_text().contains("node"), "{}", plain.to_text());
}

/// The cores that are left for NFs, by the rule in words: the services have the first that is given, and of each node with a NIC the first
/// of that node, unless none is left.
fn for_nfs(topology: &Topology, cores: &[usize]) -> Vec<usize> {
    let mut services = BTreeSet::from([cores[0]]);
    if topology.nodes.len() > 1 {
        let of = |node: &u32| cores.iter().find(|core| topology.node_of(**core) == Some(*node));
        services.extend(topology.nics.values().filter_map(of));
    }
    let left = |services: &BTreeSet<usize>| {
        cores.iter().copied().filter(|core| !services.contains(core)).collect::<Vec<_>>()
    };
    let all = [left(&services), left(&BTreeSet::from([cores[0]])), vec![cores[0]]];
    all.into_iter().find(|cores| !cores.is_empty()).unwrap()
}

fn case() -> impl Strategy<Value = (Topology, Vec<usize>, Vec<&'static str>)> {
    let size = (prop::sample::select(vec![1_u32, 2, 4]), 1..5_usize);
    let chain = prop::collection::vec(prop::sample::select(vec!["Look", "Look", "Change"]), 1..8);
    (size, prop::collection::btree_map(0..2_u16, 0..5_u32, 0..3), chain).prop_flat_map(
        |((nodes, each), nics, chain)| {
            let topology = Topology { nics, ..machine(nodes, each) };
            let all: Vec<usize> = (0..nodes as usize * each).collect();
            let most = all.len();
            let cores = prop::sample::subsequence(all, 1..=most).prop_shuffle();
            (Just(topology), cores, Just(chain))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn stages_are_on_one_node_or_in_sequence_and_services_near_their_nics((topology, cores, chain) in case()) {
        let options = options(topology.clone(), Some(&cores));
        let plan = plan(&chain, &options);
        let nfs = for_nfs(&topology, &cores);
        let node = |core: usize| topology.node_of(core);
        let has_nodes = topology.nodes.len() > 1;
        let together = |n: u32| nfs.iter().filter(|core| node(**core) == Some(n)).count();
        let most = match has_nodes {
            true => topology.nodes.keys().map(|n| together(*n)).max().unwrap(),
            false => nfs.len(),
        };
        // Every stage that is worth it runs where a node has cores enough, and no other.
        let wanted = parallelise(&plan.graph, &options, SideBySide::Auto).stages;
        let fit = wanted.iter().filter(|stage| stage.nodes.len() <= most).count();
        prop_assert_eq!(plan.stages.len(), fit, "{}", plan.to_text());
        for stage in &plan.stages {
            let cores = stage.branches.iter().map(|id| plan.segment(*id).unwrap().core.unwrap());
            let cores: BTreeSet<usize> = cores.collect();
            prop_assert_eq!(cores.len(), stage.branches.len(), "{}", plan.to_text());
            let nodes: BTreeSet<_> = cores.iter().map(|core| node(*core)).collect();
            prop_assert!(!has_nodes || nodes.len() == 1, "{}", plan.to_text());
        }
        for segment in &plan.segments {
            let core = segment.core.unwrap();
            match segment.kind {
                SegmentKind::Nf => prop_assert!(nfs.contains(&core), "{}", plan.to_text()),
                SegmentKind::Rx { port, .. } | SegmentKind::Tx { port } if has_nodes => {
                    let nic = topology.nics.get(&port).copied();
                    let left = cores.iter().any(|core| node(*core) == nic && nic.is_some() && !nfs.contains(core));
                    prop_assert!(!left || node(core) == nic, "{}", plan.to_text());
                }
                _ => prop_assert_eq!(core, cores[0]),
            }
        }
        if !has_nodes {
            let plain = self::plan(&chain, &self::options(Topology::default(), Some(&cores)));
            let cores = |plan: &Plan| plan.segments.iter().map(|s| s.core).collect::<Vec<_>>();
            prop_assert_eq!(cores(&plain), cores(&plan));
        }
    }
}
