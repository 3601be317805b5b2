//! Plans with several instances of an NF.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::Types;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use weir_plan::service::Server;
use weir_plan::{
    Affinity, Asked, Catalog, ConfigProblem, EdgeKind, Effect, Field, FieldSet, Isolate, Key,
    NfInfo, Options, Over, Plan, PlanError, SegmentKind, Share, Sizing, Spread, Touch, Work, check,
    render,
};

/// NFs that read, named by their affinity; `Single` may not be split.
struct Kinds;

impl Catalog for Kinds {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let affinity = match type_name {
            "BySource" => Affinity::Source,
            "ByFlow" => Affinity::Flow,
            "Free" | "Single" => Affinity::None,
            "Nat" => Affinity::Ends,
            "Balancer" => Affinity::Client,
            _ => return None,
        };
        let work = Work {
            access: weir_plan::Access::all(Touch::Read),
            affinity,
            cost_cycles: 940,
            effect: Effect::Stateful,
            scales: type_name != "Single",
            timers: false,
            ..Work::default()
        };
        let info = NfInfo { name: type_name.to_owned(), work, ..Types.nf("MacSwap")? };
        let sides = || ["inside", "outside"].map(str::to_owned).to_vec();
        Some(match type_name {
            "Nat" | "Balancer" => NfInfo { inputs: sides(), outputs: sides(), ..info },
            _ => info,
        })
    }

    fn types(&self) -> Vec<String> {
        let all = ["BySource", "ByFlow", "Free", "Single", "Nat", "Balancer"];
        all.map(str::to_owned).to_vec()
    }

    fn check_config(&self, _: &str, _: &Value) -> Result<(), ConfigProblem> {
        Ok(())
    }
}

fn planned(
    text: &str,
    isolate: Isolate,
    cores: &[usize],
    asked: &[(&str, &[u32])],
) -> Result<(Plan, weir_plan::Instances), PlanError> {
    let weigh =
        |(name, weights): &(&str, &[u32])| ((*name).to_owned(), Asked::weighted(weights.to_vec()));
    planned_as(text, isolate, cores, &asked.iter().map(weigh).collect())
}

fn planned_as(
    text: &str,
    isolate: Isolate,
    cores: &[usize],
    asked: &BTreeMap<String, Asked>,
) -> Result<(Plan, weir_plan::Instances), PlanError> {
    let text = format!("Port<0> lan; Port<1> wan; {text}");
    let checked = check(&text, &Kinds)
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "test.weir", &text)));
    let options = Options {
        isolate,
        cores: Some(cores.to_vec()),
        online: 8,
        domains: BTreeMap::new(),
        ..Options::default()
    };
    let cores = u32::try_from(cores.len()).unwrap();
    let server = Server { name: "s".to_owned(), cores, ghz: 1.0, nic_bps: None };
    let sizing = Sizing { server: &server, objective: None, asked };
    Plan::sized(&checked.graph, &options, true, sizing)
}

fn plan(text: &str, cores: &[usize], asked: &[(&str, &[u32])]) -> Plan {
    planned(text, Isolate::Each, cores, asked).unwrap().0
}

/// Edges as `from -> to`, with the instance whose share those take that have one.
fn edges(plan: &Plan) -> BTreeSet<(String, Option<u32>)> {
    let name = |id| plan.graph.node(id).unwrap().name.clone();
    let edges = plan.graph.edges().iter();
    let index = |share: Share| share.index;
    edges.map(|e| (format!("{} -> {}", name(e.from), name(e.to)), e.share.map(index))).collect()
}

fn set(list: &[(&str, Option<u32>)]) -> BTreeSet<(String, Option<u32>)> {
    list.iter().map(|(edge, index)| ((*edge).to_owned(), *index)).collect()
}

const CHAIN: &str = "ByFlow a; Free b; pipelet { lan -> a -> b -> wan; }";
const CORES: [usize; 4] = [0, 1, 2, 3];

