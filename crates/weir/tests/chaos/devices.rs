//! All at once, for as long as one likes: workers are killed and stopped, the graph is changed, instances, stages and
//! trust domains come and go, more comes than there is room for. `WEIR_CHAOS_SECONDS` says for how long (each test; 600
//! is the long one), `WEIR_SEED` repeats a run's choices.
//!
//! A graph gets disturbed rounds, each a run of its own. Always: what comes out is what came in, unharmed, in order,
//! and what is missing was counted. At the end of a round, when the last disturbance is over, what comes out of
//! the same running graph is exactly what the oracle says (but of the round that is overloaded to its end).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use crate::common_chaos::*;
use crate::common_crash::{
    Choices, Finished, PATIENCE, Scratch, assert_in_order, read_capture, wait_until,
};
use crate::common_live::{Wires, skipped};
use crate::common_oracle::{demo_capture, has_ethernet, shared};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_oracle::Input;

/// How long the tests go on, each.
fn long() -> Duration {
    let seconds = std::env::var("WEIR_CHAOS_SECONDS").ok().map(|s| s.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(7))
}

/// Rounds until the time is over, each with choices of its own; its number and its seed are printed, and `WEIR_SEED` set to
/// the latter begins with it.
fn rounds(what: &str, mut round: impl FnMut(&mut Choices)) {
    let first = crate::common_oracle::random::seed();
    let start = Instant::now();
    for n in 0.. {
        let seed = first.wrapping_add(n);
        println!("{what}: round {n}, WEIR_SEED={seed}");
        round(&mut Choices(seed));
        if start.elapsed() > long() {
            return;
        }
    }
}

/// How long a round is disturbed.
const DISTURBED: Duration = Duration::from_secs(5);

/// A round on a capture. Where the machine is so slow that the input ends before the graph is quiet, nothing has been compared: then once more,
/// disturbed for a shorter time.
fn capture_round(name: &str, base: &[Input], choices: &mut Choices) {
    const TRIES: u32 = 4;
    for nth in 0..TRIES {
        let long = DISTURBED / (1 << nth);
        if is_as_the_oracle_says(name, base, long, choices) {
            return;
        }
        println!(
            "{name}: after {long:?} of it the input ended before all was over: nothing was compared"
        );
    }
    panic!(
        "{name}: {TRIES} rounds, each half as long as the one before, and in none anything was compared"
    );
}

