//! `weir nf list` and `weir nf show NAME`.

use crate::BAD_INPUT;
use crate::known::{DocumentArgs, Known};
use crate::outside::OutsideArgs;
use std::fmt::Arguments;
use std::process::ExitCode;
use weir_plan::Catalog;

/// Lists NF types, or shows one.
#[derive(clap::Args)]
pub struct NfArgs {
    #[command(subcommand)]
    command: NfCommand,
}

#[derive(clap::Subcommand)]
enum NfCommand {
    /// Names all NF types with what they do.
    List {
        #[command(flatten)]
        documents: DocumentArgs,
        #[command(flatten)]
        outside: OutsideArgs,
    },
    /// Shows one NF type (description and JSON schema of its configuration) or VNF template, as JSON.
    Show {
        /// Name of the type.
        name: String,
        #[command(flatten)]
        documents: DocumentArgs,
        #[command(flatten)]
        outside: OutsideArgs,
    },
}

impl NfArgs {
    /// The outside programs to be asked.
    pub fn outside(&self) -> &OutsideArgs {
        let (NfCommand::List { outside, .. } | NfCommand::Show { outside, .. }) = &self.command;
        outside
    }

    fn documents(&self) -> &DocumentArgs {
        let (NfCommand::List { documents, .. } | NfCommand::Show { documents, .. }) = &self.command;
        documents
    }
}

/// What a µNF says of itself; of flows only where it remembers any. Where its affinity depends on its configuration: on which of its
/// fields, and which it has without any of them.
fn description(nf: &weir_nf::Registration) -> serde_json::Value {
    let mut said = serde_json::json!(nf.descriptor);
    if let Some(said) = said.as_object_mut().filter(|_| !nf.affinity_by.is_empty()) {
        said.insert("affinity_depends_on".to_owned(), serde_json::json!(nf.affinity_by));
        let without = nf.affinity(&serde_json::json!({}));
        said.insert("affinity_without".to_owned(), serde_json::json!(without));
    }
    if let Some(said) = said.as_object_mut().filter(|_| !nf.follows) {
        for about_flows in ["flows", "flow_idle_ns", "when_full", "tcp_idle"] {
            said.remove(about_flows);
        }
    }
    said
}

/// A line of the answer.
fn line(text: Arguments<'_>) {
    // Nobody reads it: no failure.
    let _ = crate::say::tell(&format!("{text}\n"));
}

pub fn main(args: &NfArgs) -> ExitCode {
    let known = match Known::load(args.outside(), args.documents()) {
        Ok(known) => known,
        Err(e) => {
            crate::complain!("{e}");
            return ExitCode::from(BAD_INPUT);
        }
    };
    match &args.command {
        NfCommand::List { .. } => {
            for r in weir_nf::registrations() {
                let (name, summary) = (r.descriptor.name, r.descriptor.summary);
                // A policy that writes the name gets the template.
                let what = match known.template(name) {
                    Some(_) => " (the µNF that the template of this name uses)",
                    None => "",
                };
                line(format_args!("{name:<20} {summary}{what}"));
            }
            for (path, nf) in known.programs.outside() {
                line(format_args!("{:<20} {} ({})", nf.name, nf.summary, path.display()));
            }
            for described in known.all_described() {
                line(format_args!("{:<20} (described; no code)", described.info.name));
            }
            for template in known.all_templates() {
                let about = &template.document().about;
                line(format_args!("{:<20} {about} (VNF template)", template.name()));
            }
            ExitCode::SUCCESS
        }
        NfCommand::Show { name, .. } => {
            if let Some(template) = known.template(name) {
                let document = template.document();
                let mut shown = serde_json::json!({
                    "description": { "name": template.name(), "summary": document.about },
                    "config": template.parameters_schema(),
                    "template": document,
                });
                // A µNF of the same name, which templates use.
                if let Ok(r) = weir_nf::find(name)
                    && let Some(shown) = shown.as_object_mut()
                {
                    let nf = serde_json::json!({
                        "description": description(r),
                        "config": r.schema(),
                    });
                    shown.insert("nf".to_owned(), nf);
                }
                line(format_args!("{shown:#}"));
                return ExitCode::SUCCESS;
            }
            if let Some(described) = known.all_described().find(|one| one.info.name == *name) {
                let shown = serde_json::json!({ "description": described.info });
                line(format_args!("{shown:#}"));
                return ExitCode::SUCCESS;
            }
            let outside = known.programs.outside().find(|(_, nf)| nf.name == *name);
            let shown = match outside {
                Some((path, nf)) => Ok(serde_json::json!({
                    "description": nf.descriptor,
                    "config": nf.schema,
                    "program": path,
                })),
                None => weir_nf::find(name).map(
                    |r| serde_json::json!({ "description": description(r), "config": r.schema() }),
                ),
            };
            match shown {
                Ok(shown) => {
                    line(format_args!("{shown:#}"));
                    ExitCode::SUCCESS
                }
                Err(e) => {
                    let near = known.nearest(name);
                    let near =
                        near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                    let known_near = !near.is_empty();
                    crate::complain!("weir: {e}{near}");
                    if args.outside().with.is_empty() && !known_near {
                        crate::complain!("weir: {}", crate::policy::OUTSIDE);
                    }
                    ExitCode::from(BAD_INPUT)
                }
            }
        }
    }
}
