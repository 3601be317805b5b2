//! Reading a policy and planning it, with errors for the operator.

use std::io::Read;
use std::path::{Path, PathBuf};
use weir_control::library::Library;
use weir_plan::{Graph, Isolate, Options, Plan, PlanError};

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFailure {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a policy; the text has file, line, column, the line itself and the cure.
    #[error("{0}")]
    Policy(String),
    /// It cannot be planned.
    #[error("{}: {source}", path.display())]
    Plan {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PlanError,
    },
}

/// A checked policy and what is odd about it.
pub struct Loaded {
    pub graph: Graph,
    pub warnings: String,
}

/// Reads and checks a policy.
pub fn load(path: &Path) -> Result<Loaded, PolicyFailure> {
    let read = |source| PolicyFailure::Read { path: path.to_owned(), source };
    // One more byte than a policy may have: what is longer is refused by its length, not read.
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(read)?;
    file.take(weir_plan::MAX_TEXT as u64 + 1).read_to_string(&mut text).map_err(read)?;
    from_text(&text, &path.display().to_string())
}

/// Checks a policy's text.
pub fn from_text(text: &str, file: &str) -> Result<Loaded, PolicyFailure> {
    let checked = weir_plan::check(text, &Library)
        .map_err(|errors| PolicyFailure::Policy(weir_plan::render(&errors, file, text)))?;
    let warnings = weir_plan::render_warnings(&checked.warnings, file, text);
    Ok(Loaded { graph: checked.graph, warnings })
}

/// Plans a graph for this machine.
pub fn plan(
    graph: &Graph,
    path: &Path,
    isolate: Isolate,
    cores: Option<Vec<usize>>,
) -> Result<Plan, PolicyFailure> {
    let online = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Plan::build(graph, &Options { isolate, cores, online })
        .map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}
