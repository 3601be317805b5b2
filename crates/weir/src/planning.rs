//! What decides on a plan besides the policy: the options that `run`, `check`, `explain` and `diff` have, and
//! the plan that follows from them, the same for all.

use crate::cores::{self, Cores};
use crate::known::{self, DocumentArgs, Known};
use crate::outside::OutsideArgs;
use crate::policy::{self, Consolidate, Loaded, Parallel, PolicyFailure};
use crate::run::words;
use crate::{instances, say, scaling};
use clap::Parser;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_control::wiring::ScaleOptions;
use weir_plan::{Asked, Instances, Isolate, Options, Plan, Sizing};
use weir_runtime::spec::EarlySpec;

/// Which NFs get a worker process of their own.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum IsolateArg {
    /// Each of them.
    Each,
    /// None: all run in one.
    None,
    /// As many as the cores make good use of, by the cost model.
    Auto,
}

impl From<IsolateArg> for Isolate {
    fn from(arg: IsolateArg) -> Self {
        match arg {
            IsolateArg::Each => Isolate::Each,
            IsolateArg::None => Isolate::None,
            IsolateArg::Auto => Isolate::Auto,
        }
    }
}

/// What may change from one plan of a policy to the next, so that a file can have it.
#[derive(Clone, Default, clap::Args)]
pub struct PlanArgs {
    /// Which NFs get a worker process of their own: each, unless a request's objective says otherwise.
    #[arg(long, value_enum)]
    pub isolate: Option<IsolateArg>,
    /// Whether NFs are left out whose answer an equal one before them has, and equal ones on different
    /// ways share a worker. Reports are the same either way; `weir explain` says what is done.
    #[arg(long, value_enum)]
    pub consolidate: Option<Consolidate>,
    /// Whether NFs that follow each other work on a packet at the same time where that changes nothing: `auto`, where
    /// it saves time by the cost model and there are cores; `always`, wherever they may. `auto` without it.
    #[arg(long, value_enum)]
    pub parallel: Option<Parallel>,
    /// Puts an NF into a trust domain: packets are shared within a domain and copied between
    /// domains. Without it an NF is where its type says, mostly in the graph's own.
    #[arg(long, value_name = "INSTANCE=NAME", value_parser = policy::parse_domain)]
    pub domain: Vec<(String, String)>,
    /// Runs so many instances of an NF, which divide its packets by what must meet at one; NF=2:1 gives
    /// two of these weights. NF=2,least sends packets that need not meet to the least loaded, NF=2,rr in turn; NF=2,by=src_ip+dst_ip has
    /// those meet that agree in these fields (any of src_ip, dst_ip, proto, src_port, dst_port), and with `,symmetric` those of the other direction
    /// too. A+B+C=3 runs three replicas of a
    /// segment of these NFs, each in one worker: packets are divided over them once, and flows move with what all remember. Without it
    /// there are as many as the traffic that the policy states needs, and cores make use of.
    #[arg(long, value_name = "NF=NUMBER", value_parser = instances::parse)]
    pub instances: Vec<(String, Asked)>,
    /// Has instances of an NF become more when one is overloaded, and fewer when they are idle, between two limits: flows
    /// move then, and packets that need not meet divide anew. NF=1:4,moves, NF=1:4,old-flows-end (or =60, seconds) or
    /// NF=1:4,rebalance says which; `,step=500` how many flows move in a step, `,cool=2` for how many seconds after a change there is no other. A+B+C=1:4 are replicas of a segment, as with
    /// --instances.
    #[arg(long, value_name = "NF=MIN:MAX", value_parser = scaling::parse)]
    pub scale: Vec<(String, ScaleOptions)>,
    /// Keeps what an NF remembers of flows when its worker dies: `batch`, written before the packets leave, so that nothing
    /// is forgotten that anybody has seen; `every:N`, at every N-th packet of a flow; `us:T`, every T microseconds; `none`.
    /// Without it an NF's flows begin anew then. NF=batch,leave: when the worker of one of its instances has been killed, its flows
    /// go on at the other instances, and stay there.
    #[arg(long, value_name = "NF=MODE", value_parser = policy::parse_replicate)]
    pub replicate: Vec<(String, Option<policy::Replicate>)>,
    /// How many flows an NF may remember, in each of its instances, 1 to 15,728,640: as many as its type says without it, or with
    /// NF=type. Memory is taken as they come, but for 8 bytes each of all that may be, with the first.
    #[arg(long, value_name = "NF=NUMBER", value_parser = policy::parse_flows)]
    pub flows: Vec<(String, Option<u32>)>,
    /// Drops packets that find the ring to this NF or port full, and counts them (`ring-full`), instead of having whoever sends them wait: one
    /// that may miss packets, such as a monitor behind a Tee, then slows down nobody.
    #[arg(long, value_name = "NF")]
    pub drop_when_full: Vec<String>,
    /// A class of packets that live sources (afp:, tap:, gen:...,full=drop) receive, and its weight, 1 to 1000: when the graph
    /// has too little room for all, those of lower weight are dropped first. Of several the first whose filter
    /// takes a packet counts; what none takes has weight 1.
    #[arg(long, value_name = "FILTER=WEIGHT", value_parser = words::parse_class)]
    pub early_drop: Vec<EarlySpec>,
    /// Cores to use, such as 0,1 or 0-3: the first for devices, the others for NFs. Without it the
    /// kernel chooses.
    #[arg(long, value_parser = cores::parse)]
    pub cores: Option<Cores>,
}

