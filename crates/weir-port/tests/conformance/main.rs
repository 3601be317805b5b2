//! What every kind of port promises whoever sends and whoever takes, one suite for all kinds made of rings: a packet comes once, in order, in batches of any size;
//! what finds no room stays with the sender; the end comes last; a marker comes where it was put; and whoever dies, each buffer is in one place.
//!
//! The same of all kinds, those inside a worker and at devices too, with real processes: `crates/weir/tests/graphs/conformance.rs`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // set-up of tests

mod rig;
mod suite;

use rig::Shape;

/// The kinds. `branches`: a branch port, that many branches and a sync port between sender and taker.
const POINT_TO_POINT: Shape = Shape { lanes: 1, takers: 1, branches: 0, marks: true };
const FAN_IN: Shape = Shape { lanes: 3, takers: 1, branches: 0, marks: true };
const BALANCE: Shape = Shape { lanes: 3, takers: 3, branches: 0, marks: true };
/// Flows of what stands in a stage do not move, so no markers of migrations come there.
const STAGE_OF_TWO: Shape = Shape { lanes: 1, takers: 1, branches: 2, marks: false };
const STAGE_OF_FIVE: Shape = Shape { lanes: 1, takers: 1, branches: 5, marks: false };

macro_rules! conforms {
    ($($kind:ident: $shape:expr;)*) => {
        $(mod $kind {
            use crate::{rig::Event, suite};
            use proptest::prelude::*;

            #[test]
            fn a_packet_comes_once_and_in_order_in_batches_of_any_size() {
                suite::batches_of_any_size($shape);
            }

            #[test]
            fn what_finds_no_room_stays_with_the_sender_and_nothing_is_dropped() {
                suite::back_pressure($shape);
            }

            #[test]
            fn the_end_comes_behind_the_last_packet() {
                suite::end_of_stream($shape);
            }

            #[test]
            fn a_marker_comes_behind_what_was_sent_before_it_and_before_the_rest() {
                suite::markers($shape);
            }

            #[test]
            fn who_dies_before_it_has_published_has_sent_nothing() {
                suite::death_of_the_sender($shape);
            }

            #[test]
            fn with_who_dies_go_the_packets_that_it_had_claimed_and_no_others() {
                suite::death_of_the_taker($shape);
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(128))]

                #[test]
                fn whatever_happens_each_packet_comes_once_or_is_counted_and_each_buffer_is_in_one_place(
                    events in prop::collection::vec(Event::any(), 1..200),
                ) {
                    suite::any_history($shape, &events);
                }
            }
        })*
    };
}

conforms! {
    point_to_point: crate::POINT_TO_POINT;
    fan_in: crate::FAN_IN;
    balance: crate::BALANCE;
    branch_and_sync: crate::STAGE_OF_TWO;
    branch_and_sync_of_five: crate::STAGE_OF_FIVE;
}
