//! The allocator keeps freed memory for the next micro-batch.

use std::ffi::{c_int, c_long};

/// mimalloc's `mi_option_purge_delay`: milliseconds until freed memory goes back to the system, -1 for never.
const PURGE_DELAY: c_int = 15;

// Of the mimalloc that the program's allocator links; the crate `mimalloc` does not show its options.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Keeps freed memory in the process. Sampling and updates take the same gigabytes in turn for many seconds each; given
/// back in between, the system has to clear all of it again at every step. The environment's `MIMALLOC_PURGE_DELAY` goes
/// before.
pub(crate) fn keep_freed_memory() {
    // SAFETY: mimalloc ignores an option that it does not have, and no other thread runs yet that could set one.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set_default(PURGE_DELAY, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge_delay() -> c_long {
        // SAFETY: reads a number.
        #[allow(unsafe_code)]
        unsafe {
            mi_option_get(PURGE_DELAY)
        }
    }

    /// The number is that of the option: its default is a second, which no other option has. With a mimalloc that numbers
    /// its options otherwise this fails.
    #[test]
    fn freed_memory_is_kept() {
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
            return;
        }
        assert_eq!(purge_delay(), 1000);
        keep_freed_memory();
        assert_eq!(purge_delay(), -1);
    }
}
