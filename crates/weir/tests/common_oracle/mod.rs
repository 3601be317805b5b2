//! What the tests against the oracle and of the command share: running `weir`, and comparing what it
//! did with what it had to do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

pub mod catalog;
pub mod drops;
pub mod random;
pub mod traffic;
pub mod vnfs;

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use weir_capture::{Resolution, TimeFormat, Timestamp};
use weir_control::library::Library;
use weir_nfs as _;
use weir_oracle::{Counts, Input, Oracle, Outcome, Sent, read_capture};
use weir_packet::{Depth, FlowKey, parse};
use weir_plan::Graph;

/// How long a run may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The project's own capture.
pub fn demo_capture() -> PathBuf {
    root().join("demo/http.pcap")
}

/// The shared captures; none when they are not there.
pub fn shared() -> Vec<PathBuf> {
    let folder = root().join("../shared/traces");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: shared/traces not there");
        return Vec::new();
    };
    let paths = entries.map(|e| e.unwrap().path());
    let is_capture = |p: &PathBuf| p.extension().is_some_and(|e| e == "pcap" || e == "pcapng");
    let mut paths: Vec<_> = paths.filter(is_capture).collect();
    paths.sort();
    paths
}

/// Whether a capture has Ethernet records.
pub fn has_ethernet(path: &Path) -> bool {
    weir_capture::scan(path).unwrap().link_types.keys().any(|l| l.is_ethernet())
}

/// A policy that does nothing.
pub const FORWARD: &str = "Port<0> lan; Port<1> wan;\npipelet { lan -> wan; }\n";
/// A policy whose output is its input.
pub const TWICE: &str = "Port<0> lan; Port<1> wan; MacSwap x; MacSwap y;
pipelet { lan -> x; x -> y; y -> wan; }\n";

/// Binds port 0 to the demo's capture.
pub fn demo_rx() -> String {
    format!("0=pcap:rx={}", demo_capture().display())
}

/// Binds port 1 to an output.
pub fn tx(path: &std::path::Path) -> String {
    format!("1=pcap:tx={}", path.display())
}

/// A core that we may use. With one core for all NFs, workers of equal work are merged on whatever
/// machine this is.
pub fn first_core() -> String {
    let ours = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).find(|core| ours.is_set(*core)).unwrap().to_string()
}

/// A directory that is deleted with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty one.
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(format!("weir-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file in it with a content; its name as text.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A `weir` that runs.
pub struct Running {
    pub child: Child,
    stdout: Receiver<String>,
    /// Line by line.
    stderr: Receiver<String>,
    said: String,
}

/// What became of it.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The report that `--json` prints.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Starts `weir` with arguments.
pub fn start<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args);
    spawn(command)
}

/// Starts a command.
pub fn spawn(mut command: Command) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = read_to_end(child.stdout.take().unwrap());
    let stderr = read_lines(child.stderr.take().unwrap());
    Running { child, stdout, stderr, said: String::new() }
}

fn read_lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    receive
}

