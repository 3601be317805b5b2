//! TAP interfaces: the kernel's end is an Ethernet interface, this end a descriptor.
//!
//! The descriptor is one for both services, and the agent keeps a copy: so either service can die
//! and be started again while the interface stays as it is.

use super::cutter::{Cutter, Received};
use super::open::{asking_socket, failed, link_or_gone};
use super::transmit::{Patience, drop_packets};
use super::watch::{Presence, Watch};
use crate::offload::VnetHeader;
use crate::sys;
use crate::{DeviceError, Dropped, Place, Receive, Room, Send, Status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, read, writev};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_mem::Arena;
use weir_packet::{DropReason, Packet};

/// Longest super-packet, with its header.
const LONGEST: usize = 1 << 17;

/// One end of a TAP interface, and how to ask about the other.
struct Tap {
    fd: OwnedFd,
    /// For questions by name.
    socket: OwnedFd,
    watch: Watch,
}

impl Tap {
    fn new(name: &str, fd: Option<OwnedFd>, tells: bool) -> Result<Self, DeviceError> {
        let device = format!("tap:{name}");
        let fd = fd.ok_or_else(|| DeviceError::NoDescriptor(device.clone()))?;
        let socket = asking_socket(&device)?;
        // It may have been deleted since: then it is waited for.
        let link = link_or_gone(&socket, name);
        Ok(Tap { fd, socket, watch: Watch::new("tap", name, link, tells) })
    }

    /// Looks at the interface; one that was made anew under the name becomes ours.
    fn look(&mut self) {
        let fd = &self.fd;
        // It is the agent that takes it up: services have no privileges.
        self.watch.look(&self.socket, |_| sys::is_attached(fd));
    }
}

/// Receives what the kernel sends by the interface. What it had no room for it drops; that is
/// counted as `kernel-full`.
pub struct TapRx {
    tap: Tap,
    cutter: Cutter,
    bytes: Vec<u8>,
    /// Length and time of the frame that was read last, until it has been taken in whole.
    held: Option<(usize, u64)>,
    losses: Losses,
    received: u64,
}

impl TapRx {
    /// The receiving half of the interface `name` behind `fd` (from [`crate::create_tap`]).
    pub fn new(name: &str, place: Place, fd: Option<OwnedFd>) -> Result<Self, DeviceError> {
        let tap = Tap::new(name, fd, true)?;
        let losses = Losses::new(name, (place[5] != 0).then_some(place[1]))?;
        let bytes = vec![0; LONGEST];
        Ok(TapRx { tap, cutter: Cutter::default(), bytes, held: None, losses, received: place[0] })
    }

    /// Takes frames until there are none (true) or there is no room.
    fn take(&mut self, room: &mut Room<'_>) -> bool {
        while !room.is_full() {
            let held = self.held.or_else(|| match read(&self.tap.fd, &mut *self.bytes) {
                Ok(len) => Some((len, now_ns())),
                Err(Errno::AGAIN | Errno::INTR) => None,
                Err(_) => {
                    if self.tap.watch.presence() == Presence::Up {
                        self.tap.watch.hurry();
                    }
                    None
                }
            });
            let Some((len, time_ns)) = held else { return true };
            let frame = self.bytes.get(..len).and_then(|b| b.split_first_chunk());
            let Some((vnet, bytes)) = frame else {
                room.refuse(DropReason::Truncated, len);
                continue;
            };
            let header = VnetHeader::parse(vnet);
            if !self.cutter.take(&Received { bytes, header, vlan: None, time_ns }, room) {
                self.held = Some((len, time_ns));
                return false;
            }
            self.held = None;
        }
        false
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

impl Receive for TapRx {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        let before = room.received.0;
        let empty = self.take(room);
        if self.tap.watch.is_due() {
            self.tap.look();
            self.losses.count(room);
        }
        self.received += room.received.0 - before;
        Ok(if empty { Status::Later(self.tap.watch.wait_ns()) } else { Status::More })
    }

    fn place(&self) -> Place {
        [self.received, self.losses.seen, 0, 0, 0, 1]
    }

    fn notice(&mut self) -> Option<String> {
        self.tap.watch.notice()
    }

    fn finish(&mut self, room: &mut Room<'_>) {
        let before = room.received.0;
        self.losses.count(room);
        self.received += room.received.0 - before;
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        // Without its interface the descriptor is in error all the time.
        (self.tap.watch.presence() != Presence::Gone).then(|| self.tap.fd.as_fd())
    }

    fn trouble(&mut self) {
        self.tap.watch.hurry();
    }
}

/// The kernel's count of packets that it could not queue for this end: the interface's `drop` under
/// Transmit in /proc/net/dev, a file that stays in the network namespace it was opened in.
struct Losses {
    file: File,
    name: String,
    seen: u64,
    text: Vec<u8>,
}

impl Losses {
    /// Counts from `seen` on, or from now on.
    fn new(name: &str, seen: Option<u64>) -> Result<Self, DeviceError> {
        let device = format!("tap:{name}");
        let file = File::open("/proc/thread-self/net/dev").map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            failed(&device, "cannot open /proc/net/dev", errno)
        })?;
        let mut losses = Losses { file, name: name.to_owned(), seen: 0, text: Vec::new() };
        losses.seen = seen.or_else(|| losses.read()).unwrap_or(0);
        Ok(losses)
    }

    fn count(&mut self, room: &mut Room<'_>) {
        let Some(now) = self.read() else { return };
        // An interface that was made anew counts from zero.
        let new = now.checked_sub(self.seen).unwrap_or(now);
        self.seen = now;
        if new > 0 {
            room.missed(DropReason::KernelFull, new);
        }
    }

    fn read(&mut self) -> Option<u64> {
        self.text.clear();
        let mut part = [0; 4096];
        loop {
            match self.file.read_at(&mut part, self.text.len() as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.text.extend_from_slice(part.get(..n)?),
            }
        }
        transmit_drops(std::str::from_utf8(&self.text).ok()?, &self.name)
    }
}

