//! Sending many frames by one system call.

use super::interface::last_error;
use super::packet::address;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::mem::size_of;

/// Frames that wait to be sent, one after the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// End of each frame in `bytes`.
    ends: Vec<usize>,
}

impl Batch {
    /// Forgets all frames.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a frame of `len` bytes, which `fill` writes; it says how many there were.
    pub(crate) fn add(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let from = self.bytes.len();
        self.bytes.resize(from + len, 0);
        let filled = self.bytes.get_mut(from..).map_or(0, fill);
        self.bytes.truncate(from + filled.min(len));
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Sends frames from number `from` on by the interface `index`; says how many were sent. The
    /// error is the first frame's.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        index: u32,
        from: usize,
    ) -> Result<usize, Errno> {
        const MOST: usize = 64;
        let mut to = address(index, libc::ETH_P_ALL as u16);
        // One pointer for all frames: a second borrow of `to` would end the first one's right to it.
        let name = (&raw mut to).cast();
        // SAFETY: both are plain data, for which all zero is a value.
        let (mut headers, mut pieces): ([libc::mmsghdr; MOST], [libc::iovec; MOST]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut count = 0;
        let mut start = from.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        let ends = self.ends.get(from..).unwrap_or_default();
        for ((&end, header), piece) in ends.iter().zip(&mut headers).zip(&mut pieces) {
            let frame = self.bytes.get(start..end).unwrap_or_default();
            piece.iov_base = frame.as_ptr().cast_mut().cast();
            piece.iov_len = frame.len();
            header.msg_hdr.msg_name = name;
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            (start, count) = (end, count + 1);
        }
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the first `count` headers lead to one piece each, those to bytes of `self`, which
        // the kernel only reads, and to an address that lives until the call returns.
        let sent =
            unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
        if sent < 0 { Err(last_error()) } else { Ok(sent as usize) }
    }
}
