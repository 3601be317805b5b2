//! How many errors are sent.

use serde::{Deserialize, Serialize};
use weir_nf::Merge;

/// What became of the packets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Errors sent.
    pub sent: u64,
    /// Packets that must not be answered.
    pub not_answered: u64,
    /// Packets not answered because of the rate limit.
    pub limited: u64,
    /// Packets of a family without an address to answer from, or not IP.
    pub no_source: u64,
    /// Packets not answered for want of a buffer.
    pub no_buffer: u64,
    /// When, in nanoseconds since 1970, the token bucket will be full again.
    full_at_ns: u64,
}

impl Answers {
    /// Takes a token out of the bucket, if there is one (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)). The
    /// bucket is one number: when it will be full again.
    pub(super) fn admit(&mut self, now_ns: u64, interval_ns: u64, burst_ns: u64) -> bool {
        let full_at = self.full_at_ns.max(now_ns).saturating_add(interval_ns);
        let fits = full_at.saturating_sub(now_ns) <= burst_ns;
        if fits {
            self.full_at_ns = full_at;
        }
        fits
    }
}

impl Merge for Answers {
    fn merge(&mut self, other: Self) {
        self.sent += other.sent;
        self.not_answered += other.not_answered;
        self.limited += other.limited;
        self.no_source += other.no_source;
        self.no_buffer += other.no_buffer;
        self.full_at_ns = self.full_at_ns.max(other.full_at_ns);
    }
}
