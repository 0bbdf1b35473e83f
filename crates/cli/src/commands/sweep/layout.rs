//! Folders and files of a sweep.
//!
//! ```text
//! runs/<sweep>/
//!   <entry>-seed-<s>/            a run directory
//!   warm-starts/<hash>/          a run directory of a warm start that several runs share
//!   logs/<run>.log               what the run's process said
//! ```

use std::path::{Path, PathBuf};

/// The folder of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Returns the folder of a sweep in the folder of all runs.
    pub(crate) fn new(runs: &Path, sweep: &str) -> Self {
        Self { root: runs.join(sweep) }
    }

    /// Returns the folder that the sweep's runs are in.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a run's directory.
    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the folder that shared warm starts are in.
    pub(super) fn warm_starts(&self) -> PathBuf {
        self.root.join("warm-starts")
    }

    /// Returns the file that a run's process writes to.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }
}
