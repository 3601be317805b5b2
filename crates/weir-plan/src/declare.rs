//! The names of a policy: what each stands for.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value};
use weir_filter::{Net, NetError};

use crate::ast::{AddressDecl, InstanceDecl, Item, Policy, PortDecl};
use crate::catalog::{Catalog, ConfigProblem, NfInfo};
use crate::check::MAX_PORTS;
use crate::config::{Config, locate, prune};
use crate::error::Errors;
use crate::nearest::nearest;
use crate::parse::{MAX_DECLARATIONS, misspelt};
use crate::service::{Budget, Template, Vnf, push_step, value};
use crate::span::{Lines, Name, Span, Spanned};
use crate::tee;
use crate::why::Why;

/// Words that cannot be names.
pub(crate) const RESERVED: [&str; 6] = ["Port", "Address", "Drop", "pipelet", "default", "include"];

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum What {
    Port {
        first: u16,
        last: u16,
    },
    Nf {
        info: Box<NfInfo>,
        config: Value,
    },
    Vnf(Box<Vnf>),
    Address(Net),
    Drop,
    /// Declared, but wrongly: no more errors about it.
    Broken,
}

impl What {
    /// The description of an NF or VNF.
    pub(crate) fn info(&self) -> Option<&NfInfo> {
        match self {
            What::Nf { info, .. } => Some(info),
            What::Vnf(vnf) => Some(&vnf.info),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) what: What,
}

/// All names of a policy.
pub(crate) struct Declared<'a> {
    pub(crate) list: Vec<Declaration>,
    by_name: HashMap<String, usize>,
    /// The addresses that filters use.
    pub(crate) used_addresses: RefCell<HashSet<usize>>,
    pub(crate) lines: &'a Lines<'a>,
    pub(crate) types: Vec<String>,
    /// Port numbers: the last of a range and its declaration, by the first.
    ports: BTreeMap<u16, (u16, usize)>,
    port_count: usize,
    /// µNFs in VNFs so far.
    in_vnfs: usize,
    /// What was added behind a declaration.
    behind: HashMap<usize, Vec<usize>>,
    /// What VNFs may still take.
    budget: Budget,
}

impl<'a> Declared<'a> {
    pub(crate) fn new(
        policy: &Policy,
        catalog: &dyn Catalog,
        lines: &'a Lines<'a>,
        errors: &mut Errors,
    ) -> Self {
        let mut declared = Self {
            list: Vec::new(),
            by_name: HashMap::new(),
            used_addresses: RefCell::default(),
            lines,
            types: catalog.types().into_iter().chain(catalog.templates()).collect(),
            ports: BTreeMap::new(),
            port_count: 0,
            in_vnfs: 0,
            behind: HashMap::new(),
            budget: Budget::default(),
        };
        for item in &policy.items {
            if errors.full() {
                break;
            }
            match item {
                Item::Port(port) => declared.port(port, errors),
                Item::Address(address) => declared.address(address, errors),
                Item::Instance(instance) => declared.instance(instance, catalog, errors),
                Item::Include(_) | Item::Pipelet(_) | Item::DefaultDrop | Item::FirstMatch => {}
            }
        }
        // Last, so that nodes are in the order of the text.
        declared.insert("Drop", Span::default(), What::Drop);
        declared
    }

    /// Declares another instance of the NF at `index`, which stands behind it and what was added for it
    /// before, under its name with `suffix`; gives its place.
    pub(crate) fn add_behind(&mut self, index: usize, suffix: &str) -> usize {
        let place = self.list.len();
        let Some(Declaration { name, span, what: What::Nf { info, config } }) =
            self.list.get(index)
        else {
            return index;
        };
        let what = What::Nf { info: info.clone(), config: config.clone() };
        let (name, span) = (format!("{name}{suffix}"), *span);
        self.insert(&name, span, what);
        self.behind.entry(index).or_default().push(place);
        place
    }

    /// All places in the order in which nodes are shown.
    pub(crate) fn in_order(&self) -> Vec<usize> {
        let added: HashSet<usize> = self.behind.values().flatten().copied().collect();
        let own = (0..self.list.len()).filter(|i| !added.contains(i));
        let behind = |i: usize| self.behind.get(&i).into_iter().flatten().copied();
        own.flat_map(|i| std::iter::once(i).chain(behind(i))).collect()
    }

    /// The declaration of `name` with its place in the list.
    pub(crate) fn get(&self, name: &str) -> Option<(usize, &Declaration)> {
        let index = *self.by_name.get(name)?;
        self.list.get(index).map(|declaration| (index, declaration))
    }

