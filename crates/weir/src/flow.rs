//! `weir get` and `weir flow`: asks a running graph about its flows, and moves some.

use crate::control::{self, Answer, Ask, Flows};
use crate::{BAD_INPUT, FAILED, say};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_control::LoadRow;

/// Asks a running `weir run`.
#[derive(clap::Args)]
pub struct GetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Lists the flows that NFs remember.
    Flows {
        /// Only flows that this filter matches, in one of their directions: `tcp port 443`. It sees what is in a flow's key:
        /// addresses, ports, protocol, VLANs.
        filter: Option<String>,
        /// Only those of one NF.
        #[arg(long)]
        nf: Option<String>,
        /// Lists so many of each worker, at most; all are counted.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=5000))]
        most: u32,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// The run's control socket; without it the only one that there is.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
    },
    /// Tells how much each instance of the NFs has to do.
    Load {
        /// Only of this NF.
        nf: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// The run's control socket; without it the only one that there is.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
    },
}

/// Does something with flows of a running `weir run`.
#[derive(clap::Args)]
pub struct FlowArgs {
    #[command(subcommand)]
    what: Do,
}

#[derive(clap::Subcommand)]
enum Do {
    /// Moves flows to another instance of their NF while packets come; none is lost or reordered.
    Move {
        /// The NF, which has several instances.
        nf: String,
        /// Flows that this filter matches, in one of their directions, and that are there now.
        #[arg(required_unless_present_any = ["share", "all", "count"], conflicts_with_all = ["share", "all", "count"])]
        filter: Option<String>,
        /// So many hundredths of what each other instance has, with the flows that will be.
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100), conflicts_with_all = ["all", "count"])]
        share: Option<u8>,
        /// All, also those that will be.
        #[arg(long, conflicts_with = "count")]
        all: bool,
        /// So many flows of those that are there now.
        #[arg(long, value_name = "FLOWS", value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
        /// Only flows of this instance, from 1.
        #[arg(long, value_name = "INSTANCE")]
        from: Option<u32>,
        /// The instance that they go to, from 1.
        #[arg(long, value_name = "INSTANCE")]
        to: u32,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
        /// The run's control socket; without it the only one that there is.
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
    },
}

pub fn get(args: &GetArgs) -> ExitCode {
    let (ask, json, control) = match &args.what {
        What::Flows { filter, nf, most, json, control } => {
            let ask = Ask::Flows { nf: nf.clone(), filter: filter.clone(), most: *most };
            (ask, json, control)
        }
        What::Load { nf, json, control } => (Ask::Load { nf: nf.clone() }, json, control),
    };
    answer(control.as_deref(), &ask, *json)
}

pub fn main(args: &FlowArgs) -> ExitCode {
    let Do::Move { nf, filter, share, all, count, from, to, json, control } = &args.what;
    let share = share.or(all.then_some(100));
    let (nf, filter) = (nf.clone(), filter.clone());
    let ask = Ask::Move { nf, filter, share, count: *count, from: *from, to: *to };
    answer(control.as_deref(), &ask, *json)
}

pub(crate) fn answer(control: Option<&std::path::Path>, ask: &Ask, json: bool) -> ExitCode {
    let answer = match control::ask(control, ask) {
        Ok(answer) => answer,
        Err(e) => {
            crate::complain!("weir: {e}");
            let refused = matches!(e, control::ControlError::Refused(_));
            return ExitCode::from(if refused { BAD_INPUT } else { FAILED });
        }
    };
    let (whole, text) = match &answer {
        Answer::Flows(flows) => (flows.failures.is_empty(), table(flows)),
        Answer::Load(rows) => (true, loads(rows)),
        Answer::Moved { flows, ms, failures } => {
            let mut text = format!("{flows} flows moved in {ms:.1} ms\n");
            for why in failures {
                let _ = writeln!(text, "not moved: {why}");
            }
            (failures.is_empty(), text)
        }
        Answer::Relinked(relinked) => {
            let uneven = match relinked.uneven {
                0 => String::new(),
                n => format!(
                    "; {n} of 65,536 parts of the flow hash go to other instances as soon as they have no flows"
                ),
            };
            (true, format!("{relinked}{uneven}\n"))
        }
        Answer::Renewed(renewed) => {
            let (worker, ms) = (&renewed.worker, renewed.ms);
            let text = format!(
                "worker {worker} runs again after {ms:.1} ms, with {} flows of the replica\n",
                renewed.flows
            );
            (true, text)
        }
        Answer::Error(why) => (false, format!("{why}\n")),
    };
    let text = match json {
        true => serde_json::to_string_pretty(&answer).map(|text| text + "\n").unwrap_or(text),
        false => text,
    };
    if let Err(e) = say::tell(&text) {
        crate::complain!("weir: cannot write the answer: {e}");
        return ExitCode::from(FAILED);
    }
    ExitCode::from(if whole { 0 } else { FAILED })
}

fn name(nf: &str, instance: Option<u32>) -> String {
    match instance {
        Some(instance) => format!("{nf}#{instance}"),
        None => nf.to_owned(),
    }
}

fn loads(rows: &[LoadRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let of = name(&row.nf, row.instance);
        let waits = if row.ready { "" } else { ", not ready" };
        let _ = writeln!(
            text,
            "{of:<20} input {:>3} %, output {:>3} %, {} packets, {} dropped, in worker {}{waits}",
            row.input, row.output, row.packets, row.dropped, row.worker,
        );
    }
    text
}

fn table(flows: &Flows) -> String {
    let mut text = String::new();
    for flow in &flows.flows {
        let keys: Vec<String> = flow.keys.iter().map(|[a, b]| format!("{a} <-> {b}")).collect();
        let _ = writeln!(
            text,
            "{:<20} proto {:<3} {:<50} age {:.3} s, idle {:.3} s",
            name(&flow.nf, flow.instance),
            flow.proto,
            keys.join(" = "),
            flow.age,
            flow.idle,
        );
    }
    for count in &flows.counts {
        let of = name(&count.nf, count.instance);
        let moved = match count.moved {
            0 => String::new(),
            keys => format!(", {keys} keys moved there one by one"),
        };
        let mib = count.bytes as f64 / f64::from(1 << 20);
        let refused = match count.refused {
            0 => String::new(),
            flows => format!(", {flows} found no room"),
        };
        let _ = writeln!(
            text,
            "{of}: {} flows of {} that may be, in {mib:.1} MiB, {} chosen{moved}{refused}",
            count.flows, count.most, count.chosen
        );
    }
    for why in &flows.failures {
        let _ = writeln!(text, "not asked: {why}");
    }
    text
}
