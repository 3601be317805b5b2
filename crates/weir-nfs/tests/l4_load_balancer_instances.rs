//! Several instances of L4LoadBalancer, over which packets divide by their clients' ends, do to each packet what one does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

#[path = "common/balancer.rs"]
mod balancer;
mod common;

use balancer::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use weir_nf::flow::Side;
use weir_nf::testing::{Bench, Seen};
use weir_nf::{Depth, Env, FlowKey, Take, Walk, find};
use weir_nfs::l4_load_balancer::L4LoadBalancer;
use weir_packet::{Direction, parse};
use weir_port::balance::{Balance, FlowDirector, Placer, Rule};

const SEED: u64 = 7;

/// The instances, and who divides.
struct Several {
    instances: Vec<Bench>,
    balance: Balance,
    director: FlowDirector,
}

impl Several {
    fn new(count: usize, config: &Value) -> Self {
        let env = Env::new(&[], SEED).unwrap().of_several(count as u32);
        let bench = |_| Bench::with_env::<L4LoadBalancer>(config.clone(), &env).unwrap();
        let weights = vec![1; count];
        Several {
            instances: (0..count).map(bench).collect(),
            balance: Balance::new(Rule::Client, &weights, SEED.into()).unwrap(),
            director: FlowDirector::new(&weights, SEED.into(), 0).unwrap(),
        }
    }

    fn hash(&mut self, input: u8, frame: &[u8], ns: u64) -> u64 {
        let side = if input == CLIENTS { Side::Inside } else { Side::Outside };
        self.balance.end_hash(frame, &parse(frame, Depth::L4), ns, side)
    }

    fn run(&mut self, input: u8, ns: u64, frame: &[u8]) -> Seen {
        let hash = self.hash(input, frame, ns);
        let instance = usize::from(self.director.at(hash));
        self.instances[instance].run_by(input, &[(frame, frame.len(), ns)]).remove(0)
    }

    /// All flows whose packets have this hash go to an instance; how many went.
    fn move_client(&mut self, hash: u64, to: usize) -> usize {
        let from = usize::from(self.director.at(hash));
        if from == to {
            return 0;
        }
        let placer: Placer = self.balance.placer();
        let mut records = Vec::new();
        let take = Take {
            look: usize::MAX,
            take: usize::MAX,
            chosen: &mut |key: &FlowKey, start: Direction| placer.hash(key, start) == hash,
            to: &mut |_, record| records.push(record.to_vec()),
        };
        self.instances[from].instance().take_flows(&mut Walk::default(), take).unwrap();
        for record in &records {
            self.instances[to].instance().put_flow(record).unwrap();
        }
        self.director.divert(hash, to as u8).unwrap();
        records.len()
    }

    fn report(&self) -> Value {
        let reports: Vec<Value> = self.instances.iter().map(Bench::report).collect();
        let mut report = find("L4LoadBalancer").unwrap().together(&reports).unwrap();
        for server in report["servers"].as_array_mut().unwrap() {
            // Each instance counts failures in a row of what it sends itself.
            server.as_object_mut().unwrap().remove("failures");
        }
        report
    }
}

/// Two services of the same servers, so a client's port may talk to a server by either; one of datagrams; one of IPv6.
fn config() -> Value {
    let mut other = service("198.51.100.81:80", "tcp", 5);
    other["backends"] = service(SERVICE, "tcp", 5)["backends"].clone();
    json!({
        "failures": 0,
        "services": [
            service(SERVICE, "tcp", 5), other, service(SERVICE, "udp", 3), service(SERVICE6, "tcp", 3),
        ],
    })
}