#[test]
fn each_instance_is_a_node_in_a_worker_of_its_own_and_has_its_share_of_every_edge() {
    let plan = plan(CHAIN, &CORES, &[("a", &[1, 1])]);
    let want = [("lan -> a#1", Some(0)), ("lan -> a#2", Some(1)), ("a#1 -> b", None)];
    let want = [want.as_slice(), &[("a#2 -> b", None), ("b -> wan", None)]].concat();
    assert_eq!(edges(&plan).len(), plan.graph.edges().len());
    assert_eq!(edges(&plan), set(&want));
    for name in ["rx:lan", "a#1", "a#2", "b", "tx:wan"] {
        assert!(plan.find(name).is_some(), "{name}");
    }
    let group = &plan.groups[0];
    assert_eq!(
        (group.name.as_str(), group.spread, group.nodes.len()),
        ("a", Spread::By(Key::Flow), 2)
    );
    // What meets again is merged in order.
    let b = plan.find("b").unwrap();
    assert!(plan.lanes_into(b).all(|lane| lane.ordered) && plan.lanes_into(b).count() == 2);
    assert!(plan.to_text().contains("a: 2, packets divided by flow"), "{}", plan.to_text());
}

#[test]
fn packets_are_divided_as_the_operator_says_where_those_meet_that_have_to() {
    let asked = |nf: &str, own: Asked| BTreeMap::from([(nf.to_owned(), own)]);
    let by = |affinity| Asked { affinity: Some(affinity), ..Asked::equal(2) };
    let pair = FieldSet::of(&[Field::IpSrc, Field::IpDst]);
    let peers = Affinity::of_fields(pair, true).unwrap();
    let one_way = Affinity::of_fields(pair, false).unwrap();
    let spread = |nf: &str, own: Asked| {
        let planned = planned_as(CHAIN, Isolate::Each, &CORES, &asked(nf, own));
        planned.map(|(plan, _)| plan.groups[0].spread)
    };
    let key = Key::Fields { fields: pair, symmetric: true };
    // Who may have any has what is chosen; who needs flows whole has fewer fields that keep them whole.
    assert_eq!(
        spread("b", by(one_way)),
        Ok(Spread::By(Key::Fields { fields: pair, symmetric: false }))
    );
    assert_eq!(spread("a", by(peers)), Ok(Spread::By(key)));
    assert_eq!(spread("b", by(Affinity::None)), Ok(Spread::InTurn));
    assert_eq!(
        spread("b", Asked { least_loaded: true, ..Asked::equal(2) }),
        Ok(Spread::LeastLoaded)
    );
    // The two directions of a flow have other sources, and of load or turns a flow has nothing.
    for own in [by(Affinity::Source), by(one_way), by(Affinity::Tuple), by(Affinity::None)] {
        let refused = spread("a", own.clone());
        assert!(matches!(refused, Err(PlanError::Divides { .. })), "{own:?}: {refused:?}");
    }
    let least = spread("a", Asked { least_loaded: true, ..Asked::equal(2) }).unwrap_err();
    assert_eq!(
        least.to_string(),
        "--instances a=...: ByFlow needs its packets divided by flow, so that those meet at one instance which have to; \
         to the least loaded they would not. Name other fields (`by=...`: those of its own, or some of them), or leave out how \
         packets are divided"
    );
    // One instance has all.
    let alone = Asked { least_loaded: true, ..Asked::equal(1) };
    assert!(planned_as(CHAIN, Isolate::Each, &CORES, &asked("a", alone)).is_ok());
}

#[test]
fn who_is_divided_by_chosen_fields_is_so_whatever_was_divided_before() {
    let both = |b: Asked| BTreeMap::from([("a".to_owned(), Asked::equal(2)), ("b".to_owned(), b)]);
    let hashed = |b: Asked| {
        let (plan, _) = planned_as(CHAIN, Isolate::Each, &CORES, &both(b)).unwrap();
        plan.graph.edges().iter().any(|e| e.name.starts_with("a -> b") && e.share.is_some())
    };
    // As ever, what is divided by flow goes straight on; not where other packets are to meet.
    assert!(!hashed(Asked::equal(2)));
    assert!(hashed(Asked { affinity: Some(Affinity::Source), ..Asked::equal(2) }));
    assert!(hashed(Asked { affinity: Some(Affinity::None), ..Asked::equal(2) }));
    assert!(!hashed(Asked { affinity: Some(Affinity::Flow), ..Asked::equal(2) }));
}

