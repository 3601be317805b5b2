//! The first layer of a worker's sandbox: put around the process by the agent, between fork and exec,
//! so that it holds for programs that are somebody else's. The second is
//! [`weir_runtime::sandbox`]; `docs/decisions/0006-sandbox.md` has the reasons for both.

use landlock::{ABI, Access, AccessFs, AccessNet, PathBeneath, Ruleset, RulesetAttr};
use landlock::{RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, setrlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use seccompiler::BpfProgram;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use weir_mem::realtime::WORKER_PRIORITY;
use weir_runtime::sandbox::{self, SandboxError};

/// The user that has no rights anywhere: `nobody` of most systems.
pub const NOBODY: u32 = 65_534;

/// What the operator may choose of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxOptions {
    /// Off for debugging only.
    pub on: bool,
    /// The user and group that workers become when the agent is root.
    pub user: u32,
    /// Bytes of its own memory that a worker may have; `None`: as many as there are.
    pub memory: Option<u64>,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        SandboxOptions { on: true, user: NOBODY, memory: None }
    }
}

/// Why there is no sandbox to put a worker into.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    /// The filter of system calls.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The rules on files.
    #[error("the sandbox: landlock: {0}")]
    Landlock(#[from] RulesetError),
}

/// Where programs may read: their shared libraries are there.
const LIBRARIES: [&str; 8] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
];

/// Dynamic loaders, which the kernel executes with the program.
const LOADERS: [&str; 7] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/nix/store",
    "/gnu/store",
];

/// What no worker needs any of, so that what a filter lets through has limits all the same: core files, locked
/// memory, message queues, and the right to a better place in the scheduler than it was given.
const NOTHING_OF: [Resource; 5] =
    [Resource::Core, Resource::Memlock, Resource::Msgqueue, Resource::Nice, Resource::Rtprio];

/// What is prepared once and put around every process.
#[derive(Debug)]
pub(crate) struct Jail {
    filter: BpfProgram,
    /// Whom workers become; `None`: not permitted, they stay what the agent is.
    user: Option<u32>,
    /// Whether the agent is root.
    root: bool,
    /// Bytes of its own memory that a worker may have.
    memory: Option<u64>,
    /// Whether programs can be kept from giving capabilities.
    bounded: bool,
    /// An empty network namespace; `None`: not permitted.
    network: Option<Arc<OwnedFd>>,
}

/// What one process gets.
pub(crate) struct Cell {
    /// Everything at once. A device's service, which has files to open first, keeps its user and
    /// system calls until it gives them up itself; it is always weir's own program.
    pub(crate) closed: bool,
    /// Whether its network is empty.
    pub(crate) no_network: bool,
    /// Whether it begins in the real-time class, with the lowest priority.
    pub(crate) real_time: bool,
    /// For experiments: there by SCHED_RR in the place of SCHED_FIFO. The worker itself may not change that any more.
    pub(crate) round_robin: bool,
    /// Descriptors that it may have.
    pub(crate) descriptors: u64,
    /// Bytes of its own memory; `None`: as many as there are.
    pub(crate) memory: Option<u64>,
}

impl Jail {
    /// Finds out what is permitted, and prepares it.
    pub(crate) fn new(options: SandboxOptions) -> Result<Self, JailError> {
        let filter = sandbox::starting()?;
        // Workers of the same user (where there is no other) must not read the agent's memory.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let Permitted { user, network, bounded } = permitted(options.user);
        let root = rustix::process::geteuid().is_root();
        let memory = options.memory;
        Ok(Jail { filter, user, root, memory, bounded, network })
    }

