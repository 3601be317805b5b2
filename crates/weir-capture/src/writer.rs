//! The writer: records are collected, then committed together.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::WriteError;
use crate::record::{FileKind, Interface, Position, Record};
use crate::{LinkType, MAX_CAPTURED, MAX_INTERFACES, Precision, Reader, Resolution, TimeFormat};

mod encode;

/// What kind of file to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, of one precision and one link type.
    Pcap {
        /// The unit of the sub-second field. Time stamps of [`TimeFormat::from`] this precision are written bit for bit.
        precision: Precision,
        /// The only link type that is accepted.
        link: LinkType,
    },
    /// pcapng. Link type and time unit may change from record to record: an interface is described for each pair.
    /// Time stamps in units are written bit for bit; those of pcap become units of the same size.
    Pcapng,
}

impl Format {
    /// pcapng when the name ends in `.pcapng` or `.ntar`, else pcap in the precision that loses least of `time`.
    #[must_use]
    pub fn for_path(path: impl AsRef<Path>, time: TimeFormat, link: LinkType) -> Self {
        let extension = path.as_ref().extension().map(std::ffi::OsStr::to_ascii_lowercase);
        match extension.as_ref().and_then(|e| e.to_str()) {
            Some("pcapng" | "ntar") => Self::Pcapng,
            _ => Self::Pcap { precision: time.in_pcap(), link },
        }
    }
}

/// Where a writer's bytes go: a file, or in tests something that fails at will.
pub trait Storage {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// The system's; some of the bytes may have been written.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts to a length.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

impl Storage for File {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }
}

/// Writes a capture, little-endian.
///
/// Appended records are in memory until [`Self::commit`]; dropping the writer drops what is not committed. Committed
/// records survive the death of the process: [`Self::reopen`] cuts off what came after and goes on. (They survive a power
/// failure only when the system gets to write its cache.)
#[derive(Debug)]
pub struct Writer<S = File> {
    storage: S,
    format: Format,
    /// Those described in the file or in `pending`, in the order of their numbers.
    interfaces: Vec<Interface>,
    pending: Vec<u8>,
    committed: Position,
    /// What `committed` becomes; its `next` is known at the commit only.
    ahead: Position,
}

impl Writer<File> {
    /// Creates a file, or empties an existing one that no other writer has open, and writes its header.
    ///
    /// # Errors
    /// [`WriteError::InUse`], [`WriteError::DiskFull`], [`WriteError::Io`].
    pub fn create(path: impl AsRef<Path>, format: Format) -> Result<Self, WriteError> {
        // Emptied only when it is ours.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        lock(&file)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Self::new(file, format)
    }

    /// Reopens a file that a writer made, cuts it to `committed`, and goes on behind it. Format and interfaces are read
    /// from the file.
    ///
    /// # Errors
    /// [`WriteError::Reopen`] when the file does not reach or fit the position; [`WriteError::Foreign`];
    /// [`WriteError::InUse`]; [`WriteError::Io`].
    pub fn reopen(path: impl AsRef<Path>, committed: Position) -> Result<Self, WriteError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        lock(&file)?;
        let reader = Reader::resume_from(&file, committed).map_err(WriteError::Reopen)?;
        let format = match (reader.kind(), reader.interfaces().first()) {
            _ if !reader.is_little_endian() => return Err(WriteError::Foreign),
            (FileKind::Pcapng, _) => Format::Pcapng,
            (FileKind::Pcap, None) => return Err(WriteError::Foreign),
            (FileKind::Pcap, Some(interface)) => {
                Format::Pcap { precision: interface.time.in_pcap(), link: interface.link }
            }
        };
        let (interfaces, position) = (reader.interfaces().to_vec(), reader.position());
        file.set_len(position.next)?;
        Ok(Self {
            storage: file,
            format,
            interfaces,
            pending: Vec::new(),
            committed: position,
            ahead: position,
        })
    }
}

