//! Which part of a flow decides where its packets go.

use super::{Direction, FlowKey, PortKind, Small};

/// A choice of the fields of the 5-tuple. Packets that agree in them belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowFields {
    source: bool,
    destination: bool,
    source_port: bool,
    destination_port: bool,
    protocol: bool,
    symmetric: bool,
}

/// Why a choice of fields means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldsError {
    /// No field at all.
    #[error(
        "no field is chosen; choose at least one of source, destination, source_port, destination_port, protocol"
    )]
    Empty,
    /// Both directions are to meet, but the fields of one direction are not those of the other.
    #[error(
        "`symmetric` needs both addresses or none and both ports or none: the source of one direction is the destination of the other"
    )]
    OneSided,
}

impl FlowFields {
    /// All five, both directions together: a connection.
    pub const FLOW: Self = FlowFields {
        source: true,
        destination: true,
        source_port: true,
        destination_port: true,
        protocol: true,
        symmetric: true,
    };
    /// The source address alone.
    pub const SOURCE: Self = FlowFields {
        source: true,
        destination: false,
        source_port: false,
        destination_port: false,
        protocol: false,
        symmetric: false,
    };
    /// The source's address and port, and the protocol: one end of a connection.
    pub const SOURCE_END: Self =
        FlowFields { source_port: true, protocol: true, ..FlowFields::SOURCE };

    /// A choice: `addresses` and `ports` are (source, destination). `symmetric`: both directions of a flow
    /// belong together.
    ///
    /// # Errors
    /// When nothing is chosen, or `symmetric` is asked of one side only.
    pub fn new(
        addresses: (bool, bool),
        ports: (bool, bool),
        protocol: bool,
        symmetric: bool,
    ) -> Result<Self, FieldsError> {
        if !(addresses.0 || addresses.1 || ports.0 || ports.1 || protocol) {
            return Err(FieldsError::Empty);
        }
        if symmetric && (addresses.0 != addresses.1 || ports.0 != ports.1) {
            return Err(FieldsError::OneSided);
        }
        Ok(FlowFields {
            source: addresses.0,
            destination: addresses.1,
            source_port: ports.0,
            destination_port: ports.1,
            protocol,
            symmetric,
        })
    }

    /// True when a port is among them: then a later fragment has to be told its flow
    /// ([`super::FragmentTable`]).
    #[must_use]
    pub fn asks_ports(&self) -> bool {
        self.source_port || self.destination_port
    }
}

impl FlowKey {
    /// The key with nothing but `fields` left, for a packet of this direction. Two packets that agree in
    /// the fields have the same. The VLAN stack always counts: addresses may repeat across VLANs.
    #[inline]
    #[must_use]
    pub fn narrowed(&self, fields: FlowFields, direction: Direction) -> FlowKey {
        let ports = self.small.ports();
        let (lower, upper) = ((self.lower, ports.0), (self.upper, ports.1));
        let (source, destination) = match direction {
            Direction::Up => (lower, upper),
            Direction::Down => (upper, lower),
        };
        let address = |chosen: bool, address: u128| if chosen { address } else { 0 };
        let port = |chosen: bool, port: u16| if chosen { port } else { 0 };
        let from = (address(fields.source, source.0), port(fields.source_port, source.1));
        let to = (
            address(fields.destination, destination.0),
            port(fields.destination_port, destination.1),
        );
        let (lower, upper) = if fields.symmetric && to < from { (to, from) } else { (from, to) };
        let proto = if fields.protocol { self.proto() } else { 0 };
        let kind = if fields.asks_ports() { self.port_kind() } else { PortKind::None };
        let small = Small::new((lower.1, upper.1), proto, self.small.v6(), kind);
        FlowKey { lower: lower.0, upper: upper.0, zone: self.zone, small }
    }
}
