//! The balance port: one NF's packets over several instances of it (µNF paper §IV-C, LoadBalancedEgressPort; E2 §5.1).
//!
//! A packet's flow hash has a bucket, and the bucket an instance. To go from n to n + 1 instances is to
//! give the new one a share of the buckets, so few flows would move; those under way do not move at all
//! (E2 §5.4) where their instance says which it has: they become exceptions of a [`FlowDirector`]. It learns no flow itself.

mod buckets;
mod director;

pub use buckets::{BUCKETS, Buckets, BucketsError, MOST_INSTANCES};
pub use director::{DirectError, FlowDirector};

use weir_packet::flow::Side;
use weir_packet::headers::Layers;
use weir_packet::{Bytes, Direction, FlowFields, FlowHasher, FlowKey, FragmentTable};

/// Fragmented datagrams whose first fragment is remembered, so that later ones follow it.
const FRAGMENTED: usize = 1024;

/// What decides which instance a packet goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// In turn, by the weights; packets of a flow meet different instances.
    RoundRobin,
    /// To the instance with the least waiting before it, for its weight; so too.
    LeastLoaded,
    /// Packets that agree in these fields meet the same instance.
    Flow {
        /// The fields.
        fields: FlowFields,
    },
    /// Packets go to who has the lease of the port of one of their ends, which one depends on the side that they come from
    /// ([`weir_packet::flow::lease`]). What has none goes by its flow.
    Ends,
    /// Packets of a client's end (address, port, protocol) meet: their source's or their destination's, by the side that they come from.
    Client,
}

/// By what hash packets of a flow are divided, for who remembers it by its keys.
#[derive(Clone, Copy, Debug)]
pub struct Placer {
    rule: Rule,
    hasher: FlowHasher,
}

impl Placer {
    /// The hash of packets with this key. `start`: the direction that packets have by it that come from the first side: from the
    /// client where clients decide, from inside where leases of ports do. Elsewhere it says nothing.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey, start: Direction) -> u64 {
        match self.rule {
            Rule::Client => self.hasher.hash(&key.narrowed(FlowFields::SOURCE_END, start)),
            // Of who translates the key is an end already; of who stands on its inner side it is a whole flow's.
            Rule::Ends => self.hasher.place(&key.end_at(start, Side::Inside).unwrap_or(*key)),
            Rule::Flow { .. } | Rule::RoundRobin | Rule::LeastLoaded => self.hasher.place(key),
        }
    }

    /// True when flows of different keys may have one hash because they are of one client: they go together.
    #[must_use]
    pub fn joins_flows(&self) -> bool {
        self.rule == Rule::Client
    }

    /// The same where it is not known who began: `None` if that counts.
    #[must_use]
    pub fn hash_of(&self, key: &FlowKey) -> Option<u64> {
        let counts = match self.rule {
            Rule::Client => true,
            Rule::Ends => key.end_at(Direction::Up, Side::Inside).is_some(),
            Rule::Flow { .. } | Rule::RoundRobin | Rule::LeastLoaded => false,
        };
        (!counts).then(|| self.hasher.place(key))
    }
}

/// Distributes packets.
#[derive(Debug)]
pub struct Balance {
    rule: Rule,
    weights: Vec<u32>,
    buckets: Buckets,
    hasher: FlowHasher,
    fragments: Option<FragmentTable>,
    turn: u16,
}

impl Balance {
    /// Over as many instances as there are weights. Equal seeds distribute alike, in every process.
    ///
    /// # Errors
    /// When there are too many instances, or none has a weight.
    pub fn new(rule: Rule, weights: &[u32], seed: u128) -> Result<Self, BucketsError> {
        let hasher = FlowHasher::new(seed);
        let fragments = match rule {
            Rule::Flow { fields } if fields.asks_ports() => {
                Some(FragmentTable::new(FRAGMENTED, hasher))
            }
            Rule::Ends | Rule::Client => Some(FragmentTable::new(FRAGMENTED, hasher)),
            Rule::Flow { .. } | Rule::RoundRobin | Rule::LeastLoaded => None,
        };
        let buckets = Buckets::new(weights)?;
        Ok(Balance { rule, weights: weights.to_vec(), buckets, hasher, fragments, turn: 0 })
    }

