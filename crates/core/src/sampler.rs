//! Samplers take prompts as tokens and return responses.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::{SampleError, Seed};

/// Request id, unique within one sampler.
pub type RequestId = u64;

/// Sampling parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// Samples from the smallest set of most probable tokens with at least this total probability;
    /// 1 keeps all.
    pub top_p: f32,
    /// Samples from this many most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Maximum response tokens.
    pub max_tokens: usize,
    /// Tokens that end a response and are part of it.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a response.
    pub stop_strings: Vec<String>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            max_tokens: 512,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
        }
    }
}

/// A prompt to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRequest {
    /// Session, normally one per trajectory. A request reuses the longest prefix that its prompt
    /// shares with the session, so each turn computes only new tokens.
    pub session: u64,
    /// The whole prompt.
    pub prompt: Vec<u32>,
    /// Sampling parameters.
    pub params: SamplingParams,
    /// Seed of this response.
    pub seed: Seed,
}

impl SampleRequest {
    /// Rejects a prompt that is empty, longer than `max_model_len` or outside the vocabulary.
    ///
    /// # Errors
    /// Returns [`SampleError::Request`] for `request`.
    pub fn check_prompt(
        &self,
        request: RequestId,
        max_model_len: usize,
        vocabulary: Option<usize>,
    ) -> Result<(), SampleError> {
        let fail = |reason: String| Err(SampleError::Request { request, reason });
        if self.prompt.is_empty() {
            return fail("the prompt is empty: the first token would have nothing to follow".into());
        }
        if self.prompt.len() > max_model_len {
            return fail(format!(
                "the prompt has {} tokens, the context {max_model_len}: raise max_model_len or shorten the history",
                self.prompt.len()
            ));
        }
        let outside = |vocabulary| self.prompt.iter().find(|&&token| token as usize >= vocabulary);
        if let Some(vocabulary) = vocabulary
            && let Some(token) = outside(vocabulary)
        {
            return fail(format!("token {token} of the prompt is outside the vocabulary of {vocabulary}"));
        }
        Ok(())
    }

    /// Returns an empty response if `max_tokens` is 0 or the prompt fills the context; otherwise
    /// `None`.
    pub fn answer_without_tokens(
        &self,
        request: RequestId,
        max_model_len: usize,
        weights_version: u64,
    ) -> Option<Completion> {
        let finish = match (self.params.max_tokens, self.prompt.len() >= max_model_len) {
            (0, _) => FinishReason::Length,
            (_, true) => FinishReason::Context,
            _ => return None,
        };
        let (tokens, logprobs, entropies) = (Vec::new(), Vec::new(), Vec::new());
        Some(Completion { request, tokens, logprobs, entropies, finish, weights_version })
    }
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token or string.
    Stop,
    /// `max_tokens` was reached.
    Length,
    /// The context was full.
    Context,
}

/// A finished response.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Request id.
    pub request: RequestId,
    /// Response token ids, stop token included.
    pub tokens: Vec<u32>,
    /// `log pi(token | context)` in nats at the sampling temperature (1 if greedy), before top-p
    /// and top-k.
    pub logprobs: Vec<f32>,
    /// Entropy of each token's distribution before top-p and top-k, in nats; empty if unknown.
    pub entropies: Vec<f32>,
    /// Why the response ended.
    pub finish: FinishReason,
    /// Version of the weights that sampled the response.
    pub weights_version: u64,
}

/// Counts of prompt tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTokens {
    /// Number of prompt tokens that ran through the model.
    pub computed: u64,
    /// Number of prompt tokens found in the KV cache.
    pub saved: u64,
}

impl PromptTokens {
    /// Adds the counts of another sampler.
    pub fn add(&mut self, other: Self) {
        self.computed += other.computed;
        self.saved += other.saved;
    }
}

/// Samples responses.
pub trait Sampler {
    /// Queues a request.
    ///
    /// # Errors
    /// Returns [`SampleError::Request`] on an invalid prompt ([`SampleRequest::check_prompt`]) or
    /// parameter, and [`SampleError::Backend`] if the backend fails.
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError>;

    /// Waits for finished responses and returns them, oldest request first. The list may be empty,
    /// if nothing is queued or if requests failed ([`Sampler::take_failures`]).
    ///
    /// # Errors
    /// Fails if the whole sampler fails: NaN, a failed device or service, or a misconfigured
    /// server.
    fn poll(&mut self) -> Result<Vec<Completion>, SampleError>;

    /// Like [`Sampler::poll`], but returns nothing if no response is finished by `deadline`. A
    /// sampler that cannot be interrupted may return later.
    ///
    /// # Errors
    /// Fails like [`Sampler::poll`].
    fn poll_until(&mut self, deadline: Instant) -> Result<Vec<Completion>, SampleError> {
        let _ = deadline;
        self.poll()
    }

    /// Returns requests that failed since the last call, and why.
    fn take_failures(&mut self) -> Vec<(RequestId, String)> {
        Vec::new()
    }

    /// Releases a session's cache.
    fn end_session(&mut self, session: u64);

    /// Returns the version of the current weights.
    fn weights_version(&self) -> u64;

    /// Returns the counts of prompt tokens so far; zeros if unknown.
    fn prompt_tokens(&self) -> PromptTokens {
        PromptTokens::default()
    }
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        (**self).submit(request)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        (**self).poll()
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Vec<Completion>, SampleError> {
        (**self).poll_until(deadline)
    }

    fn take_failures(&mut self) -> Vec<(RequestId, String)> {
        (**self).take_failures()
    }

    fn end_session(&mut self, session: u64) {
        (**self).end_session(session);
    }

    fn weights_version(&self) -> u64 {
        (**self).weights_version()
    }

    fn prompt_tokens(&self) -> PromptTokens {
        (**self).prompt_tokens()
    }
}
