//! Atomic and shared writes, compressed files, file locks, and panics of libraries that read files.
//! Most errors do not contain the path; callers add it.
//!
//! Internal to the workspace: nothing here is stable.
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

use tempfile::{Builder, NamedTempFile};

use target::Target;

#[cfg(feature = "zstd")]
mod compressed;
mod durable;
mod lines;
mod lock;
mod panics;
mod path_error;
mod target;

pub use durable::{create_folders, rename_into_place, sync_all_below, sync_folder};
pub use lines::{LONGEST_LINE, Lines, lines};
pub use lock::{Lock, try_lock};
pub use panics::catch_panic;
pub use path_error::PathError;

#[cfg(feature = "zstd")]
pub use compressed::{Counted, most_expanded, open, open_counted};

/// Writes and flushes `NAME.part`, then renames it to `path`. After a power failure, `path` is the
/// old file, the new one, or missing.
///
/// Only one process may write the file at a time. A symbolic link's target is replaced; devices and
/// pipes ([`is_special`]) are written to directly.
///
/// # Errors
/// Fails with the operating system's error, for example if the folder is missing or read-only, or
/// the disk is full.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match target::of(path)? {
        Target::Special(path) => return target::open_special(&path)?.write_all(bytes),
        Target::File(path) => path,
    };
    let aside = beside(&path);
    // Removed, because it may be a link to another file.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).open(&aside)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        rename_into_place(&aside, &path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&aside);
    })
}

/// Returns true for paths that can be written to but not replaced: devices, pipes, and names of
/// open files (`/dev/stdout`, `/dev/fd/3`), even if the open file is an ordinary one.
pub fn is_special(path: &Path) -> bool {
    matches!(target::of(path), Ok(Target::Special(_)))
}

