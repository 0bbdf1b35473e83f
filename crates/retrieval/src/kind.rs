//! Kinds of retrievers.

use serde::{Deserialize, Serialize};

/// Kind of retriever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetrieverKind {
    /// Keyword search, ranked like Lucene's BM25.
    #[default]
    Bm25,
    /// Vector search with an encoder such as E5.
    Dense,
    /// BM25 and vector search, combined by reciprocal rank fusion.
    Hybrid,
    /// A server that uses Search-R1's protocol.
    Http,
}

impl RetrieverKind {
    /// Returns the name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bm25 => "bm25",
            Self::Dense => "dense",
            Self::Hybrid => "hybrid",
            Self::Http => "http",
        }
    }
}
