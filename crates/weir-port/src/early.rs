//! Which packets a live source gives up first when there is too little room for all.

/// How far each class of packets may fill a ring: the first half is everybody's, and of the second a class of weight *w* has the first
/// *w / W*, *W* being the largest weight. So nobody loses anything before a graph that keeps up, the class of the largest weight has all of
/// it, and each other leaves room for those above it: what is too much is lost by the lowest first.
/// (Partial buffer sharing: Kröner et al., Priority management in ATM switching nodes, IEEE JSAC 9(3), 1991.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    weights: Vec<u32>,
    largest: u32,
    capacity: usize,
}

impl Shares {
    /// Classes of these weights before a ring of `capacity` entries.
    pub fn new(weights: Vec<u32>, capacity: usize) -> Self {
        let largest = weights.iter().copied().max().unwrap_or(0);
        Shares { weights, largest, capacity }
    }

    /// Entries of the ring.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a packet of `class` enters while there is room for `room` more.
    #[inline]
    pub fn admits(&self, class: usize, room: usize) -> bool {
        let weight = self.weights.get(class).copied().unwrap_or(0);
        let taken = self.capacity.saturating_sub(room) as u64;
        // In whole numbers: taken / capacity < 1/2 + weight / largest / 2. Both factors have 32 bits at most.
        let mark = self.capacity as u64 * (u64::from(self.largest) + u64::from(weight));
        room > 0 && 2 * taken * u64::from(self.largest) < mark
    }

    /// How many packets may be taken at once, so that those at the end are not refused for those before them while the ring is
    /// less than half full.
    #[inline]
    pub fn at_once(&self, room: usize) -> usize {
        let taken = self.capacity.saturating_sub(room);
        match (self.capacity / 2).checked_sub(taken) {
            None | Some(0) => usize::MAX,
            Some(left) => left,
        }
    }

    /// Whether the next `packets` enter whatever classes they are of.
    #[inline]
    pub fn admits_all(&self, packets: usize, room: usize) -> bool {
        let Some(left) = room.checked_sub(packets.saturating_sub(1)) else { return false };
        packets == 0 || (0..self.weights.len()).all(|class| self.admits(class, left))
    }
}
