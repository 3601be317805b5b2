//! Generated Ethernet frames: few values, many shapes.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{DECNET, LABELS, MACS, PORTS, Random, SESSIONS, TOS, V4, V6, VLANS};

/// A frame; one in eight is cut somewhere.
pub fn frame(r: &mut Random) -> Vec<u8> {
    let mut frame = whole_frame(r);
    if r.one_in(8) {
        frame.truncate(r.below(frame.len() + 1));
    }
    frame
}

/// A frame with all its headers, and bytes behind them.
pub fn whole_frame(r: &mut Random) -> Vec<u8> {
    let dst = r.pick(&MACS);
    let src = if r.one_in(3) { dst } else { r.pick(&MACS) };
    let mut out = [dst, src].concat();
    for _ in 0..r.pick(&[0, 0, 0, 0, 1, 1, 2, 3]) {
        push16(&mut out, r.pick(&[0x8100, 0x8100, 0x88a8, 0x9100]));
        push16(&mut out, r.pick(&VLANS) | r.pick(&[0, 0x2000, 0xf000]));
    }
    match r.below(26) {
        0..=5 => ip(r, &mut out, 0x0800, 0x86dd),
        6..=8 => {
            push16(&mut out, 0x0800);
            ipv4(r, &mut out);
        }
        9..=11 => {
            push16(&mut out, 0x86dd);
            ipv6(r, &mut out);
        }
        12 | 13 => arp(r, &mut out, 0x0806),
        14 | 23 => arp(r, &mut out, 0x8035),
        15 => {
            let kinds = [
                0x88cc, 0x8863, 0x8137, 0x6001, 0x6002, 0x6004, 0x6007, 0x809b, 0x80f3, 0x9000,
                0x0600,
            ];
            push16(&mut out, r.pick(&kinds));
        }
        16 | 17 => {
            push16(&mut out, 0x8847);
            mpls(r, &mut out);
        }
        18 | 19 => pppoe(r, &mut out),
        20 | 21 | 24 => llc(r, &mut out),
        22 => {
            push16(&mut out, 0x6003);
            decnet(r, &mut out);
        }
        // Garbage behind a type that promises more.
        _ => {
            push16(&mut out, r.pick(&[0x0800, 0x86dd, 0x0806, 0x8100, 0x8847, 0x8864, 0x6003, 100]))
        }
    }
    for _ in 0..r.pick(&[0, 20, 64, 120]) {
        out.push(r.next() as u8);
    }
    out
}

/// One of the IPs, behind the number that says which.
fn ip(r: &mut Random, out: &mut Vec<u8>, four: u16, six: u16) {
    if r.one_in(2) {
        push16(out, four);
        ipv4(r, out);
    } else {
        push16(out, six);
        ipv6(r, out);
    }
}

fn mpls(r: &mut Random, out: &mut Vec<u8>) {
    let labels = 1 + r.below(3);
    for i in 1..=labels {
        // Now and then the bottom of the stack is where it should not be.
        let last = if r.one_in(12) { r.one_in(2) } else { i == labels };
        let label = r.pick(&LABELS);
        out.extend((label << 12 | u32::from(last) << 8 | 64).to_be_bytes());
    }
    if r.one_in(2) { ipv4(r, out) } else { ipv6(r, out) }
}

fn pppoe(r: &mut Random, out: &mut Vec<u8>) {
    push16(out, 0x8864);
    push16(out, 0x1100);
    push16(out, r.pick(&SESSIONS));
    push16(out, 100);
    match r.below(8) {
        0..=3 => ip(r, out, 0x0021, 0x0057),
        4 => {
            push16(out, 0x0281);
            mpls(r, out);
        }
        5 => {
            push16(out, 0x0023);
            iso(r, out);
        }
        6 => {
            push16(out, 0x0027);
            decnet(r, out);
        }
        _ => push16(out, r.pick(&[0x0025, 0x0029, 0x002b, 0x0031, 0x8863, 0x8864, 0x0806, 0x00f0])),
    }
}

fn llc(r: &mut Random, out: &mut Vec<u8>) {
    push16(out, r.pick(&[3, 46, 100, 1500, 1501]));
    let control = r.pick(&[
        0x03, 0x00, 0x01, 0x05, 0x09, 0x63, 0x43, 0x0f, 0x6f, 0xe3, 0xaf, 0x87, 0x13, 0x73, 0x02,
    ]);
    match r.below(12) {
        0 | 1 => {
            out.extend([0xfe, 0xfe, 0x03]);
            iso(r, out);
        }
        2 => {
            let sap = r.pick(&[0x42, 0xe0, 0xf0, 0x06, 0xfe]);
            out.extend([sap, sap, control]);
        }
        3 => out.extend([r.pick(&[0x42, 0xe0, 0xf0]), 0x01, control]),
        4 => out.extend([0xff, 0xff, 0, 30]),
        5 | 6 => {
            let (oui, kind): ([u8; 3], u16) = r.pick(&[
                ([8, 0, 7], 0x809b),
                ([0, 0, 0], 0x80f3),
                ([0, 0, 0], 0x8137),
                ([0, 0, 0], 0x809b),
                ([0, 0, 0], 0x0800),
            ]);
            out.extend([0xaa, 0xaa, 0x03]);
            out.extend(oui);
            push16(out, kind);
        }
        _ => out.extend([r.next() as u8, r.next() as u8, control]),
    }
}

