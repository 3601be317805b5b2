//! What every µNF must keep to, whatever packets come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

mod common;

use common::{DATA, ethernet, root, shared_captures, v4, v6, wrapped};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use std::cell::RefCell;
use weir_nf::testing::{Captured, Conformance};
use weir_nf::wire::Frame;
use weir_nf::{
    ConfigError, Ctx, Descriptor, DropReason, Env, Field, LayerAccess, Nf, NoConfig, Packets,
    ReadWrite, Touch, registrations,
};
use weir_nfs::{
    busy::Busy, check_ip_header::CheckIpHeader, conn_track::ConnTrack, count_subnet::CountSubnet,
    count_url::CountUrl, drop::Drop, flow_monitor::FlowMonitor, http_classifier::HttpClassifier,
    http_parser::HttpParser, icmp_error::IcmpError, l3l4_filter::L3L4Filter,
    l4_load_balancer::L4LoadBalancer, load_balancer::LoadBalancer, mac_swap::MacSwap, napt::Napt,
    null::Null, order_fragments::OrderFragments, packet_size_histogram::PacketSizeHistogram,
    policer::Policer, tee::Tee, ttl_decrement::TtlDecrement, validate_url::ValidateUrl,
};

fn subject<N: Nf>(config: Value) -> Conformance {
    Conformance::of::<N>(config).unwrap()
}

fn subjects() -> Vec<Conformance> {
    let rules = json!({"default": "drop", "rules": [
        {"action": "pass", "dst_port": "53-80", "src": "192.0.2.0/24"},
        {"action": "pass", "proto": "icmp6"},
        {"action": "drop", "tcp_flags": "syn,!ack"},
        {"action": "pass", "vlan": 7, "ether_type": "arp"},
    ]});
    let all = vec![
        subject::<Busy>(json!({"cycles": 3})),
        subject::<CheckIpHeader>(json!(null)),
        subject::<ConnTrack>(json!({"pickup": true, "rules": [
            {"action": "drop", "proto": "udp", "dst_port": 53},
        ]})),
        subject::<CountSubnet>(json!({"prefixes": ["192.0.2.0/24", "fd00::/16"]})),
        subject::<CountUrl>(json!({"max": 3})),
        subject::<Drop>(json!({"reason": "filtered"})),
        subject::<FlowMonitor>(json!({"top": 3})),
        subject::<HttpClassifier>(json!(null)),
        subject::<HttpParser>(json!(null)),
        subject::<IcmpError>(json!({"v4": "192.0.2.1", "v6": "fd00::1", "rate": 1000000})),
        subject::<L3L4Filter>(rules),
        subject::<L4LoadBalancer>(json!({"services": [
            {"address": "192.0.2.2", "port": 8080, "backends": [{"address": "10.0.0.1"}]},
            {"address": "192.0.2.2", "port": 53, "proto": "udp", "backends": [{"address": "10.0.0.1"}]},
            {"address": "fd00::2", "port": 80, "backends": [{"address": "fd00::80", "port": 81}]},
        ]})),
        subject::<LoadBalancer>(json!({"backends": [0, 3, 15]})),
        subject::<MacSwap>(json!(null)),
        subject::<Napt>(json!({"addresses": ["192.0.2.2"], "ports": "2000-2100"})),
        subject::<Null>(json!(null)),
        subject::<OrderFragments>(json!({"most": 3, "wait_ms": 1000})),
        subject::<PacketSizeHistogram>(json!({"bounds": [100, 1000]})),
        subject::<Policer>(json!({"flow": {"rate": 1000000, "burst": 2000}})),
        subject::<Tee>(json!(null)),
        subject::<TtlDecrement>(json!({"mtu": 1400})),
        subject::<ValidateUrl>(json!({"keep": 3})),
    ];
    let registered: Vec<_> = registrations().iter().map(|r| r.descriptor.name).collect();
    let tested: Vec<_> = all.iter().map(Conformance::name).collect();
    assert_eq!(tested, registered, "an NF without conformance test");
    all
}

