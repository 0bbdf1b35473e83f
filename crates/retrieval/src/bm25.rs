//! BM25 over passages, as Pyserini's default search ranks them.

use std::path::Path;

use rayon::prelude::*;

use crate::build::{BM25, PASSAGES};
use crate::lucene::{Bm25, IndexBuilder, SearchIndex};
use crate::store::PassageStore;
use crate::{Hit, Passage, RetrievalError, Retriever};

/// Queries from which on a call spreads them over threads.
const MANY_QUERIES: usize = 16;

/// Finds passages by their words: Lucene's BM25 with k1 = 0.9 and b = 0.4 over the whole contents, title included. Equal
/// scores are ordered by identifier.
#[derive(Debug)]
pub struct Bm25Retriever {
    index: SearchIndex,
    passages: PassageStore,
}

impl Bm25Retriever {
    /// Returns an index in memory of some passages, for collections of up to a million.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Index`] if it can't be made.
    pub fn in_memory(passages: impl IntoIterator<Item = Passage>) -> Result<Self, RetrievalError> {
        let passages = PassageStore::in_memory(passages);
        let mut builder = IndexBuilder::in_memory()?;
        for passage in passages.iter() {
            let passage = passage?;
            builder.add(&passage.id, &passage.contents)?;
        }
        Ok(Self { index: builder.finish()?, passages })
    }

    /// Opens a folder that `turnwise index build` (or [`crate::build::build`]) has written. Both files are mapped.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::File`] and [`RetrievalError::Index`] if the folder holds no whole index
    /// of this program.
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

    /// Returns the same with other constants.
    pub fn with_ranking(self, ranking: Bm25) -> Self {
        Self { index: self.index.with_ranking(ranking), passages: self.passages }
    }

    /// Returns the passages that are searched.
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
