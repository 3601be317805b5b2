//! Reading a policy and planning it, with errors for the operator.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use weir_control::library::Library;
use weir_control::outside::OutsideError;
use weir_plan::{Catalog, Graph, Isolate, Options, Plan, PlanError, Policy, Why};

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
    /// An NF is given two trust domains.
    #[error("weir: --domain {0}=...: {0} is given a domain twice; give it one")]
    DomainTwice(String),
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

/// Reads and checks a policy. `only_library`: no outside program was given.
pub fn load(
    path: &Path,
    catalog: &dyn Catalog,
    only_library: bool,
) -> Result<Loaded, PolicyFailure> {
    check(&read(path)?, &path.display().to_string(), catalog, only_library)
}

/// A policy as it is written. It is checked all the same.
pub fn written(path: &Path, catalog: &dyn Catalog) -> Result<Policy, PolicyFailure> {
    let text = read(path)?;
    check(&text, &path.display().to_string(), catalog, false)?;
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
    check(text, file, &Library, false)
}

fn check(
    text: &str,
    file: &str,
    catalog: &dyn Catalog,
    only_library: bool,
) -> Result<Loaded, PolicyFailure> {
    let checked = weir_plan::check(text, catalog).map_err(|errors| {
        let mut said = weir_plan::render(&errors, file, text);
        if only_library && errors.iter().any(|e| matches!(e.why, Why::UnknownType { .. })) {
            said += &format!("weir: {OUTSIDE}\n");
        }
        PolicyFailure::Policy(said)
    })?;
    let warnings = weir_plan::render_warnings(&checked.warnings, file, text);
    Ok(Loaded { graph: checked.graph, warnings })
}

/// What to do about an NF that is not there when no outside program was given.
pub const OUTSIDE: &str = "an NF that a program of your own brings needs --with PROGRAM";

/// Characters of a domain's name at most: it becomes part of file names and of names of memory.
const LONGEST_NAME: usize = 32;

/// Understands `INSTANCE=NAME`, as `--domain` is given. An empty name is the graph's own domain.
pub fn parse_domain(text: &str) -> Result<(String, String), String> {
    let (instance, name) = text.split_once('=').ok_or("write INSTANCE=NAME, such as vpn=guest")?;
    if instance.is_empty() {
        return Err(format!("`{text}` names no NF: write INSTANCE=NAME, such as vpn={name}"));
    }
    let right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.chars().all(right) || name.starts_with(['-', '.']) {
        return Err(format!(
            "`{name}`: a domain's name is of letters, digits, `-`, `_` and `.`, and begins with neither \
             `-` nor `.`: write one such as {instance}=guest"
        ));
    }
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "a domain's name has at most {LONGEST_NAME} characters, this one {}: write a shorter one",
            name.len()
        ));
    }
    Ok((instance.to_owned(), name.to_owned()))
}

/// Whether work that is done already is done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Consolidate {
    /// It is not, and equal NFs share a worker.
    On,
    /// Every NF does all that the policy says.
    Off,
}

/// Plans a graph for this machine.
pub fn plan(
    graph: &Graph,
    path: &Path,
    isolate: Isolate,
    cores: Option<Vec<usize>>,
    domains: &[(String, String)],
    consolidate: Consolidate,
) -> Result<Plan, PolicyFailure> {
    let online = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut given = BTreeMap::new();
    for (instance, name) in domains {
        if given.insert(instance.clone(), name.clone()).is_some() {
            return Err(PolicyFailure::DomainTwice(instance.clone()));
        }
    }
    let domains = given;
    let options = Options { isolate, cores, online, domains };
    let plan = match consolidate {
        Consolidate::On => Plan::consolidated(graph, &options),
        Consolidate::Off => Plan::build(graph, &options),
    };
    plan.map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}
