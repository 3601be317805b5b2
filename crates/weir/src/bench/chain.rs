//! x
use std::process::ExitCode;
/// Measures chains.
#[derive(clap::Args)]
pub struct ChainArgs {}
pub fn main(_args: &ChainArgs) -> ExitCode {
    ExitCode::SUCCESS
}
