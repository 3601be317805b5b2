//! Generated filters and packets, and the real libpcap to compare with.
#![allow(dead_code, reason = "each test uses its part")]

pub mod frames;
pub mod libpcap;

use weir_filter::{
    AnyTest, Arith, Compare, Direction, Expr, Family, Filter, Group, Header, IpFamily, LlcKind,
    Mac, Net, Network, Operator, Primitive, Protocol, Relation, Size, Transport,
};

/// A small generator of numbers (SplitMix64): the same seed gives the same run everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Few values, so that filters and packets meet often.
pub const V4: [&str; 6] =
    ["10.1.2.3", "10.1.2.4", "10.1.9.9", "10.200.0.1", "192.0.2.7", "224.0.0.5"];
pub const V6: [&str; 5] = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1", "ff02::5"];
pub const PORTS: [u16; 6] = [0, 53, 80, 443, 8080, 65535];
pub const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];
pub const VLANS: [u16; 4] = [0, 5, 100, 4095];

pub const LABELS: [u32; 4] = [0, 5, 1024, 0xf_ffff];
pub const SESSIONS: [u16; 3] = [0, 7, 0xffff];
pub const DECNET: [u16; 3] = [10 << 10 | 15, 1 << 10 | 2, 63 << 10 | 1023];
pub const TOS: [u8; 3] = [0, 1, 0xb8];

pub const PROTOCOLS: [Protocol; 37] = {
    use Protocol as P;
    [
        P::Ip,
        P::Ip6,
        P::Arp,
        P::Rarp,
        P::Tcp,
        P::Udp,
        P::Sctp,
        P::Icmp,
        P::Icmp6,
        P::Igmp,
        P::Igrp,
        P::Pim,
        P::Vrrp,
        P::Carp,
        P::Ah,
        P::Esp,
        P::Atalk,
        P::Aarp,
        P::Decnet,
        P::Lat,
        P::Sca,
        P::Moprc,
        P::Mopdl,
        P::Iso,
        P::Esis,
        P::Clnp,
        P::Isis,
        P::IsisLevel1,
        P::IsisLevel2,
        P::IsisHello,
        P::IsisLinkState,
        P::IsisSequence,
        P::IsisComplete,
        P::IsisPartial,
        P::Stp,
        P::Ipx,
        P::Netbeui,
    ]
};

pub const LLC: [LlcKind; 14] = {
    use LlcKind as K;
    [
        K::I,
        K::S,
        K::U,
        K::Rr,
        K::Rnr,
        K::Rej,
        K::Ui,
        K::Ua,
        K::Disc,
        K::Dm,
        K::Sabme,
        K::Test,
        K::Xid,
        K::Frmr,
    ]
};

pub const DIRECTIONS: [Direction; 4] =
    [Direction::Either, Direction::Src, Direction::Dst, Direction::Both];

pub fn net(r: &mut Random) -> Net {
    let (address, lens): (std::net::IpAddr, &[u8]) = if r.one_in(3) {
        (r.pick(&V6).parse().unwrap(), &[0, 10, 32, 33, 48, 64, 127, 128, 128])
    } else {
        (r.pick(&V4).parse().unwrap(), &[0, 1, 8, 16, 20, 24, 31, 32, 32])
    };
    match Net::new(address, r.pick(lens)) {
        Ok(net) => net,
        Err(weir_filter::NetError::HostBits { network }) => network,
        Err(e) => panic!("{e}"),
    }
}

/// A primitive of libpcap's.
pub fn primitive(r: &mut Random) -> Primitive {
    let direction = r.pick(&DIRECTIONS);
    match r.below(28) {
        0..=3 => Primitive::Protocol(r.pick(&PROTOCOLS)),
        4 => Primitive::Vlan { id: if r.one_in(2) { None } else { Some(r.pick(&VLANS)) } },
        5..=7 => {
            let net = net(r);
            let families: &[Family] = if net.address().is_ipv4() {
                &[Family::Any, Family::Any, Family::Ip, Family::Arp, Family::Rarp]
            } else {
                &[Family::Any, Family::Ip6]
            };
            Primitive::Net { family: r.pick(families), direction, net }
        }
        8..=10 => {
            let transport =
                r.pick(&[Transport::Any, Transport::Tcp, Transport::Udp, Transport::Sctp]);
            let (a, b) = (r.pick(&PORTS), r.pick(&PORTS));
            let (first, last) = if r.one_in(2) { (a, a) } else { (a.min(b), a.max(b)) };
            Primitive::Port { transport, direction, first, last }
        }
        11 => Primitive::Ether { direction, mac: Mac(r.pick(&MACS)) },
        12 => Primitive::EtherProto(r.pick(&[
            0x0800, 0x86dd, 0x88cc, 0x8100, 0x8137, 0x809b, 0x80f3, 0x0600, 0x9000, 0x42, 0xe0,
            0xf0, 0xfe, 0x06, 0xaa, 0, 1500,
        ])),
        13 => Primitive::IpProto {
            family: r.pick(&[IpFamily::Any, IpFamily::Ip, IpFamily::Ip6]),
            number: r.pick(&[0, 1, 6, 17, 44, 47, 58, 132]),
        },
        14 => Primitive::Chain {
            family: r.pick(&[IpFamily::Any, IpFamily::Ip, IpFamily::Ip6]),
            number: r.pick(&[0, 6, 17, 44, 51, 58, 60]),
        },
        15 => {
            let labelled = r.one_in(2);
            Primitive::Mpls { label: labelled.then(|| r.pick(&LABELS)) }
        }
        16 if r.one_in(4) => Primitive::Pppoed,
        16 => {
            let numbered = r.one_in(2);
            Primitive::Pppoes { session: numbered.then(|| r.pick(&SESSIONS)) }
        }
        17 => Primitive::Decnet { direction, address: r.pick(&DECNET) },
        18 => match r.below(6) {
            0 => Primitive::IsoProto(r.pick(&[0x81, 0x83])),
            1 => Primitive::IsisProto(r.pick(&[15, 18])),
            2 => Primitive::Broadcast,
            3 => Primitive::Multicast(Group::Ether),
            4 => Primitive::Multicast(Group::Ip),
            _ => Primitive::Multicast(Group::Ip6),
        },
        19 => Primitive::Llc(if r.one_in(6) { None } else { Some(r.pick(&LLC)) }),
        _ => Primitive::Relation(relation(r)),
    }
}

