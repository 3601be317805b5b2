//! JSON schemas of the documents.

use std::fmt::{self, Display, Formatter};

use schemars::{Schema, schema_for};

use crate::service::{
    DescriptorDocument, HardwareDocument, NfDocument, RequestDocument, TemplateDocument,
};

/// A kind of document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// A service request.
    Request,
    /// A VNF template.
    Template,
    /// A µNF descriptor in the paper's form.
    Descriptor,
    /// An NF description in E2's form.
    Nf,
    /// A hardware description.
    Hardware,
}

impl DocumentKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Request, Self::Template, Self::Descriptor, Self::Nf, Self::Hardware];
}

impl Display for DocumentKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Template => "template",
            Self::Descriptor => "descriptor",
            Self::Nf => "nf",
            Self::Hardware => "hardware",
        })
    }
}

/// The JSON schema (draft 2020-12) of a kind of document.
#[must_use]
pub fn schema(kind: DocumentKind) -> Schema {
    match kind {
        DocumentKind::Request => schema_for!(RequestDocument),
        DocumentKind::Template => schema_for!(TemplateDocument),
        DocumentKind::Descriptor => schema_for!(DescriptorDocument),
        DocumentKind::Nf => schema_for!(NfDocument),
        DocumentKind::Hardware => schema_for!(HardwareDocument),
    }
}
