//! What the kernel says of an interface, by name. Needs no privileges.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// An interface as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    /// Set up by the administrator.
    pub(crate) up: bool,
    /// Has a carrier: a cable, or whatever else is at its other end, is there and ready (RFC 2863's `up`).
    pub(crate) carrier: bool,
    /// Carries Ethernet frames.
    pub(crate) ethernet: bool,
    /// Largest payload of a frame, in bytes.
    pub(crate) mtu: u32,
}

/// Longest name of an interface, in bytes.
const fn longest_name() -> usize {
    libc::IFNAMSIZ - 1
}

/// A request about the interface `name`; a name that is too long names none.
pub(super) fn request(name: &str) -> Result<libc::ifreq, Errno> {
    if name.len() > longest_name() || name.bytes().any(|b| b == 0) {
        return Err(Errno::NODEV);
    }
    // SAFETY: `ifreq` is plain data, for which all zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// One of the calls that take an `ifreq`.
pub(super) fn call(
    fd: BorrowedFd<'_>,
    what: libc::c_ulong,
    request: &mut libc::ifreq,
) -> Result<(), Errno> {
    // SAFETY: the descriptor is open; all calls that are made here read and write one `ifreq`, to
    // which the pointer leads.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(request)) };
    if done < 0 { Err(last_error()) } else { Ok(()) }
}

pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The interface's index.
fn index_of(socket: BorrowedFd<'_>, name: &str) -> Result<u32, Errno> {
    let mut r = request(name)?;
    call(socket, libc::SIOCGIFINDEX, &mut r)?;
    // SAFETY: the call has filled in this member.
    Ok(unsafe { r.ifr_ifru.ifru_ifindex } as u32)
}

/// The interface as it is now; `socket` is any socket of its network namespace.
pub(crate) fn link(socket: impl AsFd, name: &str) -> Result<Link, Errno> {
    let socket = socket.as_fd();
    let index = index_of(socket, name)?;
    let mut r = request(name)?;
    call(socket, libc::SIOCGIFFLAGS, &mut r)?;
    // SAFETY: the call has filled in this member.
    let flags = i32::from(unsafe { r.ifr_ifru.ifru_flags });
    call(socket, libc::SIOCGIFHWADDR, &mut r)?;
    // SAFETY: the call has filled in this member.
    let hardware = unsafe { r.ifr_ifru.ifru_hwaddr }.sa_family;
    call(socket, libc::SIOCGIFMTU, &mut r)?;
    // SAFETY: the call has filled in this member.
    let mtu = unsafe { r.ifr_ifru.ifru_mtu };
    Ok(Link {
        index,
        up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_RUNNING != 0,
        ethernet: hardware == libc::ARPHRD_ETHER,
        mtu: mtu.max(0) as u32,
    })
}

/// Sets the interface up, as an administrator does (CAP_NET_ADMIN).
pub(crate) fn set_up(socket: impl AsFd, name: &str) -> Result<(), Errno> {
    let mut r = request(name)?;
    call(socket.as_fd(), libc::SIOCGIFFLAGS, &mut r)?;
    // SAFETY: the call has filled in this member.
    let flags = unsafe { r.ifr_ifru.ifru_flags };
    r.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    call(socket.as_fd(), libc::SIOCSIFFLAGS, &mut r)
}
