//! VNF templates: blueprints of VNFs as graphs of µNFs (µNF paper §IV-D).

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{Catalog, NfInfo};
use crate::error::{Errors, MAX_ERRORS, PolicyError};
use crate::nearest::nearest;
use crate::service::blueprint::{TemplateDocument, TemplateLink, reference};
use crate::service::names;
use crate::service::tree::{Syntax, read};
use crate::service::typed::{Document, typed};
use crate::topo;
use crate::why::Why;

/// Nodes, links, inputs, outputs and parameters that a template has at most, of each.
pub const MAX_PARTS: usize = 1024;

/// Where the packets of a µNF's output go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To a µNF of the same VNF.
    Node {
        /// Its place among the VNF's nodes.
        node: usize,
        /// The input that they come by.
        input: usize,
    },
    /// Out of the VNF, by this output.
    Out(usize),
    /// They are dropped on purpose.
    Drop,
    /// No link takes them: in no template that was read.
    Nowhere,
}

/// A template that can be used: every name in it is resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub(crate) document: TemplateDocument,
    /// The types of its nodes.
    pub(crate) types: Vec<NfInfo>,
    /// Node and input behind each input.
    pub(crate) entries: Vec<(usize, usize)>,
    /// Where each output of each node leads.
    pub(crate) ways: Vec<Vec<Way>>,
}

impl Template {
    /// Reads a template of µNFs that `catalog` knows.
    ///
    /// # Errors
    /// All errors found, in the order of the text.
    pub fn read(
        text: &str,
        syntax: Syntax,
        catalog: &dyn Catalog,
    ) -> Result<Self, Vec<PolicyError>> {
        let document = typed(read(text, syntax)?, "template")?;
        Resolver::new(&document, catalog).template()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.document.template
    }

    /// As it was written.
    #[must_use]
    pub fn document(&self) -> &TemplateDocument {
        &self.document
    }

    /// Most packets that its µNFs make for one that comes in: as if all of them stood in a row, and each were
    /// given what those before it have made.
    fn creates(&self) -> u8 {
        let grown = self
            .types
            .iter()
            .fold(1_u8, |all, info| all.saturating_mul(info.creates.saturating_add(1)));
        grown.saturating_sub(1)
    }

    /// The VNF as policies see it: an NF with these inputs and outputs.
    #[must_use]
    pub(crate) fn info(&self) -> NfInfo {
        let any = |flag: fn(&NfInfo) -> bool| self.types.iter().any(flag);
        NfInfo {
            alone_by: Vec::new(),
            name: self.document.template.clone(),
            inputs: self.document.inputs.iter().map(|input| input.name.clone()).collect(),
            outputs: self.document.outputs.iter().map(|output| output.name.clone()).collect(),
            writes_packets: any(|info| info.writes_packets),
            may_drop: any(|info| info.may_drop),
            domain: String::new(),
            resizes: any(|info| info.resizes),
            creates: self.creates(),
            holds: self.types.iter().fold(0, |sum, info| sum.saturating_add(info.holds)),
            tags: Vec::new(),
            program: None,
            work: crate::describe::Work::default(),
        }
    }
}

/// Resolves a template's names; collects what is wrong with them.
struct Resolver<'a> {
    document: &'a Document<TemplateDocument>,
    catalog: &'a dyn Catalog,
    errors: Errors,
    nodes: HashMap<&'a str, usize>,
    types: Vec<Option<NfInfo>>,
}

impl<'a> Resolver<'a> {
    fn new(document: &'a Document<TemplateDocument>, catalog: &'a dyn Catalog) -> Self {
        let errors = Errors::default();
        Self { document, catalog, errors, nodes: HashMap::new(), types: Vec::new() }
    }

    fn error(&mut self, pointer: &str, message: String, instead: String) {
        let span = self.document.value_at(pointer);
        self.errors.push(span, Why::Document { message, instead });
    }

