//! `weir bench firewall`: CheckIpHeader, L3L4Filter and HttpClassifier in one segment, with generated rules and
//! flows that hit them evenly.

mod lookup;
mod traffic;

pub use traffic::PayloadError;

use super::asked::{self, MOST_RULES};
use super::chain_policy;
use super::files::write_json;
use super::machine::Machine;
use super::sample::{
    BenchError, Measured, SampleArgs, finish, prepare, print_regime, progress, show, spread,
};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use traffic::{firewall_policy, payloads, source};
use weir_classify::Rule;
use weir_classify::generate::{Kind, generate};
use weir_device::DeviceSpec;
use weir_plan::Isolate;

/// Seed of rules and flows: equal on every machine.
const SEED: u64 = 1;

/// Kind of rule set, after ClassBench's seed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum RuleKind {
    /// Access control lists.
    Acl,
    /// Firewalls.
    Fw,
    /// IP chains.
    Ipc,
}

impl RuleKind {
    fn kind(self) -> Kind {
        match self {
            RuleKind::Acl => Kind::Acl,
            RuleKind::Fw => Kind::Fw,
            RuleKind::Ipc => Kind::Ipc,
        }
    }
}

/// Measures the firewall chain.
#[derive(clap::Args)]
pub struct FirewallArgs {
    /// Numbers of rules, 1 to 20,000.
    #[arg(long, value_delimiter = ',', value_parser = asked::within(1, MOST_RULES), default_value = "100,1000,10000")]
    rules: Vec<usize>,
    /// Kinds of rule set.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "acl")]
    kind: Vec<RuleKind>,
    /// Flows, 1 to 1,048,576; they hit the rules evenly.
    #[arg(long, default_value_t = 100_000, value_parser = asked::flows::<usize>)]
    flows: usize,
    /// Capture whose TCP payloads packets carry in the second half of the measurement.
    #[arg(long, value_name = "CAPTURE")]
    payloads: Option<PathBuf>,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    sampling: SampleArgs,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Case {
    kind: RuleKind,
    rules: usize,
    /// Recorded payloads instead of 64-byte packets.
    payloads: bool,
    /// One MacSwap instead of the firewall: what the other core can make and take at most.
    ceiling: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    measured: Measured,
    /// Nanoseconds per packet of the lookup alone, batches of 64 with their headers put in.
    lookup_ns: Option<f64>,
}

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    flows: usize,
    ring: u32,
    pool: u32,
    samples: &'r [Sample],
}

pub fn main(args: &FirewallArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &FirewallArgs) -> Result<(), BenchError> {
    let recorded = args.payloads.as_deref().map(payloads).transpose()?;
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    crate::say::print_line!(
        "CheckIpHeader -> L3L4Filter -> HttpClassifier fused on core {}, generator and sink on core {}; {} flows \
         that hit the rules evenly, all pass, no verdict cache; ring {}, pool {}",
        args.sampling.chain_core,
        args.sampling.device_core,
        args.flows,
        args.sampling.ring,
        args.sampling.pool
    );
    let mut cases = Vec::new();
    for payloads in [false, true] {
        for &kind in &args.kind {
            for &rules in &args.rules {
                for ceiling in [true, false] {
                    cases.push(Case { kind, rules, payloads, ceiling });
                }
            }
        }
    }
    cases.retain(|case| !case.payloads || recorded.is_some());
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..args.sampling.samples {
        for &case in &cases {
            progress(&format!("round {} of {}: {case:?}", round + 1, args.sampling.samples));
            samples.push(sample(args, case, recorded.as_deref())?);
        }
    }
    progress("");
    print_table(&cases, &samples);
    if let Some(path) = &args.json {
        let (flows, ring, pool) = (args.flows, args.sampling.ring, args.sampling.pool);
        write_json(path, &Results { machine: &machine, flows, ring, pool, samples: &samples })?;
    }
    Ok(())
}

fn sample(
    args: &FirewallArgs,
    case: Case,
    recorded: Option<&[Vec<u8>]>,
) -> Result<Sample, BenchError> {
    let rules = generate(SEED, case.rules, case.kind.kind());
    let recorded = recorded.filter(|_| case.payloads);
    let device = DeviceSpec::Listed(source(SEED, &rules, args.flows, recorded, None));
    let policy = if case.ceiling { chain_policy(1) } else { firewall_policy(&rules) };
    let measured = args.sampling.take(&policy, Isolate::None, device)?;
    let lookup_ns = (!case.ceiling && !case.payloads)
        .then(|| lookup::nanoseconds(SEED, &rules, args.flows, args.sampling.chain_core))
        .transpose()?;
    Ok(Sample { case, measured, lookup_ns })
}

/// Policy and packets, so many or without end.
pub fn counted(rules: usize, kind: RuleKind, packets: Option<u64>) -> (String, DeviceSpec) {
    let rules: Vec<Rule> = generate(SEED, rules, kind.kind());
    let device = source(SEED, &rules, 10_000, None, packets);
    (firewall_policy(&rules), DeviceSpec::Listed(device))
}

/// Nanoseconds a packet of the classifier alone, with so many rules that 10,000 flows hit evenly.
pub fn lookup_ns(rules: usize, kind: RuleKind, core: usize) -> Result<f64, BenchError> {
    Ok(lookup::nanoseconds(SEED, &generate(SEED, rules, kind.kind()), 10_000, core)?)
}

fn print_table(cases: &[Case], samples: &[Sample]) {
    print_regime(samples.iter().map(|s| &s.measured));
    if samples.iter().any(|s| !s.measured.real_time) {
        crate::say::print_line!("without the real-time class (not permitted, or left out)");
    }
    crate::say::print_line!(
        "Mpps, min / median / max. Ceiling: one MacSwap instead of the firewall. Lookup: the classifier alone, ns per \
         packet"
    );
    crate::say::print_line!(
        "{:>4} {:>6}  {:>9}  {:>6}  {:^20}  {:^20}  lookup",
        "kind",
        "rules",
        "packets",
        "regime",
        "ceiling",
        "firewall"
    );
    for case in cases.iter().filter(|case| !case.ceiling) {
        for fast in [true, false] {
            let of = |case: Case| {
                samples.iter().filter(move |s| s.case == case && s.measured.is_fast() == fast)
            };
            let mpps =
                |ceiling| spread(of(Case { ceiling, ..*case }).map(|s| s.measured.mpps).collect());
            let (ceiling, firewall) = (mpps(true), mpps(false));
            if ceiling.is_none() && firewall.is_none() {
                continue;
            }
            crate::say::print_line!(
                "{:>4} {:>6}  {:>9}  {:>6}  {:^20}  {:^20}  {}",
                format!("{:?}", case.kind),
                case.rules,
                if case.payloads { "recorded" } else { "64 bytes" },
                if fast { "fast" } else { "slow" },
                show(ceiling),
                show(firewall),
                show(spread(of(*case).filter_map(|s| s.lookup_ns).collect())),
            );
        }
    }
}
