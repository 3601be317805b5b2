//! A flow's account, and the list of the largest.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::{Ordering, Reverse};
use std::net::SocketAddr;
use weir_nf::FlowState;

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

/// A flow's account, and its place in the list if it has one.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Watched {
    pub(super) account: Account,
    /// A flow that moves finds another list, or one that has changed meanwhile: there it has no place.
    #[serde(skip)]
    place: Place,
}

/// A place in one list, and the number of who entered there: not by its account, which others may have too, is it known
/// whether the place is still one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: u16,
    entry: u32,
}

impl Default for Place {
    fn default() -> Self {
        Place::behind(0)
    }
}

impl Place {
    /// None, as one is smaller than this entry when both have had the same.
    fn behind(entry: u32) -> Self {
        Place { slot: u16::MAX, entry }
    }
}

impl FlowState for Watched {
    const VERSION: u32 = 3;

    /// Before, flags were written as letters; and by the first version its place, too.
    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        let account: InLetters = match version {
            1 => weir_nf::read_state::<(InLetters, u16)>(bytes).ok()?.0,
            2 => weir_nf::read_state(bytes).ok()?,
            _ => return None,
        };
        Some(Watched { account: account.into(), place: Place::default() })
    }
}

/// An [`Account`] as it was written before.
#[derive(Deserialize)]
struct InLetters {
    packets: [u64; 2],
    bytes: [u64; 2],
    flags: [String; 2],
    began_ns: u64,
    last_ns: u64,
}

impl From<InLetters> for Account {
    fn from(old: InLetters) -> Self {
        let InLetters { packets, bytes, flags, began_ns, last_ns } = old;
        let flags = flags.map(|text| letters::read(&text));
        Account { packets, bytes, flags, began_ns, last_ns }
    }
}

impl Account {
    /// Adds a packet.
    #[inline]
    pub(super) fn add(&mut self, from_starter: bool, len: u64, flags: u8, now_ns: u64) {
        if self.packets == [0; 2] {
            self.began_ns = now_ns;
        }
        let ([p, q], [b, c], [f, g]) = (&mut self.packets, &mut self.bytes, &mut self.flags);
        let (packets, bytes, seen) = if from_starter { (p, b, f) } else { (q, c, g) };
        *packets += 1;
        *bytes += len;
        *seen |= flags;
        self.last_ns = now_ns;
    }

    #[inline]
    fn total(&self) -> u64 {
        let [there, back] = self.bytes;
        there.saturating_add(back)
    }
}

/// A [`Top`] as it was written before.
#[derive(Deserialize)]
pub(super) struct TopInLetters {
    talkers: Vec<TalkerInLetters>,
    most: usize,
}

#[derive(Deserialize)]
struct TalkerInLetters {
    ends: [SocketAddr; 2],
    proto: u8,
    vlans: u64,
    account: InLetters,
}

impl From<TopInLetters> for Top {
    fn from(old: TopInLetters) -> Self {
        let talker = |old: TalkerInLetters| {
            let TalkerInLetters { ends, proto, vlans, account } = old;
            Talker { ends, proto, vlans, account: account.into(), entry: 0 }
        };
        let talkers = old.talkers.into_iter().map(talker).collect();
        Top { talkers, most: old.most, ..Top::default() }
    }
}

/// What says of most flows which is the larger: the bytes, and of equal ones who is older.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    total: u64,
    began_ns: Reverse<u64>,
}

impl Rank {
    #[inline]
    fn of(account: &Account) -> Rank {
        Rank { total: account.total(), began_ns: Reverse(account.began_ns) }
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
    /// Which entry into the list this is.
    #[serde(skip)]
    entry: u32,
}

impl Talker {
    /// By how much they have had, of equal ones the older is the larger: so the list does not depend on how it came about.
    fn order(&self, other: &Talker) -> Ordering {
        self.rank()
            .cmp(&other.rank())
            .then_with(|| other.ends.cmp(&self.ends))
            .then_with(|| (other.proto, other.vlans).cmp(&(self.proto, self.vlans)))
    }

    fn rank(&self) -> Rank {
        Rank::of(&self.account)
    }

    fn is_same(&self, other: &Talker) -> bool {
        self.account.began_ns == other.account.began_ns
            && self.ends == other.ends
            && (self.proto, self.vlans) == (other.proto, other.vlans)
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
    #[serde(skip)]
    floor: Floor,
    /// Entries so far.
    #[serde(skip)]
    entries: u32,
}

/// No flow of a full list is smaller than this: entries only grow.
#[derive(Debug, Clone, Copy, Default)]
struct Floor {
    rank: Rank,
    /// Whose rank it is: which entry into the list, 0 for none.
    entry: u32,
}

impl Floor {
    /// Whether a flow that is not listed may have grown larger than the least one. Where all flows grow alike, many have
    /// its rank with each of their packets: who was found smaller than it by more than that remembers it.
    #[inline]
    fn may_be_passed_by(&self, flow: &Watched) -> bool {
        match Rank::of(&flow.account).cmp(&self.rank) {
            Ordering::Less => false,
            Ordering::Equal => self.entry == 0 || flow.place != Place::behind(self.entry),
            Ordering::Greater => true,
        }
    }
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

