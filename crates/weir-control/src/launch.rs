//! Starting programs as workers: which file is executed, and what is around it.

use crate::jail::{Cell, Jail, JailError, SandboxOptions};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A program, held open: replacing its file while it is in use mixes no versions.
#[derive(Debug)]
pub(crate) struct Executable {
    file: OwnedFd,
    rules: Option<Arc<OwnedFd>>,
}

/// Starts programs, each in its sandbox.
#[derive(Debug)]
pub(crate) struct Launcher {
    jail: Option<Jail>,
}

impl Launcher {
    pub(crate) fn new(options: SandboxOptions) -> Result<Self, JailError> {
        let jail = if options.on { Some(Jail::new(options)?) } else { None };
        Ok(Launcher { jail })
    }

    /// The sandbox; `None` when it is off.
    pub(crate) fn jail(&self) -> Option<&Jail> {
        self.jail.as_ref()
    }

    /// Opens a program.
    pub(crate) fn open(&self, path: &Path) -> Result<Executable, OpenError> {
        let found = std::fs::metadata(path)?;
        if !found.is_file() || found.mode() & 0o111 == 0 {
            return Err(OpenError::NotExecutable);
        }
        let may_less = self.jail.as_ref().is_some_and(Jail::may_less);
        let file = if may_less && found.mode() & 0o005 != 0o005 {
            // Workers may not run the file itself.
            copy(path)?
        } else {
            rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(io::Error::from)?
        };
        let rules = match &self.jail {
            Some(jail) => jail.ruleset(&file)?.map(Arc::new),
            None => None,
        };
        Ok(Executable { file, rules })
    }

    /// The program that is running.
    pub(crate) fn own(&self) -> Result<Executable, OpenError> {
        self.open(Path::new("/proc/self/exe"))
    }

    /// A command that starts `program` in `cell`. The program must stay open until then.
    pub(crate) fn command(&self, program: &Executable, cell: Cell) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", program.file.as_raw_fd()));
        command.arg0("weir");
        // Its own process group: the terminal's Ctrl-C goes to the agent alone.
        command.process_group(0);
        if let Some(jail) = &self.jail {
            // What is in the environment is not a worker's business.
            let backtrace = std::env::var_os("RUST_BACKTRACE");
            command.env_clear().envs(backtrace.map(|v| ("RUST_BACKTRACE", v)));
            jail.put_on(&mut command, program.rules.clone(), cell);
        }
        command
    }

    /// One line for the operator.
    pub(crate) fn summary(&self, program: &Executable) -> String {
        match &self.jail {
            Some(jail) => jail.summary(program.rules.is_some()),
            None => "SANDBOX OFF: workers may do whatever this user may; for debugging only".into(),
        }
    }
}

/// Why a program cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be opened.
    #[error("{0}")]
    File(#[from] io::Error),
    /// It is not a program.
    #[error("it is not an executable file; name a program (or make it one: chmod +x)")]
    NotExecutable,
    /// It cannot be sandboxed.
    #[error(transparent)]
    Jail(#[from] JailError),
}

/// A copy in memory that everybody may read and run.
fn copy(path: &Path) -> io::Result<OwnedFd> {
    let mut from = std::fs::File::open(path)?;
    let to = rustix::fs::memfd_create("weir-program", MemfdFlags::CLOEXEC)?;
    let mut to = std::fs::File::from(to);
    io::copy(&mut from, &mut to)?;
    rustix::fs::fchmod(&to, Mode::from_raw_mode(0o555))?;
    // A file that is open for writing cannot be executed: open it again, for reading.
    let again = format!("/proc/self/fd/{}", to.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(again, flags, Mode::empty())?)
}
