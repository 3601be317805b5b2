//! Which services there are, and who serves them.

use super::maglev::{PLACES, table};
use crate::load_balancer::mixed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use weir_nf::ConfigError;
use weir_nf::headers::proto;

/// Transport protocol of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Protocol::Tcp => proto::TCP,
            Protocol::Udp => proto::UDP,
        }
    }
}

/// What the operator says of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It takes connections.
    #[default]
    Up,
    /// It keeps those that it has.
    Drain,
    /// It has none.
    Down,
}

/// A virtual address and port, and who serves it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// The address that clients send to, IPv4 or IPv6.
    pub address: IpAddr,
    /// The port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// `tcp` unless told otherwise.
    #[serde(default)]
    pub proto: Protocol,
    /// Servers, at most 512.
    #[schemars(length(min = 1, max = MOST_SERVERS))]
    pub backends: Vec<BackendSpec>,
}

/// A server of a service.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendSpec {
    /// Its address, of the service's family.
    pub address: IpAddr,
    /// Its port; the service's unless told otherwise.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Its share of connections beside the others', 1 to 100; 1 unless told otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = MOST_WEIGHT))]
    pub weight: Option<u16>,
    /// `up`, `drain` or `down`; `up` unless told otherwise.
    #[serde(default)]
    pub state: Standing,
}

/// Most services, servers of one, and weight.
pub(super) const MOST_SERVICES: usize = 64;
const MOST_SERVERS: usize = 512;
const MOST_WEIGHT: u16 = 100;
/// Places that are tried for a connection before all servers are asked in turn.
const PLACES_TRIED: usize = 8;

/// A server of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) proto: Protocol,
    pub(super) service: SocketAddr,
    pub(super) server: SocketAddr,
    standing: Standing,
}

#[derive(Debug)]
struct Service {
    proto: u8,
    end: SocketAddr,
    /// Its servers' places in the list of all.
    first: usize,
    count: usize,
    /// Which of them it is, by hash.
    table: Vec<u16>,
}

/// All services, compiled.
#[derive(Debug)]
pub(super) struct Services {
    services: Vec<Service>,
    entries: Vec<Entry>,
    /// In order.
    addresses: Vec<IpAddr>,
    servers: Vec<IpAddr>,
    /// Ends of servers, in order, each with its service; with none when it is of several.
    ends: Vec<(u8, SocketAddr, Option<SocketAddr>)>,
    /// Of who serves what: another after every change.
    pub(super) print: u64,
}

impl Services {
    /// Reads the configuration's `services`.
    pub(super) fn new(specs: &[ServiceSpec]) -> Result<Self, ConfigError> {
        let wrong = |at: String, why: String| Err(ConfigError { at, why });
        if specs.len() > MOST_SERVICES {
            let why = format!("{} services; at most {MOST_SERVICES}", specs.len());
            return wrong("/services".to_owned(), why);
        }
        let (mut services, mut entries): (Vec<Service>, Vec<Entry>) = (Vec::new(), Vec::new());
        for (i, spec) in specs.iter().enumerate() {
            let at = format!("/services/{i}");
            let end = checked(spec.address, spec.port, &at)?;
            let number = spec.proto.number();
            if services.iter().any(|other| (other.proto, other.end) == (number, end)) {
                return wrong(at, format!("{end} is there twice; write all its servers once"));
            }
            if spec.backends.is_empty() || spec.backends.len() > MOST_SERVERS {
                let why = format!("{} servers; write 1 to {MOST_SERVERS}", spec.backends.len());
                return wrong(format!("{at}/backends"), why);
            }
            let (first, mut weighted) = (entries.len(), Vec::new());
            for (n, backend) in spec.backends.iter().enumerate() {
                let at = format!("{at}/backends/{n}");
                let server = checked(backend.address, backend.port.unwrap_or(spec.port), &at)?;
                if server.is_ipv4() != end.is_ipv4() {
                    let why = format!("{server} is of another family than {end}");
                    return wrong(format!("{at}/address"), why);
                }
                if server == end {
                    return wrong(at, format!("{server} is the service itself"));
                }
                if weighted.iter().any(|(other, _)| *other == server) {
                    return wrong(at, format!("{server} is there twice; give it a weight"));
                }
                let weight = backend.weight.unwrap_or(1);
                if weight == 0 || weight > MOST_WEIGHT {
                    let why = format!("{weight}; write 1 to {MOST_WEIGHT}, or `state: \"drain\"`");
                    return wrong(format!("{at}/weight"), why);
                }
                weighted.push((server, weight));
                let standing = backend.state;
                entries.push(Entry { proto: spec.proto, service: end, server, standing });
            }
            let (table, count) = (table(&weighted), weighted.len());
            services.push(Service { proto: number, end, first, count, table });
        }
        let sorted = |mut list: Vec<IpAddr>| {
            list.sort_unstable();
            list.dedup();
            list
        };
        let addresses = sorted(services.iter().map(|s| s.end.ip()).collect());
        let servers = sorted(entries.iter().map(|entry| entry.server.ip()).collect());
        let mut ends: Vec<_> =
            entries.iter().map(|e| (e.proto.number(), e.server, Some(e.service))).collect();
        ends.sort_unstable();
        ends.dedup_by(|next, first| {
            let is_same = (next.0, next.1) == (first.0, first.1);
            if is_same {
                first.2 = None;
            }
            is_same
        });
        let print = entries.iter().fold(1, |print, entry| mixed(print ^ entry.print()));
        Ok(Services { services, entries, addresses, servers, ends, print })
    }

