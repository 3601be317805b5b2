//! Values that primitives compare with: IP prefixes and MAC addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why an address and a length are not a network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NetError {
    /// The length exceeds the address's bits.
    #[error("a prefix of {len} bits does not fit an address of {max} bits")]
    TooLong {
        /// The length given, in bits.
        len: u8,
        /// The address's length, in bits.
        max: u8,
    },
    /// Bits behind the prefix are set.
    #[error("the address has bits set behind its prefix; the network is {network}")]
    HostBits {
        /// The network that the address is in.
        network: Net,
    },
}

/// An IP prefix (RFC 4632 §3.1, RFC 4291 §2.3). A single address is a prefix of full length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "NetParts", into = "NetParts")]
pub struct Net {
    address: IpAddr,
    len: u8,
}

/// What a [`Net`] looks like on the wire, before it is checked.
#[derive(Serialize, Deserialize)]
struct NetParts {
    address: IpAddr,
    len: u8,
}

impl TryFrom<NetParts> for Net {
    type Error = NetError;

    fn try_from(parts: NetParts) -> Result<Self, NetError> {
        Self::new(parts.address, parts.len)
    }
}

impl From<Net> for NetParts {
    fn from(net: Net) -> Self {
        Self { address: net.address, len: net.len }
    }
}

impl Net {
    /// The prefix of `len` bits that `address` names.
    ///
    /// # Errors
    /// When `len` exceeds the address's bits, or bits behind the prefix are set.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, NetError> {
        let max = bits(address);
        if len > max {
            return Err(NetError::TooLong { len, max });
        }
        let network = Self { address: masked(address, len), len };
        if network.address == address { Ok(network) } else { Err(NetError::HostBits { network }) }
    }

    /// The prefix that holds exactly `address`.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, len: bits(address) }
    }

    /// The lowest address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix in bits.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// True when it holds exactly one address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.len == bits(self.address)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.len)
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The mask of an IPv4 prefix.
pub(crate) fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(len.into())).unwrap_or(0)
}

/// The mask of an IPv6 prefix.
pub(crate) fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(len.into())).unwrap_or(0)
}

fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() & mask4(len)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & mask6(len)).into(),
    }
}

/// A 48-bit MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
