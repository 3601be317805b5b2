//! What a µNF may do besides judging packets, on the test bench.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use weir_mem::replica::RECORD_BYTES;
use weir_nf::testing::Bench;
use weir_nf::{
    Bytes, Cause, ConfigError, Ctx, Descriptor, DropReason, Effect, Env, Held, MOST_TIMERS, Merge,
    Nf, NoConfig, Packets, Piece, ReadOnly,
};

/// What it remembers: handles, and the timers that came.
#[derive(Default, Serialize, Deserialize)]
struct Log {
    held: Vec<Held>,
    told: Vec<u64>,
}

impl Merge for Log {
    fn merge(&mut self, other: Self) {
        self.held.extend(other.held);
        self.told.extend(other.told);
    }
}

/// Does what the packet's first byte says.
struct Obedient;

impl Nf for Obedient {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "Obedient",
        outputs: &["out", "made"],
        may_drop: true,
        effect: Effect::Stateful,
        creates: 2,
        holds: 3,
        timers: true,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = NoConfig;
    type Flow = ();
    type Shared = Log;

    fn build(_: NoConfig, _: &Env) -> Result<Self, ConfigError> {
        Ok(Obedient)
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        for packet in packets.iter_mut() {
            let cause = ctx.cause(&packet);
            let arg = packet.bytes().u8(1).unwrap_or(0);
            match packet.bytes().u8(0) {
                Some(b'h') => match ctx.hold(packet) {
                    Ok(held) => ctx.shared().held.push(held),
                    Err(mut packet) => packet.drop(DropReason::RateLimit),
                },
                Some(b'r') => {
                    for held in std::mem::take(&mut ctx.shared().held) {
                        ctx.release(held, 1, &cause);
                    }
                }
                Some(b'd') => {
                    for held in std::mem::take(&mut ctx.shared().held) {
                        ctx.discard(held, DropReason::Filtered, &cause);
                    }
                }
                Some(b'a') => {
                    if let Some(mut made) = ctx.alloc(arg.into()) {
                        made.bytes_mut().unwrap().write(0, &[arg; 1]);
                        ctx.emit(made, 1, &cause);
                    }
                }
                // Makes one and thinks better of it.
                Some(b'n') => drop(ctx.alloc(60)),
                Some(b't') => assert!(ctx.timer(u64::from(arg), arg.into(), &cause)),
                _ => {}
            }
        }
    }

    fn on_timer(&self, token: u64, _: &Cause, ctx: &mut Ctx<'_, Self>) {
        ctx.shared().told.push(token);
    }
}

fn bench() -> Bench {
    Bench::new::<Obedient>(json!(null)).unwrap()
}

fn seen(bench: &mut Bench) -> Vec<(Result<&'static str, DropReason>, Vec<u8>)> {
    bench.made().into_iter().map(|s| (s.verdict, s.bytes)).collect()
}

fn verdicts(bench: &mut Bench, packets: &[&[u8]]) -> Vec<Result<&'static str, DropReason>> {
    bench.run(packets).into_iter().map(|s| s.verdict).collect()
}

const HELD: Result<&str, DropReason> = Ok("(held)");

#[test]
fn a_made_packet_is_as_long_as_asked_zero_and_leaves_by_its_output() {
    let mut bench = bench();
    bench.run(&[b"a\x05", b"a\x03"]);
    assert_eq!(seen(&mut bench), [(Ok("made"), vec![5, 0, 0, 0, 0]), (Ok("made"), vec![3, 0, 0])]);
}

#[test]
fn a_made_packet_that_is_not_sent_gives_its_buffer_back() {
    let mut bench = bench();
    bench.set_buffers(1);
    bench.run(&[b"n"; 10]);
    assert_eq!((bench.buffers(), seen(&mut bench)), (1, vec![]));
}

#[test]
fn without_buffers_nothing_is_made() {
    let mut bench = bench();
    bench.set_buffers(1);
    bench.run(&[b"a\x01"; 3]);
    assert_eq!(seen(&mut bench).len(), 1);
}

#[test]
fn held_packets_are_released_in_order_or_dropped_with_a_reason() {
    let mut bench = bench();
    assert_eq!(verdicts(&mut bench, &[b"h1", b"x1", b"h2"]), [HELD, Ok("out"), HELD]);
    assert_eq!((bench.held(), seen(&mut bench)), (2, vec![]));
    bench.run(&[b"r0"]);
    assert_eq!(seen(&mut bench), [(Ok("made"), b"h1".to_vec()), (Ok("made"), b"h2".to_vec())]);
    // In one batch, too.
    bench.run(&[b"h3", b"h4", b"d0", b"h5"]);
    let dropped = Err(DropReason::Filtered);
    assert_eq!(seen(&mut bench), [(dropped, b"h3".to_vec()), (dropped, b"h4".to_vec())]);
    assert_eq!(bench.held(), 1);
}

