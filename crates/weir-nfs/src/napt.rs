//! Translates addresses and ports.

mod mapping;
mod ports;
mod table;

pub use mapping::{Filtering, Mapping};

use crate::rewrite::{FIELDS, Headers, LAYERS, Which, Written, correct, rewrite, rewrite_plain};
use mapping::{End, SECOND, Sent};
use ports::{BLOCK, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use table::{Hosts, NoRoom, touch};
use weir_classify::Action;
use weir_nf::flow::{Direction, Side};
use weir_nf::headers::{PlainV4, plain_v4, proto};
use weir_nf::{
    Affinity, Bytes, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FlowHasher,
    FlowKey, Fragment, L3, Layers, Merge, Nf, Packets, Pkt, ReadWrite,
};

/// Gives many inner IPv4 hosts a few outer addresses, by TCP and UDP ports and ICMP query identifiers.
///
/// Mapping is endpoint-independent, with the inner port where it is free, or else one of its parity; an inner
/// host has one outer address (paired). Inner hosts reach each other by outer addresses (hairpinning). ICMP errors
/// are translated, with what they quote, both ways; fragments by their first one.
///
/// *Inputs and outputs:* `inside`, `outside`. *Drops:* `no-mapping` (from outside, for nobody or from whom the
/// filtering does not let; groups and broadcasts), `no-port` (all are taken, or the host has as many as it may have; protocols without
/// ports), `fragment` (its first did not come before it, or was dropped), `truncated`, `filtered` (IPv6, when so configured).
/// *Config:* `addresses`, without which nothing gets out; `ports`, the block of this instance, so that several can share
/// addresses; `filtering`; `per_host`, the most mappings of an inner host, so that one cannot take all; `ipv6`: passed as it is, or
/// dropped. What is not IP passes to the other side. *Source:* RFC 3022, 4787, 5382, 5508, 7857 §2 to §4, 6888 REQ-4.
///
/// *Several instances* share addresses and ports by leases: blocks of 64 ports, dealt to 32 leases in turn, and each instance has some of
/// these. An inner end gets an outer one of the lease that its own port is of, so what comes from inside divides by the source's port, what comes from outside
/// by the destination's, and both meet. When leases move, their mappings and free ports go along. Each instance counts `per_host` for
/// itself. What an inner host sends to an outer end of another's lease leaves by `outside`, its source translated, as if an inner host of
/// another site had sent it: an edge from there back to the input `outside` completes the hairpin.
///
/// *Limits:* a full block costs up to 128 tries for each new mapping, and may then have a free port yet. Fragments
/// that come before their first are dropped, not held: put an [`OrderFragments`](crate::order_fragments::OrderFragments) before
/// either input where fragments out of order are to pass (RFC 4787 REQ-14). Errors about queries (pings) between inner hosts are dropped. VLANs do not tell
/// inner hosts apart. Mappings are flows: they survive the worker when it is replicated, and move by leases (`--share`, `--all`), not one by one.
#[derive(Debug)]
pub struct Napt {
    ports: Ports,
    filtering: Filtering,
    /// Most mappings of an inner host.
    quota: u32,
    ipv6: Action,
    hasher: FlowHasher,
}

/// Configuration of [`Napt`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Outer addresses, IPv4; none is multicast, broadcast or 0.0.0.0.
    #[serde(default)]
    #[schemars(length(max = ports::MOST_ADDRESSES), extend("uniqueItems" = true))]
    pub addresses: Vec<Ipv4Addr>,
    /// Outer ports of each address.
    #[schemars(extend("default" = BLOCK))]
    pub ports: Option<String>,
    /// Who may send to a mapping: `endpoint`, anybody; `address`, to whose address the inner endpoint has sent; `port`, to
    /// whose address and port.
    #[serde(default)]
    pub filtering: Filtering,
    /// Most mappings that an inner host may have at a time, at least 1; as many as there are ports unless told otherwise.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub per_host: Option<u32>,
    /// What happens to IPv6: `pass` unless told otherwise.
    #[schemars(extend("default" = Action::Pass))]
    pub ipv6: Option<Action>,
}

