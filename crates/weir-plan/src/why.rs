//! What can be wrong with a policy, and what to write instead.

use thiserror::Error;
use weir_logic::{Reason, Witness};

use crate::auto_tags::MAX_ASKING;
use crate::catalog::TagKind;
use crate::check::MAX_PORTS;
use crate::config::MAX_CONFIG_DEPTH;
use crate::error::MAX_ERRORS;
use crate::parse::{MAX_DECLARATIONS, MAX_EDGES, MAX_NAME, MAX_TEXT};
use crate::remedy::NoClass;
use crate::span::Line;
use crate::tags::TagsError;
use crate::texts::{LoadError, MAX_FILES, MAX_INCLUDE_DEPTH, MAX_TEXTS};

/// What is wrong. Lines count from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each field's use is in the message beside it")]
pub enum Why {
    // What the text is.
    #[error("the policy is longer than {MAX_TEXT} bytes")]
    TooLong,
    #[error("more than {MAX_ERRORS} errors: the rest is not shown")]
    TooManyErrors,
    #[error("more than {MAX_EDGES} edges")]
    TooManyEdges,
    #[error("more than {MAX_DECLARATIONS} statements outside pipelets, or µNFs in VNFs")]
    TooManyDeclarations,
    #[error("more than {MAX_ASKING} edges ask for automatic tags")]
    TooManyTags,
    #[error("more than {MAX_PORTS} port numbers")]
    TooManyPorts,
    #[error("the policy has no edge, so no packet goes anywhere")]
    NoEdges,

