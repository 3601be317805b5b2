//! What is left of a filter for one shape of packets, as a table: no jump depends on the packet.
//!
//! Each field that is asked for falls into a few classes of values that nothing tells apart; the classes
//! of all fields together are the place of the verdict in a table (cross-producting: Srinivasan,
//! Varghese, Suri and Waldvogel, Fast and Scalable Layer Four Switching, SIGCOMM 1998). The fields are
//! loaded and put into classes independently of each other, so a core does it side by side, where a
//! walk through a diagram waits for each step, or guesses and is wrong for every second packet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir_packet::Bytes;

use crate::cond::{FieldId, Fields};
use crate::diagram::{Diagram, FALSE, Id, TRUE};
use crate::field::Field;
use crate::pages::{Book, Pages, Paper};

/// Most verdicts of a table: half a KiB.
const MAX_VERDICTS: u32 = 1 << 12;
/// Nodes times cases of one field that are compared to find its classes.
const MAX_COMPARED: usize = 1 << 14;

/// A filter for one shape. What its parts say, added up, is the verdict's place.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    ranges: Box<[Range]>,
    others: Box<[Other]>,
    verdicts: Box<[u64]>,
}

/// `part` when the value is `first` or up to `more` above it. The load is of four bytes, of which the
/// last ones are the field.
#[derive(Clone, Debug)]
struct Range {
    at: u32,
    mask: u32,
    first: u32,
    more: u32,
    part: u32,
}

#[derive(Clone, Debug)]
enum Other {
    /// What a book says of the field.
    Pages { at: u32, mask: u32, book: Book },
    /// As a range, of the packet's length.
    Length { first: u32, more: u32, part: u32 },
}

impl Table {
    /// What it says of `packet`, which has the shape that it is for.
    #[inline]
    pub(crate) fn accepts<B: Bytes + ?Sized>(&self, pages: &Pages, packet: &B) -> bool {
        // By its shape the packet has these bytes.
        let load = |at: u32, mask: u32| packet.be32(at as usize).unwrap_or(0) & mask;
        let mut place = 0_u32;
        for range in &self.ranges {
            let Range { at, mask, first, more, part } = *range;
            place = place.wrapping_add(within(load(at, mask), first, more, part));
        }
        for other in &self.others {
            let part = match *other {
                Other::Pages { at, mask, book } => pages.turn_up(book, load(at, mask)).unwrap_or(0),
                Other::Length { first, more, part } => {
                    let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                    within(length, first, more, part)
                }
            };
            place = place.wrapping_add(part);
        }
        let word = self.verdicts.get((place >> 6) as usize);
        word.is_some_and(|word| word >> (place & 63) & 1 == 1)
    }
}

#[inline]
fn within(value: u32, first: u32, more: u32, part: u32) -> u32 {
    // Said so that no jump is made of it.
    part & 0_u32.wrapping_sub(u32::from(value.wrapping_sub(first) <= more))
}

/// Makes the tables of a filter.
#[derive(Default)]
pub(crate) struct Writer {
    pages: Pages,
    paper: Paper,
}

/// A field's classes.
struct Classified {
    /// From which value on which.
    cases: Vec<(u32, u32)>,
    /// A value of each.
    values: Vec<u32>,
}

impl Writer {
    /// The table of `diagram`; `None` when it is not all plain loads, asks for more fields than `most`,
    /// or would be too large.
    pub(crate) fn table(
        &mut self,
        diagram: &Diagram,
        fields: &Fields,
        most: usize,
    ) -> Option<Table> {
        let nodes = by_field(diagram);
        if nodes.len() > most {
            return None;
        }
        let mut classified = Vec::with_capacity(nodes.len());
        for (field, nodes) in &nodes {
            classified.push((*field, classes(diagram, nodes)?));
        }
        // The first field's classes are furthest apart, so what it decides alone is in one piece.
        let mut size = 1_u32;
        let mut strides = Vec::with_capacity(classified.len());
        for (_, classes) in classified.iter().rev() {
            strides.push(size);
            let count = u32::try_from(classes.values.len()).ok()?;
            size = size.checked_mul(count).filter(|size| *size <= MAX_VERDICTS)?;
        }
        strides.reverse();
        let (mut ranges, mut others) = (Vec::new(), Vec::new());
        for ((field, classes), stride) in classified.iter().zip(&strides) {
            match self.column(*field, classes, *stride, fields)? {
                Column::Range(range) => ranges.push(range),
                Column::Other(other) => others.push(other),
            }
        }
        let words = vec![0; usize::try_from(size.div_ceil(64)).ok()?];
        let mut fill = Fill { diagram, classified: &classified, strides: &strides, words };
        fill.block(diagram.entry, 0, 0, size);
        Some(Table { ranges: ranges.into(), others: others.into(), verdicts: fill.words.into() })
    }

