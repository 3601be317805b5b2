//! Checks IP headers.

use weir_nf::headers::is_plainly_sound;
use weir_nf::{
    ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, HeaderFault, LayerAccess, Nf,
    NoConfig, Packets, Pkt, ReadOnly, Touch, check_ip,
};

/// Drops packets whose IP header a router must not forward.
///
/// *Outputs:* `ip`; `non_ip` for ARP, LLDP and everything else that is not IP (that is no error).
/// *Drops:* `bad-checksum` (IPv4 header checksum), `truncated` (the packet as sent ends inside its
/// IP header or an IPv6 extension header), `bad-header` (version, lengths, header order).
/// *Config:* none. *Source:* RFC 1812 §5.2.2, RFC 791, RFC 8200 §3 and §4; the µNF paper's
/// CheckIPHeader. What a capture cut off is not judged.
#[derive(Debug)]
pub struct CheckIpHeader;

const IP: u8 = 0;
const NON_IP: u8 = 1;

impl Nf for CheckIpHeader {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "CheckIpHeader",
        summary: "Drops packets with a wrong IP header or header checksum",
        outputs: &["ip", "non_ip"],
        layers: LayerAccess { l2: Touch::Read, l3: Touch::Read, ..LayerAccess::NONE },
        may_drop: true,
        cost_cycles: 60,
        effect: Effect::Pure,
        affinity: weir_nf::Affinity::None,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = ();

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(CheckIpHeader)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, _: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            // Without a verdict it leaves by `ip`. The metadata's line is not touched.
            if !is_plainly_sound(&packet.bytes()) {
                judge(&mut packet);
            }
        }
    }
}

#[inline(never)]
fn judge(packet: &mut Pkt<'_, ReadOnly>) {
    let layers = packet.layers(Depth::L2);
    match check_ip(&packet.bytes(), &layers, packet.wire_len()) {
        Ok(()) => packet.send(IP),
        Err(HeaderFault::NotIp) => packet.send(NON_IP),
        Err(HeaderFault::Checksum) => packet.drop(DropReason::BadChecksum),
        Err(HeaderFault::IpHeaderCut | HeaderFault::ExtensionCut) => {
            packet.drop(DropReason::Truncated);
        }
        Err(_) => packet.drop(DropReason::BadHeader),
    }
}

weir_nf::register!(CheckIpHeader);
