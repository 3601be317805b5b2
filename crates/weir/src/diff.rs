//! `weir diff`: what leads from one plan to another.

use crate::BAD_INPUT;
use crate::planning::PlanningArgs;
use crate::policy::PolicyFailure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lists the actions that lead from the plan of one policy to that of another.
#[derive(clap::Args)]
pub struct DiffArgs {
    /// The policy that runs.
    old: PathBuf,
    /// The policy that shall run.
    new: PathBuf,
    /// The file of options that the old policy runs with, as `--options`, where it is another than the new one's.
    #[arg(long, value_name = "FILE")]
    old_options: Option<PathBuf>,
    /// Prints the actions as JSON, each with what was and what shall be.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub planning: PlanningArgs,
}

pub fn main(args: &DiffArgs) -> ExitCode {
    let actions = || -> Result<_, PolicyFailure> {
        let planned = |path, file: Option<&PathBuf>| {
            let planned = match file {
                Some(file) => args.planning.planned_under(path, false, Some(file))?,
                None => args.planning.planned(path, false)?,
            };
            for warning in planned.instances.warnings() {
                crate::complain!("weir: warning: {warning}");
            }
            Ok::<_, PolicyFailure>(planned.plan)
        };
        let (old, new) =
            (planned(&args.old, args.old_options.as_ref())?, planned(&args.new, None)?);
        Ok(weir_plan::diff(&old, &new))
    };
    match actions() {
        Ok(actions) => {
            let text = if args.json {
                serde_json::to_string_pretty(&actions).unwrap_or_default() + "\n"
            } else {
                actions.iter().map(|action| format!("{action}\n")).collect()
            };
            if actions.is_empty() && !args.json {
                crate::complain!(
                    "weir: the plans are equal; options on the command line are both sides', those of one side stand in --options and --old-options"
                );
            }
            // Nobody reads it: no failure.
            let _ = crate::say::tell(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
