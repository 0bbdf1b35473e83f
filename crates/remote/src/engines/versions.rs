//! Weight versions, each with a folder and a name.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use turnwise_files::PathError;
use turnwise_model::{Adapter, AdapterBase, ModelError, Parameters, save_adapter, save_model};
use turnwise_text::Tokenizer;

use super::error::EngineError;

#[derive(Debug)]
pub(crate) struct Published {
    /// Name on the servers: the run's name, a random number of the process, the version number and
    /// the files' checksum. Even identical runs need different names, because each run removes its
    /// own versions from shared servers and folders.
    pub(crate) name: String,
    pub(crate) adapter: bool,
    pub(crate) version: u64,
    pub(crate) folder: PathBuf,
    pub(crate) server_path: String,
}

#[derive(Debug)]
pub(crate) struct VersionFolder {
    here: PathBuf,
    there: PathBuf,
    run: String,
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> EngineError + '_ {
    move |source| PathError::new(path, source).into()
}

impl VersionFolder {
    pub(crate) fn open(here: &Path, there: &Path, run: &str) -> Result<Self, EngineError> {
        fs::create_dir_all(here).map_err(io(here))?;
        let here = here.canonicalize().map_err(io(here))?;
        let there = if there.as_os_str().is_empty() { here.clone() } else { there.to_owned() };
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let plain: String = run.chars().map(plain).take(60).collect();
        // System randomness, on which no result depends.
        let drawn = RandomState::new().hash_one(std::process::id()) as u32;
        let folder = Self { here, there, run: format!("{plain}-{drawn:08x}") };
        let probe = folder.here.join(format!(".probe-{}", folder.run));
        fs::create_dir_all(&probe).map_err(io(&probe))?;
        fs::remove_dir(&probe).map_err(io(&probe))?;
        Ok(folder)
    }

    pub(crate) fn write_adapter(
        &self,
        adapter: &Adapter<f32>,
        base: &AdapterBase,
        version: u64,
    ) -> Result<Published, EngineError> {
        self.write(version, true, |part| Ok(save_adapter(adapter, part, base)?))
    }

    /// Atomically writes a Hugging Face folder with the weights and the tokenizer, from which a
    /// server can also be started.
    pub(crate) fn write_model(
        &self,
        model: &Parameters<f32>,
        tokenizer: &Tokenizer,
        version: u64,
    ) -> Result<Published, EngineError> {
        self.write(version, false, |part| {
            save_model(model, part)?;
            tokenizer.save_folder(part).map_err(|error| ModelError::file(part, error).into())
        })
    }

    fn write(
        &self,
        version: u64,
        adapter: bool,
        save: impl Fn(&Path) -> Result<(), EngineError>,
    ) -> Result<Published, EngineError> {
        let part = self.here.join(format!(".part-{}-v{version:06}", self.run));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(io(&part))?;
        }
        let checksum = save(&part).and_then(|()| checksum(&part)).inspect_err(|_| {
            // A full disk must not get fuller.
            let _ = fs::remove_dir_all(&part);
        })?;
        let name = format!("{}-v{version:06}-{checksum:08x}", self.run);
        let folder = self.here.join(&name);
        if folder.exists() {
            // The same bytes were already written.
            fs::remove_dir_all(&part).map_err(io(&part))?;
        } else {
            fs::rename(&part, &folder).map_err(io(&folder))?;
        }
        let server_path = self.there.join(&name).to_string_lossy().into_owned();
        Ok(Published { name, adapter, version, folder, server_path })
    }
}

fn checksum(folder: &Path) -> Result<u32, EngineError> {
    let mut hash = Sha256::new();
    add_files(&mut hash, folder)?;
    let hash = hash.finalize();
    Ok(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]))
}

/// Adds a folder's files to `hash`, in chunks because models are large.
fn add_files(hash: &mut Sha256, folder: &Path) -> Result<(), EngineError> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).map_err(io(folder))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    let mut piece = vec![0; 1 << 20];
    for path in entries {
        if path.is_dir() {
            add_files(hash, &path)?;
            continue;
        }
        let mut file = fs::File::open(&path).map_err(io(&path))?;
        loop {
            match file.read(&mut piece).map_err(io(&path))? {
                0 => break,
                length => hash.update(&piece[..length]),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_inside_of_a_model_are_part_of_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("additional_chat_templates");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join("config.json"), b"{}").unwrap();
        let mut found = Vec::new();
        for text in ["one", "two", "one"] {
            fs::write(inner.join("tool_use.jinja"), text).unwrap();
            found.push(checksum(folder.path()).unwrap());
        }
        assert!(found[0] == found[2] && found[0] != found[1], "{found:?}");
    }
}
