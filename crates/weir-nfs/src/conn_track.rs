//! A firewall that knows connections.

mod judged;
pub mod segment;
pub mod tcp;

pub use judged::{Judged, State, Why};

use crate::rules;
use schemars::JsonSchema;
use segment::Segment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tcp::{Connection, Phase, Step};
use weir_classify::{Action, Classifier, RuleSpec};
use weir_nf::headers::{plain_v4, proto};
use weir_nf::{
    Access, Affinity, Bytes, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FlowOf,
    FlowState, Fragment, L3, LayerAccess, Layers, Nf, Packets, Pkt, ReadOnly, TagDecl, TagKind,
    TextTag, Touch,
};

/// Passes the packets of connections that somebody may open, and drops what fits none.
///
/// TCP is followed by flags, sequence numbers and windows; a reset closes only when its receiver would
/// believe it. UDP, ICMP queries and other protocols make pseudo-connections: the first packet opens one,
/// an ICMP reply does not. ICMP errors pass when they quote a packet of a connection. What is not IP,
/// neighbour discovery and listener reports pass.
///
/// *Output:* `pass`. *Drops:* `filtered` (the rules let nobody open it), `bad-state` (it fits no
/// connection), `table-full`. *Config:* `rules` and `default`: who may open a connection, first match,
/// written as for L3L4Filter; packets of connections that are open are not asked. `invalid`: `pass` lets
/// through what fits none. `pickup`: connections whose start was not seen are followed, without regard to
/// windows. *Tag:* `state` (text): `new`, `established`, `related`, `closing`, `untracked`, `invalid`.
/// *Idle times:* TCP 2 h 4 min once it is established, 4 min before and after; UDP and other protocols 5 min, ICMP 1 min.
/// *Source:* RFC 9293, RFC 5961 §3, RFC 5927 §4, RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-1,
/// RFC 4890, RFC 1858 and 3128; van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2001).
///
/// Only packets that open a connection take a place in the flow table, and only what belongs to it keeps it.
///
/// *Limits:* checksums are not verified.
/// TCP in fragments is followed by flags alone; fragments without their first are invalid. Payload is not looked at: no
/// related connections (FTP's and the like).
#[derive(Debug)]
pub struct ConnTrack {
    classifier: Classifier,
    actions: Vec<Action>,
    default: Action,
    invalid: Action,
    pickup: bool,
    state: Option<TextTag>,
}

/// Configuration of [`ConnTrack`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Who may open a connection; the first rule that matches its first packet decides.
    #[serde(default)]
    // Kept as JSON so that an error names the rule.
    #[schemars(with = "Vec<RuleSpec>", length(max = weir_classify::MAX_RULES))]
    pub rules: Vec<Value>,
    /// What happens when no rule matches: `pass` unless told otherwise.
    #[schemars(extend("default" = Action::Pass))]
    pub default: Option<Action>,
    /// What happens to packets that fit no connection: `drop` unless told otherwise.
    #[schemars(extend("default" = Action::Drop))]
    pub invalid: Option<Action>,
    /// Whether TCP connections are followed whose start was not seen.
    #[serde(default)]
    pub pickup: bool,
}

/// What is known of a flow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tracked {
    /// Whether who sent the flow's first packet has opened the connection.
    by_starter: bool,
    connection: Option<Kind>,
}

impl Tracked {
    /// The connection of a flow, if it has one, and which of its sides a packet of the flow is from.
    #[inline]
    fn connection(flow: FlowOf<'_, Self>) -> Option<(&mut Kind, usize)> {
        let FlowOf { state: Tracked { by_starter, connection }, from_starter, .. } = flow;
        Some((connection.as_mut()?, usize::from(from_starter != *by_starter)))
    }
}

/// What a packet says to its connection.
enum Said {
    /// Of TCP; not whole when its data go on in later fragments.
    Segment {
        segment: Segment,
        is_whole: bool,
    },
    Other {
        proto: u8,
        is_reply: bool,
    },
}

/// What becomes of a connection.
enum Next {
    /// The packet opens this one.
    Opens(Kind),
    /// It goes on; how long it may be idle from now on, and whether it has come further.
    GoesOn { state: State, idle_ns: u64, changed: bool },
}

