//! Rules as operators write them in a policy's configuration.

use crate::rule::{FlagMatch, FragmentMatch, MacMatch, Prefix, Rule, VlanMatch};
use core::ops::RangeInclusive;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What happens to packets that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Let it through.
    Pass,
    /// Discard it, counted.
    Drop,
}

/// A field that may be written as a number or as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "neither a text nor a number from 0 to 65535")]
pub enum NumberOrText {
    /// `80`
    Number(u16),
    /// `"80-90"`
    Text(String),
}

/// One rule as written; fields left out accept anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// What to do with packets that match.
    pub action: Action,
    /// Source address or prefix: `"10.0.0.0/8"`, `"2001:db8::/32"`, `"192.0.2.1"`, `"any"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// Destination address or prefix, written like `src`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// Source port or range: `80`, `"80"`, `"80-90"`, `"1024-"`, `"-1023"`, `"any"`. Packets without ports
    /// (later fragments too) do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_port: Option<NumberOrText>,
    /// Destination port or range, written like `src_port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<NumberOrText>,
    /// Protocol: a number or `"tcp"`, `"udp"`, `"icmp"`, `"icmp6"`, `"igmp"`, `"gre"`, `"esp"`, `"ah"`, `"ospf"`, `"sctp"`, `"any"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_text::<255>")]
    pub proto: Option<NumberOrText>,
    /// TCP flags that must be set, or with `!` must not be: `"syn,!ack"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<String>,
    /// ICMP or ICMPv6 type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// ICMP or ICMPv6 code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Source MAC address, with a mask if wanted: `"aa:bb:cc:dd:ee:ff"`, `"02:00:00:00:00:00/ff:00:00:00:00:00"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<String>,
    /// Destination MAC address, written like `src_mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<String>,
    /// EtherType: a number, `"0x86dd"`, or `"ipv4"`, `"ipv6"`, `"arp"`, `"lldp"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<NumberOrText>,
    /// VLAN of the outer tag: an identifier from 0 to 4095, or `"untagged"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_text::<4095>")]
    pub vlan: Option<NumberOrText>,
    /// `"no"`: whole datagrams, `"yes"`: fragments, `"first"` or `"later"` ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<FragmentSpec>,
}

/// A [`NumberOrText`] whose numbers end with `MOST`.
fn number_or_text<const MOST: u16>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": MOST },
            { "type": "string" },
            { "type": "null" },
        ]
    })
}

/// How [`FragmentMatch`] is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FragmentSpec {
    /// Whole datagrams.
    No,
    /// Any fragment.
    Yes,
    /// First fragments.
    First,
    /// Later fragments.
    Later,
}

/// What is wrong with a written rule; each names the field and quotes what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// `src` or `dst`.
    #[error("{field}: '{text}' is no IP address or prefix such as 10.0.0.0/8 or 2001:db8::/32")]
    Address {
        /// The field's name.
        field: &'static str,
        /// What was written.
        text: String,
    },
    /// `src` is of another IP version than `dst`: no packet can match.
    #[error("src and dst are of different IP versions: no packet can match")]
    MixedVersions,
    /// `src_port` or `dst_port`.
    #[error("{field}: '{text}' is no port or range such as 80 or 80-90")]
    Ports {
        /// The field's name.
        field: &'static str,
        /// What was written.
        text: String,
    },
    /// `proto`.
    #[error("proto: '{0}' is no known protocol name, nor a number from 0 to 255")]
    Protocol(String),
    /// `tcp_flags`.
    #[error(
        "tcp_flags: '{0}' is none of fin, syn, rst, psh, ack, urg, ece, cwr (with ! for 'not set')"
    )]
    Flag(String),
    /// A flag that is to be set and not set.
    #[error("tcp_flags: '{0}' is asked for both ways: no packet can match")]
    FlagTwice(String),
    /// `src_mac` or `dst_mac`.
    #[error(
        "{field}: '{text}' is no MAC address such as aa:bb:cc:dd:ee:ff, nor one with a mask behind a slash"
    )]
    Mac {
        /// The field's name.
        field: &'static str,
        /// What was written.
        text: String,
    },
    /// `ether_type`.
    #[error("ether_type: '{0}' is no number such as 0x0800, nor ipv4, ipv6, arp, lldp")]
    EtherType(String),
    /// `vlan`.
    #[error("vlan: '{0}' is neither 'untagged' nor an identifier from 0 to 4095")]
    Vlan(String),
    /// Ports are tested of a protocol that has none.
    #[error("{0} is tested, but protocol {1} has no ports: no packet can match")]
    NoPorts(&'static str, u8),
}

