//! Searches an index.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use super::bm25::{Collection, term_score, weight};
use super::build::fingerprint;
use super::manifest::{Manifest, POSTINGS};
use super::postings::{List, Postings};
use super::{Analyzer, Bm25, BuildOptions, IndexBuilder, SearchError};

/// A search result.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Index in the collection.
    pub position: u32,
    /// Text name.
    pub name: String,
    /// Score; higher is better.
    pub score: f32,
}

/// A read-only index, shared between threads.
pub struct SearchIndex {
    pub(super) postings: Postings,
    /// For each term searched so far, the value that `reach` returns. The key is the start of the
    /// term's postings.
    reaches: RwLock<HashMap<usize, f32>>,
    analyzer: Analyzer,
    collection: Collection,
    texts: u32,
    fingerprint: String,
    ranking: Bm25,
    pub(super) inverse_norms: [f32; 256],
    spare: Mutex<Vec<Vec<f64>>>,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SearchIndex")
            .field("texts", &self.texts)
            .field("ranking", &self.ranking)
            .finish_non_exhaustive()
    }
}

/// A document with its score. Candidates are ordered so that a heap pops the worst one first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) score: f32,
    rank: u32,
    document: u32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(self.rank.cmp(&other.rank))
            .then(self.document.cmp(&other.document))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Number of postings above which pruning is faster than a full search.
const MANY_POSTINGS: u64 = 20_000;

/// Score of a document without any query term.
const UNTOUCHED: f64 = -1.0;

