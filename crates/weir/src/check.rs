//! `weir check`: a policy's errors, or its plan.

use crate::{BAD_INPUT, policy};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_plan::Isolate;

/// Checks a policy and shows the plan.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The policy.
    policy: PathBuf,
    /// Which NFs get a worker process of their own.
    #[arg(long, value_enum, default_value = "each")]
    isolate: crate::run::IsolateArg,
    /// Prints the plan as a graph for Graphviz.
    #[arg(long)]
    dot: bool,
    /// Prints nothing when the policy is right.
    #[arg(long, short)]
    quiet: bool,
}

pub fn main(args: &CheckArgs) -> ExitCode {
    let isolate: Isolate = args.isolate.into();
    let planned = policy::load(&args.policy).and_then(|loaded| {
        eprint!("{}", loaded.warnings);
        policy::plan(&loaded.graph, &args.policy, isolate, None)
    });
    match planned {
        Ok(plan) => {
            if args.dot {
                print!("{}", plan.to_dot());
            } else if !args.quiet {
                print!("{}", plan.to_text());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
