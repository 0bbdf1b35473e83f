//! Environments on their own threads, so that resets and steps do not block the sampler.
//!
//! A call that exceeds its time limit ends its trajectory ([`EnvError::Timeout`]), and a new thread
//! replaces the hanging one. Environments may enforce their own limits instead
//! ([`TaskSet::limits_calls`]). An environment is reused for later episodes unless it fails. New
//! episodes wait until the environment has room ([`TaskSet::free_episodes`]); steps have priority.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turnwise_core::{Action, EnvError, Environment, Observation, PendingStep, Seed, Step, TaskSet};

use super::Job;
use crate::config::RolloutConfig;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EnvCalls {
    pub threads: usize,
    /// Maximum time of a reset or step, retries included; a batch of steps gets the sum of its
    /// steps' limits.
    pub timeout: Duration,
    /// Maximum retries after a transient failure.
    pub retries: u32,
    /// Wait before the first retry, doubled for each later retry.
    pub backoff: Duration,
}

impl EnvCalls {
    pub(crate) fn new(config: &RolloutConfig) -> Self {
        Self {
            threads: config.env_threads,
            timeout: Duration::try_from_secs_f64(config.env_timeout_s).unwrap_or(Duration::MAX),
            retries: config.env_retries,
            ..Self::default()
        }
    }
}

impl Default for EnvCalls {
    fn default() -> Self {
        Self { threads: 16, timeout: Duration::from_mins(2), retries: 2, backoff: Duration::from_millis(200) }
    }
}

const ROOM: Duration = Duration::from_millis(10);

pub(crate) type Ticket = u64;

pub(crate) enum Outcome {
    Begun(Box<dyn Environment>, Observation),
    Stepped(Box<dyn Environment>, Step),
    Failed(EnvError),
}

enum Work {
    Begin { job: Box<Job>, seed: Seed },
    Step { environment: Box<dyn Environment>, action: Action },
    Close(Box<dyn Environment>),
}

struct Call {
    work: Work,
    reply: Reply,
}

struct Reply {
    ticket: Ticket,
    sender: Option<Sender<(Ticket, Outcome)>>,
}

impl Reply {
    fn send(self, outcome: Outcome) {
        if let Some(sender) = self.sender {
            let _ = sender.send((self.ticket, outcome));
        }
    }
}

struct Running {
    since: Instant,
    /// `None` if the environment limits its calls itself.
    limit: Option<Duration>,
    operation: &'static str,
    replies: Vec<Reply>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Call>,
    running: HashMap<u64, Running>,
    idle: Vec<Box<dyn Environment>>,
    /// Number of threads, except those that were replaced because they hang.
    threads: usize,
    waiting: usize,
    /// Number of running resets, which the environment may not count yet.
    beginning: usize,
    next: u64,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    task_set: Arc<dyn TaskSet>,
    calls: EnvCalls,
}

pub(crate) struct EnvPool(Arc<Shared>);

impl EnvPool {
    pub(crate) fn new(task_set: Arc<dyn TaskSet>, calls: EnvCalls) -> Self {
        let state = Mutex::new(State::default());
        Self(Arc::new(Shared { state, changed: Condvar::new(), task_set, calls }))
    }

    pub(crate) fn lane(&self) -> LanePool {
        let (sender, receiver) = channel();
        LanePool { shared: Arc::clone(&self.0), next: 0, open: 0, sender, receiver }
    }
}

impl Drop for EnvPool {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let (queue, idle) = (std::mem::take(&mut state.queue), std::mem::take(&mut state.idle));
        drop(state);
        self.0.changed.notify_all();
        drop((queue, idle));
    }
}

pub(crate) struct LanePool {
    shared: Arc<Shared>,
    next: Ticket,
    open: usize,
    sender: Sender<(Ticket, Outcome)>,
    receiver: Receiver<(Ticket, Outcome)>,
}

impl LanePool {
    pub(crate) fn begin(&mut self, job: Job, seed: Seed) -> Ticket {
        self.open += 1;
        self.give(Work::Begin { job: Box::new(job), seed })
    }

    pub(crate) fn step(&mut self, environment: Box<dyn Environment>, action: Action) -> Ticket {
        self.open += 1;
        self.give(Work::Step { environment, action })
    }

    pub(crate) fn close(&mut self, environment: Box<dyn Environment>) {
        self.give(Work::Close(environment));
    }