/// A comparison, of simple numbers more often than not.
fn relation(r: &mut Random) -> Relation {
    use Compare as C;
    let compare = r.pick(&[
        C::Equal,
        C::Equal,
        C::NotEqual,
        C::Less,
        C::LessOrEqual,
        C::Greater,
        C::GreaterOrEqual,
    ]);
    let depth = r.pick(&[0, 0, 0, 1, 2, 3]);
    let left = if r.one_in(3) {
        let mask = Box::new(Arith::Number(r.pick(&[1, 2, 0x0f, 0xf0, 0x1fff])));
        Arith::Binary { operator: Operator::And, left: Box::new(load(r, 0)), right: mask }
    } else {
        arith(r, depth)
    };
    if let Arith::Load { header: Header::Protocol(p), .. } = left
        && !matches!(p, Protocol::Ip | Protocol::Ip6 | Protocol::Tcp | Protocol::Udp)
    {
        // Their packets are rare: what is asked of them must hold more often than not.
        let compare = r.pick(&[C::NotEqual, C::LessOrEqual, C::GreaterOrEqual, C::GreaterOrEqual]);
        return Relation { left, compare, right: Arith::Number(r.pick(&[0, 1, 100])) };
    }
    let right = if r.one_in(4) { arith(r, depth) } else { Arith::Number(constant(r)) };
    Relation { left, compare, right }
}

fn constant(r: &mut Random) -> u32 {
    r.pick(&[0, 0, 1, 2, 4, 5, 6, 13, 17, 60, 64, 80, 100, 255, 0x1fff, 0xffff, u32::MAX])
}

fn arith(r: &mut Random, depth: usize) -> Arith {
    if depth == 0 {
        return match r.below(5) {
            0 => Arith::Len,
            1 => Arith::Number(constant(r)),
            _ => load(r, depth),
        };
    }
    if r.one_in(6) {
        return Arith::Negate(Box::new(arith(r, depth - 1)));
    }
    if r.one_in(3) {
        return load(r, depth);
    }
    use Operator as O;
    let operator = r.pick(&[
        O::Add,
        O::Subtract,
        O::Multiply,
        O::Divide,
        O::Modulo,
        O::And,
        O::Or,
        O::Xor,
        O::ShiftLeft,
        O::ShiftRight,
    ]);
    let right = match (operator, arith(r, depth - 1)) {
        // Refused by either, as no packet could save it.
        (O::Divide | O::Modulo, Arith::Number(0)) => Arith::Number(3),
        (O::ShiftLeft | O::ShiftRight, Arith::Number(32..)) => Arith::Number(31),
        (_, right) => right,
    };
    Arith::Binary { operator, left: Box::new(arith(r, depth - 1)), right: Box::new(right) }
}

fn load(r: &mut Random, depth: usize) -> Arith {
    use Protocol as P;
    let header = if r.one_in(6) {
        Header::Ether
    } else {
        let of = r.pick(&[
            P::Ip,
            P::Ip,
            P::Ip6,
            P::Ip6,
            P::Tcp,
            P::Tcp,
            P::Udp,
            P::Sctp,
            P::Icmp,
            P::Icmp6,
            P::Arp,
            P::Rarp,
            P::Igmp,
            P::Igrp,
            P::Pim,
            P::Vrrp,
            P::Carp,
            P::Atalk,
            P::Decnet,
            P::Lat,
            P::Sca,
            P::Moprc,
            P::Mopdl,
        ]);
        Header::of(of).unwrap()
    };
    let at = if depth > 0 && r.one_in(2) {
        arith(r, depth - 1)
    } else {
        Arith::Number(r.pick(&[0, 1, 2, 6, 8, 9, 12, 13, 16, 20, 40]))
    };
    Arith::Load {
        header,
        at: Box::new(at),
        size: r.pick(&[Size::One, Size::One, Size::Two, Size::Four]),
    }
}

