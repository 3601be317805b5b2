//! Programs that bring µNFs of their own. What they say of themselves is read by running them in a
//! sandbox, with a limit on time and on output, and none of it is believed before it is checked.

mod ask;

use crate::jail::{JailError, SandboxOptions};
use crate::launch::{Executable, Launcher, OpenError};
use crate::library::Library;
use ask::{AskError, ask};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use weir_plan::{
    Affinity, Around, Catalog, ConfigProblem, Effect, Field, FieldSet, NfInfo, ProgramId, Touch,
    Work,
};
use weir_runtime::outside::{
    CheckAnswer, CheckRequest, DescribedNf, Description, catalogue as own_catalogue,
};
use weir_runtime::spec::PROTOCOL_VERSION;

/// Why an outside program is not taken.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct OutsideError {
    /// The program.
    pub path: PathBuf,
    /// Why.
    pub why: Refusal,
}

/// What is wrong with an outside program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no sandbox to run it in.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// It does not say what it has.
    #[error("it does not answer `describe`: {0}")]
    Ask(#[from] AskError),
    /// Its answer is none.
    #[error(
        "its answer to `describe` is not a description ({0}); is its main `weir_worker::main()`?"
    )]
    Form(#[from] serde_json::Error),
    /// It speaks another protocol.
    #[error(
        "it was built with another version of weir (protocol {theirs}, this weir's is {PROTOCOL_VERSION}); build it with this one's crates"
    )]
    Protocol {
        /// Its version.
        theirs: u32,
    },
    /// It lays shared memory out differently.
    #[error(
        "it was built with another version of weir (memory layout {theirs}, this weir's is {ours}); build it with this one's crates"
    )]
    Layout {
        /// Its version.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// Its library is another.
    #[error(
        "it was built with other library µNFs than this weir (catalogue {theirs:016x}, this weir's is {:016x}); build it with this one's crates",
        own_catalogue()
    )]
    Catalogue {
        /// Its number.
        theirs: u64,
    },
    /// It has nothing of its own.
    #[error("it brings no µNF of its own; register one with weir_nf::register!")]
    Nothing,
    /// It has something that cannot be.
    #[error("its µNF {name:?} has {what}")]
    Nf {
        /// Its name.
        name: String,
        /// What cannot be.
        what: &'static str,
    },
    /// A program given before.
    #[error("--with names it twice; once is enough")]
    Again,
    /// A name that is taken.
    #[error("its µNF `{name}` is called like one of {whose}; rename it")]
    Twice {
        /// The name.
        name: String,
        /// Who had it first.
        whose: String,
    },
}

struct Loaded {
    path: PathBuf,
    program: Executable,
    nfs: Vec<DescribedNf>,
}

/// The library's µNFs and those of outside programs.
#[derive(Default)]
pub struct Extended {
    launcher: Option<Launcher>,
    programs: Vec<Loaded>,
}

impl Extended {
    /// Asks each program what it has.
    ///
    /// # Errors
    /// When one cannot be asked, is of another version, or has a name that is taken.
    pub fn load(paths: &[PathBuf], sandbox: SandboxOptions) -> Result<Self, OutsideError> {
        let mut all = Extended::default();
        for path in paths {
            let refuse = |why| OutsideError { path: path.clone(), why };
            if all.launcher.is_none() {
                let launcher = Launcher::new(sandbox).map_err(|e| refuse(e.into()))?;
                all.launcher = Some(launcher);
            }
            let Some(launcher) = &all.launcher else { continue };
            if all.programs.iter().any(|known| crate::devices::is_same(&known.path, path)) {
                return Err(refuse(Refusal::Again));
            }
            let loaded = load(launcher, path).map_err(refuse)?;
            all.check_names(&loaded).map_err(refuse)?;
            all.programs.push(loaded);
        }
        Ok(all)
    }

