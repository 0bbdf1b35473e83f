//! A small shell process that kills a program when the current process dies.
//!
//! A killed process cannot clean up, and a hanging program does not notice that its stdin was
//! closed. Therefore a shell waits for a pipe to close that only the current process can write to.
//!
//! A parent-death signal (`PR_SET_PDEATHSIG`) does not work. The kernel sends this signal when the
//! *thread* that started the program ends, and rollout threads end early. The signal also does not
//! reach the program's child processes.

use std::process::{Child, Command, Stdio};

use super::strays::VARIABLE;

/// Gives the program two seconds to exit, then kills its process group (`$1`) and all processes
/// with the mark `$2`.
const SCRIPT: &str = "read -r _; sleep 2; kill -9 \"-$1\"; \
    for found in $(grep -lF \"$2\" /proc/[0-9]*/environ); do found=${found#/proc/}; kill -9 \"${found%/environ}\"; done";

/// Watchdog for a process group. Dropping the watchdog disarms it.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    pub(super) fn start(group: u32, mark: &str) -> Option<Self> {
        if !cfg!(unix) {
            return None;
        }
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "turnwise-watchdog", &group.to_string(), &format!("{VARIABLE}={mark}")]);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Protects it from the terminal's Ctrl-C, which would end it before this process.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().ok().map(Self)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Kill it before `wait` closes its stdin.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
