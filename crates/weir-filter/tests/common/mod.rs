//! Generated filters and packets, and the real libpcap to compare with.
#![allow(dead_code, reason = "each test uses its part")]

pub mod frames;

use pcap::{BpfProgram, Capture, Linktype};
use weir_filter::{Direction, Expr, Family, IpFamily, Mac, Net, Primitive, Protocol, Transport};

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
pub const V4: [&str; 5] = ["10.1.2.3", "10.1.2.4", "10.1.9.9", "10.200.0.1", "192.0.2.7"];
pub const V6: [&str; 4] = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1"];
pub const PORTS: [u16; 6] = [0, 53, 80, 443, 8080, 65535];
pub const MACS: [[u8; 6]; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6]];
pub const VLANS: [u16; 4] = [0, 5, 100, 4095];

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

/// A primitive; `kind` names it in the list of those that must be hit and missed.
pub fn primitive(r: &mut Random) -> Primitive {
    use Protocol::{Arp, Icmp, Icmp6, Ip, Ip6, Rarp, Sctp, Tcp, Udp};
    let direction = r.pick(&DIRECTIONS);
    match r.below(9) {
        0 | 1 => Primitive::Protocol(r.pick(&[Ip, Ip6, Arp, Rarp, Tcp, Udp, Sctp, Icmp, Icmp6])),
        2 => Primitive::Vlan { id: if r.one_in(2) { None } else { Some(r.pick(&VLANS)) } },
        3 | 4 => {
            let net = net(r);
            let families: &[Family] = if net.address().is_ipv4() {
                &[Family::Any, Family::Any, Family::Ip, Family::Arp, Family::Rarp]
            } else {
                &[Family::Any, Family::Ip6]
            };
            Primitive::Net { family: r.pick(families), direction, net }
        }
        5 | 6 => {
            let transport =
                r.pick(&[Transport::Any, Transport::Tcp, Transport::Udp, Transport::Sctp]);
            let (a, b) = (r.pick(&PORTS), r.pick(&PORTS));
            let (first, last) = if r.one_in(2) { (a, a) } else { (a.min(b), a.max(b)) };
            Primitive::Port { transport, direction, first, last }
        }
        7 => Primitive::Ether { direction, mac: Mac(r.pick(&MACS)) },
        _ if r.one_in(3) => Primitive::EtherProto(r.pick(&[0x0800, 0x86dd, 0x88cc, 0x8100])),
        _ => Primitive::IpProto {
            family: r.pick(&[IpFamily::Any, IpFamily::Ip, IpFamily::Ip6]),
            number: r.pick(&[0, 1, 6, 17, 44, 47, 58, 132]),
        },
    }
}

/// An expression of up to `depth` levels.
pub fn expression(r: &mut Random, depth: usize) -> Expr {
    if depth == 0 || r.one_in(3) {
        return primitive(r).into();
    }
    let n = 2 + r.below(2);
    match r.below(5) {
        0 => Expr::not(expression(r, depth - 1)),
        1 | 2 => Expr::and((0..n).map(|_| expression(r, depth - 1)).collect()),
        _ => Expr::or((0..n).map(|_| expression(r, depth - 1)).collect()),
    }
}

/// The name under which a primitive's hits and misses are counted: qualifiers make it another.
pub fn label(p: &Primitive) -> String {
    let direction = |d: &Direction| format!("{d:?}");
    match p {
        Primitive::Protocol(p) => format!("{p:?}"),
        Primitive::Vlan { id } => if id.is_some() { "vlan N" } else { "vlan" }.to_owned(),
        Primitive::Net { family, direction: d, net } => format!(
            "{family:?} {} {} {}",
            direction(d),
            if net.is_host() { "host" } else { "net" },
            if net.address().is_ipv4() { "v4" } else { "v6" }
        ),
        Primitive::Port { transport, direction: d, first, last } => {
            format!(
                "{transport:?} {} {}",
                direction(d),
                if first == last { "port" } else { "portrange" }
            )
        }
        Primitive::Ether { direction: d, .. } => format!("ether {}", direction(d)),
        Primitive::IpProto { family, .. } => format!("{family:?} proto"),
        Primitive::EtherProto(_) => "ether proto".to_owned(),
    }
}

