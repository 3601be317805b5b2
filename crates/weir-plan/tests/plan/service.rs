//! Documents: what they mean, what is refused, and how.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common::{Types, branches};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use weir_plan::service::{DocumentKind, Hardware, MAX_PARTS, Request, Syntax, Template, schema};
use weir_plan::{
    Around, Catalog, Checked, ConfigProblem, Isolate, NfInfo, NodeKind, Options, Plan, check,
    render,
};

const FIREWALL: &str = "\
template: Firewall
parameters:
  - { name: rules, type: list, default: [] }
  - { name: default, type: string, optional: true }
nodes:
  - { name: check, type: CheckIpHeader }
  - { name: filter, type: L3L4Filter, config: { default: $default, rules: $rules } }
inputs:
  - { name: in, to: check }
links:
  - { from: check, label: ip, to: filter }
  - { from: check, to: other }
  - { from: filter, to: out }
outputs:
  - { name: out }
  - { name: other, optional: true }
";

/// The types of the other tests, and the templates given.
struct With(Vec<Arc<Template>>);

impl With {
    fn firewall() -> Self {
        With(vec![Arc::new(template(FIREWALL))])
    }
}

impl Catalog for With {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        Types.nf(type_name)
    }

    fn types(&self) -> Vec<String> {
        Types.types()
    }

    fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.0.iter().find(|template| template.name() == name).cloned()
    }

    fn templates(&self) -> Vec<String> {
        self.0.iter().map(|template| template.name().to_owned()).collect()
    }

    /// Proxies want to know where they send to.
    fn generate(
        &self,
        type_name: &str,
        config: &Value,
        around: &Around,
    ) -> Result<Value, ConfigProblem> {
        if type_name != "Proxy" {
            return Ok(config.clone());
        }
        match around.outputs.first().and_then(|(_, to)| to.first()) {
            Some(to) => Ok(json!({ "next": to, "from": around.inputs[0].1 })),
            None => Err(ConfigProblem { path: String::new(), why: "it leads nowhere".to_owned() }),
        }
    }

    fn check_config(&self, type_name: &str, config: &Value) -> Result<(), ConfigProblem> {
        Types.check_config(type_name, config)
    }
}

fn template(text: &str) -> Template {
    Template::read(text, Syntax::Yaml, &Types)
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "template.yaml", text)))
}

fn request(text: &str) -> Checked {
    Request::read(text, Syntax::Yaml, &With::firewall())
        .unwrap_or_else(|errors| panic!("{}", render(&errors, "test.yaml", text)))
        .checked
}

/// All that is said about a document that must not be taken.
fn refused<T>(text: &str, read: Result<T, Vec<weir_plan::PolicyError>>) -> String {
    match read {
        Ok(_) => panic!("this was taken:\n{text:.300}"),
        Err(errors) => render(&errors, "bad.yaml", text),
    }
}

fn refused_request(text: &str) -> String {
    refused(text, Request::read(text, Syntax::Yaml, &With::firewall()))
}

fn refused_template(text: &str) -> String {
    refused(text, Template::read(text, Syntax::Yaml, &Types))
}

const REQUEST: &str = "\
service: chain
ports:
  - { name: lan, number: 0 }
  - { name: wan, number: 1 }
vnfs:
  - { name: fw, type: Firewall, parameters: { default: pass } }
  - { name: x, type: MacSwap }
links:
  - { from: lan, to: fw }
  - { from: fw, label: out, filter: tcp port 80, to: x }
  - { from: fw, label: out, to: wan }
  - { from: fw, label: other, to: wan }
  - { from: x, to: wan, bandwidth: 1 Gbps }
first_match: true
";

