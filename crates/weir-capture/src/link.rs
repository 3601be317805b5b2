//! Link types: what the first byte of a captured packet belongs to.

use std::fmt;

/// A LINKTYPE number (<https://www.tcpdump.org/linktypes.html>).
///
/// In pcap the field also carries the FCS length in its top bits; those are removed. `Display` gives name and number,
/// as in `Linux SLL (113)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// Ethernet II and IEEE 802.3 frames, without preamble and normally without FCS.
    pub const ETHERNET: Self = Self(1);
    /// Raw IP: begins with an IPv4 or IPv6 header.
    pub const RAW: Self = Self(101);
    /// Linux 'cooked' capture, version 1.
    pub const LINUX_SLL: Self = Self(113);

    /// The link type in the last header field of a pcap file. The top six bits are FCS information; the rest is kept as
    /// libpcap keeps it, so that a number with unknown bits set is never taken for Ethernet.
    pub(crate) fn from_pcap_field(field: u32) -> Self {
        Self(field & 0x03ff_ffff)
    }

    /// Whether packets of this type are Ethernet frames.
    #[must_use]
    pub fn is_ethernet(self) -> bool {
        self == Self::ETHERNET
    }

    /// The usual name, or `unknown link type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "BSD loopback",
            1 => "Ethernet",
            6 => "Token Ring",
            7 => "ARCNET",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP in HDLC-like framing",
            51 => "PPPoE session",
            100 => "LLC/SNAP ATM",
            // 12 and 14 are DLT_RAW of some systems; files of such systems exist.
            12 | 14 | 101 => "raw IP",
            104 => "Cisco HDLC",
            105 => "IEEE 802.11",
            107 => "Frame Relay",
            108 => "OpenBSD loopback",
            113 => "Linux SLL",
            117 => "pflog",
            119 => "IEEE 802.11 with Prism header",
            127 => "IEEE 802.11 with radiotap",
            147..=162 => "user-defined",
            187 => "Bluetooth HCI H4",
            189 => "Linux USB",
            192 => "PPI",
            195 => "IEEE 802.15.4",
            197 => "ERF",
            201 => "Bluetooth HCI H4 with direction",
            220 => "Linux USB with padding",
            227 => "SocketCAN",
            228 => "raw IPv4",
            229 => "raw IPv6",
            231 => "D-Bus",
            239 => "nflog",
            249 => "USBPcap",
            252 => "Wireshark upper PDU",
            253 => "netlink",
            271 => "vsock",
            274 => "Ethernet with mPackets preamble",
            276 => "Linux SLL2",
            _ => "unknown link type",
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::LinkType;

    #[test]
    fn messages_name_the_link_type_and_its_number() {
        assert_eq!(LinkType::LINUX_SLL.to_string(), "Linux SLL (113)");
        assert_eq!(LinkType::RAW.to_string(), "raw IP (101)");
        assert_eq!(LinkType(4321).to_string(), "unknown link type (4321)");
    }

    #[test]
    fn fcs_bits_do_not_hide_ethernet_and_unknown_bits_do_not_make_it() {
        assert!(LinkType::from_pcap_field(0x4400_0001).is_ethernet());
        assert!(!LinkType::from_pcap_field(0x0224_0001).is_ethernet());
    }
}
