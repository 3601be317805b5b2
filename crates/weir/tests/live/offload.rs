//! What the kernel leaves undone in a packet is done when it has come in: super-packets that the
//! test itself sends, as a capture shows them behind Weir.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::common_crash::*;
use crate::common_live::*;
use rustix::process::Signal;
use std::net::IpAddr;
use weir_packet::checksum::{L4Checksum, pseudo_v4, pseudo_v6, verify_l4};
use weir_packet::headers::{ETHERNET_LEN, proto, tcp};
use weir_packet::wire::Frame;
use weir_packet::{Begins, Depth, check_ip, parse, parse_at};

/// Sends frames of a file (16 bits of length before each), a `virtio_net_hdr` in front of each, as
/// the kernel's own stack leaves them to a network card.
const SENDER: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
s.bind(('c0', 0))
data = open(sys.argv[1], 'rb').read()
while data:
    n = struct.unpack('<H', data[:2])[0]
    s.send(data[2:2 + n])
    data = data[2 + n:]
";

/// The same from the other end of a TAP interface: unlike a veth pair it takes what is in tunnels that the kernel has not made.
const INJECTOR: &str = "
import fcntl, os, struct, sys
tap = os.open('/dev/net/tun', os.O_RDWR)
# TUNSETIFF; IFF_TAP, IFF_NO_PI, IFF_VNET_HDR
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH22x', b't0', 0x5002))
data = open(sys.argv[1], 'rb').read()
while data:
    n = struct.unpack('<H', data[:2])[0]
    os.write(tap, data[2:2 + n])
    data = data[2 + n:]
";

