//! Which of an instance's buckets go, by the flows that they have.

/// Of the buckets that are `here`, with `all` flows, those of the first `flows` flows or a little more; but of many a
/// thirty-second part. `keep` stay at least.
pub(super) fn some_of(
    here: &[u16],
    of: impl Fn(u16) -> u64,
    all: u64,
    flows: u32,
    keep: u32,
) -> &[u16] {
    let enough = u64::from(flows.max(1)).max(all / 32);
    let may = here.len().saturating_sub(keep as usize);
    let (mut count, mut sum) = (0, 0);
    while count < may && sum < enough {
        sum += here.get(count).map_or(0, |bucket| of(*bucket));
        count += 1;
    }
    here.get(..count).unwrap_or_default()
}

/// Of the buckets that are `here` those without flows, but `keep` of all stay; and how many more would go, had they none.
pub(super) fn free_of(here: &[u16], of: impl Fn(u16) -> u64, keep: u32) -> (Vec<u16>, u32) {
    let may = here.len().saturating_sub(keep as usize);
    let free = here.iter().copied().filter(|bucket| of(*bucket) == 0).take(may);
    let free: Vec<u16> = free.collect();
    let left = may.saturating_sub(free.len());
    (free, u32::try_from(left).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{free_of, some_of};

    #[test]
    fn a_step_has_the_flows_that_were_asked_for_and_leaves_the_buckets_that_stay() {
        let here: Vec<u16> = (0..100).collect();
        let one = |_| 1;
        assert_eq!(some_of(&here, one, 100, 7, 50), &here[..7]);
        assert_eq!(some_of(&here, one, 100, 500, 50), &here[..50]);
        assert_eq!(some_of(&here, one, 100, 500, 100), &here[..0]);
        assert_eq!(some_of(&here, one, 100, 500, 200), &here[..0]);
        // Buckets without flows go along with those before them, and alone at the end.
        let few = |bucket| u64::from(bucket < 3);
        assert_eq!(some_of(&here, few, 3, 2, 0), &here[..2]);
        assert_eq!(some_of(&here[2..], few, 1, 2, 0), &here[2..]);
        // A thirty-second of 64,000.
        assert_eq!(some_of(&here, |_| 640, 64_000, 500, 0), &here[..4]);
    }

    #[test]
    fn only_buckets_without_flows_go_and_the_others_of_the_share_are_counted() {
        let here: Vec<u16> = (0..10).collect();
        let odd = |bucket| u64::from(bucket % 2);
        assert_eq!(free_of(&here, odd, 5), (vec![0, 2, 4, 6, 8], 0));
        assert_eq!(free_of(&here, odd, 7), (vec![0, 2, 4], 0));
        assert_eq!(free_of(&here, odd, 2), (vec![0, 2, 4, 6, 8], 3));
        assert_eq!(free_of(&here, odd, 10), (vec![], 0));
        assert_eq!(free_of(&here, |_| 1, 0), (vec![], 10));
    }
}
