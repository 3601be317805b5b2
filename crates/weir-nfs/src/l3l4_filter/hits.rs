//! What was counted for each rule, by the rule's text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use weir_nf::Merge;

/// The texts of the rules, as the configuration has them.
#[derive(Debug, Clone)]
pub(super) struct Texts {
    texts: Arc<[String]>,
    /// Tells this list from others; never 0.
    id: u64,
}

impl Texts {
    pub(super) fn new(rules: &[Value]) -> Self {
        let texts: Arc<[String]> = rules.iter().map(Value::to_string).collect();
        let mut hasher = DefaultHasher::new();
        texts.hash(&mut hasher);
        Texts { texts, id: hasher.finish() | 1 }
    }
}

/// Rules and how many packets each decided. The counts stand by themselves, since packets need only them.
#[derive(Debug)]
struct Counted {
    texts: Arc<[String]>,
    counts: Vec<u64>,
}

impl Default for Counted {
    fn default() -> Self {
        Counted { texts: Arc::new([]), counts: Vec::new() }
    }
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs: Vec<_> = self.texts.iter().zip(&self.counts).collect();
        pairs.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (texts, counts): (Vec<String>, _) =
            Vec::<(String, u64)>::deserialize(deserializer)?.into_iter().unzip();
        Ok(Counted { texts: texts.into(), counts })
    }
}

/// Packets by deciding rule.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hits {
    /// By rule, in the order of the configuration.
    rules: Counted,
    /// Packets that no rule matched.
    default: u64,
    /// Packets that rules decided which the configuration has no longer.
    gone: u64,
    /// Which list `rules` is in line with; 0: none.
    #[serde(skip)]
    aligned: u64,
}

impl Hits {
    /// Brings the list in line with the configuration, when that is another: a rule keeps its count wherever it
    /// stands, and what rules decided that are gone counts as that.
    pub(super) fn align(&mut self, to: &Texts) {
        if self.aligned == to.id {
            return;
        }
        self.aligned = to.id;
        let old = std::mem::take(&mut self.rules);
        let mut by_text: HashMap<&str, u64> = HashMap::new();
        for (text, count) in old.texts.iter().zip(&old.counts) {
            *by_text.entry(text).or_default() += count;
        }
        // Of two equal rules the first decides.
        let kept = to.texts.iter().map(|text| by_text.remove(text.as_str()).unwrap_or(0));
        self.rules = Counted { counts: kept.collect(), texts: Arc::clone(&to.texts) };
        self.gone += by_text.values().sum::<u64>();
    }

    /// Counts a packet that `rule` decided; what is none of the rules is the default.
    #[inline]
    pub(super) fn count(&mut self, rule: usize) {
        *self.rules.counts.get_mut(rule).unwrap_or(&mut self.default) += 1;
    }
}

impl Merge for Hits {
    /// The first counted by place.
    const VERSION: u32 = 2;

    /// The first did not say which rules it counted.
    fn from_version(version: u32, bytes: &[u8]) -> Option<Self> {
        let (rules, default): (Vec<u64>, u64) =
            weir_nf::read_state(bytes).ok().filter(|_| version == 1)?;
        let gone = rules.iter().fold(0_u64, |sum, more| sum.saturating_add(*more));
        Some(Hits { default, gone, ..Hits::default() })
    }

    fn merge(&mut self, other: Self) {
        self.default += other.default;
        self.gone += other.gone;
        // Most often the lists are equal, or one is empty.
        if self.rules.texts == other.rules.texts {
            self.rules.counts.iter_mut().zip(other.rules.counts).for_each(|(sum, n)| *sum += n);
            return;
        }
        self.aligned = 0;
        let mut theirs: HashMap<&str, u64> = HashMap::new();
        for (text, count) in other.rules.texts.iter().zip(other.rules.counts) {
            *theirs.entry(text).or_default() += count;
        }
        for (text, count) in self.rules.texts.iter().zip(&mut self.rules.counts) {
            *count += theirs.remove(text.as_str()).unwrap_or(0);
        }
        let mut texts = self.rules.texts.to_vec();
        for text in other.rules.texts.iter() {
            if let Some(count) = theirs.remove(text.as_str()) {
                texts.push(text.clone());
                self.rules.counts.push(count);
            }
        }
        self.rules.texts = texts.into();
    }
}
