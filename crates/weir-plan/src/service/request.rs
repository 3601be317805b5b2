//! Service requests: graphs of VNFs (µNF paper §IV-D), read as the policies that they are.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ast::{Chain, Hop, InstanceDecl, Item, Pipelet, Policy, PortDecl, Statement};
use crate::bandwidth::Bandwidth;
use crate::catalog::Catalog;
use crate::check::{Checked, check_parsed};
use crate::error::{Errors, PolicyError};
use crate::parse::{MAX_EDGES, Parsed};
use crate::service::objective::{Objective, ObjectiveDocument};
use crate::service::tree::{Syntax, read};
use crate::service::typed::{Document, typed, value};
use crate::service::{names, words};
use crate::span::{Lines, Name, Span, Spanned};
use crate::why::Why;

/// A service request as it is written: VNFs, and the order in which traffic goes through them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Service request")]
pub struct RequestDocument {
    /// Its name.
    pub service: String,
    /// What it is for, in one sentence.
    #[serde(default)]
    pub about: String,
    /// Where packets come from and go to; `weir run --bind` binds devices to their numbers.
    pub ports: Vec<RequestPort>,
    /// The VNFs.
    #[serde(default)]
    pub vnfs: Vec<RequestVnf>,
    /// Where packets go from port to VNF to port. Of the links that leave the same port or VNF each
    /// packet must match exactly one, by label and filter.
    pub links: Vec<RequestLink>,
    /// True: what no link takes is dropped by intention, not for want of a link.
    #[serde(default)]
    pub default_drop: bool,
    /// True: of several links that match a packet it takes the first.
    #[serde(default)]
    pub first_match: bool,
    /// What the chain is to achieve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<ObjectiveDocument>,
}

/// A port of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPort {
    /// Its name in links.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// The last number, for an array of ports that begins with `number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u16>,
}

/// A VNF of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestVnf {
    /// Its name.
    pub name: String,
    /// The template, or an NF type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The template's parameters, or the NF's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
}

/// A link of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestLink {
    /// The port or VNF that packets come from.
    pub from: String,
    /// The output of that VNF; without it packets of all its outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Which packets, in the filter language of policies (`tcp port 80`); without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The port or VNF that they go to, or `Drop`.
    pub to: String,
    /// The input of that VNF, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The expected traffic, as in `1 Gbps` or `2 Mpps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
}

/// A request that may run.
#[derive(Clone, Debug)]
pub struct Request {
    /// The policy that says the same.
    pub policy: Policy,
    /// Its graphs and warnings.
    pub checked: Checked,
    /// What it is to achieve.
    pub objective: Option<Objective>,
}

impl Request {
    /// Reads and checks a service request.
    ///
    /// # Errors
    /// All errors found, in the order of the text, at most [`crate::MAX_ERRORS`] and a word on the rest.
    pub fn read(
        text: &str,
        syntax: Syntax,
        catalog: &dyn Catalog,
    ) -> Result<Self, Vec<PolicyError>> {
        let document: Document<RequestDocument> = typed(read(text, syntax)?, "request")?;
        let mut reader = Reader {
            text,
            document: &document,
            errors: Errors::default(),
            lost: HashSet::new(),
            outputs: HashMap::new(),
        };
        let policy = reader.policy(catalog);
        let objective = document.value.objective.as_ref().and_then(|written| {
            let problem = |(pointer, message, instead): (&str, String, String)| {
                reader.error(&format!("/objective{pointer}"), message, instead);
            };
            written.resolve().map_err(problem).ok()
        });
        let Reader { errors, lost, .. } = reader;
        let parsed = Parsed { policy: policy.clone(), errors, lost, incomplete: false };
        let mut checked =
            check_parsed(parsed, &Lines::new(text), catalog).map_err(words::errors)?;
        words::warnings(&mut checked.warnings);
        Ok(Request { policy, checked, objective })
    }
}

/// Turns a request into a policy whose parts stand where the request's do.
struct Reader<'a> {
    text: &'a str,
    document: &'a Document<RequestDocument>,
    errors: Errors,
    /// Names of what is declared wrongly: that they are unknown is no second error.
    lost: HashSet<String>,
    /// The outputs of each VNF, where its type is known, and of each port. Those of one type are the same.
    outputs: HashMap<&'a str, Option<Rc<[String]>>>,
}

impl<'a> Reader<'a> {
    fn error(&mut self, pointer: &str, message: String, instead: String) {
        let span = self.document.value_at(pointer);
        self.errors.push(span, Why::Document { message, instead });
    }

    /// The inner part of a scalar, without its quotes.
    fn inner(&self, pointer: &str) -> Span {
        let span = self.document.value_at(pointer);
        let quoted = span.of(self.text).starts_with(['"', '\'']);
        Span::new(span.start.saturating_add(usize::from(quoted)), span.end)
    }

    fn name(&self, pointer: &str, name: &str) -> Name {
        Spanned::new(name.to_owned(), self.document.value_at(pointer))
    }

    /// A name that is declared here; `None` after an error.
    fn declared(&mut self, pointer: &str, name: &str) -> Option<Name> {
        if let Some((message, instead)) = names::wrong(name) {
            self.error(pointer, message, instead);
            self.lost.insert(name.to_owned());
            return None;
        }
        Some(self.name(pointer, name))
    }