fn read_to_end(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

impl Running {
    /// Waits for the end: of the process and, as its error output is theirs too, of its workers.
    pub fn end(mut self) -> Ended {
        let ended = loop {
            match self.stderr.recv_timeout(PATIENCE) {
                Ok(line) => self.said += &format!("{line}\n"),
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        let (true, Ok(stdout)) = (ended, self.stdout.recv_timeout(PATIENCE)) else {
            self.give_up("does not end");
        };
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout, stderr: self.said }
    }

    /// Waits until the error output has a line with `text`.
    pub fn wait_for(&mut self, text: &str) {
        loop {
            let Ok(line) = self.stderr.recv_timeout(PATIENCE) else {
                self.give_up(&format!("does not say `{text}`"));
            };
            self.said += &format!("{line}\n");
            if line.contains(text) {
                return;
            }
        }
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&mut self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > PATIENCE {
                self.give_up(what);
            }
            std::thread::yield_now();
        }
    }

    fn give_up(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        let _ = self.child.wait();
        panic!("weir {why} after {PATIENCE:?}; it said:\n{}", self.said);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// Runs `weir` with arguments to its end.
pub fn weir<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ended {
    start(args).end()
}

/// A policy's graph.
pub fn graph(policy: &str) -> Graph {
    let checked = weir_plan::check(policy, &Library);
    checked.unwrap_or_else(|e| panic!("{}", weir_plan::render(&e, "policy", policy))).graph
}

/// What a policy has to do with packets.
pub fn oracle(policy: &str, ports: &[u16], packets: &[Input]) -> Outcome {
    Oracle::new(&graph(policy), ports).unwrap().run(packets).unwrap()
}

/// The records of a capture as `Sent` has them, without a source.
pub fn records(path: &Path) -> Vec<Record> {
    let (inputs, warning) = read_capture(path, 0).unwrap();
    assert!(warning.is_none(), "{}: {}", path.display(), warning.unwrap());
    inputs.into_iter().map(|i| (i.bytes, i.wire_len, i.time)).collect()
}

/// Bytes, wire length, raw time stamp with its unit.
pub type Record = (Vec<u8>, u32, Timestamp);

/// As the output has it: of pcapng's units those with a second offset are written in nanoseconds.
pub fn written(sent: &Sent) -> Record {
    let time = match sent.time.format {
        TimeFormat::Units(Resolution { offset, .. }) if offset != 0 => {
            let format = TimeFormat::Units(Resolution::NANOS);
            Timestamp { raw: sent.time.raw_in(format), format }
        }
        _ => sent.time,
    };
    (sent.bytes.clone(), sent.wire_len, time)
}

/// The name of an output that can hold an input's time stamps: of the same format.
pub fn output_name(input: &Path) -> String {
    let kind = weir_capture::scan(input).unwrap().kind;
    match kind {
        weir_capture::FileKind::Pcap => "out.pcap".to_owned(),
        weir_capture::FileKind::Pcapng => "out.pcapng".to_owned(),
    }
}

/// Compares records without order.
pub fn assert_same_records(what: &str, got: &[Record], expected: &[Record]) {
    let mut counts: HashMap<&Record, i64> = HashMap::new();
    got.iter().for_each(|r| *counts.entry(r).or_default() += 1);
    expected.iter().for_each(|r| *counts.entry(r).or_default() -= 1);
    counts.retain(|_, n| *n != 0);
    if let Some((record, n)) = counts.iter().next() {
        panic!(
            "{what}: {} records instead of {}, {} kinds differ; {n:+} times this one: {record:02x?}",
            got.len(),
            expected.len(),
            counts.len()
        );
    }
}

/// Compares the order within each flow; records of no flow are one flow. Where several sources have
/// packets of the same flow their order is open: only for one source.
pub fn assert_same_flows(what: &str, got: &[Record], expected: &[Record]) {
    let (got, expected) = (by_flow(got), by_flow(expected));
    assert_eq!(got.len(), expected.len(), "{what}: flows");
    for (flow, records) in &expected {
        assert!(got.get(flow) == Some(records), "{what}: order within {flow:?}");
    }
}

fn by_flow(records: &[Record]) -> HashMap<Option<FlowKey>, Vec<&Record>> {
    let mut flows: HashMap<_, Vec<_>> = HashMap::new();
    for record in records {
        let layers = parse(record.0.as_slice(), Depth::L4);
        let key = FlowKey::from_packet(record.0.as_slice(), &layers).map(|(key, _)| key);
        flows.entry(key).or_default().push(record);
    }
    flows
}

/// Compares a run's report with what had to be: counters of nodes and edges, reports, balance and
/// census.
pub fn assert_report(what: &str, report: &Value, expected: &Outcome, with_reports: bool) {
    let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{what}: {v} is no count"));
    let name = |v: &Value| v["name"].as_str().unwrap().to_owned();
    let mut nodes = BTreeMap::new();
    for node in report["nodes"].as_array().unwrap() {
        let drops = node["drops"].as_object().unwrap();
        let drops: BTreeMap<String, u64> =
            drops.iter().map(|(k, v)| (k.clone(), number(v))).collect();
        let counts = (number(&node["packets"]), number(&node["bytes"]), drops);
        assert!(nodes.insert(name(node), counts).is_none(), "{what}: {} twice", name(node));
        if with_reports && let Some(expected) = expected.reports.get(&name(node)) {
            assert_eq!(&node["report"], expected, "{what}: report of {}", name(node));
        }
    }
    let plain = |c: &Counts| {
        let drops = c.drops.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        (c.packets, c.bytes, drops)
    };
    // A port that nothing came in by has its counters all the same.
    nodes.retain(|n, c| expected.nodes.contains_key(n) || !n.starts_with("rx:") || c.0 > 0);
    let want = expected.nodes.iter().map(|(n, c)| (n.clone(), plain(c))).collect();
    assert_eq!(nodes, want, "{what}: nodes");

    let edges = report["edges"].as_array().unwrap().iter();
    let edges: BTreeMap<_, _> =
        edges.map(|e| (name(e), (number(&e["packets"]), number(&e["bytes"])))).collect();
    let want = expected.edges.iter().map(|(n, c)| (n.clone(), (c.packets, c.bytes))).collect();
    assert_eq!(edges, want, "{what}: edges");

    assert_sound(what, report);
    let received: u64 =
        expected.nodes.iter().filter(|(n, _)| n.starts_with("rx:")).map(|n| n.1.packets).sum();
    let sent: u64 = expected.sent.values().map(|s| s.len() as u64).sum();
    assert_eq!(report["balance"]["in"], received, "{what}");
    assert_eq!(report["balance"]["out"], sent, "{what}");
    assert_eq!(report["balance"]["created"], expected.created, "{what}");
    assert_eq!(report["balance"]["copied"], expected.copied, "{what}");
    assert_eq!(report["balance"]["dropped"], expected.dropped(), "{what}");
}

/// Balance and census by our own reckoning, nobody died.
pub fn assert_sound(what: &str, report: &Value) {
    let b = |key: &str| report["balance"][key].as_u64().unwrap();
    assert_eq!(
        b("in") + b("copied") + b("created"),
        b("out") + b("dropped") + b("consumed") + b("lost"),
        "{what}"
    );
    assert_eq!((b("lost"), b("in"), b("out")), (0, b("devices_in"), b("devices_out")), "{what}");
    let c = |key: &str| report["census"][key].as_u64().unwrap();
    assert!(c("buffers") > 0, "{what}");
    assert_eq!((c("free"), c("in_lanes"), c("held")), (c("buffers"), 0, 0), "{what}");
    assert_eq!(c("doubled"), 0, "{what}");
    assert_eq!(report["sound"], true, "{what}");
    for worker in report["workers"].as_array().unwrap() {
        assert_eq!(
            (&worker["restarts"], &worker["lost"], &worker["rejected"]),
            (&0.into(), &0.into(), &0.into()),
            "{what}: {worker}"
        );
    }
}
