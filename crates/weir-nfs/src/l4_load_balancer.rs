//! Spreads connections to virtual addresses over servers.

mod health;
mod maglev;
mod pinned;
mod services;
mod way;

pub use health::{Balanced, Server};
pub use pinned::Pinned;
pub use services::{BackendSpec, Protocol, ServiceSpec, Standing};

use crate::rewrite::{FIELDS, LAYERS, Which};
use health::Fault;
use pinned::{SECOND, Stage, Target, UNANSWERED_NS};
use schemars::JsonSchema;
use serde::Deserialize;
use services::{MOST_SERVICES, Services};
use std::net::{IpAddr, SocketAddr};
use way::Way;
use weir_nf::flow::PortKind;
use weir_nf::headers::{proto, tcp};
use weir_nf::{
    Affinity, AliasError, ConfigError, Ctx, Depth, Descriptor, DropReason, Effect, Env, FlowHasher,
    FlowKey, FlowOf, Fragment, Layers, Nf, Packets, Pkt, ReadWrite,
};

/// Sends connections to virtual addresses to the servers behind them, by writing the server's address and port
/// (destination NAT), and writes the virtual ones into what comes back. IPv4 and IPv6, TCP and UDP.
///
/// A new connection's server is that of a consistent hash (Maglev), so few move when servers come or go, and none that
/// is known: the flow table keeps it where it is. *Inputs:* `clients`, `servers`. *Outputs:* `servers`; `clients`; `unavailable`, what is for
/// a service whose servers all drain or are down, as it came: for IcmpError, or for Drop. What is for no service passes.
/// *Drops:* `table-full`, `no-port` (the same client talks to the server from this port by another service),
/// `no-mapping` (late, from a server that the connection has left, or, of no known connection, from one of several services), `fragment` (its first did not come before it), `truncated`.
///
/// *Config:* `services`, each an `address`, `port`, `proto` and `backends` with `weight` and `state`: `up`; `drain`, no new connections,
/// those that are there go on; `down`, none. `failures` in a row (a SYN that is unanswered a second later, a reset in answer to
/// one, an ICMP unreachable), while nobody else is answered, take a server out for `cool_down` seconds, and then until a connection that is sent
/// there as a trial, one each second, is answered. When all are out it is as if none were. `failures: 0`: only the configuration says so.
///
/// ICMP errors are translated with what they quote, fragments by their first one. *Source:* Eisenbud et al., "Maglev: A Fast and
/// Reliable Software Network Load Balancer" (NSDI 2016), §3.4; RFC 5508 §4, RFC 5382 REQ-5, RFC 4787 REQ-5.
///
/// *Limits:* who sends SYNs that cannot be answered can take out servers that nobody else uses, while the others take their
/// connections. What a server sends from an end of a service comes from the service, so it is not reached there past it by its own
/// address. Unanswered flows hold one of 2^20 places for 30 seconds: a flood of 35,000 a second keeps new clients out.
/// Both directions must come through it, with the same VLAN tags. No full NAT: servers see the clients'
/// addresses, so their way back leads here. Errors that quote later fragments pass as they are. Of several instances, over which
/// clients divide, each finds out by itself which servers are well. MAC addresses stay.
#[derive(Debug)]
pub struct L4LoadBalancer {
    services: Services,
    hasher: FlowHasher,
    failures: u32,
    cool_down_ns: u64,
}

/// Failures in a row that take a server out, and seconds for which it is, unless told otherwise.
const FAILURES: u32 = 3;
const COOL_DOWN: u32 = 10;
/// The longest cool-down, in seconds: a day.
const MOST_COOL_DOWN: u32 = 86_400;

/// Configuration of [`L4LoadBalancer`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Virtual addresses and ports, at most 64.
    #[serde(default)]
    #[schemars(length(max = MOST_SERVICES))]
    pub services: Vec<ServiceSpec>,
    /// So many failures in a row take a server out; 0: none does.
    #[schemars(extend("default" = FAILURES))]
    pub failures: Option<u32>,
    /// For how many seconds.
    #[schemars(range(min = 1, max = MOST_COOL_DOWN), extend("default" = COOL_DOWN))]
    pub cool_down: Option<u32>,
}

