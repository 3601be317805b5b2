//! dpdk-testpmd between devices that are all in memory, without huge pages and rights.

use super::{DPDK_FOLDER, PATIENCE, RivalError, capture, per_packet, run_for};
use crate::bench::figure::Effort;
use crate::bench::figure::data::Sample;
use crate::bench::machine::cpu_time_ns;
use crate::bench::mood::{Around, Mood};
use crate::bench::own::{ENDS_WITH_US, Folder, Process};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub const NAME: &str = "dpdk-testpmd";

/// What testpmd receives from and sends into.
#[derive(Debug, Clone, Copy)]
pub enum Devices {
    /// A buffer is taken for each packet, and given back.
    Null,
    /// Two rings, in which the same packets go round.
    Ring,
    /// Weir's packets again and again: each is written into a buffer, which is given back when it has been sent.
    Capture,
}

/// How many packets testpmd takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burst {
    /// 32.
    Usual,
    /// As many as Weir does, and the largest cache of buffers that DPDK has, which two such bursts fit into.
    AsWeir,
}

/// testpmd as it runs.
struct Testpmd {
    process: Process,
    say: ChildStdin,
    lines: Receiver<String>,
    last: String,
    // Where it leaves what it leaves; gone after it.
    _folder: Folder,
}

impl Testpmd {
    fn start(
        (mode, devices, burst): (&str, Devices, Burst),
        size: u16,
        cores: [usize; 2],
    ) -> Result<Self, RivalError> {
        let failed = |e| RivalError::Start(NAME, e);
        let folder = Folder::new("weir-testpmd").map_err(failed)?;
        let device = |i: usize| match devices {
            Devices::Null => format!("--vdev=net_null{i},size={}", size - 4),
            Devices::Ring => format!("--vdev=net_ring{i}"),
            Devices::Capture => format!("--vdev=net_pcap{i},{}", capture::device(folder.path())),
        };
        if matches!(devices, Devices::Capture) {
            capture::write(folder.path(), size).map_err(|e| RivalError::Packets(NAME, e))?;
        }
        let [first, ends_with_us @ ..] = ENDS_WITH_US;
        let mut command = Command::new(first);
        command
            .args(ends_with_us)
            // It writes whole blocks into a pipe, unless told otherwise.
            .args(["stdbuf", "-oL", NAME])
            .env(DPDK_FOLDER, folder.path())
            .args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--no-shconf"])
            .arg(format!("--file-prefix=weir-{}", std::process::id()))
            .arg(format!("-l{},{}", cores[0], cores[1]))
            .args([device(0), device(1)])
            .args(["--", "-i", "--total-num-mbufs=16384", "--no-mlockall"])
            .arg(format!("--forward-mode={mode}"))
            .args(match burst {
                Burst::Usual => &[][..],
                Burst::AsWeir => &["--burst=256", "--mbcache=512"],
            })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Process::start(&mut command).map_err(failed)?;
        let missing = || RivalError::Start(NAME, std::io::ErrorKind::BrokenPipe.into());
        let say = process.stdin().ok_or_else(missing)?;
        let out = process.stdout().ok_or_else(missing)?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Testpmd { process, say, lines, last: String::new(), _folder: folder })
    }

    fn tell(&mut self, command: &str) {
        // Whether it was heard is seen in the answer.
        let _ = writeln!(self.say, "{command}");
        let _ = self.say.flush();
    }

    /// Packets sent so far by both ports, and when.
    fn sent(&mut self) -> Result<(u64, Instant), RivalError> {
        self.tell("show port stats all");
        let (mut sum, end) = (0, Instant::now() + PATIENCE);
        for _ in 0..2 {
            loop {
                let left = end.saturating_duration_since(Instant::now());
                let line = self.lines.recv_timeout(left).map_err(|e| match e {
                    RecvTimeoutError::Timeout => RivalError::Mute(NAME, self.last.clone()),
                    RecvTimeoutError::Disconnected => RivalError::Ended(NAME, self.last.clone()),
                })?;
                let packets = line.trim().strip_prefix("TX-packets:");
                let packets =
                    packets.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
                self.last = line;
                if let Some(packets) = packets {
                    sum += packets;
                    break;
                }
            }
        }
        Ok((sum, Instant::now()))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.tell("quit");
        // If it does not, it is killed.
        let _ = self.process.ended_within(Duration::from_secs(5));
    }
}

pub fn sample(
    effort: &Effort<'_>,
    forwards: (&str, Devices, Burst),
    size: u16,
) -> Result<Sample, RivalError> {
    let sampling = effort.sampling;
    let cores = [sampling.device_core, sampling.chain_core];
    let before = Mood::now(cores[0], cores[1]);
    let span = Duration::from_secs_f64(sampling.seconds.clamp(0.05, 60.0));
    let mut testpmd = Testpmd::start(forwards, size, cores)?;
    testpmd.tell(match forwards.1 {
        Devices::Null | Devices::Capture => "start",
        // Two bursts of 32 from each port.
        Devices::Ring => "start tx_first 2",
    });
    // Once to know that it runs.
    testpmd.sent()?;
    std::thread::sleep(span / 2);
    let (from, start) = testpmd.sent()?;
    let busy = cpu_time_ns([testpmd.process.id()]);
    let (to, end) = run_for(NAME, span, from, || testpmd.sent())?;
    let cpu_ns = per_packet([busy, cpu_time_ns([testpmd.process.id()])], [from, to]);
    drop(testpmd);
    let around = Around::of(before, Mood::now(cores[0], cores[1]));
    let value = to.saturating_sub(from) as f64 / (end - start).as_secs_f64() / 1e6;
    // It is in the default class.
    Ok(Sample { cpu_ns, not_granted: true, ..Sample::of(value, around) })
}
