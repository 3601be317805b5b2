//! Finishing the checksum of one packet.

use super::nested::Nested;
use super::{OffloadError, VnetHeader};
use crc32c::{crc32c, crc32c_append};
use weir_packet::checksum::Sum;
use weir_packet::headers::{ETHERNET_LEN, proto};

/// A finished checksum and where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Bytes from the start of the frame.
    pub at: usize,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Internet([u8; 2]),
    Crc([u8; 4]),
}

impl Finished {
    /// The checksum as it stands in the frame.
    pub fn bytes(&self) -> &[u8] {
        match &self.value {
            Value::Internet(bytes) => bytes,
            Value::Crc(bytes) => bytes,
        }
    }
}

/// Where SCTP has its checksum (RFC 9260 §3.1).
const SCTP_CHECKSUM: u16 = 8;

/// Finishes the checksum that `header` says is unfinished. The sum of the pseudo header stands in
/// the checksum's place already: whoever left the rest to the interface put it there.
pub fn finish_checksum(frame: &[u8], header: &VnetHeader) -> Result<Finished, OffloadError> {
    let start = usize::from(header.csum_start);
    // Nothing in the header tells a CRC from a sum. No other protocol has its checksum there.
    if header.csum_offset == SCTP_CHECKSUM {
        let inner = Nested::find(frame, Some(header.csum_start))?.inner;
        if inner.proto == proto::SCTP {
            return finish_crc(frame, start, usize::from(inner.end));
        }
    }
    let at = start + usize::from(header.csum_offset);
    let fits = start >= ETHERNET_LEN && at + 2 <= frame.len();
    let covered = frame.get(start..).filter(|_| fits);
    let covered = covered.ok_or(OffloadError::ChecksumPlace)?;
    let mut sum = Sum::default();
    sum.add_slice(covered);
    Ok(Finished { at, value: Value::Internet(stored(sum).to_be_bytes()) })
}

/// CRC-32C over the SCTP packet with zeros in the checksum's place. It is stored lowest byte first (RFC 9260 appendix A).
fn finish_crc(frame: &[u8], start: usize, end: usize) -> Result<Finished, OffloadError> {
    let packet = frame.get(start..end).ok_or(OffloadError::ChecksumPlace)?;
    let place = usize::from(SCTP_CHECKSUM);
    let (before, after) = packet.split_at_checked(place).ok_or(OffloadError::ChecksumPlace)?;
    let (_, after) = after.split_first_chunk::<4>().ok_or(OffloadError::ChecksumPlace)?;
    let crc = crc32c_append(crc32c(before), &[0; 4]);
    let crc = crc32c_append(crc, after);
    Ok(Finished { at: start + place, value: Value::Crc(crc.to_le_bytes()) })
}

/// A sum as it is stored: where zero would mean "no checksum" (UDP) its other form is taken, which
/// means the same to all protocols (RFC 768).
pub(super) fn stored(sum: Sum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        value => value,
    }
}
