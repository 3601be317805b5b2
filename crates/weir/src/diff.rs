//! `weir diff`: what leads from one plan to another.

use crate::BAD_INPUT;
use crate::explain::PlanningArgs;
use crate::policy::PolicyFailure;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lists the actions that lead from the plan of one policy to that of another.
#[derive(clap::Args)]
pub struct DiffArgs {
    /// The policy that runs.
    old: PathBuf,
    /// The policy that shall run.
    new: PathBuf,
    /// Prints the actions as JSON, each with what was and what shall be.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub planning: PlanningArgs,
}

pub fn main(args: &DiffArgs) -> ExitCode {
    let actions = || -> Result<_, PolicyFailure> {
        let (old, new) = (args.planning.plan(&args.old)?, args.planning.plan(&args.new)?);
        Ok(weir_plan::diff(&old, &new))
    };
    match actions() {
        Ok(actions) => {
            let mut out = std::io::stdout().lock();
            if args.json {
                let _ = serde_json::to_writer_pretty(&mut out, &actions);
                let _ = writeln!(out);
            } else {
                for action in actions {
                    let _ = writeln!(out, "{action}");
                }
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
