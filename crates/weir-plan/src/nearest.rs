//! The name that was probably meant.

/// The name nearest to `word`, when it is near enough to have been meant: at most a third of its
/// letters differ. Letter case does not count, so `macswap` finds `MacSwap`.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let lower = word.to_lowercase();
    names
        .into_iter()
        .filter(|name| name.len().abs_diff(word.len()) <= limit)
        .map(|name| (distance(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= limit && *distance < name.chars().count())
        .min()
        .map(|(_, name)| name.to_owned())
}

/// Levenshtein's distance, with a swap of two neighbours counted once.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i.saturating_add(1));
        for (j, y) in b.iter().enumerate() {
            let at = |line: &[usize], k: usize| line.get(k).copied().unwrap_or(usize::MAX);
            let replaced = at(&row, j).saturating_add(usize::from(x != y));
            let removed = at(&row, j.saturating_add(1)).saturating_add(1);
            let added = at(&next, j).saturating_add(1);
            let mut best = replaced.min(removed).min(added);
            let previous =
                |list: &[char], k: usize| k.checked_sub(1).and_then(|k| list.get(k).copied());
            if previous(&a, i) == Some(*y) && previous(&b, j) == Some(*x) {
                best = best.min(at(&before, j.saturating_sub(1)).saturating_add(1));
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn distances_count_changed_missing_extra_and_swapped_letters() {
        for (a, b, d) in [
            ("", "", 0),
            ("ab", "ab", 0),
            ("ab", "ba", 1),
            ("abc", "axc", 1),
            ("abc", "ac", 1),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(a, b), d, "{a} {b}");
            assert_eq!(distance(b, a), d, "{b} {a}");
        }
    }

    #[test]
    fn only_names_that_are_near_are_suggested() {
        let types = ["MacSwap", "CheckIpHeader", "Busy"];
        assert_eq!(nearest("MacSwop", types), Some("MacSwap".to_owned()));
        assert_eq!(nearest("checkipheader", types), Some("CheckIpHeader".to_owned()));
        assert_eq!(nearest("Nat", types), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
