//! Messages between agent and worker: postcard over a SEQPACKET pair, descriptors by SCM_RIGHTS.
//!
//! A message longer than a frame is cut into several; each frame's first byte says whether it is
//! the last. Descriptors travel with the frames, at most 128 each (the kernel allows
//! 253).

use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::mem::MaybeUninit;

const FRAME: usize = 32 << 10;
const FDS_PER_FRAME: usize = 128;
/// Longest message: bounds what a peer can make us hold.
const LONGEST: usize = 64 << 20;

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The system call failed.
    #[error("control socket: {0}")]
    System(#[from] Errno),
    /// The other side has gone.
    #[error("the other side of the control socket has gone")]
    Closed,
    /// It sent what is no message.
    #[error("not a message: {0}")]
    Form(#[from] postcard::Error),
    /// It sent too much.
    #[error("a message of more than {LONGEST} bytes, or a frame of none")]
    Size,
}

/// A connected pair of ends.
pub fn pair() -> Result<(OwnedFd, OwnedFd), LinkError> {
    let (a, b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((a, b))
}

/// Sends a message with descriptors; waits while the other side is slow.
pub fn send<T: Serialize>(
    to: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), LinkError> {
    let bytes = postcard::to_stdvec(message)?;
    let (mut bytes, mut fds) = (bytes.as_slice(), fds);
    loop {
        let (now, later) = bytes.split_at(bytes.len().min(FRAME));
        let (fds_now, fds_later) = fds.split_at(fds.len().min(FDS_PER_FRAME));
        let last = later.is_empty() && fds_later.is_empty();
        let head = [u8::from(last)];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_PER_FRAME))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds_now.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds_now));
        }
        let parts = [IoSlice::new(&head), IoSlice::new(now)];
        match sendmsg(to, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) if last => return Ok(()),
            Ok(_) => (bytes, fds) = (later, fds_later),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(LinkError::Closed),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Receives the next message and its descriptors; waits for it.
pub fn receive<T: DeserializeOwned>(from: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), LinkError> {
    let (mut bytes, mut fds) = (Vec::new(), Vec::new());
    let mut frame = vec![0; FRAME + 1];
    loop {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_PER_FRAME))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut frame)];
        let got = match recvmsg(from.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) => got.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::CONNRESET) => return Err(LinkError::Closed),
            Err(e) => return Err(e.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        let Some((&head, body)) = frame.get(..got).and_then(<[u8]>::split_first) else {
            return Err(LinkError::Closed);
        };
        bytes.extend_from_slice(body);
        if bytes.len() > LONGEST {
            return Err(LinkError::Size);
        }
        if head == 1 {
            return Ok((postcard::from_bytes(&bytes)?, fds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_with_many_descriptors_arrives_whole() {
        let (a, b) = pair().unwrap();
        let text = "x".repeat(300_000);
        let fds: Vec<_> = (0..300).map(|_| a.as_fd()).collect();
        let sent = text.clone();
        std::thread::scope(|s| {
            s.spawn(|| send(a.as_fd(), &sent, &fds).unwrap());
            let (got, got_fds): (String, _) = receive(b.as_fd()).unwrap();
            assert_eq!((got == text, got_fds.len()), (true, 300));
        });
    }

    #[test]
    fn a_peer_that_has_gone_is_noticed() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert!(matches!(receive::<String>(b.as_fd()), Err(LinkError::Closed)));
        assert!(matches!(send(b.as_fd(), &1u8, &[]), Err(LinkError::Closed)));
    }
}
