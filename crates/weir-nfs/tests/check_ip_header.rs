//! CheckIpHeader.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test.

use std::net::Ipv6Addr;
use weir_nf::DropReason;
use weir_nf::testing::Bench;
use weir_nf::wire::Frame;
use weir_nfs::check_ip_header::CheckIpHeader;

fn v4() -> Frame<'static> {
    Frame::ipv4([192, 0, 2, 1], [192, 0, 2, 2]).tcp(1000, 80, 0x18).payload(b"data")
}

fn v6() -> Frame<'static> {
    Frame::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST).udp(1000, 53).payload(b"data")
}

fn verdict(frame: &[u8]) -> Result<&'static str, DropReason> {
    verdict_of_cut(frame, frame.len())
}

fn verdict_of_cut(frame: &[u8], wire_len: usize) -> Result<&'static str, DropReason> {
    let mut bench = Bench::new::<CheckIpHeader>(Default::default()).unwrap();
    let seen = bench.run_cut(&[(frame, wire_len, 0)]);
    assert_eq!(seen[0].bytes, frame);
    seen[0].verdict
}

fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

#[test]
fn good_headers_leave_by_ip() {
    let extensions: &[(u8, &[u8])] = &[(0, &[1, 4, 0, 0, 0, 0]), (60, &[1, 4, 0, 0, 0, 0])];
    let v4s = [v4(), v4().options(&[1; 8]), v4().vlan(7), v4().tag(0x88a8, 9).vlan(8)];
    let v6s = [v6(), v6().vlan(7), v6().extensions(extensions)];
    let good = v4s.iter().chain(&v6s).map(Frame::build);
    let pieces = v4().payload(&[7; 100]).fragments(40);
    let pieces6 = v6().extensions(extensions).payload(&[7; 100]).fragments(40);
    for frame in good.chain(pieces).chain(pieces6) {
        assert_eq!(verdict(&frame), Ok("ip"), "{frame:02x?}");
    }
}

#[test]
fn what_is_not_ip_leaves_by_its_own_output() {
    let frames = [Frame::other(0x0806), Frame::other(0x88cc).vlan(7), Frame::other(40)];
    for frame in frames {
        assert_eq!(verdict(&frame.payload(&[0; 46]).build()), Ok("non_ip"));
    }
    assert_eq!(verdict(&[0; 9]), Ok("non_ip"));
}

#[test]
fn bad_headers_are_dropped_by_reason() {
    use DropReason::{BadChecksum, BadHeader, Truncated};
    assert_eq!(verdict(&with(v4().build(), 24, 1)), Err(BadChecksum));
    assert_eq!(verdict(&with(v4().build(), 14, 0x55)), Err(BadHeader));
    assert_eq!(verdict(&with(v4().build(), 14, 0x44)), Err(BadHeader));
    assert_eq!(verdict(&with(v6().build(), 14, 0x40)), Err(BadHeader));
    assert_eq!(verdict(&with(v6().build(), 18, 0xff)), Err(BadHeader));
    assert_eq!(verdict(&v4().build()[..20]), Err(Truncated));
    assert_eq!(verdict(&v6().vlan(7).build()[..40]), Err(Truncated));
    let hops: &[(u8, &[u8])] = &[(0, &[1, 4, 0, 0, 0, 0])];
    assert_eq!(verdict(&with(v6().extensions(hops).build(), 55, 200)), Err(Truncated));
}

#[test]
fn what_the_capture_cut_off_is_not_judged() {
    let whole = v4().payload(&[0; 500]).build();
    assert_eq!(verdict_of_cut(&whole[..60], whole.len()), Ok("ip"));
    assert_eq!(verdict(&whole[..60]), Err(DropReason::BadHeader));
}
