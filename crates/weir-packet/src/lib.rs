//! What a packet is to Weir: its bytes, the metadata beside them, header parsing and flow keys.

mod bytes;

pub use bytes::Bytes;
