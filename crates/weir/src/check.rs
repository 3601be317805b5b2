//! `weir check`: what is wrong with a policy, for people and for editors.

use crate::BAD_INPUT;
use crate::explain::PlanningArgs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks a policy, without running it.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The policy, or a service request (.json, .yaml).
    policy: PathBuf,
    /// Prints nothing when the policy is right, nor where filters surprise.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    pub planning: PlanningArgs,
}

pub fn main(args: &CheckArgs) -> ExitCode {
    let planned = if args.quiet {
        args.planning.plan(&args.policy)
    } else {
        args.planning.checked(&args.policy)
    };
    match planned {
        Ok(plan) => {
            if !args.quiet {
                // What the policy has, whatever of it was left out.
                let left_out = plan.tally.nodes.iter().filter(|nf| nf.left_out).count();
                let first = |id: &&weir_plan::NodeId| {
                    let of = plan.graph.node(**id).and_then(|node| node.instance.as_ref());
                    of.is_none_or(|of| of.index == 0)
                };
                let nfs = plan.graph.order().iter().filter(first).count() + left_out;
                let (edges, workers) = (plan.tally.edges.len(), plan.segments.len());
                let _ = writeln!(
                    std::io::stdout(),
                    "{}: right: {nfs} NFs, {edges} edges, {workers} workers",
                    args.policy.display()
                );
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
