//! Packet sockets (packet(7)).

use super::interface::last_error;
use super::ring::{Geometry, Ring};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::mem::size_of;

/// Bytes of socket memory for what does not fit the ring's frames.
const BUFFER: usize = 16 << 20;

/// A packet socket; until it is bound it receives nothing.
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
        Ok(PacketSocket(fd))
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

    /// Receives everything that comes in by the interface from now on, whomever it is meant for.
    /// Needs no privileges, so an interface that was made anew can be bound again. What is bound so
    /// already stays as it is and loses no packet (`packet_do_bind` in the kernel's `af_packet.c`).
    pub(crate) fn bind(&self, index: u32) -> Result<(), Errno> {
        let address = address(index, libc::ETH_P_ALL as u16);
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer leads to a `sockaddr_ll` of that length.
        let done =
            unsafe { libc::bind(self.0.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
        if done < 0 {
            return Err(last_error());
        }
        let everything = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &everything)
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
        // SAFETY: the pointer leads to a value of that length, which the kernel only reads.
        let done = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if done < 0 { Err(last_error()) } else { Ok(()) }
    }
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
