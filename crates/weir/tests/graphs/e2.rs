//! The policies of the E2 paper's figures, and what the language needs for them: included files, Tees,
//! cycles, port arrays and automatic tags.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;

/// `weir STAGE... --describe examples/e2/nfs.yaml examples/e2/NAME`, which must go well.
fn figure(command: &[&str], name: &str) -> Ended {
    let folder = root().join("examples/e2");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (nfs, policy) = (path("nfs.yaml"), path(name));
    let mut args = command.to_vec();
    args.extend(["--describe", &nfs, &policy]);
    let ended = weir(&args);
    assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
    ended
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

#[test]
fn figure_2_sends_safe_web_traffic_by_the_cache_and_all_of_it_by_the_monitor() {
    assert_eq!(
        figure(&["explain", "--stage", "merged"], "figure-2.weir").stdout,
        "\
int (ports 0-7)
  -> ids
ext (ports 8-15)
ids (Ids)
  safe:
    [tcp dst port 80] -> cache
    [not tcp dst port 80] -> mon
  unsafe:
    -> norm
cache (WebCache)
  -> mon
norm (Normalizer)
  -> mon
mon (NetworkMonitor)
  -> ext
"
    );
    let checked = figure(&["check"], "figure-2.weir");
    assert!(checked.stdout.contains("right: 4 NFs, 7 edges"), "{checked:?}");
    assert!(!checked.stderr.contains("circle"), "{checked:?}");
}

#[test]
fn figure_14_limits_what_goes_from_the_nat_to_the_firewall_to_internal_ports() {
    let merged = figure(&["explain", "--stage", "merged"], "figure-14.weir");
    assert_eq!(
        merged.stdout,
        "\
int (ports 0-7)
  [dst port 80] -> p
  [not dst port 80] -> n
  else dropped (by policy)
ext (ports 8-15)
  -> f
p (Proxy)
  [not dst net 10.12.30.0/24] -> n
  [dst net 10.12.30.0/24] -> int
  else dropped (by policy)
n (NAT)
  [ingress == 0-7] -> f
  [ingress == 8-15 and src port 80 and dst net 10.12.30.0/24] -> p (closes a cycle)
  [ingress == 8-15 and not src port 80 and dst net 10.12.30.0/24] -> int
  else dropped (by policy)
f (FW)
  safe:
    [not dst net 131.114.88.92/30] -> ext
    [dst net 131.114.88.92/30] -> n (closes a cycle)
    else dropped (by policy)
  unsafe:
    -> Drop
Drop (drops)
"
    );
    for note in ["added `ingress == 0-7` to this edge", "packets may go in a circle: n -> f -> n"] {
        assert!(merged.stderr.contains(note), "{}", merged.stderr);
    }
    for stage in ["policy", "merged", "consolidated", "plan"] {
        let drawn = figure(&["explain", "--stage", stage, "--format", "svg"], "figure-14.weir");
        assert!(drawn.stdout.starts_with("<svg"), "{stage}");
    }
    let folder = root().join("examples/e2");
    let same = figure(&["diff", folder.join("figure-14.weir").to_str().unwrap()], "figure-14.weir");
    assert_eq!(same.stdout, "");
}

#[test]
fn figure_16_leads_each_priority_to_the_port_that_tells_it() {
    assert_eq!(
        figure(&["explain", "--stage", "merged"], "figure-16.weir").stdout,
        "\
int (ports 0-7)
  [tos 0] -> [prio0] r
  [tos 1] -> [prio1] r
  else dropped (by policy)
ext (ports 8-15)
r (RateLimiter)
  -> ext
"
    );
}

#[test]
fn an_error_in_an_included_file_names_that_file_and_who_included_it() {
    let scratch = Scratch::new();
    let sub = scratch.file("sub");
    std::fs::create_dir(&sub).unwrap();
    let ports = sub.join("ports.weir");
    std::fs::write(&ports, "Port<0> lan;\nPort<1> wan\nMacSwop x;\n").unwrap();
    let text = "include \"sub/ports.weir\";\npipelet { lan -> x -> wan; }\n";
    let policy = scratch.write("policy.weir", text);
    let (wrong, by) = (format!("{}:3:1: error", ports.display()), format!("{policy}:1:9"));
    for command in ["check", "explain"] {
        refused(&[command, &policy], &[&wrong, "MacSwop", &format!("included in {by}")]);
    }
    refused(&["diff", &policy, &policy], &[&wrong]);
    refused(&["run", &policy, "--bind", "0=gen", "--bind", "1=null"], &[&wrong]);
    std::fs::write(&ports, "Port<0> lan;\nPort<1> wan;\nMacSwap x;\n").unwrap();
    let shown = weir(&["explain", "--stage", "policy", &policy]);
    assert!(shown.stdout.starts_with("Port<0> lan;\nPort<1> wan;\nMacSwap x;\n"), "{shown:?}");

    std::fs::remove_file(&ports).unwrap();
    refused(&["check", &policy], &["policy.weir:1:9: error: there is no file", "sub/ports.weir"]);
    std::fs::create_dir(&ports).unwrap();
    refused(&["check", &policy], &["policy.weir:1:9: error", "is not a file"]);
    std::fs::remove_dir(&ports).unwrap();
    std::fs::write(&ports, [0xff, 0xfe]).unwrap();
    refused(&["check", &policy], &["policy.weir:1:9: error", "UTF-8"]);
    // The same file under another name.
    std::fs::write(&ports, "include \"../sub/../policy.weir\";").unwrap();
    refused(&["check", &policy], &["ports.weir:1:9: error: the file includes itself"]);
}

/// Runs a policy on the demo's recording, which comes in by port 0, with a capture behind each of the
/// ports 1, 2 and 3: what was sent is what the oracle says, each worker alone and all in one. Gives how many
/// packets left by each.
fn ran(name: &str, policy: &str) -> [usize; 3] {
    let (input, _) = weir_oracle::read_capture(&demo_capture(), 0).unwrap();
    let text = format!("Port<0> a; Port<1> b; Port<2> c; Port<3> d;\n{policy}");
    let expected = oracle(&text, &[0, 1, 2, 3], &input);
    for isolate in ["each", "none"] {
        let what = format!("{name} {isolate}");
        let scratch = Scratch::new();
        let policy = scratch.write("policy.weir", &text);
        let outs = [1, 2, 3].map(|port| (port, scratch.file(&format!("{port}.pcap"))));
        let mut binds = vec![format!("0=pcap:rx={}", demo_capture().display())];
        binds.extend(outs.iter().map(|(port, file)| format!("{port}=pcap:tx={}", file.display())));
        let mut args = vec!["run", &policy, "--isolate", isolate, "--json", "-q"];
        binds.iter().for_each(|bind| args.extend(["--bind", bind]));
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        assert_sound(&what, &ended.json());
        for (port, file) in &outs {
            let sent: Vec<Record> = expected.sent[port].iter().map(written).collect();
            assert_eq!(records(file), sent, "{what}: port {port}");
        }
    }
    [1, 2, 3].map(|port| expected.sent[&port].len())
}

/// How many packets of the demo's recording a filter takes.
fn matching(filter: &str) -> usize {
    let (input, _) = weir_oracle::read_capture(&demo_capture(), 0).unwrap();
    let ways = format!("a [{filter}] -> b; a [!({filter})] -> Drop;");
    let text = format!("Port<0> a; Port<1> b; pipelet {{ {ways} }}");
    oracle(&text, &[0, 1], &input).sent[&1].len()
}

#[test]
fn a_tee_sends_a_packet_by_all_edges_that_match() {
    let all = matching("len > 0");
    let [to_server, tcp] = [matching("dst port 80"), matching("tcp")];
    assert!(0 < to_server && to_server < tcp && tcp < all, "{to_server} {tcp} {all}");
    assert_eq!(
        ran("three", "Tee t; pipelet { a -> t; t -> b; t [tcp] -> c; t [dst port 80] -> d; }"),
        [all, tcp, to_server]
    );
    assert_eq!(
        ran(
            "two",
            "Tee t; pipelet { a -> t; t [tcp] -> b; t [!tcp] -> c; }  pipelet { d -> t; t -> d; }"
        ),
        [tcp, all - tcp, all]
    );
    assert_eq!(ran("one", "Tee t; pipelet { a -> t; t -> b; b -> c -> d; }"), [all, 0, 0]);
}

#[test]
fn a_tag_that_headers_tell_runs_without_being_carried_along() {
    let [to_server, tcp, all] = [matching("dst port 80"), matching("tcp"), matching("len > 0")];
    let sent = ran(
        "tag",
        "L3L4Filter m { default: 'pass', rules: [] }; L3L4Filter n { default: 'pass', rules: [] };
         pipelet { a [dst port 80] -> [asked] m; a [tcp && !(dst port 80)] -> [told] m;
           a [!(tcp || dst port 80)] -> m; b -> n; c -> Drop; d -> Drop; m -> n;
           n [m.asked] -> b; n [m.told] -> c; n [!(m.asked || m.told)] -> d; }",
    );
    assert_eq!(sent, [to_server, tcp - to_server, all - tcp]);
}

#[test]
fn what_does_not_run_yet_is_refused_with_the_reason_by_check_as_by_run() {
    let scratch = Scratch::new();
    let head = "Port<0> a; Port<1> b; MacSwap x; MacSwap y; default drop;\n";
    let (name, says) = ("tag.weir", "gives packets the tag `url`, which `h` sets or reads itself");
    let policy = "HttpClassifier h; pipelet { a -> [url] h; h -> b; b -> Drop; x -> y; y -> a; }";
    let policy = scratch.write(name, format!("{head}{policy}"));
    refused(&["check", "-q", &policy], &[says]);
    refused(&["run", &policy, "--bind", "0=gen:packets=1", "--bind", "1=null"], &[says]);
}

#[test]
fn a_tag_that_headers_do_not_tell_any_more_is_carried_along() {
    let [to_server, tcp, all] = [matching("dst port 80"), matching("tcp"), matching("len > 0")];
    // Addresses are exchanged on the way, and the second NF's own tags do not disturb the first's.
    let sent = ran(
        "carried",
        "MacSwap m; TtlDecrement n; MacSwap o;
         pipelet { a [dst port 80] -> [asked] m; a [tcp && !(dst port 80)] -> [told] m;
           a [!(tcp || dst port 80)] -> m; b -> o; c -> Drop; d -> Drop; m -> n;
           n [n.out] -> [live] o; n [!n.out] -> o; default drop;
           o [m.asked && o.live] -> b; o [m.told && o.live] -> c;
           o [!(m.asked || m.told) || !o.live] -> d; }",
    );
    assert!(sent[0] > 0 && sent[0] <= to_server && sent[1] > 0, "{sent:?}");
    assert!(sent[0] + sent[1] <= tcp && sent.iter().sum::<usize>() == all, "{sent:?}");
}

#[test]
fn a_tee_of_many_edges_loses_no_copy_in_one_worker_either() {
    for edges in [24, 40] {
        let (input, _) = weir_oracle::read_capture(&demo_capture(), 0).unwrap();
        let nfs: String = (0..edges).map(|i| format!("Null n{i};")).collect();
        let ways: String = (0..edges).map(|i| format!("t -> n{i}; n{i} -> b;")).collect();
        let scratch = Scratch::new();
        let text = format!("Port<0> a; Port<1> b; Tee t; {nfs} pipelet {{ a -> t; {ways} }}");
        let (policy, rx) = (scratch.write("p.weir", text), demo_rx());
        for isolate in ["none", "each"] {
            let run = ["run", &policy, "--bind", &rx, "--bind", "1=null", "--isolate", isolate];
            let more = ["--pool", "256", "--no-real-time", "--json", "-q"];
            let ended = weir(&[&run[..], &more].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let report = ended.json();
            assert_sound(isolate, &report);
            let copies = input.len() * (edges - 1);
            assert_eq!(report["balance"]["copied"], copies, "{isolate} {edges}");
            assert_eq!(report["balance"]["out"], input.len() * edges, "{isolate} {edges}");
        }
    }
}

#[test]
fn figure_2_runs_with_nfs_of_the_library_and_keeps_a_flow_on_one_external_port() {
    let scratch = Scratch::new();
    std::fs::copy(root().join("examples/e2/nets.weir"), scratch.file("nets.weir")).unwrap();
    let figure = std::fs::read_to_string(root().join("examples/e2/figure-2.weir")).unwrap();
    let text = figure
        .replace("Ids ids", "HttpClassifier ids")
        .replace("ids.safe", "ids.http")
        .replace("WebCache cache", "CountUrl cache")
        .replace("Normalizer norm", "Null norm")
        .replace("NetworkMonitor mon", "PacketSizeHistogram mon");
    let policy = scratch.write("figure-2.weir", text);
    let (input, _) = weir_oracle::read_capture(&demo_capture(), 0).unwrap();
    for isolate in ["each", "none"] {
        let mut binds = vec![format!("3=pcap:rx={}", demo_capture().display())];
        let outs: Vec<_> = (8..16).map(|port| scratch.file(&format!("{port}.pcap"))).collect();
        binds.extend((8..16).zip(&outs).map(|(p, file)| format!("{p}=pcap:tx={}", file.display())));
        let mut args = vec!["run", &policy, "--isolate", isolate, "--json", "-q"];
        binds.iter().for_each(|bind| args.extend(["--bind", bind]));
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_sound(isolate, &ended.json());
        let mut port_of = std::collections::HashMap::new();
        let (mut sent, mut looking) = (0, 0);
        for (port, file) in outs.iter().enumerate() {
            for (bytes, ..) in records(file) {
                let layers = weir_packet::parse(bytes.as_slice(), weir_packet::Depth::L4);
                if weir_packet::is_discovery(bytes.as_slice(), &layers) {
                    looking += 1;
                    continue;
                }
                sent += 1;
                let flow = weir_packet::FlowKey::from_packet(bytes.as_slice(), &layers);
                let first = *port_of.entry(flow.map(|(key, _)| key)).or_insert(port);
                assert_eq!(first, port, "{flow:?}");
            }
        }
        let is_discovery = |packet: &&weir_oracle::Input| {
            let layers = weir_packet::parse(packet.bytes.as_slice(), weir_packet::Depth::L4);
            weir_packet::is_discovery(packet.bytes.as_slice(), &layers)
        };
        // ARP and neighbour discovery leave by all eight: nobody was heard there.
        let discovery = input.iter().filter(is_discovery).count();
        assert!(discovery > 0);
        assert_eq!((sent, looking), (input.len() - discovery, 8 * discovery), "{isolate}");
        assert!(
            port_of.values().collect::<std::collections::HashSet<_>>().len() > 4,
            "{port_of:?}"
        );
    }
}
