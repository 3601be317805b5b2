//! Reading a policy and planning it, with errors for the operator.

use crate::planning::OptionsError;
use crate::{include, known, topology};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_control::library::Library;
use weir_control::outside::OutsideError;
use weir_plan::service::{Objective, ObjectiveError, Request, Syntax, choose};
use weir_plan::{
    Asked, Catalog, Checked, Graph, Instances, Isolate, Node, NodeKind, Options, Plan, PlanError,
    Policy, PolicyError, PolicyFiles, SideBySide, Sizing, Why,
};
use weir_runtime::spec::ReplicateSpec;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFailure {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: known::TextError,
    },
    /// A file of options is not taken.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// An outside program is not taken.
    #[error("weir: {0}")]
    Outside(#[from] OutsideError),
    /// A document of no known syntax.
    #[error("{}: what this file is cannot be told by its name; call it .json, .yaml or .yml", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
    },
    /// A description of a type that is known.
    #[error("{}: there is an NF type `{name}` already; describe it under another name", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The type.
        name: String,
    },
    /// An NF that is only described.
    #[error(
        "{}: `{instance}` cannot run: of its type {nf} there is a description, but no code; `weir check` \
         shows the plan, `--with PROGRAM` brings code",
        path.display()
    )]
    NoCode {
        /// The policy.
        path: PathBuf,
        /// The instance.
        instance: String,
        /// Its type.
        nf: String,
    },
    /// It has what does not run yet; one a line.
    #[error("{0}")]
    NotRun(String),
    /// What a request asks for cannot be had.
    #[error("{}: {source}", path.display())]
    Objective {
        /// The request.
        path: PathBuf,
        /// Why.
        source: ObjectiveError,
    },
    /// It is not a policy; the text has file, line, column, the line itself and the cure.
    #[error("{0}")]
    Policy(String),
    /// An NF is given two trust domains.
    #[error("weir: --domain {0}=...: {0} is given a domain twice; give it one")]
    DomainTwice(String),
    /// An NF is given two ways to replicate it.
    #[error("weir: --replicate {0}=...: {0} is given twice; give it once")]
    ReplicateTwice(String),
    /// There is no such NF.
    #[error("weir: --replicate {nf}=...: the policy has no NF `{nf}`; it has {known}")]
    ReplicateUnknown {
        /// Its name.
        nf: String,
        /// Those there are.
        known: String,
    },
    /// An NF is given two numbers of flows.
    #[error("weir: --flows {0}=...: {0} is given twice; give it once")]
    FlowsTwice(String),
    /// There is no such NF that remembers flows.
    #[error(
        "weir: --flows {nf}=...: the policy has no NF `{nf}` that remembers flows; those that do: {known}"
    )]
    FlowsUnknown {
        /// Its name.
        nf: String,
        /// Those there are.
        known: String,
    },
    /// An NF is given two numbers of instances.
    #[error("weir: --instances {0}=...: {0} is given a number of instances twice; give it one")]
    InstancesTwice(String),
    /// An NF is given two rules.
    #[error("weir: --scale {0}=...: {0} is given twice; give it once")]
    ScaleTwice(String),
    /// An NF is given a rule and a number.
    #[error("weir: --scale {0}=...: {0} has --instances as well; give one of the two")]
    ScaleAndInstances(String),
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
    /// As it is written: VNFs are one node each.
    pub written: Graph,
    pub warnings: String,
    /// Where its filters surprise.
    pub surprises: String,
    /// What a service request is to achieve.
    pub objective: Option<Objective>,
    /// The files that it stands in, its own first.
    pub files: Vec<PathBuf>,
}

/// The most reasons why it does not run that are shown.
const MOST_REASONS: usize = 20;

/// Reads and checks a policy or a service request. `only_library`: no outside program was given.
pub fn load(
    path: &Path,
    catalog: &dyn Catalog,
    only_library: bool,
) -> Result<Loaded, PolicyFailure> {
    let file = path.display().to_string();
    let Some(syntax) = Syntax::of(path) else {
        let (texts, checked) = source(path)?.check(catalog);
        let Checked { graph, written, warnings, surprises } =
            checked.map_err(|errors| failure(texts.render(&errors), &errors, only_library))?;
        let warnings = texts.render_warnings(&warnings);
        let surprises = texts.render_warnings(&surprises);
        let files = texts.names().map(PathBuf::from).collect();
        return Ok(Loaded { graph, written, warnings, surprises, objective: None, files });
    };
    let text = known::read_text(path)?;
    let request = Request::read(&text, syntax, catalog)
        .map_err(|errors| wrong(&errors, &file, &text, only_library))?;
    let Request { checked, objective, .. } = request;
    let warnings = weir_plan::render_warnings(&checked.warnings, &file, &text);
    let surprises = weir_plan::render_warnings(&checked.surprises, &file, &text);
    let Checked { graph, written, .. } = checked;
    let files = vec![path.to_owned()];
    Ok(Loaded { graph, written, warnings, surprises, objective, files })
}

