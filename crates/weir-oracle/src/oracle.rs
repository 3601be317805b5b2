//! The walk.

use std::collections::BTreeMap;

use weir_capture::Timestamp;
use weir_filter::{Expr, naive_matches};
use weir_mem::RegionError;
use weir_nf::{BuildError, Env, Instance, Kind, TagError, TagPlace, TagSpec};
use weir_packet::{DropReason, MOST_ROUNDS, Packet, TagBits};
use weir_plan::{Graph, Mark, Node, NodeId, NodeKind, Place, Setting, Tags, TagsError};

use crate::arrays::Arrays;
use crate::bench::{Bench, Done, LONGEST};
use crate::{Counts, Discarded, Input, Outcome, Sent};

/// Why a policy cannot be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// A µNF refused its configuration, or there is no such type.
    #[error("{name}: {source}")]
    Nf {
        /// Name of the instance.
        name: String,
        /// Why.
        source: BuildError,
    },
    /// Filters ask for more of tags than packets can carry.
    #[error(transparent)]
    Tags(#[from] TagsError),
    /// A µNF's tags cannot be set.
    #[error("{name}: {source}")]
    Tag {
        /// Name of the instance.
        name: String,
        /// Why.
        source: TagError,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// A packet comes in by a port that the policy does not have.
    #[error("the policy has no port {0}")]
    NoSuchPort(u16),
}

/// A policy, ready to be executed once.
pub struct Oracle {
    graph: Graph,
    tags: Tags,
    /// By node.
    nfs: Vec<Option<Box<dyn Instance>>>,
    bench: Bench,
    arrays: Arrays,
    /// Packets of each source so far.
    received: BTreeMap<u16, usize>,
    /// Time stamps of all packets received.
    times: Vec<Timestamp>,
    /// By node: place of the last packet that came there.
    last: Vec<usize>,
    outcome: Outcome,
}

/// Where a packet goes from a node.
enum Next {
    Node(NodeId, u8),
    /// Out of the graph, by these ports.
    Ports(NodeId, Vec<u16>),
    Nowhere(DropReason),
}

impl Oracle {
    /// Makes the policy's µNFs. `ports` are the numbers that devices are bound to: those that receive
    /// and those that send are in the outcome even when no packet comes by.
    ///
    /// # Errors
    /// [`OracleError`].
    pub fn new(graph: &Graph, ports: &[u16]) -> Result<Self, OracleError> {
        let tags = Tags::assign(graph)?;
        let make = |(id, node): (NodeId, &Node)| make(node, tags.of(id));
        let nfs = graph.node_ids().map(make).collect::<Result<Vec<_>, _>>()?;
        let mut outcome = Outcome::default();
        for edge in graph.edges() {
            outcome.edges.insert(edge.name.clone(), Counts::default());
        }
        for (id, node) in graph.node_ids() {
            match node.kind {
                NodeKind::Nf { .. } => {
                    outcome.nodes.insert(node.name.clone(), Counts::default());
                }
                NodeKind::Port { first, last } => {
                    for port in ports.iter().filter(|p| (first..=last).contains(p)) {
                        if graph.edges().iter().any(|e| e.to == id) {
                            outcome.nodes.insert(service("tx", node, *port), Counts::default());
                            outcome.sent.insert(*port, Vec::new());
                        }
                    }
                }
                NodeKind::Vnf(_) | NodeKind::Drop => {}
            }
        }
        Ok(Oracle {
            last: vec![0; nfs.len()],
            graph: graph.clone(),
            tags,
            nfs,
            bench: Bench::new()?,
            arrays: Arrays::default(),
            received: BTreeMap::new(),
            times: Vec::new(),
            outcome,
        })
    }

    /// Executes the policy on packets in the order of their arrival.
    ///
    /// # Errors
    /// [`OracleError::NoSuchPort`].
    pub fn run(mut self, packets: &[Input]) -> Result<Outcome, OracleError> {
        for packet in packets {
            self.packet(packet)?;
        }
        for id in self.graph.order().to_vec() {
            let (Some(Some(nf)), Some(place)) =
                (self.nfs.get_mut(id.index()), self.last.get(id.index()))
            else {
                continue;
            };
            let done = self.bench.end(nf.as_mut(), *place);
            self.leave_all(id, done);
        }
        for (node, nf) in self.graph.nodes().iter().zip(&self.nfs) {
            if let Some(nf) = nf {
                self.outcome.reports.insert(node.name.clone(), nf.report());
            }
        }
        Ok(self.outcome)
    }

    fn packet(&mut self, input: &Input) -> Result<(), OracleError> {
        let port = self.graph.port(input.port).ok_or(OracleError::NoSuchPort(input.port))?;
        let stream = self.received.entry(input.port).or_default();
        let place = *stream;
        *stream = stream.saturating_add(1);

        let node = self.node(port);
        let rx = service("rx", &node, input.port);
        if !input.link.is_ethernet() || input.bytes.len() > LONGEST {
            let reason =
                if input.link.is_ethernet() { DropReason::Oversize } else { DropReason::LinkType };
            let counts = self.counts(&rx);
            counts.packets = counts.packets.saturating_add(1);
            counts.drop(reason);
            return Ok(());
        }

        self.counts(&rx).count(input.bytes.len());
        self.times.push(input.time);
        let time = self.times.len() - 1;
        if let NodeKind::Port { first, last } = node.kind
            && first < last
        {
            self.arrays.come(port, input.port, &input.bytes, input.time.to_ns());
        }
        if let Some(mut packet) = self.bench.arrive(input, place, time) {
            let next = self.leave(port, 0, &mut packet);
            self.walk(packet, rx, next);
        }
        Ok(())
    }

    /// Walks a packet from the node called `at` to its end; then, or before, whatever it causes µNFs
    /// to send.
    fn walk(&mut self, packet: Packet, at: String, next: Next) {
        let (id, nf_input) = match next {
            Next::Node(id, nf_input) => (id, nf_input),
            Next::Ports(id, ports) => return self.send(packet, id, &ports),
            Next::Nowhere(reason) => {
                self.counts(&at).drop(reason);
                let bytes = self.bench.bytes(&packet);
                let (source, place, wire_len, time) = self.bench.origin(&packet);
                if let Some(&time) = self.times.get(time) {
                    let packet = Sent { source, place, bytes, wire_len, time };
                    self.outcome.discarded.push(Discarded {
                        by: at,
                        reason: reason.name(),
                        packet,
                    });
                }
                return self.bench.forget(packet);
            }
        };
        let node = self.node(id);
        let bytes = self.bench.bytes(&packet);
        match node.kind {
            // Who sends to `Drop` drops.
            NodeKind::Drop => self.walk(packet, at, Next::Nowhere(DropReason::Policy)),
            // A checked graph has none; and what leads to a port says which.
            NodeKind::Vnf(_) | NodeKind::Port { .. } => {
                self.walk(packet, at, Next::Nowhere(DropReason::NoEdge))
            }
            NodeKind::Nf { .. } => {
                self.counts(&node.name).count(bytes.len());
                if let Some(last) = self.last.get_mut(id.index()) {
                    *last = packet.entry().seq().get() as usize;
                }
                let Some(Some(nf)) = self.nfs.get_mut(id.index()) else { return };
                let done = self.bench.process(nf.as_mut(), nf_input, packet);
                self.leave_all(id, done);
            }
        }
    }

    /// A packet leaves by these ports, a copy by each.
    fn send(&mut self, packet: Packet, node: NodeId, ports: &[u16]) {
        let bytes = self.bench.bytes(&packet);
        let (source, place, wire_len, time) = self.bench.origin(&packet);
        self.outcome.copied += ports.len().saturating_sub(1) as u64;
        for port in ports {
            let tx = service("tx", &self.node(node), *port);
            self.counts(&tx).count(bytes.len());
            if let Some(&time) = self.times.get(time) {
                let sent = Sent { source, place, bytes: bytes.clone(), wire_len, time };
                self.outcome.sent.entry(*port).or_default().push(sent);
            }
        }
        self.bench.forget(packet);
    }

    /// Walks all packets that leave a µNF, one after the other.
    fn leave_all(&mut self, from: NodeId, done: Done) {
        let name = self.node(from).name;
        for (mut packet, verdict, kind) in done {
            match kind {
                Some(Kind::Created) => self.outcome.created += 1,
                Some(Kind::Copied) => self.outcome.copied += 1,
                Some(Kind::Released) | None => {}
            }
            let next = match verdict.as_output() {
                Some(output) => self.leave(from, usize::from(output), &mut packet),
                None => Next::Nowhere(verdict.as_drop().unwrap_or(DropReason::BadEntry)),
            };
            self.walk(packet, name.clone(), next);
        }
    }

    /// The first edge of a node's output that takes the packet.
    fn leave(&mut self, from: NodeId, output: usize, packet: &mut Packet) -> Next {
        let bytes = self.bench.bytes(packet);
        let (port, ..) = self.bench.origin(packet);
        let Some(output) = self.graph.outputs(from).get(output) else {
            return Next::Nowhere(DropReason::NoEdge);
        };
        for branch in &output.branches {
            let takes = |filter: &Expr| {
                let placed = self.tags.place(filter).resolve_ingress(port);
                let said = placed.resolve_slots(&|slot| self.bench.tag_word(packet, slot));
                naive_matches(&said, &bytes)
            };
            if !branch.filter.as_ref().is_none_or(takes) {
                continue;
            }
            let Some(edge) = self.graph.edge(branch.edge) else { continue };
            for Mark { slot, mask, word } in self.tags.marks(branch.edge) {
                self.bench.mark(packet, TagBits { slot: *slot, mask: *mask }, *word);
            }
            self.outcome.edges.entry(edge.name.clone()).or_default().count(bytes.len());
            if edge.closes {
                let rounds = packet.entry().aside().saturating_add(1);
                if rounds > MOST_ROUNDS {
                    return Next::Nowhere(DropReason::Loop);
                }
                *packet.entry_mut() = packet.entry().with_aside(rounds);
            }
            if let Some(NodeKind::Port { first, last }) = self.graph.node(edge.to).map(|n| &n.kind)
            {
                let ports = match first < last {
                    true => {
                        let array = (edge.to, *first, *last);
                        let time_ns = self.bench.time_ns(packet);
                        self.arrays.leave(array, branch.edge, port, &bytes, time_ns)
                    }
                    false => vec![*first],
                };
                return Next::Ports(edge.to, ports);
            }
            return Next::Node(edge.to, u8::try_from(edge.input).unwrap_or(u8::MAX));
        }
        Next::Nowhere(if output.default_drop { DropReason::Policy } else { DropReason::NoEdge })
    }

    fn node(&self, id: NodeId) -> Node {
        // A graph's edges lead to its own nodes.
        let nowhere = Node {
            name: String::new(),
            kind: NodeKind::Drop,
            outputs: Vec::new(),
            vnf: None,
            instance: None,
        };
        self.graph.node(id).cloned().unwrap_or(nowhere)
    }

    fn counts(&mut self, name: &str) -> &mut Counts {
        self.outcome.nodes.entry(name.to_owned()).or_default()
    }
}

fn make(node: &Node, tags: &[Setting]) -> Result<Option<Box<dyn Instance>>, OracleError> {
    let NodeKind::Nf { info, config } = &node.kind else {
        return Ok(None);
    };
    let specs: Vec<TagSpec> = tags.iter().map(spec).collect();
    let env = Env::new(&specs, 0)
        .map_err(|source| OracleError::Tag { name: node.name.clone(), source })?;
    let made = weir_nf::find(&info.name).and_then(|r| r.make(config, &env));
    made.map(Some).map_err(|source| OracleError::Nf { name: node.name.clone(), source })
}

fn spec(setting: &Setting) -> TagSpec {
    let place = match setting.place.clone() {
        Place::Flag { slot, bit } => TagPlace::Flag { slot, bit },
        Place::Number { slot } => TagPlace::Number { slot },
        Place::Text { slot, bit, patterns } => TagPlace::Text { slot, bit, patterns },
    };
    TagSpec { name: setting.name.clone(), place }
}

/// The name of a port's service, with the number for an array of ports.
fn service(which: &str, node: &Node, port: u16) -> String {
    match node.kind {
        NodeKind::Port { first, last } if first < last => format!("{which}:{}.{port}", node.name),
        _ => format!("{which}:{}", node.name),
    }
}
