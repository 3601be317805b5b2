//! The lists of system calls, compiled to seccomp filters.

use super::{OWN_PID, Profile, SandboxError};
use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter};
use seccompiler::{SeccompCmpArgLen, SeccompRule};
use std::collections::BTreeMap;

/// What every worker does all day: packets need none of it, rest and control messages do.
const ALWAYS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getcpu,
];

/// Reading and writing a capture that is open.
const CAPTURE: &[c_long] = &[
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
];

/// Receiving and sending on an interface that is open: reading, and writing to what the descriptor is
/// bound to. Nothing by which another could be named: no `bind`, no `setsockopt`, no message with an
/// address.
const LIVE: &[c_long] = &[
    // The kernel's counters, from a file that is open.
    libc::SYS_pread64,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
];

/// What an allocator says of its own memory. No other advice: `MADV_REMOVE` gives back the pages of memory that is
/// shared, past its seals, and whoever touches it next may find none. `MADV_POPULATE_*`, `MADV_PAGEOUT` and the like
/// work on what others have mapped, too.
const ADVICES: [libc::c_int; 4] =
    [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_HUGEPAGE, libc::MADV_NOHUGEPAGE];

/// Reserved huge pages are few, and packets lie on them: a worker gets none of its own.
const HUGE: u64 = libc::MAP_HUGETLB as u64;

/// Where every worker's control socket is. `sendmsg` may be used there only: it may name an address, which
/// a filter cannot see. (A packet socket cannot get there: no descriptor can be made or copied.)
const CONTROL: u64 = 0;

/// Questions about an interface that [`Profile::Live`] may ask of its socket.
const LIVE_IOCTLS: &[u64] = &[
    libc::SIOCGIFINDEX,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFMTU,
    libc::SIOCGIFHWADDR,
    libc::TUNGETIFF,
];

/// What honest code asks for now and then (a panic's backtrace, a library that wants a thread or a
/// log): refused with EPERM, so that its author reads an error instead of guessing at a signal.
const REFUSED: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_mprotect,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_wait4,
    libc::SYS_pipe2,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_timerfd_create,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_getppid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// What a program's beginning needs besides, up to the second layer.
const STARTING: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_mprotect,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_membarrier,
    libc::SYS_seccomp,
    libc::SYS_getppid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// What a program's beginning may ask about itself, and set of itself: a worker its core and its class.
/// The first argument says of whom; any other process of the user is none of its business.
const STARTING_OWN: &[c_long] = &[
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
];

/// Names of older calls that only x86-64 still has.
#[cfg(target_arch = "x86_64")]
mod old {
    use super::c_long;
    pub(super) const ALWAYS: &[c_long] = &[libc::SYS_poll, libc::SYS_time];
    pub(super) const STARTING: &[c_long] =
        &[libc::SYS_arch_prctl, libc::SYS_access, libc::SYS_readlink, libc::SYS_stat];
    pub(super) const REFUSED: &[c_long] = &[
        libc::SYS_open,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_readlink,
        libc::SYS_pipe,
        libc::SYS_dup2,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_getrlimit,
        libc::SYS_setrlimit,
    ];
}
#[cfg(not(target_arch = "x86_64"))]
mod old {
    use super::c_long;
    pub(super) const ALWAYS: &[c_long] = &[];
    pub(super) const STARTING: &[c_long] = &[];
    pub(super) const REFUSED: &[c_long] = &[];
}

/// System calls with the arguments with which they match.
#[derive(Default)]
struct Calls(BTreeMap<i64, Vec<SeccompRule>>);

/// One argument: its place, how much of it is looked at, how, and against what.
type Argument = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

impl Calls {
    fn any(mut self, calls: &[c_long]) -> Self {
        self.0.extend(calls.iter().map(|c| (*c, Vec::new())));
        self
    }

    /// `call` too when all of these hold. Not for one that matches with any arguments already.
    fn when(mut self, call: c_long, holds: &[Argument]) -> Result<Self, SandboxError> {
        let condition = |a: &Argument| SeccompCondition::new(a.0, a.1.clone(), a.2.clone(), a.3);
        let conditions: Result<Vec<_>, _> = holds.iter().map(condition).collect();
        let rule = conditions.and_then(SeccompRule::new).map_err(filter_error)?;
        self.0.entry(call).or_default().push(rule);
        Ok(self)
    }

    /// What is allowed of `madvise`.
    fn advices(self) -> Result<Self, SandboxError> {
        ADVICES
            .iter()
            .try_fold(self, |calls, a| calls.when(libc::SYS_madvise, &[(2, Dword, Eq, *a as u64)]))
    }

    fn compile(
        self,
        others: SeccompAction,
        these: SeccompAction,
    ) -> Result<BpfProgram, SandboxError> {
        let arch = std::env::consts::ARCH.try_into().map_err(filter_error)?;
        let filter = SeccompFilter::new(self.0, others, these, arch).map_err(filter_error)?;
        filter.try_into().map_err(filter_error)
    }

