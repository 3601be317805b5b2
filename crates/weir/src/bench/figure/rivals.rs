//! Others on the same machine, in the same run, with packets of the same sizes.

pub mod kernel;
mod ovs;

use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::values::{cpu_ns, median};
use crate::bench::chain_policy;
use crate::bench::machine::{cpu_time_ns, mhz, round_trip};
use crate::bench::own::{self, ENDS_WITH_US, Folder, OutputError, Process};
use crate::bench::sample::BenchError;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::Isolate;

static SIZES: [u16; 3] = [64, 512, 1500];
/// A rival of which so many samples failed is not tried any more: each may take all the patience there is.
const HOPELESS: usize = 6;
/// Why there is no sample of who failed a moment ago, or too often.
const NOT_TRIED: &str = "not tried again";
/// Until testpmd has to be ready, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a rival has no figure.
#[derive(Debug, thiserror::Error)]
pub enum RivalError {
    #[error("cannot start {0}: {1}")]
    Start(&'static str, std::io::Error),
    #[error("{0} refused: {1}")]
    Refused(&'static str, String),
    #[error("{0} ended by itself; it said last: {1}")]
    Ended(&'static str, String),
    #[error("{0} did not answer within {PATIENCE:?}; it said last: {1}")]
    Mute(&'static str, String),
    #[error("{0} did not end within {1:?}")]
    Late(&'static str, Duration),
}

/// Runs what belongs to a rival to its end, or for so long.
fn run(
    name: &'static str,
    command: &mut Command,
    patience: Duration,
) -> Result<Output, RivalError> {
    own::output(command, patience).map_err(|e| match e {
        OutputError::Io(e) => RivalError::Start(name, e),
        OutputError::Late(after) => RivalError::Late(name, after),
    })
}

/// What stands in the comparison.
#[derive(Debug, Clone, Copy)]
enum Who {
    /// Weir with so many MacSwaps, isolated.
    Weir(usize),
    /// dpdk-testpmd with a forwarding mode, between such devices, by bursts of so many packets.
    Testpmd(&'static str, Devices, Burst),
    /// Open vSwitch, two ports, a flow each way.
    Ovs,
}

/// What testpmd receives from and sends into.
#[derive(Debug, Clone, Copy)]
enum Devices {
    /// A buffer is taken for each packet, and given back.
    Null,
    /// Two rings, in which the same packets go round.
    Ring,
}

/// How many packets testpmd takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Burst {
    /// 32.
    Usual,
    /// As many as Weir does, and the largest cache of buffers that DPDK has, which two such bursts fit into.
    AsWeir,
}

/// Weir's limit, as in every plot of throughput; rivals have others.
const LIMIT: &str = "echo: no µNF (Weir)";

const ALL: [(&str, Who); 8] = [
    (LIMIT, Who::Weir(0)),
    ("Weir: one MacSwap", Who::Weir(1)),
    ("testpmd io, null", Who::Testpmd("io", Devices::Null, Burst::Usual)),
    ("testpmd macswap, null", Who::Testpmd("macswap", Devices::Null, Burst::Usual)),
    ("testpmd macswap, null, bursts of 256", Who::Testpmd("macswap", Devices::Null, Burst::AsWeir)),
    ("testpmd io, rings", Who::Testpmd("io", Devices::Ring, Burst::Usual)),
    ("testpmd macswap, rings", Who::Testpmd("macswap", Devices::Ring, Burst::Usual)),
    ("Open vSwitch, two flows", Who::Ovs),
];

const TESTPMD: &str = "dpdk-testpmd";
/// Where DPDK makes its folder; even what shares nothing makes one. For root it is /run otherwise.
const DPDK_FOLDER: &str = "RUNTIME_DIRECTORY";
const NFT: &str = "nft";
const ROOT: &str = "root";
/// In which of Debian's packages rivals are.
const PACKAGES: [(&str, &str); 3] =
    [(TESTPMD, "dpdk-dev"), (ovs::NAME, "openvswitch-switch-dpdk"), (NFT, "nftables")];

/// What can be had of all that figures of rivals need.
pub fn had() -> Vec<String> {
    static ONCE: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let all = || [TESTPMD, ovs::NAME, NFT, ROOT].into_iter();
    ONCE.get_or_init(|| all().filter(|name| is_there(name)).map(str::to_owned).collect()).clone()
}

fn is_there(name: &str) -> bool {
    match name {
        ROOT => rustix::process::getuid().is_root(),
        ovs::NAME => ovs::is_there(),
        program => is_on_path(program),
    }
}

/// Installs what is not there, with Debian's own tool; says what it does, and what could not be had. Before [`had`] is asked, which looks
/// only once.
pub fn install() {
    let missing = || PACKAGES.into_iter().filter(|(name, _)| !is_there(name));
    let packages: Vec<&str> = missing().map(|(_, package)| package).collect();
    if packages.is_empty() {
        println!("all rivals are installed already");
        return;
    }
    let named = packages.join(" ");
    if !is_there(ROOT) {
        println!("not installed, as that needs root: {named}");
        return;
    }
    println!("apt-get install {named}");
    let install = ["install", "-y", "-q"];
    let install = || apt(install.iter().copied().chain(packages.iter().copied()));
    // Where the lists of packages are old or none, they are fetched once.
    if !install() && apt(["update", "-q"].into_iter()) {
        install();
    }
    for (name, package) in missing() {
        println!("{name} could not be installed (apt-get install {package})");
    }
}

/// Whether Debian's tool did what it was told; what it says stands in the terminal, if it is an error.
fn apt(words: impl Iterator<Item = &'static str>) -> bool {
    let mut tool = Command::new("apt-get");
    tool.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    tool.stdin(Stdio::null()).stdout(Stdio::null());
    tool.status().is_ok_and(|status| status.success())
}

fn is_had(name: &str) -> bool {
    had().iter().any(|had| had == name)
}

/// Whether a program can be started. It is not: DPDK's begin to take the machine over before they look at what they are asked.
fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
}

pub fn measure(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    let (testpmd, ovs) = (is_had(TESTPMD), is_had(ovs::NAME));
    if !testpmd {
        effort.leave_out(
            "dpdk-testpmd is not installed (Debian: apt-get install dpdk-dev, or --install)",
        );
    }
    if !ovs {
        effort.leave_out(
            "Open vSwitch with DPDK is not installed (Debian: apt-get install openvswitch-switch-dpdk, or --install)",
        );
    }
    let points = points(|who| match who {
        Who::Weir(_) => true,
        Who::Testpmd(..) => testpmd,
        Who::Ovs => ovs,
    });
    let points = effort.in_turn(&points);
    let mut gone = BTreeSet::new();
    effort.round_of(&points, |(name, x, (who, size))| {
        if gone.contains(name) || effort.failures(name) >= HOPELESS {
            effort.fail(name, x, NOT_TRIED);
            return Ok(Vec::new());
        }
        let sample = match who {
            Who::Weir(n) => weir(effort, n, size),
            Who::Testpmd(mode, devices, burst) => {
                testpmd_sample(effort, (mode, devices, burst), size).map_err(BenchError::from)
            }
            Who::Ovs => ovs::sample(effort, size).map_err(BenchError::from),
        };
        match sample {
            Ok(sample) => Ok(vec![(name.to_owned(), x, sample)]),
            Err(why @ (BenchError::Rival(_) | BenchError::NotReady)) => {
                // The others are worth having without it.
                effort.fail(name, x, &why.to_string());
                gone.insert(name);
                Ok(Vec::new())
            }
            Err(why) => Err(why),
        }
    })
}

/// Who is measured with which sizes, of those that are there.
fn points(is_there: impl Fn(&Who) -> bool) -> Vec<(&'static str, f64, (Who, u16))> {
    // Nobody in testpmd touches more than headers, so that size is nothing to it: once is enough to show it.
    let sizes = |who: &Who| match who {
        Who::Testpmd(_, Devices::Ring, _) | Who::Testpmd(_, _, Burst::AsWeir) => &SIZES[..1],
        _ => &SIZES[..],
    };
    ALL.into_iter()
        .filter(|(_, who)| is_there(who))
        .flat_map(|(name, who)| sizes(&who).iter().map(move |s| (name, f64::from(*s), (who, *s))))
        .collect()
}

fn weir(effort: &Effort<'_>, macswaps: usize, size: u16) -> Result<Sample, BenchError> {
    let generator = GeneratorSpec { size: size - 4, ..GeneratorSpec::default() };
    let source = DeviceSpec::Generator(generator);
    Ok(effort.sampling.take(&chain_policy(macswaps), Isolate::Each, source)?.into())
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let of = |(name, _): &(&str, Who)| match median(series, name, 64.0) {
        mpps if mpps.is_nan() => format!("{name} not to be had"),
        mpps => {
            let cycles = cpu_ns(series, name, 64.0) * mhz() / 1e3;
            format!("{name} {mpps:.1} Mpps, {cycles:.0} cycles")
        }
    };
    let (all, clock): (Vec<String>, _) = (ALL.iter().map(of).collect(), mhz() as u32);
    let text = format!(
        "at 64 bytes; cycles a packet are processor time, of all threads that take part, times the clock of {clock} MHz that the kernel states (on virtual machines the time \
         stamp counter's: a core that is boosted makes more): {}. Packets are of the same sizes, not the same: Weir's are UDP packets of 1,000 flows, the rivals' blank \
         frames, all alike, so that Open vSwitch finds the same flow of a port in its cache for ever. The rivals' one core does what Weir's two do. Each of them leaves out writing packets' \
         content, a process for each function, and ownership that survives a kill; testpmd's io, as Weir without a µNF, to look at packets; on rings \
         testpmd takes and gives back no buffer: 128 packets go round. Open vSwitch looks packets up in a table of flows, which MacSwap does not",
        all.join("; ")
    );
    (Verdict::DifferentSetUp, text)
}

/// testpmd as it runs.
struct Testpmd {
    process: Process,
    say: ChildStdin,
    lines: Receiver<String>,
    last: String,
    // Where it leaves what it leaves; gone after it.
    _folder: Folder,
}

impl Testpmd {
    fn start(
        (mode, devices, burst): (&str, Devices, Burst),
        size: u16,
        cores: [usize; 2],
    ) -> Result<Self, RivalError> {
        let device = |i: usize| match devices {
            Devices::Null => format!("--vdev=net_null{i},size={}", size - 4),
            Devices::Ring => format!("--vdev=net_ring{i}"),
        };
        let failed = |e| RivalError::Start(TESTPMD, e);
        let folder = Folder::new("weir-testpmd").map_err(failed)?;
        let [first, ends_with_us @ ..] = ENDS_WITH_US;
        let mut command = Command::new(first);
        command
            .args(ends_with_us)
            // It writes whole blocks into a pipe, unless told otherwise.
            .args(["stdbuf", "-oL", TESTPMD])
            .env(DPDK_FOLDER, folder.path())
            .args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--no-shconf"])
            .arg(format!("--file-prefix=weir-{}", std::process::id()))
            .arg(format!("-l{},{}", cores[0], cores[1]))
            .args([device(0), device(1)])
            .args(["--", "-i", "--total-num-mbufs=16384", "--no-mlockall"])
            .arg(format!("--forward-mode={mode}"))
            .args(match burst {
                Burst::Usual => &[][..],
                Burst::AsWeir => &["--burst=256", "--mbcache=512"],
            })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Process::start(&mut command).map_err(failed)?;
        let missing = || RivalError::Start(TESTPMD, std::io::ErrorKind::BrokenPipe.into());
        let say = process.stdin().ok_or_else(missing)?;
        let out = process.stdout().ok_or_else(missing)?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Testpmd { process, say, lines, last: String::new(), _folder: folder })
    }

    fn tell(&mut self, command: &str) {
        // Whether it was heard is seen in the answer.
        let _ = writeln!(self.say, "{command}");
        let _ = self.say.flush();
    }

    /// Packets sent so far by both ports, and when.
    fn sent(&mut self) -> Result<(u64, Instant), RivalError> {
        self.tell("show port stats all");
        let (mut sum, end) = (0, Instant::now() + PATIENCE);
        for _ in 0..2 {
            loop {
                let left = end.saturating_duration_since(Instant::now());
                let line = self.lines.recv_timeout(left).map_err(|e| match e {
                    RecvTimeoutError::Timeout => RivalError::Mute(TESTPMD, self.last.clone()),
                    RecvTimeoutError::Disconnected => RivalError::Ended(TESTPMD, self.last.clone()),
                })?;
                let packets = line.trim().strip_prefix("TX-packets:");
                let packets =
                    packets.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
                self.last = line;
                if let Some(packets) = packets {
                    sum += packets;
                    break;
                }
            }
        }
        Ok((sum, Instant::now()))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.tell("quit");
        // If it does not, it is killed.
        let _ = self.process.ended_within(Duration::from_secs(5));
    }
}

fn testpmd_sample(
    effort: &Effort<'_>,
    forwards: (&str, Devices, Burst),
    size: u16,
) -> Result<Sample, RivalError> {
    let sampling = effort.sampling;
    let cores = [sampling.device_core, sampling.chain_core];
    let before = round_trip(cores[0], cores[1]);
    let span = Duration::from_secs_f64(sampling.seconds.clamp(0.05, 60.0));
    let mut testpmd = Testpmd::start(forwards, size, cores)?;
    testpmd.tell(match forwards.1 {
        Devices::Null => "start",
        // Two bursts of 32 from each port.
        Devices::Ring => "start tx_first 2",
    });
    // Once to know that it runs.
    testpmd.sent()?;
    std::thread::sleep(span / 2);
    let (from, start) = testpmd.sent()?;
    let busy = cpu_time_ns([testpmd.process.id()]);
    std::thread::sleep(span);
    let (to, end) = testpmd.sent()?;
    let cpu_ns = per_packet([busy, cpu_time_ns([testpmd.process.id()])], [from, to]);
    drop(testpmd);
    let after = round_trip(cores[0], cores[1]);
    let value = to.saturating_sub(from) as f64 / (end - start).as_secs_f64() / 1e6;
    // It is in the default class.
    Ok(Sample { cpu_ns, not_granted: true, ..Sample::of(value, [before, after]) })
}

/// Nanoseconds of processor time for each packet, from what there was of both before and after.
fn per_packet([busy, then]: [Option<u64>; 2], [from, to]: [u64; 2]) -> Option<f64> {
    let (packets, ns) = (to.checked_sub(from)?, then?.checked_sub(busy?)?);
    (packets > 0).then(|| ns as f64 / packets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::ECHO;
    use crate::bench::figure::data::tests::sampling;
    use std::cell::RefCell;

    #[test]
    fn rivals_of_one_size_follow_each_other_and_every_other_round_goes_backwards() {
        let sampling = sampling();
        let order = |round| -> Vec<(&str, f64)> {
            let effort = Effort {
                sampling: &sampling,
                name: "rivals",
                round,
                began: Instant::now(),
                left_out: RefCell::default(),
                failed: RefCell::default(),
            };
            let points = effort.in_turn(&points(|_| true));
            points.into_iter().map(|(name, x, _)| (name, x)).collect()
        };
        let [forwards, mut backwards] = [1, 2].map(order);
        assert!(forwards.iter().map(|(_, x)| x).is_sorted(), "{forwards:?}");
        assert_eq!(
            forwards[..ALL.len()],
            ALL.map(|(name, _)| (name, 64.0)),
            "all at one size first"
        );
        backwards.reverse();
        assert_eq!(forwards, backwards);
    }

    #[test]
    fn the_limit_is_recognised_by_its_name() {
        assert!(LIMIT.starts_with(ECHO));
        let (_, text) = judge(&[]);
        assert!(text.contains(LIMIT), "{text}");
    }

    #[test]
    fn a_tool_that_does_not_end_is_told_as_that() {
        let patience = Duration::from_millis(20);
        let late = run("a rival", Command::new("sleep").arg("1000"), patience);
        assert_eq!(late.unwrap_err().to_string(), "a rival did not end within 20ms");
        let none = run("a rival", &mut Command::new("/no-such-program"), patience);
        assert!(none.unwrap_err().to_string().starts_with("cannot start a rival"));
    }

    #[test]
    fn a_program_is_found_without_being_started() {
        assert!(is_on_path("sh") && !is_on_path("no-such-program"));
        assert!(!is_on_path("/"), "a folder is no program");
    }

    #[test]
    fn processor_time_is_told_for_each_packet_or_not_at_all() {
        assert_eq!(per_packet([Some(1_000), Some(5_000)], [10, 50]), Some(100.0));
        assert_eq!(per_packet([Some(1_000), Some(5_000)], [10, 10]), None, "no packet");
        assert_eq!(per_packet([Some(1_000), None], [10, 50]), None, "no account of it");
    }
}
