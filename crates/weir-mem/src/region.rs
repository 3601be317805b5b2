//! Memory behind a file descriptor: made once, passed to other processes, mapped where they like.
//!
//! A region has no name in a file system and no fixed address; whoever has its descriptor may map
//! it. A *read-only* descriptor is a separate open of the same memory, because a read-only mapping
//! made from a writable descriptor can be made writable again.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;

/// Size of the huge pages that we ask for, in bytes.
pub const HUGE_PAGE: usize = 2 << 20;

/// Why a region could not be made, opened or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The kernel gave no memory file.
    #[error("cannot create {len} bytes of shared memory: {source}{}", cure(*source))]
    Create {
        /// Bytes asked for.
        len: usize,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// Opening it a second time, read-only, failed.
    #[error("cannot re-open shared memory read-only: {why}{}", cure(*.0), why = .0)]
    ReadOnly(#[source] rustix::io::Errno),
    /// Mapping failed.
    #[error("cannot map {len} bytes of shared memory: {source}{}", cure(*source))]
    Map {
        /// Bytes asked for.
        len: usize,
        /// What the kernel said.
        source: rustix::io::Errno,
    },
    /// The descriptor is smaller than what is to be mapped from it.
    #[error(
        "shared memory has {has} bytes where {needs} are needed: it is another version's, or not ours"
    )]
    TooSmall {
        /// Its size.
        has: u64,
        /// The size that the layout needs.
        needs: usize,
    },
}

/// What to do about it.
fn cure(refused: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match refused {
        Errno::NOMEM | Errno::NOSPC => {
            "; free memory, ask for less, or raise the limit on it (ulimit -v)"
        }
        // Memory is a file without a name.
        Errno::FBIG => {
            "; the limit on file size holds for it too: raise that (ulimit -f; as root, LimitFSIZE= of the service)"
        }
        Errno::NOENT => "; is /proc mounted?",
        _ => "",
    }
}

/// A piece of memory that can be passed to another process.
#[derive(Debug)]
pub struct Region {
    fd: OwnedFd,
    len: usize,
    huge: bool,
}

impl Region {
    /// Makes `len` bytes of zeroed memory from ordinary pages. `name` is what /proc shows.
    pub fn create(name: &str, len: usize) -> Result<Self, RegionError> {
        Self::create_with(name, len, rustix::fs::MemfdFlags::empty(), false)
    }

    /// As [`Region::create`], from 2 MiB huge pages when the machine has enough of them reserved,
    /// else from ordinary ones; [`Region::is_huge`] tells which.
    pub fn create_huge(name: &str, len: usize) -> Result<Self, RegionError> {
        let rounded = len.next_multiple_of(HUGE_PAGE);
        let flags = rustix::fs::MemfdFlags::HUGETLB | rustix::fs::MemfdFlags::HUGE_2MB;
        // Creating always succeeds; whether the pages are there shows when they are reserved.
        if let Ok(region) = Self::create_with(name, rounded, flags, true)
            && region.map_writable().is_ok()
        {
            return Ok(region);
        }
        Self::create(name, len)
    }

    fn create_with(
        name: &str,
        len: usize,
        flags: rustix::fs::MemfdFlags,
        huge: bool,
    ) -> Result<Self, RegionError> {
        let fail = |source| RegionError::Create { len, source };
        let flags = flags | rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(fail)?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(fail)?;
        // Owner may only read: a worker that is not root cannot re-open a read-only descriptor for
        // writing through /proc. Not FUTURE_WRITE: it would refuse a restarted writer too.
        rustix::fs::fchmod(&fd, Mode::RUSR).map_err(fail)?;
        // No seal forbids holes to who may write (`MADV_REMOVE`, `fallocate`): the sandbox does.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(fail)?;
        Ok(Region { fd, len, huge })
    }

