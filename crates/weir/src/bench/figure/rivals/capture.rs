//! The packets of Weir's source as a capture, which DPDK's device for captures takes into memory and gives again and again.

use super::generator;
use std::path::Path;
use weir_capture::{
    Format, LinkType, Precision, RawTime, Record, TimeFormat, Timestamp, WriteError, Writer,
};
use weir_device::Generator;

const NAME: &str = "packets.pcap";

/// Writes one packet of each flow into a folder; all of `size` bytes with the check sequence, which captures do not have.
pub fn write(folder: &Path, size: u16) -> Result<(), WriteError> {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(folder.join(NAME), Format::Pcap { precision, link })?;
    let spec = generator(size);
    // The device does not ask when.
    let time = Timestamp { raw: RawTime::from_fields(0, 0), format: TimeFormat::PcapMicros };
    for flow in 0..spec.flows {
        let bytes = &Generator::packet(&spec, flow)[..];
        let wire_len = u32::from(spec.size);
        writer.append(&Record { bytes, wire_len, time, link, interface: 0, comment: None })?;
    }
    writer.commit().map(drop)
}

/// Settings of the device: it gives what is in the folder without end, and drops what is sent.
pub fn device(folder: &Path) -> String {
    format!("rx_pcap={},infinite_rx=1", folder.join(NAME).display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::own::Folder;
    use std::collections::BTreeSet;
    use weir_capture::Reader;

    #[test]
    fn a_capture_has_a_packet_of_each_flow_of_the_source_without_its_check_sequence() {
        let folder = Folder::new("weir-rivals-capture").unwrap();
        write(folder.path(), 64).unwrap();
        let mut reader = Reader::open(folder.path().join(NAME)).unwrap();
        let mut all = BTreeSet::new();
        while let Some(record) = reader.next().unwrap() {
            assert_eq!((record.bytes.len(), record.wire_len), (60, 60));
            all.insert(record.bytes.to_vec());
        }
        let flows = generator(64).flows;
        assert_eq!(all, (0..flows).map(|flow| Generator::packet(&generator(64), flow)).collect());
        assert_eq!(all.len(), flows as usize);
    }
}
