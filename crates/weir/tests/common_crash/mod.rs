//! What the crash tests share: captures with numbered packets, and a running `weir`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use weir_capture::{Format, LinkType, Precision, Reader, Record, TimeFormat, Timestamp, Writer};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Most packets that a worker may hold unfinished: one batch.
pub const BATCH: u64 = weir_packet::BATCH as u64;
/// What a death takes at most of one whose flows are replicated.
pub const GROUP: u64 = BATCH * weir_runtime::GROUP as u64;

/// Flows of a numbered capture.
pub const FLOWS: u16 = 8;

/// Bytes of a numbered packet: Ethernet, IPv4, UDP, number.
const FRAME: usize = 14 + 20 + 8 + 8;

/// Bytes of a packet's record in a pcap file.
pub const RECORD: u64 = 16 + FRAME as u64;

/// A seeded source of choices: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub struct Choices(pub u64);

impl Choices {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A directory that is deleted with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // Tests of one program run side by side, and two may choose one name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let path = path.join(format!("crash-{name}-{}-{nth}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A policy in it.
    pub fn policy(&self, text: &str) -> PathBuf {
        self.write("policy.weir", text)
    }

    /// A file with this text ([`replace`]).
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(name);
        replace(&path, text);
        path
    }
}

/// Puts a file with this text in the place of one that a running graph may be reading: it finds the one or the other, whole.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// UDP to port 6000 + flow, the number in the payload.
pub fn frame(number: u64, flow: u16) -> [u8; FRAME] {
    let mut f = [0; FRAME];
    f[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    f[12..14].copy_from_slice(&[0x08, 0x00]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(FRAME as u16 - 14).to_be_bytes());
    f[22..24].copy_from_slice(&[64, 17]);
    f[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let words = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    f[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    f[34..36].copy_from_slice(&5000u16.to_be_bytes());
    f[36..38].copy_from_slice(&(6000 + flow).to_be_bytes());
    f[38..40].copy_from_slice(&16u16.to_be_bytes());
    f[42..50].copy_from_slice(&number.to_be_bytes());
    f
}

/// The flow that packet `number` belongs to: irregular, so that ways are taken in bursts.
pub fn flow_of(number: u64) -> u16 {
    Choices(number).below(FLOWS.into()) as u16
}

/// Writes a capture of packets 0, 1, 2, …
pub fn write_capture(path: &Path, packets: u64) {
    write_frames(path, (0..packets).map(|number| frame(number, flow_of(number))));
}

/// Writes a capture of these frames, a microsecond apart.
pub fn write_frames<F: AsRef<[u8]>>(path: &Path, frames: impl Iterator<Item = F>) {
    write_frames_at(path, (0_u64..).zip(frames));
}

/// The same, each so many microseconds after the beginning.
pub fn write_frames_at<F: AsRef<[u8]>>(path: &Path, frames: impl Iterator<Item = (u64, F)>) {
    let format = Format::Pcap { precision: Precision::Micros, link: LinkType::ETHERNET };
    let mut writer = Writer::create(path, format).unwrap();
    for (number, (micros, bytes)) in (0_u64..).zip(frames) {
        let bytes = bytes.as_ref();
        let record = Record {
            bytes,
            wire_len: bytes.len() as u32,
            time: Timestamp {
                raw: weir_capture::RawTime::from_fields(
                    1_000 + (micros / 1_000_000) as u32,
                    (micros % 1_000_000) as u32,
                ),
                format: TimeFormat::PcapMicros,
            },
            link: LinkType::ETHERNET,
            interface: 0,
            comment: None,
        };
        writer.append(&record).unwrap();
        if number % 4096 == 0 {
            writer.commit().unwrap();
        }
    }
    writer.commit().unwrap();
}

/// What `read` makes of each packet of a capture; fails when the capture is not whole.
pub fn read_capture<T>(path: &Path, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        all.push(read(record.bytes));
    }
    assert!(reader.warning().is_none(), "{}: {:?}", path.display(), reader.warning());
    all
}

/// The number of a packet of [`write_capture`], which must be otherwise unharmed.
pub fn number(bytes: &[u8]) -> u64 {
    let number = u64::from_be_bytes(bytes[42..50].try_into().unwrap());
    let sent = frame(number, flow_of(number));
    assert_eq!(bytes[12..], sent[12..], "packet {number} is not as it was sent");
    number
}

/// Fails unless the numbers grow all the way: no packet twice, none overtaken by another.
pub fn assert_in_order(numbers: &[u64], what: &str) {
    for (i, pair) in numbers.windows(2).enumerate() {
        assert!(
            pair[0] < pair[1],
            "{what}: packet {} after packet {} (place {i}) is doubled or out of order",
            pair[1],
            pair[0]
        );
    }
}

/// A running `weir run`.
pub struct Run {
    child: Child,
    stdout: Option<ChildStdout>,
    lines: Receiver<(Instant, String)>,
    /// What it said on standard error so far.
    pub said: Vec<String>,
    /// When it was started.
    pub started: Instant,
}

fn spawn(mut weir: Command, policy: &Path, args: &[&str], stderr: Stdio) -> Child {
    weir.arg("run").arg(policy).args(args).args(["--json", "-q"]);
    weir.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
}

/// What a run left.
#[derive(Debug)]
pub struct Finished {
    /// Exit code.
    pub code: Option<i32>,
    /// The report.
    pub report: Value,
    /// Standard error.
    pub said: Vec<String>,
}

impl Run {
    /// Starts `weir run POLICY … --json -q`.
    pub fn start(policy: &Path, args: &[&str]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_weir")), policy, args)
    }

    /// The same by a command that ends with the program: `ip netns exec … weir`.
    pub fn start_by(weir: Command, policy: &Path, args: &[&str]) -> Self {
        let mut child = spawn(weir, policy, args, Stdio::piped());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if say.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        let stdout = child.stdout.take();
        Run { child, stdout, lines, said: Vec::new(), started: Instant::now() }
    }

    /// The same with a standard error that is full and that nobody reads; its other end goes with it.
    pub fn start_unheard(policy: &Path, args: &[&str]) -> (Self, PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
        while rustix::io::write(&writer, b".").is_ok() {}
        // The program's end is one that waits, as any pipe's that it is started with.
        rustix::io::ioctl_fionbio(&writer, false).unwrap();
        let weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let mut child = spawn(weir, policy, args, Stdio::from(writer));
        let (_, lines) = channel();
        let stdout = child.stdout.take();
        (Run { child, stdout, lines, said: Vec::new(), started: Instant::now() }, reader)
    }

    /// The agent's process.
    pub fn agent(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The live worker processes by name.
    pub fn workers(&self) -> BTreeMap<String, Pid> {
        self.processes(false)
    }

    /// Processes that wait to be a worker's successor, by its name.
    pub fn in_reserve(&self) -> BTreeMap<String, Pid> {
        self.processes(true)
    }

    fn processes(&self, in_reserve: bool) -> BTreeMap<String, Pid> {
        let mut workers = BTreeMap::new();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            for pid in children.unwrap_or_default().split_whitespace() {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let mut words = line.split(|b| *b == 0).skip(1);
                // One that has not become a worker yet still has the agent's command line.
                if words.next() == Some(b"worker") {
                    let name = String::from_utf8_lossy(words.next().unwrap_or_default());
                    // It takes its name when it takes over.
                    let own = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                    let waits = words.next() == Some(b"reserve")
                        && own.is_ok_and(|own| !name.starts_with(own.trim_end()));
                    if waits != in_reserve {
                        continue;
                    }
                    let pid = pid.parse().ok().and_then(Pid::from_raw).unwrap();
                    workers.insert(name.into_owned(), pid);
                }
            }
        }
        workers
    }

    /// Kills a worker and its successors, each when it runs. The pause before each start is twice as long as that before the one before: with
    /// `--restart-delay 60000` and nine kills the last one is away for 1.3 s.
    pub fn kill_often(&mut self, name: &str, times: usize) {
        for kill in 0..times {
            if kill > 0 {
                let again = format!("worker {name} runs again");
                self.wait_for_line("a successor", |line| line.contains(&again));
            }
            kill_process(self.workers()[name], Signal::KILL).unwrap();
        }
    }

    /// Waits until so many workers are there and have taken their work up: each has attached to
    /// its memory (which root can see) or closed its sandbox behind it.
    pub fn wait_for_workers(&self, n: usize) -> BTreeMap<String, Pid> {
        let maps = |pid: &Pid| std::fs::read_to_string(proc(*pid, "maps")).unwrap_or_default();
        let closed = |pid: &Pid| {
            let status = std::fs::read_to_string(proc(*pid, "status")).unwrap_or_default();
            let filters = status.lines().find_map(|l| l.strip_prefix("Seccomp_filters:"));
            filters.and_then(|n| n.trim().parse::<u32>().ok()).is_some_and(|n| n > 1)
        };
        let attached = |pid: &Pid| maps(pid).contains("memfd:weir") || closed(pid);
        let all = || Some(self.workers()).filter(|w| w.len() == n && w.values().all(attached));
        wait_for(PATIENCE, all, || {
            let state = |pid: &Pid| {
                let of = |file| std::fs::read_to_string(proc(*pid, file)).unwrap_or_default();
                format!("{:?} in {:?} {:?}", state_of(*pid), of("wchan"), of("schedstat"))
            };
            let workers = self.workers();
            let each: Vec<_> = workers.iter().map(|(n, p)| (n, attached(p), state(p))).collect();
            let said: Vec<_> = self.lines.try_iter().map(|(_, line)| line).collect();
            format!("{n} workers that run; there are {each:#?}\n{said:#?}")
        })
    }

    /// Waits for a line on standard error that `wants` takes; gives when it came and what it was.
    pub fn wait_for_line(&mut self, what: &str, wants: impl Fn(&str) -> bool) -> (Instant, String) {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((at, line)) => {
                    self.said.push(line.clone());
                    if wants(&line) {
                        return (at, line);
                    }
                }
                Err(e) => panic!("waiting for {what}: {e}; standard error:\n{}", self.tail()),
            }
        }
    }

    /// The next line on standard error, if one comes within `patience`.
    pub fn next_line(&mut self, patience: Duration) -> Option<(Instant, String)> {
        let (at, line) = self.lines.recv_timeout(patience).ok()?;
        self.said.push(line.clone());
        Some((at, line))
    }

    /// Sends a signal to the agent.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.agent(), signal).unwrap();
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Finished {
        let end = Instant::now() + PATIENCE;
        let mut stdout = self.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        // Standard error closes when the agent and all workers have gone.
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((_, line)) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it does not end; standard error:\n{}", self.tail())
                }
            }
        }
        let code = self.child.wait().unwrap().code();
        let text = reader.join().unwrap();
        let report = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text:?}; standard error:\n{}", self.tail()));
        Finished { code, report, said: std::mem::take(&mut self.said) }
    }

    fn tail(&self) -> String {
        let start = self.said.len().saturating_sub(20);
        self.said[start..].join("\n")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind: the workers go with the agent.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// A number of the report, by its JSON pointer.
    pub fn number(&self, at: &str) -> u64 {
        let value = self.report.pointer(at).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no number {at} in {:#}", self.report))
    }

    /// Restarts by worker.
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        let workers = self.report["workers"].as_array().unwrap().iter();
        let pair =
            |w: &Value| (w["name"].as_str().unwrap().to_owned(), w["restarts"].as_u64().unwrap());
        workers.map(pair).collect()
    }

    /// Packets lost with a worker.
    pub fn lost_by(&self, name: &str) -> u64 {
        let mut workers = self.report["workers"].as_array().unwrap().iter();
        let worker = workers.find(|w| w["name"] == name).unwrap();
        worker["lost"].as_u64().unwrap()
    }

    /// Fails unless the run ended well, packets balance (those lost counted) and every buffer is
    /// back in its pool, exactly once.
    pub fn assert_sound(&self, what: &str) {
        let show = || format!("{what}: {:#}\n{}", self.report, self.said.join("\n"));
        assert_eq!(self.code, Some(0), "{}", show());
        let n = |key: &str| self.number(&format!("/balance/{key}"));
        let made = n("created") + n("copied");
        assert_eq!(n("in") + made, n("out") + n("dropped") + n("lost"), "{}", show());
        assert_eq!((n("devices_in"), n("devices_out")), (n("in"), n("out")), "{}", show());
        let c = |key: &str| self.number(&format!("/census/{key}"));
        assert!(c("buffers") > 0, "{}", show());
        let census = (c("free"), c("held"), c("in_lanes"), c("doubled"));
        assert_eq!(census, (c("buffers"), 0, 0, 0), "{}", show());
        for worker in self.report["workers"].as_array().unwrap() {
            assert_eq!(worker["rejected"], 0, "{}", show());
        }
    }
}

