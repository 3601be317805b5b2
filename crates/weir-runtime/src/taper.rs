//! Fewer and fewer packets are under way before a device is held, so that little has to run out while nothing is taken from it.
//!
//! Who stops all at once lets full rings run out, and the device waits for as long as that takes. Here one packet is taken for every two that have come
//! through, so the device goes on at half of what the graph carries, until what is under way is a millisecond's work.

use std::time::{Duration, Instant};

/// Most packets that stay under way: two batches, for which who hands cores over in turns does not wait for the next.
const MOST: usize = 512;
/// Fewest, however slow the graph is: who takes batches has some.
const FEWEST: usize = 64;
/// What is to stay under way is what comes through in such a time.
const SPAN: Duration = Duration::from_millis(1);
/// So long nothing may be taken, at most: if more packets are held than was reckoned, say.
const PAUSE: Duration = Duration::from_millis(4);

/// How many packets a source may still take.
pub(crate) struct Taper {
    /// Of the packets that are under way so many lie in rings, as who ordered this has seen.
    in_rings: usize,
    /// The rest once it is known.
    course: Option<Course>,
}

struct Course {
    /// Buffers that may be out of the pool.
    window: usize,
    /// Of those so many do not come back by themselves: NFs hold packets.
    elsewhere: usize,
    /// Buffers that are out of it, as seen last.
    out: usize,
    /// One buffer has come back for which nothing was taken away from the window.
    odd: bool,
    /// What has come through since.
    came: usize,
    since: Instant,
    /// Most that came through in a span. Once little is under way that is what the graph carries no more.
    in_span: Option<usize>,
    /// When some could be taken last.
    took: Instant,
}

impl Taper {
    /// So many packets of the source lie in rings.
    pub(crate) fn new(in_rings: usize) -> Self {
        Taper { in_rings, course: None }
    }

    /// How many packets may be taken at `now`, when so many buffers are out of the pool.
    pub(crate) fn room(&mut self, out: usize, now: Instant) -> usize {
        let in_rings = self.in_rings;
        let course = self.course.get_or_insert_with(|| {
            let elsewhere = out.saturating_sub(in_rings);
            let (window, odd, came, since, in_span, took) = (out, false, 0, now, None, now);
            Course { window, elsewhere, out, odd, came, since, in_span, took }
        });
        let back = course.out.saturating_sub(out);
        course.out = out;
        course.came += back;
        let spans = now.saturating_duration_since(course.since).as_nanos() / SPAN.as_nanos();
        if let Some(in_span) = course.came.checked_div(usize::try_from(spans).unwrap_or(0)) {
            let most = course.in_span.map_or(in_span, |most| most.max(in_span));
            (course.in_span, course.came, course.since) = (Some(most), 0, now);
        }
        let back = back + usize::from(course.odd);
        course.odd = back % 2 == 1;
        let least = course.elsewhere + course.in_span.unwrap_or(MOST).clamp(FEWEST, MOST);
        course.window = course.window.saturating_sub(back / 2).max(least);
        match course.window.saturating_sub(out) {
            // Whatever was reckoned: the device does not wait for long.
            0 if now.saturating_duration_since(course.took) <= PAUSE => 0,
            room => {
                course.took = now;
                if room == 0 { FEWEST } else { room }
            }
        }
    }

    /// So many were taken.
    pub(crate) fn took(&mut self, packets: usize) {
        self.course.iter_mut().for_each(|course| course.out += packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph that carries `rate` packets a millisecond and holds `held`, whose source always has more.
    struct Graph {
        taper: Taper,
        out: usize,
        held: usize,
        start: Instant,
        taken: usize,
    }

    impl Graph {
        fn full(out: usize, held: usize) -> Self {
            let (mut taper, start) = (Taper::new(out - held), Instant::now());
            assert_eq!(taper.room(out, start), 0);
            Graph { taper, out, held, start, taken: 0 }
        }

        /// Works through the milliseconds `from..to`, in steps of a tenth; says what was taken.
        fn go_on(&mut self, from: u64, to: u64, rate: usize) -> usize {
            let before = self.taken;
            for step in from * 10..to * 10 {
                let at = step as usize;
                let through = (at + 1) * rate / 10 - at * rate / 10;
                self.out -= through.min(self.out - self.held);
                let now = self.start + Duration::from_micros(step * 100);
                let room = self.taper.room(self.out, now).min(256);
                self.taper.took(room);
                self.out += room;
                self.taken += room;
            }
            self.taken - before
        }
    }

    #[test]
    fn half_of_what_comes_through_is_taken_until_little_is_under_way_and_then_as_much() {
        let mut graph = Graph::full(12_000, 0);
        let taken = graph.go_on(0, 8, 2_000);
        assert!((7_500..=8_500).contains(&taken), "half of 16,000: {taken}");
        graph.go_on(8, 14, 2_000);
        assert_eq!(graph.out, MOST);
        let taken = graph.go_on(14, 16, 2_000);
        assert!(taken >= 3_900, "the device goes on at the full rate: {taken}");
        assert_eq!(graph.out, MOST);
    }

    #[test]
    fn a_slow_graph_keeps_a_milliseconds_work() {
        let mut graph = Graph::full(12_000, 0);
        graph.go_on(0, 300, 100);
        assert!(
            (100..=112).contains(&graph.out),
            "what comes through in a millisecond: {}",
            graph.out
        );
        let mut graph = Graph::full(1_000, 0);
        graph.go_on(0, 3_000, 10);
        assert_eq!(graph.out, FEWEST);
    }

    #[test]
    fn packets_that_are_held_keep_nobody_from_being_taken() {
        let mut graph = Graph::full(6_000, 2_000);
        graph.go_on(0, 20, 2_000);
        assert_eq!(graph.out, 2_000 + MOST);
        let taken = graph.go_on(20, 22, 2_000);
        assert!(taken >= 3_900, "{taken}");
    }

    #[test]
    fn when_more_packets_are_held_than_was_reckoned_some_are_taken_all_the_same() {
        let mut graph = Graph::full(6_000, 2_000);
        graph.taper = Taper::new(6_000);
        graph.go_on(0, 20, 2_000);
        let taken = graph.go_on(20, 60, 2_000);
        assert!(taken >= 5 * FEWEST, "{taken}");
    }

    #[test]
    fn a_graph_that_is_nearly_empty_may_fill_up_to_what_stays_under_way() {
        let mut taper = Taper::new(10);
        assert_eq!(taper.room(10, Instant::now()), MOST - 10);
        let mut taper = Taper::new(0);
        assert_eq!(taper.room(0, Instant::now()), MOST);
    }
}
