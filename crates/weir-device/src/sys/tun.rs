//! TAP devices (Documentation/networking/tuntap.rst of the kernel).

use super::interface::{call, last_error, request};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// Makes a TAP interface, or takes one that exists and that nobody uses (CAP_NET_ADMIN). It goes
/// when its last descriptor does, unless the administrator made it persistent.
pub(crate) fn create(name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = open("/dev/net/tun", flags, Mode::empty())?;
    attach(&fd, name)?;
    Ok(fd)
}

/// Ties a descriptor of /dev/net/tun to the interface `name`. For one that an administrator made
/// without naming an owner no privileges are needed.
pub(crate) fn attach(fd: impl AsFd, name: &str) -> Result<(), Errno> {
    let fd = fd.as_fd();
    let mut r = request(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    r.ifr_ifru.ifru_flags = flags as libc::c_short;
    call(fd, libc::TUNSETIFF as libc::c_ulong, &mut r)?;
    // What this end can finish, so what the kernel's stack may leave to it.
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let datagrams = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // Segmented datagrams are newer (Linux 6.2).
    set_offload(fd, offloads | datagrams).or_else(|_| set_offload(fd, offloads))
}

/// True while the descriptor has an interface.
pub(crate) fn is_attached(fd: impl AsFd) -> bool {
    let mut r = match request("") {
        Ok(r) => r,
        Err(_) => return false,
    };
    call(fd.as_fd(), libc::TUNGETIFF as libc::c_ulong, &mut r).is_ok()
}

fn set_offload(fd: impl AsFd, offloads: libc::c_uint) -> Result<(), Errno> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the call takes its argument by value.
    let done = unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) };
    if done < 0 { Err(last_error()) } else { Ok(()) }
}
