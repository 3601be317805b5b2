//! NF descriptions as E2 has them (§3.2), beside µNF descriptors.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bandwidth::Bandwidth;
use crate::catalog::{NfInfo, TagInfo, TagKind};
use crate::config::Config;
use crate::describe::{Affinity, Effect, TUPLE, Work};
use crate::error::PolicyError;
use crate::fields::{Field, FieldSet};
use crate::service::descriptor::DescriptorDocument;
use crate::service::names;
use crate::service::tree::{Syntax, read};
use crate::service::typed::{Document, typed};
use crate::span::Spanned;
use crate::why::Why;

/// An NF description: what E2's planner knows of an NF. What it leaves out is taken as the worst.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "NF description")]
pub struct NfDocument {
    /// The NF type's name.
    pub nf: String,
    /// What it does, in one sentence.
    #[serde(default)]
    pub about: String,
    /// Whether it uses the SDK, or is a program with network interfaces of its own.
    #[serde(default)]
    pub kind: NfKind,
    /// Its ports.
    #[serde(default)]
    pub ports: Ports,
    /// The attributes that it gives to packets, and how it tells them.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// The fields that form a flow for it; the 5-tuple unless given. A flow's packets meet at one instance, unless `affinity`
    /// says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Vec<AffinityField>>,
    /// Whether it may run several times.
    #[serde(default)]
    pub scaling: Scaling,
    /// The fields that packets have in common that must meet at the same instance: none of them for
    /// an NF that any instance will do for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Vec<AffinityField>>,
    /// Packets of both directions meet, too: those of one have the other's addresses and ports changed round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub symmetric: bool,
    /// What a core manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// Native or legacy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NfKind {
    /// It uses the SDK.
    Native,
    /// It does not.
    #[default]
    Legacy,
}

/// Number and names of ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Names of the ports that it receives on.
    #[serde(default = "one_input")]
    pub inputs: Vec<String>,
    /// Names of the ports that it sends on.
    #[serde(default = "one_output")]
    pub outputs: Vec<String>,
}

fn one_input() -> Vec<String> {
    vec!["in".to_owned()]
}

fn one_output() -> Vec<String> {
    vec!["out".to_owned()]
}

impl Default for Ports {
    fn default() -> Self {
        Self { inputs: one_input(), outputs: one_output() }
    }
}

/// How an attribute's value is told (E2's attribute-method bindings).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// By port or by metadata.
    pub method: Method,
    /// The port that packets with it leave by, for `nf.attribute`, or come in by, for `-> [attribute] nf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// What a tag's value is; a flag unless given.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<TagKind>,
}

/// The means by which an attribute is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// All packets with the attribute leave by one port, or come in by it.
    Port,
    /// A tag travels with the packet, called like the attribute.
    Metadata,
}

/// Whether an NF may run several times; not, unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// On several cores of a server.
    #[serde(default)]
    pub cores: bool,
    /// On several servers.
    #[serde(default)]
    pub servers: bool,
}

/// A header field of a flow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AffinityField {
    /// Source address.
    SrcIp,
    /// Destination address.
    DstIp,
    /// IP protocol.
    Proto,
    /// Source port.
    SrcPort,
    /// Destination port.
    DstPort,
}

impl AffinityField {
    /// All of them.
    pub const ALL: [Self; 5] = [
        AffinityField::SrcIp,
        AffinityField::DstIp,
        AffinityField::Proto,
        AffinityField::SrcPort,
        AffinityField::DstPort,
    ];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AffinityField::SrcIp => "src_ip",
            AffinityField::DstIp => "dst_ip",
            AffinityField::Proto => "proto",
            AffinityField::SrcPort => "src_port",
            AffinityField::DstPort => "dst_port",
        }
    }

    fn of_packets(self) -> Field {
        match self {
            AffinityField::SrcIp => Field::IpSrc,
            AffinityField::DstIp => Field::IpDst,
            AffinityField::Proto => Field::IpProto,
            AffinityField::SrcPort => Field::L4Src,
            AffinityField::DstPort => Field::L4Dst,
        }
    }
}

/// What a core manages, for each GHz.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// As in `2 Mpps` or `1 Gbps`.
    pub per_core_ghz: String,
    /// Mean length of packets in bytes, for a rate in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_bytes: Option<u32>,
}

/// A type that is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// As the plan sees it.
    pub info: NfInfo,
    /// Whether it may run several times; a µNF descriptor does not say, so not.
    pub scaling: Scaling,
}

/// Reads descriptions of NF types: a µNF descriptor, an NF description, or a list of such.
///
/// # Errors
/// All errors found, in the order of the text.
pub fn describe(text: &str, syntax: Syntax) -> Result<Vec<Described>, Vec<PolicyError>> {
    let tree = read(text, syntax)?;
    let all = match tree.value {
        Config::Array(list) => list,
        _ => vec![tree],
    };
    let (mut described, mut errors) = (Vec::new(), Vec::new());
    for tree in all {
        match one(tree) {
            Ok(one) => described.push(one),
            Err(more) => errors.extend(more),
        }
    }
    if errors.is_empty() { Ok(described) } else { Err(errors) }
}

