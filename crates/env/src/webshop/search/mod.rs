//! Search with the original's Lucene ranking (`turnwise-retrieval`).

pub mod recording;
mod text;

pub use text::document_text;
pub use turnwise_retrieval::lucene::{
    Analyzer, Bm25, BuildOptions, Hit, IndexBuilder, MANIFEST, SearchError, SearchIndex, analyzer, bm25,
};

use turnwise_core::EnvError;

use crate::webshop::shop::Ranker;

impl Ranker for SearchIndex {
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError> {
        let hits = self.search(query, limit).map_err(|error| EnvError::Other(error.to_string()))?;
        Ok(hits.into_iter().map(|hit| hit.name).collect())
    }
}