/// A policy as it is written, or as a service request says it. It is checked all the same.
pub fn written(path: &Path, catalog: &dyn Catalog) -> Result<Policy, PolicyFailure> {
    if let Some(syntax) = Syntax::of(path) {
        let text = known::read_text(path)?;
        let file = path.display().to_string();
        let request = Request::read(&text, syntax, catalog);
        let request = request.map_err(|errors| wrong(&errors, &file, &text, false))?;
        return Ok(request.policy);
    }
    let source = source(path)?;
    let policy = source.policy().clone();
    let (texts, checked) = source.check(catalog);
    checked.map_err(|errors| failure(texts.render(&errors), &errors, false))?;
    Ok(policy)
}

/// A policy with what it includes.
fn source(path: &Path) -> Result<PolicyFiles, PolicyFailure> {
    Ok(PolicyFiles::read(&include::document(path)?, &include::Files))
}

/// The types of a graph's NFs that have no code, each once.
pub fn without_code<'g>(graph: &'g Graph, catalog: &dyn Catalog) -> Vec<&'g str> {
    let mut types: Vec<&str> = Vec::new();
    for node in graph.nodes() {
        if let NodeKind::Nf { info, .. } = &node.kind
            && !catalog.has_code(&info.name)
            && !types.contains(&info.name.as_str())
        {
            types.push(&info.name);
        }
    }
    types
}

/// Each NF that is to run has code.
pub fn has_code(graph: &Graph, path: &Path, catalog: &dyn Catalog) -> Result<(), PolicyFailure> {
    for node in graph.nodes() {
        if let NodeKind::Nf { info, .. } = &node.kind
            && !catalog.has_code(&info.name)
        {
            let (instance, nf) = (node.name.clone(), info.name.clone());
            return Err(PolicyFailure::NoCode { path: path.to_owned(), instance, nf });
        }
    }
    Ok(())
}

/// All of it runs already.
pub fn runs(graph: &Graph, path: &Path) -> Result<(), PolicyFailure> {
    let list = graph.not_run();
    if list.is_empty() {
        return Ok(());
    }
    let file = path.display();
    let shown = list.iter().take(MOST_REASONS).map(|why| format!("{file}: cannot run: {why}"));
    let mut lines: Vec<String> = shown.collect();
    let left = list.len().saturating_sub(lines.len());
    if left > 0 {
        lines.push(format!("{file}: and {left} more; `weir explain` shows the graph"));
    }
    Err(PolicyFailure::NotRun(lines.join("\n")))
}

/// Which NFs share a worker: as the operator says, else as meets the objective at least cost, else
/// none. Says in words what was chosen for an objective. `options`: cores and domains as the operator gives them.
pub fn isolation(
    loaded: &Loaded,
    path: &Path,
    given: Option<Isolate>,
    hardware: Option<&Path>,
    options: &Options,
) -> Result<(Isolate, Option<String>), PolicyFailure> {
    let Some(objective) = &loaded.objective else {
        return Ok((given.unwrap_or(Isolate::Each), None));
    };
    let server = known::server(hardware, options.cores.as_deref())?;
    let choice = match choose(&loaded.graph, objective, &server, &options.domains) {
        Ok(choice) => choice,
        Err(source) => {
            let failure = PolicyFailure::Objective { path: path.to_owned(), source };
            let Some(given) = given else { return Err(failure) };
            // The operator decided: a word on it, even where words on choices are not wanted.
            crate::complain!("weir: warning: {failure}; --isolate {given} goes before it");
            return Ok((given, None));
        }
    };
    let placement = choice.placement;
    let latency = placement.latency_us.map_or_else(String::new, |us| format!(", {us:.1} µs"));
    let chosen = format!(
        "objective: --isolate {} meets it on {}: {} core(s) for NFs, up to {:.2} Mpps{latency} by the cost model",
        placement.isolate,
        server.name,
        placement.cores,
        placement.pps / 1e6,
    );
    let word = match given {
        Some(given) if given != placement.isolate => {
            format!("{chosen}; --isolate {given} goes before it")
        }
        _ => chosen,
    };
    Ok((given.unwrap_or(placement.isolate), Some(word)))
}

