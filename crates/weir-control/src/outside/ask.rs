//! Running a program for one answer.

use crate::jail::Cell;
use crate::launch::{Executable, Launcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long it may take.
const TIME: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER: usize = 4 << 20;
/// Bytes of complaints that are kept.
const COMPLAINT: usize = 2 << 10;
/// Bytes of its own memory.
const MEMORY: u64 = 1 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It cannot be started.
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    /// It cannot be waited for.
    #[error("{0}")]
    System(#[from] io::Error),
    /// It takes too long.
    #[error("no answer after {} s; it was ended", TIME.as_secs())]
    Slow,
    /// It says too much.
    #[error("more than {} MiB came; it was ended", ANSWER >> 20)]
    TooMuch,
    /// It failed.
    #[error("{how}{said}")]
    Failed {
        /// How.
        how: String,
        /// What it said.
        said: String,
    },
}

/// Ends the process in any case.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `program question` with `input` on its standard input; gives back its output.
pub(super) fn ask(
    launcher: &Launcher,
    program: &Executable,
    question: &str,
    input: &[u8],
) -> Result<Vec<u8>, AskError> {
    let cell = Cell {
        closed: true,
        no_network: true,
        real_time: false,
        round_robin: false,
        descriptors: 64,
        memory: Some(MEMORY),
    };
    let mut command = launcher.command(program, cell);
    command.arg(question).stdin(in_memory(input)?);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().map_err(AskError::Start)?);
    let process = pidfd_open(Pid::from_child(&running.0), PidfdFlags::empty());
    let process = process.map_err(io::Error::from)?;
    let (mut answer, mut complaint) = (Vec::new(), Vec::new());
    let (mut out, mut err) = (running.0.stdout.take(), running.0.stderr.take());
    let end = Instant::now() + TIME;
    // Both outputs to their ends, then its death.
    loop {
        let mut fds = Vec::new();
        fds.extend(out.as_ref().map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::IN)));
        fds.extend(err.as_ref().map(|f| PollFd::from_borrowed_fd(f.as_fd(), PollFlags::IN)));
        let ended = fds.is_empty();
        if ended {
            fds.push(PollFd::new(&process, PollFlags::IN));
        }
        if !wait(&mut fds, end)? {
            return Err(AskError::Slow);
        }
        let heard: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        drop(fds);
        if ended {
            break;
        }
        let err_at = usize::from(out.is_some());
        let out_heard = out.is_some() && heard.first() == Some(&true);
        let err_heard = err.is_some() && heard.get(err_at) == Some(&true);
        if out_heard && take(&mut out, &mut answer)? && answer.len() > ANSWER {
            return Err(AskError::TooMuch);
        }
        if err_heard && take(&mut err, &mut complaint)? {
            complaint.truncate(COMPLAINT);
        }
    }
    let status = running.0.wait()?;
    if status.success() { Ok(answer) } else { Err(failed(status, &complaint)) }
}

/// A file in memory with `bytes`: reading it never waits, and nobody waits for it to be read.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let fd = rustix::fs::memfd_create("weir-question", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// False when the time is over.
fn wait(fds: &mut [PollFd<'_>], end: Instant) -> Result<bool, io::Error> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Takes what is there; at its end the pipe is closed and false given.
fn take(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 1 << 16];
    let n = pipe.as_mut().map_or(Ok(0), |p| p.read(&mut piece))?;
    into.extend_from_slice(piece.get(..n).unwrap_or_default());
    if n == 0 {
        *pipe = None;
    }
    Ok(n > 0)
}

fn failed(status: ExitStatus, complaint: &[u8]) -> AskError {
    let said = printable(String::from_utf8_lossy(complaint).trim());
    let said = if said.is_empty() { said } else { format!(": {said}") };
    AskError::Failed { how: status.to_string(), said }
}

/// Fit for a terminal: what moves cursors or changes colours becomes a space.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMPLAINT).collect()
}
