//! Opens retrievers.

use std::sync::Arc;

use turnwise_retrieval::dense::{DenseRetriever, Encoding};
use turnwise_retrieval::{
    Batching, Bm25Retriever, CacheCounts, Cached, Hit, Hybrid, RetrievalError, Retriever, RetrieverKind,
};

use crate::{HttpRetriever, PrefixedEncoder, RetrievalConfig};

/// A retriever with a cache.
#[derive(Debug)]
pub struct OpenRetriever {
    cached: Cached,
}

impl OpenRetriever {
    /// Returns the numbers of queries and cache hits.
    pub fn counts(&self) -> CacheCounts {
        self.cached.counts()
    }
}

impl Retriever for OpenRetriever {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        self.cached.search(queries, top_k)
    }
}

/// Opens a retriever with a cache. Searches on servers and vector searches are also batched.
/// Servers are not contacted before the first search.
///
/// # Errors
///
/// Returns [`RetrievalError::Setting`] for invalid settings, and [`RetrievalError::File`] or
/// [`RetrievalError::Index`] for incomplete index folders.
pub fn open(config: &RetrievalConfig) -> Result<Arc<OpenRetriever>, RetrievalError> {
    config.check()?;
    let batched = |retriever: Arc<dyn Retriever>| -> Arc<dyn Retriever> {
        if config.batch_queries > 1 {
            Arc::new(Batching::new(retriever, config.batching()))
        } else {
            retriever
        }
    };
    let dense = || -> Result<Arc<dyn Retriever>, RetrievalError> {
        let options = config.encoder_options(Encoding::of(&config.index)?);
        let encoder = PrefixedEncoder::load(&config.encoder, options)?;
        let exact = DenseRetriever::open(&config.index, Arc::new(encoder))?;
        Ok(batched(Arc::new(if config.approximate { exact.approximate(&config.index)? } else { exact })))
    };
    let retriever: Arc<dyn Retriever> = match config.kind {
        RetrieverKind::Bm25 => Arc::new(Bm25Retriever::open(&config.index)?),
        RetrieverKind::Dense => dense()?,
        RetrieverKind::Hybrid => {
            let sources = vec![Arc::new(Bm25Retriever::open(&config.index)?) as Arc<dyn Retriever>, dense()?];
            Arc::new(Hybrid::new(sources, config.fusion_k, config.fusion_depth)?)
        }
        RetrieverKind::Http => batched(Arc::new(HttpRetriever::new(&config.servers, config.http())?)),
    };
    Ok(Arc::new(OpenRetriever { cached: Cached::new(retriever, config.cache) }))
}
