//! A rollout lane's sampler.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use turnwise_core::{Completion, FinishReason, PromptTokens, RequestId, SampleError, SampleRequest, Sampler};
use turnwise_model::vision::{FIRST_PICTURE_TOKEN, VisionConfig};
use turnwise_text::{Tokenizer, stop_length};

use super::dialect::{End, GenerateResponse};
use super::pictures::PromptPictures;
use super::server_pool::{PendingRequest, ServerPool, Unanswered};
use super::versions::Published;
use crate::thread::Outcomes;

pub(crate) struct EngineSampler {
    pool: Arc<ServerPool>,
    handle: Handle,
    published: Arc<Published>,
    tokenizer: Arc<Tokenizer>,
    vision: Option<VisionConfig>,
    max_model_len: usize,
    number: usize,
    next: RequestId,
    sessions: HashMap<u64, Arc<AtomicUsize>>,
    under_way: BTreeMap<RequestId, UnderWay>,
    responses: Outcomes<Result<GenerateResponse, Unanswered>>,
    done: Vec<Completion>,
    failures: Vec<(RequestId, String)>,
    prompt_tokens: PromptTokens,
}

struct UnderWay {
    task: AbortHandle,
    prompt: usize,
    max_tokens: usize,
    stop_tokens: Vec<u32>,
    stop_strings: Vec<String>,
}

/// Returns the number of tokens up to and including the first stop token or stop string, whichever
/// ends first. Servers look for stop strings in decoded text, and may sample beyond stop tokens.
fn response_length(
    tokenizer: &Tokenizer,
    tokens: &[u32],
    stop_tokens: &[u32],
    stop_strings: &[String],
) -> Option<usize> {
    let ends = tokens.iter().position(|token| stop_tokens.contains(token)).map(|index| index + 1);
    stop_length(tokenizer, &tokens[..ends.unwrap_or(tokens.len())], stop_strings).or(ends)
}

impl EngineSampler {
    pub(crate) fn new(
        pool: &Arc<ServerPool>,
        handle: &Handle,
        published: &Arc<Published>,
        (tokenizer, vision): (&Arc<Tokenizer>, Option<&VisionConfig>),
        max_model_len: usize,
    ) -> Self {
        Self {
            pool: Arc::clone(pool),
            handle: handle.clone(),
            published: Arc::clone(published),
            tokenizer: Arc::clone(tokenizer),
            vision: vision.cloned(),
            max_model_len,
            number: pool.samplers.fetch_add(1, Ordering::Relaxed),
            next: 0,
            sessions: HashMap::new(),
            under_way: BTreeMap::new(),
            responses: Outcomes::new(),
            done: Vec::new(),
            failures: Vec::new(),
            prompt_tokens: PromptTokens::default(),
        }
    }

    fn check_prompt(&self, id: RequestId, request: &SampleRequest) -> Result<PromptPictures, SampleError> {
        let found = PromptPictures::of(&request.prompt, self.vision.as_ref());
        let pictures = found.map_err(|reason| SampleError::Request { request: id, reason })?;
        let vocabulary = Some(self.pool.vocabulary);
        if pictures.is_empty() {
            request.check_prompt(id, self.max_model_len, vocabulary)?;
        } else {
            // Picture tokens are not in the vocabulary.
            let text = |&token: &u32| if token < FIRST_PICTURE_TOKEN { token } else { 0 };
            let words =
                SampleRequest { prompt: request.prompt.iter().map(text).collect(), ..request.clone() };
            words.check_prompt(id, self.max_model_len, vocabulary)?;
        }
        Ok(pictures)
    }

    fn take(
        &mut self,
        request: RequestId,
        response: Result<GenerateResponse, Unanswered>,
    ) -> Result<(), SampleError> {
        let Some(asked) = self.under_way.remove(&request) else { return Ok(()) };
        let mut response = match response {
            Ok(response) => response,
            Err(Unanswered::Request(reason)) => {
                self.failures.push((request, reason));
                return Ok(());
            }
            Err(Unanswered::Setup(reason)) => {
                return Err(SampleError::Backend(format!("inference servers: {reason}")));
            }
        };
        self.prompt_tokens.saved += response.cached.min(asked.prompt as u64);
        self.prompt_tokens.computed += (asked.prompt as u64).saturating_sub(response.cached);
        let length =
            response_length(&self.tokenizer, &response.tokens, &asked.stop_tokens, &asked.stop_strings);
        if let Some(length) = length {
            response.tokens.truncate(length);
            response.logprobs.truncate(length);
            response.end = End::Stop;
        }
        let room = self.max_model_len - asked.prompt;
        let finish = match response.end {
            End::Stop => FinishReason::Stop,
            End::Length | End::Abort if room < asked.max_tokens => FinishReason::Context,
            End::Length | End::Abort => FinishReason::Length,
        };
        self.done.push(Completion {
            request,
            tokens: response.tokens,
            logprobs: response.logprobs,
            entropies: Vec::new(),
            finish,
            weights_version: self.published.version,
        });
        Ok(())
    }

