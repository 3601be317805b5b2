//! The keys of a batch's packets, found once for all µNFs of a segment that look flows up.

use super::index;
use weir_mem::{Arena, ArenaView, Packet};
use weir_packet::headers::plain_v4;
use weir_packet::{BATCH, Depth, Direction, FlowKey, Fragment, layers_of};

/// Under which key a packet's flow is looked up.
#[derive(Clone, Copy)]
pub(crate) struct Found<'k> {
    pub(crate) key: &'k FlowKey,
    pub(crate) direction: Direction,
    pub(crate) hash: u32,
}

/// Keys and hashes of a batch's packets. They hold until a µNF that may write packets has had them, which forgets them, or other packets
/// come: then whoever runs the µNFs [forgets](BatchKeys::forget) them.
///
/// To find all first is faster than each when it is asked for, as the hashes of several packets are worked out side by side; and
/// the µNFs of a segment that follow each other have the same packets as a rule, or some of them.
#[derive(Default)]
pub struct BatchKeys {
    /// Which packets: their buffers, offsets and lengths. The other columns have what is known of each, and may be longer.
    words: Vec<u64>,
    /// Their keys; anything for one that has none.
    keys: Vec<FlowKey>,
    /// The direction in it; `None` for one that has none, and for a fragment, whose key depends on what came before.
    ways: Vec<Option<Direction>>,
    hashes: Vec<u32>,
    /// How often a µNF has asked for the flow of a packet.
    pub(crate) asked: usize,
    pub(crate) made: MadeKeys,
}

/// Keys of a µNF's own making, one for each packet of a batch, [`FlowKey::NOTHING`] for one without.
#[derive(Default)]
pub(crate) struct MadeKeys {
    keys: Vec<FlowKey>,
    hashes: Vec<u32>,
}

impl MadeKeys {
    /// Hashes keys, which stand for packets in the order of the batch.
    #[inline]
    pub(crate) fn find(&mut self, keys: impl Iterator<Item = Option<FlowKey>>) {
        self.keys.clear();
        self.keys.extend(keys.map(|key| key.unwrap_or(FlowKey::NOTHING)).take(BATCH));
        self.hashes.resize(self.keys.len(), 0);
        index::hasher().hash_all(&self.keys, &mut self.hashes);
    }

    /// The hash of a key, if it is the one that was made for the packet at this place.
    #[inline]
    pub(crate) fn hash_of(&self, at: usize, key: &FlowKey) -> Option<u32> {
        if self.keys.get(at)? != key {
            return None;
        }
        self.hashes.get(at).copied()
    }

    pub(crate) fn hashes(&self) -> impl Iterator<Item = u32> {
        self.hashes.iter().copied()
    }
}

impl BatchKeys {
    /// Nothing is known any more.
    #[inline]
    pub fn forget(&mut self) {
        self.words.clear();
    }

    /// Finds the keys of a batch, unless all are known.
    pub(crate) fn find(&mut self, packets: &[Packet], arena: &Arena) {
        if self.narrow_to(packets) {
            return;
        }
        let view = arena.view();
        // Whoever asks for flows asks for the time first, which stands in lines that another core wrote: all are on their way at once.
        let times = packets.iter().filter_map(|p| Some(view.meta(p.entry())?.time_ns.get()));
        std::hint::black_box(times.fold(0, |all, time| all ^ time));
        let packets = packets.get(..BATCH).unwrap_or(packets);
        self.words.clear();
        self.words.extend(packets.iter().map(|packet| packet.entry().first_word()));
        if self.keys.len() < packets.len() {
            self.keys.resize(BATCH, FlowKey::NOTHING);
            self.ways.resize(BATCH, None);
            self.hashes.resize(BATCH, 0);
        }
        for ((packet, key), way) in packets.iter().zip(&mut self.keys).zip(&mut self.ways) {
            let bytes = view.bytes(packet.entry());
            let found = match plain_v4(&bytes) {
                Some(plain) => Some(FlowKey::of_plain(&plain)),
                None => key_of(view, packet),
            };
            (*key, *way) = match found {
                Some((key, direction)) => (key, Some(direction)),
                None => (FlowKey::NOTHING, None),
            };
        }
        let keys = self.keys.get(..packets.len()).unwrap_or_default();
        index::hasher().hash_all(keys, &mut self.hashes);
    }

    /// Lets nothing else be known than these packets; false, and what is known is of no use any more, when some are not, or come in
    /// another order.
    fn narrow_to(&mut self, packets: &[Packet]) -> bool {
        if self.words.len() < packets.len() {
            return false;
        }
        let mut at = 0;
        for (i, packet) in packets.iter().enumerate() {
            let word = packet.entry().first_word();
            // Those in between were dropped, or went elsewhere.
            let behind = self.words.get(at..).unwrap_or_default();
            let Some(further) = behind.iter().position(|known| *known == word) else {
                return false;
            };
            at += further;
            if i != at {
                self.words.swap(i, at);
                self.keys.swap(i, at);
                self.ways.swap(i, at);
                self.hashes.swap(i, at);
            }
            at += 1;
        }
        self.words.truncate(packets.len());
        true
    }

