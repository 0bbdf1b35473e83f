//! Kills processes that left the program's process group; a mark in their environment identifies
//! them.
//!
//! A process that leaves its group and session (`setsid`) normally keeps its environment variables,
//! so the mark identifies it. `PR_SET_CHILD_SUBREAPER` is not used, because it would also adopt
//! unrelated orphans of the program that embeds Turnwise.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const VARIABLE: &str = "TURNWISE_WORLD_PROGRAM";

pub(super) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{}-{}-{now:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Kills the marked processes; does nothing without `/proc`.
#[cfg(target_os = "linux")]
pub(super) fn kill(mark: &str) {
    let wanted = format!("{VARIABLE}={mark}");
    // A process may start another just before it is killed.
    for _ in 0..16 {
        if !kill_found(wanted.as_bytes()) {
            return;
        }
        std::thread::yield_now();
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill(_: &str) {}

#[cfg(target_os = "linux")]
fn kill_found(wanted: &[u8]) -> bool {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let mut killed = false;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.and_then(Pid::from_raw) else { continue };
        // Before reading the environment, so the id cannot be reused.
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted) {
            killed |= pidfd_send_signal(process, Signal::KILL).is_ok();
        }
    }
    killed
}