/// Checks a policy's text, which has library µNFs only.
pub fn from_text(text: &str, file: &str) -> Result<Loaded, PolicyFailure> {
    let checked =
        weir_plan::check(text, &Library).map_err(|errors| wrong(&errors, file, text, false))?;
    let warnings = weir_plan::render_warnings(&checked.warnings, file, text);
    let surprises = weir_plan::render_warnings(&checked.surprises, file, text);
    let Checked { graph, written, .. } = checked;
    Ok(Loaded { graph, written, warnings, surprises, objective: None, files: Vec::new() })
}

fn wrong(errors: &[PolicyError], file: &str, text: &str, only_library: bool) -> PolicyFailure {
    failure(weir_plan::render(errors, file, text), errors, only_library)
}

fn failure(mut said: String, errors: &[PolicyError], only_library: bool) -> PolicyFailure {
    if only_library
        && errors.iter().any(|e| matches!(e.why, Why::UnknownType { nearest: None, .. }))
    {
        said += &format!("weir: {OUTSIDE}\n");
    }
    PolicyFailure::Policy(said)
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

/// How what an NF remembers is replicated, and what its flows do when the worker of one of its instances has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicate {
    pub spec: ReplicateSpec,
    /// They go to the others.
    pub leaves: bool,
}

/// Understands `NF=batch`, `NF=every:10`, `NF=us:500`, each with `,leave` behind it or without, and `NF=none`, as `--replicate` is given.
pub fn parse_replicate(text: &str) -> Result<(String, Option<Replicate>), String> {
    let form = "write NF=batch, NF=every:N (packets of a flow), NF=us:T (microseconds) or NF=none; behind it may stand ,leave";
    let (name, mode) = text.split_once('=').ok_or(form)?;
    if name.is_empty() {
        return Err(format!("`{text}` names no NF: {form}"));
    }
    let (mode, leaves) = match mode.split_once(',') {
        Some((mode, "leave")) if mode != "none" => (mode, true),
        Some((_, more)) => return Err(format!("`,{more}` says nothing there: {form}")),
        None => (mode, false),
    };
    let spec = match mode.split_once(':') {
        None if mode == "none" => None,
        None if mode == "batch" => Some(ReplicateSpec::Batch),
        Some(("every", packets)) => match packets.parse::<u16>() {
            Ok(packets @ 1..) => Some(ReplicateSpec::Every(packets)),
            _ => return Err(format!("`{packets}` packets: 1 to {} can be", u16::MAX)),
        },
        Some(("us", time)) => match time.parse::<u32>() {
            Ok(us @ 1..=LONGEST_REPLICATE_US) => Some(ReplicateSpec::Micros(us)),
            _ => return Err(format!("`{time}` µs: 1 to {LONGEST_REPLICATE_US} can be")),
        },
        _ => return Err(format!("`{mode}` is no way to replicate: {form}")),
    };
    Ok((name.to_owned(), spec.map(|spec| Replicate { spec, leaves })))
}

/// Most microseconds between two writes of a replica: a minute.
const LONGEST_REPLICATE_US: u32 = 60_000_000;

