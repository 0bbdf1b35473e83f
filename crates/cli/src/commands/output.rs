//! Files that a command writes when its long work is done, checked before it begins.

use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::{Context as _, bail};

/// Makes the folder of a file that an option names, and refuses one that cannot be written. What is there stays as it is.
pub(crate) fn check_output(option: &str, path: &Path) -> anyhow::Result<()> {
    let shown = || format!("{option} {}", path.display());
    if path.is_dir() {
        bail!("{}: is a folder; name a file", shown());
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(shown)?;
    }
    let there = path.exists();
    OpenOptions::new().append(true).create(true).open(path).with_context(shown)?;
    if !there {
        fs::remove_file(path).with_context(shown)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/result.json");
        check_output("--out", &path).unwrap();
        assert!(path.parent().unwrap().is_dir() && !path.exists());
        fs::write(&path, "kept").unwrap();
        check_output("--out", &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let refused = |path: &Path| format!("{:#}", check_output("--out", path).unwrap_err());
        assert!(refused(folder.path()).contains("is a folder; name a file"));
        assert!(refused(&path.join("inside")).contains("--out"));
    }
}
