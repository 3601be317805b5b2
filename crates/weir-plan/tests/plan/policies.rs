//! What policies mean: the graphs that come of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches, good, node};
use weir_plan::{
    Bandwidth, Isolate, MAX_WARNINGS, NodeKind, Options, Plan, PolicyError, Why, check, render,
    render_warnings,
};

const FIGURE_14: &str = "
// First, instantiate NFs from application types.
Proxy p;
NAT n;
FW f;
Port<0-7> int; // internal customer-facing ports
Port<8-15> ext; // external WAN-facing ports

// subnet declarations, to simplify filter writing
Address my_net 10.12.30.0/24; // private IP addr
Address wan_net 131.114.88.92/30; // public IP addr

pipelet { // outbound traffic
  int [dst port 80] -> p;
  int [!(dst port 80)] -> n;
  p [!(dst ip my_net)] -> n;
  n -> f;
  f [FW.safe && !(dst ip wan_net)] -> ext;
  f [!FW.safe] -> Drop;
}

pipelet { // inbound traffic
  ext -> f;
  f [FW.safe && (dst ip wan_net)] -> n;
  n [(src port 80) && (dst ip my_net)] -> p;
  n [!(src port 80) && (dst ip my_net)] -> int;
  p [dst ip my_net] -> int;
}
";

const FIGURE_16: &str = "
RateLimiter r; // two input ports, vp0 and vp1
Port<0-7> int; // internal customer-facing ports

pipelet { // outbound traffic
  int [ip proto 6] -> [prio0] r;
  int [ip proto 17] -> [prio1] r;
  r -> ...
}
";

#[test]
fn a_weir_is_a_chain_of_two_nfs() {
    let checked = good(
        "// a.weir\nPort<0> lan;  Port<1> wan;\nMacSwap x;  MacSwap y;\npipelet { lan -> x;  x -> y;  y -> wan; }",
    );
    assert_eq!(checked.warnings, []);
    assert_eq!(branches(&checked, "lan"), [": -> x"]);
    assert_eq!(branches(&checked, "x"), ["out: -> y"]);
    assert_eq!(branches(&checked, "y"), ["out: -> wan"]);
    assert_eq!(branches(&checked, "wan"), [""; 0]);
    assert_eq!(checked.graph.port(1), checked.graph.find("wan"));
}

#[test]
fn b_weir_splits_by_port_without_a_warning() {
    let checked = good(
        "// b.weir\nPort<0> lan;  Port<1> wan;\npipelet { lan [tcp port 80] -> wan;\n lan [!(tcp port 80)] -> Drop; }",
    );
    assert_eq!(checked.warnings, []);
    assert_eq!(
        branches(&checked, "lan"),
        [": [tcp port 80] -> wan", ": [not tcp port 80] -> Drop"]
    );
}

#[test]
fn a_chain_is_its_edges() {
    let ports = "Port<0> lan; Port<1> wan; MacSwap x; MacSwap y; default drop;";
    let sugar = good(&format!("{ports} pipelet {{ lan [ip] -> x -> (1 Gbps) y -> wan; }}"));
    let plain = good(&format!("{ports} pipelet {{ lan [ip] -> x; x -> (1 Gbps) y; y -> wan; }}"));
    assert_eq!(sugar.graph, plain.graph);
    assert_eq!(sugar.graph.edges()[1].bandwidth, Some(Bandwidth::Bps(1_000_000_000)));
}

#[test]
fn output_names_become_branches_of_their_output() {
    let checked = good(
        "Port<0> lan; Port<1> wan; CheckIpHeader chk; MacSwap x; first match;
         pipelet { lan -> chk; chk [chk.ip && tcp port 80] -> x; chk [CheckIpHeader.non_ip || udp] -> wan; chk -> Drop; x -> wan; }",
    );
    assert_eq!(
        branches(&checked, "chk"),
        ["ip: [tcp port 80] -> x", "ip: [udp] -> wan", "ip: -> Drop", "non_ip: -> wan"]
    );
    assert_eq!(checked.warnings, []);
}

