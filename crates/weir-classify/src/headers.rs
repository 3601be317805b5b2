//! What a packet's headers say, as far as rules may ask.

/// Network addresses, in host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Net {
    /// Not IP.
    #[default]
    None,
    /// IPv4.
    V4 {
        /// Source address.
        src: u32,
        /// Destination address.
        dst: u32,
    },
    /// IPv6; four 32-bit words, most significant first (a `u128` would align the struct to 16 bytes).
    V6 {
        /// Source address.
        src: [u32; 4],
        /// Destination address.
        dst: [u32; 4],
    },
}

/// Whether a packet is an IP fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fragment {
    /// The whole datagram (IPv6 atomic fragments, RFC 6946, too).
    #[default]
    Whole,
    /// The first fragment: it has the transport header.
    First,
    /// A later fragment: no ports, no flags, no ICMP type.
    Later,
}

/// A packet's header fields, extracted by the caller; numbers in host byte order.
///
/// A field that the packet does not have is `None`: a rule that tests it does not match. So a later fragment,
/// which has no ports, never matches a rule that tests ports (RFC 1858 is about what else would go wrong).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Headers {
    /// Network addresses.
    pub net: Net,
    /// Source and destination port of TCP, UDP, SCTP, DCCP, UDP-Lite.
    pub ports: Option<(u16, u16)>,
    /// The transport's protocol number (IANA), after IPv6 extension headers.
    pub proto: Option<u8>,
    /// TCP flags: CWR ECE URG ACK PSH RST SYN FIN from the highest bit down.
    pub tcp_flags: Option<u8>,
    /// Type and code of ICMP or ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// Whether it is a fragment.
    pub fragment: Fragment,
    /// Source MAC address.
    pub src_mac: [u8; 6],
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
    /// EtherType behind the VLAN tags.
    pub ether_type: u16,
    /// VLAN identifier (12 bits) of the outer tag; `None` when untagged.
    pub vlan: Option<u16>,
}
