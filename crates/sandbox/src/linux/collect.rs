//! Reads back the files of a sandbox.
//!
//! The command is untrusted: links are not followed, only regular files are read, and size, number
//! and depth are bounded.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::Files;

const DEPTH: usize = 24;

/// Returns files of at most `budget` bytes in total, and the number of skipped entries.
pub(super) fn collect(work: &OwnedFd, budget: u64) -> (Files, usize) {
    let mut collected = Collected { files: Files::new(), left_out: 0, budget };
    collected.folder(work, "", 0);
    (collected.files, collected.left_out)
}

struct Collected {
    files: Files,
    left_out: usize,
    budget: u64,
}

impl Collected {
    fn folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) {
        let Ok(entries) = Dir::read_from(folder) else {
            self.left_out += 1;
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.left_out += 1;
                return;
            };
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else {
                self.left_out += 1;
                continue;
            };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if self.entry(folder, name, path, depth).is_err() {
                self.left_out += 1;
            }
        }
    }

    fn entry(&mut self, folder: &OwnedFd, name: &str, path: String, depth: usize) -> Result<(), Errno> {
        // Without `NONBLOCK`, opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(folder, name, flags, Mode::empty())?;
        let state = fstat(&opened)?;
        match FileType::from_raw_mode(state.st_mode) {
            FileType::Directory if depth < DEPTH => self.folder(&opened, &path, depth + 1),
            FileType::RegularFile => {
                // A sparse file may be larger than memory.
                let size = u64::try_from(state.st_size).unwrap_or(u64::MAX);
                self.budget = self.budget.checked_sub(size).ok_or(Errno::FBIG)?;
                let mut bytes = Vec::new();
                File::from(opened).take(size).read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
                self.files.insert(path, bytes);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}
