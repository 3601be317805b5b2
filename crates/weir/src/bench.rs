//! `weir bench`.

mod asked;
mod chain;
mod consolidation;
mod figure;
mod files;
mod firewall;
mod flows;
mod instances;
mod instructions;
mod latency;
mod machine;
mod mood;
mod overload;
mod own;
mod parallel;
mod relink;
mod replication;
mod running;
mod sample;
mod search;

use std::process::ExitCode;

/// Measures.
#[derive(clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    /// All figures and the report.
    All(figure::AllArgs),
    /// Throughput of MacSwap chains, isolated and fused alternating.
    Chain(chain::ChainArgs),
    /// What a service chain of VNFs costs, with the work that they repeat and without, by type of µNF.
    Consolidation(consolidation::ConsolidationArgs),
    /// Writes what figures found into the tables of docs/evidence.md.
    Evidence(figure::EvidenceArgs),
    /// The papers' figures anew: samples, chart, and the claim beside what was seen.
    Figure(figure::FigureArgs),
    /// Throughput of a firewall: header check, packet filter and HTTP classifier in one segment.
    Firewall(firewall::FirewallArgs),
    /// What NFs that remember flows do per core.
    Flows(flows::FlowsArgs),
    /// Throughput of a costly NF as one instance and as two, on a core each.
    Instances(instances::InstancesArgs),
    /// How long one packet takes through MacSwaps, polling and from sleep, and what an idle graph
    /// costs.
    Latency(latency::LatencyArgs),
    /// What a chain delivers of packets that come faster than it can take them.
    Overload(overload::OverloadArgs),
    /// Latency and throughput of four NFs, the two in the middle side by side and in sequence alternating.
    Parallel(parallel::ParallelArgs),
    /// How long a change of a running graph pauses it, with few flows remembered and with many.
    Relink(relink::RelinkArgs),
    /// What a replica of flows costs a chain of three NFs, and how long the flows of a killed worker are away.
    Replication(replication::ReplicationArgs),
    /// Takes one sample of a live chain, inside a network namespace that is its own.
    #[command(hide = true)]
    Live(figure::LiveArgs),
    /// Plays one instance of a move by a controller.
    #[command(hide = true)]
    Part(flows::controlled::PartArgs),
    /// Runs a fused chain in one thread for so many packets, to be counted by valgrind
    /// (ci/instructions.sh).
    #[command(hide = true)]
    Instructions(instructions::InstructionsArgs),
}

pub fn main(args: &BenchArgs) -> ExitCode {
    match &args.command {
        BenchCommand::All(args) => figure::all(args),
        BenchCommand::Evidence(args) => figure::evidence(args),
        BenchCommand::Figure(args) => figure::main(args),
        BenchCommand::Live(args) => figure::live(args),
        BenchCommand::Chain(args) => chain::main(args),
        BenchCommand::Consolidation(args) => consolidation::main(args),
        BenchCommand::Firewall(args) => firewall::main(args),
        BenchCommand::Flows(args) => flows::main(args),
        BenchCommand::Instances(args) => instances::main(args),
        BenchCommand::Latency(args) => latency::main(args),
        BenchCommand::Overload(args) => overload::main(args),
        BenchCommand::Parallel(args) => parallel::main(args),
        BenchCommand::Relink(args) => relink::main(args),
        BenchCommand::Part(args) => flows::controlled::main(args),
        BenchCommand::Replication(args) => replication::main(args),
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
