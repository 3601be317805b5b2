//! What becomes of packets.

use super::health::Balanced;
use crate::rewrite::{Headers, Which, correct, readdress, rewrite};
use std::net::{IpAddr, SocketAddr};
use weir_nf::{Layers, Pkt, ReadWrite};

/// What is to become of a packet.
pub(super) enum Way {
    /// To the other side, as it is.
    Pass,
    /// Nobody serves it now.
    Unavailable,
    /// With another source or destination.
    Write(Which, SocketAddr),
    /// An ICMP error: the end of the packet that it quotes, and perhaps its own, which is the other one.
    Error { quoted: Layers, which: Which, end: SocketAddr, own: Option<IpAddr> },
}

impl Way {
    /// Writes what the way says; the output.
    pub(super) fn write(
        self,
        packet: &mut Pkt<'_, ReadWrite>,
        layers: &Layers,
        straight: u8,
        counts: &mut Balanced,
    ) -> Option<u8> {
        let headers = Headers::of(layers);
        match self {
            Way::Pass => {
                counts.passed += 1;
                return Some(straight);
            }
            Way::Unavailable => return Some(super::UNAVAILABLE),
            Way::Write(which, end) => {
                rewrite(packet, &headers, which, (end.ip(), end.port()))?;
            }
            Way::Error { quoted, which, end, own } => {
                let quote = Headers::of(&quoted);
                let written = rewrite(packet, &quote, which, (end.ip(), end.port()))?;
                let l4 = headers.l4?;
                correct(packet, l4, headers.end, &written);
                let other = match which {
                    Which::Source => Which::Destination,
                    Which::Destination => Which::Source,
                };
                if let Some(own) = own {
                    let (address, _) = readdress(packet, &headers, other, own)?;
                    if headers.v6 {
                        correct(packet, l4, headers.end, &address);
                    }
                }
                counts.errors += 1;
            }
        }
        if straight == super::SERVERS {
            counts.there += 1
        } else {
            counts.back += 1
        }
        Some(straight)
    }
}
