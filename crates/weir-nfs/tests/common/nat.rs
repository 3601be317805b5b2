//! A translator of one or several instances, over which packets divide as they do in a graph, and the packets of its tests.
#![allow(dead_code)] // Each test binary uses its part.

use crate::common::left_by;
use serde_json::{Value, json};
use std::cell::Cell;
use weir_nf::flow::Side;
use weir_nf::testing::{Bench, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Depth, DropReason, Env, FlowHasher, Instance, Take, Walk, find};
use weir_nfs::napt::Napt;
use weir_packet::parse;
use weir_port::balance::{Balance, Buckets, FlowDirector, Rule};

const SEED: u64 = 7;

/// The instances, and who divides.
pub struct Nat {
    instances: Vec<Bench>,
    balance: Balance,
    director: FlowDirector,
    outer: Vec<std::net::Ipv4Addr>,
    /// What leaves to an outer address comes back from outside.
    pub has_edge_back: bool,
}

/// What was handed over, by instance.
pub struct Saved(Vec<(Vec<u8>, Vec<u8>)>);

impl Nat {
    pub fn new(count: usize, config: Value) -> Self {
        let env = Env::new(&[], SEED).unwrap().of_several(count as u32);
        let outer = config["addresses"].as_array().unwrap().iter();
        let outer = outer.map(|address| address.as_str().unwrap().parse().unwrap()).collect();
        let bench = |_| Bench::with_env::<Napt>(config.clone(), &env).unwrap();
        let weights = vec![1; count];
        Nat {
            instances: (0..count).map(bench).collect(),
            balance: Balance::new(Rule::Ends, &weights, SEED.into()).unwrap(),
            director: FlowDirector::new(&weights, SEED.into(), 0).unwrap(),
            outer,
            has_edge_back: true,
        }
    }

    /// Where a packet goes.
    pub fn instance_of(&mut self, input: u8, frame: &[u8]) -> usize {
        self.divided(input, frame, 0)
    }

    fn divided(&mut self, input: u8, frame: &[u8], now_ns: u64) -> usize {
        let side = if input == 0 { Side::Inside } else { Side::Outside };
        let layers = parse(frame, Depth::L4);
        let hash = self.balance.end_hash(frame, &layers, now_ns, side);
        self.director.at(hash).into()
    }

    pub fn run(&mut self, input: u8, frame: &[u8], now_ns: u64) -> Seen {
        let instance = self.divided(input, frame, now_ns);
        let wire = [(frame, frame.len(), now_ns)];
        let seen = self.instances[instance].run_by(input, &wire).remove(0);
        let layers = parse(&seen.bytes[..], Depth::L4);
        let to = layers.ipv4(&seen.bytes[..]).map(|(_, to)| to);
        let goes_out = input == 0 && seen.verdict == Ok("outside");
        match goes_out && self.has_edge_back && to.is_some_and(|to| self.outer.contains(&to)) {
            true => self.run(1, &seen.bytes, now_ns),
            false => seen,
        }
    }

    /// A lease, with all its mappings, goes to an instance; how many mappings went.
    pub fn move_lease(&mut self, lease: u16, to: usize) -> usize {
        let bucket = lease * 2048;
        let from = usize::from(self.director.of_bucket(bucket));
        if from == to {
            return 0;
        }
        let hasher = FlowHasher::new(SEED.into());
        let mut records = Vec::new();
        let take = Take {
            look: usize::MAX,
            take: usize::MAX,
            chosen: &mut |key, _| Buckets::bucket(hasher.place(key)) == bucket,
            to: &mut |_, record| records.push(record.to_vec()),
        };
        self.instances[from].instance().take_flows(&mut Walk::default(), take).unwrap();
        for record in &records {
            self.instances[to].instance().put_flow(record).unwrap();
        }
        self.director.set_bucket(bucket, to as u8).unwrap();
        records.len()
    }

    pub fn reconfigure(&mut self, config: &Value) {
        let env = Env::new(&[], SEED).unwrap().of_several(self.instances.len() as u32);
        for bench in &mut self.instances {
            bench.instance().reconfigure(config, &env).unwrap();
        }
    }

    /// Mappings that there are.
    pub fn mappings(&self) -> usize {
        self.instances.iter().map(|bench| bench.flows().0).sum()
    }

    pub fn report(&self) -> Value {
        let reports: Vec<Value> = self.instances.iter().map(Bench::report).collect();
        find("Napt").unwrap().together(&reports).unwrap()
    }

    pub fn save(&mut self) -> Saved {
        let save = |bench: &mut Bench| {
            let mut flows = Vec::new();
            let nf: &dyn Instance = bench.instance();
            nf.save_flows(&mut flows).unwrap();
            (bench.save(), flows)
        };
        Saved(self.instances.iter_mut().map(save).collect())
    }

    pub fn restore(&mut self, saved: &Saved) {
        for (bench, (shared, flows)) in self.instances.iter_mut().zip(&saved.0) {
            bench.restore(shared).unwrap();
            bench.instance().restore_flows(flows).unwrap();
        }
    }
}

pub const INSIDE: u8 = 0;
pub const OUTSIDE: u8 = 1;
pub const HOST: [u8; 4] = [10, 0, 0, 5];
pub const OTHER_HOST: [u8; 4] = [10, 0, 0, 6];
pub const OUTER: [u8; 4] = [198, 51, 100, 1];
pub const SERVER: [u8; 4] = [203, 0, 113, 9];
pub const SECOND: u64 = 1_000_000_000;
pub const SYN: u8 = 2;
pub const SYN_ACK: u8 = 18;
pub const ACK: u8 = 16;
pub const RST: u8 = 4;

pub fn config() -> Value {
    json!({"addresses": ["198.51.100.1"]})
}

thread_local! {
    /// How many instances a test's translator has.
    pub static INSTANCES: Cell<usize> = const { Cell::new(1) };
}

/// Tests that hold for one instance as for several.
#[allow(unused_macros)] // Each test binary uses its part.
macro_rules! with_1_2_and_3_instances {
    ($(fn $name:ident() $body:block)*) => {$(
        #[test]
        fn $name() {
            for count in 1..=3 {
                println!("{count} instances");
                crate::nat::INSTANCES.set(count);
                $body
            }
        }
    )*};
}

pub fn bench(config: Value) -> Nat {
    Nat::new(INSTANCES.get(), config)
}

pub fn at(bench: &mut Nat, input: u8, second: u64, frame: &[u8]) -> Seen {
    bench.run(input, frame, second * SECOND)
}

pub fn from(bench: &mut Nat, input: u8, frame: &Frame<'_>) -> Seen {
    at(bench, input, 1, &frame.build())
}

pub type End = ([u8; 4], u16);

/// Source and destination of what left by `output`, after a look at all checksums.
pub fn ends(seen: &Seen, output: &str) -> (End, End) {
    let (bytes, layers) = (&seen.bytes[..], left_by(seen, output));
    let (source, destination) = layers.ipv4(bytes).unwrap();
    let id = || {
        u16::from_be_bytes([bytes[usize::from(layers.l4) + 4], bytes[usize::from(layers.l4) + 5]])
    };
    let (a, b) = layers.ports(bytes).unwrap_or_else(|| (id(), id()));
    ((source.octets(), a), (destination.octets(), b))
}

pub fn dropped(seen: &Seen) -> DropReason {
    seen.verdict.unwrap_err()
}
