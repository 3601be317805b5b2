//! Real requests: the captures of `shared/traces` (skipped when absent) and the project's own demo capture.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests may: helper functions too

use std::path::{Path, PathBuf};
use weir_http::{Inspector, Request, Scope, Verdict, Where, headers, is_http, requests};

const ALL: Scope = Scope { cookies: true, body: true };

fn root() -> PathBuf {
    // Canonical, so that a checkout reached through a link finds its neighbours.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    here.join("../..").canonicalize().unwrap()
}

/// TCP payloads of a classic little-endian pcap of Ethernet frames (VLAN tags, IPv4 and IPv6 without extensions).
fn payloads(path: &Path) -> Option<Vec<Vec<u8>>> {
    let Ok(file) = std::fs::read(path) else {
        println!("skipped: {} is not there", path.display());
        return None;
    };
    let mut rest = file.get(24..)?;
    let mut found = Vec::new();
    while let Some((head, more)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let Some((frame, more)) = more.split_at_checked(length) else { break };
        rest = more;
        found.extend(tcp_payload(frame).filter(|payload| !payload.is_empty()).map(<[u8]>::to_vec));
    }
    Some(found)
}

fn tcp_payload(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    let mut kind = frame.get(at..at + 2)?;
    while matches!(kind, [0x81, 0x00] | [0x88, 0xA8]) {
        at += 4;
        kind = frame.get(at..at + 2)?;
    }
    let ip = frame.get(at + 2..)?;
    let (tcp, end) = match kind {
        [0x08, 0x00] if *ip.get(9)? == 6 => {
            ((usize::from(ip[0]) & 15) * 4, usize::from(u16::from_be_bytes([ip[2], ip[3]])))
        }
        [0x86, 0xDD] if *ip.get(6)? == 6 => {
            (40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
        }
        _ => return None,
    };
    let end = if end == 0 { ip.len() } else { end.min(ip.len()) };
    let data = tcp + usize::from(*ip.get(tcp + 12)? >> 4) * 4;
    ip.get(data..end)
}

/// Requests, and how many of them are (injections, unjudged).
fn tally(name: &str) -> Option<(usize, usize, usize)> {
    let mut inspector = Inspector::new();
    let mut counts = (0, 0, 0);
    for payload in payloads(&root().join("../shared/traces").join(name))? {
        for request in requests(&payload) {
            counts.0 += 1;
            match inspector.request(&payload, &request, Scope::default()) {
                Verdict::Clean => {}
                Verdict::Injection { .. } => counts.1 += 1,
                Verdict::Unjudged => counts.2 += 1,
            }
        }
    }
    println!("{name}: requests, injections, unjudged = {counts:?}");
    Some(counts)
}

#[test]
fn every_request_of_the_injection_capture_is_recognised_and_its_attacks_found() {
    let Some(counts) = tally("http-sqli-dvwa.pcap") else { return };
    // The other two only probe with a lone quote (`id=1'`), as any name with an apostrophe has one.
    assert_eq!(counts, (9, 7, 0));
}

#[test]
fn scanner_probes_that_are_no_sql_are_not_called_injections() {
    let Some(counts) = tally("http-attack-urls-797req.pcap") else { return };
    assert_eq!(counts, (797, 0, 0));
}

#[test]
fn real_browsing_has_no_injections() {
    let Some(counts) = tally("http-browsing-337req.pcap") else { return };
    assert_eq!(counts, (337, 0, 0));
}

#[test]
fn each_request_of_the_demo_capture_is_judged_as_its_list_says() {
    let demo = root().join("demo");
    let Some(payloads) = payloads(&demo.join("http.pcap")) else { return };
    let list = std::fs::read_to_string(demo.join("requests.tsv")).unwrap();
    let mut wanted: Vec<Vec<&str>> =
        list.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let total = wanted.len();
    let mut inspector = Inspector::new();
    let mut wrong = Vec::new();
    for payload in &payloads {
        for request in requests(payload) {
            assert!(is_http(payload));
            let (method, target) = match &request {
                Request::Whole(whole) => (whole.method, whole.target.of(payload)),
                Request::Cut { method, target } => (*method, target.of(payload)),
                Request::None => continue,
            };
            let target = String::from_utf8_lossy(target).into_owned();
            let is_cut = matches!(request, Request::Cut { .. });
            // The clients number their requests; a cut head may end before the number.
            let id = match &request {
                Request::Whole(whole) => headers(payload, whole.headers_start)
                    .find(|field| field.is(payload, b"x-weir-id"))
                    .map(|field| String::from_utf8_lossy(field.value.of(payload)).into_owned()),
                _ => None,
            };
            // A retransmission would be seen twice: then it is no longer in the list.
            let Some(at) = wanted.iter().position(|row| {
                id.as_ref().is_none_or(|id| row[0] == id)
                    && row[1] == method.as_str()
                    && if is_cut { row[2].starts_with(&target) } else { row[2] == target }
            }) else {
                wrong.push(format!("not in the list: {method} {target}"));
                continue;
            };
            let row = wanted.swap_remove(at);
            let verdict = inspector.request(payload, &request, ALL);
            if !agrees(&row, verdict) {
                wrong.push(format!("{row:?}: {verdict:?}"));
            }
        }
    }
    println!(
        "{} of {total} requests seen, {} judged otherwise than listed",
        total - wanted.len(),
        wrong.len()
    );
    for line in
        wrong.iter().chain(wanted.iter().map(|row| row.join("\t")).collect::<Vec<_>>().iter())
    {
        println!("{}", line.chars().take(300).collect::<String>());
    }
    assert!(wrong.is_empty() && wanted.is_empty());
}

/// What the list lets expect of the judge: `cut` parts are never guessed.
fn agrees(row: &[&str], verdict: Verdict) -> bool {
    let [_, _, url, class, place, layout, ..] = row else { return false };
    let injection = match verdict {
        Verdict::Injection { place, .. } => Some(match place {
            Where::Path => "path",
            Where::QueryName | Where::QueryValue => "query",
            Where::BodyName | Where::BodyValue => "body",
            Where::Cookie => "cookie",
        }),
        _ => None,
    };
    match (*class, *layout) {
        // JSON bodies are not judged (see docs/decisions/0003-sql-injection.md).
        ("sqli", "whole") if *url == "/api/items" => verdict == Verdict::Clean,
        ("sqli", "whole" | "pipelined" | "cut-header") => injection == Some(*place),
        // The attack is in a parameter that is whole, or it is not to be seen yet.
        ("sqli", "cut-url") if url.contains("&pad=") => injection == Some("query"),
        ("sqli", "cut-url" | "body-apart") => verdict == Verdict::Unjudged,
        ("benign" | "lookalike", "whole" | "pipelined") => verdict == Verdict::Clean,
        ("benign" | "lookalike", _) => verdict == Verdict::Unjudged || *url == "/api/items",
        _ => false,
    }
}
