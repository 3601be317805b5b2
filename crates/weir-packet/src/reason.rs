//! Why a packet was dropped: one enum for the whole system, so that every drop is counted under a
//! name that means the same everywhere.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a packet was dropped. Numbers are part of the layout version.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[doc = $doc])+ $name = $number,)* }

        impl DropReason {
            /// All reasons.
            pub const ALL: &[DropReason] = &[$(DropReason::$name),*];

            /// The name under which drops are reported.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }

            /// The reason with this number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(DropReason::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    /// The policy says `-> Drop`.
    Policy = 1, "policy";
    /// No edge of the policy takes the packet.
    NoEdge = 2, "no-edge";
    /// A µNF's rule says drop.
    Filtered = 3, "filtered";
    /// An IP header that breaks RFC 791 or RFC 8200.
    BadHeader = 4, "bad-header";
    /// A header checksum that is wrong.
    BadChecksum = 5, "bad-checksum";
    /// The packet ends inside a header.
    Truncated = 6, "truncated";
    /// A request that carries an injection.
    Injection = 7, "injection";
    /// TTL or hop limit used up.
    Expired = 8, "expired";
    /// Larger than a buffer.
    Oversize = 9, "oversize";
    /// A link type that is not Ethernet.
    LinkType = 10, "link-type";
    /// The packet went round a cycle too often.
    Loop = 11, "loop";
    /// A ring that may not push back was full.
    RingFull = 12, "ring-full";
    /// A ring entry or a buffer that cannot be right.
    BadEntry = 13, "bad-entry";
    /// A rate limit was exceeded.
    RateLimit = 14, "rate-limit";
    /// The device could not send it.
    Device = 15, "device";
    /// No free buffer for a packet that a µNF wanted to make.
    NoBuffer = 16, "no-buffer";
    /// A µNF still held it when the input ended.
    HeldAtEnd = 17, "held-at-end";
    /// Larger than the next hop's MTU, and not to be fragmented.
    TooBig = 18, "too-big";
    /// Its destination cannot be reached.
    Unreachable = 19, "unreachable";
    /// The kernel had no room for it: the chain took packets from the interface too slowly.
    KernelFull = 20, "kernel-full";
    /// What the interface says of a packet's unfinished checksum or segmentation cannot be right.
    BadOffload = 21, "bad-offload";
    /// Its µNF was stopped for good: it wrote nonsense too often.
    Quarantined = 22, "quarantined";
    /// It is one that has killed its µNF before, twice.
    Poison = 23, "poison";
    /// It fits no connection that there is, or not how far that one is.
    BadState = 24, "bad-state";
    /// A table was full of busy flows, and its flow is not in it.
    TableFull = 25, "table-full";
    /// A translator has no mapping for it, or its sender may not use it.
    NoMapping = 26, "no-mapping";
    /// A translator has no port for it: all are taken, or its protocol has none.
    NoPort = 27, "no-port";
    /// A fragment whose first one did not come, or not before it.
    Fragment = 28, "fragment";
    /// A branch of a parallel stage that may drop, chooses among outputs, writes or sets tags died before it had answered.
    BranchLost = 29, "branch-lost";
    /// The graph had too little room for all that came, and its class had less weight than others.
    EarlyDrop = 30, "early-drop";
}

/// How often a packet may go along edges that close cycles, before it is dropped ([`DropReason::Loop`]): a policy
/// that never lets one out would fill the rings with it for ever.
pub const MOST_ROUNDS: u16 = 32;

/// Numbers are below this.
pub const REASONS: usize = 31;

const _: () = {
    let mut i = 0;
    while i < DropReason::ALL.len() {
        assert!((DropReason::ALL[i] as usize) < REASONS);
        i += 1;
    }
};

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
