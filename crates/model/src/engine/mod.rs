//! The sampling engine: continuous batching over a persistent key-value cache.
//!
//! Each [`poll`](Sampler::poll) runs steps over all active sequences until one of them is finished;
//! new requests join the next step. A step computes one row per decoding sequence plus a limited
//! number of prompt rows.
//!
//! A slot keeps a session's keys and values until another session gets the slot. A shared prefix is
//! computed once for all sessions; a prompt waits if an older request is computing the same tokens.

mod device;
mod prompt;
mod slot;
mod stops;
mod watch;
mod weights;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use slot::{Active, Held, Slot, Waiting};
use turnwise_core::{
    Completion, FinishReason, PromptTokens, RequestId, SampleError, SampleRequest, Sampler, SamplingParams,
};
use turnwise_text::{ReasoningTags, Tokenizer};

pub use watch::Sampled;
pub use weights::SharedWeights;

use crate::backend::{Decoding, Row};
pub use crate::cpu::decode::EngineWeights;
use crate::cpu::decode::{Cache, Host, PROMPT_ROWS};
use crate::ops::attention::Heads;
use crate::packing::common_prefix;
use crate::{ModelConfig, ModelError, Parameters};

/// Minimum number of tokens that copying or waiting for a shared prefix must save.
const SHARED_PREFIX: usize = 16;

/// Capacity of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Number of slots, each caching one sequence. A session without a slot evicts an idle session,
    /// or waits if none is idle.
    pub max_num_seqs: usize,
    /// Maximum number of prompt plus response tokens.
    pub max_model_len: usize,
}

impl EngineConfig {
    fn check(&self, max_positions: usize) -> Result<(), ModelError> {
        let fail = |key: &str, reason: String| Err(ModelError::Engine { key: key.into(), reason });
        if self.max_num_seqs == 0 {
            return fail("max_num_seqs", "must be at least 1".into());
        }
        if self.max_model_len < 2 {
            return fail("max_model_len", "must be at least 2".into());
        }
        if self.max_model_len > max_positions {
            let reason = format!(
                "{} is more than the model's max_position_embeddings = {max_positions}",
                self.max_model_len
            );
            return fail("max_model_len", reason);
        }
        Ok(())
    }
}

/// Samples from a decoder, on the calling thread or on a device. For more threads, create several
/// engines that share one [`EngineWeights`].
///
/// On the CPU, each sum has a fixed order (`cpu/decode/matmul.rs`), so equal requests give
/// bit-identical results in any order and batch. On a device, the last bits also depend on the
/// number of rows in a step.
#[derive(Debug)]
pub struct NativeEngine {
    backend: Box<dyn Decoding>,
    tokenizer: Option<Arc<Tokenizer>>,
    reasoning: Option<Arc<ReasoningTags>>,
    max_model_len: usize,
    slots: Vec<Slot>,
    queue: VecDeque<Waiting>,
    done: Vec<Completion>,
    next_request: RequestId,
    /// Orders idle slots by last use.
    clock: u64,
    rows: Vec<Row>,
    prompt_tokens: PromptTokens,
    /// Requests whose tokens are streamed, each with the number of alternatives to report per
    /// token.
    watched: BTreeMap<RequestId, usize>,
    sampled: Vec<Sampled>,
}

