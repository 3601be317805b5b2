//! Which parts of a replica's memory are free: in sizes of powers of two, each with a list.

/// Bytes of the smallest part: a cache line.
pub(super) const UNIT: usize = 64;
/// Sizes: 64 bytes to a mebibyte.
pub(super) const CLASSES: usize = 15;

/// The class of a record of `len` bytes.
fn class(len: usize) -> usize {
    len.div_ceil(UNIT).next_power_of_two().trailing_zeros() as usize
}

/// True when a record of `len` bytes can lie at `unit` of `units`.
pub(super) fn fits(unit: u32, len: usize, units: u32) -> bool {
    let class = class(len);
    len > 0 && class < CLASSES && u64::from(unit) + (1 << class) <= u64::from(units)
}

/// Known to the writer alone: its successor finds out from the records themselves.
pub(super) struct Room {
    /// All units from here on are free.
    next: u32,
    units: u32,
    free: [Vec<u32>; CLASSES],
    used: u64,
}

impl Room {
    pub(super) fn new(units: u32) -> Self {
        Room { next: 0, units, free: Default::default(), used: 0 }
    }

    /// Room for a record of `len` bytes, in place of that of one of `old` bytes (0: none) at `unit`, which may be the
    /// same. `None` when there is none; the old one's is free all the same.
    #[inline]
    pub(super) fn again(&mut self, unit: u32, old: usize, len: usize) -> Option<u32> {
        if fits(unit, old, self.units) {
            if class(old) == class(len) {
                return Some(unit);
            }
            self.free(unit, old);
        }
        self.take(class(len))
    }

    fn take(&mut self, class: usize) -> Option<u32> {
        let units = 1u32 << class;
        // A larger one is cut: what a predecessor left free is found in parts as large as can be.
        let larger = self.free.iter_mut().enumerate().skip(class);
        let found = larger.filter_map(|(of, list)| Some((of, list.pop()?))).next();
        let unit = match found {
            Some((of, unit)) => {
                for (half, list) in self.free.iter_mut().enumerate().take(of).skip(class) {
                    list.push(unit + (1 << half));
                }
                unit
            }
            None if class < CLASSES && self.units - self.next >= units => {
                self.next += units;
                self.next - units
            }
            None => return None,
        };
        self.used += u64::from(units) * UNIT as u64;
        Some(unit)
    }

    /// The room of a record of `len` bytes at `unit` is free; nothing of one that cannot be.
    pub(super) fn free(&mut self, unit: u32, len: usize) {
        if !fits(unit, len, self.units) {
            return;
        }
        let class = class(len);
        if let Some(list) = self.free.get_mut(class) {
            list.push(unit);
            self.used = self.used.saturating_sub((UNIT as u64) << class);
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }
}

/// What lies where in a memory that is taken over: a bit for each unit.
pub(super) struct Claims {
    words: Vec<u64>,
    units: u32,
    /// None from here on.
    end: u32,
    used: u64,
}

impl Claims {
    /// Of so many units. Memory is taken as they are claimed.
    pub(super) fn new(units: u32) -> Self {
        Claims { words: vec![0; units.div_ceil(u64::BITS) as usize], units, end: 0, used: 0 }
    }

    /// A record of `len` bytes lies at `unit`. False when another one lies there, or it cannot be.
    pub(super) fn claim(&mut self, unit: u32, len: usize) -> bool {
        if !fits(unit, len, self.units) {
            return false;
        }
        let end = unit + (1 << class(len));
        let mut parts = Self::parts(unit, end);
        if parts.any(|(word, bits)| self.words.get(word).is_none_or(|word| word & bits != 0)) {
            return false;
        }
        for (word, bits) in Self::parts(unit, end) {
            if let Some(word) = self.words.get_mut(word) {
                *word |= bits;
            }
        }
        self.end = self.end.max(end);
        self.used += u64::from(end - unit) * UNIT as u64;
        true
    }

    /// The words that units from `at` to before `end` are in, each with their bits.
    fn parts(mut at: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
        std::iter::from_fn(move || {
            let (word, from) = ((at / u64::BITS) as usize, at % u64::BITS);
            let count = end.checked_sub(at).filter(|left| *left > 0)?.min(u64::BITS - from);
            at += count;
            Some((word, u64::MAX >> (u64::BITS - count) << from))
        })
    }

    /// The first unit from `at` on that is claimed, or is not; none behind the last that is.
    fn next(&self, at: u32, claimed: bool) -> Option<u32> {
        let (first, last) = ((at / u64::BITS) as usize, self.end.div_ceil(u64::BITS) as usize);
        // What is before it does not count.
        let mut mask = u64::MAX << (at % u64::BITS);
        for (i, word) in self.words.iter().enumerate().take(last).skip(first) {
            let found = (if claimed { *word } else { !*word }) & mask;
            if found != 0 {
                return Some(i as u32 * u64::BITS + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }

    /// The room that there is beside: what is between two records is free, in parts as large as can be, and so is all behind the last.
    pub(super) fn room(&self) -> Room {
        let mut room = Room::new(self.units);
        while let Some(taken) = self.next(room.next, true) {
            while room.next < taken {
                let gap = (taken - room.next).ilog2().min(CLASSES as u32 - 1);
                if let Some(list) = room.free.get_mut(gap as usize) {
                    list.push(room.next);
                }
                room.next += 1 << gap;
            }
            room.next = self.next(taken, false).unwrap_or(self.end);
        }
        room.used = self.used;
        room
    }
}
