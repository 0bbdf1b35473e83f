//! HNSW graph settings.

use serde::{Deserialize, Serialize};

use crate::RetrievalError;

/// The graph's subfolder.
pub const HNSW: &str = "hnsw";

/// HNSW graph settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphOptions {
    /// Maximum number of neighbors of a vector in each layer (M); at most 256.
    pub neighbours: usize,
    /// Number of candidate neighbors considered when a vector is inserted (efConstruction).
    pub construction: usize,
    /// Minimum number of candidates considered for a query (efSearch).
    pub search: usize,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { neighbours: 32, construction: 200, search: 128 }
    }
}

impl GraphOptions {
    /// Rejects settings out of range.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] with the key.
    pub fn check(&self) -> Result<(), RetrievalError> {
        let fail = |key: &str, reason: &str| {
            Err(RetrievalError::Setting { key: key.to_owned(), reason: reason.to_owned() })
        };
        if !(2..=256).contains(&self.neighbours) {
            return fail("neighbours", "a vector keeps 2 to 256 neighbours");
        }
        if self.construction == 0 {
            return fail("construction", "at least 1 candidate is looked at; 200 is usual");
        }
        if self.search == 0 {
            return fail("search", "at least 1 candidate is looked at; 128 is usual");
        }
        Ok(())
    }
}

#[cfg(not(feature = "hnsw"))]
pub(super) fn not_built() -> RetrievalError {
    RetrievalError::Setting {
        key: "approximate".to_owned(),
        reason: "this program was built without approximate search; build it with `--features hnsw`, or search exactly"
            .to_owned(),
    }
}
