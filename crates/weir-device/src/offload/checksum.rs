//! Finishing the checksum of one packet.

use super::{OffloadError, VnetHeader};
use weir_packet::checksum::Sum;
use weir_packet::headers::ETHERNET_LEN;

/// A finished checksum and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes from the start of the frame.
    pub at: usize,
    /// The checksum, to be stored in network order.
    pub value: u16,
}

/// Finishes the checksum that `header` says is unfinished. The sum of the pseudo header stands in
/// the checksum's place already: whoever left the rest to the interface put it there.
pub fn finish_checksum(frame: &[u8], header: &VnetHeader) -> Result<Finished, OffloadError> {
    let start = usize::from(header.csum_start);
    let at = start + usize::from(header.csum_offset);
    let fits = start >= ETHERNET_LEN && at + 2 <= frame.len();
    let covered = frame.get(start..).filter(|_| fits);
    let covered = covered.ok_or(OffloadError::ChecksumPlace)?;
    let mut sum = Sum::default();
    sum.add_slice(covered);
    Ok(Finished { at, value: stored(sum) })
}

/// A sum as it is stored: where zero would mean "no checksum" (UDP) its other form is taken, which
/// means the same to all protocols (RFC 768).
pub(super) fn stored(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        value => value,
    }
}
