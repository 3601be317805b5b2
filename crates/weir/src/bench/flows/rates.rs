//! `weir bench flows rates`: stateful NFs in one segment on one core, generator and sink on another.

use crate::bench::asked;
use crate::bench::chain_policy;
use crate::bench::files::write_json;
use crate::bench::machine::Machine;
use crate::bench::sample::{
    BenchError, Measured, SampleArgs, finish, prepare, print_regime, progress, show, spread,
};
use crate::policy::{self, Consolidate};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_device::{DeviceSpec, ListedFlow, ListedSpec, http_request};
use weir_nf::headers::proto;
use weir_plan::Isolate;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// No NF.
    Echo,
    /// One MacSwap: what generator and sink make and take at most.
    Ceiling,
    /// ConnTrack.
    ConnTrack,
    /// Napt, from inside to outside.
    Napt,
    /// FlowMonitor, ConnTrack and HttpParser in one segment.
    Chain,
    /// The same, of packets that each carry an HTTP request, 200 bytes long; of all others the parser has nothing to parse.
    Requests,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Echo => "echo",
            Subject::Ceiling => "ceiling",
            Subject::ConnTrack => "ConnTrack",
            Subject::Napt => "Napt",
            Subject::Chain => "FlowMonitor -> ConnTrack -> HttpParser",
            Subject::Requests => "the same, 200-byte packets, each a request",
        }
    }

    /// What leads from port 0 to port 1. Packets are of connections that were there before.
    pub fn policy(self) -> String {
        let ports = "Port<0> lan; Port<1> wan;\n";
        let fw = "ConnTrack fw { pickup: true };";
        match self {
            Subject::Echo => chain_policy(0),
            Subject::Ceiling => chain_policy(1),
            Subject::ConnTrack => format!("{ports}{fw} pipelet {{ lan -> fw -> wan; }}\n"),
            Subject::Napt => {
                let address = |n| format!("\"198.51.100.{n}\"");
                let addresses: Vec<_> = (0..OUTER).map(address).collect();
                format!(
                    "{ports}Napt nat {{ addresses: [{}] }};\npipelet {{ lan -> [inside] nat; \
                     nat [nat.outside] -> wan; nat [nat.inside] -> Drop; }}\n",
                    addresses.join(", ")
                )
            }
            Subject::Chain | Subject::Requests => format!(
                "{ports}FlowMonitor mon; {fw} HttpParser http;\n\
                 pipelet {{ lan -> mon -> fw -> http -> wan; }}\n"
            ),
        }
    }

    /// What comes to it.
    pub fn source(self, flows: usize) -> ListedSpec {
        if self == Subject::Requests { requests(flows) } else { source(flows) }
    }
}

/// Outer addresses of the translator: four million ports.
const OUTER: u32 = 64;
/// Connections of each inner host.
const OF_HOST: usize = 64;

/// Measures stateful NFs.
#[derive(clap::Args)]
pub struct RatesArgs {
    /// Numbers of flows, at most 1048576; the chain's monitor and parser remember 65536.
    #[arg(long, value_delimiter = ',', default_value = "128,60000,1000000",
          value_parser = asked::flows::<usize>)]
    flows: Vec<usize>,
    /// What is measured, besides the ceiling.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "conn-track,napt,chain,requests"
    )]
    nf: Vec<Subject>,
    /// Writes all samples to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    sampling: SampleArgs,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    nf: Subject,
    flows: usize,
    #[serde(flatten)]
    measured: Measured,
}

#[derive(Serialize)]
struct Results<'r> {
    machine: &'r Machine,
    ring: u32,
    pool: u32,
    samples: &'r [Sample],
}

pub fn main(args: &RatesArgs) -> ExitCode {
    finish(run(args))
}

fn run(args: &RatesArgs) -> Result<(), BenchError> {
    let machine = prepare(&[args.sampling.device_core, args.sampling.chain_core])?;
    let (ring, pool) = (args.sampling.ring, args.sampling.pool);
    crate::say::print_line!(
        "one segment on core {}, generator and sink on core {}; 64-byte TCP segments of connections that were there before, \
         each flow once in turn and then at random; ring {ring}, pool {pool}",
        args.sampling.chain_core,
        args.sampling.device_core,
    );
    let mut subjects = vec![Subject::Ceiling];
    subjects.extend(args.nf.iter().filter(|nf| **nf != Subject::Ceiling));
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..args.sampling.samples {
        for &flows in &args.flows {
            for &nf in &subjects {
                let of = args.sampling.samples;
                progress(&format!("round {} of {of}: {}, {flows} flows", round + 1, nf.name()));
                let measured = sample(&args.sampling, nf, nf.source(flows))?;
                samples.push(Sample { nf, flows, measured });
            }
        }
    }
    progress("");
    print_table(&args.flows, &subjects, &samples);
    if let Some(path) = &args.json {
        write_json(path, &Results { machine: &machine, ring, pool, samples: &samples })?;
    }
    Ok(())
}

