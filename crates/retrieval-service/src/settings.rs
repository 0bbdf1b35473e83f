//! Settings of a retriever.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use turnwise_model::Compute;
use turnwise_model::bert::SentenceOptions;
use turnwise_retrieval::dense::{Encoding, check_graphs_are_built_in};
use turnwise_retrieval::{BatchingOptions, Hybrid, RetrievalError, RetrieverKind};

use crate::{EncoderOptions, HttpOptions};

/// JSON key of the queries in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestKey {
    /// `queries`, as in Search-R1's server.
    #[default]
    Queries,
    /// `query`, as in the clients of verl-agent and SkyRL.
    Query,
}

impl RequestKey {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queries => "queries",
            Self::Query => "query",
        }
    }
}

/// Settings of a retriever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetrievalConfig {
    /// Kind of retriever.
    pub kind: RetrieverKind,
    /// Folder of the index (`turnwise index build`).
    pub index: PathBuf,
    /// Model folder of the encoder (E5 or sentence-transformers), for `dense` and `hybrid`.
    pub encoder: PathBuf,
    /// Searches vectors approximately with the folder's HNSW graph (`turnwise index build
    /// --approximate`). The search compares a few thousand vectors instead of all, and may miss
    /// some hits. For `dense` and `hybrid`; needs the feature `hnsw`.
    pub approximate: bool,
    /// Text before every encoded query. This and the next two settings default to the index's
    /// settings, or to E5's (`query: `, `passage: `, 256 tokens) if the index has none. Values that
    /// differ from the index's settings are rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_prefix: Option<String>,
    /// Text before every encoded passage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passage_prefix: Option<String>,
    /// Maximum number of tokens in an encoded text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = 65536))]
    pub max_tokens: Option<usize>,
    /// Precision of the encoder.
    pub compute: Compute,
    /// Constant of reciprocal rank fusion (`hybrid`).
    #[schemars(range(min = 0.0, max = 1e9))]
    pub fusion_k: f64,
    /// Number of passages requested from each part of a hybrid.
    #[schemars(range(min = 1, max = 100_000))]
    pub fusion_depth: usize,
    /// Addresses of servers with the same collection. Requests rotate among them; a failed request
    /// is retried at the next server.
    pub servers: Vec<String>,
    /// JSON key of the queries in requests to servers.
    pub request_key: RequestKey,
    /// Allows servers on other machines.
    pub allow_remote: bool,
    /// Timeout of a request to a server in seconds, including the answer.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Number of retries of a failed request, each on the next server.
    #[schemars(range(max = 100))]
    pub retries: u32,
    /// Seconds to wait after every server has failed; doubled each time, and randomly shortened by
    /// up to half.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub backoff_s: f64,
    /// Longest wait between two attempts, in seconds.
    #[schemars(range(min = 0.0, max = 86400.0))]
    pub backoff_max_s: f64,
    /// Maximum number of queries per search of servers or vectors; 1 disables batching.
    #[schemars(range(min = 1, max = 4096))]
    pub batch_queries: usize,
    /// Milliseconds that a search waits for more queries.
    #[schemars(range(min = 0.0, max = 10000.0))]
    pub batch_wait_ms: f64,
    /// Maximum number of concurrent searches; additional queries join the next search.
    #[schemars(range(min = 1, max = 256))]
    pub batch_in_flight: usize,
    /// Maximum number of cached queries; the least recently used is evicted first. 0 disables the
    /// cache.
    #[schemars(range(max = 100_000_000))]
    pub cache: usize,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self {
            kind: RetrieverKind::Bm25,
            index: PathBuf::new(),
            encoder: PathBuf::new(),
            approximate: false,
            query_prefix: None,
            passage_prefix: None,
            max_tokens: None,
            compute: Compute::F32,
            fusion_k: Hybrid::K,
            fusion_depth: 50,
            servers: Vec::new(),
            request_key: RequestKey::Queries,
            allow_remote: false,
            timeout_s: 60.0,
            retries: 3,
            backoff_s: 0.5,
            backoff_max_s: 10.0,
            batch_queries: 64,
            batch_wait_ms: 2.0,
            batch_in_flight: 2,
            cache: 10_000,
        }
    }
}

impl RetrievalConfig {
    /// Rejects invalid settings.
    ///
    /// # Errors
    ///
    /// Returns [`RetrievalError::Setting`] with the key and valid values.
    pub fn check(&self) -> Result<(), RetrievalError> {
        let fail = |key: &str, reason: &str| {
            Err(RetrievalError::Setting { key: key.to_owned(), reason: reason.to_owned() })
        };
        turnwise_settings::check(self).map_err(|error| RetrievalError::Setting {
            key: "retriever".to_owned(),
            reason: error.to_string(),
        })?;
        match self.kind {
            RetrieverKind::Bm25 | RetrieverKind::Dense | RetrieverKind::Hybrid
                if self.index.as_os_str().is_empty() =>
            {
                fail("index", "name the folder of an index; `turnwise index build` makes one")
            }
            RetrieverKind::Http if self.servers.is_empty() => {
                fail("servers", "name at least one server, such as \"http://127.0.0.1:8000/retrieve\"")
            }
            RetrieverKind::Dense | RetrieverKind::Hybrid if self.encoder.as_os_str().is_empty() => {
                fail("encoder", "name the model folder of the encoder that made the vectors")
            }
            RetrieverKind::Bm25 | RetrieverKind::Http if self.approximate => fail(
                "approximate",
                "is set, and only the kinds `dense` and `hybrid` search vectors; remove it",
            ),
            RetrieverKind::Dense | RetrieverKind::Hybrid if self.approximate => check_graphs_are_built_in(),
            RetrieverKind::Bm25 | RetrieverKind::Dense | RetrieverKind::Hybrid | RetrieverKind::Http => {
                Ok(())
            }
        }
    }

    pub(crate) fn http(&self) -> HttpOptions {
        HttpOptions {
            timeout: Duration::from_secs_f64(self.timeout_s),
            retries: self.retries,
            backoff: Duration::from_secs_f64(self.backoff_s),
            backoff_max: Duration::from_secs_f64(self.backoff_max_s),
            request_key: self.request_key,
            allow_remote: self.allow_remote,
            ..HttpOptions::default()
        }
    }

    /// Returns the settings of the encoder. `made` has the index's settings, which are the
    /// defaults.
    pub fn encoder_options(&self, made: Option<Encoding>) -> EncoderOptions {
        let made = made.unwrap_or_else(|| EncoderOptions::default().encoding());
        EncoderOptions {
            query_prefix: self.query_prefix.clone().unwrap_or(made.query_prefix),
            passage_prefix: self.passage_prefix.clone().unwrap_or(made.passage_prefix),
            sentence: SentenceOptions {
                max_tokens: self.max_tokens.unwrap_or(made.max_tokens),
                compute: self.compute,
            },
        }
    }

    pub(crate) fn batching(&self) -> BatchingOptions {
        BatchingOptions {
            max_queries: self.batch_queries,
            wait: Duration::from_secs_f64(self.batch_wait_ms / 1e3),
            in_flight: self.batch_in_flight,
        }
    }
}
