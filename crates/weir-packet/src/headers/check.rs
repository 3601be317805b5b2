//! Is the IP header acceptable? (RFC 1812 §5.2.2, RFC 791, RFC 8200)

use super::{HeaderFault, L3, Layers, ipv6};
use crate::{Bytes, checksum::Sum};

/// Checks the IP header that `layers` (depth L2 or more) found in `bytes`.
///
/// `wire_len` is the frame's length on the wire in bytes, counted from the Ethernet header. It is
/// larger than what was captured when the capture was cut: then what is not there is not judged,
/// and a length that reaches beyond the captured bytes is only wrong when it reaches beyond the
/// wire's. Addresses are not judged.
///
/// # Errors
/// The first [`HeaderFault`] in the order of RFC 1812, or [`HeaderFault::NotIp`].
pub fn check_ip<B: Bytes + ?Sized>(
    bytes: &B,
    layers: &Layers,
    wire_len: usize,
) -> Result<(), HeaderFault> {
    let l3 = usize::from(layers.l3);
    let wire = wire_len.max(bytes.len()).saturating_sub(l3);
    let captured = bytes.len().saturating_sub(l3);
    match layers.kind {
        L3::Ipv4 => check_ipv4(bytes, l3, captured, wire),
        L3::Ipv6 => check_ipv6(bytes, l3, captured, wire),
        L3::None | L3::Arp | L3::Other => Err(HeaderFault::NotIp),
    }
}

fn check_ipv4<B: Bytes + ?Sized>(
    bytes: &B,
    l3: usize,
    captured: usize,
    wire: usize,
) -> Result<(), HeaderFault> {
    if wire < 20 {
        return Err(HeaderFault::IpHeaderCut);
    }
    let Some(vhl) = bytes.u8(l3) else {
        return Ok(());
    };
    if vhl >> 4 != 4 {
        return Err(HeaderFault::Version);
    }
    let header = usize::from(vhl & 0x0f) * 4;
    if header < 20 {
        return Err(HeaderFault::HeaderLength);
    }
    if wire < header {
        return Err(HeaderFault::IpHeaderCut);
    }
    // A checksum can only be judged when all it covers was captured.
    if captured >= header {
        let mut sum = Sum::default();
        match bytes.array::<20>(l3) {
            // Nearly every header: one read.
            Some(fixed) if header == fixed.len() => sum.add_slice(&fixed),
            _ => {
                sum.add_range(bytes, l3, header);
            }
        }
        if sum.finish() != 0 {
            return Err(HeaderFault::Checksum);
        }
    }
    let Some(total) = bytes.be16(l3 + 2).map(usize::from) else {
        return Ok(());
    };
    if total < header {
        return Err(HeaderFault::TotalLengthShort);
    }
    if total > wire {
        return Err(HeaderFault::TotalLengthLong);
    }
    Ok(())
}

fn check_ipv6<B: Bytes + ?Sized>(
    bytes: &B,
    l3: usize,
    captured: usize,
    wire: usize,
) -> Result<(), HeaderFault> {
    if wire < ipv6::FIXED_LEN {
        return Err(HeaderFault::IpHeaderCut);
    }
    let Some(version) = bytes.u8(l3) else {
        return Ok(());
    };
    if version >> 4 != 6 {
        return Err(HeaderFault::Version);
    }
    let (Some(payload), Some(next)) = (bytes.be16(l3 + 4), bytes.u8(l3 + 6)) else {
        return Ok(());
    };
    let length = ipv6::FIXED_LEN + usize::from(payload);
    if length > wire {
        return Err(HeaderFault::PayloadLengthLong);
    }
    if captured < ipv6::FIXED_LEN {
        return Ok(());
    }
    let chain = ipv6::walk(bytes, l3 + ipv6::FIXED_LEN, next, l3 + length.min(captured));
    if let Some(fault) = chain.fault {
        return Err(fault);
    }
    if chain.cut && captured >= length {
        return Err(HeaderFault::ExtensionCut);
    }
    Ok(())
}
