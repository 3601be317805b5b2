//! What can go wrong with a device.

use rustix::io::Errno;
use std::path::PathBuf;
use weir_capture::{OpenError, ReadError, WriteError};

/// Why a device cannot be opened or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The capture cannot be opened or is not one.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// Reading failed.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// Writing failed.
    #[error("{}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: WriteError,
    },
    /// There is no such interface.
    #[error("afp:{0}: there is no interface of that name here; `ip link` shows those there are")]
    NoInterface(String),
    /// An interface without Ethernet headers.
    #[error("{0}: not an Ethernet interface")]
    NotEthernet(String),
    /// Packet sockets are for the privileged.
    #[error(
        "afp:{0}: not permitted: packet sockets need CAP_NET_RAW. Run as root, or allow it to this program once: sudo setcap cap_net_raw+ep {1}"
    )]
    NoRaw(String, String),
    /// Making interfaces is for the privileged.
    #[error(
        "tap:{0}: not permitted: making an interface needs CAP_NET_ADMIN. Run as root, or allow it to this program once: sudo setcap cap_net_admin+ep {1}"
    )]
    NoAdmin(String, String),
    /// The kernel has no TAP devices.
    #[error(
        "tap:{0}: /dev/net/tun is not there: load the kernel's module (sudo modprobe tun), or let the container have the device"
    )]
    NoTun(String),
    /// The name is taken by an interface that cannot be used.
    #[error(
        "tap:{0}: an interface of that name is there and in use, or of another kind; choose another name"
    )]
    Taken(String),
    /// The descriptor of a live device did not come.
    #[error("{0}: its descriptor is missing: the agent has to lend it")]
    NoDescriptor(String),
    /// Another system error.
    #[error("{device}: {what}: {source}")]
    Interface {
        /// The device.
        device: String,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Errno,
    },
}
