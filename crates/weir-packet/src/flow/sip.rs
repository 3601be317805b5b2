//! SipHash-1-3 of a few words, and of many keys side by side.
//!
//! The crate `siphasher` hashes bytes, one input at a time. Keys are words of known number, and come by batches: eight are
//! hashed at a time with the widest vectors that the processor has (chosen at run time by the crate `pulp`), which takes a
//! quarter of the time. The tests hold both against `siphasher`.

use super::{FlowHasher, FlowKey};
use pulp::{Arch, Simd, WithSimd};

/// Keys that are hashed at a time.
pub(super) const LANES: usize = 8;

/// SipHash's four words of state, each of so many inputs.
type State<const L: usize> = [[u64; L]; 4];

/// For each lane. Indexes that the compiler sees to be in bounds: of iterators that are zipped it makes no vectors here.
#[inline(always)]
fn round<const L: usize>([a, b, c, d]: &mut State<L>) {
    for i in 0..L {
        a[i] = a[i].wrapping_add(b[i]);
        c[i] = c[i].wrapping_add(d[i]);
        b[i] = b[i].rotate_left(13) ^ a[i];
        d[i] = d[i].rotate_left(16) ^ c[i];
        a[i] = a[i].rotate_left(32);
        c[i] = c[i].wrapping_add(b[i]);
        a[i] = a[i].wrapping_add(d[i]);
        b[i] = b[i].rotate_left(17) ^ c[i];
        d[i] = d[i].rotate_left(21) ^ a[i];
        c[i] = c[i].rotate_left(32);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "see `round`")]
fn xor<const L: usize>(into: &mut [u64; L], words: &[u64; L]) {
    for i in 0..L {
        into[i] ^= words[i];
    }
}

/// The hashes of `L` inputs of `N` words each; `words[n]` has word n of all.
#[inline(always)]
fn sip<const L: usize, const N: usize>((k0, k1): (u64, u64), words: &[[u64; L]; N]) -> [u64; L] {
    let [a, b, c, d] = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut state = [[a; L], [b; L], [c; L], [d; L]];
    for word in words {
        xor(&mut state[3], word);
        round(&mut state);
        xor(&mut state[0], word);
    }
    // Behind the words stands their length in bytes.
    let length = [(N as u64 * 8) << 56; L];
    xor(&mut state[3], &length);
    round(&mut state);
    xor(&mut state[0], &length);
    xor(&mut state[2], &[0xff; L]);
    round(&mut state);
    round(&mut state);
    round(&mut state);
    let [mut hash, b, c, d] = state;
    xor(&mut hash, &b);
    xor(&mut hash, &c);
    xor(&mut hash, &d);
    hash
}

/// The hash of so many words under a seed.
#[inline]
pub(super) fn one<const N: usize>(seed: (u64, u64), words: [u64; N]) -> u64 {
    let [hash] = sip(seed, &words.map(|word| [word]));
    hash
}

/// The lower halves of the hashes of many keys.
pub(super) fn many(seed: (u64, u64), keys: &[[FlowKey; LANES]], hashes: &mut [[u32; LANES]]) {
    Arch::new().dispatch(Many { seed, keys, hashes });
}

struct Many<'m> {
    seed: (u64, u64),
    keys: &'m [[FlowKey; LANES]],
    hashes: &'m mut [[u32; LANES]],
}

impl WithSimd for Many<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (keys, hashes) in self.keys.iter().zip(self.hashes) {
            let six = keys.iter().fold(0, |six, key| six + usize::from(key.small.v6()));
            if six == 0 {
                eight(self.seed, keys, FlowHasher::v4, hashes);
            } else if six == LANES {
                eight(self.seed, keys, FlowHasher::v6, hashes);
            } else {
                for (hash, key) in hashes.iter_mut().zip(keys) {
                    *hash = match key.small.v6() {
                        false => one(self.seed, FlowHasher::v4(key)) as u32,
                        true => one(self.seed, FlowHasher::v6(key)) as u32,
                    };
                }
            }
        }
    }
}

#[inline(always)]
fn eight<const N: usize>(
    seed: (u64, u64),
    keys: &[FlowKey; LANES],
    words_of: impl Fn(&FlowKey) -> [u64; N],
    hashes: &mut [u32; LANES],
) {
    let mut words = [[0; LANES]; N];
    for i in 0..LANES {
        let of_key = words_of(&keys[i]);
        for n in 0..N {
            words[n][i] = of_key[n];
        }
    }
    let all = sip::<LANES, N>(seed, &words);
    for i in 0..LANES {
        hashes[i] = all[i] as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::PortKind;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;
    use std::net::IpAddr;

    /// By the crate, of the words' bytes.
    fn reference(seed: u128, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        SipHasher13::new_with_keys(seed as u64, (seed >> 64) as u64).hash(&bytes)
    }

    fn key() -> impl Strategy<Value = FlowKey> {
        let four = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into()));
        let six = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into()));
        let ends = prop_oneof![3 => four, 1 => six];
        (ends, any::<(u16, u16, u8, u64)>()).prop_filter_map(
            "a key",
            |((a, b), (from, to, proto, zone)): ((IpAddr, IpAddr), _)| {
                let key = FlowKey::between((a, from), (b, to), proto, PortKind::Ports, zone);
                key.map(|(key, _)| key)
            },
        )
    }

    proptest! {
        #[test]
        fn a_hash_is_siphash_of_the_keys_words_alone_and_among_many(
            seed: u128, keys in proptest::collection::vec(key(), 0..70), room in 0_usize..80,
        ) {
            let hasher = FlowHasher::new(seed);
            for key in &keys {
                let hash = match key.version() {
                    4 => reference(seed, &FlowHasher::v4(key)),
                    _ => reference(seed, &FlowHasher::v6(key)),
                };
                prop_assert_eq!(hasher.hash(key), hash);
            }
            let mut hashes = vec![0; room];
            hasher.hash_all(&keys, &mut hashes);
            for (at, hash) in hashes.into_iter().enumerate() {
                prop_assert_eq!(hash, keys.get(at).map_or(0, |key| hasher.hash(key) as u32));
            }
        }
    }
}