#[test]
fn an_instance_s_configuration_reaches_the_graph() {
    let checked = good(
        "Port<0> lan; L3L4Filter fw {
           default: 'pass', /* JSON5 */ \"rules\": [ { action: \"drop\", proto: \"tcp\", dst_port: 0x50, }, ], // last comma
         };
         pipelet { lan -> fw -> lan; }",
    );
    let (_, node) = node(&checked, "fw");
    let NodeKind::Nf { config, .. } = &node.kind else { panic!("{node:?}") };
    assert_eq!(
        *config,
        serde_json::json!({"default": "pass", "rules": [{"action": "drop", "proto": "tcp", "dst_port": 80}]})
    );
}

#[test]
fn default_drop_allows_holes_where_it_stands() {
    let holes = |text: &str| -> Vec<String> {
        let hole = |e: &PolicyError| match &e.why {
            Why::Hole { name, .. } => name.clone(),
            why => panic!("{why}"),
        };
        check(&format!("Port<0> a; Port<1> b; {text}"), &Types)
            .map_or_else(|errors| errors.iter().map(hole).collect(), |_| Vec::new())
    };
    assert_eq!(holes("pipelet { a [ip] -> b; }"), ["a"]);
    assert_eq!(holes("default drop; pipelet { a [ip] -> b; }"), [""; 0]);
    assert_eq!(holes("pipelet { a [ip] -> b; default drop; }"), [""; 0]);
    assert_eq!(holes("pipelet { a [ip] -> b; default drop; } pipelet { b [ip] -> a; }"), ["b"]);
}

#[test]
fn first_match_lets_the_order_decide_where_it_stands() {
    let overlaps = |text: &str| -> Vec<usize> {
        let line = |e: &PolicyError| match &e.why {
            Why::Overlap { line, .. } => line.number,
            why => panic!("{why}"),
        };
        check(&format!("Port<0> a; Port<1> b;\n{text}"), &Types)
            .map_or_else(|errors| errors.iter().map(line).collect(), |_| Vec::new())
    };
    assert_eq!(overlaps("pipelet { a [ip] -> Drop; a -> b; }"), [2]);
    assert_eq!(overlaps("first match; pipelet { a [ip] -> Drop; a -> b; }"), [0; 0]);
    assert_eq!(overlaps("pipelet { a [ip] -> Drop; first match; a -> b; }"), [0; 0]);
    // It says nothing of nodes that the pipelet has no edge from.
    assert_eq!(
        overlaps("pipelet { a -> b; first match; }\npipelet { b [ip] -> a; b -> Drop; }"),
        [3]
    );
    let checked = good("Port<0> a; Port<1> b; first match; pipelet { a [ip] -> Drop; a -> b; }");
    assert_eq!(branches(&checked, "a"), [": [ip] -> Drop", ": -> b"]);
}

#[test]
fn the_edge_that_a_hole_s_error_proposes_closes_it() {
    for edges in [
        "a [ip] -> b;",
        "a [ip && tcp] -> b; a [udp && !(ip)] -> Drop;",
        "a [tcp dst portrange 0-1023] -> b; a [tcp dst portrange 1024-65535] -> Drop; a [!tcp] -> b;",
        "a -> c; c [c.ip && tcp] -> a; c [c.non_ip] -> Drop;",
        "a [ingress == 1] -> b;",
    ] {
        let head = "Port<0> a; Port<1> b; CheckIpHeader c;";
        let errors = check(&format!("{head} pipelet {{ {edges} }}"), &Types).unwrap_err();
        let [PolicyError { why: Why::Hole { name, rest: Some(rest), .. }, .. }] = &errors[..]
        else {
            panic!("{errors:?}");
        };
        good(&format!("{head} pipelet {{ {edges} {name} [{rest}] -> Drop; }}"));
    }
}

