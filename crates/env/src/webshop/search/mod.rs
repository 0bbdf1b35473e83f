//! The shop's search engine: the ranking of the original's Lucene set-up, which `turnwise-retrieval` has, on the texts
//! of products.
//!
//! | file | subject |
//! |---|---|
//! | `recording.rs` | queries in, answers out, in the form in which the original's answers were recorded |
//! | `text.rs` | the text under which a product is found ([`document_text`]) |
//!
//! A text's name is the product's ASIN, its position that of the product in the catalogue. Equal scores are ordered
//! by ASIN, ascending, then by position.

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
