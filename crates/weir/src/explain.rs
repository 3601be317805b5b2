//! `weir explain`: what becomes of a policy, stage by stage.

use crate::planning::{PlanArgs, Planned, PlanningArgs};
use crate::policy::{self, PolicyFailure};
use crate::run::parse_bind;
use crate::{BAD_INPUT, FAILED, say, topology};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_device::DeviceSpec;
use weir_plan::Plan;

/// A stage of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// The pipelets as they are written.
    Policy,
    /// All pipelets in one graph, one node per NF; VNFs are NFs.
    Merged,
    /// That graph with VNFs replaced by their µNFs.
    Units,
    /// That graph without work that is done already, and what was done to it.
    Consolidated,
    /// Which µNFs may work on a packet at the same time, and why others may not.
    Parallel,
    /// How many instances the expected traffic needs, and how packets are divided over them.
    Instances,
    /// Workers, cores, rings.
    Plan,
}

/// How a stage is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for a terminal.
    Text,
    /// The language of Graphviz.
    Dot,
    /// A picture for a browser.
    Svg,
    /// For programs.
    Json,
}

/// Shows what becomes of a policy.
#[derive(clap::Args)]
pub struct ExplainArgs {
    /// The policy, or a service request (.json, .yaml).
    policy: PathBuf,
    /// Which stage of planning.
    #[arg(long, value_enum, default_value = "plan")]
    stage: Stage,
    /// How it is shown.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Writes to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What a port will be bound to, as for `weir run`: where the machine has several NUMA nodes, services are near their NICs
    /// (repeatable).
    #[arg(long, value_name = "PORT=DEVICE", value_parser = parse_bind)]
    bind: Vec<(u16, DeviceSpec)>,
    #[command(flatten)]
    pub planning: PlanningArgs,
}

/// Why a stage is not shown.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error("{0}")]
    Policy(#[from] PolicyFailure),
    #[error("weir explain: {0}")]
    Draw(#[from] weir_draw::DrawError),
    #[error("weir explain: {0}")]
    Json(#[from] serde_json::Error),
    #[error("weir explain: {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

pub fn main(args: &ExplainArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            crate::complain!("{e}");
            let failed = matches!(e, ExplainError::Write { .. } | ExplainError::Json(_));
            ExitCode::from(if failed { FAILED } else { BAD_INPUT })
        }
    }
}

fn run(args: &ExplainArgs) -> Result<(), ExplainError> {
    let text = show(args)?;
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|source| ExplainError::Write { path: path.clone(), source }),
        // Nobody reads it: no failure.
        None => {
            let _ = say::tell(&text);
            Ok(())
        }
    }
}

fn show(args: &ExplainArgs) -> Result<String, ExplainError> {
    let file = args.policy.file_name().unwrap_or_default().to_string_lossy();
    let title = |stage: &str| format!("{file}: {stage}");
    if args.stage == Stage::Policy {
        // Checked as a whole first: what is drawn is what would run.
        let written = policy::written(&args.policy, &args.planning.known()?)?;
        let diagram = || written.to_diagram(&title("pipelets as written"));
        return match args.format {
            Format::Text => Ok(written.to_string()),
            Format::Dot => Ok(diagram().to_dot()),
            Format::Svg => Ok(diagram().to_svg()?),
            Format::Json => Ok(lines(&written.to_json())?),
        };
    }
    let nics = topology::nics(&args.bind);
    let planned = args.planning.planned_near(&args.policy, false, nics, PlanArgs::default())?;
    let Planned { loaded, options, consolidate, instances, plan: runs, .. } = &planned;
    // Of one instance of each NF.
    let plan = policy::plan_with(&loaded.graph, &args.policy, options, *consolidate)?;
    let parallel = weir_plan::parallelise(&plan.graph, options, policy::which(planned.parallel));
    Ok(match args.format {
        Format::Text => match args.stage {
            Stage::Policy | Stage::Merged => loaded.written.to_text(),
            Stage::Units => loaded.graph.to_text(),
            Stage::Consolidated => plan.graph.to_text() + &plan.changes_to_text(),
            Stage::Parallel => match parallel.to_text(&plan.graph) {
                none if none.is_empty() => "no NF follows another\n".to_owned(),
                text => text,
            },
            Stage::Instances => instances.to_text(),
            Stage::Plan => runs.to_text() + &runs.in_sequence_to_text(),
        },
        Format::Dot | Format::Svg => {
            let diagram = match args.stage {
                Stage::Policy | Stage::Merged => {
                    loaded.written.to_diagram(&title("merged policy graph"))
                }
                Stage::Units => loaded.graph.to_diagram(&title("µNFs")),
                Stage::Consolidated => {
                    plan.consolidation_diagram(&loaded.graph, &title("consolidated policy graph"))
                }
                Stage::Parallel => parallel.to_diagram(&plan.graph, &title("parallel stages")),
                Stage::Instances => instances.to_diagram(&plan.graph, &title("instance graph")),
                Stage::Plan => runs.to_diagram(&title("plan")),
            };
            if args.format == Format::Dot { diagram.to_dot() } else { diagram.to_svg()? }
        }
        Format::Json => match args.stage {
            Stage::Policy | Stage::Merged => lines(&loaded.written)?,
            Stage::Units => lines(&loaded.graph)?,
            Stage::Consolidated => {
                let Plan { graph, merged, changes, .. } = &plan;
                lines(&serde_json::json!({ "graph": graph, "merged": merged, "changes": changes }))?
            }
            Stage::Parallel => {
                lines(&serde_json::json!({ "graph": plan.graph, "parallel": parallel }))?
            }
            Stage::Instances => {
                lines(&serde_json::json!({ "graph": plan.graph, "instances": instances }))?
            }
            Stage::Plan => lines(runs)?,
        },
    })
}

fn lines<T: serde::Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
