//! `weir set` and `weir renew`: changes a running graph without its files, and starts an instance anew.

use crate::control::Ask;
use crate::flow::answer;
use crate::planning::PlanArgs;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::path::PathBuf;
use std::process::ExitCode;

/// Changes what a running `weir run` plans by, and with it its graph.
#[derive(clap::Args)]
pub struct SetArgs {
    #[command(flatten)]
    options: Words,
    /// Forgets what was set before; alone it brings back what the command and the file of options say.
    #[arg(long)]
    reset: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// The run's control socket; without it the only one that there is.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Starts the worker of an NF's instance anew; it goes on from what is replicated (`--replicate`), and its packets wait meanwhile.
#[derive(clap::Args)]
pub struct RenewArgs {
    /// The NF.
    nf: String,
    /// The instance, from 1, of an NF that has several.
    #[arg(long)]
    instance: Option<u32>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// The run's control socket; without it the only one that there is.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// The options of a plan as they were written: who runs the graph understands them, here they are only checked.
struct Words(Vec<String>);

impl FromArgMatches for Words {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut words = Vec::new();
        for arg in PlanArgs::augment_args(Command::new("")).get_arguments() {
            let given = matches.get_raw(arg.get_id().as_str());
            for value in given.into_iter().flatten() {
                let long = arg.get_long().unwrap_or_default();
                words.push(format!("--{long}={}", value.to_string_lossy()));
            }
        }
        Ok(Words(words))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Words {
    fn augment_args(command: Command) -> Command {
        PlanArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        PlanArgs::augment_args_for_update(command)
    }
}

pub fn main(args: &SetArgs) -> ExitCode {
    let ask = Ask::Set { options: args.options.0.clone(), reset: args.reset };
    answer(args.control.as_deref(), &ask, args.json)
}

pub fn renew(args: &RenewArgs) -> ExitCode {
    let ask = Ask::Renew { nf: args.nf.clone(), instance: args.instance };
    answer(args.control.as_deref(), &ask, args.json)
}
