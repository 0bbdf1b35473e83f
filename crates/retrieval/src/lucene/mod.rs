//! Keyword search that ranks like Lucene as configured in Anserini and Pyserini, with its own index
//! format.
//!
//! A query is a bag of words, weighted by how often they occur. Ties are ordered by the text's name
//! (in byte order), then by index.
//!
//! Differs from Lucene: term scores are added in query order and double precision. All 150 rankings
//! recorded for WebShop (`turnwise-env`) agree; of their 7,084 scores, rounded to four decimals,
//! four differ in the last bit or decimal.

pub mod analyzer;
pub mod bm25;
mod build;
mod index;
mod invert;
mod manifest;
mod porter;
mod postings;
mod pruned;

pub use analyzer::Analyzer;
pub use bm25::Bm25;
pub use build::{BuildOptions, IndexBuilder};
pub(crate) use build::{Terms, hash_text};
pub use index::{Hit, SearchIndex};
pub use manifest::MANIFEST;
pub(crate) use postings::{read_varint, write_varint};

use std::path::PathBuf;

/// Error from a search index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The token grammar does not compile.
    #[error("the token grammar does not compile: {reason}")]
    Grammar {
        /// The regular expression compiler's error.
        reason: String,
    },
    /// A file or folder could not be read or written.
    #[error(transparent)]
    Io(#[from] turnwise_files::PathError),
    /// The folder is not empty.
    #[error("{}: the folder is not empty; name a new folder, or delete the old index first", path.display())]
    Occupied {
        /// Folder path.
        path: PathBuf,
    },
    /// The folder has no complete index.
    #[error("{}: no finished search index ({MANIFEST} is missing); build it again in an empty folder", path.display())]
    Unfinished {
        /// Folder path.
        path: PathBuf,
    },
    /// The index has another format version, or was built from texts other than the given ones.
    #[error("{}: the search index is stale: {reason}; delete the folder and build it again", path.display())]
    Stale {
        /// Folder path.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// Files are missing, or their sizes differ from the recorded ones.
    #[error("{}: the search index is damaged: {reason}; delete the folder and build it again", path.display())]
    Damaged {
        /// File or folder path.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The index is full.
    #[error("a search index holds at most {} texts", u32::MAX)]
    TooMany,
    /// A line of queries or answers is invalid.
    #[error("{name}, line {line}: {reason}")]
    Line {
        /// File path.
        name: String,
        /// Line, counted from 1.
        line: usize,
        /// Cause.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
