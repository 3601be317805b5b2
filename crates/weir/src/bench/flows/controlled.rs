//! A move of flows as OpenNF does it (Gember-Jacobson et al., SIGCOMM 2014: loss-free and order-preserving), to compare Weir's with: a
//! controller has the source hand over what it remembers and every packet that comes meanwhile, gives it to the target, and changes the
//! way. All of it goes through the controller, over its sockets to two instances, each a process, and to the switch before them.
//!
//! It is ours, and no part of OpenNF: the instances run Weir's FlowMonitor; messages are binary and go over sockets of this machine; no
//! message waits for the answer to the one before it, but where the protocol says so. That makes it faster than OpenNF's own.

mod parts;
mod wire;

use crate::bench::machine::pin;
use crate::bench::sample::{BenchError, SampleArgs, finish};
use parts::{Function, Switch, instance};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nf::{Take, Walk};
use weir_nfs::flow_monitor::FlowMonitor;
use wire::{Inbox, Message, Mode, Packet, Way, write};

/// How long a move may take, with all that comes before and after it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum ControlledError {
    #[error("a part of the move by a controller failed: {0}")]
    Io(#[from] io::Error),
    #[error("the {0:?} is gone")]
    Gone(Part),
    #[error("the move by a controller took more than {PATIENCE:?}")]
    Late,
    #[error("the instance cannot run: {0}")]
    Nf(#[from] weir_nf::testing::BenchError),
}

/// Whom the controller speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Switch,
    Source,
    Target,
}

/// Runs one instance: packets come by the standard input, the controller is at the standard output.
#[derive(clap::Args)]
pub struct PartArgs {
    #[arg(long)]
    core: usize,
}

pub fn main(args: &PartArgs) -> ExitCode {
    finish(run(args).map_err(BenchError::from))
}

fn run(args: &PartArgs) -> Result<(), ControlledError> {
    let _pinned = pin(args.core);
    let packets = io::stdin().as_fd().try_clone_to_owned()?;
    let control = io::stdout().as_fd().try_clone_to_owned()?;
    let mut monitor = Monitor(Bench::new::<FlowMonitor>(Default::default())?);
    Ok(instance(&mut monitor, packets.into(), control.into())?)
}

/// The NF.
struct Monitor(Bench);

impl Function for Monitor {
    fn process(&mut self, packets: &[Packet]) {
        let frames: Vec<&[u8]> = packets.iter().map(|packet| packet.bytes.as_slice()).collect();
        self.0.run(&frames);
    }

    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut walk = Walk::default();
        loop {
            let (look, take) = (usize::from(u16::MAX), usize::MAX);
            let all =
                Take { look, take, chosen: &mut |_, _| true, to: &mut |_, record| each(record) };
            if !self.0.instance().take_flows(&mut walk, all).map_err(io::Error::other)? {
                return Ok(());
            }
        }
    }

    fn put(&mut self, flow: &[u8]) -> io::Result<()> {
        self.0.instance().put_flow(flow).map(drop).map_err(io::Error::other)
    }

    fn flows(&self) -> u64 {
        self.0.flows().0 as u64
    }
}

/// The sockets of an instance.
struct Link {
    packets: UnixStream,
    control: UnixStream,
}

/// Both ends of them: the instance's last.
fn link() -> io::Result<(Link, Link)> {
    let (packets, its_packets) = UnixStream::pair()?;
    let (control, its_control) = UnixStream::pair()?;
    Ok((Link { packets, control }, Link { packets: its_packets, control: its_control }))
}

/// An instance's process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(core: usize) -> io::Result<(Process, Link)> {
    let (ours, its) = link()?;
    let child = Command::new(std::env::current_exe()?)
        .args(["bench", "part", "--core", &core.to_string()])
        .stdin(OwnedFd::from(its.packets))
        .stdout(OwnedFd::from(its.control))
        .spawn()?;
    Ok((Process(child), ours))
}

/// How long it takes until so many flows have moved, while packets of all come, so many a second of each.
pub fn measure(
    sampling: &SampleArgs,
    flows: u32,
    each_pps: u32,
) -> Result<Duration, ControlledError> {
    // As Weir's: the source on the NFs' own core, the target beside whoever makes the packets.
    let (_source, from) = process(sampling.chain_core)?;
    let (_target, to) = process(sampling.device_core)?;
    let rate = u64::from(flows) * u64::from(each_pps);
    move_all([from, to], frames(flows), rate, Some(sampling.device_core))
}

