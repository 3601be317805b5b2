//! Address classes: which of the rules' prefixes is the longest that contains an IPv4 address.
//!
//! The upper 16 bits index a table; where that does not decide, the lower ones are ranked among up to eight keys at a
//! time in a tree of one cache line per node. So the prefixes of thousands of rules take a few hundred KiB, and a
//! lookup two or three loads.

use crate::batch::LANES;
use std::collections::BTreeSet;

const TOP: usize = 1 << 16;
/// Marks the number of a node instead of a class.
const NODE: u32 = 1 << 31;
const KEYS: usize = 8;
/// Keys are stored less this, as signed numbers: every x86-64 compares eight of those at once.
const BIAS: u16 = 1 << 15;

/// A prefix as class numbers: the classes of all prefixes inside it (itself among them) are neighbours.
pub(crate) type Span = (u16, u16);

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Node {
    /// Where each child begins, ascending; the first is the least there is. Unused ones at the end lead to the last
    /// child, so that it does not matter whether they count.
    keys: [i16; KEYS],
    children: [u32; KEYS],
}

/// Maps an address to its class.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    top: Box<[u32; TOP]>,
    nodes: Vec<Node>,
    /// First and last address of each class's prefix, in the order of the classes.
    prefixes: Vec<(u32, u32)>,
}