#[test]
fn with_auto_no_worker_has_two_instances_of_an_nf() {
    let asked: [(&str, &[u32]); 2] = [("a", &[1, 1, 1]), ("b", &[1, 1])];
    for cores in [&CORES[..2], &CORES[..]] {
        let plan = planned(CHAIN, Isolate::Auto, cores, &asked).unwrap().0;
        for segment in &plan.segments {
            let nodes = segment.nodes.iter().filter_map(|id| plan.graph.node(*id));
            let of: Vec<&str> =
                nodes.filter_map(|node| Some(node.instance.as_ref()?.name.as_str())).collect();
            let distinct: BTreeSet<&str> = of.iter().copied().collect();
            assert_eq!(of.len(), distinct.len(), "{}: {}", segment.name, plan.to_text());
        }
    }
}

#[test]
fn counters_of_the_policys_edges_are_sums_over_instances() {
    let plan = plan(CHAIN, &CORES, &[("a", &[1, 1]), ("b", &[1, 2, 1])]);
    let sums: Vec<_> = plan.tally.edges.iter().map(|e| (e.name.as_str(), e.sum.len())).collect();
    assert_eq!(sums, [("lan -> a", 2), ("a -> b", 6), ("b -> wan", 3)]);
    let all: BTreeSet<_> = plan.tally.edges.iter().flat_map(|e| &e.sum).collect();
    assert_eq!(all.len(), plan.edges.len());
}

#[test]
fn where_packets_are_divided_rightly_already_instance_leads_to_instance() {
    let text = "ByFlow a; ByFlow b; pipelet { lan -> a -> b -> wan; }";
    let plan = plan(text, &CORES, &[("a", &[1, 1]), ("b", &[1, 1])]);
    let want = [("lan -> a#1", Some(0)), ("lan -> a#2", Some(1)), ("a#1 -> b#1", None)];
    let want =
        [want.as_slice(), &[("a#2 -> b#2", None), ("b#1 -> wan", None), ("b#2 -> wan", None)]];
    assert_eq!(edges(&plan), set(&want.concat()));
}

/// Its flows go elsewhere while it runs, and those of whoever follows would not go along.
#[test]
fn an_nf_whose_instances_become_more_and_fewer_is_divided_alone() {
    let text = "ByFlow a; ByFlow b; ByFlow c; pipelet { lan -> a -> b -> c -> wan; }";
    let asked = ["a", "b", "c"].map(|name| (name.to_owned(), Asked::scaling(1, 2)));
    let plan = planned_as(text, Isolate::Each, &CORES, &asked.into()).unwrap().0;
    for (edge, share) in edges(&plan) {
        assert_eq!(share.is_some(), !edge.ends_with("wan"), "{edge}");
    }
    assert!(plan.groups.iter().all(|group| group.weights == [1, 0]), "{:?}", plan.groups);
    // As it is, who follows is divided anew, by the same.
    let asked = [("a", Asked::scaling(1, 2)), ("b", Asked::equal(2))];
    let asked = asked.map(|(name, asked)| (name.to_owned(), asked)).into();
    let text = "ByFlow a; ByFlow b; pipelet { lan -> a -> b -> wan; }";
    let (plan, instances) = planned_as(text, Isolate::Each, &CORES, &asked).unwrap();
    assert!(edges(&plan).contains(&("a#1 -> b#2".to_owned(), Some(1))));
    let said = instances.nfs[0].to_string();
    assert!(said.contains("2 instances, divided by flow, of which 1 at first"), "{said}");
}

/// The NFs called `names` as a segment's replicas, and how many.
fn replicas(names: &str, asked: Asked) -> BTreeMap<String, Asked> {
    let names: Vec<String> = names.split('+').map(str::to_owned).collect();
    asked.of_replicas(&names).into_iter().collect()
}

