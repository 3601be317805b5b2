//! The pcapng format: draft-ietf-opsawg-pcapng, section 4 (blocks).

use std::io::{Read, Seek};
use std::ops::Range;

use crate::endian::{Endian, Fields};
use crate::error::{Fault, Stop};
use crate::input::Input;
use crate::record::{Frame, Interface, Payload};
use crate::{LinkType, MAX_BLOCK, MAX_CAPTURED, MAX_INTERFACES, RawTime, Resolution, TimeFormat};

/// Section Header Block; the same in both byte orders.
pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
/// Interface Description Block.
pub(crate) const INTERFACE: u32 = 1;
/// Packet Block, obsolete.
const PACKET: u32 = 2;
/// Simple Packet Block.
const SIMPLE: u32 = 3;
/// Enhanced Packet Block.
pub(crate) const ENHANCED: u32 = 6;
pub(crate) const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;

pub(crate) const OPT_END: u16 = 0;
pub(crate) const OPT_COMMENT: u16 = 1;
pub(crate) const IF_NAME: u16 = 2;
pub(crate) const IF_TSRESOL: u16 = 9;
pub(crate) const IF_TSOFFSET: u16 = 14;

/// Block type, length, and the length again at the end.
pub(crate) const FRAMING: usize = 12;

/// A block that was read and consumed.
pub(crate) enum Block {
    Section { endian: Endian, length: u64 },
    Interface { interface: Interface, length: u64 },
    Packet(Frame),
    Other { length: u64 },
}

/// Reads the next block. `endian` is the current section's and does not matter for a section header.
pub(crate) fn block<R: Read + Seek>(
    input: &mut Input<R>,
    endian: Endian,
    interfaces: &[Interface],
    payload: Payload,
) -> Result<Block, Stop> {
    let Some(head) = input.peek(FRAMING)? else {
        return Err(if input.buffered() == 0 { Stop::End } else { Fault::Cut.into() });
    };
    let mut fields = Fields::new(head, endian);
    let kind = fields.u32().ok_or(Fault::Cut)?;
    let endian = if kind == SECTION { section_order(head)? } else { endian };
    let mut fields = Fields::new(head, endian);
    fields.u32();
    let length = check_length(fields.u32().ok_or(Fault::Cut)?)?;
    let whole = u64::from(length);
    match kind {
        SECTION => {
            section_version(input, endian, length)?;
            skip(input, endian, length)?;
            Ok(Block::Section { endian, length: whole })
        }
        INTERFACE => {
            let body = body(input, endian, length)?;
            let interface =
                interface(Fields::new(body, endian), endian).ok_or(Fault::BlockTooShort(kind))?;
            if interfaces.len() >= MAX_INTERFACES {
                return Err(Fault::TooManyInterfaces.into());
            }
            input.consume(length as usize);
            Ok(Block::Interface { interface, length: whole })
        }
        ENHANCED | PACKET | SIMPLE => {
            packet(input, endian, interfaces, payload, kind, length).map(Block::Packet)
        }
        _ => {
            skip(input, endian, length)?;
            Ok(Block::Other { length: whole })
        }
    }
}

/// The byte order of a section, from its byte-order mark (bytes 8 to 11).
fn section_order(head: &[u8]) -> Result<Endian, Fault> {
    let mut fields = Fields::new(head, Endian::Big);
    let mark = fields.take::<8>().and_then(|_| fields.u32()).ok_or(Fault::Cut)?;
    match (mark, mark.swap_bytes()) {
        (BYTE_ORDER_MARK, _) => Ok(Endian::Big),
        (_, BYTE_ORDER_MARK) => Ok(Endian::Little),
        _ => Err(Fault::ByteOrder(mark)),
    }
}

/// 1.0, and 1.2, which some writers used for the same format.
fn section_version<R: Read + Seek>(
    input: &mut Input<R>,
    endian: Endian,
    length: u32,
) -> Result<(), Stop> {
    const SHORTEST: usize = 28;
    if (length as usize) < SHORTEST {
        return Err(Fault::BlockTooShort(SECTION).into());
    }
    let head = input.peek(SHORTEST)?.ok_or(Fault::Cut)?;
    let mut fields = Fields::new(head, endian);
    let version = fields.take::<12>().and_then(|_| Some((fields.u16()?, fields.u16()?)));
    match version.ok_or(Fault::Cut)? {
        (1, 0 | 2) => Ok(()),
        (major, minor) => Err(Fault::Version(major, minor).into()),
    }
}

fn check_length(length: u32) -> Result<u32, Fault> {
    if length > MAX_BLOCK {
        Err(Fault::BlockTooLong(length))
    } else if (length as usize) < FRAMING || !length.is_multiple_of(4) {
        Err(Fault::BlockLength(length))
    } else {
        Ok(length)
    }
}

/// The body of a block that is wholly in the buffer, still to be consumed; its trailer is checked.
fn body<R: Read + Seek>(input: &mut Input<R>, endian: Endian, length: u32) -> Result<&[u8], Stop> {
    let block = input.peek(length as usize)?.ok_or(Fault::Cut)?;
    let mut fields = Fields::new(block, endian);
    fields.take::<8>();
    let body = fields.slice((length as usize).saturating_sub(FRAMING)).ok_or(Fault::Cut)?;
    check_trailer(length, fields.u32().ok_or(Fault::Cut)?)?;
    Ok(body)
}

