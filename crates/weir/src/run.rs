//! `weir run`: a policy on devices.

mod live;
mod signals;

use self::live::Live;
use self::signals::Signals;
use crate::cores::{self, Cores};
use crate::known::{self, DocumentArgs, Known};
use crate::outside::OutsideArgs;
use crate::policy::{self, Consolidate, PolicyFailure};
use crate::{BAD_INPUT, FAILED};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_control::devices;
use weir_control::setup::WorkerSetup;
use weir_control::wiring::{self, RunOptions, WiringError};
use weir_control::{Agent, AgentError, Event, Report, RestartPolicy};
use weir_device::DeviceSpec;
use weir_plan::{Asked, Isolate, Sizing};

/// Which NFs get a worker process of their own.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum IsolateArg {
    /// Each of them.
    Each,
    /// None: all run in one.
    None,
    /// As many as the cores make good use of, by the cost model.
    Auto,
}

impl From<IsolateArg> for Isolate {
    fn from(arg: IsolateArg) -> Self {
        match arg {
            IsolateArg::Each => Isolate::Each,
            IsolateArg::None => Isolate::None,
            IsolateArg::Auto => Isolate::Auto,
        }
    }
}

/// Runs a policy.
#[derive(clap::Args)]
pub struct RunArgs {
    /// The policy, or a service request (.json, .yaml).
    policy: PathBuf,
    /// Binds a port of the policy, by number, to a device: pcap:rx=FILE,tx=FILE (either may be
    /// left out), afp:INTERFACE, tap:NAME, gen:size=64,flows=1000,rate=max (and packets=N, seed=N, ip=4 or 6), or null.
    #[arg(long, value_name = "PORT=DEVICE", value_parser = parse_bind)]
    bind: Vec<(u16, DeviceSpec)>,
    /// Which NFs get a worker process of their own: each, unless a request's objective says otherwise.
    #[arg(long, value_enum)]
    isolate: Option<IsolateArg>,
    /// Whether NFs are left out whose answer an equal one before them has, and equal ones on different
    /// ways share a worker. Reports are the same either way; `weir explain` says what is done.
    #[arg(long, value_enum, default_value = "on")]
    consolidate: Consolidate,
    /// Puts an NF into a trust domain: packets are shared within a domain and copied between
    /// domains. Without it an NF is where its type says, mostly in the graph's own.
    #[arg(long, value_name = "INSTANCE=NAME", value_parser = policy::parse_domain)]
    domain: Vec<(String, String)>,
    /// Runs so many instances of an NF, which divide its packets by what must meet at one; NF=2:1 gives
    /// two of these weights, NF=2,least sends packets that need not meet to the least loaded. Without it
    /// there are as many as the traffic that the policy states needs, and cores make use of.
    #[arg(long, value_name = "NF=NUMBER", value_parser = policy::parse_instances)]
    instances: Vec<(String, Asked)>,
    /// Cores to use, such as 0,1 or 0-3: the first for devices, the others for NFs. Without it the
    /// kernel chooses.
    #[arg(long, value_parser = cores::parse)]
    cores: Option<Cores>,
    /// Ends the input after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Writes every packet that is dropped to a capture (pcapng), with the reason and who dropped it
    /// as its comment.
    #[arg(long, value_name = "FILE")]
    dump_drops: Option<PathBuf>,
    /// Prints the report as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Says less: no live line.
    #[arg(long, short)]
    quiet: bool,
    /// Entries of each ring between workers.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=65536))]
    ring: u32,
    /// Buffers of each input's pool (rounded up to a power of two); by packet size unless given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pool: Option<u32>,
    /// Microseconds for which a worker polls after its last packet before it sleeps.
    #[arg(long, default_value_t = 200)]
    spin: u32,
    /// `busy`: workers never sleep, but for a moment when those of a core are put in order.
    #[arg(long, value_enum, default_value = "adaptive")]
    poll: Poll,
    /// Leaves the real-time class out even where it is permitted.
    #[arg(long)]
    no_real_time: bool,
    /// Seed for NFs that sample or hash. The generator has one of its own: `gen:seed=N`.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Longest delay before a worker that keeps dying is restarted, in milliseconds.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    restart_delay: u64,
    /// Seconds without a sign of life after which a worker is killed and started again (an endless
    /// loop, a stopped process); 0: never, to look at one with a debugger.
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = parse_seconds)]
    patience: Duration,
    /// Seconds that a worker may take from its start until it is ready (building a large rule set takes
    /// some) before it is killed and started again; not with `--patience 0`.
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = parse_seconds)]
    start_patience: Duration,
    /// The hardware (JSON or YAML) that a request's objective is to be met on; without it this machine.
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    #[command(flatten)]
    documents: DocumentArgs,
    #[command(flatten)]
    outside: OutsideArgs,
    /// Where a worker kills itself: SEGMENT:STEP:N. For tests of builds with the feature `faults`.
    #[arg(long, hide = true, value_parser = parse_fault)]
    fault: Vec<(String, u32, u32)>,
    /// Which worker turns hostile: SEGMENT:SEED. For tests of builds with the feature `attacks`.
    #[arg(long, hide = true, value_parser = parse_attack)]
    attack: Vec<(String, u64)>,
    /// After how many offences within ten seconds a worker is not started again.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    offences: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Poll {
    Adaptive,
    Busy,
}

