//! Finds passages by comparing embeddings.
//!
//! | file | subject |
//! |---|---|
//! | `approximate.rs` | approximate search with an HNSW graph (feature `hnsw`) |
//! | `graph_options.rs` | settings of the HNSW graph |
//! | `build.rs` | encodes a folder's passages |
//! | `encoding.rs` | how texts are encoded |
//! | `kernel.rs` | vectorized inner products of f32 or f16 rows |
//! | `vectors.rs` | vectors in a memory-mapped file, and exact search |
//!
//! ```text
//! DIR/dense/vectors.bin               passage after passage, f16 or f32, little-endian
//! DIR/dense/turnwise-vectors.json     how many, how wide, of which passages and encoder, with which prefixes
//! ```
//!
//! Callers provide the encoder ([`Encoder`]). With E5, a passage's score is the inner product of
//! two L2-normalized vectors, which is their cosine similarity (Wang et al., "Text Embeddings by
//! Weakly-Supervised Contrastive Pre-training", 2022).

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
    /// Returns the dimension of the vectors.
    fn dimensions(&self) -> usize;

    /// Returns a name that changes whenever passage vectors would change. Vectors from encoders
    /// with different names must not be compared.
    fn fingerprint(&self) -> String;

    /// Returns true for this encoder's name, and for names used by earlier versions whose vectors
    /// are still valid.
    fn is_named(&self, fingerprint: &str) -> bool {
        self.fingerprint() == fingerprint
    }

    /// Returns the settings to store with vectors, if the encoder has any.
    fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Encodes queries as vectors, with shape `[queries, dimensions]`.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Encoder`].
    fn queries(&self, texts: &[&str]) -> Result<Vec<f32>, RetrievalError>;

    /// Encodes passages as vectors, with shape `[passages, dimensions]`.
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

/// Finds passages by exact search, comparing the query's vector with all others by inner product.
/// Ties are ordered by passage index.
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
    /// Opens an index folder's vectors, for queries encoded by the same encoder.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if the folder's vectors are missing or incomplete, or
    /// belong to other passages or another encoder. Returns [`RetrievalError::Setting`] if the
    /// prefixes or maximum length differ from those stored with the vectors.
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
                // Vectors of an earlier version do not tell which of the two differs.
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

/// Always fails, because this binary was compiled without the feature `hnsw`.
///
/// # Errors
///
/// Returns [`RetrievalError::Setting`], always.
#[cfg(not(feature = "hnsw"))]
pub fn build_graph(
    _folder: &BuildFolder,
    _options: GraphOptions,
    _watch: Watch<'_>,
) -> Result<(BuildProgress, f64), RetrievalError> {
    Err(graph_options::not_built())
}

/// Returns an error early if this binary does not support graphs.
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
    /// Searches with the folder's graph ([`build_graph`]), which compares only some of the vectors
    /// and may miss passages.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] if there is no graph, or if it was built for other vectors,
    /// and [`RetrievalError::Setting`] without the feature `hnsw`.
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

    /// Always fails, because this binary was compiled without the feature `hnsw`.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`], always.
    #[cfg(not(feature = "hnsw"))]
    pub fn approximate(self, _folder: &Path) -> Result<Self, RetrievalError> {
        Err(graph_options::not_built())
    }

    /// Returns the indices and scores of the hits for each query vector.
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
