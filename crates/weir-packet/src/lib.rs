//! What a packet is to Weir: its bytes, the metadata beside them, header parsing and flow keys.

mod bytes;
pub mod checksum;
mod discovery;
pub mod flow;
pub mod headers;
mod packet;
mod reason;
pub mod wire;

pub use bytes::Bytes;
pub use discovery::{Stations, is_discovery};
pub use flow::{Direction, FieldsError, FlowFields, FlowHasher, FlowKey, FragmentTable};
pub use headers::{Begins, Depth, Fragment, HeaderFault, L3, Layers, check_ip, parse, parse_at};
pub use packet::{
    Access, BATCH, Packets, Pkt, ReadOnly, ReadWrite, TagBits, Verdict, layers_of, set_tag_of,
    tag_word_of,
};
pub use reason::{DropReason, MOST_ROUNDS, REASONS};
pub use weir_mem::Packet;