/// What may come.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// TCP of a client with these flags to service 0 (the first), 1 (the second) or 2 (IPv6).
    Ask(u16, usize, u8),
    /// A datagram of a client, in fragments or whole, of which the last comes `late`, as its flow may have moved.
    Datagram { client: u16, whole: bool, late: bool },
    /// What the client's server says to it, with these flags.
    Answer(u16, usize, u8),
    /// An ICMP error about what was sent last by a client, of its server or of a router.
    Error { client: u16, to: usize, by_server: bool, unreachable: bool },
    /// An ICMP error about the last answer, of the client.
    ErrorOfClient(u16, usize),
    /// What is for nobody, by either input.
    Stranger(u16, u8),
    /// All that a client has goes to an instance.
    Move(u16, usize, usize),
    /// Time passes, in seconds.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0_u16..12;
    let flags = || prop::sample::select(vec![SYN, SYN_ACK, ACK, RST_ACK, FIN_ACK]);
    prop_oneof![
        4 => (client(), 0_usize..3, flags()).prop_map(|(c, s, f)| Step::Ask(c, s, f)),
        2 => (client(), any::<bool>(), any::<bool>())
            .prop_map(|(client, whole, late)| Step::Datagram { client, whole, late }),
        4 => (client(), 0_usize..4, flags()).prop_map(|(c, s, f)| Step::Answer(c, s, f)),
        1 => (client(), 0_usize..4, any::<bool>(), any::<bool>()).prop_map(
            |(client, to, by_server, unreachable)| Step::Error { client, to, by_server, unreachable }
        ),
        1 => (client(), 0_usize..4).prop_map(|(c, s)| Step::ErrorOfClient(c, s)),
        1 => (client(), 0_u8..2).prop_map(|(c, i)| Step::Stranger(c, i)),
        2 => (client(), 0_usize..4, 0_usize..3).prop_map(|(c, s, to)| Step::Move(c, s, to)),
        1 => (0_u64..400).prop_map(Step::Wait),
    ]
}

fn at_service(n: usize) -> SocketAddr {
    end([SERVICE, "198.51.100.81:80", SERVICE6, SERVICE][n])
}

/// One and several, side by side.
struct Pair {
    one: Several,
    several: Several,
    now: u64,
    /// What left last to a server, by client and service.
    sent: HashMap<(u16, usize), Vec<u8>>,
    /// What left last to a client.
    answered: HashMap<(u16, usize), Vec<u8>>,
}

impl Pair {
    fn run(&mut self, input: u8, frame: &[u8]) -> Seen {
        self.now += 1000;
        let expected = self.one.run(input, self.now, frame);
        let seen = self.several.run(input, self.now, frame);
        assert_eq!((seen.verdict, &seen.bytes), (expected.verdict, &expected.bytes));
        expected
    }

    /// The server that a client's connection has.
    fn server(&self, client: u16, to: usize) -> Option<SocketAddr> {
        let bytes = &self.sent.get(&(client, to))?[..];
        let layers = parse(bytes, Depth::L4);
        let ((_, ip), (_, port)) = (layers.ips(bytes)?, layers.ports(bytes)?);
        Some(SocketAddr::new(ip, port))
    }

