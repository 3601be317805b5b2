//! A µNF that attacks, and a worker that attacks before it has become one.
//!
//! `Attack { what: "fork" }` attacks at its first packet: both layers of the sandbox are on. With
//! `when: "start"` the program does so instead of becoming a worker: only what the agent put around it
//! is on, and it has all descriptors. What came of it is told in the µNF's report, or as the reason
//! why the worker failed.

mod attacks;
mod fragile;

use attacks::Held;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::process::ExitCode;
use weir_nf::{ConfigError, Ctx, Descriptor, Effect, Env, Merge, Nf, Packets, ReadOnly};
use weir_runtime::link;
use weir_runtime::spec::{FromWorker, WorkerSpec};

pub struct Attack(Config);

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which attack.
    what: String,
    /// `packet`, `start`, or `build`: hangs there.
    when: String,
    /// A file that it may want. `build`: hangs while it is there, where one is named.
    path: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome(String);

impl Merge for Outcome {
    fn merge(&mut self, other: Self) {
        self.0.push_str(&other.0);
    }
}

impl Nf for Attack {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Attack",
        summary: "Attacks",
        effect: Effect::External,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Outcome;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        // Only as a worker: who asks what it takes gets an answer.
        let hangs = || config.path.is_empty() || std::path::Path::new(&config.path).exists();
        let works = std::env::args().nth(1).as_deref() == Some("worker");
        while config.when == "build" && works && hangs() {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        Ok(Attack(config))
    }

    fn process(&self, _: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        if self.0.what == "shout" {
            // At every batch, so that it works on.
            (0..100).for_each(|_| eprintln!("\x1b[2J{}", "LOUD".repeat(25)));
        }
        let outcome = ctx.shared();
        if outcome.0.is_empty() {
            outcome.0 = attacks::run(&self.0.what, &self.0.path, &Held::default());
        }
    }
}

weir_nf::register!(Attack);

fn main() -> ExitCode {
    attacks::remember();
    if std::env::args().nth(1).as_deref() != Some("worker") {
        return weir_worker::main();
    }
    // What it is to do stands in what it does not read.
    while std::env::args().nth(2).as_deref() == Some("deaf") {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    if !attacks::next_message_says(b"\"when\":\"start\"") {
        return weir_worker::main();
    }
    let stdin = std::io::stdin();
    let Ok((spec, fds)) = link::receive::<WorkerSpec>(stdin.as_fd()) else {
        return ExitCode::FAILURE;
    };
    let config = spec.nodes.iter().filter_map(|n| n.nf.as_ref()).find(|(nf, _)| nf == "Attack");
    let config: Config =
        config.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default();
    let data = fds.get(usize::from(spec.arena.data));
    let shared = fds.get(usize::from(spec.arena.meta));
    let held = Held { data, writable: spec.arena.writable, shared, all: &fds };
    let outcome = match config.what.as_str() {
        "colour" => {
            let warning = FromWorker::Warning("\x1b[31mwarning".to_owned());
            let _ = link::send(stdin.as_fd(), &warning, &[]);
            "\x1b[2J\x07done".to_owned()
        }
        "ready-twice" => {
            for _ in 0..2 {
                let _ = link::send(
                    stdin.as_fd(),
                    &FromWorker::Ready { real_time: false, reads: false },
                    &[],
                );
            }
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        what => attacks::run(what, &config.path, &held),
    };
    let _ = link::send(stdin.as_fd(), &FromWorker::Failed(outcome), &[]);
    ExitCode::FAILURE
}
