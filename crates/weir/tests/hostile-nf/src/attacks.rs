//! The attacks. Each says `refused: ERRNO`, or `REACHED` when the kernel let it through.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// What the worker was given.
#[derive(Default)]
pub struct Held<'h> {
    /// Descriptor of the packet bytes.
    pub data: Option<&'h OwnedFd>,
    /// Whether it is meant to be written.
    pub writable: bool,
    /// Descriptor of memory that it shares with others and may write.
    pub shared: Option<&'h OwnedFd>,
    /// All that it was given.
    pub all: &'h [OwnedFd],
}

static AGENT: AtomicI32 = AtomicI32::new(0);

/// Notes whom to attack, while that may still be asked.
pub fn remember() {
    AGENT.store(unsafe { libc::getppid() }, Ordering::Relaxed);
}

/// Whether the next message on standard input has these bytes in it.
pub fn next_message_says(what: &[u8]) -> bool {
    let mut buffer = vec![0_u8; 1 << 20];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    let got = unsafe { libc::recvmsg(0, &mut message, libc::MSG_PEEK) };
    let seen = buffer.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    seen.windows(what.len()).any(|w| w == what)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn said(result: i64) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn name(errno: i32) -> String {
    match errno {
        libc::EPERM => "EPERM".into(),
        libc::EACCES => "EACCES".into(),
        other => std::io::Error::from_raw_os_error(other).to_string(),
    }
}

/// Does one.
pub fn run(what: &str, path: &str, held: &Held<'_>) -> String {
    match attack(what, path, held) {
        Ok(()) => "REACHED".into(),
        Err(refused @ (libc::EPERM | libc::EACCES)) => format!("refused: {}", name(refused)),
        // Its arguments were looked at: the call itself is open.
        Err(other) => format!("REACHED: {}", name(other)),
    }
}

fn open(path: &str, flags: i32) -> Result<i32, i32> {
    let path = CString::new(path).unwrap();
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o666) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

fn socket(domain: i32, kind: i32) -> Result<(), i32> {
    said(unsafe { libc::socket(domain, kind, 0) }.into())
}

fn call(number: libc::c_long) -> Result<(), i32> {
    said(unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) })
}

fn agent() -> i32 {
    AGENT.load(Ordering::Relaxed)
}

/// Processes that were started at about the same time: neighbours, or nobody.
fn neighbours() -> impl Iterator<Item = i32> {
    let own = unsafe { libc::getpid() };
    (own - 8..own + 8).filter(move |pid| *pid != own && *pid > 1 && !is_of_another(*pid))
}

/// Known to be no child of this worker's agent: another test's. In the sandbox nothing is known.
fn is_of_another(pid: i32) -> bool {
    let parent = format!("PPid:\t{}\n", agent());
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|s| !s.contains(&parent))
}

/// The best that came of trying all neighbours: through, or refused, or nobody there.
fn any_neighbour(try_one: impl Fn(i32) -> Result<(), i32>) -> Result<(), i32> {
    let all: Vec<_> = neighbours().map(try_one).collect();
    if all.contains(&Ok(())) {
        return Ok(());
    }
    let refused =
        all.iter().flat_map(|r| r.err()).find(|e| *e == libc::EPERM || *e == libc::EACCES);
    Err(refused.unwrap_or(libc::ESRCH))
}

/// Traces a process, and lets go of it. A tracer that does not answer would stop it with the next signal
/// that it gets: the agent with the first worker that leaves.
fn trace(pid: i32) -> Result<(), i32> {
    said(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) })?;
    // Only a stopped process is let go. One that has ended meanwhile is nobody's any more.
    let mut status = 0;
    let stopped = unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0
            && libc::waitpid(pid, &mut status, libc::__WALL) == pid
    };
    if stopped && libc::WIFSTOPPED(status) {
        // A signal that was under way goes on; the stop that was asked for is none.
        let event = status >> 16 != 0;
        let signal = if event { 0 } else { libc::WSTOPSIG(status) as libc::c_long };
        said(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, signal) })?;
    }
    Ok(())
}

fn map(fd: i32, prot: i32, flags: i32) -> Result<*mut libc::c_void, i32> {
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at) }
}

fn anonymous() -> Result<*mut libc::c_void, i32> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    map(-1, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
}

fn advise(at: *mut libc::c_void, advice: i32) -> Result<(), i32> {
    said(unsafe { libc::madvise(at, 4096, advice) }.into())
}

/// One of the machine's reserved huge pages, given back at once; none may be reserved.
fn huge() -> Result<(), i32> {
    const LEN: usize = 2 << 20;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), LEN, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(errno());
    }
    said(unsafe { libc::munmap(at, LEN) }.into())
}

/// Takes memory without end: 1 GiB, should nobody stop it.
fn devour() -> Result<(), i32> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for n in 1..=256_usize {
        all.push(vec![n as u8; 4 << 20]);
    }
    std::hint::black_box(&all);
    Ok(())
}

