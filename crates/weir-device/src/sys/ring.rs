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

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    at: NonNull<u8>,
    geometry: Geometry,
    next: u32,
}

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
        Ok(Ring { at, geometry, next: 0 })
    }

    fn slot(&self) -> NonNull<u8> {
        let offset = self.next as usize * self.geometry.frame as usize;
        // SAFETY: `next` is below the number of frames (`release`), so the frame lies in the
        // mapping, which lives as long as `self`.
        unsafe { self.at.add(offset) }
    }

    fn status(&self) -> &AtomicU32 {
        const { assert!(offset_of!(libc::tpacket2_hdr, tp_status) == 0) };
        // SAFETY: a frame begins with its status, 32 bits, aligned as frames are; kernel and
        // process both access it whole.
        unsafe { AtomicU32::from_ptr(self.slot().cast().as_ptr()) }
    }

    /// The packet whose turn it is, when it has come.
    pub(crate) fn peek(&mut self) -> Option<Frame<'_>> {
        // Acquire: partner is the kernel's store of the status after the frame (tpacket_rcv).
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the frame is at least a header long and aligned; from the status on until
        // `release` the kernel does not write it. Volatile: read once, whatever follows.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read_volatile() };
        let room = self.geometry.frame as usize;
        // Numbers are checked though they are the kernel's: a mistake must not leave the mapping.
        let mac = usize::from(header.tp_mac).clamp(VnetHeader::LEN, room);
        let captured = (header.tp_snaplen as usize).min(room - mac);
        // SAFETY: `mac - LEN .. mac + captured` lies in this frame (just clamped), and the frame is
        // this process's alone until `release`, which needs the borrow to have ended.
        let (vnet, bytes) = unsafe {
            let mac = self.slot().add(mac);
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

    /// Gives the frame that was looked at last back to the kernel.
    pub(crate) fn release(&mut self) {
        // Release: partner is the kernel's look at the status before it writes the frame.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.geometry.frames;
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
        }
    }
}
