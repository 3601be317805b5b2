//! Numbers of either byte order, taken one after the other from a header; running out gives `None`.

/// The byte order of a file (pcap) or of a section (pcapng).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endian {
    Little,
    Big,
}

/// A cursor over header bytes.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    endian: Endian,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Self { rest: bytes, endian }
    }

    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    #[inline]
    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        let bytes = self.take()?;
        Some(match self.endian {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        })
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let bytes = self.take()?;
        Some(match self.endian {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        })
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Option<i64> {
        let bytes = self.take()?;
        Some(match self.endian {
            Endian::Little => i64::from_le_bytes(bytes),
            Endian::Big => i64::from_be_bytes(bytes),
        })
    }
}
