//! Conditions over fields: what primitives come down to.

use std::collections::HashMap;

use crate::field::Field;

/// A place in [`Fields`].
pub(crate) type FieldId = u32;

/// All fields that a filter looks at, in the order in which it first does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) list: Vec<Field>,
    known: HashMap<Field, FieldId>,
}

impl Fields {
    pub(crate) fn id(&mut self, field: Field) -> FieldId {
        if let Some(id) = self.known.get(&field) {
            return *id;
        }
        let id = FieldId::try_from(self.list.len()).unwrap_or(FieldId::MAX);
        self.list.push(field.clone());
        self.known.insert(field, id);
        id
    }
}

/// Has three values: true, false, and *missing* when a field is that it asks for. Operands are asked
/// from left to right and only until the result is known, as libpcap does.
#[derive(Clone, Debug)]
pub(crate) enum Cond {
    Const(bool),
    /// The field is in one of these ranges, which are in order and apart.
    In(FieldId, Vec<(u32, u32)>),
    Not(Box<Cond>),
    All(Vec<Cond>),
    Any(Vec<Cond>),
    /// A whole term: when something is missing in it, it is false.
    Term(Box<Cond>),
}

impl Cond {
    pub(crate) fn not(inner: Cond) -> Cond {
        Cond::Not(Box::new(inner))
    }
}
