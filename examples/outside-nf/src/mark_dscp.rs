//! Marks packets with a DSCP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::{
    Bytes, ConfigError, Ctx, Depth, Descriptor, Effect, Env, L3, LayerAccess, Merge, Nf, Packets,
    ReadWrite, Touch,
};
use weir_packet::checksum::update_u16;

/// Writes a DSCP into IPv4 and IPv6 headers and keeps the ECN bits and the IPv4 checksum right.
/// Other packets, and those that end inside that header, pass as they are.
///
/// *Output:* `out`. *Config:* `dscp`. *Source:* RFC 2474 §3; checksum: RFC 1624.
#[derive(Debug)]
pub struct MarkDscp {
    dscp: u8,
}

/// Configuration of [`MarkDscp`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The DSCP, 0 to 63; 46 is expedited forwarding.
    #[serde(default)]
    dscp: u8,
}

/// What was done in all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Marked {
    /// Packets whose DSCP was another.
    changed: u64,
}

impl Merge for Marked {
    fn merge(&mut self, other: Self) {
        self.changed += other.changed;
    }
}

impl Nf for MarkDscp {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "MarkDscp",
        summary: "Writes a DSCP into IP headers",
        layers: LayerAccess { l2: Touch::Read, l3: Touch::Write, ..LayerAccess::NONE },
        effect: Effect::Idempotent,
        cost_cycles: 30,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = Config;
    type Flow = ();
    type Shared = Marked;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        if config.dscp > 63 {
            let why = format!("{} is no DSCP; the largest is 63", config.dscp);
            return Err(ConfigError { at: "/dscp".to_owned(), why });
        }
        Ok(MarkDscp { dscp: config.dscp })
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let layers = packet.layers(Depth::L3);
            let l3 = usize::from(layers.l3);
            if layers.l4 <= layers.l3 {
                // The packet ends inside its IP header.
                continue;
            }
            let Some(mut bytes) = packet.bytes_mut() else { continue };
            // Both headers' first word: IPv4 has the DSCP in bits 8 to 13 (of 16), IPv6 in 4 to 9.
            let Some(old) = bytes.as_read().be16(l3) else { continue };
            let shift = match layers.kind {
                L3::Ipv4 => 2,
                L3::Ipv6 => 6,
                _ => continue,
            };
            let new = old & !(63 << shift) | u16::from(self.dscp) << shift;
            if new == old {
                continue;
            }
            if layers.kind == L3::Ipv4 {
                let Some(check) = bytes.as_read().be16(l3 + 10) else { continue };
                bytes.write(l3 + 10, &update_u16(check, old, new).to_be_bytes());
            }
            bytes.write(l3, &new.to_be_bytes());
            ctx.shared().changed += 1;
        }
    }
}

weir_nf::register!(MarkDscp);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_nf::testing::Bench;
    use weir_nf::wire::Frame;

    #[test]
    fn ip_packets_are_marked_with_right_checksums_and_others_are_not() {
        let frames = [
            Frame::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build(),
            Frame::ipv6([1; 16], [2; 16]).vlan(7).udp(1, 2).build(),
            Frame::other(0x0806).payload(&[0; 28]).build(),
            vec![0; 13],
        ];
        let mut bench = Bench::new::<MarkDscp>(json!({"dscp": 46})).unwrap();
        let seen = bench.run(&frames);
        assert_eq!(seen[0].bytes[15], 46 << 2);
        assert_eq!(weir_packet::checksum::checksum(&seen[0].bytes[14..34]), 0);
        assert_eq!(seen[1].bytes[18..20], [0x60 | 46 >> 2, (46 << 6) as u8]);
        assert_eq!((&seen[2].bytes, &seen[3].bytes), (&frames[2], &frames[3]));
        assert_eq!(bench.report(), json!({"changed": 2}));
    }

    #[test]
    fn it_is_what_its_descriptor_says_whatever_packets_come() {
        weir_nf::testing::conform::<MarkDscp>(json!({"dscp": 46})).unwrap();
    }

    #[test]
    fn a_dscp_of_seven_bits_is_refused() {
        assert!(Bench::new::<MarkDscp>(json!({"dscp": 64})).is_err());
    }
}
