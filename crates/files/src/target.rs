//! Output paths, resolved to a replaceable file, or to a device, pipe or open file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const MOST_LINKS: usize = 40;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A regular or new file.
    File(PathBuf),
    /// A device, pipe or open file: written to directly, because it cannot be replaced.
    Special(PathBuf),
}

/// Follows the symbolic links of an output path. The last component of the path, or of a link's
/// target, need not exist.
pub(crate) fn of(path: &Path) -> io::Result<Target> {
    let mut path = path.to_path_buf();
    let mut device = false;
    for _ in 0..MOST_LINKS {
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        // With the folder resolved, `/dev/fd` is recognized.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
        let full = folder.join(name);
        // Links in `/proc` are open files, whose text need not be a path.
        if full.starts_with("/proc") {
            return Ok(Target::Special(full));
        }
        // `/dev/shm` has ordinary files.
        device |= full.starts_with("/dev") && !full.starts_with("/dev/shm");
        match fs::symlink_metadata(&full) {
            Ok(found) if found.is_symlink() => path = folder.join(fs::read_link(&full)?),
            Ok(found) if device || !found.is_file() && !found.is_dir() => return Ok(Target::Special(full)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if device => return Ok(Target::Special(full)),
            _ => return Ok(Target::File(full)),
        }
    }
    Err(io::Error::other("too many links, one behind the other"))
}

/// Opens a special target for writing. Output to an open regular file is appended.
pub(crate) fn open_special(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    if let Some(own) = own_output(path)? {
        return Ok(own);
    }
    File::options().append(true).open(path)
}

/// Returns the program's own stdout or stderr if the path names it, because a separate handle would
/// overwrite earlier output.
#[cfg(unix)]
fn own_output(path: &Path) -> io::Result<Option<File>> {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    let folders = [PathBuf::from("/dev/fd"), PathBuf::from(format!("/proc/{}/fd", std::process::id()))];
    let own = path.parent().is_some_and(|folder| folders.iter().any(|own| own == folder));
    let descriptor = match path.file_name().and_then(|name| name.to_str()).filter(|_| own) {
        Some("1") => {
            let mut output = io::stdout();
            output.flush()?;
            output.as_fd().try_clone_to_owned()?
        }
        Some("2") => io::stderr().as_fd().try_clone_to_owned()?,
        _ => return Ok(None),
    };
    Ok(Some(File::from(descriptor)))
}
