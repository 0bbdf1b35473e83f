//! Checks output files before the long computation that fills them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use turnwise_files::{create_folders, is_special, part_of, write_shared};

/// Creates an output's parent folder and rejects unwritable paths, without changing an existing
/// file.
pub(crate) fn check_output(option: &str, path: &Path) -> anyhow::Result<()> {
    let shown = || format!("{option} {}", path.display());
    if path.is_dir() {
        bail!("{}: is a folder; name a file", shown());
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        create_folders(folder).with_context(shown)?;
    }
    if is_special(path) {
        // Closing a pipe would signal end-of-file to its reader.
        if is_pipe(path) {
            return Ok(());
        }
        OpenOptions::new().write(true).open(path).with_context(shown)?;
        return Ok(());
    }
    let part = part_of(path);
    // Remains of an earlier write; a link must not be followed.
    let _ = fs::remove_file(&part);
    let made = OpenOptions::new().write(true).create_new(true).open(&part);
    made.and_then(|_| fs::remove_file(&part)).with_context(shown)
}

/// Like [`check_output`], but also rejects overwriting `input`. `holds` describes the content of
/// `input` in the error message.
pub(crate) fn check_output_of(option: &str, path: &Path, input: &Path, holds: &str) -> anyhow::Result<()> {
    if is_same_file(input, path) {
        bail!("{option} {}: is the file of the {holds}; name another file", path.display());
    }
    check_output(option, path)
}

/// Rejects a wrong extension, because a mistyped output path could overwrite a file of another
/// kind.
pub(crate) fn check_ending(option: &str, path: &Path, ending: &str) -> anyhow::Result<()> {
    let has_ending = path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
    if !has_ending && !is_special(path) {
        bail!("{option} {}: give it a name that ends in .{ending}", path.display());
    }
    Ok(())
}

pub(crate) fn write_text(option: &str, path: &Path, text: &str) -> anyhow::Result<()> {
    write_output(option, path, |file| Ok(file.write_all(text.as_bytes())?))
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

/// Writes atomically: on failure, an existing file stays unchanged. Follows symbolic links; writes
/// directly to devices and pipes.
pub(crate) fn write_output<T>(
    option: &str,
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (mut found, mut failure) = (None, None);
    let written = write_shared(path, |file| match write(file) {
        Ok(value) => {
            found = Some(value);
            Ok(())
        }
        Err(error) => {
            failure = Some(error);
            Err(io::Error::other("its content could not be made"))
        }
    });
    let shown = || format!("{option} {}", path.display());
    if let Some(error) = failure {
        let is_of_file = error.is::<io::Error>() && error.chain().count() == 1;
        return if is_of_file { Err(error).with_context(shown) } else { Err(error) };
    }
    written.with_context(shown)?;
    found.with_context(shown)
}

pub(crate) fn is_same_file(first: &Path, second: &Path) -> bool {
    let place = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
        })
    };
    matches!((place(first), place(second)), (Some(first), Some(second)) if first == second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/result.json");
        check_output("--output", &path).unwrap();
        assert!(path.parent().unwrap().is_dir() && !path.exists());
        fs::write(&path, "kept").unwrap();
        check_output("--output", &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        #[cfg(unix)]
        {
            let other = folder.path().join("other");
            fs::write(&other, "untouched").unwrap();
            std::os::unix::fs::symlink(&other, part_of(&path)).unwrap();
            check_output("--output", &path).unwrap();
            assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
        }
        #[cfg(unix)]
        {
            let link = folder.path().join("link.json");
            std::os::unix::fs::symlink(folder.path().join("later.json"), &link).unwrap();
            check_output("--output", &link).unwrap();
            assert!(link.is_symlink() && !link.exists());
            check_output("--output", Path::new("/dev/null")).unwrap();
        }
        assert!(is_same_file(&path, &folder.path().join("new/../new/result.json")));
        let absent = folder.path().join("new/later.json");
        assert!(
            is_same_file(&absent, &folder.path().join("new/./later.json")) && !is_same_file(&absent, &path)
        );
        let refused = |path: &Path| format!("{:#}", check_output("--output", path).unwrap_err());
        assert!(refused(folder.path()).contains("is a folder; name a file"));
        assert!(refused(&path.join("inside")).contains("--output"));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_opened_before_there_is_something_to_write() {
        use std::io::Read as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let reader = {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut text = String::new();
                fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
                text
            })
        };
        check_output("--output", &path).unwrap();
        write_output("--output", &path, |file| Ok(file.write_all(b"rows")?)).unwrap();
        assert_eq!(reader.join().unwrap(), "rows");
    }
}
