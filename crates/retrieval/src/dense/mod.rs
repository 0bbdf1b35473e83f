//! Finds passages by comparing embeddings from an [`Encoder`].
//!
//! ```text
//! DIR/dense/vectors.bin               passage after passage, f16 or f32, little-endian
//! DIR/dense/turnwise-vectors.json     how many, how wide, of which passages and encoder, with which prefixes
//! ```
//!
//! With E5, a score is the inner product of L2-normalized vectors, that is, the cosine similarity
//! (Wang et al., "Text Embeddings by Weakly-Supervised Contrastive Pre-training", 2022).

#[cfg(feature = "hnsw")]
mod approximate;
mod build;
mod encoding;
mod graph_options;
mod kernel;
#[cfg(test)]
mod tests;
mod vectors;

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "hnsw")]
pub use approximate::{Graph, build_graph};
pub use build::{DenseOptions, build_vectors};
pub use encoding::Encoding;
pub use graph_options::{GraphOptions, HNSW};
pub use vectors::{Precision, VectorStore};

#[cfg(feature = "hnsw")]
use rayon::prelude::*;

#[cfg(not(feature = "hnsw"))]
use crate::build::{BuildFolder, BuildProgress, Watch};
use crate::build::{DENSE, PASSAGES};
use crate::store::PassageStore;
use crate::{Hit, RetrievalError, Retriever};

/// Converts texts to vectors.
pub trait Encoder: Send + Sync {
    /// Returns the vectors' dimension.
    fn dimensions(&self) -> usize;

    /// Returns a name that changes whenever the vectors of passages would change. Vectors of
    /// encoders with different names must not be compared.
    fn fingerprint(&self) -> String;

    /// Returns true if `fingerprint` is the encoder's name, or a name from an earlier version that
    /// is still valid.
    fn is_named(&self, fingerprint: &str) -> bool {
        self.fingerprint() == fingerprint
    }

    /// Returns the settings to store with vectors, if any.
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Encodes queries as a matrix of shape `[queries, dimensions]`.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Encoder`].
    fn queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError>;

    /// Encodes passages as a matrix of shape `[passages, dimensions]`.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Encoder`].
    fn passages(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError>;
}

fn open_vectors(folder: &Path) -> Result<VectorStore, RetrievalError> {
    let dense = folder.join(DENSE);
    if !dense.is_dir() {
        return Err(RetrievalError::File {
            path: folder.to_owned(),
            reason: "no vectors; make them with `turnwise index build --encoder`".to_owned(),
        });
    }
    VectorStore::open(&dense)
}

/// Finds passages by exact inner products; ties are ordered by index.
pub struct DenseRetriever {
    encoder: Arc<dyn Encoder>,
    vectors: Arc<VectorStore>,
    passages: PassageStore,
    #[cfg(feature = "hnsw")]
    graph: Option<Graph>,
}

impl std::fmt::Debug for DenseRetriever {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DenseRetriever")
            .field("vectors", &self.vectors)
            .field("passages", &self.passages)
            .finish_non_exhaustive()
    }
}

impl DenseRetriever {
    /// Opens an index folder's vectors.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if vectors are missing or incomplete, or belong to other
    /// passages or another encoder, and [`RetrievalError::Setting`] if prefixes or maximum length
    /// differ from the stored ones.
    pub fn open(folder: &Path, encoder: Arc<dyn Encoder>) -> Result<Self, RetrievalError> {
        let passages = PassageStore::open(&folder.join(PASSAGES))?;
        let dense = folder.join(DENSE);
        let vectors = open_vectors(folder)?;
        if vectors.passages() != passages.fingerprint() || vectors.len() != passages.len() {
            return Err(RetrievalError::damaged(&dense, "they are of other passages than are beside them"));
        }
        if let (Some(made), Some(asked)) = (vectors.encoding(), encoder.encoding()) {
            made.refuse_other(&asked, &dense)?;
        }
        if !encoder.is_named(vectors.encoder()) || vectors.dimensions() != encoder.dimensions() {
            let reason = if vectors.encoding().is_some() {
                "the vectors were made by another encoder (weights, pooling or tokenizer differ); name that one, or make them \
                 again in a new folder"
            } else {
                // Earlier versions' vectors do not tell which of the two differs.
                "the vectors were made by another encoder, or with another passage prefix or token length, which they were not \
                 kept with yet; name those, or make the vectors again in a new folder"
            };
            return Err(RetrievalError::File { path: dense, reason: reason.to_owned() });
        }
        Ok(Self {
            encoder,
            vectors: Arc::new(vectors),
            passages,
            #[cfg(feature = "hnsw")]
            graph: None,
        })
    }
}

