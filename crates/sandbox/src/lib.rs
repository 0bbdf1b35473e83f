//! Runs untrusted commands without docker and without root.
//!
//! A [`Sandbox`] starts a command in its own user, mount, process, network, IPC and host-name namespaces. It sees the system's
//! programs read-only, a folder `/work` in memory with the given files, and nothing else. Landlock, seccomp and rlimits are a
//! second line. When the command ends, everything that it started is killed and the files of `/work` come back.
//!
//! ```no_run
//! use turnwise_sandbox::{Command, Files, Limits, Sandbox};
//!
//! let sandbox = Sandbox::new(&[])?;
//! let files = Files::from([("a.txt".to_owned(), b"hello".to_vec())]);
//! let outcome = sandbox.run(&Command::shell("cat a.txt; touch b.txt"), &files, &Limits::default())?;
//! assert_eq!(outcome.output, b"hello");
//! assert!(outcome.files.contains_key("b.txt"));
//! # Ok::<(), turnwise_sandbox::SandboxError>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `linux/mod.rs` | starts a sandbox, watches it, ends it |
//! | `linux/child.rs` | set-up in the new processes before the command: mounts, limits, privileges |
//! | `linux/kernel.rs` | the system calls of `child.rs`, without allocation |
//! | `linux/filter.rs` | the seccomp filter: system calls that a command may make |
//! | `linux/layout.rs` | folders of the system that a command sees |
//! | `linux/collect.rs` | reads the files back |
//! | `python.rs` | finds the Python interpreter |
//! | `linux/usage.rs` | memory and CPU time of all processes of a sandbox |

mod error;
#[cfg(target_os = "linux")]
mod linux;
mod python;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use error::{SandboxError, Stage};
pub use python::Python;

/// Files by their path in `/work`, such as `src/a.py`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What a command may use. Exceeding a limit never affects another command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time from start to end.
    pub wall: Duration,
    /// CPU time of all its processes.
    pub cpu: Duration,
    /// Bytes of memory: address space of each process, and resident memory of all.
    pub memory: u64,
    /// Processes and threads at once.
    pub processes: u32,
    /// Bytes of standard output and standard error together.
    pub output: usize,
    /// Bytes of files in `/work` and `/tmp` together.
    pub disk: u64,
    /// Files and folders in `/work` and `/tmp` together.
    pub files: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(10),
            cpu: Duration::from_secs(10),
            memory: 512 << 20,
            processes: 32,
            output: 1 << 20,
            disk: 16 << 20,
            files: 2048,
        }
    }
}

/// A command to run in `/work`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Absolute path of the program in the sandbox.
    pub program: PathBuf,
    /// Arguments, without the program.
    pub arguments: Vec<String>,
    /// Environment variables; no others are set.
    pub variables: BTreeMap<String, String>,
}

impl Command {
    /// Returns a command without arguments, with the usual environment variables.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let variables = [
            ("HOME", "/work"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONHASHSEED", "0"),
            ("TMPDIR", "/tmp"),
        ];
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    /// Returns a command that runs a line in the shell.
    pub fn shell(line: &str) -> Self {
        Self::new("/bin/sh").arg("-c").arg(line)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it, such as 9 at its own CPU limit.
    Signalled(i32),
    /// It ran past [`Limits::wall`].
    WallTime,
    /// It used more than [`Limits::cpu`].
    CpuTime,
    /// Its processes together used more than [`Limits::memory`].
    Memory,
    /// It wrote more than [`Limits::output`].
    Output,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Standard output and standard error, in the order in which they were written.
    pub output: Vec<u8>,
    /// Regular files in `/work` afterwards. Links, empty folders and modes are not kept.
    pub files: Files,
    /// Number of entries of `/work` that could not be read back: unreadable, too deep, too large, or with names that are not
    /// UTF-8.
    pub left_out: usize,
}

/// A place to run commands in. One can run many commands at once, from several threads.
#[derive(Debug)]
pub struct Sandbox {
    #[cfg(target_os = "linux")]
    inner: linux::Sandbox,
}

impl Sandbox {
    /// Prepares a sandbox and runs an empty command in it, so that a refusal by the kernel is an error here.
    ///
    /// Commands see `folders` read-only, besides `/usr`, `/bin`, `/lib` and the like.
    ///
    /// # Errors
    /// Fails on other systems than Linux, if a folder cannot be read, or if the kernel refuses a part of it; the error names
    /// the part and what to change.
    pub fn new(folders: &[PathBuf]) -> Result<Self, SandboxError> {
        #[cfg(target_os = "linux")]
        return linux::Sandbox::new(folders).map(|inner| Self { inner });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folders;
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }

    /// Runs a command on files and returns once all its processes are gone.
    ///
    /// # Errors
    /// Fails if a path or an argument is invalid, if the files are larger than the limits, or if the sandbox cannot be set up.
    /// A command that fails or hits a limit is an [`Outcome`].
    pub fn run(&self, command: &Command, files: &Files, limits: &Limits) -> Result<Outcome, SandboxError> {
        #[cfg(target_os = "linux")]
        return self.inner.run(command, files, limits);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (command, files, limits);
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }
}
