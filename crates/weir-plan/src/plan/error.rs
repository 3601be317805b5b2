//! Why there is no plan.

use thiserror::Error;

use super::{MAX_LANES, MAX_PARTS};
use crate::graph::{Graph, NodeKind};
use crate::size::{MAX_INSTANCES, Sizing};

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// Edges times sources are too many.
    #[error(
        "the policy needs {count} rings, more than {MAX_LANES}; write fewer port numbers or edges"
    )]
    TooManyLanes {
        /// How many rings it needs.
        count: usize,
    },
    /// Instances times instances are too many.
    #[error(
        "the instances need {count} edges between them, more than {MAX_PARTS}; ask for fewer, as in `--instances NAME=1`, \
         or state less traffic"
    )]
    TooManyParts {
        /// How many.
        count: u64,
    },
    /// `auto` has more to keep apart than cores for it.
    #[error(
        "--isolate auto: trust domains and outside programs make {workers} NF workers, and {cores} core(s) hold {most}; \
         give more cores, or put neighbours into one domain"
    )]
    TooManyWorkers {
        /// How many there would be.
        workers: usize,
        /// How many there may be.
        most: usize,
        /// Cores for NFs.
        cores: usize,
    },
    /// A trust domain is given to an NF that there is not.
    #[error("--domain {instance}=...: the policy has no NF {instance}; it has {has}")]
    NoSuchInstance {
        /// The name.
        instance: String,
        /// Those it has.
        has: String,
    },
    /// Instances are asked for of an NF that there is not.
    #[error("--instances {instance}=...: the policy has no NF {instance}; it has {has}")]
    NoneToMultiply {
        /// The name.
        instance: String,
        /// Those it has.
        has: String,
    },
    /// Several instances are asked for of an NF that may have one.
    #[error(
        "--instances {instance}=...: the description of {nf} allows one instance; say there what packets must meet \
         (`affinity`, `scaling`), or leave it at one"
    )]
    OneInstance {
        /// Its name.
        instance: String,
        /// Its type.
        nf: String,
    },
    /// More instances than there may be, or none.
    #[error(
        "--instances {instance}=...: {count} instances are asked for; 1 to {MAX_INSTANCES} can be"
    )]
    ManyInstances {
        /// The NF's name.
        instance: String,
        /// How many.
        count: usize,
    },
}

/// Each NF that instances are asked for must be there and allow them.
pub(super) fn asked_for(graph: &Graph, sizing: Sizing<'_>) -> Result<(), PlanError> {
    for (instance, asked) in sizing.asked {
        let name = || instance.clone();
        let Some(node) = graph.find(instance).and_then(|id| graph.node(id)) else {
            let nfs = graph.nodes().iter().filter(|node| node.is_nf());
            let has = nfs.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(PlanError::NoneToMultiply { instance: name(), has });
        };
        let count = asked.weights.len();
        if count == 0 || u32::try_from(count).is_ok_and(|count| count > MAX_INSTANCES) {
            return Err(PlanError::ManyInstances { instance: name(), count });
        }
        match &node.kind {
            NodeKind::Nf { info, .. } if count > 1 && !info.work.scales => {
                return Err(PlanError::OneInstance { instance: name(), nf: info.name.clone() });
            }
            NodeKind::Nf { .. } => {}
            NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => {
                let has = "NFs only, not ports".to_owned();
                return Err(PlanError::NoneToMultiply { instance: name(), has });
            }
        }
    }
    Ok(())
}
