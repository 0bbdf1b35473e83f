//! Keyword search with Lucene's ranking, as configured in Anserini and Pyserini, on a custom index
//! format.
//!
//! | file | subject |
//! |---|---|
//! | `analyzer.rs` | conversion of text to terms |
//! | `bm25.rs` | scores of Lucene's `BM25Similarity` |
//! | `build.rs` | building an index ([`IndexBuilder`]) |
//! | `index.rs` | searching ([`SearchIndex`]) |
//! | `invert.rs` | collecting the postings of every term |
//! | `manifest.rs` | manifest of a complete index |
//! | `porter.rs` | Porter's stemmer |
//! | `postings.rs` | file format of an index |
//! | `pruned.rs` | pruned search: MaxScore (Turtle and Flood 1995) |
//!
//! A query is a bag of words: each distinct term is weighted by how often it occurs. Ties are
//! ordered by the text's name (ascending bytes), then by its position in the collection.
//!
//! Storage and scoring are custom (`postings.rs`, `invert.rs`, `pruned.rs`), because no library
//! scores like Lucene and breaks ties by name.
//!
//! Differs from Lucene: term scores are added in query order and in double precision, while
//! Lucene's order depends on its scorer. All 150 rankings recorded for the shop (`turnwise-env`)
//! have the same order; of their 7,084 scores with four decimals, four differ in the last bit or
//! decimal.

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

/// Error from an index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The token grammar does not compile.
    #[error("the token grammar does not compile: {reason}")]
    Grammar {
        /// Message of the compiler.
        reason: String,
    },
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error from the operating system.
        source: std::io::Error,
    },
    /// The folder to write to is not empty.
    #[error("{}: the folder is not empty; name a new folder, or delete the old index first", path.display())]
    Occupied {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The folder has no complete index.
    #[error("{}: no finished search index ({MANIFEST} is missing); build it again in an empty folder", path.display())]
    Unfinished {
        /// Path of the folder.
        path: PathBuf,
    },
    /// The index was built by another version, or from other texts.
    #[error("{}: the search index is stale: {reason}; delete the folder and build it again", path.display())]
    Stale {
        /// Path of the folder.
        path: PathBuf,
        /// The difference.
        reason: String,
    },
    /// Files are missing, or their size differs from that in the finished index.
    #[error("{}: the search index is damaged: {reason}; delete the folder and build it again", path.display())]
    Damaged {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause of the failure.
        reason: String,
    },
    /// The index cannot hold this many texts.
    #[error("a search index holds at most {} texts", u32::MAX)]
    TooMany,
    /// A file of queries or answers has an invalid line.
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
