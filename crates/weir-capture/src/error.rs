//! What can go wrong, one enum per operation, and the warning about a file that is not whole.

use std::{fmt, io};

use crate::{LinkType, MAX_BLOCK, MAX_CAPTURED, MAX_INTERFACES};

/// Why a capture cannot be opened, or cannot be resumed at a position.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// No bytes at all.
    #[error("the file is empty: not even a capture header was written")]
    Empty,
    /// The file ends inside its header.
    #[error("the file ends inside its capture header: record it again")]
    HeaderCut,
    /// Not pcap or pcapng, and nothing known either.
    #[error("not a capture file: it begins with {0:#010x}, which is neither pcap nor pcapng")]
    NotACapture(u32),
    /// A known format that is not read.
    #[error("this is {name}, which is not read: {cure}")]
    Unsupported {
        /// The format.
        name: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A version of the format that is not read (only pcap 2.4, pcapng 1.0 and 1.2 are).
    #[error("version {major}.{minor} of the format is not read: convert it with 'editcap IN OUT'")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The first block of a pcapng file is damaged.
    #[error("the pcapng section header is damaged: {0}")]
    Header(Fault),
    /// The position does not belong to this file.
    #[error(
        "the position to go on from (section {section}, next {next}) does not fit this file: is it the same file?"
    )]
    BadPosition {
        /// Offset of the section header.
        section: u64,
        /// Offset of the record to go on with.
        next: u64,
    },
}

/// The system failed while a capture was read. It is reported once; after it the reader has ended.
#[derive(Debug, thiserror::Error)]
#[error("reading failed at or after byte {offset}: {source}")]
pub struct ReadError {
    /// Where the record or block begins that was being read.
    pub offset: u64,
    /// The system's error.
    pub source: io::Error,
}

/// Why a capture cannot be summarised.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read to its end.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a capture cannot be created, reopened, or added to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No space left (ENOSPC, EDQUOT). Committed records are safe; `commit` may be tried again when there is space.
    #[error(
        "the disk is full: everything up to byte {committed} is written; free some space or write elsewhere"
    )]
    DiskFull {
        /// Length of the whole, valid part of the file.
        committed: u64,
    },
    /// No file may grow so long (EFBIG): the process's limit, or the file system's. Committed records are safe.
    #[error(
        "the file may not become longer: everything up to byte {committed} is written; raise the limit on file \
         size (ulimit -f; as root, LimitFSIZE= of the service)"
    )]
    FileTooLarge {
        /// Length of the whole, valid part of the file.
        committed: u64,
    },
    /// Somebody else writes it.
    #[error("another program writes this file: end it, or write elsewhere")]
    InUse,
    /// Another error of the system.
    #[error("writing the capture failed: {0}")]
    Io(#[from] io::Error),
    /// A pcap file has one link type.
    #[error(
        "a packet of link type {found} does not fit a pcap file of {expected}: write .pcapng, it can mix them"
    )]
    LinkType {
        /// The file's link type.
        expected: LinkType,
        /// The packet's.
        found: LinkType,
    },
    /// pcapng has 16 bits for the link type.
    #[error("link type {0} does not fit pcapng")]
    LinkTypeTooLarge(LinkType),
    /// Longer than [`MAX_CAPTURED`].
    #[error("a packet of {0} bytes is longer than a capture may hold ({MAX_CAPTURED})")]
    TooLong(usize),
    /// A comment is limited by its 16-bit length.
    #[error("a comment of {0} bytes is longer than pcapng can hold (65535)")]
    CommentTooLong(usize),
    /// An interface's name is limited by its 16-bit length.
    #[error("an interface name of {0} bytes is longer than pcapng can hold (65535)")]
    NameTooLong(usize),
    /// No interface of this number was described; a pcap file has none but its own.
    #[error("the capture has no interface {0} that was described before")]
    NoInterface(u32),
    /// More distinct pairs of link type and time unit than [`MAX_INTERFACES`].
    #[error("more than {MAX_INTERFACES} interfaces in one file")]
    TooManyInterfaces,
    /// The file to reopen cannot be read up to the committed position.
    #[error("cannot go on with the capture: {0}")]
    Reopen(#[source] OpenError),
    /// The file to reopen is a big-endian one, so it was not written by [`crate::Writer`].
    #[error("cannot go on with the capture: it was not written by this program")]
    Foreign,
}

/// Why a capture ended before its last byte. `Display` says where, what, what is still good, and the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Offset of the record or block that is not whole, in bytes from the beginning of the file.
    pub offset: u64,
    /// Number of whole records before it; all of them were delivered.
    pub records: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, records, fault } = self;
        write!(
            f,
            "the capture is not whole: at byte {offset}, {fault}; the {records} packets before it were read. {}",
            fault.cure()
        )
    }
}

/// What is wrong with a record or block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends inside it.
    #[error("the file ends inside a record")]
    Cut,
    /// A captured length beyond [`MAX_CAPTURED`].
    #[error("a record claims {0} captured bytes, more than any capture has ({MAX_CAPTURED})")]
    CapturedTooLong(u32),
    /// A block length below 12 or not a multiple of 4.
    #[error("a block has the impossible length {0}")]
    BlockLength(u32),
    /// A block length beyond [`MAX_BLOCK`].
    #[error("a block claims {0} bytes, more than the limit of {MAX_BLOCK}")]
    BlockTooLong(u32),
    /// The length before and after a block differ.
    #[error("a block's two lengths differ ({before} and {after})")]
    Trailer {
        /// The length in front.
        before: u32,
        /// The length behind.
        after: u32,
    },
    /// The fields of a block do not fit in its length.
    #[error("a block of type {0:#x} is too short for its own fields")]
    BlockTooShort(u32),
    /// A packet of an interface that the section did not describe before.
    #[error("a packet names interface {0}, which is not described before it")]
    NoInterface(u32),
    /// More than [`MAX_INTERFACES`].
    #[error("a section describes more than {MAX_INTERFACES} interfaces")]
    TooManyInterfaces,
    /// A section header without a byte-order mark.
    #[error("a section header has no valid byte-order mark ({0:#010x})")]
    ByteOrder(u32),
    /// A section of a version that is not read.
    #[error("a section has the unknown version {0}.{1}")]
    Version(u16, u16),
}

impl Fault {
    /// What the operator can do about it.
    #[must_use]
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Cut => {
                "Usual when a recording was killed or a copy broke off: copy it again, or stop the recorder with Ctrl-C."
            }
            Self::NoInterface(_) | Self::TooManyInterfaces | Self::Version(..) => {
                "The program that wrote it is at fault; 'editcap IN OUT' may repair it."
            }
            _ => {
                "The file is damaged: copy it again from its source, or repair it with 'pcapfix FILE'."
            }
        }
    }
}

/// Why reading stops at a block.
pub(crate) enum Stop {
    /// The file ends between two records.
    End,
    /// The record is not whole.
    Fault(Fault),
    /// The system failed.
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
