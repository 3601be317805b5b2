//! Normalisation for inspection: undoes the encodings that hide an attack from a pattern, the way the servers
//! and languages behind the firewall would.
//!
//! Every step writes at most as many bytes as it reads, so [`decode`] needs a buffer only as long as its input.

/// Decoding rounds at most: attackers nest percent-encodings (`%2527`), no honest client nests three.
pub const MAX_ROUNDS: usize = 3;

/// Where the bytes come from; decides what `+` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A path or a cookie: `+` is a plus sign.
    Path,
    /// A query or an urlencoded body: `+` is a blank (WHATWG URL, §5.1).
    Query,
}

/// Why nothing was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferTooSmall;

/// Writes `input`, fully normalised, to the start of `out` and returns its length.
///
/// Percent-decoding (with `%uXXXX`), overlong UTF-8 and fullwidth forms folded to ASCII, repeated until nothing
/// changes, at most [`MAX_ROUNDS`] times; then NUL bytes are removed. Malformed escapes stay as they are.
///
/// # Errors
/// [`BufferTooSmall`] when `out` is shorter than `input`.
pub fn decode(input: &[u8], place: Place, out: &mut [u8]) -> Result<usize, BufferTooSmall> {
    let (mut len, mut changed) = first_round(input, place, out)?;
    for _ in 1..MAX_ROUNDS {
        if !changed {
            break;
        }
        (len, changed) = next_round(out, len);
    }
    Ok(remove_nul(out, len))
}

/// The first round of [`decode`]: length written and whether it differs from `input`.
pub(crate) fn first_round(
    input: &[u8],
    place: Place,
    out: &mut [u8],
) -> Result<(usize, bool), BufferTooSmall> {
    let out = out.get_mut(..input.len()).ok_or(BufferTooSmall)?;
    out.copy_from_slice(input);
    let mut changed = false;
    if place == Place::Query {
        for byte in out.iter_mut().filter(|byte| **byte == b'+') {
            *byte = b' ';
            changed = true;
        }
    }
    let (len, unescaped) = next_round(out, input.len());
    Ok((len, changed | unescaped))
}

/// One more round in place over the first `len` bytes of `buffer`: the new length and whether anything changed.
pub(crate) fn next_round(buffer: &mut [u8], len: usize) -> (usize, bool) {
    let (len, unescaped) = in_place(buffer, len, escape);
    let (len, folded) = in_place(buffer, len, fold);
    (len, unescaped | folded)
}

/// Removes the NUL bytes among the first `len` bytes of `buffer`, in place; returns the new length.
pub(crate) fn remove_nul(buffer: &mut [u8], len: usize) -> usize {
    in_place(buffer, len, |rest| (rest.first() == Some(&0)).then_some((1, [0; 3], 0))).0
}

/// Replaces HTML character references (numeric ones, and the named ones SQL syntax needs) in place.
pub(crate) fn entities(buffer: &mut [u8], len: usize) -> (usize, bool) {
    in_place(buffer, len, entity)
}

/// What a rewriting step finds at the start of a text: bytes consumed, bytes to put instead, how many of them.
type Rewrite = Option<(usize, [u8; 3], usize)>;

/// Rewrites the first `len` bytes of `buffer`; a step never puts more than it consumes, so writing stays behind reading.
fn in_place(buffer: &mut [u8], len: usize, step: impl Fn(&[u8]) -> Rewrite) -> (usize, bool) {
    let len = len.min(buffer.len());
    let (mut read, mut write, mut changed) = (0_usize, 0_usize, false);
    while read < len {
        let rest = buffer.get(read..len).unwrap_or_default();
        let (used, bytes, count) = match step(rest) {
            Some(found) => {
                changed = true;
                found
            }
            None => (1, [rest.first().copied().unwrap_or(0), 0, 0], 1),
        };
        for byte in bytes.iter().take(count.min(used)) {
            if let Some(slot) = buffer.get_mut(write) {
                *slot = *byte;
            }
            write = write.saturating_add(1);
        }
        read = read.saturating_add(used.max(1));
    }
    (write, changed)
}

