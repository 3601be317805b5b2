//! What became of packets.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_nf::Merge;

/// What a packet is to the connections that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It opens one, or belongs to one that is not established: not answered, for what is not TCP.
    New,
    /// It belongs to one that is.
    Established,
    /// An ICMP error about one.
    Related,
    /// It belongs to one that is being closed, or was reset.
    Closing,
    /// It has none, and needs none.
    Untracked,
    /// It fits none.
    Invalid(Why),
    /// It would open one, which the rules do not allow.
    Denied,
    /// No room for its flow.
    NoRoom,
}

/// Why a packet fits no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A combination of TCP flags that no TCP sends.
    Flags,
    /// It opens no connection, and there is none.
    NoConnection,
    /// It has no place in the handshake.
    Handshake,
    /// Data before or behind what its sender may send.
    Window,
    /// It acknowledges what was not sent, or what was so long ago.
    Acknowledgment,
    /// A reset that its receiver would not believe.
    Reset,
    /// An ICMP error that quotes no packet of a connection.
    Error,
    /// A fragment of what is not known, or one that would overwrite TCP's header.
    Fragment,
    /// It ends inside its TCP header.
    Cut,
}

impl State {
    /// What the tag `state` says; none for packets that are dropped in any case.
    pub(super) fn name(self) -> Option<&'static str> {
        Some(match self {
            State::New => "new",
            State::Established => "established",
            State::Related => "related",
            State::Closing => "closing",
            State::Untracked => "untracked",
            State::Invalid(_) => "invalid",
            State::Denied | State::NoRoom => return None,
        })
    }
}

/// Packets by what they were to connections.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Of connections that are not established.
    pub new: u64,
    /// Of established ones.
    pub established: u64,
    /// ICMP errors about connections.
    pub related: u64,
    /// Of connections that are being closed, or were reset.
    pub closing: u64,
    /// Without a connection, and none needed.
    pub untracked: u64,
    /// That the rules do not let open a connection.
    pub denied: u64,
    /// That found no room in the flow table.
    pub no_room: u64,
    /// That fit no connection, by the reason.
    pub invalid: BTreeMap<Why, u64>,
}

impl Judged {
    #[inline]
    pub(super) fn count(&mut self, state: State) {
        let count = match state {
            State::New => &mut self.new,
            State::Established => &mut self.established,
            State::Related => &mut self.related,
            State::Closing => &mut self.closing,
            State::Untracked => &mut self.untracked,
            State::Denied => &mut self.denied,
            State::NoRoom => &mut self.no_room,
            State::Invalid(why) => self.invalid.entry(why).or_default(),
        };
        *count += 1;
    }
}

impl Merge for Judged {
    fn merge(&mut self, other: Self) {
        self.new += other.new;
        self.established += other.established;
        self.related += other.related;
        self.closing += other.closing;
        self.untracked += other.untracked;
        self.denied += other.denied;
        self.no_room += other.no_room;
        for (why, packets) in other.invalid {
            *self.invalid.entry(why).or_default() += packets;
        }
    }
}
