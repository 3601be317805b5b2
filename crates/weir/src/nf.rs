//! `weir nf list` and `weir nf show NAME`.

use crate::BAD_INPUT;
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
    List,
    /// Shows one NF type: description and JSON schema of its configuration, as JSON.
    Show {
        /// Name of the type.
        name: String,
    },
}

pub fn main(args: &NfArgs) -> ExitCode {
    match &args.command {
        NfCommand::List => {
            for r in weir_nf::registrations() {
                let _ = writeln!(
                    std::io::stdout(),
                    "{:<16} {}",
                    r.descriptor.name,
                    r.descriptor.summary
                );
            }
            ExitCode::SUCCESS
        }
        NfCommand::Show { name } => match weir_nf::find(name) {
            Ok(r) => {
                let shown = serde_json::json!({
                    "description": r.descriptor,
                    "config": r.schema(),
                });
                let _ = writeln!(std::io::stdout(), "{shown:#}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                crate::complain!("weir: {e}");
                ExitCode::from(BAD_INPUT)
            }
        },
    }
}