#[test]
fn a_segments_replicas_are_a_worker_each_and_packets_are_divided_over_them_once() {
    let text = "ByFlow a; ByFlow b; Free c; ByFlow d; pipelet { lan -> a -> b -> c -> d -> wan; }";
    for isolate in [Isolate::Each, Isolate::Auto] {
        for asked in [Asked::equal(2), Asked::weighted(vec![1, 2]), Asked::scaling(1, 2)] {
            let asked = replicas("a+b+c", asked);
            let plan = planned_as(text, isolate, &[0, 1, 2, 3, 4, 5, 6, 7], &asked).unwrap().0;
            for k in [1, 2] {
                let name = |nf: &str| plan.graph.find(&format!("{nf}#{k}")).unwrap();
                let [a, b, c] = ["a", "b", "c"].map(name);
                let own = plan.segments.iter().find(|segment| segment.nodes.contains(&a)).unwrap();
                assert_eq!(own.nodes[..3], [a, b, c], "{isolate}: {}", plan.to_text());
            }
            let edges = edges(&plan);
            let inside = ["a#1 -> b#1", "a#2 -> b#2", "b#1 -> c#1", "b#2 -> c#2"];
            for edge in inside {
                assert!(edges.contains(&(edge.to_owned(), None)), "{edge}: {edges:?}");
            }
            assert!(edges.contains(&("lan -> a#2".to_owned(), Some(1))));
            assert!(!edges.iter().any(|(name, _)| name == "a#1 -> b#2"), "{edges:?}");
        }
    }
}

/// The gateway of the examples, as far as a plan goes.
const GATEWAY: &str = "ByFlow fw; Nat nat; default drop; pipelet { lan -> fw; fw [ingress == 0] -> [inside] nat;
    nat [nat.outside] -> wan; wan -> [outside] nat; nat [nat.inside && ingress == 1] -> fw; fw [ingress == 1] -> lan; }";

#[test]
fn who_stands_beside_a_translator_is_divided_as_it_and_packets_that_come_back_meet_it_again_in_the_same_worker()
 {
    for nat in ["Nat", "Balancer"] {
        let text = GATEWAY.replace("Nat nat", &format!("{nat} nat"));
        let asked = replicas("fw+nat", Asked::equal(2));
        let (plan, _) = planned_as(&text, Isolate::Each, &CORES, &asked).unwrap();
        for k in [1, 2] {
            let [fw, nat] = ["fw", "nat"].map(|nf| plan.graph.find(&format!("{nf}#{k}")).unwrap());
            let own = plan.segments.iter().find(|segment| segment.nodes == [fw, nat]).unwrap();
            assert_eq!(own.again, [(fw, 1)], "{}", plan.to_text());
        }
        let key = if nat == "Nat" { Key::Ends } else { Key::Client };
        assert!(plan.groups.iter().all(|group| group.spread == Spread::By(key)));
        let sides = |from: &str| -> Vec<usize> {
            let edges = plan.graph.edges().iter();
            let from = edges.filter(|edge| edge.name.starts_with(&format!("{from} -> ")));
            from.filter_map(|edge| edge.share).map(|share| share.side).collect()
        };
        assert_eq!((sides("lan"), sides("wan")), (vec![0, 0], vec![1, 1]), "{}", plan.to_text());
        assert!(plan.lanes.iter().all(|lane| !lane.back && !lane.closes), "{}", plan.to_text());
    }
}

/// Each instance of what leads in a circle with NFs outside of it is laid out like the first, and none is left out.
#[test]
fn instances_on_a_cycle_are_alike_and_all_of_them_run() {
    for text in [
        "ByFlow a; ByFlow b; Free c; default drop; pipelet { lan -> a; a [ingress == 0] -> b; b [ingress == 0] -> c; c [ingress == 0] -> wan;
         wan -> c; c [ingress == 1] -> b; b [ingress == 1] -> a; a [ingress == 1] -> lan; }",
        "Free c; ByFlow b; ByFlow a; default drop; pipelet { wan -> c; c [ingress == 1] -> b; b [ingress == 1] -> a; a [ingress == 1] -> lan;
         lan -> a; a [ingress == 0] -> b; b [ingress == 0] -> c; c [ingress == 0] -> wan; }",
        "ByFlow a; ByFlow b; Free c; default drop; first match; pipelet { lan -> a; wan -> c; c -> a; a [tcp] -> b; b -> c; a -> wan; }",
    ] {
        for count in 1..=3 {
            let asked = replicas("a+b", Asked::equal(count));
            let (plan, _) = planned_as(text, Isolate::Each, &CORES, &asked).unwrap();
            let nfs = plan.graph.nodes().iter().filter(|node| node.is_nf()).count();
            let nodes = plan.segments.iter().filter(|segment| segment.kind == SegmentKind::Nf);
            assert_eq!(nodes.map(|segment| segment.nodes.len()).sum::<usize>(), nfs);
            let shape = |segment: &weir_plan::Segment| {
                let of = |id: &weir_plan::NodeId| plan.graph.node(*id).unwrap().policy_name().to_owned();
                let again = segment.again.iter().map(|(id, round)| (of(id), *round));
                (segment.nodes.iter().map(of).collect::<Vec<_>>(), again.collect::<Vec<_>>())
            };
            let pairs: Vec<_> =
                plan.segments.iter().filter(|s| s.nodes.len() == 2).map(shape).collect();
            assert_eq!(pairs.len(), count as usize, "{}", plan.to_text());
            assert!(pairs.iter().all(|pair| *pair == pairs[0]), "{pairs:?}");
        }
    }
}

