//! Lookup in long lists of IPv4 rules.
//!
//! Each packet becomes five small numbers: the classes of its source and destination address, of its ports, and
//! which of the distinct tests of everything else it passes. A rule is a box over these numbers, and stands in one of
//! four tables by what it is narrow in: the pair of addresses, one of them, or the destination port. It stands there
//! in each cell that it reaches (cross-producting: Srinivasan et al., SIGCOMM 1998; narrow and wide rules apart:
//! EffiCuts, SIGCOMM 2010). A packet looks into one cell of each table, where few rules are left to compare.

use crate::addresses::{Addresses, Span};
use crate::batch::{HeaderBatch, LANES};
use crate::bitvectors::Vectors;
use crate::classifier::NO_RULE;
use crate::compiled::{ALL_PORTS, Compiled, DPORT, DST, HAS_PORTS, Key, META, SPORT, SRC};
use crate::ports::{NO_PORTS, PortClasses};

/// Distinct tests of what is neither address nor port.
const MAX_OTHER: usize = 64;
/// Cells of the table of pairs that one rule may stand in; one that reaches more stands in another table.
const MAX_PAIRS: usize = 64;
/// Entries of all tables: so many per rule and so many in all.
const ENTRIES_PER_RULE: usize = 64;
const MAX_ENTRIES: usize = 1_500_000;
/// What a packet of each rule may meet on average, and the longest cell: beyond, trees do better.
const MAX_MEETS: usize = 16;
const MAX_CELL: u16 = 1024;

const NONE: u16 = u16::MAX;

/// A rule as a box: 20 bytes.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// First class of source, destination, source port, destination port.
    first: [u16; 4],
    /// How many more classes.
    more: [u16; 4],
    /// Number of its test of everything else.
    other: u16,
    /// Position in the caller's list.
    index: u16,
}

impl Entry {
    /// Without branches.
    #[inline]
    fn matches(&self, fields: &[u16; 4], other: u64) -> bool {
        let mut inside = other >> (self.other % 64) & 1 == 1;
        for ((field, first), more) in fields.iter().zip(&self.first).zip(&self.more) {
            // One comparison per range: below the start wraps around to a large number.
            inside &= field.wrapping_sub(*first) <= *more;
        }
        inside
    }
}

/// Where a cell's entries are, as one word: position of the first (32 bits), number (16), and the position in the
/// caller's list of the first, which is the least ([`NONE`] in an empty cell).
#[derive(Debug, Clone, Copy)]
struct Cell(u64);

impl Cell {
    const EMPTY: Cell = Cell(NONE as u64);

    fn new(start: u32, len: u16, head: u16) -> Self {
        Cell(u64::from(start) << 32 | u64::from(len) << 16 | u64::from(head))
    }

    #[inline]
    fn start(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[inline]
    fn len(self) -> usize {
        usize::from((self.0 >> 16) as u16)
    }

    /// The lowest 16 bits: the first entry's position in the list, or what [`Cell::of`] put there.
    #[inline]
    fn low(self) -> u16 {
        self.0 as u16
    }

    /// The same entries, with the number of a packet in the low bits.
    #[inline]
    fn of(self, lane: u16) -> Self {
        Cell(self.0 & !0xFFFF | u64::from(lane))
    }

    /// The entries behind the first, which there must be.
    #[inline]
    fn rest(self) -> Self {
        Cell(self.0.wrapping_add(1 << 32).wrapping_sub(1 << 16))
    }
}

/// Cells of entries, each ascending by position in the list.
#[derive(Debug, Clone, Default)]
struct Table {
    cells: Vec<Cell>,
    entries: Vec<Entry>,
}

impl Table {
    /// A table of `cells` cells, or `None` when a cell gets more than [`MAX_CELL`] entries.
    fn new(cells: usize, mut placed: Vec<(u32, Entry)>) -> Option<Self> {
        placed.sort_unstable_by_key(|(cell, entry)| (*cell, entry.index));
        let mut table = Table { cells: vec![Cell::EMPTY; cells], entries: Vec::new() };
        for entries in placed.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((at, first)) = entries.first() else { continue };
            let len = u16::try_from(entries.len()).ok().filter(|&len| len <= MAX_CELL)?;
            let start = u32::try_from(table.entries.len()).ok()?;
            if let Some(cell) = table.cells.get_mut(*at as usize) {
                *cell = Cell::new(start, len, first.index);
            }
            table.entries.extend(entries.iter().map(|(_, entry)| *entry));
        }
        Some(table)
    }

