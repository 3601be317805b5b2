//! How a packet's raw time stamp is to be read, in 16 bits of its metadata.

use weir_capture::{RawTime, Resolution, TimeFormat, Timestamp};

const MICROS: u16 = 1;
const NANOS: u16 = 2;
const UNITS: u16 = 0x100;

/// Raw time stamp and its code as metadata keeps them. A form that has no code (pcapng's second
/// offset) is kept in nanoseconds.
pub(crate) fn encode(time: Timestamp) -> (u64, u16) {
    match time.format {
        TimeFormat::PcapMicros => (time.raw.0, MICROS),
        TimeFormat::PcapNanos => (time.raw.0, NANOS),
        TimeFormat::Units(Resolution { tsresol, offset: 0 }) => {
            (time.raw.0, UNITS | u16::from(tsresol))
        }
        TimeFormat::Units(_) => (time.to_ns(), UNITS | 9),
    }
}

/// What [`encode`] was given; code 0 (live packets) is nanoseconds.
pub(crate) fn decode(raw: u64, code: u16, time_ns: u64) -> Timestamp {
    match code {
        MICROS => Timestamp { raw: RawTime(raw), format: TimeFormat::PcapMicros },
        NANOS => Timestamp { raw: RawTime(raw), format: TimeFormat::PcapNanos },
        c if c & 0xff00 == UNITS => {
            let tsresol = c as u8;
            let resolution = Resolution { tsresol, offset: 0 };
            Timestamp { raw: RawTime(raw), format: TimeFormat::Units(resolution) }
        }
        _ => Timestamp { raw: RawTime(time_ns), format: TimeFormat::Units(Resolution::NANOS) },
    }
}
