//! Passage retrieval.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! A [`Retriever`] finds passages by keywords, vectors or a request to a server.
//!
//! ```
//! use turnwise_retrieval::{Bm25Retriever, Passage, Retriever as _};
//!
//! let passage = |id: &str, contents: &str| Passage { id: id.into(), contents: contents.into() };
//! let oslo = passage("0", "\"Oslo\"\nThe capital of Norway.");
//! let rome = passage("1", "\"Rome\"\nThe capital of Italy.");
//! let found = Bm25Retriever::in_memory([oslo, rome])?.search(&["capital of Norway"], 1)?;
//! assert_eq!(found[0][0].passage.id, "0");
//! # Ok::<(), turnwise_retrieval::RetrievalError>(())
//! ```

mod batching;
mod bm25;
#[doc(hidden)]
pub mod build;
mod bytes;
mod cache;
#[doc(hidden)]
pub mod dense;
mod error;
mod hybrid;
mod kind;
#[doc(hidden)]
pub mod lucene;
mod manifest;
mod passage;
#[doc(hidden)]
pub mod store;
#[cfg(test)]
mod testing;

pub use batching::{Batching, BatchingOptions};
pub use bm25::Bm25Retriever;
pub use cache::{CacheCounts, Cached};
pub use error::RetrievalError;
pub use hybrid::Hybrid;
pub use kind::RetrieverKind;
pub use passage::{Hit, Passage, Retriever};
