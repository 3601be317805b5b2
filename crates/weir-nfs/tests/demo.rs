//! The recorded demo traffic against its ground truth, `demo/requests.tsv`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{ethernet, root};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_nf::DropReason;
use weir_nf::testing::{Bench, Seen};
use weir_nfs::count_url::CountUrl;
use weir_nfs::http_classifier::HttpClassifier;
use weir_nfs::validate_url::{URL_SHOWN, ValidateUrl};

/// Attacks that one packet shows and ValidateUrl misses, a known gap: 159 is in a JSON body, and of
/// bodies only urlencoded ones are judged.
const MISSED: [u32; 1] = [159];

/// One line of the truth.
#[derive(Debug)]
struct Truth {
    id: u32,
    method: String,
    url: String,
    class: String,
    place: String,
    layout: String,
    host: String,
}

fn truth() -> Vec<Truth> {
    let text = std::fs::read_to_string(root().join("demo/requests.tsv")).unwrap();
    let line = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().unwrap();
        let id = next().parse().unwrap();
        let (method, url, class) = (next(), next(), next());
        Truth { id, method, url, class, place: next(), layout: next(), host: next() }
    };
    text.lines().skip(1).map(line).collect()
}

impl Truth {
    /// An attack that one packet shows.
    fn is_visible_attack(&self) -> bool {
        self.class == "sqli"
            && match self.layout.as_str() {
                "whole" | "pipelined" => true,
                // The request line is whole; cookies and body come later.
                "cut-header" => matches!(self.place.as_str(), "path" | "query"),
                // Only if a separator behind the evil parameter shows its end: of the three, 308
                // has it behind the cut and 311 is cut within it.
                "cut-url" => self.id == 309,
                "body-apart" | "cut-body" => self.place != "body",
                other => panic!("{other}"),
            }
    }

    /// An attack that one packet shows and ValidateUrl is expected to block.
    fn is_blocked(&self) -> bool {
        self.is_visible_attack() && !MISSED.contains(&self.id)
    }

    /// Whether a part that is judged goes on in another segment: with no attack in front of it the
    /// request is unjudged.
    fn is_unjudged(&self) -> bool {
        !matches!(self.layout.as_str(), "whole" | "pipelined") && !self.is_blocked()
    }

    fn shown(&self) -> (String, String) {
        (self.method.clone(), self.url.chars().take(URL_SHOWN).collect())
    }
}

struct Run {
    packets: Vec<Vec<u8>>,
    seen: Vec<Seen>,
    report: Value,
}

fn run<N: weir_nf::Nf>() -> Run {
    let packets: Vec<_> =
        ethernet(&root().join("demo/http.pcap")).into_iter().map(|p| p.0).collect();
    let mut bench = Bench::new::<N>(Value::Null).unwrap();
    let seen = bench.run(&packets);
    Run { seen, packets, report: bench.report() }
}

