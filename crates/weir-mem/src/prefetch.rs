//! Telling the processor what will be needed soon.

/// Bytes of a cache line.
const LINE: usize = 64;

/// The line that has this address; `FOR_WRITING`: one that another core wrote comes faster when it is asked for so.
#[inline(always)]
pub(crate) fn line<const FOR_WRITING: bool>(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address, and changes no register or flag.
    // Assembly because the intrinsic becomes PREFETCHW only where the build's target has it;
    // processors without it treat it as a no-operation.
    unsafe {
        if FOR_WRITING {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        } else {
            std::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// All lines of a value, of memory that no other process has; of one that does not begin with a line perhaps not the last one. Nothing waits for them: many values can be on their way at a time. Only on x86-64.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let at = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        line::<true>(at.wrapping_add(offset));
    }
}
