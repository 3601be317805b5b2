//! `weir bench chain`: n MacSwaps on one core, generator and sink on the other, isolated and fused
//! alternating.

use super::asked;
use super::chain_policy;
use super::sample::{
    BenchError, Measured, TrafficArgs, finish, prepare, print_regime, progress, show, spread,
};
use serde::Serialize;
use std::process::ExitCode;
use weir_device::DeviceSpec;
use weir_plan::Isolate;

/// Measures chains of MacSwap.
#[derive(clap::Args)]
pub struct ChainArgs {
    /// Chain lengths, 1 to 300.
    #[arg(long, value_delimiter = ',', value_parser = asked::length, default_value = "1,2,4,6,8")]
    length: Vec<usize>,
    #[command(flatten)]
    traffic: TrafficArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    length: usize,
    isolated: bool,
    #[serde(flatten)]
    measured: Measured,
}

pub fn main(args: &ChainArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &ChainArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.traffic.sampling.device_core, args.traffic.sampling.chain_core])?;
    crate::say::print_line!(
        "MacSwap x n on core {}, generator and sink on core {}; {}-byte packets, buffers from the pool \
         and back, ring {}, pool {}",
        args.traffic.sampling.chain_core,
        args.traffic.sampling.device_core,
        args.traffic.size,
        args.traffic.sampling.ring,
        args.traffic.sampling.pool
    );
    let mut samples = Vec::new();
    for i in 0..args.traffic.sampling.samples {
        for &length in &args.length {
            // Alternating, so that what the machine does meanwhile strikes both alike.
            for isolated in [true, false] {
                progress(&format!(
                    "round {} of {}: n = {length}",
                    i + 1,
                    args.traffic.sampling.samples
                ));
                samples.push(sample(args, length, isolated)?);
            }
        }
    }
    progress("");
    print_table(args, &samples);
    args.traffic.write(&machine, &samples)
}

fn sample(args: &ChainArgs, length: usize, isolated: bool) -> Result<Sample, BenchError> {
    let isolate = if isolated { Isolate::Each } else { Isolate::None };
    let source = DeviceSpec::Generator(args.traffic.generator());
    let measured = args.traffic.sampling.take(&chain_policy(length), isolate, source)?;
    Ok(Sample { length, isolated, measured })
}

fn print_table(args: &ChainArgs, samples: &[Sample]) {
    let fast: Vec<&Sample> = samples.iter().filter(|s| s.measured.is_fast()).collect();
    print_regime(samples.iter().map(|s| &s.measured));
    if samples.iter().any(|s| s.isolated && !s.measured.real_time) {
        crate::say::print_line!("without the real-time class (not permitted, or left out)");
    }
    crate::say::print_line!("Mpps, min / median / max; only samples in the fast regime");
    crate::say::print_line!("{:>3}  {:^24}  {:^24}  isolated / fused", "n", "isolated", "fused");
    for &length in &args.length {
        let of = |isolated: bool| {
            let these = fast.iter().filter(|s| s.length == length && s.isolated == isolated);
            spread(these.map(|s| s.measured.mpps).collect())
        };
        let ratios = samples.chunks_exact(2).filter(|p| p[0].length == length);
        let alike = ratios.filter(|p| {
            let [a, b] = [0, 1].map(|i: usize| p[i].measured.around.round_trip_ns[1]);
            a.max(b) <= 1.2 * a.min(b)
        });
        let ratio = spread(alike.map(|p| p[0].measured.mpps / p[1].measured.mpps).collect());
        let ratio = match ratio {
            Some([a, b, c]) => format!("{a:.2} / {b:.2} / {c:.2}"),
            None => "-".into(),
        };
        crate::say::print_line!(
            "{length:>3}  {:^24}  {:^24}  {ratio}",
            show(of(true)),
            show(of(false))
        );
    }
}
