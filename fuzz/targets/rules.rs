//! Any text as a list of rules in JSON and, behind a NUL, packets' header fields for them.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use weir_classify::generate::headers_hitting;
use weir_classify::{
    Classifier, Fragment, HeaderBatch, Headers, LANES, NO_RULE, Net, Rule, RuleSpec, VlanMatch,
};
use weir_fuzz::{planted, text_and_bytes};

/// More rules make it slow and find nothing new: the trees are deep already.
const MOST: usize = 200;

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((text, bytes)) = text_and_bytes(data) else { return Corpus::Reject };
    let Ok(specs) = serde_json::from_str::<Vec<RuleSpec>>(text) else { return Corpus::Keep };
    let written = serde_json::to_string(&specs).expect("what was read can be written");
    assert_eq!(serde_json::from_str::<Vec<RuleSpec>>(&written).ok().as_ref(), Some(&specs));
    let mut rules = Vec::new();
    for spec in specs.iter().take(MOST) {
        match Rule::try_from(spec) {
            Ok(rule) => rules.push(rule),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    compiled_rules_say_what_walking_them_says(&rules, bytes);
    planted(rules.iter().any(|rule| matches!(rule.vlan, Some(VlanMatch::Id(6 | 8)))));
    Corpus::Keep
});

fn compiled_rules_say_what_walking_them_says(rules: &[Rule], bytes: &[u8]) {
    let Ok(classifier) = Classifier::build(rules) else {
        panic!("these are too few rules to be too many")
    };
    let mut all: Vec<Headers> = bytes.chunks(16).take(32).map(fields).collect();
    // Some that hit, and these with single fields of the others.
    let seed = bytes.iter().fold(1, |seed: u64, &byte| seed.rotate_left(5) ^ u64::from(byte));
    let hits = headers_hitting(seed, rules, rules.len().min(32) * 2);
    let crossed: Vec<Headers> = hits.iter().zip(&all).map(|(hit, any)| cross(hit, any)).collect();
    all.extend(hits);
    all.extend(crossed);
    let mut batched = Vec::new();
    for piece in all.chunks(LANES) {
        let mut batch = HeaderBatch::new();
        piece.iter().for_each(|headers| batch.push(headers));
        batched.extend_from_slice(&classifier.classify_batch(&batch)[..piece.len()]);
    }
    for (headers, batched) in all.iter().zip(batched) {
        let walked = (0..).zip(rules).find(|(_, rule)| rule.matches(headers)).map(|(at, _)| at);
        assert_eq!(classifier.classify(headers), walked, "{headers:?} in {rules:?}");
        assert_eq!(batched, walked.unwrap_or(NO_RULE), "in a batch: {headers:?} in {rules:?}");
    }
}

/// Header fields from up to 16 bytes: few values, so that rules and packets meet.
fn fields(bytes: &[u8]) -> Headers {
    let b = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let wide = |at: usize| u16::from_be_bytes([b(at), b(at.saturating_add(1))]);
    let address = |at: usize| u32::from(b(at)) << 24 | u32::from(b(at.saturating_add(1)));
    let kind = b(0);
    Headers {
        net: match kind & 3 {
            0 => Net::None,
            1 | 2 => Net::V4 { src: address(1), dst: address(3) },
            _ => Net::V6 { src: [address(1), 0, 0, 1], dst: [address(3), 0, 0, 1] },
        },
        ports: (kind & 4 != 0).then(|| (wide(5), wide(7))),
        proto: (kind & 8 != 0).then(|| b(9)),
        tcp_flags: (kind & 16 != 0).then(|| b(10)),
        icmp: (kind & 32 != 0).then(|| (b(11), b(12))),
        fragment: match b(13) & 3 {
            0 | 3 => Fragment::Whole,
            1 => Fragment::First,
            _ => Fragment::Later,
        },
        src_mac: [b(14), 0, 0, 0, 0, b(15)],
        dst_mac: [b(15), 0, 0, 0, 0, b(14)],
        ether_type: if kind & 64 == 0 { 0x0800 } else { wide(13) },
        vlan: (kind & 128 != 0).then(|| wide(14)),
    }
}

/// A header that hits but for the fields that rules seldom test.
fn cross(hit: &Headers, any: &Headers) -> Headers {
    Headers { net: hit.net, ports: hit.ports, proto: hit.proto, ..*any }
}