fn data(held: &Held<'_>) -> Result<i32, i32> {
    // Nothing to attack is not a refusal: the test would see it.
    if held.writable {
        return Err(libc::EBADF);
    }
    held.data.map(AsRawFd::as_raw_fd).ok_or(libc::EBADF)
}

fn shared(held: &Held<'_>) -> Result<i32, i32> {
    held.shared.map(AsRawFd::as_raw_fd).ok_or(libc::EBADF)
}

/// Destination port of the packets that are for this worker; those of others have the seven before.
const OWN_PORT: u16 = 6007;

/// Looks for packets that are none of this worker's business in everything that it was given, as soon as
/// some that are have come: then the others have come, too.
fn find_foreign(held: &Held<'_>) -> Result<(), i32> {
    while !can_see(held, OWN_PORT) {}
    let foreign = (OWN_PORT - 7..OWN_PORT).any(|port| can_see(held, port));
    if foreign { Ok(()) } else { Err(libc::EACCES) }
}

/// Whether a packet to a UDP port of 10.0.0.2 is in any memory.
fn can_see(held: &Held<'_>, port: u16) -> bool {
    let mut what = [10, 0, 0, 2, 0x13, 0x88, 0, 0];
    what[6..].copy_from_slice(&port.to_be_bytes());
    let mut piece = vec![0_u8; 1 << 20];
    held.all.iter().map(AsRawFd::as_raw_fd).any(|fd| {
        let mut at = 0;
        loop {
            let got = unsafe { libc::pread(fd, piece.as_mut_ptr().cast(), piece.len(), at) };
            let Ok(got @ 1..) = usize::try_from(got) else { return false };
            let found = unsafe {
                libc::memmem(piece.as_ptr().cast(), got, what.as_ptr().cast(), what.len())
            };
            if !found.is_null() {
                return true;
            }
            // The next piece begins where one across the border would.
            at += got.saturating_sub(what.len() - 1).max(1) as i64;
            if got < piece.len() {
                return false;
            }
        }
    })
}

