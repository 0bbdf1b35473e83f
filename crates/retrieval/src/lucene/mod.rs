//! Keyword search that ranks like Lucene as configured in Anserini and Pyserini, with its own index
//! format.
//!
//! | file | subject |
//! |---|---|
//! | `analyzer.rs` | converts text to terms |
//! | `bm25.rs` | scores of Lucene's `BM25Similarity` |
//! | `build.rs` | building an index ([`IndexBuilder`]) |
//! | `index.rs` | searching ([`SearchIndex`]) |
//! | `invert.rs` | collects the postings of each term |
//! | `manifest.rs` | manifest file of a complete index |
//! | `porter.rs` | Porter's stemmer |
//! | `postings.rs` | file format of an index |
//! | `pruned.rs` | pruned search: MaxScore (Turtle and Flood 1995) |
//!
//! A query is a bag of words, in which each distinct term is weighted by how often it occurs. Ties
//! are broken by the text's name (in ascending byte order), then by its index in the collection.
//!
//! Storage and scoring are implemented here (`postings.rs`, `invert.rs`, `pruned.rs`), because no
//! library scores like Lucene and breaks ties by name.
//!
//! Differs from Lucene: term scores are added in query order and in double precision, whereas
//! Lucene's order depends on its scorer. All 150 rankings recorded for WebShop (`turnwise-env`)
//! have the same order. Of their 7,084 scores, rounded to four decimals, four differ in the last
//! bit or decimal.

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
        /// Error message of the regular expression compiler.
        reason: String,
    },
    /// A file or folder could not be read or written.
    #[error(transparent)]
    Io(#[from] turnwise_files::PathError),
    /// The folder to write to is not empty.
    #[error("{}: the folder is not empty; name a new folder, or delete the old index first", path.display())]
    Occupied {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The folder does not contain a complete index.
    #[error("{}: no finished search index ({MANIFEST} is missing); build it again in an empty folder", path.display())]
    Unfinished {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The index was built by another version or from other texts.
    #[error("{}: the search index is stale: {reason}; delete the folder and build it again", path.display())]
    Stale {
        /// Path of the folder.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// Files are missing, or their sizes differ from those recorded when the index was finished.
    #[error("{}: the search index is damaged: {reason}; delete the folder and build it again", path.display())]
    Damaged {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause of the failure.
        reason: String,
    },
    /// The index cannot hold more texts.
    #[error("a search index holds at most {} texts", u32::MAX)]
    TooMany,
    /// A line in a file of queries or answers is invalid.
    #[error("{name}, line {line}: {reason}")]
    Line {
        /// Path of the file.
        name: String,
        /// Line number, counted from 1.
        line: usize,
        /// Cause of the failure.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
