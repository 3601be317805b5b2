//! Messages between agent and worker: postcard over a SEQPACKET pair, descriptors by SCM_RIGHTS.
//!
//! A message longer than a frame is cut into several; each frame's first byte says whether it is
//! the last. Descriptors travel with the frames, at most 128 each (the kernel allows
//! 253). What the agent tells a worker is written so that nobody waits until it is read: where it is longer than a
//! frame, it lies in a sealed file in memory, whose descriptor is the message's last.

use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

const FRAME: usize = 32 << 10;
/// First byte of a frame that more follow.
const MORE: u8 = 0;
/// Of the last one.
const LAST: u8 = 1;
/// Of the last one of a message that lies in the file whose descriptor came last.
const IN_FILE: u8 = 2;
const FDS_PER_FRAME: usize = 128;
/// Longest message: bounds what a peer can make us hold.
const LONGEST: usize = 64 << 20;
/// Longest message of a worker, which need not be trusted.
const LONGEST_REPORT: usize = 8 << 20;
/// Frames that are taken in without looking at anybody else.
const FRAMES_AT_ONCE: usize = 64;

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
    #[error("a message that is too long, or a frame of nothing")]
    Size,
    /// It does not take in what it is sent.
    #[error("it has not read what it was told before")]
    Full,
    /// The file of a long message cannot be read.
    #[error("a message whose file cannot be read: {0}")]
    File(#[source] Errno),
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
    send_frames(to, &bytes, fds, LAST, SendFlags::NOSIGNAL)
}

/// As [`send`], to a peer that need not be trusted: never waits for it to read. However long the message is, it
/// takes little room on its way.
///
/// # Errors
/// As [`send`]; [`LinkError::Full`] when too much that was sent before waits to be read. It may have got a part of the
/// message then, and nothing that is sent later is understood.
pub fn post<T: Serialize>(
    to: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> Result<(), LinkError> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let bytes = postcard::to_stdvec(message)?;
    if bytes.len() <= FRAME {
        return send_frames(to, &bytes, fds, LAST, flags);
    }
    let file = file(&bytes)?;
    let fds: Vec<_> = fds.iter().copied().chain([file.as_fd()]).collect();
    send_frames(to, &[], &fds, IN_FILE, flags)
}

/// A file in memory with `bytes` that nobody can change any more, to be read from its beginning.
fn file(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("weir-message", flags)?;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        // Leaves the place alone at which the other side reads.
        at += rustix::io::pwrite(&file, rest, at as u64)?;
    }
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Sends a message in frames, the last of which begins with `end`.
fn send_frames(
    to: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut fds: &[BorrowedFd<'_>],
    end: u8,
    flags: SendFlags,
) -> Result<(), LinkError> {
    loop {
        let (now, later) = bytes.split_at(bytes.len().min(FRAME));
        let (fds_now, fds_later) = fds.split_at(fds.len().min(FDS_PER_FRAME));
        let last = later.is_empty() && fds_later.is_empty();
        let head = [if last { end } else { MORE }];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_PER_FRAME))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds_now.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds_now));
        }
        let parts = [IoSlice::new(&head), IoSlice::new(now)];
        match sendmsg(to, &parts, &mut control, flags) {
            Ok(_) if last => return Ok(()),
            Ok(_) => (bytes, fds) = (later, fds_later),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(LinkError::Full),
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
        match head {
            MORE => {}
            IN_FILE => {
                let file = fds.pop().ok_or(LinkError::Size)?;
                return Ok((postcard::from_bytes(&read_file(&file)?)?, fds));
            }
            _ => return Ok((postcard::from_bytes(&bytes)?, fds)),
        }
    }
}

/// All that is in a message's file. By the calls that a worker's sandbox has.
fn read_file(file: &OwnedFd) -> Result<Vec<u8>, LinkError> {
    let size = rustix::fs::fstat(file).map_err(LinkError::File)?.st_size;
    let size = usize::try_from(size).ok().filter(|size| *size <= LONGEST);
    let mut bytes = vec![0; size.ok_or(LinkError::Size)?];
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(file, rest) {
            Ok(0) => return Err(LinkError::Size),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(LinkError::File(e)),
        }
    }
    Ok(bytes)
}

/// Takes in the messages of a peer that need not be trusted, as far as they have come: never waits,
/// never holds more than a bounded message, takes no descriptors.
pub struct Inbox {
    bytes: Vec<u8>,
    frame: Vec<u8>,
    begun: Option<Instant>,
    /// Bytes of the message before.
    heard: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox { bytes: Vec::new(), frame: vec![0; FRAME + 1], begun: None, heard: 0 }
    }
}