const CLIENTS_IN: u8 = 0;
const SERVERS: u8 = 0;
const CLIENTS: u8 = 1;
const UNAVAILABLE: u8 = 2;
/// Servers that are tried for a new connection, when the client's port is in use with the first.
const TRIES: usize = 4;

impl L4LoadBalancer {
    fn packet_of_client(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        layers: &Layers,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let bytes = packet.bytes();
        let (_, to) = layers.ips(&bytes).ok_or(DropReason::Truncated)?;
        if !self.services.has_address(to) {
            return Ok(Way::Pass);
        }
        if layers.fragment() == Fragment::Later {
            return self.later(packet, true, ctx);
        }
        if let Some(quoted) = layers.quoted(&bytes) {
            return Ok(Self::error_of_client(packet, &quoted, to, ctx));
        }
        if layers.fragment() == Fragment::First {
            // Later ones ask for it, also when it is for no service.
            ctx.key(packet);
        }
        if !matches!(layers.proto, proto::TCP | proto::UDP) {
            return Ok(Way::Pass);
        }
        // The checksum may be in a later fragment, where nobody could correct it.
        let ports = layers.ports(&bytes).filter(|_| layers.has_l4());
        let (_, port) = ports.ok_or(DropReason::Truncated)?;
        let to = SocketAddr::new(to, port);
        let Some(service) = self.services.find(layers.proto, to) else { return Ok(Way::Pass) };
        let flags = layers.tcp_flags(&bytes).unwrap_or(0);
        if let Some(server) = self.kept(packet, layers, flags, ctx) {
            return Ok(Way::Write(Which::Destination, server));
        }
        self.pin(packet, (service, to), flags, ctx)
    }

    /// The server that the packet's flow has, if it keeps it.
    fn kept(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        layers: &Layers,
        flags: u8,
        ctx: &mut Ctx<'_, Self>,
    ) -> Option<SocketAddr> {
        let (proto, now) = (layers.proto, ctx.now(packet));
        let (known, shared) = ctx.known_flow_and_shared(packet);
        let flow = known.map(|FlowOf { state, .. }| state)?;
        let target = flow.to?;
        let place = self.services.place_of(proto, target.service, target.server, target.place)?;
        let standing = self.services.standing(place)?;
        if standing == Standing::Down {
            return None;
        }
        let has = |flag: u8| flags & flag != 0;
        let opens = has(tcp::SYN) && !has(tcp::ACK | tcp::RST | tcp::FIN);
        let is_old = now.saturating_sub(flow.sent_ns) >= SECOND;
        // What its server has not answered may go to another; TCP only anew, datagrams not at once: they may be one message.
        let is_free = match flow.stage {
            Stage::Opening => opens || proto != proto::TCP && is_old,
            Stage::Closed => opens,
            Stage::Answered | Stage::Established => false,
        };
        if opens && flow.stage == Stage::Opening && flow.by_syn {
            // Asked again: TCP waits for a second or longer (RFC 6298 §2).
            if is_old {
                self.fail(shared, place, Fault::TimedOut, flow.sent_ns, now);
                flow.sent_ns = now;
            }
        }
        if is_free && !(standing == Standing::Up && shared.is_well(place, self.failures)) {
            return None;
        }
        if opens && flow.stage == Stage::Closed {
            *flow = Pinned { to: flow.to, by_syn: true, sent_ns: now, ..Pinned::default() };
        }
        if has(tcp::ACK) && !has(tcp::SYN) && flow.stage == Stage::Answered {
            flow.stage = Stage::Established;
        }
        if flow.stage == Stage::Established && proto != proto::TCP {
            flow.sent_ns = now;
        }
        flow.reopen(layers, flags);
        flow.close(flags, 1);
        let idle_ns = flow.idle_ns(proto);
        ctx.keep_flow(idle_ns);
        Some(target.server)
    }