    /// The value of an address; notes that it is used.
    pub(crate) fn net(&self, name: &str) -> Option<Net> {
        match self.get(name)? {
            (index, Declaration { what: What::Address(net), .. }) => {
                self.used_addresses.borrow_mut().insert(index);
                Some(*net)
            }
            _ => None,
        }
    }

    fn insert(&mut self, name: &str, span: Span, what: What) {
        self.by_name.insert(name.to_owned(), self.list.len());
        self.list.push(Declaration { name: name.to_owned(), span, what });
    }

    fn declare(&mut self, name: &Name, what: What, errors: &mut Errors) {
        if RESERVED.contains(&name.value.as_str()) {
            errors.push(name.span, Why::Reserved(name.value.clone()));
            return;
        }
        if let Some((_, first)) = self.get(&name.value) {
            let line = self.lines.line_beside(first.span.start, name.span.start);
            errors.push(name.span, Why::Duplicate { name: name.value.clone(), line });
            return;
        }
        self.insert(&name.value, name.span, what);
    }

    fn port(&mut self, port: &PortDecl, errors: &mut Errors) {
        let (first, last) = (port.first, port.last);
        // Ranges that passed do not overlap: the last one that begins below the end is the only rival.
        let rival = self
            .ports
            .range(..=last)
            .next_back()
            .filter(|(_, (rival_last, _))| *rival_last >= first);
        if let Some((rival_first, (_, owner))) = rival
            && let Some(owner) = self.list.get(*owner)
        {
            let line = self.lines.line_beside(owner.span.start, port.numbers.span.start);
            let why =
                Why::PortTaken { number: first.max(*rival_first), owner: owner.name.clone(), line };
            errors.push(port.numbers.span, why);
        } else {
            self.ports.insert(first, (last, self.list.len()));
            self.port_count = self
                .port_count
                .saturating_add(usize::from(last.saturating_sub(first)))
                .saturating_add(1);
            if self.port_count > MAX_PORTS {
                errors.push(port.numbers.span, Why::TooManyPorts);
                errors.stop();
            }
        }
        self.declare(&port.name, What::Port { first, last }, errors);
    }

    fn address(&mut self, address: &AddressDecl, errors: &mut Errors) {
        let name = &address.name;
        let probe = format!("dst net {}", name.value);
        let any = Net::host(Ipv4Addr::UNSPECIFIED.into());
        if weir_filter::parse_with(&probe, &|word| (word == name.value).then_some(any)).is_err() {
            errors.push(name.span, Why::FilterWord(name.value.clone()));
        }
        let what = match parse_net(&address.value.value) {
            Ok(net) => What::Address(net),
            Err(why) => {
                errors.push(address.value.span, why);
                What::Broken
            }
        };
        self.declare(&address.name, what, errors);
    }

    fn instance(&mut self, instance: &InstanceDecl, catalog: &dyn Catalog, errors: &mut Errors) {
        let type_name = &instance.type_name;
        if let Some(template) = catalog.template(&type_name.value) {
            // A line of the policy can be as many µNFs as a template has: both count.
            self.in_vnfs = self.in_vnfs.saturating_add(template.types.len());
            if self.in_vnfs > MAX_DECLARATIONS {
                errors.push(type_name.span, Why::TooManyDeclarations);
                errors.stop();
                return;
            }
            let what = self.vnf(instance, &template, catalog, errors);
            self.declare(&instance.name, what, errors);
            return;
        }
        let known = catalog.nf_with(&type_name.value, &json(instance));
        let word = || (type_name.value == tee::TEE).then(tee::info);
        let what = match known.or_else(word) {
            None => {
                let (first, second) = (type_name.value.as_str(), instance.name.value.as_str());
                let none = instance.config.is_none();
                if let Some(why) = misspelt(first, second).filter(|_| none) {
                    errors.push(type_name.span.to(instance.name.span), why);
                    return;
                }
                let nearest = nearest(&type_name.value, self.types.iter().map(String::as_str));
                let why = Why::UnknownType {
                    name: type_name.value.clone(),
                    nearest,
                    types: self.types.clone(),
                };
                errors.push(type_name.span, why);
                What::Broken
            }
            Some(info) => {
                if catalog.nf(&type_name.value).is_some() {
                    faults(instance, catalog, errors);
                }
                What::Nf { info: Box::new(info), config: json(instance) }
            }
        };
        self.declare(&instance.name, what, errors);
    }

