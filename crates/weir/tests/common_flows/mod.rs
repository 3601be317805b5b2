//! What the chaos of flows is let loose on: every NF that remembers something, alone and in chains, and made-up connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_oracle::random::Choices;
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::path::Path;
use weir_capture::{Format, LinkType, Precision, Record, TimeFormat, Timestamp, Writer};
use weir_oracle::Input;
use weir_packet::headers::tcp;
use weir_packet::wire::Frame;

/// NFs whose memory is looked at, and how a graph with them can be changed without that changing what they do.
pub struct Subject {
    pub name: &'static str,
    /// Between `front` and `wan`; `@` stands where something slow may be behind it.
    declared: &'static str,
    links: &'static str,
    /// The NFs that are compared.
    pub nfs: &'static [&'static str],
    /// Options under which what a worker of these NFs loses is lost to all of them, so that it is as if it had never come.
    pub options: &'static [&'static str],
    /// Those of the run that nobody disturbs.
    pub undisturbed: &'static str,
    /// How flows are named that are to move.
    pub moves: Moves,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// They cannot.
    Never,
    /// By whole buckets only.
    Shares,
    /// Also one by one.
    Flows,
}

/// How packets divide over instances of one NF, or none.
macro_rules! divided {
    ($nf:literal) => {
        &[
            "--isolate none",
            "--isolate each",
            concat!("--isolate each\n--instances ", $nf, "=2"),
            concat!("--isolate each\n--instances ", $nf, "=3"),
            concat!("--isolate each\n--instances ", $nf, "=3"),
            concat!("--isolate each\n--instances ", $nf, "=2:1"),
        ]
    };
}

const ALONE: &[&str] = &["--isolate none", "--isolate each"];
const FUSED: &[&str] = &["--isolate none"];

pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: "FlowMonitor",
        declared: "FlowMonitor mon { top: 100 };",
        links: "front -> mon @-> wan;",
        nfs: &["mon"],
        options: divided!("mon"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "ConnTrack",
        declared: "ConnTrack fw { default: \"pass\" };",
        links: "front -> fw @-> wan;",
        nfs: &["fw"],
        options: divided!("fw"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "HttpParser",
        declared: "HttpParser http;",
        links: "front -> http @-> wan;",
        nfs: &["http"],
        options: divided!("http"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "LoadBalancer",
        declared: "LoadBalancer lb;",
        links: "front -> lb;  lb [lb.b0] -> wan;  lb [lb.b1] @-> wan;  lb [lb.other] -> Drop;",
        // A template: the NF that remembers is its second.
        nfs: &["lb/spread"],
        options: divided!("lb/spread"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "FlowMonitor, ConnTrack, HttpParser",
        declared: "FlowMonitor mon { top: 100 };  ConnTrack fw { default: \"pass\" };  HttpParser http;",
        links: "front -> mon -> fw -> http @-> wan;",
        nfs: &["mon", "fw", "http"],
        options: &[
            "--isolate none",
            "--isolate each\n--instances mon+fw+http=2",
            "--isolate each\n--instances mon+fw+http=3",
            "--isolate each\n--instances mon+fw+http=1:2",
        ],
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "Napt",
        declared: "Napt nat { addresses: [\"198.51.100.1\", \"198.51.100.2\"] };",
        links: "front -> [inside] nat;  nat [nat.outside] @-> wan;  nat [nat.inside] -> Drop;",
        nfs: &["nat"],
        // One alone takes any port, several those of their leases.
        options: &[
            "--isolate each\n--instances nat=2",
            "--isolate each\n--instances nat=3",
            "--isolate each\n--instances nat=1:3",
        ],
        undisturbed: "--isolate each\n--instances nat=2",
        moves: Moves::Shares,
    },
    Subject {
        name: "ConnTrack, Napt",
        declared: "ConnTrack fw { default: \"pass\" };
            Napt nat { addresses: [\"198.51.100.1\"] };",
        links: "front -> fw -> [inside] nat;  nat [nat.outside] @-> wan;  nat [nat.inside] -> Drop;",
        nfs: &["fw", "nat"],
        options: FUSED,
        undisturbed: "--isolate none",
        moves: Moves::Never,
    },
    Subject {
        name: "L4LoadBalancer",
        declared: "L4LoadBalancer lb { services: [ { address: \"203.0.113.80\", port: 80, backends: [
            { address: \"10.80.0.1\", port: 80 }, { address: \"10.80.0.2\", port: 80, weight: 2 } ] } ] };",
        links: "front [dst host 203.0.113.80] -> [clients] lb;  front [!(dst host 203.0.113.80)] -> [servers] lb;
            lb [lb.servers] @-> wan;  lb [lb.clients] -> wan;  lb [lb.unavailable] -> Drop;",
        nfs: &["lb"],
        options: divided!("lb"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "Policer",
        declared: "Policer limit { flow: { rate: 200000, burst: 4000 }, total: { rate: 3000000, burst: 60000 } };",
        links: "front -> limit @-> wan;",
        nfs: &["limit"],
        options: ALONE,
        undisturbed: "--isolate none",
        moves: Moves::Never,
    },
    Subject {
        name: "Policer of flows",
        declared: "Policer limit { flow: { rate: 200000, burst: 4000 } };",
        links: "front -> limit @-> wan;",
        nfs: &["limit"],
        options: divided!("limit"),
        undisturbed: "--isolate none",
        moves: Moves::Flows,
    },
    Subject {
        name: "counters",
        declared: "PacketSizeHistogram sizes;  CountSubnet nets;  CountUrl urls;  ValidateUrl valid;",
        links: "front -> sizes -> nets -> urls -> valid @-> wan;",
        nfs: &["sizes", "nets", "urls", "valid"],
        options: FUSED,
        undisturbed: "--isolate none",
        moves: Moves::Never,
    },
];

/// Where packets are slow: a worker in front can be killed, what it loses has come to nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    Front(u64),
    Behind(u64),
}

impl Slow {
    /// The same graph, in no time.
    pub fn quick(self) -> Self {
        match self {
            Slow::Front(_) => Slow::Front(1),
            Slow::Behind(_) => Slow::Behind(1),
        }
    }
}

impl Subject {
    /// The policy; `more`: with another NF in front, which changes nothing.
    pub fn policy(&self, slow: Slow, more: bool) -> String {
        let front = match slow {
            Slow::Front(cycles) => format!("Busy front {{ cycles: {cycles} }};"),
            Slow::Behind(_) => "MacSwap front;".to_owned(),
        };
        let (slow, links) = match slow {
            Slow::Behind(cycles) => {
                let links = self.links.replace("@-> wan", "-> slow");
                (format!("Busy slow {{ cycles: {cycles} }};"), links + "  slow -> wan;")
            }
            Slow::Front(_) => (String::new(), self.links.replace('@', "")),
        };
        let (also, way) = match more {
            true => ("PacketSizeHistogram also;", "lan -> also -> front;"),
            false => ("", "lan -> front;"),
        };
        let declared = self.declared;
        format!(
            "Port<0> lan;  Port<1> wan;  default drop;
{also}  {front}  {declared}  {slow}
pipelet {{ {way}  {links} }}"
        )
    }
}

/// So many packets of connections that begin and end meanwhile, with requests and answers: TCP and UDP, IPv4 and IPv6, some segments cut in
/// two, some sent again.
pub fn connections(choices: &mut Choices, packets: usize) -> Vec<Input> {
    let mut open: Vec<VecDeque<Vec<u8>>> = Vec::new();
    let (mut all, mut ns, mut begun) = (Vec::with_capacity(packets), 1_700_000_000_000_000_000, 0);
    while all.len() < packets {
        if open.len() < 60 {
            open.push(connection(choices, begun));
            begun += 1;
        }
        let at = choices.below(open.len());
        let Some(bytes) = open[at].pop_front() else {
            open.swap_remove(at);
            continue;
        };
        ns += 1 + choices.below(400_000) as u64;
        all.push(input(bytes, ns));
    }
    all
}

fn input(bytes: Vec<u8>, ns: u64) -> Input {
    let wire_len = bytes.len() as u32;
    Input { port: 0, wire_len, bytes, time: at(ns), link: LinkType::ETHERNET }
}

fn at(ns: u64) -> Timestamp {
    let format = TimeFormat::PcapNanos;
    Timestamp { raw: format.at_ns(ns), format }
}

/// The same packets, over and over if they are fewer than `least`, each at a time of its own, by which it is known again.
pub fn told_apart(packets: Vec<Input>, least: usize, most: usize) -> Vec<Input> {
    const PAUSE: u64 = 1_000_000;
    let times = || packets.iter().map(|packet| packet.time.to_ns());
    // However far apart they say they are: what follows an hour's round comes later all the same.
    const HOUR: u64 = 3_600_000_000_000;
    let range = times().max().unwrap_or(0) - times().min().unwrap_or(0);
    let all = range.min(HOUR) + PAUSE;
    let again = least.div_ceil(packets.len().max(1)).max(1);
    let mut last = 0;
    let mut one = |(nth, packet): (u64, &Input)| {
        last = (packet.time.to_ns() + nth * all).max(last + 1);
        Input { time: at(last), ..packet.clone() }
    };
    let rounds = (0..again as u64).flat_map(|nth| packets.iter().map(move |packet| (nth, packet)));
    rounds.take(most).map(&mut one).collect()
}

pub fn write(path: &Path, packets: &[Input]) {
    let format = Format::Pcap { precision: Precision::Nanos, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    for Input { bytes, wire_len, time, .. } in packets {
        let link = LinkType::ETHERNET;
        let (wire_len, time) = (*wire_len, *time);
        let record = Record { bytes, wire_len, time, link, interface: 0, comment: None };
        writer.append(&record).unwrap();
    }
    writer.commit().unwrap();
}

const CLIENTS: usize = 40;
const SERVICE: [u8; 4] = [203, 0, 113, 80];
const SERVERS: [[u8; 4]; 2] = [[10, 80, 0, 1], [10, 80, 0, 2]];

/// All packets of one connection.
fn connection(choices: &mut Choices, nth: usize) -> VecDeque<Vec<u8>> {
    let client = choices.below(CLIENTS) as u8;
    let (v4, v6) = ([10, 1, 0, client], Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, client.into()]));
    let port = 20_000 + (nth % 40_000) as u16;
    // What is for the service is answered by both servers, of which one has the connection: it knows the other's for nobody's.
    let to_service = choices.one_in(3);
    let frame = |up: bool, server: [u8; 4]| match (is_v6(nth) && !to_service, up) {
        (true, true) => Frame::ipv6(v6, SERVER6),
        (true, false) => Frame::ipv6(SERVER6, v6),
        (false, true) => Frame::ipv4(v4, if to_service { SERVICE } else { server }),
        (false, false) => Frame::ipv4(server, v4),
    };
    let plain = [192, 0, 2, 1 + choices.below(9) as u8];
    let answering: &[[u8; 4]] = if to_service { &SERVERS } else { &[plain] };
    let mut all = VecDeque::new();
    if choices.one_in(4) {
        for _ in 0..1 + choices.below(12) {
            let up = choices.below(2) == 0;
            let ports = if up { (port, 53) } else { (53, port) };
            let payload = vec![0x5a; choices.below(300)];
            all.push_back(frame(up, plain).udp(ports.0, ports.1).payload(&payload).build());
        }
        return all;
    }
    let mut next = [1000 + nth as u32 * 7, 900_000 + nth as u32 * 13];
    let mut say = |all: &mut VecDeque<Vec<u8>>, up: bool, flags: u8, payload: &[u8]| {
        let (own, other) = if up { (0, 1) } else { (1, 0) };
        let ports = if up { (port, 80) } else { (80, port) };
        let ack = if flags & tcp::ACK == 0 { 0 } else { next[other] };
        for server in if up { &answering[..1] } else { answering } {
            let frame = frame(up, *server).tcp(ports.0, ports.1, flags);
            all.push_back(frame.seq(next[own], ack).payload(payload).build());
        }
        let counted = u32::from(flags & (tcp::SYN | tcp::FIN) != 0);
        next[own] = next[own].wrapping_add(payload.len() as u32 + counted);
    };
    say(&mut all, true, tcp::SYN, &[]);
    say(&mut all, false, tcp::SYN | tcp::ACK, &[]);
    say(&mut all, true, tcp::ACK, &[]);
    for n in 0..1 + choices.below(6) {
        let request = format!("GET /{nth}/{n}?id=1 HTTP/1.1\r\nHost: www.example\r\n\r\n");
        let cut = choices.below(request.len());
        for part in [&request.as_bytes()[..cut], &request.as_bytes()[cut..]] {
            if !part.is_empty() {
                say(&mut all, true, tcp::ACK | tcp::PSH, part);
            }
        }
        let body = "x".repeat(choices.below(900));
        let status = choices.of(&[200, 200, 304, 404]);
        let answer = match choices.one_in(3) {
            false => format!("HTTP/1.1 {status} S\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            true => format!(
                "HTTP/1.1 200 S\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\ny{body}\r\n0\r\n\r\n",
                body.len() + 1
            ),
        };
        let cut = choices.below(answer.len());
        for part in [&answer.as_bytes()[..cut], &answer.as_bytes()[cut..]] {
            if !part.is_empty() {
                say(&mut all, false, tcp::ACK | tcp::PSH, part);
            }
            if choices.one_in(8)
                && let Some(last) = all.back().cloned()
            {
                // Sent again.
                all.push_back(last);
            }
            say(&mut all, true, tcp::ACK, &[]);
        }
    }
    match choices.below(4) {
        0 => say(&mut all, true, tcp::RST | tcp::ACK, &[]),
        1 => {}
        _ => {
            say(&mut all, true, tcp::FIN | tcp::ACK, &[]);
            say(&mut all, false, tcp::FIN | tcp::ACK, &[]);
            say(&mut all, true, tcp::ACK, &[]);
        }
    }
    all
}

const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1);

/// Every fifth is of IPv6.
fn is_v6(nth: usize) -> bool {
    nth.is_multiple_of(5)
}
