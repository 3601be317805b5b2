//! The words of the language, and which of them was probably meant.

/// All words that have a meaning here.
pub(crate) const KEYWORDS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "ether",
    "vlan",
    "host",
    "net",
    "mask",
    "port",
    "portrange",
    "proto",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "true",
    "false",
];

/// Words of libpcap that are not taken here, and what to write instead.
const NOT_TAKEN: &[(&str, &str)] = &[
    ("igmp", "`ip proto 2`"),
    ("esp", "`proto 50`"),
    ("ah", "`proto 51`"),
    ("pim", "`proto 103`"),
    ("vrrp", "`ip proto 112`"),
    ("link", "`ether`"),
    ("gateway", "`ether host MAC and not host ADDRESS`"),
    ("broadcast", "`ether dst ff:ff:ff:ff:ff:ff`"),
    ("pppoed", "`ether proto 0x8863`"),
    ("pppoes", "`ether proto 0x8864`"),
    ("mpls", "`ether proto 0x8847`, which does not look behind the label"),
    ("multicast", "the group's address, as in `dst net 224.0.0.0/4`"),
    ("protochain", "`proto N`, which looks behind one fragment header"),
    ("len", NONE),
    ("length", NONE),
    ("less", NONE),
    ("greater", NONE),
    ("byte", NONE),
    ("geneve", NONE),
    ("vxlan", NONE),
    ("inbound", NONE),
    ("outbound", NONE),
    ("iso", NONE),
    ("ipx", NONE),
    ("llc", NONE),
    ("stp", NONE),
];

const NONE: &str = "a test of protocols, addresses or ports; there is no equal to this word yet";

/// Longest word compared: the work per word of hostile text stays small.
const LONGEST: usize = 24;

/// True when the word has a meaning here.
pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// What to write instead of a word of libpcap that is not taken here.
pub(crate) fn instead_of(word: &str) -> Option<&'static str> {
    NOT_TAKEN.iter().find(|(w, _)| *w == word).map(|(_, instead)| *instead)
}

/// The keyword nearest to `word`, if one is near enough to have been meant.
pub(crate) fn nearest(word: &str) -> Option<&'static str> {
    if word.len() > LONGEST {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let limit = if lower.len() <= 3 { 1 } else { 2 };
    KEYWORDS
        .iter()
        .map(|k| (distance(lower.as_bytes(), k.as_bytes()), *k))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Edits between two words: insert, delete, replace, and swap of neighbours count one each.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i.saturating_add(1)];
        for (j, &y) in b.iter().enumerate() {
            let at = |row: &[usize], k: usize| row.get(k).copied().unwrap_or(usize::MAX);
            let replaced = at(&above, j).saturating_add(usize::from(x != y));
            let deleted = at(&above, j.saturating_add(1)).saturating_add(1);
            let inserted = at(&row, j).saturating_add(1);
            let mut best = replaced.min(deleted).min(inserted);
            if let Some(k) = j.checked_sub(1)
                && previous == Some(y)
                && b.get(k) == Some(&x)
            {
                best = best.min(at(&before, k).saturating_add(1));
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
        previous = Some(x);
    }
    above.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(distance(b"prot", b"port"), 1);
        assert_eq!(distance(b"tcp", b"tcp"), 0);
        assert_eq!(distance(b"", b"tcp"), 3);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn the_nearest_keyword_is_offered_only_when_near() {
        assert_eq!(nearest("hots"), Some("host"));
        assert_eq!(nearest("TCP"), Some("tcp"));
        assert_eq!(nearest("portrnage"), Some("portrange"));
        assert_eq!(nearest("example"), None);
    }
}
