//! Seeded choices, and packets that are made or recorded and known again by their time stamps.

use super::Record;
use std::path::Path;
use weir_capture::{
    Format, LinkType, Precision, RawTime, Record as Captured, TimeFormat, Timestamp, Writer,
};
use weir_oracle::Input;

/// A seeded source of choices: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub struct Choices(pub u64);

impl Choices {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// The seed of this run: `WEIR_SEED`, or a new one.
pub fn seed() -> u64 {
    let given = std::env::var("WEIR_SEED").ok().map(|s| s.parse().unwrap());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.unwrap().as_nanos() as u64
    })
}

/// Packets as `port` receives them: the time stamp says by which port, and at which place.
pub fn stamped<'p>(packets: impl IntoIterator<Item = &'p Input>, port: u16) -> Vec<Input> {
    let stamp = |(place, input): (usize, &Input)| Input {
        port,
        time: Timestamp {
            raw: RawTime::from_fields(u32::from(port), place as u32),
            format: TimeFormat::PcapMicros,
        },
        ..input.clone()
    };
    packets.into_iter().enumerate().map(stamp).collect()
}

/// Writes packets to a capture.
pub fn write_capture(path: &Path, packets: &[Input]) {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(path, Format::Pcap { precision, link }).unwrap();
    for p in packets {
        let (bytes, wire_len, time) = (p.bytes.as_slice(), p.wire_len, p.time);
        let record = Captured { bytes, wire_len, time, link, interface: 0, comment: None };
        writer.append(&record).unwrap();
    }
    writer.commit().unwrap();
}

/// The places in `source`'s stream that what came in by it has, in the order in which it stands there.
/// How a packet and what was made because of it stand to each other is open.
pub fn places(records: &[Record], source: u16) -> Vec<u32> {
    let fields = records.iter().map(|r| r.2.raw.fields());
    fields.filter(|f| f.0 == u32::from(source)).map(|f| f.1).collect()
}
