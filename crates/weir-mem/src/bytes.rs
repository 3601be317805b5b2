//! Packet bytes in shared memory, read and written by volatile copy.
//!
//! A slice reference into memory that another process may write is undefined behaviour in Rust,
//! so there is none: these views hold a pointer and a length and copy a few bytes at a time.

use std::marker::PhantomData;

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned<T>(T);

/// A number that can be stored at any address in one instruction.
trait Store: Copy {
    /// # Safety
    /// `at` points to at least `size_of::<Self>()` bytes of a live writable mapping.
    unsafe fn store(self, at: *mut u8);

    /// As [`Store::store`], `AT` bytes further on.
    ///
    /// # Safety
    /// As for [`Store::store`], of `at + AT`.
    unsafe fn store_at<const AT: usize>(self, at: *mut u8);
}

macro_rules! store {
    ($t:ty, $class:ident, $instruction:literal) => {
        impl Store for $t {
            #[inline(always)]
            unsafe fn store(self, at: *mut u8) {
                // SAFETY: the caller's.
                unsafe { self.store_at::<0>(at) }
            }

            #[inline(always)]
            unsafe fn store_at<const AT: usize>(self, at: *mut u8) {
                // A volatile store of a packed struct goes through the stack; the instruction
                // itself does the same and no more.
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the caller vouches for the address; x86 needs no alignment; what another
                // process makes of the bytes meanwhile does not concern this one.
                unsafe {
                    std::arch::asm!(
                        $instruction,
                        in(reg) at,
                        const AT,
                        in($class) self,
                        options(nostack, preserves_flags)
                    );
                }
                #[cfg(not(target_arch = "x86_64"))]
                // SAFETY: as above; the packed wrapper lifts the alignment requirement.
                unsafe {
                    at.add(AT).cast::<Unaligned<$t>>().write_volatile(Unaligned(self));
                }
            }
        }
    };
}
store!(u8, reg_byte, "mov byte ptr [{} + {}], {}");
store!(u16, reg, "mov word ptr [{} + {}], {:x}");
store!(u32, reg, "mov dword ptr [{} + {}], {:e}");
store!(u64, reg, "mov qword ptr [{} + {}], {:r}");

/// Stores 64 bytes, in as few instructions as every processor of the kind has.
///
/// # Safety
/// `to` points to at least 64 bytes of a live writable mapping.
#[inline(always)]
unsafe fn store_line(line: &[u8; 64], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for `to`; MOVUPS needs no alignment, and every x86-64 has it.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            from = in(reg) line.as_ptr(),
            to = in(reg) to,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (i, word) in line.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: the caller vouches for 64 bytes.
        unsafe { u64::from_ne_bytes(*word).store(to.add(8 * i)) };
    }
}

/// Read view of a packet's bytes. Borrowed from the arena, so the mapping outlives it.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    at: *const u8,
    len: usize,
    arena: PhantomData<&'a ()>,
}

macro_rules! read {
    ($name:ident, $t:ty, $doc:literal) => {
        #[doc = $doc]
        #[inline(always)]
        pub fn $name(&self, at: usize) -> Option<$t> {
            if at.checked_add(size_of::<$t>())? > self.len {
                return None;
            }
            // SAFETY: at + size ≤ len, and `self.at..+len` lies in a live mapping (invariant of
            // `new`); the packed wrapper lifts the alignment requirement; volatile as another
            // process may write meanwhile.
            Some(unsafe { self.at.add(at).cast::<Unaligned<$t>>().read_volatile() }.0)
        }
    };
}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// `at..at + len` lies in a mapping that lives at least as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const u8, len: usize) -> Self {
        SharedBytes { at, len, arena: PhantomData }
    }

    /// A view of no bytes.
    pub const EMPTY: SharedBytes<'static> =
        SharedBytes { at: std::ptr::NonNull::dangling().as_ptr(), len: 0, arena: PhantomData };

    /// Number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    read!(ne8, u8, "The byte at `at`.");
    read!(ne16, u16, "The 16 bits at `at` in host order.");
    read!(ne32, u32, "The 32 bits at `at` in host order.");
    read!(ne64, u64, "The 64 bits at `at` in host order.");

    /// A copy of the `N` bytes at `at`, or `None` when they are not all there.
    #[inline(always)]
    pub fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at.checked_add(N)? > self.len {
            return None;
        }
        let mut out = [0; N];
        self.copy_checked(at, &mut out);
        Some(out)
    }

    /// Copies bytes from `at` on into `out`; says how many there were.
    #[inline]
    pub fn copy_to(&self, at: usize, out: &mut [u8]) -> usize {
        let n = self.len.saturating_sub(at).min(out.len());
        self.copy_checked(at, &mut out[..n]);
        n
    }

    /// `at + out.len() ≤ self.len` has been checked, or `out` is empty.
    #[inline(always)]
    fn copy_checked(&self, at: usize, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        let mut i = at;
        for word in words {
            if let Some(v) = self.ne64(i) {
                *word = v.to_ne_bytes();
            }
            i += 8;
        }
        let (half, rest) = rest.split_at_mut(rest.len() & 4);
        if let (Some(w), Some(v)) = (half.first_chunk_mut::<4>(), self.ne32(i)) {
            *w = v.to_ne_bytes();
            i += 4;
        }
        let (quarter, tail) = rest.split_at_mut(rest.len() & 2);
        if let (Some(w), Some(v)) = (quarter.first_chunk_mut::<2>(), self.ne16(i)) {
            *w = v.to_ne_bytes();
            i += 2;
        }
        for b in tail {
            if let Some(v) = self.ne8(i) {
                *b = v;
            }
            i += 1;
        }
    }
}

