use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sha2::{Digest as _, Sha256};
use turnwise_core::{EnvError, ImageHandle, hexadecimal};

/// Maximum number of states with a cached image.
const MOST_KNOWN: usize = 1 << 16;

/// Folder of PNG files, named by the SHA-256 of their content, with a cache of the images of recent
/// states.
#[derive(Debug)]
pub struct PictureStore {
    folder: PathBuf,
    known: Mutex<HashMap<Vec<u8>, ImageHandle>>,
}

impl PictureStore {
    /// Opens or creates the folder.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn new(folder: &Path) -> Result<Self, EnvError> {
        fs::create_dir_all(folder).map_err(|source| EnvError::io(folder, source))?;
        Ok(Self { folder: folder.to_owned(), known: Mutex::default() })
    }

    /// Returns the handle of a state's image. If the image is not cached, `draw` creates the PNG
    /// file's bytes, which are written to the folder.
    ///
    /// # Errors
    /// Fails if `draw` or writing fails.
    pub fn handle(
        &self,
        state: &[u8],
        draw: impl FnOnce() -> Result<Vec<u8>, EnvError>,
    ) -> Result<ImageHandle, EnvError> {
        // Entries are complete even after a panic.
        let lock = || self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = lock().get(state) {
            return Ok(known.clone());
        }
        let bytes = draw()?;
        let sha256 = hexadecimal(&Sha256::digest(&bytes));
        self.write(&sha256, &bytes)?;
        let handle = ImageHandle { sha256, media_type: "image/png".to_owned() };
        let mut known = lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(state.to_vec(), handle.clone());
        Ok(handle)
    }

    /// Returns an image's path.
    pub fn path(&self, handle: &ImageHandle) -> PathBuf {
        self.folder.join(format!("{}.png", handle.sha256))
    }

    fn write(&self, sha256: &str, bytes: &[u8]) -> Result<(), EnvError> {
        let path = self.folder.join(format!("{sha256}.png"));
        if path.exists() {
            return Ok(());
        }
        let failed = |source| EnvError::io(&path, source);
        turnwise_files::write_shared(&path, |file| std::io::Write::write_all(file, bytes)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Picture, png};
    use super::*;

    #[test]
    fn a_state_is_drawn_once_and_a_picture_is_written_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = PictureStore::new(&folder.path().join("pictures")).unwrap();
        let red = Picture::new(4, 4, [255, 0, 0]);
        let first = store.handle(b"a", || png::encode(&red)).unwrap();
        let again = store.handle(b"a", || unreachable!("it is known")).unwrap();
        let same = store.handle(b"b", || png::encode(&red)).unwrap();
        assert_eq!((&first, &first), (&again, &same));
        let bytes = fs::read(store.path(&first)).unwrap();
        assert_eq!(
            (hexadecimal(&Sha256::digest(&bytes)), png::read(&store.path(&first)).unwrap()),
            (first.sha256.clone(), red)
        );
        let other = store.handle(b"c", || png::encode(&Picture::new(4, 4, [0, 0, 255]))).unwrap();
        assert_ne!(first, other);
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 2);
    }
}
