//! `run.lock` allows only one process per run. The operating system releases the lock when the
//! process ends or is killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use turnwise_files::{Lock, try_lock};

use crate::TrainError;
use crate::record::directory::create_folders;

/// Lock file name.
pub const LOCK: &str = "run.lock";

/// Locks a run directory until dropped. The lock file contains the process id.
#[derive(Debug)]
pub struct RunLock {
    /// `None` if the file system has no locks.
    _file: Option<File>,
    root: PathBuf,
    made: bool,
}

impl RunLock {
    /// Locks a run directory, creating it if missing; `None` if another process holds the lock.
    /// Always succeeds if the file system has no locks.
    ///
    /// # Errors
    /// Fails on I/O errors.
    pub fn try_take(root: &Path) -> Result<Option<Self>, TrainError> {
        let made = !root.exists();
        let path = root.join(LOCK);
        loop {
            create_folders(root)?;
            let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
            let mut file = open.map_err(|error| TrainError::io(&path, error))?;
            let lock = |file| Self { _file: file, root: root.to_path_buf(), made };
            match try_lock(&file).map_err(|error| TrainError::io(&path, error))? {
                Lock::Taken if !is_at(&file, &path) => {}
                Lock::Taken => {
                    let _ = file.set_len(0);
                    let _ = writeln!(file, "{}", std::process::id());
                    return Ok(Some(lock(Some(file))));
                }
                Lock::Busy => return Ok(None),
                Lock::Unsupported => return Ok(Some(lock(None))),
            }
        }
    }

    /// Locks a run directory.
    ///
    /// # Errors
    /// Fails if another process holds the lock.
    pub fn take(root: &Path) -> Result<Self, TrainError> {
        Self::try_take(root)?.ok_or_else(|| {
            let holder = fs::read_to_string(root.join(LOCK)).unwrap_or_default();
            let reason = match holder.trim() {
                "" => "another process is working on this run; wait until it ends".to_owned(),
                id => format!("another process ({id}) is working on this run; wait until it ends"),
            };
            TrainError::file(root, reason)
        })
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        let alone = || fs::read_dir(&self.root).ok().map(|entries| entries.count() == 1);
        if self.made && alone() == Some(true) {
            // Removed while locked; others check whether their open file still exists.
            let _ = fs::remove_file(self.root.join(LOCK));
            let _ = fs::remove_dir(&self.root);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        matches!((file.metadata(), fs::metadata(path)), (Ok(a), Ok(b)) if id(&a) == id(&b))
    }
    #[cfg(not(unix))]
    {
        // Open files cannot be removed here.
        let _ = (file, path);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_processes_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        let lock = RunLock::take(&root).unwrap();
        assert!(RunLock::try_take(&root).unwrap().is_none());
        let error = RunLock::take(&root).unwrap_err().to_string();
        assert!(error.contains(&format!("another process ({}) is working", std::process::id())), "{error}");
        drop(lock);
        assert!(!root.exists(), "no run came of it");
        let lock = RunLock::take(&root).unwrap();
        std::fs::write(root.join("config.toml"), b"").unwrap();
        drop(lock);
        assert!(root.join(LOCK).is_file());
        assert!(RunLock::try_take(&root).unwrap().is_some());
        std::fs::write(folder.path().join("file"), b"").unwrap();
        assert!(RunLock::try_take(&folder.path().join("file")).is_err());
    }
}
