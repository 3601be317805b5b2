//! A chain in one thread, for counting instructions: the same packets, the same code, the same
//! count on every machine.

use super::asked::{self, MOST_RULES};
use super::chain_policy;
use super::firewall::{self, RuleKind};
use super::flows::rates::Subject;
use crate::FAILED;
use crate::policy::{self, Consolidate};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use weir_control::inline::{Inline, InlineError};
use weir_control::wiring::{self, RunOptions, WiringError};
use weir_device::{DeviceSpec, GeneratorSpec, ListedSpec};
use weir_plan::Isolate;

/// Runs a chain for a number of packets.
#[derive(clap::Args)]
pub struct InstructionsArgs {
    /// MacSwaps in the chain.
    #[arg(long, default_value_t = 8, value_parser = asked::length)]
    length: usize,
    /// Packets.
    #[arg(long)]
    packets: u64,
    /// Rings between the MacSwaps instead of function calls.
    #[arg(long)]
    isolated: bool,
    /// Instead of MacSwaps, the firewall with so many rules.
    #[arg(long, value_parser = asked::within(1, MOST_RULES))]
    rules: Option<usize>,
    /// Kind of the firewall's rules.
    #[arg(long, value_enum, default_value = "acl")]
    kind: RuleKind,
    /// Instead of MacSwaps, NFs that remember flows.
    #[arg(long, value_enum, conflicts_with = "rules")]
    nf: Option<Subject>,
    /// Their flows.
    #[arg(long, default_value_t = 128, requires = "nf", value_parser = asked::flows::<usize>)]
    flows: usize,
}

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Policy(#[from] policy::PolicyFailure),
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    Inline(#[from] InlineError),
}

pub fn main(args: &InstructionsArgs) -> ExitCode {
    match run(args) {
        Ok(n) if n == args.packets => {
            crate::say::print_line!("{n} packets");
            ExitCode::SUCCESS
        }
        Ok(n) => {
            crate::complain!("weir bench: {n} packets instead of {}", args.packets);
            ExitCode::from(FAILED)
        }
        Err(e) => {
            crate::complain!("weir bench: {e}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(args: &InstructionsArgs) -> Result<u64, BenchError> {
    let (text, source) = match (args.rules, args.nf) {
        (Some(rules), _) => firewall::counted(rules, args.kind, Some(args.packets)),
        (None, Some(nf)) => {
            let packets = Some(args.packets);
            (nf.policy(), DeviceSpec::Listed(ListedSpec { packets, ..nf.source(args.flows) }))
        }
        (None, None) => {
            let packets = Some(args.packets);
            let generator = GeneratorSpec { packets, ..GeneratorSpec::default() };
            (chain_policy(args.length), DeviceSpec::Generator(generator))
        }
    };
    let loaded = policy::from_text(&text, "(bench)")?;
    let isolate = if args.isolated { Isolate::Each } else { Isolate::None };
    let plan =
        policy::plan(&loaded.graph, Path::new("(bench)"), isolate, None, &[], Consolidate::Off)?;
    let binds = BTreeMap::from([(0, source), (1, DeviceSpec::Null)]);
    let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &RunOptions::default())?;
    Ok(Inline::new(&setup)?.run()?)
}
