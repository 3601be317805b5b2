//! The words of the language, and which of them was probably meant.

use crate::arith;

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
    "igmp",
    "igrp",
    "pim",
    "vrrp",
    "carp",
    "ah",
    "esp",
    "atalk",
    "aarp",
    "decnet",
    "lat",
    "sca",
    "moprc",
    "mopdl",
    "iso",
    "esis",
    "clnp",
    "isis",
    "l1",
    "l2",
    "iih",
    "lsp",
    "snp",
    "csnp",
    "psnp",
    "stp",
    "ipx",
    "netbeui",
    "ether",
    "link",
    "fddi",
    "tr",
    "wlan",
    "ppp",
    "slip",
    "llc",
    "vlan",
    "mpls",
    "pppoed",
    "pppoes",
    "host",
    "net",
    "mask",
    "port",
    "portrange",
    "proto",
    "protochain",
    "broadcast",
    "multicast",
    "less",
    "greater",
    "len",
    "length",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "true",
    "false",
    "any",
    "tos",
    "ingress",
];

/// Words of libpcap that are not taken here, and what to write instead.
const NOT_TAKEN: &[(&str, &str)] = &[
    (
        "gateway",
        "`ether host MAC and not host ADDRESS`: a gateway has a name, and names are never looked up",
    ),
    ("byte", "`ether[3] & 5 != 0`: libpcap reads no byte at all for `byte 3 & 5`"),
    (
        "geneve",
        "`udp port 6081` and the bytes behind it, as in `udp[8] = 0`: no offset is known behind a tunnel of variable length",
    ),
    ("vxlan", "`udp port 4789`, and the bytes behind it, as in `udp[8] = 8`"),
    ("inbound", INTERFACE),
    ("outbound", INTERFACE),
    ("ifindex", INTERFACE),
    ("ifname", INTERFACE),
    ("on", INTERFACE),
    ("rnr", FIREWALL),
    ("rulenum", FIREWALL),
    ("srnr", FIREWALL),
    ("subrulenum", FIREWALL),
    ("rset", FIREWALL),
    ("ruleset", FIREWALL),
    ("reason", FIREWALL),
    ("action", FIREWALL),
    ("type", WIRELESS),
    ("subtype", WIRELESS),
    ("dir", WIRELESS),
    ("direction", WIRELESS),
    ("addr1", WIRELESS),
    ("addr2", WIRELESS),
    ("addr3", WIRELESS),
    ("addr4", WIRELESS),
    ("address1", WIRELESS),
    ("address2", WIRELESS),
    ("address3", WIRELESS),
    ("address4", WIRELESS),
    ("ra", WIRELESS),
    ("ta", WIRELESS),
    ("radio", WIRELESS),
    ("lane", ATM),
    ("metac", ATM),
    ("bcc", ATM),
    ("sc", ATM),
    ("ilmic", ATM),
    ("oam", ATM),
    ("oamf4", ATM),
    ("oamf4ec", ATM),
    ("oamf4sc", ATM),
    ("connectmsg", ATM),
    ("metaconnect", ATM),
    ("vpi", ATM),
    ("vci", ATM),
    ("fisu", SS7),
    ("lssu", SS7),
    ("lsssu", SS7),
    ("msu", SS7),
    ("hfisu", SS7),
    ("hlssu", SS7),
    ("hmsu", SS7),
    ("sio", SS7),
    ("opc", SS7),
    ("dpc", SS7),
    ("sls", SS7),
    ("hsio", SS7),
    ("hopc", SS7),
    ("hdpc", SS7),
    ("hsls", SS7),
];

const INTERFACE: &str = "`ingress == N` with the policy's port: a packet here has no interface";
const FIREWALL: &str = "a tag, as in `fw.safe`: a packet here has not been through OpenBSD's pf";
const WIRELESS: &str =
    "a test of Ethernet: there are no radio frames here, and libpcap refuses it on Ethernet too";
const ATM: &str =
    "a test of Ethernet: there are no ATM cells here, and libpcap refuses it on Ethernet too";
const SS7: &str =
    "a test of Ethernet: there is no SS7 here, and libpcap refuses it on Ethernet too";

/// Longest word compared: the work per word of hostile text stays small.
const LONGEST: usize = 24;

/// True when the word has a meaning here.
pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// True for a word that has no meaning here and is no value either.
pub(crate) fn is_strange(word: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_');
    !is_keyword(word) && !word.is_empty() && word.chars().all(is_word)
}

/// What to write instead of a word of libpcap that is not taken here.
pub(crate) fn instead_of(word: &str) -> Option<&'static str> {
    NOT_TAKEN.iter().find(|(w, _)| *w == word).map(|(_, instead)| *instead)
}

/// The keywords that are near enough to `word` to have been meant, the nearest first.
pub(crate) fn near(word: &str) -> Vec<&'static str> {
    if word.len() > LONGEST || is_keyword(word) {
        return Vec::new();
    }
    let lower = word.to_ascii_lowercase();
    let limit = if lower.len() <= 3 { 1 } else { 2 };
    let all = KEYWORDS.iter().copied().chain(arith::names());
    let all = all.map(|k| (distance(lower.as_bytes(), k.as_bytes()), k));
    let mut near: Vec<(usize, &str)> = all.filter(|(d, _)| *d <= limit).collect();
    near.sort_by_key(|(d, _)| *d);
    near.into_iter().map(|(_, k)| k).collect()
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
    use super::{distance, near};

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(distance(b"prot", b"port"), 1);
        assert_eq!(distance(b"tcp", b"tcp"), 0);
        assert_eq!(distance(b"", b"tcp"), 3);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn the_nearest_keyword_is_offered_only_when_near() {
        assert_eq!(near("hots").first(), Some(&"host"));
        assert_eq!(near("TCP").first(), Some(&"tcp"));
        assert_eq!(near("portrnage").first(), Some(&"portrange"));
        assert!(near("example").is_empty());
    }
}