    /// Gives the packet's flow a server.
    fn pin(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        (service, to): (usize, SocketAddr),
        flags: u8,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let now = ctx.now(packet);
        let (key, direction) = ctx.key(packet).ok_or(DropReason::Truncated)?;
        let [client, _] = key.ends(direction);
        let hash = self.hasher.hash(&key);
        let by_syn = flags & (tcp::SYN | tcp::ACK) == tcp::SYN;
        // What opens nothing would be no answer to whether the server is well.
        let may_try = by_syn || key.proto() != proto::TCP;
        // Servers that this client port talks to by another service.
        let mut taken = [usize::MAX; TRIES];
        for n in 0..TRIES {
            let shared = ctx.shared();
            let is_left = |place| !taken.contains(&place);
            let may = |place| {
                is_left(place) && shared.may_take(place, may_try, self.failures, now, key.proto())
            };
            let found = self.services.choose(service, hash, may);
            // If all are out, whoever says so, it is better to ask than not to: nobody can shut a service by its faults.
            let found = found.or_else(|| self.services.choose(service, hash, is_left));
            let Some((place, server)) = found else {
                if n > 0 {
                    return Err(DropReason::NoPort);
                }
                shared.unavailable += 1;
                return Ok(Way::Unavailable);
            };
            ctx.flow_of(packet).ok_or(DropReason::TableFull)?;
            let (ip, port) = (server.ip(), server.port());
            let answers =
                FlowKey::between(client, (ip, port), key.proto(), PortKind::Ports, key.zone());
            let answers = answers.ok_or(DropReason::NoPort)?;
            let mut named = ctx.alias(answers);
            if named == Err(AliasError::TooMany) {
                // It has left that many servers: it begins anew, without their keys.
                ctx.end_flow();
                ctx.flow_of(packet).ok_or(DropReason::TableFull)?;
                named = ctx.alias(answers);
            }
            match named {
                Ok(()) => {}
                Err(AliasError::Taken) => {
                    if let Some(one) = taken.get_mut(n) {
                        *one = place;
                    }
                    continue;
                }
                Err(AliasError::Full) => return Err(DropReason::TableFull),
                Err(_) => return Err(DropReason::NoPort),
            }
            let (known, shared) = ctx.known_flow_and_shared(packet);
            let Some(FlowOf { state, .. }) = known else { return Err(DropReason::TableFull) };
            let target = Target { service: to, server, place: place as u32 };
            *state = Pinned { to: Some(target), by_syn, sent_ns: now, ..Pinned::default() };
            let idle_ns = state.idle_ns(key.proto());
            shared.given(place);
            ctx.keep_flow(idle_ns);
            return Ok(Way::Write(Which::Destination, server));
        }
        Err(DropReason::NoPort)
    }

    fn packet_of_server(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        layers: &Layers,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let bytes = packet.bytes();
        let (from, _) = layers.ips(&bytes).ok_or(DropReason::Truncated)?;
        if layers.fragment() == Fragment::Later {
            return self.later(packet, false, ctx);
        }
        if let Some(quoted) = layers.quoted(&bytes) {
            return self.error_of_server(packet, &quoted, from, ctx);
        }
        let now = ctx.now(packet);
        let (known, shared) = ctx.known_flow_and_shared(packet);
        let ports = layers.ports(&bytes).filter(|_| layers.has_l4());
        let Some(FlowOf { state: flow, from_starter: false, .. }) = known else {
            return match ports {
                Some((port, _)) if known.is_none() => {
                    self.of_nobody(layers.proto, SocketAddr::new(from, port))
                }
                _ => Ok(Way::Pass),
            };
        };
        let Some(target) = flow.to else { return Ok(Way::Pass) };
        let (port, _) = ports.ok_or(DropReason::Truncated)?;
        if SocketAddr::new(from, port) != target.server {
            return Err(DropReason::NoMapping);
        }
        let proto = layers.proto;
        let flags = layers.tcp_flags(&bytes).unwrap_or(0);
        // Each answer of who takes datagrams says that he is well; a connection's later ones say nothing of new ones.
        if flow.stage == Stage::Opening || proto != proto::TCP {
            let place = self.services.place_of(proto, target.service, target.server, target.place);
            let refuses = flags & tcp::RST != 0;
            match place {
                Some(place) if refuses && flow.by_syn => {
                    self.fail(shared, place, Fault::Refused, flow.sent_ns, now);
                }
                Some(place) if !refuses => shared.answered(place, now),
                _ => {}
            }
            let is_tcp = proto == proto::TCP;
            flow.stage = if is_tcp { Stage::Answered } else { Stage::Established };
        }
        flow.reopen(layers, flags);
        flow.close(flags, 2);
        let idle_ns = flow.idle_ns(proto);
        ctx.keep_flow(idle_ns);
        Ok(Way::Write(Which::Source, target.service))
    }