/// Finds out whether [`Writer::create`] could write a file, and leaves it as it is: one that is not there is made and
/// removed again, as nothing else tells for sure.
///
/// # Errors
/// [`WriteError::InUse`], [`WriteError::Io`].
pub fn check_writable(path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => {
            // Another that has begun to write it meanwhile keeps it.
            lock(&file)?;
            Ok(std::fs::remove_file(path)?)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // Not for creating: a link that leads nowhere is an error here already.
            lock(&OpenOptions::new().write(true).open(path)?)
        }
        Err(e) => Err(e.into()),
    }
}

/// Takes a file for one writer, for as long as it is open. Devices are everybody's, and a file system
/// without locks keeps nobody out.
fn lock(file: &File) -> Result<(), WriteError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) if file.metadata()?.is_file() => Err(WriteError::InUse),
        _ => Ok(()),
    }
}

impl<S: Storage> Writer<S> {
    /// Writes the header of a new capture to an empty storage.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`], [`WriteError::Io`].
    pub fn new(storage: S, format: Format) -> Result<Self, WriteError> {
        let mut pending = Vec::new();
        let mut interfaces = Vec::new();
        match format {
            Format::Pcap { precision, link } => {
                interfaces.push(Interface { link, snaplen: MAX_CAPTURED, time: precision.into() });
                encode::pcap_header(&mut pending, precision, link);
            }
            Format::Pcapng => encode::section(&mut pending),
        }
        let ahead = Position { interfaces_end: pending.len() as u64, ..Position::default() };
        let mut writer =
            Self { storage, format, interfaces, pending, committed: Position::default(), ahead };
        writer.commit()?;
        Ok(writer)
    }

    /// Adds a record to the next commit. The time stamp is written bit for bit where the file's format can hold it
    /// (see [`Format`]), else converted as [`crate::Timestamp::raw_in`] says. A comment needs pcapng; pcap drops it.
    ///
    /// # Errors
    /// A record that does not fit the format ([`WriteError::LinkType`], [`WriteError::LinkTypeTooLarge`],
    /// [`WriteError::TooLong`], [`WriteError::CommentTooLong`], [`WriteError::TooManyInterfaces`]); then nothing is added.
    pub fn append(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        if record.bytes.len() > MAX_CAPTURED as usize {
            return Err(WriteError::TooLong(record.bytes.len()));
        }
        match self.format {
            Format::Pcap { precision, link } => {
                if record.link != link {
                    return Err(WriteError::LinkType { expected: link, found: record.link });
                }
                encode::pcap_record(
                    &mut self.pending,
                    record,
                    record.time.raw_in(precision.into()),
                );
            }
            Format::Pcapng => {
                // Before an interface is described for it.
                if let Some(comment) = record.comment.filter(|c| c.len() > usize::from(u16::MAX)) {
                    return Err(WriteError::CommentTooLong(comment.len()));
                }
                let resolution = record.time.format.in_pcapng();
                let interface = self.interface(record.link, TimeFormat::Units(resolution))?;
                return self.append_to(interface, record);
            }
        }
        self.ahead.records = self.ahead.records.saturating_add(1);
        Ok(())
    }

    /// Describes an interface of that name: pcapng's `if_name` (draft-ietf-opsawg-pcapng, section 4.2). Gives its number
    /// for [`Self::append_to`]; after [`Self::reopen`] the numbers are those they were.
    ///
    /// # Errors
    /// [`WriteError::TooManyInterfaces`], [`WriteError::LinkTypeTooLarge`], [`WriteError::NameTooLong`]; and
    /// [`WriteError::NoInterface`] in a pcap file, which has no place for it.
    pub fn describe(
        &mut self,
        link: LinkType,
        resolution: Resolution,
        name: &str,
    ) -> Result<u32, WriteError> {
        if self.format != Format::Pcapng {
            return Err(WriteError::NoInterface(0));
        }
        if name.len() > usize::from(u16::MAX) {
            return Err(WriteError::NameTooLong(name.len()));
        }
        let id = self.add_interface(link, TimeFormat::Units(resolution), name.as_bytes())?;
        u32::try_from(id).map_err(|_| WriteError::TooManyInterfaces)
    }

