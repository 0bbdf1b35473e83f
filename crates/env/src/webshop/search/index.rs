//! Answering queries.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::TermInfo;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{Index, InvertedIndexReader, SegmentReader, Term};
use turnwise_core::EnvError;

use super::bm25::{Collection, term_score, weight};
use super::build::{ASIN, ORDINAL, fingerprint};
use super::manifest::Manifest;
use super::{Analyzer, Bm25, BuildOptions, IndexBuilder, SearchError};
use crate::webshop::shop::Ranker;

/// One product found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The product's position in the catalogue.
    pub id: u32,
    /// The product's identifier.
    pub asin: String,
    /// The score; higher is better.
    pub score: f32,
}

/// An index, read-only and shared by any number of threads.
pub struct SearchIndex {
    segments: Vec<Segment>,
    analyzer: Analyzer,
    text: Field,
    collection: Collection,
    products: u32,
    fingerprint: String,
    ranking: Bm25,
    inverse_norms: [f32; 256],
    /// Score arrays of searches that ended, for those to come.
    spare: Mutex<Vec<Vec<f64>>>,
}

impl std::fmt::Debug for SearchIndex {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SearchIndex")
            .field("products", &self.products)
            .field("segments", &self.segments.len())
            .field("ranking", &self.ranking)
            .finish_non_exhaustive()
    }
}

/// A part of the products with postings of its own.
pub(super) struct Segment {
    pub(super) postings: Arc<InvertedIndexReader>,
    pub(super) norms: FieldNormReader,
    /// For terms that were asked for (by where their postings begin): the greatest `tf / (k1 (..))` of any document.
    reaches: RwLock<HashMap<usize, f32>>,
    /// Document to position in the catalogue.
    ordinals: Vec<u32>,
    /// Document to the position of its ASIN among the segment's, in ascending order.
    ranks: Vec<u32>,
    /// The segment's ASINs in ascending order, one behind the other, and where each ends.
    asins: String,
    ends: Vec<u32>,
}

/// A document of a segment that may be among the best. The greatest is the worst, for a heap gives that first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) score: f32,
    rank: u32,
    ordinal: u32,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(self.rank.cmp(&other.rank))
            .then(self.ordinal.cmp(&other.ordinal))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Queries whose terms have more postings than this in a segment are answered without walking them all. Below, that
/// is faster.
const MANY_POSTINGS: u64 = 20_000;

/// The score of a document that has none of the terms.
const UNTOUCHED: f64 = -1.0;

impl SearchIndex {
    /// Makes an index of (ASIN, text) pairs in memory.
    pub fn build_in_memory<A, T>(products: impl IntoIterator<Item = (A, T)>) -> Result<Self, SearchError>
    where
        A: AsRef<str>,
        T: AsRef<str>,
    {
        Self::fill(IndexBuilder::in_memory()?, products)
    }

    /// Writes an index of (ASIN, text) pairs to a new or empty folder and opens it.
    pub fn create<A, T>(
        folder: &Path,
        products: impl IntoIterator<Item = (A, T)>,
        options: BuildOptions,
    ) -> Result<Self, SearchError>
    where
        A: AsRef<str>,
        T: AsRef<str>,
    {
        Self::fill(IndexBuilder::create(folder, options)?, products)
    }

    fn fill<A, T>(
        mut builder: IndexBuilder,
        products: impl IntoIterator<Item = (A, T)>,
    ) -> Result<Self, SearchError>
    where
        A: AsRef<str>,
        T: AsRef<str>,
    {
        for (asin, text) in products {
            builder.add(asin.as_ref(), text.as_ref())?;
        }
        builder.finish()
    }

    /// Opens a folder that [`SearchIndex::create`] or [`IndexBuilder`] has written.
    ///
    /// # Errors
    ///
    /// [`SearchError::Unfinished`] where writing was interrupted, [`SearchError::Stale`] where another version of
    /// the format wrote it, [`SearchError::Damaged`] where files are missing or cut.
    pub fn open(folder: &Path) -> Result<Self, SearchError> {
        let manifest = Manifest::read(folder)?;
        let damaged = |reason: String| SearchError::Damaged { path: folder.to_owned(), reason };
        let index = Index::open_in_dir(folder).map_err(|error| damaged(error.to_string()))?;
        let opened = Self::over(&index, &manifest).map_err(|error| damaged(error.to_string()))?;
        let found: usize = opened.segments.iter().map(|segment| segment.ordinals.len()).sum();
        if found != manifest.products as usize {
            return Err(damaged(format!("it has {found} products and should have {}", manifest.products)));
        }
        Ok(opened)
    }

