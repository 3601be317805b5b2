//! Instances of µNFs whose packets meet by fields of the 5-tuple that their descriptors choose.

use super::*;
use serde::{Deserialize, Serialize};
use weir_nf::{
    Affinity, ConfigError, Ctx, Descriptor, Effect, Env, Field, LayerAccess, Merge, Nf, NoConfig,
    Packets, ReadOnly, Touch,
};
use weir_plan::service::Server;
use weir_plan::{Asked, Sizing};

/// What a packet is, as its payload says: so tests know of later fragments, too, what belongs together.
#[derive(Clone, Copy)]
struct Identity {
    v6: bool,
    vlan: bool,
    from: (u8, u8),
    to: (u8, u8),
    proto: u8,
}

/// Stands in front of an identity.
const MARK: u8 = 0xa5;

impl Identity {
    fn bytes(self) -> [u8; 8] {
        let ((source, source_port), (target, target_port)) = (self.from, self.to);
        let is = u8::from(self.v6) | u8::from(self.vlan) << 1;
        [MARK, is, source, source_port, target, target_port, self.proto, 0]
    }

    fn read(bytes: [u8; 8]) -> Option<Self> {
        let [MARK, is, source, source_port, target, target_port, proto, 0] = bytes else {
            return None;
        };
        let (from, to) = ((source, source_port), (target, target_port));
        Some(Identity { v6: is & 1 == 1, vlan: is & 2 == 2, from, to, proto })
    }

    /// What it has in common with those that it is to meet.
    fn in_common(self, fields: &[Field], symmetric: bool) -> String {
        let of = |field, value| fields.contains(&field).then_some(value);
        let from = (of(Field::IpSrc, self.from.0), of(Field::L4Src, self.from.1));
        let to = (of(Field::IpDst, self.to.0), of(Field::L4Dst, self.to.1));
        let ends = if symmetric && to < from { (to, from) } else { (from, to) };
        let proto = of(Field::IpProto, self.proto);
        format!("{ends:?} {proto:?} {} {}", self.v6, self.vlan)
    }

    /// Its frames: of UDP some are fragments.
    fn frames(self, in_fragments: Option<u32>) -> Vec<Vec<u8>> {
        let v4 = |n: u8| [10, 0, 0, n];
        let v6 = |n: u8| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into());
        // Each fragment ends with a whole one.
        let payload = self.bytes().repeat(8);
        let frame = match self.v6 {
            false => Frame::ipv4(v4(self.from.0), v4(self.to.0)),
            true => Frame::ipv6(v6(self.from.0), v6(self.to.0)),
        };
        let frame = if self.vlan { frame.vlan(7) } else { frame }.payload(&payload);
        let ports = (4000 + u16::from(self.from.1), 4000 + u16::from(self.to.1));
        match (self.proto, in_fragments) {
            (17, Some(id)) => frame.udp(ports.0, ports.1).id(id).fragments(24),
            (17, None) => vec![frame.udp(ports.0, ports.1).build()],
            _ => vec![frame.tcp(ports.0, ports.1, 16).build()],
        }
    }
}

/// By what packets that have something in common were seen: how many, and at how many instances.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen(BTreeMap<String, (u64, u64)>);

impl Merge for Seen {
    fn merge(&mut self, other: Self) {
        for (key, (packets, instances)) in other.0 {
            let own = self.0.entry(key).or_default();
            *own = (own.0 + packets, own.1 + instances);
        }
    }
}

macro_rules! meets {
    ($name:ident, $fields:expr, $symmetric:literal) => {
        struct $name;

        impl Nf for $name {
            const DESCRIPTOR: Descriptor = Descriptor {
                name: stringify!($name),
                layers: LayerAccess {
                    l2: Touch::Read,
                    l3: Touch::Read,
                    l4: Touch::Read,
                    payload: Touch::Read,
                },
                effect: Effect::Stateful,
                affinity: Affinity::Fields { fields: &$fields, symmetric: $symmetric },
                ..Descriptor::BASE
            };
            type Access = ReadOnly;
            type Config = NoConfig;
            type Flow = ();
            type Shared = Seen;

            fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
                Ok($name)
            }

            fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
                for packet in packets.iter_mut() {
                    let bytes = packet.bytes();
                    let last = bytes.ne64(bytes.len().wrapping_sub(8)).map(u64::to_ne_bytes);
                    let Some(identity) = last.and_then(Identity::read) else { continue };
                    let key = identity.in_common(&$fields, $symmetric);
                    let seen = ctx.shared().0.entry(key).or_default();
                    *seen = (seen.0 + 1, 1);
                }
            }
        }

        weir_nf::register!($name);
    };
}

use Field::{IpDst, IpProto, IpSrc, L4Dst, L4Src};

