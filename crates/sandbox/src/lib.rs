//! Runs untrusted commands without docker or root.
//!
//! Internal to the workspace: nothing here is stable.
//!
//! A [`Sandbox`] runs a command in its own user, mount, process, network, IPC and host-name
//! namespaces. The command sees two in-memory folders, `/work` with the given files and `/tmp`, and
//! either read-only system programs or the image folder of a [`Root`]. Landlock, seccomp and rlimits
//! add a second barrier. When the command ends, its processes are killed and the files of `/work`
//! are returned.
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

/// Files by path in `/work`, such as `src/a.py`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Resource limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum wall-clock time.
    pub wall: Duration,
    /// Maximum CPU time of all processes together.
    pub cpu: Duration,
    /// Maximum bytes of address space for each process, and of resident memory for all processes
    /// together.
    pub memory: u64,
    /// Maximum number of processes and threads.
    pub processes: u32,
    /// Maximum bytes of output, including standard error.
    pub output: usize,
    /// Maximum bytes of all files in `/work` and `/tmp`; also the number of bytes by which a
    /// [`Root`]'s writable folders may grow.
    pub disk: u64,
    /// Maximum number of files and folders in `/work` and `/tmp`.
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

/// A command, run in `/work` or [`Root::start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Absolute path in the sandbox.
    pub program: PathBuf,
    /// Arguments without the program.
    pub arguments: Vec<String>,
    /// All environment variables.
    pub variables: BTreeMap<String, String>,
}

impl Command {
    /// Creates a command with the usual environment variables.
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

    /// Creates a shell command.
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
    /// Exit code.
    Exited(i32),
    /// Signal that killed the command, for example 9 if a process exceeded its CPU limit.
    Signalled(i32),
    /// Exceeded [`Limits::wall`].
    WallTime,
    /// Exceeded [`Limits::cpu`].
    CpuTime,
    /// The processes together exceeded [`Limits::memory`].
    Memory,
    /// Exceeded [`Limits::output`].
    Output,
    /// The writable folders of a [`Root`] grew by more than [`Limits::disk`].
    Disk,
}

/// A command's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Output and standard error, interleaved.
    pub output: Vec<u8>,
    /// Regular files left in `/work`, without their permissions.
    pub files: Files,
    /// Number of skipped entries: unreadable, too deep, too large, or not UTF-8.
    pub left_out: usize,
}

/// An image folder as a sandbox's root, read-only except for `writable` folders, which keep their
/// changes.
///
/// The user is `root`. `/work` and `/tmp` are in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Image folder, with `bin`, `usr` and the like.
    pub folder: PathBuf,
    /// Paths directly below `/` that commands do not see.
    pub hidden: Vec<PathBuf>,
    /// Writable folders: each an absolute path in the root, and the host's folder that appears
    /// there (see [`copy_folder`]).
    pub writable: Vec<(PathBuf, PathBuf)>,
    /// Working directory of commands.
    pub start: PathBuf,
}

/// Copies an image folder so that it can be writable in a [`Root`]. Leaves out sockets, pipes and
/// devices.
///
/// # Errors
/// Fails if reading or writing fails, or if the system is not Linux.
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), SandboxError> {
    #[cfg(target_os = "linux")]
    return linux::copy_folder(from, to);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (from, to);
        Err(SandboxError::Unsupported(std::env::consts::OS))
    }
}

/// Runs commands; several threads can use it at once.
#[derive(Debug)]
pub struct Sandbox {
    #[cfg(target_os = "linux")]
    inner: linux::Sandbox,
}

impl Sandbox {
    /// Prepares a sandbox in which `folders` and the system folders are read-only, and tests it.
    ///
    /// # Errors
    /// Fails if the system is not Linux, a folder is unreadable, or the kernel refuses a part of
    /// the setup; the error message names the fix.
    pub fn new(folders: &[PathBuf]) -> Result<Self, SandboxError> {
        #[cfg(target_os = "linux")]
        return linux::Sandbox::new(folders).map(|inner| Self { inner });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folders;
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }

    /// Prepares a sandbox with an image as root, and tests it.
    ///
    /// # Errors
    /// Fails like [`Self::new`], or if the image has no `/bin/sh`.
    pub fn in_root(root: &Root) -> Result<Self, SandboxError> {
        #[cfg(target_os = "linux")]
        return linux::Sandbox::in_root(root).map(|inner| Self { inner });
        #[cfg(not(target_os = "linux"))]
        {
            let _ = root;
            Err(SandboxError::Unsupported(std::env::consts::OS))
        }
    }

    /// Runs a command and returns when all its processes have ended.
    ///
    /// # Errors
    /// Fails if a path or argument is invalid, the files are too large, or the setup fails. A
    /// command that fails is not an error but an [`Outcome`].
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