    /// A fragment without ports: it goes where its first one went.
    fn later(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        from_client: bool,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let Some((key, direction)) = ctx.key(packet) else { return Err(DropReason::Truncated) };
        if key.port_kind() == PortKind::LaterFragment {
            let [(from, _), _] = key.ends(direction);
            // To a virtual address, or from a server, nobody knows what it is part of.
            let is_ours = from_client || self.services.has_server(from);
            return if is_ours { Err(DropReason::Fragment) } else { Ok(Way::Pass) };
        }
        match ctx.known_flow(packet) {
            Some(FlowOf { state: Pinned { to: Some(target), .. }, from_starter, .. })
                if from_starter == from_client =>
            {
                Ok(match from_client {
                    true => Way::Write(Which::Destination, target.server),
                    false => Way::Write(Which::Source, target.service),
                })
            }
            _ => {
                let [(from, port), (to, service)] = key.ends(direction);
                let is_ours = self.services.find(key.proto(), SocketAddr::new(to, service));
                match is_ours {
                    // Its first found no server, or no room.
                    Some(_) if from_client => Err(DropReason::Fragment),
                    None if from_client => Ok(Way::Pass),
                    _ => self.of_nobody(key.proto(), SocketAddr::new(from, port)),
                }
            }
        }
    }

    /// What comes from `server`, and is of no connection that is known: after a crash without replication it may well be of one that
    /// goes on. With the server's own address the client's host would answer by a reset, and end it.
    fn of_nobody(&self, proto: u8, server: SocketAddr) -> Result<Way, DropReason> {
        match self.services.served_by(proto, server) {
            Some(Some(service)) => Ok(Way::Write(Which::Source, service)),
            Some(None) => Err(DropReason::NoMapping),
            None => Ok(Way::Pass),
        }
    }

    /// A server failed what was sent to it at `sent_ns`.
    fn fail(&self, shared: &mut Balanced, place: usize, fault: Fault, sent_ns: u64, now_ns: u64) {
        let out = (self.failures, self.cool_down_ns);
        shared.fail(place, fault, sent_ns, out, now_ns);
    }

    /// An error about what a server sent to a client: it goes to the server.
    fn error_of_client(
        packet: &Pkt<'_, ReadWrite>,
        quoted: &Layers,
        to: IpAddr,
        ctx: &mut Ctx<'_, Self>,
    ) -> Way {
        let Some(FlowOf { state: Pinned { to: Some(target), .. }, from_starter: true, .. }) =
            ctx.known_flow(packet)
        else {
            return Way::Pass;
        };
        if to != target.service.ip() {
            return Way::Pass;
        }
        let own = Some(target.server.ip());
        Way::Error { quoted: *quoted, which: Which::Source, end: target.server, own }
    }

