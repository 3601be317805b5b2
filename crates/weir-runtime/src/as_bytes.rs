//! Bytes for serde as one piece: a `Vec<u8>` by itself is written and read byte by byte. In postcard both are the same bytes.

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};
use std::fmt;

/// For `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct Whole;
    impl Visitor<'_> for Whole {
        type Value = Vec<u8>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }
        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
    deserializer.deserialize_bytes(Whole)
}
