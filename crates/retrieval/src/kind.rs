//! Kinds of retrievers, as settings name them.

use serde::{Deserialize, Serialize};

/// Kind of retriever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetrieverKind {
    /// Shared words, ranked as Lucene's BM25 ranks.
    #[default]
    Bm25,
    /// Vectors of an encoder such as E5.
    Dense,
    /// Both, joined by reciprocal rank.
    Hybrid,
    /// A server of the Search-R1 protocol.
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
