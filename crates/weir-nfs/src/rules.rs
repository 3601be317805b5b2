//! Filter rules: as a configuration has them, and what they ask for of a packet.

use serde::Deserialize;
use serde_json::Value;
use weir_classify::{Action, Classifier, Fragment, HeaderBatch, Headers, Net, Rule, RuleSpec};
use weir_nf::headers::{plain_v4, proto};
use weir_nf::{Access, ConfigError, Depth, Pkt};

/// Compiles the configuration's `rules`; also gives the action of each.
pub(crate) fn compile(written: &[Value]) -> Result<(Classifier, Vec<Action>), ConfigError> {
    let wrong = |i: usize, why: String| ConfigError { at: format!("/rules/{i}"), why };
    let (mut rules, mut actions) = (Vec::new(), Vec::new());
    for (i, written) in written.iter().enumerate() {
        let spec = RuleSpec::deserialize(written)
            .map_err(|e| wrong(i, weir_nf::in_words(&e.to_string())))?;
        rules.push(Rule::try_from(&spec).map_err(|e| wrong(i, e.to_string()))?);
        actions.push(spec.action);
    }
    let classifier = Classifier::build(&rules)
        .map_err(|e| ConfigError { at: "/rules".into(), why: e.to_string() })?;
    Ok((classifier, actions))
}

/// Adds what rules may ask of a packet to the batch; `link`: some rule asks for the link layer.
#[inline(always)]
pub(crate) fn push<A: Access>(packet: &Pkt<'_, A>, link: bool, batch: &mut HeaderBatch) {
    match plain_v4(&packet.bytes()) {
        Some(plain) if !link => {
            let proto = if plain.tcp_flags.is_some() { proto::TCP } else { proto::UDP };
            batch.push_v4(plain.source, plain.destination, plain.ports, proto, plain.tcp_flags);
        }
        _ => batch.push(&extract(packet)),
    }
}

/// What rules may ask of a packet.
#[inline(never)]
pub(crate) fn extract<A: Access>(packet: &Pkt<'_, A>) -> Headers {
    let bytes = packet.bytes();
    let layers = packet.layers(Depth::L4);
    let (dst_mac, src_mac) = layers.macs(&bytes).unwrap_or_default();
    let words = |a: std::net::Ipv6Addr| {
        let a = a.to_bits();
        [(a >> 96) as u32, (a >> 64) as u32, (a >> 32) as u32, a as u32]
    };
    let net = if let Some((src, dst)) = layers.ipv4(&bytes) {
        Net::V4 { src: src.to_bits(), dst: dst.to_bits() }
    } else if let Some((src, dst)) = layers.ipv6(&bytes) {
        Net::V6 { src: words(src), dst: words(dst) }
    } else {
        Net::None
    };
    Headers {
        net,
        ports: layers.ports(&bytes),
        // An IP header that could not be read has no protocol: nothing was found behind it.
        proto: (layers.is_ip() && layers.l4 > layers.l3).then_some(layers.proto),
        tcp_flags: layers.tcp_flags(&bytes),
        icmp: layers.icmp_type_code(&bytes),
        fragment: match layers.fragment() {
            weir_nf::Fragment::Whole => Fragment::Whole,
            weir_nf::Fragment::First => Fragment::First,
            weir_nf::Fragment::Later => Fragment::Later,
        },
        src_mac,
        dst_mac,
        ether_type: layers.ether_type,
        vlan: (layers.vlan_count > 0).then_some(layers.vlan_outer),
    }
}
