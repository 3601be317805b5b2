//! OrderFragments.
#![allow(clippy::unwrap_used)] // A test.

use proptest::prelude::*;
use serde_json::json;
use weir_nf::DropReason;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nfs::order_fragments::OrderFragments;

const SECOND: u64 = 1_000_000_000;
const HELD: Result<&str, DropReason> = Ok("(held)");
const OUT: Result<&str, DropReason> = Ok("out");

fn bench(config: serde_json::Value) -> Bench {
    Bench::new::<OrderFragments>(config).unwrap()
}

/// A datagram's fragments, the first one first.
fn pieces(v6: bool, id: u16) -> Vec<Vec<u8>> {
    let frame = match v6 {
        false => Frame::ipv4([10, 0, 0, 5], [192, 0, 2, 2]).id(id.into()),
        true => Frame::ipv6([1; 16], [2; 16]).id(id.into()),
    };
    // Half of the datagrams with a VLAN tag.
    let frame = if id % 4 > 1 { frame.vlan(7) } else { frame };
    frame.udp(5000, 53).payload(&[7; 100]).fragments(48)
}

fn at(bench: &mut Bench, second: u64, frame: &[u8]) -> Result<&'static str, DropReason> {
    bench.run_cut(&[(frame, frame.len(), second * SECOND)])[0].verdict
}

fn left(bench: &mut Bench) -> Vec<(Result<&'static str, DropReason>, Vec<u8>)> {
    bench.made().into_iter().map(|seen| (seen.verdict, seen.bytes)).collect()
}

fn report(bench: &Bench) -> [u64; 4] {
    let report = bench.report();
    ["held", "released", "expired", "unheld"].map(|key| report[key].as_u64().unwrap())
}

#[test]
fn fragments_that_come_before_their_first_go_out_behind_it() {
    for v6 in [false, true] {
        let mut bench = bench(json!({}));
        let (one, other) = (pieces(v6, 7), pieces(v6, 8));
        for early in [&one[2], &other[1], &one[1]] {
            assert_eq!(at(&mut bench, 1, early), HELD);
        }
        // What is whole goes its way meanwhile.
        let whole = Frame::ipv4([10, 0, 0, 5], [192, 0, 2, 2]).udp(1, 2).build();
        assert_eq!((at(&mut bench, 1, &whole), left(&mut bench)), (OUT, vec![]));
        assert_eq!(at(&mut bench, 1, &one[0]), OUT);
        assert_eq!(left(&mut bench), [(OUT, one[2].clone()), (OUT, one[1].clone())]);
        assert_eq!((bench.held(), at(&mut bench, 1, &one[2])), (1, OUT), "its first has come");
        assert_eq!(at(&mut bench, 1, &other[0]), OUT);
        assert_eq!(left(&mut bench), [(OUT, other[1].clone())]);
        assert_eq!(report(&bench), [3, 3, 0, 0]);
    }
}

#[test]
fn when_one_has_waited_in_vain_all_go_on_and_none_is_held_for_two_seconds() {
    let mut bench = bench(json!({"most": 2, "wait_ms": 1000}));
    let (one, other) = (pieces(false, 7), pieces(false, 8));
    assert_eq!(at(&mut bench, 1, &one[1]), HELD);
    assert_eq!(at(&mut bench, 1, &other[1]), HELD);
    assert_eq!(at(&mut bench, 1, &other[2]), OUT, "there is no room");
    // Whatever comes then.
    let whole = Frame::ipv4([10, 0, 0, 5], [192, 0, 2, 2]).udp(1, 2).build();
    assert_eq!((at(&mut bench, 2, &whole), bench.held()), (OUT, 0));
    assert_eq!(left(&mut bench), [(OUT, one[1].clone()), (OUT, other[1].clone())]);
    assert_eq!(at(&mut bench, 3, &one[2]), OUT, "it rests");
    assert_eq!(at(&mut bench, 4, &one[2]), HELD);
    assert_eq!(report(&bench), [3, 0, 2, 2]);
    bench.end();
    assert_eq!(left(&mut bench), [(OUT, one[2].clone())]);
}

#[test]
fn in_one_batch_it_is_the_same() {
    let mut bench = bench(json!({}));
    let (one, other) = (pieces(false, 7), pieces(true, 8));
    let batch = [&one[1], &other[2], &one[0], &one[2], &other[1], &other[0]];
    let verdicts: Vec<_> = bench.run(&batch).into_iter().map(|seen| seen.verdict).collect();
    assert_eq!(verdicts, [HELD, HELD, OUT, OUT, HELD, OUT]);
    let early = [&one[1], &other[2], &other[1]].map(|piece| (OUT, piece.clone()));
    assert_eq!((left(&mut bench), bench.held()), (early.to_vec(), 0));
}

#[test]
fn limits_that_cannot_be_are_refused_by_place() {
    for (config, place) in [
        (json!({"most": 0}), "/most: 0 cannot be: write 1 to 256"),
        (json!({"most": 257}), "/most: 257"),
        (json!({"wait_ms": 0}), "/wait_ms: 0 cannot be: write 1 to 1000"),
        (json!({"wait_ms": 1001}), "/wait_ms: 1001"),
    ] {
        let error = Bench::new::<OrderFragments>(config).err().unwrap().to_string();
        assert!(error.starts_with(place), "{error}");
    }
}

proptest! {
    /// Any order of the fragments of some datagrams: each comes out once, none before its first one, and of those of a datagram that
    /// were not held, or were, none overtakes another.
    #[test]
    fn each_comes_out_once_and_none_before_its_first(order in Just((0_usize..12).collect::<Vec<_>>()).prop_shuffle()) {
        let mut bench = bench(json!({}));
        let all: Vec<Vec<u8>> = (0..4).flat_map(|id| pieces(id % 2 == 1, id)).collect();
        prop_assert_eq!(all.len(), 12);
        let mut out = Vec::new();
        for piece in &order {
            if at(&mut bench, 1, &all[*piece]) == OUT {
                out.push(*piece);
            }
            for (verdict, bytes) in left(&mut bench) {
                prop_assert_eq!(verdict, OUT);
                out.push(all.iter().position(|one| *one == bytes).unwrap());
            }
        }
        for datagram in 0..4 {
            let of = |list: &[usize]| list.iter().copied().filter(|p| p / 3 == datagram).collect::<Vec<_>>();
            let (came, went) = (of(&order), of(&out));
            prop_assert_eq!(went[0], 3 * datagram, "its first");
            let but_first = |list: &[usize]| list.iter().copied().filter(|p| p % 3 > 0).collect::<Vec<_>>();
            prop_assert_eq!(but_first(&went), but_first(&came));
        }
        prop_assert_eq!(bench.held(), 0);
    }
}