fn conform(subjects: &mut [Conformance], packets: &[Captured]) -> Result<(), String> {
    subjects.iter_mut().try_for_each(|subject| subject.check(packets)).map_err(|e| e.to_string())
}

fn built() -> Vec<Vec<u8>> {
    let attack = b"GET /p?id=1'+OR+1=1--+ HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
    let mut all = wrapped(attack);
    all.extend(wrapped(b"HTTP/1.1 200 OK\r\n\r\n"));
    all.extend(wrapped(&[]));
    let others = [
        v4().udp(53, 53).payload(b"q"),
        v6().udp(53, 53).vlan(7),
        v4().icmp(8, 0, [0; 4]).payload(&[1; 32]),
        v6().icmp(128, 0, [0; 4]).payload(&[1; 32]),
        v4().proto(47),
        Frame::other(0x0806).payload(&[0; 28]).vlan(7),
        Frame::other(0x88cc).payload(&[0; 40]),
        Frame::other(38).payload(&[0; 38]),
    ];
    all.extend(others.iter().map(Frame::build));
    let long = [b"GET /".to_vec(), vec![b'x'; 3000]].concat();
    for frame in [v4(), v6(), v6().vlan(7).extensions(common::HOP_BY_HOP_AND_DEST_OPTS)] {
        all.extend(frame.tcp(1, 80, DATA).payload(&long).fragments(1000));
    }
    all
}

#[test]
fn every_nf_keeps_to_its_descriptor_on_well_formed_packets_and_every_cut_of_them() {
    let mut subjects = subjects();
    let whole = built();
    let packets: Vec<_> = whole.iter().map(|f| (f.clone(), f.len())).collect();
    conform(&mut subjects, &packets).unwrap();
    for frame in &whole {
        let cuts = (0..frame.len().min(200)).map(|len| frame[..len].to_vec());
        let captured: Vec<_> = cuts.clone().map(|cut| (cut, frame.len())).collect();
        let sent: Vec<_> = cuts.map(|cut| (cut.clone(), cut.len())).collect();
        conform(&mut subjects, &captured).unwrap();
        conform(&mut subjects, &sent).unwrap();
    }
}

/// A capture may say anything: the year 1970, the end of numbers, back and forth.
#[test]
fn every_nf_keeps_to_its_descriptor_whatever_time_stamps_say() {
    let packets: Vec<_> = built().into_iter().map(|f| (f.clone(), f.len())).collect();
    const END: u64 = u64::MAX;
    let day = 86_400_000_000_000;
    let orders: [&[u64]; 4] = [
        &[0, END],
        &[1 << 62, 0, 1 << 62, (1 << 63) - 1, 0, (1 << 63) - 1],
        &[END, 1 << 63, (1 << 63) - 1, 1 << 62, day, 1, 0],
        &[0, day, 3 * day, END - day, 2, END - 1, (1 << 63) - 2],
    ];
    for stamps in orders {
        // Anew: what the one before has made of the time is not to help.
        let mut subjects = subjects();
        for _ in 0..5 {
            subjects.iter_mut().try_for_each(|s| s.check_at(&packets, stamps)).unwrap();
        }
    }
}

/// Random bytes, and well-formed packets with some bytes changed; seeded, so that runs are equal.
#[test]
fn every_nf_keeps_to_its_descriptor_on_random_bytes() {
    // The runner wants a closure that changes nothing.
    let subjects = RefCell::new(subjects());
    let frames = built();
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    let damaged = (prop::sample::select(frames), flips).prop_map(|(mut frame, flips)| {
        for (at, byte) in flips {
            let at = at.index(frame.len().min(120));
            frame[at] = byte;
        }
        frame
    });
    let random = prop::collection::vec(any::<u8>(), 0..300);
    let packets = prop::collection::vec(prop_oneof![random, damaged], 1..130);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
        .run(&packets, |packets| {
            let packets: Vec<_> = packets.into_iter().map(|p| (p.clone(), p.len())).collect();
            conform(&mut subjects.borrow_mut(), &packets).map_err(TestCaseError::fail)
        })
        .unwrap();
}

