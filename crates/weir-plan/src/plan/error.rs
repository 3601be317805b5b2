//! Why there is no plan.

use thiserror::Error;

use super::{MAX_LANES, MAX_PARTS, Options};
use crate::graph::{Graph, NodeKind};
use crate::size::{MAX_INSTANCES, NoReplicas, Parts, Sizing};

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
    /// What comes around a cycle goes on into another trust domain, where a gate would have to wait for it.
    #[error(
        "`{edge}` leads from one trust domain into another, and packets come there around a cycle: put the NFs of the \
         cycle, and the port that they leave by, into one domain (`--domain`), or declare a second instance for the way back"
    )]
    CycleAcross {
        /// The edge's name.
        edge: String,
    },
    /// A trust domain is given to an NF that there is not.
    #[error("--domain {instance}=...: the policy has no NF {instance}; it has {has}")]
    NoSuchInstance {
        /// The name.
        instance: String,
        /// Those it has.
        has: String,
    },
    /// Rings to what there is not are to drop.
    #[error("--drop-when-full {name}: the policy has no NF and no port {name}; it has {has}")]
    NothingToShed {
        /// The name.
        name: String,
        /// Those it has.
        has: String,
    },
    /// Instances are asked for of an NF that there is not.
    #[error("--instances or --scale {instance}=...: the policy has no NF {instance}; it has {has}")]
    NoneToMultiply {
        /// The name.
        instance: String,
        /// Those it has.
        has: String,
    },
    /// Several instances are asked for of an NF that may have one.
    #[error("--instances or --scale {instance}=...: {}", one_instance(nf, by))]
    OneInstance {
        /// Its name.
        instance: String,
        /// Its type.
        nf: String,
        /// Fields of its configuration for which it may have one only.
        by: Vec<String>,
    },
    /// Packets that the NF needs together would go to different instances.
    #[error(
        "--instances {instance}=...: {nf} needs its packets divided {needed}, so that those meet at one instance which have to; \
         {asked} they would not. Name other fields (`by=...`: those of its own, or some of them), or leave out how packets are divided"
    )]
    Divides {
        /// The NF's name.
        instance: String,
        /// Its type.
        nf: String,
        /// How they were to be divided.
        asked: String,
        /// How they have to be.
        needed: String,
    },
    /// The NFs of a segment's replicas do not stand behind each other.
    #[error(
        "--instances or --scale {nfs}=...: packets do not go on to {nf} as they were divided for another of these, so their instances cannot be a \
         segment's replicas; give {nf} instances of its own (`--instances {nf}=N`)"
    )]
    Parted {
        /// Their names.
        nfs: String,
        /// The one.
        nf: String,
    },
    /// One stands between them.
    #[error(
        "--instances or --scale {nfs}=...: {nf} stands between these, and its worker would wait for theirs and they for it; name it among them"
    )]
    Between {
        /// Their names.
        nfs: String,
        /// The one.
        nf: String,
    },
    /// One cannot be in a worker with the others.
    #[error(
        "--instances or --scale {nfs}=...: {nf} is of another trust domain or outside program than the others, so it shares no worker with them; \
         give it instances of its own (`--instances {nf}=N`)"
    )]
    OtherWorker {
        /// Their names.
        nfs: String,
        /// The one.
        nf: String,
    },
    /// An NF that cannot have its packets divided by one of their ends.
    #[error(
        "--instances or --scale {nfs}=...: packets are divided by one of their ends there, and {nf} needs others together than those of a flow, \
         changes addresses or ports, or holds packets; give it instances of its own (`--instances {nf}=N`)"
    )]
    Unlike {
        /// The NFs' names.
        nfs: String,
        /// Which.
        nf: String,
    },
    /// Flows may not be where one end of them says.
    #[error(
        "--instances or --scale {nfs}=...: packets may leave {nf} without having been at the NF among them by whose ports or clients they \
         are divided, so both directions of a flow may not meet; have filters say by which port such packets come (`ingress == 0`; where an NF of the graph makes packets, holds some or has timers that says nothing), or \
         give {nf} instances of its own (`--instances {nf}=N`)"
    )]
    Past {
        /// The NFs' names.
        nfs: String,
        /// Where they leave.
        nf: String,
    },
    /// It cannot be said of a port's packets which of their ends counts.
    #[error(
        "--instances or --scale {nfs}=...: packets of one port come to both sides of {nf}, by which they are divided; have filters say \
         by which port such packets come (`ingress == 0`), or give {nf} instances of its own (`--instances {nf}=N`)"
    )]
    BothSides {
        /// The NFs' names.
        nfs: String,
        /// The NF with the sides.
        nf: String,
    },
    /// More instances than there may be, or none.
    #[error(
        "--instances or --scale {instance}=...: {count} instances are asked for; 1 to {MAX_INSTANCES} can be"
    )]
    ManyInstances {
        /// The NF's name.
        instance: String,
        /// How many.
        count: usize,
    },
}

impl From<NoReplicas> for PlanError {
    fn from(why: NoReplicas) -> Self {
        match why {
            NoReplicas::Parted(nfs, nf) => PlanError::Parted { nfs, nf },
            NoReplicas::Between(nfs, nf) => PlanError::Between { nfs, nf },
            NoReplicas::Unlike(nfs, nf) => PlanError::Unlike { nfs, nf },
            NoReplicas::Past(nfs, nf) => PlanError::Past { nfs, nf },
            NoReplicas::BothSides(nfs, nf) => PlanError::BothSides { nfs, nf },
            NoReplicas::Apart(nfs, nf) => PlanError::OtherWorker { nfs, nf },
        }
    }
}

/// Each NF or port to which rings are to drop must be there.
pub(super) fn shed(graph: &Graph, options: &Options) -> Result<(), PlanError> {
    let nodes = graph.nodes().iter().filter(|node| node.kind != NodeKind::Drop);
    let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
    match options.shed.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(PlanError::NothingToShed { name: name.clone(), has: names.join(", ") }),
        None => Ok(()),
    }
}

/// Why an NF has one instance, and what to do.
fn one_instance(nf: &str, by: &[String]) -> String {
    if by.is_empty() {
        return format!(
            "the description of {nf} allows one instance; say there what packets must meet (`affinity`, `scaling`), or leave it at one"
        );
    }
    let fields: Vec<String> = by.iter().map(|field| format!("`{field}`")).collect();
    let fields = fields.join(" and ");
    format!(
        "{nf} has one instance when its configuration has {fields}, as all packets must meet there for it; leave {fields} out of the \
         policy, or leave it at one"
    )
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
                let (nf, by) = (info.name.clone(), info.alone_by.clone());
                return Err(PlanError::OneInstance { instance: name(), nf, by });
            }
            NodeKind::Nf { info, .. } => {
                let parts = asked.parts(info.work.affinity).filter(|_| count > 1);
                if let Some(Parts { asked, needed }) = parts {
                    let nf = info.name.clone();
                    return Err(PlanError::Divides { instance: name(), nf, asked, needed });
                }
            }
            NodeKind::Port { .. } | NodeKind::Vnf(_) | NodeKind::Drop => {
                let has = "NFs only, not ports".to_owned();
                return Err(PlanError::NoneToMultiply { instance: name(), has });
            }
        }
    }
    Ok(())
}
