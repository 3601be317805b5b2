//! The kernel's bridge and nftables beside Weir, between two veth pairs. Each sample is taken by a process of its own in a network
//! namespace of its own: with the process all interfaces, tables and workers are gone.

use super::{HOPELESS, NOT_TRIED, PATIENCE, ROOT, RivalError, is_had};
use crate::bench::consolidation::net;
use crate::bench::figure::Effort;
use crate::bench::figure::data::{Sample, Series, Verdict};
use crate::bench::figure::values::{cpu_ns, median};
use crate::bench::machine::{clock_told, mhz};
use crate::bench::own::ENDS_WITH_US;
use crate::bench::sample::{BenchError, POOL, READY, RING, finish, wait_until_ready, watch};
use crate::policy::{self, Consolidate};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weir_control::wiring::{self, RunOptions};
use weir_control::{Agent, RestartPolicy};
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::Isolate;

const NAME: &str = "live";
const SIZES: [u16; 2] = [64, 1500];
/// Rules that nothing matches, before the one that passes all.
const RULES: usize = 100;

/// What is between the two pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Between {
    /// Nothing: one pair only. What the source sends at most.
    Nothing,
    /// The kernel's bridge.
    Bridge,
    /// The same with nftables, a rule for each: a packet goes through all of them.
    Chain,
    /// The same rules as one set of nftables: a packet is looked up once.
    Set,
    /// Weir from interface to interface.
    Echo,
    /// Weir with the rules in an L3L4Filter.
    Filter,
}

const ALL: [(&str, Between); 6] = [
    ("one veth pair, nothing between", Between::Nothing),
    ("kernel's bridge", Between::Bridge),
    ("bridge, nftables: a chain of 100 rules", Between::Chain),
    ("bridge, nftables: 100 rules as one set", Between::Set),
    ("Weir, no µNF", Between::Echo),
    ("Weir, L3L4Filter 100 rules", Between::Filter),
];

/// Takes one sample.
#[derive(clap::Args)]
pub struct LiveArgs {
    #[arg(long, value_enum)]
    between: Between,
    #[arg(long, value_parser = crate::bench::asked::size)]
    size: u16,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    device_core: usize,
    #[arg(long)]
    chain_core: usize,
    #[arg(long)]
    no_real_time: bool,
    #[arg(long, default_value_t = RING)]
    ring: u32,
    #[arg(long, default_value_t = POOL)]
    pool: u32,
}

/// What a sample's process says.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    mpps: f64,
    /// Processor time of the whole machine, source and receiver included, for each packet.
    cpu_ns: f64,
}

/// Measures; whatever cannot be had is said and left out.
pub fn measure(effort: &Effort<'_>) -> Result<Vec<Series>, BenchError> {
    if !is_had(ROOT) {
        effort.leave_out("network namespaces and veth pairs need root");
        return Ok(Vec::new());
    }
    let mut gone: BTreeSet<Between> = BTreeSet::new();
    let points = effort.in_turn(&points());
    effort.round_of(&points, |(name, x, (between, size))| {
        if gone.contains(&between) || effort.failures(name) >= HOPELESS {
            effort.fail(name, x, NOT_TRIED);
            return Ok(Vec::new());
        }
        let (told, trips) = effort.around(|| Ok(sample(effort, between, size)))?;
        match told {
            Ok(told) => {
                // The source is in the default class, and so are the kernel's work and Weir's devices.
                let not_granted = between != Between::Filter;
                let cpu_ns = Some(told.cpu_ns);
                let sample = Sample { cpu_ns, not_granted, ..Sample::of(told.mpps, trips) };
                Ok(vec![(name.to_owned(), x, sample)])
            }
            Err(why) => {
                effort.fail(name, x, &why.to_string());
                gone.insert(between);
                Ok(Vec::new())
            }
        }
    })
}

/// What is measured with which sizes.
fn points() -> Vec<(&'static str, f64, (Between, u16))> {
    let of = |(name, between)| SIZES.map(|size| (name, f64::from(size), (between, size)));
    ALL.into_iter().flat_map(of).collect()
}

