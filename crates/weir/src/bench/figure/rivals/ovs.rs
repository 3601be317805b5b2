//! Open vSwitch with its DPDK datapath, in a folder of its own: no service of the machine's is touched.

use super::{DPDK_FOLDER, PATIENCE, RivalError, capture, per_packet, run, run_for};
use crate::bench::figure::Effort;
use crate::bench::figure::data::Sample;
use crate::bench::machine::cpu_time_ns;
use crate::bench::mood::{Around, Mood};
use crate::bench::own::{ENDS_WITH_US, Folder, Process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const NAME: &str = "Open vSwitch";
/// Its bridge.
const BRIDGE: &str = "weir-bench";
const MANAGEMENT: &str = "weir-bench.mgmt";
/// Where Debian has the daemon that knows DPDK.
const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Until one of its tools has to have ended: ovs-vsctl gives up by itself after 30 s and says why.
const TOOL: Duration = Duration::from_secs(40);

/// Whether it can be had.
pub fn is_there() -> bool {
    Path::new(DAEMON).exists() && Path::new(SCHEMA).exists()
}

/// Database, switch, and their folder; all gone when this is.
struct Ovs {
    daemons: Vec<Process>,
    folder: Folder,
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // The switch before its database.
        while self.daemons.pop().is_some() {}
    }
}

