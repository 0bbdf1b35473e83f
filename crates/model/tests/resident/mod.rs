//! Resident memory of this process, from the kernel.

use std::fs;

fn status(key: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().unwrap() * 1024
}

/// Returns the rise of the process's resident memory while `work` runs, and the result of `work`.
/// Returns `None` if the kernel does not let a process reset its peak.
pub(crate) fn peak<T>(work: impl FnOnce() -> T) -> Option<(usize, T)> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = status("VmRSS:");
    let found = work();
    Some((status("VmHWM:").saturating_sub(before), found))
}
