//! `weir bench`.

use std::process::ExitCode;

/// Measures chains.
#[derive(clap::Args)]
pub struct BenchArgs {}

pub fn main(_args: &BenchArgs) -> ExitCode {
    ExitCode::SUCCESS
}
