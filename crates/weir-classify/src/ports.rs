//! Port classes: ports that no rule tells apart share one small number.
//!
//! Equivalence classes per field are the first phase of recursive flow classification (Gupta and McKeown,
//! SIGCOMM 1999). They make arbitrary port ranges cheap to cut: a few hundred classes instead of 65,536 ports.

use core::ops::RangeInclusive;

/// The class of packets that have no ports; only rules that do not test ports contain it.
pub(crate) const NO_PORTS: u16 = 0;

/// Maps a port to its class.
#[derive(Debug, Clone)]
pub(crate) struct PortClasses {
    /// Class of each port; empty when no rule tests this port.
    table: Vec<u16>,
    /// First port of each class, ascending, starting with class 1.
    starts: Vec<u16>,
}

impl PortClasses {
    /// Classes for the given ranges; `None` when they are more than 65,535.
    pub(crate) fn new<'a>(ranges: impl Iterator<Item = &'a RangeInclusive<u16>>) -> Option<Self> {
        let mut starts = vec![0_u16];
        for range in ranges {
            starts.push(*range.start());
            starts.extend(range.end().checked_add(1));
        }
        starts.sort_unstable();
        starts.dedup();
        u16::try_from(starts.len()).ok()?;
        let mut table = Vec::new();
        if starts.len() > 1 {
            let mut class = NO_PORTS;
            let mut next = starts.iter().peekable();
            for port in 0..=u16::MAX {
                if next.next_if_eq(&&port).is_some() {
                    class = class.saturating_add(1);
                }
                table.push(class);
            }
        }
        Some(PortClasses { table, starts })
    }

    /// The class of `port`.
    #[inline]
    pub(crate) fn class(&self, port: u16) -> u16 {
        self.table.get(usize::from(port)).copied().unwrap_or(1)
    }

    /// The classes a range covers, first and last. The full range covers [`NO_PORTS`] too.
    pub(crate) fn range(&self, range: &RangeInclusive<u16>) -> (u16, u16) {
        if *range == (0..=u16::MAX) {
            return (NO_PORTS, u16::MAX);
        }
        (self.class(*range.start()), self.class(*range.end()))
    }

    /// Number of classes, that of packets without ports among them.
    pub(crate) fn len(&self) -> usize {
        self.starts.len().saturating_add(1)
    }

    /// Bits that hold every class number.
    pub(crate) fn bits(&self) -> u8 {
        u8::try_from(usize::BITS.saturating_sub(self.starts.len().leading_zeros())).unwrap_or(16)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.table.len().saturating_add(self.starts.len()).saturating_mul(2)
    }
}
