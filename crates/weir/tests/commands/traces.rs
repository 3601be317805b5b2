//! Every capture there is, through MacSwap twice, through the demo's chain and through one of equal
//! ways, isolated and fused, against the oracle. What can be consolidated is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use std::path::Path;
use std::sync::Mutex;
use weir_oracle::read_capture;

/// Runs `policy` on all captures that have Ethernet records, isolated and fused, two at a time.
fn on_all_captures(policy: &str, identity: bool, instances: &[&str]) {
    let mut paths = vec![demo_capture()];
    paths.extend(shared().into_iter().filter(|p| has_ethernet(p)));
    let count = paths.len();
    let next = Mutex::new(paths.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(path) = next.lock().unwrap().next() else { break };
                    on_capture(policy, &path, identity, instances);
                }
            });
        }
    });
    println!("{count} captures, isolated and fused");
}

/// Isolated and fused with one instance of each NF, and isolated with several of some.
fn on_capture(policy: &str, path: &Path, identity: bool, instances: &[&str]) {
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    let (packets, cut) = read_capture(path, 0).unwrap();
    let expected = oracle(policy, &[0, 1], &packets);
    let sent: Vec<_> = expected.sent[&1].iter().map(written).collect();
    if identity {
        let whole = packets.iter().filter(|p| p.link.is_ethernet());
        let input: Vec<_> = whole.map(|p| (p.bytes.clone(), p.wire_len)).collect();
        let output: Vec<_> = sent.iter().map(|s| (s.0.clone(), s.1)).collect();
        assert_eq!(output, input, "the oracle on {}", path.display());
    }
    for (isolate, instances) in [("each", [].as_slice()), ("none", &[]), ("each", instances)] {
        let what = format!("{} --isolate {isolate} --instances {instances:?}", path.display());
        let out = scratch.file(&format!("{isolate}{}-{}", instances.len(), output_name(path)));
        let (rx, tx) =
            (format!("0=pcap:rx={}", path.display()), format!("1=pcap:tx={}", out.display()));
        let mut args = vec!["run", &file, "--bind", &rx, "--bind", &tx, "--isolate", isolate];
        args.extend(["--json", "-q"]);
        args.extend(instances.iter().flat_map(|nf| ["--instances", nf]));
        let ended = weir(&args);
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        let warnings = ended.stderr.lines().filter(|l| l.contains("warning: ")).count();
        assert_eq!(warnings, usize::from(cut.is_some()), "{what}: {}", ended.stderr);
        assert_report(&what, &ended.json(), &expected, true);
        let got = records(&out);
        assert_same_records(&what, &got, &sent);
        assert_same_flows(&what, &got, &sent);
        // With a single source the whole order is kept, not only that within flows.
        assert!(got == sent, "{what}: order");
    }
}

#[test]
fn mac_swap_twice_gives_every_capture_back() {
    on_all_captures(TWICE, true, &["x=2", "y=3"]);
}

#[test]
fn the_demo_chain_does_with_every_capture_what_the_oracle_does() {
    let policy = std::fs::read_to_string(root().join("demo/chain.weir")).unwrap();
    on_all_captures(&policy, false, &["edge_rules=2", "mon_http=3", "app_urls=2"]);
}

/// Ways of their own for web, mail and the rest, which know nothing of each other: what is merged and
/// left out does not show.
const DEPARTMENTS: &str = "Port<0> lan; Port<1> wan;
    CheckIpHeader web_ip; HttpClassifier web_http; L3L4Filter web_rules { rules: [{ action: \"drop\", tcp_flags: \"syn,!ack\" }] };
    CheckIpHeader rest_ip; HttpClassifier rest_http; L3L4Filter rest_rules { rules: [{ action: \"drop\", tcp_flags: \"syn,!ack\" }] };
    CheckIpHeader out_ip; HttpClassifier out_http; CountUrl urls; MacSwap swap; CheckIpHeader last_ip; PacketSizeHistogram sizes;
    pipelet web {
        lan [tcp port 80 || vlan] -> web_ip; web_ip [web_ip.ip] -> web_http; web_ip [web_ip.non_ip] -> out_ip;
        web_http [web_http.http] -> web_rules -> out_ip; web_http [web_http.other] -> out_ip;
    }
    pipelet rest {
        lan [!(tcp port 80 || vlan)] -> rest_ip; rest_ip [rest_ip.ip] -> rest_http; rest_ip [rest_ip.non_ip] -> out_ip;
        rest_http [rest_http.http] -> rest_rules -> out_ip; rest_http [rest_http.other] -> out_ip;
    }
    pipelet out {
        out_ip [out_ip.ip] -> out_http; out_ip [out_ip.non_ip] -> sizes;
        out_http [out_http.http] -> urls -> swap; out_http [out_http.other] -> swap;
        swap -> last_ip; last_ip -> sizes -> wan;
    }";

#[test]
fn merged_departments_do_with_every_capture_what_the_oracle_does() {
    on_all_captures(DEPARTMENTS, false, &["web_rules=2", "urls=3", "swap=2", "sizes=2"]);
}

#[test]
fn captures_without_ethernet_are_refused_by_name_and_nothing_is_written() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let mut refused = 0;
    for path in shared().into_iter().filter(|p| !has_ethernet(p)) {
        let out = scratch.file("out.pcap");
        let (rx, tx) =
            (format!("0=pcap:rx={}", path.display()), format!("1=pcap:tx={}", out.display()));
        let ended = weir(&["run", &policy, "--bind", &rx, "--bind", &tx]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let name = path.to_str().unwrap();
        let link = weir_capture::scan(&path).unwrap().link_types.keys().next().unwrap().to_string();
        assert!(ended.stderr.contains(name) && ended.stderr.contains(&link), "{}", ended.stderr);
        assert!(!out.exists(), "{name}");
        refused += 1;
    }
    println!("{refused} captures refused");
}

/// Not only of the shared captures: a file cut at every kind of place.
#[test]
fn a_cut_capture_gives_its_whole_records_and_warns_once() {
    let whole = std::fs::read(demo_capture()).unwrap();
    let scratch = Scratch::new();
    // In the bytes of the 200th packet or later, in a record's header, and behind a whole record.
    for at in [40_000, 40_001, 24 + 7, 24] {
        let cut = scratch.write("cut.pcap", &whole[..at]);
        on_capture(TWICE, Path::new(&cut), true, &["x=2"]);
    }
}
