//! `weir explain`: what becomes of a policy, stage by stage.

use crate::cores::{self, Cores};
use crate::known::{self, DocumentArgs, Known};
use crate::outside::OutsideArgs;
use crate::policy::{self, Consolidate, Loaded, PolicyFailure};
use crate::{BAD_INPUT, FAILED};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_plan::{Asked, Instances, Isolate, Parallel, Plan, Sizing};

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
    #[command(flatten)]
    pub planning: PlanningArgs,
}

/// What a plan depends on besides the policy; as for `weir run`.
#[derive(clap::Args)]
pub struct PlanningArgs {
    /// Which NFs get a worker process of their own.
    /// Each, unless a request's objective says otherwise.
    #[arg(long, value_enum)]
    isolate: Option<crate::run::IsolateArg>,
    /// Whether NFs are left out whose answer an equal one before them has, and equal ones on different
    /// ways share a worker.
    #[arg(long, value_enum, default_value = "on")]
    consolidate: Consolidate,
    /// Cores to use, such as 0,1 or 0-3: the first for devices, the others for NFs.
    #[arg(long, value_parser = cores::parse)]
    cores: Option<Cores>,
    /// Puts an NF into a trust domain.
    #[arg(long, value_name = "INSTANCE=NAME", value_parser = policy::parse_domain)]
    domain: Vec<(String, String)>,
    /// Runs so many instances of an NF, NF=2:1 two of these weights.
    #[arg(long, value_name = "NF=NUMBER", value_parser = policy::parse_instances)]
    instances: Vec<(String, Asked)>,
    /// The hardware (JSON or YAML) that a request's objective is to be met on; without it this machine.
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    #[command(flatten)]
    documents: DocumentArgs,
    #[command(flatten)]
    pub outside: OutsideArgs,
}

/// A policy's stages of planning.
struct Planned {
    loaded: Loaded,
    /// One instance of each NF.
    plan: Plan,
    parallel: Parallel,
    instances: Instances,
    /// What runs: with all instances.
    runs: Plan,
}

impl PlanningArgs {
    /// The plan of a policy, whose warnings go to standard error.
    pub fn plan(&self, path: &Path) -> Result<Plan, PolicyFailure> {
        self.plan_with(path, false)
    }

    /// The same, with a word on where the policy's filters surprise.
    pub fn checked(&self, path: &Path) -> Result<Plan, PolicyFailure> {
        self.plan_with(path, true)
    }

    fn plan_with(&self, path: &Path, surprises: bool) -> Result<Plan, PolicyFailure> {
        let planned = self.planned(path)?;
        if surprises {
            let _ = write!(std::io::stderr(), "{}", planned.loaded.surprises);
        }
        for warning in planned.instances.warnings() {
            crate::complain!("weir: warning: {warning}");
        }
        Ok(planned.runs)
    }

    fn planned(&self, path: &Path) -> Result<Planned, PolicyFailure> {
        let known = Known::load(&self.outside, &self.documents)?;
        let loaded = policy::load(path, &known, self.outside.with.is_empty())?;
        let _ = write!(std::io::stderr(), "{}", loaded.warnings);
        let given = self.isolate.map(Isolate::from);
        let hardware = self.hardware.as_deref();
        let cores = self.cores.as_ref().map(|cores| cores.0.clone());
        let (isolate, chosen) =
            policy::isolation(&loaded, path, given, hardware, cores.as_deref())?;
        if let Some(chosen) = chosen {
            crate::complain!("weir: {chosen}");
        }
        let server = known::server(hardware, cores.as_deref())?;
        let options = policy::options(isolate, cores, &self.domain)?;
        let plan = policy::plan_with(&loaded.graph, path, &options, self.consolidate)?;
        let parallel = weir_plan::parallelise(&plan.graph, &options);
        let (asked, objective) = (policy::asked(&self.instances)?, loaded.objective.as_ref());
        let sizing = Sizing { server: &server, objective, asked: &asked };
        let (runs, instances) =
            policy::plan_sized(&loaded.graph, path, &options, self.consolidate, sizing)?;
        Ok(Planned { loaded, plan, parallel, instances, runs })
    }
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
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}

fn show(args: &ExplainArgs) -> Result<String, ExplainError> {
    let file = args.policy.file_name().unwrap_or_default().to_string_lossy();
    let title = |stage: &str| format!("{file}: {stage}");
    if args.stage == Stage::Policy {
        // Checked as a whole first: what is drawn is what would run.
        let known = Known::load(&args.planning.outside, &args.planning.documents)?;
        let written = policy::written(&args.policy, &known)?;
        let diagram = || written.to_diagram(&title("pipelets as written"));
        return match args.format {
            Format::Text => Ok(written.to_string()),
            Format::Dot => Ok(diagram().to_dot()),
            Format::Svg => Ok(diagram().to_svg()?),
            Format::Json => Ok(lines(&written.to_json())?),
        };
    }
    let Planned { loaded, plan, parallel, instances, runs } =
        args.planning.planned(&args.policy)?;
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
            Stage::Plan => runs.to_text() + &parallel.to_text(&plan.graph),
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
            Stage::Plan => lines(&runs)?,
        },
    })
}

fn lines<T: serde::Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