    fn template(mut self) -> Result<Template, Vec<PolicyError>> {
        let document = &self.document.value;
        if self.too_large() {
            return Err(self.errors.into_list());
        }
        self.names();
        let catalog = self.catalog;
        for (i, node) in document.nodes.iter().enumerate() {
            let known = catalog.nf(&node.type_name);
            if known.is_none() {
                self.unknown(
                    &format!("/nodes/{i}/type"),
                    &format!("no NF type is called `{}`", node.type_name),
                    &node.type_name,
                    || catalog.types(),
                );
            }
            self.types.push(known);
            self.nodes.entry(node.name.as_str()).or_insert(i);
        }
        self.parameters();
        let entries = document.inputs.iter().enumerate().map(|(i, input)| {
            self.entry(&format!("/inputs/{i}"), &input.to, input.input.as_deref())
        });
        let entries: Vec<Option<(usize, usize)>> = entries.collect();
        let ways = self.ways();
        self.cycles(&ways);
        self.open_outputs(&ways);
        let types: Option<Vec<NfInfo>> = self.types.into_iter().collect();
        let entries: Option<Vec<(usize, usize)>> = entries.into_iter().collect();
        match (types, entries) {
            (Some(types), Some(entries)) if self.errors.is_empty() => {
                Ok(Template { document: document.clone(), types, entries, ways })
            }
            _ => Err(self.errors.into_list()),
        }
    }

    /// Before names are looked at, which costs more than in proportion to their number.
    fn too_large(&mut self) -> bool {
        let document = &self.document.value;
        let mut too_large = false;
        for (list, len) in [
            ("nodes", document.nodes.len()),
            ("links", document.links.len()),
            ("inputs", document.inputs.len()),
            ("outputs", document.outputs.len()),
            ("parameters", document.parameters.len()),
        ] {
            if len > MAX_PARTS {
                let message = format!("{len} {list} in one template");
                let instead = format!("write at most {MAX_PARTS}, or make several templates of it");
                self.error(&format!("/{list}"), message, instead);
                too_large = true;
            }
        }
        too_large
    }

    /// A name that is none of `known`, which is asked for only if the error is to be said.
    fn unknown(
        &mut self,
        pointer: &str,
        message: &str,
        name: &str,
        known: impl FnOnce() -> Vec<String>,
    ) {
        if self.errors.full() {
            return;
        }
        let known = known();
        let near = nearest(name, known.iter().map(String::as_str));
        let instead = match near {
            Some(near) => format!("write `{near}`"),
            None if known.is_empty() => "there is none: leave it out".to_owned(),
            None => format!("write one of {}", names::list(&known)),
        };
        self.error(pointer, message.to_owned(), instead);
    }

    /// Each name is one, and is there once.
    fn names(&mut self) {
        let document = &self.document.value;
        let mut all: Vec<(String, &str)> = vec![("/template".to_owned(), &document.template)];
        let mut apart: Vec<(String, &str)> = Vec::new();
        for (i, node) in document.nodes.iter().enumerate() {
            apart.push((format!("/nodes/{i}/name"), &node.name));
        }
        for (i, output) in document.outputs.iter().enumerate() {
            apart.push((format!("/outputs/{i}/name"), &output.name));
        }
        let inputs = document.inputs.iter().enumerate();
        let inputs: Vec<_> =
            inputs.map(|(i, input)| (format!("/inputs/{i}/name"), input.name.as_str())).collect();
        let parameters = document.parameters.iter().enumerate();
        let parameters: Vec<_> =
            parameters.map(|(i, p)| (format!("/parameters/{i}/name"), p.name.as_str())).collect();
        for group in [&apart, &inputs, &parameters] {
            let mut seen = HashSet::new();
            for (pointer, name) in group {
                if !seen.insert(*name) {
                    let message = format!("the name `{name}` is there twice");
                    self.error(pointer, message, "write another name".to_owned());
                }
            }
        }
        all.extend(apart.into_iter().chain(inputs));
        let wrong = all.iter().filter_map(|(at, name)| Some((at, names::wrong(name)?)));
        // Parameters are keys of configurations, which may have any word.
        let no_word = parameters.iter().filter_map(|(at, name)| Some((at, names::no_word(name)?)));
        for (pointer, (message, instead)) in wrong.chain(no_word) {
            self.error(pointer, message, instead);
        }
        for (list, missing) in
            [("nodes", document.nodes.is_empty()), ("inputs", document.inputs.is_empty())]
        {
            if missing {
                let message = format!("the template has no {list}");
                let instead = format!("write at least one of its {list}");
                self.error(&format!("/{list}"), message, instead);
            }
        }
    }