    fn check_names(&self, new: &Loaded) -> Result<(), Refusal> {
        for nf in &new.nfs {
            let other = self.find(&nf.name).map(|(_, p, _)| p.path.display().to_string());
            let library = || weir_nf::find(&nf.name).is_ok().then(|| "the library's".to_owned());
            if let Some(whose) = other.or_else(library) {
                return Err(Refusal::Twice { name: nf.name.clone(), whose });
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<(ProgramId, &Loaded, &DescribedNf)> {
        self.programs.iter().zip(0..).find_map(|(program, id)| {
            let nf = program.nfs.iter().find(|nf| nf.name == name)?;
            Some((ProgramId(id), program, nf))
        })
    }

    /// The programs' files, in the order of their numbers.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.programs.iter().map(|p| p.path.clone()).collect()
    }

    /// The µNFs that are not the library's, with the programs that bring them.
    pub fn outside(&self) -> impl Iterator<Item = (&Path, &DescribedNf)> {
        self.programs.iter().flat_map(|p| p.nfs.iter().map(|nf| (p.path.as_path(), nf)))
    }
}

fn load(launcher: &Launcher, path: &Path) -> Result<Loaded, Refusal> {
    let program = launcher.open(path)?;
    let answer = ask(launcher, &program, "describe", &[])?;
    /// What descriptions of all versions have.
    #[derive(Deserialize)]
    struct Versions {
        protocol: u32,
        layout: u32,
        catalogue: u64,
    }
    let theirs: Versions = serde_json::from_slice(&answer)?;
    if theirs.protocol != PROTOCOL_VERSION {
        return Err(Refusal::Protocol { theirs: theirs.protocol });
    }
    let ours = weir_mem::meta::LAYOUT_VERSION;
    if theirs.layout != ours {
        return Err(Refusal::Layout { theirs: theirs.layout, ours });
    }
    if theirs.catalogue != own_catalogue() {
        return Err(Refusal::Catalogue { theirs: theirs.catalogue });
    }
    let description: Description = serde_json::from_slice(&answer)?;
    let nfs = description.nfs;
    if nfs.is_empty() {
        return Err(Refusal::Nothing);
    }
    for (i, nf) in nfs.iter().enumerate() {
        if let Some(what) = fault(nf) {
            return Err(Refusal::Nf { name: nf.name.clone(), what });
        }
        if nfs.iter().take(i).any(|other| other.name == nf.name) {
            let whose = "its own".to_owned();
            return Err(Refusal::Twice { name: nf.name.clone(), whose });
        }
    }
    Ok(Loaded { path: path.to_owned(), program, nfs })
}

/// What no µNF of the library has either. Names end up in policies and on terminals.
fn fault(nf: &DescribedNf) -> Option<&'static str> {
    let word = |text: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(fits)
    };
    let ports = |list: &[String]| (1..=64).contains(&list.len()) && list.iter().all(|n| word(n));
    if !word(&nf.name) {
        return Some("a name that is no word (letters, digits and _, 64 at most)");
    }
    if !ports(&nf.inputs) || !ports(&nf.outputs) {
        return Some("inputs or outputs that are none, more than 64, or no words");
    }
    if !nf.domain.is_empty() && !word(&nf.domain) {
        return Some("a trust domain that is no word");
    }
    if nf.tags.len() > 64 || !nf.tags.iter().all(|(name, _)| word(name)) {
        return Some("more than 64 tags, or one that is no word");
    }
    if nf.summary.len() > 400 || nf.summary.chars().any(char::is_control) {
        return Some("a summary that is no sentence");
    }
    None
}

/// An outside program's words for what its µNF does; anything missing or unknown counts as the worst.
fn work(descriptor: &Value, follows: bool) -> Work {
    let read = |name: &str| descriptor.get(name).cloned().unwrap_or_default();
    let worst = Work::default();
    let fields: Vec<(Field, Touch)> = serde_json::from_value(read("fields")).unwrap_or_default();
    let touched = |wanted: Touch| -> FieldSet {
        let these = fields.iter().filter(|(_, touch)| *touch == wanted);
        these.map(|(field, _)| *field).collect::<Vec<_>>().into()
    };
    // `All`, too, is none that the planner has.
    let affinity = match serde_json::from_value(read("affinity")).ok() {
        Some(Affinity::Fields { fields, symmetric }) => Affinity::of_fields(fields, symmetric),
        other => other,
    };
    Work {
        access: serde_json::from_value(read("layers")).unwrap_or(worst.access),
        effect: match read("timers") {
            Value::Bool(true) => Effect::Stateful,
            _ => serde_json::from_value(read("effect")).unwrap_or(worst.effect),
        },
        affinity: affinity.unwrap_or(worst.affinity),
        cost_cycles: serde_json::from_value(read("cost_cycles")).unwrap_or(worst.cost_cycles),
        follows,
        timers: serde_json::from_value(read("timers")).unwrap_or(worst.timers),
        reads: touched(Touch::Read),
        writes: touched(Touch::Write),
        // Who says what must meet says how packets may be divided.
        scales: affinity.is_some(),
        ..worst
    }
}

