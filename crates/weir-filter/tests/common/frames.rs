//! Generated Ethernet frames: few values, many shapes.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{MACS, PORTS, Random, V4, V6, VLANS};

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
    match r.below(16) {
        0..=5 => ipv4(r, &mut out),
        6..=10 => ipv6(r, &mut out),
        11 | 12 => arp(r, &mut out, 0x0806),
        13 => arp(r, &mut out, 0x8035),
        14 => push16(&mut out, r.pick(&[0x88cc, 0x8864, 0x0026, 0x8847])),
        // Garbage behind a type that promises more.
        _ => push16(&mut out, r.pick(&[0x0800, 0x86dd, 0x0806, 0x8100])),
    }
    for _ in 0..r.pick(&[0, 20, 64, 120]) {
        out.push(r.next() as u8);
    }
    out
}

fn push16(out: &mut Vec<u8>, n: u16) {
    out.extend(n.to_be_bytes());
}

fn pair<T: Clone>(r: &mut Random, from: &[T]) -> (T, T) {
    let a = r.pick(from);
    let b = if r.one_in(3) { a.clone() } else { r.pick(from) };
    (a, b)
}

fn ipv4(r: &mut Random, out: &mut Vec<u8>) {
    push16(out, 0x0800);
    let (src, dst) = pair(r, &V4);
    let options = r.pick(&[0_u8, 0, 0, 1, 10]);
    // Now and then a header length that no valid packet has.
    let ihl = if r.one_in(20) { r.below(16) as u8 } else { 5 + options };
    let protocol = r.pick(&[6_u8, 17, 132, 1, 47, 58, 0]);
    let fragment = r.pick(&[0_u16, 0, 0, 0x4000, 0x2000, 0x0001, 0x1000, 0x2010, 0x1fff, 0x8000]);
    out.extend([0x40 | ihl, 0, 0, 100, 0, 1]);
    push16(out, fragment);
    out.extend([64, protocol, 0, 0]);
    out.extend(src.parse::<Ipv4Addr>().unwrap().octets());
    out.extend(dst.parse::<Ipv4Addr>().unwrap().octets());
    for _ in 0..options {
        out.extend([1; 4]);
    }
    transport(r, out);
}

fn ipv6(r: &mut Random, out: &mut Vec<u8>) {
    push16(out, 0x86dd);
    let (src, dst) = pair(r, &V6);
    let protocol = r.pick(&[6_u8, 17, 132, 58, 47, 1, 59]);
    // Fragment; hop-by-hop; routing; fragment behind hop-by-hop; two fragment headers.
    let chain =
        r.pick(&[&[][..], &[], &[], &[44], &[44], &[0], &[43], &[0, 44], &[44, 44], &[44, 60]]);
    let next = |i: usize| chain.get(i).copied().unwrap_or(protocol);
    out.extend([0x60, 0, 0, 0, 0, 64, next(0), 64]);
    out.extend(src.parse::<Ipv6Addr>().unwrap().octets());
    out.extend(dst.parse::<Ipv6Addr>().unwrap().octets());
    for i in 0..chain.len() {
        let offset = r.pick(&[0_u8, 1, 8]);
        out.extend([next(i + 1), 0, 0, offset, 0, 0, 0, 1]);
    }
    transport(r, out);
}

fn transport(r: &mut Random, out: &mut Vec<u8>) {
    let (src, dst) = pair(r, &PORTS);
    push16(out, src);
    push16(out, dst);
    out.extend([0; 16]);
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
