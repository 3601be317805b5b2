//! `weir nf list` and `weir nf show NAME`.

use crate::BAD_INPUT;
use crate::outside::OutsideArgs;
use std::io::Write;
use std::process::ExitCode;

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
        outside: OutsideArgs,
    },
    /// Shows one NF type: description and JSON schema of its configuration, as JSON.
    Show {
        /// Name of the type.
        name: String,
        #[command(flatten)]
        outside: OutsideArgs,
    },
}

impl NfArgs {
    /// The outside programs to be asked.
    pub fn outside(&self) -> &OutsideArgs {
        let (NfCommand::List { outside } | NfCommand::Show { outside, .. }) = &self.command;
        outside
    }
}

pub fn main(args: &NfArgs) -> ExitCode {
    let catalog = match args.outside().catalog() {
        Ok(catalog) => catalog,
        Err(e) => {
            crate::complain!("weir: {e}");
            return ExitCode::from(BAD_INPUT);
        }
    };
    let mut out = std::io::stdout();
    match &args.command {
        NfCommand::List { .. } => {
            for r in weir_nf::registrations() {
                let _ = writeln!(out, "{:<20} {}", r.descriptor.name, r.descriptor.summary);
            }
            for (path, nf) in catalog.outside() {
                let _ = writeln!(out, "{:<20} {} ({})", nf.name, nf.summary, path.display());
            }
            ExitCode::SUCCESS
        }
        NfCommand::Show { name, .. } => {
            let outside = catalog.outside().find(|(_, nf)| nf.name == *name);
            let shown = match outside {
                Some((path, nf)) => Ok(serde_json::json!({
                    "description": nf.descriptor,
                    "config": nf.schema,
                    "program": path,
                })),
                None => weir_nf::find(name).map(
                    |r| serde_json::json!({ "description": r.descriptor, "config": r.schema() }),
                ),
            };
            match shown {
                Ok(shown) => {
                    let _ = writeln!(out, "{shown:#}");
                    ExitCode::SUCCESS
                }
                Err(e) => {
                    crate::complain!("weir: {e}");
                    if args.outside().with.is_empty() {
                        crate::complain!("weir: {}", crate::policy::OUTSIDE);
                    }
                    ExitCode::from(BAD_INPUT)
                }
            }
        }
    }
}