#[test]
fn who_stands_beside_a_translator_and_has_packets_that_it_has_not_is_refused_with_the_cure() {
    for (text, nf, why) in [
        (
            // What the firewall lets through to a third network, as from there nobody translates.
            "ByFlow fw; Nat nat; Port<7> dmz; default drop; pipelet { lan -> fw; fw [ingress == 0 && dst net 10.0.0.0/8] -> dmz;
             fw [ingress == 0 && !(dst net 10.0.0.0/8)] -> [inside] nat; nat [nat.outside] -> wan; wan -> [outside] nat;
             nat [nat.inside && ingress == 1] -> fw; fw [ingress == 1] -> lan; }",
            "fw",
            "packets may leave fw without having been at the NF among them",
        ),
        (
            // From one inner host to another: the translator it comes back to would be that of the first.
            "ByFlow fw; Nat nat; default drop; first match; pipelet { lan -> fw; fw [ingress == 0] -> [inside] nat;
             nat [nat.outside && dst host 192.0.2.100] -> [outside] nat; nat [nat.outside] -> wan; wan -> [outside] nat;
             nat [nat.inside && ingress == 1] -> fw; nat [nat.inside] -> lan; fw [ingress == 1] -> lan; }",
            "nat",
            "packets do not go on to nat as they were divided",
        ),
        (
            "BySource fw; Nat nat; default drop; pipelet { lan -> fw -> [inside] nat; nat [nat.outside] -> wan; nat [nat.inside] -> Drop; }",
            "fw",
            "fw needs others together than those of a flow",
        ),
        (
            "ByFlow fw; Nat nat; default drop; first match; pipelet { lan -> fw; fw [src net 10.0.0.0/8] -> [inside] nat;
             fw -> [outside] nat; nat [nat.outside] -> wan; nat [nat.inside] -> wan; }",
            "nat",
            "packets of one port come to both sides of nat",
        ),
    ] {
        let asked = replicas("fw+nat", Asked::equal(2));
        let said = planned_as(text, Isolate::Each, &CORES, &asked).unwrap_err().to_string();
        let cure = format!("--instances {nf}=N");
        assert!(said.contains(why) && said.contains(&cure), "{text}: {said}");
    }
}

#[test]
fn who_cannot_be_a_replica_with_others_is_refused_with_why() {
    for (text, names, why) in [
        (
            "BySource a; ByFlow b; pipelet { lan -> a -> b -> wan; }",
            "a+b",
            "packets do not go on to b",
        ),
        (
            "ByFlow a; ByFlow x; ByFlow b; pipelet { lan -> a -> x -> b -> wan; }",
            "a+b",
            "do not go on to b",
        ),
        (
            "ByFlow a; ByFlow x; ByFlow b; pipelet { lan -> a; a [tcp] -> b; a [!tcp] -> x; x -> b; b -> wan; }",
            "a+b",
            "x stands between these",
        ),
        (
            "Nat a; Balancer b; pipelet { lan -> [inside] a; a [a.outside] -> [inside] b; a [a.inside] -> Drop; b -> wan; }",
            "a+b",
            "do not go on to b as they were divided",
        ),
        ("ByFlow a; ByFlow b; pipelet { lan -> a -> b -> wan; }", "a+nobody", "has no NF nobody"),
    ] {
        let asked = replicas(names, Asked::equal(2));
        let said = planned_as(text, Isolate::Each, &CORES, &asked).unwrap_err().to_string();
        assert!(said.contains(why), "{text}: {said}");
    }
}

