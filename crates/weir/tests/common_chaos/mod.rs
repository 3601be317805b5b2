//! What the chaos test is made of: a graph that is disturbed, and packets that are known again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::{
    Choices, Finished, PATIENCE, Run, Scratch, order_move, proc, replace, state_of, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_capture::{Format, LinkType, Precision, RawTime, Record, TimeFormat, Timestamp, Writer};
use weir_oracle::Input;

/// Flows of the generator, which sends to each in turn: a flow's number tells a packet's place among the next so many.
/// More than are lost in a row, however long a graph is still.
pub const GENERATED: u64 = 1_000_000;

/// Flow of a generated packet: the low three bytes of its source address.
pub fn generated_flow(bytes: &[u8]) -> u64 {
    u64::from(u32::from_be_bytes(bytes[26..30].try_into().unwrap()) & 0xff_ffff)
}

/// Places of generated packets, from their flows. One that is doubled keeps its place, and one that was overtaken would be
/// most of a round later.
pub fn unwrapped(flows: &[u64]) -> Vec<u64> {
    let (mut at, mut places) = (0, Vec::new());
    for (i, flow) in flows.iter().enumerate() {
        let ahead = (flow + GENERATED - at % GENERATED) % GENERATED;
        assert!(ahead < GENERATED / 2, "packet {i} of flow {flow} comes after a later one");
        at += ahead;
        places.push(at);
    }
    places
}

/// A UDP or TCP packet of one of some flows, with a number.
pub fn numbered(number: usize) -> Input {
    let flow = Choices(number as u64).below(16) as u16;
    let frame = weir_packet::wire::Frame::ipv4([10, 0, 0, 1 + flow as u8], [10, 0, 1, 2]);
    let frame = match flow % 2 {
        0 => frame.udp(5000 + flow, 6000 + flow),
        _ => frame.tcp(5000 + flow, 6000 + flow, 0x10),
    };
    let number = (number as u64).to_be_bytes();
    let bytes = frame.payload(&number).build();
    let wire_len = bytes.len() as u32;
    let (time, link) = (stamp(u64::from_be_bytes(number)), LinkType::ETHERNET);
    Input { port: 0, bytes, wire_len, time, link }
}

/// True for the packets of [`numbered`]: no generated one goes there.
pub fn is_numbered(bytes: &[u8]) -> bool {
    bytes[30..34] == [10, 0, 1, 2]
}

/// The time stamp of the packet at a place: it says which.
fn stamp(place: u64) -> Timestamp {
    let raw = RawTime::from_fields((place / 1_000_000) as u32, (place % 1_000_000) as u32);
    Timestamp { raw, format: TimeFormat::PcapMicros }
}

/// Writes `base` so many times, each packet with the stamp of its place.
pub fn write_over_and_over(path: &Path, base: &[Input], times: usize) {
    let (precision, link) = (Precision::Micros, LinkType::ETHERNET);
    let mut writer = Writer::create(path, Format::Pcap { precision, link }).unwrap();
    let packets = (0..times).flat_map(|_| base);
    for (packet, place) in packets.zip(0..) {
        let (bytes, wire_len) = (packet.bytes.as_slice(), packet.wire_len);
        let (time, interface, comment) = (stamp(place), 0, None);
        writer.append(&Record { bytes, wire_len, time, link, interface, comment }).unwrap();
        if place.is_multiple_of(4096) {
            writer.commit().unwrap();
        }
    }
    writer.commit().unwrap();
}

/// A packet of an output.
pub struct Came {
    /// Where in the file it stands.
    pub at: u64,
    /// Its place in the input.
    pub place: u64,
    pub bytes: Vec<u8>,
}

/// The packets of an output, a pcap file of this machine's, whole.
pub fn places_and_bytes(path: &Path) -> Vec<Came> {
    let mut file = Vec::new();
    std::fs::File::open(path).unwrap().read_to_end(&mut file).unwrap();
    let number = |at: usize| u64::from(u32::from_le_bytes(file[at..at + 4].try_into().unwrap()));
    let (mut at, mut all) = (24, Vec::new());
    while at < file.len() {
        let (place, len) = (number(at) * 1_000_000 + number(at + 4), number(at + 8) as usize);
        let bytes = file[at + 16..at + 16 + len].to_vec();
        all.push(Came { at: at as u64, place, bytes });
        at += 16 + len;
    }
    all
}

