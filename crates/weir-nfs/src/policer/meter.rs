//! Token buckets that meter a stream of packets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::ConfigError;

/// What a meter says of a packet (RFC 2697 §3, RFC 2698 §3, colour-blind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within rate and burst.
    Green,
    /// Beyond them, but within the excess or the peak.
    Yellow,
    /// Beyond all.
    Red,
}

impl Color {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Color::Green => "green",
            Color::Yellow => "yellow",
            Color::Red => "red",
        }
    }
}

/// A rate limit as written. Bytes count from the IP header on.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Bits per second.
    #[schemars(range(min = 1, max = MOST_RATE))]
    pub rate: u64,
    /// Bytes at once, at least one packet's.
    #[schemars(range(min = 1, max = MOST_BURST))]
    pub burst: u32,
    /// Bytes that may follow a burst once, as yellow ones (RFC 2697's excess burst size).
    #[serde(default)]
    #[schemars(range(max = MOST_BURST))]
    pub excess: u32,
    /// Bits per second up to which packets beyond `rate` are yellow instead of red (RFC 2698's peak rate); instead of `excess`.
    #[serde(default)]
    #[schemars(range(min = 1, max = MOST_RATE))]
    pub peak_rate: Option<u64>,
    /// Bytes at once at the peak rate; `burst` unless told otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = MOST_BURST))]
    pub peak_burst: Option<u32>,
}

/// The largest burst, in bytes: its bits times a second's nanoseconds fit 63 bits.
const MOST_BURST: u32 = 1 << 30;
/// The highest rate, in bits per second.
const MOST_RATE: u64 = 100_000_000_000_000;

/// Two buckets' sizes and rates. Tokens are counted in bits times 10^9, of which a bucket gets its rate's
/// number each nanosecond: integers without a remainder, so that nothing drifts.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    rates: [u64; 2],
    sizes: [u64; 2],
    /// Two rates (RFC 2698); otherwise the second bucket gets what the first has no room for.
    has_peak: bool,
}

/// What is missing in a meter's two buckets; nothing in new ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    missing: [u64; 2],
    /// When that was, in nanoseconds.
    at_ns: u64,
}

/// Tokens for so many bytes.
fn tokens(bytes: u64) -> u64 {
    bytes.saturating_mul(8 * 1_000_000_000)
}

impl Meter {
    /// Compiles the limit that stands at `at` in the configuration.
    pub fn new(limit: &Limit, at: &str) -> Result<Self, ConfigError> {
        let wrong = |key: &str, why: String| Err(ConfigError { at: format!("{at}/{key}"), why });
        let peak_rate = limit.peak_rate.unwrap_or(limit.rate);
        for (key, rate) in [("rate", limit.rate), ("peak_rate", peak_rate)] {
            if rate == 0 || rate > MOST_RATE {
                return wrong(key, format!("{rate} bits per second; write 1 to {MOST_RATE}"));
            }
        }
        let peak_burst = limit.peak_burst.unwrap_or(limit.burst);
        for (key, burst) in [("burst", limit.burst), ("peak_burst", peak_burst)] {
            if burst == 0 || burst > MOST_BURST {
                let why = format!("{burst} bytes; write 1 to {MOST_BURST}, at least a packet's");
                return wrong(key, why);
            }
        }
        if limit.excess > MOST_BURST {
            return wrong("excess", format!("{} bytes; at most {MOST_BURST}", limit.excess));
        }
        let has_peak = limit.peak_rate.is_some();
        if has_peak && limit.excess > 0 {
            return wrong("excess", "write either `excess` or `peak_rate`".to_owned());
        }
        if !has_peak && limit.peak_burst.is_some() {
            return wrong("peak_burst", "it needs a `peak_rate`".to_owned());
        }
        if peak_rate < limit.rate {
            let why = format!("{peak_rate} is less than the rate, {}", limit.rate);
            return wrong("peak_rate", why);
        }
        let second = if has_peak { peak_burst } else { limit.excess };
        Ok(Meter {
            rates: [limit.rate, peak_rate],
            sizes: [tokens(limit.burst.into()), tokens(second.into())],
            has_peak,
        })
    }

    /// Lets time go on to `now_ns`, and says what a packet of so many bytes is.
    #[inline]
    pub fn look(&self, buckets: &mut Buckets, now_ns: u64, bytes: u64) -> Color {
        let since = now_ns.saturating_sub(buckets.at_ns);
        let [first, second] = self.rates.map(|rate| since.saturating_mul(rate));
        let [a, b] = buckets.missing;
        let rest = if self.has_peak { second } else { first.saturating_sub(a) };
        buckets.missing = [a.saturating_sub(first), b.saturating_sub(rest)];
        buckets.at_ns = buckets.at_ns.max(now_ns);
        let cost = tokens(bytes);
        let [fits, fits_second] =
            [0, 1].map(|i: usize| buckets.missing[i].saturating_add(cost) <= self.sizes[i]);
        match (fits, fits_second) {
            (true, true) => Color::Green,
            (true, false) if !self.has_peak => Color::Green,
            (false, true) => Color::Yellow,
            _ => Color::Red,
        }
    }

    /// Takes the tokens of a packet of this colour; red ones take none.
    #[inline]
    pub fn take(&self, buckets: &mut Buckets, bytes: u64, color: Color) {
        let cost = tokens(bytes);
        let takes = match color {
            Color::Green => [true, self.has_peak],
            Color::Yellow => [false, true],
            Color::Red => [false, false],
        };
        for (missing, takes) in buckets.missing.iter_mut().zip(takes) {
            *missing = missing.saturating_add(if takes { cost } else { 0 });
        }
    }
}

impl Buckets {
    /// Of two states of the same buckets, the later.
    pub(super) fn later(self, other: Self) -> Self {
        if other.at_ns > self.at_ns { other } else { self }
    }
}