fn sample(effort: &Effort<'_>, between: Between, size: u16) -> Result<Told, RivalError> {
    let sampling = effort.sampling;
    let failed = |e| RivalError::Start(NAME, e);
    let between = clap::ValueEnum::to_possible_value(&between);
    let between = between.map(|v| v.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).args(ENDS_WITH_US).arg(std::env::current_exe().map_err(failed)?);
    command.args(["bench", "live", "--between", &between]);
    for (name, value) in [
        ("--size", size.to_string()),
        // Kernel and clock ticks are coarser than memory.
        ("--seconds", (sampling.seconds * 2.0).to_string()),
        ("--device-core", sampling.device_core.to_string()),
        ("--chain-core", sampling.chain_core.to_string()),
        ("--ring", sampling.ring.to_string()),
        ("--pool", sampling.pool.to_string()),
    ] {
        command.args([name, &value]);
    }
    if sampling.no_real_time {
        command.arg("--no-real-time");
    }
    let spans = Duration::from_secs_f64((sampling.seconds * 4.0).clamp(0.0, 240.0));
    let output = super::run(NAME, &mut command, READY + PATIENCE + spans)?;
    let said = String::from_utf8_lossy(&output.stdout);
    match serde_json::from_str(said.trim()) {
        Ok(told) if output.status.success() => Ok(told),
        _ => {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or("it said nothing").to_owned();
            Err(RivalError::Refused(NAME, why))
        }
    }
}

pub fn judge(series: &[Series]) -> (Verdict, String) {
    let row = |(name, _): &(&str, Between)| {
        let mpps = median(series, name, 64.0);
        if mpps.is_nan() {
            return format!("{name}: could not be had");
        }
        let cycles = cpu_ns(series, name, 64.0) * mhz() / 1e3;
        format!("{name} {mpps:.2} Mpps, {cycles:.0} cycles")
    };
    let rows: Vec<String> = ALL.iter().map(row).collect();
    let text = format!(
        "at 64 bytes; cycles a packet are the whole machine's processor time, source and receiver included, times {}: {}. The bridge leaves out the rules, processes and drops by reason; with nftables \
         processes and drops by rule (these rules have no counters); Weir without a µNF the rules. The kernel works in the source's own turn, Weir crosses \
         to its processes and back",
        clock_told(),
        rows.join("; ")
    );
    (Verdict::DifferentSetUp, text)
}

/// One sample, inside its namespace.
pub fn main(args: &LiveArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &LiveArgs) -> Result<(), BenchError> {
    let alone = args.between == Between::Nothing;
    net::must_be_new().map_err(|why| RivalError::Refused(NAME, why))?;
    make_pairs(alone)?;
    match args.between {
        Between::Bridge => bridge()?,
        Between::Chain | Between::Set => {
            bridge()?;
            nftables(args.between == Between::Set)?;
        }
        Between::Nothing | Between::Echo | Between::Filter => {}
    }
    let mut agents = Vec::new();
    if let Between::Echo | Between::Filter = args.between {
        let text = match args.between {
            Between::Filter => filter(),
            _ => "Port<0> lan; Port<1> wan;\npipelet { lan -> wan; }\n".to_owned(),
        };
        let ends = ["m0", "m1"].map(|name| DeviceSpec::Afp(name.to_owned()));
        agents.push(start(args, &text, ends, args.chain_core)?);
    }
    // Sizes are with the check sequence, which no buffer has.
    let generator = GeneratorSpec { size: args.size - 4, flows: 100, ..GeneratorSpec::default() };
    let ends = [DeviceSpec::Generator(generator), DeviceSpec::Afp("c0".to_owned())];
    let text = "Port<0> lan; Port<1> wan;\npipelet { lan -> wan; }\n";
    agents.push(start(args, text, ends, args.device_core)?);
    let last = if alone { "m0" } else { "s0" };
    let span = Duration::from_secs_f64(args.seconds.clamp(0.05, 60.0));
    // As long as everywhere: half of what was asked for, of which the sample is twice as much.
    turn(&mut agents, span / 4)?;
    let (begun, from, busy) = (Instant::now(), received(last)?, busy()?);
    turn(&mut agents, span)?;
    let (took, packets) = (begun.elapsed(), received(last)?.saturating_sub(from));
    let spent = self::busy()? - busy;
    if packets == 0 {
        return Err(RivalError::Mute(NAME, "no packet arrived".to_owned()).into());
    }
    let told = Told {
        mpps: packets as f64 / took.as_secs_f64() / 1e6,
        cpu_ns: spent * 1e9 / packets as f64,
    };
    crate::say::print_line!("{}", serde_json::to_string(&told).unwrap_or_default());
    Ok(())
}

