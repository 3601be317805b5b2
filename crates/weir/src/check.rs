//! `weir check`: a policy's errors, or its plan.

use crate::BAD_INPUT;
use crate::outside::OutsideArgs;
use crate::policy::{self, PolicyFailure};
use std::io::Write;
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
    /// Puts an NF into a trust domain, as `weir run` does.
    #[arg(long, value_name = "INSTANCE=NAME", value_parser = policy::parse_domain)]
    domain: Vec<(String, String)>,
    /// Prints the plan as a graph for Graphviz.
    #[arg(long)]
    dot: bool,
    /// Prints nothing when the policy is right.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    outside: OutsideArgs,
}

pub fn main(args: &CheckArgs) -> ExitCode {
    let isolate: Isolate = args.isolate.into();
    let planned = || -> Result<_, PolicyFailure> {
        let loaded = policy::load(&args.policy, &args.outside.catalog()?)?;
        let _ = write!(std::io::stderr(), "{}", loaded.warnings);
        policy::plan(&loaded.graph, &args.policy, isolate, None, &args.domain)
    };
    match planned() {
        Ok(plan) => {
            if args.dot {
                let _ = write!(std::io::stdout(), "{}", plan.to_dot());
            } else if !args.quiet {
                let _ = write!(std::io::stdout(), "{}", plan.to_text());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