/// Instance 3 of four sends to instance 1 of two, but a hash into two would send its packets elsewhere.
#[test]
fn packets_that_come_from_elsewhere_too_are_hashed_on_every_edge_unless_the_division_is_the_same() {
    let text = "ByFlow a; Free c; ByFlow b; pipelet { lan [tcp] -> a; lan [!tcp] -> c; a -> b; c -> b; b -> wan; }";
    let straight = |of_a: &[u32], of_b: &[u32]| {
        let plan = plan(text, &CORES, &[("a", of_a), ("b", of_b)]);
        let edges = edges(&plan);
        assert!(edges.iter().any(|(name, share)| name == "c -> b#1" && share.is_some()));
        edges.contains(&("a#1 -> b#1".to_owned(), None))
    };
    assert!(straight(&[1, 1], &[1, 1]) && straight(&[2, 1], &[2, 1]));
    assert!(!straight(&[1, 1, 1, 1], &[1, 1]) && !straight(&[2, 1], &[1, 1]));
}

#[test]
fn an_output_that_divides_keeps_the_order_of_its_branches() {
    let text = "Free a; Free b; pipelet { lan [tcp] -> a; lan [!tcp] -> b; a -> wan; b -> wan; }";
    let plan = plan(text, &CORES, &[("a", &[1, 1])]);
    let lan = plan.graph.find("lan").unwrap();
    let branches = &plan.graph.outputs(lan)[0].branches;
    let to = |b: &weir_plan::Branch| {
        plan.graph.node(plan.graph.edge(b.edge).unwrap().to).unwrap().name.clone()
    };
    assert_eq!(branches.iter().map(to).collect::<Vec<_>>(), ["a#1", "a#2", "b"]);
    assert_eq!(branches[0].filter, branches[1].filter);
}

#[test]
fn stated_traffic_makes_as_many_instances_as_it_needs_and_cores_carry() {
    let text = "Free a; pipelet { lan -> (2.5 Mpps) a -> wan; }";
    let count = |isolate, cores: &[usize]| {
        let (plan, instances) = planned(text, isolate, cores, &[]).unwrap();
        let nf = &instances.nfs[0];
        assert_eq!(plan.graph.order().len(), usize::try_from(nf.count).unwrap());
        (nf.count, nf.over)
    };
    assert_eq!(count(Isolate::Each, &CORES), (3, None));
    assert_eq!(count(Isolate::Auto, &CORES), (3, None));
    assert_eq!(count(Isolate::Each, &CORES[..3]), (2, Some(Over::Cores { needed: 3 })));
    assert_eq!(count(Isolate::Each, &CORES[..1]), (1, Some(Over::Cores { needed: 3 })));
    assert_eq!(count(Isolate::None, &CORES), (1, Some(Over::OneWorker { needed: 3 })));
}

#[test]
fn the_operators_word_goes_before_what_the_traffic_needs() {
    let text = "Free a; pipelet { lan -> (2.5 Mpps) a -> wan; }";
    for isolate in [Isolate::Each, Isolate::None] {
        let (plan, instances) = planned(text, isolate, &CORES, &[("a", &[3, 1])]).unwrap();
        assert_eq!((plan.groups[0].nodes.len(), &plan.groups[0].weights), (2, &vec![3, 1]));
        assert!(
            instances
                .to_text()
                .contains("a: 2 instances, divided in turn, as asked for, by weights 3:1")
        );
    }
    let fused = planned(text, Isolate::None, &CORES, &[("a", &[1, 1])]).unwrap().0;
    let inside = |e: &&weir_plan::PlanEdge| matches!(e.kind, EdgeKind::Direct { .. });
    assert_eq!((fused.segments.len(), fused.edges.iter().filter(inside).count()), (3, 0));
}

