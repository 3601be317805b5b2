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
    /// Memory that each worker may have beside packets, such as 512M (K, M, G; at least 16M); as much as there is unless
    /// given. Part of the sandbox: not with `--sandbox off`.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    worker_memory: Option<u64>,
}

/// With less than this no worker begins.
const LEAST_MEMORY: u64 = 16 << 20;

fn parse_size(text: &str) -> Result<u64, String> {
    let units = [("K", 10), ("M", 20), ("G", 30)];
    let unit = units.iter().find_map(|(name, shift)| Some((text.strip_suffix(name)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    match bytes {
        None => Err(format!("`{text}` is not a size; write 512M, say")),
        Some(bytes) if bytes < LEAST_MEMORY => {
            Err(format!("a worker does not begin with {text}; give 16M or more"))
        }
        Some(bytes) => Ok(bytes),
    }
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
        let (on, user) = (self.sandbox == Switch::On, self.worker_user);
        SandboxOptions { on, user, memory: self.worker_memory }
    }

    /// The µNFs there are.
    pub fn catalog(&self) -> Result<Extended, OutsideError> {
        Extended::load(&self.with, self.sandbox())
    }
}
