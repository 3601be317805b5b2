//! Which figures there are: where each is from, what is claimed, how it is measured and judged. One line of [`ALL`] is one figure.

use super::data::{Series, Verdict};
use super::{Effort, growth, rivals, unf};
use crate::bench::sample::BenchError;
use weir_draw::chart::Axis;

/// An axis as it stands in the catalogue.
pub struct Scale {
    label: &'static str,
    log: bool,
}

impl Scale {
    const fn of(label: &'static str) -> Self {
        Scale { label, log: false }
    }

    const fn log(label: &'static str) -> Self {
        Scale { label, log: true }
    }

    pub fn axis(&self) -> Axis {
        Axis { label: self.label.to_owned(), log: self.log }
    }
}

/// One figure.
pub struct Figure {
    pub name: &'static str,
    /// The paper's figure or table.
    pub source: &'static str,
    pub title: &'static str,
    /// What the paper, or the project, says.
    pub claim: &'static str,
    pub set_up: &'static str,
    pub x: Scale,
    pub y: Scale,
    pub measure: fn(&Effort<'_>) -> Result<Vec<Series>, BenchError>,
    pub judge: fn(&[Series]) -> (Verdict, String),
}

const LENGTH: Scale = Scale::of("µNFs in the chain");
const MPPS: Scale = Scale::of("million packets a second");
const MICROSECONDS: Scale = Scale::of("median latency, µs");

/// All of them, in the order in which they are made.
pub const ALL: &[Figure] = &[
    Figure {
        name: "unf-5a",
        source: "µNF Fig. 5a",
        title: "Throughput of chains on one core by scheduling class",
        claim: "with voluntary yielding, the real-time class and its FIFO policy the throughput is highest at every length; yielding gains three orders \
                of magnitude",
        set_up: "n isolated MacSwaps on one core, generator and sink on the other; 64-byte packets. Without yielding: workers poll on and leave the core only \
                 when the kernel takes it.",
        x: LENGTH,
        y: Scale::log("million packets a second"),
        measure: unf::classes,
        judge: unf::judge_classes,
    },
    Figure {
        name: "unf-5b",
        source: "µNF Fig. 5b",
        title: "What chains on one core sustain of 10 Gbit/s in 64-byte packets",
        claim: "the longest chain that sustains 14.88 Mpps is had with the FIFO policy and yielding",
        set_up: "n isolated MacSwaps on one core are offered 14.88 Mpps, which a generator makes and drops if they find no room; no network card.",
        x: LENGTH,
        y: Scale::of("packets that arrive, %"),
        measure: unf::line_rate,
        judge: unf::judge_line_rate,
    },
    Figure {
        name: "unf-6",
        source: "µNF Fig. 6",
        title: "Throughput of one µNF by packet size",
        claim: "10 Gbit/s at every size from 64 bytes on",
        set_up: "One MacSwap on one core, generator and sink on the other, which writes every byte of each packet; no network card. Echo: no µNF between them.",
        x: Scale::log("bytes per packet"),
        y: Scale::of("Gbit/s"),
        measure: unf::sizes,
        judge: unf::judge_sizes,
    },
    Figure {
        name: "unf-7",
        source: "µNF Fig. 7",
        title: "Throughput by how many packets are prefetched",
        claim: "without prefetching the throughput falls to 30 % of line rate; 8 of 64 packets give it back",
        set_up: "Two MacSwaps on one core, generator and sink on the other of the same NUMA node; batches of up to 256. The paper's crossed NUMA nodes.",
        x: Scale::of("packets of a batch that are prefetched"),
        y: MPPS,
        measure: unf::prefetch,
        judge: unf::judge_prefetch,
    },
    Figure {
        name: "unf-8",
        source: "µNF Fig. 8",
        title: "Latency side by side and in sequence by cost",
        claim: "side by side saves under 10 % at 100 cycles a packet, and over 20 % at 700",
        set_up: "Four Busy µNFs, the middle two side by side or in sequence, on two cores that source and sink share; 128 packets at a time, the last one's \
                 latency. The paper had a core for each.",
        x: Scale::of("cycles a packet that each µNF takes"),
        y: MICROSECONDS,
        measure: unf::side_by_side,
        judge: unf::judge_side_by_side,
    },
    Figure {
        name: "unf-9a",
        source: "µNF Fig. 9a",
        title: "Latency by chain length",
        claim: "latency grows linearly with the length",
        set_up: "One packet at a time through n MacSwaps on one core, polling; source and sink on the other. The paper: 4 to 6, a core for each, 90 % load.",
        x: LENGTH,
        y: MICROSECONDS,
        measure: unf::latency_by_length,
        judge: unf::judge_linear,
    },
    Figure {
        name: "unf-9b",
        source: "µNF Fig. 9b",
        title: "Latency by cost and chain length",
        claim: "latency grows linearly with the cost and with the length",
        set_up: "One packet at a time through n isolated Busy µNFs on one core, polling; source and sink on the other.",
        x: Scale::of("cycles a packet that each µNF takes"),
        y: MICROSECONDS,
        measure: unf::latency_by_cost,
        judge: unf::judge_linear,
    },
    Figure {
        name: "unf-10",
        source: "µNF Fig. 10",
        title: "Chains of TtlDecrement: run to completion and pipelined",
        claim: "on one core the pipeline wins over run to completion as the chain grows",
        set_up: "n TtlDecrements on one core, fused (run to completion) and each in a process of its own (pipelined); generator and sink on the other core.",
        x: LENGTH,
        y: MPPS,
        measure: unf::completion,
        judge: unf::judge_completion,
    },
    Figure {
        name: "unf-sfc",
        source: "µNF §VII-C2",
        title: "The service chain of Fig. 11 with one and two HttpClassifiers",
        claim: "2.08 Mpps of 200-byte packets; 4.1 with two HttpClassifiers",
        set_up: "CheckIpHeader, L3L4Filter, HttpClassifier, CountUrl and ValidateUrl, each in a process of its own, on one core, the second HttpClassifier and the \
                 devices on the other; HTTP requests of 200 bytes. The paper had a core for each.",
        x: Scale::of("HttpClassifiers"),
        y: MPPS,
        measure: unf::service_chain,
        judge: unf::judge_service_chain,
    },
    Figure {
        name: "sustained",
        source: "beyond: rates",
        title: "The rate that chains sustain",
        claim: "none: the method of RFC 2544 and MLRsearch in the place of what arrives at full load",
        set_up: "n MacSwaps on one core, generator and sink on the other, 64-byte packets; the most that is offered so that at most 0.5 % is lost, found within 5 %.",
        x: LENGTH,
        y: MPPS,
        measure: unf::sustained,
        judge: unf::judge_sustained,
    },
    Figure {
        name: "grow-chain",
        source: "beyond: µNFs",
        title: "Throughput by number of µNFs",
        claim: "what a µNF costs does not grow with how many there are",
        set_up: "n MacSwaps in as few processes as can be (fused) on one core, generator and sink on the other.",
        x: Scale::log("µNFs in the chain"),
        y: Scale::log("million packets a second"),
        measure: growth::chain,
        judge: growth::judge_chain,
    },
    Figure {
        name: "grow-policy",
        source: "beyond: policies",
        title: "Time to check and plan a policy by its edges",
        claim: "3,000 filtered edges in under a second; grows no faster than edges squared",
        set_up: "A pipelet of n NFs with three filtered edges each, parsed, checked exactly, merged, consolidated and planned, in this process.",
        x: Scale::log("filtered edges"),
        y: Scale::log("seconds"),
        measure: growth::policy,
        judge: growth::judge_policy,
    },
    Figure {
        name: "rivals",
        source: "rivals",
        title: "Throughput by packet size, beside dpdk-testpmd and Open vSwitch",
        claim: "none: side by side in the same run",
        set_up: "Weir: generator and sink on one core, one MacSwap in a process of its own on the other. Rivals: two null devices, forwarded by one core. All \
                 take buffers and give them back.",
        x: Scale::log("bytes per packet"),
        y: MPPS,
        measure: rivals::measure,
        judge: rivals::judge,
    },
];
