//! HttpParser, ConnTrack and FlowMonitor take most packets a short way. It does what the long one does: the same verdicts, tags and
//! counters, and the same is remembered.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{Env, Nf, TagPlace, TagSpec};
use weir_nfs::conn_track::ConnTrack;
use weir_nfs::conn_track::segment::Segment;
use weir_nfs::conn_track::tcp::{Connection, Step};
use weir_nfs::flow_monitor::FlowMonitor;
use weir_nfs::http_parser::HttpParser;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const CONNECTIONS: usize = 3;

const ASKED: &[u8] = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /\
    HEAD /c HTTP/1.1\r\n\r\nPUT /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n";
const ANSWERED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 304 No\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n";

/// What happens next.
#[derive(Debug, Clone)]
enum Event {
    /// One side of a connection sends something.
    Segment { connection: usize, up: bool, what: What, flags: u8, window: u16, looks: Looks },
    /// A datagram between the same ends.
    Datagram { connection: usize, up: bool, len: usize },
    /// All that is remembered goes to a new worker, as bytes.
    Moves,
}

/// Of a side's stream.
#[derive(Debug, Clone)]
enum What {
    Nothing,
    /// The next bytes.
    Next(usize),
    /// Bytes behind those, which wait to be sent.
    Early {
        gap: usize,
        len: usize,
    },
    /// What was left out longest ago.
    Missing,
    /// The last bytes again.
    Again(usize),
}

/// How the packet is besides.
#[derive(Debug, Clone, Copy)]
enum Looks {
    Whole,
    /// Short frames have bytes behind the datagram.
    Padded,
    /// The capture has cut it off, in TCP's header or behind it.
    Cut(usize),
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => Just(What::Nothing),
        6 => (1_usize..60).prop_map(What::Next),
        2 => (1_usize..40, 1_usize..40).prop_map(|(gap, len)| What::Early { gap, len }),
        2 => Just(What::Missing),
        1 => (1_usize..50).prop_map(What::Again),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![
        1 => Just(SYN),
        1 => Just(SYN | ACK),
        12 => Just(ACK),
        1 => Just(FIN | ACK),
        1 => select(vec![RST, RST | ACK]),
        1 => any::<u8>(),
    ];
    let looks = prop_oneof![
        8 => Just(Looks::Whole),
        2 => Just(Looks::Padded),
        1 => (1_usize..=20).prop_map(Looks::Cut),
    ];
    let windows = select(vec![0_u16, 50, 1000, 65535]);
    let ends = (0..CONNECTIONS, any::<bool>());
    prop_oneof![
        16 => (ends.clone(), what(), flags, windows, looks).prop_map(
            |((connection, up), what, flags, window, looks)| {
                Event::Segment { connection, up, what, flags, window, looks }
            }
        ),
        1 => (ends, 0_usize..40)
            .prop_map(|((connection, up), len)| Event::Datagram { connection, up, len }),
        1 => Just(Event::Moves),
    ]
}

/// Connections that are opened as they should be, and all that may happen to them then.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let opens = |connection| {
        let says = |up, flags| {
            let (what, window, looks) = (What::Nothing, 1000, Looks::Whole);
            Event::Segment { connection, up, what, flags, window, looks }
        };
        [says(true, SYN), says(false, SYN | ACK), says(true, ACK)]
    };
    let opened = prop::collection::vec(any::<bool>(), CONNECTIONS);
    (opened, prop::collection::vec(event(), 1..80)).prop_map(move |(opened, events)| {
        let opened = opened.into_iter().enumerate().filter(|(_, opened)| *opened);
        opened.flat_map(|(at, _)| opens(at)).chain(events).collect()
    })
}

/// A side's stream: where it is, and what was left out.
#[derive(Default, Clone)]
struct Sent {
    at: usize,
    missing: Vec<(usize, usize)>,
}

impl Sent {
    /// Where what is sent now begins, and how long it is.
    fn send(&mut self, what: &What) -> (usize, usize) {
        let at = self.at;
        match *what {
            What::Nothing => (at, 0),
            What::Next(len) => {
                self.at += len;
                (at, len)
            }
            What::Early { gap, len } => {
                self.missing.push((at, gap));
                self.at += gap + len;
                (at + gap, len)
            }
            What::Missing if self.missing.is_empty() => (at, 0),
            What::Missing => self.missing.remove(0),
            What::Again(len) => (at - len.min(at), len.min(at)),
        }
    }
}

