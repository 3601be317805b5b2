//! Edges as written to edges between declared nodes: names, filters, outputs and inputs resolved.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

use weir_filter::{Expr, Net, TagTest, Why as FilterWhy};

use crate::ast::{Hop, Pipelet, Statement};
use crate::auto_tags::{self, AutoTags};
use crate::bandwidth::Bandwidth;
use crate::catalog::NfInfo;
use crate::declare::{Declaration, Declared, What};
use crate::error::Errors;
use crate::nearest::nearest;
use crate::said::{self, Said};
use crate::span::{Name, Span, Spanned};
use crate::why::Why;

/// An edge between declarations, given by their places in [`Declared::list`].
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) input: usize,
    /// The automatic tag that it gives packets.
    pub(crate) tag: Option<String>,
    pub(crate) filter: Option<Expr>,
    pub(crate) bandwidth: Option<Bandwidth>,
    pub(crate) pipelet: Option<String>,
    /// All pipelets that say it, counted from 1 in the order of the text.
    pub(crate) pipelets: Vec<usize>,
    /// The whole edge.
    pub(crate) span: Span,
}

/// What makes two edges the same.
type Key = (usize, usize, (usize, Option<String>), Option<Expr>);

/// Turns pipelets into links.
pub(crate) struct Linker<'a> {
    declared: &'a Declared<'a>,
    /// Names in declarations that could not be read.
    lost: &'a HashSet<String>,
    auto: &'a AutoTags,
    pub(crate) links: Vec<Link>,
    /// Where each edge was first written: which link, in which pipelet.
    seen: HashMap<Key, (usize, usize)>,
    pipelets: usize,
}

impl<'a> Linker<'a> {
    pub(crate) fn new(
        declared: &'a Declared<'a>,
        lost: &'a HashSet<String>,
        auto: &'a AutoTags,
    ) -> Self {
        Self { declared, lost, auto, links: Vec::new(), seen: HashMap::new(), pipelets: 0 }
    }

    pub(crate) fn pipelet(&mut self, pipelet: &Pipelet, errors: &mut Errors) {
        self.pipelets = self.pipelets.saturating_add(1);
        let name = pipelet.name.as_ref().map(|name| name.value.clone());
        for statement in &pipelet.statements {
            let Statement::Chain(chain) = statement else {
                continue;
            };
            let mut from = &chain.from;
            for (i, hop) in chain.hops.iter().enumerate() {
                if errors.full() {
                    return;
                }
                self.hop(from, i == 0, hop, name.as_ref(), errors);
                from = &hop.to;
            }
        }
    }

    fn hop(
        &mut self,
        from: &Name,
        first: bool,
        hop: &Hop,
        pipelet: Option<&String>,
        errors: &mut Errors,
    ) {
        // The name in the middle of a chain was looked at as the destination before it.
        let source = if first { self.node(from, true, errors) } else { self.known(from) };
        let target = self.node(&hop.to, false, errors);
        let filter = self.filter_out(hop, source, &from.value, errors);
        let input = self.input(hop, target, errors);
        if let Some(index) = source
            && self.outputs(index).is_some_and(<[String]>::is_empty)
        {
            errors.push(from.span, Why::NoOutputs { name: from.value.clone() });
            return;
        }
        let (Some(from_index), Some(to), Ok(filter), Some(input)) = (source, target, filter, input)
        else {
            return;
        };
        let span = from.span.to(hop.to.span);
        let (input, tag) = input;
        let key = (from_index, to, (input, tag.clone()), filter.clone());
        if let Some((link, in_pipelet)) = self.seen.get(&key).copied() {
            let before = self.links.get_mut(link);
            if in_pipelet == self.pipelets {
                let start = before.map_or(0, |link| link.span.start);
                let line = self.declared.lines.line_beside(start, span.start);
                errors.push(span, Why::SameEdge { line });
            } else if let Some(before) = before {
                // Another traffic class that goes the same way.
                before.bandwidth = before.bandwidth.or(hop.bandwidth);
                if before.pipelets.last() != Some(&self.pipelets) {
                    before.pipelets.push(self.pipelets);
                }
            }
            return;
        }
        self.seen.insert(key, (self.links.len(), self.pipelets));
        self.links.push(Link {
            from: from_index,
            to,
            input,
            tag,
            filter,
            bandwidth: hop.bandwidth,
            pipelet: pipelet.cloned(),
            pipelets: vec![self.pipelets],
            span,
        });
    }

