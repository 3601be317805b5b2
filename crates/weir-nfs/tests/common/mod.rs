//! Packets that several tests use.
#![allow(dead_code)] // Each test binary uses its part.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use weir_nf::checksum::{L4Checksum, verify_l4};
use weir_nf::testing::{Captured, Seen};
use weir_nf::wire::Frame;
use weir_nf::{Depth, Layers, check_ip};
use weir_packet::parse;

/// PSH and ACK: what segments with data carry.
pub const DATA: u8 = 0x18;

pub const HOP_BY_HOP_AND_DEST_OPTS: &[(u8, &[u8])] =
    &[(0, &[1, 4, 0, 0, 0, 0]), (60, &[1, 4, 0, 0, 0, 0])];

pub fn v4() -> Frame<'static> {
    Frame::ipv4([192, 0, 2, 10], [192, 0, 2, 2])
}

pub fn v6() -> Frame<'static> {
    let end = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Frame::ipv6(end(0x10), end(2))
}

/// The TCP segment with `payload` in every wrapping: IPv4 with and without options, IPv6 with and
/// without extension headers, untagged, VLAN and QinQ.
pub fn wrapped(payload: &[u8]) -> Vec<Vec<u8>> {
    let nets = [v4(), v4().options(&[1; 8]), v6(), v6().extensions(HOP_BY_HOP_AND_DEST_OPTS)];
    let tcp = |f: Frame<'static>| f.tcp(40_000, 8080, DATA);
    nets.into_iter()
        .map(tcp)
        .flat_map(|f| [f, f.vlan(7), f.tag(0x88a8, 100).vlan(8)])
        .map(|f| Frame::build(&f.payload(payload)))
        .collect()
}

/// The Ethernet packets of a capture.
pub fn ethernet(path: &Path) -> Vec<Captured> {
    let mut reader = weir_capture::Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if record.link.is_ethernet() {
            packets.push((record.bytes.to_vec(), record.wire_len as usize));
        }
    }
    packets
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shared captures, or none with a word about it.
pub fn shared_captures() -> Vec<PathBuf> {
    let folder = root().join("../shared/traces");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: no captures in {}", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng"));
    paths.sort();
    paths
}

/// Reads what left by `output`, after a look at all its checksums.
pub fn left_by(seen: &Seen, output: &str) -> Layers {
    assert_eq!(seen.verdict, Ok(output));
    let bytes = &seen.bytes[..];
    let layers = parse(bytes, Depth::L4);
    assert_eq!(check_ip(bytes, &layers, bytes.len()), Ok(()));
    let check = verify_l4(bytes, &layers);
    assert!(matches!(check, L4Checksum::Good | L4Checksum::Absent), "{check:?}");
    layers
}
