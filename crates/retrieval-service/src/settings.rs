//! A retriever's settings.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use turnwise_model::Compute;
use turnwise_model::bert::SentenceOptions;
use turnwise_retrieval::dense::{Encoding, check_graphs_are_built_in};
use turnwise_retrieval::{BatchingOptions, Hybrid, RetrievalError, RetrieverKind};

use crate::{EncoderOptions, HttpOptions};

/// JSON key under which queries are sent.
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

/// A retriever's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetrievalConfig {
    /// Kind of retriever.
    pub kind: RetrieverKind,
    /// Index folder from `turnwise index build`.
    pub index: PathBuf,
    /// Text encoder's model folder (E5 or sentence-transformers), for `dense` and `hybrid`.
    pub encoder: PathBuf,
    /// Whether `dense` and `hybrid` use the HNSW graph of `turnwise index build --approximate`
    /// (feature `hnsw`), which is faster and may miss hits.
    pub approximate: bool,
    /// Text before each encoded query. The defaults of `query_prefix`, `passage_prefix` and
    /// `max_tokens` are the index's values, or else E5's (`query: `, `passage: `, 256). Values that
    /// differ from the index's are rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_prefix: Option<String>,
    /// Text before each encoded passage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passage_prefix: Option<String>,
    /// Maximum tokens per encoded text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = 65536))]
    pub max_tokens: Option<usize>,
    /// The encoder's numeric precision.
    pub compute: Compute,
    /// Constant k of reciprocal rank fusion (`hybrid`).
    #[schemars(range(min = 0.0, max = 1e9))]
    pub fusion_k: f64,
    /// Number of passages that `hybrid` requests from each of its two retrievers.
    #[schemars(range(min = 1, max = 100_000))]
    pub fusion_depth: usize,
    /// Servers with the same collection, used in turn; failed requests are retried on the next.
    pub servers: Vec<String>,
    /// JSON key under which queries are sent to servers.
    pub request_key: RequestKey,
    /// Whether servers may be on other machines.
    pub allow_remote: bool,
    /// Timeout of a server's response, in seconds.
    #[schemars(range(min = 0.001, max = 86400.0))]
    pub timeout_s: f64,
    /// Retries of a failed request, each on the next server.
    #[schemars(range(max = 100))]
    pub retries: u32,
    /// Delay in seconds once every server has failed; doubles each time and is randomly shortened
    /// by up to half.
    #[schemars(range(min = 0.0, max = 3600.0))]
    pub backoff_s: f64,
    /// Maximum delay between attempts, in seconds.
    #[schemars(range(min = 0.0, max = 86400.0))]
    pub backoff_max_s: f64,
    /// Maximum queries in a batch, for servers and vectors; 1 disables batching.
    #[schemars(range(min = 1, max = 4096))]
    pub batch_queries: usize,
    /// How long a search waits for more queries, in milliseconds.
    #[schemars(range(min = 0.0, max = 10000.0))]
    pub batch_wait_ms: f64,
    /// Maximum concurrent searches; further queries wait and join the next search.
    #[schemars(range(min = 1, max = 256))]
    pub batch_in_flight: usize,
    /// Maximum cached queries, evicting the least recently used; 0 disables the cache.
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
    /// Returns [`RetrievalError::Setting`] with the key and its valid values.
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

    /// Returns the encoder's settings. `made`, the settings stored in the index, are the defaults.
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
