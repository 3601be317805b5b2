//! Others on the same machine, in the same run, with the same packets.

mod capture;
pub mod kernel;
mod ovs;
mod testpmd;

use self::testpmd::{Burst, Devices};
use super::Effort;
use super::data::{Sample, Series, Verdict};
use super::tables::CAPTURE;
use super::values::{cpu_ns, median};
use crate::bench::chain_policy;
use crate::bench::machine::{clock_told, mhz};
use crate::bench::own::{self, OutputError};
use crate::bench::sample::BenchError;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
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
    #[error("cannot write the packets for {0}: {1}")]
    Packets(&'static str, weir_capture::WriteError),
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
    /// Open vSwitch, two ports that have Weir's packets, a flow each way.
    Ovs,
}

/// Weir's limit, as in every plot of throughput; rivals have others.
const LIMIT: &str = "echo: no µNF (Weir)";

type Line = (&'static str, Who);

const ECHO: Line = (LIMIT, Who::Weir(0));
const MACSWAP: Line = ("Weir: one MacSwap", Who::Weir(1));

/// Who has the same packets.
const SAME: &[Line] = &[
    ECHO,
    MACSWAP,
    ("testpmd io", Who::Testpmd("io", Devices::Capture, Burst::Usual)),
    ("testpmd macswap", Who::Testpmd("macswap", Devices::Capture, Burst::Usual)),
    ("Open vSwitch, two flows", Who::Ovs),
];

/// Who has packets whose content nobody writes, beside Weir.
const BLANK: &[Line] = &[
    ECHO,
    MACSWAP,
    ("testpmd io, null", Who::Testpmd("io", Devices::Null, Burst::Usual)),
    ("testpmd macswap, null", Who::Testpmd("macswap", Devices::Null, Burst::Usual)),
    ("testpmd macswap, null, bursts of 256", Who::Testpmd("macswap", Devices::Null, Burst::AsWeir)),
    ("testpmd io, rings", Who::Testpmd("io", Devices::Ring, Burst::Usual)),
    ("testpmd macswap, rings", Who::Testpmd("macswap", Devices::Ring, Burst::Usual)),
];

/// Where DPDK makes its folder; even what shares nothing makes one. For root it is /run otherwise.
const DPDK_FOLDER: &str = "RUNTIME_DIRECTORY";
const NFT: &str = "nft";
const ROOT: &str = "root";
/// In which of Debian's packages rivals are.
const PACKAGES: [(&str, &str); 3] =
    [(testpmd::NAME, "dpdk-dev"), (ovs::NAME, "openvswitch-switch-dpdk"), (NFT, "nftables")];

/// What can be had of all that figures of rivals need.
pub fn had() -> Vec<String> {
    static ONCE: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let all = || [testpmd::NAME, ovs::NAME, NFT, ROOT, CAPTURE].into_iter();
    ONCE.get_or_init(|| all().filter(|name| is_there(name)).map(str::to_owned).collect()).clone()
}

fn is_there(name: &str) -> bool {
    match name {
        ROOT => rustix::process::getuid().is_root(),
        // What was left out without it is measured anew where it is.
        CAPTURE => std::path::Path::new(CAPTURE).exists(),
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
        crate::say::print_line!("all rivals are installed already");
        return;
    }
    let named = packages.join(" ");
    if !is_there(ROOT) {
        crate::say::print_line!("not installed, as that needs root: {named}");
        return;
    }
    crate::say::print_line!("apt-get install {named}");
    let install = ["install", "-y", "-q"];
    let install = || apt(install.iter().copied().chain(packages.iter().copied()));
    // Where the lists of packages are old or none, they are fetched once.
    if !install() && apt(["update", "-q"].into_iter()) {
        install();
    }
    for (name, package) in missing() {
        crate::say::print_line!("{name} could not be installed (apt-get install {package})");
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

/// With the same packets, by size.
pub fn measure(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    measure_lines(effort, SAME, &SIZES)
}

/// Where nobody writes packets' content, so that size is nothing to testpmd, which touches no more than headers: once is enough.
pub fn measure_blank(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    measure_lines(effort, BLANK, &SIZES[..1])
}

fn measure_lines(
    effort: &Effort<'_>,
    lines: &[Line],
    sizes: &[u16],
) -> Result<Vec<Series>, BenchError> {
    let (has_testpmd, has_ovs) = (is_had(testpmd::NAME), is_had(ovs::NAME));
    let asks_ovs = lines.iter().any(|(_, who)| matches!(who, Who::Ovs));
    if !has_testpmd {
        effort.leave_out(
            "dpdk-testpmd is not installed (Debian: apt-get install dpdk-dev, or --install)",
        );
    }
    if !has_ovs && asks_ovs {
        effort.leave_out(
            "Open vSwitch with DPDK is not installed (Debian: apt-get install openvswitch-switch-dpdk, or --install)",
        );
    }
    let is_there = |(_, who): &&Line| match who {
        Who::Weir(_) => true,
        Who::Testpmd(..) => has_testpmd,
        Who::Ovs => has_ovs,
    };
    let points = points(lines.iter().filter(is_there), sizes);
    let points = effort.in_turn(&points);
    let mut gone = BTreeSet::new();
    let named = |(name, x, _): &(&str, f64, _)| ((*name).to_owned(), *x);
    effort.round_of_named(&points, named, |(name, x, (who, size))| {
        if gone.contains(name) || effort.failures(name) >= HOPELESS {
            effort.fail(name, x, NOT_TRIED);
            return Ok(Vec::new());
        }
        let sample = match who {
            Who::Weir(n) => weir(effort, n, size),
            Who::Testpmd(mode, devices, burst) => {
                testpmd::sample(effort, (mode, devices, burst), size).map_err(BenchError::from)
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

/// Each of the lines with each size.
fn points<'l>(
    lines: impl Iterator<Item = &'l Line>,
    sizes: &[u16],
) -> Vec<(&'static str, f64, (Who, u16))> {
    lines
        .flat_map(|(name, who)| sizes.iter().map(move |s| (*name, f64::from(*s), (*who, *s))))
        .collect()
}

fn weir(effort: &Effort<'_>, macswaps: usize, size: u16) -> Result<Sample, BenchError> {
    let source = DeviceSpec::Generator(generator(size));
    Ok(effort.sampling.take(&chain_policy(macswaps), Isolate::Each, source)?.into())
}

/// Where all packets are from, of so many bytes with the check sequence.
fn generator(size: u16) -> GeneratorSpec {
    GeneratorSpec { size: size - 4, ..GeneratorSpec::default() }
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let text = format!(
        "{}{}. The rivals' one core does what Weir's two do: it writes each packet into a buffer, as Weir's source does, and forwards it. Each of them leaves out a process for each function, and \
         ownership that survives a kill; testpmd's io, as Weir without a µNF, to look at packets. Open vSwitch looks packets up in a table of flows, which MacSwap does not",
        told(series, SAME),
        larger(series, SAME)
    );
    (Verdict::DifferentSetUp, text)
}

pub fn judge_blank(series: &[Series]) -> (Verdict, String) {
    let text = format!(
        "{}. Weir's source writes its packets, which rivals leave out: null devices give blank frames, all alike; on rings 128 packets go round that nobody takes or gives back. What else they \
         leave out is told in figure rivals",
        told(series, BLANK)
    );
    (Verdict::DifferentSetUp, text)
}

fn told(series: &[Series], lines: &[Line]) -> String {
    let of = |(name, _): &Line| match median(series, name, 64.0) {
        mpps if mpps.is_nan() => format!("{name} not to be had"),
        mpps => {
            let cycles = cpu_ns(series, name, 64.0) * mhz() / 1e3;
            format!("{name} {mpps:.1} Mpps, {cycles:.0} cycles")
        }
    };
    let (all, clock): (Vec<String>, _) = (lines.iter().map(of).collect(), clock_told());
    format!(
        "at 64 bytes; cycles a packet are processor time, of all threads that take part, times {clock} (on virtual machines the time \
         stamp counter's: a core that is boosted makes more): {}",
        all.join("; ")
    )
}

/// What there is of larger packets.
fn larger(series: &[Series], lines: &[Line]) -> String {
    let of = |size: u16| {
        let each = lines.iter().map(|(name, _)| (name, median(series, name, f64::from(size))));
        let each = each.filter(|(_, mpps)| !mpps.is_nan());
        let each: Vec<String> = each.map(|(name, mpps)| format!("{name} {mpps:.1}")).collect();
        (!each.is_empty()).then(|| format!("; with {size} bytes, Mpps: {}", each.join(", ")))
    };
    SIZES.iter().filter(|size| **size > 64).filter_map(|size| of(*size)).collect()
}

/// Lets a rival run for `span`, and longer where it does not get to run: what it has sent then, and when.
fn run_for(
    name: &'static str,
    span: Duration,
    from: u64,
    mut sent: impl FnMut() -> Result<(u64, Instant), RivalError>,
) -> Result<(u64, Instant), RivalError> {
    let begun = Instant::now();
    loop {
        std::thread::sleep(span);
        let (to, at) = sent()?;
        if to > from {
            return Ok((to, at));
        }
        if begun.elapsed() > PATIENCE {
            return Err(RivalError::Mute(name, "no packet more was sent".to_owned()));
        }
    }
}

/// Nanoseconds of processor time for each packet, from what there was of both before and after.
fn per_packet([busy, then]: [Option<u64>; 2], [from, to]: [u64; 2]) -> Option<f64> {
    let (packets, ns) = (to.checked_sub(from)?, then?.checked_sub(busy?)?);
    (packets > 0).then(|| ns as f64 / packets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure;
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
                earlier: &[],
            };
            let points = effort.in_turn(&points(SAME.iter(), &SIZES));
            points.into_iter().map(|(name, x, _)| (name, x)).collect()
        };
        let [forwards, mut backwards] = [1, 2].map(order);
        assert!(forwards.iter().map(|(_, x)| x).is_sorted(), "{forwards:?}");
        assert_eq!(
            forwards[..SAME.len()],
            SAME.iter().map(|(name, _)| (*name, 64.0)).collect::<Vec<_>>(),
            "all at one size first"
        );
        backwards.reverse();
        assert_eq!(forwards, backwards);
    }

    #[test]
    fn the_limit_is_recognised_by_its_name() {
        assert!(LIMIT.starts_with(figure::ECHO));
        for (_, text) in [judge(&[]), judge_blank(&[])] {
            assert!(text.contains(LIMIT), "{text}");
        }
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
