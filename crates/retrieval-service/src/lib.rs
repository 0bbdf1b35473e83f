//! Retrieval over HTTP, and creation of retrievers from settings. Calls block; there is no async
//! runtime.
//!
//! Internal to the workspace: nothing here is stable, and the documentation leaves modules out.
//!
//! | file | subject |
//! |---|---|
//! | `client.rs` | [`HttpRetriever`]: client for one or more servers |
//! | `encoder.rs` | [`PrefixedEncoder`]: E5 and other sentence encoders |
//! | `open.rs` | [`open`]: a retriever from [`RetrievalConfig`] |
//! | `protocol.rs` | requests and responses of Search-R1's `/retrieve` |
//! | `server/` | [`Server`]: HTTP server for any retriever |
//! | `settings.rs` | [`RetrievalConfig`] |
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
#[doc(hidden)]
pub use server::parse_request;
pub use server::{Server, ServerOptions, Stopper};
pub use settings::{RequestKey, RetrievalConfig};
pub use turnwise_retrieval::RetrieverKind;
