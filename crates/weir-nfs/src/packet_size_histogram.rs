//! Counts packets by size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, LayerAccess, Merge, Nf, Packets, ReadOnly, Touch,
};

/// Counts packets in buckets of their length on the wire (from the Ethernet header on, without
/// frame check sequence).
///
/// When a changed graph has other bounds, what was counted under the earlier ones cannot be divided anew: it is kept as
/// `earlier`, packets and bytes in one.
///
/// *Output:* `out`. *Config:* `bounds`, the largest length of each bucket but the last, ascending; those of
/// RFC 2819's etherStats unless told otherwise. *Source:* RFC 2819 §4 (whose lengths include the four
/// bytes of the frame check sequence, which devices do not hand over).
#[derive(Debug)]
pub struct PacketSizeHistogram {
    bounds: Vec<u32>,
}

/// Most buckets but the last.
pub const MOST_BOUNDS: usize = 64;

/// The bounds unless told otherwise.
const BOUNDS: [u32; 6] = [64, 127, 255, 511, 1023, 1518];

/// Configuration of [`PacketSizeHistogram`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Largest length of each bucket in bytes, ascending; longer packets have one more bucket.
    #[schemars(length(min = 1, max = MOST_BOUNDS), extend("default" = BOUNDS))]
    pub bounds: Option<Vec<u32>>,
}

/// Packets by size.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Largest length of each bucket but the last.
    pub bounds: Vec<u32>,
    /// Packets in each bucket; the last has those longer than all bounds.
    pub packets: Vec<u64>,
    /// Bytes of these packets.
    pub bytes: u64,
    /// What was counted under other bounds.
    pub earlier: Totals,
}

/// Packets and their bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Histogram {
    /// Goes on with `bounds`.
    fn align(&mut self, bounds: &[u32]) {
        if self.bounds != bounds {
            let mut earlier = std::mem::take(self);
            earlier.close();
            self.bounds = bounds.to_vec();
            self.packets = vec![0; bounds.len() + 1];
            self.earlier = earlier.earlier;
        }
    }

    /// What is in buckets counts as earlier.
    fn close(&mut self) {
        self.earlier.packets += self.packets.iter().sum::<u64>();
        self.earlier.bytes += self.bytes;
        self.packets.fill(0);
        self.bytes = 0;
    }
}

impl Merge for Histogram {
    const VERSION: u32 = 2;

    /// The first knew of nothing earlier.
    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        let (bounds, packets, bytes): (Vec<u32>, Vec<u64>, u64) =
            weir_nf::read_state(bytes).ok().filter(|_| version == 1)?;
        Some(Histogram { bounds, packets, bytes, earlier: Totals::default() })
    }

    fn merge(&mut self, mut other: Self) {
        if self.bounds != other.bounds {
            // Buckets of other bounds cannot be added. Who has counted nothing yet has no say in them.
            if self.packets.iter().all(|&n| n == 0) {
                std::mem::swap(self, &mut other);
            }
            other.close();
        }
        self.packets.iter_mut().zip(&other.packets).for_each(|(a, b)| *a += b);
        self.bytes += other.bytes;
        self.earlier.packets += other.earlier.packets;
        self.earlier.bytes += other.earlier.bytes;
    }
}

impl Nf for PacketSizeHistogram {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "PacketSizeHistogram",
        summary: "Counts packets by size",
        layers: LayerAccess { l2: Touch::Read, ..LayerAccess::NONE },
        effect: Effect::Stateful,
        affinity: weir_nf::Affinity::None,
        cost_cycles: 15,
        ..Descriptor::BASE
    };
    type Access = ReadOnly;
    type Config = Config;
    type Flow = ();
    type Shared = Histogram;

    fn build(config: Config, _: &Env) -> Result<Self, ConfigError> {
        let bounds = config.bounds.unwrap_or_else(|| BOUNDS.to_vec());
        let fail = |why: String| Err(ConfigError { at: "/bounds".to_owned(), why });
        if bounds.is_empty() || bounds.len() > MOST_BOUNDS {
            return fail(format!("{} bounds; give 1 to {MOST_BOUNDS}", bounds.len()));
        }
        if !bounds.is_sorted_by(|a, b| a < b) {
            return fail("they must ascend, each larger than the one before".to_owned());
        }
        Ok(PacketSizeHistogram { bounds })
    }

    fn process(&self, packets: &mut Packets<'_, ReadOnly>, ctx: &mut Ctx<'_, Self>) {
        let counts = ctx.shared();
        counts.align(&self.bounds);
        for packet in packets.iter_mut() {
            let length = packet.wire_len();
            let bucket = self.bounds.partition_point(|&bound| (bound as usize) < length);
            if let Some(count) = counts.packets.get_mut(bucket) {
                *count += 1;
            }
            counts.bytes += length as u64;
        }
    }
}