/// A filter compiled by libpcap.
pub struct Libpcap {
    program: BpfProgram,
    /// Its instructions: code, jt, jf, k, as <pcap/bpf.h> defines them.
    code: Vec<[u32; 4]>,
}

/// What libpcap says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accept,
    Reject,
    /// It read bytes that the packet does not have, and rejected it for that.
    Cut,
}

impl Libpcap {
    /// libpcap's program for a filter text; `None` when its optimiser finds that nothing can match.
    pub fn compile(text: &str, optimize: bool) -> Option<Self> {
        let program = match Capture::dead(Linktype::ETHERNET).unwrap().compile(text, optimize) {
            Ok(program) => program,
            Err(e) if e.to_string().contains("expression rejects all packets") => return None,
            Err(e) => panic!("libpcap refuses `{text}`: {e}"),
        };
        // The crate shows an instruction only as text.
        let numbers = |i: &pcap::BpfInstruction| {
            let n: Vec<u32> = i.to_string().split(' ').map(|n| n.parse().unwrap()).collect();
            n.try_into().unwrap()
        };
        let code = program.get_instructions().iter().map(numbers).collect();
        Some(Self { program, code })
    }

    /// The verdict is libpcap's own; the steps are only followed to tell why it rejects.
    pub fn run(&self, packet: &[u8]) -> Outcome {
        let followed = self.follow(packet);
        let accepted = self.program.filter(packet);
        assert_eq!(
            accepted,
            followed == Outcome::Accept,
            "the test's stepper differs from libpcap"
        );
        followed
    }

    fn follow(&self, packet: &[u8]) -> Outcome {
        let load = |at: usize, len: usize| {
            Some(packet.get(at..at + len)?.iter().fold(0, |n, b| (n << 8) | u32::from(*b)))
        };
        let (mut a, mut x, mut pc, mut memory) = (0_u32, 0_u32, 0_usize, [0_u32; 16]);
        loop {
            let [code, jt, jf, k] = self.code[pc];
            pc += 1;
            let (at, from_x) = (k as usize, k.wrapping_add(x) as usize);
            let loaded = match code {
                0x20 => load(at, 4),
                0x28 => load(at, 2),
                0x30 => load(at, 1),
                0x40 => load(from_x, 4),
                0x48 => load(from_x, 2),
                0x50 => load(from_x, 1),
                0xb1 => load(at, 1).map(|b| {
                    x = 4 * (b & 0xf);
                    a
                }),
                0x00 => Some(k),
                0x60 => Some(memory[at]),
                0x54 => Some(a & k),
                0x0c => Some(a.wrapping_add(x)),
                0x87 => Some(x),
                0x01 | 0x07 | 0x61 | 0x02 | 0x03 | 0x05 => {
                    match code {
                        0x01 => x = k,
                        0x07 => x = a,
                        0x61 => x = memory[at],
                        0x02 => memory[at] = a,
                        0x03 => memory[at] = x,
                        _ => pc += at,
                    }
                    Some(a)
                }
                0x15 | 0x25 | 0x35 | 0x45 => {
                    let holds = match code {
                        0x15 => a == k,
                        0x25 => a > k,
                        0x35 => a >= k,
                        _ => a & k != 0,
                    };
                    pc += if holds { jt } else { jf } as usize;
                    Some(a)
                }
                0x06 => {
                    return if k == 0 { Outcome::Reject } else { Outcome::Accept };
                }
                code => panic!("instruction {code:#x} is not one that these filters compile to"),
            };
            match loaded {
                Some(value) => a = value,
                None => return Outcome::Cut,
            }
        }
    }
}