/// `%XX`, and `%uXXXX` as IIS and JavaScript's `escape` know it.
fn escape(rest: &[u8]) -> Rewrite {
    match rest {
        [b'%', b'u' | b'U', a, b, c, d, ..] => {
            let high = byte(*a, *b)?;
            let low = byte(*c, *d)?;
            let (bytes, count) = utf8(u32::from(high) << 8 | u32::from(low));
            Some((6, bytes, count))
        }
        [b'%', a, b, ..] => Some((3, [byte(*a, *b)?, 0, 0], 1)),
        _ => None,
    }
}

/// Overlong forms of ASCII (RFC 3629 §10 tells why they are dangerous) and what databases read as ASCII.
fn fold(rest: &[u8]) -> Rewrite {
    match *rest {
        [0xC0, b, ..] if b & 0xC0 == 0x80 => Some((2, [b & 0x3F, 0, 0], 1)),
        [0xC1, b, ..] if b & 0xC0 == 0x80 => Some((2, [0x40 | b & 0x3F, 0, 0], 1)),
        [0xE0, b @ 0x80..=0x81, c, ..] if c & 0xC0 == 0x80 => {
            Some((3, [(b & 1) << 6 | c & 0x3F, 0, 0], 1))
        }
        [0xF0, 0x80, b @ 0x80..=0x81, c, ..] if c & 0xC0 == 0x80 => {
            Some((4, [(b & 1) << 6 | c & 0x3F, 0, 0], 1))
        }
        // Fullwidth forms U+FF01..U+FF5E (ASCII plus 0xFEE0) and the ideographic space U+3000.
        [0xEF, 0xBC, c @ 0x81..=0xBF, ..] => Some((3, [c.wrapping_sub(0x60), 0, 0], 1)),
        [0xEF, 0xBD, c @ 0x80..=0x9E, ..] => Some((3, [c.wrapping_sub(0x20), 0, 0], 1)),
        [0xE3, 0x80, 0x80, ..] => Some((3, [b' ', 0, 0], 1)),
        // Quotes that best-fit mappings turn into an apostrophe: U+02B9, U+02BC, U+2018, U+2019, U+2032.
        [0xCA, 0xB9 | 0xBC, ..] => Some((2, [b'\'', 0, 0], 1)),
        _ => None,
    }
}

fn entity(rest: &[u8]) -> Rewrite {
    if rest.first() != Some(&b'&') {
        return None;
    }
    let end = rest.iter().take(10).position(|&byte| byte == b';')?;
    let name = rest.get(1..end)?;
    let code = match name {
        b"quot" => u32::from(b'"'),
        b"apos" => u32::from(b'\''),
        b"lt" => u32::from(b'<'),
        b"gt" => u32::from(b'>'),
        b"amp" => u32::from(b'&'),
        [b'#', b'x' | b'X', hex @ ..] => {
            u32::from_str_radix(core::str::from_utf8(hex).ok()?, 16).ok()?
        }
        [b'#', digits @ ..] => core::str::from_utf8(digits).ok()?.parse().ok()?,
        _ => return None,
    };
    let (bytes, count) = utf8(code & 0xFFFF);
    Some((end.saturating_add(1), bytes, count))
}

fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// UTF-8 of a code point below 0x10000 (a lone surrogate is encoded like any other: only bytes matter here).
fn utf8(code: u32) -> ([u8; 3], usize) {
    let low = |shift: u32| u8::try_from(code >> shift & 0x3F).unwrap_or(0) | 0x80;
    match code {
        0..0x80 => ([u8::try_from(code).unwrap_or(0), 0, 0], 1),
        0x80..0x800 => ([0xC0 | u8::try_from(code >> 6 & 0x1F).unwrap_or(0), low(0), 0], 2),
        _ => ([0xE0 | u8::try_from(code >> 12 & 0x0F).unwrap_or(0), low(6), low(0)], 3),
    }
}
