//! `weir run`: a policy on devices.

mod control;
mod crashes;
mod live;
mod planner;
mod reload;
mod signals;
pub mod words;

use self::control::{Control, SocketError};
use self::live::Live;
use self::planner::{Planned, Planner};
use self::reload::{Reload, Watch};
use self::signals::{HangUp, Signals};
use crate::planning::{PlanArgs, PlanningArgs};
use crate::policy::PolicyFailure;
use crate::{BAD_INPUT, FAILED, limits, say};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_control::setup::WorkerSetup;
use weir_control::wiring::WiringError;
use weir_control::{Agent, AgentError, Event, Report, RestartPolicy, Scaling};
use weir_device::DeviceSpec;

/// So many decisions about the number of instances are kept for the report, the last ones.
const SCALINGS: usize = 1000;

/// Runs a policy.
#[derive(clap::Args)]
pub struct RunArgs {
    /// The policy, or a service request (.json, .yaml).
    policy: PathBuf,
    /// Binds a port of the policy, by number, to a device: pcap:rx=FILE,tx=FILE (either may be
    /// left out), afp:INTERFACE, tap:NAME, gen:size=64,flows=1000,rate=max (and packets=N, seed=N, ip=4 or 6, carry=http), or null.
    #[arg(long, value_name = "PORT=DEVICE", value_parser = parse_bind)]
    bind: Vec<(u16, DeviceSpec)>,
    #[command(flatten)]
    planning: PlanningArgs,
    /// Reads the policy again, as after SIGHUP, when it or a file that belongs to it has changed.
    #[arg(long)]
    watch: bool,
    /// Ends the input after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Writes every packet that is dropped to a capture (pcapng), with the reason and who dropped it
    /// as its comment.
    #[arg(long, value_name = "FILE")]
    dump_drops: Option<PathBuf>,
    /// The socket by which `weir get` and `weir flow` ask this run, for this user only. Without it one in
    /// $XDG_RUNTIME_DIR/weir, or /run/weir for root.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
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
    /// Of how many packets of a batch a worker asks for the first lines when it takes it; of all unless given.
    #[arg(long, value_name = "PACKETS")]
    prefetch: Option<u32>,
    /// `busy`: workers never sleep, but for a moment when those of a core are put in order.
    #[arg(long, value_enum, default_value = "adaptive")]
    poll: Poll,
    /// Leaves the real-time class out even where it is permitted.
    #[arg(long)]
    no_real_time: bool,
    /// Seed for NFs that sample or hash, and for how packets divide over instances and ports; without it 0, and one by chance with a live
    /// device. The generator has one of its own: `gen:seed=N`.
    #[arg(long)]
    seed: Option<u64>,
    /// Longest delay before a worker that keeps dying is restarted, in milliseconds.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    restart_delay: u64,
    /// Seconds without a sign of life after which a worker is killed and started again (an endless
    /// loop, a stopped process); 0: never, to look at one with a debugger.
    #[arg(long, default_value = "0.5", value_name = "SECONDS", value_parser = parse_seconds)]
    patience: Duration,
    /// Seconds that what is under way may take to run out when the run is to end (SIGINT, SIGTERM, --duration); then workers are ended,
    /// what they had is counted as lost, and the exit code is 1.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    drain: Duration,
    /// Seconds that a worker may take from its start until it is ready (building a large rule set takes
    /// some) before it is killed and started again; not with `--patience 0`.
    #[arg(long, default_value = "20", value_name = "SECONDS", value_parser = parse_seconds)]
    start_patience: Duration,
    /// Where a worker of the n-th generation kills itself: N:SEGMENT:STEP:N. For such tests.
    #[arg(long, hide = true, value_parser = parse_later_fault)]
    later_fault: Vec<(u32, (String, u32, u32))>,
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

pub fn parse_bind(text: &str) -> Result<(u16, DeviceSpec), String> {
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

fn parse_later_fault(text: &str) -> Result<(u32, (String, u32, u32)), String> {
    let parts = text.split_once(':').and_then(|(n, fault)| Some((n.parse().ok()?, fault)));
    let (generation, fault) = parts.ok_or("write N:SEGMENT:STEP:N")?;
    Ok((generation, parse_fault(fault)?))
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
    #[error("weir: cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    #[error("weir: {0}")]
    Control(#[from] SocketError),
    #[error("weir: cannot write the report: {0}")]
    Print(#[source] std::io::Error),
}

impl RunError {
    fn code(&self) -> u8 {
        match self {
            RunError::Policy(_) | RunError::Wiring(_) | RunError::BoundTwice(_) => BAD_INPUT,
            RunError::Agent(_)
            | RunError::Signals(_)
            | RunError::Control(_)
            | RunError::Print(_) => FAILED,
        }
    }
}

pub fn main(args: &RunArgs) -> ExitCode {
    // From here on nobody who does not read what is said may keep the workers from being looked after.
    say::in_background();
    let mut workers = 0;
    match run(args, &mut workers) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(e) => {
            let cure =
                limits::cure(&e, workers).map_or_else(String::new, |cure| format!("; {cure}"));
            let said = e.to_string();
            // What workers say is one line, whatever they make of it.
            let said =
                if matches!(e, RunError::Agent(_)) { say::one_line(&said) } else { said.into() };
            crate::complain!("{said}{cure}");
            ExitCode::from(e.code())
        }
    }
}

/// Runs; `workers` becomes how many there are to be.
fn run(args: &RunArgs, workers: &mut usize) -> Result<bool, RunError> {
    if !args.planning.outside.sandbox().on {
        crate::complain!(
            "weir: warning: --sandbox off: workers may do whatever this user may, and have as much memory as there is; for debugging only"
        );
    }
    let planner = Planner::new(args);
    // As they are before they are read: what changes from then on is noticed.
    let mut watch = planner.watches().then(|| Watch::new(planner.own_files()));
    let Planned { plan, setup, files } = planner.plan(1, PlanArgs::default())?;
    if let Some(watch) = &mut watch {
        watch.set(planner.own_files().chain(files));
    }
    let policy = RestartPolicy {
        longest: Duration::from_millis(args.restart_delay),
        offences: args.offences,
        patience: Some(args.patience).filter(|p| !p.is_zero()),
        start_patience: args.start_patience,
        drain: args.drain,
        ..RestartPolicy::default()
    };
    *workers = setup.workers.len();
    let signals = Signals::listen().map_err(RunError::Signals)?;
    let start = Instant::now();
    let mut agent = Agent::start(setup, policy)?;
    let (interrupts, duration) = (signals.interrupts(), args.duration);
    agent.ends_when(move || {
        interrupts.count() > 0 || duration.is_some_and(|d| start.elapsed() >= d)
    });
    let control = match (Control::open(args.control.as_deref(), &mut agent), &args.control) {
        (Ok(control), _) => Some(Rc::new(RefCell::new(control))),
        (Err(e), Some(_)) => return Err(e.into()),
        // Nobody has asked for it: it goes without, as where there is no such directory.
        (Err(_), None) => None,
    };
    if let Some(control) = control.clone() {
        agent.meanwhile(move |agent| control.borrow_mut().serve_meanwhile(agent));
    }
    let mut live = Live::new(args.quiet, &planner.captures(), &agent);
    let (mut stopped, mut real_time, mut ready) = (false, false, 0);
    let mut scalings = VecDeque::new();
    // A policy is read and planned beside the loop, which has to look after the workers.
    let ended = std::thread::scope(|scope| {
        let mut reload = Reload::new(scope, &planner, plan, watch);
        loop {
            if let Err(e) = agent.turn(live.patience()) {
                live.tell_rest(&mut agent);
                return Err(e);
            }
            let retired = reload.count_retired(&mut agent, &mut live);
            if let Some(control) = &control {
                let mut control = control.borrow_mut();
                if retired {
                    control.forget_renewing();
                }
                control.serve(&mut agent);
                reload.set(control.settings());
            }
            while let Some(event) = agent.event() {
                if let Event::Ready { real_time: granted, after: None, .. } = event {
                    real_time |= granted;
                    ready += 1;
                    if ready == *workers && !args.quiet {
                        live.say(&granted_line(&agent, real_time));
                        // That there is none was said at the start.
                        if args.planning.outside.sandbox().on {
                            live.say(&agent.sandbox());
                        }
                        if let Some(seed) = planner.by_chance() {
                            live.say(&format!(
                                "seed by chance: {seed}; --seed {seed} divides packets alike again"
                            ));
                        }
                        let asked = &args.planning.plan.domain;
                        sharers(&agent, asked).iter().for_each(|line| live.say(line));
                    }
                }
                live.tell(&agent, &event);
                if let Some(control) = &control {
                    control.borrow_mut().hear(&event);
                }
                match event {
                    Event::Finished => return Ok(Some(reload.end())),
                    Event::Relinked(relinked) => reload.relinked(relinked),
                    Event::NotRelinked { why } => reload.not_relinked(&why),
                    Event::Scaled { nf, decision } => {
                        let at = start.elapsed().as_secs_f64();
                        if scalings.len() >= SCALINGS {
                            scalings.pop_front();
                        }
                        scalings.push_back(Scaling { at, nf, decision });
                    }
                    _ => {}
                }
            }
            let over = args.duration.is_some_and(|d| start.elapsed() >= d);
            let signalled = signals.count();
            let hung_up = signals.hung_up();
            if signalled >= 2 {
                return Ok(None);
            }
            if (over || signalled == 1 || hung_up == HangUp::Terminal) && !stopped {
                stopped = true;
                agent.stop();
            }
            if !stopped {
                reload.look(&mut agent, &mut live, hung_up == HangUp::Asked);
            }
            live.show(&agent);
        }
    });
    live.clear();
    let Some((plan, earlier, relinks)) = ended.map_err(RunError::Agent)? else {
        crate::complain!("weir: interrupted twice: ending without draining");
        return Ok(false);
    };
    let seconds = start.elapsed().as_secs_f64();
    let census = agent.dismiss();
    live.tell_rest(&mut agent);
    let mut report = Report::of(&plan, &agent, census, seconds);
    earlier.into_iter().for_each(|earlier| report.add_earlier(earlier));
    report.relinks = relinks;
    report.scalings = scalings.into();
    print_report(&report, args.json).map_err(RunError::Print)?;
    if let Some(lost) = report.undrained {
        crate::complain!(
            "weir: the graph was still under way {} s after the end was asked for: its workers were ended, and {lost} packets were lost \
             with them (--drain gives more time)",
            args.drain.as_secs_f64()
        );
    }
    if !report.sound {
        crate::complain!("weir: packets or buffers are unaccounted for; this is a fault of weir's");
    }
    Ok(report.sound && report.undrained.is_none())
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
    let mut text = if json { serde_json::to_string_pretty(report)? } else { report.table() };
    if json {
        text.push('\n');
    } else {
        for node in report.nodes.iter().filter(|n| !n.report.is_null()) {
            text += &format!("{}: {}\n", node.name, node.report);
        }
    }
    say::tell(&text)
}