    fn vnf(
        &mut self,
        instance: &InstanceDecl,
        template: &Template,
        catalog: &dyn Catalog,
        errors: &mut Errors,
    ) -> What {
        match template.fill(&json(instance), catalog, &mut self.budget) {
            Ok(vnf) => What::Vnf(Box::new(vnf)),
            Err(problems) => {
                for problem in problems {
                    let span = place(instance, &problem);
                    let name = instance.name.value.clone();
                    let template = template.name().to_owned();
                    errors.push(span, Why::Parameters { name, template, why: problem.why });
                }
                if self.budget.is_spent() {
                    errors.stop();
                }
                What::Broken
            }
        }
    }
}

/// A configuration as JSON, `{}` for none.
fn json(instance: &InstanceDecl) -> Value {
    let config = instance.config.as_ref();
    config.map_or_else(|| Value::Object(Map::new()), |config| config.value.to_json())
}

/// How often a configuration is tried for one more fault: each time costs the making of an NF.
const MAX_TRIES: usize = 20;

/// All faults of an NF's configuration: without the part that is wrong the next shows.
fn faults(instance: &InstanceDecl, catalog: &dyn Catalog, errors: &mut Errors) {
    let (name, type_name) = (&instance.name.value, &instance.type_name.value);
    let mut push = |span: Span, why: String| {
        let shown_with = catalog.shown_with(type_name);
        let (name, type_name) = (name.clone(), type_name.clone());
        errors.push(span, Why::Config { name, type_name, why, shown_with });
    };
    let Some(mut rest) = instance.config.clone() else {
        if let Err(problem) = catalog.check_config(type_name, &json(instance)) {
            push(place(instance, &problem), problem.why);
        }
        return;
    };
    // What was taken out, as far as its place is still what it was.
    let mut out: Vec<String> = Vec::new();
    for _ in 0..MAX_TRIES {
        let Err(mut problem) = catalog.check_config(type_name, &rest.value.to_json()) else {
            return;
        };
        narrow(&rest, &mut problem);
        // Of what lacks a part that was taken out, no more is said: it would be of our doing.
        let within = format!("{}/", problem.path);
        let ours = out.iter().any(|path| *path == problem.path || path.starts_with(&within));
        if !ours {
            push(locate(&rest, &problem.path), problem.why);
        }
        let steps: Vec<String> = problem.path.split('/').skip(1).map(unescaped).collect();
        if !prune(&mut rest, &steps, !ours) {
            return;
        }
        let is_number = |step: &String| step.parse::<usize>().is_ok();
        if ours || steps.last().is_some_and(is_number) {
            // A list element went, and others stand in its place.
            let list = steps.iter().rposition(is_number).unwrap_or(0);
            let list: String =
                problem.path.split_inclusive('/').take(list.saturating_add(1)).collect();
            out.retain(|path| !path.starts_with(&list));
        } else {
            out.push(problem.path);
        }
    }
}

/// Some only say of which object something is wrong, as they have read it as a whole: the member that they quote
/// is what they mean.
fn narrow(config: &Spanned<Config>, problem: &mut ConfigProblem) {
    let Some(Config::Object(members)) = value(config, &problem.path).map(|part| &part.value) else {
        return;
    };
    let Some(quoted) = problem.why.split('`').nth(1) else { return };
    let mut meant = members.iter().filter(|(key, value)| match &value.value {
        _ if key.value == quoted => true,
        Config::String(text) => text == quoted,
        Config::Number(number) => number.to_string() == quoted,
        _ => false,
    });
    if let (Some((key, _)), None) = (meant.next(), meant.next()) {
        push_step(&mut problem.path, &key.value);
    }
}

/// A step of a JSON pointer as the key that it stands for.
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Where the part of a configuration stands that a problem is about.
fn place(instance: &InstanceDecl, problem: &ConfigProblem) -> Span {
    let whole = || instance.type_name.span.to(instance.name.span);
    instance.config.as_ref().map_or_else(whole, |config| locate(config, &problem.path))
}

fn parse_net(value: &str) -> Result<Net, Why> {
    let no_address = || Why::Address { value: value.to_owned() };
    let (address, len) = match value.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (value, None),
    };
    let address: IpAddr = address.parse().map_err(|_| no_address())?;
    let Some(len) = len else {
        return Ok(Net::host(address));
    };
    if len.is_empty() || !len.chars().all(|c| c.is_ascii_digit()) {
        return Err(no_address());
    }
    // What exceeds a byte exceeds any address as well.
    Net::new(address, len.parse().unwrap_or(u8::MAX)).map_err(|e| match e {
        NetError::TooLong { max, .. } => Why::PrefixLength { value: value.to_owned(), max },
        NetError::HostBits { network } => {
            Why::HostBits { value: value.to_owned(), network: network.to_string() }
        }
    })
}
