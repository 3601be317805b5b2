//! Counts packets by size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_nf::{
    ConfigError, Ctx, Descriptor, Effect, Env, LayerAccess, Merge, Nf, Packets, ReadOnly, Touch,
};

/// Counts packets in buckets of their length on the wire (from the Ethernet header on, without
/// frame check sequence).
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
    /// Bytes of all packets.
    pub bytes: u64,
}

impl Histogram {
    fn new(bounds: &[u32]) -> Self {
        Histogram { bounds: bounds.to_vec(), packets: vec![0; bounds.len() + 1], bytes: 0 }
    }
}

impl Merge for Histogram {
    fn merge(&mut self, other: Self) {
        if self.bounds != other.bounds {
            // Other buckets cannot be added: what has any counts stays.
            if self.packets.iter().all(|&n| n == 0) {
                *self = other;
            }
            return;
        }
        self.packets.iter_mut().zip(&other.packets).for_each(|(a, b)| *a += b);
        self.bytes += other.bytes;
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
        if counts.bounds != self.bounds {
            *counts = Histogram::new(&self.bounds);
        }
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
        assert_eq!(bench.report(), json!({"bounds": bounds, "packets": packets, "bytes": bytes}));
    }

    #[test]
    fn counts_of_an_earlier_life_are_added() {
        let mut first = Bench::new::<PacketSizeHistogram>(json!({"bounds": [10]})).unwrap();
        first.run(&[vec![0; 5], vec![0; 50]]);
        let mut second = Bench::new::<PacketSizeHistogram>(json!({"bounds": [10]})).unwrap();
        second.restore(&first.save()).unwrap();
        second.run(&[vec![0; 6]]);
        assert_eq!(second.report(), json!({"bounds": [10], "packets": [2, 1], "bytes": 61}));
    }

    #[test]
    fn bounds_that_do_not_ascend_are_refused() {
        for (bounds, why) in [(json!([]), "0 bounds"), (json!([5, 5]), "must ascend")] {
            let made = Bench::new::<PacketSizeHistogram>(json!({"bounds": bounds}));
            let error = made.err().unwrap().to_string();
            assert!(error.starts_with("/bounds: ") && error.contains(why), "{error}");
        }
    }
}
