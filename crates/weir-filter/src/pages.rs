//! Tables of numbers by their bytes: the highest says which page, there the next one says which, and on the
//! last page stands the answer. However many cases a field has, two loads find a port's, and as many as the
//! longest prefix has bytes an address's.

use std::collections::HashMap;

/// Most pages of a filter, 256 bytes each, and most answers of one table: what stands on a page is a byte,
/// so that all of it stays in a core's nearest cache beside the packets.
const MAX_PAGES: usize = 256;

type Page = [u8; 256];

/// Pages: what stands on one is a page's number, or on the last an answer's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    answers: Vec<u32>,
}

/// The pages of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Book {
    /// Where its answers begin.
    answers: u32,
    first: u32,
    /// Bits above those that it asks for: from 0 to 24.
    skipped: u32,
    /// Pages on the way, from 1 to 4.
    levels: u32,
}

impl Book {
    /// Two loads find an answer, or one.
    pub(crate) fn is_short(&self) -> bool {
        self.levels <= 2
    }
}

impl Pages {
    /// What `book` says of `value`.
    #[inline]
    pub(crate) fn turn_up(&self, book: Book, value: u32) -> Option<u32> {
        let mut rest = value << (book.skipped & 31);
        let mut entry = book.first;
        for _ in 0..book.levels {
            let [byte, ..] = rest.to_be_bytes();
            entry = self.pages.get(entry as usize)?[usize::from(byte)].into();
            rest <<= 8;
        }
        self.answers.get((book.answers as usize).wrapping_add(entry as usize)).copied()
    }
}

/// What is known of pages while they are written.
#[derive(Default)]
pub(crate) struct Paper {
    known: HashMap<Page, u8>,
    /// Once there were too many pages nothing more is tried, so the work stays small.
    used_up: bool,
}

impl Paper {
    /// A book that says for each value where the last of `cases` leads that is not above it; they
    /// begin at 0 and are in order, and values are at most `highest`. `None` when there would be too many
    /// pages, or answers.
    pub(crate) fn book(
        &mut self,
        pages: &mut Pages,
        cases: &[(u32, u32)],
        highest: u32,
    ) -> Option<Book> {
        if self.used_up {
            return None;
        }
        let mut numbers: HashMap<u32, u8> = HashMap::new();
        let mut numbered = Vec::with_capacity(cases.len());
        let mut answers = Vec::new();
        for (from, answer) in cases {
            let number = match numbers.get(answer) {
                Some(number) => *number,
                None => {
                    let next = u8::try_from(answers.len()).ok()?;
                    answers.push(*answer);
                    numbers.insert(*answer, next);
                    next
                }
            };
            numbered.push((*from, number));
        }
        // The bytes in which values differ, without those below that no case tells apart.
        let skipped = (highest.leading_zeros() & !7).min(24);
        let top = 24_u32.saturating_sub(skipped);
        let open = cases.iter().skip(1).map(|(from, _)| from.trailing_zeros()).min().unwrap_or(32);
        let lowest = (open & !7).min(top);
        let mut writer = Writer { paper: self, pages, cases: &numbered, lowest };
        let first = writer.page(0, top);
        self.used_up = first.is_none();
        let levels = (top.saturating_sub(lowest) / 8).saturating_add(1);
        let at = u32::try_from(pages.answers.len()).ok()?;
        pages.answers.append(&mut answers);
        Some(Book { answers: at, first: first?.into(), skipped, levels })
    }
}

struct Writer<'a> {
    paper: &'a mut Paper,
    pages: &'a mut Pages,
    /// From which value on which answer.
    cases: &'a [(u32, u8)],
    /// The last page's byte begins at this bit.
    lowest: u32,
}

impl Writer<'_> {
    /// The page of the values from `base` on, for their byte at `bit`.
    fn page(&mut self, base: u32, bit: u32) -> Option<u8> {
        let mut page = [0; 256];
        // The last page that said one thing of all.
        let mut plain: Option<(u8, u8)> = None;
        let mut at = self.cases.partition_point(|(from, _)| *from <= base);
        for (byte, entry) in (0_u32..).zip(&mut page) {
            let from = base | byte << bit;
            let to = from | 1_u32.checked_shl(bit)?.wrapping_sub(1);
            while self.cases.get(at).is_some_and(|(begin, _)| *begin <= from) {
                at = at.saturating_add(1);
            }
            let (_, answer) = *self.cases.get(at.checked_sub(1)?)?;
            let changes = self.cases.get(at).is_some_and(|(begin, _)| *begin <= to);
            *entry = match plain {
                _ if bit == self.lowest => answer,
                Some((known, number)) if !changes && known == answer => number,
                _ => {
                    let number = self.page(from, bit.checked_sub(8)?)?;
                    if !changes {
                        plain = Some((answer, number));
                    }
                    number
                }
            };
        }
        if let Some(known) = self.paper.known.get(&page) {
            return Some(*known);
        }
        if self.pages.pages.len() >= MAX_PAGES {
            return None;
        }
        let number = u8::try_from(self.pages.pages.len()).ok()?;
        self.pages.pages.push(page);
        self.paper.known.insert(page, number);
        Some(number)
    }
}
