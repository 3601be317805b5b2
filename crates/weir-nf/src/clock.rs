//! Time as packets tell it.

/// How far back a source's time stamps may go without meaning anything: packets overtake each other.
const STEP_NS: u64 = 1_000_000_000;
/// Stamps from here on (the year 2262) are none that a clock gave.
pub(crate) const BEYOND_NS: u64 = 1 << 63;
/// Sources whose stamps are told apart; of more some share.
const SOURCES: usize = 16;

/// One per µNF; never goes back, and never stands still for long.
///
/// Stamps are of the wall clock on live input, which is set back at times. From then on the difference is added to the
/// stamps of that source, so that time goes on from where it was: were the highest stamp all that counted, no flow
/// would end and no rate would let anything through until the clock had caught up. Sources are told apart as
/// captures that are read together may be of different years.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    /// The time of what was taken over: a source that begins earlier goes on from there.
    floor_ns: u64,
    sources: [Source; SOURCES],
}

/// What one source's stamps say.
#[derive(Debug, Clone, Copy, Default)]
struct Source {
    is_seen: bool,
    /// The latest stamp since they went back.
    last_ns: u64,
    /// What is added to them.
    offset_ns: u64,
    /// Before they went back: the latest, how far they went, what was added.
    before: Option<Before>,
}

#[derive(Debug, Clone, Copy)]
struct Before {
    last_ns: u64,
    step_ns: u64,
    offset_ns: u64,
}

impl Clock {
    /// The time at a packet with this stamp, from the source with this port.
    #[inline]
    pub(crate) fn see(&mut self, port: u16, stamp_ns: u64) -> u64 {
        if stamp_ns < BEYOND_NS
            && let Some(source) = self.sources.get_mut(usize::from(port) % SOURCES)
        {
            // µNFs add to it: it stays where that cannot overflow.
            let now_ns = source.see(stamp_ns, self.floor_ns);
            self.reach(now_ns);
        }
        self.now_ns
    }

    /// Time has gone on to here without a packet.
    #[inline]
    pub(crate) fn reach(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns.min(BEYOND_NS));
    }

    /// Goes on from the time of another, of which flows and timers were taken over, if that is later.
    pub(crate) fn resume(&mut self, now_ns: u64) {
        let ahead = now_ns.saturating_sub(self.now_ns);
        if ahead > STEP_NS {
            for source in self.sources.iter_mut().filter(|source| source.is_seen) {
                source.offset_ns = source.offset_ns.saturating_add(ahead);
                source.before = None;
            }
        }
        self.floor_ns = self.floor_ns.max(now_ns);
        self.reach(now_ns);
    }
}

impl Source {
    #[inline]
    fn see(&mut self, stamp_ns: u64, floor_ns: u64) -> u64 {
        let forward = stamp_ns.saturating_sub(self.last_ns);
        if forward > STEP_NS || stamp_ns.saturating_add(STEP_NS) < self.last_ns || !self.is_seen {
            self.jump(stamp_ns, forward, floor_ns);
        }
        self.last_ns = self.last_ns.max(stamp_ns);
        stamp_ns.saturating_add(self.offset_ns)
    }

    #[cold]
    fn jump(&mut self, stamp_ns: u64, forward: u64, floor_ns: u64) {
        if !self.is_seen {
            self.is_seen = true;
            if stamp_ns.saturating_add(STEP_NS) < floor_ns {
                self.offset_ns = floor_ns - stamp_ns;
            }
        } else if forward == 0 {
            let (last_ns, offset_ns) = (self.last_ns, self.offset_ns);
            let step_ns = last_ns - stamp_ns;
            self.before = Some(Before { last_ns, step_ns, offset_ns });
            self.offset_ns = offset_ns.saturating_add(step_ns);
            self.last_ns = stamp_ns;
        } else if let Some(before) = self.before
            && stamp_ns.saturating_add(STEP_NS) >= before.last_ns
            && forward >= before.step_ns / 2
        {
            // Back where it had been: it was some packets only, which somebody had held, or two that share.
            self.offset_ns = before.offset_ns;
            self.before = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stamps_say_time_does_not_go_back_and_leaves_room_to_add_to_it() {
        let mut clock = Clock::default();
        let mut before = 0;
        for stamp in [BEYOND_NS - 1, 0, BEYOND_NS - 1, 1, BEYOND_NS / 2, 3, BEYOND_NS - 2, u64::MAX]
        {
            let now = clock.see(0, stamp);
            assert!(before <= now && now <= BEYOND_NS, "{stamp}: {now}");
            before = now;
        }
        clock.resume(u64::MAX);
        assert_eq!(clock.see(0, 7), BEYOND_NS);
    }
}
