//! Writing an index, one product at a time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use tantivy::indexer::NoMergePolicy;
use tantivy::schema::{Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer};
use tantivy::{Index, IndexWriter, TantivyDocument};

use super::manifest::{FORMAT, Manifest};
use super::{Analyzer, SearchError, SearchIndex};

/// The analyzer's name in the schema.
const ANALYZER: &str = "lucene-english";

/// How an index is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// Threads that analyse text.
    pub threads: usize,
    /// Bytes that all threads together may fill before they write a segment; at least 15 MB per thread.
    pub memory: usize,
    /// Whether the segments become one at the end, which makes searches faster.
    pub merge: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { threads: 1, memory: 256 << 20, merge: true }
    }
}

/// The fields of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) text: Field,
    pub(super) asin: Field,
    pub(super) ordinal: Field,
}

/// Field names, for columns are opened by name.
pub(super) const ASIN: &str = "asin";
/// Position in the catalogue.
pub(super) const ORDINAL: &str = "ordinal";

fn schema() -> (Schema, Fields) {
    let mut schema = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER)
        .set_index_option(IndexRecordOption::WithFreqs)
        .set_fieldnorms(true);
    let fields = Fields {
        text: schema.add_text_field("text", TextOptions::default().set_indexing_options(indexing)),
        asin: schema.add_text_field(ASIN, TextOptions::default().set_fast("raw")),
        ordinal: schema.add_u64_field(ORDINAL, NumericOptions::default().set_fast()),
    };
    (schema.build(), fields)
}

/// Collects products into an index.
///
/// Memory stays near the options' `memory`: text goes to disk, and only postings of the current segment are held.
pub struct IndexBuilder {
    index: Index,
    writer: IndexWriter,
    fields: Fields,
    folder: Option<PathBuf>,
    merge: bool,
    products: u32,
    counts: Arc<Counts>,
    hash: Sha256,
}

impl std::fmt::Debug for IndexBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("IndexBuilder")
            .field("folder", &self.folder)
            .field("products", &self.products)
            .finish_non_exhaustive()
    }
}

impl IndexBuilder {
    /// An index in memory, for catalogues of some thousand products.
    pub fn in_memory() -> Result<Self, SearchError> {
        let options = BuildOptions { memory: 32 << 20, ..BuildOptions::default() };
        Self::new(None, options)
    }

    /// An index in a folder, which is made if it is missing and must be empty if it is not.
    pub fn create(folder: &Path, options: BuildOptions) -> Result<Self, SearchError> {
        let failed = |source| SearchError::Io { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        if fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(SearchError::Occupied { path: folder.to_owned() });
        }
        Self::new(Some(folder.to_owned()), options)
    }

    fn new(folder: Option<PathBuf>, options: BuildOptions) -> Result<Self, SearchError> {
        let (schema, fields) = schema();
        let index = match &folder {
            None => Index::create_in_ram(schema),
            Some(folder) => Index::create_in_dir(folder, schema)?,
        };
        let counts = Arc::new(Counts::default());
        let tokenizer = CountingTokenizer { analyzer: Analyzer::new()?, counts: Arc::clone(&counts) };
        index.tokenizers().register(ANALYZER, TextAnalyzer::from(tokenizer));
        let writer = index.writer_with_num_threads(options.threads.max(1), options.memory)?;
        writer.set_merge_policy(Box::new(NoMergePolicy));
        Ok(Self {
            index,
            writer,
            fields,
            folder,
            merge: options.merge,
            products: 0,
            counts,
            hash: Sha256::new(),
        })
    }

    /// Adds the next product by its searched text.
    pub fn add(&mut self, asin: &str, text: &str) -> Result<(), SearchError> {
        let ordinal = self.products;
        self.products = ordinal.checked_add(1).ok_or(SearchError::TooMany)?;
        hash_product(&mut self.hash, asin, text);
        let mut document = TantivyDocument::new();
        document.add_text(self.fields.text, text);
        document.add_text(self.fields.asin, asin);
        document.add_u64(self.fields.ordinal, u64::from(ordinal));
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Ends the segment that is being filled, so that tests see several.
    #[cfg(test)]
    pub(super) fn cut(&mut self) -> Result<(), SearchError> {
        self.writer.commit()?;
        Ok(())
    }

    /// Leaves the segments as they are at the end.
    #[cfg(test)]
    pub(super) fn keep_segments(&mut self) {
        self.merge = false;
    }

    /// Writes the rest and opens the index.
    pub fn finish(mut self) -> Result<SearchIndex, SearchError> {
        self.writer.commit()?;
        let segments = self.index.searchable_segment_ids()?;
        if self.merge && segments.len() > 1 {
            self.writer.merge(&segments).wait()?;
            self.writer.garbage_collect_files().wait()?;
        }
        self.writer.wait_merging_threads()?;
        let manifest = Manifest {
            format: FORMAT,
            products: self.products,
            documents: self.counts.documents.load(Ordering::Relaxed),
            tokens: self.counts.tokens.load(Ordering::Relaxed),
            fingerprint: hex(self.hash),
            files: std::collections::BTreeMap::new(),
        };
        match &self.folder {
            None => SearchIndex::over(&self.index, &manifest),
            Some(folder) => {
                manifest.write(folder)?;
                SearchIndex::open(folder)
            }
        }
    }
}

/// Lengths first, so that no two catalogues hash alike.
fn hash_product(hash: &mut Sha256, asin: &str, text: &str) {
    for part in [asin, text] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The fingerprint that an index of these products has, in this order.
pub(super) fn fingerprint<'a>(products: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    for (asin, text) in products {
        hash_product(&mut hash, asin, text);
    }
    hex(hash)
}

/// What the formula needs, counted while documents go by: the storage layer only keeps lossy lengths.
#[derive(Debug, Default)]
struct Counts {
    documents: AtomicU64,
    tokens: AtomicU64,
}

/// The analyzer in the form that the storage layer asks for.
#[derive(Clone, Debug)]
struct CountingTokenizer {
    analyzer: Analyzer,
    counts: Arc<Counts>,
}

impl Tokenizer for CountingTokenizer {
    type TokenStream<'a> = Terms;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Terms {
        let mut terms = Terms { buffer: String::new(), ends: Vec::new(), next: 0, token: Token::default() };
        self.analyzer.each(text, |_, term| {
            terms.buffer.push_str(term);
            terms.ends.push(terms.buffer.len());
        });
        let count = terms.ends.len() as u64;
        self.counts.documents.fetch_add(u64::from(count > 0), Ordering::Relaxed);
        self.counts.tokens.fetch_add(count, Ordering::Relaxed);
        terms
    }
}

/// All terms of a text, one behind the other.
struct Terms {
    buffer: String,
    ends: Vec<usize>,
    next: usize,
    token: Token,
}

impl TokenStream for Terms {
    fn advance(&mut self) -> bool {
        let Some(&end) = self.ends.get(self.next) else { return false };
        let start = self.next.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.token.text.clear();
        self.token.text.push_str(&self.buffer[start..end]);
        self.token.position = self.next;
        self.next += 1;
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}
