//! The firewall's policy and the packets that go through it.

use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use weir_classify::generate::{Random, headers_hitting};
use weir_classify::{Headers, Net, Prefix, Rule};
use weir_device::{ListedFlow, ListedSpec};
use weir_nf::headers::proto;
use weir_nf::{Depth, Layers};

/// Why no payloads could be taken from a capture.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: weir_capture::OpenError },
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: weir_capture::ReadError },
    #[error("{}: no TCP segment with payload in it; record some HTTP traffic", .0.display())]
    None(PathBuf),
}

/// The longest payload: with headers it fits an Ethernet frame.
const LONGEST: usize = 1_440;

/// The payloads of a capture's TCP segments.
pub fn payloads(path: &Path) -> Result<Vec<Vec<u8>>, PayloadError> {
    let open = |source| PayloadError::Open { path: path.to_owned(), source };
    let read = |source| PayloadError::Read { path: path.to_owned(), source };
    let mut reader = weir_capture::Reader::open(path).map_err(open)?;
    let mut payloads = Vec::new();
    while let Some(record) = reader.next().map_err(read)? {
        let mut layers = Layers::default();
        layers.extend(record.bytes, Depth::L4);
        let range = usize::from(layers.payload)..usize::from(layers.end);
        let tcp = layers.proto == proto::TCP && layers.has_l4();
        if let Some(payload) = record.bytes.get(range).filter(|p| tcp && !p.is_empty()) {
            payloads.push(payload.get(..LONGEST).unwrap_or(payload).to_vec());
        }
    }
    if payloads.is_empty() { Err(PayloadError::None(path.to_owned())) } else { Ok(payloads) }
}

/// Packets of `flows` flows that hit `rules` evenly and in random order, 64 bytes long or with payloads.
pub fn source(
    seed: u64,
    rules: &[Rule],
    flows: usize,
    payloads: Option<&[Vec<u8>]>,
    packets: Option<u64>,
) -> ListedSpec {
    let flows = shuffled(seed, rules, flows).iter().filter_map(flow).collect();
    let payloads = payloads.unwrap_or_default().to_vec();
    ListedSpec { flows, payloads, size: 60, packets, burst: None, stays: false, shuffled: false }
}

/// Headers that hit `rules` evenly, in random order: as rules' neighbours are alike, a list in their order would be
/// easy on caches and branch prediction.
pub fn shuffled(seed: u64, rules: &[Rule], count: usize) -> Vec<Headers> {
    let mut headers = headers_hitting(seed, rules, count);
    let mut random = Random::new(seed);
    for at in (1..headers.len()).rev() {
        headers.swap(at, random.below(at + 1));
    }
    headers
}

fn flow(headers: &Headers) -> Option<ListedFlow> {
    let v6 = |words: [u32; 4]| {
        Ipv6Addr::from_bits(words.iter().fold(0, |sum, word| sum << 32 | u128::from(*word)))
    };
    let (source, destination): (IpAddr, IpAddr) = match headers.net {
        Net::V4 { src, dst } => (Ipv4Addr::from_bits(src).into(), Ipv4Addr::from_bits(dst).into()),
        Net::V6 { src, dst } => (v6(src).into(), v6(dst).into()),
        Net::None => return None,
    };
    let (proto, ports) = (headers.proto?, headers.ports.unwrap_or_default());
    Some(ListedFlow { source, destination, proto, ports })
}

/// The firewall: what a rule matches passes, the rest is dropped. So packets that hit the rules go all of the way.
pub fn firewall_policy(rules: &[Rule]) -> String {
    let rules: Vec<Value> = rules.iter().map(written).collect();
    let config = json!({ "default": "drop", "rules": rules });
    format!(
        "Port<0> lan; Port<1> wan;\n\
         CheckIpHeader ip; L3L4Filter fw {config}; HttpClassifier http;\n\
         pipelet {{\n  lan -> ip;\n  ip [ip.ip] -> fw -> http;\n  ip [ip.non_ip] -> Drop;\n  \
         http [http.http] -> wan;\n  http [http.other] -> wan;\n}}\n"
    )
}

/// A generated rule as policies write it: addresses, ports, protocol.
fn written(rule: &Rule) -> Value {
    let prefix = |prefix: Prefix| match prefix {
        Prefix::Any => json!("any"),
        Prefix::V4 { addr, len } => json!(format!("{}/{len}", Ipv4Addr::from_bits(addr))),
        Prefix::V6 { addr, len } => json!(format!("{}/{len}", Ipv6Addr::from_bits(addr))),
    };
    let mut written = json!({ "action": "pass", "src": prefix(rule.src), "dst": prefix(rule.dst) });
    for (name, ports) in [("src_port", &rule.sport), ("dst_port", &rule.dport)] {
        if *ports != (0..=u16::MAX) {
            written[name] = json!(format!("{}-{}", ports.start(), ports.end()));
        }
    }
    if let Some(proto) = rule.proto {
        written["proto"] = json!(proto);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_classify::generate::{Kind, generate};
    use weir_classify::{Classifier, RuleSpec};

    #[test]
    fn written_rules_mean_what_the_generated_ones_do_and_every_flow_hits_one() {
        for kind in [Kind::Acl, Kind::Fw, Kind::Ipc] {
            let rules = generate(3, 200, kind);
            for rule in &rules {
                let spec: RuleSpec = serde_json::from_value(written(rule)).unwrap();
                assert_eq!(Rule::try_from(&spec).unwrap(), *rule);
            }
            let classifier = Classifier::build(&rules).unwrap();
            let headers = shuffled(3, &rules, 1000);
            assert!(headers.iter().all(|h| classifier.classify(h).is_some()));
            assert_eq!(source(3, &rules, 1000, None, None).flows.len(), 1000);
        }
    }
}
