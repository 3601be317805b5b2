//! Reading the captures beside the repository, for tests only.
#![allow(dead_code)]

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A captured Ethernet frame.
pub struct Record {
    pub bytes: Vec<u8>,
    pub wire_len: usize,
}

/// Every capture in `shared/traces` beside the repository; empty (and said so) when it is not there.
pub fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: no captures at ../shared/traces beside the repository");
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "the folder of captures is empty");
    paths
}

/// The Ethernet frames of a capture; those of other link types are left out.
pub fn ethernet_frames(path: &Path) -> Vec<Record> {
    let mut reader = create_reader(1 << 20, File::open(path).unwrap()).unwrap();
    let mut frames = Vec::new();
    let mut legacy_is_ethernet = false;
    let mut interfaces = Vec::new();
    loop {
        match reader.next() {
            Ok((consumed, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        legacy_is_ethernet = header.network == Linktype::ETHERNET;
                    }
                    PcapBlockOwned::Legacy(block) if legacy_is_ethernet => {
                        let len = block.caplen as usize;
                        frames.push(Record {
                            bytes: block.data[..len].to_vec(),
                            wire_len: block.origlen as usize,
                        });
                    }
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        interfaces.push(interface.linktype);
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(block))
                        if interfaces[block.if_id as usize] == Linktype::ETHERNET =>
                    {
                        let len = block.caplen as usize;
                        frames.push(Record {
                            bytes: block.data[..len].to_vec(),
                            wire_len: block.origlen as usize,
                        });
                    }
                    _ => {}
                }
                reader.consume(consumed);
            }
            // Some captures are cut inside their last record: what is whole counts.
            Err(PcapError::Eof | PcapError::UnexpectedEof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{}: {error:?}", path.display()),
        }
    }
}