impl TryFrom<&RuleSpec> for Rule {
    type Error = SpecError;

    fn try_from(spec: &RuleSpec) -> Result<Rule, SpecError> {
        let rule = Rule {
            src: prefix("src", spec.src.as_deref())?,
            dst: prefix("dst", spec.dst.as_deref())?,
            sport: ports("src_port", spec.src_port.as_ref())?,
            dport: ports("dst_port", spec.dst_port.as_ref())?,
            proto: protocol(spec.proto.as_ref())?,
            tcp_flags: spec.tcp_flags.as_deref().map(flags).transpose()?,
            icmp_type: spec.icmp_type,
            icmp_code: spec.icmp_code,
            src_mac: mac("src_mac", spec.src_mac.as_deref())?,
            dst_mac: mac("dst_mac", spec.dst_mac.as_deref())?,
            ether_type: spec.ether_type.as_ref().map(ether_type).transpose()?,
            vlan: spec.vlan.as_ref().map(vlan).transpose()?,
            fragment: spec.fragment.map(|fragment| match fragment {
                FragmentSpec::No => FragmentMatch::No,
                FragmentSpec::Yes => FragmentMatch::Yes,
                FragmentSpec::First => FragmentMatch::First,
                FragmentSpec::Later => FragmentMatch::Later,
            }),
        };
        if let (Prefix::V4 { .. }, Prefix::V6 { .. }) | (Prefix::V6 { .. }, Prefix::V4 { .. }) =
            (rule.src, rule.dst)
        {
            return Err(SpecError::MixedVersions);
        }
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        if let Some(proto) = rule.proto.filter(|proto| !matches!(proto, 6 | 17 | 33 | 132 | 136)) {
            for (field, range) in [("src_port", &rule.sport), ("dst_port", &rule.dport)] {
                if *range != (0..=u16::MAX) {
                    return Err(SpecError::NoPorts(field, proto));
                }
            }
        }
        Ok(rule)
    }
}

fn prefix(field: &'static str, text: Option<&str>) -> Result<Prefix, SpecError> {
    let Some(text) = text.filter(|text| *text != "any") else { return Ok(Prefix::Any) };
    let wrong = || SpecError::Address { field, text: text.to_owned() };
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(decimal::<u8>(len).ok_or_else(wrong)?)),
        None => (text, None),
    };
    match address.parse().map_err(|_| wrong())? {
        IpAddr::V4(addr) => {
            let len = len.unwrap_or(32);
            if len > 32 { Err(wrong()) } else { Ok(Prefix::V4 { addr: addr.to_bits(), len }) }
        }
        IpAddr::V6(addr) => {
            let len = len.unwrap_or(128);
            if len > 128 { Err(wrong()) } else { Ok(Prefix::V6 { addr: addr.to_bits(), len }) }
        }
    }
}

