//! Flushing to disk, so that files survive a power failure. Folders must be flushed too, because
//! they store their files' names.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Flushes a folder's entries, so that a new or renamed file survives a power failure. Does nothing
/// if folders cannot be flushed, as on Windows, on some file systems, or without read permission.
///
/// # Errors
/// Fails if the folder does not exist or the disk fails.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// Renames a flushed file or folder within its folder, and flushes that folder.
///
/// # Errors
/// Fails if the disk fails, or if `to` is a non-empty folder.
pub fn rename_into_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder(to.parent().unwrap_or(Path::new("")))
}

/// Flushes a folder and everything below it, without following links.
///
/// # Errors
/// Fails if the folder cannot be read or the disk fails.
pub fn sync_all_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_all_below(&entry.path())?;
        } else if kind.is_file() {
            // Windows flushes only writable files.
            File::options().read(true).write(cfg!(windows)).open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Creates a folder and its parents, and flushes their entries.
///
/// # Errors
/// Fails if a folder cannot be created or the disk fails.
pub fn create_folders(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    create_folders(parent)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(parent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_created_with_their_parents() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        create_folders(&deep).unwrap();
        create_folders(&deep).unwrap();
        fs::write(deep.join("x"), b"x").unwrap();
        sync_all_below(folder.path()).unwrap();
        assert!(create_folders(&deep.join("x/y")).is_err(), "a file is in the way");
        assert!(sync_folder(&folder.path().join("none")).is_err());
        sync_folder(Path::new("")).unwrap();
    }
}
