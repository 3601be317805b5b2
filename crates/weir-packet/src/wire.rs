//! Writing well-formed frames: for tests and for the traffic generator.
//!
//! ```
//! use weir_packet::{Depth, parse, wire::Frame};
//!
//! let frame = Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 53).payload(b"hello").build();
//! let layers = parse(frame.as_slice(), Depth::L4);
//! assert_eq!(layers.ports(frame.as_slice()), Some((1000, 53)));
//! ```

mod layout;

use crate::headers::{MAX_TAGS, Mac, ether_type, proto};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a frame carries after its tags.
#[derive(Clone, Copy, Debug)]
enum Network {
    Ipv4 {
        source: Ipv4Addr,
        destination: Ipv4Addr,
    },
    Ipv6 {
        source: Ipv6Addr,
        destination: Ipv6Addr,
    },
    /// Not IP: this EtherType, and the payload directly after it.
    Other(u16),
}

/// The transport header.
#[derive(Clone, Copy, Debug)]
enum Transport {
    /// None: the payload has this protocol.
    Raw(u8),
    Udp {
        ports: (u16, u16),
    },
    Tcp {
        ports: (u16, u16),
        seq: u32,
        ack: u32,
        flags: u8,
    },
    /// ICMP or ICMPv6, whichever fits the IP version.
    Icmp {
        kind: u8,
        code: u8,
        rest: [u8; 4],
    },
}

/// Which piece of a datagram is written.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Bytes of IP payload before this piece: a multiple of 8.
    offset: u16,
    more: bool,
}

/// Describes a frame; [`Frame::build`] and [`Frame::write`] produce it with right lengths and checksums.
///
/// Without a transport call the payload has IP protocol 253 ("for experimentation", RFC 3692).
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    source: Mac,
    destination: Mac,
    tags: [(u16, u16); MAX_TAGS as usize],
    tag_count: usize,
    network: Network,
    ttl: u8,
    id: u32,
    options: &'a [u8],
    extensions: &'a [(u8, &'a [u8])],
    transport: Transport,
    payload: &'a [u8],
    pad_to: usize,
    piece: Option<Piece>,
}

impl<'a> Frame<'a> {
    fn new(network: Network) -> Self {
        Frame {
            source: [2, 0, 0, 0, 0, 1],
            destination: [2, 0, 0, 0, 0, 2],
            tags: Default::default(),
            tag_count: 0,
            network,
            ttl: 64,
            id: 0,
            options: &[],
            extensions: &[],
            transport: Transport::Raw(253),
            payload: &[],
            pad_to: 0,
            piece: None,
        }
    }

    /// An IPv4 packet.
    pub fn ipv4(source: impl Into<Ipv4Addr>, destination: impl Into<Ipv4Addr>) -> Self {
        Self::new(Network::Ipv4 { source: source.into(), destination: destination.into() })
    }

    /// An IPv6 packet.
    pub fn ipv6(source: impl Into<Ipv6Addr>, destination: impl Into<Ipv6Addr>) -> Self {
        Self::new(Network::Ipv6 { source: source.into(), destination: destination.into() })
    }

    /// A frame of another EtherType (or, below 0x600, an LLC frame of that length): the payload
    /// directly follows.
    pub fn other(ether_type: u16) -> Self {
        Self::new(Network::Other(ether_type))
    }

    /// Sets source and destination MAC address.
    #[must_use]
    pub fn macs(mut self, source: Mac, destination: Mac) -> Self {
        self.source = source;
        self.destination = destination;
        self
    }

