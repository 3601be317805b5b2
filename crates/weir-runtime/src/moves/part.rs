//! What moves, as the protocol sees it.

use serde::{Deserialize, Serialize};
use weir_port::balance::Buckets;

/// Part of an NF's flows: what a migration is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// Packets with this hash, under the graph's seed: a key of a flow. Two flows of one hash go the same way, so each
    /// is in the other's way only as much as flows of one bucket are.
    Flow(u64),
    /// All of a bucket that do not go by themselves.
    Bucket(u16),
}

impl Part {
    /// The parts that packets with a hash are of, the narrower first.
    #[inline]
    pub(crate) fn of(hash: u64) -> [Part; 2] {
        [Part::Flow(hash), Part::Bucket(Buckets::bucket(hash))]
    }
}

/// Flows as they travel: what each µNF of the segment remembers of a flow, one flow after the other. Each of these records
/// ([`weir_nf::Instance::take_flow`]) stands behind 16 bits, whose it is and whether a flow begins with it, and 32 bits, how long it is;
/// little-endian.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows(#[serde(with = "serde_bytes")] pub Vec<u8>);

/// In a record's first word: another flow begins.
const BEGINS: u16 = 1 << 15;

/// What one µNF remembers of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'f> {
    /// Another flow begins with it.
    pub begins: bool,
    /// The µNF, by its place among those of the segment that remember anything of flows
    /// ([`CrewSpec::nodes`](crate::spec::CrewSpec::nodes)).
    pub nf: usize,
    /// As the µNF wrote it.
    pub bytes: &'f [u8],
}

impl Flows {
    /// Adds what µNF `nf` remembers: of another flow, or of the last one besides.
    pub fn push(&mut self, begins: bool, nf: u16, record: &[u8]) {
        self.0.extend((nf & !BEGINS | if begins { BEGINS } else { 0 }).to_le_bytes());
        self.0.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.extend(record);
    }

    /// The records; ends early where a length cannot be.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (word, behind) = rest.split_first_chunk()?;
            let word = u16::from_le_bytes(*word);
            let (len, behind) = behind.split_first_chunk()?;
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (bytes, behind) = behind.split_at_checked(len)?;
            rest = behind;
            Some(Record { begins: word & BEGINS != 0, nf: usize::from(word & !BEGINS), bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_by_flow_and_nf_and_what_is_cut_off_ends_them() {
        let mut flows = Flows::default();
        let all = [(true, 0, &b"one"[..]), (false, 2, b""), (true, 1, b"three")];
        for (begins, nf, bytes) in all {
            flows.push(begins, nf, bytes);
        }
        let bytes = postcard::to_stdvec(&flows).unwrap();
        let read: Flows = postcard::from_bytes(&bytes).unwrap();
        let records = read.records().map(|r| (r.begins, r.nf as u16, r.bytes));
        assert_eq!(records.collect::<Vec<_>>(), all);
        let cut = Flows(flows.0[..flows.0.len() - 1].to_vec());
        assert_eq!(cut.records().count(), 2);
        assert_eq!(Flows(vec![255; 9]).records().count(), 0);
    }

    #[test]
    fn a_packet_is_of_its_own_part_and_of_its_bucket_s() {
        assert_eq!(
            Part::of(0xabcd << 48 | 7),
            [Part::Flow(0xabcd << 48 | 7), Part::Bucket(0xabcd)]
        );
    }
}