#[test]
fn a_request_is_the_policy_that_says_the_same_and_both_expand_to_the_same_micro_nfs() {
    let policy = "Port<0> lan; Port<1> wan; Firewall fw { default: \"pass\" }; MacSwap x;
        pipelet chain { lan -> fw; fw [(tcp port 80) && fw.out] -> x; fw [fw.out] -> wan;
          fw [fw.other] -> wan; x -> (1 Gbps) wan; }
        first match;";
    let written = check(policy, &With::firewall()).unwrap();
    let checked = request(REQUEST);
    assert_eq!(checked.written, written.written);
    assert_eq!(checked.graph, written.graph);
    assert_eq!(checked.warnings, []);
    let names: Vec<_> = checked.graph.nodes().iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["lan", "wan", "fw/check", "fw/filter", "x"]);
    assert_eq!(branches(&checked, "lan"), [": -> fw/check"]);
    assert_eq!(branches(&checked, "fw/check"), ["ip: -> fw/filter", "non_ip: -> wan"]);
    assert_eq!(branches(&checked, "fw/filter"), ["out: [tcp port 80] -> x", "out: -> wan"]);
    let order: Vec<_> = checked.graph.order().iter().map(|id| names[id.index()]).collect();
    assert_eq!(order, ["fw/check", "fw/filter", "x"]);
    for node in checked.graph.nodes() {
        let vnf = node.vnf.as_ref().map(|vnf| (vnf.instance.as_str(), vnf.template.as_str()));
        assert_eq!(vnf, node.name.starts_with("fw/").then_some(("fw", "Firewall")));
    }
    let NodeKind::Nf { config, .. } = &crate::common::node(&checked, "fw/filter").1.kind else {
        panic!()
    };
    assert_eq!(*config, json!({ "default": "pass", "rules": [] }));
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = r#"{ service: "chain", ports: [{ name: "lan", number: 0 }, { name: "wan", number: 1 }],
        vnfs: [{ name: "fw", type: "Firewall", parameters: { default: "pass" } }, { name: "x", type: "MacSwap" }],
        links: [{ from: "lan", to: "fw" }, { from: "fw", label: "out", filter: "tcp port 80", to: "x" },
          { from: "fw", label: "out", to: "wan" }, { from: "fw", label: "other", to: "wan" },
          { from: "x", to: "wan", bandwidth: "1 Gbps" }], first_match: true, /* JSON5 */ }"#;
    let read = Request::read(json, Syntax::Json, &With::firewall()).unwrap();
    assert_eq!(read.checked.graph, request(REQUEST).graph);
}

#[test]
fn vnfs_that_follow_each_other_are_linked_micro_nf_to_micro_nf() {
    let text = REQUEST
        .replace("  - { name: x, type: MacSwap }\n", "  - { name: x, type: Firewall }\n")
        .replace("from: x, to: wan, bandwidth: 1 Gbps", "from: x, to: wan");
    let checked = request(&text);
    assert_eq!(branches(&checked, "fw/filter"), ["out: [tcp port 80] -> x/check", "out: -> wan"]);
    assert_eq!(branches(&checked, "x/check"), ["ip: -> x/filter", "non_ip: -> wan"]);
    assert_eq!(branches(&checked, "x/filter"), ["out: -> wan"]);
    // Names of edges are what counters and captures go by.
    let mut names: Vec<_> = checked.graph.edges().iter().map(|edge| &edge.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), checked.graph.edges().len());
}

#[test]
fn what_no_edge_of_a_vnf_takes_is_dropped_only_if_the_policy_says_so() {
    let with = |default_drop: bool| {
        format!(
            "service: s\nports: [{{ name: p, number: 0 }}]\nvnfs: [{{ name: fw, type: Firewall }}]\n\
             links:\n  - {{ from: p, to: fw }}\n  - {{ from: fw, filter: tcp, to: p }}\ndefault_drop: {default_drop}\n"
        )
    };
    let said = refused_request(&with(false));
    assert!(said.contains("no edge takes a packet from `fw` by `out` such as"), "{said}");
    let checked = request(&with(true));
    assert_eq!(branches(&checked, "fw/check"), ["ip: -> fw/filter", "non_ip: [tcp] -> p"]);
    assert_eq!(branches(&checked, "fw/filter"), ["out: [tcp] -> p"]);
    let (_, check) = crate::common::node(&checked, "fw/check");
    let drops: Vec<_> = check.outputs.iter().map(|output| output.default_drop).collect();
    // Inside the VNF all of `ip` has a way.
    assert_eq!(drops, [false, true]);
}