    /// What it remembers of datagrams that have not come whole, if it looks at ports.
    #[must_use]
    pub fn fragments(&mut self) -> Option<&mut FragmentTable> {
        self.fragments.as_mut()
    }

    /// Changes weights and the number of instances; gives how many buckets moved. A weight of 0: no packets.
    ///
    /// # Errors
    /// As [`Balance::new`]; nothing has changed then.
    pub fn reweigh(&mut self, weights: &[u32]) -> Result<usize, BucketsError> {
        let moved = self.buckets.reweigh(weights)?;
        self.weights = weights.to_vec();
        Ok(moved)
    }

    /// What decides where a packet goes, of a rule that goes by flows: the hash of its flow, as the rule sees
    /// flows. `None` for other rules. `layers` must have depth L4.
    #[inline]
    pub fn flow_hash<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now_ns: u64,
    ) -> Option<u64> {
        match self.rule {
            Rule::Flow { fields } => Some(self.hash(bytes, layers, fields, now_ns)),
            Rule::Ends | Rule::Client | Rule::RoundRobin | Rule::LeastLoaded => None,
        }
    }

    /// The same of a rule that goes by one of the ends, for a packet that comes from `side`.
    #[inline]
    pub fn end_hash<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now_ns: u64,
        side: Side,
    ) -> u64 {
        let flow = match &mut self.fragments {
            Some(fragments) => fragments.key(bytes, layers, now_ns),
            None => FlowKey::from_packet(bytes, layers),
        };
        match flow {
            Some((key, direction)) if self.rule == Rule::Client => {
                let from_client = match side {
                    Side::Inside => direction,
                    Side::Outside => direction.reverse(),
                };
                self.placer().hash(&key, from_client)
            }
            Some((key, direction)) => {
                let end = key.end_at(direction, side);
                self.hasher.place(&end.unwrap_or(key))
            }
            None => self.hasher.hash_frame(bytes),
        }
    }

    /// Gives the same hashes for what is remembered of flows.
    #[must_use]
    pub fn placer(&self) -> Placer {
        Placer { rule: self.rule, hasher: self.hasher }
    }

    /// The instance of a hash.
    #[inline]
    #[must_use]
    pub fn of_hash(&self, hash: u64) -> u8 {
        self.buckets.instance(hash)
    }

    /// The instance that a packet goes to. `layers` must have depth L4; `now_ns` is packet time.
    /// `waiting`: packets before each instance; only looked at by rules that ask for the load.
    #[inline]
    pub fn instance<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        now_ns: u64,
        waiting: &[usize],
    ) -> u8 {
        match self.rule {
            Rule::RoundRobin => {
                // By an odd number of buckets on: each comes once in a round, and their neighbours
                // far apart, so that weights hold over short times too.
                self.turn = self.turn.wrapping_add(40_503);
                self.buckets.at(self.turn)
            }
            Rule::LeastLoaded => least(&self.weights, waiting),
            // Without a side: as if it came from inside.
            Rule::Ends | Rule::Client => {
                let hash = self.end_hash(bytes, layers, now_ns, Side::Inside);
                self.of_hash(hash)
            }
            Rule::Flow { fields } => {
                let hash = self.hash(bytes, layers, fields, now_ns);
                self.buckets.instance(hash)
            }
        }
    }

    #[inline]
    fn hash<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        layers: &Layers,
        fields: FlowFields,
        now_ns: u64,
    ) -> u64 {
        let flow = match &mut self.fragments {
            Some(fragments) => fragments.key(bytes, layers, now_ns),
            None => FlowKey::from_packet(bytes, layers),
        };
        match flow {
            Some((key, direction)) => self.hasher.hash(&key.narrowed(fields, direction)),
            None => self.hasher.hash_frame(bytes),
        }
    }
}

/// The instance with the least waiting for its weight; of equal ones the first.
#[inline]
fn least(weights: &[u32], waiting: &[usize]) -> u8 {
    let load = |i: usize| waiting.get(i).copied().unwrap_or(0) as u128;
    let mut best: Option<(u8, u128, u128)> = None;
    for (i, weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0) {
        let (load, weight) = (load(i), u128::from(*weight));
        // load / weight < best's, without a division.
        if best.is_none_or(|(_, l, w)| load * w < l * weight) {
            best = Some((i as u8, load, weight));
        }
    }
    best.map_or(0, |(i, ..)| i)
}