/// Building a graph is unavailable without the feature `hnsw`.
///
/// # Errors
///
/// Always returns [`RetrievalError::Setting`].
#[cfg(not(feature = "hnsw"))]
pub fn build_graph(
    _folder: &BuildFolder,
    _options: GraphOptions,
    _watch: Watch<'_>,
) -> Result<(BuildProgress, f64), RetrievalError> {
    Err(graph_options::not_built())
}

/// Checks early that this binary supports graphs.
///
/// # Errors
///
/// Returns [`RetrievalError::Setting`] without the feature `hnsw`.
pub fn check_graphs_are_built_in() -> Result<(), RetrievalError> {
    #[cfg(feature = "hnsw")]
    return Ok(());
    #[cfg(not(feature = "hnsw"))]
    Err(graph_options::not_built())
}

impl DenseRetriever {
    /// Searches with the folder's graph ([`build_graph`]), which may miss passages.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the graph is missing or belongs to other vectors, and
    /// [`RetrievalError::Setting`] without the feature `hnsw`.
    #[cfg(feature = "hnsw")]
    pub fn approximate(mut self, folder: &Path) -> Result<Self, RetrievalError> {
        if !folder.join(HNSW).is_dir() {
            return Err(RetrievalError::File {
                path: folder.to_owned(),
                reason: "no graph; make it with `turnwise index build --approximate`".to_owned(),
            });
        }
        self.graph = Some(Graph::open(folder, &self.vectors)?);
        Ok(self)
    }

    /// Searching with a graph is unavailable without the feature `hnsw`.
    ///
    /// # Errors
    ///
    /// Always returns [`RetrievalError::Setting`].
    #[cfg(not(feature = "hnsw"))]
    pub fn approximate(self, _folder: &Path) -> Result<Self, RetrievalError> {
        Err(graph_options::not_built())
    }

    fn nearest(&self, queries: &[f32], top_k: usize) -> Vec<Vec<(u32, f32)>> {
        #[cfg(feature = "hnsw")]
        if let Some(graph) = &self.graph {
            let width = self.vectors.dimensions();
            return queries.par_chunks_exact(width).map(|query| graph.search(query, top_k)).collect();
        }
        self.vectors.search(queries, top_k)
    }
}

impl Retriever for DenseRetriever {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let vectors = self.encoder.queries(queries)?;
        check(&vectors, queries.len(), self.vectors.dimensions())?;
        self.nearest(&vectors, top_k)
            .into_iter()
            .map(|found| {
                found
                    .into_iter()
                    .map(|(position, score)| Ok(Hit { passage: self.passages.get(position)?, score }))
                    .collect()
            })
            .collect()
    }
}

fn check(vectors: &[f32], texts: usize, dimensions: usize) -> Result<(), RetrievalError> {
    let wrong = |reason: String| Err(RetrievalError::Encoder { reason });
    if vectors.len() != texts * dimensions {
        return wrong(format!("{} numbers for {texts} texts of {dimensions} each", vectors.len()));
    }
    if vectors.iter().any(|value| !value.is_finite()) {
        return wrong("a vector holds what is no number".to_owned());
    }
    Ok(())
}