/// A frame whose checksum is left to the card, and that is to be cut into pieces of `size`.
fn unfinished(frame: &Frame<'_>, size: u16) -> Vec<u8> {
    let mut bytes = frame.build();
    let layers = parse(bytes.as_slice(), Depth::L4);
    let udp = layers.proto == proto::UDP;
    let len = bytes.len() as u16 - layers.l4;
    let (sum, v6) = match layers.ips(bytes.as_slice()).unwrap() {
        (IpAddr::V4(a), IpAddr::V4(b)) => (pseudo_v4(a, b, layers.proto, len), false),
        (IpAddr::V6(a), IpAddr::V6(b)) => (pseudo_v6(a, b, layers.proto, len.into()), true),
        _ => unreachable!(),
    };
    let offset = if udp { 6 } else { 16 };
    let at = usize::from(layers.l4) + offset;
    bytes[at..at + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
    let kind = match (size, udp, v6) {
        (0, ..) => 0,
        (_, true, _) => 5,
        (_, false, true) => 4,
        (_, false, false) => 1,
    };
    let mut out = vec![1, kind];
    let headers = layers.payload;
    for word in [headers, size, layers.l4, offset as u16] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(&bytes);
    out
}

/// Sends what [`unfinished`] made by a program in `space`, when Weir listens.
fn send(net: &Network, space: &Namespace, program: &str, scratch: &Scratch, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for bytes in frames {
        file.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        file.extend_from_slice(bytes);
    }
    std::fs::write(scratch.file("frames"), file).unwrap();
    // Something comes by itself (neighbour discovery); waited for is that the service listens.
    let listens = || net.weir.exec("cat", &["/proc/net/packet"]).stdout;
    wait_until("a bound socket", PATIENCE, || {
        listens().iter().filter(|b| **b == b'\n').count() > 1
    });
    let frames = scratch.file("frames").display().to_string();
    let output = space.exec("python3", &["-c", program, &frames]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn super_packets_come_out_as_sound_segments_with_their_vlan_tags() {
    if skipped("super_packets_come_out_as_sound_segments_with_their_vlan_tags") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-offload"), Network::new());
    let payload: Vec<u8> =
        (0..20_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let v4 = || Frame::ipv4([10, 9, 0, 1], [10, 9, 0, 2]).id(0xfffe);
    let v6 = || Frame::ipv6([0xfd; 16], [0xfe; 16]);
    let flags = tcp::ACK | tcp::PSH | tcp::FIN;
    let options: [(u8, &[u8]); 1] = [(proto::DEST_OPTS, &[0; 6])];
    // What is sent, the size of the pieces, and how the first piece begins.
    let t = |f: Frame<'static>, port| f.tcp(port, 80, flags).seq(u32::MAX - 5000, 1);
    let cases = [
        (t(v4(), 1), 1448),
        (t(v4(), 2).vlan(7), 1448),
        (t(v4(), 3).tag(0x88a8, 100).tag(0x8100, 0x6008), 1000),
        (t(v6(), 4), 1428),
        (t(v6(), 5).vlan(9), 1300),
        (v4().udp(6, 9), 1200),
        (v6().udp(7, 9).vlan(4094), 1200),
    ];
    let with_options = Frame::ipv6([0xfd; 16], [0xfe; 16]).extensions(&options);
    let with_options = with_options.tcp(8, 80, flags).seq(u32::MAX - 5000, 1);
    let mut cases: Vec<(Frame<'_>, u16)> = cases.to_vec();
    cases.push((with_options, 1400));
    // One packet each, only the checksum left.
    let short = &payload[..1001];
    let whole = [t(v4(), 9).vlan(5), t(v6(), 10), v6().udp(11, 9), v4().udp(12, 9)];

    let (mut frames, mut sent) = (Vec::new(), Vec::new());
    let all = cases.iter().map(|(f, size)| (f.payload(&payload), *size, &payload[..]));
    for (frame, size, payload) in all.chain(whole.iter().map(|f| (f.payload(short), 0, short))) {
        frames.push(unfinished(&frame, size));
        sent.push((frame.build(), size, payload));
    }
    let capture = scratch.file("out.pcap");
    let policy = scratch.policy(
        "Port<0> a;  Port<1> b;  pipelet { a [ip or ip6 or vlan] -> b;
            a [!(ip or ip6 or vlan)] -> b; }",
    );
    let bind = format!("1=pcap:tx={}", capture.display());
    let run = net.run(&policy, &["--bind", "0=afp:m0", "--bind", &bind]);
    send(&net, &net.client, SENDER, &scratch, &frames);
    let last = u16::from_be_bytes([0, 12]);
    wait_until("the last packet", PATIENCE, || {
        let seen = std::fs::read(&capture).unwrap_or_default();
        seen.windows(4).any(|w| w[..2] == last.to_be_bytes() && w[2..] == 9u16.to_be_bytes())
    });
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("offload");
    assert_eq!(drops(&finished.report), [], "{:#}", finished.report);

    let got = read_capture(&capture, <[u8]>::to_vec);
    for (i, (frame, size, payload)) in sent.iter().enumerate() {
        let port = i as u16 + 1;
        let of_it = |b: &&Vec<u8>| {
            let ports = parse(b.as_slice(), Depth::L4).ports(b.as_slice());
            ports.is_some_and(|(source, _)| source == port)
        };
        let mine: Vec<_> = got.iter().filter(of_it).collect();
        let pieces = if *size == 0 { 1 } else { payload.len().div_ceil((*size).into()) };
        assert_eq!(mine.len(), pieces, "packets of case {port}");
        let whole = parse(frame.as_slice(), Depth::L4);
        let mut data = Vec::new();
        for (n, bytes) in mine.iter().enumerate() {
            let layers = parse(bytes.as_slice(), Depth::L4);
            assert_eq!(check_ip(bytes.as_slice(), &layers, bytes.len()), Ok(()), "case {port}");
            assert_eq!(verify_l4(bytes.as_slice(), &layers), L4Checksum::Good, "case {port}");
            let l3 = usize::from(whole.l3);
            assert_eq!(bytes[..l3], frame[..l3], "addresses and tags of case {port}");
            if let Some(flags) = layers.tcp_flags(bytes.as_slice()) {
                let ends = flags & (tcp::FIN | tcp::PSH) != 0;
                assert_eq!(ends, n + 1 == pieces, "flags of case {port}");
            }
            data.extend_from_slice(&bytes[usize::from(layers.payload)..usize::from(layers.end)]);
        }
        assert!(data == *payload, "payload of case {port}");
    }
}

/// `outer` around a packet that was left [`unfinished`], its headers before and after the tunnel's own.
fn in_a_tunnel(outer: Frame<'_>, header: &[u8], mut inner: Vec<u8>) -> Vec<u8> {
    let (vnet, frame) = inner.split_at_mut(10);
    let body = [header, &frame[ETHERNET_LEN..]].concat();
    let outer = outer.payload(&body).build();
    let further = (outer.len() - frame.len()) as u16;
    let start = u16::from_ne_bytes([vnet[6], vnet[7]]) + further;
    vnet[6..8].copy_from_slice(&start.to_ne_bytes());
    [&*vnet, &outer].concat()
}

#[test]
fn super_packets_in_tunnels_and_the_checksum_of_sctp_come_out_sound() {
    if skipped("super_packets_in_tunnels_and_the_checksum_of_sctp") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-inner"), Network::new());
    let payload: Vec<u8> = (0..20_001u32).map(|i| (i % 251) as u8).collect();
    let v4 = || Frame::ipv4([10, 9, 0, 1], [10, 9, 0, 2]).id(0xfffe);
    let v6 = || Frame::ipv6([0xfd; 16], [0xfe; 16]);
    let tcp = |f: Frame<'static>, port| f.tcp(port, 80, tcp::ACK).seq(u32::MAX - 5000, 1);
    let inner = |f: Frame<'_>| unfinished(&f.payload(&payload), 1300);
    let gre = [0x20, 0, 0x08, 0, 1, 2, 3, 4];
    // Data of five bytes; the checksum's place is empty, as the kernel leaves it. The CRC is Wireshark's, too.
    let mut sctp =
        *b"\0\x0d\0\x50\0\0\0\x07\0\0\0\0\0\x03\0\x15\0\0\0\x01\0\0\0\0\0\0\0\0hello\0\0\0";
    let numbered = v4().proto(proto::SCTP).payload(&sctp).build();
    let vnet: Vec<u8> = [0x0001u16, 0, 0, ETHERNET_LEN as u16 + 20, 8]
        .into_iter()
        .flat_map(u16::to_ne_bytes)
        .collect();
    let frames = [
        in_a_tunnel(v4().proto(proto::GRE), &gre, inner(tcp(v4(), 1))),
        in_a_tunnel(v6().proto(proto::IPIP), &[], inner(tcp(v4(), 2))),
        in_a_tunnel(v4().proto(proto::IPV6), &[], inner(v6().udp(3, 9))),
        [&vnet, &numbered[..]].concat(),
    ];
    let capture = scratch.file("out.pcap");
    let bind = format!("1=pcap:tx={}", capture.display());
    let policy = scratch.policy("Port<0> a;  Port<1> b;  pipelet { a -> b; }");
    net.weir.ip("tuntap add dev t0 mode tap vnet_hdr");
    net.weir.ip("link set t0 up");
    let run = net.run(&policy, &["--bind", "0=afp:t0", "--bind", &bind]);
    send(&net, &net.weir, INJECTOR, &scratch, &frames);
    sctp[8..12].copy_from_slice(&[0x19, 0xf9, 0xed, 0xd2]);
    wait_until("the last packet, with its checksum", PATIENCE, || {
        std::fs::read(&capture).unwrap_or_default().windows(sctp.len()).any(|seen| seen == sctp)
    });
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("tunnels");
    assert_eq!(drops(&finished.report), [], "{:#}", finished.report);

    let got = read_capture(&capture, <[u8]>::to_vec);
    for (carrier, header) in [(proto::GRE, 8), (proto::IPIP, 0), (proto::IPV6, 0)] {
        let mut data = Vec::new();
        for bytes in got.iter().map(Vec::as_slice) {
            let outer = parse(bytes, Depth::L4);
            if outer.proto != carrier {
                continue;
            }
            assert_eq!(check_ip(bytes, &outer, bytes.len()), Ok(()), "around, {carrier}");
            let inner = parse_at(bytes, usize::from(outer.l4) + header, Begins::Ip, Depth::L4);
            assert_eq!(check_ip(bytes, &inner, bytes.len()), Ok(()), "inside, {carrier}");
            assert_eq!(verify_l4(bytes, &inner), L4Checksum::Good, "inside, {carrier}");
            let ends = [outer.end, inner.end].map(usize::from);
            assert_eq!(ends, [bytes.len(); 2], "lengths, {carrier}");
            data.extend_from_slice(&bytes[usize::from(inner.payload)..]);
        }
        assert!(data == payload, "payload of {carrier}");
    }
}

#[test]
fn pages_pass_through_vxlan_over_both_families_with_right_checksums() {
    if skipped("pages_pass_through_vxlan_over_both_families") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-vxlan"), Network::new());
    let ways = [
        (CLIENT, SERVER, "udpcsum"),
        (CLIENT, SERVER, "noudpcsum"),
        (CLIENT6, SERVER6, ""),
        (CLIENT6, SERVER6, "udp6zerocsumtx udp6zerocsumrx"),
    ];
    for (n, (client, server, checksum)) in ways.iter().enumerate() {
        let ends = [(&net.client, "c0", client, server, 1), (&net.server, "s0", server, client, 2)];
        for (space, interface, local, remote, host) in ends {
            // A port each, as one socket has one way with checksums.
            space.ip(&format!(
                "link add vx{n} type vxlan id {n} local {local} remote {remote} dev {interface} dstport {} {checksum}",
                4789 + n
            ));
            space.ip(&format!("link set vx{n} up"));
            space.ip(&format!("addr add 198.18.{n}.{host}/24 dev vx{n}"));
            space.ip(&format!("addr add fd01:{n}::{host}/64 dev vx{n} nodad"));
        }
    }
    let (_nginx, page) = net.web_server(&scratch);
    let run = net.run_between(&scratch.policy(THROUGH));
    for n in 0..ways.len() {
        for host in [format!("198.18.{n}.2"), format!("[fd01:{n}::2]")] {
            let arrived = net.client.curl(&format!("http://{host}/large"));
            assert!(arrived.as_ref() == Ok(&page), "{host}: {:?}", arrived.map(|page| page.len()));
        }
    }
    net.assert_checksums();
    let came_in = net.frames_from_server();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("vxlan");
    // What the kernel had no room for on a busy machine TCP has sent again.
    let dropped: Vec<_> =
        drops(&finished.report).into_iter().filter(|(_, why, _)| why != "kernel-full").collect();
    assert_eq!(dropped, [], "{:#}", finished.report);
    let nodes = finished.report["nodes"].as_array().unwrap();
    let received = nodes.iter().find(|node| node["name"] == "rx:b").unwrap();
    assert!(received["packets"].as_u64().unwrap() > 2 * came_in, "{came_in}: {received:#}");
}

#[test]
fn a_packet_that_has_outgrown_the_buffers_is_dropped_and_counted() {
    if skipped("a_packet_that_has_outgrown_the_buffers") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-jumbo"), Network::new());
    let run = net.run_between(&scratch.policy(THROUGH));
    // Buffers were made for the interface as it was.
    for (ns, interface) in [(&net.client, "c0"), (&net.weir, "m0")] {
        ns.ip(&format!("link set {interface} mtu 9000"));
    }
    let large = ["-c", "1", "-W", "1", "-q", "-s", "5000", SERVER];
    assert!(!net.client.exec("ping", &large).status.success());
    assert!(net.client.ping(SERVER), "what fits goes on");
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("jumbo");
    assert_eq!(drops(&finished.report), [("rx:a".into(), "oversize".into(), 1)]);
}

#[test]
fn a_device_that_is_full_is_waited_for_a_moment_then_packets_are_dropped_and_counted() {
    if skipped("a_device_that_is_full") {
        return;
    }
    let (scratch, net) = (Scratch::new("live-full"), Network::new());
    let run = net.run_between(&scratch.policy(THROUGH));
    let shape =
        ["qdisc", "add", "dev", "m1", "root", "tbf", "rate", "1mbit", "burst", "2k", "limit", "4k"];
    let shaped = net.weir.exec("tc", &shape);
    if !shaped.status.success() {
        eprintln!("skipped: a_device_that_is_full needs the kernel's tbf");
        return;
    }
    let flood = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 s.connect(('192.0.2.2', 9))\nfor i in range(500):\n  try: s.send(b'x' * 1000)\n  except OSError: pass\n";
    assert!(net.client.exec("python3", &["-c", flood]).status.success());
    // It has been waited for, in vain, when the queue has refused packets and refuses no more.
    let mut refused = (0, 0);
    wait_until("all to be sent or dropped", PATIENCE, || {
        let told = net.weir.exec("tc", &["-s", "qdisc", "show", "dev", "m1"]).stdout;
        let told = String::from_utf8_lossy(&told).into_owned();
        let count = told.split("(dropped ").nth(1).and_then(|t| t.split(',').next()?.parse().ok());
        refused = (refused.1, count.unwrap_or(0u64));
        refused.0 > 0 && refused.0 == refused.1
    });
    assert!(net.weir.exec("tc", &["qdisc", "del", "dev", "m1", "root"]).status.success());
    net.wait_for_ping();
    run.signal(Signal::INT);
    let finished = run.finish();
    finished.assert_sound("full");
    let dropped = drops(&finished.report);
    let [(node, reason, count)] = &dropped[..] else { panic!("{dropped:?}") };
    assert_eq!((node.as_str(), reason.as_str()), ("tx:b", "device"));
    assert!((10..500).contains(count), "{count}");
}
