//! Keeps freed memory in the process for the next phase of a run.

use std::ffi::{c_int, c_long};

use turnwise_model::Device;
use turnwise_train::plan::memory::MemoryReport;
use turnwise_train::run::Run;

/// `mi_option_purge_delay`: milliseconds until mimalloc returns freed memory to the operating
/// system; with -1, it never does.
const PURGE_DELAY: c_int = 15;

pub(crate) const DEFAULT_PURGE_DELAY: c_long = 1000;

/// Environment variable with the purge delay, which mimalloc reads at startup.
pub(crate) const PURGE_DELAY_VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

// The crate `mimalloc` does not expose options.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Keeps a run's freed memory if the machine has enough memory and `MIMALLOC_PURGE_DELAY` is unset.
///
/// Sampling and updates alternate, and each uses gigabytes for seconds. If this memory were
/// returned, the operating system would have to zero it again at every step.
pub(crate) fn keep_freed_memory(run: &Run) {
    let config = run.config();
    // On a device, the estimate would download the weights.
    if config.policy.device != Device::Cpu {
        return;
    }
    let Some(weights) = run.weights() else { return };
    if MemoryReport::new(config, run.registries(), weights.config(), None).has_room_to_keep_freed_memory() {
        set_purge_delay(-1);
    }
}

fn set_purge_delay(milliseconds: c_long) {
    // SAFETY: mimalloc ignores unknown options; the value is one word, and no other thread sets
    // options.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set_default(PURGE_DELAY, milliseconds);
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

    /// Fails if mimalloc renumbers its options, because no other option has the default 1000.
    #[test]
    fn the_option_is_the_delay_of_giving_memory_back() {
        if std::env::var_os(PURGE_DELAY_VARIABLE).is_some() {
            return;
        }
        assert_eq!(purge_delay(), DEFAULT_PURGE_DELAY);
        set_purge_delay(-1);
        assert_eq!(purge_delay(), -1);
    }
}