meets!(BySource, [IpSrc], false);
meets!(ByTarget, [IpDst], false);
meets!(ByService, [IpDst, L4Dst, IpProto], false);
meets!(ByPair, [IpSrc, IpDst], false);
meets!(ByPeers, [IpSrc, IpDst], true);
meets!(ByPorts, [L4Src, L4Dst], true);
meets!(ByTuple, [IpSrc, IpDst, IpProto, L4Src, L4Dst], false);
meets!(ByFlow, [IpSrc, IpDst, IpProto, L4Src, L4Dst], true);

/// Of both IP versions, with tags and without, in both directions: what goes back comes in by the other port. Some are fragments.
fn conversations() -> [Vec<Input>; 2] {
    let mut state = 7_u64;
    let mut below = |n: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut inputs = [Vec::new(), Vec::new()];
    for n in 0..3_000_u32 {
        let client = (1 + below(6) as u8, 1 + below(4) as u8);
        let server = (11 + below(4) as u8, 1 + below(4) as u8);
        let port = below(2) as u16;
        let (from, to) = if port == 0 { (client, server) } else { (server, client) };
        let proto = [6, 17, 17][below(3) as usize];
        let identity = Identity { v6: below(2) == 0, vlan: below(4) == 0, from, to, proto };
        let in_fragments = (below(3) == 0).then_some(n);
        for bytes in identity.frames(in_fragments) {
            let raw = RawTime::from_fields(1_000, n);
            let time = Timestamp { raw, format: TimeFormat::PcapMicros };
            let wire_len = bytes.len() as u32;
            let input = Input { port, bytes, wire_len, time, link: LinkType::ETHERNET };
            inputs[usize::from(port)].push(input);
        }
    }
    inputs
}

/// Runs a chain of these, three instances each, isolated and fused, with packets from either side; what they saw has to be what
/// the oracle's, of which there is one each, saw.
fn meet(kinds: &[&str]) {
    let declared: String = kinds.iter().map(|kind| format!("{kind} {} ; ", nf(kind))).collect();
    let names: Vec<String> = kinds.iter().map(|kind| nf(kind)).collect();
    let (first, last) = (names.first().unwrap(), names.last().unwrap());
    let chain = names.windows(2).map(|two| format!("{} -> {}; ", two[0], two[1]));
    let policy = format!(
        "{PORTS} {declared} pipelet {{ lan -> {first}; wan -> {first}; {}
            {last} [ingress == 0] -> wan; {last} [ingress == 1] -> lan; }}",
        chain.collect::<String>()
    );
    let graph = weir_plan::check(&policy, &Library).unwrap_or_else(|e| panic!("{e:?}")).graph;
    let inputs = conversations();
    let expected = Oracle::new(&graph, &[0, 1]).unwrap().run(&inputs.concat()).unwrap();
    let asked = names.iter().map(|name| (name.clone(), Asked::equal(3))).collect();
    for isolate in [Isolate::Each, Isolate::None] {
        let what = format!("{kinds:?} {isolate:?}");
        let server = Server { name: "s".to_owned(), cores: 2, ghz: 1.0, nic_bps: None };
        let sizing = Sizing { server: &server, objective: None, asked: &asked };
        let options = Options { isolate, online: 2, ..Options::default() };
        let plan = Plan::sized(&graph, &options, false, sizing).unwrap().0;
        let scratch = Scratch::new("more-affinity");
        let file = |name: &str| scratch.0.join(name);
        let bind = |n: usize| {
            let rx = file(&format!("in{n}.pcap"));
            write_capture(&rx, &inputs[n]);
            (n as u16, DeviceSpec::Pcap { rx: Some(rx), tx: Some(file(&format!("out{n}.pcap"))) })
        };
        let report = run(&plan, &[bind(0), bind(1)].into(), &RunOptions::default(), |_| {});
        assert!(report.sound, "{what}: {:?} {:?}", report.balance, report.census);
        for name in &names {
            let node = node(&report, name);
            assert_eq!(node.report, expected.reports[name], "{what}: {name}");
            let busy = node.instances.iter().filter(|one| one.packets > 100).count();
            assert!(busy > 1, "{what}: {name}: {:?}", node.instances);
        }
        for (port, sent) in &expected.sent {
            let mut want: Vec<_> = sent.iter().map(|s| (s.bytes.clone(), s.time.to_ns())).collect();
            let got = read_capture(&file(&format!("out{port}.pcap")));
            let mut got: Vec<_> = got.into_iter().map(|(bytes, _, time)| (bytes, time)).collect();
            want.sort();
            got.sort();
            assert!(got == want, "{what}: what left by port {port}");
        }
    }
}

fn nf(kind: &str) -> String {
    kind.to_lowercase()
}

pub(crate) fn packets_meet_by_the_fields_that_an_nf_declares() {
    for kind in
        ["BySource", "ByTarget", "ByService", "ByPair", "ByPeers", "ByPorts", "ByTuple", "ByFlow"]
    {
        meet(&[kind]);
    }
}

/// Who is divided by fewer fields, both directions alike, serves who asks for more; others are divided anew.
pub(crate) fn divisions_by_fields_go_on_along_a_chain() {
    meet(&["ByPeers", "ByFlow", "ByTarget", "ByTuple", "ByPorts"]);
}