/// What has to come of packets that come over and over.
pub struct Expected {
    /// By place in the base: what leaves, if it does.
    sent: Vec<Option<Vec<u8>>>,
}

impl Expected {
    pub fn of(policy: &Policy, base: &[Input]) -> Self {
        let mut sent = vec![None; base.len()];
        let outcome = crate::common_oracle::oracle(&policy.text(), &[0, 1], base);
        for packet in outcome.sent.get(&1).into_iter().flatten() {
            sent[packet.place] = Some(packet.bytes.clone());
        }
        Expected { sent }
    }

    /// Packets that leave each time.
    pub fn len(&self) -> usize {
        self.sent.iter().flatten().count()
    }

    /// What they take in a capture, in bytes.
    pub fn bytes(&self) -> u64 {
        self.sent.iter().flatten().map(|bytes| 16 + bytes.len() as u64).sum()
    }

    /// Fails unless these packets of [`numbered`], numbered by their places, had to come, are as they had to be and in order; how many are
    /// missing.
    pub fn missing(&self, came: &[Vec<u8>], what: &str) -> u64 {
        let mut next = 0;
        for bytes in came {
            let number = u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap()) as usize;
            assert!(number >= next, "{what}: packet {number} is doubled or out of order");
            let wanted = self.sent[number].as_ref();
            assert_eq!(Some(bytes), wanted, "{what}: packet {number} is not as the oracle says");
            next = number + 1;
        }
        (self.len() - came.len()) as u64
    }

    /// The same for packets without numbers: each must be as one that had to come, behind the one before it.
    pub fn missing_of_unnumbered(&self, came: &[Vec<u8>], what: &str) -> u64 {
        let mut wanted = self.sent.iter().flatten();
        for (i, bytes) in came.iter().enumerate() {
            assert!(
                wanted.any(|wanted| wanted == bytes),
                "{what}: the {i}th packet is not as the oracle says, doubled or out of order"
            );
        }
        (self.len() - came.len()) as u64
    }

    /// Fails unless these are all that had to come, from the first of them to the last.
    pub fn assert_is(&self, came: &[Came], what: &str) {
        let (first, last) = (came[0].place, came[came.len() - 1].place);
        let mut came = came.iter();
        for place in first..=last {
            let Some(wanted) = &self.sent[place as usize % self.sent.len()] else { continue };
            let next = came.next().unwrap();
            assert_eq!(next.place, place, "{what}: packet {place} is missing, undisturbed");
            assert!(next.bytes == *wanted, "{what}: packet {place} is not as the oracle says");
        }
        assert_eq!(came.count(), 0, "{what}: packets that had to be dropped left");
    }
}

/// One of the policies that a graph is changed to: none harms packets behind their addresses.
#[derive(Clone)]
pub struct Policy {
    shape: u64,
    cycles: u64,
    filtered: bool,
}

impl Policy {
    /// What a graph begins with.
    pub const HOME: Policy = Policy { shape: 0, cycles: 300_000, filtered: false };

    pub fn random(choices: &mut Choices) -> Self {
        let cycles = [300_000, 350_000, 400_000][choices.below(3) as usize];
        Policy { shape: choices.below(4), cycles, filtered: choices.below(3) == 0 }
    }

    /// Every packet takes the time that the slow one needs: what filters drop they drop behind it.
    pub fn text(&self) -> String {
        let (way, more) = match self.shape {
            0 => ("mon -> sizes -> nets -> many", ""),
            1 => ("mon -> sizes -> more -> nets -> many", "MacSwap more;"),
            2 => (
                "mon -> nets;  nets [udp] -> left;  nets [!udp] -> right;  left -> sizes;  right -> sizes;  sizes -> many",
                "MacSwap left;  MacSwap right;",
            ),
            _ => ("mon -> many", ""),
        };
        // NFs that nothing leads to are not declared.
        let (sizes, nets) = match self.shape {
            3 => ("", ""),
            _ => ("PacketSizeHistogram sizes;", "CountSubnet nets;"),
        };
        let rules = if self.filtered { "{ action: 'drop', proto: 'tcp' }" } else { "" };
        format!(
            "Port<0> lan;  Port<1> wan;  default drop;
MacSwap head;  FlowMonitor mon {{ top: 20 }};  {sizes}  {nets}  MacSwap many;  {more}
L3L4Filter fw {{ rules: [{rules}] }};  Busy slow {{ cycles: {} }};
pipelet {{ lan -> head -> {way};  many -> slow;  slow -> fw;  fw -> wan; }}",
            self.cycles
        )
    }
}

