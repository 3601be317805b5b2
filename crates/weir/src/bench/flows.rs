//! `weir bench flows`: what remembering flows costs.

pub mod controlled;
pub mod moves;
mod pause;
pub mod rates;

use std::process::ExitCode;

/// Measures NFs that remember flows.
#[derive(clap::Args)]
pub struct FlowsArgs {
    #[command(subcommand)]
    command: FlowsCommand,
}

#[derive(clap::Subcommand)]
enum FlowsCommand {
    /// How long flows take that are moved to another instance while packets come: one, and many.
    Move(moves::MoveArgs),
    /// How late packets come out while their flows move, beside how late they do while none moves.
    Pause(moves::MoveArgs),
    /// Packets a second through a firewall, an address translator, and a chain of three, with few flows and with many.
    Rates(rates::RatesArgs),
}

pub fn main(args: &FlowsArgs) -> ExitCode {
    match &args.command {
        FlowsCommand::Move(args) => moves::main(args),
        FlowsCommand::Pause(args) => pause::main(args),
        FlowsCommand::Rates(args) => rates::main(args),
    }
}