    /// Where a flow is listed, if it is; to be asked before its account changes.
    #[inline]
    pub(super) fn place_of(&self, flow: &Watched) -> Option<usize> {
        let place = usize::from(flow.place.slot);
        // Its own entry stands as the flow does; that of an ended flow, of a number given again, hardly does.
        let listed = self.talkers.get(place)?;
        let is_its = listed.entry == flow.place.entry && listed.account == flow.account;
        is_its.then_some(place)
    }

    /// A flow that was at `place` before has now what its account says; `ends` tells whose it is.
    #[inline]
    pub(super) fn note<F>(&mut self, place: Option<usize>, flow: &mut Watched, ends: F)
    where
        F: FnOnce() -> Option<([SocketAddr; 2], u8, u64)>,
    {
        if let Some(listed) = place.and_then(|place| self.talkers.get_mut(place)) {
            listed.account = flow.account;
        } else if self.talkers.len() < self.most || self.floor.may_be_passed_by(flow) {
            // One that is below is not among them either, as what stands there of it is no larger; but where its worker died and it was as it had been
            // some packets before (`every:N`): then the list has what was seen, until it has grown past that.
            self.enter(flow, ends);
        }
    }

    #[inline(never)]
    fn enter<F>(&mut self, flow: &mut Watched, ends: F)
    where
        F: FnOnce() -> Option<([SocketAddr; 2], u8, u64)>,
    {
        let is_full = self.talkers.len() >= self.most;
        let least = if is_full { self.least() } else { None };
        if is_full {
            let Some(least) = least.and_then(|at| self.talkers.get(at)) else { return };
            self.floor = Floor { rank: least.rank(), entry: least.entry };
            // Whose it is need not be known of one that is too small.
            if !self.floor.may_be_passed_by(flow) {
                return;
            }
        }
        let Some((ends, proto, vlans)) = ends() else { return };
        self.entries = self.entries.wrapping_add(1);
        let talker = Talker { ends, proto, vlans, account: flow.account, entry: self.entries };
        let same = self.talkers.iter().position(|old| old.is_same(&talker));
        let place = match (same, least) {
            (Some(place), _) => place,
            (None, None) => self.talkers.len(),
            (None, Some(least)) => {
                let smaller = |old: &Talker| talker.order(old) == Ordering::Less;
                if self.talkers.get(least).is_none_or(smaller) {
                    // Its rank is that of the floor, or it would be larger.
                    flow.place = Place::behind(self.floor.entry);
                    return;
                }
                least
            }
        };
        flow.place = Place { slot: u16::try_from(place).unwrap_or(u16::MAX), entry: talker.entry };
        match self.talkers.get_mut(place) {
            Some(old) => *old = talker,
            None => self.talkers.push(talker),
        }
    }

    /// Where the smallest is.
    fn least(&self) -> Option<usize> {
        let listed = self.talkers.iter().enumerate();
        listed.min_by(|(_, a), (_, b)| a.order(b)).map(|(at, _)| at)
    }

    fn cut(&mut self) {
        self.talkers.sort_by(|a, b| b.order(a));
        self.talkers.truncate(self.most);
        self.floor = Floor::default();
    }

    /// Joins another's list. A flow that moved from one replica to the other is in both: the larger account
    /// is the later one.
    pub(super) fn merge(&mut self, other: Self) {
        self.most = self.most.max(other.most);
        for mut talker in other.talkers {
            // A number of the other list, which says nothing here.
            talker.entry = 0;
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
    list.sort_by(|a, b| b.order(a));
    to.collect_seq(list)
}

/// TCP flags as letters, from the lowest bit, for people; as they are where states are kept.
mod letters {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    const LETTERS: &str = "FSRPAUEC";

    pub fn serialize<S: Serializer>(flags: &[u8; 2], to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return flags.serialize(to);
        }
        let text = |flags: u8| {
            let letters = LETTERS.chars().enumerate();
            letters.filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, c)| c).collect::<String>()
        };
        flags.map(text).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<[u8; 2], D::Error> {
        if !from.is_human_readable() {
            return <[u8; 2]>::deserialize(from);
        }
        Ok(<[String; 2]>::deserialize(from)?.map(|text| read(&text)))
    }

    pub fn read(text: &str) -> u8 {
        let bit = |letter| LETTERS.find(letter).map_or(0, |bit| 1_u8 << bit);
        text.chars().fold(0, |flags, letter| flags | bit(letter))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_versions_wrote_of_a_flow_is_read() {
        // 3 packets and 1 back, 200 and 60 bytes, flags S and SA, from 7 ns to 9 ns; place 5.
        let old = [3, 1, 200, 1, 60, 1, b'S', 2, b'S', b'A', 7, 9, 5];
        for (version, written) in [(1, &old[..]), (2, &old[..old.len() - 1])] {
            let read = Watched::from_version(version, written).unwrap();
            assert_eq!((read.account.packets, read.account.bytes), ([3, 1], [200, 60]));
            assert_eq!(read.account.flags, [2, 2 | 16]);
            assert_eq!((read.account.began_ns, read.account.last_ns), (7, 9));
            assert_eq!(read.place, Place::default());
            assert!(Watched::from_version(version, &old[..5]).is_none());
        }
        assert!(Watched::from_version(4, &old).is_none());
    }
}
