//! What the command knows of NFs: the library, outside programs, VNF templates, descriptions, and the
//! hardware that plans are for.

use crate::outside::OutsideArgs;
use crate::policy::PolicyFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_control::outside::Extended;
use weir_plan::service::{Described, Hardware, Server, Syntax, Template, describe};
use weir_plan::{Around, Catalog, ConfigProblem, NfInfo, PolicyError};

/// The templates that come with weir.
const SHIPPED: [(&str, &str); 4] = [
    ("templates/app-firewall.yaml", include_str!("../../../templates/app-firewall.yaml")),
    ("templates/edge-firewall.yaml", include_str!("../../../templates/edge-firewall.yaml")),
    ("templates/load-balancer.yaml", include_str!("../../../templates/load-balancer.yaml")),
    ("templates/monitor.yaml", include_str!("../../../templates/monitor.yaml")),
];

/// Options on documents beside the policy, which several commands have.
#[derive(clap::Args)]
pub struct DocumentArgs {
    /// A VNF template (JSON or YAML); may be given several times. It goes before one of the same name
    /// that comes with weir.
    #[arg(long, value_name = "FILE")]
    template: Vec<PathBuf>,
    /// Descriptions of NF types without code (JSON or YAML): such can be checked, not run.
    #[arg(long, value_name = "FILE")]
    describe: Vec<PathBuf>,
}

impl DocumentArgs {
    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.template.iter().chain(&self.describe)
    }
}

/// All NF types and templates there are.
pub struct Known {
    pub programs: Extended,
    described: BTreeMap<String, Described>,
    templates: BTreeMap<String, Arc<Template>>,
}

impl Known {
    /// Asks outside programs, and reads the documents.
    pub fn load(outside: &OutsideArgs, documents: &DocumentArgs) -> Result<Self, PolicyFailure> {
        let (described, templates) = (BTreeMap::new(), BTreeMap::new());
        let mut known = Known { programs: outside.catalog()?, described, templates };
        for path in &documents.describe {
            let (text, syntax) = read(path)?;
            let described = describe(&text, syntax).map_err(|e| wrong(&e, path, &text))?;
            for one in described {
                let name = one.info.name.clone();
                if known.nf(&name).is_some() {
                    return Err(PolicyFailure::Twice { path: path.clone(), name });
                }
                known.described.insert(name, one);
            }
        }
        for (path, text) in SHIPPED {
            let template = Template::read(text, Syntax::Yaml, &known);
            let template = template.map_err(|e| wrong(&e, Path::new(path), text))?;
            known.templates.insert(template.name().to_owned(), Arc::new(template));
        }
        for path in &documents.template {
            let (text, syntax) = read(path)?;
            let template = Template::read(&text, syntax, &known);
            let template = template.map_err(|e| wrong(&e, path, &text))?;
            known.templates.insert(template.name().to_owned(), Arc::new(template));
        }
        Ok(known)
    }

    /// All templates by name.
    pub fn all_templates(&self) -> impl Iterator<Item = &Template> {
        self.templates.values().map(Arc::as_ref)
    }

    /// The type or template whose name is nearest to `name`, if one is near enough to have been meant.
    pub fn nearest(&self, name: &str) -> Option<String> {
        let all: Vec<String> = self.types().into_iter().chain(self.templates()).collect();
        weir_plan::nearest(name, all.iter().map(String::as_str))
    }

    /// All types that are described only.
    pub fn all_described(&self) -> impl Iterator<Item = &Described> {
        self.described.values()
    }
}

impl Catalog for Known {
    fn nf(&self, type_name: &str) -> Option<NfInfo> {
        let described = || self.described.get(type_name).map(|one| one.info.clone());
        self.programs.nf(type_name).or_else(described)
    }

    fn nf_with(&self, type_name: &str, config: &serde_json::Value) -> Option<NfInfo> {
        let described = || self.described.get(type_name).map(|one| one.info.clone());
        self.programs.nf_with(type_name, config).or_else(described)
    }

