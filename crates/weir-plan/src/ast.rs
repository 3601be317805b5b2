//! A policy as it is written.

use std::fmt::{self, Display, Formatter, Write};

use serde_json::{Value, json};

use crate::bandwidth::Bandwidth;
use crate::config::Config;
use crate::span::{Name, Span, Spanned};

/// A whole policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its statements in their order.
    pub items: Vec<Item>,
}

/// A statement outside pipelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// `Port<0-7> int;`
    Port(PortDecl),
    /// `Address net 10.0.0.0/8;`
    Address(AddressDecl),
    /// `MacSwap x;`
    Instance(InstanceDecl),
    /// `include "file";`
    Include(Include),
    /// `pipelet { ... }`
    Pipelet(Pipelet),
    /// `default drop;`
    DefaultDrop,
    /// `first match;`
    FirstMatch,
}

/// `Port<first-last> name;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDecl {
    /// Its name.
    pub name: Name,
    /// The lowest port number.
    pub first: u16,
    /// The highest port number.
    pub last: u16,
    /// Where the numbers stand.
    pub numbers: Spanned<()>,
}

/// `Address name value;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressDecl {
    /// Its name.
    pub name: Name,
    /// An address or prefix, as written.
    pub value: Spanned<String>,
}

/// `Type name { configuration };`
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceDecl {
    /// The NF type.
    pub type_name: Name,
    /// The instance's name.
    pub name: Name,
    /// Its configuration.
    pub config: Option<Spanned<Config>>,
}

impl Eq for InstanceDecl {}

/// `include "file";`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// The file, relative to the one that this stands in.
    pub path: Spanned<String>,
}

/// `pipelet name { ... }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipelet {
    /// Its name.
    pub name: Option<Name>,
    /// Its statements in their order.
    pub statements: Vec<Statement>,
}

/// A statement inside a pipelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `a -> b -> c;`
    Chain(Chain),
    /// `default drop;`
    DefaultDrop,
    /// `first match;`
    FirstMatch,
}

/// One edge, or several that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Where it begins.
    pub from: Name,
    /// Its edges.
    pub hops: Vec<Hop>,
}

/// `[filter_out] -> (bandwidth) [filter_in] to`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which of the packets that leave the source take this edge.
    pub filter_out: Option<Spanned<String>>,
    /// The expected traffic.
    pub bandwidth: Option<Bandwidth>,
    /// What the destination wants to know of these packets: the name of one of its inputs.
    pub filter_in: Option<Spanned<String>>,
    /// Where the edge leads.
    pub to: Name,
    /// The hop from its first filter or arrow to its destination.
    pub span: Spanned<()>,
}

impl Policy {
    /// Its statements as JSON, in their order: for programs that read policies. Of each `statement` says
    /// what it is; what a statement leaves out is null.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "statements": self.items.iter().map(Item::to_json).collect::<Vec<_>>() })
    }
}

impl Item {
    fn to_json(&self) -> Value {
        match self {
            Item::Port(p) => json!({
                "statement": "port", "name": p.name.value, "first": p.first, "last": p.last,
            }),
            Item::Address(a) => json!({
                "statement": "address", "name": a.name.value, "value": a.value.value,
            }),
            Item::Instance(i) => json!({
                "statement": "instance", "name": i.name.value, "type": i.type_name.value,
                "config": i.config.as_ref().map(|config| config.value.to_json()),
            }),
            Item::Include(i) => json!({ "statement": "include", "file": i.path.value }),
            Item::Pipelet(p) => json!({
                "statement": "pipelet", "name": p.name.as_ref().map(|name| &name.value),
                "statements": p.statements.iter().map(Statement::to_json).collect::<Vec<_>>(),
            }),
            Item::DefaultDrop => json!({ "statement": "default_drop" }),
            Item::FirstMatch => json!({ "statement": "first_match" }),
        }
    }
}

impl Statement {
    fn to_json(&self) -> Value {
        match self {
            Statement::Chain(chain) => json!({
                "statement": "edges", "from": chain.from.value,
                "edges": chain.hops.iter().map(Hop::to_json).collect::<Vec<_>>(),
            }),
            Statement::DefaultDrop => json!({ "statement": "default_drop" }),
            Statement::FirstMatch => json!({ "statement": "first_match" }),
        }
    }
}

impl Hop {
    fn to_json(&self) -> Value {
        json!({
            "filter_out": self.filter_out.as_ref().map(|filter| &filter.value),
            "bandwidth": self.bandwidth,
            "filter_in": self.filter_in.as_ref().map(|filter| &filter.value),
            "to": self.to.value,
        })
    }

    /// Where the hop stands.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span.span
    }
}

impl Display for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.items.iter().try_for_each(|item| writeln!(f, "{item}"))
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Port(p) if p.first == p.last => write!(f, "Port<{}> {};", p.first, p.name.value),
            Item::Port(p) => write!(f, "Port<{}-{}> {};", p.first, p.last, p.name.value),
            Item::Address(a) => write!(f, "Address {} {};", a.name.value, a.value.value),
            Item::Instance(i) => {
                write!(f, "{} {}", i.type_name.value, i.name.value)?;
                if let Some(config) = &i.config {
                    write!(f, " {}", config.value)?;
                }
                f.write_char(';')
            }
            Item::Include(i) => {
                write!(f, "include {};", Config::String(i.path.value.clone()))
            }
            Item::Pipelet(p) => p.fmt(f),
            Item::DefaultDrop => f.write_str("default drop;"),
            Item::FirstMatch => f.write_str("first match;"),
        }
    }
}

impl Display for Pipelet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("pipelet ")?;
        if let Some(name) = &self.name {
            write!(f, "{} ", name.value)?;
        }
        f.write_str("{\n")?;
        for statement in &self.statements {
            match statement {
                Statement::Chain(chain) => writeln!(f, "  {chain};")?,
                Statement::DefaultDrop => f.write_str("  default drop;\n")?,
                Statement::FirstMatch => f.write_str("  first match;\n")?,
            }
        }
        f.write_char('}')
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.from.value)?;
        self.hops.iter().try_for_each(|hop| hop.fmt(f))
    }
}

impl Display for Hop {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(filter) = &self.filter_out {
            write!(f, " [{}]", filter.value)?;
        }
        f.write_str(" ->")?;
        if let Some(bandwidth) = &self.bandwidth {
            write!(f, " ({bandwidth})")?;
        }
        if let Some(filter) = &self.filter_in {
            write!(f, " [{}]", filter.value)?;
        }
        write!(f, " {}", self.to.value)
    }
}