#[test]
fn each_packet_may_have_one_way_without_one_edge_that_takes_all() {
    for edges in [
        "a [ip] -> b; a [ip6] -> Drop; a [!(ip || ip6)] -> b;",
        "a [src net 10.0.0.0/9 || src net 10.128.0.0/9] -> b; a [!(src net 10.0.0.0/8)] -> Drop;",
        "a [tcp dst portrange 0-1023] -> b; a [tcp dst portrange 1024-65535] -> Drop;
         a [!(tcp dst portrange 0-65535)] -> b;",
        "a -> c; c [c.ip && tcp] -> a; c [c.ip && !tcp] -> b; c [c.non_ip] -> Drop;",
    ] {
        let text =
            format!("Port<0> a; Port<1> b; CheckIpHeader c; default drop; pipelet {{ {edges} }}");
        good(&text);
        good(&text.replace("default drop;", ""));
    }
}

#[test]
fn an_edge_that_two_pipelets_share_is_one_edge() {
    let checked = good(
        "Port<0> a; Port<1> b; MacSwap x; pipelet out { a -> x; x -> b; } pipelet again { b -> x; x -> b; }",
    );
    let names: Vec<&str> = checked.graph.edges().iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["a -> x", "x -> b", "b -> x"]);
    assert_eq!(checked.graph.edges()[1].pipelet.as_deref(), Some("out"));
}

#[test]
fn edges_between_the_same_nodes_have_different_names() {
    let checked = good(
        "Port<0> a; RateLimiter r; pipelet { a [tcp] -> [prio0] r; a [udp] -> [prio1] r; a [icmp] -> [RateLimiter.prio1] r; r -> a; default drop; }",
    );
    let edges: Vec<(&str, usize)> =
        checked.graph.edges().iter().map(|e| (e.name.as_str(), e.input)).collect();
    assert_eq!(
        edges,
        [
            ("a [tcp] -> [prio0] r", 0),
            ("a [udp] -> [prio1] r", 1),
            ("a [icmp] -> [prio1] r", 1),
            ("r -> a", 0)
        ]
    );
}

#[test]
fn warnings_say_what_is_probably_not_meant() {
    let text = "Port<0> a;\nPort<1> b; MacSwap unused; Address mine 10.0.0.0/8;\nMacSwap x; MacSwap y; CheckIpHeader c; first match; default drop;\npipelet {\n  a -> x;\n  a [tcp] -> b;\n  y -> b;\n  b -> c;\n  c [c.ip && c.non_ip] -> b;\n  c [c.ip] -> b; }";
    let shown = render_warnings(&good(text).warnings, "w.weir", text);
    let heads: Vec<&str> = shown.lines().filter(|line| line.starts_with("w.weir")).collect();
    assert_eq!(
        heads,
        [
            "w.weir:2:20: warning: `unused` is never used and left out",
            "w.weir:2:36: warning: `mine` is never used and left out",
            "w.weir:3:20: warning: no edge leads to `y`, so it gets no packets",
            "w.weir:6:3: warning: no packet reaches this edge: the edge in line 5 takes all",
            "w.weir:9:3: warning: no packet matches this edge's filter",
        ]
    );
}

#[test]
fn a_filter_that_is_proved_to_take_nothing_is_warned_of_whatever_its_text() {
    for never in [
        "ip && ip6",
        "tcp && udp",
        "src net 10.0.0.0/8 && src net 192.168.0.0/16",
        "ip[9] == 6 && udp",
        "len < 10 && tcp",
        "ingress == 0 && ingress == 1",
    ] {
        let text = format!(
            "Port<0> a; Port<1> b; MacSwap x; pipelet {{\n a -> x;\n x [{never}] -> a;\n x -> b; }}"
        );
        let heads = |text: &str| -> Vec<String> {
            let shown = render_warnings(&good(text).warnings, "w.weir", text);
            shown.lines().filter(|line| line.starts_with("w.weir")).map(str::to_owned).collect()
        };
        let expected = "w.weir:3:2: warning: no packet matches this edge's filter";
        assert_eq!(heads(&text), [expected], "{never}");
        // The order of the text decides then, and nothing has to be proved.
        assert_eq!(heads(&format!("{text} default drop; first match;")), [expected], "{never}");
    }
}

