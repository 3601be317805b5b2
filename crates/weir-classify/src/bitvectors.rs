//! Lookup in short lists: one bit per rule.
//!
//! The words of a packet are cut into 16-bit chunks. A table per chunk gives the chunk's equivalence class (Gupta
//! and McKeown, SIGCOMM 1999), and each class has a bit vector of the rules that its values satisfy (Lakshman and
//! Stiliadis, SIGCOMM 1998). A rule matches when it matches in each chunk, so the vectors' conjunction says which
//! rules match and its lowest bit which is the first. Chunks that no rule tests are left out. No branch depends on
//! the packet, so lookups overlap.

use crate::batch::{HeaderBatch, LANES};
use crate::classifier::NO_RULE;
use crate::compiled::{ALL_PORTS, Compiled, DPORT, Key, SPORT, WORDS};
use std::collections::HashMap;

/// Rules of one list at most: 8 words of 64.
pub(crate) const MAX_VECTOR_RULES: usize = 512;

/// Classes of one chunk at most: bounds memory where rules test single bits of MAC addresses.
const MAX_CLASSES: usize = 4096;

const VALUES: usize = 1 << 16;

/// What a chunk's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Masked { mask: u16, value: u16 },
    Range(u16, u16),
}

impl Test {
    fn of(rule: &Compiled, chunk: usize) -> Test {
        let word = chunk / 2 % WORDS;
        if word == SPORT || word == DPORT {
            // Ports are in the lower half; the upper half is always 0.
            let (first, last) = rule.ports[usize::from(word == DPORT)];
            return if chunk.is_multiple_of(2) {
                Test::Range(0, u16::MAX)
            } else {
                Test::Range(first, last)
            };
        }
        let half = |word: u32| (word >> shift(chunk)) as u16;
        Test::Masked { mask: half(rule.masks[word]), value: half(rule.values[word]) }
    }

    fn is_open(self) -> bool {
        match self {
            Test::Masked { mask, .. } => mask == 0,
            Test::Range(first, last) => (first, last) == ALL_PORTS,
        }
    }

    fn accepts(self, chunk: u16) -> bool {
        match self {
            Test::Masked { mask, value } => chunk & mask == value,
            Test::Range(first, last) => (first..=last).contains(&chunk),
        }
    }

    /// The bits that it looks at.
    fn bits(self) -> u16 {
        match self {
            Test::Masked { mask, .. } => mask,
            Test::Range(..) if self.is_open() => 0,
            Test::Range(..) => u16::MAX,
        }
    }

    /// Where the answer may change from one value to the next; `None` when anywhere.
    fn starts(self) -> Option<[u32; 2]> {
        match self {
            Test::Range(first, last) => Some([first.into(), u32::from(last).saturating_add(1)]),
            Test::Masked { mask, value }
                if mask.leading_ones().saturating_add(mask.trailing_zeros()) >= 16 =>
            {
                Some([value.into(), u32::from(value | !mask).saturating_add(1)])
            }
            Test::Masked { .. } => None,
        }
    }
}

/// The upper half of each word is its first chunk.
fn shift(chunk: usize) -> u32 {
    if chunk.is_multiple_of(2) { 16 } else { 0 }
}

/// Class of each value of a chunk; one byte each where that is enough, as these tables are what is in the cache.
#[derive(Debug, Clone)]
enum Classes {
    Few(Box<[u8; VALUES]>),
    Many(Box<[u16; VALUES]>),
}

#[derive(Debug, Clone)]
struct Chunk<const W: usize> {
    word: usize,
    shift: u32,
    classes: Classes,
    /// At least 256, so that a byte is always an index.
    vectors: Vec<[u64; W]>,
}

/// The compiled form for at most 64 times `W` rules.
#[derive(Debug, Clone)]
pub(crate) struct Vectors<const W: usize> {
    chunks: Vec<Chunk<W>>,
    /// The rules that there are.
    all: [u64; W],
    /// Position in the caller's list of each bit's rule.
    index: Vec<u32>,
}

impl<const W: usize> Vectors<W> {
    /// `rules` in order; no more than 64 times `W`. `None` when some chunk has too many classes.
    pub(crate) fn build(rules: &[Compiled]) -> Option<Self> {
        let mut all = [0; W];
        (0..rules.len()).for_each(|bit| set(&mut all, bit));
        let mut chunks = Vec::new();
        for chunk in 0..2 * WORDS {
            let tests: Vec<Test> = rules.iter().map(|rule| Test::of(rule, chunk)).collect();
            // What no rule tests is left out.
            if !tests.iter().all(|test| test.is_open()) {
                chunks.push(Chunk::build(&tests, chunk)?);
            }
        }
        let index = rules.iter().map(|rule| rule.index).collect();
        Some(Vectors { chunks, all, index })
    }

