//! What CountUrl remembers.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_nf::Merge;

/// Requests by URL.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Urls {
    /// Requests by URL, the most frequent first when serialised.
    #[serde(with = "by_count")]
    pub urls: BTreeMap<String, u64>,
    /// Requests for URLs that found no place in the table.
    #[serde(rename = "(other)")]
    pub other: u64,
    /// Requests whose URL is not whole in the segment.
    pub unjudged: u64,
    /// How many URLs are told apart at most.
    pub max: usize,
}

impl Urls {
    /// Counts requests for `url`; of a new one under `(other)` when the table is full.
    pub(super) fn add(&mut self, url: &str, requests: u64) {
        if let Some(count) = self.urls.get_mut(url) {
            *count += requests;
        } else if self.urls.len() < self.max {
            self.urls.insert(url.to_owned(), requests);
        } else {
            self.other += requests;
        }
    }
}

impl Merge for Urls {
    fn merge(&mut self, other: Self) {
        self.max = self.max.max(other.max);
        other.urls.iter().for_each(|(url, requests)| self.add(url, *requests));
        self.other += other.other;
        self.unjudged += other.unjudged;
    }
}

/// The table as a list of `[url, requests]`, the most frequent first.
mod by_count {
    use super::BTreeMap;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        urls: &BTreeMap<String, u64>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list: Vec<_> = urls.iter().collect();
        list.sort_by_key(|(_, requests)| std::cmp::Reverse(**requests));
        to.collect_seq(list)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<BTreeMap<String, u64>, D::Error> {
        Ok(Vec::<(String, u64)>::deserialize(from)?.into_iter().collect())
    }
}