fn one(tree: Spanned<Config>) -> Result<Described, Vec<PolicyError>> {
    let paper = match &tree.value {
        Config::Object(members) => {
            members.iter().any(|(key, _)| key.value == "PacketProcessorClass")
        }
        _ => false,
    };
    let (info, problems, document_at);
    let scaling;
    if paper {
        let document: Document<DescriptorDocument> = typed(tree, "descriptor")?;
        info = document.value.info();
        scaling = Scaling::default();
        problems = lists(&info, ["/PacketProcessorClass", "/Inputs", "/Outputs"]);
        document_at = spans(&document, &problems);
    } else {
        let document: Document<NfDocument> = typed(tree, "nf")?;
        let mut found = Vec::new();
        info = document.value.info(&mut found);
        scaling = document.value.scaling;
        found.extend(lists(&info, ["/nf", "/ports/inputs", "/ports/outputs"]));
        problems = found;
        document_at = spans(&document, &problems);
    }
    if problems.is_empty() {
        return Ok(Described { info, scaling });
    }
    let errors = problems.into_iter().zip(document_at);
    Err(errors
        .map(|(Problem { message, instead, .. }, span)| PolicyError {
            span,
            why: Why::Document { message, instead },
        })
        .collect())
}

/// What is wrong with a description, by JSON pointer.
struct Problem {
    pointer: String,
    message: String,
    instead: String,
}

fn spans<T>(document: &Document<T>, problems: &[Problem]) -> Vec<crate::span::Span> {
    problems.iter().map(|problem| document.value_at(&problem.pointer)).collect()
}

/// The most inputs or outputs of an NF, as of a µNF with code.
const MAX_PORTS: usize = 64;

/// What is wrong with the names of a type, its inputs and its outputs.
fn lists(info: &NfInfo, at: [&str; 3]) -> Vec<Problem> {
    let [name, inputs, outputs] = at;
    let mut problems = Vec::new();
    let mut check = |pointer: String, text: &str| {
        if let Some((message, instead)) = names::wrong(text) {
            problems.push(Problem { pointer, message, instead });
        }
    };
    check(name.to_owned(), &info.name);
    for (at, list) in [(inputs, &info.inputs), (outputs, &info.outputs)] {
        for (i, text) in list.iter().enumerate() {
            check(format!("{at}/{i}"), text);
        }
    }
    for (at, list) in [(inputs, &info.inputs), (outputs, &info.outputs)] {
        if list.len() > MAX_PORTS {
            let message = format!("{} of them", list.len());
            let instead = format!("write at most {MAX_PORTS}");
            problems.push(Problem { pointer: at.to_owned(), message, instead });
            continue;
        }
        let mut seen = HashSet::new();
        for (i, name) in list.iter().enumerate().filter(|(_, name)| !seen.insert(name.as_str())) {
            let message = format!("two ports are called `{name}`, by their names or attributes");
            let instead = "give each another name".to_owned();
            problems.push(Problem { pointer: format!("{at}/{i}"), message, instead });
        }
    }
    problems
}

/// A port's place among its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PortPlace {
    Output(usize),
    Input(usize),
}

