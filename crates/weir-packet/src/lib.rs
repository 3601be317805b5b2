//! What a packet is to Weir: its bytes, the metadata beside them, header parsing and flow keys.

mod bytes;
mod packet;
mod reason;
pub mod checksum;
pub mod flow;
pub mod headers;
pub mod wire;

pub use bytes::Bytes;
pub use packet::{
    Access, BATCH, Packet, Packets, Pkt, ReadOnly, ReadWrite, TagSlot, Verdict, layers_of,
};
pub use reason::{DropReason, REASONS};
pub use flow::{FlowHasher, FlowKey, FragmentTable};
pub use headers::{Depth, Fragment, HeaderFault, L3, Layers, check_ip, parse};
