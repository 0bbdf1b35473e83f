//! Finds the Python interpreter.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A Python interpreter that a sandbox can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The interpreter, with links, virtual environments and version managers resolved.
    pub program: PathBuf,
    /// Folder with the standard library, to be passed to [`crate::Sandbox::new`].
    pub folder: PathBuf,
    /// Version, such as `3.11`.
    pub version: String,
}

const ASK: &str = "import os, sys; print(os.path.realpath(sys.executable)); print(os.path.realpath(sys.base_prefix)); \
                   print('%d.%d' % sys.version_info[:2])";

impl Python {
    /// Finds `python3` in `PATH`; `None` if it does not start.
    pub fn find() -> Option<Self> {
        let output = Command::new("python3").args(["-I", "-c", ASK]).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut lines = text.lines();
        let mut next = || lines.next().filter(|line| !line.is_empty());
        let (program, folder, version) = (next()?.into(), next()?.into(), next()?.to_owned());
        output.status.success().then_some(Self { program, folder, version })
    }
}
