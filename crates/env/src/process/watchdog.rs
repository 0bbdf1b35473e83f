//! A shell process that kills a program when the current process dies.
//!
//! A killed process cannot stop the program it started, and a program that hangs does not notice
//! that its stdin was closed. The shell therefore reads a pipe that only the current process can
//! write to: when that process dies, the pipe ends.
//!
//! `PR_SET_PDEATHSIG` cannot replace the shell: it fires when the *thread* that started the program
//! ends, as rollout threads do, and does not reach the program's children.

use std::process::{Child, Command, Stdio};

use super::strays::VARIABLE;

/// Waits two seconds, then kills the process group `$1` and all processes with the mark `$2`.
const SCRIPT: &str = "read -r _; sleep 2; kill -9 \"-$1\"; \
    for found in $(grep -lF \"$2\" /proc/[0-9]*/environ); do found=${found#/proc/}; kill -9 \"${found%/environ}\"; done";

/// A watchdog that is disarmed when dropped.
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
        // Otherwise Ctrl-C would end it before this process.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().ok().map(Self)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Before `wait` closes its stdin.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
