//! The values of primitives: numbers, addresses, ports, ranges, MAC addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Why;
use crate::net::{Mac, Net};

/// A number as libpcap reads it: decimal, `0x` hexadecimal, or octal after a leading zero.
pub(crate) fn number(word: &str) -> Option<u32> {
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return digits(hex, 16);
    }
    match word.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits(octal, 8),
        _ => digits(word, 10),
    }
}

/// The same of up to 64 bits: a tag's value.
pub(crate) fn wide(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) if hex.chars().all(|c| c.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if word.chars().all(|c| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    }
}

/// A DECnet phase IV address, `area.node`.
pub(crate) fn decnet(word: &str) -> Result<u16, Why> {
    let parts = word.split_once('.').map(|(area, node)| (digits(area, 10), digits(node, 10)));
    match parts {
        Some((Some(area @ 0..=63), Some(node @ 0..=1023))) => {
            Ok(u16::try_from((area << 10) | node).unwrap_or(u16::MAX))
        }
        _ => Err(Why::Value {
            value: word.to_owned(),
            wanted: "a DECnet address",
            instead: "area and node, from 0.0 to 63.1023, as in `decnet host 10.123`",
        }),
    }
}

/// `from_str_radix` alone would also take a sign.
fn digits(word: &str, radix: u32) -> Option<u32> {
    if word.chars().all(|c| c.is_digit(radix)) {
        u32::from_str_radix(word, radix).ok()
    } else {
        None
    }
}

/// True when `word` is meant as a number, right or wrong.
pub(crate) fn is_numeric(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

/// A port number.
pub(crate) fn port(word: &str) -> Result<u16, Why> {
    if let Some(port) = number(word).and_then(|n| u16::try_from(n).ok()) {
        return Ok(port);
    }
    if !is_numeric(word) {
        return Err(name(word, "the port's number, as in `port 80`"));
    }
    let instead = if word.contains('-') { "`portrange A-B`" } else { "a number from 0 to 65535" };
    Err(Why::Value { value: word.to_owned(), wanted: "a port", instead })
}

/// A range of ports, lowest first. As in libpcap, one port is a range and the order does not matter;
/// both ends are decimal.
pub(crate) fn port_range(word: &str) -> Result<(u16, u16), Why> {
    let Some((a, b)) = word.split_once('-') else {
        return port(word).map(|p| (p, p));
    };
    let end = |w: &str| digits(w, 10).and_then(|n| u16::try_from(n).ok());
    match (end(a), end(b)) {
        (Some(a), Some(b)) => Ok((a.min(b), a.max(b))),
        _ if !is_numeric(word) => Err(name(word, "the ports' numbers, as in `portrange 20-21`")),
        _ => Err(Why::Value {
            value: word.to_owned(),
            wanted: "a range of ports",
            instead: "two decimal numbers from 0 to 65535 joined by `-`, without blanks",
        }),
    }
}

/// A number of at most `max`.
pub(crate) fn at_most(
    word: &str,
    max: u16,
    wanted: &'static str,
    instead: &'static str,
) -> Result<u16, Why> {
    match number(word).and_then(|n| u16::try_from(n).ok()).filter(|n| *n <= max) {
        Some(n) => Ok(n),
        None if is_numeric(word) => Err(Why::Value { value: word.to_owned(), wanted, instead }),
        None => Err(name(word, instead)),
    }
}

/// A MAC address in any of libpcap's ways of writing it.
pub(crate) fn mac(word: &str) -> Result<Mac, Why> {
    parse_mac(word).ok_or_else(|| Why::Value {
        value: word.to_owned(),
        wanted: "an Ethernet address",
        instead: "six bytes, as in `ether host 02:00:00:00:00:01`",
    })
}

fn parse_mac(word: &str) -> Option<Mac> {
    for separator in [':', '-', '.'] {
        let parts: Vec<&str> = word.split(separator).take(7).collect();
        if let Ok(parts) = <[&str; 6]>::try_from(parts) {
            let mut bytes = [0; 6];
            for (byte, part) in bytes.iter_mut().zip(parts) {
                if part.is_empty() || part.len() > 2 {
                    return None;
                }
                *byte = u8::try_from(digits(part, 16)?).ok()?;
            }
            return Some(Mac(bytes));
        }
    }
    let hex: String = match word.len() {
        12 => word.to_owned(),
        14 if word.split('.').all(|group| group.len() == 4) => word.replace('.', ""),
        _ => return None,
    };
    if !hex.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let [_, _, bytes @ ..] = u64::from_str_radix(&hex, 16).ok()?.to_be_bytes();
    Some(Mac(bytes))
}

/// An IPv4 prefix as its dotted parts say it (`10.1` is 10.1.0.0/16), or a single IPv6 address.
pub(crate) fn dotted(word: &str) -> Result<(IpAddr, u8), Why> {
    if word.contains(':') {
        return match word.parse::<Ipv6Addr>() {
            Ok(address) => Ok((address.into(), 128)),
            Err(_) if parse_mac(word).is_some() => Err(Why::Value {
                value: word.to_owned(),
                wanted: "an IP address",
                instead: "`ether` before the qualifiers, as in `ether host 02:00:00:00:00:01`",
            }),
            Err(_) => Err(not_address(word)),
        };
    }
    let mut bytes = [0_u8; 4];
    let mut len = 0_u8;
    let mut slots = bytes.iter_mut();
    for part in word.split('.') {
        // Decimal even after a leading zero, as in libpcap.
        let byte = digits(part, 10).filter(|_| !part.is_empty()).and_then(|n| u8::try_from(n).ok());
        let (Some(byte), Some(slot)) = (byte, slots.next()) else {
            return Err(not_address(word));
        };
        *slot = byte;
        len = len.saturating_add(8);
    }
    Ok((Ipv4Addr::from(bytes).into(), len))
}

/// The address that a plain number means: itself after `host`; after `net` its leading bytes
/// (`net 10` is 10.0.0.0/8).
pub(crate) fn numeric_net(number: u32, is_net: bool) -> Net {
    let (mut address, mut len) = (number, 32_u8);
    while is_net && address != 0 && address >> 24 == 0 {
        address <<= 8;
        len = len.saturating_sub(8);
    }
    let address = Ipv4Addr::from_bits(address).into();
    Net::new(address, len).unwrap_or(Net::host(address))
}

/// The length of a mask that is a prefix.
pub(crate) fn mask_len(word: &str) -> Result<u8, Why> {
    if let Ok((IpAddr::V4(mask), 32)) = dotted(word) {
        let len = mask.to_bits().leading_ones();
        if len.saturating_add(mask.to_bits().trailing_zeros()) >= 32 {
            return Ok(u8::try_from(len).unwrap_or(32));
        }
    }
    Err(Why::Value {
        value: word.to_owned(),
        wanted: "the mask of a prefix",
        instead: "one like `255.255.0.0`, or the length, as in `net 10.1.0.0/16`",
    })
}

fn not_address(word: &str) -> Why {
    Why::Value {
        value: word.to_owned(),
        wanted: "an IP address",
        instead: "one like `10.1.2.3`, `10.1` (for 10.1.0.0/16) or `2001:db8::1`",
    }
}

/// A name stands where a number or an address should.
pub(crate) fn name(word: &str, instead: &'static str) -> Why {
    Why::Name { name: word.to_owned(), nearest: None, instead }
}
