//! The bytes of headers, records and blocks, little-endian. Lengths were checked by the caller: all fit 32 bits.

use crate::pcapng::padding;
use crate::pcapng::{
    BYTE_ORDER_MARK, ENHANCED, FRAMING, IF_NAME, IF_TSOFFSET, IF_TSRESOL, INTERFACE, OPT_COMMENT,
    OPT_END, SECTION,
};
use crate::record::Record;
use crate::{LinkType, MAX_CAPTURED, Precision, RawTime, Resolution, pcap};

pub(super) fn pcap_header(out: &mut Vec<u8>, precision: Precision, link: LinkType) {
    u32(
        out,
        match precision {
            Precision::Micros => pcap::MAGIC_MICROS,
            Precision::Nanos => pcap::MAGIC_NANOS,
        },
    );
    u16(out, 2);
    u16(out, 4);
    out.extend([0; 8]); // time zone and accuracy: always 0
    u32(out, MAX_CAPTURED);
    u32(out, link.0);
}

pub(super) fn pcap_record(out: &mut Vec<u8>, record: &Record<'_>, raw: RawTime) {
    let (seconds, fraction) = raw.fields();
    u32(out, seconds);
    u32(out, fraction);
    u32(out, record.bytes.len() as u32);
    u32(out, record.wire_len);
    out.extend_from_slice(record.bytes);
}

pub(super) fn section(out: &mut Vec<u8>) {
    block(out, SECTION, |body| {
        u32(body, BYTE_ORDER_MARK);
        u16(body, 1);
        u16(body, 0);
        body.extend((-1_i64).to_le_bytes()); // section length: not given
    });
}

pub(super) fn interface(out: &mut Vec<u8>, link: u16, resolution: Resolution, name: &[u8]) {
    block(out, INTERFACE, |body| {
        u16(body, link);
        u16(body, 0);
        u32(body, MAX_CAPTURED);
        if !name.is_empty() {
            option(body, IF_NAME, name);
        }
        option(body, IF_TSRESOL, &[resolution.tsresol]);
        if resolution.offset != 0 {
            option(body, IF_TSOFFSET, &resolution.offset.to_le_bytes());
        }
        option(body, OPT_END, &[]);
    });
}

pub(super) fn enhanced_packet(
    out: &mut Vec<u8>,
    record: &Record<'_>,
    raw: RawTime,
    interface: u32,
) {
    let (high, low) = raw.fields();
    block(out, ENHANCED, |body| {
        u32(body, interface);
        u32(body, high);
        u32(body, low);
        u32(body, record.bytes.len() as u32);
        u32(body, record.wire_len);
        padded(body, record.bytes);
        if let Some(comment) = record.comment {
            option(body, OPT_COMMENT, comment);
            option(body, OPT_END, &[]);
        }
    });
}

/// A block around a body whose length is a multiple of four.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    u32(out, kind);
    u32(out, 0);
    body(out);
    let length = out.len().saturating_sub(start).saturating_add(4);
    debug_assert!(length >= FRAMING && length.is_multiple_of(4));
    u32(out, length as u32);
    // The length in front is known only now.
    if let Some((_, field)) = out
        .get_mut(start..)
        .and_then(|b| b.get_mut(..8))
        .and_then(|b| b.split_last_chunk_mut::<4>())
    {
        *field = (length as u32).to_le_bytes();
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    u16(out, code);
    u16(out, value.len() as u16);
    padded(out, value);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().saturating_add(padding(bytes.len())), 0);
}

fn u16(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_le_bytes());
}

fn u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}
