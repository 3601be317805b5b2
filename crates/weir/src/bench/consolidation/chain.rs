//! The µNF paper's service chain (Fig. 2): as three VNFs, each alone, and as a graph of least work by hand.

/// A VNF in the language of policies. `IN` and `OUT` in its edges stand for where packets come from and go to.
struct Vnf {
    declared: &'static str,
    edges: &'static str,
    /// Where packets enter it.
    entry: &'static str,
}

const VNFS: [Vnf; 3] = [
    Vnf {
        declared: "CheckIpHeader edge_ip;\nL3L4Filter edge_rules RULES;",
        edges: "edge_ip [edge_ip.ip] -> edge_rules -> OUT;\nedge_ip [edge_ip.non_ip] -> OUT;",
        entry: "edge_ip",
    },
    Vnf {
        declared: "CheckIpHeader mon_ip;\nHttpClassifier mon_http;\nCountUrl mon_urls;",
        edges: "mon_ip [mon_ip.ip] -> mon_http;\nmon_ip [mon_ip.non_ip] -> OUT;\n\
                mon_http [mon_http.http] -> mon_urls -> OUT;\nmon_http [mon_http.other] -> OUT;",
        entry: "mon_ip",
    },
    Vnf {
        declared: "CheckIpHeader app_ip;\nHttpClassifier app_http;\nValidateUrl app_urls;",
        edges: "app_ip [app_ip.ip] -> app_http;\napp_ip [app_ip.non_ip] -> OUT;\n\
                app_http [app_http.http] -> app_urls -> OUT;\napp_http [app_http.other] -> OUT;",
        entry: "app_ip",
    },
];

/// The edge firewall's rules: those of the demo, but what no rule matches passes, so that captures of other
/// networks go all of the way.
const RULES: &str = r#"{ default: "pass", rules: [
    { action: "pass", proto: "tcp", dst_port: 80 },
    { action: "pass", proto: "tcp", dst_port: 8080 },
    { action: "pass", proto: "tcp", src_port: 80, tcp_flags: "ack" },
    { action: "pass", proto: "tcp", src_port: 8080, tcp_flags: "ack" },
    { action: "drop", proto: "tcp", dst_port: 23 },
    { action: "pass", proto: "icmp" },
    { action: "pass", proto: "icmp6" },
] }"#;

const PORTS: &str = "Port<0> wan;\nPort<1> lan;\n";

/// Number of the chain's VNFs.
pub const LENGTH: usize = VNFS.len();

/// VNFs in a row between port 0 and port 1.
fn row(vnfs: &[Vnf]) -> String {
    let mut text = PORTS.to_owned();
    for vnf in vnfs {
        text += &format!("{}\n", vnf.declared.replace("RULES", RULES));
    }
    text += &format!("pipelet {{\nwan -> {};\n", vnfs.first().map_or("lan", |vnf| vnf.entry));
    for (at, vnf) in vnfs.iter().enumerate() {
        let next = vnfs.get(at + 1).map_or("lan", |next| next.entry);
        text += &format!("{}\n", vnf.edges.replace("OUT", next));
    }
    text + "}\n"
}

/// The whole chain: each VNF does all of its work itself.
pub fn whole() -> String {
    row(&VNFS)
}

/// Each VNF alone.
pub fn apart() -> Vec<String> {
    VNFS.iter().map(std::slice::from_ref).map(row).collect()
}

/// Fig. 11, as somebody would write it who knows all three VNFs: each kind of work once.
pub fn minimal() -> String {
    format!(
        "{PORTS}CheckIpHeader ip;\nL3L4Filter rules {RULES};\nHttpClassifier http;\nCountUrl urls;\n\
         ValidateUrl judge;\npipelet {{\nwan -> ip;\nip [ip.ip] -> rules -> http;\nip [ip.non_ip] -> lan;\n\
         http [http.http] -> urls -> judge -> lan;\nhttp [http.other] -> lan;\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Consolidate, from_text, plan};
    use std::collections::BTreeMap;
    use std::path::Path;
    use weir_plan::{Graph, Isolate, NodeId, NodeKind, Plan};

    fn planned(text: &str, isolate: Isolate, consolidate: Consolidate) -> Plan {
        let graph = from_text(text, "p").unwrap_or_else(|e| panic!("{e}")).graph;
        plan(&graph, Path::new("p"), isolate, Some(vec![0]), &[], consolidate).unwrap()
    }

    fn what(graph: &Graph, id: NodeId) -> String {
        match &graph.node(id).unwrap().kind {
            NodeKind::Nf { info, config } => format!("{} {config}", info.name),
            _ => graph.node(id).unwrap().name.clone(),
        }
    }

    /// Types, configurations and edges, without names.
    fn shape(plan: &Plan) -> BTreeMap<String, usize> {
        let mut shape = BTreeMap::new();
        for edge in plan.graph.edges() {
            let outputs = &edge.outputs;
            let (from, to) = (what(&plan.graph, edge.from), what(&plan.graph, edge.to));
            *shape.entry(format!("{from} {outputs:?} -> {to}")).or_default() += 1;
        }
        shape
    }

    /// So what the two cost cannot differ either but by chance.
    #[test]
    fn the_planner_makes_of_the_vnfs_what_is_least_by_hand_the_papers_figure_11() {
        for isolate in [Isolate::Each, Isolate::None] {
            let found = planned(&whole(), isolate, Consolidate::On);
            let by_hand = planned(&minimal(), isolate, Consolidate::Off);
            assert_eq!(shape(&found), shape(&by_hand));
            let workers = |plan: &Plan| plan.segments.len();
            assert_eq!(
                (workers(&found), found.lanes.len()),
                (workers(&by_hand), by_hand.lanes.len())
            );
            let written = planned(&whole(), isolate, Consolidate::Off);
            assert_eq!(written.graph.nodes().len(), found.graph.nodes().len() + 3);
        }
    }

    #[test]
    fn the_chain_is_the_demos_but_for_what_no_rule_matches() {
        let demo = include_str!("../../../../../demo/chain.weir");
        let of = |text: &str| {
            let graph = planned(text, Isolate::None, Consolidate::Off).graph;
            let types = graph.nodes().iter().filter_map(|node| match &node.kind {
                NodeKind::Nf { info, .. } => Some((node.name.clone(), info.name.clone())),
                _ => None,
            });
            let mut edges: Vec<_> = graph.edges().iter().map(|edge| edge.name.clone()).collect();
            edges.sort();
            (types.collect::<BTreeMap<_, _>>(), edges)
        };
        assert_eq!(of(&whole()), of(demo));
        assert_eq!(apart().len(), LENGTH);
    }
}
