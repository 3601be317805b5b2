//! `weir schema KIND`: the JSON schema of a kind of document.

use std::process::ExitCode;
use weir_plan::service::{DocumentKind, schema};

/// Shows a JSON schema.
#[derive(clap::Args)]
pub struct SchemaArgs {
    /// The kind of document.
    #[arg(value_enum)]
    kind: KindArg,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum KindArg {
    /// A service request: a graph of VNFs.
    Request,
    /// A VNF template: a graph of µNFs.
    Template,
    /// A µNF descriptor in the µNF paper's form.
    Descriptor,
    /// An NF description in E2's form.
    Nf,
    /// A hardware description.
    Hardware,
}

pub fn main(args: &SchemaArgs) -> ExitCode {
    let kind = match args.kind {
        KindArg::Request => DocumentKind::Request,
        KindArg::Template => DocumentKind::Template,
        KindArg::Descriptor => DocumentKind::Descriptor,
        KindArg::Nf => DocumentKind::Nf,
        KindArg::Hardware => DocumentKind::Hardware,
    };
    let _ = crate::say::tell(&format!("{:#}\n", schema(kind).as_value()));
    ExitCode::SUCCESS
}