impl SearchIndex {
    /// Builds an in-memory index from (name, text) pairs.
    ///
    /// # Errors
    /// Fails like [`IndexBuilder::in_memory`], [`IndexBuilder::add`] and [`IndexBuilder::finish`].
    pub fn build_in_memory<N, T>(texts: impl IntoIterator<Item = (N, T)>) -> Result<Self, SearchError>
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        Self::fill(IndexBuilder::in_memory()?, texts)
    }

    /// Writes an index of (name, text) pairs to a new or empty folder and opens it.
    ///
    /// # Errors
    /// Fails like [`IndexBuilder::create`], [`IndexBuilder::add`] and [`IndexBuilder::finish`].
    pub fn create<N, T>(
        folder: &Path,
        texts: impl IntoIterator<Item = (N, T)>,
        options: BuildOptions,
    ) -> Result<Self, SearchError>
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        Self::fill(IndexBuilder::create(folder, options)?, texts)
    }

    fn fill<N, T>(
        mut builder: IndexBuilder,
        texts: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Self, SearchError>
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        for (name, text) in texts {
            builder.add(name.as_ref(), text.as_ref())?;
        }
        builder.finish()
    }

    /// Opens a folder written by [`SearchIndex::create`] or [`IndexBuilder`].
    ///
    /// # Errors
    ///
    /// Returns [`SearchError::Unfinished`] after an interrupted build, [`SearchError::Stale`] for
    /// another format version, [`SearchError::Damaged`] for missing or truncated files, and
    /// [`SearchError::Io`] if the folder cannot be read.
    pub fn open(folder: &Path) -> Result<Self, SearchError> {
        let manifest = Manifest::read(folder)?;
        let opened = Self::over(Postings::open(&folder.join(POSTINGS))?, &manifest)?;
        let found = opened.postings.documents();
        if found != manifest.texts as usize {
            return Err(SearchError::Damaged {
                path: folder.to_owned(),
                reason: format!("it has {found} texts and should have {}", manifest.texts),
            });
        }
        Ok(opened)
    }

    /// Opens a folder built from the same (name, text) pairs in the same order.
    ///
    /// # Errors
    ///
    /// Fails like [`SearchIndex::open`]. Returns [`SearchError::Stale`] if the texts differ.
    pub fn open_for<'a>(
        folder: &Path,
        texts: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SearchError> {
        let index = Self::open(folder)?;
        if index.fingerprint != fingerprint(texts) {
            return Err(SearchError::Stale {
                path: folder.to_owned(),
                reason: "it was built of other texts than it is to hold now".to_owned(),
            });
        }
        Ok(index)
    }

    pub(super) fn over(postings: Postings, manifest: &Manifest) -> Result<Self, SearchError> {
        let collection = Collection { documents: manifest.documents, tokens: manifest.tokens };
        let ranking = Bm25::default();
        Ok(Self {
            postings,
            reaches: RwLock::default(),
            analyzer: Analyzer::new()?,
            collection,
            texts: manifest.texts,
            fingerprint: manifest.fingerprint.clone(),
            ranking,
            inverse_norms: ranking.inverse_norms(collection),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// Sets the BM25 constants.
    pub fn with_ranking(mut self, ranking: Bm25) -> Self {
        self.ranking = ranking;
        self.inverse_norms = ranking.inverse_norms(self.collection);
        self.reaches = RwLock::default();
        self
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.texts as usize
    }

    /// Returns true if the index is empty.
    pub fn is_empty(&self) -> bool {
        self.texts == 0
    }

    /// Returns the texts' SHA-256 in hexadecimal, equal for equal collections.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the index's analyzer.
    pub fn analyzer(&self) -> &Analyzer {
        &self.analyzer
    }

    /// Returns the best `limit` texts that contain a query term, best first.
    ///
    /// # Errors
    /// Returns [`SearchError::Damaged`] if a term's postings are invalid.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, SearchError> {
        self.search_pruning(query, limit, MANY_POSTINGS)
    }

    /// Searches, with pruning if the query's terms together have more than `many` postings.
    pub(super) fn search_pruning(
        &self,
        query: &str,
        limit: usize,
        many: u64,
    ) -> Result<Vec<Hit>, SearchError> {
        let mut terms: Vec<(String, u32)> = Vec::new();
        self.analyzer.each(query, |_, term| match terms.iter_mut().find(|(known, _)| known == term) {
            Some((_, count)) => *count += 1,
            None => terms.push((term.to_owned(), 1)),
        });
        if limit == 0 || terms.is_empty() {
            return Ok(Vec::new());
        }

        let found: Vec<(f32, List)> = terms
            .iter()
            .filter_map(|(term, count)| {
                let list = self.postings.find(term)?;
                Some((weight(self.collection, u64::from(list.documents), *count), list))
            })
            .collect();
        let postings: u64 = found.iter().map(|(_, list)| u64::from(list.documents)).sum();
        let best = if postings > many { self.best_pruned(&found, limit) } else { self.best(&found, limit) };
        Ok(best?
            .into_iter()
            .map(|candidate| Hit {
                position: candidate.document,
                name: self.postings.name(candidate.rank).to_owned(),
                score: candidate.score,
            })
            .collect())
    }

    pub(super) fn candidate(&self, document: u32, score: f32) -> Candidate {
        Candidate { score, rank: self.postings.rank(document), document }
    }

    /// Returns the largest `tf / (k1 (1 - b + b dl / avgdl))` over a term's documents. Each term's
    /// value is computed once, from all of its postings.
    pub(super) fn reach(&self, list: List) -> Result<f32, SearchError> {
        let known = self.reaches.read().unwrap_or_else(PoisonError::into_inner).get(&list.start).copied();
        if let Some(reach) = known {
            return Ok(reach);
        }
        let (mut reach, norms) = (0.0f32, self.postings.norms());
        self.postings.each(list, |document, frequency| {
            let norm = norms[document as usize];
            reach = reach.max(frequency as f32 * self.inverse_norms[usize::from(norm)]);
        })?;
        self.reaches.write().unwrap_or_else(PoisonError::into_inner).insert(list.start, reach);
        Ok(reach)
    }

    fn best(&self, terms: &[(f32, List)], limit: usize) -> Result<Vec<Candidate>, SearchError> {
        let mut scores = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        scores.resize(self.postings.documents(), UNTOUCHED);
        let norms = self.postings.norms();
        let mut touched: Vec<u32> = Vec::new();
        for &(weight, list) in terms {
            self.postings.each(list, |document, frequency| {
                let norm = norms[document as usize];
                let gain = f64::from(term_score(weight, frequency, self.inverse_norms[usize::from(norm)]));
                let score = &mut scores[document as usize];
                if *score < 0.0 {
                    *score = gain;
                    touched.push(document);
                } else {
                    *score += gain;
                }
            })?;
        }

        let mut heap: BinaryHeap<Candidate> = BinaryHeap::with_capacity(limit.min(touched.len()));
        for document in touched {
            let score = std::mem::replace(&mut scores[document as usize], UNTOUCHED) as f32;
            let candidate = self.candidate(document, score);
            if heap.len() < limit {
                heap.push(candidate);
            } else if let Some(mut worst) = heap.peek_mut()
                && candidate < *worst
            {
                *worst = candidate;
            }
        }
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(scores);
        Ok(heap.into_sorted_vec())
    }
}
