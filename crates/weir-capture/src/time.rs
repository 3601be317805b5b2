//! Time stamps as files hold them, and their conversion to nanoseconds.

/// A time stamp exactly as a file holds it; only a [`TimeFormat`] gives it a meaning.
///
/// pcap: seconds in the upper 32 bits, the sub-second field in the lower 32, whatever its value.
/// pcapng: the 64-bit count of the interface's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawTime(pub u64);

impl RawTime {
    /// The two fields of a pcap record. `fraction` may be out of range: it is kept.
    #[must_use]
    pub fn from_fields(seconds: u32, fraction: u32) -> Self {
        Self(u64::from(seconds) << 32 | u64::from(fraction))
    }

    /// Seconds and sub-second field of a pcap record; for pcapng the upper and lower half of the count.
    #[must_use]
    pub fn fields(self) -> (u32, u32) {
        ((self.0 >> 32) as u32, self.0 as u32)
    }
}

/// The sub-second unit of a pcap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// Microseconds (magic 0xa1b2c3d4).
    Micros,
    /// Nanoseconds (magic 0xa1b23c4d).
    Nanos,
}

/// The unit of a pcapng interface's time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resolution {
    /// The option `if_tsresol` as in the file: 10^-n seconds, or 2^-(n & 127) seconds when the top bit is set.
    pub tsresol: u8,
    /// The option `if_tsoffset`: seconds to add to every time stamp.
    pub offset: i64,
}

impl Resolution {
    /// Microseconds, what an interface without the option uses.
    pub const MICROS: Self = Self { tsresol: 6, offset: 0 };
    /// Nanoseconds.
    pub const NANOS: Self = Self { tsresol: 9, offset: 0 };

    fn exponent(self) -> u32 {
        u32::from(self.tsresol & 0x7f)
    }

    fn is_binary(self) -> bool {
        self.tsresol & 0x80 != 0
    }

    fn to_ns(self, units: u64) -> u64 {
        let (units, e) = (u128::from(units), self.exponent());
        let ns = if self.is_binary() {
            // At most 2^94, so the product fits, and e < 128.
            units.wrapping_mul(NS_PER_S) >> e
        } else if e <= 9 {
            units.saturating_mul(power_of_ten(9_u32.saturating_sub(e)))
        } else {
            units / power_of_ten(e.saturating_sub(9))
        };
        let ns = i128::try_from(ns).unwrap_or(i128::MAX);
        clamp(ns.saturating_add(self.offset_ns()))
    }

    fn at_ns(self, ns: u64) -> u64 {
        let ns = i128::from(ns).saturating_sub(self.offset_ns()).max(0).unsigned_abs();
        let e = self.exponent();
        let units = if self.is_binary() {
            let scaled = ns.saturating_mul(1_u128 << e);
            scaled / NS_PER_S
        } else if e <= 9 {
            ns / power_of_ten(9_u32.saturating_sub(e))
        } else {
            ns.saturating_mul(power_of_ten(e.saturating_sub(9)))
        };
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    fn offset_ns(self) -> i128 {
        i128::from(self.offset).saturating_mul(NS_PER_S as i128)
    }
}

/// How the time stamps of one source are to be read: pcap's two precisions or pcapng's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeFormat {
    /// pcap: seconds and microseconds.
    PcapMicros,
    /// pcap: seconds and nanoseconds.
    PcapNanos,
    /// pcapng: one count of units.
    Units(Resolution),
}

impl TimeFormat {
    /// Nanoseconds since 1970-01-01 UTC. A sub-second field out of range carries into the seconds, as libpcap's users see
    /// it; times before 1970 become 0 and times after 2554 the largest value.
    #[must_use]
    pub fn to_ns(self, raw: RawTime) -> u64 {
        let (seconds, fraction) = raw.fields();
        let (seconds, fraction) = (u64::from(seconds), u64::from(fraction));
        match self {
            // 2^32 seconds and 2^32 ms are together below 2^63 ns: nothing here saturates.
            Self::PcapMicros => {
                seconds.saturating_mul(1_000_000_000).saturating_add(fraction.saturating_mul(1_000))
            }
            Self::PcapNanos => seconds.saturating_mul(1_000_000_000).saturating_add(fraction),
            Self::Units(resolution) => resolution.to_ns(raw.0),
        }
    }

    /// The raw time stamp of a time in ns since the epoch: finer parts are cut off; pcap seconds end in 2106 and stay at
    /// the largest value after it.
    #[must_use]
    pub fn at_ns(self, ns: u64) -> RawTime {
        let (seconds, rest) = (ns / 1_000_000_000, (ns % 1_000_000_000) as u32);
        match self {
            Self::PcapMicros => pcap_time(seconds, rest / 1_000, 999_999),
            Self::PcapNanos => pcap_time(seconds, rest, 999_999_999),
            Self::Units(resolution) => RawTime(resolution.at_ns(ns)),
        }
    }

    /// The format for the same times in pcapng: itself for units, units of the same size for pcap.
    #[must_use]
    pub fn in_pcapng(self) -> Resolution {
        match self {
            Self::PcapMicros => Resolution::MICROS,
            Self::PcapNanos => Resolution::NANOS,
            Self::Units(resolution) => resolution,
        }
    }