    /// As [`Self::append`], to the pcapng interface of a number that [`Self::describe`] gave. The time stamp is converted
    /// to its unit; the record's own link type does not matter.
    ///
    /// # Errors
    /// [`WriteError::NoInterface`], [`WriteError::TooLong`], [`WriteError::CommentTooLong`]; then nothing is added.
    pub fn append_to(&mut self, interface: u32, record: &Record<'_>) -> Result<(), WriteError> {
        if record.bytes.len() > MAX_CAPTURED as usize {
            return Err(WriteError::TooLong(record.bytes.len()));
        }
        if let Some(comment) = record.comment.filter(|c| c.len() > usize::from(u16::MAX)) {
            return Err(WriteError::CommentTooLong(comment.len()));
        }
        let described = usize::try_from(interface).ok().and_then(|i| self.interfaces.get(i));
        let Some(described) = described.filter(|_| self.format == Format::Pcapng) else {
            return Err(WriteError::NoInterface(interface));
        };
        let raw = record.time.raw_in(described.time);
        encode::enhanced_packet(&mut self.pending, record, raw, interface);
        self.ahead.records = self.ahead.records.saturating_add(1);
        Ok(())
    }

    /// The number of the interface with this link type and time unit; described first if it is new.
    fn interface(&mut self, link: LinkType, time: TimeFormat) -> Result<u32, WriteError> {
        // From the back: a capture has one or a few pairs, and the last one described is the likeliest.
        let found = self.interfaces.iter().rposition(|i| i.link == link && i.time == time);
        let id = match found {
            Some(id) => id,
            None => self.add_interface(link, time, b"")?,
        };
        u32::try_from(id).map_err(|_| WriteError::TooManyInterfaces)
    }

    fn add_interface(
        &mut self,
        link: LinkType,
        time: TimeFormat,
        name: &[u8],
    ) -> Result<usize, WriteError> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(WriteError::TooManyInterfaces);
        }
        let number = u16::try_from(link.0).map_err(|_| WriteError::LinkTypeTooLarge(link))?;
        encode::interface(&mut self.pending, number, time.in_pcapng(), name);
        self.interfaces.push(Interface { link, snaplen: MAX_CAPTURED, time });
        self.ahead.interfaces_end = self.committed.next.saturating_add(self.pending.len() as u64);
        Ok(self.interfaces.len().saturating_sub(1))
    }

    /// Writes everything appended with one call to the system and gives the position behind it.
    ///
    /// # Errors
    /// [`WriteError::DiskFull`], [`WriteError::FileTooLarge`] or [`WriteError::Io`]; the file then still ends at the last commit, the records stay
    /// pending, and the commit may be tried again.
    pub fn commit(&mut self) -> Result<Position, WriteError> {
        if self.pending.is_empty() {
            return Ok(self.committed);
        }
        let at = self.committed.next;
        if let Err(error) = self.storage.write_all_at(&self.pending, at) {
            // Best effort, so that readers see no half record: the next commit or reopen overwrites or cuts it anyway.
            let _ = self.storage.set_len(at);
            return Err(match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    WriteError::DiskFull { committed: at }
                }
                io::ErrorKind::FileTooLarge => WriteError::FileTooLarge { committed: at },
                _ => WriteError::Io(error),
            });
        }
        self.ahead.next = at.saturating_add(self.pending.len() as u64);
        self.committed = self.ahead;
        self.pending.clear();
        Ok(self.committed)
    }

    /// The position of the last commit.
    #[must_use]
    pub fn committed(&self) -> Position {
        self.committed
    }

    /// How many bytes the next commit will write. Commit after each burst: nothing else bounds it.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// What is written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Gives the storage back; what is not committed is dropped.
    #[must_use]
    pub fn into_storage(self) -> S {
        self.storage
    }
}
