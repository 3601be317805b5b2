//! Which packets belong together when only some fields of the flow count.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

use proptest::prelude::*;
use weir_packet::wire::Frame;
use weir_packet::{Depth, FieldsError, FlowFields, FlowKey, parse};

/// A packet, as small numbers, so that fields often agree.
#[derive(Debug, Clone, Copy)]
struct Plain {
    source: u8,
    destination: u8,
    source_port: u16,
    destination_port: u16,
    tcp: bool,
    v6: bool,
    vlan: bool,
}

impl Plain {
    fn narrowed(self, fields: FlowFields) -> FlowKey {
        let address = |n: u8| [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)];
        let frame = match self.v6 {
            true => Frame::ipv6(address(self.source), address(self.destination)),
            false => Frame::ipv4([10, 0, 0, self.source], [10, 0, 0, self.destination]),
        };
        let frame = if self.vlan { frame.vlan(7) } else { frame };
        let frame = match self.tcp {
            true => frame.tcp(self.source_port, self.destination_port, 0),
            false => frame.udp(self.source_port, self.destination_port),
        };
        let bytes = frame.build();
        let bytes = bytes.as_slice();
        let (key, direction) = FlowKey::from_packet(bytes, &parse(bytes, Depth::L4)).unwrap();
        key.narrowed(fields, direction)
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let ports = (1..3_u16, 1..3_u16);
    (1..3_u8, 1..3_u8, ports, any::<[bool; 3]>()).prop_map(|(source, destination, ports, bits)| {
        let ((source_port, destination_port), [tcp, v6, vlan]) = (ports, bits);
        Plain { source, destination, source_port, destination_port, tcp, v6, vlan }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Two packets have one key when they agree in the chosen fields, IP version and VLAN; where
    /// both directions belong together, also when the one is the other way round.
    #[test]
    fn agreeing_in_the_fields_is_having_one_key(
        a in plain(), b in plain(), chosen in any::<[bool; 5]>(), symmetric in any::<bool>()
    ) {
        let [source, destination, source_port, destination_port, protocol] = chosen;
        let fields =
            FlowFields::new((source, destination), (source_port, destination_port), protocol, symmetric);
        let Ok(fields) = fields else { return Ok(()) };
        let seen = |p: Plain| {
            let from = (source.then_some(p.source), source_port.then_some(p.source_port));
            let to = (destination.then_some(p.destination), destination_port.then_some(p.destination_port));
            let ends = if symmetric && to < from { (to, from) } else { (from, to) };
            (ends, protocol.then_some(p.tcp), p.v6, p.vlan)
        };
        prop_assert_eq!(a.narrowed(fields) == b.narrowed(fields), seen(a) == seen(b));
    }
}

#[test]
fn all_fields_both_ways_are_the_flow_itself() {
    let bytes = Frame::ipv4([10, 0, 0, 9], [10, 0, 0, 2]).tcp(80, 4000, 0).build();
    let (key, direction) =
        FlowKey::from_packet(bytes.as_slice(), &parse(bytes.as_slice(), Depth::L4)).unwrap();
    assert_eq!(key.narrowed(FlowFields::FLOW, direction), key);
}

#[test]
fn choices_that_mean_nothing_are_refused() {
    let no = (false, false);
    assert_eq!(FlowFields::new(no, no, false, false), Err(FieldsError::Empty));
    assert_eq!(FlowFields::new((true, false), no, false, true), Err(FieldsError::OneSided));
    assert_eq!(
        FlowFields::new((true, true), (false, true), true, true),
        Err(FieldsError::OneSided)
    );
    assert_eq!(FlowFields::new((true, false), no, false, false), Ok(FlowFields::SOURCE));
}