/// Options under which a graph is planned.
fn random_options(choices: &mut Choices) -> String {
    const ANY: [&[&str]; 3] = [
        &["--isolate each", "--isolate each", "--isolate none", "--isolate auto"],
        &["", "--instances many=2", "--instances many=3", "--instances many=2:1"],
        &["", "", "--domain slow=other", "--domain many=other"],
    ];
    const STAGES: [&str; 3] = ["", "--parallel always", "--parallel never"];
    // Who stands in a stage has no flows that move.
    const FLOWS: [&str; 4] = [
        "--instances mon=2",
        "--instances mon=3",
        "--scale mon=1:3,moves,cool=0",
        "--instances mon=2 --replicate mon=batch",
    ];
    let mut of = |list: &[&str]| list[choices.below(list.len() as u64) as usize].to_owned() + "\n";
    let any: String = ANY.iter().map(|list| of(list)).collect();
    let (stages, flows) = (of(&STAGES), of(&FLOWS));
    any + &match choices.below(2) {
        0 => stages,
        _ => "--parallel never\n".to_owned() + &flows,
    }
}

/// Classes of what a live source drops first when there is no room for all.
const CLASSES: &str = "--early-drop 'udp=10' --early-drop 'tcp=5'\n";

/// What a graph begins with, and comes back to.
const HOME_OPTIONS: &str = "--isolate each";

/// A run that is disturbed.
pub struct Chaos {
    run: Run,
    policy: PathBuf,
    options: PathBuf,
    /// Descriptors and mappings of the agent in its first generation.
    first: (usize, usize),
    /// All processes that were seen.
    seen: Vec<Pid>,
    /// How often what was done.
    did: BTreeMap<&'static str, u32>,
    /// Relinks that were, and changes that were refused.
    relinked: (u32, u32),
    /// Drops are written down.
    dumps: bool,
    /// Its source drops what it has no room for.
    live: bool,
    control: PathBuf,
}

/// Descriptors and mappings of shared memory of a process.
fn held_by(pid: Pid) -> (usize, usize) {
    let descriptors = std::fs::read_dir(proc(pid, "fd")).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string(proc(pid, "maps")).unwrap_or_default();
    (descriptors, maps.lines().filter(|l| l.contains("memfd:")).count())
}

impl Chaos {
    /// Starts a graph on these devices.
    pub fn start(scratch: &Scratch, rx: &str, tx: &str, choices: &mut Choices) -> Self {
        // Whoever runs the tests may have ignored hang-ups, and weir would then do so too.
        Self::start_by(Command::new("env"), scratch, rx, tx, choices)
    }

    /// The same by a command that ends with `env`.
    pub fn start_by(
        mut weir: Command,
        scratch: &Scratch,
        rx: &str,
        tx: &str,
        choices: &mut Choices,
    ) -> Self {
        let policy = scratch.policy(&Policy::HOME.text());
        let options = scratch.file("options");
        std::fs::write(&options, HOME_OPTIONS).unwrap();
        weir.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir")]);
        let (rx, tx) = (format!("0={rx}"), format!("1={tx}"));
        // What is under way before a switch has a second to run out where an input is live, and ten otherwise: also by a slow worker that gets
        // a tenth of a core.
        let live = rx[2..].starts_with("afp:") || rx.contains("full=drop");
        let large = if live { "64" } else { "256" };
        let ring = ["64", "64", large][choices.below(3) as usize];
        let file = options.display().to_string();
        let control = scratch.file("control");
        let socket = control.display().to_string();
        let args = ["--bind", &rx, "--bind", &tx, "--options", &file, "--ring", ring];
        let more = ["--pool", "4096", "--restart-delay", "0", "--control", &socket];
        let drops = scratch.file("drops.pcapng").display().to_string();
        let mut args = [&args[..], &more].concat();
        let dumps = choices.below(4) == 0;
        if dumps {
            args.extend(["--dump-drops", &drops]);
        }
        let run = Run::start_by(weir, &policy, &args);
        run.wait_for_workers(9 + usize::from(dumps));
        let mut chaos = Chaos {
            first: (0, 0),
            run,
            policy,
            options,
            seen: Vec::new(),
            did: BTreeMap::new(),
            relinked: (0, 0),
            dumps,
            live,
            control,
        };
        // A generation that was begun as all others will be.
        assert!(chaos.settle_as(&Policy::HOME, HOME_OPTIONS));
        chaos.first = held_by(chaos.agent());
        chaos
    }

