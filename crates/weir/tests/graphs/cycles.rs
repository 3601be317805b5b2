//! NFs that lead to each other: packets go round, edges that close a cycle drop when they are full, and a run ends when
//! nothing is under way any more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::{Choices, places, seed, stamped, write_capture};
use crate::common_oracle::*;
use serde_json::Value;
use std::fmt::Write;
use weir_oracle::{Input, read_capture};

/// Random policies a run.
const POLICIES: u64 = 12;

/// E2's Fig. 14 with NFs that have code: all traffic meets the NAT's and the firewall's place in either order.
const FIGURE_14: &str = "Port<0> int; Port<1> ext; default drop;
CheckIpHeader p; MacSwap n; TtlDecrement f;
pipelet { // outbound
  int [dst port 80] -> p;  int [!(dst port 80)] -> n;  p [ingress == 0] -> n;
  n [ingress == 0] -> f;  f [f.out && ingress == 0] -> ext;
}
pipelet { // inbound
  ext -> f;  f [f.out && ingress == 1] -> n;
  n [(src port 80) && ingress == 1] -> p;  n [!(src port 80) && ingress == 1] -> int;  p [ingress == 1] -> int;
}";

/// Runs `policy` on these packets; the report, and what left by each port.
fn run(policy: &str, input: &[Input], more: &[&str]) -> (Value, [Vec<Record>; 2]) {
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    let used = graph(policy);
    let mut args = vec!["run".to_owned(), file];
    for port in [0, 1u16] {
        let packets: Vec<Input> = input.iter().filter(|p| p.port == port).cloned().collect();
        let rx = scratch.file(&format!("in{port}.pcap"));
        write_capture(&rx, &packets);
        let id = used.port(port).unwrap();
        let out = scratch.file(&format!("out{port}.pcap"));
        let mut parts = Vec::new();
        if used.edges().iter().any(|e| e.from == id) {
            parts.push(format!("rx={}", rx.display()));
        }
        if used.edges().iter().any(|e| e.to == id) {
            parts.push(format!("tx={}", out.display()));
        }
        args.extend(["--bind".to_owned(), format!("{port}=pcap:{}", parts.join(","))]);
    }
    args.extend(more.iter().chain(&["--json", "-q"]).map(|arg| (*arg).to_owned()));
    let ended = weir(&args);
    assert_eq!(ended.code, Some(0), "{policy}\n{args:?}: {ended:?}");
    let sent = [0, 1].map(|port| {
        let path = scratch.file(&format!("out{port}.pcap"));
        if path.exists() { records(&path) } else { Vec::new() }
    });
    (ended.json(), sent)
}

/// Enough room for all packets of a test: nothing is dropped for want of it.
const ROOMY: [&str; 4] = ["--ring", "8192", "--spin", "20"];

fn demo_packets(port: u16, n: usize) -> Vec<Input> {
    let (all, _) = read_capture(&demo_capture(), 0).unwrap();
    stamped(&all[..n.min(all.len())], port)
}

/// What `policy` has to do, it does: isolated, fused, and as `auto` divides it.
fn as_the_oracle(policy: &str, input: &[Input], more: &[&str]) {
    let expected = oracle(policy, &[0, 1], input);
    for isolate in ["each", "none", "auto"] {
        let what = format!("--isolate {isolate} {more:?}\n{policy}");
        let args = [&ROOMY, &["--isolate", isolate][..], more].concat();
        let (report, sent) = run(policy, input, &args);
        assert_report(&what, &report, &expected, false);
        for (port, sent) in [0, 1].iter().zip(&sent) {
            let want = expected.sent.get(port).map_or(&[][..], Vec::as_slice);
            let want: Vec<Record> = want.iter().map(written).collect();
            assert_same_records(&what, sent, &want);
        }
    }
}

