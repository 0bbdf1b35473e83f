//! The agent's process and its children.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use turnwise_env::process::group::Group;

use crate::inbox::Inbox;

const STDERR: usize = 4096;
/// Longer lines of stdout are read in pieces of this many bytes.
const LINE: u64 = 1 << 20;

/// How to start an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSettings {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: Option<PathBuf>,
    /// Whether one process plays several episodes.
    pub reused: bool,
}

/// A running agent.
pub struct Program {
    group: Group,
    stdin: Option<ChildStdin>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    /// Requests and reports.
    pub inbox: Arc<Inbox>,
}

impl Program {
    /// Starts an agent with the environment variables `variables`.
    ///
    /// # Errors
    /// Fails if the program cannot be started; the message contains the command.
    pub fn start(
        settings: &ProgramSettings,
        inbox: Arc<Inbox>,
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let line = settings.command.join(" ");
        let failed = |reason: &dyn std::fmt::Display| format!("env.command: cannot start `{line}`: {reason}");
        let Some((name, arguments)) = settings.command.split_first() else {
            return Err(failed(&"the command is empty; give the program and its arguments"));
        };
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(variables.iter().copied());
        if let Some(directory) = &settings.directory {
            command.current_dir(directory);
        }
        let mut group = Group::spawn(&mut command).map_err(|error| failed(&error))?;
        let (stdin, Some(stdout), Some(mut errors)) = group.take_pipes() else {
            return Err(failed(&"its output is not connected"));
        };
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let read_lines = {
            let inbox = Arc::clone(&inbox);
            move || {
                let mut stdout = BufReader::new(stdout);
                let mut line = Vec::new();
                // Libraries may print bytes that are not UTF-8.
                while matches!(stdout.by_ref().take(LINE).read_until(b'\n', &mut line), Ok(1..)) {
                    inbox.line(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                inbox.exited();
            }
        };
        let keep_errors = {
            let stderr = Arc::clone(&stderr);
            move || {
                let mut piece = [0; 1024];
                while let Ok(length @ 1..) = errors.read(&mut piece) {
                    let mut kept = stderr.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend(&piece[..length]);
                    let surplus = kept.len().saturating_sub(STDERR);
                    kept.drain(..surplus);
                }
            }
        };
        let threads: [Box<dyn FnOnce() + Send>; 2] = [Box::new(read_lines), Box::new(keep_errors)];
        for thread in threads {
            std::thread::Builder::new()
                .name("agent".to_owned())
                .spawn(thread)
                .map_err(|error| failed(&error))?;
        }
        Ok(Self { group, stdin, stderr, inbox })
    }

    /// Writes an episode as one line to the program's stdin, which is then closed if `last` is set.
    pub fn send(&mut self, episode: &str, last: bool) {
        if let Some(stdin) = &mut self.stdin {
            // Fails if the program does not read stdin; its environment variables have the same
            // data.
            let _ = writeln!(stdin, "{episode}").and_then(|()| stdin.flush());
        }
        if last {
            self.stdin = None;
        }
    }

    /// Returns true if the program has exited.
    pub fn has_ended(&mut self) -> bool {
        self.group.has_ended()
    }

    /// Waits up to 2 s for the program to exit, then kills it. Returns the exit status, or `None`
    /// if it is unknown.
    pub fn exit(&mut self) -> Option<ExitStatus> {
        const GRACE: Duration = Duration::from_secs(2);
        let until = Instant::now() + GRACE;
        while !self.group.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.group.kill();
        self.group.status()
    }

    /// Returns the last lines of stderr for an error message.
    pub fn stderr(&self) -> String {
        std::thread::sleep(Duration::from_millis(50));
        let kept: Vec<u8> =
            self.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept).trim().to_owned();
        if text.is_empty() { text } else { format!("; the end of its stderr:\n{text}") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.group.kill();
    }
}