impl Catalog for Extended {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let Some((program, _, nf)) = self.find(type_name) else {
            return Library.nf(type_name);
        };
        Some(NfInfo {
            alone_by: Vec::new(),
            name: nf.name.clone(),
            inputs: nf.inputs.clone(),
            outputs: nf.outputs.clone(),
            writes_packets: nf.writes,
            may_drop: nf.may_drop,
            domain: nf.domain.clone(),
            resizes: nf.resizes,
            creates: nf.creates,
            holds: nf.holds,
            tags: nf.tags.iter().map(|(name, kind)| crate::library::tag(name, *kind)).collect(),
            program: Some(program),
            work: work(&nf.descriptor, nf.follows),
        })
    }

    fn nf_with(&self, type_name: &str, config: &serde_json::Value) -> Option<NfInfo> {
        match self.find(type_name) {
            // An outside program is not asked what its configuration makes of it.
            Some(_) => self.nf(type_name),
            None => Library.nf_with(type_name, config),
        }
    }

    fn types(&self) -> Vec<String> {
        let own = self.outside().map(|(_, nf)| nf.name.clone());
        let mut all: Vec<_> = Library.types().into_iter().chain(own).collect();
        all.sort();
        all
    }

    /// An outside program's µNFs take what the template says: they are not asked.
    fn generate(
        &self,
        type_name: &str,
        config: &serde_json::Value,
        around: &Around,
    ) -> Result<serde_json::Value, ConfigProblem> {
        match self.find(type_name) {
            Some(_) => Ok(config.clone()),
            None => Library.generate(type_name, config, around),
        }
    }

    fn shown_with(&self, type_name: &str) -> String {
        let program = self.find(type_name);
        program.map_or_else(String::new, |(_, p, _)| format!(" --with {}", p.path.display()))
    }

    fn check_config(
        &self,
        type_name: &str,
        config: &serde_json::Value,
    ) -> Result<(), ConfigProblem> {
        let (Some((_, program, _)), Some(launcher)) = (self.find(type_name), &self.launcher) else {
            return Library.check_config(type_name, config);
        };
        let request = CheckRequest { nf: type_name.to_owned(), config: config.clone() };
        let failed = |why: String| ConfigProblem {
            path: String::new(),
            why: format!("{} does not answer `check`: {why}", program.path.display()),
        };
        let request = serde_json::to_vec(&request).map_err(|e| failed(e.to_string()))?;
        let answer = ask(launcher, &program.program, "check", &request);
        let answer = answer.map_err(|e| failed(e.to_string()))?;
        let answer: CheckAnswer =
            serde_json::from_slice(&answer).map_err(|e| failed(e.to_string()))?;
        match answer.problem {
            None => Ok(()),
            Some((path, why)) => {
                Err(ConfigProblem { path: ask::printable(&path), why: ask::printable(&why) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_outside_nf_says_of_its_affinity_counts_only_if_packets_can_be_divided_by_it() {
        let read = |affinity: Value| {
            let work = work(&json!({ "affinity": affinity }), true);
            (work.affinity, work.scales)
        };
        let fields = |fields: &[&str], symmetric: bool| {
            read(json!({ "fields": { "fields": fields, "symmetric": symmetric } }))
        };
        let pair = FieldSet::of(&[Field::IpSrc, Field::IpDst]);
        let peers = Affinity::Fields { fields: pair, symmetric: true };
        assert_eq!(fields(&["ip_src", "ip_dst"], true), (peers, true));
        assert_eq!(fields(&["ip_src"], false), (Affinity::Source, true));
        assert_eq!(read(json!("flow")), (Affinity::Flow, true));
        let worst = (Work::default().affinity, false);
        for nothing in [
            json!("all"),
            json!("nonsense"),
            json!({ "fields": { "fields": ["payload"], "symmetric": false } }),
            json!({ "fields": { "fields": ["ip_dst"], "symmetric": true } }),
            json!({ "fields": { "fields": [], "symmetric": false } }),
        ] {
            assert_eq!(read(nothing.clone()), worst, "{nothing}");
        }
    }
}
