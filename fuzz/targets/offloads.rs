//! Any `virtio_net_hdr`, and any bytes as the frame that it is of.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use weir_device::offload::{Gso, VnetHeader, finish_checksum};
use weir_fuzz::planted;
use weir_packet::{Depth, parse};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Some((header, frame)) = data.split_first_chunk() else { return Corpus::Reject };
    let header = VnetHeader::parse(header);
    if let Ok(finished) = finish_checksum(frame, &header) {
        assert!(finished.at + finished.bytes().len() <= frame.len());
    }
    if let Ok(Some(gso)) = Gso::new(frame, &header) {
        cut(frame, &header, &gso);
        planted(header.gso_size == 7 && gso.segments() > 1);
    }
    Corpus::Keep
});

/// Pieces are whole packets, each is in one piece itself, and together they have all of the payload.
fn cut(frame: &[u8], header: &VnetHeader, gso: &Gso) {
    let mut head = Vec::new();
    let mut next = None;
    for index in 0..gso.segments() {
        let payload = gso.cut(frame, index, &mut head).expect("it was checked");
        assert_eq!(*next.get_or_insert(payload.start), payload.start);
        next = Some(payload.end);
        let piece = [&head[..], &frame[payload]].concat();
        assert_eq!(piece.len(), gso.len(index));
        let layers = parse(piece.as_slice(), Depth::L4);
        assert!(layers.fault.is_none() && !layers.is_truncated());
        assert_eq!(usize::from(layers.end), piece.len());
        let again = Gso::new(&piece, header);
        assert!(again.is_ok_and(|again| again.is_some_and(|again| again.segments() == 1)));
    }
    assert_eq!(next, Some(usize::from(parse(frame, Depth::L4).end)));
}
