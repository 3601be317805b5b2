//! What filters say of NFs: outputs of the edge's own source, and tags of NFs before it.

use std::collections::{BTreeMap, BTreeSet};

use weir_filter::{Expr, TagTest};

use crate::catalog::{NfInfo, TagKind};
use crate::declare::{Declaration, Declared, What};
use crate::edges::Link;
use crate::error::PolicyWarning;
use crate::nearest::nearest;
use crate::tags::{ENTRY, kind};
use crate::warning::Warning;
use crate::why::Why;

/// What `scope.name` is.
pub(crate) enum Said {
    /// An output of the source.
    Output,
    /// A tag, tested as its kind is.
    Tag,
}

/// Says what `scope.name` is that is tested so, or what is wrong with it.
type Asking<'a> = dyn FnMut(&str, &str, Option<&TagTest>) -> Result<Said, Why> + 'a;

/// `expr` with tests of flags where it names tags without a comparison. `what` says what a name is, or
/// what is wrong with it; that goes into `wrong`, with the text in question.
pub(crate) fn settle(expr: &Expr, what: &mut Asking<'_>, wrong: &mut Vec<(String, Why)>) -> Expr {
    let mut all = |list: &[Expr]| list.iter().map(|e| settle(e, what, wrong)).collect();
    match expr {
        Expr::Tag { scope, name } => match what(scope, name, None) {
            Ok(Said::Tag) => {
                Expr::TagIs { scope: scope.clone(), name: name.clone(), test: TagTest::Flag }
            }
            Ok(Said::Output) => expr.clone(),
            Err(why) => {
                wrong.push((format!("{scope}.{name}"), why));
                expr.clone()
            }
        },
        Expr::TagIs { scope, name, test } => {
            if let Err(why) = what(scope, name, Some(test)) {
                wrong.push((format!("{scope}.{name}"), why));
            }
            expr.clone()
        }
        Expr::Not(inner) => Expr::not(settle(inner, what, wrong)),
        Expr::And(list) => Expr::And(all(list)),
        Expr::Or(list) => Expr::Or(all(list)),
        Expr::True | Expr::False | Expr::Primitive(_) | Expr::Slot(_) | Expr::Ingress { .. } => {
            expr.clone()
        }
    }
}

/// What an NF's description, or that of a VNF's µNFs, says.
pub(crate) fn infos(what: &What) -> Vec<&NfInfo> {
    match what {
        What::Nf { info, .. } => vec![info],
        What::Vnf(vnf) => vnf.nodes.iter().map(|node| &node.info).collect(),
        What::Port { .. } | What::Address(_) | What::Drop | What::Broken => Vec::new(),
    }
}

fn type_name(what: &What) -> Option<&str> {
    match what {
        What::Nf { info, .. } => Some(&info.name),
        What::Vnf(vnf) => Some(&vnf.info.name),
        What::Port { .. } | What::Address(_) | What::Drop | What::Broken => None,
    }
}

/// The declared NFs that `scope` names: an instance, or else all of a type.
fn named<'d>(declared: &'d Declared<'_>, scope: &str) -> Vec<(usize, &'d Declaration)> {
    if let Some((index, declaration)) = declared.get(scope) {
        return vec![(index, declaration)];
    }
    let all = declared.list.iter().enumerate();
    all.filter(|(_, d)| type_name(&d.what) == Some(scope)).collect()
}

