//! What can be said of live devices before anything runs, and TAP interfaces.

use crate::sys::{self, Link, PacketSocket};
use crate::{DeviceError, DeviceSpec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use weir_packet::headers::ETHERNET_LEN;

/// Two VLAN tags beside the interface's MTU.
const TAGS: u32 = 8;

/// A socket by which to ask about interfaces; it stays in the network namespace it was made in.
pub(super) fn asking_socket(device: &str) -> Result<OwnedFd, DeviceError> {
    let made = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    made.map_err(|source| failed(device, "cannot make a socket", source))
}

pub(super) fn failed(device: &str, what: &'static str, source: Errno) -> DeviceError {
    DeviceError::Interface { device: device.to_owned(), what, source }
}

/// A packet socket, with an answer for those who may not have one.
pub(super) fn packet_socket(name: &str) -> Result<PacketSocket, DeviceError> {
    PacketSocket::new().map_err(|source| match source {
        Errno::PERM | Errno::ACCESS => DeviceError::NoRaw(name.to_owned(), program()),
        source => failed(&format!("afp:{name}"), "cannot make a packet socket", source),
    })
}

/// A packet socket for a service of the interface `name`, tied to it if it is there; `receives`: the
/// service takes what comes in by it. The agent keeps a copy for [`retake_packets`] (CAP_NET_RAW).
pub fn lend_packet_socket(name: &str, receives: bool) -> Result<OwnedFd, DeviceError> {
    let fd = packet_socket(name)?.into_fd();
    retake_packets(name, &fd, receives);
    Ok(fd)
}

/// Ties the packet socket of a service to the interface that has the name now, when it is tied to another
/// or to none. For the agent, now and then: services may not do so themselves.
pub fn retake_packets(name: &str, fd: impl AsFd, receives: bool) {
    let Some(link) = link_or_gone(&fd, name) else { return };
    let fd = fd.as_fd();
    if sys::bound(fd) != Some(link.index) {
        // It may have gone again: then the next time.
        let _ = sys::bind(fd, link.index, receives);
    }
}

/// The interface `name` as it is, if it is there. A service that is started again while it is not
/// waits for it: that it was there at the beginning, [`check`] has seen.
pub(super) fn link_or_gone(socket: impl AsFd, name: &str) -> Option<Link> {
    sys::link(socket, name).ok().filter(|link| link.ethernet)
}

/// The interface `name` as it is, when it can be used.
fn ethernet(socket: impl AsFd, name: &str) -> Result<Link, DeviceError> {
    let link = sys::link(socket, name).map_err(|source| match source {
        Errno::NODEV => DeviceError::NoInterface(name.to_owned()),
        source => failed(&format!("afp:{name}"), "cannot ask about the interface", source),
    })?;
    if link.ethernet { Ok(link) } else { Err(DeviceError::NotEthernet(format!("afp:{name}"))) }
}

fn program() -> String {
    std::env::current_exe().map_or_else(|_| "weir".into(), |p| p.display().to_string())
}

/// Whether a device can be opened: for clear errors before anything runs.
pub fn check(spec: &DeviceSpec) -> Result<(), DeviceError> {
    let DeviceSpec::Afp(name) = spec else { return Ok(()) };
    ethernet(asking_socket(&format!("afp:{name}"))?, name)?;
    packet_socket(name).map(drop)
}

/// Longest packet that a live device is expected to bring, in bytes; 0 for others and for
/// interfaces that are not there.
pub fn longest_packet(spec: &DeviceSpec) -> u32 {
    let Some(name) = spec.interface() else { return 0 };
    let link = asking_socket(name).ok().and_then(|socket| sys::link(socket, name).ok());
    link.map_or(0, |l| l.mtu.saturating_add(ETHERNET_LEN as u32 + TAGS))
}

/// Makes the TAP interface `name` and sets it up. It is there as long as the descriptor (or a copy
/// of it) is: the agent keeps it, so it outlives the services that use it.
pub fn create_tap(name: &str) -> Result<OwnedFd, DeviceError> {
    let device = format!("tap:{name}");
    let fd = sys::create(name).map_err(|source| match source {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => DeviceError::NoTun(name.to_owned()),
        Errno::PERM | Errno::ACCESS => DeviceError::NoAdmin(name.to_owned(), program()),
        Errno::BUSY | Errno::INVAL | Errno::EXIST => DeviceError::Taken(name.to_owned()),
        source => failed(&device, "cannot make the interface", source),
    })?;
    let socket = asking_socket(&device)?;
    sys::set_up(socket, name).map_err(|source| failed(&device, "cannot set it up", source))?;
    Ok(fd)
}

/// Ties the descriptor of the TAP interface `name` to one that was made anew under the name, when its
/// own was deleted; does nothing when there is none. For the agent: services have no privileges.
pub fn retake_tap(name: &str, fd: impl AsFd) {
    if sys::is_attached(&fd) {
        return;
    }
    let there = asking_socket(name).is_ok_and(|socket| link_or_gone(&socket, name).is_some());
    if there {
        // It may have gone again, or be somebody else's: then the next time.
        let _ = sys::attach(&fd, name);
    }
}
