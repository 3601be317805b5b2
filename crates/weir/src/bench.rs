//! `weir bench`.

mod chain;
mod consolidation;
mod firewall;
mod instances;
mod instructions;
mod latency;
mod machine;
mod sample;

use std::process::ExitCode;

/// Measures.
#[derive(clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    /// Throughput of MacSwap chains, isolated and fused alternating.
    Chain(chain::ChainArgs),
    /// What a service chain of VNFs costs, with the work that they repeat and without, by type of µNF.
    Consolidation(consolidation::ConsolidationArgs),
    /// Throughput of a firewall: header check, packet filter and HTTP classifier in one segment.
    Firewall(firewall::FirewallArgs),
    /// Throughput of a costly NF as one instance and as two, on a core each.
    Instances(instances::InstancesArgs),
    /// How long one packet takes through MacSwaps, polling and from sleep, and what an idle graph
    /// costs.
    Latency(latency::LatencyArgs),
    /// Runs a fused chain in one thread for so many packets, to be counted by valgrind
    /// (ci/instructions.sh).
    #[command(hide = true)]
    Instructions(instructions::InstructionsArgs),
}

pub fn main(args: &BenchArgs) -> ExitCode {
    match &args.command {
        BenchCommand::Chain(args) => chain::main(args),
        BenchCommand::Consolidation(args) => consolidation::main(args),
        BenchCommand::Firewall(args) => firewall::main(args),
        BenchCommand::Instances(args) => instances::main(args),
        BenchCommand::Latency(args) => latency::main(args),
        BenchCommand::Instructions(args) => instructions::main(args),
    }
}

/// A policy that leads through `n` MacSwaps.
fn chain_policy(n: usize) -> String {
    let names: Vec<_> = (0..n).map(|i| format!("x{i}")).collect();
    let declare: String = names.iter().map(|x| format!("MacSwap {x};\n")).collect();
    let path = names.iter().fold(String::from("lan"), |path, x| path + " -> " + x);
    format!("Port<0> lan; Port<1> wan;\n{declare}pipelet {{ {path} -> wan; }}\n")
}