    /// The pages that the tables turn up.
    pub(crate) fn finish(self) -> Pages {
        self.pages
    }

    fn column(
        &mut self,
        field: FieldId,
        classes: &Classified,
        stride: u32,
        fields: &Fields,
    ) -> Option<Column> {
        let field = fields.list.get(usize::try_from(field).ok()?)?;
        let cases: Vec<(u32, u32)> = classes
            .cases
            .iter()
            .map(|(from, class)| (*from, class.saturating_mul(stride)))
            .collect();
        let range = match *cases {
            [(_, 0), (first, part)] => Some((first, u32::MAX.wrapping_sub(first), part)),
            [(_, 0), (first, part), (behind, 0)] => {
                Some((first, behind.wrapping_sub(1).wrapping_sub(first), part))
            }
            _ => None,
        };
        let (at, mask) = match (field, range) {
            (Field::Length, Some((first, more, part))) => {
                return Some(Column::Other(Other::Length { first, more, part }));
            }
            // Near the frame's begin there are no four bytes that end with it.
            (Field::There { at, size, mask }, _) => {
                let before = 4_u32.saturating_sub(u32::try_from(size.bytes()).ok()?);
                (at.checked_sub(before)?, *mask)
            }
            _ => return None,
        };
        if let Some((first, more, part)) = range {
            return Some(Column::Range(Range { at, mask, first, more, part }));
        }
        // Longer ways are worth their while only when they are needed.
        let book = self.paper.book(&mut self.pages, &cases, mask).filter(Book::is_short)?;
        Some(Column::Other(Other::Pages { at, mask, book }))
    }
}

enum Column {
    Range(Range),
    Other(Other),
}

/// The nodes that are met, by their fields.
fn by_field(diagram: &Diagram) -> BTreeMap<FieldId, Vec<Id>> {
    let mut found: BTreeMap<FieldId, Vec<Id>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut todo = vec![diagram.entry];
    while let Some(id) = todo.pop() {
        if let Some(node) = diagram.node(id)
            && seen.insert(id)
        {
            found.entry(node.field).or_default().push(id);
            todo.extend(node.cases.iter().map(|(_, to)| *to));
        }
    }
    found
}

/// Values that all of `nodes`, which ask for one field, send the same way are one class. The class of
/// 0 is 0.
fn classes(diagram: &Diagram, nodes: &[Id]) -> Option<Classified> {
    let cases = || nodes.iter().filter_map(|id| diagram.node(*id)).flat_map(|node| &node.cases);
    let starts: BTreeSet<u32> = cases().map(|(from, _)| *from).collect();
    if starts.len().saturating_mul(nodes.len()) > MAX_COMPARED {
        return None;
    }
    let mut known: HashMap<Vec<Id>, u32> = HashMap::new();
    let mut values = Vec::new();
    let mut cases = Vec::with_capacity(starts.len());
    for from in starts {
        let ways: Vec<Id> = nodes.iter().map(|id| diagram.at(*id, from)).collect();
        let next = u32::try_from(values.len()).ok()?;
        let class = *known.entry(ways).or_insert(next);
        if class == next {
            values.push(from);
        }
        cases.push((from, class));
    }
    cases.dedup_by_key(|(_, class)| *class);
    Some(Classified { cases, values })
}

struct Fill<'a> {
    diagram: &'a Diagram,
    classified: &'a [(FieldId, Classified)],
    strides: &'a [u32],
    words: Vec<u64>,
}

impl Fill<'_> {
    /// Writes what `id` says into the `len` verdicts from `at` on; the first `column` fields are known.
    fn block(&mut self, id: Id, column: usize, at: u32, len: u32) {
        match id {
            FALSE => return,
            TRUE => {
                for place in at..at.saturating_add(len) {
                    if let Some(word) = self.words.get_mut((place >> 6) as usize) {
                        *word |= 1 << (place & 63);
                    }
                }
                return;
            }
            _ => {}
        }
        let (Some((field, classes)), Some(stride)) =
            (self.classified.get(column), self.strides.get(column))
        else {
            return;
        };
        let asks = self.diagram.node(id).is_some_and(|node| node.field == *field);
        for (value, class) in classes.values.iter().zip(0_u32..) {
            let to = if asks { self.diagram.at(id, *value) } else { id };
            let at = at.saturating_add(class.saturating_mul(*stride));
            self.block(to, column.saturating_add(1), at, *stride);
        }
    }
}
