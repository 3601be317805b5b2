//! Swaps the MAC addresses: what goes out goes back to where it came from.

use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, Field, LayerAccess, Nf, NoConfig, Packets,
    ReadWrite, Touch,
};

/// Swaps source and destination MAC address of every frame; frames under 12 bytes pass as they are.
///
/// *Output:* `out`. *Config:* none. It is the µNF of the forwarding benchmarks (the µNF paper's
/// §VI): two loads, three shifts and two stores per packet, no look at the metadata.
#[derive(Debug)]
pub struct MacSwap;

impl Nf for MacSwap {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "MacSwap",
        summary: "Swaps source and destination MAC address",
        layers: LayerAccess { l2: Touch::Write, ..LayerAccess::NONE },
        fields: &[(Field::EthDst, Touch::Write), (Field::EthSrc, Touch::Write)],
        // Not idempotent: going through twice gives the addresses back.
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 10,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(MacSwap)
    }

    #[inline]
    fn process(&self, packets: &mut Packets<'_, ReadWrite>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let Some(mut bytes) = packet.bytes_mut() else { continue };
            let Some(mut head) = bytes.head::<12>() else { continue };
            let (low, high) = (u64::from_le(head.ne64::<0>()), u32::from_le(head.ne32::<8>()));
            let (low, high) = swapped(low, high);
            head.set_ne64::<0>(low.to_le());
            head.set_ne32::<8>(high.to_le());
        }
    }
}

/// The 12 address bytes as one little-endian 96-bit number, turned by 48 bits.
#[inline(always)]
fn swapped(low: u64, high: u32) -> (u64, u32) {
    (low >> 48 | u64::from(high) << 16 | low << 48, (low >> 16) as u32)
}

weir_nf::register!(MacSwap);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_nf::testing::Bench;
    use weir_nf::wire::Frame;

    fn run(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut bench = Bench::new::<MacSwap>(Default::default()).unwrap();
        let seen = bench.run(frames);
        assert!(seen.iter().all(|s| s.output() == "out"));
        seen.into_iter().map(|s| s.bytes).collect()
    }

    fn frame() -> Frame<'static> {
        Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"data")
    }

    const A: [u8; 6] = [0x02, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5];
    const B: [u8; 6] = [0x06, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5];

    #[test]
    fn source_and_destination_change_places_and_nothing_else_changes() {
        let frames = [
            frame().macs(A, B),
            Frame::ipv6(std::net::Ipv6Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST).macs(A, B),
            frame().macs(A, B).vlan(7),
            frame().macs(A, B).tag(0x88a8, 100).vlan(8),
            Frame::other(0x0806).macs(A, B).payload(&[0; 28]),
        ];
        let there: Vec<_> = frames.iter().map(Frame::build).collect();
        let back: Vec<_> = frames.iter().map(|f| f.macs(B, A).build()).collect();
        assert_eq!(run(&there), back);
    }

    #[test]
    fn twice_is_the_identity_for_every_length() {
        let frames: Vec<Vec<u8>> = (0..80).map(|len| (0..len).collect()).collect();
        assert_eq!(run(&run(&frames)), frames);
    }

    #[test]
    fn frames_without_both_addresses_pass_untouched() {
        let short: Vec<Vec<u8>> = (0..12).map(|len| (0..len).collect()).collect();
        assert_eq!(run(&short), short);
        let least: Vec<u8> = (0..12).collect();
        assert_eq!(run(&[least]), [[6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]]);
    }
}
