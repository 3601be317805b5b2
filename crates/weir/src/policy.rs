//! Reading a policy and planning it, with errors for the operator.

use std::io::Read;
use std::path::{Path, PathBuf};
use weir_control::library::Library;
use weir_control::outside::OutsideError;
use weir_plan::{Catalog, Graph, Isolate, Options, Plan, PlanError, Policy};

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
    /// An outside program is not taken.
    #[error("weir: {0}")]
    Outside(#[from] OutsideError),
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
pub fn load(path: &Path, catalog: &dyn Catalog) -> Result<Loaded, PolicyFailure> {
    check(&read(path)?, &path.display().to_string(), catalog)
}

/// A policy as it is written. It is checked all the same.
pub fn written(path: &Path, catalog: &dyn Catalog) -> Result<Policy, PolicyFailure> {
    let text = read(path)?;
    check(&text, &path.display().to_string(), catalog)?;
    Ok(weir_plan::parse(&text).0)
}

fn read(path: &Path) -> Result<String, PolicyFailure> {
    let read = |source| PolicyFailure::Read { path: path.to_owned(), source };
    // One more byte than a policy may have: what is longer is refused by its length, not read.
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(read)?;
    file.take(weir_plan::MAX_TEXT as u64 + 1).read_to_string(&mut text).map_err(read)?;
    Ok(text)
}

/// Checks a policy's text, which has library µNFs only.
pub fn from_text(text: &str, file: &str) -> Result<Loaded, PolicyFailure> {
    check(text, file, &Library)
}

fn check(text: &str, file: &str, catalog: &dyn Catalog) -> Result<Loaded, PolicyFailure> {
    let checked = weir_plan::check(text, catalog)
        .map_err(|errors| PolicyFailure::Policy(weir_plan::render(&errors, file, text)))?;
    let warnings = weir_plan::render_warnings(&checked.warnings, file, text);
    Ok(Loaded { graph: checked.graph, warnings })
}

/// Understands `INSTANCE=NAME`, as `--domain` is given.
pub fn parse_domain(text: &str) -> Result<(String, String), String> {
    let (instance, name) = text.split_once('=').ok_or("write INSTANCE=NAME, such as vpn=guest")?;
    let right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name.chars().all(right) {
        true => Ok((instance.to_owned(), name.to_owned())),
        false => Err(format!("`{name}`: a domain's name is of letters, digits, `-`, `_` and `.`")),
    }
}

/// Plans a graph for this machine.
pub fn plan(
    graph: &Graph,
    path: &Path,
    isolate: Isolate,
    cores: Option<Vec<usize>>,
    domains: &[(String, String)],
) -> Result<Plan, PolicyFailure> {
    let online = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let domains = domains.iter().cloned().collect();
    Plan::build(graph, &Options { isolate, cores, online, domains })
        .map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}
