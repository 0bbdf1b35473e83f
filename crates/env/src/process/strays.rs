//! Processes of a program that have left its process group, found by a mark in their environment.
//!
//! A process can leave its group and its session (`setsid`) and outlive its parent, but what it starts keeps its environment unless
//! it is cleared on purpose. Making this process the reaper of orphans (`PR_SET_CHILD_SUBREAPER`) would find those too, and would
//! hand it every orphan of a program that embeds this crate, which are not its own to kill.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable of the mark.
pub(super) const VARIABLE: &str = "TURNWISE_WORLD_PROGRAM";

/// Returns a mark that no other program has.
pub(super) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{}-{}-{now:x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Kills every process with a mark. Does nothing where there is no `/proc`.
#[cfg(target_os = "linux")]
pub(super) fn kill(mark: &str) {
    let wanted = format!("{VARIABLE}={mark}");
    // One that is killed may have started another just before; one that has just been killed may still be found.
    for _ in 0..16 {
        if !kill_found(wanted.as_bytes()) {
            return;
        }
        std::thread::yield_now();
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill(_: &str) {}

/// True if there was one to kill.
#[cfg(target_os = "linux")]
fn kill_found(wanted: &[u8]) -> bool {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let mut killed = false;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.and_then(Pid::from_raw) else { continue };
        // Opened before the look: from then on the number cannot become that of another process.
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted) {
            killed |= pidfd_send_signal(process, Signal::KILL).is_ok();
        }
    }
    killed
}