/// What was translated, and the mappings.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Translated {
    /// Packets from inside to outside.
    pub out: u64,
    /// From outside to inside.
    pub back: u64,
    /// From inside to inside.
    pub hairpinned: u64,
    /// Of these, ICMP errors.
    pub errors: u64,
    /// Packets that found no port.
    pub no_port: u64,
    /// Of these, packets of hosts that had as many mappings as they may have.
    pub over_quota: u64,
    /// Packets from outside that found no mapping, or may not use it.
    pub no_mapping: u64,
    /// Fragments without a first one.
    pub fragments: u64,
    /// Mappings that were made.
    pub mappings: u64,
    #[serde(skip)]
    hosts: Hosts,
}

impl Merge for Translated {
    const VERSION: u32 = 3;

    fn merge(&mut self, other: Self) {
        self.out += other.out;
        self.back += other.back;
        self.hairpinned += other.hairpinned;
        self.errors += other.errors;
        self.no_port += other.no_port;
        self.over_quota += other.over_quota;
        self.no_mapping += other.no_mapping;
        self.fragments += other.fragments;
        self.mappings += other.mappings;
    }
}

const INSIDE: u8 = 0;
const OUTSIDE: u8 = 1;

/// What is to become of a packet: the ends that are written, and where it goes.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    source: Option<End>,
    destination: Option<End>,
    output: u8,
}

/// An IPv4 packet.
struct Datagram {
    headers: Headers,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    fragment: Fragment,
}

impl Datagram {
    fn read<B: Bytes>(bytes: &B, layers: &Layers) -> Option<Datagram> {
        let (source, destination) = layers.ipv4(bytes)?;
        let (headers, fragment) = (Headers::of(layers), layers.fragment());
        Some(Datagram { headers, source, destination, fragment })
    }

    /// Both ends; a query's identifier stands for either port. `None` for what has neither.
    fn ends<B: Bytes>(&self, bytes: &B, layers: &Layers) -> Option<(End, End)> {
        let ports = match self.headers.proto {
            proto::TCP | proto::UDP => layers.ports(bytes),
            proto::ICMP => layers
                .icmp_type_code(bytes)
                .filter(|(kind, _)| matches!(kind, 0 | 8 | 13..=18))
                .and_then(|_| bytes.be16(usize::from(layers.l4) + 4))
                .map(|id| (id, id)),
            _ => None,
        };
        ports.map(|(from, to)| ((self.source, from), (self.destination, to)))
    }
}

impl Napt {
    /// The same for what most packets are: plain, of a mapping that is there, and not from inside to inside. `None` says nothing.
    #[inline]
    fn translate_plain(
        &self,
        packet: &mut Pkt<'_, ReadWrite>,
        side: Side,
        now_ns: u64,
        ctx: &mut Ctx<'_, Self>,
    ) -> Option<u8> {
        let plain = plain_v4(&packet.bytes())?;
        let (from, to) = ends_of_plain(&plain);
        let from_inside = side == Side::Inside;
        if to.0.is_multicast() || to.0.is_broadcast() || self.ports.has(to.0) == from_inside {
            return None;
        }
        let proto = plain.proto();
        let ((own, peer), which) = match from_inside {
            true => ((from, to), Which::Source),
            false => ((to, from), Which::Destination),
        };
        let key = FlowKey::of_end(side, proto, own.0, own.1);
        let mapping = ctx.known_ready(packet, &key)?.state;
        if !self.holds(mapping, now_ns) || !from_inside && !mapping.lets_in(peer, self.filtering) {
            return None;
        }
        let (flags, has_data) = (plain.tcp_flags.unwrap_or(0), plain.payload < plain.end);
        let sent = Sent { proto, peer, flags, has_data, now_ns };
        let end = if from_inside { mapping.outer } else { mapping.inner };
        touch(ctx, &sent, from_inside);
        rewrite_plain(packet, &plain, which, end)?;
        let shared = ctx.shared();
        let (count, output) = match from_inside {
            true => (&mut shared.out, OUTSIDE),
            false => (&mut shared.back, INSIDE),
        };
        *count += 1;
        Some(output)
    }

