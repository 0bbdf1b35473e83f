//! Settings of texts that are encoded.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::open_vectors;
use crate::RetrievalError;

/// Settings of encoded texts besides the encoder's model. Vectors are kept with them, so that nobody has to repeat them to ask an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoding {
    /// Text before every query.
    pub query_prefix: String,
    /// Text before every passage.
    pub passage_prefix: String,
    /// Maximum tokens of a text; longer ones are cut.
    pub max_tokens: usize,
}

impl Encoding {
    /// Reads what the vectors of an index folder were made with; none if a version of this program made
    /// them that did not keep it.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the folder has no whole vectors.
    pub fn of(folder: &Path) -> Result<Option<Self>, RetrievalError> {
        Ok(open_vectors(folder)?.encoding().cloned())
    }

    /// Rejects queries with other settings than the vectors of this folder were made with.
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