    /// An error about what was sent to a server, from there or from somewhere on the way.
    fn error_of_server(
        &self,
        packet: &Pkt<'_, ReadWrite>,
        quoted: &Layers,
        from: IpAddr,
        ctx: &mut Ctx<'_, Self>,
    ) -> Result<Way, DropReason> {
        let bytes = packet.bytes();
        let layers = packet.layers(Depth::L4);
        let now = ctx.now(packet);
        let (known, shared) = ctx.known_flow_and_shared(packet);
        let Some(FlowOf { state: flow, from_starter: false, .. }) = known else {
            return Ok(Way::Pass);
        };
        let Some(target) = flow.to else { return Ok(Way::Pass) };
        let asked = quoted.ips(&bytes).zip(quoted.ports(&bytes));
        let asked = asked.map(|((_, ip), (_, port))| SocketAddr::new(ip, port));
        if asked != Some(target.server) {
            return Err(DropReason::NoMapping);
        }
        let is_unreachable = match layers.icmp_type_code(&bytes) {
            // Too long for a link is no failure of the server, nor that somebody may not talk to it.
            Some((3, code)) if layers.proto == proto::ICMP => !matches!(code, 4 | 9 | 10 | 13),
            Some((1, code)) if layers.proto == proto::ICMPV6 => !matches!(code, 1 | 5 | 6),
            _ => false,
        };
        if is_unreachable {
            let place =
                self.services.place_of(quoted.proto, target.service, target.server, target.place);
            if let Some(place) = place {
                self.fail(shared, place, Fault::Unreachable, flow.sent_ns, now);
            }
            if quoted.proto != proto::TCP {
                // It has no connection to lose: another server may take it, at once.
                (flow.stage, flow.sent_ns) = (Stage::Opening, 0);
            }
        }
        let own = (from == target.server.ip()).then_some(target.service.ip());
        let (which, end) = (Which::Destination, target.service);
        Ok(Way::Error { quoted: *quoted, which, end, own })
    }
}

impl Nf for L4LoadBalancer {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "L4LoadBalancer",
        summary: "Spreads connections to virtual addresses over servers (destination NAT)",
        inputs: &["clients", "servers"],
        outputs: &["servers", "clients", "unavailable"],
        layers: LAYERS,
        fields: FIELDS,
        may_drop: true,
        effect: Effect::Stateful,
        // Answers have other addresses than what they answer, but the same client.
        affinity: Affinity::Client,
        cost_cycles: 200,
        flows: 1 << 20,
        flow_idle_ns: UNANSWERED_NS,
        ..Descriptor::BASE
    };
    type Access = ReadWrite;
    type Config = Config;
    type Flow = Pinned;
    type Shared = Balanced;

    fn build(config: Config, env: &Env) -> Result<Self, ConfigError> {
        let services = Services::new(&config.services)?;
        let cool_down = config.cool_down.unwrap_or(COOL_DOWN);
        if cool_down == 0 || cool_down > MOST_COOL_DOWN {
            let why = format!("{cool_down} seconds; write 1 to {MOST_COOL_DOWN}");
            return Err(ConfigError { at: "/cool_down".to_owned(), why });
        }
        // "servers:" in ASCII, reversed: another hash than anybody else's of the same seed.
        let hasher = FlowHasher::new(u128::from(env.seed) | 0x3a73_7265_7672_6573 << 64);
        let failures = config.failures.unwrap_or(FAILURES);
        Ok(L4LoadBalancer {
            services,
            hasher,
            failures,
            cool_down_ns: u64::from(cool_down) * SECOND,
        })
    }

    fn process(&self, packets: &mut Packets<'_, ReadWrite>, ctx: &mut Ctx<'_, Self>) {
        let is_from_clients = ctx.input() == CLIENTS_IN;
        let straight = if is_from_clients { SERVERS } else { CLIENTS };
        ctx.shared().follow(&self.services);
        for mut packet in packets.iter_mut() {
            // Time goes on with every packet, also those that have no flow.
            ctx.now(&packet);
            let layers = packet.layers(Depth::L4);
            let way = match is_from_clients {
                _ if !layers.is_ip() => Ok(Way::Pass),
                true => self.packet_of_client(&packet, &layers, ctx),
                false => self.packet_of_server(&packet, &layers, ctx),
            };
            let written = way.and_then(|way| {
                way.write(&mut packet, &layers, straight, ctx.shared()).ok_or(DropReason::Truncated)
            });
            match written {
                Ok(output) => packet.send(output),
                Err(reason) => packet.drop(reason),
            }
        }
    }
}

weir_nf::register!(L4LoadBalancer);