fn iso(r: &mut Random, out: &mut Vec<u8>) {
    let pdu = r.pick(&[15, 16, 17, 18, 20, 24, 25, 26, 27, 1]);
    out.extend([r.pick(&[0x81, 0x82, 0x83, 0x83, 0x83]), 27, 1, 0, pdu, 1, 0, 0]);
}

fn decnet(r: &mut Random, out: &mut Vec<u8>) {
    push16(out, 60);
    if r.one_in(2) {
        out.push(0x81);
    }
    let (src, dst) = pair(r, &DECNET);
    if r.one_in(2) {
        out.push(0x02);
        out.extend(dst.to_le_bytes());
        out.extend(src.to_le_bytes());
        out.push(0);
    } else {
        out.extend([0x06, 0, 0, 0xaa, 0, 4, 0]);
        out.extend(dst.to_le_bytes());
        out.extend([0, 0, 0xaa, 0, 4, 0]);
        out.extend(src.to_le_bytes());
        out.extend([0; 4]);
    }
}

fn push16(out: &mut Vec<u8>, n: u16) {
    out.extend(n.to_be_bytes());
}

fn pair<T: Clone>(r: &mut Random, from: &[T]) -> (T, T) {
    let a = r.pick(from);
    let b = if r.one_in(2) { a.clone() } else { r.pick(from) };
    (a, b)
}

const PROTOCOLS: [u8; 20] =
    [6, 6, 6, 17, 17, 17, 132, 132, 1, 1, 47, 58, 58, 0, 2, 9, 50, 103, 112, 51];

fn ipv4(r: &mut Random, out: &mut Vec<u8>) {
    let (src, dst) = pair(r, &V4);
    let options = r.pick(&[0_u8, 0, 0, 1, 10]);
    // Now and then a header length that no valid packet has.
    let ihl = if r.one_in(20) { r.below(16) as u8 } else { 5 + options };
    let protocol = r.pick(&PROTOCOLS);
    let fragment =
        r.pick(&[0_u16, 0, 0, 0, 0x4000, 0x2000, 0x0001, 0x1000, 0x2010, 0x1fff, 0x8000]);
    out.extend([0x40 | ihl, r.pick(&TOS), 0, 100, 0, 1]);
    push16(out, fragment);
    out.extend([64, protocol, 0, 0]);
    out.extend(src.parse::<Ipv4Addr>().unwrap().octets());
    out.extend(dst.parse::<Ipv4Addr>().unwrap().octets());
    for _ in 0..options {
        out.extend([1; 4]);
    }
    if protocol == 51 {
        // As far from the IP header as libpcap looks for it, or right behind.
        authentication(r, out);
    }
    transport(r, out);
}

fn authentication(r: &mut Random, out: &mut Vec<u8>) {
    let length = r.pick(&[4_u8, 4, 1, 3, 8, 200]);
    out.extend([r.pick(&PROTOCOLS), length, 0, 0]);
    for _ in 0..usize::from(length.min(9)) + 1 {
        out.extend([0; 4]);
    }
}

fn ipv6(r: &mut Random, out: &mut Vec<u8>) {
    let (src, dst) = pair(r, &V6);
    let protocol = r.pick(&PROTOCOLS);
    // Fragment; hop-by-hop; routing; fragment behind hop-by-hop; two fragment headers; …
    let chain = r.pick(&[
        &[][..],
        &[],
        &[],
        &[],
        &[44],
        &[44],
        &[0],
        &[43],
        &[60],
        &[0, 44],
        &[44, 44],
        &[44, 60],
        &[135, 60],
    ]);
    let next = |i: usize| chain.get(i).copied().unwrap_or(protocol);
    let class = u16::from(r.pick(&TOS)) << 4;
    push16(out, 0x6000 | class);
    out.extend([0, 0, 0, 64, next(0), 64]);
    out.extend(src.parse::<Ipv6Addr>().unwrap().octets());
    out.extend(dst.parse::<Ipv6Addr>().unwrap().octets());
    for i in 0..chain.len() {
        let is_fragment = chain.get(i) == Some(&44);
        let offset = if is_fragment { r.pick(&[0_u8, 1, 8]) } else { 0 };
        out.extend([next(i + 1), 0, 0, offset, 0, 0, 0, 1]);
    }
    if protocol == 51 {
        authentication(r, out);
    }
    transport(r, out);
}

fn transport(r: &mut Random, out: &mut Vec<u8>) {
    let (src, dst) = pair(r, &PORTS);
    push16(out, src);
    push16(out, dst);
    out.extend([0; 9]);
    out.push(r.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x04]));
    out.extend([0; 6]);
}

fn arp(r: &mut Random, out: &mut Vec<u8>, ethertype: u16) {
    push16(out, ethertype);
    let (sender, target) = pair(r, &V4);
    out.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    out.extend(r.pick(&MACS));
    out.extend(sender.parse::<Ipv4Addr>().unwrap().octets());
    out.extend(r.pick(&MACS));
    out.extend(target.parse::<Ipv4Addr>().unwrap().octets());
}
