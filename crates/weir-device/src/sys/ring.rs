//! The receive ring of a packet socket, shared with the kernel (TPACKET_V2, packet_mmap).
//!
//! Version 2 and not 3: version 3 hands over blocks of packets, and a block that is not full only
//! when a timer of at least a millisecond runs out, so every packet of a quiet link would wait.
//! Version 2 hands over each packet at once. Its frames have one size; the few packets that are
//! longer (super-packets of segmentation offload) come by the socket's queue besides
//! (`PACKET_COPY_THRESH`), in the same order. See docs/decisions/0008-live-devices.md.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::offload::{VlanTag, VnetHeader};

/// Memory of a ring, about.
const BYTES: u32 = 16 << 20;

/// Sizes of a ring: a power of two of frames, in blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    frame: u32,
    frames: u32,
}

impl Geometry {
    /// The kernel's headers in front of a frame's bytes: at most so many.
    const HEADERS: u32 = 128;
    /// Largest frame: what is longer goes by the queue.
    const LARGEST: u32 = 16 << 10;
    /// Memory that the kernel takes in one piece.
    const BLOCK: u32 = 64 << 10;

    /// A ring for an interface with this MTU.
    pub(crate) fn for_mtu(mtu: u32) -> Self {
        let frame = mtu.saturating_add(Self::HEADERS).next_power_of_two();
        let frame = frame.clamp(2048, Self::LARGEST);
        Geometry { frame, frames: BYTES / frame }
    }

    /// That of a ring with frames of so many bytes, if there is one.
    pub(crate) fn of_frames(bytes: u64) -> Option<Self> {
        let frame = u32::try_from(bytes).ok()?;
        let is_one = frame.is_power_of_two() && (2048..=Self::LARGEST).contains(&frame);
        is_one.then(|| Geometry { frame, frames: BYTES / frame })
    }

    pub(crate) fn frame_size(self) -> u32 {
        self.frame
    }

    pub(crate) fn frames(self) -> u32 {
        self.frames
    }

    pub(crate) fn block_size(self) -> u32 {
        Self::BLOCK
    }

    pub(crate) fn blocks(self) -> u32 {
        self.frames / (Self::BLOCK / self.frame)
    }

    fn bytes(self) -> usize {
        self.frames as usize * self.frame as usize
    }
}

/// A mapped ring. A packet that is taken stays in it until [`Ring::release`], so that whoever takes them can die in
/// between and another goes on where it was ([`Ring::go_on`]).
#[derive(Debug)]
pub(crate) struct Ring {
    at: NonNull<u8>,
    geometry: Geometry,
    next: u32,
    /// Frames before it that were taken and not given back yet.
    taken: u32,
}

/// Written into a frame that was taken; the kernel writes zeros there with each packet (`tp_padding` in `tpacket_rcv`).
const TAKEN: u8 = 1;

/// A packet in the ring, as long as it is this process's.
#[derive(Debug)]
pub(crate) struct Frame<'r> {
    /// The bytes in the ring; fewer than `len` when it did not fit.
    pub(crate) bytes: &'r [u8],
    /// What is left to do to it.
    pub(crate) header: VnetHeader,
    /// The tag that was taken out.
    pub(crate) vlan: Option<VlanTag>,
    /// Bytes that were received.
    pub(crate) len: usize,
    /// Nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// The whole packet waits in the socket's queue too.
    pub(crate) queued: bool,
    /// The kernel has dropped packets that have not been asked for.
    pub(crate) losing: bool,
}

impl Ring {
    pub(super) fn map(fd: BorrowedFd<'_>, geometry: Geometry) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else is there.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                geometry.bytes(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Ring { at, geometry, next: 0, taken: 0 })
    }

    /// Goes on where another process was that took packets from this ring: all before frame `next` are done with, whether or
    /// not it came to give them back.
    pub(crate) fn go_on(&mut self, next: u64) {
        let frames = self.geometry.frames;
        self.next = (next % u64::from(frames)) as u32;
        // Frames are given back in order, so those that were not are the last ones. One that the kernel has filled
        // again does not say that it was taken.
        while self.taken + 1 < frames && self.is_taken(self.taken + 1) {
            self.taken += 1;
        }
        self.release();
    }

    /// Which frame is next.
    pub(crate) fn position(&self) -> u64 {
        u64::from(self.next)
    }

    pub(crate) fn frame_size(&self) -> u32 {
        self.geometry.frame
    }

    /// The frame that is so many before the next.
    fn slot(&self, before: u32) -> NonNull<u8> {
        let frames = self.geometry.frames;
        let number = (self.next + frames - before % frames) % frames;
        let offset = number as usize * self.geometry.frame as usize;
        // SAFETY: the number is below that of the frames, so the frame lies in the mapping, which lives
        // as long as `self`.
        unsafe { self.at.add(offset) }
    }

