//! `weir bench instances`: a bottleneck as one instance and as two, on a core each, alternating.

use super::sample::{
    BenchError, Measured, SampleArgs, TrafficArgs, finish, prepare, print_regime, progress, spread,
};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use weir_device::DeviceSpec;
use weir_plan::service::Server;
use weir_plan::{Asked, Isolate, Plan, Sizing};

/// Measures what a second instance of a costly NF brings.
#[derive(clap::Args)]
pub struct InstancesArgs {
    /// Cycles per packet that the NF takes.
    #[arg(long, value_delimiter = ',', default_value = "20000,50000")]
    cycles: Vec<u32>,
    /// Packets go to the instance with the least waiting before it, instead of in turn.
    #[arg(long)]
    least: bool,
    #[command(flatten)]
    traffic: TrafficArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    cycles: u32,
    instances: u32,
    #[serde(flatten)]
    measured: Measured,
}

pub fn main(args: &InstancesArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &InstancesArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.traffic.sampling.device_core, args.traffic.sampling.chain_core])?;
    let (own, shared) = (args.traffic.sampling.chain_core, args.traffic.sampling.device_core);
    crate::say::print_line!(
        "Busy as one instance on core {own}, and as two on cores {own} and {shared}; generator and sink on core \
         {shared}; {}-byte packets {}, ring {}, pool {}",
        args.traffic.size,
        if args.least { "to the least loaded" } else { "in turn" },
        args.traffic.sampling.ring,
        args.traffic.sampling.pool
    );
    let mut samples = Vec::new();
    for i in 0..args.traffic.sampling.samples {
        for &cycles in &args.cycles {
            for instances in [1, 2] {
                progress(&format!(
                    "round {} of {}: {cycles} cycles",
                    i + 1,
                    args.traffic.sampling.samples
                ));
                samples.push(sample(args, cycles, instances)?);
            }
        }
    }
    progress("");
    print_table(args, &samples);
    args.traffic.write(&machine, &samples)
}

fn sample(args: &InstancesArgs, cycles: u32, instances: u32) -> Result<Sample, BenchError> {
    let sampling = &args.traffic.sampling;
    let text = format!(
        "Port<0> lan; Port<1> wan; Busy work {{ cycles: {cycles} }}; pipelet {{ lan -> work -> wan; }}\n"
    );
    let asked = Asked { least_loaded: args.least, ..Asked::equal(instances) };
    let plan = plan(sampling, &text, "work", asked)?;
    let measured = sampling.run(&plan, DeviceSpec::Generator(args.traffic.generator()))?;
    Ok(Sample { cycles, instances, measured })
}

/// A plan with several instances of an NF. The NF's own core comes first; the second instance shares the devices'.
pub fn plan(sampling: &SampleArgs, text: &str, nf: &str, asked: Asked) -> Result<Plan, BenchError> {
    let loaded = policy::from_text(text, "(bench)")?;
    let cores = vec![sampling.device_core, sampling.chain_core, sampling.device_core];
    let server = Server { name: "bench".to_owned(), cores: 3, ghz: 1.0, nic_bps: None };
    let asked = BTreeMap::from([(nf.to_owned(), asked)]);
    let sizing = Sizing { server: &server, objective: None, asked: &asked };
    let options = policy::options(Isolate::Each, Some(cores), &[])?;
    let path = Path::new("(bench)");
    Ok(policy::plan_sized(&loaded.graph, path, &options, Consolidate::Off, sizing)?.0)
}

fn print_table(args: &InstancesArgs, samples: &[Sample]) {
    print_regime(samples.iter().map(|s| &s.measured));
    crate::say::print_line!("Mpps, min / median / max of all samples");
    crate::say::print_line!("{:>8}  {:^26}  {:^26}  two / one", "cycles", "one instance", "two");
    let show = |spread: Option<[f64; 3]>, digits: usize| match spread {
        Some([a, b, c]) => format!("{a:.digits$} / {b:.digits$} / {c:.digits$}"),
        None => "-".into(),
    };
    for &cycles in &args.cycles {
        let of = |instances: u32| {
            let these = samples.iter().filter(|s| s.cycles == cycles && s.instances == instances);
            show(spread(these.map(|s| s.measured.mpps).collect()), 4)
        };
        // Neighbours, so that what the machine does meanwhile strikes both alike.
        let pairs = samples.chunks_exact(2).filter(|pair| pair[0].cycles == cycles);
        let ratio = pairs.map(|pair| pair[1].measured.mpps / pair[0].measured.mpps).collect();
        crate::say::print_line!(
            "{cycles:>8}  {:^26}  {:^26}  {}",
            of(1),
            of(2),
            show(spread(ratio), 2)
        );
    }
}