impl PlanArgs {
    /// Understands options that were given to a running graph.
    ///
    /// # Errors
    /// Why they are not right, and the cure.
    pub fn of_words(words: &[String]) -> Result<Self, String> {
        OptionsFile::try_parse_from(words).map(|options| options.plan).map_err(|e| cured(&e))
    }

    /// With what `set` says in place of what stands here; of options that name NFs for those NFs only.
    pub fn with(self, set: PlanArgs) -> Self {
        let PlanArgs { domain, instances, scale, replicate, flows, .. } = self.clone();
        // An NF has a number of instances, or limits.
        let (instances, scale) = (others(instances, &set.scale), others(scale, &set.instances));
        let named = PlanArgs {
            domain: renamed(domain, set.domain.clone()),
            instances: renamed(instances, set.instances.clone()),
            scale: renamed(scale, set.scale.clone()),
            replicate: renamed(replicate, set.replicate.clone()),
            flows: renamed(flows, set.flows.clone()),
            ..set
        };
        // Also where nothing is left of what was said before.
        PlanArgs { instances: Vec::new(), scale: Vec::new(), ..self }.under(named)
    }

    /// With what `file` says in place of what stands here.
    fn under(self, file: PlanArgs) -> Self {
        PlanArgs {
            isolate: file.isolate.or(self.isolate),
            consolidate: file.consolidate.or(self.consolidate),
            parallel: file.parallel.or(self.parallel),
            domain: if file.domain.is_empty() { self.domain } else { file.domain },
            instances: if file.instances.is_empty() { self.instances } else { file.instances },
            scale: if file.scale.is_empty() { self.scale } else { file.scale },
            replicate: if file.replicate.is_empty() { self.replicate } else { file.replicate },
            flows: if file.flows.is_empty() { self.flows } else { file.flows },
            drop_when_full: match file.drop_when_full.is_empty() {
                true => self.drop_when_full,
                false => file.drop_when_full,
            },
            early_drop: if file.early_drop.is_empty() { self.early_drop } else { file.early_drop },
            cores: file.cores.or(self.cores),
        }
    }
}

/// Whether two names are of the same NF, or of NFs of which some are the same (`a+b`).
fn meet(one: &str, other: &str) -> bool {
    one.split('+').any(|nf| other.split('+').any(|other| other == nf))
}

/// Those of `old` that are of other NFs than any of `new`.
fn others<T, U>(mut old: Vec<(String, T)>, new: &[(String, U)]) -> Vec<(String, T)> {
    old.retain(|(name, _)| new.iter().all(|(other, _)| !meet(name, other)));
    old
}

/// Those of `new`, and those of `old` that are of other NFs.
fn renamed<T>(old: Vec<(String, T)>, new: Vec<(String, T)>) -> Vec<(String, T)> {
    let mut all = others(old, &new);
    all.extend(new);
    all
}

/// A file of such options.
#[derive(Parser)]
#[command(name = "--options", no_binary_name = true, disable_help_flag = true)]
struct OptionsFile {
    #[command(flatten)]
    plan: PlanArgs,
}

/// What a policy's plan depends on besides its text.
#[derive(clap::Args)]
pub struct PlanningArgs {
    #[command(flatten)]
    pub plan: PlanArgs,
    /// More of the options that decide on the plan (--isolate, --consolidate, --parallel, --domain, --instances, --scale, --replicate,
    /// --flows, --drop-when-full, --early-drop, --cores), as they would stand here; what is in quotes is one word, `#` begins a comment. They go before those that stand here, and `weir run` reads them again
    /// whenever it reads the policy.
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// The hardware (JSON or YAML) that a request's objective is to be met on; without it this machine.
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    #[command(flatten)]
    documents: DocumentArgs,
    #[command(flatten)]
    pub outside: OutsideArgs,
}

