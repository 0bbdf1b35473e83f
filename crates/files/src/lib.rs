//! Files that appear whole or not at all, and files that may be compressed. One helper each for all crates, whose
//! errors add the path.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("note.txt");
//! turnwise_files::write_atomically(&path, b"whole or not at all")?;
//! assert_eq!(std::fs::read(&path)?, b"whole or not at all");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::Builder;

#[cfg(feature = "zstd")]
mod compressed;

#[cfg(feature = "zstd")]
pub use compressed::{Counted, open, open_counted};

/// Writes `bytes` to `NAME.part` beside `path`, flushes them to disk and renames the file, so that `path` is the old file,
/// the new one or absent. For files that one process writes at a time: what a kill left under `NAME.part` is replaced by
/// the next write. What is there and no file (`/dev/null`, a pipe) is written to and not replaced.
///
/// # Errors
/// The operating system's, of a folder that does not exist, is full or not writable.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    let aside = part_of(path);
    let write = || {
        let mut file = File::create(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&aside);
    })
}

/// True of what is there and neither a file nor a folder: a device, a pipe.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The name beside a file under which [`write_atomically`] writes it.
pub fn part_of(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    PathBuf::from(aside)
}

/// The same for files that several processes or threads may write at a time: each writes under a name of its own,
/// `.NAME.*.part`, and the last one to finish wins. `write` may produce the content piece by piece; where it fails, `path`
/// stays as it was. A kill can leave a file behind, which nothing reads.
///
/// The new file has the permissions of any file that is created (`0o666` less the umask).
///
/// # Errors
/// Those of `write`, and those of [`write_atomically`].
pub fn write_shared(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomically(&path, b"old").unwrap();
        let failed = write_shared(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("disk"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_shared(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // What is no file stays what it is.
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt as _;
            write_atomically(Path::new("/dev/null"), b"gone").unwrap();
            assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        }
        // A folder in the way.
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(write_atomically(&folder.path().join("b"), b"").is_err());
        // Nothing is left beside them.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write_atomically(&folder.path().join("none/a.txt"), b"").is_err());
    }

    #[test]
    fn what_a_kill_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt.part"), b"half of it").unwrap();
        write_atomically(&folder.path().join("a.txt"), b"new").unwrap();
        assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_what_they_may_read_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        fs::write(folder.path().join("plain"), b"").unwrap();
        write_shared(&folder.path().join("shared"), |_| Ok(())).unwrap();
        assert_eq!(mode("shared"), mode("plain"));
    }
}