/// Of which NFs of a graph what they remember is replicated.
pub fn replicated(
    given: &[(String, Option<Replicate>)],
    graph: &Graph,
) -> Result<BTreeMap<String, Replicate>, PolicyFailure> {
    let (mut all, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for (nf, mode) in given {
        if !seen.insert(nf.as_str()) {
            return Err(PolicyFailure::ReplicateTwice(nf.clone()));
        }
        let names = || graph.nodes().iter().filter(|n| n.is_nf()).map(Node::policy_name);
        if !names().any(|name| name == nf) {
            let known: BTreeSet<&str> = names().collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(PolicyFailure::ReplicateUnknown { nf: nf.clone(), known });
        }
        all.extend(mode.map(|mode| (nf.clone(), mode)));
    }
    Ok(all)
}

/// Understands `NF=NUMBER` and `NF=type`, as `--flows` is given.
pub fn parse_flows(text: &str) -> Result<(String, Option<u32>), String> {
    let form = "write NF=NUMBER, such as nat=4000000, or NF=type for as many as its type says";
    let (name, number) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(form)?;
    match number.parse::<u32>() {
        _ if number == "type" => Ok((name.to_owned(), None)),
        Ok(most @ 1..=MOST_FLOWS) => Ok((name.to_owned(), Some(most))),
        _ => Err(format!("`{number}` flows: 1 to {MOST_FLOWS} can be; {form}")),
    }
}

/// Most flows that an NF may be told to remember: somewhat fewer than a worker's replica has places for, as it keeps other things there, too.
const MOST_FLOWS: u32 = 15 << 20;

/// How many flows NFs of a graph may remember, where that is said.
pub fn most_flows(
    given: &[(String, Option<u32>)],
    graph: &Graph,
) -> Result<BTreeMap<String, u32>, PolicyFailure> {
    let follows = |node: &&Node| match &node.kind {
        NodeKind::Nf { info, .. } => info.work.follows,
        NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => false,
    };
    let names: BTreeSet<&str> =
        graph.nodes().iter().filter(follows).map(Node::policy_name).collect();
    let (mut all, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for (nf, most) in given {
        if !names.contains(nf.as_str()) {
            let known = names.into_iter().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            return Err(PolicyFailure::FlowsUnknown { nf: nf.clone(), known });
        }
        if !seen.insert(nf) {
            return Err(PolicyFailure::FlowsTwice(nf.clone()));
        }
        all.extend(most.map(|most| (nf.clone(), most)));
    }
    Ok(all)
}

/// The NFs of `A+B+C`, whose instances of equal number share a worker; nothing for one NF.
pub fn replicas_of(names: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = names.split('+').map(str::to_owned).collect();
    let is_twice = |(at, name): (usize, &String)| all.iter().take(at).any(|other| other == name);
    if all.iter().any(String::is_empty) || all.iter().enumerate().any(is_twice) {
        return Err(format!("`{names}`: write the NFs of a segment's replicas as A+B, each once"));
    }
    Ok(if all.len() > 1 { all } else { Vec::new() })
}

/// What the operator asks for of NFs' instances, by NF.
pub fn asked(given: &[(String, Asked)]) -> Result<BTreeMap<String, Asked>, PolicyFailure> {
    let mut asked = BTreeMap::new();
    for (names, own) in given {
        for (nf, own) in each(names, own.clone()) {
            if asked.insert(nf.clone(), own).is_some() {
                return Err(PolicyFailure::InstancesTwice(nf));
            }
        }
    }
    Ok(asked)
}

/// What is asked for of each of the NFs that `names` joins.
pub fn each(names: &str, asked: Asked) -> Vec<(String, Asked)> {
    match replicas_of(names) {
        Ok(nfs) if !nfs.is_empty() => asked.of_replicas(&nfs),
        _ => vec![(names.to_owned(), asked)],
    }
}

/// Plans a graph with as many instances as are asked for, or needed and of use.
pub fn plan_sized(
    graph: &Graph,
    path: &Path,
    options: &Options,
    consolidate: Consolidate,
    sizing: Sizing<'_>,
) -> Result<(Plan, Instances), PolicyFailure> {
    let plan = Plan::sized(graph, options, consolidate == Consolidate::On, sizing);
    plan.map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}

/// Whether NFs work side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Parallel {
    /// Where it is worth it by the cost model, and there are cores enough.
    Auto,
    /// Nowhere.
    Never,
    /// Wherever they may.
    Always,
}

/// As the planner says it.
pub fn which(parallel: Parallel) -> SideBySide {
    match parallel {
        Parallel::Auto => SideBySide::Auto,
        Parallel::Never => SideBySide::Never,
        Parallel::Always => SideBySide::Always,
    }
}

/// The same plan, with NFs side by side.
pub fn side_by_side(
    plan: Plan,
    path: &Path,
    options: &Options,
    parallel: Parallel,
) -> Result<Plan, PolicyFailure> {
    let plan = plan.side_by_side(options, which(parallel));
    plan.map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}

/// Whether work that is done already is done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Consolidate {
    /// It is not, and equal NFs share a worker.
    On,
    /// Every NF does all that the policy says.
    Off,
}

/// What a plan for this machine is made for.
pub fn options(
    isolate: Isolate,
    cores: Option<Vec<usize>>,
    domains: &[(String, String)],
) -> Result<Options, PolicyFailure> {
    let (online, shed) = (crate::cores::online(), BTreeSet::new());
    let mut given = BTreeMap::new();
    for (instance, name) in domains {
        if given.insert(instance.clone(), name.clone()).is_some() {
            return Err(PolicyFailure::DomainTwice(instance.clone()));
        }
    }
    Ok(Options { isolate, cores, online, domains: given, shed, topology: topology::of_machine() })
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
    plan_with(graph, path, &options(isolate, cores, domains)?, consolidate)
}

/// Plans a graph.
pub fn plan_with(
    graph: &Graph,
    path: &Path,
    options: &Options,
    consolidate: Consolidate,
) -> Result<Plan, PolicyFailure> {
    let plan = match consolidate {
        Consolidate::On => Plan::consolidated(graph, options),
        Consolidate::Off => Plan::build(graph, options),
    };
    plan.map_err(|source| PolicyFailure::Plan { path: path.to_owned(), source })
}