/// What only Weir has.
pub fn extension(r: &mut Random) -> Primitive {
    match r.below(6) {
        0 => Primitive::Tos(r.pick(&TOS)),
        4 => Primitive::Any(AnyTest::Network(r.pick(&[
            Network::Ip,
            Network::Ip6,
            Network::Arp,
            Network::Rarp,
        ]))),
        5 => {
            let (direction, net) = (r.pick(&DIRECTIONS), net(r));
            let family = match net.address() {
                std::net::IpAddr::V4(_) => {
                    r.pick(&[Family::Any, Family::Ip, Family::Arp, Family::Rarp])
                }
                std::net::IpAddr::V6(_) => r.pick(&[Family::Any, Family::Ip6]),
            };
            Primitive::Any(AnyTest::Net { family, direction, net })
        }
        1 => Primitive::Any(AnyTest::Protocol(r.pick(&[1, 6, 17, 50, 58, 132]))),
        _ => {
            let transport =
                r.pick(&[Transport::Any, Transport::Tcp, Transport::Udp, Transport::Sctp]);
            let (direction, port) = (r.pick(&DIRECTIONS), r.pick(&PORTS));
            let last = if r.one_in(2) { port } else { u16::MAX };
            Primitive::Any(AnyTest::Port { transport, direction, first: port, last })
        }
    }
}

/// An expression of up to `depth` levels, of libpcap's primitives. Some stand where they cannot.
pub fn expression(r: &mut Random, depth: usize) -> Expr {
    build(r, depth, &|r| primitive(r).into())
}

/// One in which each primitive may stand where it does.
pub fn sound(r: &mut Random, depth: usize) -> Expr {
    loop {
        let expr = expression(r, depth);
        if Filter::compile(&expr).is_ok() {
            return expr;
        }
    }
}

/// The same with Weir's extensions.
pub fn extended(r: &mut Random, depth: usize) -> Expr {
    loop {
        let expr = build(r, depth, &|r| {
            if r.one_in(3) { extension(r).into() } else { primitive(r).into() }
        });
        if Filter::compile(&expr).is_ok() {
            return expr;
        }
    }
}

fn build(r: &mut Random, depth: usize, leaf: &dyn Fn(&mut Random) -> Expr) -> Expr {
    if depth == 0 || r.one_in(3) {
        return leaf(r);
    }
    let n = 2 + r.below(2);
    match r.below(5) {
        0 => Expr::not(build(r, depth - 1, leaf)),
        1 | 2 => Expr::and((0..n).map(|_| build(r, depth - 1, leaf)).collect()),
        _ => Expr::or((0..n).map(|_| build(r, depth - 1, leaf)).collect()),
    }
}

/// The name under which a primitive's hits and misses are counted: qualifiers make it another.
pub fn label(p: &Primitive) -> String {
    let numbered = |is: bool, name: &str| if is { format!("{name} N") } else { name.to_owned() };
    match p {
        Primitive::Vlan { id } => numbered(id.is_some(), "vlan"),
        Primitive::Mpls { label } => numbered(label.is_some(), "mpls"),
        Primitive::Pppoes { session } => numbered(session.is_some(), "pppoes"),
        Primitive::Net { family, direction: d, net } => format!(
            "{family:?} {d:?} {} {}",
            if net.is_host() { "host" } else { "net" },
            if net.address().is_ipv4() { "v4" } else { "v6" }
        ),
        Primitive::Port { transport, direction: d, first, last } => {
            format!("{transport:?} {d:?} {}", if first == last { "port" } else { "portrange" })
        }
        Primitive::Ether { direction: d, .. } => format!("ether {d:?}"),
        Primitive::Decnet { direction: d, .. } => format!("decnet {d:?}"),
        Primitive::IpProto { family, .. } => format!("{family:?} proto"),
        Primitive::Chain { family, .. } => format!("{family:?} protochain"),
        Primitive::EtherProto(_) => "ether proto".to_owned(),
        Primitive::IsoProto(_) => "iso proto".to_owned(),
        Primitive::IsisProto(_) => "isis proto".to_owned(),
        Primitive::Relation(Relation { left, compare, right }) => {
            let kind = |n: &Arith| match n {
                Arith::Number(_) => "number".to_owned(),
                Arith::Len => "len".to_owned(),
                Arith::Load { header, .. } => format!("{header:?}"),
                Arith::Negate(_) => "-".to_owned(),
                Arith::Binary { operator, .. } => operator.symbol().to_owned(),
            };
            match (left, right) {
                // So many kinds that not each pair comes up often.
                (Arith::Load { .. }, Arith::Number(_)) => kind(left),
                (_, Arith::Number(_)) => format!("{} and a number", kind(left)),
                _ => format!("two numbers {compare:?}"),
            }
        }
        other => other.to_string(),
    }
}
