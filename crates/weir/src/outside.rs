//! Options on outside programs and on the sandbox, which several commands have.

use std::path::PathBuf;
use weir_control::jail::{NOBODY, SandboxOptions};
use weir_control::outside::{Extended, OutsideError};

/// Options on outside programs and on the sandbox.
#[derive(clap::Args)]
pub struct OutsideArgs {
    /// A program that brings NFs of its own; may be given several times.
    #[arg(long, value_name = "PROGRAM")]
    pub with: Vec<PathBuf>,
    /// `off`: workers and outside programs may do whatever this user may. For debugging only.
    #[arg(long, value_enum, default_value = "on")]
    sandbox: Switch,
    /// The user and group, by number, that workers become when weir runs as root.
    #[arg(long, value_name = "ID", default_value_t = NOBODY, value_parser = parse_user)]
    worker_user: u32,
}

fn parse_user(text: &str) -> Result<u32, String> {
    let most = u32::MAX - 1;
    match text.parse() {
        Ok(id) if (1..=most).contains(&id) => Ok(id),
        Ok(_) => Err(format!("a user's number is wanted, from 1 to {most}: workers are not root")),
        Err(_) => Err(format!(
            "a user's number is wanted, from 1 to {most}, such as {NOBODY}; `id -u NAME` shows that of a name"
        )),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

impl OutsideArgs {
    /// What workers are put into.
    pub fn sandbox(&self) -> SandboxOptions {
        SandboxOptions { on: self.sandbox == Switch::On, user: self.worker_user }
    }

    /// The µNFs there are.
    pub fn catalog(&self) -> Result<Extended, OutsideError> {
        Extended::load(&self.with, self.sandbox())
    }
}