impl Inbox {
    /// The next message; `None` while it is not all there.
    pub fn take<T: DeserializeOwned>(
        &mut self,
        from: BorrowedFd<'_>,
    ) -> Result<Option<T>, LinkError> {
        for _ in 0..FRAMES_AT_ONCE {
            // Without room for control messages the kernel closes descriptors that come along.
            let got = match recv(from, self.frame.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((got, _)) => got,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(Errno::CONNRESET) => return Err(LinkError::Closed),
                Err(e) => return Err(e.into()),
            };
            let Some((&head, body)) = self.frame.get(..got).and_then(<[u8]>::split_first) else {
                return Err(LinkError::Closed);
            };
            if self.bytes.len() + body.len() > LONGEST_REPORT {
                return Err(LinkError::Size);
            }
            self.bytes.extend_from_slice(body);
            if head != MORE {
                (self.begun, self.heard) = (None, self.bytes.len());
                let message = postcard::from_bytes(&self.bytes);
                self.bytes = Vec::new();
                return Ok(Some(message?));
            }
            self.begun.get_or_insert_with(Instant::now);
        }
        Ok(None)
    }

    /// Bytes of the message that was taken last.
    pub fn heard(&self) -> usize {
        self.heard
    }

    /// How long the beginning of a message has been waiting for its end.
    pub fn waits(&self) -> Option<Duration> {
        self.begun.map(|begun| begun.elapsed())
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
    fn a_message_in_pieces_is_waited_for_without_waiting() {
        let (a, b) = pair().unwrap();
        let mut inbox = Inbox::default();
        assert!(inbox.take::<String>(b.as_fd()).unwrap().is_none() && inbox.waits().is_none());
        let bytes = postcard::to_stdvec(&"hello").unwrap();
        let piece = |last: u8, bytes: &[u8]| {
            let frame = [&[last], bytes].concat();
            rustix::net::send(&a, &frame, SendFlags::empty()).unwrap();
        };
        piece(0, &bytes[..3]);
        assert!(inbox.take::<String>(b.as_fd()).unwrap().is_none() && inbox.waits().is_some());
        piece(1, &bytes[3..]);
        assert_eq!(inbox.take::<String>(b.as_fd()).unwrap().unwrap(), "hello");
        assert!(inbox.waits().is_none());
    }

    #[test]
    fn a_message_without_end_is_refused_and_descriptors_are_not_kept() {
        let (a, b) = pair().unwrap();
        let mut inbox = Inbox::default();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        send(a.as_fd(), &1u8, &[a.as_fd(), b.as_fd()]).unwrap();
        assert_eq!(inbox.take::<u8>(b.as_fd()).unwrap(), Some(1));
        assert!(open() <= before + 1, "{before} descriptors were open, {} are", open());
        let frame = vec![0; FRAME + 1];
        let refused = (0..=LONGEST_REPORT / FRAME).any(|_| {
            rustix::net::send(&a, &frame, SendFlags::empty()).unwrap();
            matches!(inbox.take::<String>(b.as_fd()), Err(LinkError::Size))
        });
        assert!(refused);
    }

    #[test]
    fn a_long_message_is_posted_at_once_and_read_whole_whenever_it_is() {
        let (a, b) = pair().unwrap();
        // More than a socket holds, and more descriptors than go with one frame.
        let text = "x".repeat(4 << 20);
        let fds: Vec<_> = (0..300).map(|_| a.as_fd()).collect();
        post(a.as_fd(), &text, &fds).unwrap();
        post(a.as_fd(), &7u8, &[]).unwrap();
        let (got, got_fds): (String, _) = receive(b.as_fd()).unwrap();
        assert_eq!((got == text, got_fds.len()), (true, 300));
        assert_eq!(receive::<u8>(b.as_fd()).unwrap().0, 7);
    }

    #[test]
    fn who_has_got_a_long_message_cannot_change_it() {
        let file = file(b"told").unwrap();
        assert_eq!(rustix::io::pwrite(&file, b"t", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(read_file(&file).unwrap(), b"told");
    }

    #[test]
    fn a_file_that_did_not_come_or_is_cut_is_no_message() {
        let (a, b) = pair().unwrap();
        send_frames(a.as_fd(), &[], &[], IN_FILE, SendFlags::empty()).unwrap();
        assert!(matches!(receive::<String>(b.as_fd()), Err(LinkError::Size)));
        let short = file(b"").unwrap();
        send_frames(a.as_fd(), &[], &[short.as_fd()], IN_FILE, SendFlags::empty()).unwrap();
        assert!(matches!(receive::<String>(b.as_fd()), Err(LinkError::Form(_))));
    }

    #[test]
    fn a_peer_that_reads_nothing_is_not_waited_for() {
        let (a, _b) = pair().unwrap();
        let full = (0..100_000).map(|n: u32| post(a.as_fd(), &n, &[])).find(Result::is_err);
        assert!(matches!(full, Some(Err(LinkError::Full))));
    }

    #[test]
    fn a_peer_that_has_gone_is_noticed() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert!(matches!(receive::<String>(b.as_fd()), Err(LinkError::Closed)));
        assert!(matches!(send(b.as_fd(), &1u8, &[]), Err(LinkError::Closed)));
    }
}
