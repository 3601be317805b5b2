//! What a source's service says of it: who believes a promise that came by a ring finds that the source had come as
//! far, and who sees the marker of its end finds that it has ended.
//!
//! Red under `WEIR_BROKEN=watermark`: a promise is seen without what was said before it.

use super::explore;
use crate::ends::heap_ends;
use crate::entry::{Entry, Marker, Seq};
use crate::ring::heap_ring;
use loom::thread;

#[test]
fn a_source_has_come_as_far_as_any_promise_that_is_seen() {
    explore(3, || {
        let [service, other] = heap_ends();
        let (mut p, mut c) = heap_ring(2);
        let service = thread::spawn(move || {
            for n in 1..3 {
                service.progress(Seq::new(n));
                assert!(p.stage(Entry::packet(0, 0, 64, Seq::new(n - 1), 0)));
                p.publish();
                p.set_watermark(Seq::new(n));
            }
        });
        for _ in 0..2 {
            let promised = c.watermark();
            assert!(!other.reached().before(promised), "promised more than was said");
            c.refresh();
        }
        service.join().unwrap();
    });
}

#[test]
fn a_source_whose_end_has_come_has_ended() {
    explore(3, || {
        let [service, other] = heap_ends();
        let (mut p, mut c) = heap_ring(2);
        let service = thread::spawn(move || {
            service.set();
            assert!(p.stage(Entry::marker(Marker::EndOfStream, Seq::new(0))));
            p.publish();
        });
        if c.refresh() > 0 {
            assert!(other.is_set(), "an honest end is taken for a lie");
        }
        service.join().unwrap();
    });
}
