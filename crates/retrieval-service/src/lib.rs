//! Retrieval over HTTP ([`HttpRetriever`], [`Server`]), sentence encoders ([`PrefixedEncoder`]),
//! and retrievers from settings ([`open`]). All calls block.
//!
//! Internal to the workspace: nothing here is stable, and the modules are hidden from the
//! documentation.
//!
//! ```
//! use turnwise_retrieval_service::{RetrievalConfig, RetrieverKind};
//!
//! let servers = vec!["http://127.0.0.1:8000/retrieve".into()];
//! let config = RetrievalConfig { kind: RetrieverKind::Http, servers, ..RetrievalConfig::default() };
//! config.check()?;
//! assert!(RetrievalConfig { servers: Vec::new(), ..config }.check().is_err());
//! # Ok::<(), turnwise_retrieval::RetrievalError>(())
//! ```

mod client;
mod encoder;
mod open;
#[doc(hidden)]
pub mod protocol;
mod server;
mod settings;

pub use client::{HttpOptions, HttpRetriever};
pub use encoder::{EncoderOptions, PrefixedEncoder};
pub use open::{OpenRetriever, open};
pub use server::{Server, ServerOptions, Stopper};
#[doc(hidden)]
pub use server::{names_this_machine, parse_request};
pub use settings::{RequestKey, RetrievalConfig};
pub use turnwise_retrieval::RetrieverKind;