    #[inline]
    fn cell(&self, at: usize) -> Cell {
        self.cells.get(at).copied().unwrap_or(Cell::EMPTY)
    }

    /// Compares each packet with the entries of its cell; `best` is the least position that matched so far.
    #[inline]
    fn compare(
        &self,
        cells: impl Iterator<Item = usize>,
        fields: &[[u16; 4]; LANES],
        other: &[[u64; 1]; LANES],
        best: &mut [u16; LANES],
    ) {
        if self.entries.is_empty() {
            return;
        }
        // The packets that have entries left, one after the other: how many a packet has is random, so no branch
        // depends on it, and the loads of different packets overlap.
        let mut open = [Cell::EMPTY; LANES];
        let mut count = 0;
        for (lane, at) in (0_u16..).zip(cells) {
            let cell = self.cell(at);
            open[count % LANES] = cell.of(lane);
            count += usize::from(cell.low() < best[usize::from(lane) % LANES]);
        }
        while count > 0 {
            let mut left = 0;
            for slot in 0..count {
                let cell = open[slot % LANES];
                let lane = usize::from(cell.low()) % LANES;
                let Some(entry) = self.entries.get(cell.start()) else { continue };
                let matches = entry.matches(&fields[lane], other[lane][0]);
                // All ones, which is above every position, instead of `if`.
                let candidate = entry.index | u16::from(matches).wrapping_sub(1);
                let before = best[lane];
                best[lane] = before.min(candidate);
                open[left % LANES] = cell.rest();
                let goes_on = u16::from(!matches) & u16::from(cell.len() > 1);
                left += usize::from(goes_on & u16::from(entry.index < before));
            }
            count = left;
        }
    }

    fn bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>() + self.entries.len() * size_of::<Entry>()
    }
}

/// The compiled form.
#[derive(Debug, Clone)]
pub(crate) struct Cross {
    src: Addresses,
    dst: Addresses,
    other: Vectors<1>,
    /// Distance to shift a pair's hash to a cell of the first table.
    shift: u32,
    /// By pair of addresses, destination, source, destination port.
    tables: [Table; 4],
}

/// A batch as classes and tests passed.
type Fields = ([[u16; 4]; LANES], [[u64; 1]; LANES]);