weir_nf::register!(PacketSizeHistogram);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_nf::testing::Bench;

    #[test]
    fn lengths_on_the_wire_count_in_the_buckets_of_rfc_2819() {
        let mut bench = Bench::new::<PacketSizeHistogram>(json!(null)).unwrap();
        let lengths = [1, 64, 65, 127, 128, 1518, 1519, 60_000];
        let cut: Vec<_> = lengths.iter().map(|&n| (&[0u8; 1][..], n, 0)).collect();
        assert!(bench.run_cut(&cut).iter().all(|s| s.output() == "out"));
        let bytes: usize = lengths.iter().sum();
        let packets = [2, 2, 1, 0, 0, 1, 2];
        let bounds = [64, 127, 255, 511, 1023, 1518];
        let earlier = json!({"packets": 0, "bytes": 0});
        let expected =
            json!({"bounds": bounds, "packets": packets, "bytes": bytes, "earlier": earlier});
        assert_eq!(bench.report(), expected);
    }

    #[test]
    fn counts_of_an_earlier_life_are_added() {
        let mut first = Bench::new::<PacketSizeHistogram>(json!({"bounds": [10]})).unwrap();
        first.run(&[vec![0; 5], vec![0; 50]]);
        let mut second = Bench::new::<PacketSizeHistogram>(json!({"bounds": [10]})).unwrap();
        second.restore(&first.save()).unwrap();
        second.run(&[vec![0; 6]]);
        let earlier = json!({"packets": 0, "bytes": 0});
        let expected = json!({"bounds": [10], "packets": [2, 1], "bytes": 61, "earlier": earlier});
        assert_eq!(second.report(), expected);
    }

    #[test]
    fn counts_under_other_bounds_are_kept_as_totals() {
        let mut first = Bench::new::<PacketSizeHistogram>(json!({"bounds": [10]})).unwrap();
        first.run(&[vec![0; 5], vec![0; 50]]);
        let mut second = Bench::new::<PacketSizeHistogram>(json!({"bounds": [20, 30]})).unwrap();
        second.restore(&first.save()).unwrap();
        second.run(&[vec![0; 25]]);
        let expected = json!({"bounds": [20, 30], "packets": [0, 1, 0], "bytes": 25,
            "earlier": {"packets": 2, "bytes": 55}});
        assert_eq!(second.report(), expected);
        // And of those that were merged, whichever comes first.
        let mut third = Bench::new::<PacketSizeHistogram>(json!({"bounds": [20, 30]})).unwrap();
        third.restore(&second.save()).unwrap();
        third.run(&[vec![0; 15]]);
        let expected = json!({"bounds": [20, 30], "packets": [1, 1, 0], "bytes": 40,
            "earlier": {"packets": 2, "bytes": 55}});
        assert_eq!(third.report(), expected);
    }

    #[test]
    fn nothing_is_lost_when_counts_of_different_bounds_are_merged() {
        let counted = |bounds: Vec<u32>, packets: Vec<u64>, bytes| Histogram {
            bounds,
            packets,
            bytes,
            earlier: Totals { packets: 1, bytes: 7 },
        };
        let all = |h: &Histogram| {
            (h.packets.iter().sum::<u64>() + h.earlier.packets, h.bytes + h.earlier.bytes)
        };
        let a = || counted(vec![10], vec![2, 3], 100);
        let b = || counted(vec![10, 20], vec![0, 4, 0], 60);
        let empty = || counted(vec![99], vec![0, 0], 0);
        for (mut one, other) in [(a(), b()), (b(), a()), (a(), a()), (empty(), a()), (a(), empty())]
        {
            let (before, more) = (all(&one), all(&other));
            one.merge(other);
            assert_eq!(all(&one), (before.0 + more.0, before.1 + more.1), "{one:?}");
        }
    }

    #[test]
    fn bounds_that_do_not_ascend_are_refused() {
        for (bounds, why) in [(json!([]), "0 bounds"), (json!([5, 5]), "must ascend")] {
            let made = Bench::new::<PacketSizeHistogram>(json!({"bounds": bounds}));
            let error = made.err().unwrap().to_string();
            assert!(error.starts_with("/bounds: ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_the_first_version_had_counted_is_read() {
        // Bounds [64], packets [2, 3], 300 bytes.
        let old = [1, 64, 2, 2, 3, 0xac, 2];
        let read = Histogram::from_version(1, &old).unwrap();
        assert_eq!((read.bounds, read.packets, read.bytes), (vec![64], vec![2, 3], 300));
        assert_eq!(read.earlier.packets, 0);
        assert!(Histogram::from_version(3, &old).is_none());
    }
}