    /// The key of the packet at a place of the batch, if it is known.
    #[inline]
    pub(crate) fn of(&self, at: usize, word: u64) -> Option<Found<'_>> {
        if self.words.get(at) != Some(&word) {
            return None;
        }
        let direction = (*self.ways.get(at)?)?;
        Some(Found { key: self.keys.get(at)?, direction, hash: *self.hashes.get(at)? })
    }

    /// All hashes that are known.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u32> {
        let known = self.words.iter().zip(&self.ways).zip(&self.hashes);
        known.filter_map(|((_, way), hash)| way.map(|_| *hash))
    }
}

/// The key of a packet that is not plain.
#[inline(never)]
fn key_of(view: ArenaView<'_>, packet: &Packet) -> Option<(FlowKey, Direction)> {
    let layers = layers_of(view, packet.entry(), Depth::L4);
    match layers.fragment() {
        Fragment::Whole => FlowKey::from_packet(&view.bytes(packet.entry()), &layers),
        Fragment::First | Fragment::Later => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use weir_mem::arena::HEADROOM;
    use weir_mem::{ArenaShape, Entry, Seq};
    use weir_packet::parse;
    use weir_packet::wire::Frame;

    fn arena() -> Arena {
        Arena::private(ArenaShape::new(16, 256)).unwrap()
    }

    /// Puts a frame into a buffer.
    fn put(arena: &Arena, buffer: u32, frame: &[u8]) -> Packet {
        let mut entry = Entry::packet(buffer, HEADROOM, frame.len() as u16, Seq::new(0), 0);
        arena.bytes_mut(&mut entry).unwrap().write(0, frame);
        Packet::admit(entry, arena.view()).unwrap()
    }

    fn udp(n: u8) -> Vec<u8> {
        Frame::ipv4([10, 0, 0, n], [192, 0, 2, 1]).udp(7, 53).build()
    }

    fn key(frame: &[u8]) -> Option<(FlowKey, Direction)> {
        FlowKey::from_packet(frame, &parse(frame, Depth::L4))
    }

    /// What is known of each, by its place.
    fn known(keys: &BatchKeys, packets: &[Packet]) -> Vec<Option<(FlowKey, Direction)>> {
        let of = |(at, packet): (usize, &Packet)| keys.of(at, packet.entry().first_word());
        packets.iter().enumerate().map(|p| of(p).map(|f| (*f.key, f.direction))).collect()
    }

    #[test]
    fn who_comes_later_finds_the_keys_of_the_packets_that_are_left() {
        let arena = arena();
        let mut packets: Vec<_> = (0..8).map(|n| put(&arena, n, &udp(n as u8))).collect();
        let mut keys = BatchKeys::default();
        keys.find(&packets, &arena);
        // They stay what they were found to be, as long as nobody forgets: what follows is looked up, not found anew.
        for n in 0..8 {
            let _ = put(&arena, n, &udp(100));
        }
        for left in [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![1, 2, 4, 7], vec![2, 7], vec![7]] {
            packets.retain(|packet| left.contains(&packet.entry().index()));
            keys.find(&packets, &arena);
            let theirs: Vec<_> = left.iter().map(|n| key(&udp(*n as u8))).collect();
            assert_eq!(known(&keys, &packets), theirs);
        }
        // One that was not among them, or was written.
        keys.forget();
        assert_eq!(known(&keys, &packets), [None]);
        keys.find(&packets, &arena);
        assert_eq!(known(&keys, &packets), [key(&udp(100))]);
    }

    #[test]
    fn packets_in_another_order_others_and_cut_ones_are_found_anew() {
        let arena = arena();
        let mut packets: Vec<_> = (0..4).map(|n| put(&arena, n, &udp(n as u8))).collect();
        let mut keys = BatchKeys::default();
        keys.find(&packets, &arena);
        packets.reverse();
        keys.find(&packets, &arena);
        let theirs: Vec<_> = (0..4).rev().map(|n| key(&udp(n))).collect();
        assert_eq!(known(&keys, &packets), theirs);
        packets.push(put(&arena, 9, &udp(9)));
        assert_eq!(known(&keys, &packets)[4], None);
        keys.find(&packets, &arena);
        assert_eq!(known(&keys, &packets)[4], key(&udp(9)));
        // At another place of its buffer it is another.
        let entry = packets[0].entry().with_span(HEADROOM + 14, 28);
        packets[0] = Packet::admit(entry, arena.view()).unwrap();
        assert_eq!(known(&keys, &packets)[0], None);
    }

    #[test]
    fn of_fragments_and_what_is_no_ip_nothing_is_known() {
        let arena = arena();
        let whole = udp(1);
        let mut first = whole.clone();
        // More fragments.
        first[20] |= 0x20;
        let packets = [put(&arena, 0, &whole), put(&arena, 1, &first), put(&arena, 2, &[0; 64])];
        let mut keys = BatchKeys::default();
        keys.find(&packets, &arena);
        assert_eq!(known(&keys, &packets), [key(&whole), None, None]);
    }
}