    // How it is written.
    #[error("expected {wanted}, found {found}")]
    Expected { wanted: &'static str, found: String, instead: &'static str },
    #[error("expected `;` here")]
    NoSemicolon { instead: &'static str },
    #[error("`{0}` is never closed")]
    NotClosed(&'static str, &'static str),
    #[error("this string is never closed")]
    OpenText,
    #[error("`...` stands for something left out")]
    Ellipsis,
    #[error("an edge stands outside a pipelet")]
    EdgeOutside,
    #[error("`{written}` is not a statement")]
    Misspelt { written: String, form: &'static str },
    #[error("a name of {len} bytes")]
    NameTooLong { len: usize },
    #[error("`{0}` is not a bandwidth")]
    Bandwidth(String),
    #[error("an `include` stands in a pipelet")]
    IncludeInside,
    #[error("the file's name is empty")]
    NoFileName,

    // Files that are included.
    #[error("{0}")]
    Include(LoadError),
    #[error("the file includes itself: {path}")]
    IncludeCycle { path: String },
    #[error("more than {MAX_INCLUDE_DEPTH} files include each the next")]
    IncludeDepth,
    #[error("with this file the policy has more than {MAX_TEXTS} bytes")]
    IncludeSize,
    #[error("more than {MAX_FILES} files are included")]
    IncludeCount,

    // Configurations.
    #[error("the key `{0}` occurs twice")]
    SameKey(String),
    #[error("`{0}` is not a number that a configuration can hold")]
    Number(String),
    #[error("`{0}` is not an escape that strings know")]
    Escape(String),
    #[error("the configuration nests too deeply")]
    ConfigTooDeep,
    #[error("`{name}` ({type_name}) does not take this configuration: {why}")]
    Config { name: String, type_name: String, why: String, shown_with: String },
    #[error("`{name}` (a VNF by the template {template}): {why}")]
    Parameters { name: String, template: String, why: String },

    // Documents: service requests, templates, descriptions.
    /// What is wrong with a service request as with the policy that it is; its cure is said in its own words.
    #[error("{why}")]
    InRequest { why: Box<Why>, instead: String },
    #[error("{message}")]
    Document { message: String, instead: String },

    // Declarations.
    #[error("`{0}` is a word of the language and cannot be a name")]
    Reserved(String),
    #[error("`{0}` is a word of the filter language, so a filter could not use it as a name")]
    FilterWord(String),
    #[error("`{name}` is declared in line {line} already")]
    Duplicate { name: String, line: Line },
    #[error("no NF type is called `{name}`")]
    UnknownType { name: String, nearest: Option<String>, types: Vec<String> },
    #[error("`{value}` is not an IP address or prefix")]
    Address { value: String },
    #[error("`{value}` has bits set behind its prefix")]
    HostBits { value: String, network: String },
    #[error("`{value}` has a prefix longer than its address")]
    PrefixLength { value: String, max: u8 },
    #[error("the first port number, {first}, is above the last, {last}")]
    PortRange { first: u16, last: u16 },
    #[error("port {number} belongs to `{owner}` already, declared in line {line}")]
    PortTaken { number: u16, owner: String, line: Line },

    // Edges.
    #[error("`{name}` is not declared")]
    UnknownNode { name: String, nearest: Option<String>, is_type: bool },
    #[error("`{name}` is an address: packets cannot go there")]
    AddressAsNode { name: String },
    #[error("nothing leaves `{name}`: it has no outputs")]
    NoOutputs { name: String },
    #[error("{message}")]
    Filter { message: String, instead: String },
    #[error("`{scope}` has no output called `{name}`")]
    UnknownOutput { scope: String, name: String, nearest: Option<String>, outputs: Vec<String> },
    #[error("`{scope}.{name}` is about `{scope}`, but these packets come from `{from}`")]
    OtherScope { scope: String, name: String, from: String, outputs: Vec<String> },
    #[error("`{output}` is an output, which has no value")]
    OutputTest { output: String },
    #[error("`{scope}` sets no tag called `{name}`")]
    UnknownTag { scope: String, name: String, nearest: Option<String>, tags: Vec<String> },
    #[error("`{tag}` is {}, and is not tested like that", what_is(*kind))]
    TagTest { tag: String, kind: TagKind },
    #[error("{0}")]
    Tags(TagsError),
    #[error("`{name}` has no input called `{input}`")]
    UnknownInput { name: String, input: String, nearest: Option<String>, inputs: Vec<String> },
    #[error(
        "`{name}` has an output called `{tag}`, so the edge cannot give packets a tag of that name"
    )]
    TagIsOutput { name: String, tag: String },
    #[error(
        "`{node}.{name}` is what an edge to `{node}` says, but no packet from `{from}` came through `{node}`"
    )]
    TagElsewhere { node: String, name: String, from: String },
    #[error("`{name}` has several inputs, and the edge does not say which it leads to")]
    WhichInput { name: String, inputs: Vec<String> },
    #[error("`{name}` has no named inputs")]
    NoInputs { name: String },
    #[error("the same edge stands in line {line} already")]
    SameEdge { line: Line },

    // Exactly one way for each packet.
    #[error("this edge and the one in line {line} both take a packet such as {}", example.headline())]
    Overlap { line: Line, example: Box<Witness>, class: Option<NoClass>, port: Option<u16> },
    #[error(
        "it is not proved that this edge and the one in line {line} never take the same packet: {reason}"
    )]
    PerhapsOverlap { line: Line, reason: Reason },
    #[error("no edge takes a packet from `{name}`{} such as {}", way(by), example.headline())]
    Hole { name: String, by: String, example: Box<Witness>, added: bool, rest: Option<String> },
    #[error("it is not proved that an edge takes each packet from `{name}`{}: {reason}", way(by))]
    PerhapsHole { name: String, by: String, reason: Reason, rest: Option<String> },
    #[error("no edge takes what leaves `{name}` by `{output}`")]
    OutputOpen { name: String, output: String },
    #[error("no edge leaves `{name}`")]
    NoWayOut { name: String },
}

fn what_is(kind: TagKind) -> &'static str {
    match kind {
        TagKind::Flag => "a flag",
        TagKind::Number => "a number",
        TagKind::Text => "a text",
    }
}

/// By which output, if that must be said.
fn way(by: &str) -> String {
    if by.is_empty() { String::new() } else { format!(" by `{by}`") }
}

impl Why {
    /// The bytes of an example, in hexadecimal, one line each 16; empty without one.
    #[must_use]
    pub fn dump(&self) -> String {
        match self {
            Why::Overlap { example, .. } | Why::Hole { example, .. } => example.hex_dump(),
            Why::InRequest { why, .. } => why.dump(),
            _ => String::new(),
        }
    }

