//! Tags: named values that a µNF attaches to packets and that policies match.
//!
//! A packet carries eight 64-bit words for tags and no more. The planner knows all tests that a policy
//! makes, so it gives places only to what is tested: a flag one bit, a number a word, a text one bit for
//! each pattern, which are tried when the text is set. No text travels with a packet.

use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use weir_packet::{Access, Pkt, TagBits};

/// Where a tag's value goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagPlace {
    /// A flag: one bit of a slot.
    Flag {
        /// The slot.
        slot: u8,
        /// The bit, from the lowest.
        bit: u8,
    },
    /// A number: a whole slot. It holds the number plus one, and 0 while there is none.
    Number {
        /// The slot.
        slot: u8,
    },
    /// A text: for each pattern, one bit of a slot.
    Text {
        /// The slot.
        slot: u8,
        /// The first pattern's bit, from the lowest; the others follow.
        bit: u8,
        /// Regular expressions (the syntax of the crate `regex`, over bytes).
        patterns: Vec<String>,
    },
}

/// Tags of a µNF that somebody asks for. One may have several places: for those who ask for what this
/// instance says, and for those who ask for what any of its type says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagSpec {
    /// The tag's name in the descriptor.
    pub name: String,
    /// Where its value goes.
    pub place: TagPlace,
}

/// Why tags cannot be set as told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// A pattern that no text can be tried with.
    #[error("tag `{name}`: {source}")]
    Pattern {
        /// The tag.
        name: String,
        /// Why.
        source: regex::Error,
    },
    /// A place outside of the slots.
    #[error("tag `{0}` has a place that there is not")]
    Place(String),
}

/// A flag that is asked for.
#[derive(Debug, Clone)]
pub struct FlagTag(Box<[TagBits]>);

impl FlagTag {
    /// Says of `packet` that it is so, or not. Until then it is not.
    #[inline]
    pub fn set<A: Access>(&self, packet: &Pkt<'_, A>, value: bool) {
        for bits in &self.0 {
            packet.set_tag(*bits, if value { u64::MAX } else { 0 });
        }
    }
}

/// A number that is asked for.
#[derive(Debug, Clone)]
pub struct NumberTag(Box<[TagBits]>);

impl NumberTag {
    /// Gives `packet` the number; 2^64 - 2 is the largest, and larger ones become that. Until then it
    /// has none, and every comparison with it is false.
    #[inline]
    pub fn set<A: Access>(&self, packet: &Pkt<'_, A>, value: u64) {
        for bits in &self.0 {
            packet.set_tag(*bits, value.saturating_add(1));
        }
    }
}

/// A text that is asked for.
#[derive(Debug, Clone)]
pub struct TextTag(Box<[Patterns]>);

/// Patterns with a bit each, from `bit` on.
#[derive(Debug, Clone)]
struct Patterns {
    bits: TagBits,
    bit: u8,
    list: Vec<Regex>,
}

impl TextTag {
    /// Gives `packet` the text. Until then it has none, and no pattern is found in it. Takes time linear
    /// in the text for each pattern that policies ask for.
    #[inline]
    pub fn set<A: Access>(&self, packet: &Pkt<'_, A>, text: &[u8]) {
        for Patterns { bits, bit, list } in &self.0 {
            let found = list.iter().zip(u32::from(*bit)..).fold(0, |found, (pattern, bit)| {
                found | u64::from(pattern.is_match(text)).wrapping_shl(bit)
            });
            packet.set_tag(*bits, found);
        }
    }
}

fn bits(name: &str, slot: u8, mask: Option<u64>) -> Result<TagBits, TagError> {
    let mask = mask.filter(|_| usize::from(slot) < weir_mem::meta::TAG_SLOTS);
    mask.map(|mask| TagBits { slot, mask }).ok_or_else(|| TagError::Place(name.to_owned()))
}

/// `n` ones from `bit` on; `None` when a slot has not so many.
fn ones(bit: u8, n: usize) -> Option<u64> {
    let n = u32::try_from(n).ok().filter(|n| u32::from(bit).saturating_add(*n) <= u64::BITS)?;
    let ones = u64::MAX.checked_shr(u64::BITS.saturating_sub(n)).unwrap_or(0);
    Some(ones.wrapping_shl(bit.into()))
}

/// The tags that one µNF is to set, made ready.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ready {
    flags: Vec<(String, TagBits)>,
    numbers: Vec<(String, TagBits)>,
    texts: Vec<(String, Patterns)>,
}

impl Ready {
    pub(crate) fn new(specs: &[TagSpec]) -> Result<Self, TagError> {
        let mut ready = Ready::default();
        for TagSpec { name, place } in specs {
            match place {
                TagPlace::Flag { slot, bit } => {
                    ready.flags.push((name.clone(), bits(name, *slot, ones(*bit, 1))?));
                }
                TagPlace::Number { slot } => {
                    ready.numbers.push((name.clone(), bits(name, *slot, Some(u64::MAX))?));
                }
                TagPlace::Text { slot, bit, patterns } => {
                    let bits = bits(name, *slot, ones(*bit, patterns.len()))?;
                    let pattern = |text: &String| {
                        let name = || name.clone();
                        Regex::new(text)
                            .map_err(|source| TagError::Pattern { name: name(), source })
                    };
                    let list = patterns.iter().map(pattern).collect::<Result<_, _>>()?;
                    ready.texts.push((name.clone(), Patterns { bits, bit: *bit, list }));
                }
            }
        }
        Ok(ready)
    }

    pub(crate) fn flag(&self, name: &str) -> Option<FlagTag> {
        all(&self.flags, name).map(FlagTag)
    }

    pub(crate) fn number(&self, name: &str) -> Option<NumberTag> {
        all(&self.numbers, name).map(NumberTag)
    }

    pub(crate) fn text(&self, name: &str) -> Option<TextTag> {
        all(&self.texts, name).map(TextTag)
    }
}

fn all<T: Clone>(list: &[(String, T)], name: &str) -> Option<Box<[T]>> {
    let found: Box<[T]> =
        list.iter().filter(|(n, _)| n == name).map(|(_, place)| place.clone()).collect();
    (!found.is_empty()).then_some(found)
}
