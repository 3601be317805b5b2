//! VLAN tags that the interface took out of the bytes.

use weir_mem::SharedBytesMut;
use weir_packet::headers::ether_type;

/// Source and destination address stand before the tags.
const ADDRESSES: usize = 12;

/// The outermost tag of a frame, beside its bytes. (With two tags the inner one is in the bytes.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// EtherType of the tag: 0x8100, 0x88a8.
    pub tpid: u16,
    /// Priority and VLAN id.
    pub tci: u16,
}

impl VlanTag {
    /// Bytes that it takes in a frame.
    pub const LEN: usize = 4;

    /// A tag whose type may not be known.
    pub fn new(tpid: Option<u16>, tci: u16) -> Self {
        VlanTag { tpid: tpid.unwrap_or(ether_type::VLAN), tci }
    }

    /// The tag as it stands in a frame.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// Writes a frame given as head and rest, with `tag` put back; the head has both addresses. What
/// does not fit is not written.
pub(crate) fn write(
    out: &mut SharedBytesMut<'_>,
    tag: Option<VlanTag>,
    head: &[u8],
    rest: &[u8],
) -> usize {
    let Some((tag, (addresses, head))) = tag.zip(head.split_at_checked(ADDRESSES)) else {
        out.write(0, head);
        out.write(head.len(), rest);
        return 0;
    };
    out.write(0, addresses);
    out.write(ADDRESSES, &tag.bytes());
    out.write(ADDRESSES + VlanTag::LEN, head);
    out.write(ADDRESSES + VlanTag::LEN + head.len(), rest);
    VlanTag::LEN
}
