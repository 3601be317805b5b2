//! The pcap format: draft-ietf-opsawg-pcap, sections 4 (file header) and 5 (packet record).

use std::io::{Read, Seek};

use crate::endian::{Endian, Fields};
use crate::error::{Fault, OpenError, Stop};
use crate::input::Input;
use crate::record::{Frame, Interface, Payload};
use crate::{LinkType, MAX_CAPTURED, Precision, RawTime};

pub(crate) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Kuznetzov's format: longer record headers, so reading it as pcap would give rubbish.
pub(crate) const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;
pub(crate) const FILE_HEADER: usize = 24;
pub(crate) const RECORD_HEADER: usize = 16;

/// Byte order and precision, when `magic` (the first four bytes, read as big-endian) is pcap's.
pub(crate) fn recognise(magic: u32) -> Option<(Endian, Precision)> {
    match (magic, magic.swap_bytes()) {
        (MAGIC_MICROS, _) => Some((Endian::Big, Precision::Micros)),
        (MAGIC_NANOS, _) => Some((Endian::Big, Precision::Nanos)),
        (_, MAGIC_MICROS) => Some((Endian::Little, Precision::Micros)),
        (_, MAGIC_NANOS) => Some((Endian::Little, Precision::Nanos)),
        _ => None,
    }
}

/// Reads the file header. The time zone and accuracy fields are ignored, as everyone does: always 0.
pub(crate) fn file_header(
    bytes: &[u8],
    endian: Endian,
    precision: Precision,
) -> Result<Interface, OpenError> {
    let mut fields = Fields::new(bytes, endian);
    let mut parse = || {
        fields.u32()?;
        let version = (fields.u16()?, fields.u16()?);
        fields.take::<8>()?;
        let (snaplen, link) = (fields.u32()?, LinkType::from_pcap_field(fields.u32()?));
        Some((version, Interface { link, snaplen, time: precision.into() }))
    };
    let (version, interface) = parse().ok_or(OpenError::HeaderCut)?;
    match version {
        (2, 4) => Ok(interface),
        // 2.3 and older have the two length fields in either order.
        (major, minor) => Err(OpenError::Version { major, minor }),
    }
}

/// Reads the next record.
#[inline]
pub(crate) fn record<R: Read + Seek>(
    input: &mut Input<R>,
    endian: Endian,
    interface: Interface,
    payload: Payload,
) -> Result<Frame, Stop> {
    let Some(header) = input.peek(RECORD_HEADER)? else {
        return Err(if input.buffered() == 0 { Stop::End } else { Fault::Cut.into() });
    };
    let mut fields = Fields::new(header, endian);
    let mut parse = || Some((fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?));
    let (seconds, fraction, captured, wire_len) = parse().ok_or(Fault::Cut)?;
    if captured > MAX_CAPTURED {
        return Err(Fault::CapturedTooLong(captured).into());
    }
    let length = RECORD_HEADER.saturating_add(captured as usize);
    let data = match payload {
        Payload::Keep => {
            input.peek(length)?.ok_or(Fault::Cut)?;
            input.consume(RECORD_HEADER);
            input.consume(captured as usize)
        }
        Payload::Skip => {
            if !input.skip(length)? {
                return Err(Fault::Cut.into());
            }
            0..0
        }
    };
    Ok(Frame {
        length: length as u64,
        raw: RawTime::from_fields(seconds, fraction),
        captured,
        wire_len,
        interface_id: 0,
        interface,
        data,
        comment: None,
    })
}
