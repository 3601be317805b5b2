//! The header in front of a frame: `struct virtio_net_hdr` (virtio 1.3 §5.1.6), as packet sockets
//! with `PACKET_VNET_HDR` and TAP devices with `IFF_VNET_HDR` give it, in host byte order.

use super::OffloadError;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is unfinished.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_ECN`, beside the kind: the packet may carry CWR.
const ECN: u8 = 0x80;

/// What a super-packet is to be cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP segments in IPv4.
    TcpV4,
    /// TCP segments in IPv6.
    TcpV6,
    /// UDP datagrams, in either.
    Udp,
}

/// What is still to be done to a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Bit 0: the checksum is unfinished.
    pub flags: u8,
    /// Kind of segmentation: 0 none, 1 TCP in IPv4, 4 TCP in IPv6, 5 UDP; 128 beside it for ECN.
    pub gso_type: u8,
    /// Length of all headers in bytes. A hint that is not used.
    pub hdr_len: u16,
    /// Bytes of payload in each segment.
    pub gso_size: u16,
    /// Where summing starts, in bytes from the start of the frame.
    pub csum_start: u16,
    /// Where, from there, the checksum is stored.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Length in bytes.
    pub const LEN: usize = 10;

    /// Reads one.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h] = *bytes;
        VnetHeader {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([a, b]),
            gso_size: u16::from_ne_bytes([c, d]),
            csum_start: u16::from_ne_bytes([e, f]),
            csum_offset: u16::from_ne_bytes([g, h]),
        }
    }

    /// One that leaves nothing to do, of a frame all `len` bytes of which are header.
    pub fn all_header(len: usize) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let len = u16::try_from(len).unwrap_or(u16::MAX).to_ne_bytes();
        [bytes[2], bytes[3]] = len;
        bytes
    }

    /// True when the checksum is to be finished.
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Into what the frame is to be cut; `None` when it is one packet.
    pub fn gso(&self) -> Result<Option<GsoKind>, OffloadError> {
        match self.gso_type & !ECN {
            0 => Ok(None),
            1 => Ok(Some(GsoKind::TcpV4)),
            4 => Ok(Some(GsoKind::TcpV6)),
            5 => Ok(Some(GsoKind::Udp)),
            // 3, fragments of UDP, has left the kernel (4.14).
            kind => Err(OffloadError::Kind(kind)),
        }
    }
}
