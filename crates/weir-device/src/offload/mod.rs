//! What a network card would have done: finishing checksums, cutting super-packets into segments,
//! putting VLAN tags back.
//!
//! A host's stack leaves this work to its interface. Packets that are taken from an interface
//! before the work was done come with a [`VnetHeader`] that says what is missing. µNFs are to see
//! packets as a wire carries them, so it is done here, in software, on the way in. The packet in question
//! may be in a tunnel: then each header around it is made to fit, too.
//!
//! Everything here is pure: bytes in, bytes out. Nothing in a header is believed: it is checked
//! against the frame, and what cannot be right is an [`OffloadError`].

mod checksum;
mod nested;
mod segment;
mod vlan;
mod vnet;

pub use checksum::{Finished, finish_checksum};
pub use segment::Gso;
pub use vlan::VlanTag;
pub(crate) use vlan::write;
pub use vnet::{GsoKind, VnetHeader};

/// Why a frame and what its interface says of it do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The checksum's place is not in the frame.
    #[error("the unfinished checksum is not inside the frame")]
    ChecksumPlace,
    /// A kind of segmentation that is not known (or no longer in use).
    #[error("segmentation of kind {0}")]
    Kind(u8),
    /// Segments of no bytes.
    #[error("segments of no bytes")]
    NoSize,
    /// The headers are not those of the kind of segmentation, or not whole.
    #[error("not a whole packet of the protocol that is to be segmented")]
    Headers,
    /// A fragment cannot be cut into segments.
    #[error("a fragment that is to be segmented")]
    Fragment,
    /// What is to be worked on is in a tunnel of a kind that is not known, or that does not fit it.
    #[error("no known tunnel leads to the packet that is to be worked on")]
    Tunnel,
}
