//! One worker process.

use crate::memory::{Memory, MemoryError};
use crate::setup::Setup;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use weir_runtime::link;

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No process.
    #[error("cannot start a worker process: {0}")]
    Process(#[from] io::Error),
    /// No memory, or it could not be told its work.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No control socket.
    #[error(transparent)]
    Link(#[from] link::LinkError),
    /// It cannot be watched.
    #[error("cannot watch a worker process: {0}")]
    Watch(rustix::io::Errno),
}

/// A worker process that was started.
pub(crate) struct Process {
    child: Child,
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl Process {
    /// Starts worker `w` and tells it its work.
    pub(crate) fn start(
        setup: &Setup,
        memory: &Memory,
        w: usize,
        fault: Option<(u32, u32)>,
    ) -> Result<Self, SpawnError> {
        let (socket, theirs) = link::pair()?;
        // The running program itself: an upgrade on disk does not mix versions.
        let mut command = Command::new("/proc/self/exe");
        // Its own process group: the terminal's Ctrl-C goes to the agent alone.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .arg("worker")
            .arg(&setup.workers[w].name)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        // It holds the worker's end of the socket: while we do too, a worker that has died would
        // not be noticed by writing to it.
        drop(command);
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(SpawnError::Watch)?;
        let process = Process { child, pidfd, socket };
        let (spec, fds) = memory.spec(setup, w, fault)?;
        match link::send(process.socket.as_fd(), &spec, &fds.as_fds()) {
            // It died already: found out by its descriptor like any other death.
            Ok(()) | Err(link::LinkError::Closed) => Ok(process),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Readable when the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Readable when the worker says something.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How it ended; waits for it.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Tells it to leave by closing its control socket; gives back the process to wait for.
    pub(crate) fn dismiss(self) -> Child {
        self.child
    }
}
