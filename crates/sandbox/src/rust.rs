//! Finds the Rust compiler.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A Rust compiler that a sandbox can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rust {
    /// The compiler, not rustup's proxy.
    pub program: PathBuf,
    /// Folder with the standard library, to be passed to [`crate::Sandbox::new`].
    pub folder: PathBuf,
}

impl Rust {
    /// Finds `rustc` in `PATH`; `None` if it does not start.
    pub fn find() -> Option<Self> {
        // A `rust-toolchain.toml` in the current folder could make rustup install a toolchain.
        let output = Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).canonicalize().ok()?;
        let program = folder.join("bin/rustc");
        (output.status.success() && program.is_file()).then_some(Self { program, folder })
    }
}