    /// Takes a descriptor that another process sent, whose memory must hold at least `len` bytes.
    pub fn from_fd(fd: OwnedFd, len: usize) -> Result<Self, RegionError> {
        let stat = rustix::fs::fstat(&fd).map_err(|source| RegionError::Map { len, source })?;
        if (stat.st_size as u64) < len as u64 {
            return Err(RegionError::TooSmall { has: stat.st_size as u64, needs: len });
        }
        Ok(Region { fd, len, huge: false })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a region of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when made of huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// The writable descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A new descriptor of the same memory that can be mapped for reading only.
    pub fn read_only_fd(&self) -> Result<OwnedFd, RegionError> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(RegionError::ReadOnly)
    }

    /// Maps it for reading and writing.
    pub fn map_writable(&self) -> Result<Mapping, RegionError> {
        Mapping::new(self.fd.as_fd(), self.len, true)
    }

    /// Maps it for reading. From a read-only descriptor, nobody can make that mapping writable.
    pub fn map_read_only(&self) -> Result<Mapping, RegionError> {
        Mapping::new(self.fd.as_fd(), self.len, false)
    }
}

/// Memory mapped into this process; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: a mapping is only an address range; all access goes through volatile copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, len: usize, writable: bool) -> Result<Self, RegionError> {
        let mut prot = ProtFlags::READ;
        if writable {
            prot |= ProtFlags::WRITE;
        }
        // SAFETY: a fresh shared mapping at an address that the kernel chooses touches no existing
        // memory of this process.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len.max(1), prot, MapFlags::SHARED, fd, 0)
        }
        .map_err(|source| RegionError::Map { len, source })?;
        let at = NonNull::new(at.cast())
            .ok_or(RegionError::Map { len, source: rustix::io::Errno::NOMEM })?;
        Ok(Mapping { at, len, writable })
    }

    /// First byte. Valid for `len` bytes while the mapping lives.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.at
    }

    /// Size in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes a value, whatever it stands for: for tests that a hostile peer does no harm.
    #[cfg(feature = "attacks")]
    pub fn scribble(&self, at: usize, value: u64) {
        if self.writable && at.is_multiple_of(8) && at.saturating_add(8) <= self.len {
            // SAFETY: within the mapping and aligned (the base is page-aligned); who else has the
            // memory expects any writes.
            unsafe { self.at.as_ptr().add(at).cast::<u64>().write_volatile(value) };
        }
    }

    /// True for a mapping of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when this process may write to it.
    #[inline(always)]
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and every view of it borrows the mapping or
        // holds it by `Arc`. A failure would leave it mapped, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len.max(1)) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let region = Region::create("weir-test", 8192).unwrap();
        let (a, b) = (region.map_writable().unwrap(), region.map_read_only().unwrap());
        assert!(a.is_writable() && !b.is_writable());
        // SAFETY: both mappings live and hold 8192 bytes.
        unsafe { a.base().as_ptr().add(5000).write_volatile(77) };
        // SAFETY: as above.
        assert_eq!(unsafe { b.base().as_ptr().add(5000).read_volatile() }, 77);
    }

    #[test]
    fn a_read_only_descriptor_cannot_be_mapped_for_writing() {
        let region = Region::create("weir-test", 4096).unwrap();
        let ro = Region::from_fd(region.read_only_fd().unwrap(), 4096).unwrap();
        assert!(ro.map_read_only().is_ok());
        assert!(matches!(
            ro.map_writable(),
            Err(RegionError::Map { source: rustix::io::Errno::ACCESS, .. })
        ));
    }

    #[test]
    fn a_region_smaller_than_the_layout_is_refused() {
        let region = Region::create("weir-test", 4096).unwrap();
        let fd = region.read_only_fd().unwrap();
        assert!(matches!(
            Region::from_fd(fd, 8192),
            Err(RegionError::TooSmall { has: 4096, needs: 8192 })
        ));
    }

    #[test]
    fn a_region_can_be_neither_grown_nor_shrunk() {
        let region = Region::create("weir-test", 4096).unwrap();
        assert!(rustix::fs::ftruncate(region.fd(), 8192).is_err());
        assert!(rustix::fs::ftruncate(region.fd(), 0).is_err());
    }
}
