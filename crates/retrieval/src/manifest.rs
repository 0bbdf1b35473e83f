//! Manifest of a folder with complete files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::RetrievalError;

/// Describes a folder's files. The manifest is written last and then renamed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest<D> {
    format: u32,
    pub(crate) description: D,
    files: BTreeMap<String, u64>,
}

impl<D: Serialize + DeserializeOwned> Manifest<D> {
    pub(crate) fn new(format: u32, description: D) -> Self {
        Self { format, description, files: BTreeMap::new() }
    }

    pub(crate) fn write(self, folder: &Path, name: &str) -> Result<(), RetrievalError> {
        self.write_without(folder, name, &[])
    }

    /// Writes a manifest that omits the files named in `passing`. These files are deleted after the
    /// rename, so the folder is complete with or without them.
    pub(crate) fn write_without(
        mut self,
        folder: &Path,
        name: &str,
        passing: &[&str],
    ) -> Result<(), RetrievalError> {
        self.files = sizes(folder, name).map_err(|error| RetrievalError::file(folder, &error))?;
        self.files.retain(|file, _| !passing.contains(&file.as_str()));
        let path = folder.join(name);
        let text = serde_json::to_string_pretty(&self).map_err(io::Error::from);
        text.and_then(|text| turnwise_files::write_atomically(&path, (text + "\n").as_bytes()))
            .map_err(|error| RetrievalError::file(&path, &error))
    }

    /// Reads the manifest and compares it with the files. Error messages use `subject` as the name
    /// of the folder's content.
    pub(crate) fn read(
        folder: &Path,
        name: &str,
        format: u32,
        subject: &str,
    ) -> Result<Self, RetrievalError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let path = folder.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RetrievalError::File {
                    path: folder.to_owned(),
                    reason: format!(
                        "no finished {subject} ({name} is missing); make it with `turnwise index build`"
                    ),
                });
            }
            Err(error) => return Err(RetrievalError::file(&path, &error)),
        };
        let damaged = |error: serde_json::Error| RetrievalError::damaged(&path, &error.to_string());
        let Format { format: found } = serde_json::from_str(&text).map_err(damaged)?;
        if found != format {
            return Err(RetrievalError::damaged(
                folder,
                &format!("it has format {found}, and this program reads format {format}"),
            ));
        }
        let manifest: Self = serde_json::from_str(&text).map_err(damaged)?;
        let found = sizes(folder, name).map_err(|error| RetrievalError::file(folder, &error))?;
        for (name, &size) in &manifest.files {
            let reason = match found.get(name) {
                Some(&found) if found == size => continue,
                Some(found) => format!("it has {found} bytes and had {size}"),
                None => "it is missing".to_owned(),
            };
            return Err(RetrievalError::damaged(&folder.join(name), &reason));
        }
        Ok(manifest)
    }
}

fn sizes(folder: &Path, manifest: &str) -> io::Result<BTreeMap<String, u64>> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(manifest) {
            sizes.insert(name, entry.metadata()?.len());
        }
    }
    Ok(sizes)
}
