//! What several fuzz targets need.

mod types;

use serde::{Deserialize, Serialize};
pub use types::Types;

/// The state of a flow: something of each length.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    /// Bytes that must be UTF-8.
    pub text: String,
    /// As many as it says.
    pub list: Vec<u32>,
    /// One of two forms.
    pub maybe: Option<u64>,
}

impl weir_nf::FlowState for Notes {}

/// Parts of an input that several readers share: a text, one NUL, then bytes. Without a NUL all is
/// text. `None` when the text is not UTF-8.
pub fn text_and_bytes(data: &[u8]) -> Option<(&str, &[u8])> {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (text, rest) = data.split_at(end);
    Some((std::str::from_utf8(text).ok()?, rest.get(1..).unwrap_or_default()))
}

/// Panics if `reached` in a build with the feature `planted`: each target calls it with something
/// that its seeds are not, but that a few mutations of them are.
pub fn planted(reached: bool) {
    assert!(!(cfg!(feature = "planted") && reached), "the planted panic");
}