/// The ids of the requests whose `X-Weir-Id` stands in the packet.
fn ids(packet: &[u8]) -> Vec<u32> {
    let text = String::from_utf8_lossy(packet);
    let after = text.split("X-Weir-Id: ").skip(1);
    after.map(|t| t.split('\r').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn validate_url_blocks_exactly_the_attacks_that_one_packet_shows_outside_json_bodies() {
    let truth = truth();
    let Run { packets, seen, report } = run::<ValidateUrl>();
    let mut expected: Vec<_> = truth.iter().filter(|t| t.is_blocked()).map(Truth::shown).collect();
    let text = |b: &Value, key: &str| b[key].as_str().unwrap().to_owned();
    let mut blocked: Vec<_> = report["blocked"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| (text(b, "method"), text(b, "url")))
        .collect();
    expected.sort();
    blocked.sort();
    assert_eq!(blocked, expected);

    // Equal URLs may be attacks or not: each dropped packet carries an attack's id (but 309, whose id
    // is behind the cut, in a segment that passes).
    let attack =
        |id: &u32| truth.iter().any(|t| t.id == *id && t.is_blocked() && t.layout != "cut-url");
    let (mut dropped, mut harmless) = (0, Vec::new());
    for (packet, seen) in packets.iter().zip(&seen) {
        let ids = ids(packet);
        let evil = ids.iter().any(attack);
        match seen.verdict {
            Err(DropReason::Injection) => {
                let cut = ids.is_empty() && String::from_utf8_lossy(packet).contains("&pad=hhh");
                if !evil && !cut {
                    harmless.extend(ids);
                }
                dropped += 1;
            }
            verdict => assert!(verdict == Ok("out") && !evil, "{ids:?}: {verdict:?}"),
        }
        assert_eq!(&seen.bytes, packet);
    }

    let count = |of: &dyn Fn(&Truth) -> bool| truth.iter().filter(|t| of(t)).count();
    let attacks = count(&|t| t.class == "sqli");
    let visible = count(&Truth::is_visible_attack);
    println!(
        "{dropped} packets dropped: {} of {attacks} attacks ({visible} show in one packet; missed: {MISSED:?}), \
         {} of {} harmless requests; {} of {} requests unjudged",
        blocked.len() - harmless.len(),
        harmless.len(),
        truth.len() - attacks,
        report["unjudged"],
        report["requests"],
    );
    assert_eq!((attacks, visible, blocked.len(), dropped), (38, 35, 34, 34));
    assert_eq!(report["injections"], 34);
    assert_eq!(report["requests"], truth.len());
    assert_eq!(report["unjudged"], count(&Truth::is_unjudged));
    assert_eq!(harmless, [0_u32; 0]);
}

/// Where each kind of attack was found, as the truth has it.
#[test]
fn validate_url_names_the_part_of_the_request_that_carries_the_attack() {
    let mut places = BTreeMap::<String, usize>::new();
    for blocked in run::<ValidateUrl>().report["blocked"].as_array().unwrap() {
        let place = blocked["where"].as_str().unwrap().split(' ').next().unwrap().to_owned();
        *places.entry(place).or_default() += 1;
        assert!(!blocked["fingerprint"].as_str().unwrap().is_empty());
        assert!(blocked["src"].as_str().unwrap().parse::<std::net::SocketAddr>().is_ok());
    }
    let mut expected = BTreeMap::<String, usize>::new();
    for t in truth().iter().filter(|t| t.is_blocked()) {
        *expected.entry(t.place.clone()).or_default() += 1;
    }
    assert_eq!(places, expected);
}

/// Whole requests and no others are counted, each under its host and path.
#[test]
fn count_url_counts_every_request_whose_url_and_host_one_packet_shows() {
    let report = run::<CountUrl>().report;
    let mut expected = BTreeMap::<String, u64>::new();
    let mut cut = 0;
    for t in truth() {
        if t.layout == "cut-url" {
            cut += 1;
            continue;
        }
        let path = t.url.split('?').next().unwrap();
        let url = match path.strip_prefix("http://") {
            Some(absolute) => absolute.to_owned(),
            None => format!("{}{path}", t.host),
        };
        *expected.entry(url).or_default() += 1;
    }
    let counted: BTreeMap<String, u64> =
        serde_json::from_value::<Vec<(String, u64)>>(report["urls"].clone())
            .unwrap()
            .into_iter()
            .collect();
    assert_eq!(counted, expected);
    assert_eq!((&report["unjudged"], &report["(other)"]), (&cut.into(), &0.into()));
}

/// A packet is HTTP when it begins with a request or status line; nothing else is.
#[test]
fn http_classifier_finds_every_request_and_no_text_that_is_not_http() {
    let Run { packets, seen, .. } = run::<HttpClassifier>();
    let mut http = 0;
    for (packet, seen) in packets.iter().zip(&seen) {
        let layers = weir_packet::parse(packet.as_slice(), weir_nf::Depth::L4);
        let payload = &packet[layers.payload.into()..layers.end.into()];
        let methods = ["GET", "HEAD", "POST", "OPTIONS", "DELETE"];
        let request = methods.iter().any(|m| payload.starts_with(format!("{m} ").as_bytes()));
        let tcp = layers.has_l4() && layers.proto == 6;
        let expected = tcp && (request || payload.starts_with(b"HTTP/1."));
        assert_eq!(seen.output(), if expected { "http" } else { "other" });
        http += usize::from(expected);
    }
    println!("{http} of {} packets are HTTP", packets.len());
    assert!(http > 2 * 300);
}