/// The drops of a node, by reason.
fn drops(report: &Value, node: &str) -> Value {
    let nodes = report["nodes"].as_array().unwrap();
    nodes.iter().find(|n| n["name"] == node).unwrap()["drops"].clone()
}

#[test]
fn figure_14_runs_as_it_reads() {
    let input = [demo_packets(0, 1500), demo_packets(1, 1500)].concat();
    as_the_oracle(FIGURE_14, &input, &[]);
    let expected = oracle(FIGURE_14, &[0, 1], &input);
    assert!(expected.sent.values().all(|sent| !sent.is_empty()));
    for isolate in ["each", "none"] {
        let (_, sent) = run(FIGURE_14, &input, &[&ROOMY, &["--isolate", isolate][..]].concat());
        let want = [0, 1].map(|port| expected.sent[&port].iter().map(written).collect::<Vec<_>>());
        // Outbound ways part and meet again before they go back: in sequence, all of it.
        assert!(places(&sent[1], 0) == places(&want[1], 0), "--isolate {isolate}");
        // Inbound they meet behind a cycle: each way is in sequence.
        let answers = |records: &[Record], are: bool| -> Vec<u32> {
            let to_proxy = weir_filter::parse("src port 80").unwrap();
            let these = records
                .iter()
                .filter(|r| weir_filter::naive_matches(&to_proxy, r.0.as_slice()) == are);
            places(&these.cloned().collect::<Vec<_>>(), 1)
        };
        for are in [true, false] {
            let (got, want) = (answers(&sent[0], are), answers(&want[0], are));
            assert!(!want.is_empty() && got == want, "--isolate {isolate}, answers: {are}");
        }
        // In one worker no ring takes them round: so are both together.
        let together = places(&sent[0], 1) == places(&want[0], 1);
        assert!(together || isolate == "each", "--isolate {isolate}");
    }
}

#[test]
fn a_packet_goes_round_until_a_filter_lets_it_out() {
    let policy = "Port<0> a; Port<1> b; TtlDecrement t; MacSwap m; default drop;
pipelet { a -> t; t [t.out && ip && ip[8] > 50] -> m; m -> t; t [t.out && ip && ip[8] <= 50] -> b; }";
    let input = demo_packets(0, 1000);
    as_the_oracle(policy, &input, &[]);
    let (_, sent) = run(policy, &input, &ROOMY);
    assert!(!sent[1].is_empty() && sent[1].iter().all(|record| record.0[22] <= 50));
}

#[test]
fn a_packet_that_no_filter_lets_out_is_dropped_after_so_many_rounds() {
    let policy = "Port<0> a; Port<1> b; MacSwap x; MacSwap y; default drop;
pipelet { a -> x; x -> y; y [tcp] -> x; y [!tcp] -> b; }";
    let input = demo_packets(0, 500);
    as_the_oracle(policy, &input, &[]);
    let (report, sent) = run(policy, &input, &ROOMY);
    let endless = drops(&report, "y")["loop"].as_u64().unwrap();
    assert!(endless > 0 && endless + sent[1].len() as u64 == 500, "{report}");
}

#[test]
fn an_nf_that_leads_to_itself_and_one_of_several_instances_go_round_as_well() {
    let policy = "Port<0> a; Port<1> b; TtlDecrement t; default drop;
pipelet { a -> t; t [t.out && ip && ip[8] > 50] -> t; t [t.out && ip && ip[8] <= 50] -> b; }";
    as_the_oracle(policy, &demo_packets(0, 1000), &[]);
    as_the_oracle(policy, &demo_packets(0, 1000), &["--instances", "t=2"]);
}

