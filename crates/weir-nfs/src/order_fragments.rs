//! Puts the first fragment of a datagram before the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weir_nf::flow::{DatagramId, PortKind};
use weir_nf::headers::plain_v4;
use weir_nf::{
    Affinity, Cause, ConfigError, Ctx, Depth, Descriptor, Effect, Env, FLOW_FIELDS, Field,
    Fragment, Held, LayerAccess, Merge, Nf, Packets, ReadOnly, Touch,
};

/// Holds fragments that come before the first one of their datagram, and sends them behind it: only that one tells the ports, which a
/// translator or a firewall behind needs (RFC 4787 REQ-14: fragments out of order have to pass).
///
/// *Output:* `out`; nothing is dropped. *Config:* `most`, packets held at a time; `wait_ms`, for how long one waits: milliseconds, as in a
/// network packets overtake each other by no more. *Source:* RFC 791 §3.2 and RFC 8200 §4.5 (what the fragments of a datagram share).
/// *Limits:* fragments go on one by one, they are not put together. When one has waited in vain, all that wait go on as they
/// are (`expired`), and none is held for two seconds: a graph cannot be changed while packets are held, and so nobody who sends
/// fragments without a first keeps it from that. It is seen by the next packet of any kind: while none comes at all, what is held stays, and a change is refused. Fragments that are not held, then or as there are too many, pass as they are (`unheld`),
/// before those of their datagram that are: whoever sends very many has those of others pass like that, too. Which first fragments have come it remembers for 30 s, of 1,024
/// datagrams, and not beyond a death or a change of the graph: later ones of such wait in vain. A fragment is taken for one of an earlier datagram of the same
/// identification, if that is remembered. Instances divide packets by both addresses. What is held when its worker dies is lost.
#[derive(Debug)]
pub struct OrderFragments {
    most: usize,
    wait_ns: u64,
}

/// Configuration of [`OrderFragments`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Most packets that are held at a time; fewer, where the packet pools are small.
    #[schemars(range(min = 1, max = MOST), extend("default" = HELD))]
    pub most: Option<u32>,
    /// For how many milliseconds a fragment waits for its first one.
    #[schemars(range(min = 1, max = LONGEST_WAIT_MS), extend("default" = WAIT_MS))]
    pub wait_ms: Option<u64>,
}

/// Each that comes may be compared with all of these.
const MOST: u32 = 256;
/// Held at a time, unless told otherwise: four datagrams of 64 KiB.
const HELD: u32 = 180;
const LONGEST_WAIT_MS: u64 = 1_000;
const WAIT_MS: u64 = 500;
const MS: u64 = 1_000_000;
/// For how long none is held when one has waited in vain: longer than there is between two tries to change a graph, which go on for 3 s, so that
/// one of them finds none whoever sends what.
const REST_NS: u64 = 2_000 * MS;

/// What was put in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ordered {
    /// Fragments that were held.
    pub held: u64,
    /// Of these, fragments that went on behind their first.
    pub released: u64,
    /// Of these, fragments that went on as they were, as a first did not come in time.
    pub expired: u64,
    /// Fragments that came before their first and passed as they were.
    pub unheld: u64,
    /// In the order in which they came.
    #[serde(skip)]
    waiting: VecDeque<Waiting>,
    /// None is held before.
    #[serde(skip)]
    rests_until_ns: u64,
}

#[derive(Debug)]
struct Waiting {
    datagram: DatagramId,
    since_ns: u64,
    packet: Held,
}

impl Merge for Ordered {
    fn merge(&mut self, other: Self) {
        self.held += other.held;
        self.released += other.released;
        self.expired += other.expired;
        self.unheld += other.unheld;
    }
}

impl OrderFragments {
    /// When one has waited for too long, all go on.
    fn expire(&self, now_ns: u64, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let is_late = |w: &Waiting| now_ns.saturating_sub(w.since_ns) >= self.wait_ns;
        if !ctx.shared().waiting.front().is_some_and(is_late) {
            return;
        }
        ctx.shared().rests_until_ns = now_ns.saturating_add(REST_NS);
        while let Some(next) = ctx.shared().waiting.pop_front() {
            ctx.shared().expired += 1;
            ctx.release(next.packet, 0, cause);
        }
    }

    /// Sends what waits for this datagram's first fragment.
    fn release(&self, datagram: DatagramId, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let waiting = &ctx.shared().waiting;
        if !waiting.iter().any(|w| w.datagram == datagram) {
            return;
        }
        // Once round: the others stay in their order.
        for _ in 0..waiting.len() {
            let shared = ctx.shared();
            let Some(next) = shared.waiting.pop_front() else { return };
            if next.datagram == datagram {
                shared.released += 1;
                ctx.release(next.packet, 0, cause);
            } else {
                shared.waiting.push_back(next);
            }
        }
    }
}

impl Nf for OrderFragments {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "OrderFragments",
        summary: "Sends the first fragment of a datagram before the others",
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        fields: FLOW_FIELDS,
        effect: Effect::Stateful,
        affinity: Affinity::Fields { fields: &[Field::IpSrc, Field::IpDst], symmetric: false },
        cost_cycles: 30,
        holds: MOST,
        flows: 0,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Ordered;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let within = |at: &str, number: u64, most: u64| match (1..=most).contains(&number) {
            true => Ok(number),
            false => {
                let why = format!("{number} cannot be: write 1 to {most}, or leave it out");
                Err(ConfigError { at: at.to_owned(), why })
            }
        };
        let most = within("/most", config.most.unwrap_or(HELD).into(), MOST.into())?;
        let wait = within("/wait_ms", config.wait_ms.unwrap_or(WAIT_MS), LONGEST_WAIT_MS)?;
        Ok(OrderFragments { most: most as usize, wait_ns: wait * MS })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let mut is_first = true;
        for packet in packets.iter_mut() {
            // Once a batch, whatever comes.
            if std::mem::take(&mut is_first) && !ctx.shared().waiting.is_empty() {
                let (now, cause) = (ctx.now(&packet), ctx.cause(&packet));
                self.expire(now, &cause, ctx);
            }
            if plain_v4(&packet.bytes()).is_some() {
                continue;
            }
            let layers = packet.layers(Depth::L4);
            let fragment = layers.fragment();
            if fragment == Fragment::Whole {
                continue;
            }
            let (now, cause) = (ctx.now(&packet), ctx.cause(&packet));
            self.expire(now, &cause, ctx);
            let Some(datagram) = DatagramId::of(&packet.bytes(), &layers) else { continue };
            // This is how a first one becomes known, too.
            let key = ctx.key(&packet);
            if fragment == Fragment::First {
                self.release(datagram, &cause, ctx);
                continue;
            }
            if key.is_some_and(|(key, _)| key.port_kind() != PortKind::LaterFragment) {
                continue;
            }
            let shared = ctx.shared();
            if now < shared.rests_until_ns || shared.waiting.len() >= self.most {
                shared.unheld += 1;
                continue;
            }
            match ctx.hold(packet) {
                Ok(packet) => {
                    let shared = ctx.shared();
                    shared.held += 1;
                    shared.waiting.push_back(Waiting { datagram, since_ns: now, packet });
                }
                // Back, and passes as it is.
                Err(_) => ctx.shared().unheld += 1,
            }
        }
    }

    fn on_end(&self, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        while let Some(next) = ctx.shared().waiting.pop_front() {
            ctx.shared().expired += 1;
            ctx.release(next.packet, 0, cause);
        }
    }
}

weir_nf::register!(OrderFragments);
