//! Flows that stay with their instance, whatever becomes of their bucket.

/// Pins per set: a set is a cache line, so that a packet costs one.
const WAYS: usize = 4;

const SECOND: u64 = 1_000_000_000;

/// Seconds for which a flow that has begun to end is remembered after its last packet: the other side may
/// still send (RFC 9293 §3.6: closing is for each direction), and what was lost is sent again.
const LINGER: u32 = 30;

/// A flow and its instance. Time is packet time in whole seconds, as it only ends idle flows.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Pin {
    hash: u64,
    /// Second of the last packet.
    seen: u32,
    instance: u8,
    used: bool,
    /// It has begun to end.
    ends: bool,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Set([Pin; WAYS]);

/// Instances of the flows that are under way, by the flow's hash. Two flows that hash alike in 64 bits
/// share a pin, which does no harm: they have the same bucket as well.
///
/// Bounded: where a set is full, an expired pin makes room, else that of the flow that rested longest,
/// which from then on goes where its bucket goes. All memory is taken at creation.
#[derive(Debug)]
pub struct Pins {
    sets: Vec<Set>,
    /// Seconds without a packet after which a flow has ended.
    idle: u32,
    /// Pins that were given up while their flow was still under way.
    forgotten: u64,
}

impl Pins {
    /// Room for at least `capacity` flows. A flow that had no packet for `idle_s` seconds has ended.
    #[must_use]
    pub fn new(capacity: usize, idle_s: u32) -> Self {
        let sets = capacity.div_ceil(WAYS).max(1).checked_next_power_of_two().unwrap_or(1 << 31);
        Pins { sets: vec![Set::default(); sets], idle: idle_s.max(1), forgotten: 0 }
    }

    /// The instance of a flow under way, if it is known and `usable`; else it is pinned to what
    /// `choose` says. `ends`: the packet says that the flow ends (TCP FIN or RST).
    #[inline]
    pub fn instance(
        &mut self,
        hash: u64,
        now_ns: u64,
        ends: bool,
        usable: impl FnOnce(u8) -> bool,
        choose: impl FnOnce() -> u8,
    ) -> u8 {
        let (idle, now) = (self.idle, second(now_ns));
        let Some(set) = Self::set(&mut self.sets, hash) else {
            return choose();
        };
        if let Some(pin) = set.iter_mut().find(|pin| pin.used && pin.hash == hash)
            && pin.is_alive(now, idle)
            && usable(pin.instance)
        {
            pin.seen = now;
            pin.ends |= ends;
            return pin.instance;
        }
        let instance = choose();
        let rests = |pin: &Pin| {
            let same = pin.used && pin.hash == hash;
            if same { u32::MAX } else { pin.rests(now, idle) }
        };
        if let Some(pin) = set.iter_mut().max_by_key(|pin| rests(pin)) {
            self.forgotten += u64::from(pin.hash != hash && pin.is_alive(now, idle));
            *pin = Pin { hash, seen: now, instance, used: true, ends };
        }
        instance
    }

    /// Moves a flow that is under way; false when it is not known.
    pub fn move_to(&mut self, hash: u64, now_ns: u64, instance: u8) -> bool {
        let (idle, now) = (self.idle, second(now_ns));
        let set = Self::set(&mut self.sets, hash).into_iter().flatten();
        let mut known = set.filter(|pin| pin.hash == hash && pin.is_alive(now, idle));
        known.next().map(|pin| pin.instance = instance).is_some()
    }

    /// How many flows are under way at an instance: one that is to go is empty when there are none.
    #[must_use]
    pub fn count(&self, instance: u8, now_ns: u64) -> usize {
        let now = second(now_ns);
        let pins = self.sets.iter().flat_map(|set| &set.0);
        pins.filter(|pin| pin.instance == instance && pin.is_alive(now, self.idle)).count()
    }

    /// How many flows under way lost their pin for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    #[inline]
    fn set(sets: &mut [Set], hash: u64) -> Option<&mut [Pin; WAYS]> {
        // The lower bits: the upper ones are the bucket.
        let at = hash as usize & sets.len().wrapping_sub(1);
        sets.get_mut(at).map(|set| &mut set.0)
    }
}

impl Pin {
    #[inline]
    fn is_alive(&self, now: u32, idle: u32) -> bool {
        let most = if self.ends { LINGER.min(idle) } else { idle };
        // A capture's time may jump: far in the future is as stale as far in the past.
        self.used && now.abs_diff(self.seen) <= most
    }

    /// For how long it rests; the most for one that may go.
    #[inline]
    fn rests(&self, now: u32, idle: u32) -> u32 {
        if self.is_alive(now, idle) { now.abs_diff(self.seen) } else { u32::MAX }
    }
}

/// Seconds since 1970, until the year 2106.
#[inline]
fn second(ns: u64) -> u32 {
    (ns / SECOND) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at(second: u64) -> u64 {
        second * SECOND
    }

    #[test]
    fn a_flow_stays_until_it_rests_too_long_or_its_instance_goes() {
        let mut pins = Pins::new(8, 60);
        assert_eq!(pins.instance(7, at(0), false, |_| true, || 1), 1);
        assert_eq!(pins.instance(7, at(60), false, |_| true, || 2), 1);
        assert_eq!(pins.instance(7, at(121), false, |_| true, || 2), 2);
        assert_eq!(pins.instance(7, at(121), false, |i| i != 2, || 3), 3);
        assert!(pins.move_to(7, at(122), 5) && !pins.move_to(8, at(122), 5));
        assert_eq!(pins.instance(7, at(122), false, |_| true, || 0), 5);
        assert_eq!((pins.count(5, at(122)), pins.count(3, at(122))), (1, 0));
    }

    #[test]
    fn a_flow_that_ends_is_forgotten_sooner() {
        let mut pins = Pins::new(8, 600);
        pins.instance(7, at(0), false, |_| true, || 1);
        assert_eq!(pins.instance(7, at(100), true, |_| true, || 2), 1);
        assert_eq!(pins.instance(7, at(130), false, |_| true, || 2), 1);
        assert_eq!(pins.instance(7, at(161), false, |_| true, || 2), 2);
    }

    #[test]
    fn where_there_is_no_room_the_flow_that_rests_longest_gives_way_and_is_counted() {
        let mut pins = Pins::new(WAYS, 60);
        for hash in 0..4 {
            pins.instance(hash, at(hash), false, |_| true, || 1);
        }
        pins.instance(9, at(10), false, |_| true, || 2);
        assert_eq!(pins.forgotten(), 1);
        assert_eq!(pins.instance(1, at(10), false, |_| true, || 3), 1);
        assert_eq!(pins.instance(0, at(10), false, |_| true, || 3), 3);
    }

    proptest! {
        /// With room for all, it does what a map without bounds does.
        #[test]
        fn it_is_a_map_with_an_end(steps in prop::collection::vec((0..6_u64, 0..40_u64, any::<bool>(), 0..4_u8), 0..200)) {
            let mut pins = Pins::new(64, 60);
            let mut plain: BTreeMap<u64, (u64, u8, bool)> = BTreeMap::new();
            let mut now = 1000;
            for (flow, later, ends, chosen) in steps {
                now += later;
                let got = pins.instance(flow, at(now), ends, |_| true, || chosen);
                let entry = plain.entry(flow).or_insert((now, chosen, false));
                let most = if entry.2 { 30 } else { 60 };
                if now - entry.0 > most {
                    *entry = (now, chosen, false);
                }
                entry.0 = now;
                entry.2 |= ends;
                prop_assert_eq!(got, entry.1);
            }
        }
    }
}