    /// What to do about it, as a clause like "write `;`".
    #[must_use]
    pub fn instead(&self) -> String {
        match self {
            Why::TooLong => "divide it into files that it includes".to_owned(),
            Why::Include(LoadError::TooLong { .. }) => "divide it into several".to_owned(),
            Why::TooManyErrors => "correct these first".to_owned(),
            Why::TooManyEdges
            | Why::TooManyDeclarations
            | Why::TooManyPorts
            | Why::TooManyTags => {
                "split the policy".to_owned()
            }
            Why::NoEdges => {
                "write `pipelet { lan -> wan; }`, with `lan` and `wan` declared as ports".to_owned()
            }
            Why::Expected { instead, .. } | Why::NoSemicolon { instead } => {
                format!("write {instead}")
            }
            Why::NotClosed(_, close) => format!("write `{close}` where it ends"),
            Why::OpenText => "write its closing quote in the same line".to_owned(),
            Why::Ellipsis => "write it out".to_owned(),
            Why::Misspelt { form, .. } => format!("write {form}"),
            Why::EdgeOutside => "write `pipelet { ... }` around it".to_owned(),
            Why::NameTooLong { .. } => format!("write at most {MAX_NAME} letters, digits and `_`"),
            Why::IncludeInside => "write it in front of the pipelet".to_owned(),
            Why::NoFileName => "write as in `include \"sub/ports.weir\";`".to_owned(),
            Why::Include(LoadError::NoFiles) => "write the included text here".to_owned(),
            Why::Include(LoadError::Unreadable { .. }) => {
                "correct the file or its permissions".to_owned()
            }
            Why::Include(_) => {
                "write its name relative to the file that this stands in, or from `/` on".to_owned()
            }
            Why::IncludeCycle { .. } => "leave this line out".to_owned(),
            Why::IncludeDepth | Why::IncludeCount => "write fewer, larger files".to_owned(),
            Why::IncludeSize => "split the policy".to_owned(),
            Why::Bandwidth(_) => "write as in `(10 Gbps)`, `(1.5 Mbps)` or `(5 Mpps)`".to_owned(),
            Why::SameKey(_) => "keep one of them".to_owned(),
            Why::Number(_) => {
                "write as in `80`, `-1`, `0.5`, `1e6` or `0x1f`, within 64 bits".to_owned()
            }
            Why::Escape(_) => "write `\\\\` for a backslash".to_owned(),
            Why::ConfigTooDeep => format!("write at most {MAX_CONFIG_DEPTH} levels"),
            Why::Config { type_name, shown_with, .. } => {
                format!("`weir nf show {type_name}{shown_with}` shows what it takes")
            }
            Why::Parameters { template, .. } => {
                format!("`weir nf show {template}` shows its parameters")
            }
            Why::Document { instead, .. } | Why::InRequest { instead, .. } => instead.clone(),
            Why::Reserved(word) | Why::FilterWord(word) => {
                format!("write another name, as in `my_{}`", word.to_lowercase())
            }
            Why::Duplicate { .. } => "write another name".to_owned(),
            Why::UnknownType { nearest, types, .. } => {
                suggestion(nearest.as_deref(), types, "the types are")
            }
            Why::Address { .. } => {
                "write as in `10.0.0.0/8`, `192.0.2.1` or `2001:db8::/32`".to_owned()
            }
            Why::HostBits { network, .. } => format!("write `{network}`"),
            Why::PrefixLength { max, .. } => format!("write at most `/{max}`"),
            Why::PortRange { first, last } => format!("write `Port<{last}-{first}>`"),
            Why::PortTaken { .. } => "write a number that is free".to_owned(),
            Why::UnknownNode { nearest: Some(nearest), .. } => format!("write `{nearest}`"),
            Why::UnknownNode { name, is_type: true, .. } => {
                format!(
                    "it is an NF type: declare an instance, as in `{name} my_{};`, and write its name",
                    name.to_lowercase()
                )
            }
            Why::UnknownNode { name, .. } => {
                format!("declare it, as in `Type {name};` or `Port<0> {name};`")
            }
            Why::AddressAsNode { name } => {
                format!("write it in a filter, as in `[dst net {name}]`")
            }
            Why::NoOutputs { .. } => "leave the edge out".to_owned(),
            Why::Filter { instead, .. } => format!("write {instead}"),
            Why::UnknownOutput { nearest, outputs, .. } => {
                suggestion(nearest.as_deref(), outputs, "its outputs are")
            }
            Why::OtherScope { outputs, .. } if outputs.is_empty() => {
                "write a filter on packets, as in `[tcp port 80]`".to_owned()
            }
            Why::OtherScope { from, outputs, .. } => {
                let outputs: Vec<String> =
                    outputs.iter().map(|output| format!("{from}.{output}")).collect();
                format!("write an output of `{from}`: {}", list(&outputs))
            }
            Why::OutputTest { output } => format!("write `[{output}]`"),
            Why::UnknownTag { nearest, tags, .. } => {
                suggestion(nearest.as_deref(), tags, "its tags are")
            }
            Why::TagTest { tag, kind: TagKind::Flag } => format!("write `{tag}` or `!{tag}`"),
            Why::TagTest { tag, kind: TagKind::Number } => {
                format!("compare it, as in `{tag} == 3` or `{tag} >= 3`")
            }
            Why::TagTest { tag, kind: TagKind::Text } => {
                format!("write a pattern, as in `{tag} ~ \"^/admin\"`")
            }
            Why::Tags(_) => "test fewer tags".to_owned(),
            Why::UnknownInput { nearest, inputs, .. } => {
                suggestion(nearest.as_deref(), inputs, "its inputs are")
            }
            Why::TagIsOutput { .. } => "write another name".to_owned(),
            Why::TagElsewhere { node, .. } => {
                format!("ask for it on edges from `{node}` or from NFs behind it")
            }
            Why::WhichInput { name, inputs } => {
                let first = inputs.first().map_or("", String::as_str);
                format!("write as in `-> [{first}] {name}`; its inputs are {}", list(inputs))
            }
            Why::NoInputs { name } => format!("write `-> {name}`"),
            Why::SameEdge { .. } => "leave one of them out".to_owned(),
            Why::Overlap { class: Some(class), .. } => {
                format!("{class}; let one filter exclude the other's packets, as in `[!(tcp port 80)]`, or write `first match;` if the order of the text shall decide")
            }
            Why::Overlap { port: Some(port), .. } => {
                format!("let one filter exclude the other's packets: by the port that they came in by, as in `[ingress == {port}]`, or as in `[!(tcp port 80)]`; or write `first match;` if the order of the text shall decide")
            }
            Why::Overlap { .. } | Why::PerhapsOverlap { .. } => {
                "let one filter exclude the other's packets, as in `[!(tcp port 80)]`, or write \
                 `first match;` if the order of the text shall decide"
                    .to_owned()
            }
            Why::Hole { added: true, .. } => {
                "its edges overlap but for the traffic classes of their pipelets, and with these packets \
                 have no way; write where they go in the pipelet that they belong to, or `default drop;`"
                    .to_owned()
            }
            Why::Hole { name, rest: Some(rest), .. }
            | Why::PerhapsHole { name, rest: Some(rest), .. } => {
                format!("write where they go, as in `{name} [{rest}] -> Drop;`, or `default drop;`")
            }
            Why::Hole { name, .. } | Why::PerhapsHole { name, .. } => {
                format!("write an edge from `{name}` for what its filters do not match, or `default drop;`")
            }
            Why::OutputOpen { name, output } => {
                format!(
                    "write where to, as in `{name} [{name}.{output}] -> wan;`, or `default drop;`"
                )
            }
            Why::NoWayOut { name } => {
                format!("write where to, as in `{name} -> wan;` or `{name} -> Drop;`")
            }
        }
    }
}

/// The nearest name if there is one, else all.
fn suggestion(nearest: Option<&str>, names: &[String], introduction: &str) -> String {
    match nearest {
        Some(name) => format!("write `{name}`"),
        None => format!("{introduction} {}", list(names)),
    }
}

/// Names in quotes, at most twenty of them.
fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut shown: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
    if names.len() > 20 {
        shown.push("...".to_owned());
    }
    shown.join(", ")
}
