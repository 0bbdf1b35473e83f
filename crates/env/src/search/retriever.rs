use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::EnvError;
use turnwise_retrieval::{Bm25Retriever, Cached, Passage, RetrievalError, Retriever, RetrieverKind};

/// Retriever settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetrieverSettings {
    /// Kind of retriever. With kinds other than `bm25`, each episode waits for its searches in a
    /// separate thread (`rollout.env_threads`).
    pub kind: RetrieverKind,
    /// Folder built by `turnwise index build`, for `bm25`, `dense` and `hybrid`. Default for
    /// `bm25`: an in-memory index of `corpus`, built at every start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<PathBuf>,
    /// Folder with the encoder, for `dense` and `hybrid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// Search the index's graph (`turnwise index build --approximate`) instead of all vectors, for
    /// `dense` and `hybrid`.
    pub approximate: bool,
    /// Server URL (`http://127.0.0.1:8000/retrieve`), for `http`. To use several servers with the
    /// same collection, separate their URLs by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Request timeout in seconds, for `http`.
    #[schemars(range(max = 3600.0), extend("exclusiveMinimum" = 0.0))]
    pub timeout_s: f64,
    /// Number of times that a failed request is retried, for `http`, in addition to the retries of
    /// `rollout.env_retries`.
    #[schemars(range(max = 100))]
    pub retries: u32,
    /// Maximum number of queries to cache; 0 disables the cache. Ignored by `bm25`, which has no
    /// cache.
    #[schemars(range(max = 100000000))]
    pub cache: usize,
}

impl Default for RetrieverSettings {
    fn default() -> Self {
        Self {
            kind: RetrieverKind::Bm25,
            index: None,
            model: None,
            approximate: false,
            url: None,
            timeout_s: 30.0,
            retries: 2,
            cache: 100_000,
        }
    }
}

/// Function that opens a `dense`, `hybrid` or `http` retriever without a cache
/// ([`super::SearchKind::with_retrievers`]).
pub type OpenRetriever =
    Arc<dyn Fn(&RetrieverSettings) -> Result<Arc<dyn Retriever>, RetrievalError> + Send + Sync>;

impl RetrieverSettings {
    pub(super) fn open(
        &self,
        others: Option<&OpenRetriever>,
        passages: impl FnOnce() -> Result<Vec<Passage>, EnvError>,
    ) -> Result<Arc<dyn Retriever>, EnvError> {
        let failed = |error: RetrievalError| EnvError::Other(format!("[env] retriever: {error}"));
        if self.kind == RetrieverKind::Bm25 {
            let opened = match &self.index {
                Some(folder) => Bm25Retriever::open(folder),
                None => Bm25Retriever::in_memory(passages()?),
            };
            return Ok(Arc::new(opened.map_err(failed)?));
        }
        let open = others.ok_or_else(|| {
            EnvError::Other(format!(
                "[env] retriever.kind = \"{}\" cannot be opened by this program: it has been handed no retrievers but bm25 \
                 (SearchKind::with_retrievers)",
                self.kind.name()
            ))
        })?;
        let opened = open(self).map_err(failed)?;
        Ok(if self.cache > 0 { Arc::new(Cached::new(opened, self.cache)) } else { opened })
    }

    pub(super) fn is_instant(&self) -> bool {
        self.kind == RetrieverKind::Bm25
    }

    /// Returns the keys that the retriever kind requires but lacks, and those that are set but
    /// unused, each with a reason.
    pub(super) fn problems(&self, corpus: Option<&Path>) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let kind = self.kind.name();
        let needs = |key: &str| match (self.kind, key) {
            (RetrieverKind::Http, "url")
            | (RetrieverKind::Dense | RetrieverKind::Hybrid, "index" | "model") => Some(true),
            (RetrieverKind::Bm25, "index") => None,
            _ => Some(false),
        };
        for (key, set) in
            [("index", self.index.is_some()), ("model", self.model.is_some()), ("url", self.url.is_some())]
        {
            let path = match key {
                "index" => "retriever.index",
                "model" => "retriever.model",
                _ => "retriever.url",
            };
            match (needs(key), set) {
                (Some(true), false) => {
                    found.push((path, format!("is absent, and retriever.kind = \"{kind}\" needs it")));
                }
                (Some(false), true) => {
                    found.push((
                        path,
                        format!("is set, and retriever.kind = \"{kind}\" does not use it; remove one"),
                    ));
                }
                _ => {}
            }
        }
        if self.approximate && !matches!(self.kind, RetrieverKind::Dense | RetrieverKind::Hybrid) {
            let reason = format!("is set, and retriever.kind = \"{kind}\" searches no vectors; remove it");
            found.push(("retriever.approximate", reason));
        }
        if corpus.is_some() && (self.kind != RetrieverKind::Bm25 || self.index.is_some()) {
            found.push((
                "corpus",
                "is set, and the retriever has passages of its own; remove one of the two".to_owned(),
            ));
        }
        found
    }
}

pub(super) fn search_failed(error: &RetrievalError) -> EnvError {
    let text = format!("the search failed: {error}");
    if error.is_transient() { EnvError::Transient(text) } else { EnvError::Other(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_a_kind_needs_or_does_not_use_are_named() {
        let settings = |text: &str| toml::from_str::<RetrieverSettings>(text).unwrap();
        let keys = |text: &str, corpus: bool| {
            let problems = settings(text).problems(corpus.then_some(Path::new("c")));
            problems.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        for (text, corpus, expected) in [
            ("", true, &[][..]),
            ("index = \"i\"", false, &[]),
            ("index = \"i\"", true, &["corpus"]),
            ("url = \"u\"", false, &["retriever.url"]),
            ("kind = \"http\"", false, &["retriever.url"]),
            ("kind = \"http\"\nurl = \"u\"", false, &[]),
            ("kind = \"http\"\nurl = \"u\"\nindex = \"i\"", true, &["retriever.index", "corpus"]),
            ("kind = \"dense\"\nindex = \"i\"", false, &["retriever.model"]),
            ("approximate = true", false, &["retriever.approximate"]),
            ("kind = \"dense\"\nindex = \"i\"\nmodel = \"m\"\napproximate = true", false, &[]),
            ("kind = \"hybrid\"\nindex = \"i\"\nmodel = \"m\"", false, &[]),
        ] {
            assert_eq!(keys(text, corpus), expected, "{text}");
        }
    }

    #[test]
    fn errors_stay_transient_or_not() {
        let timeout = RetrievalError::Timeout { server: "s".into(), seconds: "2".into() };
        assert!(search_failed(&timeout).is_transient());
        let broken = RetrievalError::Index { reason: "r".into() };
        let error = search_failed(&broken);
        assert!(!error.is_transient() && error.to_string().contains("the index failed: r"), "{error}");
    }
}