    fn work(&mut self, deadline: Option<Instant>) -> Result<Vec<Completion>, SampleError> {
        while self.done.is_empty() && self.failures.is_empty() && !self.under_way.is_empty() {
            let Some((request, response)) = self.responses.wait(deadline)? else { break };
            self.take(request, response)?;
        }
        while let Some((request, response)) = self.responses.take()? {
            self.take(request, response)?;
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable_by_key(|completion| completion.request);
        Ok(done)
    }
}

impl Sampler for EngineSampler {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        let id = self.next;
        let pictures = self.check_prompt(id, &request)?;
        self.next += 1;
        if let Some(empty) = request.answer_without_tokens(id, self.max_model_len, self.published.version) {
            self.done.push(empty);
            return Ok(id);
        }
        let SampleRequest { session, prompt, params, seed } = request;
        let room = self.max_model_len - prompt.len();
        let pool = Arc::clone(&self.pool);
        let place = self.sessions.entry(session).or_insert_with(|| Arc::new(AtomicUsize::new(pool.assign())));
        let (place, published, promise) =
            (Arc::clone(place), Arc::clone(&self.published), self.responses.promise(id));
        let (length, max_tokens) = (prompt.len(), params.max_tokens);
        let (stop_tokens, stop_strings) = (params.stop_tokens.clone(), params.stop_strings.clone());
        let pending = PendingRequest {
            id: format!("{}-{}-{id}", self.published.name, self.number),
            session: format!("{}-{}-{session}", self.published.name, self.number),
            prompt,
            pictures,
            max_tokens: max_tokens.min(room),
            params,
            seed,
        };
        let task = self.handle.spawn(async move {
            let response = pool.generate(&place, &published, &pending).await;
            drop(published);
            promise.keep(response);
        });
        let task = task.abort_handle();
        self.under_way.insert(id, UnderWay { task, prompt: length, max_tokens, stop_tokens, stop_strings });
        Ok(id)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        self.work(None)
    }

    fn poll_until(&mut self, deadline: Instant) -> Result<Vec<Completion>, SampleError> {
        self.work(Some(deadline))
    }

    fn take_failures(&mut self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut self.failures)
    }

    fn end_session(&mut self, session: u64) {
        if let Some(place) = self.sessions.remove(&session) {
            self.pool.release(place.load(Ordering::Relaxed));
        }
    }

    fn weights_version(&self) -> u64 {
        self.published.version
    }

    fn prompt_tokens(&self) -> PromptTokens {
        self.prompt_tokens
    }
}

impl Drop for EngineSampler {
    /// Disconnects from the servers, so that they abort requests whose results nobody needs.
    fn drop(&mut self) {
        for asked in self.under_way.values() {
            asked.task.abort();
        }
        for place in self.sessions.values() {
            self.pool.release(place.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turnwise_core::{Purpose, SamplingParams, Seed};
    use turnwise_text::TokenizerConfig;
    use turnwise_train::config::ServersConfig;

    use super::*;
    use crate::thread::RequestThread;

    #[test]
    fn a_request_whose_thread_has_ended_is_an_error_of_the_sampler() {
        let config =
            ServersConfig { urls: vec!["http://127.0.0.1:9".to_owned()], ..ServersConfig::default() };
        let pool = Arc::new(ServerPool::new(&config, 100).unwrap());
        let published = Arc::new(Published {
            name: "version".to_owned(),
            adapter: true,
            version: 0,
            folder: std::path::PathBuf::new(),
            server_path: String::new(),
        });
        let tokenizer = Tokenizer::train(["go on"].into_iter(), &TokenizerConfig::default()).unwrap();
        let thread = RequestThread::start().unwrap();
        let mut sampler =
            EngineSampler::new(&pool, thread.handle(), &published, (&Arc::new(tokenizer), None), 100);
        drop(thread);
        let seed = Seed::derive(1, Purpose::Rollout, &[]);
        let request =
            SampleRequest { session: 0, prompt: vec![1, 2], params: SamplingParams::default(), seed };
        sampler.submit(request).unwrap();
        let error = sampler.poll_until(Instant::now() + Duration::from_secs(10)).unwrap_err().to_string();
        assert!(error.contains("has ended without an outcome"), "{error}");
    }

    #[test]
    fn a_response_ends_with_its_first_stop_token_or_stop_string() {
        let tokenizer = Tokenizer::train(["go on. stop."].into_iter(), &TokenizerConfig::default()).unwrap();
        let tokens = tokenizer.encode("go on. stop. go");
        let stop = *tokenizer.encode(".").first().unwrap();
        let first = tokens.iter().position(|&token| token == stop).unwrap() + 1;
        let length = |stop_tokens: &[u32], strings: &[&str]| {
            let strings: Vec<String> = strings.iter().map(|&text| text.to_owned()).collect();
            response_length(&tokenizer, &tokens, stop_tokens, &strings)
        };
        assert_eq!(length(&[], &[]), None);
        assert_eq!(length(&[stop], &[]), Some(first));
        assert_eq!(length(&[stop], &["stop"]), Some(first), "the token is before the string");
        assert!(length(&[stop], &["go"]).unwrap() < first, "the string is before the token");
        assert!(length(&[], &["stop"]).unwrap() > first);
        assert_eq!(length(&[u32::MAX], &["none"]), None);
    }
}
