//! A flow's account, and the list of the largest.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Reverse;
use std::net::SocketAddr;

/// What a flow has had, by direction: first that of its first packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes on the wire.
    pub bytes: [u64; 2],
    /// TCP flags that were seen, as letters: `FSRPAUEC`.
    #[serde(with = "letters")]
    pub flags: [u8; 2],
    /// When its first packet came, in nanoseconds since 1970.
    pub began_ns: u64,
    /// When its last came.
    pub last_ns: u64,
}

/// A flow's account, and its place in the list if it has one: a hint, checked before use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Watched {
    pub(super) account: Account,
    slot: u16,
}

impl Default for Watched {
    /// Nowhere in the list: whoever is first there may have the same account.
    fn default() -> Self {
        Watched { account: Account::default(), slot: u16::MAX }
    }
}

impl Account {
    /// Adds a packet.
    #[inline]
    pub(super) fn add(&mut self, from_starter: bool, len: u64, flags: u8, now_ns: u64) {
        if self.packets == [0; 2] {
            self.began_ns = now_ns;
        }
        let [there, back] = [0, 1].map(|side| u64::from(from_starter == (side == 0)));
        self.packets = [self.packets[0] + there, self.packets[1] + back];
        self.bytes = [self.bytes[0] + there * len, self.bytes[1] + back * len];
        let seen = [there, back].map(|here| if here == 1 { flags } else { 0 });
        self.flags = [self.flags[0] | seen[0], self.flags[1] | seen[1]];
        self.last_ns = now_ns;
    }

    fn total(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// A flow of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// Who began it, and the other end.
    pub ends: [SocketAddr; 2],
    /// IP protocol number.
    pub proto: u8,
    /// The VLAN stack: see [`weir_nf::FlowKey::zone`].
    pub vlans: u64,
    /// What it has had.
    pub account: Account,
}

impl Talker {
    /// Larger ones go before smaller ones, of equal ones the older: so the list does not depend on how it came about.
    fn rank(&self) -> impl Ord + use<> {
        let who = (self.ends, self.proto, self.vlans);
        (self.account.total(), Reverse((self.account.began_ns, who)))
    }

    fn is_same(&self, other: &Talker) -> bool {
        let who = |t: &Talker| (t.ends, t.proto, t.vlans, t.account.began_ns);
        who(self) == who(other)
    }
}

/// The flows with the most bytes, of all that there have been. Exact: each flow's own account says when it is
/// larger than the least that is listed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Top {
    /// The largest first when serialised.
    #[serde(serialize_with = "largest_first")]
    talkers: Vec<Talker>,
    most: usize,
    /// No flow of a full list has fewer bytes: entries only grow.
    #[serde(skip)]
    floor: u64,
}

impl Top {
    /// Lists so many flows from now on.
    #[inline]
    pub(super) fn limit(&mut self, most: usize) {
        if self.most != most {
            self.most = most;
            self.cut();
        }
    }

    /// A flow's account was `before`, and now is what `flow` says; `ends` tells whose it is.
    #[inline]
    pub(super) fn note<F>(&mut self, before: Account, flow: &mut Watched, ends: F)
    where
        F: FnOnce() -> Option<([SocketAddr; 2], u8, u64)>,
    {
        // It is listed where it stands as it was before this packet: slots of other lists do not match.
        if let Some(listed) = self.talkers.get_mut(usize::from(flow.slot))
            && listed.account == before
        {
            listed.account = flow.account;
        } else if self.talkers.len() < self.most || flow.account.total() >= self.floor {
            self.enter(flow, ends());
        }
    }

    #[inline(never)]
    fn enter(&mut self, flow: &mut Watched, ends: Option<([SocketAddr; 2], u8, u64)>) {
        let Some((ends, proto, vlans)) = ends else { return };
        let talker = Talker { ends, proto, vlans, account: flow.account };
        let same = self.talkers.iter().position(|old| old.is_same(&talker));
        let place = match same {
            Some(place) => place,
            None if self.talkers.len() < self.most => {
                self.talkers.push(talker.clone());
                self.talkers.len() - 1
            }
            None => {
                let listed = self.talkers.iter().enumerate();
                let Some((place, least)) = listed.min_by_key(|(_, old)| old.rank()) else {
                    return;
                };
                self.floor = least.account.total();
                if talker.rank() < least.rank() {
                    return;
                }
                place
            }
        };
        flow.slot = u16::try_from(place).unwrap_or(u16::MAX);
        if let Some(old) = self.talkers.get_mut(place) {
            *old = talker;
        }
    }

    fn cut(&mut self) {
        self.talkers.sort_by_key(|talker| Reverse(talker.rank()));
        self.talkers.truncate(self.most);
        self.floor = 0;
    }

    /// Joins another's list. A flow that moved from one replica to the other is in both: the larger account
    /// is the later one.
    pub(super) fn merge(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        for talker in other.talkers {
            match self.talkers.iter_mut().find(|old| old.is_same(&talker)) {
                Some(old) if old.account.total() < talker.account.total() => *old = talker,
                Some(_) => {}
                None => self.talkers.push(talker),
            }
        }
        self.cut();
    }
}

fn largest_first<S: Serializer>(talkers: &[Talker], to: S) -> Result<S::Ok, S::Error> {
    let mut list: Vec<_> = talkers.iter().collect();
    list.sort_by_key(|talker| Reverse(talker.rank()));
    to.collect_seq(list)
}

/// TCP flags as letters, from the lowest bit.
mod letters {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    const LETTERS: &str = "FSRPAUEC";

    pub fn serialize<S: Serializer>(flags: &[u8; 2], to: S) -> Result<S::Ok, S::Error> {
        let text = |flags: u8| {
            let letters = LETTERS.chars().enumerate();
            letters.filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, c)| c).collect::<String>()
        };
        flags.map(text).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<[u8; 2], D::Error> {
        let bit = |letter| LETTERS.find(letter).map_or(0, |bit| 1_u8 << bit);
        let texts = <[String; 2]>::deserialize(from)?;
        Ok(texts.map(|text| text.chars().fold(0, |flags, letter| flags | bit(letter))))
    }
}
