//! What a worker is that stands at an end of the graph, or of a trust domain.

use serde::{Deserialize, Serialize};
use weir_device::DeviceSpec;
use weir_filter::Expr;

/// A device at one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndSpec {
    /// The worker receives from a device.
    Rx {
        /// The device.
        device: DeviceSpec,
        /// Policy port number.
        port: u16,
        /// Index of the source.
        source: u16,
        /// Of a live source: which of its packets are given up first when there is too little room. What none of
        /// these takes is the last class.
        early: Vec<EarlySpec>,
    },
    /// The worker sends to a device.
    Tx {
        /// The device.
        device: DeviceSpec,
        /// Policy port number.
        port: u16,
        /// Unit of the time stamps in a capture that it begins: 0 microseconds, 1 nanoseconds.
        nanoseconds: bool,
        /// Whether this worker tells the operator what happens to a live device: not when another
        /// one receives from it.
        tells: bool,
    },
    /// The worker copies packets from one trust domain into another.
    Gate {
        /// It leads into a domain that need not be trusted to take packets.
        into: bool,
        /// It leads out of a domain that need not be trusted to give what it promises.
        out_of: bool,
    },
    /// The worker stands in for one that was named too often: it takes what comes and drops it.
    Drain,
    /// The worker writes what others drop into a capture.
    Dump(DumpSpec),
    /// Neither.
    None,
}

impl EndSpec {
    /// Classes by which it counts early drops.
    pub fn classes(&self) -> usize {
        match self {
            EndSpec::Rx { early, .. } if !early.is_empty() => early.len() + 1,
            _ => 0,
        }
    }
}

/// A class of a live source's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlySpec {
    /// The operator's words for it.
    pub text: String,
    /// Which packets; of several classes the first counts.
    pub filter: Expr,
    /// Its weight ([`weir_port::Shares`]).
    pub weight: u32,
}

/// Where dropped packets are written, and what is said of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpSpec {
    /// The file.
    pub path: std::path::PathBuf,
    /// The policy's ports: number and name.
    pub ports: Vec<(u16, String)>,
    /// By lane in: the names of its producer's nodes.
    pub droppers: Vec<Vec<String>>,
}
