//! Runs untrusted commands without docker and without root.
//!
//! Internal to the workspace: nothing here is stable.
//!
//! A [`Sandbox`] starts a command in its own user, mount, process, network, IPC and host-name namespaces. The
//! command sees system programs (read-only) and the in-memory folders `/work`, with the given files, and
//! `/tmp`. With a [`Root`], it sees an image folder (read-only) instead of the system programs, and writable
//! folders that keep their changes. Landlock, seccomp and rlimits add a second barrier. When the command
//! ends, all its processes are killed and the files of `/work` are returned.
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

mod error;
#[cfg(target_os = "linux")]
mod linux;
mod python;
mod rust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::{SandboxError, Stage};
pub use python::Python;
pub use rust::Rust;

/// Files by their path in `/work`, such as `src/a.py`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Resource limits of a command. A command that exceeds a limit never affects other commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time.
    pub wall: Duration,
    /// CPU time of all processes of the command.
    pub cpu: Duration,
    /// Memory in bytes: the address space of each process, and the resident memory of all processes
    /// together.
    pub memory: u64,
    /// Number of processes and threads.
    pub processes: u32,
    /// Bytes of standard output and standard error together.
    pub output: usize,
    /// Bytes of all files in `/work` and `/tmp`, and by which the writable folders of a [`Root`]
    /// may grow.
    pub disk: u64,
    /// Number of files and folders in `/work` and `/tmp`.
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

/// A command to run in `/work`, or in [`Root::start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Absolute path of the program in the sandbox.
    pub program: PathBuf,
    /// Arguments, without the program.
    pub arguments: Vec<String>,
    /// All environment variables of the command.
    pub variables: BTreeMap<String, String>,
}

impl Command {
    /// Creates a command without arguments, with the usual environment variables.
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

    /// Creates a command that runs a shell script.
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
    /// The command exited with this code.
    Exited(i32),
    /// This signal killed the command, for example 9 at the CPU limit of a single process.
    Signalled(i32),
    /// It exceeded [`Limits::wall`].
    WallTime,
    /// It exceeded [`Limits::cpu`].
    CpuTime,
    /// The processes of the command together exceeded [`Limits::memory`].
    Memory,
    /// It exceeded [`Limits::output`].
    Output,
    /// The writable folders of a [`Root`] grew by more than [`Limits::disk`].
    Disk,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Standard output and standard error, interleaved as written.
    pub output: Vec<u8>,
    /// Regular files in `/work` after the command; links, empty folders and modes are not returned.
    pub files: Files,
    /// Number of skipped entries of `/work`: unreadable, too deep, too large, or with a non-UTF-8
    /// name.
    pub left_out: usize,
}

/// An image folder as the root of a sandbox.
///
/// A command sees the folder read-only, with its user as `root`, and starts in [`Self::start`]. The
/// writable folders keep their changes after a command; [`copy_folder`] makes one. `/work` and
/// `/tmp` are in memory, as in other sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The image: a folder with `bin`, `usr` and the like.
    pub folder: PathBuf,
    /// Paths directly below `/` that are left out.
    pub hidden: Vec<PathBuf>,
    /// Absolute paths in the root, each with the folder of the host that is there.
    pub writable: Vec<(PathBuf, PathBuf)>,
    /// Working folder of commands.
    pub start: PathBuf,
}

/// Copies a folder of an image, to be writable in a [`Root`]. Sockets, pipes and devices are left
/// out.
///
/// # Errors
/// Fails on systems other than Linux, and if the folder cannot be read or the copy not be written.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), SandboxError> {
    #[cfg(target_os = "linux")]
    return linux::copy_folder(from, to);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (from, to);
        Err(SandboxError::Unsupported(std::env::consts::OS))
    }
}

/// Runs commands; several threads can run commands at the same time.
#[derive(Debug)]
pub struct Sandbox {
    #[cfg(target_os = "linux")]
    inner: linux::Sandbox,
}

impl Sandbox {
    /// Prepares a sandbox and runs an empty command in it, to detect a refusal by the kernel early.
    ///
    /// Commands see `folders` read-only, in addition to `/usr`, `/bin`, `/lib` and the like.
    ///
    /// # Errors
    /// Fails on systems other than Linux, if a folder cannot be read, or if the kernel refuses a
    /// part of the setup. The error says what to change.
    pub fn new(folders: &[PathBuf]) -> Result<Self, SandboxError> {
        #[cfg(target_os = "linux")]
        return linux::Sandbox::new(folders).map(|inner| Self { inner });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folders;
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }

    /// Prepares a sandbox with an image folder as its root, and runs an empty command in it.
    ///
    /// # Errors
    /// As [`Self::new`]; also fails if the image has no `/bin/sh`.
    pub fn in_root(root: &Root) -> Result<Self, SandboxError> {
        #[cfg(target_os = "linux")]
        return linux::Sandbox::in_root(root).map(|inner| Self { inner });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = root;
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }

    /// Runs a command with files, and returns when all its processes are gone.
    ///
    /// # Errors
    /// Fails if a path or argument is invalid, the files exceed the limits, or the setup fails. A
    /// command that fails is an [`Outcome`], not an error.
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
