//! Tests of tag slots, compiled, against arithmetic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use weir_filter::{Expr, Filter, SlotTest, TagTest, naive_matches, parse};

/// A run of ones, a range within it, and a word near the range.
fn case() -> impl Strategy<Value = (SlotTest, u64)> {
    (0..64_u32, 1..=64_u32, any::<[u64; 3]>(), 0..8_u8, 0..4_u8).prop_map(
        |(shift, len, [a, b, word], slot, near)| {
            let mask = u64::MAX >> (64 - len.min(64 - shift)) << shift;
            let (a, b) = (a & mask, b & mask);
            let (first, last) = (a.min(b), a.max(b));
            let other = word & !mask;
            let word = match near {
                0 => word,
                1 => other | first,
                2 => other | last,
                // The next behind the range, if there is one.
                _ => other | (last.wrapping_add(1 << shift) & mask),
            };
            (SlotTest { slot, mask, first, last }, word)
        },
    )
}

proptest! {
    #[test]
    fn a_slot_test_holds_exactly_when_the_masked_word_is_in_the_range((test, word) in case()) {
        let expr = Expr::Slot(test);
        let filter = Filter::compile(&expr).unwrap();
        let wanted = (test.first..=test.last).contains(&(word & test.mask));
        let said = |slot| if slot == test.slot { word } else { !word };
        prop_assert_eq!(filter.matches_tagged(&[0_u8; 60][..], said), wanted);
        prop_assert_eq!(naive_matches(&expr.resolve_slots(&said), &[]), wanted);
        let not = Filter::compile(&Expr::not(expr)).unwrap();
        prop_assert_eq!(not.matches_tagged(&[][..] as &[u8], said), !wanted);
    }
}

#[test]
fn tests_of_tags_get_places_and_stay_beside_what_they_stood_with() {
    let expr = parse(r#"tcp and (http.url ~ "^/a" or ids.score == 3)"#).unwrap();
    let placed = expr.place_tags(&mut |scope, name, test| {
        let bit = match test {
            TagTest::Matches(pattern) if (scope, name) == ("http", "url") && pattern == "^/a" => 1,
            TagTest::Number { value: 3, .. } if (scope, name) == ("ids", "score") => 2,
            other => panic!("{scope}.{name}: {other:?}"),
        };
        Expr::Slot(SlotTest { slot: 0, mask: bit, first: bit, last: bit })
    });
    assert!(placed.asks_slots() && placed.tag_tests().is_empty());
    let filter = Filter::compile(&placed).unwrap();
    let tcp = [&[0_u8; 12][..], &[8, 0, 0x45], &[0; 8], &[6], &[0; 10]].concat();
    let tcp = tcp.as_slice();
    for (word, wanted) in [(0, false), (1, true), (2, true), (4, false)] {
        assert_eq!(filter.matches_tagged(tcp, |_| word), wanted, "{word}");
        assert!(!filter.matches_tagged(&tcp[..20], |_| word));
        // Without tags none is set.
        assert!(!filter.matches(tcp));
    }
    // A test that is known not to hold folds what stands with it.
    assert_eq!(expr.place_tags(&mut |_, _, _| Expr::False), Expr::False);
}
