//! What the live tests share: network namespaces with veth pairs between them, and what runs inside.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part")]

use crate::common_crash::{PATIENCE, Run, Scratch, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// True, and said, when this is not run by root, who alone may make networks.
pub fn skipped(test: &str) -> bool {
    let skip = !rustix::process::getuid().is_root();
    if skip {
        eprintln!("skipped: {test} needs root");
    }
    skip
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Runs a program; fails unless it succeeds.
pub fn must(program: &str, args: &str) -> String {
    let output = run(Command::new(program).args(args.split_whitespace()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Length of the web server's small page, the beginning of its large one.
pub const SMALL: usize = 40_000;

/// A network namespace. It goes with everything that runs in it.
pub struct Namespace(String);

impl Namespace {
    pub fn new(role: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only that numbers differ.
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace(format!("weir-{role}-{}-{n}", std::process::id()));
        must("ip", &format!("netns add {}", namespace.0));
        namespace.ip("link set lo up");
        namespace
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// `ip` with these words, in the namespace.
    pub fn ip(&self, words: &str) {
        must("ip", &format!("-n {} {words}", self.0));
    }

    /// A program that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// Runs a program inside.
    pub fn exec(&self, program: &str, args: &[&str]) -> Output {
        run(self.command(program).args(args))
    }

    /// Starts a program inside that runs until it is dropped.
    pub fn spawn(&self, program: &str, args: &[&str]) -> Service {
        let mut command = self.command(program);
        let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::null());
        Service(command.spawn().unwrap())
    }

    /// A number of the namespace's protocol counters, such as `Udp InCsumErrors`.
    pub fn counter(&self, protocol: &str, name: &str) -> u64 {
        let output = self.exec("cat", &["/proc/net/snmp"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let prefix = format!("{protocol}:");
        let mut lines = text.lines().filter(|l| l.starts_with(&prefix));
        let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|n| n == name);
        numbers.split(' ').nth(at.unwrap()).unwrap().parse().unwrap()
    }

    /// One of the namespace's IPv6 counters, such as `Icmp6InCsumErrors`.
    pub fn counter6(&self, name: &str) -> u64 {
        let output = self.exec("cat", &["/proc/net/snmp6"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(str::split_whitespace);
        let mut line = lines.find_map(|mut l| (l.next() == Some(name)).then_some(l)).unwrap();
        line.next().unwrap().parse().unwrap()
    }

    /// A web server with a large page, whose bytes are returned.
    pub fn web_server(&self, scratch: &Scratch) -> (Service, Vec<u8>) {
        let site = scratch.file("site");
        std::fs::create_dir_all(&site).unwrap();
        let mut page = vec![0; 3 << 20];
        for (i, byte) in page.iter_mut().enumerate() {
            *byte = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1];
        }
        std::fs::write(site.join("large"), &page).unwrap();
        std::fs::write(site.join("small"), &page[..SMALL]).unwrap();
        let dir = site.display();
        let config = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
             events {{ worker_connections 4096; }}
             http {{
               access_log off; default_type text/html;
               client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;
               fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
               server {{
                 listen 80; listen [::]:80 ipv6only=on; root {dir};
                 location = /product {{ return 200 'an answer'; }}
                 location = /slow {{ limit_rate 20k; }}
               }}
             }}"
        );
        let file = scratch.file("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let (file, log) = (file.display().to_string(), format!("{dir}/start.log"));
        let service = self.spawn("nginx", &["-e", &log, "-c", &file]);
        wait_until("nginx", PATIENCE, || {
            self.curl("http://127.0.0.1/product").is_ok_and(|page| page == b"an answer")
        });
        (service, page)
    }

    pub fn ping(&self, to: &str) -> bool {
        self.exec("ping", &["-c", "1", "-W", "1", "-q", to]).status.success()
    }

    /// Fetches a page; gives what arrived, or curl's exit code.
    pub fn curl(&self, url: &str) -> Result<Vec<u8>, i32> {
        let output = self.exec("curl", &["-sSg", "--fail", "--max-time", "20", url]);
        match output.status.code() {
            Some(0) => Ok(output.stdout),
            code => Err(code.unwrap_or(-1)),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Everything inside was started by the test.
        let pids = run(Command::new("ip").args(["netns", "pids", &self.0]));
        for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
            let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A process that ends with this.
pub struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// client c0 ── m0 weir m1 ── s0 server. Offloads are as the kernel has them.
pub struct Network {
    pub client: Namespace,
    pub weir: Namespace,
    pub server: Namespace,
}

pub const CLIENT: &str = "192.0.2.1";
pub const SERVER: &str = "192.0.2.2";
pub const CLIENT6: &str = "fd00::1";
pub const SERVER6: &str = "fd00::2";

impl Network {
    pub fn new() -> Self {
        let (client, weir, server) =
            (Namespace::new("c"), Namespace::new("m"), Namespace::new("s"));
        let network = Network { client, weir, server };
        network.connect_client();
        let (m, s) = (network.weir.name(), network.server.name());
        must("ip", &format!("link add m1 netns {m} type veth peer name s0 netns {s}"));
        network.weir.ip("link set m1 up");
        network.server.ip("link set s0 up");
        network.server.ip(&format!("addr add {SERVER}/24 dev s0"));
        network.server.ip(&format!("addr add {SERVER6}/64 dev s0 nodad"));
        network
    }

    /// Makes the client's pair, again after it was deleted.
    pub fn connect_client(&self) {
        self.connect_client_with("");
    }

    /// The same, with these words on the middle's interface: `index 7`.
    pub fn connect_client_with(&self, words: &str) {
        let c = self.client.name();
        self.weir.ip(&format!("link add m0 {words} type veth peer name c0 netns {c}"));
        self.weir.ip("link set m0 up");
        self.client.ip("link set c0 up");
        self.client.ip(&format!("addr add {CLIENT}/24 dev c0"));
        self.client.ip(&format!("addr add {CLIENT6}/64 dev c0 nodad"));
    }

    /// Index of the middle's interface to the client.
    pub fn index_of_m0(&self) -> u32 {
        let output = self.weir.exec("cat", &["/sys/class/net/m0/ifindex"]);
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    /// Weir on these devices, in the middle.
    pub fn run(&self, policy: &Path, args: &[&str]) -> Run {
        Run::start_by(self.weir.command(env!("CARGO_BIN_EXE_weir")), policy, args)
    }

    /// Weir on both veth pairs, running.
    pub fn run_between(&self, policy: &Path) -> Run {
        let run = self.run(policy, &["--bind", "0=afp:m0", "--bind", "1=afp:m1"]);
        self.wait_for_ping();
        run
    }

    pub fn wait_for_ping(&self) {
        wait_until("the first answered ping", PATIENCE, || self.client.ping(SERVER));
    }

    /// A web server in the server's namespace with a large page, whose bytes are returned.
    pub fn web_server(&self, scratch: &Scratch) -> (Service, Vec<u8>) {
        self.server.web_server(scratch)
    }

    /// Frames that the server has sent to the middle, super-packets counted as one.
    pub fn frames_from_server(&self) -> u64 {
        let output = self.weir.exec("cat", &["/sys/class/net/m1/statistics/rx_packets"]);
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    /// Fails when a checksum was wrong in either end's eyes.
    pub fn assert_checksums(&self) {
        for end in [&self.client, &self.server] {
            // TCP counts both versions of IP together.
            for protocol in ["Tcp", "Udp", "Icmp"] {
                let errors = end.counter(protocol, "InCsumErrors");
                assert_eq!(errors, 0, "{protocol} in {}", end.name());
            }
            for protocol in ["Udp6", "Icmp6"] {
                let errors = end.counter6(&format!("{protocol}InCsumErrors"));
                assert_eq!(errors, 0, "{protocol} in {}", end.name());
            }
        }
    }
}

/// sender e0 ── m0 weir m1 ── e1 recorder. Nobody but weir says anything on these.
pub struct Wires {
    pub sender: Namespace,
    pub weir: Namespace,
    pub recorder: Namespace,
}

impl Wires {
    pub fn new() -> Self {
        let (sender, weir) = (Namespace::new("cs"), Namespace::new("cm"));
        let wires = Wires { sender, weir, recorder: Namespace::new("cr") };
        for space in [&wires.sender, &wires.weir, &wires.recorder] {
            let quiet = ["-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"];
            assert!(space.exec("sysctl", &quiet).status.success());
        }
        let m = wires.weir.name();
        for (end, own, middle) in [(&wires.sender, "e0", "m0"), (&wires.recorder, "e1", "m1")] {
            let e = end.name();
            must("ip", &format!("link add {middle} netns {m} type veth peer name {own} netns {e}"));
            wires.weir.ip(&format!("link set {middle} up"));
            end.ip(&format!("link set {own} up"));
        }
        // What a veth carries waits in a queue of the processor that it was sent on. A sender that moves to another one,
        // or its successor there, would overtake itself; so all are to wait in one queue.
        for (space, receives) in [(&wires.weir, "m0"), (&wires.recorder, "e1")] {
            let one = format!("echo 1 > /sys/class/net/{receives}/queues/rx-0/rps_cpus");
            assert!(space.exec("sh", &["-c", &one]).status.success(), "{one}");
        }
        wires
    }

    /// Packets that the kernel has dropped between two interfaces, for want of room in its queues; those of all namespaces.
    pub fn dropped_between() -> u64 {
        let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
        let dropped = text.lines().map(|line| line.split_whitespace().nth(1).unwrap());
        dropped.map(|n| u64::from_str_radix(n, 16).unwrap()).sum()
    }

    /// Waits until the kernel has handed over all that was sent.
    pub fn wait_until_delivered() {
        // A line for each processor; the twelfth number is what waits there.
        let waits = |line: &str| line.split_whitespace().nth(11).is_some_and(|n| n != "00000000");
        wait_until("the kernel's queues to be empty", PATIENCE, || {
            let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
            !text.lines().any(waits)
        });
    }

    /// Weir in one of the ends, which does nothing but to send or to record.
    pub fn end(&self, space: &Namespace, scratch: &Scratch, rx: &str, tx: &str) -> Run {
        let policy = scratch.file("end.weir");
        std::fs::write(&policy, "Port<0> a;  Port<1> b;  pipelet { a -> b; }").unwrap();
        let weir = space.command(env!("CARGO_BIN_EXE_weir"));
        let (rx, tx) = (format!("0={rx}"), format!("1={tx}"));
        Run::start_by(weir, &policy, &["--bind", &rx, "--bind", &tx])
    }
}

/// A policy through which everything passes, both ways, header checks on the way.
pub const THROUGH: &str = "Port<0> a;  Port<1> b;  CheckIpHeader there;  CheckIpHeader back;
pipelet {
  a -> there;  there [there.ip] -> b;  there [there.non_ip] -> b;
  b -> back;   back [back.ip] -> a;    back [back.non_ip] -> a;
}";

/// Drops of a run by node and reason.
pub fn drops(report: &Value) -> Vec<(String, String, u64)> {
    let mut drops = Vec::new();
    for node in report["nodes"].as_array().unwrap() {
        for (reason, count) in node["drops"].as_object().unwrap() {
            let name = node["name"].as_str().unwrap().to_owned();
            drops.push((name, reason.clone(), count.as_u64().unwrap()));
        }
    }
    drops
}
