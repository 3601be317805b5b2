//! Parallel stages with µNFs that the library does not have.

use super::*;
use weir_plan::SideBySide;

/// Five packets that kill, equal but for the addresses that the branch beside writes, some hundreds of harmless ones before each and behind the last.
fn five() -> Vec<Input> {
    let packet = |n: u32| {
        let is_fatal = n % 301 == 300;
        let number = n.to_be_bytes();
        let payload = if is_fatal { nfs::FATAL } else { &number };
        let mut bytes =
            Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(payload).build();
        // Station addresses unlike each other, and in each packet others.
        bytes[2..6].copy_from_slice(&number);
        bytes[8..12].copy_from_slice(&(n + 1).to_be_bytes());
        let wire_len = bytes.len() as u32;
        let raw = RawTime::from_fields(1_000, n);
        let time = Timestamp { raw, format: TimeFormat::PcapMicros };
        Input { port: 0, bytes, wire_len, time, link: LinkType::ETHERNET }
    };
    (0..6 * 301 - 1).map(packet).collect()
}

/// What the other branch had written when the packet was seen is chance: it must not hide the packet.
pub(crate) fn poison_is_known_beside_a_writer() {
    let scratch = Scratch::new("poison");
    let input = scratch.0.join("in.pcap");
    let packets = five();
    write_capture(&input, &packets);
    let text = format!("{PORTS} Brittle b; MacSwap m; pipelet {{ lan -> b -> m -> wan; }}");
    let options = Options { isolate: Isolate::Each, online: 2, ..Options::default() };
    let plan = plan(&text, Isolate::Each).side_by_side(&options, SideBySide::Always).unwrap();
    assert_eq!(plan.stages.len(), 1, "{}", plan.to_text());
    let binds = BTreeMap::from([
        (0, DeviceSpec::Pcap { rx: Some(input), tx: None }),
        (1, DeviceSpec::Null),
    ]);
    let report = run(&plan, &binds, &RunOptions::default(), |_| {});
    assert!(report.sound, "{:?} {:?}", report.balance, report.census);
    let known: Vec<bool> = report.crashes.iter().map(|crash| crash.poison).collect();
    assert_eq!(known, [false, true], "{:?}", report.crashes);
    // How many of the others it drops is chance: what comes while it waits for its second restart passes it.
    assert_eq!(report.balance.out + report.balance.dropped, packets.len() as u64);
}