fn start(
    args: &LiveArgs,
    text: &str,
    [from, to]: [DeviceSpec; 2],
    core: usize,
) -> Result<Agent, BenchError> {
    let loaded = policy::from_text(text, "(bench)")?;
    let (path, off) = (Path::new("(bench)"), Consolidate::Off);
    let plan = policy::plan(&loaded.graph, path, Isolate::None, Some(vec![core]), &[], off)?;
    let binds = BTreeMap::from([(0, from), (1, to)]);
    let options = RunOptions {
        real_time: !args.no_real_time,
        ring: args.ring,
        pool: Some(args.pool),
        ..RunOptions::default()
    };
    let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &options)?;
    let workers = setup.workers.len();
    let mut agent = Agent::start(setup, RestartPolicy::default())?;
    wait_until_ready(&mut agent, workers)?;
    Ok(agent)
}

/// Lets all agents do their work for a while.
fn turn(agents: &mut [Agent], span: Duration) -> Result<(), BenchError> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        for agent in &mut *agents {
            watch(agent, Duration::from_millis(20))?;
        }
    }
    Ok(())
}

fn make_pairs(alone: bool) -> Result<(), RivalError> {
    for which in ["all", "default"] {
        // There is no such file in a kernel without IPv6; with it the kernel looks for neighbours.
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        let _ = std::fs::write(path, "1");
    }
    let pairs: &[[&str; 2]] = if alone { &[["c0", "m0"]] } else { &[["c0", "m0"], ["m1", "s0"]] };
    for [near, far] in pairs {
        tool("ip", &format!("link add {near} type veth peer name {far}"))?;
        for end in [near, far] {
            tool("ip", &format!("link set {end} arp off up"))?;
        }
    }
    Ok(())
}

fn bridge() -> Result<(), RivalError> {
    tool("ip", "link add br0 type bridge")?;
    for end in ["m0", "m1"] {
        tool("ip", &format!("link set {end} master br0"))?;
    }
    tool("ip", "link set br0 up")
}

/// Destination networks and ports of the rules that nothing matches: the generator's packets go to 172.16.0.0/12 and ports below 60.
fn rule(n: usize) -> (String, usize) {
    (format!("203.0.{n}.0/24"), 1_000 + n)
}

/// The rules in nftables' language, one after the other or as one set.
fn ruleset(set: bool) -> String {
    let rules = (0..RULES).map(rule);
    let (set, chain) = if set {
        let elements: Vec<_> = rules.map(|(net, port)| format!("{net} . {port}")).collect();
        let of = "type ipv4_addr . inet_service; flags interval;";
        let set = format!(" set r {{ {of} elements = {{ {} }} }}\n", elements.join(", "));
        (set, "  ip daddr . udp dport @r drop\n".to_owned())
    } else {
        let rule = |(net, port)| format!("  ip daddr {net} udp dport {port} drop\n");
        (String::new(), rules.map(rule).collect())
    };
    let hook = "type filter hook forward priority 0; policy drop;";
    format!("table bridge weir {{\n{set} chain f {{\n  {hook}\n{chain}  accept\n }}\n}}\n")
}