impl NfDocument {
    /// As the plan sees it; what cannot be is added to `problems`.
    fn info(&self, problems: &mut Vec<Problem>) -> NfInfo {
        let mut outputs = self.ports.outputs.clone();
        let mut inputs = self.ports.inputs.clone();
        let mut tags = Vec::new();
        // By port: the attribute that it tells.
        let mut told: BTreeMap<PortPlace, &str> = BTreeMap::new();
        for (name, attribute) in &self.attributes {
            let pointer = format!("/attributes/{}", names::step(name));
            let port = attribute.port.as_ref();
            match (attribute.method, port.map(|port| (port, self.port(port)))) {
                (Method::Metadata, None) => {
                    let kind = attribute.kind.unwrap_or(TagKind::Flag);
                    tags.push(TagInfo { name: name.clone(), kind });
                }
                (Method::Port, _) if attribute.kind.is_some() => problems.push(Problem {
                    pointer: format!("{pointer}/type"),
                    message: format!("`{name}` is told by a port, which has no value"),
                    instead: "leave `type` out, or write `method: metadata`".to_owned(),
                }),
                // The port takes the attribute's name: that is what policies write.
                (Method::Port, Some((port, Some(at)))) => {
                    if let Some(other) = told.insert(at, name) {
                        problems.push(Problem {
                            pointer: format!("{pointer}/port"),
                            message: format!("the port `{port}` tells `{other}` already"),
                            instead: "write another port".to_owned(),
                        });
                    }
                    let port = match at {
                        PortPlace::Output(at) => outputs.get_mut(at),
                        PortPlace::Input(at) => inputs.get_mut(at),
                    };
                    if let Some(port) = port {
                        port.clone_from(name);
                    }
                }
                (Method::Port, Some((port, None))) => problems.push(Problem {
                    pointer: format!("{pointer}/port"),
                    message: format!("no port is called `{port}`"),
                    instead: format!(
                        "write one of {}",
                        names::list(&[&*self.ports.outputs, &*self.ports.inputs].concat())
                    ),
                }),
                (Method::Port, None) => problems.push(Problem {
                    pointer,
                    message: format!("by which port `{name}` is told is not said"),
                    instead: "add `port`".to_owned(),
                }),
                (Method::Metadata, Some(_)) => problems.push(Problem {
                    pointer,
                    message: format!("`{name}` is told by metadata, so it has no port"),
                    instead: "leave `port` out".to_owned(),
                }),
            }
        }
        let worst = Work::default();
        if self.flow.as_ref().is_some_and(Vec::is_empty) {
            problems.push(Problem {
                pointer: "/flow".to_owned(),
                message: "no field makes no flow".to_owned(),
                instead: "write the fields, or leave `flow` out for the 5-tuple".to_owned(),
            });
        }
        // A flow's packets meet, unless something else is said of it.
        let fields = self.affinity.as_deref().or(self.flow.as_deref()).map(field_set);
        let affinity = match fields {
            None if !self.symmetric => Some(worst.affinity),
            Some(fields) if fields.is_empty() => Some(Affinity::None),
            fields => Affinity::of_fields(fields.unwrap_or(TUPLE), self.symmetric),
        };
        if affinity.is_none() {
            problems.push(Problem {
                pointer: "/symmetric".to_owned(),
                message: "the fields of one direction are not those of the other".to_owned(),
                instead:
                    "write both addresses or none and both ports or none, or leave `symmetric` out"
                        .to_owned(),
            });
        }
        let affinity = affinity.unwrap_or(worst.affinity);
        let mut cost_cycles = worst.cost_cycles;
        if let Some(rate) = &self.rate {
            match rate.cycles() {
                Ok(cycles) => cost_cycles = cycles,
                Err((key, message, instead)) => {
                    let pointer = format!("/rate{key}");
                    problems.push(Problem { pointer, message, instead });
                }
            }
        }
        NfInfo {
            alone_by: Vec::new(),
            name: self.nf.clone(),
            inputs,
            outputs,
            writes_packets: true,
            may_drop: true,
            domain: String::new(),
            resizes: true,
            creates: 0,
            holds: 0,
            tags,
            program: None,
            work: Work {
                affinity,
                cost_cycles,
                effect: Effect::External,
                scales: self.scaling.cores,
                ..worst
            },
        }
    }

    /// An output before an input of the same name.
    fn port(&self, name: &str) -> Option<PortPlace> {
        let at = |list: &[String]| list.iter().position(|port| port == name);
        let input = || at(&self.ports.inputs).map(PortPlace::Input);
        at(&self.ports.outputs).map(PortPlace::Output).or_else(input)
    }
}

/// Packets that agree in `fields`, in either direction of a flow if `symmetric`; `None` when there are no fields, or those of one
/// direction are not those of the other.
#[must_use]
pub fn affinity_of(fields: &[AffinityField], symmetric: bool) -> Option<Affinity> {
    Affinity::of_fields(field_set(fields), symmetric)
}

fn field_set(fields: &[AffinityField]) -> FieldSet {
    fields.iter().map(|field| field.of_packets()).collect::<Vec<_>>().into()
}

impl Rate {
    /// Processor cycles per packet: at one GHz there are 10^9 in a second.
    fn cycles(&self) -> Result<u32, (&'static str, String, String)> {
        let written = &self.per_core_ghz;
        let wrong = |key, message: String, instead: &str| (key, message, instead.to_owned());
        let pps = match Bandwidth::parse(written) {
            Some(Bandwidth::Pps(pps)) => pps,
            Some(Bandwidth::Bps(bps)) => {
                let bits = self.packet_bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
                    let message = "a rate in bits says nothing without the length of packets";
                    wrong("", message.to_owned(), "add `packet_bytes`, their mean length")
                })?;
                bps.checked_div(u64::from(bits).saturating_mul(8)).unwrap_or(0)
            }
            None => {
                let message = format!("`{written}` is not a rate");
                return Err(wrong("/per_core_ghz", message, "write as in `2 Mpps` or `1 Gbps`"));
            }
        };
        let cycles = 1_000_000_000_u64.checked_div(pps).ok_or_else(|| {
            wrong("/per_core_ghz", "no packets at all".to_owned(), "write a rate above zero")
        })?;
        Ok(u32::try_from(cycles.max(1)).unwrap_or(u32::MAX))
    }
}
