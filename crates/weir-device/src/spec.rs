//! The operator's words for a device: `pcap:rx=IN,tx=OUT`, `gen:size=64,flows=1000,rate=max`,
//! `null`.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// A device to bind a policy's port to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceSpec {
    /// Packets come from a capture, go to a capture, or both.
    Pcap {
        /// Capture to read.
        rx: Option<PathBuf>,
        /// Capture to write.
        tx: Option<PathBuf>,
    },
    /// Packets are made up.
    Generator(GeneratorSpec),
    /// Packets of given flows; for measurements, which bind it without text.
    Listed(crate::ListedSpec),
    /// Recorded frames over and over; for measurements, which bind it without text.
    Replay(crate::ReplaySpec),
    /// Packets vanish.
    Null,
    /// An interface of the machine, by a packet socket: everything that comes in by it is received.
    Afp(String),
    /// A TAP interface of its own: the kernel sees an Ethernet interface with Weir at the other end.
    Tap(String),
}

impl DeviceSpec {
    /// The interface that it is tied to, if it is a live one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            DeviceSpec::Afp(name) | DeviceSpec::Tap(name) => Some(name),
            DeviceSpec::Pcap { .. }
            | DeviceSpec::Generator(_)
            | DeviceSpec::Listed(_)
            | DeviceSpec::Replay(_)
            | DeviceSpec::Null => None,
        }
    }
}

impl DeviceSpec {
    /// Whether what comes in by it is lost when nobody takes it, so that somebody has to choose.
    pub fn drops_early(&self) -> bool {
        match self {
            DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => true,
            DeviceSpec::Generator(generator) => generator.drops,
            DeviceSpec::Pcap { .. }
            | DeviceSpec::Listed(_)
            | DeviceSpec::Replay(_)
            | DeviceSpec::Null => false,
        }
    }
}

/// What a generator makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorSpec {
    /// Bytes per packet without the frame check sequence, 60 to 9,000; those with a request have as many as it takes at least.
    pub size: u16,
    /// Number of flows, 1 to 1,000,000; packets go round them.
    pub flows: u32,
    /// How fast.
    pub rate: Rate,
    /// How many; `None` is without end.
    pub packets: Option<u64>,
    /// Seed of addresses and ports: equal seeds make equal packets.
    pub seed: u64,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// With a rate: what is due and finds no room is dropped, as a live interface's packets are, instead of
    /// waiting.
    pub drops: bool,
    /// Packets are TCP segments, each with a whole HTTP request, and a flow's follow each other; without it they are UDP's, with zeros.
    pub http: bool,
}

impl GeneratorSpec {
    /// Length of its packets in bytes.
    pub fn longest(&self) -> u16 {
        let heads = if self.ipv6 { 74 } else { 54 };
        let least = if self.http { heads + crate::segments::SHORTEST_REQUEST } else { 0 };
        self.size.max(u16::try_from(least).unwrap_or(u16::MAX))
    }
}

/// A generator's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rate {
    /// As fast as packets are taken.
    Max,
    /// Packets a second.
    PerSecond(u64),
}

/// Why a device's words were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The first word names no device.
    #[error(
        "`{0}` is no device: write afp:INTERFACE, tap:NAME, pcap:rx=FILE,tx=FILE, gen:size=64,flows=1000,rate=max or null"
    )]
    Kind(String),
    /// A setting that the device does not have.
    #[error("`{kind}` has no setting `{key}`: it has {has}")]
    Key {
        /// The device.
        kind: &'static str,
        /// The unknown setting.
        key: String,
        /// Its settings.
        has: &'static str,
    },
    /// A value that cannot be.
    #[error("`{key}={value}`: write {wants}")]
    Value {
        /// The setting.
        key: String,
        /// What was written.
        value: String,
        /// What it takes.
        wants: &'static str,
    },
    /// A capture device without captures.
    #[error("pcap needs rx=FILE to read, tx=FILE to write, or both")]
    NoFile,
    /// What can be no interface's name.
    #[error(
        "`{kind}:{name}`: write the name of an interface, of 1 to 15 characters without spaces, `/` and `:`"
    )]
    Interface {
        /// The device.
        kind: &'static str,
        /// What was written.
        name: String,
    },
    /// Settings for a device that has none.
    #[error("null has no settings")]
    NullSettings,
}

impl Default for GeneratorSpec {
    fn default() -> Self {
        GeneratorSpec {
            size: 64,
            flows: 1000,
            rate: Rate::Max,
            packets: None,
            seed: 1,
            ipv6: false,
            drops: false,
            http: false,
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "afp" => return Ok(DeviceSpec::Afp(interface("afp", settings)?)),
            "tap" => return Ok(DeviceSpec::Tap(interface("tap", settings)?)),
            _ => {}
        }
        let settings = settings.split(',').filter(|s| !s.is_empty());
        let settings = settings.map(|s| s.split_once('=').unwrap_or((s, "")));
        match kind {
            "pcap" => pcap(settings),
            "gen" => generator(settings),
            "null" if text == "null" => Ok(DeviceSpec::Null),
            "null" => Err(SpecError::NullSettings),
            _ => Err(SpecError::Kind(text.to_owned())),
        }
    }
}

/// What the kernel takes as a name (dev_valid_name), and what it makes no pattern of.
fn interface(kind: &'static str, name: &str) -> Result<String, SpecError> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | '%');
    if name.is_empty() || name.len() > 15 || matches!(name, "." | "..") || name.contains(odd) {
        return Err(SpecError::Interface { kind, name: name.to_owned() });
    }
    Ok(name.to_owned())
}

