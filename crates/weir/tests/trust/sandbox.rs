//! What a worker that is somebody else's, and hostile, cannot do. Each attack is tried three times by
//! a real worker process (`tests/hostile-nf`): at its first packet, when both layers of the sandbox are
//! on; instead of becoming a worker, when only what the agent put around it is on; and with
//! `--sandbox off`, where it must get through, or the attack would prove nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::*;
use crate::common_outside::*;
use crate::common_sandbox::*;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What became of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The kernel said no: EPERM or EACCES.
    Refused,
    /// The attacker was ended for trying, and the report says so.
    Killed,
    /// It got through.
    Reached,
    /// It became another program.
    Replaced,
    /// It failed by itself: a panic, an abort.
    Failed,
}
use Outcome::{Failed, Killed, Reached, Refused, Replaced};

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Both layers are on.
    Packet,
    /// Only the agent's is.
    Start,
}

fn attack(what: &str, when: When, sandbox: &str) -> Outcome {
    tell(what, when, sandbox).0
}

/// As [`attack`], with all that was said.
fn tell(what: &str, when: When, sandbox: &str) -> (Outcome, String) {
    let scratch = Scratch::new();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(scratch.path(), all).unwrap();
    let trace = scratch.file("trace");
    let ended = run_attacker(&scratch, what, when, sandbox, &trace);
    let context = format!("{what}, {when:?}, sandbox {sandbox}: {ended:?}");
    let said = if ended.code == Some(0) {
        let report = ended.json();
        assert_eq!(report["sound"], true, "{context}");
        let nodes = report["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|n| n["name"] == "a").unwrap();
        node["report"].as_str().unwrap_or_default().to_owned()
    } else {
        assert_eq!(ended.code, Some(1), "{context}");
        let line = ended.stderr.lines().find_map(|l| l.strip_prefix("weir: a: "));
        line.unwrap_or_else(|| panic!("{context}")).to_owned()
    };
    let died = |how: &str| ended.stderr.contains(&format!("worker a died ({how}"));
    // With `RUST_BACKTRACE` or without, a panic's message comes first.
    if died("exit status: 101") || died("signal: 6") {
        return (Failed, ended.stderr);
    }
    let outcome = if died("killed by the sandbox: system call not allowed") {
        Killed
    } else if died("exit status: 0") {
        Replaced
    } else if said.starts_with("refused: E") {
        Refused
    } else {
        assert!(said.starts_with("REACHED"), "{context}");
        Reached
    };
    if what == "open-write" {
        assert_eq!(trace.exists(), outcome == Reached, "{context}");
    }
    (outcome, ended.stderr)
}

/// A run with an attacker in its middle.
fn run_attacker(scratch: &Scratch, what: &str, when: When, sandbox: &str, trace: &Path) -> Ended {
    let point = if when == When::Packet { "packet" } else { "start" };
    let policy = format!(
        "Port<0> lan; Port<1> wan; MacSwap m;
         Attack a {{ what: \"{what}\", when: \"{point}\", path: \"{}\" }};
         pipelet {{ lan -> a -> m; m -> wan; }}\n",
        trace.display()
    );
    let policy = scratch.write("policy.weir", policy);
    let program = hostile("hostile-nf");
    let program = program.to_str().unwrap();
    let run = ["run", &policy, "--bind", "0=gen:packets=1", "--bind", "1=null", "--json", "-q"];
    // Some attacks take a good part of a second on a busy machine; none of them is about hanging.
    let more = ["--with", program, "--sandbox", sandbox, "--patience", "10"];
    weir(&[&run[..], &more].concat())
}

/// Tries an attack in all three ways.
fn attacked(what: &str, at_packet: Outcome, at_start: Outcome, unprotected: Outcome) {
    assert_eq!(attack(what, When::Packet, "on"), at_packet, "{what} at a packet");
    assert_eq!(attack(what, When::Start, "on"), at_start, "{what} at the start");
    if !is_root() {
        eprintln!("skipped: {what} without a sandbox needs root");
    } else if TRACES.contains(&what) && !may_trace() {
        eprintln!("skipped: {what} without a sandbox: this kernel lets nobody trace");
    } else {
        assert_eq!(attack(what, When::Packet, "off"), unprotected, "{what} without a sandbox");
    }
}

/// Attacks that the kernel asks Yama about.
const TRACES: [&str; 5] = [
    "ptrace-neighbour",
    "ptrace-agent",
    "read-agent-memory",
    "open-agent-memory",
    "open-neighbour-memory",
];

/// Whether a process of this user may trace one that is not its child. Yama's `ptrace_scope` (the kernel's
/// Documentation/admin-guide/LSM/Yama.rst): 0 all may, 1 and 2 who has CAP_SYS_PTRACE, 3 nobody.
fn may_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.map_or(0, |text| text.trim().parse().unwrap());
    let capabilities = u64::from_str_radix(&status("self", "CapEff"), 16).unwrap();
    const CAP_SYS_PTRACE: u32 = 19;
    scope == 0 || scope < 3 && capabilities >> CAP_SYS_PTRACE & 1 == 1
}

/// As [`attacked`], for an attack on memory that is shared: its descriptor is only there at the start.
fn attacked_data(what: &str, unprotected: Outcome) {
    assert_eq!(attack(what, When::Start, "on"), Refused, "{what}");
    if is_root() {
        assert_eq!(attack(what, When::Start, "off"), unprotected, "{what} without a sandbox");
    } else {
        eprintln!("skipped: {what} without a sandbox needs root");
    }
}

/// Name of the test; name of the attack; what becomes of it with both layers, with the agent's
/// alone, with none.
macro_rules! attacks {
    ($($name:ident: $what:literal, $packet:ident, $start:ident, $off:ident;)*) => {
        $(#[test]
        fn $name() {
            attacked($what, $packet, $start, $off);
        })*
    };
}

attacks! {
    a_worker_cannot_open_a_file_for_reading: "open-read", Refused, Refused, Reached;
    a_worker_cannot_create_a_file: "open-write", Refused, Refused, Reached;
    a_worker_cannot_look_into_proc: "open-proc", Refused, Refused, Reached;
    a_worker_cannot_open_an_ipv4_socket: "socket-inet", Refused, Refused, Reached;
    a_worker_cannot_open_an_ipv6_socket: "socket-inet6", Refused, Refused, Reached;
    a_worker_cannot_open_a_unix_socket: "socket-unix", Refused, Refused, Reached;
    a_worker_cannot_open_a_packet_socket: "socket-packet", Refused, Refused, Reached;
    a_worker_cannot_open_a_netlink_socket: "socket-netlink", Refused, Refused, Reached;
    a_worker_cannot_fork: "fork", Refused, Refused, Reached;
    a_worker_cannot_start_a_thread: "thread", Refused, Refused, Reached;
    a_worker_cannot_become_another_program: "exec", Killed, Refused, Replaced;
    a_worker_cannot_trace_its_neighbours: "ptrace-neighbour", Killed, Refused, Reached;
    a_worker_cannot_trace_the_agent: "ptrace-agent", Killed, Refused, Reached;
    a_worker_cannot_copy_the_agents_memory: "read-agent-memory", Killed, Refused, Reached;
    a_worker_cannot_open_the_agents_memory: "open-agent-memory", Refused, Refused, Reached;
    a_worker_cannot_open_its_neighbours_memory: "open-neighbour-memory", Refused, Refused, Reached;
    a_worker_cannot_signal_its_neighbours: "kill-neighbour", Killed, Refused, Reached;
    a_worker_cannot_signal_the_agent: "kill-agent", Killed, Refused, Reached;
    a_worker_cannot_move_the_agent_to_other_cores: "set-affinity-of-agent", Refused, Refused, Reached;
    a_worker_cannot_ask_for_the_agents_cores: "get-affinity-of-agent", Refused, Refused, Reached;
    a_worker_cannot_change_the_agents_scheduling_class: "set-class-of-agent", Refused, Refused, Reached;
    a_worker_cannot_change_the_agents_priority: "set-priority-of-agent", Killed, Refused, Reached;
    a_worker_cannot_ask_for_the_agents_limits: "read-limits-of-agent", Refused, Refused, Reached;
    a_worker_cannot_reopen_its_descriptors: "reopen-standard", Refused, Refused, Reached;
    a_worker_cannot_change_its_limits: "raise-limits", Refused, Refused, Reached;
    a_worker_cannot_become_root: "become-root", Killed, Refused, Reached;
    a_worker_cannot_make_itself_traceable: "become-readable", Refused, Refused, Reached;
    a_worker_cannot_arrange_to_outlive_the_agent: "outlive-agent", Refused, Refused, Reached;
    a_worker_cannot_type_on_the_terminal: "type-on-terminal", Refused, Refused, Reached;
    a_worker_cannot_make_memory_files: "memfd", Killed, Refused, Reached;
    a_worker_cannot_mount: "mount", Killed, Refused, Reached;
    a_worker_cannot_unshare_namespaces: "unshare", Killed, Refused, Reached;
    a_worker_cannot_enter_namespaces: "setns", Killed, Refused, Reached;
    a_worker_cannot_load_bpf: "bpf", Killed, Refused, Reached;
    a_worker_cannot_use_performance_counters: "perf", Killed, Refused, Reached;
    a_worker_cannot_use_io_uring: "io-uring", Killed, Refused, Reached;
    a_worker_cannot_use_userfaultfd: "userfaultfd", Killed, Refused, Reached;
    a_worker_cannot_use_the_key_ring: "keyctl", Killed, Refused, Reached;
    a_worker_cannot_open_by_handle: "open-by-handle", Killed, Refused, Reached;
    a_worker_cannot_open_by_the_newer_call: "openat2", Killed, Refused, Reached;
    a_worker_cannot_take_descriptors_of_others: "pidfd-getfd", Killed, Refused, Reached;
    a_worker_cannot_load_kernel_modules: "init-module", Killed, Refused, Reached;
    a_worker_cannot_give_back_pages_of_memory: "advise", Refused, Refused, Reached;
    a_worker_cannot_have_memory_filled: "advise-populate", Refused, Refused, Reached;
    a_worker_cannot_take_reserved_huge_pages: "map-huge", Refused, Refused, Reached;
    a_worker_can_say_what_an_allocator_says_of_its_memory: "honest-advice", Reached, Reached, Reached;
    // The dynamic loader needs these two: they are closed with the second layer.
    a_running_worker_cannot_change_protections: "protect", Refused, Reached, Reached;
    a_running_worker_cannot_make_code: "map-executable", Killed, Reached, Reached;
}

#[test]
fn read_only_packet_bytes_cannot_be_opened_again_for_writing() {
    attacked_data("reopen-data", Reached);
}

#[test]
fn read_only_packet_bytes_cannot_get_another_mode_and_be_opened_again() {
    attacked_data("chmod-data", Reached);
}

/// The kernel itself refuses these two, as the descriptor is one for reading.
#[test]
fn read_only_packet_bytes_cannot_be_mapped_writable() {
    attacked_data("map-data-writable", Refused);
    attacked_data("protect-data-writable", Refused);
}

/// The memory itself refuses: a neighbour would be ended by a page that is not there any more.
#[test]
fn memory_that_a_worker_may_write_can_be_neither_shrunk_nor_grown() {
    attacked_data("shrink-shared", Refused);
    attacked_data("grow-shared", Refused);
}

/// No seal forbids this one to who may write: it is the sandbox that does.
#[test]
fn memory_that_a_worker_may_write_cannot_have_its_pages_given_back() {
    attacked_data("remove-shared", Reached);
}

#[test]
fn what_a_worker_says_cannot_move_the_terminals_cursor() {
    let scratch = Scratch::new();
    let ended = run_attacker(&scratch, "colour", When::Start, "on", Path::new("/"));
    // Its warning may be overtaken by its failure, which ends the run.
    assert!(ended.stderr.contains("\\u001b[2J\\u0007done"), "{ended:?}");
    assert!(!ended.stderr.chars().any(|c| c.is_control() && c != '\n'), "{ended:?}");
}

#[test]
fn what_honest_nfs_do_works_in_the_sandbox() {
    let (outcome, said) = tell("honest", When::Packet, "on");
    assert_eq!(outcome, Reached, "{said}");
    assert!(said.contains("a µNF that complains"), "{said}");
}

#[test]
fn an_nf_that_fails_in_the_sandbox_can_say_why() {
    let (outcome, said) = tell("panic", When::Packet, "on");
    assert_eq!(outcome, Failed, "{said}");
    assert!(said.contains("a µNF that panics"), "{said}");
    assert!(said.contains("worker a died (exit status: 101)"), "{said}");
    let (outcome, said) = tell("abort", When::Packet, "on");
    assert_eq!(outcome, Failed, "{said}");
    assert!(said.contains("worker a died (signal: 6 (SIGABRT)"), "{said}");
}

#[test]
fn workers_are_nobody_and_have_nothing_but_what_they_were_given() {
    if !is_root() {
        eprintln!(
            "skipped: workers_are_nobody_and_have_nothing_but_what_they_were_given needs root"
        );
        return;
    }
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let (weir, out) = (env!("CARGO_BIN_EXE_weir"), scratch.file("out.pcap"));
    let mut shell = Command::new("/bin/sh");
    // The shell leaves a descriptor of its own to weir.
    shell.arg("-c").arg(format!(
        "exec 9</etc/passwd; exec {weir} run {policy} --bind 0=gen:rate=1000 --bind {} --worker-user 4711",
        tx(&out)
    ));
    let mut run = spawn(shell);
    run.wait_for("sandbox: seccomp");
    let agent = run.child.id();
    let _ended = EndedAnyway(agent);
    let all = workers(agent);
    assert_eq!(all.len(), 4, "{all:?}");
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    for (pid, name) in &all {
        assert_eq!(status(pid, "Uid"), "4711 4711 4711 4711", "{name}");
        assert_eq!(status(pid, "Gid"), "4711 4711 4711 4711", "{name}");
        assert_eq!(status(pid, "Groups"), "", "{name}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(pid, set), "0000000000000000", "{name}: {set}");
        }
        assert_eq!((status(pid, "NoNewPrivs"), status(pid, "Seccomp")), ("1".into(), "2".into()));
        let filters = if name.starts_with("tx:") { "2" } else { "3" };
        assert_eq!(status(pid, "Seccomp_filters"), filters, "{name}");
        assert_ne!(network(pid), network("self"), "{name}");
        for fd in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
            let to = std::fs::read_link(fd.path()).unwrap();
            let (fd, to) = (fd.file_name(), to.to_string_lossy().into_owned());
            let given = to.starts_with("socket:") || to.starts_with("anon_inode:[eventfd]");
            let standard = fd == "1" && to == "/dev/null" || fd == "2" && to.starts_with("pipe:");
            let capture = name.starts_with("tx:") && Path::new(&to) == out;
            assert!(given || standard || capture, "{name}: {fd:?} is {to}");
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let data = maps.lines().filter(|l| l.contains("memfd:weir/data")).collect::<Vec<_>>();
        let reads_only = name.starts_with("tx:");
        assert_eq!(data.len(), 1, "{name}: {data:?}");
        assert!(data[0].contains(if reads_only { "r--s" } else { "rw-s" }), "{name}: {data:?}");
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let most = |what: &str| {
            let line = limits.lines().find_map(|l| l.strip_prefix(what)).unwrap();
            line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        for what in ["Max core file size", "Max processes", "Max locked memory"]
            .into_iter()
            .chain(["Max msgqueue size", "Max nice priority", "Max realtime priority"])
        {
            assert_eq!(most(what), ["0", "0"], "{name}: {what}");
        }
        let descriptors: u64 = most("Max open files")[1].parse().unwrap();
        // A service gets those of the next generation beside its own.
        let most = if name.contains(':') { 4096 } else { 255 };
        assert!((64..=most).contains(&descriptors), "{name}: {descriptors}");
    }
    run.signal(Signal::INT);
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn the_real_time_class_is_kept_in_the_sandbox() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let online = std::thread::available_parallelism().unwrap().get();
    let cores = format!("0,{}", online - 1);
    let granted = |sandbox: &str| {
        let run = ["run", &policy, "--bind", "0=gen:packets=100", "--bind", "1=null"];
        let ended = weir(&[&run[..], &["--cores", &cores, "--sandbox", sandbox]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stderr.contains("real-time scheduling")
    };
    assert_eq!(granted("on"), granted("off"));
}

/// Who may look into /proc/PID/fd may take descriptors from it, and trace the process.
#[test]
fn nobody_of_a_workers_user_sees_its_descriptors_unless_the_sandbox_is_off() {
    let home = Ordinary::new("hidden");
    for (sandbox, visible) in [("on", false), ("off", true)] {
        let mut command = Ordinary::command(home.file("weir"));
        command.arg("run").arg(home.file("p.weir")).args(["--sandbox", sandbox]);
        command.args(["--bind", "0=gen:rate=1000", "--bind", "1=null"]);
        let mut run = spawn(command);
        run.wait_for(if visible { "4 workers, " } else { "sandbox: seccomp" });
        let agent = run.child.id();
        let _ended = EndedAnyway(agent);
        let all = workers(agent);
        assert_eq!(all.len(), 4, "{all:?}");
        for (pid, name) in &all {
            assert_eq!(Ordinary::sees_descriptors(pid), visible, "{name}, sandbox {sandbox}");
        }
        assert_eq!(workers(agent), all, "one has died");
        run.signal(Signal::INT);
        assert_eq!(run.end().code, Some(0));
    }
}

#[test]
fn a_worker_hides_before_it_is_given_any_descriptor() {
    let home = Ordinary::new("hiding");
    // An agent that says nothing.
    let (_agent, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Ordinary::command(home.file("weir"));
    command.args(["worker", "x"]).stdin(std::os::fd::OwnedFd::from(theirs));
    let mut worker = command.spawn().unwrap();
    let _ended = EndedAnyway(worker.id());
    let (pid, start) = (worker.id().to_string(), Instant::now());
    while Ordinary::sees_descriptors(&pid) {
        assert!(start.elapsed() < PATIENCE, "it does not hide");
    }
    assert!(worker.try_wait().unwrap().is_none(), "it has ended");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn an_ordinary_user_gets_what_is_permitted_and_is_told_what_is_not() {
    if !is_root() {
        eprintln!("skipped: an_ordinary_user_gets_what_is_permitted... needs root to become one");
        return;
    }
    let home = Ordinary::new("user");
    let (out, capture) = (home.file("out.pcap"), home.file("in.pcap"));
    std::fs::copy(demo_capture(), &capture).unwrap();
    std::fs::set_permissions(&capture, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Ordinary::command(home.file("weir"));
    command.arg("run").arg(home.file("p.weir"));
    command.arg("--bind").arg(format!("0=pcap:rx={}", capture.display()));
    command.args(["--bind", &tx(&out)]);
    let ended = spawn(command).end();
    let same = records(&out).len() == records(&capture).len();
    assert_eq!((ended.code, same), (Some(0), true), "{ended:?}");
    let line = ended.stderr.lines().find(|l| l.contains("sandbox: ")).unwrap();
    assert!(
        line.contains("without") && line.contains("a user of its own (not permitted)"),
        "{line}"
    );
}

#[test]
fn a_sandbox_that_is_off_is_said_loudly() {
    let scratch = Scratch::new();
    let policy = scratch.write("policy.weir", TWICE);
    let run = ["run", &policy, "--bind", "0=gen:packets=1", "--bind", "1=null", "-q"];
    let (on, off) = (weir(&run), weir(&[&run[..], &["--sandbox", "off"]].concat()));
    assert_eq!((on.code, on.stderr.as_str()), (Some(0), ""));
    assert_eq!(off.code, Some(0));
    assert!(off.stderr.contains("warning: --sandbox off"), "{off:?}");
    assert!(off.stderr.contains("as much memory as there is"), "of --worker-memory: {off:?}");
}
