//! `weir explain`: what becomes of a policy, stage by stage.

use crate::known::{DocumentArgs, Known};
use crate::outside::OutsideArgs;
use crate::policy::{self, Consolidate, PolicyFailure};
use crate::{BAD_INPUT, FAILED};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_plan::{Isolate, Plan};

/// A stage of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// The pipelets as they are written.
    Policy,
    /// All pipelets in one graph, one node per NF.
    Merged,
    /// That graph without work that is done already, and what was done to it.
    Consolidated,
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
    /// Cores to use: the first for devices, the others for NFs.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    cores: Option<Vec<usize>>,
    /// Puts an NF into a trust domain.
    #[arg(long, value_name = "INSTANCE=NAME", value_parser = policy::parse_domain)]
    domain: Vec<(String, String)>,
    /// The hardware (JSON or YAML) that a request's objective is to be met on; without it this machine.
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    #[command(flatten)]
    documents: DocumentArgs,
    #[command(flatten)]
    pub outside: OutsideArgs,
}

impl PlanningArgs {
    /// The plan of a policy, whose warnings go to standard error.
    pub fn plan(&self, path: &Path) -> Result<Plan, PolicyFailure> {
        self.planned(path, self.consolidate, false)
    }

    /// The same, with a word on where the policy's filters surprise.
    pub fn checked(&self, path: &Path) -> Result<Plan, PolicyFailure> {
        self.planned(path, self.consolidate, true)
    }

    fn planned(
        &self,
        path: &Path,
        consolidate: Consolidate,
        surprises: bool,
    ) -> Result<Plan, PolicyFailure> {
        let known = Known::load(&self.outside, &self.documents)?;
        let loaded = policy::load(path, &known, self.outside.with.is_empty())?;
        let _ = write!(std::io::stderr(), "{}", loaded.warnings);
        if surprises {
            let _ = write!(std::io::stderr(), "{}", loaded.surprises);
        }
        let given = self.isolate.map(Isolate::from);
        let hardware = self.hardware.as_deref();
        let cores = self.cores.as_deref();
        let (isolate, chosen) = policy::isolation(&loaded, path, given, hardware, cores)?;
        if let Some(chosen) = chosen {
            crate::complain!("weir: {chosen}");
        }
        let cores = self.cores.clone();
        policy::plan(&loaded.graph, path, isolate, cores, &self.domain, consolidate)
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
    #[error("weir explain: the stage `policy` has no {0}; ask for text or svg")]
    NotAsWritten(&'static str),
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
        return match args.format {
            Format::Text => Ok(written.to_string()),
            Format::Svg => Ok(written.to_diagram(&title("pipelets as written")).to_svg()?),
            Format::Dot => Err(ExplainError::NotAsWritten("DOT")),
            Format::Json => Err(ExplainError::NotAsWritten("JSON")),
        };
    }
    let (consolidate, heading) = match args.stage {
        Stage::Merged => (Consolidate::Off, "merged policy graph"),
        _ => (args.planning.consolidate, "consolidated policy graph"),
    };
    let plan = args.planning.planned(&args.policy, consolidate, false)?;
    let graph = &plan.graph;
    Ok(match (args.format, args.stage) {
        (Format::Text, Stage::Plan) => plan.to_text(),
        (Format::Text, _) => graph.to_text() + &plan.changes_to_text(),
        (Format::Dot, Stage::Plan) => plan.to_dot(),
        (Format::Dot, _) => graph.to_dot(),
        (Format::Svg, Stage::Plan) => plan.to_diagram(&title("plan")).to_svg()?,
        (Format::Svg, _) => graph.to_diagram(&title(heading)).to_svg()?,
        (Format::Json, Stage::Plan) => lines(&plan)?,
        (Format::Json, _) => lines(graph)?,
    })
}

fn lines<T: serde::Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
