//! Tags at run time: what NFs say of packets, and classes that packets carry past NFs that write.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use std::path::{Path, PathBuf};
use weir_oracle::read_capture;
use weir_packet::{Depth, headers::proto, parse};

/// Runs `policy` with a capture at port 0 and outputs at ports 1 and 2: what each got. Compared with
/// the oracle.
fn run(policy: &str, capture: &Path, more: &[&str]) -> [Vec<Record>; 2] {
    let scratch = Scratch::new();
    let file = scratch.write("policy.weir", policy);
    let outs = [1, 2].map(|port| scratch.file(&format!("{port}-{}", output_name(capture))));
    let binds = [
        format!("0=pcap:rx={}", capture.display()),
        format!("1=pcap:tx={}", outs[0].display()),
        format!("2=pcap:tx={}", outs[1].display()),
    ];
    let mut args = vec!["run", &file, "--json", "-q"];
    for bind in &binds {
        args.extend(["--bind", bind]);
    }
    args.extend(more);
    let ended = weir(&args);
    let what = format!("{} {more:?}", capture.display());
    assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
    let expected = oracle(policy, &[0, 1, 2], &read_capture(capture, 0).unwrap().0);
    if !more.contains(&"--domain") {
        assert_report(&what, &ended.json(), &expected, true);
    }
    let got = outs.map(|path| records(&path));
    for (port, got) in (1..).zip(&got) {
        let wanted: Vec<Record> = expected.sent[&port].iter().map(written).collect();
        assert!(*got == wanted, "{what}: port {port}: {} and {}", got.len(), wanted.len());
    }
    got
}

fn shared(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {name} is not in shared/traces");
    None
}

fn input(capture: &Path) -> Vec<Record> {
    let (packets, _) = read_capture(capture, 0).unwrap();
    packets.into_iter().map(|i| (i.bytes, i.wire_len, i.time)).collect()
}

/// Method and target, when the payload begins with a whole request line. As plainly as can be.
fn request(frame: &[u8]) -> Option<(String, String)> {
    let layers = parse(frame, Depth::L4);
    let payload = frame.get(layers.payload.into()..layers.end.into())?;
    if !layers.has_l4() || layers.proto != proto::TCP {
        return None;
    }
    let text = String::from_utf8_lossy(payload).into_owned();
    let (line, _) = text.split_once("\r\n")?;
    let (method, rest) = line.split_once(' ')?;
    let (target, version) = rest.rsplit_once(' ')?;
    let known = ["GET", "POST", "HEAD", "PUT", "OPTIONS"].contains(&method);
    (known && version.starts_with("HTTP/1.")).then(|| (method.to_owned(), target.to_owned()))
}

const URLS: &str = r#"Port<0> lan; Port<1> wan; Port<2> admin;
    HttpClassifier http; Null n;
    pipelet {
        lan -> http -> n;
        n [http.url ~ "^/admin" && HttpClassifier.method ~ "^GET$"] -> admin;
        n [!(http.url ~ "^/admin" && HttpClassifier.method ~ "^GET$")] -> wan;
    }"#;

#[test]
fn packets_take_edges_by_the_url_that_an_nf_before_has_found() {
    let Some(capture) = shared("http-attack-urls-797req.pcap") else { return };
    let is_admin = |r: &Record| {
        request(&r.0).is_some_and(|(method, url)| method == "GET" && url.starts_with("/admin"))
    };
    let (admin, rest): (Vec<_>, Vec<_>) = input(&capture).into_iter().partition(is_admin);
    assert!(!admin.is_empty() && admin.len() < rest.len());
    for more in [&["--isolate", "each"][..], &["--isolate", "none"]] {
        let [to_wan, to_admin] = run(URLS, &capture, more);
        assert!(to_admin == admin, "{more:?}: {} and {}", to_admin.len(), admin.len());
        assert!(to_wan == rest, "{more:?}: {} and {}", to_wan.len(), rest.len());
    }
}

#[test]
fn a_gate_between_trust_domains_carries_tags() {
    let urls = URLS.replace("^/admin", "^/");
    let [_, asked] = run(&urls, &demo_capture(), &["--isolate", "each", "--domain", "n=guest"]);
    assert!(!asked.is_empty());
}

#[test]
fn a_copy_has_the_tags_of_its_packet() {
    let policy = r#"Port<0> lan; Port<1> wan; Port<2> copies; HttpClassifier http; Tee t;
        pipelet {
            lan -> http -> t; t [t.out] -> wan;
            t [t.copy && http.method ~ "GET"] -> copies; t [t.copy && !(http.method ~ "GET")] -> Drop;
        }"#;
    let is_get = |r: &Record| request(&r.0).is_some_and(|(method, _)| method == "GET");
    let all = input(&demo_capture());
    let gets: Vec<_> = all.iter().filter(|r| is_get(r)).cloned().collect();
    assert!(!gets.is_empty() && gets.len() < all.len());
    for isolate in ["each", "none"] {
        let [whole, copies] = run(policy, &demo_capture(), &["--isolate", isolate]);
        assert!(whole == all && copies == gets, "{isolate}: {} of {}", copies.len(), gets.len());
    }
}

/// Two kinds of traffic of one port, which meet in an NF that writes and part again behind it.
const MEET: &str = "Port<0> lan; Port<1> wan; Port<2> rest; MacSwap x; MacSwap y;
    pipelet answers { lan [tcp src port 80] -> x -> y -> wan; }
    pipelet others { lan [!(tcp src port 80)] -> x -> y -> rest; }";

#[test]
fn traffic_keeps_its_class_past_an_nf_that_writes() {
    let is_answer = |r: &Record| {
        weir_filter::naive_matches(&weir_filter::parse("tcp src port 80").unwrap(), &r.0)
    };
    let (answers, others): (Vec<_>, Vec<_>) =
        input(&demo_capture()).into_iter().partition(is_answer);
    assert!(!answers.is_empty() && !others.is_empty());
    for isolate in ["each", "none"] {
        // Swapped twice they are as they came.
        let [to_wan, to_rest] = run(MEET, &demo_capture(), &["--isolate", isolate]);
        assert!(to_wan == answers && to_rest == others, "{isolate}");
    }
}