    /// The agent's process, whatever it was started by.
    fn agent(&self) -> Pid {
        self.run.agent()
    }

    fn hear(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some((_, line)) = self.run.next_line(left) else { break };
            self.count(&line);
        }
    }

    fn count(&mut self, line: &str) {
        assert!(!line.contains("fault of weir") && !line.contains("panicked"), "{line}");
        self.relinked.0 += u32::from(line.contains(": relinked in "));
        if line.contains("not relinked") {
            println!("{line}");
            self.relinked.1 += 1;
        }
    }

    /// Does something at random, again and again, for so long. `flows`: whether packets have come out by now.
    pub fn disturb(
        &mut self,
        long: Duration,
        choices: &mut Choices,
        flows: &mut dyn FnMut() -> bool,
    ) {
        wait_until("packets to flow", PATIENCE, flows);
        let start = Instant::now();
        let mut stopped: Vec<(Pid, Instant)> = Vec::new();
        while start.elapsed() < long {
            self.disturb_once(choices, &mut stopped);
            self.hear(Duration::from_micros(choices.below(150_000)));
            stopped.retain(|(pid, until)| {
                let over = Instant::now() >= *until;
                if over {
                    let _ = kill_process(*pid, Signal::CONT);
                }
                !over
            });
        }
        for (pid, _) in stopped {
            let _ = kill_process(pid, Signal::CONT);
        }
        println!("{:?}; {} relinks, {} refused", self.did, self.relinked.0, self.relinked.1);
    }

    fn disturb_once(&mut self, choices: &mut Choices, stopped: &mut Vec<(Pid, Instant)>) {
        let workers: Vec<_> = self.run.workers().into_values().collect();
        for pid in &workers {
            if !self.seen.contains(pid) {
                self.seen.push(*pid);
            }
        }
        let one = |choices: &mut Choices| {
            workers.get(choices.below(workers.len().max(1) as u64) as usize).copied()
        };
        let what = match choices.below(14) {
            0..=3 => {
                let dies = one(choices).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok());
                if dies { "killed" } else { "was gone" }
            }
            4 => {
                for _ in 0..1 + choices.below(3) {
                    let _ = one(choices).map(|pid| kill_process(pid, Signal::KILL));
                }
                "several killed"
            }
            5..=7 => {
                self.plan_otherwise(choices);
                replace(&self.policy, Policy::random(choices).text());
                self.run.signal(Signal::HUP);
                "changed"
            }
            8 => {
                self.plan_otherwise(choices);
                self.run.signal(Signal::HUP);
                "planned otherwise"
            }
            9 => {
                replace(&self.policy, "Port<0> lan;  nonsense");
                self.run.signal(Signal::HUP);
                "nonsense"
            }
            10 => {
                let until = Instant::now() + Duration::from_millis(choices.below(800));
                if let Some(pid) = one(choices)
                    && kill_process(pid, Signal::STOP).is_ok()
                {
                    stopped.push((pid, until));
                }
                "stopped"
            }
            // It takes its time, in which nobody would let go on who was stopped.
            11 | 12 if stopped.is_empty() => self.order(choices),
            _ => "nothing",
        };
        *self.did.entry(what).or_default() += 1;
    }

    fn plan_otherwise(&self, choices: &mut Choices) {
        let mut options = random_options(choices);
        if self.live && choices.below(2) == 0 {
            options += CLASSES;
        }
        replace(&self.options, options);
    }

    /// Orders flows elsewhere. That may be refused: there may be no such instance, or somebody dies.
    fn order(&self, choices: &mut Choices) -> &'static str {
        let share = (1 + choices.below(99)).to_string();
        let which: &[&str] = match choices.below(3) {
            0 => &["--all"],
            1 => &["--share", &share],
            _ => &["tcp"],
        };
        let to = 1 + choices.below(3) as u32;
        let said = order_move(&self.control, "mon", which, to).output().unwrap();
        match said.status.code() {
            Some(0) => "flows moved",
            Some(_) => "flows not moved",
            None => panic!("the command died: {said:?}"),
        }
    }

    /// Whether the run has ended by itself, as its input has.
    pub fn is_over(&self) -> bool {
        state_of(self.agent()).is_none()
    }

    /// The last change: from here on nothing disturbs. False when the input has ended before.
    pub fn settle(&mut self, policy: &Policy, choices: &mut Choices) -> bool {
        // Whose drops are written down cannot change; and what is known of flows goes along only where they can move.
        let may_be_refused = |options: &str| {
            let divided = options.contains(" mon=");
            self.dumps && options.contains("--domain")
                || divided && !options.contains("--isolate each")
        };
        let options = loop {
            let options = random_options(choices);
            if !may_be_refused(&options) {
                break options;
            }
        };
        // Those that were moved come together first.
        self.settle_as(policy, HOME_OPTIONS) && self.settle_as(policy, &options)
    }

    /// What is said of a relink next; `None` when the run ends.
    fn word_on_relink(&mut self) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        while let Some((_, line)) = self.run.next_line(end - Instant::now().min(end)) {
            self.count(&line);
            if line.contains("relinked") {
                return Some(line).filter(|line| !line.contains("the graph ends"));
            }
        }
        wait_until("a word on the relink", PATIENCE, || self.is_over());
        None
    }

    fn settle_as(&mut self, policy: &Policy, options: &str) -> bool {
        replace(&self.policy, policy.text());
        replace(&self.options, options);
        self.hear(Duration::ZERO);
        // What was asked for before may still be under way, and after it what was asked for meanwhile, by files that
        // had not been written yet.
        let (end, mut words) = (Instant::now() + 3 * PATIENCE, 0);
        loop {
            self.run.signal(Signal::HUP);
            let Some(line) = self.word_on_relink() else { return false };
            words += 1;
            if words >= 3 && line.contains(": relinked in ") {
                return true;
            }
            assert!(Instant::now() < end, "never relinked again: {line}");
        }
    }

    /// Fails when more is held than by a generation like the first, unless the input has ended.
    pub fn assert_nothing_is_left_of_earlier_generations(&mut self) {
        if !self.settle_as(&Policy::HOME, HOME_OPTIONS) {
            return;
        }
        let first = self.first;
        let mut now = (0, 0);
        // What a worker that has just started is sent is held for a moment.
        wait_until(&format!("descriptors and mappings to be {first:?} again"), PATIENCE, || {
            let held = held_by(self.run.agent());
            if held != now {
                println!("the agent holds {held:?}, at first {first:?}");
            }
            now = held;
            held.0 <= first.0 && held.1 <= first.1 || self.is_over()
        });
    }

    /// Ends the input, and everything; nothing is left.
    pub fn end(self, what: &str) -> Finished {
        self.run.signal(Signal::INT);
        let seen = self.seen;
        let finished = self.run.finish();
        finished.assert_sound(what);
        let is_worker = |pid: &&Pid| {
            let line = std::fs::read(proc(**pid, "cmdline")).unwrap_or_default();
            state_of(**pid).is_some() && line.split(|b| *b == 0).nth(1) == Some(b"worker")
        };
        // Their numbers may be others' by now, but not those of workers of the same program.
        let left = seen.iter().find(is_worker).copied();
        let ours = left.filter(|pid| {
            let status = std::fs::read_to_string(proc(*pid, "status")).unwrap_or_default();
            status.lines().any(|l| l == "PPid:\t1")
        });
        assert_eq!(ours, None, "{what}: a worker is left");
        finished
    }
}
