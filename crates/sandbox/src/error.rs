//! Sandbox errors.

use std::fmt;
use std::io;

/// Setup stages in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// New namespaces.
    Namespaces,
    /// Ids of the user namespace.
    Users,
    /// Pipes and processes.
    Processes,
    /// System folders.
    System,
    /// Mounts of the root and the in-memory folders.
    Mounts,
    /// Input files.
    Files,
    /// Change of root.
    Root,
    /// Resource limits.
    Limits,
    /// Landlock rules.
    Landlock,
    /// Seccomp filter.
    Seccomp,
    /// Start of the command.
    Command,
}

impl Stage {
    pub(crate) const ALL: [Self; 11] = [
        Self::Namespaces,
        Self::Users,
        Self::Processes,
        Self::System,
        Self::Mounts,
        Self::Files,
        Self::Root,
        Self::Limits,
        Self::Landlock,
        Self::Seccomp,
        Self::Command,
    ];

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Namespaces => (
                "new namespaces",
                "allow user namespaces: sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 \
                 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), and in a container a seccomp \
                 profile that allows `unshare`; Linux 5.14 or newer",
            ),
            Self::Users => (
                "a user of a new user namespace",
                "allow writing /proc/PID/uid_map: run as a user that exists in the container",
            ),
            Self::Processes => {
                ("pipes or processes", "raise the limits of open files and processes (ulimit -n, -u)")
            }
            Self::System => (
                "mounts of the system's folders",
                "use Linux 5.14 or newer, and folders that this user can read",
            ),
            Self::Mounts => (
                "mounts in a user namespace",
                "allow them: sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), a container profile \
                 that allows `mount`",
            ),
            Self::Files => ("the given files", "raise the limits of disk and files"),
            Self::Root => (
                "a change of the root folder",
                "run outside of a chroot; a container must allow `pivot_root`",
            ),
            Self::Limits => ("resource limits", "lower them to the limits of this process (ulimit -H -a)"),
            Self::Landlock => (
                "Landlock",
                "use Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK and started with `landlock` in lsm=",
            ),
            Self::Seccomp => ("a seccomp filter", "use a kernel built with CONFIG_SECCOMP_FILTER"),
            Self::Command => {
                ("to start the command", "check that the program is in one of the sandbox's folders")
            }
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.words().0)
    }
}

/// A sandbox error.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The system is not Linux.
    #[error(
        "the sandbox needs Linux: it is built of namespaces, Landlock and seccomp, which {0} does not have"
    )]
    Unsupported(&'static str),
    /// The kernel refuses a part of the setup.
    #[error("the kernel refuses {stage} to the sandbox ({source}); {}", stage.words().1)]
    Kernel {
        /// Refused part.
        stage: Stage,
        /// The kernel's error.
        source: io::Error,
    },
    /// A path is not a relative file path below `/work`.
    #[error(
        "`{0}` is not a valid path of a file in the sandbox: use relative paths without `..`, `.` and empty parts"
    )]
    Path(String),
    /// An argument, variable or path has a NUL byte.
    #[error("`{0}` has a NUL byte, which the kernel takes for its end")]
    Nul(String),
    /// A folder cannot be read.
    #[error("{path}: {source}; name an absolute path of a folder that this user can read")]
    Folder {
        /// The folder.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The sandbox's process ended during setup.
    #[error("the process of the sandbox was killed during its set-up; is the machine out of memory?")]
    Killed,
}