    /// The rules that match each packet, as bits. What is behind `batch.len()` is of no meaning.
    #[inline]
    pub(crate) fn matches(&self, batch: &HeaderBatch, len: usize) -> [[u64; W]; LANES] {
        let mut matching = [self.all; LANES];
        for chunk in &self.chunks {
            let column = batch.column(chunk.word).get(..len).unwrap_or_default();
            let lanes = matching.iter_mut().zip(column);
            let values =
                lanes.map(|(bits, word)| (bits, usize::from((word >> chunk.shift) as u16)));
            match &chunk.classes {
                Classes::Few(classes) => {
                    let Some(vectors) = chunk.vectors.first_chunk::<256>() else { continue };
                    values
                        .for_each(|(bits, value)| and(bits, &vectors[usize::from(classes[value])]));
                }
                Classes::Many(classes) => values.for_each(|(bits, value)| {
                    let vector = chunk.vectors.get(usize::from(classes[value])).unwrap_or(&[0; W]);
                    and(bits, vector);
                }),
            }
        }
        matching
    }

    /// As [`Self::matches`], for one packet.
    pub(crate) fn matches_one(&self, key: &Key) -> [u64; W] {
        let mut matching = self.all;
        for chunk in &self.chunks {
            let value = usize::from((key[chunk.word % WORDS] >> chunk.shift) as u16);
            let class = match &chunk.classes {
                Classes::Few(classes) => usize::from(classes[value]),
                Classes::Many(classes) => usize::from(classes[value]),
            };
            and(&mut matching, chunk.vectors.get(class).unwrap_or(&[0; W]));
        }
        matching
    }

    /// Writes the first rule of each packet to `found`.
    #[inline]
    pub(crate) fn lookup_batch(&self, batch: &HeaderBatch, found: &mut [u32]) {
        let matching = self.matches(batch, found.len());
        for (found, bits) in found.iter_mut().zip(&matching) {
            *found = self.first(bits);
        }
    }

    /// The first rule that matches.
    pub(crate) fn lookup(&self, key: &Key) -> u32 {
        self.first(&self.matches_one(key))
    }

    #[inline]
    fn first(&self, bits: &[u64; W]) -> u32 {
        let mut bit = usize::MAX;
        // Backwards and without a way out: the compiler selects instead of branching.
        for (at, word) in bits.iter().enumerate().rev() {
            let here = at * 64 + word.trailing_zeros() as usize;
            bit = if *word == 0 { bit } else { here };
        }
        self.index.get(bit).copied().unwrap_or(NO_RULE)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let chunk = |chunk: &Chunk<W>| {
            let table = match chunk.classes {
                Classes::Few(_) => VALUES,
                Classes::Many(_) => 2 * VALUES,
            };
            table.saturating_add(chunk.vectors.len().saturating_mul(size_of::<[u64; W]>()))
        };
        self.chunks.iter().map(chunk).sum::<usize>().saturating_add(self.index.len() * 4)
    }
}

impl<const W: usize> Chunk<W> {
    /// `None` when there are too many classes.
    fn build(tests: &[Test], chunk: usize) -> Option<Self> {
        let mut distinct: HashMap<[u64; W], u16> = HashMap::new();
        let mut vectors: Vec<[u64; W]> = Vec::new();
        let mut class_of = |value: u16| {
            let mut vector = [0; W];
            for (bit, test) in tests.iter().enumerate() {
                if test.accepts(value) {
                    set(&mut vector, bit);
                }
            }
            let class = *distinct.entry(vector).or_insert_with(|| {
                vectors.push(vector);
                // Few, or the check below ends it.
                (vectors.len() - 1) as u16
            });
            (vectors.len() <= MAX_CLASSES).then_some(class)
        };
        let mut table = Box::new([0_u16; VALUES]);
        if let Some(starts) = tests.iter().map(|test| test.starts()).collect::<Option<Vec<_>>>() {
            // Between two starts all values are alike.
            let mut starts = [&[0], starts.as_flattened()].concat();
            starts.sort_unstable();
            starts.dedup();
            starts.retain(|&start| start < VALUES as u32);
            let ends = starts.iter().copied().skip(1).chain([VALUES as u32]);
            for (&start, end) in starts.iter().zip(ends) {
                let class = class_of(start as u16)?;
                table.get_mut(start as usize..end as usize).unwrap_or_default().fill(class);
            }
        } else {
            // Values are alike that have the same bits where some test looks.
            let looked_at = tests.iter().fold(0, |bits, test| bits | test.bits());
            for value in 0..=u16::MAX {
                let alike = value & looked_at;
                // It is no greater, so its class is known unless it is the value itself.
                let class =
                    if alike < value { table[usize::from(alike)] } else { class_of(value)? };
                table[usize::from(value)] = class;
            }
        }
        let classes = if vectors.len() <= 256 {
            Classes::Few(Box::new(table.map(|class| class as u8)))
        } else {
            Classes::Many(table)
        };
        vectors.resize(vectors.len().max(256), [0; W]);
        Some(Chunk { word: chunk / 2, shift: shift(chunk), classes, vectors })
    }
}

#[inline]
fn and<const W: usize>(bits: &mut [u64; W], with: &[u64; W]) {
    for (word, with) in bits.iter_mut().zip(with) {
        *word &= with;
    }
}

fn set<const W: usize>(bits: &mut [u64; W], bit: usize) {
    if let Some(word) = bits.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}