/// Packets of connections, each as one that may go the short way and as one that may not, which says the same with options in its header.
#[derive(Default)]
struct Wire {
    sent: [[Sent; 2]; CONNECTIONS],
}

impl Wire {
    fn frame(connection: usize, up: bool) -> Frame<'static> {
        let (client, server) = ([192, 0, 2, 10 + connection as u8], [198, 51, 100, 1]);
        if up { Frame::ipv4(client, server) } else { Frame::ipv4(server, client) }
    }

    fn both(frame: Frame<'_>, looks: Looks) -> [Vec<u8>; 2] {
        [frame, frame.options(&[1; 4])].map(|frame| {
            let mut bytes = frame.build();
            match looks {
                Looks::Whole => {}
                Looks::Padded => bytes.extend([0xee; 9]),
                Looks::Cut(len) => bytes.truncate(bytes.len() - len),
            }
            bytes
        })
    }

    fn packet(&mut self, event: &Event) -> Option<[Vec<u8>; 2]> {
        match *event {
            Event::Moves => None,
            Event::Datagram { connection, up, len } => {
                let ports = if up { (5000, 80) } else { (80, 5000) };
                let frame = Self::frame(connection, up).udp(ports.0, ports.1);
                Some(Self::both(frame.payload(&vec![b'u'; len]), Looks::Whole))
            }
            Event::Segment { connection, up, ref what, flags, window, looks } => {
                let [own, other] = if up { [0, 1] } else { [1, 0] };
                let (begin, len) = self.sent[connection][own].send(what);
                let stream = if up { ASKED } else { ANSWERED };
                let payload: Vec<u8> =
                    stream.iter().cycle().skip(begin).take(len).copied().collect();
                let first = |side: usize| [1000_u32, 0xffff_ff00][side];
                // Of a SYN the number is that before the stream's first byte.
                let seq =
                    first(own).wrapping_add(begin as u32).wrapping_sub(u32::from(flags & SYN != 0));
                let ack = first(other).wrapping_add(self.sent[connection][other].at as u32);
                let ports = if up { (5000, 80) } else { (80, 5000) };
                let frame = Self::frame(connection, up).tcp(ports.0, ports.1, flags);
                let mut packets = Self::both(frame.seq(seq, ack).payload(&payload), looks);
                for (packet, at) in packets.iter_mut().zip([48, 52]) {
                    // Nothing, if the capture has cut that off too.
                    let place = packet.get_mut(at..at + 2);
                    place
                        .into_iter()
                        .for_each(|place| place.copy_from_slice(&window.to_be_bytes()));
                }
                Some(packets)
            }
        }
    }
}

/// A bench that has been given what another had.
fn successor<N: Nf>(bench: &mut Bench, config: &Value, env: &Env) -> Bench {
    let mut next = Bench::with_env::<N>(config.clone(), env).unwrap();
    next.restore(&bench.save()).unwrap();
    next.instance().restore_flows(&remembered(bench)).unwrap();
    next
}

fn remembered(bench: &mut Bench) -> Vec<u8> {
    let mut flows = Vec::new();
    bench.instance().save_flows(&mut flows).unwrap();
    flows
}

/// Fails unless both ways are the same, by batches of so many packets.
fn both_ways_are_the_same<N: Nf>(
    events: &[Event],
    batch: usize,
    config: Value,
    env: &Env,
) -> Result<(), TestCaseError> {
    let mut benches = [(); 2].map(|()| Bench::with_env::<N>(config.clone(), env).unwrap());
    let (mut wire, mut time) = (Wire::default(), 1_700_000_000_000_000_000);
    for events in events.chunks(batch) {
        let packets: Vec<_> = events.iter().filter_map(|event| wire.packet(event)).collect();
        let seen = [0, 1].map(|way| {
            // On the wire both are as long: they say the same.
            let times = (time..).step_by(1_000_000);
            let cut = packets.iter().zip(times);
            let cut: Vec<_> = cut.map(|(p, time)| (&p[way][..], p[0].len() + 100, time)).collect();
            let seen = benches[way].run_cut(&cut);
            assert!(seen.iter().zip(&packets).all(|(seen, packet)| seen.bytes == packet[way]));
            seen.into_iter().map(|seen| (seen.verdict, seen.tags)).collect::<Vec<_>>()
        });
        time += packets.len() as u64 * 1_000_000;
        prop_assert_eq!(&seen[0], &seen[1]);
        prop_assert_eq!(benches[0].report(), benches[1].report());
        let [short, long] = &mut benches;
        prop_assert_eq!(remembered(short), remembered(long));
        prop_assert_eq!(short.save(), long.save());
        if events.iter().any(|event| matches!(event, Event::Moves)) {
            benches.iter_mut().for_each(|bench| *bench = successor::<N>(bench, &config, env));
        }
    }
    Ok(())
}

