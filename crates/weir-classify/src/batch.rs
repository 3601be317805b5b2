//! The headers of a batch of packets, word by word instead of packet by packet.

use crate::compiled::{DPORT, DST, Family, Key, META, SPORT, SRC, WORDS, plain_meta, words};
use crate::headers::Headers;

/// Packets of a [`HeaderBatch`] at most.
pub const LANES: usize = 64;

/// One word of each packet.
pub(crate) type Column = [u32; LANES];

/// The headers of up to 64 packets, in columns: a lookup goes through one field of all packets before the next, so
/// its loads do not wait for each other. 4 KiB; made once and filled again.
#[derive(Debug, Clone)]
pub struct HeaderBatch {
    columns: [Column; WORDS],
    families: [Family; LANES],
    len: usize,
}

impl Default for HeaderBatch {
    fn default() -> Self {
        HeaderBatch { columns: [[0; LANES]; WORDS], families: [Family::Other; LANES], len: 0 }
    }
}

impl HeaderBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the packets.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a packet; does nothing when there are 64.
    pub fn push(&mut self, headers: &Headers) {
        let at = self.len;
        if at >= LANES {
            return;
        }
        let (family, key) = words(headers, true);
        for (column, word) in self.columns.iter_mut().zip(key) {
            column[at % LANES] = word;
        }
        self.families[at % LANES] = family;
        self.len = at.saturating_add(1);
    }

    /// Adds a whole TCP or UDP datagram over IPv4 for rules that do not look at the link layer
    /// ([`Classifier::tests_link`](crate::Classifier::tests_link)): the same as [`Self::push`] with nothing in the
    /// fields that it leaves out. `tcp_flags` is `None` for UDP.
    #[inline]
    pub fn push_v4(
        &mut self,
        src: u32,
        dst: u32,
        ports: (u16, u16),
        proto: u8,
        tcp_flags: Option<u8>,
    ) {
        let at = self.len;
        if at >= LANES {
            return;
        }
        let lane = at % LANES;
        // The other words keep what an earlier batch left: `META` says that there is no ICMP, and nothing else is
        // looked at in this family without link-layer rules.
        self.columns[SRC][lane] = src;
        self.columns[DST][lane] = dst;
        self.columns[SPORT][lane] = u32::from(ports.0);
        self.columns[DPORT][lane] = u32::from(ports.1);
        self.columns[META][lane] = plain_meta(proto, tcp_flags);
        self.families[lane] = Family::V4;
        self.len = at.saturating_add(1);
    }

    /// Word `word` of all packets.
    #[inline]
    pub(crate) fn column(&self, word: usize) -> &Column {
        &self.columns[word % WORDS]
    }

    /// The words of packet `lane`.
    #[inline]
    pub(crate) fn key(&self, lane: usize) -> Key {
        core::array::from_fn(|word| self.columns[word][lane % LANES])
    }

    /// The packets' address families.
    #[inline]
    pub(crate) fn families(&self) -> &[Family] {
        self.families.get(..self.len).unwrap_or_default()
    }
}