    /// Opens a folder and makes sure that it holds exactly these (ASIN, text) pairs in this order.
    ///
    /// # Errors
    ///
    /// [`SearchError::Stale`] where the products differ, and those of [`SearchIndex::open`].
    pub fn open_for<'a>(
        folder: &Path,
        products: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SearchError> {
        let index = Self::open(folder)?;
        if index.fingerprint != fingerprint(products) {
            return Err(SearchError::Stale {
                path: folder.to_owned(),
                reason: "it was built of other products than the catalogue has".to_owned(),
            });
        }
        Ok(index)
    }

    pub(super) fn over(index: &Index, manifest: &Manifest) -> Result<Self, SearchError> {
        let text = index.schema().get_field("text")?;
        let mut segments = Vec::new();
        for segment in index.searchable_segments()? {
            segments.push(Segment::open(&SegmentReader::open(&segment)?, text)?);
        }
        let collection = Collection { documents: manifest.documents, tokens: manifest.tokens };
        let ranking = Bm25::default();
        Ok(Self {
            segments,
            analyzer: Analyzer::new()?,
            text,
            collection,
            products: manifest.products,
            fingerprint: manifest.fingerprint.clone(),
            ranking,
            inverse_norms: ranking.inverse_norms(collection),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// The same index with other constants.
    pub fn with_ranking(mut self, ranking: Bm25) -> Self {
        self.ranking = ranking;
        self.inverse_norms = ranking.inverse_norms(self.collection);
        for segment in &mut self.segments {
            segment.reaches = RwLock::default();
        }
        self
    }

    /// How many products the index holds.
    pub fn len(&self) -> usize {
        self.products as usize
    }

    /// Whether the index holds no product.
    pub fn is_empty(&self) -> bool {
        self.products == 0
    }

    /// In how many parts the postings lie; it changes no answer.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// SHA-256 over the products, in hexadecimal digits: equal for equal catalogues.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The analyzer that made the terms.
    pub fn analyzer(&self) -> &Analyzer {
        &self.analyzer
    }

    /// The best `limit` products for a query, best first; fewer where fewer have any of its terms.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, SearchError> {
        self.search_pruning(query, limit, MANY_POSTINGS)
    }

    /// The same; segments in which the terms have more postings than `many` are pruned.
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

        // Document frequencies are those of the whole index, so all segments are asked before any is scored.
        let mut found = Vec::with_capacity(terms.len());
        for (term, count) in &terms {
            let term = Term::from_field_text(self.text, term);
            let mut infos = Vec::with_capacity(self.segments.len());
            for segment in &self.segments {
                infos.push(segment.postings.get_term_info(&term).map_err(tantivy::TantivyError::from)?);
            }
            let frequency: u64 = infos.iter().flatten().map(|info| u64::from(info.doc_freq)).sum();
            if frequency > 0 {
                found.push((weight(self.collection, frequency, *count), infos));
            }
        }

        let mut scores = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut best = Vec::new();
        for (place, segment) in self.segments.iter().enumerate() {
            let terms = || found.iter().filter_map(|(weight, infos)| Some((*weight, infos[place].as_ref()?)));
            let postings: u64 = terms().map(|(_, info)| u64::from(info.doc_freq)).sum();
            let result = if postings > many {
                segment.best_pruned(terms(), &self.inverse_norms, limit)
            } else {
                segment.best(terms(), &self.inverse_norms, limit, &mut scores)
            };
            best.extend(result?.into_iter().map(|candidate| (candidate, segment)));
        }
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(scores);

        if self.segments.len() > 1 {
            best.sort_by(|(left, one), (right, other)| {
                right
                    .score
                    .total_cmp(&left.score)
                    .then_with(|| one.asin(left.rank).cmp(other.asin(right.rank)))
                    .then(left.ordinal.cmp(&right.ordinal))
            });
            best.truncate(limit);
        }
        Ok(best
            .into_iter()
            .map(|(candidate, segment)| Hit {
                id: candidate.ordinal,
                asin: segment.asin(candidate.rank).to_owned(),
                score: candidate.score,
            })
            .collect())
    }
}

impl Segment {
    fn open(reader: &SegmentReader, text: Field) -> Result<Self, SearchError> {
        let documents = reader.max_doc();
        let columns = reader.fast_fields();
        let column = columns.u64(ORDINAL)?;
        let ordinals = (0..documents).map(|document| column.first(document).unwrap_or(0) as u32).collect();
        let (mut asins, mut ends, mut ranks) = (String::new(), Vec::new(), Vec::new());
        if let Some(column) = columns.str(ASIN)? {
            ranks =
                (0..documents).map(|document| column.ords().first(document).unwrap_or(0) as u32).collect();
            let failed = |error: std::io::Error| SearchError::Storage(error.into());
            let mut names = column.dictionary().stream().map_err(failed)?;
            while names.advance() {
                asins.push_str(&String::from_utf8_lossy(names.key()));
                ends.push(asins.len() as u32);
            }
        }
        Ok(Self {
            postings: reader.inverted_index(text)?,
            norms: reader.get_fieldnorms_reader(text)?,
            reaches: RwLock::default(),
            ordinals,
            ranks,
            asins,
            ends,
        })
    }