    /// The pcap precision that loses nothing, or the least: microseconds when the units are that coarse, else nanoseconds.
    #[must_use]
    pub fn in_pcap(self) -> Precision {
        match self {
            Self::PcapMicros => Precision::Micros,
            Self::PcapNanos => Precision::Nanos,
            Self::Units(r) if !r.is_binary() && r.exponent() <= 6 => Precision::Micros,
            Self::Units(_) => Precision::Nanos,
        }
    }
}

impl From<Precision> for TimeFormat {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Micros => Self::PcapMicros,
            Precision::Nanos => Self::PcapNanos,
        }
    }
}

/// A raw time stamp together with what gives it a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamp {
    /// The field as in the file.
    pub raw: RawTime,
    /// How to read it.
    pub format: TimeFormat,
}

impl Timestamp {
    /// Nanoseconds since the epoch; see [`TimeFormat::to_ns`].
    #[must_use]
    pub fn to_ns(self) -> u64 {
        self.format.to_ns(self.raw)
    }

    /// The raw field in another format: unchanged when the formats agree, else by way of nanoseconds, see
    /// [`TimeFormat::to_ns`] and [`TimeFormat::at_ns`].
    #[must_use]
    pub fn raw_in(self, format: TimeFormat) -> RawTime {
        if self.format == format { self.raw } else { format.at_ns(self.to_ns()) }
    }
}

const NS_PER_S: u128 = 1_000_000_000;

fn pcap_time(seconds: u64, fraction: u32, largest: u32) -> RawTime {
    match u32::try_from(seconds) {
        Ok(seconds) => RawTime::from_fields(seconds, fraction),
        Err(_) => RawTime::from_fields(u32::MAX, largest),
    }
}

fn clamp(ns: i128) -> u64 {
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}

/// 10^n; n beyond 38 gives the largest value, which divides every 64-bit count to zero as the true value would.
fn power_of_ten(n: u32) -> u128 {
    10_u128.checked_pow(n).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(tsresol: u8, offset: i64) -> TimeFormat {
        TimeFormat::Units(Resolution { tsresol, offset })
    }

    #[test]
    fn an_odd_sub_second_field_carries_into_the_seconds() {
        let odd = RawTime::from_fields(10, 2_500_000);
        assert_eq!(TimeFormat::PcapMicros.to_ns(odd), 12_500_000_000);
        assert_eq!(TimeFormat::PcapNanos.to_ns(RawTime::from_fields(10, u32::MAX)), 14_294_967_295);
    }

    #[test]
    fn units_are_powers_of_ten_or_two_and_have_an_offset() {
        assert_eq!(units(6, 0).to_ns(RawTime(1_500_000)), 1_500_000_000);
        assert_eq!(units(0, 0).to_ns(RawTime(3)), 3_000_000_000);
        assert_eq!(units(12, 0).to_ns(RawTime(7_999)), 7);
        assert_eq!(units(0x80 | 10, 0).to_ns(RawTime(512)), 500_000_000);
        assert_eq!(units(9, 5).to_ns(RawTime(1)), 5_000_000_001);
        assert_eq!(units(9, -5).to_ns(RawTime(1)), 0);
    }

    #[test]
    fn extreme_resolutions_saturate() {
        assert_eq!(units(0, 0).to_ns(RawTime(u64::MAX)), u64::MAX);
        assert_eq!(units(0, i64::MAX).to_ns(RawTime(u64::MAX)), u64::MAX);
        assert_eq!(units(127, 0).to_ns(RawTime(u64::MAX)), 0);
        assert_eq!(units(255, 0).to_ns(RawTime(u64::MAX)), 0);
        assert_eq!(units(127, 0).at_ns(1), RawTime(u64::MAX));
        assert_eq!(units(255, 0).at_ns(1), RawTime(u64::MAX));
        assert_eq!(units(255, 0).at_ns(0), RawTime(0));
        assert_eq!(TimeFormat::PcapMicros.at_ns(u64::MAX), RawTime::from_fields(u32::MAX, 999_999));
    }

    #[test]
    fn converting_between_equal_formats_keeps_every_bit() {
        let odd = Timestamp { raw: RawTime(u64::MAX), format: TimeFormat::PcapMicros };
        assert_eq!(odd.raw_in(TimeFormat::PcapMicros), RawTime(u64::MAX));
        assert_eq!(odd.raw_in(TimeFormat::PcapNanos).fields(), (u32::MAX, 999_999_999));
    }

    proptest! {
        #[test]
        fn every_resolution_and_value_is_accepted(tsresol: u8, offset: i64, raw: u64) {
            let format = units(tsresol, offset);
            let _ = format.at_ns(format.to_ns(RawTime(raw)));
            let _ = format.at_ns(raw);
        }

        #[test]
        fn nanosecond_formats_give_back_the_time(ns in 0..u64::from(u32::MAX) * 1_000_000_000) {
            for format in [TimeFormat::PcapNanos, units(9, 0), units(9, -1_000)] {
                prop_assert_eq!(format.to_ns(format.at_ns(ns)), ns);
            }
            for format in [TimeFormat::PcapMicros, units(6, 0)] {
                prop_assert_eq!(format.to_ns(format.at_ns(ns)), ns / 1_000 * 1_000);
            }
        }
    }
}
