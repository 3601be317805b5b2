//! `weir`: the command.

mod bench;
mod check;
mod control;
mod cores;
mod diff;
mod explain;
mod flow;
mod include;
mod instances;
mod known;
mod limits;
mod nf;
mod outside;
mod planning;
mod policy;
mod run;
mod say;
mod scaling;
mod schema;
mod set;
mod topology;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
// The µNFs register themselves; naming the crate links them in.
use weir_nfs as _;

/// Runs network functions as small, separately deployable packet processors.
#[derive(Parser)]
#[command(name = "weir", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a policy on devices until its input ends, or until Ctrl-C.
    Run(Box<run::RunArgs>),
    /// Asks a running graph about its flows.
    Get(flow::GetArgs),
    /// Moves flows of a running graph from one instance of their NF to another.
    Flow(flow::FlowArgs),
    /// Changes how many instances a running graph's NFs have, what is replicated, and whatever else it is planned by.
    Set(Box<set::SetArgs>),
    /// Starts an instance of a running graph's NF anew, from what is replicated.
    Renew(set::RenewArgs),
    /// Checks a policy, without running it.
    Check(check::CheckArgs),
    /// Shows what becomes of a policy, stage by stage, as text or as a picture.
    Explain(explain::ExplainArgs),
    /// Lists the actions that lead from the plan of one policy to that of another.
    Diff(diff::DiffArgs),
    /// Lists the NF types there are, or shows one with the schema of its configuration.
    Nf(nf::NfArgs),
    /// Shows the JSON schema of service requests, templates or descriptions.
    Schema(schema::SchemaArgs),
    /// Measures chains on this machine.
    Bench(bench::BenchArgs),
    /// A worker process; started by `weir run`, not by hand.
    #[command(hide = true)]
    Worker {
        /// Name of the segment, for `ps`.
        name: Option<String>,
    },
}

impl Command {
    /// Whether it starts workers, or outside programs to be asked.
    fn starts_processes(&self) -> bool {
        match self {
            Command::Run(_) | Command::Bench(_) => true,
            Command::Check(args) => !args.planning.outside.with.is_empty(),
            Command::Explain(args) => !args.planning.outside.with.is_empty(),
            Command::Diff(args) => !args.planning.outside.with.is_empty(),
            Command::Nf(args) => !args.outside().with.is_empty(),
            Command::Get(_) | Command::Flow(_) | Command::Set(_) | Command::Renew(_) => false,
            Command::Schema(_) | Command::Worker { .. } => false,
        }
    }
}

pub(crate) use say::complain;

/// Exit code for what failed while running.
const FAILED: u8 = 1;
/// Exit code for input that is not right: command line, policy, devices.
const BAD_INPUT: u8 = 2;

/// A command line that is not right, or one that asks for help.
fn unclear(error: &clap::Error) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(BAD_INPUT));
    // It repeats what was written. Where that would steer the terminal its own colours are left out too.
    let sound = |arg: std::ffi::OsString| {
        let text = arg.to_string_lossy();
        say::escaped(&text) == text
    };
    if std::env::args_os().all(sound) {
        let _ = error.print();
    } else {
        say::warn(&error.render().to_string());
    }
    code
}

fn main() -> ExitCode {
    // A file-size limit is an error of the write, not the end of the process.
    let limit = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, limit);
    // Started for one that has died: its packets wait, and to read a command line with all its options takes a good part of a millisecond.
    let words: Vec<_> = std::env::args_os().skip(1).take(4).collect();
    if let [command, name @ ..] = &words[..]
        && command == "worker"
        // Its name, and whether it began in reserve.
        && name.len() <= 2
        && !name.iter().any(|name| name.as_encoded_bytes().starts_with(b"-"))
    {
        return weir_runtime::worker_main();
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(e) => return unclear(&e),
    };
    if command.starts_processes() && !std::path::Path::new("/proc/self/fd").exists() {
        complain!(
            "weir: there is no /proc, through which processes are started: mount it (as root: mount \
             -t proc proc /proc; in a container, give it one)"
        );
        return ExitCode::from(FAILED);
    }
    let code = match command {
        Command::Run(args) => run::main(&args),
        Command::Get(args) => flow::get(&args),
        Command::Flow(args) => flow::main(&args),
        Command::Set(args) => set::main(&args),
        Command::Renew(args) => set::renew(&args),
        Command::Check(args) => check::main(&args),
        Command::Explain(args) => explain::main(&args),
        Command::Diff(args) => diff::main(&args),
        Command::Nf(args) => nf::main(&args),
        Command::Schema(args) => schema::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Worker { .. } => weir_runtime::worker_main(),
    };
    say::flush();
    code
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Arg, Command, CommandFactory, Parser};

    /// All commands that have no further ones, with the words that lead to each.
    fn leaves(command: &Command, path: &[String], found: &mut Vec<(Vec<String>, Command)>) {
        for next in command.get_subcommands().filter(|next| next.get_name() != "help") {
            let path = [path, &[next.get_name().to_owned()]].concat();
            if next.has_subcommands() {
                leaves(next, &path, found);
            } else {
                found.push((path, next.clone()));
            }
        }
    }

    /// A value that an argument may well have.
    fn likely(arg: &Arg) -> String {
        let possible = arg.get_possible_values();
        possible.first().map_or_else(|| "64".to_owned(), |value| value.get_name().to_owned())
    }

    /// An option whose reader makes another type than its field has is found out only when it is read, and
    /// then ends the program.
    #[test]
    fn every_command_can_be_read_with_its_defaults_and_with_each_option() {
        let mut top = Cli::command();
        top.build();
        let mut found = Vec::new();
        leaves(&top, &["weir".to_owned()], &mut found);
        assert!(found.len() > 20, "{} commands", found.len());
        for (mut words, command) in found {
            for arg in command.get_arguments().filter(|arg| arg.is_required_set()) {
                words.extend(arg.get_long().map(|long| format!("--{long}")));
                words.push(likely(arg));
            }
            if words.starts_with(&["weir".into(), "flow".into(), "move".into()]) {
                words.push("--all".to_owned());
            }
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: {error}", words.join(" "));
            }
            let takes = |arg: &&Arg| arg.get_action().takes_values() && !arg.is_required_set();
            for arg in command.get_arguments().filter(takes) {
                let Some(long) = arg.get_long() else { continue };
                // Not all take this value, or together with what is there: only that it is read counts.
                let _ =
                    Cli::try_parse_from([&words[..], &[format!("--{long}"), likely(arg)]].concat());
            }
        }
    }
}