    fn policy(&mut self, catalog: &dyn Catalog) -> Policy {
        let document = &self.document.value;
        if let Some((message, instead)) = names::wrong(&document.service) {
            self.error("/service", message, instead);
        }
        let mut items = Vec::new();
        for (i, port) in document.ports.iter().enumerate() {
            items.extend(self.port(&format!("/ports/{i}"), port));
            self.outputs.insert(&port.name, Some(Rc::default()));
        }
        let mut types: HashMap<&str, Option<Rc<[String]>>> = HashMap::new();
        for (i, vnf) in document.vnfs.iter().enumerate() {
            let at = format!("/vnfs/{i}");
            let outputs = types.entry(vnf.type_name.as_str()).or_insert_with(|| {
                let outputs = match catalog.template(&vnf.type_name) {
                    Some(template) => Some(template.info().outputs),
                    None => catalog.nf(&vnf.type_name).map(|info| info.outputs),
                };
                outputs.map(Rc::from)
            });
            self.outputs.insert(&vnf.name, outputs.clone());
            let config = format!("{at}/parameters");
            let config = value(&self.document.tree, &config)
                .map(|config| Spanned::new(config.value.clone(), config.span));
            if let Some(name) = self.declared(&format!("{at}/name"), &vnf.name) {
                let type_name = self.name(&format!("{at}/type"), &vnf.type_name);
                items.push(Item::Instance(InstanceDecl { type_name, name, config }));
            }
        }
        let mut statements = Vec::new();
        if document.links.len() > MAX_EDGES {
            let message = format!("more than {MAX_EDGES} links");
            self.error("/links", message, "split the request".to_owned());
        } else {
            for (i, link) in document.links.iter().enumerate() {
                statements.push(Statement::Chain(self.link(&format!("/links/{i}"), link)));
            }
        }
        let name = self.name("/service", &document.service);
        items.push(Item::Pipelet(Pipelet { name: Some(name), statements }));
        if document.default_drop {
            items.push(Item::DefaultDrop);
        }
        if document.first_match {
            items.push(Item::FirstMatch);
        }
        Policy { items }
    }

    fn port(&mut self, at: &str, port: &RequestPort) -> Option<Item> {
        let last = port.last.unwrap_or(port.number);
        let numbers = Spanned::new((), self.document.at(&format!("{at}/number")));
        if last < port.number {
            let message = format!("the last number, {last}, is below the first, {}", port.number);
            self.error(
                &format!("{at}/last"),
                message,
                "write the lower one as `number`".to_owned(),
            );
            self.lost.insert(port.name.clone());
            return None;
        }
        let name = self.declared(&format!("{at}/name"), &port.name)?;
        Some(Item::Port(PortDecl { name, first: port.number, last, numbers }))
    }

    fn link(&mut self, at: &str, link: &RequestLink) -> Chain {
        let filter_out = self.filter(at, link);
        let mut bandwidth = None;
        if let Some(written) = &link.bandwidth {
            bandwidth = Bandwidth::parse(written);
            if bandwidth.is_none() {
                let message = format!("`{written}` is not a bandwidth");
                let instead = "write as in `10 Gbps`, `1.5 Mbps` or `5 Mpps`".to_owned();
                self.error(&format!("{at}/bandwidth"), message, instead);
            }
        }
        let filter_in = link.input.as_ref().map(|input| self.name(&format!("{at}/input"), input));
        let from = self.name(&format!("{at}/from"), &link.from);
        let to = self.name(&format!("{at}/to"), &link.to);
        let span = Spanned::new((), self.document.value_at(at));
        Chain { from, hops: vec![Hop { filter_out, bandwidth, filter_in, to, span }] }
    }

    /// Label and filter as the filter that they are in a policy; after an error without the label.
    fn filter(&mut self, at: &str, link: &RequestLink) -> Option<Spanned<String>> {
        let mut label = link.label.as_ref();
        if let Some(written) = label {
            // That something is not declared, or its type unknown, is one error, and is said where it is looked up.
            let known = self.outputs.get(link.from.as_str()).cloned().flatten();
            label = label.filter(|label| known.as_ref().is_some_and(|k| k.contains(label)));
            if let (Some(known), None) = (known, label) {
                let message = format!("`{}` has no output called `{written}`", link.from);
                let near = crate::nearest::nearest(written, known.iter().map(String::as_str));
                let instead = match near {
                    Some(near) => format!("write `{near}`"),
                    None if known.is_empty() => "leave `label` out".to_owned(),
                    None => format!("write one of {}", names::list(&known)),
                };
                self.error(&format!("{at}/label"), message, instead);
            }
        }
        let label = label.map(|label| format!("{}.{label}", link.from));
        let span = self.inner(&format!("{at}/filter"));
        match (label, &link.filter) {
            (None, None) => None,
            (Some(label), None) => {
                Some(Spanned::new(label, self.document.value_at(&format!("{at}/label"))))
            }
            (None, Some(filter)) => Some(Spanned::new(filter.clone(), span)),
            // The parenthesis in front moves the filter by one, and its place back.
            (Some(label), Some(filter)) => {
                let span = Span::new(span.start.saturating_sub(1), span.end);
                Some(Spanned::new(format!("({filter}) && {label}"), span))
            }
        }
    }
}