fn text(name: &str, patterns: &[&str]) -> TagSpec {
    let patterns = patterns.iter().map(|p| (*p).to_owned()).collect();
    TagSpec { name: name.to_owned(), place: TagPlace::Text { slot: 0, bit: 0, patterns } }
}

fn number(name: &str, slot: u8) -> TagSpec {
    TagSpec { name: name.to_owned(), place: TagPlace::Number { slot } }
}

fn segment() -> impl Strategy<Value = (usize, Segment)> {
    let flags = prop_oneof![
        6 => Just(ACK),
        1 => Just(SYN),
        1 => Just(SYN | ACK),
        1 => Just(FIN | ACK),
        1 => Just(RST | ACK),
        1 => any::<u8>(),
    ];
    let windows = select(vec![0_u16, 1, 100, 65535]);
    (0_usize..2, 0_u32..300, 0_u32..300, windows, flags, 0_u32..100, prop::option::of(0_u8..15))
        .prop_map(|(from, seq, ack, window, flags, len, scale)| {
            let scale = scale.filter(|_| flags & SYN != 0);
            // Around the place where numbers begin anew.
            let near = |at: u32| at.wrapping_sub(100);
            (from, Segment { seq: near(seq), ack: near(ack), window, flags, len, scale })
        })
}

#[test]
fn a_segment_that_goes_on_keeps_its_connection_for_two_hours_and_four_minutes_more() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut bench = Bench::new::<ConnTrack>(json!({})).unwrap();
    let mut wire = Wire::default();
    let mut passes = |up, flags, what, hour: u64| {
        let (window, looks) = (1000, Looks::Whole);
        let segment = Event::Segment { connection: 0, up, what, flags, window, looks };
        let [plain, _] = wire.packet(&segment).unwrap();
        bench.run_cut(&[(&plain, plain.len(), HOUR * (1 + hour))])[0].verdict.is_ok()
    };
    assert!(passes(true, SYN, What::Nothing, 0));
    assert!(passes(false, SYN | ACK, What::Nothing, 0));
    for hour in [0, 2, 4, 6] {
        assert!(passes(true, ACK, What::Next(10), hour), "{hour} hours");
    }
    assert!(!passes(true, ACK, What::Next(10), 9));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn http_parser_follows_plain_packets_as_others(events in events(), batch in 1_usize..12) {
        let env = Env::new(&[text("method", &["^GET$", "^POST$"]), number("status", 1)], 1).unwrap();
        both_ways_are_the_same::<HttpParser>(&events, batch, json!(null), &env)?;
    }

    #[test]
    fn conn_track_judges_plain_packets_as_others(
        events in events(),
        batch in 1_usize..12,
        pickup in any::<bool>(),
    ) {
        let env = Env::new(&[text("state", &["^new$", "^established$", "^closing$", "^invalid$"])], 1).unwrap();
        let config = json!({"pickup": pickup, "invalid": "pass"});
        both_ways_are_the_same::<ConnTrack>(&events, batch, config, &env)?;
    }

    #[test]
    fn flow_monitor_counts_plain_packets_as_others(events in events(), batch in 1_usize..12) {
        let env = Env::new(&[number("packets", 0), number("bytes", 1)], 1).unwrap();
        both_ways_are_the_same::<FlowMonitor>(&events, batch, json!({"top": 2}), &env)?;
    }

    /// What ConnTrack asks first of nearly every segment.
    #[test]
    fn a_segment_that_goes_on_does_what_any_step_does_and_others_do_nothing(
        picked_up in any::<bool>(),
        segments in prop::collection::vec(segment(), 1..40),
    ) {
        let mut connection: Option<Connection> = None;
        for (from, segment) in segments {
            let Some(before) = connection else {
                let begin = if picked_up { Connection::pick_up } else { Connection::open };
                connection = begin(&segment).ok();
                continue;
            };
            let (mut short, mut long) = (before, before);
            let goes_on = short.goes_on(from, &segment);
            let step = long.step(from, &segment);
            if goes_on {
                prop_assert_eq!(step, Ok(Step::Belongs));
                prop_assert_eq!(short, long);
                prop_assert_eq!(long.phase(), before.phase());
            } else {
                prop_assert_eq!(short, before);
            }
            connection = Some(long);
        }
    }
}
