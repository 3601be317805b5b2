//! The send ring of a packet socket, shared with the kernel (TPACKET_V2, packet_mmap).
//!
//! A ring, and not `sendmmsg`: a message may name any interface, and no filter of system calls can look
//! into it. What a ring sends goes by the interface that the socket is bound to. Each frame begins with
//! a `virtio_net_hdr` that says that all of it is header: the kernel then copies it into a packet of
//! its own at once, instead of pointing into the ring's pages. That is faster than `sendmmsg` too
//! (docs/decisions/0008-live-devices.md).

use super::interface::last_error;
use crate::offload::VnetHeader;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory of a ring, about.
const BYTES: u32 = 2 << 20;
/// Fewest frames, however long they are.
const FEWEST: u32 = 64;
/// Memory that the kernel takes in one piece, unless a frame is longer.
const BLOCK: u32 = 64 << 10;
/// Longest frame: what an Ethernet interface may be set to carry, and its headers.
const LONGEST: u32 = 128 << 10;
/// Where a frame's bytes begin: behind its header (`tp_hdrlen - sizeof(struct sockaddr_ll)` in
/// `af_packet.c`).
const START: usize = (size_of::<libc::tpacket2_hdr>() + ALIGN - 1) & !(ALIGN - 1);
const ALIGN: usize = 16;

/// Sizes of a send ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TxGeometry {
    frame: u32,
    frames: u32,
}

impl TxGeometry {
    /// A ring for packets of up to so many bytes.
    pub(crate) fn for_packets(longest: u32) -> Self {
        let headers = (START + VnetHeader::LEN) as u32;
        let frame = longest.saturating_add(headers).min(LONGEST).next_power_of_two().max(2048);
        TxGeometry { frame, frames: (BYTES / frame).max(FEWEST) }
    }

    pub(super) fn request(self) -> libc::tpacket_req {
        let block = BLOCK.max(self.frame);
        libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: self.frames / (block / self.frame),
            tp_frame_size: self.frame,
            tp_frame_nr: self.frames,
        }
    }

    fn bytes(self) -> usize {
        self.frames as usize * self.frame as usize
    }
}

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct TxRing {
    at: NonNull<u8>,
    geometry: TxGeometry,
    /// The frame that the kernel sends next.
    next: u32,
    /// Frames from there on that wait to be sent.
    waiting: u32,
}

impl TxRing {
    pub(super) fn map(fd: BorrowedFd<'_>, geometry: TxGeometry) -> Result<Self, Errno> {
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
        Ok(TxRing { at, geometry, next: 0, waiting: 0 })
    }

    /// Longest packet that a frame has room for.
    pub(crate) fn longest(&self) -> usize {
        self.geometry.frame as usize - START - VnetHeader::LEN
    }

    /// The frame that is `ahead` of the next one.
    fn slot(&self, ahead: u32) -> NonNull<u8> {
        let number = (self.next + ahead) % self.geometry.frames;
        let offset = number as usize * self.geometry.frame as usize;
        // SAFETY: the number is below that of the frames, so the frame lies in the mapping, which
        // lives as long as `self`.
        unsafe { self.at.add(offset) }
    }

    fn status(&self, ahead: u32) -> &AtomicU32 {
        const { assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_status) == 0) };
        // SAFETY: a frame begins with its status, 32 bits, aligned as frames are; kernel and
        // process both access it whole.
        unsafe { AtomicU32::from_ptr(self.slot(ahead).cast().as_ptr()) }
    }

    /// Puts a packet of `len` bytes, which `fill` writes, behind those that wait; it says how many
    /// there were. False when the ring is full, or the packet longer than [`Self::longest`].
    pub(crate) fn put(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let full = self.waiting == self.geometry.frames;
        // Acquire: partner is the kernel's store when it is done with the packet that it made of the
        // frame (tpacket_destruct_skb): on veth at once, on a NIC when that has sent it.
        if full
            || len > self.longest()
            || self.status(self.waiting).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE
        {
            return false;
        }
        let slot = self.slot(self.waiting);
        // SAFETY: START + LEN + len bytes lie in the frame (just checked), and an available frame is
        // this process's alone until its status says otherwise. The kernel zeroed the pages, so all
        // bytes are initialised.
        let filled = unsafe {
            let bytes = slot.add(START + VnetHeader::LEN).as_ptr();
            fill(std::slice::from_raw_parts_mut(bytes, len)).min(len)
        };
        let header = VnetHeader::all_header(filled);
        // SAFETY: both lie in the frame, which is this process's as above; the header is aligned as
        // frames are, and the other is written byte by byte.
        unsafe {
            slot.add(START).cast::<[u8; VnetHeader::LEN]>().write(header);
            let tp_len = std::mem::offset_of!(libc::tpacket2_hdr, tp_len);
            slot.add(tp_len).cast::<u32>().write((filled + VnetHeader::LEN) as u32);
        }
        // Release: partner is the kernel's look at the status in `packet_current_frame`.
        self.status(self.waiting).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.waiting += 1;
        true
    }

    /// Has the kernel send what waits, by the interface that `socket` is bound to; says how many it
    /// took. The error is the first frame's that it did not take. None waits afterwards: what was not
    /// taken has to be put again.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> (usize, Result<(), Errno>) {
        let fd = socket.as_fd().as_raw_fd();
        let byte = [0u8];
        // Not `sendto`: `write` can name no address at all. The byte is not looked at.
        // SAFETY: the pointer leads to one byte, which lives until the call returns.
        let done = unsafe { libc::write(fd, byte.as_ptr().cast(), byte.len()) };
        let result = if done < 0 { Err(last_error()) } else { Ok(()) };
        let mut taken = 0;
        while taken < self.waiting {
            // Acquire: as in `put`.
            let status = self.status(taken).load(Ordering::Acquire);
            let is_left = status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT);
            if is_left != 0 {
                break;
            }
            taken += 1;
        }
        for left in taken..self.waiting {
            // The kernel looks at frames only during the call above. Relaxed: nobody else reads it
            // before the next store with Release.
            self.status(left).store(libc::TP_STATUS_AVAILABLE, Ordering::Relaxed);
        }
        (self.next, self.waiting) = ((self.next + taken) % self.geometry.frames, 0);
        (taken as usize, result)
    }
}

impl Drop for TxRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is this ring's, and nothing borrowed from it lives longer.
        let _ = unsafe { munmap(self.at.as_ptr().cast::<c_void>(), self.geometry.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_the_longest_packet_and_fill_blocks() {
        for (longest, frame) in
            [(0, 2048), (1518, 2048), (2006, 2048), (2007, 4096), (9018, 16384), (1 << 20, 1 << 17)]
        {
            let g = TxGeometry::for_packets(longest);
            let request = g.request();
            assert_eq!(g.frame, frame, "{longest}");
            assert_eq!(
                request.tp_block_nr * (request.tp_block_size / g.frame),
                request.tp_frame_nr,
                "{longest}"
            );
            assert_eq!(request.tp_block_size % 4096, 0);
        }
    }
}
