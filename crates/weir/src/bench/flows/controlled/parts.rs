//! An instance of a NF, and the switch before two of them.

use super::wire::{Inbox, Message, Mode, Packet, Way, write};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Packets that the switch sends at a time, at most.
const BURST: u64 = 256;
/// How long it waits when no packet is due.
const REST: Duration = Duration::from_micros(100);

/// What an instance does with packets and flows.
pub trait Function {
    fn process(&mut self, packets: &[Packet]);
    /// Takes all flows out.
    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()>;
    fn put(&mut self, flow: &[u8]) -> io::Result<()>;
    fn flows(&self) -> u64;
}

struct Instance<'f, F> {
    function: &'f mut F,
    control: UnixStream,
    mode: Mode,
    /// Packets that wait.
    kept: Vec<Packet>,
    processed: u64,
}

/// An instance, until the switch or the controller is gone.
pub fn instance<F: Function>(
    function: &mut F,
    packets: UnixStream,
    control: UnixStream,
) -> io::Result<()> {
    let told = control.try_clone()?;
    let mut inboxes = [Inbox::new(control), Inbox::new(packets)];
    let (mode, kept) = (Mode::Process, Vec::new());
    let mut instance = Instance { function, control: told, mode, kept, processed: 0 };
    loop {
        // Orders before packets.
        let mut fds = inboxes.each_ref().map(|inbox| PollFd::new(inbox, PollFlags::IN));
        poll(&mut fds, None)?;
        let ready = fds.map(|fd| !fd.revents().is_empty());
        for (inbox, _) in inboxes.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let Some(messages) = inbox.read()? else { return Ok(()) };
            for message in messages {
                instance.take_in(message)?;
            }
        }
    }
}

impl<F: Function> Instance<'_, F> {
    fn process(&mut self, packets: &[Packet]) {
        self.function.process(packets);
        self.processed += packets.len() as u64;
    }

    fn take_in(&mut self, message: Message) -> io::Result<()> {
        match message {
            Message::Packets(packets) => match self.mode {
                Mode::Process => self.process(&packets),
                Mode::Keep => self.kept.extend(packets),
                Mode::HandOver => {
                    for packet in packets {
                        write(&self.control, &Message::Event(packet))?;
                    }
                }
            },
            Message::Forwarded(packet) => {
                let number = packet.number;
                self.process(&[packet]);
                if self.mode == Mode::Keep {
                    write(&self.control, &Message::Processed(number))?;
                }
            }
            Message::Mode(mode) => {
                self.mode = mode;
                if mode == Mode::Process {
                    let kept = std::mem::take(&mut self.kept);
                    self.process(&kept);
                }
                self.done()?;
            }
            Message::Get => {
                let control = &self.control;
                let mut sent = Ok(());
                self.function.take(&mut |flow| {
                    if sent.is_ok() {
                        sent = write(control, &Message::Flow(flow.to_vec()));
                    }
                })?;
                sent?;
                self.done()?;
            }
            Message::Put(flow) => self.function.put(&flow)?,
            Message::Ask => self.done()?,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn done(&self) -> io::Result<()> {
        let (packets, flows) = (self.processed, self.function.flows());
        write(&self.control, &Message::Done { packets, flows })
    }
}

/// The switch, which makes the packets too: so many a second, of one flow after the other.
pub struct Switch {
    pub source: UnixStream,
    pub target: UnixStream,
    pub control: UnixStream,
    /// A frame of each flow.
    pub frames: Vec<Vec<u8>>,
    pub rate: u64,
}

impl Switch {
    /// Until the controller says no more; how many packets were made.
    pub fn run(self, orders: &Receiver<Message>) -> io::Result<u64> {
        let (begun, mut made, mut way) = (Instant::now(), 0, Way::Source);
        loop {
            match orders.try_recv() {
                Ok(Message::Forward(packet)) => {
                    write(&self.target, &Message::Forwarded(packet))?;
                    continue;
                }
                Ok(message) => {
                    if let Message::Way(new) = message {
                        way = new;
                    }
                    let flows = self.frames.len() as u64;
                    write(&self.control, &Message::Done { packets: made, flows })?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return Ok(made),
                Err(TryRecvError::Empty) => {}
            }
            let due = begun.elapsed().as_nanos() * u128::from(self.rate) / 1_000_000_000;
            let packets = (due as u64).saturating_sub(made).min(BURST);
            if packets == 0 {
                std::thread::sleep(REST);
                continue;
            }
            let packets: Vec<Packet> =
                (made..made + packets).filter_map(|n| self.packet(n)).collect();
            made += packets.len() as u64;
            if way == Way::SourceAndController {
                for packet in &packets {
                    write(&self.control, &Message::Copy(packet.clone()))?;
                }
            }
            let to = if way == Way::Target { &self.target } else { &self.source };
            write(to, &Message::Packets(packets))?;
        }
    }

    fn packet(&self, number: u64) -> Option<Packet> {
        let flow = usize::try_from(number).ok()?.checked_rem(self.frames.len())?;
        Some(Packet { number, bytes: self.frames.get(flow)?.clone() })
    }
}