/// The twelfth number of the interface's line.
fn transmit_drops(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|l| l.split_once(':'));
    let (_, numbers) = lines.find(|(n, _)| n.trim() == name)?;
    numbers.split_whitespace().nth(11)?.parse().ok()
}

/// Sends to the kernel by the interface.
pub struct TapTx {
    tap: Tap,
    bytes: Vec<u8>,
    sent: u64,
}

impl TapTx {
    /// The sending half of the interface `name` behind `fd`. `tells`: the operator hears from here
    /// what happens to it.
    pub fn new(
        name: &str,
        place: Place,
        fd: Option<OwnedFd>,
        tells: bool,
    ) -> Result<Self, DeviceError> {
        let tap = Tap::new(name, fd, tells)?;
        Ok(TapTx { tap, bytes: vec![0; 1 << 16], sent: place[0] })
    }

    /// Sends one frame; the patience is the batch's.
    fn send_one(&mut self, len: usize, patience: &mut Patience) -> Result<(), DropReason> {
        let frame = self.bytes.get(..len).unwrap_or_default();
        let parts = [IoSlice::new(&[0; VnetHeader::LEN]), IoSlice::new(frame)];
        loop {
            match writev(&self.tap.fd, &parts) {
                Ok(_) => {
                    self.tap.watch.is(Presence::Up);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if patience.wait(&self.tap.fd, true) => {}
                Err(Errno::NOBUFS | Errno::NOMEM) if patience.wait(&self.tap.fd, false) => {}
                Err(Errno::IO) => {
                    self.tap.watch.is(Presence::Down);
                    return Err(DropReason::Device);
                }
                Err(Errno::BADFD) => {
                    self.tap.watch.is(Presence::Gone);
                    if self.tap.watch.is_due() {
                        self.tap.look();
                    }
                    return Err(DropReason::Device);
                }
                Err(_) => return Err(DropReason::Device),
            }
        }
    }
}

impl Send for TapTx {
    fn send(
        &mut self,
        packets: &[Packet],
        arena: &Arena,
        dropped: &mut Dropped,
    ) -> Result<(), DeviceError> {
        let mut patience = Patience::default();
        for packet in packets {
            let len = arena.bytes(packet.entry()).copy_to(0, &mut self.bytes);
            match self.send_one(len, &mut patience) {
                Ok(()) => self.sent += 1,
                Err(reason) => drop_packets(dropped, reason, 1),
            }
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.tap.watch.notice()
    }

    fn commit(&mut self) -> Result<Place, DeviceError> {
        Ok([self.sent, 0, 0, 0, 0, 1])
    }
}

#[cfg(test)]
mod tests {
    use super::transmit_drops;

    #[test]
    fn the_kernels_drops_are_the_interfaces_transmit_drops() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs drop\n    \
                    lo:       1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n weir0: 1 2 3 4 5 6 7 8 \
                    9 10 11 77 13 14 15 16\n";
        assert_eq!(transmit_drops(text, "weir0"), Some(77));
        assert_eq!(transmit_drops(text, "weir"), None);
    }
}
