//! What a service that a packet has taken over would do with its socket, for tests of builds with the
//! feature `attacks`: send by an interface that it was not given.

use super::packet::{bind, membership};
use rustix::fd::{AsFd, AsRawFd};
use std::mem::size_of;

/// How it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Binding the socket to the interface.
    Bind,
    /// Naming it in `sendto`.
    SendTo,
    /// Naming it in `sendmsg`.
    SendMsg,
    /// Naming it in `sendmmsg`.
    SendMmsg,
    /// Making it listen to everybody's packets.
    Promiscuous,
}

/// A frame of a local experiment (IEEE 802, 0x88b5), with the header that a receive ring's socket wants.
fn frame() -> [u8; 74] {
    let mut frame = [0; 74];
    for (to, byte) in frame.iter_mut().skip(10).zip([0xff; 6]) {
        *to = byte;
    }
    for (to, byte) in frame.iter_mut().skip(22).zip([0x88, 0xb5]) {
        *to = byte;
    }
    frame
}

/// Tries to send a frame by the interface `index`.
pub fn reach(fd: impl AsFd, index: u32, how: Reach) {
    let fd = fd.as_fd();
    let (frame, raw) = (frame(), fd.as_raw_fd());
    let mut to = super::packet::address(index, libc::ETH_P_ALL as u16);
    let (name, namelen) = ((&raw mut to).cast(), size_of::<libc::sockaddr_ll>() as u32);
    let bytes = frame.as_ptr().cast_mut().cast();
    let mut piece = libc::iovec { iov_base: bytes, iov_len: frame.len() };
    // SAFETY: plain data, for which all zero is a value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = name;
    message.msg_hdr.msg_namelen = namelen;
    message.msg_hdr.msg_iov = &raw mut piece;
    message.msg_hdr.msg_iovlen = 1;
    match how {
        Reach::Bind => {
            if bind(fd, index, false).is_ok() {
                let _ = rustix::io::write(fd, &frame);
            }
        }
        Reach::Promiscuous => drop(membership(fd, index)),
        // SAFETY: the pointers lead to the frame and an address, which live until the call returns.
        Reach::SendTo => unsafe {
            libc::sendto(raw, bytes, frame.len(), 0, name.cast_const().cast(), namelen);
        },
        // SAFETY: the message leads to the frame and the address, which live until the call returns.
        Reach::SendMsg => unsafe {
            libc::sendmsg(raw, &raw const message.msg_hdr, 0);
        },
        // SAFETY: as above.
        Reach::SendMmsg => unsafe {
            libc::sendmmsg(raw, &raw mut message, 1, 0);
        },
    }
}
