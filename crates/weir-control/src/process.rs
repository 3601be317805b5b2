//! One worker process.

use crate::jail::{Cell, Jail};
use crate::launch::{Executable, Launcher, OpenError};
use crate::memory::{FdList, Memory, MemoryError};
use crate::reaper::{self, Reaped};
use crate::setup::{Setup, WorkerSetup};
use crate::voice::{Allowance, Ear};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weir_device::{DeviceError, DeviceSpec, lend_packet_socket, retake_packets};
use weir_mem::realtime::WORKER_PRIORITY;
use weir_runtime::link::{self, Inbox, LinkError};
use weir_runtime::moves::Order;
use weir_runtime::sandbox::{Profile, SandboxSpec};
use weir_runtime::spec::{EndSpec, FromWorker, RESERVE, WorkerSpec};

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No process.
    #[error("cannot start a worker process: {0}")]
    Process(#[from] io::Error),
    /// No memory, or it could not be told its work.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No packet socket.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No control socket.
    #[error(transparent)]
    Link(#[from] link::LinkError),
    /// No program, or no sandbox for it.
    #[error("cannot start workers: {0}")]
    Program(#[from] OpenError),
    /// It cannot be watched.
    #[error("cannot watch a worker process: {0}")]
    Watch(#[source] rustix::io::Errno),
}

/// What starts workers: the programs, held open, and the sandbox around them.
pub(crate) struct Programs {
    launcher: Launcher,
    own: Executable,
    outside: Vec<Executable>,
}

impl Programs {
    pub(crate) fn open(setup: &Setup) -> Result<Self, OpenError> {
        let launcher = Launcher::new(setup.sandbox)?;
        // The running program itself: an upgrade on disk does not mix versions.
        let own = launcher.own()?;
        let outside = setup.programs.iter().map(|p| launcher.open(p)).collect::<Result<_, _>>()?;
        Ok(Programs { launcher, own, outside })
    }

    /// Whether a process can be given the real-time class that it may not ask for itself: for root only.
    fn may_give_class(&self) -> bool {
        self.launcher.jail().is_some_and(Jail::may_less)
    }

    /// One line on the sandbox for the operator.
    pub(crate) fn summary(&self) -> String {
        self.launcher.summary(&self.own)
    }
}

/// What a worker's work needs of the kernel.
fn profile(end: &EndSpec) -> Profile {
    let device = match end {
        EndSpec::Rx { device, .. } | EndSpec::Tx { device, .. } => device,
        EndSpec::Dump(_) => return Profile::Capture,
        // Packets from rings into rings.
        EndSpec::Gate { .. } | EndSpec::Drain | EndSpec::None => return Profile::Nf,
    };
    match device {
        DeviceSpec::Generator(_)
        | DeviceSpec::Listed(_)
        | DeviceSpec::Replay(_)
        | DeviceSpec::Null => Profile::Nf,
        DeviceSpec::Pcap { .. } => Profile::Capture,
        DeviceSpec::Afp(_) | DeviceSpec::Tap(_) => Profile::Live,
    }
}

/// Descriptors that a worker may have beyond those it is given: standard ones, its device's.
const OWN_DESCRIPTORS: u64 = 64;

/// Descriptors that a device's service may have at least: it is lent those of the next generation beside its
/// own, however many that takes.
const SERVICE_DESCRIPTORS: u64 = 4096;

/// How many descriptors `worker` may have, when it is `given` so many for now.
fn most_descriptors(worker: &WorkerSetup, given: usize) -> u64 {
    use rustix::process::{Resource, getrlimit};
    let enough = given as u64 + OWN_DESCRIPTORS;
    if !worker.serves() {
        return enough;
    }
    let may = getrlimit(Resource::Nofile).maximum.unwrap_or(SERVICE_DESCRIPTORS);
    enough.max(SERVICE_DESCRIPTORS.min(may))
}

/// A worker process that was started.
pub(crate) struct Process {
    child: Reaped,
    pidfd: OwnedFd,
    socket: OwnedFd,
    inbox: Inbox,
    /// Its standard error.
    pub(crate) ear: Ear,
    /// A copy of its packet socket: only the agent may bind it.
    packets: Option<OwnedFd>,
}

/// How a process of a worker begins.
#[derive(Default)]
pub(crate) struct Beginning {
    /// The step at which it is to die, and the how manieth time, for tests.
    pub(crate) fault: Option<(u32, u32)>,
    /// It waits for the word before it begins.
    pub(crate) standby: bool,
    /// The packet socket that its predecessor has left, to go on with.
    pub(crate) socket: Option<OwnedFd>,
}

/// How long a worker may take to go on with a message, or to leave.
const PATIENCE: Duration = Duration::from_secs(5);

impl Process {
    /// Starts worker `w` and tells it its work.
    pub(crate) fn start(
        programs: &Programs,
        setup: &Setup,
        memory: &Memory,
        w: usize,
        how: Beginning,
    ) -> Result<Self, SpawnError> {
        let worker = &setup.workers[w];
        let Beginning { fault, standby, socket } = how;
        let packets = setup.packets(w).map(|(name, receives)| match socket {
            Some(left) => {
                retake_packets(name, &left, receives);
                Ok(left)
            }
            None => lend_packet_socket(name, receives),
        });
        let packets = packets.transpose()?;
        let lent = packets.as_ref().map(AsFd::as_fd);
        let (mut spec, fds) = memory.spec(setup, w, fault, lent)?;
        spec.standby = standby;
        let descriptors = most_descriptors(worker, fds.len());
        let mut process = Self::spawn(programs, worker, descriptors, lent.is_some(), false)?;
        process.told(programs, worker, spec, &fds)?;
        drop(fds);
        process.packets = packets;
        Ok(process)
    }

    /// Starts a process that is to be worker `w`'s, when the one that is has died, and waits until then: it knows nothing of
    /// the graph, and has nothing of it.
    pub(crate) fn in_reserve(
        programs: &Programs,
        setup: &Setup,
        memory: &Memory,
        w: usize,
    ) -> Result<Self, SpawnError> {
        let worker = &setup.workers[w];
        let (_, fds) = memory.spec(setup, w, None, None)?;
        let descriptors = most_descriptors(worker, fds.len());
        Self::spawn(programs, worker, descriptors, false, true)
    }

    /// Tells one that was [in reserve](Process::in_reserve) its work, which is worker `w`'s.
    pub(crate) fn take_over(
        mut self,
        programs: &Programs,
        setup: &Setup,
        memory: &Memory,
        w: usize,
        fault: Option<(u32, u32)>,
    ) -> Result<Self, SpawnError> {
        let worker = &setup.workers[w];
        let (spec, fds) = memory.spec(setup, w, fault, None)?;
        // Somebody may have stopped it.
        let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
        if worker.schedule.real_time && programs.may_give_class() {
            let _ = weir_mem::realtime::set_fifo(Some(self.pid()), WORKER_PRIORITY);
        }
        self.told(programs, worker, spec, &fds)?;
        Ok(self)
    }

    /// Ends one that was in reserve and is not needed.
    pub(crate) fn discard(self) {
        // It may be stopped, and not see that its socket is closed. Nobody waits for its end.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Starts a process for `worker` that may have so many descriptors, and a packet socket or none.
    fn spawn(
        programs: &Programs,
        worker: &WorkerSetup,
        descriptors: u64,
        has_packets: bool,
        in_reserve: bool,
    ) -> Result<Self, SpawnError> {
        let profile = profile(&worker.end);
        let cell = Cell {
            closed: profile == Profile::Nf,
            // A packet socket stays in the namespace that it was made in.
            no_network: profile != Profile::Live || has_packets,
            // Who is to wait disturbs nobody as it begins: it gets the class when it takes over, if the agent may give it.
            real_time: worker.schedule.real_time && !(in_reserve && programs.may_give_class()),
            round_robin: worker.schedule.trial.round_robin,
            descriptors,
            memory: programs.launcher.jail().and_then(Jail::memory),
        };
        let outside = worker.program.and_then(|p| programs.outside.get(usize::from(p.0)));
        let (socket, theirs) = link::pair()?;
        let mut command = programs.launcher.command(outside.unwrap_or(&programs.own), cell);
        let mut child = command
            .arg("worker")
            .arg(&worker.name)
            .args(in_reserve.then_some(RESERVE))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // It holds the worker's end of the socket: while we do too, a worker that has died would
        // not be noticed by writing to it.
        drop(command);
        let pid = Pid::from_child(&child);
        let said = child.stderr.take().map(OwnedFd::from).ok_or(io::ErrorKind::BrokenPipe);
        let watched = || -> Result<(OwnedFd, Ear), SpawnError> {
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(SpawnError::Watch)?;
            let ear = Ear::new(said.map_err(io::Error::from)?).map_err(io::Error::from)?;
            Ok((pidfd, ear))
        };
        let (pidfd, ear) = watched().inspect_err(|_| {
            // Nobody else would end it, and wait for it.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let inbox = Inbox::default();
        let child = Reaped::new(child);
        Ok(Process { child, pidfd, socket, inbox, ear, packets: None })
    }

    /// Tells it its work, which is `worker`'s.
    fn told(
        &mut self,
        programs: &Programs,
        worker: &WorkerSetup,
        mut spec: WorkerSpec,
        fds: &FdList<'_>,
    ) -> Result<(), SpawnError> {
        let profile = profile(&worker.end);
        spec.sandbox = programs.launcher.jail().map(|jail| SandboxSpec {
            profile,
            // A closed worker has become somebody else before its program begins.
            user: jail.user().filter(|_| profile != Profile::Nf),
        });
        match link::post(self.socket.as_fd(), &spec, &fds.as_fds()) {
            // It died already: found out by its descriptor like any other death. One that does not read is not waited
            // for; it is ended when it is not ready in time.
            Ok(()) | Err(LinkError::Closed) => Ok(()),
            Err(e) => {
                self.kill();
                Err(e.into())
            }
        }
    }

    /// Sends the worker the memory of the next generation, in which it is to be worker `w`. To be called when it
    /// has been given the command that goes before ([`command::ADOPT`](weir_runtime::spec::command::ADOPT)).
    pub(crate) fn tell_next(
        &self,
        setup: &Setup,
        memory: &Memory,
        w: usize,
    ) -> Result<(), SpawnError> {
        // Its device it has.
        let (spec, fds) = memory.spec(setup, w, None, None)?;
        Ok(link::post(self.socket.as_fd(), &spec, &fds.as_fds())?)
    }

    /// Gives the worker an order. To be called as [`Process::tell_next`].
    pub(crate) fn tell_order(&self, order: &Order) -> Result<(), LinkError> {
        link::post(self.socket.as_fd(), order, &[])
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// True when it has ended, whether anybody has taken note of that or not.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Readable when the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Readable when the worker says something.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its packet socket, if it has one.
    pub(crate) fn packets(&self) -> Option<BorrowedFd<'_>> {
        self.packets.as_ref().map(AsFd::as_fd)
    }

    /// Its packet socket, when it has ended: what waits there is its successor's.
    pub(crate) fn into_packets(self) -> Option<OwnedFd> {
        self.packets
    }

    /// What it says next, if anything has come.
    pub(crate) fn hear(&mut self) -> Result<Option<FromWorker>, LinkError> {
        self.inbox.take(self.socket.as_fd())
    }

    /// Bytes of what it said last.
    pub(crate) fn heard(&self) -> usize {
        self.inbox.heard()
    }

    /// True when it began to say something and does not go on.
    pub(crate) fn stammers(&self) -> bool {
        self.inbox.waits().is_some_and(|waits| waits > PATIENCE)
    }

    /// How it ended; waits for it, but not for the kernel to take apart who was killed.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends it at once: it does nothing any more.
    pub(crate) fn kill(&mut self) {
        self.child.kill(self.pidfd.as_fd(), reaper::SOON);
    }

    /// The same at the end of all, when others may want what it has open: waits longer until it has gone.
    pub(crate) fn kill_last(&mut self) {
        self.child.kill(self.pidfd.as_fd(), PATIENCE);
    }

    /// True when somebody has killed it, and the kernel may not have taken it apart yet.
    pub(crate) fn was_killed(&self) -> bool {
        self.child.was_killed()
    }

    /// True when it is on its way out, which the kernel may take long for.
    pub(crate) fn is_exiting(&self) -> bool {
        reaper::is_exiting(self.child.pid().as_raw_nonzero().get().unsigned_abs())
    }

    /// Tells it to leave by closing its control socket.
    pub(crate) fn dismiss(self) -> Leaving {
        Leaving { child: self.child, pidfd: self.pidfd, ear: self.ear }
    }
}

/// A worker that was told to leave.
pub(crate) struct Leaving {
    child: Reaped,
    pidfd: OwnedFd,
    ear: Ear,
}

impl Leaving {
    /// Waits until it has left, and ends it when it does not. True when it left of its own accord
    /// and with success. What it says meanwhile comes behind `lines`.
    pub(crate) fn wait(&mut self, allowance: &mut Allowance, lines: &mut Vec<String>) -> bool {
        let end = Instant::now() + PATIENCE;
        let left = loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
            fds.extend(self.ear.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // One that has said much is listened to again in a moment.
            let turn = left.min(Duration::from_millis(100));
            let heard = poll(&mut fds, Timespec::try_from(turn).ok().as_ref());
            let ended = !fds[0].revents().is_empty();
            match heard {
                Ok(_) if ended => break self.child.wait().is_ok_and(|status| status.success()),
                Ok(_) if left.is_zero() => {
                    self.child.kill(self.pidfd.as_fd(), PATIENCE);
                    break false;
                }
                Ok(n) if n > 0 => lines.extend(self.ear.hear(allowance)),
                _ => {}
            }
        };
        lines.extend(self.ear.last_words(allowance));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_device::ListedSpec;

    #[test]
    fn a_device_that_is_no_device_of_the_machine_needs_nothing_of_the_kernel() {
        let listed = ListedSpec {
            flows: Vec::new(),
            payloads: Vec::new(),
            size: 64,
            packets: None,
            burst: None,
            stays: false,
            shuffled: false,
        };
        let generator: DeviceSpec = "gen:packets=1".parse().unwrap();
        let capture = DeviceSpec::Pcap { rx: Some("in.pcap".into()), tx: None };
        for (device, wanted) in [
            (DeviceSpec::Listed(listed), Profile::Nf),
            (generator, Profile::Nf),
            (DeviceSpec::Null, Profile::Nf),
            (capture, Profile::Capture),
            (DeviceSpec::Afp("eth0".into()), Profile::Live),
            (DeviceSpec::Tap("weir0".into()), Profile::Live),
        ] {
            let tx =
                EndSpec::Tx { device: device.clone(), port: 0, nanoseconds: false, tells: true };
            assert_eq!(profile(&tx), wanted, "{device:?}");
            let rx = EndSpec::Rx { device, port: 0, source: 0, early: Vec::new() };
            assert_eq!(profile(&rx), wanted, "{rx:?}");
        }
        assert_eq!(profile(&EndSpec::None), Profile::Nf);
    }
}