impl NativeEngine {
    /// Creates an engine with its own weights. The tokenizer is needed only for stop strings.
    ///
    /// # Errors
    /// Fails like [`EngineWeights::pack`] and [`NativeEngine::with_weights`].
    pub fn new(
        parameters: Arc<Parameters<f32>>,
        weights_version: u64,
        config: EngineConfig,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<Self, ModelError> {
        let weights = EngineWeights::pack(&parameters, weights_version)?;
        drop(parameters);
        Self::with_weights(Arc::new(weights), config, tokenizer)
    }

    /// Creates an engine that shares weights with others.
    ///
    /// # Errors
    /// Returns [`ModelError::Engine`] if `max_num_seqs` is 0, or `max_model_len` is below 2 or
    /// above the model's `max_position_embeddings`.
    pub fn with_weights(
        weights: Arc<EngineWeights>,
        config: EngineConfig,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<Self, ModelError> {
        config.check(weights.max_positions)?;
        let backend = Host::new(weights, config.max_num_seqs, config.max_model_len);
        Ok(Self::on(Box::new(backend), config, tokenizer))
    }

    /// Creates an engine on shared weights ([`crate::NativeLearner::engine_weights`]).
    ///
    /// # Errors
    /// Fails like [`NativeEngine::with_weights`], or if a device has too little memory.
    pub fn with_shared(
        weights: &SharedWeights,
        config: EngineConfig,
        tokenizer: Option<Arc<Tokenizer>>,
    ) -> Result<Self, ModelError> {
        match weights {
            SharedWeights::Host(weights) => Self::with_weights(Arc::clone(weights), config, tokenizer),
            #[cfg(feature = "cuda")]
            SharedWeights::Cuda(crate::cuda::DeviceWeights { network, version }) => {
                config.check(network.config.max_position_embeddings)?;
                let engine =
                    crate::cuda::Engine::new(Arc::clone(network), config.max_num_seqs, config.max_model_len)
                        .map_err(crate::cuda::CudaError::into_setting)?;
                let backend = crate::cuda::DeviceDecoding { engine, version: *version };
                Ok(Self::on(Box::new(backend), config, tokenizer))
            }
        }
    }

    fn on(backend: Box<dyn Decoding>, config: EngineConfig, tokenizer: Option<Arc<Tokenizer>>) -> Self {
        Self {
            backend,
            tokenizer,
            reasoning: None,
            max_model_len: config.max_model_len,
            slots: (0..config.max_num_seqs).map(|_| Slot::default()).collect(),
            queue: VecDeque::new(),
            done: Vec::new(),
            next_request: 0,
            clock: 0,
            rows: Vec::new(),
            prompt_tokens: PromptTokens::default(),
            watched: BTreeMap::new(),
            sampled: Vec::new(),
        }
    }

    /// Returns the bytes of the key-value caches if all slots are full, and those of the largest
    /// step's buffers.
    pub(crate) fn bytes(config: &ModelConfig, engine: EngineConfig) -> [usize; 2] {
        let EngineConfig { max_num_seqs: slots, max_model_len } = engine;
        let heads = Heads::of(config);
        let cache = slots * config.num_hidden_layers * Cache::numbers(heads, max_model_len);
        let (hidden, inner, query) = (config.hidden_size, config.intermediate_size, config.query_width());
        let widest = hidden.max(query).max(inner);
        let row = 2 * hidden + 2 * query + 2 * config.key_value_width() + 2 * inner + widest;
        let scores = slots * heads.group() * max_model_len;
        let rows = (slots + PROMPT_ROWS) * row
            + slots * config.vocab_size
            + max_model_len * config.head_dim
            + scores;
        [cache * size_of::<f32>(), rows * size_of::<f32>()]
    }

    fn check(&self, request: RequestId, asked: &SampleRequest) -> Result<Held, SampleError> {
        let fail = |reason: String| Err(SampleError::Request { request, reason });
        let pictures = self.check_prompt(request, asked)?;
        let params = &asked.params;
        let inverse = 1.0 / params.temperature;
        if params.temperature != 0.0 && !(params.temperature > 0.0 && inverse.is_finite() && inverse > 0.0) {
            return fail(format!("temperature = {}: give 0 or a positive number", params.temperature));
        }
        if !(params.top_p > 0.0 && params.top_p <= 1.0) {
            return fail(format!("top_p = {}: give a number above 0 and up to 1", params.top_p));
        }
        if params.stop_strings.iter().any(String::is_empty) {
            return fail("a stop string is empty".into());
        }
        if !params.stop_strings.is_empty() && self.tokenizer.is_none() {
            return fail("stop strings need a tokenizer, and this engine has none: use stop_tokens".into());
        }
        Ok(pictures)
    }

    /// Starts queued requests. Requests whose session has a slot start first, so that other
    /// requests do not evict the session.
    fn admit(&mut self) {
        for cached in [true, false] {
            let mut index = 0;
            while index < self.queue.len() {
                let session = self.queue[index].asked.session;
                let own = self.slots.iter().position(|slot| slot.session == Some(session));
                let slot = match own {
                    Some(slot) => Some(slot).filter(|&slot| self.slots[slot].active.is_none()),
                    None if cached => None,
                    None => self.free_slot(),
                };
                match slot.and_then(|slot| Some((slot, self.queue.remove(index)?))) {
                    Some((slot, waiting)) => self.start(slot, waiting),
                    None => index += 1,
                }
            }
        }
    }

    fn free_slot(&self) -> Option<usize> {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.active.is_none());
        idle.min_by_key(|(index, slot)| (slot.session.is_some(), slot.used, *index)).map(|(index, _)| index)
    }

    fn start(&mut self, index: usize, Waiting { request, asked, pictures }: Waiting) {
        let matcher = self.matcher(&asked.prompt);
        let slot = &mut self.slots[index];
        // The last prompt token's logits are needed.
        let shared = common_prefix(&slot.tokens[..slot.computed], &asked.prompt);
        slot.session = Some(asked.session);
        slot.computed = shared.min(asked.prompt.len() - 1);
        let cached = slot.computed;
        self.prompt_tokens.saved += cached as u64;
        self.backend.keep(index, slot.computed);
        slot.active = Some(Active {
            request,
            prompt_len: asked.prompt.len(),
            _pictures: pictures,
            params: asked.params,
            rng: asked.seed.rng(),
            logprobs: Vec::new(),
            entropies: Vec::new(),
            matcher,
            cached,
        });
        slot.tokens = asked.prompt;
        slot.places = self.backend.pictures().map_or_else(Vec::new, |pictures| pictures.places(&slot.tokens));
    }

    fn plan(&mut self) -> Result<(), SampleError> {
        self.rows.clear();
        let mut prompts: Vec<(RequestId, usize)> = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(active) = &slot.active {
                if slot.computed + 1 == slot.tokens.len() {
                    let (position, token) = (slot.computed, slot.tokens[slot.computed]);
                    let place = slot.place(position);
                    self.rows.push(Row { slot: index, position, token, place, logits: true });
                } else {
                    prompts.push((active.request, index));
                }
            }
        }
        prompts.sort_unstable();
        let mut room = self.backend.prompt_rows();
        for (request, index) in prompts {
            if room == 0 {
                break;
            }
            if self.shares_prefix(request, index)? {
                continue;
            }
            let slot = &self.slots[index];
            let end = slot.tokens.len().min(slot.computed + room);
            room -= end - slot.computed;
            for position in slot.computed..end {
                let logits = position + 1 == slot.tokens.len();
                let (token, place) = (slot.tokens[position], slot.place(position));
                self.rows.push(Row { slot: index, position, token, place, logits });
            }
        }
        Ok(())
    }