/// Returns the temporary path that [`write_atomically`] uses for `path`, after following links.
pub fn part_of(path: &Path) -> PathBuf {
    match target::of(path) {
        Ok(Target::File(path)) => beside(&path),
        _ => beside(path),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    PathBuf::from(aside)
}

/// Writes like [`write_atomically`], but allows several writers at a time: each writes its own
/// `.NAME.*.part`, and the last to finish replaces `path`. If `write` fails, `path` is unchanged; a
/// killed process may leave its temporary file behind.
///
/// The file has default permissions (`0o666` minus the umask).
///
/// # Errors
/// Fails like `write` and [`write_atomically`].
pub fn write_shared(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let path = match target::of(path)? {
        Target::Special(path) => return write(&mut target::open_special(&path)?),
        Target::File(path) => path,
    };
    let folder = folder_of(&path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = temporary(folder, &format!(".{name}."))?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    sync_folder(folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file `PREFIX*.part` with default permissions, unlike `tempfile`'s `0o600`.
///
/// # Errors
/// Fails with the operating system's error, for example if the folder is missing or read-only.
pub fn temporary(folder: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(prefix).suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Lets a library write the file at `path`, then sets default permissions.
///
/// # Errors
/// Fails like `write`, or with the operating system's error if the folder is missing or read-only.
pub fn with_new_permissions<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    // A new file has the default permissions, which cannot be read otherwise without changing the
    // umask.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let permissions = File::create_new(path)?.metadata()?.permissions();
    let written = write(path).and_then(|()| Ok(fs::set_permissions(path, permissions)?));
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
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
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(write_atomically(&folder.path().join("b"), b"").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write_atomically(&folder.path().join("none/a.txt"), b"").is_err());
    }

    #[cfg(unix)]
    type Write = fn(&Path, &[u8]) -> io::Result<()>;

    #[cfg(unix)]
    const WAYS: [Write; 2] =
        [write_atomically, |path, bytes| write_shared(path, |file| file.write_all(bytes))];

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        use std::os::unix::fs::symlink;
        for write in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::create_dir(at("inside")).unwrap();
            fs::write(at("inside/a.txt"), b"old").unwrap();
            let kept = File::open(at("inside/a.txt")).unwrap();
            symlink("inside/a.txt", at("first")).unwrap();
            symlink(at("first"), at("second")).unwrap();
            write(&at("second"), b"new").unwrap();
            assert!(at("first").is_symlink() && at("second").is_symlink());
            assert_eq!(fs::read(at("inside/a.txt")).unwrap(), b"new");
            assert_eq!(io::read_to_string(kept).unwrap(), "old");
            symlink("inside/b.txt", at("third")).unwrap();
            write(&at("third"), b"first").unwrap();
            assert_eq!(fs::read(at("inside/b.txt")).unwrap(), b"first");
            assert_eq!(part_of(&at("third")), at("inside").canonicalize().unwrap().join("b.txt.part"));
            assert_eq!(fs::read_dir(at("inside")).unwrap().count(), 2);
            symlink("round", at("round")).unwrap();
            assert!(write(&at("round"), b"").unwrap_err().to_string().contains("links"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_written_to() {
        use std::os::unix::fs::{FileTypeExt as _, symlink};
        use std::process::{Command, Stdio};
        for write in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let link = folder.path().join("link");
            symlink("/dev/null", &link).unwrap();
            for path in [Path::new("/dev/null"), &link] {
                assert!(is_special(path));
                write(path, b"gone").unwrap();
            }
            assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device() && link.is_symlink());
            let pipe = folder.path().join("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
            write(&pipe, b"through").unwrap();
            assert_eq!(reader.wait_with_output().unwrap().stdout, b"through");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_is_held_open_is_written_to() {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::fs::symlink;
        for write in WAYS {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.txt");
            let mut file = File::create(&path).unwrap();
            file.write_all(b"before ").unwrap();
            let held = PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
            let link = folder.path().join("link");
            symlink(&held, &link).unwrap();
            for (place, expected) in [(&held, "before one "), (&link, "before one one ")] {
                assert!(is_special(place));
                write(place, b"one ").unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), expected);
            }
            assert!(link.is_symlink());
        }
        // Files in `/dev/shm` are ordinary.
        if Path::new("/dev/shm").is_dir() {
            assert!(!is_special(Path::new("/dev/shm/a.txt")));
        }
        assert!(write_atomically(Path::new("/dev/nul"), b"").is_err(), "a name that is mistyped");
    }

    #[cfg(unix)]
    #[test]
    fn writes_to_the_output() {
        if std::env::var_os("TURNWISE_WRITES_TO_THE_OUTPUT").is_some() {
            for (number, write) in WAYS.into_iter().enumerate() {
                write(Path::new("/dev/stdout"), format!("written {number}\n").as_bytes()).unwrap();
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_output_that_goes_to_a_file_is_neither_replaced_nor_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output.txt");
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::writes_to_the_output", "--nocapture"])
            .env("TURNWISE_WRITES_TO_THE_OUTPUT", "1")
            .stdout(File::create(&path).unwrap())
            .status();
        assert!(status.unwrap().success());
        let text = fs::read_to_string(&path).unwrap();
        let places: Vec<Option<usize>> =
            ["running 1 test", "written 0\n", "written 1\n", "1 passed"].map(|part| text.find(part)).into();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_under_the_name_of_the_part_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other.txt");
        fs::write(&other, b"mine").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("a.txt.part")).unwrap();
        write_atomically(&folder.path().join("a.txt"), b"new").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert!(!folder.path().join("a.txt").is_symlink());
        assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), b"new");
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
        temporary(folder.path(), "x").unwrap().persist(folder.path().join("placed")).unwrap();
        let by_library = |path: &Path| -> io::Result<()> {
            Builder::new().tempfile_in(folder.path())?.persist(path)?;
            assert_ne!(mode("library"), mode("plain"), "what the library does is what is corrected");
            Ok(())
        };
        with_new_permissions(&folder.path().join("library"), by_library).unwrap();
        for name in ["shared", "placed", "library"] {
            assert_eq!(mode(name), mode("plain"), "{name}");
        }
    }
}