    /// True for the address of a service.
    #[inline]
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    /// True for the address of a server.
    #[inline]
    pub(super) fn has_server(&self, address: IpAddr) -> bool {
        self.servers.binary_search(&address).is_ok()
    }

    /// The service that `server` serves; `Some(None)` when there are several.
    #[inline]
    pub(super) fn served_by(&self, proto: u8, server: SocketAddr) -> Option<Option<SocketAddr>> {
        let at = self.ends.binary_search_by_key(&(proto, server), |end| (end.0, end.1)).ok()?;
        self.ends.get(at).map(|end| end.2)
    }

    /// The service that clients reach at `end`.
    #[inline]
    pub(super) fn find(&self, proto: u8, end: SocketAddr) -> Option<usize> {
        self.services.iter().position(|service| service.end == end && service.proto == proto)
    }

    /// The place of a service's server in the list of all; `hint` is where it was.
    #[inline]
    pub(super) fn place_of(
        &self,
        proto: u8,
        service: SocketAddr,
        server: SocketAddr,
        hint: u32,
    ) -> Option<usize> {
        let is_it =
            |e: &Entry| e.server == server && e.service == service && e.proto.number() == proto;
        let hint = hint as usize;
        if self.entries.get(hint).is_some_and(is_it) {
            return Some(hint);
        }
        self.entries.iter().position(is_it)
    }

    /// What the operator says of the server at `place`.
    #[inline]
    pub(super) fn standing(&self, place: usize) -> Option<Standing> {
        self.entries.get(place).map(|entry| entry.standing)
    }

    /// All servers.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A server for a new connection, its place and itself: by the table, and, where that says one that takes none, by further
    /// hashes. So the connections of a server that is out go to all others, and nobody else's move.
    pub(super) fn choose(
        &self,
        service: usize,
        mut hash: u64,
        mut may: impl FnMut(usize) -> bool,
    ) -> Option<(usize, SocketAddr)> {
        let Service { first, count, table, .. } = self.services.get(service)?;
        let mut takes = |at: usize| {
            let entry = self.entries.get(at)?;
            (entry.standing == Standing::Up && may(at)).then_some((at, entry.server))
        };
        for _ in 0..PLACES_TRIED {
            let number = *table.get((hash % PLACES) as usize)?;
            if let Some(found) = takes(first + usize::from(number)) {
                return Some(found);
            }
            hash = mixed(hash);
        }
        let from = (hash % *count as u64) as usize;
        (0..*count).find_map(|n| takes(first + (from + n) % count))
    }
}

impl Entry {
    fn print(&self) -> u64 {
        let bits = |end: SocketAddr| match end.ip() {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 16 | u128::from(end.port()),
            IpAddr::V6(ip) => ip.to_bits() ^ u128::from(end.port()),
        };
        let words = [self.service, self.server].map(bits);
        let all = words.into_iter().fold(u64::from(self.proto.number()), |print, word| {
            mixed(mixed(print ^ word as u64) ^ (word >> 64) as u64)
        });
        mixed(all)
    }
}

/// An address and port that a host can have.
fn checked(address: IpAddr, port: u16, at: &str) -> Result<SocketAddr, ConfigError> {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        let why = format!("{address}: no host has it");
        return Err(ConfigError { at: format!("{at}/address"), why });
    }
    if port == 0 {
        let why = "0: nobody listens there; write 1 to 65535".to_owned();
        return Err(ConfigError { at: format!("{at}/port"), why });
    }
    Ok(SocketAddr::new(address, port))
}