    /// Defaults are of their types, and configurations refer to parameters that are there.
    fn parameters(&mut self) {
        let document = &self.document.value;
        for (i, parameter) in document.parameters.iter().enumerate() {
            if let Some(default) = &parameter.default
                && !parameter.kind.takes(default)
            {
                let message = format!("the default is not {}", parameter.kind.what());
                let instead = "write a default of the parameter's type".to_owned();
                self.error(&format!("/parameters/{i}/default"), message, instead);
            }
        }
        let known: HashSet<&str> = document.parameters.iter().map(|p| p.name.as_str()).collect();
        let all = || document.parameters.iter().map(|p| p.name.clone()).collect();
        for (i, node) in document.nodes.iter().enumerate() {
            if self.errors.full() {
                break;
            }
            let mut wrong = Vec::new();
            if let Some(config) = &node.config {
                let mut at = format!("/nodes/{i}/config");
                unknown_references(config, &mut at, &known, &mut wrong);
            }
            for (pointer, name) in wrong {
                let message = format!("`${name}` is not a parameter of this template");
                self.unknown(&pointer, &message, &name, all);
            }
        }
    }

    /// The place of a µNF and its input.
    fn entry(&mut self, at: &str, node: &str, input: Option<&str>) -> Option<(usize, usize)> {
        let Some(place) = self.nodes.get(node).copied() else {
            let message = format!("no node is called `{node}`");
            let document = &self.document.value;
            let all = || document.nodes.iter().map(|node| node.name.clone()).collect();
            self.unknown(&format!("{at}/to"), &message, node, all);
            return None;
        };
        let inputs = self.types.get(place)?.as_ref()?.inputs.clone();
        let Some(input) = input else {
            if inputs.len() > 1 {
                let message = format!("`{node}` has several inputs");
                let instead = format!("add `input`, one of {}", names::list(&inputs));
                self.error(at, message, instead);
                return None;
            }
            return Some((place, 0));
        };
        let found = inputs.iter().position(|name| name == input);
        if found.is_none() {
            let message = format!("`{node}` has no input called `{input}`");
            self.unknown(&format!("{at}/input"), &message, input, || inputs.clone());
        }
        found.map(|found| (place, found))
    }

    fn ways(&mut self) -> Vec<Vec<Way>> {
        let document = &self.document.value;
        let outputs = |info: &Option<NfInfo>| info.as_ref().map_or(0, |info| info.outputs.len());
        let mut ways: Vec<Vec<Way>> =
            self.types.iter().map(|info| vec![Way::Nowhere; outputs(info)]).collect();
        // Links with a label first: one without takes what they leave.
        let (labelled, plain): (Vec<_>, Vec<_>) =
            document.links.iter().enumerate().partition(|(_, link)| link.label.is_some());
        for (i, link) in labelled.into_iter().chain(plain) {
            if self.errors.full() {
                break;
            }
            let at = format!("/links/{i}");
            let Some(from) = self.nodes.get(link.from.as_str()).copied() else {
                let message = format!("no node is called `{}`", link.from);
                self.unknown(&format!("{at}/from"), &message, &link.from, || {
                    document.nodes.iter().map(|node| node.name.clone()).collect()
                });
                continue;
            };
            let way = self.way(&at, link);
            let Some(info) = self.types.get(from).cloned().flatten() else { continue };
            let wanted = match &link.label {
                None => None,
                Some(label) => match info.outputs.iter().position(|output| output == label) {
                    Some(output) => Some(output),
                    None => {
                        let message = format!("`{}` has no output called `{label}`", link.from);
                        let all = || info.outputs.clone();
                        self.unknown(&format!("{at}/label"), &message, label, all);
                        continue;
                    }
                },
            };
            let (Some(way), Some(ways)) = (way, ways.get_mut(from)) else { continue };
            let mut takes = false;
            for (output, slot) in ways.iter_mut().enumerate() {
                if wanted.is_none_or(|wanted| wanted == output) && *slot == Way::Nowhere {
                    *slot = way;
                    takes = true;
                }
            }
            if !takes {
                let message = format!("other links take all of these packets of `{}`", link.from);
                self.error(&at, message, "leave one of the links out".to_owned());
            }
        }
        ways
    }

