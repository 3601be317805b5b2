//! How much traffic an edge is expected to carry.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// An estimate of an edge's traffic (E2 §3.1), for sizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bandwidth {
    /// Bits per second.
    Bps(u64),
    /// Packets per second.
    Pps(u64),
}

/// Powers of ten, with the letters that stand for them.
const SCALES: [(&str, u32); 5] = [("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0)];

impl Bandwidth {
    /// Reads `10 Gbps`, `2.5Mpps`: a decimal number, one of `k` (or `K`), `M`, `G`, `T` or nothing,
    /// and `bps` or `pps`. `None` when it is not that, not a whole number of the unit, or over 2^64.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at_checked(unit_at)?;
        let unit = unit.trim();
        let (scale, make) = match (unit.strip_suffix("bps"), unit.strip_suffix("pps")) {
            (Some(scale), _) => (scale, Bandwidth::Bps as fn(u64) -> Self),
            (_, Some(scale)) => (scale, Bandwidth::Pps as fn(u64) -> Self),
            _ => return None,
        };
        let scale = if scale == "K" { "k" } else { scale };
        let (_, power) = SCALES.iter().find(|(letter, _)| *letter == scale)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let fraction = fraction.trim_end_matches('0');
        let digits = u32::try_from(fraction.len()).ok()?;
        let zeros = power.checked_sub(digits)?;
        let value = format!("{whole}{fraction}").parse::<u64>().ok()?;
        value.checked_mul(10_u64.checked_pow(zeros)?).map(make)
    }
}

impl Display for Bandwidth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self {
            Bandwidth::Bps(value) => (*value, "bps"),
            Bandwidth::Pps(value) => (*value, "pps"),
        };
        let scaled = SCALES.iter().find_map(|(letter, power)| {
            let factor = 10_u64.checked_pow(*power)?;
            (value != 0 && value.checked_rem(factor) == Some(0))
                .then(|| (value.checked_div(factor), letter))
        });
        match scaled {
            Some((Some(value), letter)) => write!(f, "{value} {letter}{unit}"),
            _ => write!(f, "{value} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bandwidth;

    #[test]
    fn bandwidths_are_numbers_with_units_and_print_as_they_parse() {
        for (text, value, printed) in [
            ("10 Gbps", Bandwidth::Bps(10_000_000_000), "10 Gbps"),
            ("5Mpps", Bandwidth::Pps(5_000_000), "5 Mpps"),
            ("2.50 Gbps", Bandwidth::Bps(2_500_000_000), "2500 Mbps"),
            ("1500 Kbps", Bandwidth::Bps(1_500_000), "1500 kbps"),
            ("7 pps", Bandwidth::Pps(7), "7 pps"),
            ("0 bps", Bandwidth::Bps(0), "0 bps"),
        ] {
            assert_eq!(Bandwidth::parse(text), Some(value), "{text}");
            assert_eq!(value.to_string(), printed);
            assert_eq!(Bandwidth::parse(printed), Some(value));
        }
    }

    #[test]
    fn what_is_no_bandwidth_is_refused() {
        for text in [
            "",
            "10",
            "Gbps",
            "10 GBps",
            "1.5 bps",
            "1..5 Gbps",
            "-1 Gbps",
            "99999999999999999999 bps",
            "20000000 Tbps",
        ] {
            assert_eq!(Bandwidth::parse(text), None, "{text}");
        }
    }
}