    fn translate(
        &self,
        packet: &mut Pkt<'_, ReadWrite>,
        layers: &Layers,
        input: u8,
        now_ns: u64,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<u8, DropReason> {
        let bytes = packet.bytes();
        let datagram = Datagram::read(&bytes, layers).ok_or(DropReason::Truncated)?;
        let is_outer = self.ports.has(datagram.destination);
        let is_many = datagram.destination.is_multicast() || datagram.destination.is_broadcast();
        if is_many || input == OUTSIDE && !is_outer {
            return Err(DropReason::NoMapping);
        }
        let way = match datagram.fragment {
            Fragment::Later => {
                let ends = ctx.key(packet).and_then(|(key, direction)| ends_of(&key, direction));
                let (proto, from, to) = ends.ok_or(DropReason::Fragment)?;
                let way = self.later_way(proto, from, to, (input, is_outer), now_ns, ctx);
                way.ok_or(DropReason::Fragment)?
            }
            fragment => {
                if let Some(quoted) = layers.quoted(&bytes) {
                    return self.error(packet, &datagram, &quoted, input, now_ns, ctx);
                }
                if fragment == Fragment::First {
                    // Its later ones will be asked for by it.
                    ctx.key(packet);
                }
                self.way(&bytes, &datagram, layers, (input, is_outer), now_ns, ctx)?
            }
        };
        self.write(packet, &datagram.headers, way, ctx.shared())
    }

    /// Which way a packet with both ends goes. `is_outer`: it is sent to an outer address.
    fn way<B: Bytes>(
        &self,
        bytes: &B,
        datagram: &Datagram,
        layers: &Layers,
        (input, is_outer): (u8, bool),
        now_ns: u64,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let proto = datagram.headers.proto;
        let known = matches!(proto, proto::TCP | proto::UDP | proto::ICMP);
        if known && !layers.has_l4() {
            // The checksum may be in a later fragment, where nobody could correct it.
            return Err(DropReason::Truncated);
        }
        let (mut from, to) = datagram.ends(bytes, layers).ok_or(DropReason::NoPort)?;
        let flags = layers.tcp_flags(bytes).unwrap_or(0);
        let has_data = layers.payload < layers.end;
        let sent = Sent { proto, peer: to, flags, has_data, now_ns };
        let mut way = Way { output: INSIDE, ..Way::default() };
        let mut is_here = is_outer;
        if input == INSIDE {
            if is_outer && self.inner_of(ctx, proto, to, now_ns).is_none() {
                is_here = false;
                if !self.ports.is_elsewhere(to, from) {
                    // To an outer end that nobody has: no reason to give the sender one.
                    return Err(DropReason::NoMapping);
                }
            }
            let start = || {
                let key = FlowKey::from_packet(bytes, layers);
                key.map_or(0, |(key, _)| self.hasher.hash(&key))
            };
            from = match self.outbound(ctx, from, &sent, start) {
                Ok(outer) => outer,
                Err(why) => {
                    ctx.shared().over_quota += u64::from(why == NoRoom::Quota);
                    return Err(DropReason::NoPort);
                }
            };
            way.source = Some(from);
            way.output = OUTSIDE;
        }
        if is_here {
            let sent = Sent { peer: from, ..sent };
            let inner = self.inbound(ctx, to, &sent);
            way.destination = Some(inner.ok_or(DropReason::NoMapping)?);
            way.output = INSIDE;
        }
        Ok(way)
    }

    /// Which way a later fragment goes, of a datagram with these ends: that of its first, if that was let through.
    fn later_way(
        &self,
        proto: u8,
        mut from: End,
        to: End,
        (input, is_outer): (u8, bool),
        now_ns: u64,
        ctx: &mut Ctx<'_, Self>,
    ) -> Option<Way> {
        let mut way = Way { output: INSIDE, ..Way::default() };
        let mut is_here = is_outer;
        if input == INSIDE {
            let inner = from;
            from = self.outer_of(ctx, proto, inner, now_ns)?;
            (way.source, way.output) = (Some(from), OUTSIDE);
            if is_outer && self.inner_of(ctx, proto, to, now_ns).is_none() {
                is_here = false;
                self.ports.is_elsewhere(to, inner).then_some(())?;
            }
        }
        if is_here {
            let inner = self.inner_of(ctx, proto, to, now_ns)?;
            ctx.looked_up().filter(|mapping| mapping.lets_in(from, self.filtering))?;
            (way.destination, way.output) = (Some(inner), INSIDE);
        }
        Some(way)
    }

    /// Writes what the way says.
    fn write(
        &self,
        packet: &mut Pkt<'_, ReadWrite>,
        headers: &Headers,
        way: Way,
        shared: &mut Translated,
    ) -> Result<u8, DropReason> {
        self.write_ends(packet, headers, way)?;
        match (way.source, way.destination) {
            (Some(_), Some(_)) => shared.hairpinned += 1,
            (Some(_), None) => shared.out += 1,
            _ => shared.back += 1,
        }
        Ok(way.output)
    }

    /// The ends alone; gives what was written for either.
    fn write_ends(
        &self,
        packet: &mut Pkt<'_, ReadWrite>,
        headers: &Headers,
        way: Way,
    ) -> Result<[Written; 2], DropReason> {
        let mut write = |which, end: Option<End>| match end {
            Some((address, port)) => {
                rewrite(packet, headers, which, (address.into(), port)).ok_or(DropReason::Truncated)
            }
            None => Ok(Written::default()),
        };
        Ok([write(Which::Source, way.source)?, write(Which::Destination, way.destination)?])
    }

    /// An ICMP error: its quote is of a packet that was translated the other way (RFC 5508 §4).
    fn error(
        &self,
        packet: &mut Pkt<'_, ReadWrite>,
        datagram: &Datagram,
        quoted: &Layers,
        input: u8,
        now_ns: u64,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<u8, DropReason> {
        let bytes = packet.bytes();
        let quote = Datagram::read(&bytes, quoted).ok_or(DropReason::Truncated)?;
        let (from, to) = quote.ends(&bytes, quoted).ok_or(DropReason::NoMapping)?;
        let proto = quote.headers.proto;
        if datagram.destination != from.0 {
            // It goes to who sent what it quotes.
            return Err(DropReason::NoMapping);
        }
        // Of each packet the outer end that others see, and the inner host that has it: of what was quoted, and of the error itself.
        let (quoted, way) = if input == OUTSIDE {
            // Of what went out: it goes to who sent that.
            let inner = self.inner_of(ctx, proto, from, now_ns).ok_or(DropReason::NoMapping)?;
            let quoted = Way { source: Some(inner), ..Way::default() };
            (quoted, Way { destination: Some(inner), output: INSIDE, ..Way::default() })
        } else {
            let outer = self.outer_of(ctx, proto, to, now_ns).ok_or(DropReason::NoMapping)?;
            let quoted = Way { destination: Some(outer), ..Way::default() };
            let way = Way { source: Some(outer), output: OUTSIDE, ..Way::default() };
            let is_hairpinned = self.ports.has(datagram.destination);
            if is_hairpinned && proto == proto::ICMP {
                // A query between inner hosts has one identifier, so whose it was cannot be told.
                return Err(DropReason::NoMapping);
            }
            match is_hairpinned.then(|| self.inner_of(ctx, proto, from, now_ns)).flatten() {
                None if !is_hairpinned || self.ports.is_elsewhere(from, to) => (quoted, way),
                // Of what another inner host sent (REQ-7): to it, as if from outside.
                Some(inner) => {
                    let sender = ctx.looked_up();
                    sender
                        .filter(|own| own.lets_in(outer, self.filtering))
                        .ok_or(DropReason::NoMapping)?;
                    let quoted = Way { source: Some(inner), ..quoted };
                    (quoted, Way { destination: Some(inner), output: INSIDE, ..way })
                }
                None => return Err(DropReason::NoMapping),
            }
        };
        let written = self.write_ends(packet, &quote.headers, quoted)?;
        let outer = Headers { l4: None, ..datagram.headers };
        if let Some(l4) = datagram.headers.l4 {
            for written in &written {
                correct(packet, l4, outer.end, written);
            }
        }
        ctx.shared().errors += 1;
        self.write(packet, &outer, way, ctx.shared())
    }
}

impl Nf for Napt {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Napt",
        summary: "Translates inner IPv4 addresses and ports to a few outer addresses and back",
        inputs: &["inside", "outside"],
        outputs: &["inside", "outside"],
        layers: LAYERS,
        fields: FIELDS,
        may_drop: true,
        effect: Effect::Stateful,
        affinity: Affinity::Ends,
        cost_cycles: 200,
        flows: 1 << 20,
        // Each mapping says itself how long it may be idle; so exactly its end is noticed: a sixteenth of this.
        flow_idle_ns: 16 * SECOND,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = Config;
    type Flow = Mapping;
    type Shared = Translated;

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let block = config.ports.as_deref().unwrap_or(BLOCK);
        let ports = Ports::new(config.addresses, block, env.is_one_of_several())?;
        // "ports of" in ASCII, reversed: another hash than anybody else's of the same seed.
        let hasher = FlowHasher::new(u128::from(env.seed) | 0x666f_2073_7472_6f70 << 64);
        let ipv6 = config.ipv6.unwrap_or(Action::Pass);
        let quota = config.per_host.unwrap_or(u32::MAX);
        if quota == 0 {
            let why = "0 translates nothing; write 1 or more, or leave it out".to_owned();
            return Err(ConfigError { at: "/per_host".to_owned(), why });
        }
        Ok(Napt { ports, filtering: config.filtering, quota, ipv6, hasher })
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, ctx: &mut Ctx<'_, Self>) {
        let input = ctx.input();
        let side = if input == INSIDE { Side::Inside } else { Side::Outside };
        ctx.ready(packets.iter_mut().map(|packet| key_of_end(&packet, side)));
        for mut packet in packets.iter_mut() {
            let now = ctx.now(&packet);
            if let Some(output) = self.translate_plain(&mut packet, side, now, ctx) {
                packet.send(output);
                continue;
            }
            let layers = packet.layers(Depth::L4);
            let judged = match layers.kind {
                L3::Ipv4 => self.translate(&mut packet, &layers, input, now, ctx),
                L3::Ipv6 if self.ipv6 == Action::Drop => Err(DropReason::Filtered),
                _ => Ok(if input == INSIDE { OUTSIDE } else { INSIDE }),
            };
            match judged {
                Ok(output) => packet.send(output),
                Err(reason) => {
                    let shared = ctx.shared();
                    match reason {
                        DropReason::NoPort => shared.no_port += 1,
                        DropReason::NoMapping => shared.no_mapping += 1,
                        DropReason::Fragment => shared.fragments += 1,
                        _ => {}
                    }
                    packet.drop(reason);
                }
            }
        }
    }

    fn on_flow_end(&self, _key: &FlowKey, mapping: Mapping, shared: &mut Translated) {
        shared.hosts.remove(mapping.inner.0);
    }
}

/// The key of the end that counts of a packet that comes from a side, if it has one whose mapping can be there.
#[inline]
fn key_of_end(packet: &Pkt<'_, ReadWrite>, side: Side) -> Option<FlowKey> {
    let bytes = packet.bytes();
    let (proto, (from, to)) = match plain_v4(&bytes) {
        Some(plain) => (plain.proto(), ends_of_plain(&plain)),
        None => {
            let layers = packet.layers(Depth::L4);
            let datagram = Datagram::read(&bytes, &layers)?;
            (layers.proto, datagram.ends(&bytes, &layers)?)
        }
    };
    let (address, port) = if side == Side::Inside { from } else { to };
    Some(FlowKey::of_end(side, proto, address, port))
}

#[inline]
fn ends_of_plain(plain: &PlainV4) -> (End, End) {
    let PlainV4 { source, destination, ports: (from, to), .. } = *plain;
    ((Ipv4Addr::from_bits(source), from), (Ipv4Addr::from_bits(destination), to))
}

/// Protocol, source and destination of a packet with a key, as far as they are translated.
fn ends_of(key: &FlowKey, direction: Direction) -> Option<(u8, End, End)> {
    let end = |side| match key.end_at(direction, side)?.upper() {
        (IpAddr::V4(address), port) => Some((address, port)),
        (IpAddr::V6(_), _) => None,
    };
    Some((key.proto(), end(Side::Inside)?, end(Side::Outside)?))
}

weir_nf::register!(Napt);