    /// Adds an 802.1Q tag inside those already there. More than [`MAX_TAGS`] are not added.
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        self.tag(ether_type::VLAN, id)
    }

    /// Adds a tag of any type and with any tag control information.
    #[must_use]
    pub fn tag(mut self, tpid: u16, tci: u16) -> Self {
        if let Some(tag) = self.tags.get_mut(self.tag_count) {
            *tag = (tpid, tci);
            self.tag_count += 1;
        }
        self
    }

    /// Sets IPv4 time to live or IPv6 hop limit (64 if not set).
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the identification (IPv4 uses the low 16 bits; IPv6 has one in fragments only).
    #[must_use]
    pub fn id(mut self, id: u32) -> Self {
        self.id = id;
        self
    }

    /// Sets IPv4 options: up to 40 bytes, padded with zeros to a multiple of 4. Longer ones are cut.
    #[must_use]
    pub fn options(mut self, options: &'a [u8]) -> Self {
        self.options = options.get(..40).unwrap_or(options);
        self
    }

    /// Sets IPv6 extension headers: protocol number and body without the two bytes of next header
    /// and length, padded with zeros to fit. At most 2,046 bytes each (AH: 1,022).
    #[must_use]
    pub fn extensions(mut self, extensions: &'a [(u8, &'a [u8])]) -> Self {
        self.extensions = extensions;
        self
    }

    /// Makes it a UDP datagram from port to port.
    #[must_use]
    pub fn udp(mut self, source: u16, destination: u16) -> Self {
        self.transport = Transport::Udp { ports: (source, destination) };
        self
    }

    /// Makes it a TCP segment from port to port with these flags (see [`crate::headers::tcp`]).
    #[must_use]
    pub fn tcp(mut self, source: u16, destination: u16, flags: u8) -> Self {
        self.transport = Transport::Tcp { ports: (source, destination), seq: 0, ack: 0, flags };
        self
    }

    /// Sets sequence and acknowledgment number of a TCP segment; does nothing otherwise.
    #[must_use]
    pub fn seq(mut self, sequence: u32, acknowledgment: u32) -> Self {
        if let Transport::Tcp { seq, ack, .. } = &mut self.transport {
            (*seq, *ack) = (sequence, acknowledgment);
        }
        self
    }

    /// Makes it an ICMP (in IPv6: ICMPv6) message; `rest` is what follows the checksum.
    #[must_use]
    pub fn icmp(mut self, kind: u8, code: u8, rest: [u8; 4]) -> Self {
        self.transport = Transport::Icmp { kind, code, rest };
        self
    }

    /// Gives the payload an IP protocol of its own, without a transport header.
    #[must_use]
    pub fn proto(mut self, proto: u8) -> Self {
        self.transport = Transport::Raw(proto);
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Pads the frame with zeros to at least `len` bytes, as Ethernet does to 60.
    #[must_use]
    pub fn pad_to(mut self, len: usize) -> Self {
        self.pad_to = len;
        self
    }

    /// The frame in new memory.
    pub fn build(&self) -> Vec<u8> {
        let mut frame = vec![0; self.len()];
        let written = self.write(&mut frame);
        frame.truncate(written.unwrap_or(0));
        frame
    }

    /// The frame's datagram cut into fragments with at most `size` bytes of data each (rounded down
    /// to a multiple of 8, at least 8). IPv6 extension headers are repeated in every fragment.
    pub fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        let size = (size / 8 * 8).max(8);
        let whole = self.build();
        let start = self.transport_offset();
        let end = start + self.transport_len() + self.payload.len();
        let data = whole.get(start..end).unwrap_or_default();
        let count = data.len().div_ceil(size);
        let pieces = data.chunks(size).enumerate().map(|(index, payload)| {
            let offset = u16::try_from(index * size).unwrap_or(u16::MAX);
            let piece = Some(Piece { offset, more: index + 1 < count });
            Frame { payload, piece, transport: Transport::Raw(self.protocol()), ..*self }.build()
        });
        pieces.collect()
    }

    /// The IP protocol of the transport header or payload.
    fn protocol(&self) -> u8 {
        match (self.transport, self.network) {
            (Transport::Raw(proto), _) => proto,
            (Transport::Udp { .. }, _) => proto::UDP,
            (Transport::Tcp { .. }, _) => proto::TCP,
            (Transport::Icmp { .. }, Network::Ipv6 { .. }) => proto::ICMPV6,
            (Transport::Icmp { .. }, _) => proto::ICMP,
        }
    }
}
