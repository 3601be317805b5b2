#!/usr/bin/env python3
"""A VLAN sub-interface in user space, for kernels built without 802.1Q.

usage: vlan_tag.py TRUNK ACCESS TAG[,TAG]        (TAG = tpid:vid, hex:decimal)
e.g.   vlan_tag.py c0 c7p 8100:7                 one tag (IEEE 802.1Q)
       vlan_tag.py c0 c8p 88a8:100,8100:8        two tags, outer first (802.1ad)

Frames that arrive on ACCESS leave TRUNK with the tags; frames that arrive on
TRUNK with exactly these tags leave ACCESS without them. Ends when killed.
"""
import select
import socket
import struct
import sys

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
# struct tpacket_auxdata, linux/if_packet.h
AUXDATA = struct.Struct("=IIIHHHH")
TP_STATUS_VLAN_VALID = 1 << 4
TP_STATUS_VLAN_TPID_VALID = 1 << 6
TPIDS = (0x8100, 0x88A8)
ADDRESSES_LEN = 12  # destination and source MAC: tags stand right after them


def packet_socket(interface):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    s.bind((interface, 0))
    return s


def receive(s):
    """One frame as it was on the wire, or None for a frame we sent ourselves."""
    frame, ancillary, _, address = s.recvmsg(65536, socket.CMSG_SPACE(AUXDATA.size))
    if address[2] == socket.PACKET_OUTGOING:
        return None
    # The kernel takes the outer tag out of a received frame and reports it beside it.
    for level, kind, data in ancillary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = AUXDATA.unpack(data[: AUXDATA.size])
            if status & TP_STATUS_VLAN_VALID:
                if not status & TP_STATUS_VLAN_TPID_VALID:
                    tpid = 0x8100
                tag = struct.pack("!HH", tpid, tci)
                frame = frame[:ADDRESSES_LEN] + tag + frame[ADDRESSES_LEN:]
    return frame


def split_tags(frame):
    """The tags as [(tpid, vid)], outer first, and the frame without them."""
    tags, at = [], ADDRESSES_LEN
    while len(frame) >= at + 4:
        tpid, tci = struct.unpack_from("!HH", frame, at)
        if tpid not in TPIDS:
            break
        tags.append((tpid, tci & 0x0FFF))
        at += 4
    return tags, frame[:ADDRESSES_LEN] + frame[at:]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tags = [(int(tpid, 16), int(vid)) for tpid, vid in (t.split(":") for t in sys.argv[3].split(","))]
    header = b"".join(struct.pack("!HH", tpid, vid) for tpid, vid in tags)
    trunk, access = packet_socket(sys.argv[1]), packet_socket(sys.argv[2])
    while True:
        for s in select.select([trunk, access], [], [])[0]:
            frame = receive(s)
            if frame is None:
                continue
            if s is access:
                trunk.send(frame[:ADDRESSES_LEN] + header + frame[ADDRESSES_LEN:])
            else:
                found, inner = split_tags(frame)
                if found == tags:
                    access.send(inner)


main()
