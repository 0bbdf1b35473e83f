//! BM25 over passages, ranked like Pyserini's default.

use std::path::Path;

use rayon::prelude::*;

use crate::build::{BM25, PASSAGES};
use crate::lucene::{Bm25, IndexBuilder, SearchIndex};
use crate::store::PassageStore;
use crate::{Hit, Passage, RetrievalError, Retriever};

/// Minimum number of queries in a call for which several threads are used.
const MANY_QUERIES: usize = 16;

/// Keyword search with Lucene's BM25 (k1 = 0.9, b = 0.4) over title and text; ties are ordered by
/// id.
#[derive(Debug)]
pub struct Bm25Retriever {
    index: SearchIndex,
    passages: PassageStore,
}

impl Bm25Retriever {
    /// Builds an in-memory index, for up to a million passages.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Index`] if the index cannot be built.
    pub fn in_memory(passages: impl IntoIterator<Item = Passage>) -> Result<Self, RetrievalError> {
        let passages = PassageStore::in_memory(passages);
        let mut builder = IndexBuilder::in_memory()?;
        for passage in passages.iter() {
            let passage = passage?;
            builder.add(&passage.id, &passage.contents)?;
        }
        Ok(Self { index: builder.finish()?, passages })
    }

    /// Memory-maps a folder written by `turnwise index build` ([`crate::build::build`]).
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] or [`RetrievalError::Index`] unless the folder has a
    /// complete index.
    pub fn open(folder: &Path) -> Result<Self, RetrievalError> {
        let passages = PassageStore::open(&folder.join(PASSAGES))?;
        let terms = folder.join(BM25);
        if !terms.is_dir() {
            return Err(RetrievalError::File {
                path: folder.to_owned(),
                reason: "no index of terms; make it with `turnwise index build`".to_owned(),
            });
        }
        let index = SearchIndex::open(&terms)?;
        if index.fingerprint() != passages.fingerprint() {
            return Err(RetrievalError::damaged(&terms, "it was made of other passages than are beside it"));
        }
        Ok(Self { index, passages })
    }

    /// Sets the BM25 constants.
    pub fn with_ranking(self, ranking: Bm25) -> Self {
        Self { index: self.index.with_ranking(ranking), passages: self.passages }
    }

    /// Returns the passages.
    pub fn passages(&self) -> &PassageStore {
        &self.passages
    }

    fn one(&self, query: &str, top_k: usize) -> Result<Vec<Hit>, RetrievalError> {
        let found = self.index.search(query, top_k)?;
        found
            .into_iter()
            .map(|hit| Ok(Hit { passage: self.passages.get(hit.position)?, score: hit.score }))
            .collect()
    }
}

impl Retriever for Bm25Retriever {
    fn search(&self, queries: &[&str], top_k: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        if queries.len() < MANY_QUERIES {
            return queries.iter().map(|query| self.one(query, top_k)).collect();
        }
        queries.par_iter().map(|query| self.one(query, top_k)).collect()
    }
}
