//! Contents of a disk after a power cut: the bytes of each file at its last flush, and the names in
//! each folder at its last flush. POSIX guarantees no more; most file systems keep more.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Device and inode.
type Id = (u64, u64);

/// The flushed state of a folder and all below it.
#[derive(Debug)]
pub(super) struct Disk {
    root: Id,
    files: HashMap<Id, Vec<u8>>,
    folders: HashMap<Id, BTreeMap<OsString, Id>>,
    /// Every file and folder seen, kept open so that its inode is not reused.
    held: HashMap<Id, File>,
}

fn id(metadata: &fs::Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

impl Disk {
    /// Returns the state of a disk on which all of this folder is flushed.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let root = id(&fs::metadata(folder)?);
        let mut disk = Self { root, files: HashMap::new(), folders: HashMap::new(), held: HashMap::new() };
        disk.flushed_with_all_below(folder)?;
        Ok(disk)
    }

    fn flushed_with_all_below(&mut self, path: &Path) -> io::Result<()> {
        self.flushed(path)?;
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.flushed_with_all_below(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// Records that a file, or the names in a folder, are flushed. The path may be one of `/proc/ID/fd`.
    pub(super) fn flushed(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let own = id(&metadata);
        if metadata.is_dir() {
            let mut names = BTreeMap::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let entered = File::open(entry.path())?;
                let child = id(&entered.metadata()?);
                self.held.entry(child).or_insert(entered);
                names.insert(entry.file_name(), child);
            }
            self.folders.insert(own, names);
        } else {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            self.files.insert(own, bytes);
        }
        self.held.entry(own).or_insert(file);
        Ok(())
    }

    /// Replaces the contents of the folder by those of the disk.
    pub(super) fn restore(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        self.write(self.root, folder)
    }

    fn write(&self, from: Id, to: &Path) -> io::Result<()> {
        for (name, child) in self.folders.get(&from).into_iter().flatten() {
            let path = to.join(name);
            let is_folder = match self.held.get(child) {
                Some(file) => file.metadata()?.is_dir(),
                None => self.folders.contains_key(child),
            };
            if is_folder {
                fs::create_dir(&path)?;
                self.write(*child, &path)?;
            } else {
                fs::write(&path, self.files.get(child).map_or(&[][..], Vec::as_slice))?;
            }
        }
        Ok(())
    }
}
