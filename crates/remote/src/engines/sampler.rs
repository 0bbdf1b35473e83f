//! The sampler that a lane of a rollout holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use turnwise_core::{Completion, FinishReason, PromptTokens, RequestId, SampleError, SampleRequest, Sampler};
use turnwise_text::{Tokenizer, stop_length};

use super::adapters::Published;
use super::dialect::{Answer, End};
use super::fleet::{Ask, Fleet, Unanswered};

/// Samples one version of the weights on servers. Requests are under way on the fleet's thread; each is answered once.
pub(crate) struct EngineSampler {
    fleet: Arc<Fleet>,
    handle: Handle,
    adapter: Arc<Published>,
    tokenizer: Arc<Tokenizer>,
    max_context: usize,
    /// Number of this sampler, for names that no other has.
    number: usize,
    next: RequestId,
    /// The server of every session.
    sessions: HashMap<u64, Arc<AtomicUsize>>,
    under_way: BTreeMap<RequestId, UnderWay>,
    sender: Sender<(RequestId, Result<Answer, Unanswered>)>,
    answers: Receiver<(RequestId, Result<Answer, Unanswered>)>,
    done: Vec<Completion>,
    failures: Vec<(RequestId, String)>,
    prompt_tokens: PromptTokens,
}

struct UnderWay {
    task: AbortHandle,
    prompt: usize,
    max_tokens: usize,
    stop_strings: Vec<String>,
}

impl EngineSampler {
    pub(crate) fn new(
        fleet: &Arc<Fleet>,
        handle: &Handle,
        adapter: &Arc<Published>,
        tokenizer: &Arc<Tokenizer>,
        max_context: usize,
    ) -> Self {
        let (sender, answers) = channel();
        Self {
            fleet: Arc::clone(fleet),
            handle: handle.clone(),
            adapter: Arc::clone(adapter),
            tokenizer: Arc::clone(tokenizer),
            max_context,
            number: fleet.samplers.fetch_add(1, Ordering::Relaxed),
            next: 0,
            sessions: HashMap::new(),
            under_way: BTreeMap::new(),
            sender,
            answers,
            done: Vec::new(),
            failures: Vec::new(),
            prompt_tokens: PromptTokens::default(),
        }
    }

    /// Takes an answer in.
    fn take(&mut self, request: RequestId, answer: Result<Answer, Unanswered>) -> Result<(), SampleError> {
        let Some(asked) = self.under_way.remove(&request) else { return Ok(()) };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(Unanswered::Request(reason)) => {
                self.failures.push((request, reason));
                return Ok(());
            }
            Err(Unanswered::Setup(reason)) => {
                return Err(SampleError::Backend(format!("inference servers: {reason}")));
            }
        };
        self.prompt_tokens.saved += answer.cached.min(asked.prompt as u64);
        self.prompt_tokens.computed += (asked.prompt as u64).saturating_sub(answer.cached);
        // A server looks for stop strings in text; where they end in tokens is for us to say.
        if let Some(length) = stop_length(&self.tokenizer, &answer.tokens, &asked.stop_strings) {
            answer.tokens.truncate(length);
            answer.logprobs.truncate(length);
            answer.end = End::Stop;
        }
        let room = self.max_context - asked.prompt;
        let finish = match answer.end {
            End::Stop => FinishReason::Stop,
            End::Length | End::Abort if room < asked.max_tokens => FinishReason::Context,
            End::Length | End::Abort => FinishReason::Length,
        };
        self.done.push(Completion {
            request,
            tokens: answer.tokens,
            logprobs: answer.logprobs,
            entropies: Vec::new(),
            finish,
            weights_version: self.adapter.version,
        });
        Ok(())
    }

    /// Waits for answers, until `deadline` where there is one.
    fn work(&mut self, deadline: Option<Instant>) -> Result<Vec<Completion>, SampleError> {
        let ended = || SampleError::Backend("the thread of the requests has ended".into());
        while self.done.is_empty() && self.failures.is_empty() && !self.under_way.is_empty() {
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.answers.recv_timeout(left.min(Duration::from_hours(1))) {
                Ok((request, answer)) => self.take(request, answer)?,
                Err(RecvTimeoutError::Timeout) if deadline.is_some() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
        while let Ok((request, answer)) = self.answers.try_recv() {
            self.take(request, answer)?;
        }
        let mut done = std::mem::take(&mut self.done);
        done.sort_unstable_by_key(|completion| completion.request);
        Ok(done)
    }
}

impl Sampler for EngineSampler {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        let id = self.next;
        request.check_prompt(id, self.max_context, Some(self.fleet.vocabulary))?;
        self.next += 1;
        if let Some(empty) = request.answer_without_tokens(id, self.max_context, self.adapter.version) {
            self.done.push(empty);
            return Ok(id);
        }
        let SampleRequest { session, prompt, params, seed } = request;
        let room = self.max_context - prompt.len();
        let fleet = Arc::clone(&self.fleet);
        let place =
            self.sessions.entry(session).or_insert_with(|| Arc::new(AtomicUsize::new(fleet.assign())));
        let (place, adapter, sender) = (Arc::clone(place), Arc::clone(&self.adapter), self.sender.clone());
        let (length, max_tokens, stop_strings) =
            (prompt.len(), params.max_tokens, params.stop_strings.clone());
        let ask = Ask {
            id: format!("{}-{}-{id}", self.adapter.name, self.number),
            session: format!("{}-{}-{session}", self.adapter.name, self.number),
            prompt,
            max_tokens: max_tokens.min(room),
            params,
            seed,
        };
        let task = self.handle.spawn(async move {
            let answer = fleet.answer(&place, &adapter, &ask).await;
            drop(adapter);
            let _ = sender.send((id, answer));
        });
        let task = task.abort_handle();
        self.under_way.insert(id, UnderWay { task, prompt: length, max_tokens, stop_strings });
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
            self.fleet.release(place.load(Ordering::Relaxed));
        }
    }

    fn weights_version(&self) -> u64 {
        self.adapter.version
    }

    fn prompt_tokens(&self) -> PromptTokens {
        self.prompt_tokens
    }
}

impl Drop for EngineSampler {
    /// Breaks off requests that nobody waits for any more, which servers notice.
    fn drop(&mut self) {
        for asked in self.under_way.values() {
            asked.task.abort();
        }
        for place in self.sessions.values() {
            self.fleet.release(place.load(Ordering::Relaxed));
        }
    }
}