#[test]
fn what_finds_the_way_back_full_is_dropped_and_nothing_stands_still() {
    // All of it goes round, past an NF that is slower than what comes.
    let policy = "Port<0> a; Port<1> b; Busy x { cycles: 3000 }; MacSwap y; default drop;
pipelet { a -> x; x -> y; y [tcp && !(tcp[tcpflags] & tcp-syn != 0)] -> x; y [!tcp || (tcp[tcpflags] & tcp-syn != 0)] -> b; }";
    let input = demo_packets(0, 3000);
    for isolate in ["each", "none"] {
        for ring in ["64", "1024"] {
            let args = ["--isolate", isolate, "--ring", ring, "--pool", "64", "--spin", "20"];
            let (report, sent) = run(policy, &input, &args);
            assert_sound(isolate, &report);
            let y = drops(&report, "y");
            let lost = |reason: &str| y[reason].as_u64().unwrap_or(0);
            let all = lost("loop") + lost("ring-full") + sent[1].len() as u64;
            assert_eq!(all, input.len() as u64, "{report}");
        }
    }
}

/// Figure 14 with an NF that takes a microsecond where all ways meet.
fn slow_figure_14(cycles: u32) -> String {
    FIGURE_14.replace("MacSwap n;", &format!("Busy n {{ cycles: {cycles} }};"))
}

/// Fails unless every packet that did not come out was dropped by a filter or where an edge closes a cycle; how many there.
fn dropped_on_the_way_back(report: &Value, what: &str) -> u64 {
    assert_sound(what, report);
    let mut full = 0;
    for node in report["nodes"].as_array().unwrap() {
        for (reason, count) in node["drops"].as_object().unwrap() {
            // `f -> n` and `n -> p` lead back.
            let counts = match (node["name"].as_str().unwrap(), reason.as_str()) {
                ("f" | "n", "ring-full") => true,
                ("p" | "n" | "f", "policy") => false,
                ("rx:int" | "rx:ext", "kernel-full") => false,
                other => panic!("{what}: {count} at {other:?}"),
            };
            full += if counts { count.as_u64().unwrap() } else { 0 };
        }
    }
    full
}

#[test]
fn figure_14_under_overload_drops_on_the_ways_back_counts_it_and_ends() {
    // Either capture could be read several times as fast as `n` takes packets.
    let policy = slow_figure_14(3000);
    let input: Vec<Input> =
        [0, 1].iter().flat_map(|port| vec![demo_packets(*port, 4000); 10]).flatten().collect();
    for isolate in ["each", "none"] {
        let (report, sent) =
            run(&policy, &input, &["--isolate", isolate, "--ring", "64", "--spin", "20"]);
        let full = dropped_on_the_way_back(&report, isolate);
        assert_eq!(report["balance"]["in"], input.len(), "{isolate}");
        let out = sent.iter().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(
            out + full + drops(&report, "f")["policy"].as_u64().unwrap(),
            input.len() as u64
        );
        // What comes from inside waits wherever it goes and loses nothing but what `f` is there to drop. How much of what comes from outside gets
        // through is a matter of who is sooner at a full ring: what found it empty at least.
        let [to_int, to_ext] = sent.each_ref().map(|sent| sent.len() as u64);
        assert!(to_int > 0, "{isolate}: {report}");
        let from_int = input.iter().filter(|packet| packet.port == 0).count() as u64;
        let expired = drops(&report, "f")["policy"].as_u64().unwrap();
        assert!((from_int - expired..=from_int).contains(&to_ext), "{isolate}: {report}");
        match isolate {
            // `f` takes what comes from outside whether `n` is through or not: it must not wait for it.
            "each" => assert!(full > 0, "{report}"),
            // A segment takes up what it has sent round before it takes in more.
            _ => assert_eq!(full, 0, "{report}"),
        }
    }
}

