//! Layout of a sweep's directory:
//!
//! ```text
//! runs/<sweep>/
//!   <entry>-seed-<s>/            a run directory
//!   warm-starts/<hash>/          run directory of a warm start that several runs share
//!   logs/<run>.log               output of the run's process
//! ```

use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(runs: &Path, sweep: &str) -> Self {
        Self { root: runs.join(sweep) }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn warm_starts(&self) -> PathBuf {
        self.root.join("warm-starts")
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }
}