#[test]
fn links_of_which_several_match_are_refused_unless_their_order_decides() {
    let said = refused_request(&REQUEST.replace("first_match: true", "first_match: false"));
    let place = place_of(REQUEST, "fw, label: out, to: wan }");
    assert!(said.contains(&format!("{place}: error: this edge and the one in line 10")), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}

#[test]
fn a_template_may_drop_and_an_output_must_have_a_link_unless_optional() {
    let drops = FIREWALL.replace("to: other }", "to: Drop }");
    let catalog = With(vec![Arc::new(template(&drops))]);
    let policy = "Port<0> p; Firewall fw; pipelet { p -> fw; fw [fw.out] -> p; }";
    let checked = check(policy, &catalog).unwrap();
    assert_eq!(branches(&checked, "fw/check"), ["ip: -> fw/filter", "non_ip: -> Drop"]);
    assert_eq!(checked.warnings, []);
    let strict = With(vec![Arc::new(template(
        &FIREWALL
            .replace(", optional: true }\n  - { name: other", "")
            .replace("{ name: other, optional: true }", "{ name: other }"),
    ))]);
    let said = refused(policy, check(policy, &strict));
    assert!(said.contains("no edge takes what leaves `fw` by `other`"), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    // Optional means that it may have no link, not that a link may take half of it.
    let half = policy.replace("fw [fw.out] -> p", "fw [fw.out] -> p; fw [fw.other && arp] -> p");
    let said = refused(&half, check(&half, &With::firewall()));
    assert!(said.contains("no edge takes a packet from `fw` by `other` such as"), "{said}");
}

#[test]
fn the_configuration_generator_sees_the_neighbours_in_the_expanded_graph() {
    let policy = "Port<0> p; Firewall fw; Proxy x; pipelet { p -> x; x -> fw -> p; }";
    let checked = check(policy, &With::firewall()).unwrap();
    let NodeKind::Nf { config, .. } = &crate::common::node(&checked, "x").1.kind else { panic!() };
    assert_eq!(*config, json!({ "next": "fw/check", "from": ["p"] }));
    let nowhere = "Port<0> p; Proxy x; pipelet { p -> x; } default drop;";
    let said = refused(nowhere, check(nowhere, &With::firewall()));
    assert!(said.contains("bad.yaml:1:18") && said.contains("it leads nowhere"), "{said}");
}

#[test]
fn all_errors_of_a_request_are_shown_at_once_each_at_its_place() {
    let text = REQUEST
        .replace("number: 1 }", "number: one }")
        .replace("type: MacSwap }", "typ: MacSwap }")
        .replace("label: other", "lable: other");
    let said = refused_request(&text);
    for (marker, says) in
        [("number: one", "u16"), ("typ: MacSwap", "write `type`"), ("lable", "write `label`")]
    {
        let place = format!("{}: error: ", place_of(&text, marker));
        assert!(said.contains(&place) && said.contains(says), "{place} is not in\n{said}");
    }
    // In the order of the text, and none of them twice.
    assert_eq!(said.matches("error: ").count(), 3, "{said}");
    assert!(said.find("one").unwrap() < said.find("lable").unwrap(), "{said}");
}

/// `bad.yaml:line:column` of the last `marker`.
fn place_of(text: &str, marker: &str) -> String {
    let at = text.rfind(marker).unwrap();
    let before = &text[..at];
    let column = at - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
    format!("bad.yaml:{}:{column}", before.matches('\n').count() + 1)
}

#[test]
fn names_labels_filters_and_parameters_are_checked_at_their_places() {
    for (from, to, marker, says) in [
        ("type: MacSwap", "type: MacSwop", "MacSwop", "`MacSwap`"),
        ("to: fw }", "to: fww }", "fww", "`fw`"),
        ("label: other", "label: othr", "othr", "`other`"),
        ("filter: tcp port 80", "filter: tcp prt 80", "prt", "prt"),
        ("filter: tcp port 80", "filter: \"tcp prt 80\"", "prt", "prt"),
        ("bandwidth: 1 Gbps", "bandwidth: 1 Gbit", "1 Gbit", "`10 Gbps`"),
        ("default: pass", "default: perhaps", "default: perhaps", "`filter`"),
        ("default: pass", "defolt: pass", "defolt", "`default`"),
        ("default: pass", "default: 7", "default: 7", "must be a string"),
        ("name: lan", "name: Port", "Port", "my_port"),
        ("number: 1 }", "number: 0 }", "number: 0 }", "port 0"),
    ] {
        let text = REQUEST.replace(from, to);
        assert_ne!(text, REQUEST, "{from}");
        let said = refused_request(&text);
        let place = format!("{}: error: ", place_of(&text, marker));
        assert!(said.contains(&place), "{to}: not {place}:\n{said}");
        assert!(said.contains(says), "{to}: not `{says}`:\n{said}");
    }
}

#[test]
fn a_link_has_an_error_for_each_fault_and_none_for_what_follows_from_faults_elsewhere() {
    let head = "service: S\nports: [ { name: lan, number: 0 }, { name: wan, number: 1 } ]\n\
                vnfs: [ { name: fw, type: FW }, { name: x, type: Nothing } ]\n";
    let of_x = "`Nothing`";
    for (link, says) in [
        (
            "{ from: fw, label: saf, to: wann, bandwidth: much }",
            &["no output called `saf`", "`wann` is not declared", "`much` is not a bandwidth"][..],
        ),
        ("{ from: lan, label: safe, to: fw }", &["`lan` has no output called `safe`"]),
        ("{ from: nobody, label: safe, to: wan }", &["`nobody` is not declared"]),
        ("{ from: x, label: safe, to: wan }", &[]),
    ] {
        let said = refused_request(&format!("{head}links: [ {link} ]\n"));
        assert!(says.iter().chain([&of_x]).all(|says| said.contains(says)), "{link}:\n{said}");
        assert_eq!(said.matches(": error: ").count(), says.len() + 1, "{link}:\n{said}");
    }
}

#[test]
fn cures_for_a_request_are_in_its_own_words() {
    let head = "service: S\nports: [ { name: lan, number: 0 }, { name: wan, number: 1 } ]\n";
    for (rest, says) in [
        ("links: []", "add links, as in `links: [{ from: lan, to: wan }]`"),
        (
            "links: [ { from: lan, to: elsewhere } ]",
            "add it to `vnfs`, as in `{ name: elsewhere, type: ... }`",
        ),
        (
            "links: [ { from: lan, to: MacSwap } ]",
            "add `{ name: my_macswap, type: MacSwap }` to `vnfs`",
        ),
        ("links: [ { from: Drop, to: wan } ]", "leave the link out"),
        ("links: [ { from: lan, to: wan, input: in } ]", "leave `input` out"),
        (
            "links: [ { from: lan, filter: tcp, to: wan }, { from: lan, to: Drop } ]",
            "write `first_match: true`",
        ),
        (
            "links: [ { from: lan, filter: ip proto 6, to: wan } ]",
            "`{ from: lan, filter: 'not ip proto 6', to: Drop }`, or write `default_drop: true`",
        ),
        (
            "vnfs: [ { name: fw, type: FW } ]\nlinks: [ { from: lan, to: fw }, { from: fw, label: safe, to: wan } ]",
            "`{ from: fw, label: unsafe, to: Drop }`",
        ),
        (
            "vnfs: [ { name: fw, type: FW } ]\nlinks: [ { from: lan, to: fw } ]",
            "`{ from: fw, to: Drop }`",
        ),
        (
            "vnfs: [ { name: r, type: RateLimiter } ]\nlinks: [ { from: lan, to: r }, { from: r, to: wan } ]",
            "add one of `input: prio0`, `input: prio1`",
        ),
    ] {
        let said = refused_request(&format!("{head}{rest}\n"));
        assert!(said.contains(says), "{rest}: not {says}:\n{said}");
        for cure in said.lines().filter(|line| line.trim_start().starts_with("= ")) {
            for word in ["pipelet", "->", "default drop", "first match;", "Port<", ";`"] {
                assert!(!cure.contains(word), "{rest}: {word} in {cure}");
            }
        }
    }
    let unused = "vnfs: [ { name: x, type: MacSwap } ]\nlinks: [ { from: lan, to: wan }, { from: x, to: wan } ]\n";
    let text = format!("{head}{unused}");
    let request = Request::read(&text, Syntax::Yaml, &Types).unwrap();
    let said = weir_plan::render_warnings(&request.checked.warnings, "r.yaml", &text);
    assert!(said.contains("add a link to it, as in `{ from: lan, to: x }`"), "{said}");
}

#[test]
fn a_key_that_is_there_already_is_not_suggested_for_another() {
    let text = "service: S\nports: [ { name: lan, number: 0, nam: 7 } ]\nlinks: []\n";
    let said = refused_request(text);
    assert!(said.contains("unknown field `nam`") && !said.contains("write `name`"), "{said}");
}

#[test]
fn an_output_of_a_micro_nf_that_no_link_takes_is_an_error_of_its_template() {
    let text = FIREWALL.replace("  - { from: check, to: other }\n", "");
    let errors = Template::read(&text, Syntax::Yaml, &Types).unwrap_err();
    let shown = render(&errors, "fw.yaml", &text);
    assert!(
        shown.starts_with("fw.yaml:6:13: error: no link takes what leaves `check` by `non_ip`")
            && shown.contains("`{ from: check, label: non_ip, to: Drop }`"),
        "{shown}"
    );
    template(&text.replace("links:", "links:\n  - { from: check, to: Drop }"));
}

#[test]
fn templates_are_checked_when_they_are_read() {
    for (from, to, says) in [
        ("type: CheckIpHeader", "type: CheckIPHeadr", "write `CheckIpHeader`"),
        ("label: ip,", "label: ipp,", "write `ip`\n"),
        (
            "to: filter }\n  - { from: check, to: other",
            "to: filtre }\n  - { from: check, to: other",
            "`filter`",
        ),
        ("{ name: in, to: check }", "{ name: in, to: chek }", "write `check`"),
        ("rules: $rules", "rules: $ruls", "write `rules`"),
        ("default: []", "default: 1", "not a list"),
        ("{ from: filter, to: out }", "{ from: filter, to: check }", "circle"),
        (
            "{ from: filter, to: out }",
            "{ from: filter, to: out }\n  - { from: filter, to: other }",
            "take all of these",
        ),
        ("name: filter, type", "name: check, type", "there twice"),
        ("name: other, optional", "name: filter, optional", "there twice"),
        ("template: Firewall", "template: Fire wall", "not a name"),
    ] {
        let text = FIREWALL.replace(from, to);
        assert_ne!(text, FIREWALL, "{from}");
        let said = refused_template(&text);
        assert!(said.contains(says), "{to}: not `{says}`:\n{said}");
    }
}

/// A template of one µNF that takes its parameter `n` times.
fn echo(n: usize) -> With {
    let text = format!(
        "template: Echo\nparameters: [{{ name: p, type: any, default: [] }}]\n\
         nodes: [{{ name: x, type: L3L4Filter, config: {{ rules: [{}] }} }}]\n\
         inputs: [{{ name: in, to: x }}]\nlinks: [{{ from: x, to: out }}]\noutputs: [{{ name: out }}]\n",
        "$p,".repeat(n)
    );
    With(vec![Arc::new(template(&text))])
}

#[test]
fn a_template_has_so_many_parts_at_most() {
    let node = "  - { name: check, type: CheckIpHeader }\n";
    let link = "  - { from: filter, to: out }\n";
    let out = "  - { name: out }\n";
    let input = "  - { name: in, to: check }\n";
    let parameter = "  - { name: rules, type: list, default: [] }\n";
    for (list, line) in [
        ("nodes", node),
        ("links", link),
        ("outputs", out),
        ("inputs", input),
        ("parameters", parameter),
    ] {
        let text = FIREWALL.replace(line, &line.repeat(MAX_PARTS + 1));
        let said = refused_template(&text);
        assert!(said.contains(&format!("{list} in one template")), "{said:.300}");
        assert!(said.contains("write at most 1024"), "{said:.300}");
        // Names were not looked at.
        assert_eq!(said.matches("error: ").count(), 1, "{said:.300}");
    }
}

#[test]
fn a_small_policy_of_vnfs_does_not_become_a_huge_graph() {
    let nodes: String =
        (0..1000).map(|i| format!("  - {{ name: n{i}, type: MacSwap }}\n")).collect();
    let links: String = (0..1000).map(|i| format!("  - {{ from: n{i}, to: out }}\n")).collect();
    let wide = format!(
        "template: Wide\nnodes:\n{nodes}inputs: [{{ name: in, to: n0 }}]\n\
         links:\n{links}outputs: [{{ name: out }}]\n"
    );
    let catalog = With(vec![Arc::new(template(&wide))]);
    let vnfs: String = (0..102).map(|i| format!("Wide w{i};\n")).collect();
    let text = format!("{vnfs}Port<0> p; pipelet {{ p -> w0 -> p; }}");
    let said = refused(&text, check(&text, &catalog));
    // The 101st is one too many, and the end of it.
    assert!(said.starts_with("bad.yaml:101:1: error: ") && said.contains("µNFs in VNFs"), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}

#[test]
fn parameters_are_filled_in_up_to_a_size_for_all_vnfs_together() {
    let long = "x".repeat(1 << 20);
    let text = format!("Port<0> p; Echo e0 {{ p: \"{long}\" }};\npipelet {{ p -> e0 -> p; }}");
    assert!(check(&text, &echo(2)).is_ok());
    for (what, text) in [
        ("long strings", text),
        ("many values", format!("Echo e0 {{ p: [{}] }};\n", "1,".repeat(20_000))),
    ] {
        let said = refused(&text, check(&text, &echo(100)));
        assert!(said.contains("use fewer VNFs or shorter parameters"), "{what}: {said:.300}");
    }
    // Of names that no parameter has, as many are looked at as are shown.
    let many: String = (0..50_000).map(|i| format!("q{i}: 1, ")).collect();
    let unknown = format!("Echo e0 {{ {many} }};\n");
    let said = refused(&unknown, check(&unknown, &echo(1)));
    assert_eq!(said.matches("no parameter is called").count(), 100, "{said:.300}");
    // Each is small, all are not, and the first too many ends it.
    let vnfs: String = (0..200).map(|i| format!("Echo e{i} {{ p: [1, 2] }};\n")).collect();
    let said = refused(&vnfs, check(&vnfs, &echo(10_000)));
    assert_eq!(said.matches("use fewer VNFs").count(), 1, "{said:.300}");
    assert!(!said.contains("bad.yaml:1:"), "{said:.300}");
}

#[test]
fn hostile_documents_are_errors() {
    let bomb = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        format!("{text}a{i}: &a{i} [*a{0}, *a{0}]\n", i - 1)
    });
    for (what, text) in [
        ("an alias bomb", bomb),
        ("ten megabytes", format!("service: {}", "x".repeat(10 << 20))),
        ("deep flow nesting", "[".repeat(100_000)),
        ("closed deep nesting", format!("{}{}", "[".repeat(5000), "]".repeat(5000))),
        ("deep block nesting", (0..2000).map(|i| format!("{}a:\n", " ".repeat(i))).collect()),
        ("a key twice", "service: a\nservice: b\n".to_owned()),
        ("two documents", "service: a\n---\nservice: b\n".to_owned()),
        ("merge keys", "a: &a { b: 1 }\nc: { <<: *a }\n".to_owned()),
        ("an unknown anchor", "a: *nowhere".to_owned()),
        ("a tag", "a: !!binary x".to_owned()),
        ("infinity", "service: .inf".to_owned()),
        ("nothing", String::new()),
        ("a scalar", "7".to_owned()),
        ("many values", format!("[{}]", "1,".repeat(300_000))),
    ] {
        let said = refused_request(&text);
        assert!(said.starts_with("bad.yaml:"), "{what}: {said:.300}");
        let json = refused(&text, Request::read(&text, Syntax::Json, &Types));
        assert!(json.starts_with("bad.yaml:"), "{what} as JSON: {json:.300}");
        refused_template(&text);
        refused(&text, Hardware::read(&text, Syntax::Yaml));
    }
}

#[test]
fn a_trust_domain_of_a_vnf_is_that_of_its_micro_nfs() {
    let graph = request(REQUEST).graph;
    let domains = [("fw".to_owned(), "guest".to_owned())].into();
    let options =
        Options { isolate: Isolate::Each, cores: None, online: 4, domains, ..Options::default() };
    let plan = Plan::build(&graph, &options).unwrap();
    let domain = |name: &str| {
        plan.segments.iter().find(|segment| segment.name == name).unwrap().domain.as_str()
    };
    assert_eq!([domain("fw/check"), domain("fw/filter"), domain("x")], ["guest", "guest", ""]);
}

#[test]
fn the_schemas_in_docs_are_those_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for kind in DocumentKind::ALL {
        let path = folder.join(format!("{kind}.json"));
        let now = format!("{:#}\n", schema(kind).as_value());
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == now, "write `weir schema {kind}` to {}", path.display());
    }
}

#[test]
fn an_empty_document_is_said_to_be_empty_and_names_nothing_of_the_program() {
    for text in ["", "# nothing\n", "null\n"] {
        let said = refused_request(text);
        assert!(said.contains("there is no request here: it is empty"), "{said}");
        assert!(said.contains("`weir schema request` shows the form"), "{said}");
    }
    for said in [refused_request("7\n"), refused_template("- 1\n"), refused_request("vnfs: [3]\n")]
    {
        assert!(!said.contains("struct") && !said.contains("Document"), "{said}");
        assert!(said.contains("an object with keys"), "{said}");
    }
}
