//! Copies an image's writable folders and measures their sizes.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::path::Path;

use super::NOBODY;
use crate::SandboxError;

const BLOCK: u64 = 512;
const DEPTH: usize = 128;

/// Copies a folder so that commands can change the copy. Links stay links; if this program is root,
/// `nobody` owns the copy.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<(), SandboxError> {
    let failed = |source| SandboxError::Folder { path: from.display().to_string(), source };
    copy(from, to, rustix::process::geteuid().is_root(), 0).map_err(failed)
}

fn copy(from: &Path, to: &Path, give_away: bool, depth: usize) -> io::Result<()> {
    if depth > DEPTH {
        return Err(io::Error::other("its folders are too deep"));
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy(&entry.path(), &target, give_away, depth + 1)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
            if give_away {
                lchown(&target, Some(NOBODY), Some(NOBODY))?;
            }
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
            if give_away {
                chown(&target, Some(NOBODY), Some(NOBODY))?;
            }
        }
        // Sockets, pipes and devices are left out.
    }
    // Last, because the folder may be read-only.
    let mode = fs::metadata(from)?.permissions().mode();
    fs::set_permissions(to, fs::Permissions::from_mode(mode | 0o700))?;
    if give_away {
        chown(to, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}

/// Returns a folder's size on disk in bytes. Ignores files that disappear during the measurement.
pub(super) fn size(folder: &Path) -> u64 {
    let mut total = 0;
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // Does not follow links.
            let Ok(state) = entry.metadata() else { continue };
            total += state.blocks() * BLOCK;
            if state.is_dir() && depth < DEPTH {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    total
}