    fn way(&mut self, at: &str, link: &TemplateLink) -> Option<Way> {
        let document = &self.document.value;
        let out = document.outputs.iter().position(|output| output.name == link.to);
        if link.to == "Drop" || out.is_some() {
            if link.input.is_some() {
                let message = format!("`{}` has no inputs", link.to);
                self.error(&format!("{at}/input"), message, "leave `input` out".to_owned());
            }
            return Some(out.map_or(Way::Drop, Way::Out));
        }
        if !self.nodes.contains_key(link.to.as_str()) {
            let known = || {
                let nodes = document.nodes.iter().map(|node| node.name.clone());
                let outputs = document.outputs.iter().map(|output| output.name.clone());
                nodes.chain(outputs).chain(["Drop".to_owned()]).collect()
            };
            let message = format!("no node or output is called `{}`", link.to);
            self.unknown(&format!("{at}/to"), &message, &link.to, known);
            return None;
        }
        let (node, input) = self.entry(at, &link.to, link.input.as_deref())?;
        Some(Way::Node { node, input })
    }

    /// Each output of each node leads somewhere. What is wrong with links comes first: it may be why.
    fn open_outputs(&mut self, ways: &[Vec<Way>]) {
        if !self.errors.is_empty() {
            return;
        }
        let document = &self.document.value;
        for (k, (node, ways)) in document.nodes.iter().zip(ways).enumerate() {
            let info = self.types.get(k).cloned().flatten();
            let outputs = info.map_or_else(Vec::new, |info| info.outputs);
            for (output, _) in outputs.iter().zip(ways).filter(|(_, way)| **way == Way::Nowhere) {
                let name = &node.name;
                let message = format!("no link takes what leaves `{name}` by `{output}`");
                let instead = format!(
                    "write a link for it, as in `{{ from: {name}, label: {output}, to: Drop }}`"
                );
                self.error(&format!("/nodes/{k}/name"), message, instead);
            }
        }
    }

    fn cycles(&mut self, ways: &[Vec<Way>]) {
        let next = |ways: &Vec<Way>| {
            let ways = ways.iter().enumerate();
            let nodes = ways.filter_map(|(k, way)| match way {
                Way::Node { node, .. } => Some((*node, k)),
                _ => None,
            });
            nodes.collect()
        };
        let next: Vec<Vec<(usize, usize)>> = ways.iter().map(next).collect();
        if !topo::cycles(&next).is_empty() {
            let message = "packets could go in a circle inside the template".to_owned();
            self.error("/links", message, "leave one of the links out".to_owned());
        }
    }
}

/// The references in a value to what `known` has not, with their JSON pointers. `at` is the pointer to
/// the value: it is written once per step, as copies for each value could be of any length together.
fn unknown_references(
    value: &Value,
    at: &mut String,
    known: &HashSet<&str>,
    found: &mut Vec<(String, String)>,
) {
    let len = at.len();
    match value {
        Value::String(text) => {
            if let Some(name) = reference(text)
                && !known.contains(name)
                && found.len() < MAX_ERRORS
            {
                found.push((at.clone(), name.to_owned()));
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                names::push_step(at, &i.to_string());
                unknown_references(value, at, known, found);
                at.truncate(len);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                names::push_step(at, key);
                unknown_references(value, at, known, found);
                at.truncate(len);
            }
        }
        _ => {}
    }
}
