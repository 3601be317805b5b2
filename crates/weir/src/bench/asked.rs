//! What options of benchmarks may be: what none can measure is refused before anything is.

use crate::cores::is_ours;
use std::fmt::Display;
use std::str::FromStr;

/// Most flows: those that ConnTrack remembers.
pub const MOST_FLOWS: u32 = 1 << 20;
/// Most rules of a firewall: as many as a policy has room for.
pub const MOST_RULES: usize = 20_000;
/// Longest chain: half as many again as figures have (`grow-chain`).
pub const MOST_LENGTH: usize = 300;

/// A number from `least` to `most`.
pub fn within<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
    T::Err: Display,
{
    move |text| {
        let value: T = text.parse().map_err(|e| format!("{e}; it is {least} to {most}"))?;
        // What is no number is not within anything.
        let fits = (least..=most).contains(&value);
        if fits { Ok(value) } else { Err(format!("it is {least} to {most}")) }
    }
}

/// How often something is measured.
pub fn times(text: &str) -> Result<usize, String> {
    within(1, 10_000)(text)
}

/// How long a sample takes, in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    within(0.05, 60.0)(text)
}

/// Bytes of a packet, as a generator makes them.
pub fn size(text: &str) -> Result<u16, String> {
    within(60, 9_000)(text)
}

/// How many flows.
pub fn flows<T: TryFrom<u32>>(text: &str) -> Result<T, String> {
    let flows = within(1, MOST_FLOWS)(text)?;
    T::try_from(flows).map_err(|_| format!("it is 1 to {MOST_FLOWS}"))
}

/// How many NFs.
pub fn length(text: &str) -> Result<usize, String> {
    within(1, MOST_LENGTH)(text)
}

/// A core that this process may use.
pub fn core(text: &str) -> Result<usize, String> {
    let core = text.parse().map_err(|e| format!("{e}"))?;
    if is_ours(core) { Ok(core) } else { Err("it is not there, or not ours to use".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity};

    #[test]
    fn numbers_are_within_both_bounds_and_the_error_names_them() {
        for (text, is_one) in
            [("0.05", true), ("60", true), ("0.04", false), ("NaN", false), ("inf", false)]
        {
            assert_eq!(seconds(text).is_ok(), is_one, "{text}");
        }
        assert_eq!(size("64"), Ok(64));
        for text in ["59", "9001", "65536", "-1", "", "a"] {
            assert!(size(text).unwrap_err().ends_with("it is 60 to 9000"), "{text}");
        }
        assert_eq!((flows::<u32>("1"), flows::<usize>("1048576")), (Ok(1), Ok(1 << 20)));
        assert!(times("18446744073709551615").is_err() && length("0").is_err());
    }

    #[test]
    fn a_core_is_one_that_is_ours() {
        let set = sched_getaffinity(None).unwrap();
        let ours = (0..CpuSet::MAX_CPU).find(|core| set.is_set(*core)).unwrap();
        assert_eq!(core(&ours.to_string()), Ok(ours));
        for other in ["18446744073709551615", "100000", "-1", "one"] {
            assert!(core(other).is_err(), "{other}");
        }
    }
}
