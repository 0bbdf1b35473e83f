//! What a command sees: read-only system folders or image entries, and writable folders.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use super::child::MOST_MOUNTS;
use super::kernel::{ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY};
use crate::{Root, SandboxError};

/// Programs, libraries and the loader's cache; missing paths are skipped.
const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// In-memory folders of the new root; `data` exists only during setup.
const OWN: [&str; 4] = ["data", "work", "tmp", "dev"];

#[derive(Debug)]
pub(super) struct Mount {
    pub(super) source: CString,
    pub(super) target: CString,
    pub(super) attributes: u64,
    pub(super) is_file: bool,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) folders: Vec<CString>,
    pub(super) mounts: Vec<Mount>,
    pub(super) links: Vec<(CString, CString)>,
    pub(super) readable: Vec<PathBuf>,
}

pub(super) fn c_path(path: &Path) -> Result<CString, SandboxError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| SandboxError::Nul(path.display().to_string()))
}

impl Layout {
    /// Adds folders to the default layout. Fails if a folder is `/` or unreadable, or if there are
    /// too many folders.
    pub(super) fn new(further: &[PathBuf]) -> Result<Self, SandboxError> {
        let mut layout = Self::default();
        let mut folders: BTreeSet<PathBuf> = OWN.map(PathBuf::from).into();
        for path in SYSTEM.map(Path::new) {
            // This system has no such path.
            let Ok(kind) = path.symlink_metadata() else { continue };
            let relative = relative(path);
            folders.extend(relative.ancestors().skip(1).map(Path::to_path_buf));
            if kind.is_symlink() && path.parent() == Some(Path::new("/")) {
                let target = fs::read_link(path).map_err(|source| folder_error(path, source))?;
                layout.links.push((c_path(&target)?, c_path(&relative)?));
            } else {
                layout.add(path, &relative, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, &mut folders)?;
                layout.readable.push(path.to_path_buf());
            }
        }
        layout.add_devices(&mut folders)?;
        for path in further {
            let real = path.canonicalize().map_err(|source| folder_error(path, source))?;
            let inside = |known: &PathBuf| real.starts_with(known);
            if layout.readable.iter().any(inside) {
                continue;
            }
            if real == Path::new("/") {
                let source = std::io::Error::other("it would show the whole system");
                return Err(folder_error(path, source));
            }
            layout.add(&real, &relative(&real), ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, &mut folders)?;
            layout.readable.push(real);
        }
        folders.remove(Path::new(""));
        layout.folders = folders.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?;
        Ok(layout)
    }

    /// Returns the layout of an image's entries, with this system's devices.
    pub(super) fn of_image(root: &Root) -> Result<Self, SandboxError> {
        let mut layout = Self::default();
        let mut folders: BTreeSet<PathBuf> = OWN.map(PathBuf::from).into();
        let at = |source| folder_error(&root.folder, source);
        let entries = fs::read_dir(&root.folder).map_err(at)?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(at)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (source, target) = (entry.path(), PathBuf::from(entry.file_name()));
            let inside = Path::new("/").join(&target);
            let is_own = OWN.iter().chain(&["proc", "sys"]).any(|own| target == Path::new(own));
            let is_writable = root.writable.iter().any(|(writable, _)| *writable == inside);
            let kind = entry.file_type().map_err(at)?;
            if is_own || is_writable || root.hidden.contains(&inside) {
                continue;
            }
            if kind.is_symlink() {
                let link = fs::read_link(&source).map_err(|error| folder_error(&source, error))?;
                layout.links.push((c_path(&link)?, c_path(&target)?));
            } else if kind.is_dir() || kind.is_file() {
                layout.add(&source, &target, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, &mut folders)?;
                layout.readable.push(source);
            }
        }
        layout.add_devices(&mut folders)?;
        for (inside, folder) in &root.writable {
            let real = folder.canonicalize().map_err(|source| folder_error(folder, source))?;
            layout.add(&real, &relative(inside), ATTR_NOSUID | ATTR_NODEV, &mut folders)?;
        }
        folders.remove(Path::new(""));
        layout.folders = folders.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?;
        Ok(layout)
    }

    fn add_devices(&mut self, folders: &mut BTreeSet<PathBuf>) -> Result<(), SandboxError> {
        for path in DEVICES.map(Path::new) {
            if path.metadata().is_ok_and(|kind| kind.file_type().is_char_device()) {
                self.add(path, &relative(path), ATTR_RDONLY | ATTR_NOSUID | ATTR_NOEXEC, folders)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        source: &Path,
        target: &Path,
        attributes: u64,
        folders: &mut BTreeSet<PathBuf>,
    ) -> Result<(), SandboxError> {
        if self.mounts.len() == MOST_MOUNTS {
            return Err(folder_error(source, std::io::Error::other("too many folders")));
        }
        // The new root may lack a link's target.
        let real = source.canonicalize().map_err(|error| folder_error(source, error))?;
        let is_file = !real.is_dir();
        folders.extend(target.ancestors().skip(usize::from(is_file)).map(Path::to_path_buf));
        self.mounts.push(Mount { source: c_path(&real)?, target: c_path(target)?, attributes, is_file });
        Ok(())
    }
}

fn relative(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn folder_error(path: &Path, source: std::io::Error) -> SandboxError {
    SandboxError::Folder { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_folders_are_mounted_with_their_parents() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().canonicalize().unwrap().join("a");
        fs::create_dir(&inner).unwrap();
        let layout = Layout::new(&[inner.clone(), PathBuf::from("/usr/bin")]).unwrap();
        let target = c_path(&relative(&inner)).unwrap();
        assert!(layout.mounts.iter().any(|mount| mount.target == target && !mount.is_file));
        assert!(layout.folders.contains(&target), "the place of the mount is made");
        assert!(layout.folders.contains(&c_path(relative(&inner).parent().unwrap()).unwrap()));
        assert_eq!(
            layout.readable.iter().filter(|path| path.ends_with("usr/bin")).count(),
            0,
            "part of /usr"
        );
        for (wrong, said) in [("/", "the whole system"), ("/no/such/folder", "/no/such/folder")] {
            let error = Layout::new(&[PathBuf::from(wrong)]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
