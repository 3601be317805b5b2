//! Partial evaluation: tags and ports that are known are replaced and constants folded.

use crate::expr::{Expr, SlotTest, TagTest};
use crate::primitive::Primitive;

impl Expr {
    /// Replaces the tags that `value_of(scope, name)` knows and folds the constants that come of it.
    /// Tags it does not know stay.
    ///
    /// A constant does not swallow a `vlan`, `mpls` or `pppoes` on whose shift something further
    /// right depends: `(fw.safe or vlan) and tcp` with `fw.safe` true stays `(true or vlan) and tcp`.
    #[must_use]
    pub fn resolve_tags(&self, value_of: &mut dyn FnMut(&str, &str) -> Option<bool>) -> Expr {
        let mut shift_matters = false;
        fold(replace(self, value_of), &mut shift_matters)
    }

    /// The filter for packets that came in by this port of the policy, with constants folded as in
    /// [`Expr::resolve_tags`].
    #[must_use]
    pub fn resolve_ingress(&self, port: u16) -> Expr {
        let mut shift_matters = false;
        fold(at_port(self, port), &mut shift_matters)
    }

    /// Replaces tests of tags' values by what `place(scope, name, test)` gives for them, and folds the
    /// constants that come of it as [`Expr::resolve_tags`] does.
    #[must_use]
    pub fn place_tags(&self, place: &mut dyn FnMut(&str, &str, &TagTest) -> Expr) -> Expr {
        let mut shift_matters = false;
        fold(placed(self, place), &mut shift_matters)
    }

    /// The filter for a packet whose slots have these words.
    #[must_use]
    pub fn resolve_slots(&self, word: &dyn Fn(u8) -> u64) -> Expr {
        let mut shift_matters = false;
        fold(with_words(self, word), &mut shift_matters)
    }
}

fn at_port(expr: &Expr, port: u16) -> Expr {
    let all = |list: &[Expr]| list.iter().map(|e| at_port(e, port)).collect();
    match expr {
        Expr::Ingress { first, last } => constant((*first..=*last).contains(&port)),
        Expr::Not(inner) => Expr::not(at_port(inner, port)),
        Expr::And(list) => Expr::And(all(list)),
        Expr::Or(list) => Expr::Or(all(list)),
        other => other.clone(),
    }
}

fn placed(expr: &Expr, place: &mut dyn FnMut(&str, &str, &TagTest) -> Expr) -> Expr {
    match expr {
        Expr::TagIs { scope, name, test } => place(scope, name, test),
        Expr::Not(inner) => Expr::not(placed(inner, place)),
        Expr::And(list) => Expr::And(list.iter().map(|e| placed(e, place)).collect()),
        Expr::Or(list) => Expr::Or(list.iter().map(|e| placed(e, place)).collect()),
        other => other.clone(),
    }
}

fn with_words(expr: &Expr, word: &dyn Fn(u8) -> u64) -> Expr {
    let all = |list: &[Expr]| list.iter().map(|e| with_words(e, word)).collect();
    match expr {
        Expr::Slot(SlotTest { slot, mask, first, last }) => {
            constant((*first..=*last).contains(&(word(*slot) & mask)))
        }
        Expr::Not(inner) => Expr::not(with_words(inner, word)),
        Expr::And(list) => Expr::And(all(list)),
        Expr::Or(list) => Expr::Or(all(list)),
        other => other.clone(),
    }
}

fn replace(expr: &Expr, value_of: &mut dyn FnMut(&str, &str) -> Option<bool>) -> Expr {
    match expr {
        Expr::Tag { scope, name } => match value_of(scope, name) {
            Some(value) => constant(value),
            None => expr.clone(),
        },
        Expr::Not(inner) => Expr::not(replace(inner, value_of)),
        Expr::And(list) => Expr::And(list.iter().map(|e| replace(e, value_of)).collect()),
        Expr::Or(list) => Expr::Or(list.iter().map(|e| replace(e, value_of)).collect()),
        Expr::True
        | Expr::False
        | Expr::Primitive(_)
        | Expr::TagIs { .. }
        | Expr::Slot(_)
        | Expr::Ingress { .. } => expr.clone(),
    }
}

/// Folds from right to left, because whether a `vlan` may go depends on what was kept right of it;
/// `shift_matters` says that something kept there looks behind tags.
fn fold(expr: Expr, shift_matters: &mut bool) -> Expr {
    if let Some(value) = value(&expr) {
        let needed_for_its_shift = *shift_matters && expr.shifts();
        return if needed_for_its_shift { expr } else { constant(value) };
    }
    match expr {
        Expr::Not(inner) => Expr::not(fold(*inner, shift_matters)),
        Expr::And(list) => Expr::and(fold_list(list, shift_matters, &Expr::True)),
        Expr::Or(list) => Expr::or(fold_list(list, shift_matters, &Expr::False)),
        Expr::True
        | Expr::False
        | Expr::Tag { .. }
        | Expr::TagIs { .. }
        | Expr::Slot(_)
        | Expr::Ingress { .. }
        | Expr::Primitive(Primitive::Any(_) | Primitive::Ether { .. }) => expr,
        Expr::Primitive(_) => {
            *shift_matters = true;
            expr
        }
    }
}

fn fold_list(list: Vec<Expr>, shift_matters: &mut bool, neutral: &Expr) -> Vec<Expr> {
    let mut kept = Vec::with_capacity(list.len());
    for e in list.into_iter().rev() {
        let e = fold(e, shift_matters);
        if e != *neutral {
            kept.push(e);
        }
    }
    kept.reverse();
    kept
}

/// The value that `expr` has for every packet, as far as its constants tell.
fn value(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::True => Some(true),
        Expr::False => Some(false),
        Expr::Primitive(_)
        | Expr::Tag { .. }
        | Expr::TagIs { .. }
        | Expr::Slot(_)
        | Expr::Ingress { .. } => None,
        Expr::Not(inner) => value(inner).map(|v| !v),
        Expr::And(list) => decide(list, false),
        Expr::Or(list) => decide(list, true),
    }
}

/// The value of a list that one operand of value `decisive` decides.
fn decide(list: &[Expr], decisive: bool) -> Option<bool> {
    let mut all_known = true;
    for e in list {
        match value(e) {
            Some(v) if v == decisive => return Some(decisive),
            Some(_) => {}
            None => all_known = false,
        }
    }
    all_known.then_some(!decisive)
}

fn constant(value: bool) -> Expr {
    if value { Expr::True } else { Expr::False }
}