    /// The node of that name, if it is one and is sound.
    fn known(&self, name: &Name) -> Option<usize> {
        let (index, declaration) = self.declared.get(&name.value)?;
        let node = matches!(
            declaration.what,
            What::Port { .. } | What::Nf { .. } | What::Vnf(_) | What::Drop
        );
        node.then_some(index)
    }

    /// The node of that name, which is to be a source or not; what is wrong with the name becomes an error.
    fn node(&self, name: &Name, source: bool, errors: &mut Errors) -> Option<usize> {
        match self.declared.get(&name.value).map(|(_, declaration)| &declaration.what) {
            Some(What::Broken) => {}
            Some(What::Address(_)) => {
                errors.push(name.span, Why::AddressAsNode { name: name.value.clone() })
            }
            Some(_) => return self.known(name),
            None if self.lost.contains(&name.value) => {}
            None => {
                let is_type = self.declared.types.contains(&name.value);
                // Only what can stand here.
                let fits = |(index, d): &(usize, &Declaration)| {
                    let is_node = !matches!(d.what, What::Address(_));
                    is_node && !(source && self.outputs(*index).is_some_and(<[String]>::is_empty))
                };
                let names = || {
                    let all = self.declared.list.iter().enumerate();
                    all.filter(fits).map(|(_, d)| d.name.as_str())
                };
                let nearest = if is_type { None } else { nearest(&name.value, names()) };
                errors.push(
                    name.span,
                    Why::UnknownNode { name: name.value.clone(), nearest, is_type },
                );
            }
        }
        None
    }

    fn nf(&self, index: usize) -> Option<&NfInfo> {
        self.declared.list.get(index).and_then(|d| d.what.info())
    }

    /// The names of a node's outputs; `None` for a port, whose only output has no name.
    fn outputs(&self, index: usize) -> Option<&[String]> {
        match self.declared.list.get(index).map(|d| &d.what) {
            Some(What::Nf { info, .. }) => Some(&info.outputs),
            Some(What::Vnf(vnf)) => Some(&vnf.info.outputs),
            Some(What::Drop) => Some(&[]),
            _ => None,
        }
    }

    /// The filter, with its tags checked against the source.
    fn filter_out(
        &self,
        hop: &Hop,
        source: Option<usize>,
        from: &str,
        errors: &mut Errors,
    ) -> Result<Option<Expr>, ()> {
        let Some(written) = &hop.filter_out else {
            return Ok(None);
        };
        let expr = match weir_filter::parse_with(&written.value, &|name| self.net(name)) {
            Ok(expr) => expr,
            Err(list) => {
                for error in list {
                    self.filter_error(written, &error, errors);
                }
                return Err(());
            }
        };
        let mut wrong = Vec::new();
        let mut what = |scope: &str, name: &str, test: Option<&TagTest>| {
            self.said(scope, name, test, source, from)
        };
        let expr = said::settle(&expr, &mut what, &mut wrong);
        let sound = wrong.is_empty();
        for (text, why) in wrong {
            errors.push(find(written, &text), why);
        }
        let expr = if self.auto.is_empty() { expr } else { self.scoped(&expr) };
        sound.then_some(Some(expr)).ok_or(())
    }

    /// What `scope.name` is: an output of the source before a tag.
    fn said(
        &self,
        scope: &str,
        name: &str,
        test: Option<&TagTest>,
        source: Option<usize>,
        from: &str,
    ) -> Result<Said, Why> {
        let output = source.map(|source| self.tag(scope, name, source, from));
        match (output, test) {
            (Some(Ok(())), None) => Ok(Said::Output),
            (Some(Ok(())), Some(_)) => Err(Why::OutputTest { output: format!("{scope}.{name}") }),
            (output, test) => match said::tag(self.declared, scope, name, test)? {
                Some(said) => Ok(said),
                None => output.unwrap_or(Ok(())).map(|()| Said::Output),
            },
        }
    }

    /// Automatic tags under a scope of their own.
    fn scoped(&self, filter: &Expr) -> Expr {
        let all = |list: &[Expr]| list.iter().map(|e| self.scoped(e)).collect();
        match filter {
            Expr::Tag { scope, name } if self.auto.find(self.declared, scope, name).is_some() => {
                Expr::Tag { scope: auto_tags::scope(scope), name: name.clone() }
            }
            Expr::Not(inner) => Expr::not(self.scoped(inner)),
            Expr::And(list) => Expr::And(all(list)),
            Expr::Or(list) => Expr::Or(all(list)),
            other => other.clone(),
        }
    }