fn parse_bind(text: &str) -> Result<(u16, DeviceSpec), String> {
    let (port, device) =
        text.split_once('=').ok_or("write PORT=DEVICE, such as 0=pcap:rx=in.pcap")?;
    let port = port.parse().map_err(|_| format!("`{port}` is not a port number (0 to 65535)"))?;
    let device = device.parse().map_err(|e: weir_device::SpecError| e.to_string())?;
    Ok((port, device))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds"))
}

fn parse_fault(text: &str) -> Result<(String, u32, u32), String> {
    let mut parts = text.rsplitn(3, ':');
    let mut number = || parts.next().and_then(|p| p.parse().ok());
    match (number(), number(), parts.next()) {
        (Some(nth), Some(step), Some(segment)) => Ok((segment.to_owned(), step, nth)),
        _ => Err("write SEGMENT:STEP:N".to_owned()),
    }
}

fn parse_attack(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once(':');
    let attack = parts.and_then(|(name, seed)| Some((name.to_owned(), seed.parse().ok()?)));
    attack.ok_or_else(|| "write SEGMENT:SEED".to_owned())
}

/// Why a run did not come to a good end.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Policy(#[from] PolicyFailure),
    #[error("weir: {0}")]
    Wiring(#[from] WiringError),
    #[error("weir: --bind {0}: port {0} is bound twice")]
    BoundTwice(u16),
    #[error("weir: {0}")]
    Agent(#[from] AgentError),
    #[error(
        "weir: {source}; only {most} files may be open at a time, and {workers} workers may need \
         {enough}: raise the limit (ulimit -n {enough}; as root, LimitNOFILE= of the service)"
    )]
    FewFiles { source: AgentError, most: u64, workers: usize, enough: u64 },
    #[error("weir: cannot listen for signals: {0}")]
    Signals(std::io::Error),
    #[error("weir: cannot write the report: {0}")]
    Print(std::io::Error),
}

impl RunError {
    fn code(&self) -> u8 {
        match self {
            RunError::Policy(_) | RunError::Wiring(_) | RunError::BoundTwice(_) => BAD_INPUT,
            RunError::Agent(_)
            | RunError::FewFiles { .. }
            | RunError::Signals(_)
            | RunError::Print(_) => FAILED,
        }
    }
}

pub fn main(args: &RunArgs) -> ExitCode {
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(e @ (RunError::Agent(_) | RunError::FewFiles { .. })) => {
            crate::complain!("{}", plain(&e.to_string()));
            ExitCode::from(e.code())
        }
        Err(e) => {
            crate::complain!("{e}");
            ExitCode::from(e.code())
        }
    }
}

