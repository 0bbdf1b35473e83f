//! Manifest of a complete index.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use turnwise_files::PathError;

use super::SearchError;

/// Name of the manifest. The manifest is written last and then renamed, so an index with a manifest
/// is complete.
pub const MANIFEST: &str = "turnwise-search.json";

/// Format version, to be increased when the meaning of terms, norms or files changes.
pub(super) const FORMAT: u32 = 2;

pub(super) const POSTINGS: &str = "postings.idx";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// Number of texts; its JSON key keeps the older name `products`.
    #[serde(rename = "products")]
    pub(super) texts: u32,
    pub(super) documents: u64,
    pub(super) tokens: u64,
    /// SHA-256 over all texts: length and bytes of name and text.
    pub(super) fingerprint: String,
    pub(super) files: BTreeMap<String, u64>,
}

impl Manifest {
    pub(super) fn write(mut self, folder: &Path) -> Result<(), SearchError> {
        self.files = sizes(folder)?;
        let text = serde_json::to_string_pretty(&self)
            .map_err(|error| PathError::new(&folder.join(MANIFEST), error.into()))?;
        let path = folder.join(MANIFEST);
        turnwise_files::write_atomically(&path, (text + "\n").as_bytes())
            .map_err(|source| PathError::new(&path, source))?;
        Ok(())
    }

    pub(super) fn read(folder: &Path) -> Result<Self, SearchError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let path = folder.join(MANIFEST);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.is_dir() => {
                return Err(SearchError::Unfinished { path: folder.to_owned() });
            }
            Err(source) => return Err(PathError::new(&path, source).into()),
        };
        let damaged =
            |error: serde_json::Error| SearchError::Damaged { path: path.clone(), reason: error.to_string() };
        let Format { format } = serde_json::from_str(&text).map_err(damaged)?;
        if format != FORMAT {
            return Err(SearchError::Stale {
                path: folder.to_owned(),
                reason: format!("it has format {format}, and this program reads format {FORMAT}"),
            });
        }
        let manifest: Self = serde_json::from_str(&text).map_err(damaged)?;
        let found = sizes(folder)?;
        for (name, &size) in &manifest.files {
            let reason = match found.get(name) {
                Some(&found) if found == size => continue,
                Some(found) => format!("it has {found} bytes and had {size}"),
                None => "it is missing".to_owned(),
            };
            return Err(SearchError::Damaged { path: folder.join(name), reason });
        }
        Ok(manifest)
    }
}

fn sizes(folder: &Path) -> Result<BTreeMap<String, u64>, SearchError> {
    let failed = |source| PathError::new(folder, source);
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(MANIFEST) {
            sizes.insert(name, entry.metadata().map_err(failed)?.len());
        }
    }
    Ok(sizes)
}
