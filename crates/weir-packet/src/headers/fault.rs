//! What can be wrong with a header.

/// Why a packet's headers are not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum HeaderFault {
    /// The packet is neither IPv4 nor IPv6, so there is no IP header to check.
    #[error("not an IP packet")]
    NotIp = 1,
    /// More VLAN tags than [`super::MAX_TAGS`].
    #[error("too many VLAN tags")]
    TooManyTags,
    /// The packet as sent is too short for an IP header (RFC 1812 §5.2.2 test 1).
    #[error("packet ends inside its IP header")]
    IpHeaderCut,
    /// The version field does not fit the EtherType (RFC 1812 §5.2.2 test 3, RFC 8200 §3).
    #[error("wrong IP version")]
    Version,
    /// The IPv4 header length is below 5 words (RFC 1812 §5.2.2 test 4).
    #[error("IPv4 header length below 20 bytes")]
    HeaderLength,
    /// The IPv4 total length is smaller than the header (RFC 1812 §5.2.2 test 5).
    #[error("IPv4 total length smaller than the header")]
    TotalLengthShort,
    /// The IPv4 total length is larger than what was sent (RFC 1812 §5.2.2).
    #[error("IPv4 total length larger than the packet")]
    TotalLengthLong,
    /// The IPv4 header checksum is wrong (RFC 1812 §5.2.2 test 2).
    #[error("wrong IPv4 header checksum")]
    Checksum,
    /// The IPv6 payload length is larger than what was sent (RFC 8200 §3).
    #[error("IPv6 payload length larger than the packet")]
    PayloadLengthLong,
    /// An IPv6 extension header runs over the end of the IPv6 payload (RFC 8200 §4).
    #[error("IPv6 extension header runs over the payload")]
    ExtensionCut,
    /// More IPv6 extension headers than [`super::MAX_EXTENSIONS`].
    #[error("too many IPv6 extension headers")]
    TooManyExtensions,
    /// A hop-by-hop header that does not directly follow the IPv6 header (RFC 8200 §4.1).
    #[error("IPv6 hop-by-hop header out of place")]
    HopByHopMisplaced,
    /// The IP payload is too short for the transport header, though it was captured whole.
    #[error("IP payload too short for its transport header")]
    TransportCut,
    /// The TCP data offset is below 5 words (RFC 9293 §3.1).
    #[error("TCP data offset below 20 bytes")]
    TcpDataOffset,
    /// The UDP length is below 8 or larger than the IP payload (RFC 768).
    #[error("UDP length does not fit")]
    UdpLength,
}

impl HeaderFault {
    /// Every fault, in the order of their numbers.
    pub const ALL: [HeaderFault; 15] = [
        HeaderFault::NotIp,
        HeaderFault::TooManyTags,
        HeaderFault::IpHeaderCut,
        HeaderFault::Version,
        HeaderFault::HeaderLength,
        HeaderFault::TotalLengthShort,
        HeaderFault::TotalLengthLong,
        HeaderFault::Checksum,
        HeaderFault::PayloadLengthLong,
        HeaderFault::ExtensionCut,
        HeaderFault::TooManyExtensions,
        HeaderFault::HopByHopMisplaced,
        HeaderFault::TransportCut,
        HeaderFault::TcpDataOffset,
        HeaderFault::UdpLength,
    ];

    /// The fault with this number (`fault as u8`), if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}