fn ports(
    field: &'static str,
    written: Option<&NumberOrText>,
) -> Result<RangeInclusive<u16>, SpecError> {
    let text = match written {
        None => return Ok(0..=u16::MAX),
        Some(NumberOrText::Number(port)) => return Ok(*port..=*port),
        Some(NumberOrText::Text(text)) => text,
    };
    let wrong = || SpecError::Ports { field, text: text.clone() };
    let end = |part: &str, open: u16| {
        let part = part.trim();
        if part.is_empty() { Some(open) } else { decimal(part) }
    };
    let range = match text.trim().split_once('-') {
        None if text == "any" => 0..=u16::MAX,
        None => {
            let port = decimal(text.trim()).ok_or_else(wrong)?;
            port..=port
        }
        Some(("", "")) => return Err(wrong()),
        Some((first, last)) => {
            end(first, 0).ok_or_else(wrong)?..=end(last, u16::MAX).ok_or_else(wrong)?
        }
    };
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

fn protocol(written: Option<&NumberOrText>) -> Result<Option<u8>, SpecError> {
    let text = match written {
        None => return Ok(None),
        Some(NumberOrText::Number(number)) => {
            return u8::try_from(*number)
                .map(Some)
                .map_err(|_| SpecError::Protocol(number.to_string()));
        }
        Some(NumberOrText::Text(text)) => text,
    };
    let number = match text.to_ascii_lowercase().as_str() {
        "any" => return Ok(None),
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmp6" | "icmpv6" => 58,
        "ospf" => 89,
        "sctp" => 132,
        other => decimal(other).ok_or_else(|| SpecError::Protocol(text.clone()))?,
    };
    Ok(Some(number))
}

fn flags(text: &str) -> Result<FlagMatch, SpecError> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let mut found = FlagMatch { mask: 0, value: 0 };
    for word in text.split(',').map(str::trim) {
        let (name, set) = match word.strip_prefix('!') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let bit = NAMES
            .iter()
            .zip(0_u32..)
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .and_then(|(_, at)| 1_u8.checked_shl(at))
            .ok_or_else(|| SpecError::Flag(word.to_owned()))?;
        let wanted = if set { bit } else { 0 };
        if found.mask & bit != 0 && found.value & bit != wanted {
            return Err(SpecError::FlagTwice(name.to_owned()));
        }
        found.mask |= bit;
        found.value |= wanted;
    }
    Ok(found)
}

fn mac(field: &'static str, text: Option<&str>) -> Result<Option<MacMatch>, SpecError> {
    let Some(text) = text.filter(|text| *text != "any") else { return Ok(None) };
    let wrong = || SpecError::Mac { field, text: text.to_owned() };
    let (addr, mask) = match text.split_once('/') {
        Some((addr, mask)) => (addr, six_bytes(mask).ok_or_else(wrong)?),
        None => (text, [0xFF; 6]),
    };
    Ok(Some(MacMatch { addr: six_bytes(addr).ok_or_else(wrong)?, mask }))
}

/// `aa:bb:cc:dd:ee:ff` or `aa-bb-cc-dd-ee-ff`.
fn six_bytes(text: &str) -> Option<[u8; 6]> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut parts = text.split(separator);
    let mut bytes = [0; 6];
    for byte in &mut bytes {
        let part =
            parts.next().filter(|part| matches!(part.len(), 1 | 2) && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

fn ether_type(written: &NumberOrText) -> Result<u16, SpecError> {
    let text = match written {
        NumberOrText::Number(number) => return Ok(*number),
        NumberOrText::Text(text) => text,
    };
    let lower = text.to_ascii_lowercase();
    let number = match lower.as_str() {
        "ipv4" | "ip" => Some(0x0800),
        "arp" => Some(0x0806),
        "ipv6" | "ip6" => Some(0x86DD),
        "lldp" => Some(0x88CC),
        other => match other.strip_prefix("0x") {
            Some(hex) if !hex.starts_with('+') => u16::from_str_radix(hex, 16).ok(),
            Some(_) => None,
            None => decimal(other),
        },
    };
    number.ok_or_else(|| SpecError::EtherType(text.clone()))
}

fn vlan(written: &NumberOrText) -> Result<VlanMatch, SpecError> {
    let id = match written {
        NumberOrText::Number(number) => Some(*number),
        NumberOrText::Text(text) if text == "untagged" => return Ok(VlanMatch::Untagged),
        NumberOrText::Text(text) => decimal(text),
    };
    id.filter(|id| *id <= 0xFFF).map(VlanMatch::Id).ok_or_else(|| {
        SpecError::Vlan(match written {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text.clone(),
        })
    })
}

/// A number of digits only: `parse` alone would accept a plus sign.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
