//! `weir check`: what is wrong with a policy, for people and for editors.

use crate::BAD_INPUT;
use crate::planning::{Planned, PlanningArgs};
use crate::policy::{self, PolicyFailure};
use crate::{say, scaling};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_control::devices::Captures;
use weir_control::wiring::{self, RunOptions};
use weir_device::DeviceSpec;
use weir_plan::{NodeId, SegmentKind};

/// Checks a policy, without running it.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The policy, or a service request (.json, .yaml).
    policy: PathBuf,
    /// Does not say that the policy is right, nor where filters surprise; notes and warnings remain.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    pub planning: PlanningArgs,
}

pub fn main(args: &CheckArgs) -> ExitCode {
    match check(args) {
        Ok(right) => {
            if !args.quiet {
                let _ = say::tell(&right);
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// What is said of a policy that is right: `weir run` takes it, or would if all its NFs had code.
fn check(args: &CheckArgs) -> Result<String, PolicyFailure> {
    let planned = args.planning.planned(&args.policy, args.quiet)?;
    if !args.quiet {
        say::warn(&planned.loaded.surprises);
    }
    for warning in planned.instances.warnings() {
        crate::complain!("weir: warning: {warning}");
    }
    let described = planned.without_code();
    if described.is_empty() {
        policy::runs(&planned.loaded.graph, &args.policy)?;
        wired(&planned, &args.policy)?;
    }
    let plan = &planned.plan;
    // What the policy has, whatever of it was left out.
    let left_out = plan.tally.nodes.iter().filter(|nf| nf.left_out).count();
    let first = |id: &&NodeId| {
        let of = plan.graph.node(**id).and_then(|node| node.instance.as_ref());
        of.is_none_or(|of| of.index == 0)
    };
    let nfs = plan.graph.order().iter().filter(first).count() + left_out;
    let (edges, workers) = (plan.tally.edges.len(), plan.segments.len());
    let file = args.policy.display();
    let mut right = format!("{file}: right: {nfs} NFs, {edges} edges, {workers} workers\n");
    if !described.is_empty() {
        right += &format!(
            "{file}: to be shown, not run: of {} there is a description, but no code\n",
            described.join(", ")
        );
    }
    Ok(right)
}

/// Warns of a policy that could not run with a device at each of its ports. With fewer it may.
fn wired(planned: &Planned, path: &Path) -> Result<(), PolicyFailure> {
    let ports = planned.plan.segments.iter().filter_map(|segment| match segment.kind {
        SegmentKind::Rx { port, .. } | SegmentKind::Tx { port } => Some(port),
        SegmentKind::Nf | SegmentKind::Gate { .. } => None,
    });
    let device = |port| (port, DeviceSpec::Tap(format!("p{port}")));
    let binds: BTreeMap<u16, DeviceSpec> = ports.map(device).collect();
    let (programs, scale) = (planned.known.programs.paths(), scaling::scaled(&planned.told.scale)?);
    let options = RunOptions { programs, scale, ..RunOptions::default() };
    if let Err(why) = wiring::wire(&planned.plan, &binds, &Captures::new(), &options) {
        let file = path.display();
        crate::complain!("{file}: warning: with a device at each port it cannot run: {why}");
    }
    Ok(())
}