    fn status(&self, before: u32) -> &AtomicU32 {
        const { assert!(offset_of!(libc::tpacket2_hdr, tp_status) == 0) };
        // SAFETY: a frame begins with its status, 32 bits, aligned as frames are; kernel and
        // process both access it whole.
        unsafe { AtomicU32::from_ptr(self.slot(before).cast().as_ptr()) }
    }

    /// Whether the frame so many before the next was taken and not given back.
    fn is_taken(&self, before: u32) -> bool {
        // Acquire: as in `peek`.
        let status = self.status(before).load(Ordering::Acquire);
        // SAFETY: the mark lies in the frame's header, and a frame that is this process's side's is not written by
        // the kernel. One that is the kernel's may be: what was read then is not used.
        let mark = unsafe { self.mark(before).read_volatile() };
        status & libc::TP_STATUS_USER != 0 && mark == TAKEN
    }

    /// Where a frame says that it was taken.
    fn mark(&self, before: u32) -> *mut u8 {
        let at = offset_of!(libc::tpacket2_hdr, tp_padding);
        // SAFETY: a frame is at least a header long.
        unsafe { self.slot(before).add(at).as_ptr() }
    }

    /// Takes all packets that have come and looks at none of them; how many they were.
    pub(crate) fn pass_over(&mut self) -> u64 {
        let mut passed = 0;
        while self.peek().is_some() {
            self.take();
            passed += 1;
        }
        passed
    }

    /// The packet whose turn it is, when it has come.
    pub(crate) fn peek(&mut self) -> Option<Frame<'_>> {
        if self.taken == self.geometry.frames {
            // All are taken: the next one is the first of them.
            return None;
        }
        // Acquire: partner is the kernel's store of the status after the frame (tpacket_rcv).
        let status = self.status(0).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the frame is at least a header long and aligned; from the status on until
        // `release` the kernel does not write it. Volatile: read once, whatever follows.
        let header = unsafe { self.slot(0).cast::<libc::tpacket2_hdr>().read_volatile() };
        let room = self.geometry.frame as usize;
        // Numbers are checked though they are the kernel's: a mistake must not leave the mapping.
        let mac = usize::from(header.tp_mac).clamp(VnetHeader::LEN, room);
        let captured = (header.tp_snaplen as usize).min(room - mac);
        // SAFETY: `mac - LEN .. mac + captured` lies in this frame (just clamped), and the frame is
        // this process's alone until `release`, which needs the borrow to have ended.
        let (vnet, bytes) = unsafe {
            let mac = self.slot(0).add(mac);
            let vnet = mac.sub(VnetHeader::LEN).cast::<[u8; VnetHeader::LEN]>().read();
            (vnet, std::slice::from_raw_parts(mac.as_ptr(), captured))
        };
        let has = |flag| status & flag != 0;
        let tpid = has(libc::TP_STATUS_VLAN_TPID_VALID).then_some(header.tp_vlan_tpid);
        Some(Frame {
            bytes,
            header: VnetHeader::parse(&vnet),
            vlan: has(libc::TP_STATUS_VLAN_VALID).then(|| VlanTag::new(tpid, header.tp_vlan_tci)),
            len: header.tp_len as usize,
            time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            queued: has(libc::TP_STATUS_COPY),
            losing: has(libc::TP_STATUS_LOSING),
        })
    }

    /// The frame that was looked at last is taken. It is not given back before [`Ring::release`].
    pub(crate) fn take(&mut self) {
        // SAFETY: the mark lies in the frame's header; `peek` found the frame to be this process's, and nothing
        // borrowed from it lives any more.
        unsafe { self.mark(0).write_volatile(TAKEN) };
        self.next = (self.next + 1) % self.geometry.frames;
        self.taken += 1;
    }

    /// Gives what was taken back to the kernel, the oldest first.
    pub(crate) fn release(&mut self) {
        while self.taken > 0 {
            // Release: partner is the kernel's look at the status before it writes the frame.
            self.status(self.taken).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.taken -= 1;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and nothing borrowed from it lives longer.
        let _ = unsafe { munmap(self.at.as_ptr().cast::<c_void>(), self.geometry.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_a_whole_packet_of_the_interface_and_fill_blocks() {
        for (mtu, frame) in [(0, 2048), (1500, 2048), (1990, 4096), (9000, 16384), (65_535, 16384)]
        {
            let g = Geometry::for_mtu(mtu);
            assert_eq!(g.frame_size(), frame, "MTU {mtu}");
            assert_eq!(g.blocks() * g.block_size(), g.frames() * g.frame_size());
            assert_eq!(Geometry::of_frames(frame.into()), Some(g));
        }
        for wrong in [0, 1024, 3000, 1 << 15, 1 << 40] {
            assert_eq!(Geometry::of_frames(wrong), None, "{wrong}");
        }
    }
}
