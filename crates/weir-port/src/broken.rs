//! Deliberate mistakes, one at a time: each proof has one that must turn it red (docs/decisions/0004-proofs.md).
//!
//! In a test build with the feature `broken` the environment variable `WEIR_BROKEN` says which. In any other build
//! there is none: [`is`] is the constant false.

#[cfg(all(feature = "broken", not(test)))]
compile_error!("the feature `broken` is for this crate's own tests (ci/mem-proofs.sh)");

/// Whether the mistake `name` is to be made.
#[cfg(feature = "broken")]
pub(crate) fn is(name: &str) -> bool {
    // Not loom's: the same for all of a process, so nothing to explore.
    static MADE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    MADE.get_or_init(|| std::env::var("WEIR_BROKEN").ok()).as_deref() == Some(name)
}

/// Whether the mistake `name` is to be made: never.
#[cfg(not(feature = "broken"))]
#[inline(always)]
pub(crate) const fn is(_name: &str) -> bool {
    false
}