#[test]
fn instances_are_on_cores_of_their_own_and_cores_keep_as_many_workers() {
    let text = "Free a; Free b; Free c; pipelet { lan -> a -> b -> c -> wan; }";
    for asked in [("a", [1, 1]), ("b", [1, 1]), ("c", [1, 1])] {
        let plan = plan(text, &[0, 1, 2], &[(asked.0, &asked.1)]);
        let core = |name: &str| plan.segment(plan.find(name).unwrap()).unwrap().core.unwrap();
        let own = [core(&format!("{}#1", asked.0)), core(&format!("{}#2", asked.0))];
        assert_ne!(own[0], own[1], "{}", plan.to_text());
        for wanted in [1, 2] {
            let nfs = plan.segments.iter().filter(|s| s.core == Some(wanted)).count();
            assert_eq!(nfs, 2, "{}", plan.to_text());
        }
    }
}

#[test]
fn instances_that_cannot_be_are_refused_with_the_cure() {
    let text = "Single a; pipelet { lan -> a -> wan; }";
    let refused = |asked: &[(&str, &[u32])]| {
        planned(text, Isolate::Each, &CORES, asked).unwrap_err().to_string()
    };
    assert!(refused(&[("b", &[1, 1])]).contains("no NF b; it has a"));
    assert!(refused(&[("lan", &[1, 1])]).contains("NFs only"));
    assert!(refused(&[("a", &[1, 1])]).contains("the description of Single allows one instance"));
    assert!(refused(&[("a", &[1; 65])]).contains("65 instances are asked for; 1 to 64 can be"));
    assert!(planned(text, Isolate::Each, &CORES, &[("a", &[1])]).is_ok());
}

#[test]
fn weights_that_were_asked_for_hold_behind_a_divided_nf_too() {
    let text = "ByFlow a; ByFlow b; pipelet { lan -> a; a -> b; b -> wan; }";
    let uneven = plan(text, &[0, 1, 2, 3, 4], &[("a", &[1, 1]), ("b", &[3, 1])]);
    let hashed = edges(&uneven).into_iter().filter(|(name, _)| name.starts_with("a#")).count();
    assert_eq!(hashed, 4, "each instance of a sends to both of b, by their weights");
    let even = plan(text, &[0, 1, 2, 3, 4], &[("a", &[1, 1]), ("b", &[1, 1])]);
    let direct = edges(&even).into_iter().filter(|(name, _)| name.starts_with("a#")).count();
    assert_eq!(direct, 2, "each sends to its own");
}

#[test]
fn an_nf_in_a_domain_of_its_own_has_instances_whatever_ports_packets_come_by() {
    let text = "Port<0> lan; Port<1> wan; Free a; Free b;
        pipelet { lan -> a; a -> b; b -> wan; } pipelet { wan -> a; }";
    let asked = [("b".to_owned(), Asked::equal(2))].into();
    let server = Server { name: "s".to_owned(), cores: 8, ghz: 1.0, nic_bps: None };
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    for domain in ["theirs", ""] {
        let domains = [("b".to_owned(), domain.to_owned())].into();
        let options = Options {
            isolate: Isolate::Each,
            cores: None,
            online: 8,
            domains,
            ..Options::default()
        };
        let graph = check(text, &Kinds).unwrap().graph;
        let (_, sized) = Plan::sized(&graph, &options, true, sizing).unwrap();
        let counts: Vec<_> = sized.nfs.iter().map(|nf| (&*nf.name, nf.count)).collect();
        assert_eq!(counts, [("a", 1), ("b", 2)], "domain `{domain}`");
    }
}

#[test]
fn instances_that_traffic_asks_for_share_the_cores() {
    // A core manages 1 Mpps; each NF would have five instances, and there are seven cores for both.
    let text = "Free a; Free b; pipelet { lan -> (5 Mpps) a; a -> b; b -> wan; }";
    let (_, sized) = planned(text, Isolate::Each, &[0, 1, 2, 3, 4, 5, 6, 7], &[]).unwrap();
    let counts: Vec<_> = sized.nfs.iter().map(|nf| (nf.count, nf.over)).collect();
    assert_eq!(counts, [(3, Some(Over::Cores { needed: 5 })); 2]);
}