/// Consumes a block without looking at it; its trailer is checked.
fn skip<R: Read + Seek>(input: &mut Input<R>, endian: Endian, length: u32) -> Result<(), Stop> {
    if !input.skip((length as usize).saturating_sub(4))? {
        return Err(Fault::Cut.into());
    }
    let trailer = input.peek(4)?.ok_or(Fault::Cut)?;
    let after = Fields::new(trailer, endian).u32().ok_or(Fault::Cut)?;
    input.consume(4);
    Ok(check_trailer(length, after)?)
}

fn check_trailer(before: u32, after: u32) -> Result<(), Fault> {
    if before == after { Ok(()) } else { Err(Fault::Trailer { before, after }) }
}

fn interface(mut body: Fields<'_>, endian: Endian) -> Option<Interface> {
    let link = LinkType(u32::from(body.u16()?));
    body.u16()?;
    let snaplen = body.u32()?;
    let mut resolution = Resolution::MICROS;
    while let Some((code, value)) = option(&mut body) {
        match (code, value) {
            (IF_TSRESOL, [tsresol]) => resolution.tsresol = *tsresol,
            (IF_TSOFFSET, value) => {
                resolution.offset = Fields::new(value, endian).i64().unwrap_or(0)
            }
            _ => {}
        }
    }
    Some(Interface { link, snaplen, time: TimeFormat::Units(resolution) })
}

/// The next option of a list; a list that does not fit its block simply ends.
fn option<'a>(fields: &mut Fields<'a>) -> Option<(u16, &'a [u8])> {
    let (code, len) = (fields.u16()?, usize::from(fields.u16()?));
    if code == OPT_END {
        return None;
    }
    let value = fields.slice(len)?;
    // The padding of a list's last option may be missing.
    fields.slice(padding(len));
    Some((code, value))
}

/// How many bytes bring `len` to a multiple of four.
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// The fixed fields of the three packet blocks.
struct PacketHeader {
    interface_id: u32,
    raw: RawTime,
    /// `None`: a Simple Packet Block, which does not say.
    captured: Option<u32>,
    wire_len: u32,
    /// Length of these fields in bytes.
    size: usize,
}

fn packet_header(mut body: Fields<'_>, kind: u32) -> Option<PacketHeader> {
    if kind == SIMPLE {
        let wire_len = body.u32()?;
        return Some(PacketHeader {
            interface_id: 0,
            raw: RawTime(0),
            captured: None,
            wire_len,
            size: 4,
        });
    }
    let interface_id = if kind == ENHANCED {
        body.u32()?
    } else {
        let id = body.u16()?;
        body.u16()?; // drops since the previous packet
        u32::from(id)
    };
    let raw = RawTime::from_fields(body.u32()?, body.u32()?);
    Some(PacketHeader {
        interface_id,
        raw,
        captured: Some(body.u32()?),
        wire_len: body.u32()?,
        size: 20,
    })
}

fn packet<R: Read + Seek>(
    input: &mut Input<R>,
    endian: Endian,
    interfaces: &[Interface],
    payload: Payload,
    kind: u32,
    length: u32,
) -> Result<Frame, Stop> {
    let body_len = (length as usize).saturating_sub(FRAMING);
    let head_len = if kind == SIMPLE { 4 } else { 20 };
    if body_len < head_len {
        return Err(Fault::BlockTooShort(kind).into());
    }
    let head = input.peek(head_len.saturating_add(8))?.ok_or(Fault::Cut)?;
    let mut fields = Fields::new(head, endian);
    fields.take::<8>();
    let header = packet_header(fields, kind).ok_or(Fault::BlockTooShort(kind))?;
    let interface = usize::try_from(header.interface_id)
        .ok()
        .and_then(|id| interfaces.get(id))
        .copied()
        .ok_or(Fault::NoInterface(header.interface_id))?;
    let captured = header.captured.unwrap_or(match interface.snaplen {
        0 => header.wire_len,
        snaplen => header.wire_len.min(snaplen),
    });
    if captured > MAX_CAPTURED {
        return Err(Fault::CapturedTooLong(captured).into());
    }
    let rest = body_len.saturating_sub(header.size);
    if captured as usize > rest {
        return Err(Fault::BlockTooShort(kind).into());
    }
    let (data, comment) = match payload {
        Payload::Keep => {
            let body = body(input, endian, length)?;
            let comment = comment(body, endian, header.size, captured as usize, kind);
            let block = input.consume(length as usize);
            let at = block.start.saturating_add(8);
            let from = at.saturating_add(header.size);
            let data = from..from.saturating_add(captured as usize);
            (data, comment.map(|c| at.saturating_add(c.start)..at.saturating_add(c.end)))
        }
        Payload::Skip => {
            skip(input, endian, length)?;
            (0..0, None)
        }
    };
    Ok(Frame {
        length: u64::from(length),
        raw: header.raw,
        captured,
        wire_len: header.wire_len,
        interface_id: header.interface_id,
        interface,
        data,
        comment,
    })
}

/// Where in the body the packet's first comment lies.
fn comment(
    body: &[u8],
    endian: Endian,
    header: usize,
    captured: usize,
    kind: u32,
) -> Option<Range<usize>> {
    if kind == SIMPLE {
        return None;
    }
    let options_at = header.saturating_add(captured).saturating_add(padding(captured));
    let mut at = options_at;
    let mut fields = Fields::new(body.get(options_at..)?, endian);
    while let Some((code, value)) = option(&mut fields) {
        let from = at.saturating_add(4);
        if code == OPT_COMMENT {
            return Some(from..from.saturating_add(value.len()));
        }
        at = from.saturating_add(value.len()).saturating_add(padding(value.len()));
    }
    None
}