    /// Returns the number of calls whose outcome has not been taken.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    fn give(&mut self, work: Work) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        let sender = (!matches!(work, Work::Close(_))).then(|| self.sender.clone());
        let call = Call { work, reply: Reply { ticket, sender } };
        let mut state = self.shared.lock();
        state.queue.push_back(call);
        if state.queue.len() > state.waiting && state.threads < self.shared.calls.threads.max(1) {
            start_thread(&self.shared, &mut state);
        }
        drop(state);
        self.shared.changed.notify_one();
        ticket
    }

    /// Waits until `deadline` for the first outcome. Also abandons calls that exceeded their time
    /// limit.
    pub(crate) fn poll(&mut self, deadline: Instant) -> Vec<(Ticket, Outcome)> {
        let mut done: Vec<(Ticket, Outcome)> = self.receiver.try_iter().collect();
        while done.is_empty() && self.open > 0 {
            let next = self.shared.give_up();
            // A call that has not started has no deadline yet.
            let soon = Instant::now() + self.shared.calls.timeout.min(Duration::from_secs(1));
            let until = deadline.min(soon).min(next.unwrap_or(soon));
            let wait = until.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(wait) {
                Ok(first) => done.push(first),
                Err(_) if Instant::now() >= deadline => break,
                Err(_) => {}
            }
            done.extend(self.receiver.try_iter());
        }
        self.open -= done.len();
        done
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Abandons calls that exceeded their time limit, replaces their threads, and returns the time
    /// at which the next call exceeds its limit.
    fn give_up(self: &Arc<Self>) -> Option<Instant> {
        let mut state = self.lock();
        let late = |(thread, running): (&u64, &Running)| {
            let limit = running.limit.filter(|limit| running.since.elapsed() >= *limit)?;
            Some((*thread, limit))
        };
        let late: Vec<(u64, Duration)> = state.running.iter().filter_map(late).collect();
        for (thread, limit) in late {
            let Some(running) = state.running.remove(&thread) else { continue };
            state.threads -= 1;
            start_thread(self, &mut state);
            for reply in running.replies {
                let operation = running.operation.to_owned();
                reply.send(Outcome::Failed(EnvError::Timeout { operation, seconds: limit.as_secs_f64() }));
            }
        }
        state.running.values().filter_map(|running| running.since.checked_add(running.limit?)).min()
    }

    /// Returns a call and the steps to batch with it; `None` if the pool is closed.
    fn take(&self, thread: u64) -> Option<Vec<Work>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(first) = self.next_call(&mut state) {
                state.beginning += usize::from(matches!(first.work, Work::Begin { .. }));
                let (operation, limit) = match first.work {
                    Work::Begin { .. } => ("reset", 1),
                    Work::Step { .. } => ("step", self.task_set.batch_limit()),
                    Work::Close(_) => ("close", 1),
                };
                let mut calls = vec![first];
                while calls.len() < limit
                    && let Some(at) =
                        state.queue.iter().position(|call| matches!(call.work, Work::Step { .. }))
                {
                    calls.extend(state.queue.remove(at));
                }
                let count = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                let limit = (!self.task_set.limits_calls()).then(|| self.calls.timeout.saturating_mul(count));
                let (works, replies) = calls.into_iter().map(|call| (call.work, call.reply)).unzip();
                state.running.insert(thread, Running { since: Instant::now(), limit, operation, replies });
                return Some(works);
            }
            state.waiting += 1;
            state = if state.queue.is_empty() {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                // Calls may wait for room, which is not signalled.
                self.changed.wait_timeout(state, ROOM).unwrap_or_else(PoisonError::into_inner).0
            };
            state.waiting -= 1;
        }
    }

    fn next_call(&self, state: &mut State) -> Option<Call> {
        let first = state.queue.front()?;
        let full = matches!(first.work, Work::Begin { .. })
            && self.task_set.free_episodes().is_some_and(|free| free <= state.beginning);
        let begins = |call: &Call| matches!(call.work, Work::Begin { .. });
        let at = if full { state.queue.iter().position(|call| !begins(call))? } else { 0 };
        state.queue.remove(at)
    }

    /// Sends the outcomes. Returns false if this thread was replaced.
    fn hand_on(&self, thread: u64, outcomes: Vec<Option<Outcome>>) -> bool {
        let Some(running) = self.lock().running.remove(&thread) else { return false };
        for (reply, outcome) in running.replies.into_iter().zip(outcomes) {
            if let Some(outcome) = outcome {
                reply.send(outcome);
            }
        }
        true
    }

    fn begin(&self, job: &Job, seed: Seed) -> Outcome {
        let _begun = Begun(self);
        let attempt = || {
            let idle = self.lock().idle.pop();
            let mut environment = idle.map_or_else(|| self.task_set.environment(), Ok)?;
            let observation = job.start(&mut *environment, seed)?;
            Ok((environment, observation))
        };
        match self.retrying(attempt) {
            Ok((environment, observation)) => Outcome::Begun(environment, observation),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Executes a batch of steps, and retries transient failures as a batch.
    fn steps(&self, mut steps: Vec<(Box<dyn Environment>, Action)>) -> Vec<Outcome> {
        let mut results: Vec<Result<Step, EnvError>> = self.step_together(steps.iter_mut().collect());
        for made in 1..=self.calls.retries {
            let transient =
                |result: &Result<Step, EnvError>| matches!(result, Err(error) if error.is_transient());
            if !results.iter().any(transient) {
                break;
            }
            self.wait(made);
            let again = steps.iter_mut().zip(&results).filter(|(_, result)| transient(result));
            let mut found = self.step_together(again.map(|(step, _)| step).collect()).into_iter();
            for result in results.iter_mut().filter(|result| transient(result)) {
                if let Some(found) = found.next() {
                    *result = found;
                }
            }
        }
        let finish =
            |((environment, _), result): ((Box<dyn Environment>, Action), Result<Step, EnvError>)| {
                match result {
                    Ok(step) => Outcome::Stepped(environment, step),
                    Err(error) => Outcome::Failed(error),
                }
            };
        steps.into_iter().zip(results).map(finish).collect()
    }

    fn step_together(&self, steps: Vec<&mut (Box<dyn Environment>, Action)>) -> Vec<Result<Step, EnvError>> {
        let mut pending: Vec<PendingStep<'_>> = steps
            .into_iter()
            .map(|(environment, action)| PendingStep { environment: &mut **environment, action })
            .collect();
        match pending.as_mut_slice() {
            [PendingStep { environment, action }] => vec![environment.step(action)],
            many => self.task_set.step_many(many),
        }
    }

    fn wait(&self, made: u32) {
        std::thread::sleep(self.calls.backoff * 2u32.saturating_pow(made.saturating_sub(1)).min(1024));
    }

    fn retrying<T>(&self, mut attempt: impl FnMut() -> Result<T, EnvError>) -> Result<T, EnvError> {
        let mut made = 0;
        loop {
            if made > 0 {
                self.wait(made);
            }
            match attempt() {
                Err(error) if error.is_transient() && made < self.calls.retries => made += 1,
                result => return result,
            }
        }
    }

    fn carry_out(&self, works: Vec<Work>) -> Vec<Option<Outcome>> {
        let mut outcomes = Vec::with_capacity(works.len());
        let mut steps = Vec::new();
        for work in works {
            match work {
                Work::Begin { job, seed } => outcomes.push(Some(self.begin(&job, seed))),
                Work::Step { environment, action } => steps.push((environment, action)),
                Work::Close(mut environment) => {
                    environment.close();
                    let mut state = self.lock();
                    if !state.closed {
                        state.idle.push(environment);
                    }
                    outcomes.push(None);
                }
            }
        }
        if !steps.is_empty() {
            outcomes.extend(self.steps(steps).into_iter().map(Some));
        }
        outcomes
    }
}

/// Counts a running reset until dropped, even by a panic.
struct Begun<'a>(&'a Shared);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.lock().beginning -= 1;
    }
}

fn start_thread(shared: &Arc<Shared>, state: &mut State) {
    let thread = state.next;
    let owned = Arc::clone(shared);
    let started = std::thread::Builder::new().name("environment".to_owned()).spawn(move || {
        while let Some(works) = owned.take(thread) {
            let count = works.len();
            let outcomes = catch_unwind(AssertUnwindSafe(|| owned.carry_out(works))).unwrap_or_else(|_| {
                let panicked = || EnvError::Other("the environment panicked; see stderr".to_owned());
                (0..count).map(|_| Some(Outcome::Failed(panicked()))).collect()
            });
            if !owned.hand_on(thread, outcomes) {
                return;
            }
        }
    });
    // Without any thread, `LanePool::poll` would wait forever for queued calls.
    match started {
        Ok(_) => {
            state.next += 1;
            state.threads += 1;
        }
        Err(error) if state.threads == 0 => {
            for call in state.queue.drain(..) {
                let reason = format!("cannot start a thread for the environments: {error}");
                call.reply.send(Outcome::Failed(EnvError::Other(reason)));
            }
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