impl Said {
    #[inline]
    fn whole(segment: Segment) -> Self {
        Said::Segment { segment, is_whole: true }
    }
}

impl FlowState for Tracked {
    const VERSION: u32 = 2;

    /// What it has seen sent may be behind what is acknowledged next.
    fn recovered_late(&mut self) {
        if let Some(Kind::Tcp(connection)) = &mut self.connection {
            connection.relax();
        }
    }
}

/// A connection.
#[derive(Debug, Serialize, Deserialize)]
enum Kind {
    Tcp(Connection),
    /// Of a protocol without one.
    Pseudo {
        proto: u8,
        is_answered: bool,
    },
}

const SECOND: u64 = 1_000_000_000;

/// For how long a connection may be idle, in nanoseconds of packet time. TCP: 2 h 4 min once it is established, 4 min before
/// and after. UDP and other protocols 5 min, ICMP 1 min.
fn idle_ns(kind: &Kind) -> u64 {
    let seconds = match kind {
        Kind::Tcp(connection) => match connection.phase() {
            Phase::Established => 7440,
            Phase::SynSent | Phase::SynReceived | Phase::Closing => 240,
            Phase::TimeWait | Phase::Reset => 240,
        },
        Kind::Pseudo { proto: proto::ICMP | proto::ICMPV6, .. } => 60,
        Kind::Pseudo { .. } => 300,
    };
    seconds * SECOND
}

/// What an ICMP message is to connections.
enum Icmp {
    Request,
    Reply,
    Error,
    /// Neighbour discovery and listener reports: a link does not work without (RFC 4890 §4.3.1 and §4.4.1).
    Link,
    Other,
}

fn icmp<B: Bytes>(bytes: &B, layers: &Layers) -> Option<Icmp> {
    let (kind, _) = layers.icmp_type_code(bytes)?;
    Some(match (layers.kind, kind) {
        (L3::Ipv4, 8 | 13 | 15 | 17) | (L3::Ipv6, 128) => Icmp::Request,
        (L3::Ipv4, 0 | 14 | 16 | 18) | (L3::Ipv6, 129) => Icmp::Reply,
        (L3::Ipv4, 3 | 4 | 5 | 11 | 12) | (L3::Ipv6, 1..=4) => Icmp::Error,
        (L3::Ipv6, 133..=137) if layers.ttl(bytes) == Some(255) => Icmp::Link,
        (L3::Ipv6, 130..=132 | 143) if layers.ttl(bytes) == Some(1) => Icmp::Link,
        _ => Icmp::Other,
    })
}

/// True for a later fragment so near to the datagram's start that it could rewrite TCP's flags (RFC 1858, RFC 3128).
fn overlaps_tcp<B: Bytes>(bytes: &B, layers: &Layers) -> bool {
    let eights = match layers.kind {
        L3::Ipv4 => bytes.be16(usize::from(layers.l3) + 6).map(|word| word & 0x1fff),
        _ => bytes.be16(usize::from(layers.fragment_header) + 2).map(|word| word >> 3),
    };
    layers.proto == proto::TCP && eights.is_none_or(|eights| eights < 2)
}

impl ConnTrack {
    /// What the packet is to the connections that are known.
    fn judge<A: Access>(&self, packet: &Pkt<'_, A>, ctx: &mut Ctx<'_, Self>) -> State {
        // Time goes on with every packet, also those that have no flow.
        ctx.now(packet);
        let bytes = packet.bytes();
        if let Some(plain) = plain_v4(&bytes) {
            let said = match plain.tcp_flags {
                Some(flags) => Said::whole(Segment::of_plain(&bytes, &plain, flags)),
                None => Said::Other { proto: proto::UDP, is_reply: false },
            };
            return self.follow(packet, ctx, &said);
        }
        self.judge_any(packet, ctx)
    }

