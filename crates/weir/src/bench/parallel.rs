//! `weir bench parallel`: the µNF paper's Fig. 8. Four µNFs of equal cost, the two in the middle side by side and
//! in sequence alternating: so many packets at a time, and as many as go through.

use super::asked;
use super::files::write_json;
use super::latency::{each_burst, one_by_one, percentiles};
use super::machine::{Machine, pin};
use super::sample::{
    BenchError, Measured, SampleArgs, finish, prepare, print_regime, progress, show, spread,
};
use crate::policy::{self, Consolidate, Parallel};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_control::wiring::RunOptions;
use weir_device::{DeviceSpec, GeneratorSpec};
use weir_plan::{Isolate, Plan};

/// Measures what working side by side brings.
#[derive(clap::Args)]
pub struct ParallelArgs {
    /// Cycles per packet that each NF takes.
    #[arg(long, value_delimiter = ',', default_value = "100,700")]
    cycles: Vec<u32>,
    /// How many packets are sent at a time; the latency is that of the last of them.
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u64).range(1..=256))]
    bursts: Vec<u64>,
    /// Bursts per sample of the latency, 1 to 1,000,000.
    #[arg(long, default_value_t = 1000, value_parser = asked::within(1_usize, 1_000_000))]
    times: usize,
    /// Cores of the NFs; those side by side are on two of them. Without it the chain's core and the devices'.
    #[arg(long, value_delimiter = ',', value_parser = asked::core)]
    nf_cores: Option<Vec<usize>>,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    sampling: SampleArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    cycles: u32,
    side_by_side: bool,
    /// By packets at a time: minimum, median, 99th percentile and maximum of the time until the last has
    /// come out, in nanoseconds.
    latency_ns: BTreeMap<u64, [u64; 4]>,
    #[serde(flatten)]
    measured: Measured,
}

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    nf_cores: &'r [usize],
    times: usize,
    ring: u32,
    pool: u32,
    samples: &'r [Sample],
}

pub fn main(args: &ParallelArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &ParallelArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    let (own, shared) = (args.sampling.chain_core, args.sampling.device_core);
    let nf_cores = args.nf_cores.clone().unwrap_or_else(|| vec![own, shared]);
    crate::say::print_line!(
        "Busy a -> b, c -> d in workers on cores {nf_cores:?}, b and c side by side and in sequence; source and sink \
         on core {shared}"
    );
    let mut samples = Vec::new();
    for i in 0..args.sampling.samples {
        for &cycles in &args.cycles {
            for side_by_side in [false, true] {
                progress(&format!("round {} of {}: {cycles} cycles", i + 1, args.sampling.samples));
                samples.push(sample(args, &nf_cores, cycles, side_by_side)?);
            }
        }
    }
    progress("");
    print_table(args, &samples);
    if let Some(path) = &args.json {
        let (times, ring, pool) = (args.times, args.sampling.ring, args.sampling.pool);
        let (machine, nf_cores, samples) = (&machine, nf_cores.as_slice(), samples.as_slice());
        write_json(path, &Results { machine, nf_cores, times, ring, pool, samples })?;
    }
    Ok(())
}

/// Filters that take everything keep `a` and `d` out of the stage, at the same cost either way.
pub fn plan(
    device_core: usize,
    nf_cores: &[usize],
    cycles: u32,
    side_by_side: bool,
) -> Result<Plan, BenchError> {
    let nfs: String =
        ["a", "b", "c", "d"].map(|nf| format!("Busy {nf} {{ cycles: {cycles} }}; ")).concat();
    let text = format!(
        "Port<0> lan; Port<1> wan; {nfs} pipelet {{ lan -> a; a [ip] -> b; a [!ip] -> Drop; b -> c; c [ip] -> d; \
         c [!ip] -> Drop; d -> wan; }}\n"
    );
    let loaded = policy::from_text(&text, "(bench)")?;
    let path = Path::new("(bench)");
    let cores = [&[device_core], nf_cores].concat();
    let options = policy::options(Isolate::Each, Some(cores), &[])?;
    let plan = policy::plan_with(&loaded.graph, path, &options, Consolidate::Off)?;
    let parallel = if side_by_side { Parallel::Always } else { Parallel::Never };
    Ok(policy::side_by_side(plan, path, &options, parallel)?)
}

fn sample(
    args: &ParallelArgs,
    nf_cores: &[usize],
    cycles: u32,
    side_by_side: bool,
) -> Result<Sample, BenchError> {
    let sampling = &args.sampling;
    let plan = plan(sampling.device_core, nf_cores, cycles, side_by_side)?;
    let mut latency_ns = BTreeMap::new();
    for &burst in &args.bursts {
        let _pinned = pin(sampling.device_core);
        let options = RunOptions { busy: true, ..sampling.options() };
        let setup = one_by_one(&plan, &options, None, burst)?;
        latency_ns
            .insert(burst, percentiles(each_burst(setup, args.times, false, true, burst)?.ns));
    }
    let measured = sampling.run(&plan, DeviceSpec::Generator(GeneratorSpec::default()))?;
    Ok(Sample { cycles, side_by_side, latency_ns, measured })
}

fn print_table(args: &ParallelArgs, samples: &[Sample]) {
    print_regime(samples.iter().map(|s| &s.measured));
    crate::say::print_line!(
        "min / median / max of all samples' medians, and side by side against in sequence, in percent"
    );
    let change = |value: &dyn Fn(&Sample) -> f64, pairs: &[&[Sample]]| {
        let percent = pairs.iter().filter_map(|pair| match pair {
            [sequence, side] => Some((value(side) / value(sequence) - 1.0) * 100.0),
            _ => None,
        });
        show(spread(percent.collect()))
    };
    for &cycles in &args.cycles {
        let of = |side_by_side: bool, value: &dyn Fn(&Sample) -> f64| {
            let these =
                samples.iter().filter(|s| s.cycles == cycles && s.side_by_side == side_by_side);
            show(spread(these.map(value).collect()))
        };
        // Neighbours, so that what the machine does meanwhile strikes both alike.
        let pairs: Vec<&[Sample]> = samples
            .chunks_exact(2)
            .filter(|pair| pair.first().is_some_and(|s| s.cycles == cycles))
            .collect();
        let line = |what: &str, value: &dyn Fn(&Sample) -> f64| {
            crate::say::print_line!(
                "{cycles:>6} cycles  {what:<16} in sequence {:<24} side by side {:<24} {} %",
                of(false, value),
                of(true, value),
                change(value, &pairs)
            );
        };
        for burst in &args.bursts {
            line(&format!("{burst} at a time, µs"), &|s| {
                s.latency_ns.get(burst).map_or(f64::NAN, |ns| ns[1] as f64 / 1e3)
            });
        }
        line("Mpps", &|s| s.measured.mpps);
    }
}