impl Addresses {
    /// Classes for prefixes, each a mask and an address under it; `None` when they are more than 65,535 or a mask is
    /// none of a prefix. The prefix of length 0 is always there and has class 0.
    pub(crate) fn new(prefixes: impl Iterator<Item = (u32, u32)>) -> Option<Self> {
        let mut distinct = BTreeSet::from([(0, !u32::MAX)]);
        for (mask, value) in prefixes {
            if mask.leading_ones().saturating_add(mask.trailing_zeros()) < 32 {
                return None;
            }
            // Wider before narrower at the same start: then the order is that of a walk through the nesting.
            distinct.insert((value, mask));
        }
        let prefixes: Vec<(u32, u32)> =
            distinct.into_iter().map(|(value, mask)| (value, value | !mask)).collect();
        u16::try_from(prefixes.len()).ok()?;
        let mut built = Addresses { top: Box::new([0; TOP]), nodes: Vec::new(), prefixes };
        built.fill();
        Some(built)
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// The classes inside the prefix of `mask` and `value`, which must be one of those given to [`Self::new`].
    pub(crate) fn span(&self, mask: u32, value: u32) -> Span {
        let (first, last) = (value, value | !mask);
        let order = |&(start, end): &(u32, u32)| (start, u32::MAX - end) < (first, u32::MAX - last);
        let own = self.prefixes.partition_point(order);
        let behind = self.prefixes.partition_point(|&(start, _)| start <= last);
        (own as u16, behind.saturating_sub(1) as u16)
    }

    /// Where a new class starts, and which: ascending, from address 0 on.
    fn intervals(&self) -> Vec<(u32, u32)> {
        let mut intervals: Vec<(u32, u32)> = Vec::new();
        let mut start = |at: u32, class: u32| {
            match intervals.last_mut() {
                // A narrower prefix that starts at the same address, or one that ends where another does.
                Some(last) if last.0 == at => last.1 = class,
                _ => intervals.push((at, class)),
            }
        };
        let mut open: Vec<(u32, u32)> = Vec::new();
        let close =
            |open: &mut Vec<(u32, u32)>, before: Option<u32>, start: &mut dyn FnMut(u32, u32)| {
                while let Some(&(end, _)) = open.last()
                    && before.is_none_or(|before| end < before)
                {
                    open.pop();
                    if let (Some(&(_, outer)), Some(next)) = (open.last(), end.checked_add(1)) {
                        start(next, outer);
                    }
                }
            };
        for (class, &(first, last)) in (0..).zip(&self.prefixes) {
            close(&mut open, Some(first), &mut start);
            start(first, class);
            open.push((last, class));
        }
        close(&mut open, None, &mut start);
        intervals
    }

    fn fill(&mut self) {
        let intervals = self.intervals();
        let mut at = 0;
        let mut class = 0;
        for high in 0..TOP as u32 {
            // Keys of this block: the lower halves of the starts in it.
            let mut keys = vec![(0_u16, class)];
            while let Some(&(start, next)) =
                intervals.get(at).filter(|(start, _)| start >> 16 == high)
            {
                if start as u16 == 0 {
                    keys.clear();
                }
                keys.push((start as u16, next));
                class = next;
                at += 1;
            }
            self.top[high as usize % TOP] = self.node(&keys);
        }
    }

    /// The tree over `keys`, or the class when there is one only.
    fn node(&mut self, keys: &[(u16, u32)]) -> u32 {
        if let [(_, class)] = keys {
            return *class;
        }
        let group = keys.len().div_ceil(KEYS);
        let mut node = Node { keys: [i16::MAX; KEYS], children: [0; KEYS] };
        let mut last = 0;
        for (at, keys) in keys.chunks(group).enumerate() {
            last = self.node(keys);
            node.children[at % KEYS] = last;
            if let Some((key, _)) = keys.first() {
                node.keys[at % KEYS] = biased(*key);
            }
        }
        node.keys[0] = i16::MIN;
        node.children.iter_mut().skip(keys.len().div_ceil(group)).for_each(|child| *child = last);
        self.nodes.push(node);
        NODE | (self.nodes.len() - 1) as u32
    }

    /// The class of one address.
    pub(crate) fn class(&self, address: u32) -> u16 {
        let mut at = self.top[(address >> 16) as usize % TOP];
        while at & NODE != 0 {
            at = self.child(at, address as u16);
        }
        at as u16
    }

    /// The class of each address.
    #[inline]
    pub(crate) fn classes(&self, addresses: &[u32], classes: &mut [u16; LANES]) {
        // Packets whose class is not known yet, one after the other and without branches: how deep each has to look is
        // random, and a branch would mispredict.
        let mut open = [(0_u32, 0_u8); LANES];
        let mut count = 0;
        for ((lane, address), class) in (0_u8..).zip(addresses).zip(classes.iter_mut()) {
            let at = self.top[(address >> 16) as usize % TOP];
            *class = at as u16;
            open[count % LANES] = (at, lane);
            count += usize::from(at & NODE != 0);
        }
        while count > 0 {
            let mut left = 0;
            for slot in 0..count {
                let (at, lane) = open[slot % LANES];
                let lane = usize::from(lane) % LANES;
                let low = addresses.get(lane).map_or(0, |address| *address as u16);
                let child = self.child(at, low);
                classes[lane] = child as u16;
                open[left % LANES] = (child, lane as u8);
                left += usize::from(child & NODE != 0);
            }
            count = left;
        }
    }

    #[inline]
    fn child(&self, at: u32, low: u16) -> u32 {
        let Some(node) = self.nodes.get((at & !NODE) as usize) else { return 0 };
        let low = biased(low);
        let above: i16 = node.keys.iter().map(|key| i16::from(*key > low)).sum();
        // The first key is never above.
        node.children[(KEYS - 1).wrapping_sub(above as usize) % KEYS]
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<[u32; TOP]>() + self.nodes.len() * size_of::<Node>() + self.prefixes.len() * 8
    }
}

fn biased(key: u16) -> i16 {
    (key ^ BIAS) as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_gets_the_longest_prefix_and_spans_hold_what_is_inside(
            prefixes in prop::collection::vec((0..3_u32, any::<u32>(), 0..=32_u32), 0..300),
            addresses in prop::collection::vec((0..3_u32, any::<u32>()), 1..64),
        ) {
            // Few upper halves, so that blocks fill.
            let near = |(high, low): (u32, u32)| high << 16 | low & 0xFFFF | low & 0x8000_0000;
            let prefixes: Vec<(u32, u32)> = prefixes
                .iter()
                .map(|&(high, low, len)| {
                    let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
                    (mask, near((high, low)) & mask)
                })
                .collect();
            let mut addresses: Vec<u32> = addresses.into_iter().map(near).collect();
            addresses.extend(prefixes.iter().flat_map(|(mask, value)| {
                [*value, value | !mask, value.wrapping_sub(1), (value | !mask).wrapping_add(1)]
            }));
            let map = Addresses::new(prefixes.iter().copied()).unwrap();
            for addresses in addresses.chunks(LANES) {
                let mut classes = [0; LANES];
                map.classes(addresses, &mut classes);
                for (address, class) in addresses.iter().zip(classes) {
                    prop_assert_eq!(map.class(*address), class);
                    for &(mask, value) in &prefixes {
                        let (first, last) = map.span(mask, value);
                        prop_assert_eq!(
                            address & mask == value,
                            (first..=last).contains(&class),
                            "{:x} in {:x}/{:x}, class {}", address, value, mask, class
                        );
                    }
                }
            }
        }
    }
}
