//! Puts the first fragment of a datagram before the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use weir_nf::flow::{DatagramId, PortKind};
use weir_nf::headers::plain_v4;
use weir_nf::{
    Affinity, Cause, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FLOW_FIELDS,
    Field, Fragment, Held, LayerAccess, Merge, Nf, Packets, ReadOnly, Touch,
};

/// Holds fragments that come before the first one of their datagram, and sends them behind it: only that one tells the ports, which a
/// translator or a firewall behind needs (RFC 4787 REQ-14, RFC 5508 §4.3: fragments out of order have to pass).
///
/// *Output:* `out`. *Drops:* `fragment` (its first did not come in time). *Config:* `most`, packets held at a time: one more passes as it is,
/// counted as `unheld`; `wait`, for how many seconds. *Source:* RFC 791 §3.2 and RFC 8200 §4.5 (what the fragments of a datagram
/// share). *Limits:* fragments go on one by one, they are not put together; all but the first come out in the order in which they came. What has
/// waited too long is dropped as the next fragment comes. Which first fragments have come it remembers for 30 s, of 1,024 datagrams. Instances divide packets by
/// both addresses. What is held when its worker dies is lost; at the end of the input it is dropped (`held-at-end`).
#[derive(Debug)]
pub struct OrderFragments {
    most: usize,
    wait_ns: u64,
}

/// Configuration of [`OrderFragments`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Most packets that are held at a time.
    #[schemars(range(min = 1, max = MOST), extend("default" = HELD))]
    pub most: Option<u32>,
    /// For how many seconds a fragment waits for its first one.
    #[schemars(range(min = 1, max = LONGEST_WAIT), extend("default" = WAIT))]
    pub wait: Option<u64>,
}

const MOST: u32 = 1024;
/// Held at a time, unless told otherwise: four datagrams of 64 KiB.
const HELD: u32 = 180;
/// A datagram is put together within that, or not at all (RFC 8200 §4.5).
const LONGEST_WAIT: u64 = 60;
const WAIT: u64 = 2;
const SECOND: u64 = 1_000_000_000;

/// What was put in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ordered {
    /// Fragments that were held.
    pub held: u64,
    /// Of these, fragments that went on behind their first.
    pub released: u64,
    /// Of these, fragments whose first did not come in time.
    pub expired: u64,
    /// Fragments that came before their first and passed as they were, as too many were held.
    pub unheld: u64,
    /// In the order in which they came.
    #[serde(skip)]
    waiting: VecDeque<Waiting>,
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
    /// Drops what has waited for too long.
    fn expire(&self, now_ns: u64, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let is_late = |w: &mut Waiting| now_ns.saturating_sub(w.since_ns) >= self.wait_ns;
        while let Some(late) = ctx.shared().waiting.pop_front_if(is_late) {
            ctx.shared().expired += 1;
            ctx.discard(late.packet, DropReason::Fragment, cause);
        }
    }

    /// Sends what waits for this datagram's first fragment.
    fn release(&self, datagram: DatagramId, cause: &Cause, ctx: &mut Ctx<'_, Self>) {
        let waiting = std::mem::take(&mut ctx.shared().waiting);
        let (its, others): (VecDeque<_>, _) =
            waiting.into_iter().partition(|w| w.datagram == datagram);
        let shared = ctx.shared();
        (shared.waiting, shared.released) = (others, shared.released + its.len() as u64);
        for own in its {
            ctx.release(own.packet, 0, cause);
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
        may_drop: true,
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
        let wait = within("/wait", config.wait.unwrap_or(WAIT), LONGEST_WAIT)?;
        Ok(OrderFragments { most: most as usize, wait_ns: wait * SECOND })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
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
            if ctx.shared().waiting.len() >= self.most {
                ctx.shared().unheld += 1;
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
}

weir_nf::register!(OrderFragments);
