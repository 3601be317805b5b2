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

    /// A record of `len` bytes lies at `unit`; to be said by ascending place. What is between the one before and it is
    /// free. False when they overlap, or it cannot be.
    pub(super) fn claim(&mut self, unit: u32, len: usize) -> bool {
        if !fits(unit, len, self.units) || unit < self.next {
            return false;
        }
        while self.next < unit {
            let gap = (unit - self.next).ilog2().min(CLASSES as u32 - 1);
            if let Some(list) = self.free.get_mut(gap as usize) {
                list.push(self.next);
            }
            self.next += 1 << gap;
        }
        let units = 1u32 << class(len);
        self.next += units;
        self.used += u64::from(units) * UNIT as u64;
        true
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }
}