/// Packets lost, as a line "worker X died (how): N packets lost, …" says.
pub fn lost_in(line: &str) -> u64 {
    let (_, tail) = line.split_once("): ").unwrap();
    tail.split_once(' ').unwrap().0.parse().unwrap()
}

/// The time in a line "worker X runs again after 1.2ms".
pub fn time_in(line: &str) -> Duration {
    let (_, text) = line.rsplit_once(' ').unwrap();
    let unit = text.find(char::is_alphabetic).or_else(|| text.find('µ')).unwrap();
    let (n, unit) = text.split_at(unit);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        other => panic!("{line}: unit {other}"),
    };
    Duration::from_secs_f64(n.parse::<f64>().unwrap() * seconds)
}

/// Path in a process's directory of /proc.
pub fn proc(pid: Pid, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{file}", pid.as_raw_nonzero()))
}

/// Whether a process is in the class SCHED_FIFO, by the 41st field of /proc/PID/stat.
pub fn is_real_time(pid: Pid) -> bool {
    let text = std::fs::read_to_string(proc(pid, "stat")).unwrap_or_default();
    let behind_the_name = text.rsplit(')').next().unwrap_or_default();
    behind_the_name.split_whitespace().nth(38) == Some("1")
}

/// A field of /proc/PID/status, such as `Seccomp`; nothing of a process that has gone.
pub fn status(pid: Pid, field: &str) -> String {
    let text = std::fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// State of a process: `R`, `S`, `T` and so on; `None` when it has gone or is only waited for.
pub fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(proc(pid, "stat")).ok()?;
    let (_, tail) = stat.rsplit_once(") ")?;
    tail.chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

/// Waits until `so`; fails after `patience`.
pub fn wait_until(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    wait_for(patience, || so().then_some(()), || what.to_owned());
}

/// Waits for what `look` gives; fails after `patience` with a word on what did not come.
pub fn wait_for<T>(
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
    what: impl FnOnce() -> String,
) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {patience:?} in vain for {}", what());
        // Only how often to look; nothing depends on it.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Kills these workers, one after the other, each when packets flow to `out`, and waits for its successor; how many
/// packets were lost, and how often each was killed.
pub fn kill_in_turn<'n>(
    run: &mut Run,
    out: &Path,
    names: impl Iterator<Item = &'n str>,
) -> (u64, BTreeMap<String, u64>) {
    let grown = || std::fs::metadata(out).map_or(0, |m| m.len());
    let (mut lost, mut kills) = (0, BTreeMap::<String, u64>::new());
    for name in names {
        let more = grown() + 200 * RECORD;
        wait_until("packets to flow again", PATIENCE, || grown() > more);
        kill_process(run.workers()[name], Signal::KILL).unwrap();
        let died = format!("worker {name} died");
        let (_, line) = run.wait_for_line("the death", |line| line.contains(&died));
        assert!(lost_in(&line) <= BATCH, "{line}");
        lost += lost_in(&line);
        let again = format!("worker {name} runs again after ");
        run.wait_for_line("the successor", |line| line.contains(&again));
        *kills.entry(name.to_owned()).or_default() += 1;
    }
    (lost, kills)
}

/// An order that flows of an NF are moved: `which` as on the command line.
pub fn order_move(socket: &Path, nf: &str, which: &[&str], to: u32) -> Command {
    let mut order = Command::new(env!("CARGO_BIN_EXE_weir"));
    order.args(["flow", "move", nf]).args(which).args(["--to", &to.to_string(), "--json"]);
    order.arg("--control").arg(socket);
    order
}

/// Has flows moved; how many were.
pub fn move_flows(socket: &Path, nf: &str, which: &[&str], to: u32) -> u64 {
    let output = order_move(socket, nf, which, to).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{nf}, {which:?} to {to}: {said}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said["moved"]["flows"].as_u64().unwrap()
}
