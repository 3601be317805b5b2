//! Packet sockets (packet(7)).
//!
//! Who holds one may `bind` it to any interface and name any in a message. So it is the agent that makes
//! them and binds them; a service has its own bound copy, and may do neither (the worker's sandbox).

use super::interface::last_error;
use super::ring::{Geometry, Ring};
use super::tx_ring::{TxGeometry, TxRing};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::mem::size_of;

/// Bytes of socket memory for what does not fit the ring's frames.
const BUFFER: usize = 16 << 20;

/// A packet socket; until it is bound it neither receives nor sends.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketSocket {
    /// A new one (CAP_NET_RAW).
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0: receives nothing before it is bound to something.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        // More than the usual limit needs CAP_NET_ADMIN; less must do without.
        if sockopt::set_socket_recv_buffer_size_force(&fd, BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, BUFFER);
        }
        let bytes = BUFFER as libc::c_int;
        if set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(&fd, BUFFER);
        }
        Ok(PacketSocket(fd))
    }

    /// One that somebody else has made.
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        PacketSocket(fd)
    }

    /// The descriptor.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Gives it a ring for sending.
    pub(crate) fn tx_ring(&self, geometry: TxGeometry) -> Result<TxRing, Errno> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        self.set(libc::PACKET_VNET_HDR, &1)?;
        self.set(libc::PACKET_TX_RING, &geometry.request())?;
        TxRing::map(self.as_fd(), geometry)
    }

    /// Gives it a ring for receiving, each frame with a `virtio_net_hdr`. Frames too long for the
    /// ring are queued in the socket besides.
    pub(crate) fn ring(&self, geometry: Geometry) -> Result<Ring, Errno> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        self.set(libc::PACKET_VNET_HDR, &1)?;
        self.set(libc::PACKET_COPY_THRESH, &1)?;
        self.set(libc::PACKET_IGNORE_OUTGOING, &1)?;
        let request = libc::tpacket_req {
            tp_block_size: geometry.block_size(),
            tp_block_nr: geometry.blocks(),
            tp_frame_size: geometry.frame_size(),
            tp_frame_nr: geometry.frames(),
        };
        self.set(libc::PACKET_RX_RING, &request)?;
        Ring::map(self.as_fd(), geometry)
    }

    /// The ring that the socket was given by another process, which had come to frame `next`.
    pub(crate) fn same_ring(&self, geometry: Geometry, next: u64) -> Result<Ring, Errno> {
        let mut ring = Ring::map(self.as_fd(), geometry)?;
        ring.go_on(next);
        Ok(ring)
    }

    /// Packets that the kernel has dropped for want of room since the last call.
    pub(crate) fn drops(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointers lead to a `tpacket_stats` and its length; the kernel writes no more.
        let done = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut stats).cast(),
                &raw mut len,
            )
        };
        if done < 0 { 0 } else { u64::from(stats.tp_drops) }
    }

    /// Forgets an error that waits to be told, so that waiting for packets works again.
    pub(crate) fn take_error(&self) {
        let _ = sockopt::socket_error(&self.0);
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> Result<(), Errno> {
        set(self.as_fd(), libc::SOL_PACKET, option, value)
    }
}

/// Ties a packet socket to an interface from now on: what it sends leaves by it, and when it
/// `receives`, it gets everything that comes in by it, whomever it is meant for. What is bound so
/// already stays as it is and loses no packet (`packet_do_bind` in the kernel's `af_packet.c`).
pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32, receives: bool) -> Result<(), Errno> {
    // Protocol 0 receives nothing.
    let address = address(index, if receives { libc::ETH_P_ALL as u16 } else { 0 });
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer leads to a `sockaddr_ll` of that length.
    let done = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if done < 0 {
        return Err(last_error());
    }
    if receives { membership(fd, index) } else { Ok(()) }
}

/// Has the interface take in everybody's packets for as long as the socket lives.
pub(super) fn membership(fd: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let everything = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everything)
}

/// Index of the interface that a packet socket is bound to; `None` when that has gone, or it never was.
pub(crate) fn bound(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut found = address(0, 0);
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut found).cast();
    // SAFETY: the pointers lead to a `sockaddr_ll` and its length; the kernel writes no more.
    let done = unsafe { libc::getsockname(fd.as_raw_fd(), to, &raw mut len) };
    // Of an interface that was deleted it says -1.
    if done < 0 { None } else { u32::try_from(found.sll_ifindex).ok().filter(|i| *i > 0) }
}

fn set<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer leads to a value of that length, which the kernel only reads.
    let done = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
    };
    if done < 0 { Err(last_error()) } else { Ok(()) }
}

/// An interface as an address.
pub(super) fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
