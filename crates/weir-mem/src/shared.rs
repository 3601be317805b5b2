//! Values that may live in shared memory.

use std::cell::UnsafeCell;

mod sealed {
    pub trait Sealed {}
}

/// A value that may live in memory another process writes: every bit pattern is a valid value, it
/// holds no pointer, and it is read and written by volatile copies, so the compiler can neither
/// read it twice nor assume that it stays as it was.
///
/// (The idea of a marker trait for what may enter shared memory: iceoryx2, `ZeroCopySend`.)
pub trait Plain: Copy + sealed::Sealed + 'static {
    /// # Safety
    /// `at` points into a live mapping (or other live memory) and is aligned for `Self`.
    #[doc(hidden)]
    unsafe fn load(at: *mut Self) -> Self;
    /// # Safety
    /// As for `load`, and the memory is writable.
    #[doc(hidden)]
    unsafe fn store(self, at: *mut Self);
    #[doc(hidden)]
    const ZERO: Self;
}

macro_rules! plain_number {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Plain for $t {
            #[inline(always)]
            unsafe fn load(at: *mut Self) -> Self {
                // SAFETY: callers in this crate pass pointers into live mappings, aligned for
                // `Self`; every bit pattern is valid; volatile, so a concurrent write by another
                // process gives some value, which callers check before use.
                unsafe { at.read_volatile() }
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut Self) {
                // SAFETY: as for `load`; the pointer is into a writable mapping.
                unsafe { at.write_volatile(self) }
            }
            const ZERO: Self = 0;
        }
    )*};
}
plain_number!(u8, u16, u32, u64);

impl sealed::Sealed for crate::Entry {}
impl Plain for crate::Entry {
    #[inline(always)]
    unsafe fn load(at: *mut Self) -> Self {
        let words = at.cast::<u64>();
        // SAFETY: `Entry` is two u64 words, 16-byte aligned; otherwise as for numbers.
        unsafe { Self::from_words(words.read_volatile(), words.add(1).read_volatile()) }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut Self) {
        // Not volatile: whoever follows the protocol reads a slot only after its publication, and
        // the Release there keeps this store before it. What others read does not concern us.
        // SAFETY: as above, into a writable mapping.
        unsafe { at.write(self) }
    }
    const ZERO: Self = Self::from_words(0, 0);
}

/// A cell in shared memory. Reading copies the value out; writing copies it in. Neither is atomic
/// against a hostile writer, and neither needs to be: what is read is checked, then used.
#[repr(transparent)]
pub struct Shared<T: Plain>(UnsafeCell<T>);

// SAFETY: access is by volatile copy only; races give unspecified values of `T`, all of which are
// valid. (Threads of one process never race on these: a buffer has one owner at a time.)
unsafe impl<T: Plain + Send> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// A cell outside shared memory, for tests and local copies.
    pub const fn new(value: T) -> Self {
        Shared(UnsafeCell::new(value))
    }

    /// Copies the value out.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: the cell's own memory.
        unsafe { T::load(self.0.get()) }
    }

    /// Copies `value` in.
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: the cell's own memory; whoever holds a cell in read-only memory only reads.
        unsafe { value.store(self.0.get()) }
    }
}