    /// The same for a packet that is not plain.
    #[inline(never)]
    fn judge_any<A: Access>(&self, packet: &Pkt<'_, A>, ctx: &mut Ctx<'_, Self>) -> State {
        let (bytes, layers) = (packet.bytes(), packet.layers(Depth::L4));
        if !layers.is_ip() {
            return State::Untracked;
        }
        let message = icmp(&bytes, &layers);
        match message {
            Some(Icmp::Link) => return State::Untracked,
            Some(Icmp::Other) if self.may_open(packet) => return State::Untracked,
            Some(Icmp::Other) => return State::Denied,
            _ => {}
        }
        let (is_error, is_whole) =
            (matches!(message, Some(Icmp::Error)), layers.fragment() == Fragment::Whole);
        if is_error || layers.fragment() == Fragment::Later {
            let known = ctx.known_flow(packet).and_then(Tracked::connection);
            return match known {
                None if is_error => State::Invalid(Why::Error),
                None => State::Invalid(Why::Fragment),
                // It comes from the other end than what it quotes, or from somewhere on the way.
                Some((known, from)) if is_error => related(known, 1 - from, &bytes, &layers),
                Some(_) if overlaps_tcp(&bytes, &layers) => State::Invalid(Why::Fragment),
                Some((known, _)) => state_of(known),
            };
        }
        let said = if layers.proto == proto::TCP {
            let Some(segment) = Segment::read(&bytes, &layers) else {
                return State::Invalid(Why::Cut);
            };
            Said::Segment { segment, is_whole }
        } else {
            let is_reply = matches!(message, Some(Icmp::Reply));
            Said::Other { proto: layers.proto, is_reply }
        };
        self.follow(packet, ctx, &said)
    }

    /// What a packet is to its connection, by what it says, and the connection by it.
    #[inline]
    fn follow<A: Access>(
        &self,
        packet: &Pkt<'_, A>,
        ctx: &mut Ctx<'_, Self>,
        said: &Said,
    ) -> State {
        let mut known = ctx.known_flow(packet).and_then(Tracked::connection);
        if let (Some((Kind::Tcp(connection), from)), Said::Segment { segment, is_whole: true }) =
            (&mut known, said)
            && connection.goes_on(*from, segment)
        {
            ctx.keep_on();
            return State::Established;
        }
        match self.next(packet, known, said) {
            Ok(next) => Self::settle(packet, ctx, next),
            Err(state) => state,
        }
    }

    /// What becomes of a connection by what a packet of it says.
    #[inline(never)]
    fn next<A: Access>(
        &self,
        packet: &Pkt<'_, A>,
        known: Option<(&mut Kind, usize)>,
        said: &Said,
    ) -> Result<Next, State> {
        let (mut known, from) = known.map_or((None, 0), |(known, from)| (Some(known), from));
        let before = known.as_deref().map(stage);
        let opened = match said {
            Said::Segment { segment, is_whole } => {
                self.tcp(packet, known.as_deref_mut(), from, segment, *is_whole)?
            }
            Said::Other { proto, is_reply } => {
                self.pseudo(packet, known.as_deref_mut(), from, *proto, *is_reply)?
            }
        };
        if let Some(opened) = opened {
            return Ok(Next::Opens(opened));
        }
        let known = known.ok_or(State::Untracked)?;
        let changed = Some(stage(known)) != before;
        Ok(Next::GoesOn { state: state_of(known), idle_ns: idle_ns(known), changed })
    }

    /// Makes it so.
    fn settle<A: Access>(packet: &Pkt<'_, A>, ctx: &mut Ctx<'_, Self>, next: Next) -> State {
        let (state, idle_ns, changed) = match next {
            Next::Opens(opened) => {
                let (judged, idle_ns) = (state_of(&opened), idle_ns(&opened));
                let Some(FlowOf { state, from_starter, .. }) = ctx.flow_of(packet) else {
                    return State::NoRoom;
                };
                *state = Tracked { by_starter: from_starter, connection: Some(opened) };
                (judged, idle_ns, true)
            }
            Next::GoesOn { state, idle_ns, changed } => (state, idle_ns, changed),
        };
        ctx.keep_flow(idle_ns);
        if changed {
            ctx.note_flow();
        }
        state
    }

    /// A segment; the connection that it opens, if it does.
    fn tcp<A: Access>(
        &self,
        packet: &Pkt<'_, A>,
        known: Option<&mut Kind>,
        from: usize,
        segment: &Segment,
        whole: bool,
    ) -> Result<Option<Kind>, State> {
        if let Some(Kind::Tcp(connection)) = known
            && connection.step(from, segment).map_err(State::Invalid)? == Step::Belongs
        {
            if !whole {
                connection.relax();
            }
            return Ok(None);
        }
        let begin = if self.pickup { Connection::pick_up } else { Connection::open };
        let mut connection = begin(segment).map_err(State::Invalid)?;
        if !whole {
            connection.relax();
        }
        self.may_open(packet).then_some(Some(Kind::Tcp(connection))).ok_or(State::Denied)
    }

