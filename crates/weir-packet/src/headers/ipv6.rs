//! Walking IPv6 extension headers (RFC 8200 §4).

use super::{HeaderFault, Layers, MAX_EXTENSIONS, proto};
use crate::Bytes;

/// Length of the fixed IPv6 header, in bytes.
pub(super) const FIXED_LEN: usize = 40;
/// Length of the fragment header.
pub(super) const FRAGMENT_LEN: usize = 8;

/// What a walk over the extension headers found.
#[derive(Debug)]
pub(super) struct Chain {
    /// Where the walk ended: the transport header, a fragment's data, or the header it stopped at.
    pub at: usize,
    /// Protocol number of what stands at `at`.
    pub proto: u8,
    /// Where the fragment header is, if there is one.
    pub fragment: Option<usize>,
    /// The fragment header's more-fragments bit.
    pub more: bool,
    /// Not the first fragment: what follows is data.
    pub later: bool,
    /// Whether there was any extension header.
    pub any: bool,
    /// The header at `at` runs over `end`.
    pub cut: bool,
    /// A fault of the chain itself, apart from being cut.
    pub fault: Option<HeaderFault>,
}

/// Length in bytes of the extension header `kind` at `at`; `None` when its length byte is not there.
fn length<B: Bytes + ?Sized>(bytes: &B, kind: u8, at: usize) -> Option<usize> {
    let units = |n: u8| usize::from(n);
    match kind {
        proto::FRAGMENT => Some(8),
        proto::AH => bytes.u8(at + 1).map(|n| (units(n) + 2) * 4),
        _ => bytes.u8(at + 1).map(|n| (units(n) + 1) * 8),
    }
}

#[inline]
pub(super) fn is_extension(kind: u8) -> bool {
    matches!(
        kind,
        proto::HOP_BY_HOP | proto::ROUTING | proto::FRAGMENT | proto::DEST_OPTS | proto::AH
    )
}

/// Walks from the header `kind` at `at` (where the fixed header ends) to the last one, or to `end`.
pub(super) fn walk<B: Bytes + ?Sized>(bytes: &B, at: usize, kind: u8, end: usize) -> Chain {
    let mut chain = Chain {
        at,
        proto: kind,
        fragment: None,
        more: false,
        later: false,
        any: false,
        cut: false,
        fault: None,
    };
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(chain.proto) {
            return chain;
        }
        if chain.proto == proto::HOP_BY_HOP && chain.any {
            chain.fault = chain.fault.or(Some(HeaderFault::HopByHopMisplaced));
        }
        chain.any = true;
        let header = length(bytes, chain.proto, chain.at).filter(|len| chain.at + len <= end);
        let (Some(len), Some(next)) = (header, bytes.u8(chain.at)) else {
            chain.cut = true;
            return chain;
        };
        if chain.proto == proto::FRAGMENT {
            chain.fragment = Some(chain.at);
            let field = bytes.be16(chain.at + 2).unwrap_or(0);
            chain.later = field & 0xfff8 != 0;
            chain.more = field & 1 != 0;
        }
        chain.proto = next;
        chain.at += len;
        if chain.later {
            return chain;
        }
    }
    if is_extension(chain.proto) {
        chain.fault = chain.fault.or(Some(HeaderFault::TooManyExtensions));
    }
    chain
}

/// True when a routing header still has segments to visit: the packet's final destination is then
/// not the destination address of the IPv6 header (RFC 8200 §8.1).
pub(crate) fn pending_route<B: Bytes + ?Sized>(bytes: &B, layers: &Layers) -> bool {
    let fixed = usize::from(layers.l3);
    let mut at = fixed + FIXED_LEN;
    let Some(mut kind) = bytes.u8(fixed + 6) else {
        return false;
    };
    for _ in 0..MAX_EXTENSIONS {
        if at >= usize::from(layers.l4) || !is_extension(kind) {
            return false;
        }
        if kind == proto::ROUTING && bytes.u8(at + 3) != Some(0) {
            return true;
        }
        let (Some(len), Some(next)) = (length(bytes, kind, at), bytes.u8(at)) else {
            return false;
        };
        at += len;
        kind = next;
    }
    false
}
