//! Answers packets that cannot be forwarded with ICMP errors.

mod answer;
mod limit;

pub use limit::Answers;

use crate::ttl_decrement::{LEAST_MTU, check_mtu};
use answer::{Fault, answer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_nf::{
    Affinity, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, L3, LayerAccess, Nf,
    Packets, ReadOnly, Touch,
};

/// Drops packets and tells their senders why, by ICMP and ICMPv6.
///
/// *Inputs:* `expired` (time exceeded), `too_big` (packet too big; IPv4: fragmentation needed, with
/// the next hop's MTU), `unreachable`. *Output:* `out`, the errors, in frames that go back to who sent
/// the packet (MAC addresses swapped, VLAN tags kept): the policy takes them to where that came
/// from. *Drops:* every packet it is given, as `expired`, `too-big` or `unreachable`, answered or not.
/// *Config:* `v4` and `v6`, the addresses to answer from (without one, that family's packets are not
/// answered); `mtu` of the next hop (1280 unless told otherwise, which every path takes);
/// `unreachable`: `no_route`, `host` (unless told otherwise), `port` or `prohibited`; `rate` and `burst` of the
/// token bucket that limits errors (100 per second, 50 at once). Never answered: ICMP errors, later
/// fragments, what went to or came from multicast, broadcast or no address. *Source:* RFC 792,
/// RFC 1191, RFC 1812 §4.3.2, RFC 4443 §2.4 and §3, RFC 8201.
#[derive(Debug)]
pub struct IcmpError {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    mtu: u16,
    unreachable: Unreachable,
    /// Nanoseconds per error, and those of a whole burst.
    interval_ns: u64,
    burst_ns: u64,
}

/// Why a destination cannot be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unreachable {
    /// There is no route to it.
    NoRoute,
    /// There is, but the host does not answer.
    #[default]
    Host,
    /// Nobody listens at its port.
    Port,
    /// A rule forbids it.
    Prohibited,
}

/// Errors per second, and at once, unless told otherwise.
const RATE: u32 = 100;
const BURST: u32 = 50;

/// Configuration of [`IcmpError`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// IPv4 address to answer from; without one, IPv4 packets are not answered.
    #[serde(default)]
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address to answer from; without one, IPv6 packets are not answered.
    #[serde(default)]
    pub v6: Option<Ipv6Addr>,
    /// Most bytes that the next hop takes, from the IP header on; at least 1280.
    #[schemars(range(min = LEAST_MTU), extend("default" = LEAST_MTU))]
    pub mtu: Option<u16>,
    /// Why the packets that come by `unreachable` are.
    #[serde(default)]
    pub unreachable: Unreachable,
    /// Errors per second.
    #[schemars(range(min = 1), extend("default" = RATE))]
    pub rate: Option<u32>,
    /// Errors at once.
    #[schemars(range(min = 1), extend("default" = BURST))]
    pub burst: Option<u32>,
}

impl Nf for IcmpError {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "IcmpError",
        summary: "Drops packets and answers their senders with ICMP errors",
        inputs: &["expired", "too_big", "unreachable"],
        layers: LayerAccess {
            l2: Touch::Read,
            l3: Touch::Read,
            l4: Touch::Read,
            payload: Touch::Read,
        },
        may_drop: true,
        effect: Effect::Stateful,
        // One token bucket for all of them.
        affinity: Affinity::All,
        cost_cycles: 400,
        creates: 1,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Answers;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let (rate, burst) = (config.rate.unwrap_or(RATE), config.burst.unwrap_or(BURST));
        for (at, n) in [("/rate", rate), ("/burst", burst)] {
            if n == 0 {
                let why = "0 answers nothing; leave the packets to Drop instead".to_owned();
                return Err(ConfigError { at: at.to_owned(), why });
            }
        }
        // Rounded up, never to 0: more than are asked for would be let through.
        let interval_ns = 1_000_000_000_u64.div_ceil(rate.into());
        Ok(IcmpError {
            v4: config.v4,
            v6: config.v6,
            mtu: check_mtu(config.mtu.unwrap_or(LEAST_MTU))?,
            unreachable: config.unreachable,
            interval_ns,
            burst_ns: interval_ns * u64::from(burst),
        })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let (fault, reason) = match ctx.input() {
            0 => (Fault::Expired, DropReason::Expired),
            1 => (Fault::TooBig { mtu: self.mtu }, DropReason::TooBig),
            _ => (Fault::Unreachable(self.unreachable), DropReason::Unreachable),
        };
        for mut packet in packets.iter_mut() {
            packet.drop(reason);
            let layers = packet.layers(Depth::L4);
            let has_source = match layers.kind {
                L3::Ipv4 => self.v4.is_some(),
                L3::Ipv6 => self.v6.is_some(),
                L3::None | L3::Arp | L3::Other => false,
            };
            if !has_source {
                ctx.shared().no_source += 1;
                continue;
            }
            let Some(answer) = answer(&packet.bytes(), &layers, fault, self.v4, self.v6) else {
                ctx.shared().not_answered += 1;
                continue;
            };
            let now = ctx.now(&packet);
            if !ctx.shared().admit(now, self.interval_ns, self.burst_ns) {
                ctx.shared().limited += 1;
                continue;
            }
            let Some(mut error) = ctx.alloc(answer.bytes().len()) else {
                ctx.shared().no_buffer += 1;
                continue;
            };
            if let Some(mut bytes) = error.bytes_mut() {
                bytes.write(0, answer.bytes());
            }
            let cause = ctx.cause(&packet);
            ctx.emit(error, 0, &cause);
            ctx.shared().sent += 1;
        }
    }
}

weir_nf::register!(IcmpError);