impl Cross {
    /// `None` when the rules do not suit: too many tests of other fields, or too much overlap.
    pub(crate) fn build(
        rules: &[Compiled],
        sport: &PortClasses,
        dport: &PortClasses,
    ) -> Option<Self> {
        let prefixes =
            |word: usize| rules.iter().map(move |rule| (rule.masks[word], rule.values[word]));
        let src = Addresses::new(prefixes(SRC))?;
        let dst = Addresses::new(prefixes(DST))?;
        let (others, number) = others(rules)?;
        let limits = [src.len(), dst.len(), sport.len(), dport.len()].map(|len| (len - 1) as u16);
        let mut placed: [Vec<(u32, Entry)>; 4] = Default::default();
        let mut left = rules.len().saturating_mul(ENTRIES_PER_RULE).min(MAX_ENTRIES);
        let mut pairs: Vec<(u16, u16, Entry)> = Vec::new();
        for (rule, other) in rules.iter().zip(number) {
            let spans: [Span; 4] = [
                src.span(rule.masks[SRC], rule.values[SRC]),
                dst.span(rule.masks[DST], rule.values[DST]),
                (rule.sport.0, rule.sport.1.min(limits[2])),
                (rule.dport.0, rule.dport.1.min(limits[3])),
            ];
            let entry = Entry {
                first: spans.map(|span| span.0),
                more: spans.map(|span| span.1.saturating_sub(span.0)),
                other,
                index: u16::try_from(rule.index).ok().filter(|index| *index != NONE)?,
            };
            let reach = entry.more.map(|more| usize::from(more) + 1);
            let cells = |span: Span| u32::from(span.0)..=u32::from(span.1);
            if reach[0].saturating_mul(reach[1]) <= MAX_PAIRS {
                left = left.checked_sub(reach[0] * reach[1])?;
                for s in spans[0].0..=spans[0].1 {
                    pairs.extend((spans[1].0..=spans[1].1).map(|d| (s, d, entry)));
                }
                continue;
            }
            let (table, span) = [(1, 1), (2, 0), (3, 3)]
                .into_iter()
                .min_by_key(|(_, span)| reach.get(*span).copied())
                .and_then(|(table, span)| Some((placed.get_mut(table)?, *spans.get(span)?)))?;
            left = left.checked_sub(usize::from(span.1 - span.0) + 1)?;
            table.extend(cells(span).map(|cell| (cell, entry)));
        }
        // About as many cells as entries: fewer share cells, more do not fit the cache.
        let bits = pairs.len().next_power_of_two().trailing_zeros().clamp(1, 22);
        let shift = 64 - bits;
        placed[0] =
            pairs.iter().map(|(s, d, entry)| (pair(*s, *d, shift) as u32, *entry)).collect();
        let [pairs, by_dst, by_src, by_port] = placed;
        let tables = [
            Table::new(1 << bits, pairs)?,
            Table::new(dst.len(), by_dst)?,
            Table::new(src.len(), by_src)?,
            Table::new(dport.len(), by_port)?,
        ];
        let cross = Cross { src, dst, other: Vectors::build(&others)?, shift, tables };
        (cross.meets(rules) <= MAX_MEETS).then_some(cross)
    }

    /// Entries that a packet of a rule meets, on average over (up to 4096 of) the rules.
    fn meets(&self, rules: &[Compiled]) -> usize {
        let step = rules.len().div_ceil(4096).max(1);
        let (mut sum, mut count) = (0_usize, 0_usize);
        for rule in rules.iter().step_by(step) {
            let fields = [
                self.src.span(rule.masks[SRC], rule.values[SRC]).0,
                self.dst.span(rule.masks[DST], rule.values[DST]).0,
                rule.sport.0,
                rule.dport.0,
            ];
            for (table, cell) in self.tables.iter().zip(cells(&fields, self.shift)) {
                sum += table.cell(cell).len();
            }
            count += 1;
        }
        sum.checked_div(count).unwrap_or(0)
    }

    /// Writes the first rule of each packet to `found`.
    pub(crate) fn lookup_batch(
        &self,
        batch: &HeaderBatch,
        ports: [&PortClasses; 2],
        found: &mut [u32],
    ) {
        let (fields, other) = self.fields(batch, ports, found.len());
        let mut best = [NONE; LANES];
        let [pairs, by_dst, by_src, by_port] = &self.tables;
        let lanes = fields.get(..found.len()).unwrap_or_default();
        let shift = self.shift;
        pairs.compare(lanes.iter().map(|f| pair(f[0], f[1], shift)), &fields, &other, &mut best);
        by_dst.compare(lanes.iter().map(|f| f[1].into()), &fields, &other, &mut best);
        by_src.compare(lanes.iter().map(|f| f[0].into()), &fields, &other, &mut best);
        by_port.compare(lanes.iter().map(|f| f[3].into()), &fields, &other, &mut best);
        for (found, best) in found.iter_mut().zip(best) {
            *found = if best == NONE { NO_RULE } else { best.into() };
        }
    }