    fn types(&self) -> Vec<String> {
        let mut all = self.programs.types();
        all.extend(self.described.keys().cloned());
        all.sort();
        all
    }

    fn template(&self, name: &str) -> Option<Arc<Template>> {
        self.templates.get(name).cloned()
    }

    fn templates(&self) -> Vec<String> {
        self.templates.keys().cloned().collect()
    }

    fn has_code(&self, type_name: &str) -> bool {
        !self.described.contains_key(type_name)
    }

    fn generate(
        &self,
        type_name: &str,
        config: &serde_json::Value,
        around: &Around,
    ) -> Result<serde_json::Value, ConfigProblem> {
        match self.has_code(type_name) {
            true => self.programs.generate(type_name, config, around),
            false => Ok(config.clone()),
        }
    }

    fn shown_with(&self, type_name: &str) -> String {
        self.programs.shown_with(type_name)
    }

    /// What has no code takes any configuration.
    fn check_config(
        &self,
        type_name: &str,
        config: &serde_json::Value,
    ) -> Result<(), ConfigProblem> {
        match self.has_code(type_name) {
            true => self.programs.check_config(type_name, config),
            false => Ok(()),
        }
    }
}

/// The server that plans are for: the first of a hardware description, else this machine; of either what `--cores`
/// leaves of it.
pub fn server(path: Option<&Path>, given: Option<&[usize]>) -> Result<Server, PolicyFailure> {
    if let Some(path) = path {
        let (text, syntax) = read(path)?;
        let hardware = Hardware::read(&text, syntax).map_err(|e| wrong(&e, path, &text))?;
        if let Some(mut server) = hardware.servers.into_iter().next() {
            let least = given.and_then(|given| u32::try_from(given.len()).ok());
            server.cores = server.cores.min(least.unwrap_or(u32::MAX));
            return Ok(server);
        }
    }
    let cores = crate::cores::online();
    let cores = given.map_or(cores, |given| cores.min(given.len()));
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let ghz = clock_rate().unwrap_or(2.0);
    Ok(Server { name: "this machine".to_owned(), cores, ghz, nic_bps: None })
}

/// The clock rate in GHz that cores get to, as far as the kernel says: what one has right now depends
/// on how busy it is.
fn clock_rate() -> Option<f64> {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq";
    let most = std::fs::read_to_string(path).ok().and_then(|kilohertz| {
        let kilohertz: f64 = kilohertz.trim().parse().ok()?;
        gigahertz(kilohertz / 1e3)
    });
    most.or_else(|| fastest(&std::fs::read_to_string("/proc/cpuinfo").ok()?))
}

/// The highest rate in `/proc/cpuinfo`, in GHz.
fn fastest(cpuinfo: &str) -> Option<f64> {
    let rates = cpuinfo.lines().filter(|line| line.starts_with("cpu MHz"));
    let rates = rates.filter_map(|line| gigahertz(line.split(':').nth(1)?.trim().parse().ok()?));
    rates.max_by(f64::total_cmp)
}

/// MHz in GHz, if a core could have so many.
fn gigahertz(megahertz: f64) -> Option<f64> {
    (10.0..100_000.0).contains(&megahertz).then_some(megahertz / 1e3)
}

