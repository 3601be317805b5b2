//! Folders and processes of a benchmark's own, which must not outlive it. Ctrl-C drops nothing, so both stand in a list that whoever ends
//! the program clears. `kill -9` clears nothing: then the kernel ends the processes (`setpriv --pdeathsig`), and a folder stays until a
//! program of the same number makes it anew.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Before a program and its arguments: whoever ends this process ends that one.
pub const ENDS_WITH_US: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Longest wait for what a process said after its end: a descendant may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who stands in it is there: whoever has the lock makes, reaps and removes.
static LIST: Mutex<List> = Mutex::new(List { folders: Vec::new(), processes: Vec::new() });

struct List {
    folders: Vec<PathBuf>,
    /// None of them is reaped, so that its number is nobody else's.
    processes: Vec<Pid>,
}

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all processes and removes all folders, for who ends the program after it: nothing new can be begun any more.
pub fn clear() {
    let list = list();
    // Who still runs could write into what is being removed.
    for pid in &list.processes {
        let _ = kill_process(*pid, Signal::KILL);
    }
    for pid in &list.processes {
        let _ = waitpid(Some(*pid), WaitOptions::empty());
    }
    for folder in &list.folders {
        let _ = std::fs::remove_dir_all(folder);
    }
    // Locked for ever.
    std::mem::forget(list);
}

/// As long as what is returned is there [`clear`] waits, and with it who ends the program. Nothing may be made meanwhile that stands in the list.
pub fn uninterrupted() -> Uninterrupted {
    Uninterrupted { _held: list() }
}

pub struct Uninterrupted {
    _held: MutexGuard<'static, List>,
}

/// A folder among temporary files.
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one, `NAME-PID`.
    pub fn new(name: &str) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let mut list = list();
        // A killed program of the same number may have left one.
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        list.folders.push(path.clone());
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut list = list();
        let _ = std::fs::remove_dir_all(&self.0);
        list.folders.retain(|folder| *folder != self.0);
    }
}

/// A process, which is killed when this is dropped.
pub struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut list = list();
        let child = command.spawn()?;
        list.processes.push(Pid::from_child(&child));
        Ok(Process { child, ended: None })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until it has ended; `None` when it has not within that time.
    pub fn ended_within(&mut self, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let end = Instant::now() + patience;
        let fd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if left.is_zero() => return Ok(None),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.reap().map(Some),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn reap(&mut self) -> std::io::Result<ExitStatus> {
        let mut list = list();
        let status = self.child.wait()?;
        let pid = Pid::from_child(&self.child);
        list.processes.retain(|other| *other != pid);
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.reap();
        }
    }
}

/// Why a process has no output.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it did not end within {0:?} and was killed")]
    Late(Duration),
}

/// Runs a process to its end, without input; it is killed when it has not ended within that time.
pub fn output(command: &mut Command, patience: Duration) -> Result<Output, OutputError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command)?;
    let (stdout, stderr) = (read(process.stdout()), read(process.child.stderr.take()));
    let status = process.ended_within(patience)?.ok_or(OutputError::Late(patience))?;
    let said = |text: Receiver<Vec<u8>>| text.recv_timeout(LAST_WORDS).unwrap_or_default();
    Ok(Output { status, stdout: said(stdout), stderr: said(stderr) })
}

/// Reads all, in a thread: a full pipe would hold up who writes into it.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, text) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // What came before an error is what there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut all));
        // Who asked may not wait any more.
        let _ = send.send(all);
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_process_says_is_had_to_the_end_also_when_it_is_more_than_a_pipe_holds() {
        let script = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
        let output = output(&mut shell(script), Duration::from_secs(60)).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn who_does_not_end_in_time_is_killed_and_it_is_said_so() {
        let scratch = Folder::new("weir-own-late").unwrap();
        let told = scratch.path().join("pid");
        let script = format!("echo $$ >{0}.part; mv {0}.part {0}; exec sleep 1000", told.display());
        let mut command = shell(&script);
        let mut patience = Duration::from_millis(100);
        // On a slow machine it may not even have begun.
        while !told.exists() {
            let late = output(&mut command, patience);
            assert!(matches!(late, Err(OutputError::Late(after)) if after == patience), "{late:?}");
            patience *= 2;
        }
        let pid: i32 = std::fs::read_to_string(&told).unwrap().trim().parse().unwrap();
        // Reaped as well.
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(!list().processes.contains(&Pid::from_raw(pid).unwrap()));
    }

    #[test]
    fn a_folder_is_empty_at_first_and_gone_at_last_whatever_was_there() {
        let path = std::env::temp_dir().join(format!("weir-own-stale-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("conf.db"), "of another time").unwrap();
        let folder = Folder::new("weir-own-stale").unwrap();
        assert_eq!(folder.path(), path);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert!(list().folders.contains(&path));
        std::fs::write(path.join("conf.db"), "of this time").unwrap();
        drop(folder);
        assert!(!path.exists() && !list().folders.contains(&path));
    }

    #[test]
    fn a_process_that_is_dropped_is_killed_and_leaves_the_list() {
        let process = Process::start(shell("exec sleep 1000").stdin(Stdio::null())).unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        assert!(list().processes.contains(&pid));
        drop(process);
        assert!(!Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
        assert!(!list().processes.contains(&pid));
    }
}
