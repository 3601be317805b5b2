//! Any bytes as a frame, and any words as what somebody else's parse found in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_fuzz::planted;
use weir_packet::checksum::verify_l4;
use weir_packet::headers::{Layers, tcp};
use weir_packet::{Depth, FlowHasher, FlowKey, FragmentTable, L3, check_ip, parse};

const DEPTHS: [Depth; 4] = [Depth::None, Depth::L2, Depth::L3, Depth::L4];

fuzz_target!(|frame: &[u8]| {
    let whole = parse(frame, Depth::L4);
    for depth in DEPTHS {
        let layers = parse(frame, depth);
        assert_eq!(layers.depth, depth);
        assert!(layers.l3 <= layers.l4 && layers.l4 <= layers.payload);
        assert!(layers.payload <= layers.end && usize::from(layers.end) <= frame.len());
        assert_eq!(Layers::from_words(layers.to_words()), Some(layers));
        read_all(frame, &layers);
        // One step, and all steps between.
        let mut one = layers;
        one.extend(frame, Depth::L4);
        assert_eq!(one, whole, "from {depth:?} to L4 at once");
        let mut many = layers;
        DEPTHS.iter().for_each(|&step| many.extend(frame, step));
        assert_eq!(many, whole, "from {depth:?} to L4 in steps");
    }
    acceptable_packets_have_a_flow(frame, &whole);
    hostile_words(frame);
    let both = tcp::SYN | tcp::FIN;
    planted(whole.vlan_count == 2 && whole.tcp_flags(frame).is_some_and(|f| f & both == both));
});

/// Reads everything there is to read.
fn read_all(frame: &[u8], layers: &Layers) {
    let _ = (layers.macs(frame), layers.ipv4(frame), layers.ipv6(frame), layers.ips(frame));
    let _ = (layers.ports(frame), layers.tcp_flags(frame), layers.icmp_type_code(frame));
    let _ = (layers.ttl(frame), layers.traffic_class(frame), layers.fragment_id(frame));
    let _ = (layers.fragment(), layers.payload_len(), verify_l4(frame, layers));
    for index in 0..=layers.vlan_count {
        let _ = layers.vlan_tci(frame, index);
    }
    for wire in [frame.len(), 0, usize::MAX] {
        let _ = check_ip(frame, layers, wire);
    }
    let hasher = FlowHasher::new(7);
    if let Some((key, direction)) = FlowKey::from_packet(frame, layers) {
        let [source, destination] = key.ends(direction);
        assert_eq!(key.ends(direction.reverse()), [destination, source]);
        assert!((key.version() == 4) == source.0.is_ipv4());
        let _ = (hasher.hash(&key), hasher.hash32(&key), key.zone(), key.port_kind());
    }
    let _ = hasher.hash_packet(frame, layers);
    let mut table = FragmentTable::new(8, hasher);
    let first = table.hash(frame, layers, 0);
    assert_eq!(table.hash(frame, layers, 1), first, "the same packet again has the same hash");
    let _ = table.hash(frame, layers, u64::MAX);
}

fn acceptable_packets_have_a_flow(frame: &[u8], layers: &Layers) {
    if check_ip(frame, layers, frame.len()).is_ok() {
        assert!(matches!(layers.kind, L3::Ipv4 | L3::Ipv6));
        assert!(FlowKey::from_packet(frame, layers).is_some());
    }
}

/// The frame's last bytes as the words of shared metadata, which another process may have written.
fn hostile_words(frame: &[u8]) {
    let Some(raw) = frame.last_chunk::<24>() else { return };
    let word = |at: usize| raw.iter().skip(at).take(8).fold(0, |w, &b| w << 8 | u64::from(b));
    let words = [word(0), word(8), word(16)];
    // As they are, and with the numbers of enums brought into their range so that they get further.
    let [.., tags, proto, kind, depth, flags, fault] = words[2].to_be_bytes();
    let tame = u64::from_be_bytes([0, 0, tags, proto, kind % 5, depth % 4, flags, fault % 16]);
    for words in [words, [words[0], words[1], tame]] {
        if let Some(mut layers) = Layers::from_words(words) {
            assert_eq!(layers.to_words(), words);
            read_hostile(frame, &layers);
            layers.extend(frame, Depth::L4);
            read_hostile(frame, &layers);
        }
    }
}

/// As [`read_all`], without the promises that only a parse of these very bytes keeps.
fn read_hostile(frame: &[u8], layers: &Layers) {
    let _ = (layers.macs(frame), layers.ipv4(frame), layers.ipv6(frame), layers.ips(frame));
    let _ = (layers.ports(frame), layers.tcp_flags(frame), layers.icmp_type_code(frame));
    let _ = (layers.ttl(frame), layers.traffic_class(frame), layers.fragment_id(frame));
    let _ = (layers.fragment(), layers.payload_len(), verify_l4(frame, layers));
    for index in 0..=layers.vlan_count {
        let _ = layers.vlan_tci(frame, index);
    }
    for wire in [frame.len(), 0, usize::MAX] {
        let _ = check_ip(frame, layers, wire);
    }
    let _ = FlowKey::from_packet(frame, layers);
    let mut table = FragmentTable::new(8, FlowHasher::new(7));
    let _ = (table.hash(frame, layers, 0), table.hash(frame, layers, u64::MAX));
}