    fn pseudo<A: Access>(
        &self,
        packet: &Pkt<'_, A>,
        known: Option<&mut Kind>,
        from: usize,
        proto: u8,
        is_reply: bool,
    ) -> Result<Option<Kind>, State> {
        match known {
            Some(Kind::Pseudo { is_answered, .. }) => {
                *is_answered |= from == 1;
                Ok(None)
            }
            _ if is_reply => Err(State::Invalid(Why::NoConnection)),
            _ if self.may_open(packet) => Ok(Some(Kind::Pseudo { proto, is_answered: false })),
            _ => Err(State::Denied),
        }
    }

    fn may_open<A: Access>(&self, packet: &Pkt<'_, A>) -> bool {
        let rule = self.classifier.classify(&rules::extract(packet));
        let action = rule.and_then(|rule| self.actions.get(rule as usize)).copied();
        action.unwrap_or(self.default) == Action::Pass
    }
}

/// What an ICMP error is that quotes a packet which side `from` is said to have sent.
fn related<B: Bytes>(known: &Kind, from: usize, bytes: &B, layers: &Layers) -> State {
    let Kind::Tcp(connection) = known else { return State::Related };
    // Eight bytes of the quoted segment are always there (RFC 792): ports and sequence number.
    let seq = layers.quoted(bytes).and_then(|quoted| bytes.be32(usize::from(quoted.l4) + 4));
    let fits = seq.is_some_and(|seq| connection.may_be_quoted(from, seq));
    if fits { State::Related } else { State::Invalid(Why::Error) }
}

/// How far it is: what a replica has to know of at once.
fn stage(known: &Kind) -> (Phase, bool) {
    match known {
        Kind::Tcp(connection) => (connection.phase(), false),
        Kind::Pseudo { is_answered, .. } => (Phase::default(), *is_answered),
    }
}

fn state_of(known: &Kind) -> State {
    match known {
        Kind::Tcp(connection) => match connection.phase() {
            Phase::SynSent | Phase::SynReceived => State::New,
            Phase::Established => State::Established,
            Phase::Closing | Phase::TimeWait | Phase::Reset => State::Closing,
        },
        Kind::Pseudo { is_answered: false, .. } => State::New,
        Kind::Pseudo { is_answered: true, .. } => State::Established,
    }
}

impl Nf for ConnTrack {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "ConnTrack",
        summary: "Passes packets of connections that rules let somebody open",
        outputs: &["pass"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            // What ICMP errors quote.
            payload: Touch::Read,
        },
        may_drop: true,
        effect: Effect::Stateful,
        affinity: Affinity::Flow,
        cost_cycles: 140,
        tags: &[TagDecl { name: "state", kind: TagKind::Text }],
        flows: 1 << 20,
        // The shortest of its idle times: ended flows are found by a part of that. It says itself how long each is kept.
        flow_idle_ns: 60 * SECOND,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = Tracked;
    type Shared = Judged;

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let (classifier, actions) = rules::compile(&config.rules)?;
        Ok(ConnTrack {
            classifier,
            actions,
            default: config.default.unwrap_or(Action::Pass),
            invalid: config.invalid.unwrap_or(Action::Drop),
            pickup: config.pickup,
            state: env.text("state"),
        })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for mut packet in packets.iter_mut() {
            let state = self.judge(&packet, ctx);
            ctx.shared().count(state);
            if let (Some(tag), Some(name)) = (&self.state, state.name()) {
                tag.set(&packet, name.as_bytes());
            }
            match state {
                State::Denied => packet.drop(DropReason::Filtered),
                State::NoRoom => packet.drop(DropReason::TableFull),
                State::Invalid(_) if self.invalid == Action::Drop => {
                    packet.drop(DropReason::BadState);
                }
                _ => {}
            }
        }
    }
}

weir_nf::register!(ConnTrack);