    /// The first rule of one packet.
    pub(crate) fn lookup(&self, key: &Key, ports: [&PortClasses; 2]) -> u32 {
        let mut fields = [self.src.class(key[SRC]), self.dst.class(key[DST]), 0, 0];
        let has = key[META] & HAS_PORTS != 0;
        [fields[2], fields[3]] = [SPORT, DPORT].map(|word| key[word] as u16);
        for (field, classes) in fields.iter_mut().skip(2).zip(ports) {
            *field = if has { classes.class(*field) } else { NO_PORTS };
        }
        let other = self.other.matches_one(key);
        let mut best = NONE;
        for (table, cell) in self.tables.iter().zip(cells(&fields, self.shift)) {
            let cell = table.cell(cell);
            let entries = table.entries.get(cell.start()..).unwrap_or_default();
            let entries = entries.get(..cell.len()).unwrap_or_default();
            best = first_match(entries, &fields, other[0], best);
        }
        if best == NONE { NO_RULE } else { best.into() }
    }

    #[inline]
    fn fields(&self, batch: &HeaderBatch, ports: [&PortClasses; 2], len: usize) -> Fields {
        let column = |word| batch.column(word).get(..len).unwrap_or_default();
        let mut fields = [[0; 4]; LANES];
        let mut classes = [0; LANES];
        for (at, map, word) in [(0, &self.src, SRC), (1, &self.dst, DST)] {
            map.classes(column(word), &mut classes);
            for (fields, class) in fields.iter_mut().zip(classes) {
                fields[at % 4] = class;
            }
        }
        for (at, classes, word) in [(2, ports[0], SPORT), (3, ports[1], DPORT)] {
            let lanes = column(word).iter().zip(column(META));
            for (fields, (port, meta)) in fields.iter_mut().zip(lanes) {
                let class = classes.class(*port as u16);
                fields[at % 4] = if meta & HAS_PORTS == 0 { NO_PORTS } else { class };
            }
        }
        (fields, self.other.matches(batch, len))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(Table::bytes).sum();
        tables + self.src.bytes() + self.dst.bytes() + self.other.bytes()
    }
}

/// The first of `entries` before position `best` that matches; `best` when none does.
#[inline]
fn first_match(entries: &[Entry], fields: &[u16; 4], other: u64, best: u16) -> u16 {
    for entry in entries {
        if entry.index >= best {
            break;
        }
        if entry.matches(fields, other) {
            return entry.index;
        }
    }
    best
}

/// The packet's cell in each table.
#[inline]
fn cells(fields: &[u16; 4], shift: u32) -> [usize; 4] {
    let [src, dst, _, dport] = *fields;
    [pair(src, dst, shift), dst.into(), src.into(), dport.into()]
}

/// A pair's cell: Fibonacci hashing (Knuth, TAOCP 3, §6.4). Pairs that share a cell are told apart by their entries.
#[inline]
fn pair(src: u16, dst: u16, shift: u32) -> usize {
    let number = u64::from(src) << 16 | u64::from(dst);
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> shift) as usize
}

/// The distinct tests of what is neither address nor port, as rules of their own, and each rule's number among them.
fn others(rules: &[Compiled]) -> Option<(Vec<Compiled>, Vec<u16>)> {
    let mut distinct: Vec<Compiled> = Vec::new();
    let mut numbers = Vec::new();
    for rule in rules {
        let mut other = Compiled { ports: [ALL_PORTS; 2], ..rule.clone() };
        for word in [SRC, DST] {
            (other.masks[word], other.values[word]) = (0, 0);
        }
        let same = |known: &Compiled| known.masks == other.masks && known.values == other.values;
        let number = match distinct.iter().position(same) {
            Some(number) => number,
            None if distinct.len() == MAX_OTHER => return None,
            None => {
                distinct.push(other);
                distinct.len() - 1
            }
        };
        numbers.push(u16::try_from(number).ok()?);
    }
    Some((distinct, numbers))
}