/// A policy and what runs of it.
pub struct Planned {
    /// The options, a file's among them.
    pub told: PlanArgs,
    pub known: Known,
    pub loaded: Loaded,
    /// As the plan was made.
    pub options: Options,
    pub consolidate: Consolidate,
    pub parallel: Parallel,
    /// The instance graph.
    pub instances: Instances,
    /// What runs, with all instances and parallel stages.
    pub plan: Plan,
    /// Of which NFs what they remember is replicated.
    pub replicated: BTreeMap<String, policy::Replicate>,
    /// How many flows NFs may remember, where that is said.
    pub most_flows: BTreeMap<String, u32>,
}

impl Planned {
    /// The types of its NFs that have no code, each once: it can be shown, not run.
    pub fn without_code(&self) -> Vec<&str> {
        policy::without_code(&self.loaded.graph, &self.known)
    }
}

impl PlanningArgs {
    /// Files that decide on the plan, beside the policy's own.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.options.iter().chain(self.documents.files()).chain(&self.outside.with)
    }

    /// What outside programs, templates and descriptions there are.
    pub fn known(&self) -> Result<Known, PolicyFailure> {
        Known::load(&self.outside, &self.documents)
    }

    /// Checks the policy at `path` and plans it; says its warnings, and what was chosen for a request's objective unless
    /// `quiet`.
    pub fn planned(&self, path: &Path, quiet: bool) -> Result<Planned, PolicyFailure> {
        self.planned_under(path, quiet, self.options.as_deref())
    }

    /// The same, for ports whose NICs are at these NUMA nodes, with what was `set` while the graph runs.
    pub fn planned_near(
        &self,
        path: &Path,
        quiet: bool,
        nics: BTreeMap<u16, u32>,
        set: PlanArgs,
    ) -> Result<Planned, PolicyFailure> {
        self.planned_as(path, quiet, self.options.as_deref(), nics, set)
    }

    /// The same, with another file of options.
    pub fn planned_under(
        &self,
        path: &Path,
        quiet: bool,
        file: Option<&Path>,
    ) -> Result<Planned, PolicyFailure> {
        self.planned_as(path, quiet, file, BTreeMap::new(), PlanArgs::default())
    }

    fn planned_as(
        &self,
        path: &Path,
        quiet: bool,
        file: Option<&Path>,
        nics: BTreeMap<u16, u32>,
        set: PlanArgs,
    ) -> Result<Planned, PolicyFailure> {
        let told = match file {
            Some(file) => self.plan.clone().under(read(file)?),
            None => self.plan.clone(),
        };
        let told = told.with(set);
        let known = self.known()?;
        let loaded = policy::load(path, &known, self.outside.with.is_empty())?;
        say::warn(&loaded.warnings);
        let replicated = policy::replicated(&told.replicate, &loaded.graph)?;
        let most_flows = policy::most_flows(&told.flows, &loaded.graph)?;
        let given = told.isolate.map(Isolate::from);
        let hardware = self.hardware.as_deref();
        let cores = told.cores.as_ref().map(|cores| cores.0.clone());
        let mut options = policy::options(Isolate::Each, cores, &told.domain)?;
        options.topology.nics = nics;
        options.shed = told.drop_when_full.iter().cloned().collect();
        let (isolate, chosen) = policy::isolation(&loaded, path, given, hardware, &options)?;
        options.isolate = isolate;
        if let Some(chosen) = chosen.filter(|_| !quiet) {
            crate::complain!("weir: {chosen}");
        }
        let server = known::server(hardware, options.cores.as_deref())?;
        let (mut asked, objective) = (policy::asked(&told.instances)?, loaded.objective.as_ref());
        scaling::plan(&told.scale, &mut asked)?;
        let sizing = Sizing { server: &server, objective, asked: &asked };
        let consolidate = told.consolidate.unwrap_or(Consolidate::On);
        let (plan, instances) =
            policy::plan_sized(&loaded.graph, path, &options, consolidate, sizing)?;
        let parallel = told.parallel.unwrap_or(Parallel::Auto);
        let plan = policy::side_by_side(plan, path, &options, parallel)?;
        Ok(Planned {
            told,
            known,
            loaded,
            options,
            consolidate,
            parallel,
            instances,
            plan,
            replicated,
            most_flows,
        })
    }
}

/// Why a file of options is not taken.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// It is not read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: known::TextError,
    },
    /// What stands in a line is not right.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Why, and the cure.
        why: String,
    },
}

/// What may stand in a file of options.
const OPTIONS: &str = "each option with its value, as in `--isolate auto`; there are --isolate, --consolidate, --parallel, \
     --domain, --instances, --scale, --replicate, --flows, --drop-when-full, --early-drop and --cores";

fn read(path: &Path) -> Result<PlanArgs, OptionsError> {
    let text = known::text(path, true)
        .map_err(|source| OptionsError::Read { path: path.to_owned(), source })?;
    parsed(&text).map_err(|(line, why)| OptionsError::Line { path: path.to_owned(), line, why })
}