    /// Bytes of its own memory that a worker may have.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.memory
    }

    /// Whether workers may read less than the agent may: they become another user, or lose root's capabilities.
    pub(crate) fn may_less(&self) -> bool {
        self.root
    }

    /// Whom workers become.
    pub(crate) fn user(&self) -> Option<u32> {
        self.user
    }

    /// The rules on files for a program: read and execute itself, read shared libraries. `None`
    /// when the kernel has no landlock.
    pub(crate) fn ruleset(&self, program: impl AsFd) -> Result<Option<OwnedFd>, JailError> {
        let run = AccessFs::Execute | AccessFs::ReadFile;
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V6))?
            .handle_access(AccessNet::from_all(ABI::V6))?
            .scope(Scope::from_all(ABI::V6))?
            .create()?
            .add_rules(path_beneath_rules(LIBRARIES, AccessFs::ReadFile))?
            .add_rules(path_beneath_rules(LOADERS, run))?;
        // Memory files have no place in the file system: no rule is possible, nor needed.
        if let Err(e) = (&mut rules).add_rule(PathBeneath::new(program, run))
            && !in_no_file_system(&e)
        {
            return Err(e.into());
        }
        Ok(rules.into())
    }

    /// Puts it around the process that `command` will start.
    pub(crate) fn put_on(&self, command: &mut Command, rules: Option<Arc<OwnedFd>>, cell: Cell) {
        let mut filter = self.filter.clone();
        let network = self.network.clone().filter(|_| cell.no_network);
        let user = self.user.filter(|_| cell.closed);
        let agent = rustix::process::getpid();
        // Between fork and exec of a program with threads: nothing here may allocate or take a lock.
        let in_child = move || {
            close_on_exec_from(3)?;
            limit(Resource::Nofile, cell.descriptors)?;
            if cell.real_time {
                // Not permitted to all; the worker finds out by itself. A user without rights may
                // keep the class, so it comes before the user.
                let _ = match cell.round_robin {
                    true => weir_mem::realtime::set_round_robin(WORKER_PRIORITY),
                    false => weir_mem::realtime::set_fifo(None, WORKER_PRIORITY),
                };
            }
            // After the class, which stays: whoever has it may ask for it again.
            for resource in NOTHING_OF {
                limit(resource, 0)?;
            }
            if let Some(bytes) = cell.memory {
                limit(Resource::Data, bytes)?;
            }
            if let Some(network) = &network {
                rustix::thread::move_into_link_name_space(
                    network.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )?;
            }
            if cell.closed {
                // As long as it is root.
                be_first_to_go();
                // Where it is not permitted the summary says so.
                let _ = sandbox::bound_capabilities();
            }
            if let Some(user) = user {
                sandbox::become_user(user)?;
            }
            // After the user: a change of user forgets it.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(agent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            // After the user too: exec would refuse a user that has more processes already.
            limit(Resource::Nproc, 0)?;
            if !cell.closed {
                return Ok(());
            }
            rustix::thread::set_no_new_privs(true)?;
            // The program's file, or user 0, gives none of them back: there are no new privileges.
            sandbox::drop_capabilities()?;
            if let Some(rules) = &rules {
                restrict_files(rules)?;
            }
            let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
            sandbox::name_process(&mut filter, own);
            seccompiler::apply_filter(&filter)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
        };
        // SAFETY: the closure makes system calls on constants and values made before the fork, writes to its own copy of the
        // filter, and compares numbers; it neither allocates, nor locks, nor touches what other threads may have held.
        #[allow(unsafe_code, reason = "a worker's pre-exec step, CONTRIBUTING.md")]
        unsafe {
            command.pre_exec(in_child);
        }
    }

    /// One phrase for the operator: what holds, and what was not permitted.
    pub(crate) fn summary(&self, landlock: bool) -> String {
        let (mut holds, mut lacks) = (vec!["seccomp".to_owned()], Vec::new());
        match landlock {
            true => holds.push("landlock".to_owned()),
            false => lacks.push("landlock (not in this kernel)"),
        }
        match self.user {
            Some(user) => holds.push(format!("user {user}")),
            None if self.root => lacks.push("a user of its own (not permitted): workers stay root"),
            None => lacks.push("a user of its own (not permitted)"),
        }
        holds.push("no capabilities".to_owned());
        if !self.bounded {
            lacks.push("an empty bounding set (not permitted)");
        }
        match &self.network {
            Some(_) => holds.push("empty network namespace".to_owned()),
            None => lacks.push("network namespace (not permitted)"),
        }
        let without = if lacks.is_empty() { "" } else { "; without " };
        format!("sandbox: {}{without}{}", holds.join(", "), lacks.join(", "))
    }
}

/// What the agent may do for its workers.
#[derive(Clone, Default)]
struct Permitted {
    user: Option<u32>,
    network: Option<Arc<OwnedFd>>,
    bounded: bool,
}

/// What is permitted for workers of this user, as it was found out the first time: to make a network namespace takes seconds while the
/// kernel takes others apart, for which a graph that is changed must not wait.
fn permitted(user: u32) -> Permitted {
    static FOUND: Mutex<BTreeMap<u32, Permitted>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = found.get(&user) {
        return found.clone();
    }
    let tried = try_out(user);
    // What was refused, as there were too many open files, say, may be permitted the next time.
    if tried.network.is_some() && tried.user.is_some() {
        found.insert(user, tried.clone());
    }
    tried
}

/// Becomes the workers' user, in a thread that ends then: the kernel keeps users, namespaces and capabilities per
/// thread. Says what was permitted.
fn try_out(user: u32) -> Permitted {
    let root = rustix::process::geteuid().is_root();
    let tried = std::thread::Builder::new().spawn(move || {
        let network = if root { own_network().ok().map(Arc::new) } else { None };
        let bounded = sandbox::bound_capabilities().is_ok();
        let user = Some(user).filter(|user| root && sandbox::become_user(*user).is_ok());
        Permitted { user, network, bounded }
    });
    // Without a thread there will be no worker either: that is where it is said.
    tried.ok().and_then(|tried| tried.join().ok()).unwrap_or_default()
}

/// A new network namespace for this thread; workers enter it one after the other, which costs
/// microseconds where making one costs milliseconds.
fn own_network() -> rustix::io::Result<OwnedFd> {
    // SAFETY: the network alone is unshared, not the table of descriptors.
    #[allow(unsafe_code, reason = "preparation of a worker's pre-exec step, CONTRIBUTING.md")]
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)?;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
}

fn in_no_file_system(e: &RulesetError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(e);
    while let Some(e) = cause {
        if e.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) == Some(libc::EBADFD) {
            return true;
        }
        cause = e.source();
    }
    false
}

/// When memory runs out, this process is ended before others. An ordinary user may not ask for that here: the
/// agent hides, and its child with it until its program begins.
fn be_first_to_go() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
        let _ = rustix::io::write(&file, b"1000");
    }
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}

/// Closes all descriptors from `first` on when the program begins.
fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: marks descriptors; takes no memory.
    #[allow(unsafe_code, reason = "a worker's pre-exec step, CONTRIBUTING.md")]
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Landlock's last step, which its crate would do together with others that allocate.
fn restrict_files(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes a descriptor, which is open, and no memory.
    #[allow(unsafe_code, reason = "a worker's pre-exec step, CONTRIBUTING.md")]
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
