//! Passages found by queries.
//!
//! A [`Retriever`] takes queries and gives, for each, the best passages of its collection. What it searches with is its
//! own affair: an index of terms, vectors, or a server. This crate knows neither tensors nor HTTP; what needs them
//! implements the trait elsewhere.

mod error;
mod passage;

pub use error::RetrievalError;
pub use passage::{Hit, Passage, Retriever};