    fn asin(&self, rank: u32) -> &str {
        let rank = rank as usize;
        let start = rank.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.asins[start as usize..self.ends[rank] as usize]
    }

    pub(super) fn candidate(&self, document: u32, score: f32) -> Candidate {
        let document = document as usize;
        Candidate { score, rank: self.ranks[document], ordinal: self.ordinals[document] }
    }

    /// The greatest `tf / (k1 (1 - b + b dl / avgdl))` of the documents that have a term: no document gains more
    /// from it than this says. Found by walking the term's postings once and kept.
    pub(super) fn reach(&self, info: &TermInfo, inverse_norms: &[f32; 256]) -> Result<f32, SearchError> {
        let key = info.postings_range.start;
        let known = self.reaches.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(reach) = known {
            return Ok(reach);
        }
        let mut reach = 0.0f32;
        self.each_posting(info, |document, frequency| {
            let norm = self.norms.fieldnorm_id(document);
            reach = reach.max(frequency as f32 * inverse_norms[usize::from(norm)]);
        })?;
        self.reaches.write().unwrap_or_else(PoisonError::into_inner).insert(key, reach);
        Ok(reach)
    }

    /// Walks the documents of a term with how often each has it.
    fn each_posting(&self, info: &TermInfo, mut visit: impl FnMut(u32, u32)) -> Result<(), SearchError> {
        let mut block = self
            .postings
            .read_block_postings_from_terminfo(info, IndexRecordOption::WithFreqs)
            .map_err(tantivy::TantivyError::from)?;
        loop {
            let documents = block.docs();
            if documents.is_empty() {
                return Ok(());
            }
            for (&document, &frequency) in documents.iter().zip(block.freqs()) {
                visit(document, frequency);
            }
            block.advance();
        }
    }

    /// The best `limit` documents, best first. `scores` is as it was afterwards, but for its length.
    fn best<'a>(
        &self,
        terms: impl Iterator<Item = (f32, &'a TermInfo)>,
        inverse_norms: &[f32; 256],
        limit: usize,
        scores: &mut Vec<f64>,
    ) -> Result<Vec<Candidate>, SearchError> {
        if scores.len() < self.ordinals.len() {
            scores.resize(self.ordinals.len(), UNTOUCHED);
        }
        let mut touched: Vec<u32> = Vec::new();
        for (weight, info) in terms {
            self.each_posting(info, |document, frequency| {
                let norm = self.norms.fieldnorm_id(document);
                let gain = f64::from(term_score(weight, frequency, inverse_norms[usize::from(norm)]));
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
        Ok(heap.into_sorted_vec())
    }
}

impl Ranker for SearchIndex {
    fn rank(&self, query: &str, limit: usize) -> Result<Vec<String>, EnvError> {
        let hits = self.search(query, limit).map_err(|error| EnvError::Other(error.to_string()))?;
        Ok(hits.into_iter().map(|hit| hit.asin).collect())
    }
}