    /// Copies keys and values that another slot has computed. Returns true if the request could
    /// reuse more tokens by waiting for another slot. A request waits only for older ones, so the
    /// oldest request never waits.
    fn shares_prefix(&mut self, request: RequestId, index: usize) -> Result<bool, SampleError> {
        let slot = &self.slots[index];
        let wanted = &slot.tokens[..slot.tokens.len() - 1];
        let mut ready = (slot.computed, index);
        let mut coming = slot.computed;
        for (other, donor) in self.slots.iter().enumerate().filter(|&(other, _)| other != index) {
            if donor.tokens.get(slot.computed) != wanted.get(slot.computed) {
                continue;
            }
            let shared = common_prefix(&donor.tokens, wanted);
            ready = ready.max((shared.min(donor.computed), other));
            if donor.active.as_ref().is_some_and(|active| active.request < request) {
                coming = coming.max(shared);
            }
        }
        let (ready, donor) = ready;
        let computed = slot.computed;
        if ready >= computed + SHARED_PREFIX {
            self.backend.copy(donor, index, computed..ready)?;
            self.prompt_tokens.saved += (ready - computed) as u64;
            self.slots[index].computed = ready;
            if let Some(active) = &mut self.slots[index].active {
                active.cached += ready - computed;
            }
        }
        Ok(coming >= self.slots[index].computed + SHARED_PREFIX)
    }