#[test]
fn every_nf_keeps_to_its_descriptor_on_the_demo_and_the_shared_captures() {
    let mut subjects = subjects();
    let demo = root().join("demo/http.pcap");
    let mut packets = 0;
    for path in shared_captures().into_iter().chain([demo]) {
        let captured = ethernet(&path);
        packets += captured.len();
        conform(&mut subjects, &captured).map_err(|e| format!("{}: {e}", path.display())).unwrap();
    }
    println!("{packets} packets");
    assert!(packets >= 3151);
}

#[test]
fn every_nf_runs_unconfigured_and_refuses_unknown_keys_by_schema_and_by_parsing() {
    for nf in registrations() {
        let name = nf.descriptor.name;
        nf.make(&Value::Null, &Env::default()).unwrap();
        let error = nf.make(&json!({"no_such_key": 1}), &Env::default()).err();
        let error = error.unwrap_or_else(|| panic!("{name} takes any key")).to_string();
        assert!(error.contains("no_such_key"), "{name}: {error}");
        let schema = nf.schema();
        let schema = schema.as_object().unwrap();
        assert_eq!(schema["type"], "object", "{name}");
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
}

/// Declares to write the destination MAC address only and to drop nothing; changes byte `AT`, or drops, or sends to an
/// output that it does not have.
struct Liar<const AT: usize>;

impl<const AT: usize> Nf for Liar<AT> {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Liar",
        layers: LayerAccess { l2: Touch::Write, ..LayerAccess::NONE },
        fields: &[(Field::EthDst, Touch::Write)],
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Liar)
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            match AT {
                1000 => packet.drop(DropReason::Policy),
                1001 => packet.send(9),
                at => {
                    let mut bytes = packet.bytes_mut().unwrap();
                    if let Some(byte) = bytes.as_read().ne8(at) {
                        bytes.set_ne8(at, !byte);
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_test_bench_offers_to_authors_finds_the_same() {
    weir_nf::testing::conform::<MacSwap>(json!(null)).unwrap();
    weir_nf::testing::conform::<Napt>(json!({"addresses": ["192.0.2.2"]})).unwrap();
    weir_nf::testing::conform::<Liar<3>>(json!(null)).unwrap();
    let error = weir_nf::testing::conform::<Liar<7>>(json!(null)).unwrap_err().to_string();
    assert!(error.starts_with("Liar: undeclared write of EthSrc: byte 7: ["), "{error}");
    let error = weir_nf::testing::conform::<Lax>(json!(null)).unwrap_err().to_string();
    assert!(error.contains("add #[serde(deny_unknown_fields)]"), "{error}");
}

/// Takes any configuration.
struct Lax;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Anything {}

impl Nf for Lax {
    const DESCRIPTOR: Descriptor = Descriptor { name: "Lax", ..Descriptor::BASE };
    type Access = weir_nf::ReadOnly;
    type Config = Anything;
    type Flow = ();
    type Shared = ();

    fn build(_: Anything, _: &Env) -> Result<Self, ConfigError> {
        Ok(Lax)
    }

    fn process(&self, _: &mut Packets<'_, weir_nf::ReadOnly>, _: &mut Ctx<'_, Self>) {}
}

#[test]
fn an_nf_that_does_what_it_has_not_declared_is_found_out() {
    let frame = v4().udp(1, 2).payload(b"data").build();
    let packets = [(frame.clone(), frame.len())];
    let judge = |subject: Conformance| conform(&mut [subject], &packets).err();
    assert_eq!(judge(subject::<Liar<3>>(json!(null))), None);
    for (subject, why) in [
        (subject::<Liar<7>>(json!(null)), "undeclared write of EthSrc: byte 7"),
        (subject::<Liar<20>>(json!(null)), "undeclared writes: layer 3"),
        (subject::<Liar<35>>(json!(null)), "undeclared writes: layer 4"),
        (subject::<Liar<44>>(json!(null)), "undeclared writes: payload"),
        (subject::<Liar<1000>>(json!(null)), "drops (policy)"),
        (subject::<Liar<1001>>(json!(null)), "no such output"),
    ] {
        let error = judge(subject).unwrap();
        assert!(error.contains(why), "{error}");
    }
}