pub fn sample(
    sampling: &SampleArgs,
    nf: Subject,
    source: ListedSpec,
) -> Result<Measured, BenchError> {
    let cores = vec![sampling.device_core, sampling.chain_core];
    let loaded = policy::from_text(&nf.policy(), "(bench)")?;
    let plan = policy::plan(
        &loaded.graph,
        Path::new("(bench)"),
        Isolate::None,
        Some(cores),
        &[],
        Consolidate::Off,
    )?;
    // Every flow is there before anything is counted.
    let flows = source.flows.len() as u64;
    sampling.run_after(&plan, DeviceSpec::Listed(source), &sampling.options(), flows)
}

/// Connections of hosts with 64 each to one of 256 servers.
pub fn source(flows: usize) -> ListedSpec {
    let flow = |n: usize| {
        let (host, port) = ((n / OF_HOST) as u32, (n % OF_HOST) as u16);
        ListedFlow {
            source: Ipv4Addr::from_bits(0x0a00_0000 | host).into(),
            destination: Ipv4Addr::from_bits(0xcb00_7100 | host & 0xff).into(),
            proto: proto::TCP,
            ports: (32_768 + port, 80),
        }
    };
    ListedSpec {
        flows: (0..flows).map(flow).collect(),
        payloads: Vec::new(),
        size: 60,
        packets: None,
        burst: None,
        stays: false,
        shuffled: true,
    }
}

/// A packet with a request, in bytes: 200 with the check sequence, as in the µNF paper's service chain.
pub const REQUEST: u16 = 196;

/// The same connections; each packet carries a whole HTTP request, which goes on where the one before it in its flow has ended.
pub fn requests(flows: usize) -> ListedSpec {
    const HEADS: usize = 54;
    ListedSpec {
        payloads: vec![http_request(usize::from(REQUEST) - HEADS)],
        size: REQUEST,
        ..source(flows)
    }
}

fn print_table(flows: &[usize], subjects: &[Subject], samples: &[Sample]) {
    print_regime(samples.iter().map(|s| &s.measured));
    if samples.iter().any(|s| !s.measured.real_time) {
        crate::say::print_line!("without the real-time class (not permitted, or left out)");
    }
    crate::say::print_line!("Mpps, min / median / max");
    crate::say::print_line!("{:>9}  {:>6}  {:^20}  NF", "flows", "regime", "Mpps");
    for &flows in flows {
        for &nf in subjects {
            for fast in [true, false] {
                let of = samples
                    .iter()
                    .filter(|s| (s.nf, s.flows) == (nf, flows) && s.measured.is_fast() == fast);
                let mpps = spread(of.map(|s| s.measured.mpps).collect());
                if mpps.is_some() {
                    let regime = if fast { "fast" } else { "slow" };
                    crate::say::print_line!(
                        "{flows:>9}  {regime:>6}  {:^20}  {}",
                        show(mpps),
                        nf.name()
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use weir_control::inline::Inline;
    use weir_control::wiring::{self, RunOptions};

    const PACKETS: u64 = 5_000;

    /// What the chain's NFs report of so many packets of 100 flows: FlowMonitor, ConnTrack, HttpParser.
    fn reports(nf: Subject) -> [Value; 3] {
        let loaded = policy::from_text(&nf.policy(), "(test)").unwrap();
        let path = Path::new("(test)");
        let plan =
            policy::plan(&loaded.graph, path, Isolate::None, None, &[], Consolidate::Off).unwrap();
        let source = ListedSpec { packets: Some(PACKETS), ..nf.source(100) };
        let binds = BTreeMap::from([(0, DeviceSpec::Listed(source)), (1, DeviceSpec::Null)]);
        let setup = wiring::wire(&plan, &binds, &BTreeMap::new(), &RunOptions::default()).unwrap();
        let chain = setup.workers.iter().position(|w| w.nodes.len() == 3).unwrap();
        let mut inline = Inline::new(&setup).unwrap();
        assert_eq!(inline.run().unwrap(), PACKETS);
        let all: Vec<Value> =
            inline.reports(chain).iter().map(|json| serde_json::from_str(json).unwrap()).collect();
        all.try_into().unwrap()
    }

    #[test]
    fn the_parser_parses_a_request_of_every_packet_and_without_requests_none() {
        let [_, tracked, parsed] = reports(Subject::Requests);
        assert_eq!(parsed["requests"], serde_json::json!({ "GET": PACKETS }), "{parsed:#}");
        for nothing in ["repeated", "early", "given_up", "lost", "no_room"] {
            assert_eq!(parsed[nothing], 0, "{nothing}: {parsed:#}");
        }
        assert_eq!(tracked["established"], PACKETS, "{tracked:#}");
        let [_, tracked, parsed] = reports(Subject::Chain);
        assert_eq!(parsed["requests"], serde_json::json!({}), "{parsed:#}");
        assert_eq!(tracked["established"], PACKETS, "{tracked:#}");
    }
}
