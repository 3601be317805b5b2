//! Packet sockets: an interface of this machine, received from and sent to.

use super::cutter::{Cutter, Received};
use super::open::{failed, link_or_gone};
use super::transmit::{Patience, drop_packets};
use super::watch::{Presence, Watch};
use crate::offload::VnetHeader;
use crate::sys::{self, Frame, Geometry, PacketSocket, Ring, TxGeometry, TxRing};
use crate::{DeviceError, Dropped, Place, Receive, Room, Send, Status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use weir_mem::{Arena, SharedBytes};
use weir_packet::{DropReason, Packet};

/// Longest super-packet: what TCP makes unless an administrator allows more.
const LONGEST: usize = 1 << 17;

/// Receives everything that comes in by an interface, whomever it is meant for, and nothing that
/// this machine sends by it. Packets for which there is no room stay in the kernel's ring; what no
/// longer fits there is counted as `kernel-full`.
///
/// What was received stays in the ring until it is [committed](Receive::committed), and the place says where in the
/// ring that is: so a successor with the same socket goes on there, and neither what waits nor what was under way is
/// lost with a service that dies.
pub struct PacketRx {
    socket: PacketSocket,
    ring: Ring,
    cutter: Cutter,
    queue: Queue,
    watch: Watch,
    /// The kernel says that it dropped something.
    losing: bool,
    /// Packets of a predecessor's socket, which was not gone on with, that are not counted yet.
    left: u64,
    received: u64,
}

/// Whether a service that was at `place` has left a socket behind with which a successor can go on.
pub fn leaves_socket(place: &Place) -> bool {
    Geometry::of_frames(place[FRAME]).is_some()
}

/// Packets that wait in the `socket` of a service that was at `place`, and those that the kernel dropped for want of room there
/// and nobody has asked about: when nobody goes on with it.
pub fn unread_packets(socket: OwnedFd, place: &Place) -> u64 {
    let socket = PacketSocket::from_fd(socket);
    let ring = Geometry::of_frames(place[FRAME])
        .and_then(|geometry| socket.same_ring(geometry, place[NEXT]).ok());
    ring.map_or(0, |mut ring| ring.pass_over()) + socket.drops()
}

/// The place of a service that goes on with another socket: it has a ring of its own, which begins anew. What was counted stays,
/// and it counts what was `left` in the old one.
pub fn at_new_socket(place: Place, left: u64) -> Place {
    let mut new = place;
    (new[NEXT], new[FRAME], new[SEGMENT]) = (0, 0, 0);
    new[LEFT] = new[LEFT].saturating_add(left);
    new
}

/// Words of a place: which frame is next, their size, what of the next one was taken, and how many were left in another ring.
const NEXT: usize = 1;
const FRAME: usize = 2;
const SEGMENT: usize = 3;
const LEFT: usize = 4;

impl PacketRx {
    /// The receiving half of the interface `name`, with the count going on from `place`. `lent` is the
    /// agent's ([`crate::lend_packet_socket`]).
    pub fn open(name: &str, place: Place, lent: Option<OwnedFd>) -> Result<Self, DeviceError> {
        let device = format!("afp:{name}");
        let socket = lent_socket(&device, lent)?;
        let link = link_or_gone(&socket, name);
        // A socket that has no ring cannot be mapped: then it is a new one.
        let same = Geometry::of_frames(place[FRAME])
            .and_then(|geometry| socket.same_ring(geometry, place[NEXT]).ok());
        let goes_on = same.is_some();
        let ring = match same {
            Some(ring) => Ok(ring),
            None => socket.ring(Geometry::for_mtu(link.map_or(0, |l| l.mtu))),
        };
        let ring = ring.map_err(|e| failed(&device, "cannot have a receive ring", e))?;
        let cutter = if goes_on { Cutter::going_on(place[SEGMENT]) } else { Cutter::default() };
        Ok(PacketRx {
            socket,
            ring,
            cutter,
            queue: Queue { bytes: vec![0; LONGEST], held: None, doubtful: goes_on },
            watch: Watch::new("afp", name, link, true),
            // Its predecessor may not have come to ask.
            losing: goes_on,
            left: place[LEFT],
            received: place[0],
        })
    }

    /// Takes what is in the ring, until it is empty (true) or there is no room.
    fn take(&mut self, room: &mut Room<'_>) -> bool {
        while !room.is_full() {
            let Some(frame) = self.ring.peek() else { return true };
            self.losing |= frame.losing;
            let done = if frame.len == frame.bytes.len() {
                let Frame { bytes, header, vlan, time_ns, .. } = frame;
                self.cutter.take(&Received { bytes, header, vlan, time_ns }, room)
            } else {
                self.queue.take(&self.socket, &frame, &mut self.cutter, room)
            };
            if !done {
                return false;
            }
            self.ring.take();
        }
        false
    }
}

impl Receive for PacketRx {
    fn receive(&mut self, room: &mut Room<'_>) -> Result<Status, DeviceError> {
        let before = room.received.0;
        let empty = self.take(room);
        if empty && self.watch.is_due() {
            self.losing = true;
            self.socket.take_error();
            let socket = &self.socket;
            self.watch.look(socket, |link| sys::bound(socket.as_fd()) == Some(link.index));
        }
        self.received += room.received.0 - before;
        Ok(if empty { Status::Later(self.watch.wait_ns()) } else { Status::More })
    }

    fn missed(&mut self) -> u64 {
        let mut missed = std::mem::take(&mut self.left);
        if std::mem::take(&mut self.losing) {
            missed = missed.saturating_add(self.socket.drops());
        }
        self.received = self.received.saturating_add(missed);
        missed
    }

    fn place(&self) -> Place {
        let frame = u64::from(self.ring.frame_size());
        [self.received, self.ring.position(), frame, self.cutter.next(), self.left, 1]
    }

    fn committed(&mut self) {
        self.ring.release();
    }

    fn notice(&mut self) -> Option<String> {
        self.watch.notice()
    }

    fn finish(&mut self, room: &mut Room<'_>) {
        // What waits is not taken any more, but it had come.
        let waits = self.ring.pass_over();
        self.cutter.forget();
        room.missed(DropReason::KernelFull, waits);
        self.received += waits;
        self.losing = true;
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn trouble(&mut self) {
        self.watch.hurry();
    }
}

/// Packets that are longer than a frame of the ring come by the socket's queue, in the ring's order.
struct Queue {
    bytes: Vec<u8>,
    /// The packet that was read last, until it has been taken in whole.
    held: Option<(VnetHeader, usize)>,
    /// A predecessor may have read what belongs to the next frames, and died with it.
    doubtful: bool,
}

impl Queue {
    /// Takes in the packet whose beginning is `frame`; false when room ran out.
    fn take(
        &mut self,
        socket: &impl AsFd,
        frame: &Frame<'_>,
        cutter: &mut Cutter,
        room: &mut Room<'_>,
    ) -> bool {
        if self.held.is_none() {
            let is_there = frame.queued && (!self.doubtful || self.is_next(socket, frame));
            let read = if is_there { self.read(socket) } else { Err(DropReason::KernelFull) };
            match read {
                Ok(held) => (self.held, self.doubtful) = (Some(held), false),
                Err(reason) => {
                    cutter.forget();
                    room.refuse(reason, frame.len);
                    return true;
                }
            }
        }
        let Some((header, len)) = self.held else { return true };
        let bytes = self.bytes.get(..len).unwrap_or_default();
        let (vlan, time_ns) = (frame.vlan, frame.time_ns);
        let done = cutter.take(&Received { bytes, header, vlan, time_ns }, room);
        if done {
            self.held = None;
        }
        done
    }

    /// Whether the queue's next packet is that of `frame`. What was read is read in order, so else it is a later one's.
    fn is_next(&mut self, socket: &impl AsFd, frame: &Frame<'_>) -> bool {
        let Some(got) = self.receive(socket, RecvFlags::PEEK) else { return false };
        // Of one that is longer than any the end is not to be seen.
        (got.len == frame.len || got.is_cut) && self.bytes.starts_with(frame.bytes)
    }

    fn read(&mut self, socket: &impl AsFd) -> Result<(VnetHeader, usize), DropReason> {
        match self.receive(socket, RecvFlags::empty()) {
            Some(got) if got.is_cut => Err(DropReason::Oversize),
            Some(got) => Ok((got.header, got.len)),
            None => Err(DropReason::KernelFull),
        }
    }

    /// The queue's next packet; `None` when there is none.
    fn receive(&mut self, socket: &impl AsFd, flags: RecvFlags) -> Option<Got> {
        let mut vnet = [0; VnetHeader::LEN];
        for _ in 0..ERRORS {
            let mut parts = [IoSliceMut::new(&mut vnet), IoSliceMut::new(&mut self.bytes)];
            let mut control = RecvAncillaryBuffer::default();
            match recvmsg(socket, &mut parts, &mut control, RecvFlags::DONTWAIT | flags) {
                Ok(got) => {
                    let len = got.bytes.saturating_sub(VnetHeader::LEN);
                    let is_cut = got.flags.contains(ReturnFlags::TRUNC);
                    return Some(Got { header: VnetHeader::parse(&vnet), len, is_cut });
                }
                Err(Errno::AGAIN) => return None,
                Err(_) => {}
            }
        }
        None
    }
}

/// An error that waits to be told (the interface went down) comes before the packet, and is told once. So often another may
/// have come meanwhile.
const ERRORS: usize = 8;

/// What the queue had.
struct Got {
    header: VnetHeader,
    len: usize,
    /// It is longer than there is room for.
    is_cut: bool,
}

/// Whether a frame begins with a VLAN tag (IEEE 802.1Q) behind its addresses.
fn is_tagged(bytes: &SharedBytes<'_>) -> bool {
    bytes.array::<2>(12).is_some_and(|kind| kind == [0x81, 0])
}

/// The socket that the agent has lent.
fn lent_socket(device: &str, lent: Option<OwnedFd>) -> Result<PacketSocket, DeviceError> {
    let missing = || DeviceError::NoDescriptor(device.to_owned());
    lent.map(PacketSocket::from_fd).ok_or_else(missing)
}

/// Sends by an interface: a system call for a batch.
pub struct PacketTx {
    socket: PacketSocket,
    ring: TxRing,
    watch: Watch,
    sent: u64,
}

impl PacketTx {
    /// The sending half of the interface `name`, with the count going on from `place`, for packets of up
    /// to `longest` bytes. `lent` is the agent's ([`crate::lend_packet_socket`]). `tells`: the operator hears from here what happens to the interface.
    pub fn open(
        name: &str,
        place: Place,
        lent: Option<OwnedFd>,
        longest: u32,
        tells: bool,
    ) -> Result<Self, DeviceError> {
        let device = format!("afp:{name}");
        let socket = lent_socket(&device, lent)?;
        let ring = socket.tx_ring(TxGeometry::for_packets(longest));
        let ring = ring.map_err(|e| failed(&device, "cannot have a send ring", e))?;
        let watch = Watch::new("afp", name, link_or_gone(&socket, name), tells);
        Ok(PacketTx { socket, ring, watch, sent: place[0] })
    }

    /// The interface is not there, or down: true when it is again, or another one of that name.
    fn look_again(&mut self, presence: Presence) -> bool {
        self.watch.is(presence);
        if self.watch.is_due() {
            self.look();
        }
        self.watch.presence() == Presence::Up
    }

    fn look(&mut self) {
        let socket = &self.socket;
        self.watch.look(socket, |link| sys::bound(socket.as_fd()) == Some(link.index));
    }

    /// Puts as many of the packets into the ring as have room; says how many. Stops before one that is
    /// too long.
    fn put(&mut self, packets: &[Packet], arena: &Arena) -> usize {
        let fits = |packet: &&Packet| {
            let bytes = arena.bytes(packet.entry());
            self.watch.carries(bytes.len(), is_tagged(&bytes))
                && self.ring.put(bytes.len(), |to| bytes.copy_to(0, to))
        };
        packets.iter().take_while(fits).count()
    }

    /// Whether the packet is longer than the interface carries, or than any frame of the ring.
    fn is_too_long(&self, packet: &Packet, arena: &Arena) -> bool {
        let bytes = arena.bytes(packet.entry());
        let len = bytes.len();
        len > self.ring.longest() || !self.watch.carries(len, is_tagged(&bytes))
    }
}

impl Send for PacketTx {
    fn send(
        &mut self,
        packets: &[Packet],
        arena: &Arena,
        dropped: &mut Dropped,
    ) -> Result<(), DeviceError> {
        // An interface that was renamed takes packets as before: that another has its name now, only a
        // look tells.
        if self.watch.is_due() {
            self.look();
        }
        let (mut left, mut patience, mut looked) = (packets, Patience::default(), false);
        while let Some(first) = left.first() {
            // Nothing is sent by an interface that has lost the name.
            let is_gone = self.watch.presence() == Presence::Gone;
            let put = if is_gone { 0 } else { self.put(left, arena) };
            let (sent, result) = match put {
                0 if is_gone => (0, Err(Errno::NXIO)),
                0 if self.is_too_long(first, arena) => (0, Err(Errno::MSGSIZE)),
                // The kernel is not done with what is in the ring yet.
                0 => (0, Err(Errno::AGAIN)),
                _ => self.ring.send(&self.socket),
            };
            self.sent += sent as u64;
            left = left.get(sent..).unwrap_or_default();
            if sent > 0 {
                self.watch.is(Presence::Up);
                continue;
            }
            let reason = match result {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) if patience.wait(&self.socket, false) => continue,
                Err(e @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => {
                    let down = e == Errno::NETDOWN;
                    let how = if down { Presence::Down } else { Presence::Gone };
                    if !std::mem::replace(&mut looked, true) && self.look_again(how) {
                        continue;
                    }
                    drop_packets(dropped, DropReason::Device, left.len());
                    break;
                }
                Err(Errno::MSGSIZE) => DropReason::Oversize,
                Ok(()) | Err(_) => DropReason::Device,
            };
            drop_packets(dropped, reason, 1);
            left = left.get(1..).unwrap_or_default();
        }
        Ok(())
    }

    fn notice(&mut self) -> Option<String> {
        self.watch.notice()
    }

    fn commit(&mut self) -> Result<Place, DeviceError> {
        Ok([self.sent, 0, 0, 0, 0, 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    /// A queue of packets, and who writes into it: as with a packet socket they come whole, in order, each with its header in front,
    /// and an error comes before them.
    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn write(to: &OwnedFd, packet: &[u8]) {
        let bytes = [&[0; VnetHeader::LEN], packet].concat();
        send(to, &bytes, SendFlags::empty()).unwrap();
    }

    /// Has the reader's next call fail: the writer goes and has not read what was said to it.
    fn fail(reader: &OwnedFd, writer: OwnedFd) {
        send(reader, b"unread", SendFlags::empty()).unwrap();
        drop(writer);
    }

    fn queue(longest: usize) -> Queue {
        Queue { bytes: vec![0; longest], held: None, doubtful: true }
    }

    fn frame(bytes: &[u8], len: usize) -> Frame<'_> {
        let header = VnetHeader::parse(&[0; VnetHeader::LEN]);
        Frame { bytes, header, vlan: None, len, time_ns: 0, queued: true, losing: false }
    }

    #[test]
    fn an_error_that_waits_to_be_told_is_not_taken_for_a_packet_that_was_read() {
        let (reader, writer) = pair();
        write(&writer, &[7; 100]);
        fail(&reader, writer);
        assert!(queue(1000).is_next(&reader, &frame(&[7; 20], 100)));
    }

    #[test]
    fn a_packet_is_read_behind_an_error() {
        let (reader, writer) = pair();
        write(&writer, &[7; 100]);
        fail(&reader, writer);
        assert_eq!(queue(1000).read(&reader).map(|(_, len)| len), Ok(100));
    }

    #[test]
    fn what_a_predecessor_has_read_is_told_from_what_it_has_not() {
        let (reader, writer) = pair();
        write(&writer, &[8; 100]);
        let mut queue = queue(1000);
        assert!(!queue.is_next(&reader, &frame(&[7; 20], 100)));
        assert!(!queue.is_next(&reader, &frame(&[8; 20], 99)));
        assert!(queue.is_next(&reader, &frame(&[8; 20], 100)));
        assert!(queue.read(&reader).is_ok());
        // Nothing is left.
        assert!(!queue.is_next(&reader, &frame(&[8; 20], 100)));
    }

    #[test]
    fn a_packet_longer_than_any_is_passed_over_and_the_next_one_is_read() {
        let (reader, writer) = pair();
        write(&writer, &[7; 300]);
        write(&writer, &[8; 100]);
        let mut queue = queue(200);
        assert!(queue.is_next(&reader, &frame(&[7; 20], 300)));
        assert_eq!(queue.read(&reader).err(), Some(DropReason::Oversize));
        assert!(queue.is_next(&reader, &frame(&[8; 20], 100)));
    }

    #[test]
    fn who_goes_on_with_another_socket_begins_at_its_beginning_and_counts_on() {
        let place = [1000, 77, 2048, 3, 5, 1];
        let new = at_new_socket(place, 8);
        assert!(leaves_socket(&place) && !leaves_socket(&new));
        assert_eq!(new, [1000, 0, 0, 0, 13, 1]);
    }
}
