//! Search by words: the ranking of Lucene as Anserini and Pyserini set it up, on an index of our own kind.
//!
//! | file | subject |
//! |---|---|
//! | `analyzer.rs` | from text to the terms that are searched, as Anserini's default English analyzer makes them |
//! | `bm25.rs` | the scores of Lucene's `BM25Similarity`, each term's in its single precision |
//! | `build.rs` | writing an index in memory or in a folder, one text at a time ([`IndexBuilder`]) |
//! | `index.rs` | answering queries, from many threads at once ([`SearchIndex`]) |
//! | `invert.rs` | from documents, one after the other, to the postings of every term |
//! | `manifest.rs` | the file that says that an index is whole, and of what |
//! | `porter.rs` | Porter's stemmer as Lucene's `PorterStemFilter` runs it |
//! | `postings.rs` | the file of an index |
//! | `pruned.rs` | the best documents for a query without looking at every posting: MaxScore (Turtle and Flood 1995) |
//!
//! A query is a bag of words: each distinct term counts with the number of times it occurs. Equal scores are
//! ordered by the name of the text, ascending by bytes, then by its position in the collection.
//!
//! Storage and scoring are ours (`postings.rs`, `invert.rs`, `pruned.rs`): no library scores as Lucene does with ties broken by
//! identifier, and a store without its scorer costs more to build than these files.
//!
//! Differs from Lucene: term scores are added in the query's order and in double precision; Lucene's order
//! depends on the scorer that it chooses. All 150 rankings recorded for the shop (`turnwise-env`) come out in order; of their 7,084 scores,
//! printed with four decimals, four differ in the last bit or decimal.

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

/// Error of an index.
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
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The folder to write to has something in it.
    #[error("{}: the folder is not empty; name a new folder, or delete the old index first", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// There is no whole index in the folder.
    #[error("{}: no finished search index ({MANIFEST} is missing); build it again in an empty folder", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The index was made by another version, or of other texts.
    #[error("{}: the search index is stale: {reason}; delete the folder and build it again", path.display())]
    Stale {
        /// The folder.
        path: PathBuf,
        /// Difference that was found.
        reason: String,
    },
    /// Files are missing or have another size than when the index was finished.
    #[error("{}: the search index is damaged: {reason}; delete the folder and build it again", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// Problem with it.
        reason: String,
    },
    /// More texts than an index can number.
    #[error("a search index holds at most {} texts", u32::MAX)]
    TooMany,
    /// A file of queries or answers has an invalid line.
    #[error("{name}, line {line}: {reason}")]
    Line {
        /// The file.
        name: String,
        /// Counted from 1.
        line: usize,
        /// Problem with it.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
