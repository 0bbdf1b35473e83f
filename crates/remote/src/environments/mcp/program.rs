//! The process of an MCP server that communicates over stdin and stdout.

use std::io;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep};
use turnwise_env::process::group::Group;

use super::settings::McpConfig;

/// Environment variables passed to every server process.
const USUAL: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "TEMP"];

const STDERR: usize = 2048;

/// How long a server may take to exit after its stdin was closed.
const GRACE: Duration = Duration::from_secs(3);

/// A server process with its descendants. All of these processes are killed when the value is
/// dropped or Turnwise's process dies.
#[derive(Debug)]
pub(super) struct Program(Group);

impl Program {
    /// Starts the server, and keeps the end of its stderr in `kept`.
    ///
    /// # Errors
    /// Fails if the command cannot be started.
    pub(super) fn start(
        config: &McpConfig,
        kept: &Arc<Mutex<Vec<u8>>>,
    ) -> io::Result<(Self, (ChildStdout, ChildStdin))> {
        let mut program = Self(Group::spawn(&mut command(config))?);
        let (Some(stdin), Some(stdout), Some(stderr)) = program.0.take_pipes() else {
            return Err(io::Error::other("its standard streams are not connected"));
        };
        tokio::spawn(keep(ChildStderr::from_std(stderr)?, Arc::clone(kept)));
        let pipes = (ChildStdout::from_std(stdout)?, ChildStdin::from_std(stdin)?);
        Ok((program, pipes))
    }

    /// Waits for the server to exit after its stdin was closed, and kills it if it does not.
    pub(super) async fn end(mut self) {
        let until = Instant::now() + GRACE;
        while !self.0.has_ended() && Instant::now() < until {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Returns the command that starts the server, with a minimal set of environment variables.
fn command(config: &McpConfig) -> Command {
    let mut command = Command::new(config.command.first().map(String::as_str).unwrap_or_default());
    command.args(config.command.iter().skip(1)).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in USUAL.into_iter().chain(config.environment.iter().map(String::as_str)) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(directory) = &config.directory {
        command.current_dir(directory);
    }
    command
}

async fn keep(mut errors: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&buffer[..count]);
        let over = kept.len().saturating_sub(STDERR);
        kept.drain(..over);
    }
}