/// Disturbs a graph on a capture, `base` over and over, for so long, and compares what comes of it then; false when the input ended before.
fn is_as_the_oracle_says(
    name: &str,
    base: &[Input],
    long: Duration,
    choices: &mut Choices,
) -> bool {
    let scratch = Scratch::new(&format!("chaos-{name}"));
    let (input, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    // Who works slowest takes 80 µs or more for each packet, so these last for six times as long as they are disturbed, if the file does
    // not get too large by that: the rest is for the last changes, in which mostly nothing moves.
    const LARGEST: usize = 256 << 20;
    let packets = DISTURBED.as_millis() as usize * 12 * 6;
    let bytes: usize = base.iter().map(|packet| 16 + packet.bytes.len()).sum();
    let times = packets.div_ceil(base.len()).min(LARGEST / bytes);
    write_over_and_over(&input, base, times);
    let rx = format!("pcap:rx={}", input.display());
    let tx = format!("pcap:tx={}", out.display());
    let mut chaos = Chaos::start(&scratch, &rx, &tx, choices);
    let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
    chaos.disturb(long, choices, &mut || size() > 0);
    chaos.assert_nothing_is_left_of_earlier_generations();
    // Of some captures a policy leaves nothing.
    let any = (0..1000).find_map(|_| {
        let last = Policy::random(choices);
        let expected = Expected::of(&last, base);
        (expected.len() > 0).then_some((last, expected))
    });
    let (last, expected) = any.expect("a policy that leaves something of the capture");
    let settled = chaos.settle(&last, choices);
    let quiet = size();
    let enough = quiet + expected.bytes() * 5 / 4;
    let (mut comes, is_over) = (false, || chaos.is_over());
    wait_until("what comes once more to leave", PATIENCE, || {
        comes = settled && size() > enough;
        comes || is_over()
    });
    let finished = chaos.end(name);
    let records = places_and_bytes(&out);
    assert_eq!(records.len() as u64, finished.number("/balance/out"), "{name}");
    let places: Vec<u64> = records.iter().map(|r| r.place).collect();
    assert_in_order(&places, name);
    for record in &records {
        let sent = &base[record.place as usize % base.len()].bytes;
        // Who swaps addresses comes and goes.
        assert_eq!(record.bytes[12..], sent[12..], "{name}: packet {} is harmed", record.place);
    }
    if !comes {
        return false;
    }
    // Nothing disturbs from here on.
    let quiet: Vec<_> = records.into_iter().filter(|r| r.at >= quiet).collect();
    assert!(quiet.len() > expected.len(), "{name}: {} packets at the end", quiet.len());
    expected.assert_is(&quiet, name);
    true
}

#[test]
fn numbered_packets_survive_chaos_and_are_as_the_oracle_says_afterwards() {
    let base: Vec<Input> = (0..3000).map(numbered).collect();
    rounds("numbered", |choices| capture_round("numbered", &base, choices));
}

#[test]
fn recorded_traffic_survives_chaos_and_is_as_the_oracle_says_afterwards() {
    // Few enough that all of a capture comes by once more within some seconds.
    const MOST: usize = 4000;
    let shared: Vec<PathBuf> = shared().into_iter().filter(|p| has_ethernet(p)).collect();
    let all = [vec![demo_capture()], shared].concat();
    rounds("recorded", |choices| {
        let path = &all[choices.below(all.len() as u64) as usize];
        let (mut packets, _) = weir_oracle::read_capture(path, 0).unwrap();
        packets.retain(|p| p.link.is_ethernet() && p.bytes.len() >= 14);
        packets.truncate(MOST);
        println!("{}: {} packets", path.display(), packets.len());
        if !packets.is_empty() {
            capture_round("recorded", &packets, choices);
        }
    });
}

#[test]
fn more_than_there_is_room_for_and_chaos_lose_no_more_than_is_counted() {
    rounds("overload", |choices| {
        let scratch = Scratch::new("chaos-overload");
        let out = scratch.file("out.pcap");
        // Several times what the slowest NF takes.
        let rx = format!("gen:size=64,flows={GENERATED},rate=40000,full=drop");
        let tx = format!("pcap:tx={}", out.display());
        let mut chaos = Chaos::start(&scratch, &rx, &tx, choices);
        let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
        chaos.disturb(DISTURBED, choices, &mut || size() > 0);
        chaos.assert_nothing_is_left_of_earlier_generations();
        assert!(chaos.settle(&Policy::random(choices), choices));
        let enough = size() + 1000 * 80;
        wait_until("packets to leave", PATIENCE, || size() > enough);
        let finished = chaos.end("overload");
        let places = unwrapped(&read_capture(&out, generated_flow));
        assert_in_order(&places, "overload");
        assert_eq!(places.len() as u64, finished.number("/balance/out"));
        assert!(places.last().is_none_or(|last| *last < finished.number("/balance/in")));
    });
}

/// Recorded packets as a wire carries them: whole, and no longer than its frames.
fn recorded_traffic() -> Vec<Input> {
    const MOST: usize = 1000;
    let (mut packets, _) = weir_oracle::read_capture(&demo_capture(), 0).unwrap();
    let whole = |p: &Input| p.bytes.len() == p.wire_len as usize && p.bytes.len() <= 1514;
    packets.retain(|p| p.link.is_ethernet() && p.bytes.len() >= 14 && whole(p));
    packets.truncate(MOST);
    assert!(!packets.is_empty());
    packets
}

/// Waits until a file has not grown for a while: what has come is through.
fn wait_until_still(size: impl Fn() -> u64) {
    let mut last = (size(), Instant::now());
    wait_until("what is under way to arrive", PATIENCE, || {
        if size() != last.0 {
            last = (size(), Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(2)
    });
}

#[test]
fn live_packets_survive_chaos_and_those_that_are_missing_were_counted() {
    if skipped("live_packets_survive_chaos") {
        return;
    }
    rounds("live", |choices| {
        let (scratch, wires) = (Scratch::new("chaos-live"), Wires::new());
        let before = Wires::dropped_between();
        let out = scratch.file("out.pcap");
        let recorded = format!("pcap:tx={}", out.display());
        let recorder = wires.end(&wires.recorder, &scratch, "afp:e1", &recorded);
        recorder.wait_for_workers(2);
        let weir = wires.weir.command("env");
        let mut chaos = Chaos::start_by(weir, &scratch, "afp:m0", "afp:m1", choices);
        // Sometimes more than the slowest NF takes, sometimes less.
        let rate = [2_000, 30_000][choices.below(2) as usize];
        let endless = format!("gen:size=64,flows={GENERATED},rate={rate}");
        let sender = wires.end(&wires.sender, &scratch, &endless, "afp:e0");
        let size = || std::fs::metadata(&out).map_or(0, |m| m.len());
        wait_until("packets to arrive", PATIENCE, || size() > 100 * 80);
        chaos.disturb(DISTURBED, choices, &mut || true);
        let last = Policy::random(choices);
        assert!(chaos.settle(&last, choices));
        let enough = size() + 500 * 80;
        wait_until("packets to arrive again", PATIENCE, || size() > enough);
        // From the sender on: who ends counts what has come by then.
        sender.signal(Signal::INT);
        let sent = sender.finish();
        Wires::wait_until_delivered();
        wait_until_still(size);
        // Nothing disturbs from here on, and there is room: these come as the oracle says.
        let base: Vec<Input> = (0..300).map(numbered).collect();
        let expected = Expected::of(&last, &base);
        let known = scratch.file("known.pcap");
        write_over_and_over(&known, &base, 1);
        let known = format!("pcap:rx={}", known.display());
        let also_sent = wires.end(&wires.sender, &scratch, &known, "afp:e0").finish();
        Wires::wait_until_delivered();
        wait_until_still(size);
        // And so does recorded traffic, whose packets have no numbers: it comes last.
        let before_recorded = read_capture(&out, |_| ()).len();
        let traffic = recorded_traffic();
        let as_recorded = Expected::of(&last, &traffic);
        let file = scratch.file("recorded.pcap");
        write_over_and_over(&file, &traffic, 1);
        let file = format!("pcap:rx={}", file.display());
        let recorded_sent = wires.end(&wires.sender, &scratch, &file, "afp:e0").finish();
        Wires::wait_until_delivered();
        wait_until_still(size);
        let finished = chaos.end("live");
        println!(
            "rx:lan {}, tx:wan {} times started again",
            finished.restarts()["rx:lan"],
            finished.restarts()["tx:wan"]
        );
        Wires::wait_until_delivered();
        recorder.signal(Signal::INT);
        let recorder = recorder.finish();
        let ends = [
            ("sender", &sent),
            ("sender of known packets", &also_sent),
            ("sender of recorded packets", &recorded_sent),
            ("recorder", &recorder),
        ];
        for (what, end) in ends {
            end.assert_sound(what);
        }
        let mut all = read_capture(&out, <[u8]>::to_vec);
        let replayed = all.split_off(before_recorded);
        let (known, generated): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|bytes| is_numbered(bytes));
        let flows: Vec<u64> = generated.iter().map(|bytes| generated_flow(bytes)).collect();
        let places = unwrapped(&flows);
        assert_in_order(&places, "live");
        let n = |run: &Finished, key: &str| run.number(&format!("/balance/{key}"));
        let show = || format!("{:#}\n{}", finished.report, finished.said.join("\n"));
        // Mostly none: a machine that is too busy to hand packets on drops them on the way.
        let on_the_way = Wires::dropped_between() - before;
        // Whoever died: what waits for a service that receives waits for its successor.
        let missing = expected.missing(&known, "live");
        assert!(missing <= on_the_way, "{missing} of the known packets are missing: {}", show());
        let missing = as_recorded.missing_of_unnumbered(&replayed, "recorded");
        assert!(missing <= on_the_way, "{missing} of the recorded are missing: {}", show());
        let out = n(&sent, "out") + n(&also_sent, "out") + n(&recorded_sent, "out");
        let came = n(&finished, "in");
        assert!(
            came <= out && out - came <= on_the_way,
            "{out} sent, {came} came, {on_the_way} dropped between: {}",
            show()
        );
        // What a service had given to the kernel when it died counts as lost, and may have left all the same.
        let (least, most) = (n(&finished, "out"), n(&finished, "out") + finished.lost_by("tx:wan"));
        let came = n(&recorder, "in");
        assert!(
            came <= most && least <= came + on_the_way,
            "{least} to {most}, {came} came: {}",
            show()
        );
        let all = places.len() + known.len() + replayed.len();
        assert_eq!(all as u64, n(&recorder, "out"));
    });
}
