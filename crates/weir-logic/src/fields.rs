//! A packet's headers in the words of filters, for people to read.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::verdict::FieldValue;

/// What the headers of `packet` say, outermost first, as far as they are there.
pub(crate) fn of(packet: &[u8]) -> Vec<FieldValue> {
    let mut fields = Fields { packet, found: Vec::new() };
    fields.ethernet();
    fields.found
}

struct Fields<'p> {
    packet: &'p [u8],
    found: Vec<FieldValue>,
}

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.packet.get(at..)?.first_chunk().copied()
    }

    fn number(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.packet.get(at).copied()
    }

    fn add(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.found.push(FieldValue { name, value: value.to_string() });
        }
    }

    fn ethernet(&mut self) {
        self.add("ether src", self.array(6).map(weir_filter::Mac));
        self.add("ether dst", self.array(0).map(weir_filter::Mac));
        let mut l3 = 14_usize;
        while let Some(kind) = self.number(l3.saturating_sub(2)) {
            match kind {
                0x8100 | 0x88a8 | 0x9100 => {
                    self.add("vlan", self.number(l3).map(|n| n & 0xfff));
                    l3 = l3.saturating_add(4);
                    continue;
                }
                0x0800 => self.ipv4(l3),
                0x86dd => self.ipv6(l3),
                0x0806 => self.arp(["arp src host", "arp dst host"], l3),
                0x8035 => self.arp(["rarp src host", "rarp dst host"], l3),
                _ => self.add("ether proto", Some(format!("{kind:#06x}"))),
            }
            return;
        }
    }

    fn ipv4(&mut self, l3: usize) {
        let at = |n: usize| l3.saturating_add(n);
        self.add("ip src host", self.array(at(12)).map(Ipv4Addr::from));
        self.add("ip dst host", self.array(at(16)).map(Ipv4Addr::from));
        let offset = self.number(at(6)).map(|n| n & 0x1fff);
        if let Some(offset @ 1..) = offset {
            self.add("fragment at byte", Some(u32::from(offset).saturating_mul(8)));
        }
        let words = self.byte(l3).unwrap_or(0) & 15;
        if words != 5 {
            self.add("header words", self.byte(l3).map(|_| words));
        }
        let l4 = at(usize::from(words).saturating_mul(4));
        self.transport("ip proto", self.byte(at(9)), (offset == Some(0)).then_some(l4));
    }

    fn ipv6(&mut self, l3: usize) {
        let at = |n: usize| l3.saturating_add(n);
        self.add("ip6 src host", self.array(at(8)).map(Ipv6Addr::from));
        self.add("ip6 dst host", self.array(at(24)).map(Ipv6Addr::from));
        let next = self.byte(at(6));
        self.transport("ip6 proto", next, Some(at(40)));
        if next == Some(44) {
            self.transport("behind the fragment header: ip6 proto", self.byte(at(40)), None);
        }
    }

    fn arp(&mut self, [src, dst]: [&'static str; 2], l3: usize) {
        self.add(src, self.array(l3.saturating_add(14)).map(Ipv4Addr::from));
        self.add(dst, self.array(l3.saturating_add(24)).map(Ipv4Addr::from));
    }

    /// Ports stand at `l4`, in protocols that have any.
    fn transport(&mut self, name: &'static str, protocol: Option<u8>, l4: Option<usize>) {
        let names = match protocol {
            Some(6) => ["tcp src port", "tcp dst port"],
            Some(17) => ["udp src port", "udp dst port"],
            Some(132) => ["sctp src port", "sctp dst port"],
            _ => return self.add(name, protocol),
        };
        let Some(l4) = l4 else {
            return self.add(name, protocol);
        };
        let [src, dst] = names;
        let (from, to) = (self.number(l4), self.number(l4.saturating_add(2)));
        if from.is_none() {
            self.add(name, protocol);
        }
        self.add(src, from);
        self.add(dst, to);
    }
}