#[test]
fn no_more_are_held_than_declared_and_those_released_make_room_at_once() {
    let verdicts = verdicts(&mut bench(), &[b"h1", b"h2", b"h3", b"h4", b"r0", b"h5"]);
    assert_eq!(verdicts, [HELD, HELD, HELD, Err(DropReason::RateLimit), Ok("out"), HELD]);
}

#[test]
fn what_is_held_at_the_end_is_dropped_under_that_name() {
    let mut bench = bench();
    bench.run(&[b"h1", b"h2"]);
    bench.end();
    let at_end = Err(DropReason::HeldAtEnd);
    assert_eq!(seen(&mut bench), [(at_end, b"h1".to_vec()), (at_end, b"h2".to_vec())]);
    assert_eq!(bench.held(), 0);
}

#[test]
fn a_handle_of_an_earlier_life_releases_nothing() {
    let mut first = bench();
    first.run(&[b"h1", b"h2"]);
    let mut second = bench();
    second.restore(&first.save()).unwrap();
    second.run(&[b"h3", b"r0"]);
    assert_eq!(seen(&mut second), [(Ok("made"), b"h3".to_vec())]);
}

#[test]
fn timers_come_in_the_order_of_their_time_before_the_first_packet_that_is_not_earlier() {
    // Whatever batches the packets come in.
    for batch in [1, 2, 5, 64] {
        let mut bench = bench();
        let packets: [(&[u8], u64); 7] = [
            (b"t\x1e", 100), // due at 130
            (b"t\x0a", 105), // 115
            (b"x", 114),
            (b"x", 115),
            (b"t\x05", 125), // 130 too, set later
            (b"x", 129),
            (b"x", 1000),
        ];
        let mut told = Vec::new();
        for chunk in packets.chunks(batch) {
            let cut: Vec<_> = chunk.iter().map(|(b, t)| (*b, b.len(), *t)).collect();
            bench.run_cut(&cut);
            told.push(bench.report()["told"].as_array().unwrap().len());
        }
        assert_eq!(bench.report()["told"], json!([10, 30, 5]), "batches of {batch}");
        if batch == 1 {
            assert_eq!(told, [0, 0, 0, 1, 1, 1, 3]);
        }
    }
}

#[test]
fn while_no_packets_come_timers_go_by_the_wall_clock() {
    let mut bench = bench();
    bench.run_cut(&[(b"t\x64", 2, 1000)]);
    bench.tick(777_000);
    bench.tick(777_099);
    assert_eq!(bench.report()["told"], json!([]));
    bench.tick(777_100);
    assert_eq!(bench.report()["told"], json!([100]));
}

#[test]
fn the_end_does_not_wait_for_timers() {
    let mut bench = bench();
    bench.run_cut(&[(b"t\x64", 2, 1000)]);
    bench.end();
    assert_eq!(bench.report()["told"], json!([]));
}

/// Takes what has changed into a replica; how many pieces of timers that were.
fn replicate(bench: &mut Bench, replica: &mut BTreeMap<u32, Vec<u8>>, time: &mut Vec<u8>) -> usize {
    let mut given = 0;
    bench.instance().take_changes(&mut |piece| match piece {
        Piece::Time(piece) => *time = piece.to_vec(),
        Piece::Timers(at, piece) => {
            given += 1;
            replica.insert(at, piece.to_vec());
        }
        _ => {}
    });
    given
}

#[test]
fn timers_are_replicated_when_they_change_however_many_there_are_and_go_on_in_their_order() {
    let (mut live, mut replica, mut time) = (bench(), BTreeMap::new(), Vec::new());
    live.instance().follow(1, false);
    // All due at once: only the order in which they were set is between them.
    let many = MOST_TIMERS / 2 + 5;
    let packets: Vec<[u8; 2]> = (0..many).map(|i| [b't', 200 - (i * 50 / many) as u8]).collect();
    let timed = |p: &[u8; 2]| 1200 - u64::from(p[1]);
    let packets: Vec<_> = packets.iter().map(|p| (p.as_slice(), 2, timed(p))).collect();
    live.run_cut(&packets);
    assert_eq!(replicate(&mut live, &mut replica, &mut time), 2);
    assert_eq!(replicate(&mut live, &mut replica, &mut time), 0);
    assert!(replica.values().all(|piece| piece.len() <= RECORD_BYTES));

    let mut successor = bench();
    successor.instance().recover(Piece::Time(&time)).unwrap();
    for (at, piece) in &replica {
        successor.instance().recover(Piece::Timers(*at, piece)).unwrap();
    }
    for bench in [&mut live, &mut successor] {
        bench.tick(5_000);
        bench.tick(5_500);
    }
    assert_eq!(live.report()["told"].as_array().unwrap().len(), many);
    assert_eq!(successor.report()["told"], live.report()["told"]);
    // None is left, and the replica says so.
    assert_eq!(replicate(&mut live, &mut replica, &mut time), 2);
    assert!(replica.values().all(Vec::is_empty));
}