/// A frame of each flow.
fn frames(flows: u32) -> Vec<Vec<u8>> {
    let frame = |flow: u32| {
        let [_, b, c, d] = flow.to_be_bytes();
        Frame::ipv4([10, b, c, d], [192, 0, 2, 1]).udp(1024, 53).payload(&[0; 18]).build()
    };
    (0..flows).map(frame).collect()
}

/// Has packets come, and moves all flows when each has been seen. No packet is lost: at the end all are there.
fn move_all(
    [source, target]: [Link; 2],
    frames: Vec<Vec<u8>>,
    rate: u64,
    core: Option<usize>,
) -> Result<Duration, ControlledError> {
    let flows = frames.len() as u64;
    // While these are there the instances wait for packets.
    let _open = [source.packets.try_clone()?, target.packets.try_clone()?];
    let (own, its) = UnixStream::pair()?;
    let mut inbox = Inbox::new(its.try_clone()?);
    let (order, orders) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(messages)) = inbox.read() {
            if messages.into_iter().any(|message| order.send(message).is_err()) {
                return;
            }
        }
    });
    let (from, to) = (source.packets, target.packets);
    let switch = Switch { source: from, target: to, control: its, frames, rate };
    let switch = std::thread::spawn(move || {
        let _pinned = core.map(pin);
        switch.run(&orders)
    });
    let mut controller = Controller::new([own, source.control, target.control])?;
    while controller.ask(Part::Source)?.1 < flows {
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = controller.move_all()?;
    controller.parts[Part::Switch as usize].shutdown(std::net::Shutdown::Both)?;
    let made = switch.join().map_err(|_| ControlledError::Gone(Part::Switch))??;
    loop {
        let [source, target] = [controller.ask(Part::Source)?, controller.ask(Part::Target)?];
        if source.0 + target.0 == made && (source.1, target.1) == (0, flows) {
            return Ok(took);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The controller.
struct Controller {
    parts: [UnixStream; 3],
    /// From whom; no message: it is gone.
    inbox: Receiver<(Part, Option<Message>)>,
    /// Packets that the source did not process, until all flows are at the target.
    waiting: Option<Vec<Packet>>,
    /// The last packet that the switch sent to the source, and the last forwarded one that the target has processed.
    copied: Option<u64>,
    processed: Option<u64>,
    /// By part: how often it said that it is done, and what it said with it.
    done: [(u64, (u64, u64)); 3],
    until: Instant,
}

impl Controller {
    fn new(parts: [UnixStream; 3]) -> io::Result<Self> {
        let (send, inbox) = channel();
        for (part, stream) in [Part::Switch, Part::Source, Part::Target].into_iter().zip(&parts) {
            let (inbox, send) = (Inbox::new(stream.try_clone()?), send.clone());
            std::thread::spawn(move || listen(part, inbox, &send));
        }
        Ok(Controller {
            parts,
            inbox,
            waiting: None,
            copied: None,
            processed: None,
            done: Default::default(),
            until: Instant::now() + PATIENCE,
        })
    }

    fn tell(&self, part: Part, message: &Message) -> Result<(), ControlledError> {
        Ok(write(&self.parts[part as usize], message)?)
    }

    /// Waits until the part has done what it is told.
    fn order(&mut self, part: Part, message: &Message) -> Result<(), ControlledError> {
        let before = self.done[part as usize].0;
        self.tell(part, message)?;
        self.wait(|all| all.done[part as usize].0 > before)
    }

    /// The part's packets and flows.
    fn ask(&mut self, part: Part) -> Result<(u64, u64), ControlledError> {
        self.order(part, &Message::Ask)?;
        Ok(self.done[part as usize].1)
    }

    fn wait(&mut self, until: impl Fn(&Self) -> bool) -> Result<(), ControlledError> {
        while !until(self) {
            let left = self.until.saturating_duration_since(Instant::now());
            let (from, message) =
                self.inbox.recv_timeout(left).map_err(|_| ControlledError::Late)?;
            match message {
                Some(message) => self.take_in(from, message)?,
                // It is dismissed before the others.
                None if from == Part::Switch => {}
                None => return Err(ControlledError::Gone(from)),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, from: Part, message: Message) -> Result<(), ControlledError> {
        match message {
            Message::Flow(flow) => self.tell(Part::Target, &Message::Put(flow))?,
            Message::Event(packet) => match &mut self.waiting {
                Some(waiting) => waiting.push(packet),
                None => self.tell(Part::Switch, &Message::Forward(packet))?,
            },
            Message::Copy(packet) => self.copied = Some(packet.number),
            Message::Processed(number) => self.processed = Some(number),
            Message::Done { packets, flows } => {
                let done = &mut self.done[from as usize];
                *done = (done.0 + 1, (packets, flows));
            }
            _ => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        }
        Ok(())
    }

    /// Moves all flows; how long it took.
    fn move_all(&mut self) -> Result<Duration, ControlledError> {
        let start = Instant::now();
        self.waiting = Some(Vec::new());
        self.order(Part::Source, &Message::Mode(Mode::HandOver))?;
        self.order(Part::Source, &Message::Get)?;
        // Each flow was passed on when it came: when the target answers it has all.
        self.ask(Part::Target)?;
        for packet in self.waiting.take().unwrap_or_default() {
            self.tell(Part::Switch, &Message::Forward(packet))?;
        }
        // What comes to the target by the new way waits there for what comes by the old one.
        self.order(Part::Target, &Message::Mode(Mode::Keep))?;
        self.order(Part::Switch, &Message::Way(Way::SourceAndController))?;
        self.wait(|all| all.copied.is_some())?;
        self.order(Part::Switch, &Message::Way(Way::Target))?;
        let last = self.copied;
        self.wait(|all| all.processed >= last)?;
        self.order(Part::Target, &Message::Mode(Mode::Process))?;
        Ok(start.elapsed())
    }
}

fn listen(part: Part, mut inbox: Inbox, send: &Sender<(Part, Option<Message>)>) {
    while let Ok(Some(messages)) = inbox.read() {
        if messages.into_iter().any(|message| send.send((part, Some(message))).is_err()) {
            return;
        }
    }
    // Nobody listens any more when the move is over.
    let _ = send.send((part, None));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const FLOWS: u64 = 40;

    /// Remembers of each flow the last packet, and counts those that did not come right behind it.
    struct Recorder {
        last: HashMap<Vec<u8>, u64>,
        disorder: Arc<AtomicU64>,
    }

    impl Function for Recorder {
        fn process(&mut self, packets: &[Packet]) {
            for packet in packets {
                let flow = packet.bytes[26..38].to_vec();
                let wanted = packet.number.checked_sub(FLOWS);
                if self.last.insert(flow, packet.number) != wanted {
                    self.disorder.fetch_add(1, Ordering::Relaxed);
                }
            }
        }

        fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
            for (flow, last) in self.last.drain() {
                each(&[last.to_le_bytes().as_slice(), &flow].concat());
            }
            Ok(())
        }

        fn put(&mut self, flow: &[u8]) -> io::Result<()> {
            let (last, flow) = flow.split_first_chunk().unwrap();
            self.last.insert(flow.to_vec(), u64::from_le_bytes(*last));
            Ok(())
        }

        fn flows(&self) -> u64 {
            self.last.len() as u64
        }
    }

    #[test]
    fn flows_move_with_what_is_remembered_and_no_packet_is_lost_or_overtaken() {
        for rate in [2_000, 100_000] {
            let disorder = Arc::new(AtomicU64::new(0));
            let links = [(); 2].map(|()| {
                let (ours, its) = link().unwrap();
                let mut recorder = Recorder { last: HashMap::new(), disorder: disorder.clone() };
                std::thread::spawn(move || instance(&mut recorder, its.packets, its.control));
                ours
            });
            // It comes back only when source and target have processed as many packets as were made.
            move_all(links, frames(FLOWS as u32), rate, None).unwrap();
            assert_eq!(disorder.load(Ordering::Relaxed), 0, "at {rate} packets a second");
        }
    }

    #[test]
    fn the_flows_of_a_monitor_are_taken_and_put() {
        let monitor = || Monitor(Bench::new::<FlowMonitor>(Default::default()).unwrap());
        let (mut source, mut target) = (monitor(), monitor());
        let packets = frames(300).into_iter().zip(0..);
        let packets: Vec<_> = packets.map(|(bytes, number)| Packet { number, bytes }).collect();
        source.process(&packets);
        let mut records = Vec::new();
        source.take(&mut |record| records.push(record.to_vec())).unwrap();
        records.iter().for_each(|record| target.put(record).unwrap());
        assert_eq!((source.flows(), target.flows(), records.len()), (0, 300, 300));
    }
}