/// The options of a file's text; or the line of the first that is not right, and why with the cure.
fn parsed(text: &str) -> Result<PlanArgs, (usize, String)> {
    // An option with its value, which may stand in a line of its own, and the line where it begins.
    let mut options: Vec<(usize, Vec<String>)> = Vec::new();
    for (line, text) in (1_usize..).zip(text.lines()) {
        for word in words::words(text).map_err(|why| (line, why))? {
            match options.last_mut() {
                Some((_, words)) if !word.starts_with('-') => words.push(word),
                _ => options.push((line, vec![word])),
            }
        }
    }
    let first = |n: usize| {
        let words = options.iter().take(n).flat_map(|(_, words)| words.iter());
        OptionsFile::try_parse_from(words).map(|file| file.plan)
    };
    let Err(mut error) = first(options.len()) else {
        return first(options.len()).map_err(|e| (1, cured(&e)));
    };
    // What is wrong stays wrong with more behind it: the shortest beginning that is wrong ends with it.
    let (mut right, mut wrong) = (0, options.len());
    while wrong.saturating_sub(right) > 1 {
        let middle = right.midpoint(wrong);
        match first(middle) {
            Ok(_) => right = middle,
            Err(e) => (wrong, error) = (middle, e),
        }
    }
    let line = options.get(wrong.saturating_sub(1)).map_or(1, |(line, _)| *line);
    Err((line, cured(&error)))
}

/// What clap says in its first paragraphs, in one line, and what may stand there.
fn cured(error: &clap::Error) -> String {
    let said = error.render().to_string();
    let told = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let told = told.take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
    let told: Vec<&str> = told.map(|line| line.trim_start_matches("error: ")).collect();
    format!("{}; write {OPTIONS}", told.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::{PlanArgs, parsed};

    #[test]
    fn what_is_set_displaces_what_was_said_of_the_same_nfs_only() {
        let of = |text: &str| parsed(text).unwrap();
        let names = |plan: &PlanArgs| {
            let of = |all: Vec<&String>| all.into_iter().cloned().collect::<Vec<_>>().join(" ");
            let instances = plan.instances.iter().map(|(nf, _)| nf).collect();
            let scale = plan.scale.iter().map(|(nf, _)| nf).collect();
            [of(instances), of(scale)]
        };
        let before = of("--instances a=2 --instances b+c=3 --scale d=1:2");
        for (set, [instances, scale]) in [
            ("--isolate none", ["a b+c", "d"]),
            ("--instances c=1", ["a c", "d"]),
            ("--instances a+b=2", ["a+b", "d"]),
            ("--scale a=1:3", ["b+c", "d a"]),
            ("--instances d=2", ["a b+c d", ""]),
        ] {
            assert_eq!(names(&before.clone().with(of(set))), [instances, scale], "{set}");
        }
    }

    #[test]
    fn a_file_of_options_is_read_as_they_would_stand_in_the_command() {
        let file = "# which\n--isolate none --domain x=a\n--domain\n  y=b # where\n--cores=0,1\n";
        let plan = parsed(file).unwrap();
        assert!(plan.isolate.is_some() && plan.cores.is_some() && plan.parallel.is_none());
        let domains = [("x".to_owned(), "a".to_owned()), ("y".to_owned(), "b".to_owned())];
        assert_eq!(plan.domain, domains);
        assert!(parsed("").unwrap().isolate.is_none());
    }

    #[test]
    fn what_is_wrong_in_a_file_of_options_is_said_with_its_line_and_the_cure() {
        for (file, line, says) in [
            ("\n--isolate sometimes", 2, &["sometimes", "--isolate", "each, none, auto"][..]),
            ("--isolate none\n\n--isolat each", 3, &["'--isolat'", "'--isolate'"]),
            ("--isolate none\n--isolate each\n--cores 0", 2, &["--isolate", "multiple times"]),
            ("--cores 0\n--parallel\n--domain x=a", 2, &["--parallel", "value"]),
            ("--cores 0\n--domain x=-", 2, &["--domain", "x=guest"]),
            ("auto", 1, &["'auto'"]),
            ("--cores 0\n--instances fw=0\n--isolate no", 2, &["--instances", "1 to"]),
            ("--bind 0=null", 1, &["--bind"]),
        ] {
            let (at, why) = parsed(file).map(|_| ()).unwrap_err();
            assert_eq!(at, line, "{file:?}: {why}");
            for part in
                says.iter().chain(&["write each option with its value, as in `--isolate auto`"])
            {
                assert!(why.contains(part), "{file:?}: {why}: {part}");
            }
            assert!(!why.contains('\n'), "{why}");
        }
    }
}