    /// The value of an address. One whose declaration is wrong has some value: its error is enough.
    fn net(&self, name: &str) -> Option<Net> {
        let broken =
            || matches!(self.declared.get(name), Some((_, d)) if matches!(d.what, What::Broken));
        let any = || Net::host(Ipv4Addr::UNSPECIFIED.into());
        self.declared.net(name).or_else(|| (self.lost.contains(name) || broken()).then(any))
    }

    fn tag(&self, scope: &str, name: &str, source: usize, from: &str) -> Result<(), Why> {
        if self.auto.find(self.declared, scope, name).is_some() {
            return Ok(());
        }
        let info = self.nf(source);
        let outputs = info.map(|info| info.outputs.clone()).unwrap_or_default();
        // An instance's name goes before a type's.
        let by_type =
            || self.declared.get(scope).is_none() && info.is_some_and(|info| info.name == scope);
        if scope != from && !by_type() {
            let (scope, name, from) = (scope.to_owned(), name.to_owned(), from.to_owned());
            return Err(Why::OtherScope { scope, name, from, outputs });
        }
        if outputs.iter().any(|output| output == name) {
            return Ok(());
        }
        let nearest =
            nearest(name, outputs.iter().map(String::as_str)).map(|near| format!("{scope}.{near}"));
        let outputs = outputs.iter().map(|output| format!("{scope}.{output}")).collect();
        Err(Why::UnknownOutput { scope: scope.to_owned(), name: name.to_owned(), nearest, outputs })
    }

    fn filter_error(
        &self,
        written: &Spanned<String>,
        error: &weir_filter::ParseError,
        errors: &mut Errors,
    ) {
        let start = written.span.start.saturating_add(error.span.start);
        let span = Span::new(start, written.span.start.saturating_add(error.span.end));
        let unknown = match &error.why {
            FilterWhy::UnknownWord { word, .. } => Some(word),
            FilterWhy::Name { name, .. } => Some(name),
            _ => None,
        };
        let addresses = || self.declared.list.iter().filter(|d| matches!(d.what, What::Address(_)));
        let near = unknown.and_then(|name| nearest(name, addresses().map(|d| d.name.as_str())));
        // An address may stand in another place than this.
        let near = near.filter(|near| {
            weir_filter::takes(&written.value, &error.span, near, &|name| self.net(name))
        });
        let instead = near.map_or_else(|| error.instead(), |name| format!("`{name}`"));
        errors.push(span, Why::Filter { message: error.why.to_string(), instead });
    }

    /// The destination's input and the automatic tag; `None` after an error.
    fn input(
        &self,
        hop: &Hop,
        target: Option<usize>,
        errors: &mut Errors,
    ) -> Option<(usize, Option<String>)> {
        let target = target?;
        let name = || hop.to.value.clone();
        let Some(info) = self.nf(target) else {
            let Some(written) = &hop.filter_in else {
                return Some((0, None));
            };
            errors.push(written.span, Why::NoInputs { name: name() });
            return None;
        };
        let inputs = info.inputs.clone();
        let Some(written) = &hop.filter_in else {
            if inputs.len() < 2 {
                return Some((0, None));
            }
            errors.push(hop.to.span, Why::WhichInput { name: name(), inputs });
            return None;
        };
        let wanted =
            auto_tags::wanted(&written.value, &hop.to.value, &info.name).unwrap_or(&written.value);
        let found = inputs.iter().position(|input| input == wanted);
        if found.is_none() {
            if auto_tags::is_tag(&inputs, wanted) {
                if info.outputs.iter().any(|output| output == wanted) {
                    let tag = wanted.to_owned();
                    errors.push(written.span, Why::TagIsOutput { name: name(), tag });
                    return None;
                }
                return Some((0, Some(wanted.to_owned())));
            }
            let nearest = nearest(wanted, inputs.iter().map(String::as_str));
            let input = wanted.to_owned();
            errors.push(written.span, Why::UnknownInput { name: name(), input, nearest, inputs });
        }
        found.map(|input| (input, None))
    }
}

/// Where `needle` stands in a filter as a whole word; the filter if nowhere.
fn find(filter: &Spanned<String>, needle: &str) -> Span {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let whole = |at: usize| {
        let before = filter.value.get(..at).unwrap_or_default();
        let after = filter.value.get(at.saturating_add(needle.len())..).unwrap_or_default();
        !before.ends_with(in_name) && !after.starts_with(in_name)
    };
    match filter.value.match_indices(needle).find(|(at, _)| whole(*at)) {
        Some((at, _)) => {
            let start = filter.span.start.saturating_add(at);
            Span::new(start, start.saturating_add(needle.len()))
        }
        None => filter.span,
    }
}