    fn step(&mut self) -> Result<(), SampleError> {
        self.backend.step(&self.rows)?;
        let mut uniforms = Vec::new();
        for row in self.rows.iter().filter(|row| row.logits) {
            let Some(active) = &mut self.slots[row.slot].active else { continue };
            uniforms.push(if active.params.temperature == 0.0 { 0.0 } else { active.rng.uniform() });
        }
        let asking = self.rows.iter().filter(|row| row.logits);
        let asking = asking.filter_map(|row| Some(&self.slots[row.slot].active.as_ref()?.params));
        let draws: Vec<(&SamplingParams, f64)> = asking.zip(uniforms).collect();
        let mut choices = self.backend.choose(&draws)?.into_iter().enumerate();
        let version = self.backend.version();
        for row in &self.rows {
            let slot = &mut self.slots[row.slot];
            slot.computed = row.position + 1;
            let in_prompt = slot.active.as_ref().is_some_and(|active| row.position < active.prompt_len);
            self.prompt_tokens.computed += u64::from(in_prompt);
            if !row.logits {
                continue;
            }
            let (Some(active), Some((place, choice))) = (&mut slot.active, choices.next()) else { continue };
            let Some(choice) = choice else {
                let request = active.request;
                self.watched.remove(&request);
                *slot = Slot::default();
                return Err(SampleError::Backend(format!(
                    "request {request}: the logits at token {} are not finite numbers; the weights (version \
                     {version}) may have diverged",
                    row.position
                )));
            };
            slot.tokens.push(choice.token);
            if let (Some(pictures), Some(&place)) = (self.backend.pictures(), slot.places.last()) {
                slot.places.push(pictures.place_after(Some((row.token, place)), choice.token));
            }
            active.logprobs.push(choice.logprob);
            active.entropies.push(choice.entropy);
            if let Some(&count) = self.watched.get(&active.request) {
                self.sampled.push(Sampled::of(&*self.backend, active, place, &choice, count));
            }
            let stops = &active.params.stop_strings;
            let text_stop = match &self.tokenizer {
                Some(tokenizer) if !stops.is_empty() => active.matcher.push(tokenizer, choice.token, stops),
                _ => false,
            };
            let finish = if text_stop || active.params.stop_tokens.contains(&choice.token) {
                FinishReason::Stop
            } else if active.logprobs.len() >= active.params.max_tokens {
                FinishReason::Length
            } else if slot.tokens.len() >= self.max_model_len {
                FinishReason::Context
            } else {
                continue;
            };
            if let Some(active) = slot.active.take() {
                self.clock += 1;
                slot.used = self.clock;
                self.watched.remove(&active.request);
                self.done.push(Completion {
                    request: active.request,
                    tokens: slot.tokens[active.prompt_len..].to_vec(),
                    logprobs: active.logprobs,
                    entropies: active.entropies,
                    finish,
                    weights_version: version,
                });
                if slot.ended {
                    slot.end();
                }
            }
        }
        Ok(())
    }

    fn work(&mut self, deadline: Option<Instant>) -> Result<Vec<Completion>, SampleError> {
        while self.done.is_empty() {
            self.admit();
            self.plan()?;
            if self.rows.is_empty() {
                break;
            }
            self.step()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable_by_key(|completion| completion.request);
        Ok(done)
    }
}

impl Sampler for NativeEngine {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        let id = self.next_request;
        let pictures = self.check(id, &request)?;
        self.next_request += 1;
        match request.answer_without_tokens(id, self.max_model_len, self.backend.version()) {
            Some(empty) => self.done.push(empty),
            None => self.queue.push_back(Waiting { request: id, asked: request, pictures }),
        }
        Ok(id)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        self.work(None)
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Vec<Completion>, SampleError> {
        self.work(Some(deadline))
    }

    /// Releases a session's slot. The session's queued and active requests are still completed.
    fn end_session(&mut self, session: u64) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.session == Some(session)) {
            if slot.active.is_some() {
                slot.ended = true;
            } else {
                slot.end();
            }
        }
    }

    fn weights_version(&self) -> u64 {
        self.backend.version()
    }

    fn prompt_tokens(&self) -> PromptTokens {
        self.prompt_tokens
    }
}

#[cfg(test)]
mod prefix_tests;
#[cfg(test)]
mod tests;