    fn ask(&mut self, n: u16, to: usize, frame: &[u8]) {
        let seen = self.run(CLIENTS, frame);
        if seen.verdict == Ok("servers") {
            self.sent.insert((n, to), seen.bytes);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ask(n, to, flags) => {
                let service = at_service(to);
                self.ask(n, to, &tcp(client(n, service), service, flags));
            }
            Step::Datagram { client: n, whole, late } => {
                let service = at_service(3);
                let from = client(n, service);
                let id = (self.now / 1000) as u16;
                let datagram = frame(from, service)
                    .id(id.into())
                    .udp(from.port(), service.port())
                    .payload(&[7; 90]);
                if whole {
                    return self.ask(n, 3, &datagram.build());
                }
                let mut pieces = datagram.fragments(48);
                let last = pieces.pop().unwrap();
                self.ask(n, 3, &pieces[0]);
                if late {
                    self.step(Step::Move(n, 3, usize::from(n) % 3));
                }
                pieces.iter().skip(1).for_each(|piece| drop(self.run(CLIENTS, piece)));
                self.run(CLIENTS, &last);
            }
            Step::Answer(n, to, flags) => {
                let Some(server) = self.server(n, to) else { return };
                let client = client(n, server);
                let answer = if to == 3 { udp(server, client) } else { tcp(server, client, flags) };
                let seen = self.run(SERVERS, &answer);
                if seen.verdict == Ok("clients") {
                    self.answered.insert((n, to), seen.bytes);
                }
            }
            Step::Error { client: n, to, by_server, unreachable } => {
                let (Some(server), Some(sent)) = (self.server(n, to), self.sent.get(&(n, to)))
                else {
                    return;
                };
                let (router, client) = (client(500, server), client(n, server));
                let from = if by_server { server } else { router };
                let error = error(from, client, unreachable, &sent.clone());
                self.run(SERVERS, &error);
            }
            Step::ErrorOfClient(n, to) => {
                let Some(answered) = self.answered.get(&(n, to)) else { return };
                let service = at_service(to);
                let error = error(client(n, service), service, false, &answered.clone());
                self.run(CLIENTS, &error);
            }
            Step::Stranger(n, input) => {
                let (stranger, other) = (client(n + 100, end(SERVICE)), end("203.0.113.9:80"));
                let (from, to) = if n % 2 == 0 { (stranger, other) } else { (other, stranger) };
                self.run(input, &tcp(from, to, SYN));
            }
            Step::Move(n, to, instance) => {
                let service = at_service(to);
                let asks = match to {
                    3 => udp(client(n, service), service),
                    _ => tcp(client(n, service), service, ACK),
                };
                let hash = self.several.hash(CLIENTS, &asks, self.now);
                let instance = instance % self.several.instances.len();
                self.several.move_client(hash, instance);
            }
            Step::Wait(seconds) => self.now += seconds * SECOND,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order, also while clients move from instance to instance: the same packets leave by the same outputs,
    /// the same are dropped, and all counters together are those of one instance.
    #[test]
    fn several_instances_balance_as_one_does(
        count in 2_usize..4,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let config = config();
        let (one, several) = (Several::new(1, &config), Several::new(count, &config));
        let (sent, answered) = (HashMap::new(), HashMap::new());
        let mut pair = Pair { one, several, now: SECOND, sent, answered };
        steps.into_iter().for_each(|step| pair.step(step));
        prop_assert_eq!(pair.several.report(), pair.one.report());
    }
}

#[test]
fn both_directions_of_all_that_a_client_has_meet_and_move_together() {
    let mut several = Several::new(3, &config());
    let mut met = [false; 3];
    for n in 0..60 {
        let at: Vec<SocketAddr> = (0..2).map(at_service).collect();
        let asks: Vec<_> = at.iter().map(|to| tcp(client(n, *to), *to, SYN)).collect();
        let sent: Vec<_> = asks.iter().map(|ask| several.run(CLIENTS, SECOND, ask)).collect();
        let servers: Vec<_> = sent.iter().map(|seen| ends(seen, "servers").1).collect();
        // One port of the client talks to different servers by the two services, as answers say no more than that.
        assert_ne!(servers[0], servers[1]);
        let hash = several.hash(CLIENTS, &asks[0], SECOND);
        met[usize::from(several.director.at(hash))] = true;
        for ((server, service), ask) in servers.iter().zip(&at).zip(&asks) {
            let answer = tcp(*server, client(n, *server), SYN_ACK);
            assert_eq!(several.hash(SERVERS, &answer, SECOND), hash);
            assert_eq!(several.hash(CLIENTS, ask, SECOND), hash);
            assert_eq!(ends(&several.run(SERVERS, SECOND, &answer), "clients").0, *service);
        }
        let to = (usize::from(several.director.at(hash)) + 1) % 3;
        assert_eq!(several.move_client(hash, to), 2);
        for (server, ask) in servers.iter().zip(&asks) {
            assert_eq!(ends(&several.run(CLIENTS, SECOND, ask), "servers").1, *server);
        }
    }
    assert_eq!(met, [true; 3], "an instance had no client");
}