fn nftables(set: bool) -> Result<(), RivalError> {
    let text = ruleset(set);
    let failed = |e| RivalError::Start("nft (Debian: apt-get install nftables, or --install)", e);
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    if let Some(mut say) = child.stdin.take() {
        std::io::Write::write_all(&mut say, text.as_bytes()).map_err(failed)?;
    }
    match child.wait().map_err(failed)?.success() {
        true => Ok(()),
        false => Err(RivalError::Refused("nft", "the rules".to_owned())),
    }
}

/// The same rules for Weir.
fn filter() -> String {
    let rules = (0..RULES).map(rule).map(|(net, port)| {
        format!("{{ action: \"drop\", dst: \"{net}\", proto: \"udp\", dst_port: {port} }}")
    });
    let rules: Vec<String> = rules.collect();
    format!(
        "Port<0> lan; Port<1> wan;\nL3L4Filter fw {{ default: \"pass\", rules: [{}] }};\npipelet {{ lan -> fw -> wan; }}\n",
        rules.join(", ")
    )
}

fn tool(program: &'static str, words: &str) -> Result<(), RivalError> {
    let output = Command::new(program).args(words.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|e| RivalError::Start(program, e))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(RivalError::Refused(program, why.lines().next().unwrap_or(words).to_owned()))
}

/// Packets that an interface of this namespace has received.
fn received(name: &str) -> Result<u64, RivalError> {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    count(&text, name).ok_or_else(|| unread("/proc/self/net/dev"))
}

fn unread(what: &str) -> RivalError {
    RivalError::Refused(NAME, format!("{what} could not be read"))
}

fn count(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    line?.split_whitespace().nth(1)?.parse().ok()
}

/// Seconds of processor time that the whole machine has spent on anything.
fn busy() -> Result<f64, RivalError> {
    let text = std::fs::read_to_string("/proc/stat").map_err(|_| unread("/proc/stat"))?;
    Ok(ticks(&text) / rustix::param::clock_ticks_per_second() as f64)
}

/// The same in ticks, of `/proc/stat`. What the host had of this machine's processors meanwhile (steal) was spent on others.
fn ticks(text: &str) -> f64 {
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, (idle, iowait,) irq, softirq(, steal)
    [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_an_interface_received_are_found_by_its_whole_name() {
        let text = "Inter-| Receive\n face |bytes packets\n    s01:  1  2  0\n    s0: 640 10 0 0 0 0 0 0 5 7\n";
        assert_eq!(count(text, "s0"), Some(10));
        assert_eq!(count(text, "m0"), None);
    }

    #[test]
    fn what_is_idle_or_stolen_is_not_spent() {
        let text = "cpu  1 20 300 9000 9000 4000 50000 9000 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(ticks(text), 54_321.0);
    }

    #[test]
    fn the_rules_are_a_policy() {
        policy::from_text(&filter(), "(test)").unwrap();
    }

    #[test]
    fn a_chain_and_a_set_of_nftables_have_the_same_rules() {
        for (net, port) in (0..RULES).map(rule) {
            assert!(ruleset(false).contains(&format!("ip daddr {net} udp dport {port} drop\n")));
            let set = ruleset(true);
            let element = [format!(" {net} . {port},"), format!(" {net} . {port} }}")];
            assert!(element.iter().any(|element| set.contains(element)), "{net} {port}: {set}");
        }
        assert_eq!(ruleset(true).matches(" . 1").count(), RULES, "and no others");
        assert_eq!(ruleset(false).matches(" drop\n").count(), RULES);
        assert_eq!(ruleset(true).matches(" drop\n").count(), 1);
    }

    #[test]
    fn the_limit_and_all_that_is_between_have_samples_of_both_sizes() {
        let points = points();
        for (name, _) in ALL {
            let sizes: Vec<f64> =
                points.iter().filter(|(of, ..)| *of == name).map(|(_, x, _)| *x).collect();
            assert_eq!(sizes, SIZES.map(f64::from), "{name}");
        }
    }
}