    /// Signals to nobody but the process itself (it aborts so).
    fn own_signals(self) -> Result<Self, SandboxError> {
        let own = [(0, Dword, Eq, u64::from(OWN_PID))];
        self.when(libc::SYS_kill, &own)?.when(libc::SYS_tgkill, &own)
    }

    /// `call` too when its first argument is the caller, as 0 or by its number, and `more` holds.
    fn on_itself(mut self, call: c_long, more: &[Argument]) -> Result<Self, SandboxError> {
        for own in [0, u64::from(OWN_PID)] {
            self = self.when(call, &[&[(0, Dword, Eq, own)], more].concat())?;
        }
        Ok(self)
    }
}

fn filter_error(e: seccompiler::BackendError) -> SandboxError {
    SandboxError::Filter(e.to_string())
}

const NOT_PERMITTED: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// See [`super::starting`].
pub(super) fn starting() -> Result<BpfProgram, SandboxError> {
    let writes = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE;
    let only_reads = MaskedEq(writes as u32 as u64);
    let mut calls = Calls::default()
        .any(ALWAYS)
        .any(old::ALWAYS)
        .any(STARTING)
        .any(old::STARTING)
        .own_signals()?
        .advices()?
        .when(libc::SYS_mmap, &[(3, Dword, MaskedEq(HUGE), 0)])?
        .when(libc::SYS_sendmsg, &[(0, Dword, Eq, CONTROL)])?
        .when(libc::SYS_openat, &[(2, Dword, only_reads.clone(), 0)])?
        // Asking for a limit, not setting one.
        .on_itself(libc::SYS_prlimit64, &[(2, Qword, Eq, 0)])?;
    for call in STARTING_OWN {
        calls = calls.on_itself(*call, &[])?;
    }
    #[cfg(target_arch = "x86_64")]
    {
        calls = calls.when(libc::SYS_open, &[(1, Dword, only_reads, 0)])?;
    }
    for command in [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC] {
        calls = calls.when(libc::SYS_fcntl, &[(1, Dword, Eq, command as u64)])?;
    }
    for (option, value) in [
        (libc::PR_SET_NAME, None),
        // Not to outlive the agent, and not to become readable again.
        (libc::PR_SET_PDEATHSIG, Some(libc::SIGKILL)),
        (libc::PR_SET_DUMPABLE, Some(0)),
        (libc::PR_SET_NO_NEW_PRIVS, Some(1)),
    ] {
        let option = (0, Dword, Eq, option as u64);
        calls = match value {
            Some(value) => calls.when(libc::SYS_prctl, &[option, (1, Dword, Eq, value as u64)])?,
            None => calls.when(libc::SYS_prctl, &[option])?,
        };
    }
    calls.compile(NOT_PERMITTED, SeccompAction::Allow)
}

/// The second layer: two filters, of whose answers the kernel takes the stricter. The first refuses
/// what honest code may try; the second, put on last, kills for whatever is on no list.
pub(super) fn running(profile: Profile) -> Result<[BpfProgram; 2], SandboxError> {
    let (allowed, ioctls): (&[c_long], &[u64]) = match profile {
        Profile::Nf => (&[], &[]),
        Profile::Capture => (CAPTURE, &[]),
        Profile::Live => (LIVE, LIVE_IOCTLS),
    };
    let mut refused = [REFUSED, old::REFUSED].concat();
    if profile != Profile::Live {
        refused.push(libc::SYS_getsockname);
    }
    let refused = Calls::default().any(&refused);
    let other_ioctls: Vec<Argument> = ioctls.iter().map(|r| (1, Dword, Ne, *r)).collect();
    let refused = match other_ioctls.as_slice() {
        [] => refused.any(&[libc::SYS_ioctl]),
        others => refused.when(libc::SYS_ioctl, others)?,
    };
    // Once more "no new privileges" may be asked for: the second filter's installation does.
    let refused =
        refused.when(libc::SYS_prctl, &[(0, Dword, Ne, libc::PR_SET_NO_NEW_PRIVS as u64)])?;
    // Allocators go on without: nothing to die for.
    let other_advices = ADVICES.map(|a| (2, Dword, Ne, a as u64));
    let refused = refused
        .when(libc::SYS_madvise, &other_advices)?
        .when(libc::SYS_mmap, &[(3, Dword, MaskedEq(HUGE), HUGE)])?;
    let known: Vec<i64> = refused.0.keys().copied().collect();
    let mut calls = Calls::default()
        .any(ALWAYS)
        .any(old::ALWAYS)
        .any(allowed)
        .own_signals()?
        .when(libc::SYS_sendmsg, &[(0, Dword, Eq, CONTROL)])?;
    calls.0.extend(known.into_iter().map(|call| (call, Vec::new())));
    // Last: it is known for its flags, and killed for what it would make.
    calls.0.remove(&libc::SYS_mmap);
    let calls = calls.when(libc::SYS_mmap, &[(2, Dword, MaskedEq(libc::PROT_EXEC as u64), 0)])?;
    Ok([
        refused.compile(SeccompAction::Allow, NOT_PERMITTED)?,
        calls.compile(SeccompAction::KillProcess, SeccompAction::Allow)?,
    ])
}
