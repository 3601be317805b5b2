//! `weir bench overload`: what a chain delivers of packets that come faster than it can take them. What is too much must
//! be dropped before work was spent on it, else the chain delivers less the more is offered.

use super::asked;
use super::chain_policy;
use super::sample::{
    BenchError, Measured, TrafficArgs, finish, prepare, print_regime, progress, spread,
};
use serde::Serialize;
use std::process::ExitCode;
use weir_device::{DeviceSpec, GeneratorSpec, Rate};
use weir_plan::Isolate;

/// Measures overload.
#[derive(clap::Args)]
pub struct OverloadArgs {
    /// Chain lengths, 1 to 300.
    #[arg(long, value_delimiter = ',', value_parser = asked::length, default_value = "1,4")]
    length: Vec<usize>,
    /// How much is offered, as multiples (0.01 to 100) of the most that the chain takes.
    #[arg(long, value_delimiter = ',', value_parser = asked::within(0.01, 100.0), default_value = "2,4")]
    offered: Vec<f64>,
    #[command(flatten)]
    traffic: TrafficArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    length: usize,
    isolated: bool,
    /// Multiple of the sample before that was offered; none: as much as was taken.
    offered: Option<f64>,
    #[serde(flatten)]
    measured: Measured,
}

pub fn main(args: &OverloadArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &OverloadArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.traffic.sampling.device_core, args.traffic.sampling.chain_core])?;
    crate::say::print_line!(
        "MacSwap x n on core {}, generator and sink on core {}; {}-byte packets, ring {}, pool {}",
        args.traffic.sampling.chain_core,
        args.traffic.sampling.device_core,
        args.traffic.size,
        args.traffic.sampling.ring,
        args.traffic.sampling.pool
    );
    let mut samples: Vec<Sample> = Vec::new();
    for i in 0..args.traffic.sampling.samples {
        for &length in &args.length {
            for isolated in [true, false] {
                for &offered in &args.offered {
                    progress(&format!(
                        "round {} of {}: n = {length}, {offered}x",
                        i + 1,
                        args.traffic.sampling.samples
                    ));
                    // Neighbours, so that what the machine does meanwhile strikes both alike.
                    let most = sample(args, length, isolated, None)?;
                    let rate = most.measured.mpps * 1e6 * offered;
                    samples.push(most);
                    samples.push(sample(args, length, isolated, Some((offered, rate)))?);
                }
            }
        }
    }
    progress("");
    print_table(args, &samples);
    args.traffic.write(&machine, &samples)
}

/// `offered`: the multiple, and what it is in packets a second.
fn sample(
    args: &OverloadArgs,
    length: usize,
    isolated: bool,
    offered: Option<(f64, f64)>,
) -> Result<Sample, BenchError> {
    let isolate = if isolated { Isolate::Each } else { Isolate::None };
    let rate = offered.map_or(Rate::Max, |(_, rate)| Rate::PerSecond(rate as u64));
    let drops = offered.is_some();
    let generator = GeneratorSpec { rate, drops, ..args.traffic.generator() };
    let source = DeviceSpec::Generator(generator);
    let measured = args.traffic.sampling.take(&chain_policy(length), isolate, source)?;
    Ok(Sample { length, isolated, offered: offered.map(|(offered, _)| offered), measured })
}

fn print_table(args: &OverloadArgs, samples: &[Sample]) {
    print_regime(samples.iter().map(|s| &s.measured));
    crate::say::print_line!("Mpps, min / median / max of all samples");
    crate::say::print_line!(
        "{:>2}  {:>8}  {:>7}  {:^22}  {:^22}  delivered / most",
        "n",
        "",
        "offered",
        "most",
        "delivered"
    );
    let show = |values: Vec<f64>, digits: usize| match spread(values) {
        Some([a, b, c]) => format!("{a:.digits$} / {b:.digits$} / {c:.digits$}"),
        None => "-".into(),
    };
    for &length in &args.length {
        for isolated in [true, false] {
            for &offered in &args.offered {
                let pairs = || {
                    samples.as_chunks::<2>().0.iter().filter(|[most, over]| {
                        (most.length, most.isolated, over.offered)
                            == (length, isolated, Some(offered))
                    })
                };
                let most = pairs().map(|[most, _]| most.measured.mpps).collect();
                let delivered = pairs().map(|[_, over]| over.measured.mpps).collect();
                let ratio = pairs().map(|[most, over]| over.measured.mpps / most.measured.mpps);
                crate::say::print_line!(
                    "{length:>2}  {:>8}  {offered:>6}x  {:^22}  {:^22}  {}",
                    if isolated { "isolated" } else { "fused" },
                    show(most, 2),
                    show(delivered, 2),
                    show(ratio.collect(), 2)
                );
            }
        }
    }
}
