//! Passages found by queries.
//!
//! A [`Retriever`] takes queries and gives, for each, the best passages of its collection. What it searches with is its
//! own affair: an index of terms, vectors, or a server. This crate knows neither tensors nor HTTP; what needs them
//! implements the trait elsewhere.

mod batching;
mod bm25;
pub mod build;
mod bytes;
mod cache;
pub mod dense;
mod error;
mod hybrid;
pub mod lucene;
mod manifest;
mod passage;
pub mod store;
#[cfg(test)]
mod testing;

pub use batching::{Batching, BatchingOptions};
pub use bm25::Bm25Retriever;
pub use cache::{CacheCounts, Cached};
pub use error::RetrievalError;
pub use hybrid::Hybrid;
pub use passage::{Hit, Passage, Retriever};
