//! Builds search indexes.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest as _, Sha256};
use turnwise_core::hexadecimal;
use turnwise_files::PathError;

use super::bm25::encode_length;
use super::invert::Inverter;
use super::manifest::{FORMAT, Manifest, POSTINGS};
use super::postings::Postings;
use super::{Analyzer, SearchError, SearchIndex};

const BATCH: usize = 256;

/// Options of an [`IndexBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// Maximum bytes of postings in memory. At this limit, postings are written to a temporary
    /// file.
    pub memory: usize,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { memory: 256 << 20 }
    }
}

/// Collects texts into an index, using about `memory` bytes plus 20 per text.
pub struct IndexBuilder {
    analyzer: Analyzer,
    inverter: Inverter,
    folder: Option<PathBuf>,
    batch: Vec<(String, String)>,
    texts: u32,
    documents: u64,
    tokens: u64,
    hash: Sha256,
}

impl std::fmt::Debug for IndexBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("IndexBuilder")
            .field("folder", &self.folder)
            .field("texts", &self.texts)
            .finish_non_exhaustive()
    }
}

impl IndexBuilder {
    /// Creates an in-memory builder, for a few thousand texts.
    ///
    /// # Errors
    /// Fails like [`Analyzer::new`].
    pub fn in_memory() -> Result<Self, SearchError> {
        Self::new(None, BuildOptions::default())
    }

    /// Creates a builder for a new or empty folder.
    ///
    /// # Errors
    /// Returns [`SearchError::Occupied`] if the folder is not empty, and [`SearchError::Io`] if it
    /// cannot be created or read. Also fails like [`Analyzer::new`].
    pub fn create(folder: &Path, options: BuildOptions) -> Result<Self, SearchError> {
        let failed = |source| PathError::new(folder, source);
        fs::create_dir_all(folder).map_err(failed)?;
        if fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(SearchError::Occupied { path: folder.to_owned() });
        }
        Self::new(Some(folder.to_owned()), options)
    }

    fn new(folder: Option<PathBuf>, options: BuildOptions) -> Result<Self, SearchError> {
        Ok(Self {
            analyzer: Analyzer::new()?,
            inverter: Inverter::new(folder.as_deref(), options.memory),
            folder,
            batch: Vec::with_capacity(BATCH),
            texts: 0,
            documents: 0,
            tokens: 0,
            hash: Sha256::new(),
        })
    }

    /// Adds the next text.
    ///
    /// # Errors
    /// Returns [`SearchError::TooMany`] after 2^32 - 1 texts, and [`SearchError::Io`] if writing
    /// fails.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), SearchError> {
        self.texts = self.texts.checked_add(1).ok_or(SearchError::TooMany)?;
        hash_text(&mut self.hash, name, text);
        self.batch.push((name.to_owned(), text.to_owned()));
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// Adds an analyzed text. Calls must not be mixed with [`IndexBuilder::add`].
    pub(crate) fn add_analysed(&mut self, name: &str, text: &str, terms: &Terms) -> Result<(), SearchError> {
        self.texts = self.texts.checked_add(1).ok_or(SearchError::TooMany)?;
        hash_text(&mut self.hash, name, text);
        self.put(name, terms)
    }

    fn flush(&mut self) -> Result<(), SearchError> {
        let analyzer = &self.analyzer;
        let analysed: Vec<Terms> = self.batch.par_iter().map(|(_, text)| Terms::of(analyzer, text)).collect();
        let batch = std::mem::take(&mut self.batch);
        for ((name, _), terms) in batch.iter().zip(analysed) {
            self.put(name, &terms)?;
        }
        Ok(())
    }

    fn put(&mut self, name: &str, terms: &Terms) -> Result<(), SearchError> {
        let count = terms.ends.len();
        self.documents += u64::from(count > 0);
        self.tokens += count as u64;
        self.inverter.add(name, encode_length(count as u32), terms.iter())
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.inverter.runs()
    }

    /// Writes the remaining texts and opens the index.
    ///
    /// # Errors
    /// Returns [`SearchError::Io`] if writing fails, or if all terms together, all names together,
    /// or the postings of one term take 4 GiB or more. For an index in a folder, also fails like
    /// [`SearchIndex::open`].
    pub fn finish(mut self) -> Result<SearchIndex, SearchError> {
        self.flush()?;
        let manifest = Manifest {
            format: FORMAT,
            texts: self.texts,
            documents: self.documents,
            tokens: self.tokens,
            fingerprint: hexadecimal(&self.hash.finalize()),
            files: std::collections::BTreeMap::new(),
        };
        let Some(folder) = &self.folder else {
            let mut bytes = Vec::new();
            let failed = |source| PathError { path: "index in memory".into(), source };
            self.inverter.finish(&mut bytes).map_err(failed)?;
            return SearchIndex::over(Postings::in_memory(bytes)?, &manifest);
        };
        let path = folder.join(POSTINGS);
        let write = |inverter: Inverter| {
            let mut out = BufWriter::new(fs::File::create_new(&path)?);
            inverter.finish(&mut out)?;
            out.flush()?;
            out.get_ref().sync_all()
        };
        write(self.inverter).map_err(|source| PathError::new(&path, source))?;
        manifest.write(folder)?;
        SearchIndex::open(folder)
    }
}

/// Hashes a text with its lengths, so that different collections have different hashes.
pub(crate) fn hash_text(hash: &mut Sha256, name: &str, text: &str) {
    for part in [name, text] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
}

pub(super) fn fingerprint<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    for (name, text) in texts {
        hash_text(&mut hash, name, text);
    }
    hexadecimal(&hash.finalize())
}

pub(crate) struct Terms {
    buffer: String,
    ends: Vec<usize>,
}

impl Terms {
    pub(crate) fn of(analyzer: &Analyzer, text: &str) -> Self {
        let mut terms =
            Self { buffer: String::with_capacity(text.len()), ends: Vec::with_capacity(text.len() / 6) };
        analyzer.each(text, |_, term| {
            terms.buffer.push_str(term);
            terms.ends.push(terms.buffer.len());
        });
        terms
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.buffer[start..end])
    }
}