impl Ovs {
    fn command(&self, program: &str) -> Command {
        // The switch polls a core for ever.
        let [first, ends_with_us @ ..] = ENDS_WITH_US;
        let mut command = Command::new(first);
        command.args(ends_with_us).arg(program);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", DPDK_FOLDER] {
            command.env(name, self.folder.path());
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a tool to its end; what it printed, if it went well.
    fn ask(&self, program: &str, args: &[&str]) -> Result<String, RivalError> {
        let output = run(NAME, self.command(program).args(args), TOOL)?;
        if !output.status.success() {
            return Err(RivalError::Refused(NAME, format!("{program} {}", args.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn set(&self, args: &[&str]) -> Result<(), RivalError> {
        let db = format!("--db=unix:{}", self.at("db.sock"));
        let all: Vec<&str> =
            [db.as_str(), "--timeout=30"].into_iter().chain(args.iter().copied()).collect();
        self.ask("ovs-vsctl", &all).map(drop)
    }

    /// A bridge of two devices that have Weir's packets of this size, forwarded by `core`.
    fn start(size: u16, core: usize) -> Result<Self, RivalError> {
        let failed = |e| RivalError::Start(NAME, e);
        let folder = Folder::new("weir-ovs").map_err(failed)?;
        let mut ovs = Ovs { folder, daemons: Vec::new() };
        capture::write(ovs.folder.path(), size).map_err(|e| RivalError::Packets(NAME, e))?;
        ovs.ask("ovsdb-tool", &["create", &ovs.at("conf.db"), SCHEMA])?;
        let remote = format!("--remote=punix:{}", ovs.at("db.sock"));
        let mut database = ovs.command("ovsdb-server");
        database.args([remote, ovs.at("conf.db")]).stdout(Stdio::null());
        ovs.daemons.push(Process::start(&mut database).map_err(failed)?);
        ovs.wait_for("db.sock")?;
        ovs.set(&["--no-wait", "init"])?;
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << core.min(63));
        // Its own --in-memory does not go with what needs no huge pages.
        let extra = format!(
            "other_config:dpdk-extra=\"--no-huge --legacy-mem --no-shconf -m 1024 --no-pci --no-telemetry --iova-mode=va --file-prefix weir-ovs-{}\"",
            std::process::id()
        );
        ovs.set(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            &mask,
            &extra,
        ])?;
        // Its interfaces stay when it is killed: in a network of its own they end with it.
        let mut switch = ovs.command("unshare");
        switch
            .args(["--net", DAEMON])
            .arg(format!("unix:{}", ovs.at("db.sock")))
            .stdout(Stdio::null());
        ovs.daemons.push(Process::start(&mut switch).map_err(failed)?);
        ovs.set(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        for port in [0, 1] {
            let (name, device) = (
                format!("p{port}"),
                format!(
                    "options:dpdk-devargs=\"net_pcap{port},{}\"",
                    capture::device(ovs.folder.path())
                ),
            );
            ovs.set(&[
                "add-port",
                BRIDGE,
                &name,
                "--",
                "set",
                "Interface",
                &name,
                "type=dpdk",
                &device,
            ])?;
        }
        ovs.wait_for(MANAGEMENT)?;
        let bridge = format!("unix:{}", ovs.at(MANAGEMENT));
        ovs.ask("ovs-ofctl", &["del-flows", &bridge])?;
        for flow in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
            ovs.ask("ovs-ofctl", &["add-flow", &bridge, flow])?;
        }
        Ok(ovs)
    }

    fn wait_for(&self, file: &str) -> Result<(), RivalError> {
        let end = Instant::now() + PATIENCE;
        while !self.folder.path().join(file).exists() {
            if Instant::now() > end {
                return Err(RivalError::Mute(NAME, format!("no {file}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Packets sent so far by both ports, and when.
    fn sent(&self) -> Result<(u64, Instant), RivalError> {
        let bridge = format!("unix:{}", self.at(MANAGEMENT));
        let text = self.ask("ovs-ofctl", &["dump-ports", &bridge])?;
        let sent = count(&text).ok_or_else(|| {
            RivalError::Refused(NAME, "what its ports have sent could not be read".to_owned())
        })?;
        Ok((sent, Instant::now()))
    }
}

/// The sum of `tx pkts=` over the ports but the bridge's own; `None` where one of them, or all, cannot be read.
fn count(text: &str) -> Option<u64> {
    let own = |line: &&str| !line.contains("LOCAL");
    // A port is a line of what came in, then one of what went out.
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("pkts=")).collect();
    let ports = lines.chunks(2).filter(|port| port.first().is_some_and(own));
    let sent = ports.map(|port| {
        let (_, rest) = port.get(1)?.split_once("tx pkts=")?;
        rest.split(',').next()?.trim().parse::<u64>().ok()
    });
    let sent: Vec<u64> = sent.collect::<Option<_>>()?;
    (!sent.is_empty()).then(|| sent.iter().sum())
}

pub fn sample(effort: &Effort<'_>, size: u16) -> Result<Sample, RivalError> {
    let sampling = effort.sampling;
    let cores = [sampling.device_core, sampling.chain_core];
    let before = Mood::now(cores[0], cores[1]);
    let span = Duration::from_secs_f64(sampling.seconds.clamp(0.05, 60.0));
    let ovs = Ovs::start(size, sampling.chain_core)?;
    let end = Instant::now() + PATIENCE;
    while ovs.sent()?.0 == 0 {
        if Instant::now() > end {
            return Err(RivalError::Mute(NAME, "no packets".to_owned()));
        }
    }
    std::thread::sleep(span / 2);
    let (from, start) = ovs.sent()?;
    let busy = || cpu_time_ns(ovs.daemons.iter().map(Process::id));
    let before_ns = busy();
    let (to, end) = run_for(NAME, span, from, || ovs.sent())?;
    let cpu_ns = per_packet([before_ns, busy()], [from, to]);
    drop(ovs);
    let around = Around::of(before, Mood::now(cores[0], cores[1]));
    let value = to.saturating_sub(from) as f64 / (end - start).as_secs_f64() / 1e6;
    // It is in the default class.
    Ok(Sample { cpu_ns, not_granted: true, ..Sample::of(value, around) })
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn packets_of_both_ports_are_counted_and_not_the_bridges_own() {
        let text = "OFPST_PORT reply (xid=0x2): 3 ports\n  port LOCAL: rx pkts=5, bytes=0\n           tx pkts=7, bytes=0\n  \
                    port  p0: rx pkts=10, bytes=600, drop=0\n           tx pkts=100, bytes=6000, drop=0\n  \
                    port  p1: rx pkts=20, bytes=600\n           tx pkts=200, bytes=12\n";
        assert_eq!(count(text), Some(300));
        assert_eq!(count(&text.replace("=200", "=?")), None);
        assert_eq!(count("nonsense"), None);
    }
}