/// The tag that `scope.name` names; `Ok(None)` when `scope` has no tags, and so may be meant for
/// an output. With several of the name, the one that the test suits.
pub(crate) fn tag(
    declared: &Declared<'_>,
    scope: &str,
    name: &str,
    test: Option<&TagTest>,
) -> Result<Option<Said>, Why> {
    let named = named(declared, scope);
    if named.iter().any(|(_, d)| matches!(d.what, What::Broken)) {
        // What it says nobody knows; that its declaration is wrong has been said.
        return Ok(Some(Said::Tag));
    }
    if named.is_empty() && test.is_some() {
        // Who says such a thing.
        let says = |d: &&Declaration| {
            let said = infos(&d.what).into_iter().flat_map(|info| &info.tags);
            said.filter(|tag| tag.name == name).any(|tag| test.is_none_or(|t| kind(t) == tag.kind))
        };
        let sayers = declared.list.iter().filter(says);
        let near = nearest(scope, sayers.map(|d| d.name.as_str()));
        return Err(Why::UnknownNode { name: scope.to_owned(), nearest: near, is_type: false });
    }
    let tags: Vec<(&str, TagKind)> = named
        .iter()
        .flat_map(|(_, d)| infos(&d.what))
        .flat_map(|info| &info.tags)
        .map(|tag| (tag.name.as_str(), tag.kind))
        .collect();
    let kinds = || tags.iter().filter(|(tag, _)| *tag == name).map(|(_, kind)| *kind);
    let wanted = test.map_or(TagKind::Flag, kind);
    if kinds().any(|kind| kind == wanted) {
        return Ok(Some(Said::Tag));
    }
    if let Some(kind) = kinds().next() {
        return Err(Why::TagTest { tag: format!("{scope}.{name}"), kind });
    }
    if tags.is_empty() && test.is_none() {
        return Ok(None);
    }
    let names: BTreeSet<&str> = tags.iter().map(|(tag, _)| *tag).collect();
    let alike = tags.iter().filter(|(_, kind)| *kind == wanted).map(|(tag, _)| *tag);
    Err(Why::UnknownTag {
        scope: scope.to_owned(),
        name: name.to_owned(),
        nearest: nearest(name, alike).map(|near| format!("{scope}.{near}")),
        tags: names.into_iter().map(|tag| format!("{scope}.{tag}")).collect(),
    })
}

/// Where a tag has been said.
struct Heard {
    /// Of some packets.
    some: BTreeSet<usize>,
    /// Not of all: packets may come there past who says it.
    past: BTreeSet<usize>,
}

/// Tests of tags that packets may come to without having met who sets them.
pub(crate) fn unset(declared: &Declared<'_>, links: &[Link], list: &mut Vec<PolicyWarning>) {
    let mut out = vec![Vec::new(); declared.list.len()];
    for link in links {
        if let Some(next) = out.get_mut(link.from) {
            next.push(link.to);
        }
    }
    let hear = |scope: &str, name: &str, kind: TagKind| {
        let sets = |d: &Declaration| {
            let mut tags = infos(&d.what).into_iter().flat_map(|info| &info.tags);
            tags.any(|tag| tag.name == name && tag.kind == kind)
        };
        let named = named(declared, scope).into_iter();
        let setters: BTreeSet<usize> = named.filter(|(_, d)| sets(d)).map(|(i, _)| i).collect();
        let ports = declared.list.iter().enumerate();
        let ports = ports.filter(|(_, d)| matches!(d.what, What::Port { .. })).map(|(i, _)| i);
        let ports: BTreeSet<usize> = ports.collect();
        Heard {
            past: reached(&out, ports.iter().copied(), &setters),
            // What a port sends does not come back.
            some: reached(&out, setters.into_iter(), &ports),
        }
    };
    let mut known: BTreeMap<(&str, &str, TagKind), Heard> = BTreeMap::new();
    for link in links {
        let mut told = BTreeSet::new();
        for (scope, name, test) in link.filter.iter().flat_map(Expr::tag_tests) {
            if (scope, name) == ENTRY || !told.insert((scope, name)) {
                continue;
            }
            let key = (scope, name, kind(test));
            let heard = known.entry(key).or_insert_with(|| hear(scope, name, kind(test)));
            let never = !heard.some.contains(&link.from);
            if never || heard.past.contains(&link.from) {
                let why = Warning::TagUnset { tag: format!("{scope}.{name}"), never };
                list.push(PolicyWarning { span: link.span, why });
            }
        }
    }
}

/// The declared nodes that packets of `from` may get to, themselves among them, without passing `not`.
fn reached(
    out: &[Vec<usize>],
    from: impl Iterator<Item = usize>,
    not: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let mut todo: Vec<usize> = from.collect();
    let mut found = BTreeSet::new();
    while let Some(at) = todo.pop() {
        if !not.contains(&at) && found.insert(at) {
            todo.extend(out.get(at).into_iter().flatten());
        }
    }
    found
}