fn pcap<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Result<DeviceSpec, SpecError> {
    let (mut rx, mut tx) = (None, None);
    for (key, value) in settings {
        let slot = match key {
            "rx" => &mut rx,
            "tx" => &mut tx,
            _ => return Err(unknown("pcap", key, "rx and tx")),
        };
        if value.is_empty() || slot.is_some() {
            return Err(bad(key, value, "the name of one file"));
        }
        *slot = Some(PathBuf::from(value));
    }
    if rx.is_none() && tx.is_none() {
        return Err(SpecError::NoFile);
    }
    Ok(DeviceSpec::Pcap { rx, tx })
}

fn generator<'a>(
    settings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<DeviceSpec, SpecError> {
    let mut g = GeneratorSpec::default();
    for (key, value) in settings {
        match key {
            "size" => {
                g.size = number(key, value, 60, 9_000, "bytes, 60 to 9000")?;
            }
            "flows" => g.flows = number(key, value, 1, 1_000_000, "a number, 1 to 1000000")?,
            "rate" if value == "max" => g.rate = Rate::Max,
            "rate" => {
                let wants = "max, or packets a second such as 100000";
                g.rate = Rate::PerSecond(number(key, value, 1, 1_000_000_000, wants)?);
            }
            "packets" => {
                g.packets = Some(number(key, value, 0, u64::MAX, "a number of packets")?);
            }
            "seed" => g.seed = number(key, value, 0, u64::MAX, "a number")?,
            "ip" => {
                g.ipv6 = match value {
                    "4" => false,
                    "6" => true,
                    _ => return Err(bad(key, value, "4 or 6")),
                }
            }
            "full" => {
                g.drops = match value {
                    "wait" => false,
                    "drop" => true,
                    _ => return Err(bad(key, value, "wait or drop")),
                }
            }
            "carry" => {
                g.http = match value {
                    "nothing" => false,
                    "http" => true,
                    _ => return Err(bad(key, value, "nothing or http")),
                }
            }
            _ => {
                let has = "size, flows, rate, packets, seed, ip, full and carry";
                return Err(unknown("gen", key, has));
            }
        }
    }
    if g.drops && g.rate == Rate::Max {
        return Err(bad("full", "drop", "wait, unless there is a rate that can be too high"));
    }
    if g.ipv6 && g.size < 62 {
        return Err(bad("size", &g.size.to_string(), "62 or more for IPv6"));
    }
    Ok(DeviceSpec::Generator(g))
}

fn number<T: FromStr + PartialOrd>(
    key: &str,
    value: &str,
    least: T,
    most: T,
    wants: &'static str,
) -> Result<T, SpecError> {
    match value.parse() {
        Ok(n) if n >= least && n <= most => Ok(n),
        _ => Err(bad(key, value, wants)),
    }
}

fn unknown(kind: &'static str, key: &str, has: &'static str) -> SpecError {
    SpecError::Key { kind, key: key.to_owned(), has }
}

fn bad(key: &str, value: &str, wants: &'static str) -> SpecError {
    SpecError::Value { key: key.to_owned(), value: value.to_owned(), wants }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_written_as_the_manual_says() {
        assert_eq!("null".parse(), Ok(DeviceSpec::Null));
        assert_eq!(
            "pcap:rx=a.pcap,tx=b.pcapng".parse(),
            Ok(DeviceSpec::Pcap { rx: Some("a.pcap".into()), tx: Some("b.pcapng".into()) })
        );
        let g =
            GeneratorSpec { size: 128, flows: 5, rate: Rate::PerSecond(10), ..Default::default() };
        assert_eq!("gen:size=128,flows=5,rate=10".parse(), Ok(DeviceSpec::Generator(g)));
        let rate = Rate::PerSecond(10);
        let drops = GeneratorSpec { rate, drops: true, ..Default::default() };
        assert_eq!("gen:rate=10,full=drop".parse(), Ok(DeviceSpec::Generator(drops)));
        let http = GeneratorSpec { http: true, ..Default::default() };
        assert_eq!("gen:carry=http".parse(), Ok(DeviceSpec::Generator(http)));
        assert_eq!("afp:eth0".parse(), Ok(DeviceSpec::Afp("eth0".into())));
        assert_eq!("tap:weir0".parse(), Ok(DeviceSpec::Tap("weir0".into())));
        assert_eq!("gen".parse(), Ok(DeviceSpec::Generator(GeneratorSpec::default())));
    }

    #[test]
    fn what_is_not_understood_is_answered_with_what_to_write() {
        for (text, says) in [
            ("eth0", "is no device"),
            ("pcap:", "rx=FILE"),
            ("pcap:rx=", "one file"),
            ("pcap:rx=a,rx=b", "one file"),
            ("pcap:in=a", "has no setting `in`"),
            ("gen:size=10", "60 to 9000"),
            ("gen:rate=0", "packets a second"),
            ("gen:flows=x", "1 to 1000000"),
            ("gen:ip=6,size=60", "62 or more"),
            ("gen:full=block,rate=1", "wait or drop"),
            ("gen:full=drop", "unless there is a rate"),
            ("gen:carry=udp", "nothing or http"),
            ("null:x=1", "no settings"),
            ("afp:", "1 to 15 characters"),
            ("afp:sixteen_letters_", "1 to 15 characters"),
            ("tap:a b", "without spaces"),
            ("tap:weir%d", "name of an interface"),
        ] {
            let error = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