#[test]
fn figure_14_ends_and_counts_all_when_live_sources_offer_many_times_what_it_takes() {
    let scratch = Scratch::new();
    // Generated packets have the ports 53 to 56. A generator sends only.
    let policy = slow_figure_14(20_000)
        .replace("80", "53")
        .replace("Port<1> ext;", "Port<1> ext; Port<2> to_int; Port<3> to_ext;")
        .replace("-> ext;", "-> to_ext;")
        .replace("-> int;", "-> to_int;");
    let file = scratch.write("policy.weir", &policy);
    for isolate in ["each", "none"] {
        let offered = "gen:rate=2000000,full=drop,packets=200000";
        let (int, ext) = (format!("0={offered}"), format!("1={offered},seed=2"));
        let binds = ["--bind", &int, "--bind", &ext, "--bind", "2=null", "--bind", "3=null"];
        let args = ["--isolate", isolate, "--ring", "64", "--spin", "20", "--json", "-q"];
        let ended = weir(&[&["run", &file], &binds[..], &args].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = ended.json();
        dropped_on_the_way_back(&report, isolate);
        assert_eq!(report["balance"]["in"], 400_000, "{isolate}");
        let missed = |rx| drops(&report, rx)["kernel-full"].as_u64().unwrap_or(0);
        assert!(missed("rx:int") > 0 && missed("rx:ext") > 0, "{isolate}: {report}");
    }
}

#[test]
fn a_tee_on_a_cycle_is_refused_with_the_reason_and_the_cure() {
    let scratch = Scratch::new();
    let policy = scratch.write(
        "tee.weir",
        "Port<0> a; Port<1> b; Tee t; MacSwap x; pipelet { a -> t; t -> x; t -> b; x -> t; }",
    );
    let ended = weir(&["run", &policy, "--bind", "0=gen:packets=1", "--bind", "1=null"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(
        ended.stderr.contains("`t` makes packets, and they may come back to it by `x -> t`"),
        "{ended:?}"
    );
}

#[test]
fn a_cycle_that_leads_back_into_another_trust_domain_is_refused_and_one_inside_a_domain_runs() {
    let policy = "Port<0> a; Port<1> b; MacSwap x; TtlDecrement y; default drop;
pipelet { a -> x; x -> y; y [y.out && ip && ip[8] > 50] -> x; y [y.out && ip && ip[8] <= 50] -> b; }";
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    let rx = demo_rx();
    let bound = ["run", &file, "--bind", &rx, "--bind", "1=null"];
    let ended = weir(&[&bound[..], &["--domain", "y=other"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("`x -> y` leads from one trust domain into another"),
        "{ended:?}"
    );
    let args = [&ROOMY[..], &["--domain", "y=other", "--domain", "x=other"]].concat();
    let (report, sent) = run(policy, &demo_packets(0, 1000), &args);
    assert_sound("domain", &report);
    let (_, want) = run(policy, &demo_packets(0, 1000), &ROOMY);
    assert!(sent[1].len() > 100);
    assert_same_records("domain", &sent[1], &want[1]);
}

/// A packet that comes through another domain would have made as many rounds as that one says: none.
#[test]
fn a_cycle_of_which_a_part_is_in_another_trust_domain_is_refused_wherever_it_closes() {
    let policy = "Port<0> a; Port<1> b; Null x; Null y; Null z; first match; default drop;
pipelet { a -> x; x -> y; y -> z; z [ingress == 0] -> x; z -> b; }";
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    for (domains, edge) in [
        (&["x=other"][..], "x -> y"),
        (&["y=other"], "x -> y"),
        (&["z=other"], "y -> z"),
        (&["x=other", "y=other"], "y -> z"),
        (&["y=other", "z=one"], "x -> y"),
    ] {
        for isolate in ["each", "none", "auto"] {
            let domains = domains.iter().flat_map(|domain| ["--domain", domain]);
            let bound = [
                "run",
                &file,
                "--bind",
                "0=gen:packets=20",
                "--bind",
                "1=null",
                "--isolate",
                isolate,
            ];
            let ended = weir(&bound.into_iter().chain(domains).collect::<Vec<_>>());
            assert_eq!(ended.code, Some(2), "{edge}, {isolate}: {ended:?}");
            let says =
                "leads from one trust domain into another, and packets come there around a cycle";
            assert!(ended.stderr.contains(says), "{edge}, {isolate}: {ended:?}");
            assert!(ended.stderr.contains(&format!("`{edge}`")), "{edge}, {isolate}: {ended:?}");
        }
    }
}

/// NFs with any edges among them.
fn random_policy(choices: &mut Choices) -> String {
    const FILTERS: [&str; 10] = [
        "tcp",
        "!tcp",
        "src port 80",
        "dst port 80",
        "ip[8] > 60",
        "ip[8] <= 60",
        "ingress == 0",
        "ingress == 1",
        "ingress == 0 && tcp",
        "ip",
    ];
    const TYPES: [&str; 4] = ["MacSwap", "TtlDecrement", "CheckIpHeader", "Busy"];
    let mut text = String::from("Port<0> a; Port<1> b; first match; default drop;\n");
    let n = 1 + choices.below(5);
    for i in 0..n {
        writeln!(text, "{} n{i};", choices.of(&TYPES)).unwrap();
    }
    let to = |choices: &mut Choices| match choices.below(n + 2) {
        i if i < n => format!("n{i}"),
        i => ["a", "b"][i - n].to_owned(),
    };
    writeln!(text, "pipelet {{\n  a -> n0;  b -> n{};", choices.below(n)).unwrap();
    for i in 0..n {
        for _ in 0..1 + choices.below(3) {
            let filter = choices.of(&FILTERS);
            writeln!(text, "  n{i} [{filter}] -> {};", to(choices)).unwrap();
        }
        let rest = to(choices);
        writeln!(text, "  n{i} -> {rest};").unwrap();
    }
    text + "}"
}

#[test]
fn random_cyclic_policies_do_what_the_oracle_does() {
    let seed = seed();
    println!("WEIR_SEED={seed} makes the same {POLICIES} policies");
    for i in 0..POLICIES {
        let choices = &mut Choices(seed.wrapping_add(i));
        let policy = random_policy(choices);
        if weir_plan::check(&policy, &weir_control::library::Library).is_err() {
            continue; // Two edges alike.
        }
        let input = [demo_packets(0, 200), demo_packets(1, 200)].concat();
        println!("seed {}\n{policy}", seed.wrapping_add(i));
        as_the_oracle(&policy, &input, &[]);
    }
}

/// What an NF does that packets meet again is its own instance's, wherever the instances are.
#[test]
fn each_instance_is_told_what_came_to_it_by_all_ways() {
    const BACK: &str = "Port<0> int; Port<1> ext; default drop; FlowMonitor a; MacSwap b;
pipelet { int -> a; a [ingress == 0] -> b; b [ingress == 0] -> ext; ext -> b; b [ingress == 1] -> a; a [ingress == 1] -> int; }";
    let input = [demo_packets(0, 1000), demo_packets(1, 700)].concat();
    let told = |isolate: &str| {
        let pairs = ["--isolate", isolate, "--instances", "a+b=2"];
        let (report, _) = run(BACK, &input, &[&ROOMY[..], &pairs].concat());
        ["a", "b"].map(|name| {
            let nodes = report["nodes"].as_array().unwrap();
            let node = nodes.iter().find(|node| node["name"] == name).unwrap();
            let parts = node["instances"].as_array().unwrap().iter();
            let all = node["packets"].as_u64().unwrap();
            let parts: Vec<[Value; 2]> = parts
                .map(|part| [&part["packets"], &part["report"]["packets"]].map(Value::clone))
                .collect();
            (all, parts)
        })
    };
    let (apart, fused) = (told("each"), told("none"));
    assert_eq!(apart, fused);
    for (all, parts) in &apart {
        assert_eq!((*all, parts.len()), (input.len() as u64, 2));
    }
    // What each monitor says itself of its packets.
    for [packets, said] in &apart[0].1 {
        assert_eq!(packets, said);
        assert!(packets.as_u64().unwrap() > 100);
    }
}
