//! Encoding settings.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::open_vectors;
use crate::RetrievalError;

/// Settings of an encoder besides its model, stored with the vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoding {
    /// Text before each query.
    pub query_prefix: String,
    /// Text before each passage.
    pub passage_prefix: String,
    /// Maximum tokens per text; the rest is cut off.
    pub max_tokens: usize,
}

impl Encoding {
    /// Reads the settings stored with a folder's vectors; earlier versions stored none.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the vectors are missing or incomplete.
    pub fn of(folder: &Path) -> Result<Option<Self>, RetrievalError> {
        Ok(open_vectors(folder)?.encoding().cloned())
    }

    /// Rejects query settings that differ from the stored ones.
    pub(super) fn refuse_other(&self, asked: &Self, vectors: &Path) -> Result<(), RetrievalError> {
        let quoted = |text: &str| format!("{text:?}");
        let settings = [
            ("query_prefix", quoted(&asked.query_prefix), quoted(&self.query_prefix)),
            ("passage_prefix", quoted(&asked.passage_prefix), quoted(&self.passage_prefix)),
            ("max_tokens", asked.max_tokens.to_string(), self.max_tokens.to_string()),
        ];
        for (key, asked, made) in settings {
            if asked != made {
                return Err(RetrievalError::Setting {
                    key: key.to_owned(),
                    reason: format!(
                        "{asked} was named, and the vectors in {} were made with {made}; leave the setting out, or make \
                         vectors with it in a new folder",
                        vectors.display()
                    ),
                });
            }
        }
        Ok(())
    }
}