/// What workers say is theirs: what moves cursors or changes colours becomes a space.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn run(args: &RunArgs) -> Result<bool, RunError> {
    let sandbox = args.outside.sandbox();
    if !sandbox.on {
        crate::complain!(
            "weir: warning: --sandbox off: workers may do whatever this user may; for debugging only"
        );
    }
    let known = Known::load(&args.outside, &args.documents)?;
    let loaded = policy::load(&args.policy, &known, args.outside.with.is_empty())?;
    let _ = write!(std::io::stderr(), "{}", loaded.warnings);
    policy::has_code(&loaded.graph, &args.policy, &known)?;
    policy::runs(&loaded.graph, &args.policy)?;
    let given = args.isolate.map(Isolate::from);
    let hardware = args.hardware.as_deref();
    let cores = args.cores.as_ref().map(|c| c.0.clone());
    let (isolate, chosen) =
        policy::isolation(&loaded, &args.policy, given, hardware, cores.as_deref())?;
    if let Some(chosen) = chosen.filter(|_| !args.quiet) {
        crate::complain!("weir: {chosen}");
    }
    let server = known::server(hardware, cores.as_deref())?;
    let (asked, objective) = (policy::asked(&args.instances)?, loaded.objective.as_ref());
    let sizing = Sizing { server: &server, objective, asked: &asked };
    let planned = policy::options(isolate, cores, &args.domain)?;
    let (plan, _) =
        policy::plan_sized(&loaded.graph, &args.policy, &planned, args.consolidate, sizing)?;
    let mut binds = BTreeMap::new();
    for (port, device) in &args.bind {
        if binds.insert(*port, device.clone()).is_some() {
            return Err(RunError::BoundTwice(*port));
        }
    }
    if let Some(output) = devices::written_over(&binds, &args.policy) {
        return Err(WiringError::SameFile(output.to_owned()).into());
    }
    if let Some(file) = &args.dump_drops
        && devices::is_same(file, &args.policy)
    {
        return Err(WiringError::SameFile(file.clone()).into());
    }
    let captures = devices::scan(&binds)?;
    for (port, summary) in &captures {
        if summary.largest > wiring::LONGEST_PACKET {
            crate::complain!(
                "weir: warning: the capture of port {port} has packets of up to {} bytes; those over \
                 {} do not fit a buffer and are dropped as `oversize`",
                summary.largest,
                wiring::LONGEST_PACKET
            );
        }
    }
    let options = RunOptions {
        ring: args.ring,
        pool: args.pool,
        spin_us: args.spin,
        busy: args.poll == Poll::Busy,
        real_time: !args.no_real_time,
        seed: args.seed,
        faults: args.fault.clone(),
        attacks: args.attack.clone(),
        programs: known.programs.paths(),
        dump_drops: args.dump_drops.clone(),
        sandbox,
    };
    let taps = devices::open(&binds)?;
    let mut setup = wiring::wire(&plan, &binds, &captures, &options)?;
    setup.taps = taps;
    let policy = RestartPolicy {
        longest: Duration::from_millis(args.restart_delay),
        offences: args.offences,
        patience: Some(args.patience).filter(|p| !p.is_zero()),
        start_patience: args.start_patience,
        ..RestartPolicy::default()
    };
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let start = Instant::now();
    let workers = setup.workers.len();
    let mut agent = Agent::start(setup, policy).map_err(|e| too_few_files(e, workers))?;
    let mut live = Live::new(args.quiet, &captures, &agent);
    let (mut stopped, mut real_time, mut ready) = (false, false, 0);
    'running: loop {
        agent.turn(live.patience())?;
        while let Some(event) = agent.event() {
            if let Event::Ready { real_time: granted, after: None, .. } = event {
                real_time |= granted;
                ready += 1;
                if ready == agent.setup().workers.len() && !args.quiet {
                    live.say(&granted_line(&agent, real_time));
                    live.say(&agent.sandbox());
                    sharers(&agent, &args.domain).iter().for_each(|line| live.say(line));
                }
            }
            live.tell(&agent, &event);
            if event == Event::Finished {
                break 'running;
            }
        }
        let over = args.duration.is_some_and(|d| start.elapsed() >= d);
        let signalled = signals.count();
        let over = over || signals.hung_up();
        if signalled >= 2 {
            live.clear();
            crate::complain!("weir: interrupted twice: ending without draining");
            return Ok(false);
        }
        if (over || signalled == 1) && !stopped {
            stopped = true;
            agent.stop();
        }
        live.show(&agent);
    }
    live.clear();
    let seconds = start.elapsed().as_secs_f64();
    let census = agent.dismiss();
    let report = Report::of(&plan, &agent, census, seconds);
    print_report(&report, args.json).map_err(RunError::Print)?;
    if !report.sound {
        crate::complain!("weir: packets or buffers are unaccounted for; this is a fault of weir's");
    }
    Ok(report.sound)
}

/// When memory or processes are refused and few files may be open, that is why: each ring, pool and
/// worker is some. The agent has raised the limit as far as it may.
fn too_few_files(source: AgentError, workers: usize) -> RunError {
    // More than workers of usual chains have; it decides only what is said.
    let enough = 256 + 64 * workers as u64;
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match (&source, most) {
        (AgentError::Memory(_) | AgentError::Spawn(_), Some(most)) if most < enough => {
            RunError::FewFiles { source, most, workers, enough }
        }
        _ => source.into(),
    }
}

/// One line on which of the machine's helps were used.
fn granted_line(agent: &Agent, real_time: bool) -> String {
    let (bytes, _) = agent.memory_size();
    format!(
        "{} workers, {:.1} MiB of packet memory on {} pages, {} scheduling",
        agent.setup().workers.len(),
        bytes as f64 / f64::from(1 << 20),
        if agent.huge_pages() { "2 MiB" } else { "ordinary" },
        if real_time { "real-time" } else { "default" },
    )
}

/// A line for each outside program's worker that is in the graph's own trust domain by the program's own
/// word: it can read and change the packets of all that are. `asked`: NFs that the operator has put.
fn sharers(agent: &Agent, asked: &[(String, String)]) -> Vec<String> {
    let setup = agent.setup();
    let unasked = |name: &str| !asked.iter().any(|(nf, _)| nf == name);
    let workers = setup.workers.iter().filter(|w| {
        w.runs_nfs() && w.domain == 0 && w.nodes.iter().any(|node| unasked(&node.name))
    });
    let program = |w: &WorkerSetup| setup.programs.get(usize::from(w.program?.0));
    let line = |w: &WorkerSetup| {
        let (name, program) = (&w.name, program(w)?.display());
        Some(format!(
            "worker {name} is {program}, in the graph's own trust domain by its own word: it may read and \
             change all packets there; --domain INSTANCE=NAME puts an NF apart"
        ))
    };
    workers.filter_map(line).collect()
}

fn print_report(report: &Report, json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", report.table())?;
        for node in report.nodes.iter().filter(|n| !n.report.is_null()) {
            writeln!(out, "{}: {}", node.name, node.report)?;
        }
    }
    out.flush()
}