#[test]
fn warnings_beyond_the_limit_are_counted_in_one() {
    let warned = |n: usize| -> Vec<String> {
        let unused: String = (0..n).map(|i| format!("MacSwap x{i};\n")).collect();
        let text = format!("Port<0> a;\n{unused}pipelet {{ a -> a; }}");
        good(&text).warnings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(warned(MAX_WARNINGS).len(), MAX_WARNINGS);
    let many = warned(500);
    assert_eq!(many.len(), MAX_WARNINGS + 1);
    assert_eq!(many[0], "`x0` is never used and left out; leave its declaration out");
    let last = &many[MAX_WARNINGS];
    assert_eq!(last, "more than 100 warnings: 400 are not shown; correct these first");
}

#[test]
fn figure_14_of_the_paper_lacks_only_the_drops_that_it_leaves_out() {
    let why: Vec<String> =
        check(FIGURE_14, &Types).unwrap_err().iter().map(|e| e.why.to_string()).collect();
    assert!(
        why.iter().all(|why| why.starts_with("no edge takes a packet from `n` such as ")),
        "{why:?}"
    );
    assert_eq!(why.len(), 1);
    let text = format!("default drop;{FIGURE_14}");
    let checked = good(&text);
    // E2, appendix: "E2 will thus add a filter that limits the edge for the `n -> f` rule to
    // traffic arriving from an internal port".
    assert_eq!(
        branches(&checked, "n"),
        [
            "out: [ingress == 0-7] -> f",
            "out: [ingress == 8-15 and src port 80 and dst net 10.12.30.0/24] -> p",
            "out: [ingress == 8-15 and not src port 80 and dst net 10.12.30.0/24] -> int",
        ]
    );
    assert_eq!(
        branches(&checked, "f"),
        [
            "safe: [not dst net 131.114.88.92/30] -> ext",
            "safe: [dst net 131.114.88.92/30] -> n",
            "unsafe: -> Drop",
        ]
    );
    assert_eq!(
        branches(&checked, "p"),
        ["out: [not dst net 10.12.30.0/24] -> n", "out: [dst net 10.12.30.0/24] -> int"]
    );
    assert_eq!(branches(&checked, "int"), [": [dst port 80] -> p", ": [not dst port 80] -> n"]);
    assert_eq!(branches(&checked, "ext"), [": -> f"]);
}

#[test]
fn the_edges_that_close_cycles_are_those_that_lead_back_to_where_packets_come_in() {
    let checked = good(&format!("default drop;{FIGURE_14}"));
    let graph = &checked.graph;
    let closing = graph.edges().iter().filter(|edge| edge.closes);
    assert_eq!(closing.map(|edge| edge.name.as_str()).collect::<Vec<_>>(), ["f -> n", "n -> p"]);
    let order: Vec<&str> =
        graph.order().iter().map(|id| graph.node(*id).unwrap().name.as_str()).collect();
    assert_eq!(order, ["p", "n", "f"]);
    let shown = render_warnings(&checked.warnings, "f.weir", FIGURE_14);
    assert!(
        shown.contains(
            "packets may go in a circle: n -> f -> n; what finds the way back full is dropped"
        ),
        "{shown}"
    );
    assert_eq!(graph.not_run(), []);
}

#[test]
fn plans_with_cycles_and_port_arrays_have_a_ring_for_each_way() {
    let checked = good(&format!("default drop;{FIGURE_14}"));
    for isolate in [Isolate::Each, Isolate::None] {
        let options = Options {
            isolate,
            cores: None,
            online: 2,
            domains: Default::default(),
            ..Options::default()
        };
        let plan = Plan::build(&checked.graph, &options).unwrap();
        let carried = |name: &str| {
            let edge = plan.edges.iter().find(|edge| edge.name == name).unwrap();
            plan.lanes.iter().filter(|lane| lane.edge == edge.id).count()
        };
        // From 16 ports each, to eight.
        assert_eq!(carried("f -> ext"), 16 * 8);
        assert_eq!(carried("int -> p"), 8);
        if isolate == Isolate::Each {
            // What comes in anywhere comes back.
            assert_eq!((carried("n -> f"), carried("f -> n"), carried("n -> p")), (16, 16, 16));
        }
        assert_eq!(Plan::consolidated(&checked.graph, &options).unwrap().lanes, plan.lanes);
    }
}

#[test]
fn an_nf_may_feed_itself() {
    let checked =
        good("Port<0> a; MacSwap x; default drop; pipelet { a -> x; x [ip] -> x; x [!ip] -> a; }");
    assert_eq!(
        checked.graph.edges().iter().map(|e| e.closes).collect::<Vec<_>>(),
        [false, true, false]
    );
    assert_eq!(checked.graph.not_run(), []);
}

#[test]
fn an_nf_that_makes_packets_may_not_get_them_back() {
    let checked = good(
        "Port<0> a; MacSwap x; Tee t; Tee u; pipelet { a -> x; x -> t; t -> x; t -> u; u -> a; u -> Drop; }",
    );
    let why: Vec<String> = checked.graph.not_run().iter().map(ToString::to_string).collect();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(
        why[0].starts_with("`t` makes packets, and they may come back to it by `t -> x`"),
        "{why:?}"
    );
}

#[test]
fn an_edge_may_lead_to_a_port_array() {
    let checked = good("Port<0-7> int; Port<8> ext; pipelet { ext -> int; }");
    assert_eq!(checked.graph.not_run(), []);
}

#[test]
fn figure_14_without_its_way_back_is_sound() {
    let text = FIGURE_14.replace("Port<8-15>", "Port<8>");
    let (outbound, _) = text.split_once("pipelet { // inbound").unwrap();
    let why = check(outbound, &Types).unwrap_err().into_iter().map(|e| e.why);
    let why: Vec<String> = why.map(|why| why.to_string()).collect();
    // What the paper leaves to the inbound pipelet is a hole without it.
    assert_eq!(why.len(), 2, "{why:?}");
    assert!(why[0].starts_with("no edge takes a packet from `p` such as "), "{why:?}");
    assert!(why[1].starts_with("no edge takes a packet from `f` by `safe` such as "), "{why:?}");
    let checked = good(&format!("default drop; {outbound}"));
    assert_eq!(
        branches(&checked, "f"),
        ["safe: [not dst net 131.114.88.92/30] -> ext", "unsafe: -> Drop"]
    );
}

#[test]
fn figure_16_of_the_paper_lacks_only_what_its_dots_stand_for() {
    let errors = check(FIGURE_16, &Types).unwrap_err();
    assert!(
        matches!(errors.as_slice(), [e] if e.why == Why::Ellipsis),
        "{}",
        render(&errors, "f", FIGURE_16)
    );
    let completed = FIGURE_16
        .replace("r -> ...", "r -> wan;")
        .replace("pipelet", "Port<8> wan; default drop; pipelet");
    let checked = good(&completed);
    assert_eq!(checked.graph.edges().iter().map(|e| e.input).collect::<Vec<_>>(), [0, 1, 0]);
}

#[test]
fn comments_may_stand_inside_filters_without_moving_the_places_of_errors() {
    let text = "Port<0> a; pipelet { a [ip /* ; ] */ && // tail ]\n tpc] -> a; }";
    let errors = check(text, &Types).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(&text[errors[0].span.start..errors[0].span.end], "tpc");
}
