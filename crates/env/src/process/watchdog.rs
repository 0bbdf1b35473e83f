//! A small process that ends a program when this process is gone.
//!
//! Nothing of a process that is killed can clean up after it, and a program that hangs does not notice that its input was closed.
//! So a shell waits for the end of a pipe that only this process writes to. A parent-death signal (`PR_SET_PDEATHSIG`) would not
//! do: it is sent when the *thread* that started the program ends, and the threads of rollouts do; it reaches the program alone and
//! nothing that it started; only Linux has it, and it needs unsafe code.

use std::process::{Child, Command, Stdio};

use super::strays::VARIABLE;

/// Gives the program time to end by itself, then kills its process group (`$1`) and what has left it (the mark `$2`).
const SCRIPT: &str = "read -r _; sleep 2; kill -9 \"-$1\"; \
    for found in $(grep -lF \"$2\" /proc/[0-9]*/environ); do found=${found#/proc/}; kill -9 \"${found%/environ}\"; done";

/// The watchdog of a process group; it ends without doing anything when this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Starts the watchdog of a group. `None` where there is no shell.
    pub(super) fn start(group: u32, mark: &str) -> Option<Self> {
        if !cfg!(unix) {
            return None;
        }
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "turnwise-watchdog", &group.to_string(), &format!("{VARIABLE}={mark}")]);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not the terminal's Ctrl-C, which would end it before this process.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().ok().map(Self)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before its input is closed, which `wait` does.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