/// A document's text and syntax.
fn read(path: &Path) -> Result<(String, Syntax), PolicyFailure> {
    let syntax = Syntax::of(path).ok_or_else(|| PolicyFailure::Syntax { path: path.to_owned() })?;
    Ok((read_text(path)?, syntax))
}

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// What is there is no text, or one without an end.
    #[error("{0} is not read: write the text to a file, and give that")]
    NotAFile(&'static str),
    /// A file of the kernel's that waits for something to be said, such as /proc/kmsg.
    #[error("there is nothing to be read yet: write the text to a file, and give that")]
    Waits,
    /// It is not text.
    #[error("it is not UTF-8")]
    NotText,
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

thread_local! {
    /// What this thread reads is read again while a graph runs: whoever waits for a pipe then keeps the run from its
    /// end.
    static AGAIN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Calls `read` in such a way that pipes are refused, whatever it reads.
pub fn again<T>(read: impl FnOnce() -> T) -> T {
    AGAIN.set(true);
    let done = read();
    AGAIN.set(false);
    done
}

/// A policy's or document's text, from a file or a pipe, one byte more than it may have at most: what is
/// longer is refused by its length, not read.
pub fn read_text(path: &Path) -> Result<String, PolicyFailure> {
    text(path, true).map_err(|source| PolicyFailure::Read { path: path.to_owned(), source })
}

/// As [`read_text`]; `pipes`: also from a pipe, which waits for whoever writes into it.
pub fn text(path: &Path, pipes: bool) -> Result<String, TextError> {
    let pipes = pipes && !AGAIN.get();
    // Before it is opened: to open a device may do something.
    readable(&std::fs::metadata(path)?, pipes)?;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    // It may be another one by now.
    if readable(&file.metadata()?, pipes)? {
        wait_for_writer(&file, path)?;
    }
    let mut bytes = Vec::new();
    match file.take(weir_plan::MAX_TEXT as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Err(TextError::Waits),
        Err(e) => return Err(e.into()),
    }
    if bytes.len() > weir_plan::MAX_TEXT {
        // It was cut, maybe inside a character; its length is all that is looked at.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| TextError::NotText)
}

/// Waits until something comes out of a pipe, or who writes has gone; says so when that takes long. From then on
/// reading waits too.
fn wait_for_writer(pipe: &std::fs::File, path: &Path) -> Result<(), std::io::Error> {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let soon = Timespec { tv_sec: 1, tv_nsec: 0 };
    // A signal ends the program or is nothing: waiting goes on.
    let mut wait = |patience| rustix::io::retry_on_intr(|| poll(&mut fds, patience));
    if wait(Some(&soon))? == 0 {
        crate::complain!(
            "weir: {} is a pipe, and nothing comes out of it: waiting for who writes the text into it (Ctrl-C \
             ends this)",
            path.display()
        );
        wait(None)?;
    }
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags.difference(OFlags::NONBLOCK))?)
}

/// Whether it is a pipe; refuses what is neither that nor a file.
fn readable(found: &std::fs::Metadata, pipes: bool) -> Result<bool, TextError> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(false),
        () if kind.is_fifo() && pipes => return Ok(true),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(TextError::NotAFile(what))
}

fn wrong(errors: &[PolicyError], path: &Path, text: &str) -> PolicyFailure {
    PolicyFailure::Policy(weir_plan::render(errors, &path.display().to_string(), text))
}

#[cfg(test)]
mod tests {
    use super::{fastest, server};

    #[test]
    fn of_this_machine_a_plan_is_for_the_cores_given_only() {
        let cores = |given: &[usize]| server(None, Some(given)).map(|server| server.cores).ok();
        assert_eq!(cores(&[0]), Some(1));
        // Those that are not there do not count.
        assert_eq!(cores(&[0; 100_000]), server(None, None).map(|server| server.cores).ok());
    }

    #[test]
    fn of_described_hardware_too() {
        let path = std::env::temp_dir().join(format!("weir-server-{}.yaml", std::process::id()));
        std::fs::write(&path, "servers: [ { name: box, cores: 8, ghz: 2.0 } ]\n").unwrap();
        let cores = |given: Option<&[usize]>| server(Some(&path), given).unwrap().cores;
        assert_eq!((cores(None), cores(Some(&[0, 1, 2])), cores(Some(&[0; 9]))), (8, 3, 8));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_clock_rate_is_that_of_the_fastest_core_not_of_an_idle_one() {
        let cores = "processor\t: 0\ncpu MHz\t\t: 800.000\nprocessor\t: 1\ncpu MHz\t\t: 2100.000\n\
                     processor\t: 2\ncpu MHz\t\t: unknown\n";
        assert_eq!(fastest(cores), Some(2.1));
        assert_eq!(fastest("processor\t: 0\n"), None);
    }
}
