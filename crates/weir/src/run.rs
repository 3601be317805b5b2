//! `weir run`: a policy on devices.

use crate::cores::{self, Cores};
use crate::known::{DocumentArgs, Known};
use crate::outside::OutsideArgs;
use crate::policy::{self, Consolidate, PolicyFailure};
use crate::{BAD_INPUT, FAILED};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_control::devices::{self, Captures};
use weir_control::wiring::{self, RunOptions, WiringError};
use weir_control::{Agent, AgentError, Crash, Event, Report, RestartPolicy};
use weir_device::DeviceSpec;
use weir_plan::Isolate;
use weir_runtime::layout::NodeCounts;
use weir_runtime::spec::EndSpec;

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
    /// `busy`: workers never sleep.
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
    let plan =
        policy::plan(&loaded.graph, &args.policy, isolate, cores, &args.domain, args.consolidate)?;
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
    let mut live = Live::new(args, &captures, &agent);
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

/// SIGINT and SIGTERM: the first drains, the second ends at once. SIGHUP drains, however often it comes:
/// a terminal that goes away may send several.
struct Signals {
    ends: Arc<AtomicUsize>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let signals = Signals { ends: Arc::default(), hang_up: Arc::default() };
        if !ignores_hang_up() {
            let told = signals.hang_up.clone();
            signal_hook::flag::register(signal_hook::consts::SIGHUP, told)?;
        }
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        let count = signals.ends.clone();
        std::thread::Builder::new().name("weir-signals".into()).spawn(move || {
            let mut byte = [0];
            let mut read = read;
            while matches!(std::io::Read::read(&mut read, &mut byte), Ok(1)) {
                // Relaxed: a counter, no data behind it.
                count.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(signals)
    }

    fn count(&self) -> usize {
        self.ends.load(Ordering::Relaxed)
    }

    fn hung_up(&self) -> bool {
        // Relaxed: a flag, no data behind it.
        self.hang_up.load(Ordering::Relaxed)
    }
}

/// Whether weir was started so that it outlives its terminal, as `nohup` does: that is to stay so.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal_hook::consts::SIGHUP - 1)) != 0)
}

/// A crash in words: which µNF, of what, at which packet.
fn crash_report(crash: &Crash) -> String {
    /// Bytes of the packet that are shown; the JSON report has all.
    const SHOWN: usize = 256;
    let who = match (&crash.node, &crash.nf) {
        (Some(node), Some(nf)) => format!("{node} ({nf})"),
        _ => format!("worker {} (outside of its NFs)", crash.worker),
    };
    let mut text = format!("{who} crashed: {}", crash.cause.trim());
    if let Some(packet) = &crash.packet {
        let len = packet.len() / 2;
        text += &format!("; the packet that it looked at last has {len} bytes:");
        for (row, line) in packet.as_bytes().chunks(32).enumerate().take(SHOWN / 16) {
            let pairs = line.chunks(2).map(|pair| String::from_utf8_lossy(pair).into_owned());
            text += &format!("\n  {:04x}  {}", row * 16, pairs.collect::<Vec<_>>().join(" "));
        }
        if len > SHOWN {
            text += "\n  ... (--json has all of it)";
        }
        if crash.poison {
            text += "\n  it has killed it before: from now on it is dropped as `poison`";
        }
    }
    text
}

/// The live line: progress for captures, rates otherwise.
struct Live {
    on: bool,
    records: u64,
    last: Instant,
    packets: u64,
    drawn: bool,
}

const EVERY: Duration = Duration::from_millis(500);

impl Live {
    fn new(args: &RunArgs, captures: &Captures, agent: &Agent) -> Self {
        let endless = agent
            .setup()
            .workers
            .iter()
            .any(|w| matches!(&w.end, EndSpec::Rx { device, .. } if !matches!(device, DeviceSpec::Pcap { .. })));
        let records = if endless { 0 } else { captures.values().map(|s| s.records).sum() };
        let on = !args.quiet && std::io::stderr().is_terminal();
        let last = Instant::now();
        Live { on, records, last, packets: 0, drawn: false }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn say(&mut self, text: &str) {
        self.clear();
        crate::complain!("weir: {}", plain(text));
    }

    fn tell(&mut self, agent: &Agent, event: &Event) {
        let name = |w: usize| agent.setup().workers[w].name.as_str();
        match event {
            Event::Died { worker, how, lost, mended, .. } => self.say(&format!(
                "worker {} died ({how}): {lost} packets lost, mended in {mended:.1?}",
                name(*worker)
            )),
            Event::Ready { worker, after: Some(after), .. } => {
                self.say(&format!("worker {} runs again after {after:.1?}", name(*worker)));
            }
            Event::Crashed(crash) => crash_report(crash).lines().for_each(|line| self.say(line)),
            Event::Offence { worker, what } => {
                self.say(&format!("worker {} {what}: killed", name(*worker)));
            }
            Event::Hung { worker, what } => {
                self.say(&format!("worker {} {what}: killed", name(*worker)));
            }
            Event::StandsStill { why } => self.say(&format!("the graph stands still: {why}")),
            Event::Quarantined { worker } => self.say(&format!(
                "worker {} is not started again: what comes for it is dropped",
                name(*worker)
            )),
            Event::Audited { domain, voided } => {
                let domain = match agent.setup().domains.get(*domain).map_or("", String::as_str) {
                    "" => "the graph's own domain".to_owned(),
                    name => format!("domain {name}"),
                };
                self.say(&format!("the buffers of {domain} were audited: {voided} entries voided"));
            }
            Event::Warning { text, .. } => self.say(&format!("warning: {text}")),
            Event::Ready { .. } | Event::Finished => {}
        }
    }

    fn show(&mut self, agent: &Agent) {
        let elapsed = self.last.elapsed();
        if !self.on || elapsed < EVERY {
            return;
        }
        self.last = Instant::now();
        let (mut input, mut output) = (0, 0);
        for (w, worker) in agent.setup().workers.iter().enumerate() {
            let (Some(words), Some(layout)) = (agent.words(w), agent.layout(w)) else { continue };
            let packets = NodeCounts::read(&words, &layout, 0).packets;
            match worker.end {
                EndSpec::Rx { .. } => input += packets,
                EndSpec::Tx { .. } => output += packets,
                EndSpec::None | EndSpec::Gate { .. } | EndSpec::Drain | EndSpec::Dump(_) => {}
            }
        }
        let rate = input.saturating_sub(self.packets) as f64 / elapsed.as_secs_f64();
        self.packets = input;
        let progress = if self.records > 0 {
            format!(
                "{:.0} % of {} records",
                100.0 * input as f64 / self.records as f64,
                self.records
            )
        } else {
            format!("{input} packets in")
        };
        let _ =
            write!(std::io::stderr(), "\r\x1b[K{progress}, {output} out, {:.3} Mpps", rate / 1e6);
        self.drawn = true;
    }
}