/// Read and write view of a packet's bytes. Only code that holds the packet exclusively gets one.
pub struct SharedBytesMut<'a> {
    at: *mut u8,
    len: usize,
    arena: PhantomData<&'a mut ()>,
}

macro_rules! write {
    ($name:ident, $t:ty, $doc:literal) => {
        #[doc = $doc]
        #[doc = " False, and nothing written, when it does not fit."]
        #[inline(always)]
        pub fn $name(&mut self, at: usize, value: $t) -> bool {
            if at.checked_add(size_of::<$t>()).is_none_or(|end| end > self.len) {
                return false;
            }
            // SAFETY: at + size ≤ len within a live writable mapping (invariant of `new`).
            unsafe { value.store(self.at.add(at)) };
            true
        }
    };
}

impl<'a> SharedBytesMut<'a> {
    /// # Safety
    /// `at..at + len` lies in a writable mapping that lives at least as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8, len: usize) -> Self {
        SharedBytesMut { at, len, arena: PhantomData }
    }

    /// The same bytes for reading.
    #[inline(always)]
    pub fn as_read(&self) -> SharedBytes<'_> {
        SharedBytes { at: self.at, len: self.len, arena: PhantomData }
    }

    write!(set_ne8, u8, "Writes the byte at `at`.");
    write!(set_ne16, u16, "Writes 16 bits at `at` in host order.");
    write!(set_ne32, u32, "Writes 32 bits at `at` in host order.");
    write!(set_ne64, u64, "Writes 64 bits at `at` in host order.");

    /// Writes all of `bytes` at `at`. False, and nothing written, when they do not fit.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: `at + bytes.len() ≤ self.len`, as just checked.
        let mut to = unsafe { self.at.add(at) };
        let (lines, rest) = bytes.as_chunks::<64>();
        for line in lines {
            // SAFETY: as many bytes as `bytes` has follow `at`, of which these are some.
            unsafe {
                store_line(line, to);
                to = to.add(64);
            }
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            // SAFETY: as many bytes as `bytes` has follow `at`, of which these are some.
            unsafe {
                u64::from_ne_bytes(*word).store(to);
                to = to.add(8);
            }
        }
        for &byte in rest {
            // SAFETY: as above.
            unsafe {
                byte.store(to);
                to = to.add(1);
            }
        }
        true
    }

    /// The first `N` bytes, when there are so many: their length is checked once, here.
    #[inline(always)]
    pub fn head<const N: usize>(&mut self) -> Option<SharedHead<'_, N>> {
        if N > self.len {
            return None;
        }
        Some(SharedHead { at: self.at, bytes: PhantomData })
    }
}

/// The first `N` bytes of a packet, for reading and writing; positions are checked when compiling.
pub struct SharedHead<'a, const N: usize> {
    at: *mut u8,
    bytes: PhantomData<&'a mut ()>,
}

impl<const N: usize> SharedHead<'_, N> {
    /// The 32 bits at `AT` in host order.
    #[inline(always)]
    pub fn ne32<const AT: usize>(&self) -> u32 {
        const { assert!(AT + 4 <= N) };
        // SAFETY: within the first N bytes, which are there (`head`); otherwise as for `read!`.
        unsafe { self.at.add(AT).cast::<Unaligned<u32>>().read_volatile() }.0
    }

    /// The 64 bits at `AT` in host order.
    #[inline(always)]
    pub fn ne64<const AT: usize>(&self) -> u64 {
        const { assert!(AT + 8 <= N) };
        // SAFETY: as for `ne32`.
        unsafe { self.at.add(AT).cast::<Unaligned<u64>>().read_volatile() }.0
    }

    /// Writes 32 bits at `AT` in host order.
    #[inline(always)]
    pub fn set_ne32<const AT: usize>(&mut self, value: u32) {
        const { assert!(AT + 4 <= N) };
        // SAFETY: as for `ne32`, and writable.
        unsafe { value.store_at::<AT>(self.at) };
    }

    /// Writes 64 bits at `AT` in host order.
    #[inline(always)]
    pub fn set_ne64<const AT: usize>(&mut self, value: u64) {
        const { assert!(AT + 8 <= N) };
        // SAFETY: as for `ne32`, and writable.
        unsafe { value.store_at::<AT>(self.at) };
    }
}
