//! What the tests of the sandbox share: who runs, and what a process is and has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use crate::common_oracle::TWICE;
use crate::common_outside::copy_program;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Field of /proc/PID/status.
pub fn status(pid: &str, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{field}:")));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Worker processes of an agent: number and name.
pub fn workers(agent: u32) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{agent}/task")).unwrap().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
            if words.get(1).is_some_and(|w| w == "worker") {
                found.push((pid.to_owned(), words[2].clone().into_owned()));
            }
        }
    }
    found
}

/// Ends a run whose test has failed; its workers end with it.
pub struct EndedAnyway(pub u32);

impl Drop for EndedAnyway {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(pid) = rustix::process::Pid::from_raw(self.0 as i32)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// A folder where an ordinary user has `weir`, a policy and room for more; deleted in the end.
pub struct Ordinary(std::path::PathBuf);

impl Ordinary {
    pub const USER: u32 = 54_321;

    pub fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-{test}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let this = Ordinary(folder);
        copy_program(env!("CARGO_BIN_EXE_weir"), this.file("weir"));
        std::fs::write(this.file("p.weir"), TWICE).unwrap();
        for (path, mode) in [("", 0o777), ("weir", 0o755), ("p.weir", 0o644)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(this.file(path), mode).unwrap();
        }
        this
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }

    /// A program that the user runs: him whom root becomes, or who runs the test.
    pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/");
        if is_root() {
            command.uid(Self::USER).gid(Self::USER);
        }
        command
    }

    /// Whether the user can see what descriptors a process has.
    pub fn sees_descriptors(pid: &str) -> bool {
        let output = Self::command("/bin/ls").arg(format!("/proc/{pid}/fd/")).output().unwrap();
        output.status.success()
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