/// Wants to hear of nobody any more, and lives on.
fn close_all() -> ! {
    eprintln!("attack: closes everything");
    for fd in (0..4096).filter(|fd| *fd != 2) {
        unsafe { libc::close(fd) };
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn attack(what: &str, path: &str, held: &Held<'_>) -> Result<(), i32> {
    let reopen = |fd: i32| open(&format!("/proc/self/fd/{fd}"), libc::O_RDWR).map(|_| ());
    match what {
        "open-read" => open("/etc/passwd", libc::O_RDONLY).map(|_| ()),
        "open-proc" => open("/proc/self/status", libc::O_RDONLY).map(|_| ()),
        "open-write" => open(path, libc::O_WRONLY | libc::O_CREAT).map(|_| ()),
        "socket-inet" => socket(libc::AF_INET, libc::SOCK_STREAM),
        "socket-inet6" => socket(libc::AF_INET6, libc::SOCK_DGRAM),
        "socket-unix" => socket(libc::AF_UNIX, libc::SOCK_STREAM),
        "socket-packet" => socket(libc::AF_PACKET, libc::SOCK_RAW),
        "socket-netlink" => socket(libc::AF_NETLINK, libc::SOCK_RAW),
        "fork" => match unsafe { libc::fork() } {
            0 => unsafe { libc::_exit(0) },
            pid => said(pid.into()),
        },
        "thread" => match std::thread::Builder::new().spawn(|| ()) {
            Ok(thread) => thread.join().map_err(|_| 0),
            Err(e) => Err(e.raw_os_error().unwrap_or(0)),
        },
        "exec" => {
            let program = CString::new("/bin/true").unwrap();
            let args = [program.as_ptr(), std::ptr::null()];
            said(unsafe { libc::execv(program.as_ptr(), args.as_ptr()) }.into())
        }
        "ptrace-neighbour" => any_neighbour(trace),
        "ptrace-agent" => trace(agent()),
        "set-affinity-of-agent" => {
            let all: libc::cpu_set_t =
                unsafe { std::mem::transmute([u8::MAX; size_of::<libc::cpu_set_t>()]) };
            said(unsafe { libc::sched_setaffinity(agent(), size_of_val(&all), &all) }.into())
        }
        "get-affinity-of-agent" => {
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            said(unsafe { libc::sched_getaffinity(agent(), size_of_val(&set), &mut set) }.into())
        }
        "set-class-of-agent" => {
            let none = libc::sched_param { sched_priority: 0 };
            said(unsafe { libc::sched_setscheduler(agent(), libc::SCHED_OTHER, &none) }.into())
        }
        "set-priority-of-agent" => {
            let who = agent() as libc::id_t;
            said(unsafe { libc::setpriority(libc::PRIO_PROCESS, who, 0) }.into())
        }
        "read-limits-of-agent" => {
            let mut limit: libc::rlimit64 = unsafe { std::mem::zeroed() };
            let none = std::ptr::null();
            said(unsafe { libc::prlimit64(agent(), libc::RLIMIT_CORE, none, &mut limit) }.into())
        }
        "read-agent-memory" => {
            let mut byte = 0_u8;
            let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            let theirs = libc::iovec { iov_base: 0x1000 as _, iov_len: 1 };
            said(unsafe { libc::process_vm_readv(agent(), &own, 1, &theirs, 1, 0) } as i64)
        }
        "open-agent-memory" => open(&format!("/proc/{}/mem", agent()), libc::O_RDONLY).map(|_| ()),
        "open-neighbour-memory" => {
            any_neighbour(|pid| open(&format!("/proc/{pid}/mem"), libc::O_RDONLY).map(|_| ()))
        }
        "kill-neighbour" => any_neighbour(|pid| said(unsafe { libc::kill(pid, 0) }.into())),
        "kill-agent" => said(unsafe { libc::kill(agent(), 0) }.into()),
        "reopen-standard" => reopen(2),
        "reopen-data" => reopen(data(held)?),
        "map-data-writable" => {
            map(data(held)?, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED).map(|_| ())
        }
        "protect-data-writable" => {
            let at = map(data(held)?, libc::PROT_READ, libc::MAP_SHARED)?;
            said(unsafe { libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_WRITE) }.into())
        }
        "chmod-data" => {
            let fd = data(held)?;
            said(unsafe { libc::fchmod(fd, 0o600) }.into())?;
            reopen(fd)
        }
        "grow-shared" => said(unsafe { libc::ftruncate(shared(held)?, 1 << 40) }.into()),
        "shrink-shared" => said(unsafe { libc::ftruncate(shared(held)?, 0) }.into()),
        "remove-shared" => {
            let at = map(shared(held)?, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
            advise(at, libc::MADV_REMOVE)
        }
        "advise" => advise(anonymous()?, libc::MADV_REMOVE),
        "advise-populate" => advise(anonymous()?, libc::MADV_POPULATE_WRITE),
        "map-huge" => huge(),
        "devour" => devour(),
        "find-foreign" => find_foreign(held),
        "close-all" => close_all(),
        "protect" => {
            let at = map(-1, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
            said(unsafe { libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_WRITE) }.into())
        }
        "map-executable" => {
            let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            map(-1, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).map(|_| ())
        }
        "raise-limits" => {
            let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
            said(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) }.into())
        }
        "become-root" => said(unsafe { libc::setresuid(0, 0, 0) }.into()),
        "become-readable" => said(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) }.into()),
        "outlive-agent" => said(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) }.into()),
        "type-on-terminal" => said(unsafe { libc::ioctl(2, libc::TIOCSTI, c"x".as_ptr()) }.into()),
        "memfd" => said(unsafe { libc::memfd_create(c"x".as_ptr(), 0) }.into()),
        // The allocator's own advice.
        "honest-advice" => [libc::MADV_DONTNEED, libc::MADV_FREE]
            .iter()
            .try_for_each(|advice| advise(anonymous()?, *advice)),
        "mount" => call(libc::SYS_mount),
        "unshare" => call(libc::SYS_unshare),
        "setns" => call(libc::SYS_setns),
        "bpf" => call(libc::SYS_bpf),
        "perf" => call(libc::SYS_perf_event_open),
        "io-uring" => call(libc::SYS_io_uring_setup),
        "userfaultfd" => call(libc::SYS_userfaultfd),
        "keyctl" => call(libc::SYS_keyctl),
        "open-by-handle" => call(libc::SYS_open_by_handle_at),
        "openat2" => call(libc::SYS_openat2),
        "pidfd-getfd" => call(libc::SYS_pidfd_getfd),
        "init-module" => call(libc::SYS_init_module),
        // Not attacks: what honest code does, also when it fails.
        "panic" => panic!("a µNF that panics"),
        "abort" => std::process::abort(),
        "honest" => honest(),
        "shout" => Ok(()),
        other => panic!("no attack {other:?}"),
    }
}

/// Much memory, clocks, sleep, random numbers, a complaint.
fn honest() -> Result<(), i32> {
    let begin = std::time::Instant::now();
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for n in 0..200_usize {
        memory.push(vec![n as u8; 1 << 20]);
        memory[n / 2].shrink_to(n);
        memory[n / 2].resize(n * 1000, 1);
    }
    let keys: std::collections::HashMap<_, _> = (0..1000).map(|n| (n, n)).collect();
    std::thread::sleep(std::time::Duration::from_millis(2));
    std::thread::yield_now();
    eprintln!("a µNF that complains");
    let fine = begin.elapsed().as_millis() >= 2
        && std::time::SystemTime::now() > std::time::UNIX_EPOCH
        && keys.len() == 1000
        && std::process::id() > 1
        && std::panic::catch_unwind(|| panic!("caught")).is_err();
    if fine { Ok(()) } else { Err(libc::EPERM) }
}
